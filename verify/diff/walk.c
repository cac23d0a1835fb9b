#include "verify/diff/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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

static bool asked(const dsf_diff_options *o, const char *path, dsf_tap tap)
{
    bool of_layers =
        tap.id != DSF_TAP_NONE && tap.layer >= o->layer_from && tap.layer <= o->layer_to;
    if (o->by_layer && !of_layers) return false;
    for (int i = 0; i < o->n_only; i++)
        if (dsf_dump_glob(o->only[i], path) ||
            (tap.id != DSF_TAP_NONE && dsf_dump_glob(o->only[i], dsf_taps[tap.id].path)))
            return true;
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
    if (holds(b, path)) {
        item->stats |= !dsf_dump_find(b, path);
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

/* An injected run of a trimmed reference computes what the rows there are allow, layer by layer. */
static bool may_lack(const dsf_walk_item *x, const dsf_dump_info *ours)
{
    return x->trimmed && strcmp(ours->mode, "injected") == 0;
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
        if (x->b[0] || x->tap.id == DSF_TAP_NONE) continue;
        if (w->unknown[0] && same_folder(w->unknown, x->a))
            (void)snprintf(w->odd, sizeof w->odd, "%s is absent and %s is no tap: renamed?", x->a,
                           w->unknown);
        else if (!may_lack(x, dsf_dump_info_of(b)) && x->tap.layer >= 0 &&
                 x->tap.layer < n_layers && holds_layer(b, x->tap.layer) &&
                 holds_kind(w, x->tap.id))
            (void)snprintf(w->odd, sizeof w->odd,
                           "%s is missing, though ours has this layer, and this tap of others",
                           x->a);
    }
}

dsf_status dsf_walk_make(dsf_walk *w, dsf_dump_file *a, dsf_dump_file *b, const dsf_diff_options *o)
{
    int n_layers = dsf_dump_info_of(a)->geometry.n_layers;
    *w = (dsf_walk){0};
    DSF_TRY(dsf_mem_new(&w->item, (size_t)dsf_dump_count(a), sizeof *w->item));
    for (int64_t i = 0; i < dsf_dump_count(a); i++) {
        const dsf_dump_entry *e = dsf_dump_at(a, i);
        dsf_walk_item *item = &w->item[w->n];
        if (reference_only(bare(e->path)) && o->n_only == 0) continue;
        if (e->stats && dsf_dump_find(a, bare(e->path))) continue; /* its values are there too */
        describe(item, e, n_layers);
        if (!asked(o, bare(e->path), item->tap)) continue;
        item->trimmed = !e->stats && e->dim[0] < dsf_dump_info_of(a)->n_tokens;
        find_ours(item, a, b);
        w->n_asked += o->n_only > 0;
        w->n++;
    }
    if (w->n) qsort(w->item, (size_t)w->n, sizeof *w->item, in_order);
    look_at_ours(w, a, b, n_layers);
    look_for_holes(w, b, n_layers);
    return DSF_OK;
}

void dsf_walk_free(dsf_walk *w)
{
    dsf_mem_free(w->item);
    *w = (dsf_walk){0};
}
