/* RMSNorm: one pass for the squares in double, one for the two f32 products and the rounding. */
#include "ops/norm.h"

#include <math.h>

#include "row.h"

static void norm_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_rms_norm_args *a = arg;
    int64_t d = a->x.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * d, *w = a->w.data;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    float mean = (float)(dsf_row_squares(x, d) / (double)d) + a->eps;
    __m512 factor = _mm512_set1_ps((float)(1.0 / sqrt((double)mean)));
    for (int64_t c = 0; c < d; c += 16) {
        __mmask16 m = dsf_row_mask(c, d);
        __m512 v = _mm512_mul_ps(dsf_row_load(x + c, m), factor);
        dsf_row_store(out + c, m, _mm512_mul_ps(dsf_row_load(w + c, m), v));
    }
}

dsf_status dsf_rms_norm_avx512(const dsf_launch *lc, const void *args)
{
    dsf_rms_norm_args a = *(const dsf_rms_norm_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], norm_row, &a);
    return DSF_OK;
}
