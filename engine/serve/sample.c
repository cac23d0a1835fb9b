/* Sampling, architecture.md 9. Order of filters: temperature, top-k, top-p, min-p. */
#include <math.h>

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

static int64_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Smallest p that is kept when the probabilities are taken from the largest down until
 * `enough(count, mass)`. Found by bisection on the value: no sort of the vocabulary, no allocation.
 * Ties at the border are kept. */
static float threshold(const float *p, int64_t n, int64_t top_k, double top_p)
{
    float lo = 0.0f, hi = 1.0f;
    for (int i = 0; i < 64 && nextafterf(lo, 2.0f) < hi; i++) {
        float m = lo + (hi - lo) / 2;
        int64_t count = 0;
        double above = 0.0;
        for (int64_t k = 0; k < n; k++)
            if (p[k] >= m) {
                count++;
                above += p[k];
            }
        if ((top_k > 0 && count >= top_k) || above >= top_p)
            lo = m;
        else
            hi = m;
    }
    return lo;
}

dsf_status dsf_sample(const float *logits, int64_t n, const dsf_sampling *s, int64_t position,
                      float *work, int32_t *id, double *logprob)
{
    if (!(s->temperature >= 0.0) || !(s->top_p > 0.0 && s->top_p <= 1.0) ||
        !(s->min_p >= 0.0 && s->min_p < 1.0) || s->top_k < 0)
        return DSF_FAIL(
            DSF_EINVAL,
            "sampling: temperature %g (>= 0), top_p %g (0..1], min_p %g [0..1), top_k %lld (>= 0)",
            s->temperature, s->top_p, s->min_p, (long long)s->top_k);
    int64_t best = argmax(logits, n);
    double max = logits[best], sum1 = 0.0, sum = 0.0;
    if (!isfinite(max))
        return DSF_FAIL(DSF_EINVAL, "sampling: the largest logit (id %lld) is not finite",
                        (long long)best);
    for (int64_t i = 0; i < n; i++) sum1 += exp(logits[i] - max);
    int64_t pick = best;
    if (s->temperature > 0.0) {
        double t = fmax(s->temperature, 1e-5);
        for (int64_t i = 0; i < n; i++) sum += exp((logits[i] - max) / t);
        for (int64_t i = 0; i < n; i++) work[i] = (float)(exp((logits[i] - max) / t) / sum);
        float keep = s->top_k > 0 || s->top_p < 1.0
                         ? threshold(work, n, s->top_k, s->top_p < 1.0 ? s->top_p : 2.0)
                         : 0.0f;
        float least = (float)(s->min_p / sum);
        if (least > keep) keep = least;
        double mass = 0.0;
        for (int64_t i = 0; i < n; i++) mass += work[i] >= keep ? work[i] : 0.0;
        double u = uniform(s->seed, position) * mass, run = 0.0;
        for (int64_t i = 0; i < n; i++) {
            if (!(work[i] >= keep) || work[i] == 0.0f) continue;
            pick = i; /* rounding of the running sum must not leave us without a pick */
            run += work[i];
            if (run >= u) break;
        }
    }
    *id = (int32_t)pick;
    if (logprob) *logprob = logits[pick] - max - log(sum1);
    return DSF_OK;
}
