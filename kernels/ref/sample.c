/* Sampling, architecture.md 9. The filters act one after the other: temperature, top-k, top-p (of
 * what top-k has left), min-p. */
#include "ops/sample.h"

#include <math.h>

#include "base/mix.h"
#include "base/num.h"

/* Counter-based: a draw depends on the seed and the position only. */
static double uniform(uint64_t seed, int64_t position)
{
    uint64_t r = dsf_mix64(dsf_mix64(seed + 0x9E3779B97F4A7C15u) ^
                           ((uint64_t)position * 0xD1B54A32D192ED03u));
    return ((double)(r >> 11) + 0.5) * 0x1p-53;
}

/* The largest logit, the smallest id on ties; -1: the model is broken. */
static int64_t find_best(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] < INFINITY)) return -1;
        if (x[i] > x[best]) best = i;
    }
    return n < 1 || !isfinite(x[best]) ? -1 : best;
}

/* Largest p such that those at or above it are at least `count`, and have at least `mass`: what is
 * kept when probabilities are taken from the largest down until there are enough. Found by
 * bisection over the floats of [0, 1], whose order is that of their bits: no sort of the
 * vocabulary, no allocation. Ties at the border are kept. */
static float threshold(const float *p, int64_t n, int64_t count, double mass)
{
    uint32_t lo = 0, hi = 0x3F800001; /* just above 1.0f */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        float least = dsf_f32_from_bits(mid);
        int64_t k = 0;
        double above = 0.0;
        for (int64_t i = 0; i < n; i++)
            if (p[i] >= least) {
                k++;
                above += p[i];
            }
        if (k >= count && above >= mass)
            lo = mid;
        else
            hi = mid;
    }
    return dsf_f32_from_bits(lo);
}

/* Sets p[i] < least to 0; returns the mass that is left. */
static double cut_below(float *p, int64_t n, float least)
{
    double mass = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (p[i] < least) p[i] = 0.0f;
        mass += p[i];
    }
    return mass;
}

/* One id by the probabilities after the filters; `max` is the largest logit. */
static int64_t draw(const float *logits, int64_t n, const dsf_sample_how *s, double max, float *p)
{
    double t = fmax(s->temperature, 1e-5), sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += exp((logits[i] - max) / t);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(exp((logits[i] - max) / t) / sum);
    double mass = cut_below(p, n, 0.0f);
    if (s->top_k > 0 && s->top_k < n) mass = cut_below(p, n, threshold(p, n, s->top_k, 0.0));
    if (s->top_p < 1.0) mass = cut_below(p, n, threshold(p, n, 1, s->top_p * mass));
    if (s->min_p > 0.0) mass = cut_below(p, n, (float)(s->min_p / sum));
    double u = uniform(s->seed, s->position) * mass, run = 0.0;
    int64_t pick = -1;
    for (int64_t i = 0; i < n && (pick < 0 || run < u); i++) {
        if (p[i] == 0.0f) continue;
        pick = i; /* rounding of the running sum must not leave us without a pick */
        run += p[i];
    }
    return pick;
}

int32_t dsf_sample_row(const float *logits, int64_t n, const dsf_sample_how *how, float *work)
{
    int64_t best = find_best(logits, n);
    if (best >= 0 && how->temperature > 0.0) best = draw(logits, n, how, logits[best], work);
    return (int32_t)best;
}

typedef struct {
    const dsf_sample_args *a;
    const dsf_launch *lc;
} job;

static void run_row(void *arg, int64_t i, int worker)
{
    const job *j = arg;
    int64_t v = j->a->logits.dim[1];
    float *work = (float *)(void *)(j->lc->scratch + (size_t)worker * j->lc->scratch_bytes);
    ((int32_t *)j->a->ids.data)[i] =
        dsf_sample_row((const float *)j->a->logits.data + i * v, v,
                       (const dsf_sample_how *)j->a->how.data + i, work);
}

size_t dsf_sample_ref_scratch(const void *args)
{
    const dsf_sample_args *a = args;
    return (size_t)a->logits.dim[1] * sizeof(float);
}

dsf_status dsf_sample_ref(const dsf_launch *lc, const void *args)
{
    job j = {args, lc};
    dsf_pool_run(lc->pool, j.a->logits.dim[0], run_row, &j);
    return DSF_OK;
}
