/* Sampling, architecture.md 9. The filters act one after the other: temperature, top-k, top-p (of
 * what top-k has left), min-p. */
#include <math.h>
#include <string.h>

#include "dsf.h"

/* Counter-based generator: a bijective mix of (seed, position), so that a draw depends on nothing
 * else. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t seed, int64_t position)
{
    uint64_t r = mix(mix(seed + 0x9E3779B97F4A7C15u) ^ ((uint64_t)position * 0xD1B54A32D192ED03u));
    return ((double)(r >> 11) + 0.5) * 0x1p-53;
}

/* The largest logit, the smallest id on ties. A NaN or +inf anywhere says that the model is broken;
 * -inf is an id that must not be drawn. */
static dsf_status find_best(const float *x, int64_t n, int64_t *best)
{
    *best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] < INFINITY))
            return DSF_FAIL(DSF_ECORRUPT, "sampling: the logit of id %lld is %g", (long long)i,
                            (double)x[i]);
        if (x[i] > x[*best]) *best = i;
    }
    if (n < 1 || !isfinite(x[*best]))
        return DSF_FAIL(DSF_ECORRUPT, "sampling: none of %lld logits is finite", (long long)n);
    return DSF_OK;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
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
        float least = float_of(mid);
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
    return float_of(lo);
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
static int64_t draw(const float *logits, int64_t n, const dsf_sampling *s, int64_t position,
                    double max, float *p)
{
    double t = fmax(s->temperature, 1e-5), sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += exp((logits[i] - max) / t);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(exp((logits[i] - max) / t) / sum);
    double mass = cut_below(p, n, 0.0f);
    if (s->top_k > 0 && s->top_k < n) mass = cut_below(p, n, threshold(p, n, s->top_k, 0.0));
    if (s->top_p < 1.0) mass = cut_below(p, n, threshold(p, n, 1, s->top_p * mass));
    if (s->min_p > 0.0) mass = cut_below(p, n, (float)(s->min_p / sum));
    double u = uniform(s->seed, position) * mass, run = 0.0;
    int64_t pick = -1;
    for (int64_t i = 0; i < n && (pick < 0 || run < u); i++) {
        if (p[i] == 0.0f) continue;
        pick = i; /* rounding of the running sum must not leave us without a pick */
        run += p[i];
    }
    return pick;
}

dsf_status dsf_sample(const float *logits, int64_t n, const dsf_sampling *s, int64_t position,
                      float *work, int32_t *id, double *logprob)
{
    if (!(s->temperature >= 0.0 && s->temperature < (double)INFINITY) ||
        !(s->top_p > 0.0 && s->top_p <= 1.0) || !(s->min_p >= 0.0 && s->min_p < 1.0) ||
        s->top_k < 0)
        return DSF_FAIL(
            DSF_EINVAL,
            "sampling: temperature %g (>= 0), top_p %g (0..1], min_p %g [0..1), top_k %lld (>= 0)",
            s->temperature, s->top_p, s->min_p, (long long)s->top_k);
    int64_t best;
    DSF_TRY(find_best(logits, n, &best));
    double max = logits[best], sum = 0.0;
    int64_t pick = s->temperature > 0.0 ? draw(logits, n, s, position, max, work) : best;
    *id = (int32_t)pick;
    if (!logprob) return DSF_OK;
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - max);
    *logprob = logits[pick] - max - log(sum);
    return DSF_OK;
}
