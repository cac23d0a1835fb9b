/* RMSNorm, architecture.md 3.5: y = bf16( w * ( x * rsqrt(mean(x^2) + eps) ) ), every operation
 * rounded to f32 in the written order; only the sum is taken in double. */
#include "ops/norm.h"

#include "base/num.h"

static void norm_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_rms_norm_args *a = arg;
    int64_t d = a->x.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * d, *w = a->w.data;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    double sum = 0;
    for (int64_t c = 0; c < d; c++) {
        double v = dsf_bf16_to_f32(x[c]);
        sum += v * v;
    }
    float mean = (float)(sum / (double)d) + a->eps;
    float factor = (float)(1.0 / sqrt((double)mean));
    for (int64_t c = 0; c < d; c++)
        out[c] = dsf_f32_to_bf16(dsf_bf16_to_f32(w[c]) * (dsf_bf16_to_f32(x[c]) * factor));
}

dsf_status dsf_rms_norm_ref(const dsf_launch *lc, const void *args)
{
    dsf_rms_norm_args a = *(const dsf_rms_norm_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], norm_row, &a);
    return DSF_OK;
}
