#include "ops/draft.h"

#include <string.h>

#include "avx512/expand.h"
#include "avx512/gemm.h"

enum { LANES = 16 };

typedef struct {
    const dsf_launch *lc;
    dsf_gemm gemm;
    const uint8_t *mu; /* [r] bf16 of this step */
    const float *base; /* [v] */
    float *logits;     /* [v] */
    int64_t v;
} markov_step;

size_t dsf_draft_avx512_scratch(const void *args)
{
    (void)args;
    return DSF_GEMM_SUM_BYTES + dsf_gemm_scratch();
}

/* Item: a block of the vocabulary. */
static void markov_item(void *arg, int64_t item, int worker)
{
    const markov_step *m = arg;
    uint8_t *scratch = m->lc->scratch + (size_t)worker * m->lc->scratch_bytes;
    int64_t o0 = item * DSF_GEMM_FEW_OUTS, left = m->v - o0;
    dsf_gemm_block b = {.row = {m->mu},
                        .n_rows = 1,
                        .n_outs = left < DSF_GEMM_FEW_OUTS ? (int)left : DSF_GEMM_FEW_OUTS,
                        .o0 = o0,
                        .sum = (float *)scratch,
                        .scratch = scratch + DSF_GEMM_SUM_BYTES};
    dsf_gemm_run(&m->gemm, &b);
    for (int i = 0; i < b.n_outs; i++) m->logits[o0 + i] = m->base[o0 + i] + b.sum[i];
}

/* The smallest index of the largest of n values. */
static int64_t argmax(const float *x, int64_t n)
{
    __m512 most = _mm512_set1_ps(x[0]);
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 have = (__mmask16)dsf_mask_low(n - i);
        most = _mm512_mask_max_ps(most, have, most, _mm512_maskz_loadu_ps(have, x + i));
    }
    most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 have = (__mmask16)dsf_mask_low(n - i);
        unsigned at =
            _mm512_mask_cmp_ps_mask(have, most, _mm512_maskz_loadu_ps(have, x + i), _CMP_EQ_OQ);
        if (at) return i + __builtin_ctz(at);
    }
    return 0;
}

dsf_status dsf_markov_chain_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_markov_chain_args *a = args;
    int64_t b = a->logits.dim[0], v = a->logits.dim[1], r = a->mu.dim[1];
    int64_t id = *(const int32_t *)a->anchor.data;
    for (int64_t i = 0; i < b; i++) {
        uint16_t *mu = (uint16_t *)a->mu.data + i * r;
        memcpy(mu, (const uint16_t *)a->embed.data + id * r, 2 * (size_t)r);
        markov_step m = {lc,
                         {DSF_GEMM_BF16, 0, 0, r, a->head.data, NULL},
                         (const uint8_t *)mu,
                         (const float *)a->base.data + i * v,
                         (float *)a->logits.data + i * v,
                         v};
        dsf_pool_run(lc->pool, (v + DSF_GEMM_FEW_OUTS - 1) / DSF_GEMM_FEW_OUTS, markov_item, &m);
        id = argmax(m.logits, v);
        ((int32_t *)a->ids.data)[i] = (int32_t)id;
    }
    return DSF_OK;
}

/* One output channel for row `x` of k bf16. */
static float dot(const dsf_launch *lc, const uint16_t *x, const uint16_t *w, int64_t k)
{
    dsf_gemm gemm = {DSF_GEMM_BF16, 0, 0, k, (const uint8_t *)w, NULL};
    dsf_gemm_block b = {.row = {(const uint8_t *)x},
                        .n_rows = 1,
                        .n_outs = 1,
                        .sum = (float *)lc->scratch,
                        .scratch = lc->scratch + DSF_GEMM_SUM_BYTES};
    dsf_gemm_run(&gemm, &b);
    return b.sum[0];
}

dsf_status dsf_confidence_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_confidence_args *a = args;
    int64_t d = a->h.dim[1], r = a->mu.dim[1];
    const uint16_t *h = a->h.data, *mu = a->mu.data, *w = a->w.data;
    for (int64_t i = 0; i < a->out.dim[0]; i++)
        ((float *)a->out.data)[i] = dot(lc, h + i * d, w, d) + dot(lc, mu + i * r, w + d, r);
    return DSF_OK;
}
