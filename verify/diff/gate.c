#include "verify/diff/gate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verify/diff/chance.h"
#include "verify/diff/classes.h"
#include "verify/diff/provisional.h"

static void say(dsf_diff_tap *t, const char *fmt, ...) DSF_PRINTF(2, 3);
static void say(dsf_diff_tap *t, const char *fmt, ...)
{
    va_list ap;
    if (t->why[0]) return; /* the first reason is the one to look at */
    va_start(ap, fmt);
    (void)vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
}

/* Given by injection, looked up, or a quantiser: equal whenever their inputs are. */
static bool exact_kind(const dsf_diff_state *s, dsf_tap_id id)
{
    switch (id) {
    case DSF_TAP_PREMIX:     /* injected; else the ffn/pre of the layer before */
    case DSF_TAP_DSPARK_TAP: /* mean of four injected bf16 rows: exact in f32 within 2^16 */
        return s->injected;
    case DSF_TAP_EMBED:
    case DSF_TAP_IN:
    case DSF_TAP_ENGRAM_EMB:
    case DSF_TAP_ATTN_KV_MAIN:
    case DSF_TAP_ATTN_INDEX_K:
    case DSF_TAP_ATTN_INDEX_Q:
        return true;
    default:
        return false;
    }
}

typedef struct {
    dsf_floor_kind k;
    bool f32;
    double clean, disturbed; /* limits of a row's relative L2, one rounding step not included */
    double rate;             /* largest published fraction of changed elements */
} limits;

static bool get_limits(const dsf_diff_state *s, dsf_tap tap, const dsf_diff_tap *t, limits *l)
{
    /* what a floor may call it: its own name, or for a draft stage that of the backbone's tap;
     * premix is the ffn/pre of the layer before */
    const char *name[] = {t->kind, dsf_taps[tap.id].path, dsf_taps[DSF_TAP_FFN_PRE].path};
    int names = tap.id == DSF_TAP_PREMIX ? 3 : 2;
    bool known = false;
    *l = (limits){.f32 = t->source == DSF_SRC_F32};
    for (int i = 0; i < names && !known; i++)
        known = dsf_floor_get(s->floor, name[i], tap.layer < s->g->n_layers ? tap.layer : -1,
                              l->f32, &l->k);
    if (!known) return false;
    const dsf_floor_noise *own = &l->k.own, *all = &l->k.pooled;
    double worst = fmax(own->row_max, all->row_max);
    l->disturbed = 4.0 * worst;
    /* float32 figures always differ in the last bits: no measured noise means none was taken */
    l->clean = l->f32 && own->row_max == 0.0 ? l->disturbed : 4.0 * own->row_max;
    if (!own->known) l->clean = l->disturbed;
    l->rate = fmax(own->changed, all->changed);
    /* the published maxima without flips count layers apart, the fractions do not */
    if (l->rate == 0.0 && all->row_max > 0.0) l->rate = l->k.every.changed;
    /* no flip in `runs` measurements of these elements bounds the rate, it does not make it zero:
     * at one flip in all of them it would have been this */
    int runs = own->known ? own->runs : all->runs;
    double elements = (double)t->rows * (double)t->width;
    if (l->rate == 0.0 && !l->f32 && runs > 0 && elements > 0.0) l->rate = 1.0 / (runs * elements);
    return true;
}

static void judge_row(dsf_row *r, double limit)
{
    r->ratio = limit > 0.0 ? r->rel / limit : r->rel > 0.0 ? INFINITY : 0.0;
    r->over = r->ratio > 1.0;
}

static double row_limit(const limits *l, const dsf_row *r)
{
    double base = r->disturbed ? l->disturbed : l->clean;
    return l->rate > 0.0 || r->disturbed ? base + r->step : base;
}

static void raise_ratio(dsf_diff_tap *t, double figure, double limit)
{
    double ratio = limit > 0.0 ? figure / limit : figure > 0.0 ? INFINITY : 0.0;
    if (ratio > t->ratio) t->ratio = ratio;
}

static void check_rows(dsf_row *row, int64_t n, const limits *l, dsf_diff_tap *t)
{
    double worst = 0.0;
    int64_t over = 0, first = -1;
    t->limit_row = l->disturbed;
    for (int64_t i = 0; i < n; i++) {
        if (row[i].status != DSF_ROW_JUDGED) continue;
        judge_row(&row[i], row_limit(l, &row[i]));
        t->ratio = fmax(t->ratio, row[i].ratio);
        if (row[i].ratio > worst) {
            worst = row[i].ratio;
            t->limit_row = row_limit(l, &row[i]);
        }
        if (row[i].over && over++ == 0) first = i;
    }
    if (!over) return;
    t->beyond = true;
    say(t, "row %d: rel L2 %.2e, limit %.2e (%lld of %lld rows over)", (int)row[first].label,
        row[first].rel, row_limit(l, &row[first]), (long long)over, (long long)(n - t->ungated));
}

/* A draft block has two to five rows: their median says no more than their counts do. */
static bool draft_rows(dsf_tap tap, int n_layers)
{
    return dsf_taps[tap.id].rows == DSF_ROWS_DRAFT ||
           (dsf_taps[tap.id].scope == DSF_SCOPE_LAYER && tap.layer >= n_layers);
}

static void check_median(const dsf_diff_state *s, dsf_tap tap, const limits *l, dsf_diff_tap *t)
{
    /* published: the median row of every rounded tap was bit-equal in every variant and build */
    t->limit_median = l->f32 ? l->k.limit_row_median : 0.0;
    if (draft_rows(tap, s->g->n_layers)) return;
    if (l->f32) raise_ratio(t, t->row_median, t->limit_median);
    if (t->row_median <= t->limit_median) return;
    t->beyond = true;
    t->ratio = fmax(t->ratio, l->f32 ? 0.0 : INFINITY);
    say(t,
        l->f32 ? "median row: rel L2 %.2e, limit %.2e"
               : "median row is not bit-equal: rel L2 %.2e, limit %.0f",
        t->row_median, t->limit_median);
}

/* Whole tap: the published limit, or what the allowed number of flips at the largest element costs.
 */
static void check_whole(const dsf_row *row, int64_t n, const limits *l, dsf_diff_tap *t)
{
    double size2 = 0.0, step = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (row[i].status != DSF_ROW_JUDGED) continue;
        size2 += row[i].size2;
        step = fmax(step, row[i].step * sqrt(row[i].size2));
    }
    double flips = t->limit_changed > 0 ? sqrt((double)t->limit_changed) : 0.0;
    t->limit_rel_l2 = fmax(l->k.limit_rel_l2, 4.0 * l->k.own.rel_l2);
    if (!l->f32 && size2 > 0.0 && t->unequal <= t->limit_unequal)
        t->limit_rel_l2 = fmax(t->limit_rel_l2, flips * step / sqrt(size2));
    raise_ratio(t, t->rel_l2, t->limit_rel_l2);
    if (t->rel_l2 <= t->limit_rel_l2) return;
    t->beyond = true;
    say(t, "rel L2 %.2e, limit %.2e", t->rel_l2, t->limit_rel_l2);
}

static void check_counts(const dsf_diff_state *s, const limits *l, dsf_diff_tap *t)
{
    if (l->f32) return;
    double rows = (double)(t->rows - t->ungated), n = rows * (double)t->width;
    int64_t single = dsf_chance_poisson(l->rate * n, s->alpha);
    int64_t bursts = dsf_chance_poisson(l->rate * rows, s->alpha);
    t->limit_changed = single > bursts * t->width ? single : bursts * t->width;
    t->limit_unequal = single < t->rows - t->ungated ? single : t->rows - t->ungated;
    if (t->limit_changed > t->limit_unequal * t->width)
        t->limit_changed = t->limit_unequal * t->width;
    if (t->changed <= t->limit_changed && t->unequal <= t->limit_unequal) return;
    t->beyond = true;
    say(t, "%lld elements in %lld rows differ, allowed %lld in %lld", (long long)t->changed,
        (long long)t->unequal, (long long)t->limit_changed, (long long)t->limit_unequal);
}

static dsf_status check_classes(const dsf_diff_state *s, dsf_tap tap, const dsf_row *row,
                                const limits *l, dsf_diff_tap *t)
{
    dsf_class_set set;
    DSF_TRY(dsf_classes_make(&set, s, tap, row, t->rows));
    double least = l->f32 ? t->limit_median : 0.0, sharpest = 0.0;
    dsf_class_count shown = {0};
    int at = -1;
    for (int i = 0; i < set.n; i++) {
        dsf_class_count c = dsf_classes_count(&set, i, row, least);
        if (2 * c.over <= c.rows) continue;
        double rate = (double)(c.others_over + 1) / (double)(c.others + 2);
        if (dsf_chance_binomial(c.rows, c.over, rate) >= s->alpha) continue;
        double contrast = (double)c.over / (double)c.rows - rate;
        if (at >= 0 && contrast <= sharpest) continue;
        sharpest = contrast;
        shown = c;
        at = i;
    }
    if (at >= 0) {
        t->beyond = true;
        t->ratio = INFINITY;
        say(t, "%lld of %lld rows with %s differ, %lld of the other %lld", (long long)shown.over,
            (long long)shown.rows, set.name[at], (long long)shown.others_over,
            (long long)shown.others);
    }
    dsf_classes_free(&set);
    return DSF_OK;
}

/* Exact kinds: a row must be equal unless what it is computed from already differs. */
static void check_exact(const dsf_diff_state *s, dsf_row *row, const limits *l, dsf_diff_tap *t)
{
    int64_t bad = 0;
    int32_t first = -1;
    for (int64_t i = 0; i < t->rows; i++) {
        bool excused = row[i].disturbed && row[i].rel <= l->disturbed + row[i].step;
        if (row[i].changed == 0 || excused || row[i].status != DSF_ROW_JUDGED) continue;
        row[i].over = true;
        row[i].ratio = INFINITY;
        if (bad++ == 0) first = row[i].label;
    }
    /* not quite exact in this prompt's own measurement: as many as were counted there */
    double n = (double)t->rows * (double)t->width;
    int64_t allowed = s->floor ? (int64_t)ceil(l->k.own.changed * n - 1e-6) : 0;
    t->limit_row = 0.0;
    t->limit_changed = t->limit_unequal = allowed;
    if (bad <= allowed && t->changed <= allowed) return;
    if (bad == 0) return;
    t->beyond = true;
    t->ratio = INFINITY;
    say(t, "must be bit-equal: row %d differs (%lld of %lld rows)", (int)first, (long long)bad,
        (long long)t->rows);
}

/* Carried noise of a project floor (verification.md 12): 1.5 pooled, 3 for a row, 5 for an element.
 */
static bool check_carried(const limits *l, dsf_row *row, dsf_diff_tap *t)
{
    const dsf_floor_noise *noise = &l->k.carried;
    double limit_abs = 5.0 * noise->max_abs, step = 0.0;
    for (int64_t i = 0; i < t->rows; i++) step = fmax(step, row[i].step);
    /* what one layer may add from exact inputs is never an error behind others */
    t->limit_rel_l2 = fmax(1.5 * noise->rel_l2, l->k.limit_rel_l2);
    t->limit_row = fmax(3.0 * noise->row_max, l->disturbed + step);
    for (int64_t i = 0; i < t->rows; i++) judge_row(&row[i], t->limit_row);
    raise_ratio(t, t->rel_l2, t->limit_rel_l2);
    raise_ratio(t, t->row_max, t->limit_row);
    raise_ratio(t, t->max_abs, limit_abs);
    if (t->ratio <= 1.0) return true;
    t->why[0] = 0;
    say(t, "carried: rel L2 %.2e (limit %.2e), row %.2e (%.2e), element %.2e (%.2e)", t->rel_l2,
        t->limit_rel_l2, t->row_max, t->limit_row, t->max_abs, limit_abs);
    return false;
}

/* Free-running. The official floor gates `out` where nothing is selected: 1e-3 stands 1,000 times
 * above the noise and 9 times below the smallest change that acts (golden-official README). That
 * was measured where every list is one block; longer ones are cut by the reference's prompt length.
 */
static void judge_free(const dsf_diff_state *s, dsf_tap tap, const limits *l, dsf_row *row,
                       dsf_diff_tap *t)
{
    bool good = true, gated = false;
    t->floor_rel_l2 = l->k.carried.known ? l->k.carried.rel_l2 : NAN;
    t->ratio = 0.0;
    t->limit_median = NAN;
    t->limit_changed = t->limit_unequal = -1;
    if (!dsf_floor_official(s->floor) && l->k.carried.known) {
        gated = true;
        good = check_carried(l, row, t);
    } else if (!s->selects && s->one_block && tap.id == DSF_TAP_OUT && tap.layer < s->g->n_layers) {
        gated = true;
        t->limit_rel_l2 = 1e-3;
        t->limit_row = NAN;
        raise_ratio(t, t->rel_l2, t->limit_rel_l2);
        good = t->rel_l2 <= t->limit_rel_l2;
        if (!good) t->why[0] = 0;
        if (!good) say(t, "rel L2 %.2e, limit %.2e where nothing is selected", t->rel_l2, 1e-3);
    } else {
        t->limit_rel_l2 = t->limit_row = NAN;
        say(t, "free-running: carried error, no gate on this tap");
    }
    t->verdict = !good             ? DSF_DIFF_FAILED
                 : t->changed == 0 ? DSF_DIFF_EXACT
                 : gated           ? DSF_DIFF_WITHIN
                                   : DSF_DIFF_REPORTED;
}

static void conclude(dsf_diff_tap *t, bool gated)
{
    t->local = true;
    if (!gated)
        t->verdict = t->changed ? DSF_DIFF_REPORTED : DSF_DIFF_EXACT;
    else if (t->beyond)
        t->verdict = DSF_DIFF_FAILED;
    else if (t->ungated == t->rows && t->changed)
        t->verdict = DSF_DIFF_REPORTED;
    else
        t->verdict = t->changed ? DSF_DIFF_WITHIN : DSF_DIFF_EXACT;
    if (t->verdict == DSF_DIFF_REPORTED && t->ungated == t->rows)
        say(t, "rows below the window: the reference cuts its blocks by prompt length");
}

dsf_status dsf_gate_values(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j, dsf_row *row,
                           dsf_diff_tap *t)
{
    limits l;
    (void)j;
    if (!s->floor) {
        dsf_provisional_judge(s, tap, row, t);
        return DSF_OK;
    }
    bool known = get_limits(s, tap, t, &l);
    if (known) t->floor_rel_l2 = fmax(l.k.own.rel_l2, l.k.pooled.rel_l2);
    if (exact_kind(s, tap.id)) {
        check_exact(s, row, &l, t);
        known = true;
    } else if (known && t->rows > t->ungated) {
        check_median(s, tap, &l, t);
        check_rows(row, t->rows, &l, t);
        check_counts(s, &l, t);
        check_whole(row, t->rows, &l, t);
        DSF_TRY(check_classes(s, tap, row, &l, t));
    } else if (!known) {
        say(t, "no noise was published for this tap");
    }
    /* Until a rounded tap differs, a free run is on the reference's inputs as well. */
    if (s->injected || (known && !s->touched) || tap.id == DSF_TAP_ENGRAM_EMB ||
        tap.id == DSF_TAP_EMBED)
        conclude(t, known);
    else
        judge_free(s, tap, &l, row, t);
    return DSF_OK;
}
