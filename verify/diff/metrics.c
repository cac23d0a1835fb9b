#include "verify/diff/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/num.h"

static bool on_bf16(dsf_tap_source s) { return s != DSF_SRC_F32; }

static const float *row_of(const dsf_dump_array *a, int64_t row) { return a->f + row * a->width; }

float dsf_metrics_ours(const dsf_joined *j, int64_t row, int64_t column)
{
    float v = row_of(j->b, j->pair[2 * row + 1])[column];
    bool round = on_bf16(j->a->source) && j->b->source == DSF_SRC_F32;
    return round ? dsf_bf16_to_f32(dsf_f32_to_bf16(v)) : v;
}

/* The step of the source format just at |x|: distance between neighbours on the grid. */
static double grid_step(dsf_tap_source s, double x)
{
    int e;
    if (x == 0.0) return 0.0;
    (void)frexp(x, &e); /* x = m 2^e, m in [0.5, 1) */
    switch (s) {
    case DSF_SRC_BF16:
        return ldexp(1.0, e - 8);
    case DSF_SRC_E4M3:
        return ldexp(1.0, e - 4);
    case DSF_SRC_E2M1:
        return x / 3.0; /* widest step of the grid: 4 to 6 */
    default:
        return ldexp(1.0, e - 24);
    }
}

/* True when both are ordinary numbers, or both the -inf of a mask. */
static bool check_finite(const dsf_joined *j, float x, float y, dsf_unfinite *bad)
{
    if (isfinite(x) && isfinite(y)) return true;
    if (j->inf_known && isinf(x) && x < 0 && x == y) return true;
    if (isnan(x) || isnan(y)) {
        bad->nan_reference += isnan(x);
        bad->nan_ours += isnan(y);
    } else {
        bad->inf++;
    }
    return false;
}

static void one_row(const dsf_joined *j, int64_t i, dsf_row *r, dsf_unfinite *bad)
{
    const float *a = row_of(j->a, j->pair[2 * i]);
    double largest = 0.0;
    r->changed = 0;
    r->diff2 = r->size2 = r->max_abs = 0.0;
    r->worst = 0;
    for (int64_t c = 0; c < j->width; c++) {
        float x = a[c], y = dsf_metrics_ours(j, i, c);
        if (!check_finite(j, x, y, bad)) {
            r->changed++;
            if (bad->column < 0)
                *bad = (dsf_unfinite){bad->nan_reference, bad->nan_ours, bad->inf, r->label, i, c};
            continue;
        }
        if (isinf(x)) continue;
        double d = (double)y - (double)x;
        r->size2 += (double)x * (double)x;
        largest = fmax(largest, fabs((double)x));
        if (x == y) continue;
        r->changed++;
        r->diff2 += d * d;
        if (fabs(d) > r->max_abs) {
            r->max_abs = fabs(d);
            r->worst = c;
        }
    }
    r->rel = r->diff2 > 0.0 ? sqrt(r->diff2 / r->size2) : 0.0;
    r->step = r->size2 > 0.0 ? grid_step(j->a->source, largest) / sqrt(r->size2) : 0.0;
}

void dsf_metrics_rows(const dsf_joined *j, dsf_row *row, dsf_unfinite *bad)
{
    *bad = (dsf_unfinite){.column = -1};
    for (int64_t i = 0; i < j->n; i++) {
        row[i].label = j->a->label[j->pair[2 * i]];
        one_row(j, i, &row[i], bad);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double dsf_metrics_median(double *v, int64_t n)
{
    if (n == 0) return 0.0;
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/* Bias over changed elements: +1 where ours is the larger in magnitude, -1 where smaller. */
static void add_signs(const dsf_joined *j, int64_t i, double *bias, double *ours2, int64_t *zeros)
{
    const float *a = row_of(j->a, j->pair[2 * i]);
    for (int64_t c = 0; c < j->width; c++) {
        float x = a[c], y = dsf_metrics_ours(j, i, c);
        if (!isfinite(x) || !isfinite(y)) continue;
        *ours2 += (double)y * (double)y;
        *zeros += x == y && signbit(x) != signbit(y);
        if (x != y) *bias += ((double)y - (double)x) * (double)x > 0.0 ? 1.0 : -1.0;
    }
}

typedef struct {
    double diff2, size2, ours2, bias;
    int64_t judged, worst; /* worst: index of the row, -1 */
} sums;

static void add_row(const dsf_joined *j, const dsf_row *row, int64_t i, dsf_diff_tap *t, sums *s)
{
    const dsf_row *r = &row[i];
    s->judged++;
    s->diff2 += r->diff2;
    s->size2 += r->size2;
    t->changed += r->changed;
    t->unequal += r->changed > 0;
    add_signs(j, i, &s->bias, &s->ours2, &t->zeros);
    if (r->max_abs > t->max_abs) t->max_abs = r->max_abs;
    if (s->worst < 0 ? r->changed > 0 : r->rel > row[s->worst].rel) s->worst = i;
}

static void show_worst(const dsf_joined *j, const dsf_row *row, int64_t i, dsf_diff_tap *t)
{
    const dsf_row *r = &row[i];
    t->row_max = r->rel;
    t->row_max_label = t->at_row = r->label;
    t->at_column = r->worst;
    t->reference = (double)row_of(j->a, j->pair[2 * i])[r->worst];
    t->ours = (double)dsf_metrics_ours(j, i, r->worst);
}

dsf_status dsf_metrics_sum(const dsf_joined *j, const dsf_row *row, dsf_diff_tap *t)
{
    double *rel;
    sums s = {.worst = -1};
    int64_t left = 0;
    for (int64_t i = 0; i < j->n; i++) left += row[i].status != DSF_ROW_JUDGED;
    DSF_TRY(dsf_mem_new(&rel, (size_t)j->n, sizeof *rel));
    t->rows = j->n;
    t->width = j->width;
    t->ungated = left;
    for (int64_t i = 0; i < j->n; i++) {
        if (row[i].status != DSF_ROW_JUDGED && left < j->n) continue;
        rel[s.judged] = row[i].rel;
        add_row(j, row, i, t, &s);
    }
    t->rel_l2 = s.diff2 > 0.0 ? sqrt(s.diff2 / s.size2) : 0.0;
    t->gain = s.size2 > 0.0 ? sqrt(s.ours2 / s.size2) : 1.0;
    t->bias_z = t->changed ? s.bias / sqrt((double)t->changed) : 0.0;
    t->row_median = dsf_metrics_median(rel, s.judged);
    if (s.worst >= 0) show_worst(j, row, s.worst, t);
    dsf_mem_free(rel);
    return DSF_OK;
}
