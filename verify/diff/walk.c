#include "verify/diff/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "verify/diff/flow.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* What only a reference holds: margins, and runs of another kind that no single run of ours repeats
 * (dump-schema.md 3 to 5). */
static bool reference_only(const char *path)
{
    static const char *const prefix[] = {"ced/",          "ced_source_window_exact/",
                                         "greedy/",       "decode/",
                                         "draft_all/",    "logits_demo",
                                         "logits_ownkeys"};
    for (unsigned i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(path, prefix[i], strlen(prefix[i])) == 0) return true;
    return ends_with(path, "_margin");
}

/* Listed in the schema, though not in the list of taps. */
static bool schema_path(const char *path)
{
    return reference_only(path) || strncmp(path, "vision/", 7) == 0 ||
           strncmp(path, "images/", 7) == 0 || strncmp(path, "dspark/ring_kv/", 15) == 0;
}

static const char *bare(const char *path)
{
    return strncmp(path, "stats/", 6) == 0 ? path + 6 : path;
}

static bool has_stats(dsf_dump_file *f, const char *path)
{
    char stats[112];
    (void)snprintf(stats, sizeof stats, "stats/%.96s", path);
    return dsf_dump_find(f, stats) != NULL;
}

/* As values or as statistics. */
static bool holds(dsf_dump_file *f, const char *path)
{
    return dsf_dump_find(f, path) || has_stats(f, path);
}

/* The tap of a path; `logits_oneshot` is the tap logits. */
static bool parse(dsf_tap *tap, const char *path, int n_layers)
{
    bool oneshot = strcmp(path, "logits_oneshot") == 0;
    *tap = (dsf_tap){DSF_TAP_NONE, -1};
    if (!dsf_tap_parse(tap, oneshot ? "logits" : path, n_layers)) {
        *tap = (dsf_tap){DSF_TAP_NONE, -1};
        return false;
    }
    return true;
}

static bool matches(const char *glob, const char *path, dsf_tap tap)
{
    return dsf_dump_glob(glob, path) ||
           (tap.id != DSF_TAP_NONE && dsf_dump_glob(glob, dsf_taps[tap.id].path));
}

static bool asked(const dsf_diff_options *o, const char *path, dsf_tap tap)
{
    bool of_layers =
        tap.id != DSF_TAP_NONE && tap.layer >= o->layer_from && tap.layer <= o->layer_to;
    if (o->by_layer && !of_layers) return false;
    for (int i = 0; i < o->n_only; i++)
        if (matches(o->only[i], path, tap)) return true;
    return o->n_only == 0;
}

static void describe(dsf_walk_item *item, const dsf_dump_entry *e, int n_layers)
{
    const char *path = bare(e->path);
    *item = (dsf_walk_item){.stats = e->stats};
    (void)snprintf(item->a, sizeof item->a, "%s", path);
    if (!parse(&item->tap, path, n_layers)) {
        (void)snprintf(item->kind, sizeof item->kind, "%.39s", path);
        item->order = INT64_MAX; /* behind everything that has a place */
        return;
    }
    /* noise floors know logits by the pass that computes all rows, draft stages as "dspark/attn/u"
     */
    const char *kind =
        item->tap.id == DSF_TAP_LOGITS ? "logits_oneshot" : dsf_taps[item->tap.id].path;
    if (item->tap.layer >= n_layers && item->tap.id != DSF_TAP_DSPARK_CTX_KV)
        (void)snprintf(item->kind, sizeof item->kind, "dspark/%s",
                       path + strcspn(path, "0123456789") + 2); /* behind "dspark/stages/S/" */
    else
        (void)snprintf(item->kind, sizeof item->kind, "%s", kind);
    item->order = dsf_tap_order(item->tap, n_layers) + (strcmp(path, "logits_oneshot") == 0);
    if (e->order >= 0) item->order = e->order;
}

/* Where ours holds this path; logits and logits_oneshot stand in for each other. In a free run our
 * rows do not depend on later ones, so a row of one prefill is the last row of a shorter one;
 * injected ones were computed from what one prefill gave, and are its rows. */
static void find_ours(dsf_walk_item *item, dsf_dump_file *a, dsf_dump_file *b)
{
    const char *path = item->a;
    const dsf_dump_entry *own = dsf_dump_find(b, path), *theirs = dsf_dump_find(a, path);
    /* `logits` of fewer rows than the reference has, beside those of one pass: all meet there */
    bool few = own && theirs && own->dim[0] < theirs->dim[0] && strcmp(path, "logits") == 0 &&
               dsf_dump_find(b, "logits_oneshot");
    if (holds(b, path) && !few) {
        item->stats |= !own;
    } else if (!item->stats) {
        bool injected = strcmp(dsf_dump_info_of(b)->mode, "injected") == 0;
        if (strcmp(path, "logits_oneshot") == 0)
            path = "logits";
        else if (strcmp(path, "logits") == 0 && !(injected && dsf_dump_find(a, "logits_oneshot")))
            path = "logits_oneshot";
    }
    if (item->stats ? holds(b, path) : dsf_dump_find(b, path) != NULL)
        (void)snprintf(item->b, sizeof item->b, "%s", path);
}

static int in_order(const void *a, const void *b)
{
    const dsf_walk_item *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return strcmp(x->a, y->a);
}

static void look_at_ours(dsf_walk *w, dsf_dump_file *a, dsf_dump_file *b, int n_layers)
{
    for (int64_t i = 0; i < dsf_dump_count(b); i++) {
        const dsf_dump_entry *e = dsf_dump_at(b, i);
        dsf_tap tap;
        if (holds(a, bare(e->path))) continue;
        w->n_extra++;
        if (!parse(&tap, bare(e->path), n_layers) && !schema_path(bare(e->path)) && !w->unknown[0])
            (void)snprintf(w->unknown, sizeof w->unknown, "%s", bare(e->path));
    }
}

static bool same_folder(const char *a, const char *b)
{
    const char *x = strrchr(a, '/'), *y = strrchr(b, '/');
    return x && y && x - a == y - b && strncmp(a, b, (size_t)(x - a)) == 0;
}

static bool holds_layer(dsf_dump_file *b, int layer)
{
    char prefix[24];
    (void)snprintf(prefix, sizeof prefix, "layers/%02d/", layer);
    for (int64_t i = 0; i < dsf_dump_count(b); i++)
        if (strncmp(bare(dsf_dump_at(b, i)->path), prefix, 10) == 0) return true;
    return false;
}

/* Rows of a whole axis; logits stand for some rows or all. */
static int64_t whole_axis(const dsf_dump_info *in, dsf_tap tap)
{
    const dsf_dump_geometry *g = &in->geometry;
    dsf_tap_rows_kind rows = dsf_taps[tap.id].rows;
    bool layer = dsf_taps[tap.id].scope == DSF_SCOPE_LAYER;
    if (rows == DSF_ROWS_LOGITS) return 1;
    if (rows == DSF_ROWS_DRAFT || (layer && tap.layer >= g->n_layers)) return g->draft_rows;
    if (rows == DSF_ROWS_ENTRY) return g->ratio[tap.layer] ? in->n_tokens / g->ratio[tap.layer] : 0;
    return in->n_tokens;
}

static bool is_trimmed(const dsf_dump_file *a, dsf_tap tap, const dsf_dump_entry *e)
{
    return !e->stats && tap.id != DSF_TAP_NONE && e->dim[0] < whole_axis(dsf_dump_info_of(a), tap);
}

/* A value that the file holds whole; a layer's inputs also as what the one before left. */
static bool holds_whole(dsf_dump_file *a, dsf_tap tap)
{
    int n_layers = dsf_dump_info_of(a)->geometry.n_layers;
    char path[64];
    dsf_tap_path(path, tap, n_layers);
    const dsf_dump_entry *e = dsf_dump_find(a, path);
    if (!e && tap.layer > 0 && tap.layer != n_layers &&
        (tap.id == DSF_TAP_IN || tap.id == DSF_TAP_PREMIX)) {
        tap = (dsf_tap){tap.id == DSF_TAP_IN ? DSF_TAP_OUT : DSF_TAP_FFN_PRE, tap.layer - 1};
        dsf_tap_path(path, tap, n_layers);
        e = dsf_dump_find(a, path);
    }
    return e && e->readable && !is_trimmed(a, tap, e);
}

/* What a layer is given by the reference (graft.h). */
static bool is_input(const dsf_diff_state *s, dsf_tap tap)
{
    return tap.id == DSF_TAP_IN || tap.id == DSF_TAP_PREMIX ||
           (tap.id == DSF_TAP_EMBED && s->image);
}

/* The draft block runs as a whole: from its first input, the best token of the last row, and what
 * every stage keeps of the prompt. */
static bool can_draft(dsf_dump_file *a)
{
    const dsf_dump_geometry *g = &dsf_dump_info_of(a)->geometry;
    bool can = holds_whole(a, (dsf_tap){DSF_TAP_IN, g->n_layers}) &&
               (dsf_dump_find(a, "logits") || dsf_dump_find(a, "logits_oneshot"));
    for (int stage = 0; stage < g->n_stages && can; stage++) {
        char ring[40], rows[40];
        (void)snprintf(ring, sizeof ring, "dspark/ring_kv/%d", stage);
        (void)snprintf(rows, sizeof rows, "dspark/ctx_kv/%d", stage);
        can = dsf_dump_find(a, ring) || dsf_dump_find(a, rows);
    }
    return can;
}

static bool is_draft(const dsf_dump_geometry *g, dsf_tap tap)
{
    return dsf_taps[tap.id].rows == DSF_ROWS_DRAFT ||
           (dsf_taps[tap.id].scope == DSF_SCOPE_LAYER && tap.layer >= g->n_layers);
}

/* Operation by operation what a reference of some rows allows is computed: not what stands behind
 * a value that it lacks. */
bool dsf_walk_lacks_inputs(dsf_dump_file *a, dsf_tap tap)
{
    dsf_tap in[DSF_FLOW_MAX];
    const dsf_dump_geometry *g = &dsf_dump_info_of(a)->geometry;
    int n = dsf_flow_inputs(g, tap, in);
    if (is_draft(g, tap)) return !can_draft(a);
    for (int i = 0; i < n; i++)
        if (!holds_whole(a, in[i])) return true;
    return false;
}

static dsf_walk_absence why_absent(const dsf_diff_state *s, const dsf_walk_item *x)
{
    if (x->b[0]) return DSF_WALK_HERE;
    if (!s->injected || x->tap.id == DSF_TAP_NONE) return DSF_WALK_ABSENT;
    if (is_input(s, x->tap)) return DSF_WALK_GIVEN;
    return x->trimmed || dsf_walk_lacks_inputs(s->a, x->tap) ? DSF_WALK_NO_WAY : DSF_WALK_ABSENT;
}

static bool holds_kind(const dsf_walk *w, dsf_tap_id id)
{
    for (int64_t i = 0; i < w->n; i++)
        if (w->item[i].tap.id == id && w->item[i].b[0]) return true;
    return false;
}

/* A missing tap is a named skip, unless it leaves a hole: ours has the layer and has that tap of
 * other layers, or has something unheard of in its place. */
static void look_for_holes(dsf_walk *w, dsf_dump_file *b, int n_layers)
{
    for (int64_t i = 0; i < w->n && !w->odd[0]; i++) {
        const dsf_walk_item *x = &w->item[i];
        if (x->absence != DSF_WALK_ABSENT || x->tap.id == DSF_TAP_NONE) continue;
        if (w->unknown[0] && same_folder(w->unknown, x->a))
            (void)snprintf(w->odd, sizeof w->odd, "%s is absent and %s is no tap: renamed?", x->a,
                           w->unknown);
        else if (x->tap.layer >= 0 && x->tap.layer < n_layers && holds_layer(b, x->tap.layer) &&
                 holds_kind(w, x->tap.id))
            (void)snprintf(w->odd, sizeof w->odd,
                           "%s is missing, though ours has this layer, and this tap of others",
                           x->a);
    }
}

/* Every glob must name something that ours could hold. */
static void look_for_vain(dsf_walk *w, const dsf_diff_options *o)
{
    for (int k = 0; k < o->n_only && !w->vain; k++) {
        bool found = false;
        w->vain_matches = false;
        for (int64_t i = 0; i < w->n && !found; i++) {
            const dsf_walk_item *x = &w->item[i];
            if (!matches(o->only[k], x->a, x->tap)) continue;
            w->vain_matches = true;
            found = x->absence == DSF_WALK_HERE || x->absence == DSF_WALK_ABSENT;
        }
        if (!found) w->vain = o->only[k];
    }
}

/* The datasets of the reference that are compared. What only a reference holds is, where ours holds
 * it too and it was asked for. */
static bool walked(const dsf_diff_state *s, const dsf_dump_entry *e, const dsf_diff_options *o)
{
    dsf_dump_file *a = s->a, *b = s->b;
    const char *path = bare(e->path);
    /* injected rows of `logits` are those of one pass, where the reference holds these */
    if (s->injected && strcmp(path, "logits") == 0 && dsf_dump_find(a, "logits_oneshot") &&
        !holds(b, path))
        return false;
    if (reference_only(path) && (o->n_only == 0 || !holds(b, path))) return false;
    return !(e->stats && dsf_dump_find(a, path)); /* its values are there too */
}

dsf_status dsf_walk_make(dsf_walk *w, const dsf_diff_state *s, const dsf_diff_options *o)
{
    dsf_dump_file *a = s->a, *b = s->b;
    int n_layers = dsf_dump_info_of(a)->geometry.n_layers;
    *w = (dsf_walk){0};
    DSF_TRY(dsf_mem_new(&w->item, (size_t)dsf_dump_count(a), sizeof *w->item));
    for (int64_t i = 0; i < dsf_dump_count(a); i++) {
        const dsf_dump_entry *e = dsf_dump_at(a, i);
        dsf_walk_item *item = &w->item[w->n];
        if (!walked(s, e, o)) continue;
        describe(item, e, n_layers);
        if (!asked(o, bare(e->path), item->tap)) continue;
        if (o->by_position && item->tap.id != DSF_TAP_NONE && is_draft(s->g, item->tap) &&
            o->position_to < s->n)
            continue; /* its rows lie behind the prompt */
        item->trimmed = is_trimmed(a, item->tap, e);
        find_ours(item, a, b);
        item->absence = why_absent(s, item);
        w->n++;
    }
    if (w->n) qsort(w->item, (size_t)w->n, sizeof *w->item, in_order);
    look_at_ours(w, a, b, n_layers);
    look_for_holes(w, b, n_layers);
    look_for_vain(w, o);
    return DSF_OK;
}

bool dsf_walk_row_wanted(const dsf_diff_state *s, const dsf_diff_options *o, dsf_tap tap,
                         int32_t label)
{
    const dsf_dump_filter f = {
        .by_position = true, .position_from = o->position_from, .position_to = o->position_to};
    bool entry = tap.id != DSF_TAP_NONE && dsf_taps[tap.id].rows == DSF_ROWS_ENTRY;
    return !o->by_position || dsf_dump_filter_row(&f, label, entry ? s->g->ratio[tap.layer] : 0);
}

void dsf_walk_free(dsf_walk *w)
{
    dsf_mem_free(w->item);
    *w = (dsf_walk){0};
}
