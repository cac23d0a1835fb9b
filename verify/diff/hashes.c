#include "verify/diff/hashes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "verify/dump/blocks.h"

/* One record: rows from..from+n of its tap, by index. */
typedef struct {
    const int32_t *label;
    int64_t n;
    const dsf_dump_stat *stat;
} block;

typedef struct {
    const dsf_diff_state *s;
    const dsf_diff_options *o;
    const dsf_dump_blocks *a, *b;
} judging;

/* False: a killed run left fewer rows than the labels say. */
static bool take(const dsf_dump_blocks *of, int64_t i, block *out)
{
    int64_t from = i * of->block, n = of->rows - from;
    *out = (block){of->label + from, n < of->block ? n : of->block, &of->stat[i]};
    return out->n > 0 &&
           (of->width == 0 || out->stat->count == (uint64_t)out->n * (uint64_t)of->width);
}

static dsf_status check_counts(const dsf_dump_info *info, const char *path,
                               const dsf_dump_blocks *of)
{
    block k;
    if (of->width < 0 || of->width > (INT64_C(1) << 40))
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: rows of %lld elements", info->path, path,
                        (long long)of->width);
    for (int64_t i = 0; i < of->n && !info->partial; i++)
        if (!take(of, i, &k))
            return DSF_FAIL(DSF_ECORRUPT,
                            "%s: %s: record %lld counts %llu values, not %lld by %lld", info->path,
                            path, (long long)i, (unsigned long long)k.stat->count, (long long)k.n,
                            (long long)of->width);
    return DSF_OK;
}

/* Reads a side's records and checks that they count what their labels say. */
static dsf_status read_side(dsf_dump_file *f, const char *path, dsf_dump_blocks *out)
{
    bool found;
    DSF_TRY(dsf_dump_blocks_read(f, path, out, &found));
    return check_counts(dsf_dump_info_of(f), path, out);
}

/* The records of the reference that ours has of the same rows, in the order of both. */
static bool next_pair(const dsf_dump_blocks *a, const dsf_dump_blocks *b, int64_t at[2], block *x,
                      block *y)
{
    while (at[0] < a->n && at[1] < b->n) {
        bool left = take(a, at[0], x), right = take(b, at[1], y);
        if (left && right && x->n == y->n &&
            memcmp(x->label, y->label, (size_t)x->n * sizeof *x->label) == 0) {
            at[0]++;
            at[1]++;
            return true;
        }
        int32_t la = left ? x->label[0] : INT32_MIN, lb = right ? y->label[0] : INT32_MIN;
        at[0] += la <= lb;
        at[1] += lb <= la;
    }
    return false;
}

static bool wrong(const dsf_diff_tap *t, const dsf_dump_stat *a, const dsf_dump_stat *b)
{
    /* masked scores hold -inf; nothing may hold a NaN, whether or not both sides agree on it */
    bool inf_known = t->tap.id == DSF_TAP_ATTN_INDEX_SCORES;
    return a->hash != b->hash || a->count != b->count || a->nan || b->nan ||
           (!inf_known && (a->inf || b->inf));
}

static void note_first(dsf_diff_tap *t, const block *x, const block *y)
{
    dsf_diff_blocks *k = &t->blocks;
    k->reference = *x->stat;
    k->ours = *y->stat;
    k->from = k->to = x->label[0];
    for (int64_t i = 1; i < x->n; i++) {
        if (x->label[i] < k->from) k->from = x->label[i];
        if (x->label[i] > k->to) k->to = x->label[i];
    }
    t->at_row = k->from;
    t->reference = k->reference.rms;
    t->ours = k->ours.rms;
}

/* Where the values of the first wrong block are to be had. NaNs need no judge: they may agree in
 * every bit. */
static void advise(const dsf_dump_geometry *g, dsf_diff_tap *t)
{
    const dsf_diff_blocks *k = &t->blocks;
    char rows[64] = "";
    dsf_tap_rows_kind kind = t->tap.id == DSF_TAP_NONE ? DSF_ROWS_DRAFT : dsf_taps[t->tap.id].rows;
    long long ratio = kind == DSF_ROWS_ENTRY && t->layer >= 0 ? g->ratio[t->layer] : 1;
    if (ratio < 1) ratio = 1;
    if (kind != DSF_ROWS_DRAFT)
        (void)snprintf(rows, sizeof rows, " --positions %lld-%lld", k->from * ratio,
                       (k->to + 1LL) * ratio - 1);
    bool finite = k->reference.hash != k->ours.hash || k->reference.count != k->ours.count;
    (void)snprintf(t->why, sizeof t->why, "%s, make full dumps of this tap: dsf dump --taps %s%s",
                   finite ? "statistics only: rounding differences cannot be judged"
                          : "NaN or infinity where none may be",
                   t->path, rows);
}

/* Rows of the reference's records from..to-1, which met none of ours. */
static void count_missing(const judging *j, int64_t from, int64_t to, dsf_diff_tap *t)
{
    block k;
    for (int64_t i = from; i < to; i++) {
        if (!take(j->a, i, &k)) continue;
        for (int64_t r = 0; r < k.n; r++)
            t->missing += dsf_walk_row_wanted(j->s, j->o, t->tap, k.label[r]);
    }
}

static void compare_blocks(const judging *j, dsf_diff_tap *t)
{
    const dsf_dump_blocks *a = j->a, *b = j->b;
    int64_t seen = 0;
    dsf_diff_blocks *k = &t->blocks;
    int64_t at[2] = {0, 0};
    block x, y;
    t->width = a->width ? a->width : b->width;
    while (next_pair(a, b, at, &x, &y)) {
        k->n++;
        t->rows += x.n;
        count_missing(j, seen, at[0] - 1, t);
        seen = at[0];
        if (!wrong(t, x.stat, y.stat)) continue;
        t->unequal += x.n;
        t->changed += (int64_t)x.stat->count;
        if (k->differ++ == 0) note_first(t, &x, &y);
    }
    count_missing(j, seen, a->n, t);
    k->left = a->n + b->n - 2 * k->n;
}

static void failed(dsf_diff_tap *t)
{
    t->verdict = DSF_DIFF_FAILED;
    t->beyond = true;
    t->ratio = INFINITY;
}

static void describe(char out[80], const dsf_dump_blocks *b)
{
    int32_t low = b->rows ? b->label[0] : 0, high = low;
    for (int64_t i = 1; i < b->rows; i++) {
        if (b->label[i] < low) low = b->label[i];
        if (b->label[i] > high) high = b->label[i];
    }
    if (b->rows == 0)
        (void)snprintf(out, 80, "none");
    else
        (void)snprintf(out, 80, "%lld rows (%d-%d) by %lld", (long long)b->rows, (int)low,
                       (int)high, (long long)b->block);
}

static void judge(const judging *j, dsf_diff_tap *t)
{
    const dsf_dump_blocks *a = j->a, *b = j->b;
    char left[80], right[80];
    if (a->width && b->width && a->width != b->width) {
        failed(t);
        (void)snprintf(t->why, sizeof t->why, "shape: rows of %lld elements, here %lld",
                       (long long)a->width, (long long)b->width);
        return;
    }
    compare_blocks(j, t);
    if (t->blocks.n == 0 && a->n + b->n > 0) {
        failed(t);
        t->ratio = NAN; /* nothing was seen of it */
        describe(left, a);
        describe(right, b);
        (void)snprintf(t->why, sizeof t->why,
                       "no block of the same rows: %s, here %s; dump both with the same "
                       "--positions",
                       left, right);
    } else if (t->blocks.differ) {
        failed(t);
        advise(j->s->g, t);
    }
}

/* A hash is over stored bytes: values stored in another type than the statistics' never agree. */
static bool stored_otherwise(dsf_dump_file *f, const char *path, const dsf_dump_blocks *b,
                             dsf_diff_tap *t)
{
    static const char *const name[] = {"float32", "int32", "int64", "uint8"};
    const dsf_dump_entry *e = dsf_dump_find(f, path);
    if (!b->computed || !e || t->tap.id == DSF_TAP_NONE) return false;
    dsf_dump_kind kind = dsf_dump_kind_of(t->tap.id);
    if (e->kind == kind) return false;
    failed(t);
    (void)snprintf(t->why, sizeof t->why,
                   "type: stored as %s in %.80s, statistics are of %s: their hashes do not compare",
                   name[e->kind], dsf_dump_info_of(f)->path, name[kind]);
    return true;
}

dsf_status dsf_hashes_compare(const dsf_diff_state *s, const dsf_walk_item *x,
                              const dsf_diff_options *o, dsf_diff_tap *t)
{
    dsf_dump_blocks a = {.n = 0}, b = {.n = 0};
    dsf_status st = DSF_OK;
    t->by_hash = true;
    t->rel_l2 = t->row_median = t->row_max = t->max_abs = t->gain = t->bias_z = NAN;
    DSF_TRY_OUT(read_side(s->a, x->a, &a));
    DSF_TRY_OUT(read_side(s->b, x->b, &b));
    t->source = a.source;
    if (!stored_otherwise(s->a, x->a, &a, t) && !stored_otherwise(s->b, x->b, &b, t))
        judge(&(judging){s, o, &a, &b}, t);
out:
    dsf_dump_blocks_free(&a);
    dsf_dump_blocks_free(&b);
    return st;
}

/* NaN where the reference has nothing to be relative to. */
double dsf_hashes_rms(const dsf_diff_blocks *k)
{
    double d = fabs(k->ours.rms - k->reference.rms);
    return k->reference.rms > 0.0 ? d / k->reference.rms : d > 0.0 ? (double)NAN : 0.0;
}

void dsf_hashes_figures(char *out, size_t size, const dsf_diff_tap *t)
{
    const dsf_dump_stat *a = &t->blocks.reference, *b = &t->blocks.ours;
    (void)snprintf(out, size,
                   "hash %016" PRIx64 " here %016" PRIx64
                   ", rms %.9g here %.9g (relative difference %.2g), mean %.6g here %.6g, min %.6g "
                   "here %.6g, max %.6g here %.6g, values %" PRIu64 " here %" PRIu64
                   ", NaN %" PRIu64 " here %" PRIu64 ", infinite %" PRIu64 " here %" PRIu64,
                   a->hash, b->hash, a->rms, b->rms, dsf_hashes_rms(&t->blocks), a->mean, b->mean,
                   a->min, b->min, a->max, b->max, a->count, b->count, a->nan, b->nan, a->inf,
                   b->inf);
}

static void json_stat(const char *key, const dsf_dump_stat *s, dsf_buf *b)
{
    char hash[20];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, s->hash);
    dsf_json_begin(b, key, '{');
    dsf_json_add_cstr(b, "hash", hash);
    dsf_json_add_int(b, "count", (int64_t)s->count);
    dsf_json_add_int(b, "nan", (int64_t)s->nan);
    dsf_json_add_int(b, "inf", (int64_t)s->inf);
    dsf_diff_json_num(b, "min", s->min);
    dsf_diff_json_num(b, "max", s->max);
    dsf_diff_json_num(b, "mean", s->mean);
    dsf_diff_json_num(b, "rms", s->rms);
    dsf_json_end(b, '}');
}

void dsf_hashes_json(const dsf_diff_tap *t, dsf_buf *b)
{
    const dsf_diff_blocks *k = &t->blocks;
    dsf_json_begin(b, "blocks", '{');
    dsf_json_add_int(b, "compared", k->n);
    dsf_json_add_int(b, "differ", k->differ);
    dsf_json_add_int(b, "alone", k->left);
    if (k->differ) {
        dsf_json_add_int(b, "from", k->from);
        dsf_json_add_int(b, "to", k->to);
        dsf_diff_json_num(b, "rms_difference", dsf_hashes_rms(k));
        json_stat("reference", &k->reference, b);
        json_stat("ours", &k->ours, b);
    }
    dsf_json_end(b, '}');
}
