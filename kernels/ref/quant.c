/* Row quantisers, as architecture.md 3.1-3.3 writes them: the largest magnitude of a group decides
 * its scale, every value is divided by it and rounded once. */
#include "ops/quant.h"

#include "base/num.h"

static float amax_of(const uint16_t *x, int n, float floor)
{
    float amax = floor;
    for (int i = 0; i < n; i++) amax = fmaxf(amax, fabsf(dsf_bf16_to_f32(x[i])));
    return amax;
}

static float clamp(float v, float limit) { return fminf(fmaxf(v, -limit), limit); }

void dsf_q8_row(uint8_t *out, const uint16_t *x, int64_t d)
{
    uint8_t *scale = out + d;
    for (int64_t g = 0; g < d / 32; g++) {
        int k = dsf_pow2ceil(amax_of(x + 32 * g, 32, 1e-4f), 1.0f / 448.0f);
        scale[g] = (uint8_t)(k + 127);
        for (int64_t i = 32 * g; i < 32 * g + 32; i++)
            out[i] = dsf_f32_to_e4m3(clamp(dsf_bf16_to_f32(x[i]) / dsf_pow2(k), 448.0f));
    }
}

/* Two e2m1 codes a byte, the even channel in the low nibble. */
static uint8_t pack(const uint16_t *x, float scale)
{
    unsigned low = dsf_f32_to_e2m1(clamp(dsf_bf16_to_f32(x[0]) / scale, 6.0f));
    unsigned high = dsf_f32_to_e2m1(clamp(dsf_bf16_to_f32(x[1]) / scale, 6.0f));
    return (uint8_t)(low | high << 4);
}

void dsf_q4x_row(uint8_t *out, const uint16_t *x, int64_t d)
{
    uint8_t *scale = out + d / 2;
    for (int64_t g = 0; g < d / 32; g++) {
        int k = dsf_pow2ceil(amax_of(x + 32 * g, 32, 6.0f * dsf_pow2(-126)), 1.0f / 6.0f);
        scale[g] = (uint8_t)(k + 127);
        for (int64_t i = 16 * g; i < 16 * g + 16; i++) out[i] = pack(x + 2 * i, dsf_pow2(k));
    }
}

void dsf_q4n_row(uint8_t *out, const uint16_t *x, int64_t d)
{
    uint8_t *scale = out + d / 2;
    for (int64_t g = 0; g < d / 16; g++) {
        scale[g] = dsf_f32_to_e4m3(amax_of(x + 16 * g, 16, 6.0f * dsf_pow2(-9)) / 6.0f);
        float s = dsf_e4m3_to_f32(scale[g]);
        for (int64_t i = 8 * g; i < 8 * g + 8; i++) out[i] = pack(x + 2 * i, s);
    }
}

void dsf_q8_unpack(uint16_t *out, const uint8_t *rec, int64_t d)
{
    for (int64_t i = 0; i < d; i++)
        out[i] = dsf_f32_to_bf16(dsf_e4m3_to_f32(rec[i]) * dsf_e8m0_to_f32(rec[d + i / 32]));
}

static float nibble(const uint8_t *rec, int64_t i)
{
    return dsf_e2m1_to_f32(rec[i / 2] >> (i & 1 ? 4 : 0));
}

void dsf_q4x_unpack(uint16_t *out, const uint8_t *rec, int64_t d)
{
    for (int64_t i = 0; i < d; i++)
        out[i] = dsf_f32_to_bf16(nibble(rec, i) * dsf_e8m0_to_f32(rec[d / 2 + i / 32]));
}

void dsf_q4n_unpack(uint16_t *out, const uint8_t *rec, int64_t d)
{
    for (int64_t i = 0; i < d; i++)
        out[i] = dsf_f32_to_bf16(nibble(rec, i) * dsf_e4m3_to_f32(rec[d / 2 + i / 16]));
}

typedef struct {
    const dsf_quant_args *a;
    void (*row)(uint8_t *out, const uint16_t *x, int64_t d);
} job;

static void run_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t d = j->a->x.dim[2];
    j->row((uint8_t *)j->a->out.data + i * dsf_dtype_bytes(j->a->out.dtype, d),
           (const uint16_t *)j->a->x.data + i * d, d);
}

static dsf_status run(const dsf_launch *lc, job j)
{
    dsf_pool_run(lc->pool, dsf_tensor_rows(&j.a->x), run_row, &j);
    return DSF_OK;
}

dsf_status dsf_quant_q8_ref(const dsf_launch *lc, const void *args)
{
    return run(lc, (job){args, dsf_q8_row});
}

dsf_status dsf_quant_q4x_ref(const dsf_launch *lc, const void *args)
{
    return run(lc, (job){args, dsf_q4x_row});
}

dsf_status dsf_quant_q4n_ref(const dsf_launch *lc, const void *args)
{
    return run(lc, (job){args, dsf_q4n_row});
}
