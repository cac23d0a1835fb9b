#include "ops/moe.h"

#include "ref/dot.h"

/* The publisher's softplus is linear above 20. */
static float score(float z) { return (float)sqrt(z > 20.0f ? (double)z : log1p(exp((double)z))); }

/* The k best of r + bias, ties to the smaller id, written ascending by id. */
static void choose(const float *r, const float *bias, int64_t e, int32_t *ids, int64_t k)
{
    int64_t have = 0; /* ids[0..have): best first */
    for (int64_t i = 0; i < e; i++) {
        float v = r[i] + bias[i];
        int64_t at = have;
        while (at > 0 && v > r[ids[at - 1]] + bias[ids[at - 1]]) at--;
        if (at == k) continue;
        if (have < k) have++;
        for (int64_t j = have - 1; j > at; j--) ids[j] = ids[j - 1];
        ids[at] = (int32_t)i;
    }
    for (int64_t i = 1; i < k; i++) {
        int32_t id = ids[i];
        int64_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

static void route_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_route_args *a = arg;
    int64_t e = a->z.dim[1], k = a->ids.dim[1];
    const float *z = (const float *)a->z.data + i * e;
    float *r = (float *)a->scores.data + i * e;
    float *weight = (float *)a->weights.data + i * k;
    int32_t *ids = (int32_t *)a->ids.data + i * k;
    int image = a->bias_vl.rank != 0 && ((const uint8_t *)a->vl.data)[i];
    for (int64_t j = 0; j < e; j++) r[j] = score(z[j]);
    choose(r, image ? a->bias_vl.data : a->bias.data, e, ids, k);
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += r[ids[j]];
    for (int64_t j = 0; j < k; j++) {
        double w = r[ids[j]];
        if (a->norm_topk_prob && k > 1) w /= sum + 1e-20;
        weight[j] = (float)(w * a->scale);
    }
}

dsf_status dsf_route_ref(const dsf_launch *lc, const void *args)
{
    const dsf_route_args *a = args;
    dsf_pool_run(lc->pool, a->z.dim[0], route_row, (void *)a);
    return DSF_OK;
}

/* f32 at every step, as the model computes it; only the exponential is taken in double. */
static uint16_t swiglu(float g, float v, float limit, float w)
{
    g = fminf(g, limit);
    v = fminf(fmaxf(v, -limit), limit);
    float h = (float)(g / (1.0 + exp(-(double)g)));
    return dsf_f32_to_bf16(h * v * w);
}

static void swiglu_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_swiglu_args *a = arg;
    int64_t d = a->out.dim[1];
    const uint16_t *g = (const uint16_t *)a->g.data + i * d;
    const uint16_t *v = (const uint16_t *)a->v.data + i * d;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    for (int64_t c = 0; c < d; c++)
        out[c] = swiglu(dsf_bf16_to_f32(g[c]), dsf_bf16_to_f32(v[c]), a->limit, 1.0f);
}

dsf_status dsf_swiglu_ref(const dsf_launch *lc, const void *args)
{
    const dsf_swiglu_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0], swiglu_row, (void *)a);
    return DSF_OK;
}

/* Entry `id` of an expert table. */
static const uint8_t *expert(const dsf_tensor *table, int32_t id)
{
    return (const uint8_t *)(uintptr_t)((const int64_t *)table->data)[id]; // NOLINT
}

/* Item: one (row, slot). */
static void experts_up_slot(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_experts_up_args *a = arg;
    int64_t k = a->out.dim[1], width = a->out.dim[2], d = a->x.dim[1];
    const uint8_t *x = (const uint8_t *)a->x.data + item / k * (d + d / 32);
    int32_t id = ((const int32_t *)a->ids.data)[item];
    float weight = ((const float *)a->weights.data)[item];
    const uint8_t *w1 = expert(&a->w1, id), *s1 = expert(&a->s1, id);
    const uint8_t *w3 = expert(&a->w3, id), *s3 = expert(&a->s3, id);
    uint16_t *out = (uint16_t *)a->out.data + item * width;
    for (int64_t c = 0; c < width; c++) {
        int64_t w = c * (d / 2), s = c * (d / 32);
        uint16_t g = dsf_f64_to_bf16(dsf_dot_q8_e2m1(x, w1 + w, s1 + s, d));
        uint16_t v = dsf_f64_to_bf16(dsf_dot_q8_e2m1(x, w3 + w, s3 + s, d));
        out[c] = swiglu(dsf_bf16_to_f32(g), dsf_bf16_to_f32(v), a->limit, weight);
    }
}

dsf_status dsf_experts_up_ref(const dsf_launch *lc, const void *args)
{
    const dsf_experts_up_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0] * a->out.dim[1], experts_up_slot, (void *)a);
    return DSF_OK;
}

static void experts_down_slot(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_experts_down_args *a = arg;
    int64_t d = a->out.dim[2], width = a->h.dim[2];
    const uint8_t *h = (const uint8_t *)a->h.data + item * (width + width / 32);
    int32_t id = ((const int32_t *)a->ids.data)[item];
    const uint8_t *w2 = expert(&a->w2, id), *s2 = expert(&a->s2, id);
    uint16_t *out = (uint16_t *)a->out.data + item * d;
    for (int64_t c = 0; c < d; c++)
        out[c] =
            dsf_f64_to_bf16(dsf_dot_q8_e2m1(h, w2 + c * (width / 2), s2 + c * (width / 32), width));
}

dsf_status dsf_experts_down_ref(const dsf_launch *lc, const void *args)
{
    const dsf_experts_down_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0] * a->out.dim[1], experts_down_slot, (void *)a);
    return DSF_OK;
}

static void moe_sum_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_moe_sum_args *a = arg;
    int64_t k = a->y.dim[1], d = a->out.dim[1];
    const uint16_t *y = (const uint16_t *)a->y.data + i * k * d;
    const uint16_t *shared = (const uint16_t *)a->shared.data + i * d;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    for (int64_t c = 0; c < d; c++) {
        float sum = 0;
        for (int64_t j = 0; j < k; j++) sum += dsf_bf16_to_f32(y[j * d + c]);
        out[c] = dsf_f32_to_bf16(sum + dsf_bf16_to_f32(shared[c]));
    }
}

dsf_status dsf_moe_sum_ref(const dsf_launch *lc, const void *args)
{
    const dsf_moe_sum_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0], moe_sum_row, (void *)a);
    return DSF_OK;
}
