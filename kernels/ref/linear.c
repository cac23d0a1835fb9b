#include "ops/linear.h"

#include "ref/dot.h"

/* Item o: output channel o of every row. */
static void g8_column(void *arg, int64_t o, int worker)
{
    (void)worker;
    const dsf_linear_g8_args *a = arg;
    int64_t n = a->out.dim[0], n_out = a->out.dim[1], k = a->w.dim[1];
    const uint8_t *x = a->x.data;
    const uint8_t *w = (const uint8_t *)a->w.data + o * k;
    const uint8_t *s = (const uint8_t *)a->s.data + o / 32 * (k / 32);
    uint16_t *out = a->out.data;
    for (int64_t i = 0; i < n; i++)
        out[i * n_out + o] = dsf_f64_to_bf16(dsf_dot_q8_e4m3(x + i * (k + k / 32), w, s, k));
}

dsf_status dsf_linear_g8_ref(const dsf_launch *lc, const void *args)
{
    const dsf_linear_g8_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[1], g8_column, (void *)a);
    return DSF_OK;
}

dsf_status dsf_linear_g8_pair_ref(const dsf_launch *lc, const void *args)
{
    const dsf_linear_g8_args a = dsf_linear_g8_half(args, 0), b = dsf_linear_g8_half(args, 1);
    DSF_TRY(dsf_linear_g8_ref(lc, &a));
    return dsf_linear_g8_ref(lc, &b);
}

static void bf16_column(void *arg, int64_t o, int worker)
{
    (void)worker;
    const dsf_linear_args *a = arg;
    int64_t n = a->out.dim[0], n_out = a->out.dim[1], k = a->w.dim[1];
    const uint16_t *x = a->x.data;
    const uint16_t *w = (const uint16_t *)a->w.data + o * k;
    for (int64_t i = 0; i < n; i++) {
        double y = dsf_dot_bf16(x + i * k, w, k);
        if (a->out.dtype == DSF_F32)
            ((float *)a->out.data)[i * n_out + o] = (float)y;
        else
            ((uint16_t *)a->out.data)[i * n_out + o] = dsf_f64_to_bf16(y);
    }
}

dsf_status dsf_linear_gb_ref(const dsf_launch *lc, const void *args)
{
    const dsf_linear_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[1], bf16_column, (void *)a);
    return DSF_OK;
}

dsf_status dsf_linear_gf_ref(const dsf_launch *lc, const void *args)
{
    return dsf_linear_gb_ref(lc, args);
}

/* Item: output channel of group g = item / o. */
static void group_column(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_linear_group_args *a = arg;
    int64_t n = a->out.dim[0], groups = a->w.dim[0], n_out = a->w.dim[1], k = a->w.dim[2];
    int64_t g = item / n_out;
    const uint16_t *x = (const uint16_t *)a->x.data + g * k;
    const uint8_t *w = (const uint8_t *)a->w.data + item * k;
    const uint8_t *s = (const uint8_t *)a->s.data + item / 32 * (k / 32);
    uint16_t *out = a->out.data;
    for (int64_t i = 0; i < n; i++)
        out[i * groups * n_out + item] =
            dsf_f64_to_bf16(dsf_dot_bf16_e4m3(x + i * groups * k, w, s, k));
}

dsf_status dsf_linear_group_ref(const dsf_launch *lc, const void *args)
{
    const dsf_linear_group_args *a = args;
    dsf_pool_run(lc->pool, a->w.dim[0] * a->w.dim[1], group_column, (void *)a);
    return DSF_OK;
}
