#include "verify/diff/choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "verify/diff/detail.h"

/* What the reference stores about one kind of choice, and ours where it helps to judge. */
typedef struct {
    dsf_dump_array margin, scores, own; /* own: scores of ours, to see whether they are equal */
    bool has_margin, has_scores, has_own;
    double carried;          /* free-running: relative noise of a row of scores */
    double clean, disturbed; /* router: limit of a row's relative error */
} evidence;

static dsf_status load(dsf_dump_file *f, dsf_tap tap, const char *name, dsf_dump_array *out,
                       bool *has)
{
    char path[64], full[96];
    dsf_tap_path(path, tap, dsf_dump_info_of(f)->geometry.n_layers);
    /* the folder of the tap, then the name: "layers/04/attn/" + "topk_margin" */
    (void)snprintf(full, sizeof full, "%.*s%s", (int)(strrchr(path, '/') - path + 1), path, name);
    const dsf_dump_entry *e = dsf_dump_find(f, full);
    *has = e && e->readable && e->kind == DSF_DUMP_F32;
    return *has ? dsf_dump_read(f, full, out) : DSF_OK;
}

static dsf_status gather(const dsf_diff_state *s, dsf_tap tap, evidence *e)
{
    bool expert = tap.id == DSF_TAP_FFN_EXPERT_IDS;
    const char *margin = expert                        ? "expert_margin"
                         : tap.id == DSF_TAP_ATTN_POOL ? "pool_margin"
                                                       : "topk_margin";
    const char *scores = expert ? "router_scores" : "index_scores";
    DSF_TRY(load(s->a, tap, margin, &e->margin, &e->has_margin));
    DSF_TRY(load(s->a, tap, scores, &e->scores, &e->has_scores));
    DSF_TRY(load(s->b, tap, scores, &e->own, &e->has_own));
    dsf_floor_kind k = {0};
    if (s->floor)
        (void)dsf_floor_get(s->floor, expert ? "ffn/router_scores" : "attn/index_scores",
                            tap.layer < s->g->n_layers ? tap.layer : -1, expert, &k);
    e->carried = k.carried.known ? k.carried.row_max : k.pooled.row_max;
    e->clean = 4.0 * (k.own.row_max > 0.0 ? k.own.row_max : k.pooled.row_max);
    e->disturbed = 4.0 * fmax(k.own.row_max, k.pooled.row_max);
    return DSF_OK;
}

static void release(evidence *e)
{
    dsf_dump_array_free(&e->margin);
    dsf_dump_array_free(&e->scores);
    dsf_dump_array_free(&e->own);
}

/* Row of a label: labels mostly are 0, 1, 2, ... */
static const float *row_at(const dsf_dump_array *a, int32_t label)
{
    if (label >= 0 && label < a->n && a->label[label] == label) return a->f + label * a->width;
    for (int64_t i = 0; i < a->n; i++)
        if (a->label[i] == label) return a->f + i * a->width;
    return NULL;
}

static double norm(const float *v, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(v[i])) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

/* One bf16 step at |x|. */
static double step(double x)
{
    int e;
    if (!isfinite(x) || x == 0.0) return 0.0;
    (void)frexp(x, &e);
    return ldexp(1.0, e - 8);
}

typedef struct {
    dsf_tap tap;
    int32_t label;
    const int64_t *a, *b; /* ids or mask of the row */
    int64_t na, nb;       /* elements */
    int64_t visible;      /* entries, or experts */
    bool disturbed;
} choice;

static bool holds(const int64_t *list, int64_t n, int64_t id)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

/* Elements of one list that the other lacks. -1 is padding. */
static int64_t missing(const int64_t *a, int64_t na, const int64_t *b, int64_t nb)
{
    int64_t n = 0;
    for (int64_t i = 0; i < na; i++) n += a[i] >= 0 && !holds(b, nb, a[i]);
    return n;
}

/* A list must be a set of ids that exist; NULL when it is. */
static const char *malformed(const choice *c)
{
    for (int64_t i = 0; i < c->nb; i++) {
        if (c->b[i] < -1) return "an id below -1";
        if (c->b[i] >= c->visible && c->visible >= 0) return "an id that is not visible";
        if (i && c->b[i] >= 0 && c->b[i - 1] == -1) return "an id behind the padding";
        if (i && c->b[i] >= 0 && c->b[i] <= c->b[i - 1]) return "ids that do not ascend";
    }
    return NULL;
}

/* The score at the edge: the smallest that was taken (for the pool: the smallest block maximum).
 * NaN where it cannot be told. */
static double edge_score(const dsf_diff_state *s, const evidence *e, const choice *c)
{
    const float *score = e->has_scores ? row_at(&e->scores, c->label) : NULL;
    double edge = NAN;
    if (!score) return edge;
    int64_t width = e->scores.width < c->visible ? e->scores.width : c->visible;
    if (c->tap.id == DSF_TAP_ATTN_TOPK) {
        for (int64_t i = 0; i < c->na; i++)
            if (c->a[i] >= 0 && c->a[i] < width) edge = fmin(edge, (double)score[c->a[i]]);
        return edge;
    }
    int64_t block = s->g->pool_block > 0 ? s->g->pool_block : 1;
    for (int64_t from = 0; from < width; from += block) {
        double best = NAN;
        for (int64_t i = from; i < from + block && i < width; i++)
            best = fmax(best, (double)score[i]);
        if (from < c->na && c->a[from]) edge = fmin(edge, best);
    }
    return edge;
}

static bool scores_equal(const evidence *e, const choice *c)
{
    const float *a = e->has_scores ? row_at(&e->scores, c->label) : NULL;
    const float *b = e->has_own ? row_at(&e->own, c->label) : NULL;
    if (!a || !b) return false;
    for (int64_t i = 0; i < c->visible; i++)
        if (i >= e->scores.width || i >= e->own.width || a[i] != b[i]) return false;
    return true;
}

/* The margin that noise can turn: both scores may move by one rounding (exact inputs), or by five
 * times the carried noise of a row. Negative: nothing excuses a difference. */
static double tolerance(const dsf_diff_state *s, const evidence *e, const choice *c)
{
    const float *row = e->has_scores ? row_at(&e->scores, c->label) : NULL;
    if (c->tap.id == DSF_TAP_FFN_EXPERT_IDS) {
        /* without scores: sqrt(softplus(x)) is about 1 for each expert */
        double size = row ? norm(row, e->scores.width) : sqrt((double)c->visible);
        double rel = !s->floor      ? ldexp(1.0, -23)
                     : !s->injected ? 5.0 * e->carried
                     : c->disturbed ? e->disturbed
                                    : e->clean;
        return 2.0 * rel * size;
    }
    if (scores_equal(e, c)) return -1.0;
    double edge = edge_score(s, e, c);
    double tol = isnan(edge) ? 0.0 : 2.0 * step(edge);
    if (!s->injected && row) {
        double rms = norm(row, c->visible) / sqrt((double)(c->visible ? c->visible : 1));
        tol = fmax(tol, 5.0 * e->carried * rms);
    }
    return tol;
}

/* Whether the difference of this row is a tie; says why not. */
static bool explained(const dsf_diff_state *s, const evidence *e, const choice *c, dsf_diff_tap *t,
                      char why[240])
{
    if (c->tap.id == DSF_TAP_ATTN_TOPK && dsf_state_pool_flipped(s, c->tap, c->label)) return true;
    const float *margin = e->has_margin ? row_at(&e->margin, c->label) : NULL;
    double tol = tolerance(s, e, c);
    if (margin && tol >= 0.0 && (double)*margin <= tol) return true;
    if (margin && tol > 0.0) t->choice_ratio = fmax(t->choice_ratio, (double)*margin / tol);
    if (tol < 0.0)
        (void)snprintf(why, 240, "wrong choice at row %d: its scores equal the reference's",
                       (int)c->label);
    else if (!margin)
        (void)snprintf(why, 240, "wrong choice at row %d: no margin stored to excuse it",
                       (int)c->label);
    else
        (void)snprintf(why, 240, "wrong choice at row %d: margin %.3g, noise reaches %.3g",
                       (int)c->label, (double)*margin, tol);
    return false;
}

static bool differs(const choice *c, int64_t *changed)
{
    if (c->tap.id != DSF_TAP_ATTN_POOL) {
        *changed = missing(c->a, c->na, c->b, c->nb) + missing(c->b, c->nb, c->a, c->na);
        return *changed > 0;
    }
    *changed = 0;
    for (int64_t i = 0; i < c->visible; i++)
        *changed += (i < c->na && c->a[i]) != (i < c->nb && c->b[i]);
    return *changed > 0;
}

static int64_t visible_at(const dsf_diff_state *s, dsf_tap tap, int32_t label)
{
    bool stage = tap.layer >= s->g->n_layers;
    if (tap.id == DSF_TAP_FFN_EXPERT_IDS) {
        int n = stage ? s->g->stage_experts : s->g->n_experts;
        return n ? n : -1;
    }
    int ratio = stage ? 0 : s->g->ratio[tap.layer];
    return ratio ? ((int64_t)label + 1) / ratio : 0;
}

/* What one list holds and the other lacks. Pools: blocks' first entries. */
static void list_lost(const choice *c, int64_t block, dsf_diff_flip *f)
{
    int lost = 0, gained = 0;
    for (int k = 0; k < DSF_FLIP_IDS; k++) f->lost[k] = f->gained[k] = -1;
    if (c->tap.id == DSF_TAP_ATTN_POOL) {
        for (int64_t i = 0; i<c->visible; i += block> 0 ? block : 1) {
            bool a = i < c->na && c->a[i], b = i < c->nb && c->b[i];
            if (a && !b && lost < DSF_FLIP_IDS) f->lost[lost++] = i;
            if (b && !a && gained < DSF_FLIP_IDS) f->gained[gained++] = i;
        }
        return;
    }
    for (int64_t i = 0; i < c->na; i++)
        if (c->a[i] >= 0 && !holds(c->b, c->nb, c->a[i]) && lost < DSF_FLIP_IDS)
            f->lost[lost++] = c->a[i];
    for (int64_t i = 0; i < c->nb; i++)
        if (c->b[i] >= 0 && !holds(c->a, c->na, c->b[i]) && gained < DSF_FLIP_IDS)
            f->gained[gained++] = c->b[i];
}

static void keep_flip(const dsf_diff_state *s, const evidence *e, const choice *c, bool tie,
                      dsf_diff_tap *t)
{
    const float *margin = e->has_margin ? row_at(&e->margin, c->label) : NULL;
    if (!t->flip) return;
    dsf_diff_flip *f = &t->flip[t->n_flips++];
    *f = (dsf_diff_flip){.label = c->label, .margin = margin ? (double)*margin : NAN, .tie = tie};
    list_lost(c, s->g->pool_block, f);
}

static void wrong_row(dsf_diff_tap *t, const choice *c, const char *why)
{
    if (t->wrong++) return;
    t->at_row = c->label;
    (void)snprintf(t->why, sizeof t->why, "%s", why);
}

static dsf_status one_row(dsf_diff_state *s, const evidence *e, const choice *c, bool *wrong,
                          dsf_diff_tap *t)
{
    int64_t changed;
    char why[240];
    const char *bad = c->tap.id == DSF_TAP_ATTN_POOL ? NULL : malformed(c);
    bool other = differs(c, &changed);
    t->changed += changed;
    t->unequal += other;
    if (bad) {
        (void)snprintf(why, sizeof why, "row %d holds %s", (int)c->label, bad);
        *wrong = true;
        wrong_row(t, c, why);
        return DSF_OK;
    }
    if (!other) return DSF_OK;
    t->flips++;
    *wrong = !explained(s, e, c, t, why);
    keep_flip(s, e, c, !*wrong, t);
    if (*wrong) {
        wrong_row(t, c, why);
        return DSF_OK;
    }
    t->ties++;
    return dsf_state_flip(s, c->tap, c->label);
}

dsf_status dsf_choice_compare(dsf_diff_state *s, dsf_tap tap, const dsf_joined *j, bool keep,
                              dsf_diff_tap *t)
{
    evidence e = {0};
    dsf_row *row = NULL;
    dsf_status st = DSF_OK;
    t->discrete = true;
    t->rows = j->n;
    t->width = j->width;
    DSF_TRY_OUT(gather(s, tap, &e));
    DSF_TRY_OUT(dsf_mem_new(&row, (size_t)j->n + 1, sizeof *row));
    if (keep) DSF_TRY_OUT(dsf_mem_new(&t->flip, (size_t)j->n + 1, sizeof *t->flip));
    for (int64_t i = 0; i < j->n; i++) {
        const int64_t *pair = j->pair + 2 * i;
        row[i].label = j->a->label[pair[0]];
        dsf_state_mark(s, tap, &row[i], 1);
        choice c = {.tap = tap,
                    .label = row[i].label,
                    .a = j->a->i + pair[0] * j->a->width,
                    .b = j->b->i + pair[1] * j->b->width,
                    .na = j->a->width,
                    .nb = j->b->width,
                    .visible = visible_at(s, tap, row[i].label),
                    .disturbed = row[i].disturbed};
        row[i].status = DSF_ROW_JUDGED;
        DSF_TRY_OUT(one_row(s, &e, &c, &row[i].over, t));
    }
    DSF_TRY_OUT(dsf_detail_choice(s, tap, row, j->n, t));
    t->verdict = t->wrong ? DSF_DIFF_FAILED : t->flips ? DSF_DIFF_TIES : DSF_DIFF_EXACT;
    if (t->verdict == DSF_DIFF_TIES)
        (void)snprintf(t->why, sizeof t->why, "tie-flip (explained) in %lld of %lld rows",
                       (long long)t->ties, (long long)t->rows);
out:
    dsf_mem_free(row);
    release(&e);
    return st;
}

dsf_status dsf_choice_exact(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                            dsf_diff_tap *t)
{
    dsf_row *row;
    DSF_TRY(dsf_mem_new(&row, (size_t)j->n + 1, sizeof *row));
    t->discrete = true;
    t->rows = j->n;
    t->width = j->width;
    for (int64_t i = 0; i < j->n; i++) {
        const int64_t *a = j->a->i + j->pair[2 * i] * j->a->width;
        const int64_t *b = j->b->i + j->pair[2 * i + 1] * j->b->width;
        int64_t changed = 0;
        for (int64_t c = 0; c < j->width; c++) {
            if (a[c] == b[c]) continue;
            changed++;
            if (t->at_column >= 0) continue;
            t->at_row = j->a->label[j->pair[2 * i]];
            t->at_column = c;
            t->reference = (double)a[c];
            t->ours = (double)b[c];
        }
        row[i].label = j->a->label[j->pair[2 * i]];
        row[i].over = changed > 0;
        t->changed += changed;
        t->unequal += changed > 0;
    }
    t->wrong = t->unequal;
    t->verdict = t->changed ? DSF_DIFF_FAILED : DSF_DIFF_EXACT;
    if (t->changed)
        (void)snprintf(t->why, sizeof t->why, "integers must be equal: %lld differ in %lld rows",
                       (long long)t->changed, (long long)t->unequal);
    dsf_status st = tap.id == DSF_TAP_NONE ? DSF_OK : dsf_detail_choice(s, tap, row, j->n, t);
    dsf_mem_free(row);
    return st;
}
