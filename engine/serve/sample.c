/* Sampling: the limits of its parameters, and in words what is wrong with a row. The draw itself is
 * the operation `sample`. */
#include <math.h>

#include "dsf.h"
#include "ops/sample.h"

/* A row that cannot be drawn from: a NaN or +inf anywhere says that the model is broken. */
static dsf_status explain(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] < INFINITY))
            return DSF_FAIL(DSF_ECORRUPT, "sampling: the logit of id %lld is %g", (long long)i,
                            (double)x[i]);
    return DSF_FAIL(DSF_ECORRUPT, "sampling: none of %lld logits is finite", (long long)n);
}

static double logprob_of(const float *logits, int64_t n, int32_t id)
{
    double max = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - max);
    return logits[id] - max - log(sum);
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
    const dsf_sample_how how = {.temperature = s->temperature,
                                .top_p = s->top_p,
                                .min_p = s->min_p,
                                .top_k = s->top_k,
                                .seed = s->seed,
                                .position = position};
    int32_t pick = dsf_sample_row(logits, n, &how, work);
    if (pick < 0) return explain(logits, n);
    *id = pick;
    if (logprob) *logprob = logprob_of(logits, n, pick);
    return DSF_OK;
}
