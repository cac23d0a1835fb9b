#include "ops/moe.h"

#include "config.h"
#include "ops/fill.h"
#include "ops/scaled.h"
#include "sm90/tiles.h"
#include "sm90/tune_experts.h"

static const dsf_operand route_operands[] = {
    DSF_ARG(dsf_route_args, scores, DSF_OUT, DSF_F32, "ne", 0),
    DSF_ARG(dsf_route_args, ids, DSF_OUT, DSF_I32, "nk", 0),
    DSF_ARG(dsf_route_args, weights, DSF_OUT, DSF_F32, "nk", 0),
    DSF_ARG(dsf_route_args, z, DSF_IN, DSF_F32, "ne", 0),
    DSF_ARG(dsf_route_args, bias, DSF_IN, DSF_F32, "e", 0),
    DSF_ARG(dsf_route_args, bias_vl, DSF_IN, DSF_F32, "e", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_route_args, vl, DSF_IN, DSF_U8, "n", 0)};

static const dsf_operand swiglu_operands[] = {
    DSF_ARG(dsf_swiglu_args, out, DSF_OUT, DSF_BF16, "ni", 0),
    DSF_ARG(dsf_swiglu_args, g, DSF_IN, DSF_BF16, "ni", 0),
    DSF_ARG(dsf_swiglu_args, v, DSF_IN, DSF_BF16, "ni", 0)};

/* h = d / 2 bytes of codes. */
static const dsf_operand up_operands[] = {
    DSF_ARG(dsf_experts_up_args, out, DSF_OUT, DSF_BF16, "nki", 0),
    DSF_ARG(dsf_experts_up_args, x, DSF_IN, DSF_Q8, "nd", 0),
    DSF_ARG(dsf_experts_up_args, ids, DSF_IN, DSF_I32, "nk", 0),
    DSF_ARG(dsf_experts_up_args, weights, DSF_IN, DSF_F32, "nk", 0),
    DSF_ARG(dsf_experts_up_args, w1, DSF_IN, DSF_I64, "e", 0),
    DSF_ARG(dsf_experts_up_args, s1, DSF_IN, DSF_I64, "e", 0),
    DSF_ARG(dsf_experts_up_args, w3, DSF_IN, DSF_I64, "e", 0),
    DSF_ARG(dsf_experts_up_args, s3, DSF_IN, DSF_I64, "e", 0),
    DSF_ARG(dsf_experts_up_args, w1_data, DSF_IN, DSF_E2M1X2, "eih", DSF_OPERAND_AUX),
    DSF_ARG(dsf_experts_up_args, s1_data, DSF_IN, DSF_E8M0, "eiD", DSF_OPERAND_AUX),
    DSF_ARG(dsf_experts_up_args, w3_data, DSF_IN, DSF_E2M1X2, "eih", DSF_OPERAND_AUX),
    DSF_ARG(dsf_experts_up_args, s3_data, DSF_IN, DSF_E8M0, "eiD", DSF_OPERAND_AUX)};

/* j = i / 2 bytes of codes. */
static const dsf_operand down_operands[] = {
    DSF_ARG(dsf_experts_down_args, out, DSF_OUT, DSF_BF16, "nkd", 0),
    DSF_ARG(dsf_experts_down_args, h, DSF_IN, DSF_Q8, "nki", 0),
    DSF_ARG(dsf_experts_down_args, ids, DSF_IN, DSF_I32, "nk", 0),
    DSF_ARG(dsf_experts_down_args, w2, DSF_IN, DSF_I64, "e", 0),
    DSF_ARG(dsf_experts_down_args, s2, DSF_IN, DSF_I64, "e", 0),
    DSF_ARG(dsf_experts_down_args, w2_data, DSF_IN, DSF_E2M1X2, "edj", DSF_OPERAND_AUX),
    DSF_ARG(dsf_experts_down_args, s2_data, DSF_IN, DSF_E8M0, "edI", DSF_OPERAND_AUX)};

static const dsf_operand sum_operands[] = {
    DSF_ARG(dsf_moe_sum_args, out, DSF_OUT, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_moe_sum_args, y, DSF_IN, DSF_BF16, "nkd", 0),
    DSF_ARG(dsf_moe_sum_args, shared, DSF_IN, DSF_BF16, "nd", 0)};

/* The choice must not depend on who computes the scores: the device too takes them in double. A row
 * is short: one variant a machine. */
static const dsf_variant route_variants[] = {
    {"ref", 0, dsf_route_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_route_sm90), NULL, NULL}};
static const dsf_variant swiglu_variants[] = {
    {"ref", 0, dsf_swiglu_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_swiglu_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_swiglu_sm90), NULL, NULL}};
static const dsf_variant up_variants[] = {
    {"ref", 0, dsf_experts_up_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_experts_up_avx512), NULL,
     DSF_X86(dsf_experts_up_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_experts_up_sm90), NULL, NULL},
    {"sm90fp8", DSF_NEEDS_SM90 | DSF_FP8_SUM, DSF_CUDA(dsf_experts_up_sm90fp8),
     dsf_experts_up_sm90fp8_accepts, dsf_experts_up_sm90fp8_scratch}};
static const dsf_variant down_variants[] = {
    {"ref", 0, dsf_experts_down_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_experts_down_avx512), NULL,
     DSF_X86(dsf_experts_down_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_experts_down_sm90), NULL, NULL},
    {"sm90fp8", DSF_NEEDS_SM90 | DSF_FP8_SUM, DSF_CUDA(dsf_experts_down_sm90fp8),
     dsf_experts_down_sm90fp8_accepts, dsf_experts_down_sm90fp8_scratch}};
static const dsf_variant sum_variants[] = {
    {"ref", 0, dsf_moe_sum_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_moe_sum_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_moe_sum_sm90), NULL, NULL}};

/* n, e, k, then norm_topk_prob: all chosen, one chosen, the draft head, the model. */
static const dsf_case route_cases[] = {{{1, 1, 1, 1}},    {{3, 4, 4, 1}},   {{5, 12, 3, 0}},
                                       {{9, 17, 1, 1}},   {{6, 128, 3, 1}}, {{4, 384, 6, 1}},
                                       {{130, 300, 8, 1}}};
static const dsf_case swiglu_cases[] = {{{1, 1}},  {{2, 15}},   {{3, 16}},  {{2, 17}},
                                        {{4, 31}}, {{3, 2304}}, {{65, 130}}};
/* n, k, i, e, d, h: one pair, every row on its own expert, many rows on few experts; then what the
 * tensor cores take: few rows with and without lists, more pairs than a tile has, records of a
 * multiple of 8 and of 16 bytes. */
static const dsf_case up_cases[] = {
    {{1, 1, 32, 1, 32, 16}},      {{3, 2, 96, 4, 160, 80}},     {{1, 6, 64, 32, 640, 320}},
    {{9, 3, 130, 5, 544, 272}},   {{1, 2, 32, 3, 5120, 2560}},  {{150, 2, 33, 3, 96, 48}},
    {{2, 2, 128, 3, 256, 128}},   {{7, 2, 128, 4, 512, 256}},   {{70, 3, 128, 4, 256, 128}},
    {{260, 2, 128, 2, 256, 128}}, {{300, 1, 128, 40, 512, 256}}};
/* n, k, i, e, d, j */
static const dsf_case down_cases[] = {
    {{1, 1, 32, 1, 32, 16}},      {{3, 2, 96, 4, 160, 48}},     {{1, 6, 640, 32, 64, 320}},
    {{9, 3, 544, 5, 130, 272}},   {{1, 2, 2304, 3, 96, 1152}},  {{150, 2, 96, 3, 33, 48}},
    {{2, 2, 256, 3, 256, 128}},   {{7, 2, 512, 4, 256, 256}},   {{70, 3, 256, 4, 256, 128}},
    {{260, 2, 256, 2, 256, 128}}, {{300, 1, 512, 40, 256, 256}}};
/* n, k, d */
static const dsf_case sum_cases[] = {{{1, 1, 1}},  {{2, 3, 15}},   {{3, 6, 16}},  {{2, 2, 17}},
                                     {{1, 8, 33}}, {{3, 6, 5120}}, {{65, 3, 130}}};

static const dsf_tol route_tol[] = {
    {DSF_TOL_EXACT, 0, "exp, log1p and root in double, one rounding"},
    {DSF_TOL_EXACT, 0, "f32 sums of equal scores and biases: a fixed order decides ties"},
    {DSF_TOL_EXACT, 0, "sum and quotient in double in id order, one rounding"}};
static const dsf_tol swiglu_tol[] = {
    {DSF_TOL_ULP, 1, "at most 6 f32 ulp before the rounding to bf16: it may fall on either side"}};
static const dsf_tol up_tol[] = {
    {DSF_TOL_SUM, 1,
     "composed: both products in the error of their sums and one bf16 rounding, through the slope "
     "of silu (at most 1.1), the clamps do not expand; then 8 f32 roundings"}};
static const dsf_tol down_tol[] = {{DSF_TOL_SUM, 1, DSF_SUM_WHY}};
static const dsf_tol sum_tol[] = {{DSF_TOL_EXACT, 0, "the order of the f32 sum is fixed"}};

static void init_route(void *args, const dsf_case *c)
{
    dsf_route_args *a = args;
    a->scale = 1.5f;
    a->norm_topk_prob = (int)c->v[3];
}

static void init_swiglu(void *args, const dsf_case *c)
{
    (void)c;
    ((dsf_swiglu_args *)args)->limit = 10.0f;
}

static void init_up(void *args, const dsf_case *c)
{
    (void)c;
    ((dsf_experts_up_args *)args)->limit = 10.0f;
}

static void fill_route(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_route_args *a = args;
    uint8_t *vl = a->vl.data;
    for (int64_t i = 0; i < a->vl.dim[0]; i++) vl[i] = (uint8_t)dsf_fill_below(&seed, 2);
}

/* k of e experts for every row, each once, ascending. */
static void fill_ids(const dsf_tensor *ids, int64_t e, uint64_t *seed)
{
    int64_t k = ids->dim[1];
    for (int64_t i = 0; i < ids->dim[0]; i++) {
        int32_t *row = (int32_t *)ids->data + i * k;
        int64_t wanted = k;
        for (int64_t id = 0; id < e && wanted > 0; id++)
            if (dsf_fill_below(seed, e - id) < wanted) row[k - wanted--] = (int32_t)id;
    }
}

/* Pointers to the e tensors that follow one another in `data`. */
static void fill_table(const dsf_tensor *table, const dsf_tensor *data)
{
    int64_t *p = table->data, stride = dsf_tensor_stride(data);
    for (int64_t i = 0; i < table->dim[0]; i++)
        p[i] = (int64_t)(uintptr_t)((uint8_t *)data->data + i * stride);
}

/* Scales of a checkpoint: those of a row lie near one another. Two of three times they are moved to
 * within a factor of 2^-5..2^6 of the row's first, which the tensor-core variants fold into the
 * codes, and in one of these the last scale of a tensor leaves that range again. */
static void fill_scales(const dsf_tensor *scales, uint64_t *seed)
{
    int64_t kind = dsf_fill_below(seed, 3), n = scales->dim[scales->rank - 1];
    dsf_limit_scales(scales);
    if (kind == 0) return;
    uint8_t *s = scales->data;
    for (int64_t i = 0; i < dsf_tensor_count(scales); i += n) {
        s[i] = dsf_limit_byte(s[i], 70, 150);
        for (int64_t b = 1; b < n; b++) s[i + b] = (uint8_t)(s[i] - 5 + s[i + b] % 12);
    }
    if (kind == 2 && n > 1)
        s[dsf_tensor_count(scales) - 1] = (uint8_t)(s[dsf_tensor_count(scales) - n] + 7);
}

static void fill_up(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_experts_up_args *a = args;
    fill_ids(&a->ids, a->w1.dim[0], &seed);
    fill_table(&a->w1, &a->w1_data);
    fill_table(&a->s1, &a->s1_data);
    fill_table(&a->w3, &a->w3_data);
    fill_table(&a->s3, &a->s3_data);
    dsf_limit_q8(&a->x);
    uint64_t both = seed;
    fill_scales(&a->s1_data, &seed);
    fill_scales(&a->s3_data, &both); /* the same kind */
    float *w = a->weights.data;      /* routing weights lie in 0..scale */
    for (int64_t i = 0; i < dsf_tensor_count(&a->weights); i++)
        w[i] = (float)dsf_fill_below(&seed, 1 << 20) * 0x1.8p-20f;
}

static void fill_down(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_experts_down_args *a = args;
    fill_ids(&a->ids, a->w2.dim[0], &seed);
    fill_table(&a->w2, &a->w2_data);
    fill_table(&a->s2, &a->s2_data);
    dsf_limit_q8(&a->h);
    fill_scales(&a->s2_data, &seed);
}

typedef struct {
    double value, error; /* of the f32 sum, in absolute terms */
} product;

/* Row `row` of expert `id`'s codes and scales times the record x of k channels. fp8: the blocks'
 * losses in the tensor core are counted, too. */
static product g4(const uint8_t *x, const dsf_tensor *data, const dsf_tensor *scales, int64_t row,
                  int64_t k, int fp8)
{
    const uint8_t *w = (const uint8_t *)data->data + row * (k / 2);
    const uint8_t *s = (const uint8_t *)scales->data + row * (k / 32);
    double sum = 0, abs_sum = 0, lost = 0;
    for (int64_t b = 0; b < k / 32; b++) {
        double most = 0;
        for (int64_t c = 32 * b; c < 32 * b + 32; c++) {
            double v = (double)dsf_e4m3_to_f32(x[c]) * (double)dsf_e8m0_to_f32(x[k + b]) *
                       (double)dsf_e2m1_to_f32(w[c / 2] >> 4 * (c & 1)) *
                       (double)dsf_e8m0_to_f32(s[b]);
            sum += v;
            abs_sum += fabs(v);
            most = fmax(most, fabs(v));
        }
        lost += fp8 ? DSF_FP8_BLOCK_LOSS * most : 0;
    }
    return (product){sum, lost + 0x1p-24 * dsf_sum_bound(abs_sum, k)};
}

static double error_up(const dsf_experts_up_args *a, int64_t index, int fp8)
{
    int64_t k = a->out.dim[1], width = a->out.dim[2], d = a->x.dim[1];
    int64_t pair = index / width;
    const uint8_t *x = (const uint8_t *)a->x.data + pair / k * (d + d / 32);
    int64_t row = ((const int32_t *)a->ids.data)[pair] * width + index % width;
    double weight = fabs((double)((const float *)a->weights.data)[pair]), limit = a->limit;
    product g = g4(x, &a->w1_data, &a->s1_data, row, d, fp8);
    product v = g4(x, &a->w3_data, &a->s3_data, row, d, fp8);
    /* two bf16 roundings of numbers that differ by `error` differ by one more ulp: 2^-7 relative */
    g.error += 0x1p-7 * (fabs(g.value) + g.error) + 0x1p-133;
    v.error += 0x1p-7 * (fabs(v.value) + v.error) + 0x1p-133;
    double clamped = fmin(limit, fabs(v.value) + v.error);
    double dv = fmin(v.error, 2 * limit);
    double top = fmin(limit, fabs(g.value) + g.error);
    /* silu stays within [-0.279, top]; where g is above the limit on both sides nothing moves */
    double dg = g.value - g.error >= limit ? 0 : fmin(1.1 * g.error, top + 0.279);
    double rest = 8 * 0x1p-24 * top * clamped + 0x1p-126;
    return 0x1p24 * weight * (dg * clamped + top * dv + rest);
}

static double bound_up(const void *args, int operand, int64_t index)
{
    (void)operand;
    return error_up(args, index, 0);
}

static double fp8_bound_up(const void *args, int operand, int64_t index)
{
    (void)operand;
    return error_up(args, index, 1) - error_up(args, index, 0);
}

static double error_down(const dsf_experts_down_args *a, int64_t index, int fp8)
{
    int64_t d = a->out.dim[2], width = a->h.dim[2], pair = index / d;
    const uint8_t *h = (const uint8_t *)a->h.data + pair * (width + width / 32);
    int64_t row = ((const int32_t *)a->ids.data)[pair] * d + index % d;
    return 0x1p24 * g4(h, &a->w2_data, &a->s2_data, row, width, fp8).error;
}

static double bound_down(const void *args, int operand, int64_t index)
{
    (void)operand;
    return error_down(args, index, 0);
}

static double fp8_bound_down(const void *args, int operand, int64_t index)
{
    (void)operand;
    return error_down(args, index, 1) - error_down(args, index, 0);
}

static double bytes(const dsf_tensor *t) { return (double)dsf_tensor_bytes(t); }

/* Experts that `ids` names: each one's weights are read once. */
static double experts_used(const dsf_tensor *ids, int64_t e)
{
    double used = 0;
    const int32_t *id = ids->data;
    for (int64_t j = 0; j < e; j++) {
        int64_t i = 0, n = dsf_tensor_count(ids);
        while (i < n && id[i] != j) i++;
        used += i < n;
    }
    return used;
}

static dsf_cost cost_route(const void *args)
{
    const dsf_route_args *a = args;
    double n = (double)dsf_tensor_count(&a->z);
    return (dsf_cost){4 * n, bytes(&a->z) + bytes(&a->scores) + bytes(&a->bias)};
}

static dsf_cost cost_swiglu(const void *args)
{
    const dsf_swiglu_args *a = args;
    return (dsf_cost){6 * (double)dsf_tensor_count(&a->out), 3 * bytes(&a->out)};
}

/* A plan has no data: then every pair is counted as an expert of its own, as far as they go. */
static double experts_read(const dsf_tensor *ids, int64_t e)
{
    return ids->data ? experts_used(ids, e) : fmin((double)dsf_tensor_count(ids), (double)e);
}

static dsf_cost cost_up(const void *args)
{
    const dsf_experts_up_args *a = args;
    double each = (double)a->out.dim[2] * (double)a->x.dim[1];
    double pairs = (double)dsf_tensor_count(&a->ids);
    return (dsf_cost){4 * each * pairs,
                      2 * each * experts_read(&a->ids, a->w1.dim[0]) * (0.5 + 1.0 / 32) +
                          bytes(&a->x) + bytes(&a->out)};
}

static dsf_cost cost_down(const void *args)
{
    const dsf_experts_down_args *a = args;
    double each = (double)a->out.dim[2] * (double)a->h.dim[2];
    double pairs = (double)dsf_tensor_count(&a->ids);
    return (dsf_cost){2 * each * pairs,
                      each * experts_read(&a->ids, a->w2.dim[0]) * (0.5 + 1.0 / 32) + bytes(&a->h) +
                          bytes(&a->out)};
}

static dsf_cost cost_sum(const void *args)
{
    const dsf_moe_sum_args *a = args;
    return (dsf_cost){(double)dsf_tensor_count(&a->y) + (double)dsf_tensor_count(&a->out),
                      bytes(&a->y) + bytes(&a->shared) + bytes(&a->out)};
}

#define TABLES(id)                                                                                 \
    .operand = id##_operands, .n_operands = sizeof id##_operands / sizeof id##_operands[0],        \
    .variant = id##_variants, .n_variants = sizeof id##_variants / sizeof id##_variants[0],        \
    .cases = id##_cases, .n_cases = sizeof id##_cases / sizeof id##_cases[0], .tol = id##_tol,     \
    .props = DSF_PROP_ROWS, .cost = cost_##id

const dsf_op dsf_op_route = {.name = "route",
                             .dims = "nek",
                             .args_size = sizeof(dsf_route_args),
                             TABLES(route),
                             .init = init_route,
                             .fill = fill_route};
const dsf_op dsf_op_swiglu = {.name = "swiglu",
                              .dims = "ni",
                              .args_size = sizeof(dsf_swiglu_args),
                              TABLES(swiglu),
                              .init = init_swiglu};
const dsf_op dsf_op_experts_up = {.name = "experts_up",
                                  .dims = "nkiedh",
                                  .args_size = sizeof(dsf_experts_up_args),
                                  TABLES(up),
                                  .init = init_up,
                                  .fill = fill_up,
                                  .bound = bound_up,
                                  .fp8_bound = fp8_bound_up,
                                  .tiles = dsf_tiles_experts_up};
const dsf_op dsf_op_experts_down = {.name = "experts_down",
                                    .dims = "nkiedj",
                                    .args_size = sizeof(dsf_experts_down_args),
                                    TABLES(down),
                                    .fill = fill_down,
                                    .bound = bound_down,
                                    .fp8_bound = fp8_bound_down,
                                    .tiles = dsf_tiles_experts_down};
const dsf_op dsf_op_moe_sum = {
    .name = "moe_sum", .dims = "nkd", .args_size = sizeof(dsf_moe_sum_args), TABLES(sum)};
