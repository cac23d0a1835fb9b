/* Rotary embedding, architecture.md 3.6: the angle is the f32 product of position and frequency;
 * adjacent channels of the tail are (real, imaginary). */
#include "ops/rope.h"

#include "base/num.h"

static void table_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_rope_table_args *a = arg;
    int64_t f = a->freq.dim[0];
    const int32_t *pos = a->pos.data;
    const float *freq = a->freq.data;
    float *cs = (float *)a->cs.data + i * f * 2;
    for (int64_t c = 0; c < f; c++) {
        float angle = (float)pos[i] * freq[c];
        cs[2 * c] = (float)cos((double)angle);
        cs[2 * c + 1] = (float)sin((double)angle);
    }
}

dsf_status dsf_rope_table_ref(const dsf_launch *lc, const void *args)
{
    dsf_rope_table_args a = *(const dsf_rope_table_args *)args;
    dsf_pool_run(lc->pool, a.pos.dim[0], table_row, &a);
    return DSF_OK;
}

/* Item: one head of one row. */
static void rotate_head(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_rope_args *a = arg;
    int64_t h = a->x.dim[1], d = a->x.dim[2], f = a->cs.dim[1], plain = d - 2 * f;
    const uint16_t *x = (const uint16_t *)a->x.data + item * d;
    const float *cs = (const float *)a->cs.data + item / h * f * 2;
    uint16_t *out = (uint16_t *)a->out.data + item * d;
    memmove(out, x, (size_t)plain * sizeof *out);
    for (int64_t i = 0; i < f; i++) {
        float re = dsf_bf16_to_f32(x[plain + 2 * i]), im = dsf_bf16_to_f32(x[plain + 2 * i + 1]);
        float c = cs[2 * i], s = a->inverse ? -cs[2 * i + 1] : cs[2 * i + 1];
        out[plain + 2 * i] = dsf_f32_to_bf16(re * c - im * s);
        out[plain + 2 * i + 1] = dsf_f32_to_bf16(re * s + im * c);
    }
}

dsf_status dsf_rope_ref(const dsf_launch *lc, const void *args)
{
    dsf_rope_args a = *(const dsf_rope_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0] * a.x.dim[1], rotate_head, &a);
    return DSF_OK;
}
