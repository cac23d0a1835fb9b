#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "ops/fill.h"

enum { BOOTSTRAPS = 1000 };
static const double settled_below = 0.01; /* two runs that differ by less are the same */

void dsf_samples_add(dsf_samples *s, double v)
{
    if (s->n < DSF_BENCH_SAMPLES) s->v[s->n++] = v;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double dsf_samples_at(const dsf_samples *s, double q)
{
    if (s->n == 0) return 0;
    dsf_samples sorted = *s;
    qsort(sorted.v, (size_t)sorted.n, sizeof *sorted.v, ascending);
    double at = q * (double)(sorted.n - 1);
    int low = (int)at, high = low + 1 < sorted.n ? low + 1 : low;
    return sorted.v[low] + (at - (double)low) * (sorted.v[high] - sorted.v[low]);
}

double dsf_samples_median(const dsf_samples *s) { return dsf_samples_at(s, 0.5); }

double dsf_samples_mean(const dsf_samples *s)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->v[i];
    return s->n ? sum / s->n : 0;
}

double dsf_samples_sd(const dsf_samples *s)
{
    double mean = dsf_samples_mean(s), sum = 0;
    if (s->n < 2) return NAN;
    for (int i = 0; i < s->n; i++) sum += (s->v[i] - mean) * (s->v[i] - mean);
    return sqrt(sum / (s->n - 1));
}

void dsf_samples_interval(const dsf_samples *s, double level, double out[2])
{
    static dsf_samples drawn, median; /* too large for a stack; one thread measures */
    uint64_t seed = 0x5EED;
    out[0] = out[1] = NAN;
    if (s->n < 2) return;
    drawn.n = s->n;
    median.n = 0;
    for (int k = 0; k < BOOTSTRAPS; k++) {
        for (int i = 0; i < s->n; i++) drawn.v[i] = s->v[dsf_fill_below(&seed, s->n)];
        dsf_samples_add(&median, dsf_samples_median(&drawn));
    }
    out[0] = dsf_samples_at(&median, (1 - level) / 2);
    out[1] = dsf_samples_at(&median, (1 + level) / 2);
}

bool dsf_samples_tell(const dsf_samples *s, double p) { return s->n * (1 - p) >= 10 - 1e-9; }

bool dsf_warmup_more(dsf_warmup *w, double ns)
{
    if (w->runs++ == 0)
        w->first = ns;
    else
        w->settled = fabs(ns - w->last) < settled_below * w->last;
    w->last = ns;
    return !w->settled && w->runs < (w->most ? w->most : DSF_WARMUPS_MOST);
}

double dsf_samples_spread(const dsf_samples *s)
{
    double m = dsf_samples_median(s);
    return m != 0 ? 0.5 * (dsf_samples_at(s, 0.75) - dsf_samples_at(s, 0.25)) / fabs(m) : 0;
}
