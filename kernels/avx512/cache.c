/* Ratio-2 compressor: softmax over two tokens, channel by channel. The larger logit has weight 1
 * before normalisation, the other e^-|dg|. */
#include "ops/cache.h"

#include "row.h"

static void pool_entry(void *arg, int64_t e, int worker)
{
    (void)worker;
    const dsf_pair_pool_args *a = arg;
    int64_t d = a->out.dim[1];
    dsf_pair_view at = dsf_pair_of(a, e);
    uint16_t *out = (uint16_t *)a->out.data + e * d;
    for (int64_t c = 0; c < d; c += 16) {
        __mmask16 m = dsf_row_mask(c, d);
        __m512 g0 = _mm512_maskz_loadu_ps(m, at.g[0] + c),
               g1 = _mm512_maskz_loadu_ps(m, at.g[1] + c);
        __m512 v0 = _mm512_maskz_loadu_ps(m, at.v[0] + c),
               v1 = _mm512_maskz_loadu_ps(m, at.v[1] + c);
        __m512 most = _mm512_max_ps(g0, g1);
        __m512 p0 = dsf_lane_exp(_mm512_sub_ps(g0, most)),
               p1 = dsf_lane_exp(_mm512_sub_ps(g1, most));
        __m512 sum = _mm512_add_ps(p0, p1);
        __m512 t0 = _mm512_mul_ps(_mm512_div_ps(p0, sum), v0);
        __m512 t1 = _mm512_mul_ps(_mm512_div_ps(p1, sum), v1);
        dsf_row_store(out + c, m, _mm512_add_ps(t0, t1));
    }
}

dsf_status dsf_pair_pool_avx512(const dsf_launch *lc, const void *args)
{
    dsf_pair_pool_args a = *(const dsf_pair_pool_args *)args;
    dsf_pool_run(lc->pool, a.out.dim[0], pool_entry, &a);
    return DSF_OK;
}
