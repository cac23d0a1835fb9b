/* Sampling: the limits of its parameters, and in words what is wrong with a row. The draw itself is
 * the operation `sample`. */
#include <math.h>

#include "serve/engine.h"

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

/* The operation's record of a draw. EINVAL: a parameter outside its limits. */
static dsf_status how_of(const dsf_sampling *s, int64_t position, dsf_sample_how *how)
{
    if (!(s->temperature >= 0.0 && s->temperature < (double)INFINITY) ||
        !(s->top_p > 0.0 && s->top_p <= 1.0) || !(s->min_p >= 0.0 && s->min_p < 1.0) ||
        s->top_k < 0)
        return DSF_FAIL(
            DSF_EINVAL,
            "sampling: temperature %g (>= 0), top_p %g (0..1], min_p %g [0..1), top_k %lld (>= 0)",
            s->temperature, s->top_p, s->min_p, (long long)s->top_k);
    *how = (dsf_sample_how){.temperature = s->temperature,
                            .top_p = s->top_p,
                            .min_p = s->min_p,
                            .top_k = s->top_k,
                            .seed = s->seed,
                            .position = position};
    return DSF_OK;
}

dsf_status dsf_sample(const float *logits, int64_t n, const dsf_sampling *s, int64_t position,
                      float *work, int32_t *id, double *logprob)
{
    dsf_sample_how how;
    DSF_TRY(how_of(s, position, &how));
    int32_t pick = dsf_sample_row(logits, n, &how, work);
    if (pick < 0) return explain(logits, n);
    *id = pick;
    if (logprob) *logprob = logprob_of(logits, n, pick);
    return DSF_OK;
}

dsf_status dsf_session_sampling(dsf_session *s, const dsf_sampling *p)
{
    if (!s->engine->opt.sampled)
        return DSF_FAIL(DSF_EINVAL, "this engine was not opened to draw tokens");
    return how_of(p, 0, &s->how);
}

dsf_status dsf_session_next(const dsf_session *s, int32_t *id)
{
    dsf_tensor t;
    DSF_TRY(dsf_session_result(s, DSF_RESULT_NEXT, &t));
    *id = ((const int32_t *)t.data)[s->head];
    return *id >= 0 ? DSF_OK
                    : DSF_FAIL(DSF_ECORRUPT,
                               "sampling: of the logits after position %lld one is NaN or +inf, or "
                               "none is finite",
                               (long long)s->n - 1);
}
