#include "ops/engram.h"

#include "base/num.h"

static void embed_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_embed_args *a = arg;
    int64_t d = a->out.dim[1];
    int64_t id = ((const int32_t *)a->ids.data)[i];
    memcpy((uint16_t *)a->out.data + i * d, (const uint16_t *)a->table.data + id * d,
           2 * (size_t)d);
}

dsf_status dsf_embed_ref(const dsf_launch *lc, const void *args)
{
    const dsf_embed_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0], embed_row, (void *)a);
    return DSF_OK;
}

/* Item: one (row, column). code * scale has at most 4 significand bits: exact unless it leaves
 * the range of bf16. */
static void gather_row(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_engram_gather_args *a = arg;
    int64_t d = a->out.dim[2];
    int64_t row = ((const int64_t *)a->rows.data)[item];
    const uint8_t *code = (const uint8_t *)a->table.data + row * d;
    const uint8_t *s = (const uint8_t *)a->s.data + row * a->s.dim[1];
    uint16_t *out = (uint16_t *)a->out.data + item * d;
    for (int64_t c = 0; c < d; c++)
        out[c] = dsf_f64_to_bf16((double)dsf_e4m3_to_f32(code[c]) * dsf_e8m0_to_f32(s[c / 32]));
}

dsf_status dsf_engram_gather_ref(const dsf_launch *lc, const void *args)
{
    const dsf_engram_gather_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0] * a->out.dim[1], gather_row, (void *)a);
    return DSF_OK;
}

/* gamma of one stream (8.5); q, k: its weights, key: kappa. */
static float gate(const uint16_t *x, const uint16_t *q, const uint16_t *k, const uint16_t *key,
                  int64_t d, double eps)
{
    double dot = 0, xx = 0, kk = 0;
    for (int64_t c = 0; c < d; c++) {
        double xc = dsf_bf16_to_f32(x[c]), kc = dsf_bf16_to_f32(key[c]);
        dot += xc * ((double)dsf_bf16_to_f32(q[c]) * dsf_bf16_to_f32(k[c])) * kc;
        xx += xc * xc;
        kk += kc * kc;
    }
    double n = (double)d;
    double t = dot / sqrt(xx / n + eps) / sqrt(kk / n + eps) / sqrt(n);
    double u = copysign(sqrt(fmax(fabs(t), 1e-6)), t);
    return (float)(1.0 / (1.0 + exp(-u)));
}

static void gate_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_engram_gate_args *a = arg;
    int64_t d = a->x.dim[2];
    const uint16_t *kv = (const uint16_t *)a->kv.data + i * 5 * d;
    int dead = ((const uint8_t *)a->vl.data)[i];
    for (int64_t s = 0; s < 4; s++) {
        const uint16_t *x = (const uint16_t *)a->x.data + (4 * i + s) * d;
        uint16_t *out = (uint16_t *)a->out.data + (4 * i + s) * d;
        float gamma = dead ? 0.0f
                           : gate(x, (const uint16_t *)a->qw.data + s * d,
                                  (const uint16_t *)a->kw.data + s * d, kv + s * d, d, a->eps);
        ((float *)a->gate.data)[4 * i + s] = gamma;
        for (int64_t c = 0; c < d; c++)
            out[c] =
                dsf_f32_to_bf16(dsf_bf16_to_f32(x[c]) + gamma * dsf_bf16_to_f32(kv[4 * d + c]));
    }
}

dsf_status dsf_engram_gate_ref(const dsf_launch *lc, const void *args)
{
    const dsf_engram_gate_args *a = args;
    dsf_pool_run(lc->pool, a->x.dim[0], gate_row, (void *)a);
    return DSF_OK;
}
