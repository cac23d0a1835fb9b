#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

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

double dsf_samples_spread(const dsf_samples *s)
{
    double m = dsf_samples_median(s);
    return m != 0 ? 0.5 * (dsf_samples_at(s, 0.75) - dsf_samples_at(s, 0.25)) / fabs(m) : 0;
}
