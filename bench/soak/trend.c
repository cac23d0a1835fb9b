#include "bench/soak/trend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/fill.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* At fraction q of n sorted values, between neighbours in proportion. */
static double at(const double *sorted, int n, double q)
{
    double where = q * (double)(n - 1);
    int low = (int)where, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (where - low) * (sorted[high] - sorted[low]);
}

/* Median of the slopes between the points point[0..n), of which some may be the same; `otherwise`
 * when all are. room: n (n - 1) / 2. */
static double median_slope(const double *value, const int *point, int n, double otherwise,
                           double *room)
{
    int pairs = 0;
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++)
            if (point[i] != point[k])
                room[pairs++] = (value[point[k]] - value[point[i]]) / (double)(point[k] - point[i]);
    if (pairs == 0) return otherwise;
    qsort(room, (size_t)pairs, sizeof *room, ascending);
    return at(room, pairs, 0.5);
}

static bool all_equal(const double *v, int n)
{
    for (int i = 1; i < n; i++)
        if (v[i] != v[0]) return false;
    return true;
}

/* n values of room, thinned to at most DSF_TREND_POINTS with the first and the last kept; returns
 * the step between them. */
static double thin(const double *value, int n, double *out, int *kept)
{
    *kept = n < DSF_TREND_POINTS ? n : DSF_TREND_POINTS;
    double step = (double)(n - 1) / (double)(*kept - 1);
    for (int i = 0; i < *kept; i++) out[i] = value[(int)lround(i * step)];
    return step;
}

dsf_status dsf_trend_of(dsf_trend *t, const double *value, int n, uint64_t seed)
{
    double v[DSF_TREND_POINTS], *room = NULL, *round = NULL;
    int point[DSF_TREND_POINTS], kept = 0;
    dsf_status st = DSF_OK;
    *t = (dsf_trend){.n = n};
    if (n < 2 || all_equal(value, n)) return DSF_OK;
    double step = thin(value, n, v, &kept);
    DSF_TRY_OUT(dsf_mem_new(&room, (size_t)(kept * (kept - 1) / 2), sizeof *room));
    DSF_TRY_OUT(dsf_mem_new(&round, DSF_TREND_ROUNDS, sizeof *round));
    for (int i = 0; i < kept; i++) point[i] = i;
    t->slope = median_slope(v, point, kept, 0, room) / step;
    for (int r = 0; r < DSF_TREND_ROUNDS; r++) {
        for (int i = 0; i < kept; i++) point[i] = (int)dsf_fill_below(&seed, kept);
        round[r] = median_slope(v, point, kept, t->slope * step, room) / step;
    }
    qsort(round, DSF_TREND_ROUNDS, sizeof *round, ascending);
    t->low = at(round, DSF_TREND_ROUNDS, 0.025);
    t->high = at(round, DSF_TREND_ROUNDS, 0.975);
    t->n = kept;
out:
    dsf_mem_free(room);
    dsf_mem_free(round);
    return st;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Less than this share of a column is left once the columns before it are taken out: it is theirs
 * and rounding. */
static const double nothing = 1e-7;

/* Columns [terms][n] made orthogonal, each against those before it, twice: once is not enough for
 * columns that are nearly alike. r: the upper triangle. */
static void orthogonalise(dsf_fit *f, double *column, double (*r)[DSF_FIT_TERMS], int n, int terms)
{
    for (int k = 0; k < terms; k++) {
        double *c = column + (size_t)k * (size_t)n, whole = sqrt(dot(c, c, n));
        for (int twice = 0; twice < 2; twice++)
            for (int j = 0; j < k; j++) {
                if (!f->told[j]) continue;
                const double *before = column + (size_t)j * (size_t)n;
                double share = dot(before, c, n);
                r[j][k] += share;
                for (int i = 0; i < n; i++) c[i] -= share * before[i];
            }
        double left = sqrt(dot(c, c, n));
        f->told[k] = left > nothing * whole;
        r[k][k] = left;
        for (int i = 0; f->told[k] && i < n; i++) c[i] /= left;
    }
}

static void solve(dsf_fit *f, const double *column, const double (*r)[DSF_FIT_TERMS],
                  const double *one, int n, int terms)
{
    for (int k = terms - 1; k >= 0; k--) {
        if (!f->told[k]) continue;
        double v = dot(column + (size_t)k * (size_t)n, one, n);
        for (int j = k + 1; j < terms; j++) v -= r[k][j] * f->coefficient[j];
        f->coefficient[k] = v / r[k][k];
    }
}

static void find_residual(dsf_fit *f, const double (*term)[DSF_FIT_TERMS], const double *y, int n,
                          int terms)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double fit = 0;
        for (int k = 0; k < terms; k++) fit += f->coefficient[k] * term[i][k];
        double error = 100 * fabs(fit - y[i]) / y[i];
        f->residual_percent = fmax(f->residual_percent, error);
        sum += error * error;
    }
    f->rms_percent = sqrt(sum / n);
}

dsf_status dsf_fit_of(dsf_fit *f, const double (*term)[DSF_FIT_TERMS], const double *y, int n,
                      int terms)
{
    double *column = NULL, *one = NULL, r[DSF_FIT_TERMS][DSF_FIT_TERMS] = {{0}};
    dsf_status st = DSF_OK;
    memset(f, 0, sizeof *f);
    f->n = n;
    if (n < 1 || terms < 1 || terms > DSF_FIT_TERMS)
        return DSF_FAIL(DSF_EINVAL, "fit: %d points, %d terms (1 to %d)", n, terms,
                        (int)DSF_FIT_TERMS);
    DSF_TRY_OUT(dsf_mem_new(&column, (size_t)terms * (size_t)n, sizeof *column));
    DSF_TRY_OUT(dsf_mem_new(&one, (size_t)n, sizeof *one));
    for (int i = 0; i < n; i++) {
        if (!(y[i] > 0))
            DSF_TRY_OUT(DSF_FAIL(DSF_EINVAL, "fit: point %d is %g, not above 0", i, y[i]));
        for (int k = 0; k < terms; k++)
            column[(size_t)k * (size_t)n + (size_t)i] = term[i][k] / y[i];
        one[i] = 1;
    }
    orthogonalise(f, column, r, n, terms);
    solve(f, column, (const double(*)[DSF_FIT_TERMS])r, one, n, terms);
    find_residual(f, term, y, n, terms);
out:
    dsf_mem_free(column);
    dsf_mem_free(one);
    return st;
}
