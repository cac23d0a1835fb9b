#include "ops/fused.h"

#include <math.h>

#include "base/num.h"
#include "config.h"
#include "ops/fill.h"
#include "ops/hc.h"
#include "ops/scaled.h"
#include "sm90/tune_hc.h"

static const dsf_operand boundary_operands[] = {
    DSF_ARG(dsf_hc_boundary_args, out, DSF_OUT, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_boundary_args, u, DSF_OUT, DSF_BF16, "nd", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, uq, DSF_OUT, DSF_Q8, "nd", 0),
    DSF_ARG(dsf_hc_boundary_args, next_pre, DSF_OUT, DSF_F32, "n4", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, next_post, DSF_OUT, DSF_F32, "n4", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, next_comb, DSF_OUT, DSF_F32, "n44", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, x, DSF_IN, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_boundary_args, y, DSF_IN, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_hc_boundary_args, parts, DSF_IN, DSF_BF16, "ned", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, post, DSF_IN, DSF_F32, "n4", 0),
    DSF_ARG(dsf_hc_boundary_args, comb, DSF_IN, DSF_F32, "n44", 0),
    DSF_ARG(dsf_hc_boundary_args, pre, DSF_IN, DSF_F32, "n4", 0),
    DSF_ARG(dsf_hc_boundary_args, w, DSF_IN, DSF_BF16, "d", 0),
    DSF_ARG(dsf_hc_boundary_args, fn, DSF_IN, DSF_F32, "mq", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, base, DSF_IN, DSF_F32, "m", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_hc_boundary_args, scale, DSF_IN, DSF_F32, "t", DSF_OPERAND_OPTIONAL)};

#define RECORD(name, format)                                                                       \
    static const dsf_operand name[] = {                                                            \
        DSF_ARG(dsf_row_record_args, out, DSF_OUT, format, "nhd", 0),                              \
        DSF_ARG(dsf_row_record_args, x, DSF_IN, DSF_BF16, "nhd", 0),                               \
        DSF_ARG(dsf_row_record_args, w, DSF_IN, DSF_BF16, "d", DSF_OPERAND_OPTIONAL),              \
        DSF_ARG(dsf_row_record_args, cs, DSF_IN, DSF_F32, "nf2", DSF_OPERAND_OPTIONAL)}
RECORD(q8_operands, DSF_Q8);
RECORD(q4x_operands, DSF_Q4X);

static const dsf_operand swiglu_operands[] = {
    DSF_ARG(dsf_swiglu_q8_args, out, DSF_OUT, DSF_Q8, "ni", 0),
    DSF_ARG(dsf_swiglu_q8_args, g, DSF_IN, DSF_BF16, "ni", 0),
    DSF_ARG(dsf_swiglu_q8_args, v, DSF_IN, DSF_BF16, "ni", 0)};

static const dsf_operand pair_operands[] = {
    DSF_ARG(dsf_row_pair_args, key, DSF_OUT, DSF_Q8, "nd", 0),
    DSF_ARG(dsf_row_pair_args, latent, DSF_OUT, DSF_Q8, "nl", 0),
    DSF_ARG(dsf_row_pair_args, x, DSF_IN, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_row_pair_args, w, DSF_IN, DSF_BF16, "d", 0),
    DSF_ARG(dsf_row_pair_args, cs, DSF_IN, DSF_F32, "nf2", 0),
    DSF_ARG(dsf_row_pair_args, r, DSF_IN, DSF_BF16, "nl", 0),
    DSF_ARG(dsf_row_pair_args, wr, DSF_IN, DSF_BF16, "l", 0)};

static const dsf_operand close_operands[] = {
    DSF_ARG(dsf_attn_close_args, out, DSF_OUT, DSF_BF16, "nhd", 0),
    DSF_ARG(dsf_attn_close_args, ring, DSF_INOUT, DSF_Q8, "sck", 0),
    DSF_ARG(dsf_attn_close_args, o, DSF_IN, DSF_BF16, "nhd", 0),
    DSF_ARG(dsf_attn_close_args, cs, DSF_IN, DSF_F32, "nf2", 0),
    DSF_ARG(dsf_attn_close_args, key, DSF_IN, DSF_Q8, "nk", 0),
    DSF_ARG(dsf_attn_close_args, slot, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_attn_close_args, index, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_attn_close_args, end, DSF_IN, DSF_I32, "n", 0)};

static const dsf_variant boundary_variants[] = {
    {"ref", 0, dsf_hc_boundary_ref, NULL, dsf_hc_boundary_ref_scratch},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_hc_boundary_sm90), NULL, dsf_hc_boundary_sm90_scratch}};
static const dsf_variant q8_variants[] = {
    {"ref", 0, dsf_row_q8_ref, NULL, dsf_row_record_ref_scratch},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_row_q8_sm90), NULL, NULL}};
static const dsf_variant q4x_variants[] = {
    {"ref", 0, dsf_row_q4x_ref, NULL, dsf_row_record_ref_scratch},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_row_q4x_sm90), NULL, NULL}};
static const dsf_variant swiglu_variants[] = {
    {"ref", 0, dsf_swiglu_q8_ref, NULL, dsf_swiglu_q8_ref_scratch},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_swiglu_q8_sm90), NULL, NULL}};

static const dsf_variant pair_variants[] = {
    {"ref", 0, dsf_row_pair_ref, NULL, dsf_row_pair_ref_scratch},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_row_pair_sm90), NULL, NULL}};
static const dsf_variant close_variants[] = {
    {"ref", 0, dsf_attn_close_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_attn_close_sm90), NULL, NULL}};

/* n, d, m, q, t, e, u is wanted: the widths of one block of channels, of a cluster's and the
 * model's; row tiles of 16 and their ends; more rows than a
 * device's kernel for few takes. */
static const dsf_case boundary_cases[] = {
    {{1, 32, 24, 128, 3, 0, 1}},     {{3, 96, 24, 384, 3, 2, 1}},
    {{5, 128, 24, 512, 3, 6, 0}},    {{17, 512, 24, 2048, 3, 0, 1}},
    {{16, 1024, 24, 4096, 3, 3, 0}}, {{67, 512, 24, 2048, 3, 1, 1}},
    {{2, 5120, 24, 20480, 3, 6, 1}}, {{1, 5120, 24, 20480, 3, 0, 0}},
    {{1026, 512, 24, 2048, 3, 1, 1}}};
/* n, h, d, f, with w: one group, window keys, the q latent, index queries, index keys, no part */
static const dsf_case record_cases[] = {
    {{1, 1, 32, 0, 1}},     {{3, 1, 512, 32, 1}}, {{2, 1, 1280, 0, 1}}, {{3, 32, 128, 32, 0}},
    {{5, 1, 128, 32, 1}},   {{2, 3, 96, 7, 0}},   {{4, 1, 64, 32, 1}},  {{2, 1, 5120, 0, 1}},
    {{129, 1, 512, 32, 1}}, {{65, 2, 64, 16, 0}}};
/* n, i */
static const dsf_case swiglu_cases[] = {
    {{1, 32}}, {{3, 96}}, {{2, 2304}}, {{65, 128}}, {{257, 64}}};

/* n, d, l, f */
static const dsf_case pair_cases[] = {
    {{1, 32, 32, 4}}, {{3, 512, 1280, 32}}, {{2, 64, 96, 16}}, {{67, 128, 64, 32}}};
/* n, h, d, f, s, c, k: rings shorter and longer than the pass */
static const dsf_case close_cases[] = {{{1, 1, 32, 4, 1, 1, 32}},
                                       {{3, 64, 512, 32, 1, 144, 512}},
                                       {{9, 8, 64, 16, 2, 4, 64}},
                                       {{50, 3, 96, 7, 5, 128, 96}}};

/* The mixes as in hc_mix, from a stream that is exact. */
static const dsf_tol boundary_tol[] = {
    {DSF_TOL_EXACT, 0, "sums of f32 x bf16 products in double, in the written order"},
    {DSF_TOL_EXACT, 0,
     "as rms_norm with its squares, exact in double, summed in double: another order decides a "
     "rounding to f32 once in 2^26 rows"},
    {DSF_TOL_EXACT, 0, "quant_q8 of the same bits"},
    {DSF_TOL_SUM, 8, "hc_mix: 5/4 u B through the sigmoid, and 6 u for its evaluation"},
    {DSF_TOL_SUM, 16, "hc_mix: twice pre"},
    {DSF_TOL_SUM, 160, "hc_mix: 8 times the largest argument error, 40 rounds of 3 u"}};
static const dsf_tol record_tol[] = {
    {DSF_TOL_EXACT, 0,
     "rope and quant leave no freedom; rms_norm's sum in double decides a rounding once in 2^26 "
     "rows"}};
static const dsf_tol swiglu_tol[] = {
    {DSF_TOL_EXACT, 0,
     "silu evaluated in double and rounded to f32: two exponentials differ in that rounding once "
     "in 2^27 values"}};

static const dsf_tol pair_tol[] = {{DSF_TOL_EXACT, 0, "row_q8"}, {DSF_TOL_EXACT, 0, "row_q8"}};
static const dsf_tol close_tol[] = {{DSF_TOL_EXACT, 0, "rope"}, {DSF_TOL_EXACT, 0, "a copy"}};

static void init_boundary(void *args, const dsf_case *c)
{
    dsf_hc_boundary_args *a = args;
    a->eps = a->mix_eps = 1e-20f;
    a->hc_eps = 1e-6f;
    a->iters = 20;
    if (!c->v[6]) a->u = (dsf_tensor){.dtype = DSF_BF16};
}

static void init_record(void *args, const dsf_case *c)
{
    dsf_row_record_args *a = args;
    a->eps = 1e-20f;
    if (!c->v[4]) a->w = (dsf_tensor){.dtype = DSF_BF16};
}

static void init_swiglu(void *args, const dsf_case *c)
{
    (void)c;
    ((dsf_swiglu_q8_args *)args)->limit = 10.0f;
}

static void init_pair(void *args, const dsf_case *c)
{
    (void)c;
    ((dsf_row_pair_args *)args)->eps = 1e-20f;
}

/* The ranges of hc_mix, with what weighs the streams as hc_mix makes it: 2 at most. */
static void fill_boundary(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_hc_boundary_args *a = args;
    float *fn = a->fn.data, unit = 1.0f / sqrtf(4 * (float)a->y.dim[1]);
    dsf_limit_f32(&a->post, 2);
    dsf_limit_f32(&a->comb, 2);
    dsf_limit_f32(&a->pre, 2);
    dsf_limit_f32(&a->fn, 8);
    dsf_limit_f32(&a->base, 16);
    dsf_limit_f32(&a->scale, 4);
    dsf_shrink_bf16(&a->x, 0x1p56f);
    dsf_shrink_bf16(&a->y, 0x1p56f);
    dsf_shrink_bf16(&a->parts, 0x1p56f);
    for (int64_t i = 0; fn && i < dsf_tensor_count(&a->fn); i++) fn[i] *= unit;
}

/* cs holds cosines and sines. */
static void fill_record(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_limit_f32(&((dsf_row_record_args *)args)->cs, 1);
}

static void fill_pair(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_limit_f32(&((dsf_row_pair_args *)args)->cs, 1);
}

/* Rows of s sequences one after the other; the last one is padding where there is room for it. */
static void fill_close(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_attn_close_args *a = args;
    int32_t *slot = a->slot.data, *index = a->index.data, *end = a->end.data;
    int64_t n = c->v[0], s = c->v[4], ring = c->v[5];
    dsf_limit_f32(&a->cs, 1);
    for (int64_t b = 0; b < s; b++) {
        int64_t first = b * n / s, stop = (b + 1) * n / s;
        int64_t start = dsf_fill_below(&seed, 3 * ring + 1);
        for (int64_t i = first; i < stop; i++) {
            slot[i] = (int32_t)(s - 1 - b);
            index[i] = (int32_t)(start + i - first);
            end[i] = (int32_t)(start + stop - first);
        }
    }
    if (n > 2) slot[n - 1] = -1;
}

static double bound_boundary(const void *args, int operand, int64_t index)
{
    const dsf_hc_boundary_args *a = args;
    const dsf_hc_mix_args mix = dsf_boundary_mix(a);
    return dsf_op_hc_mix.bound(&mix, operand - 3, index); /* the mixes are operands 3 to 5 */
}

static double bytes(const dsf_tensor *t) { return t->rank ? (double)dsf_tensor_bytes(t) : 0; }

/* 2 x 25 for expand and collapse, 2 x 4 x 24 for the mix, 20 for norms and quantiser a channel */
static dsf_cost cost_boundary(const void *args)
{
    const dsf_hc_boundary_args *a = args;
    return (dsf_cost){262 * (double)dsf_tensor_count(&a->y),
                      bytes(&a->out) + bytes(&a->u) + bytes(&a->uq) + bytes(&a->x) + bytes(&a->y) +
                          bytes(&a->parts) + bytes(&a->fn)};
}

static dsf_cost cost_record(const void *args)
{
    const dsf_row_record_args *a = args;
    return (dsf_cost){10 * (double)dsf_tensor_count(&a->x),
                      bytes(&a->x) + bytes(&a->out) + bytes(&a->cs)};
}

static dsf_cost cost_swiglu(const void *args)
{
    const dsf_swiglu_q8_args *a = args;
    return (dsf_cost){10 * (double)dsf_tensor_count(&a->g), 2 * bytes(&a->g) + bytes(&a->out)};
}

static dsf_cost cost_pair(const void *args)
{
    const dsf_row_pair_args *a = args;
    return (dsf_cost){10 * (double)(dsf_tensor_count(&a->x) + dsf_tensor_count(&a->r)),
                      bytes(&a->x) + bytes(&a->r) + bytes(&a->key) + bytes(&a->latent) +
                          bytes(&a->cs)};
}

static dsf_cost cost_close(const void *args)
{
    const dsf_attn_close_args *a = args;
    double pairs = (double)(a->o.dim[0] * a->o.dim[1] * a->cs.dim[1]);
    return (dsf_cost){6 * pairs, 2 * bytes(&a->o) + bytes(&a->cs) + 2 * bytes(&a->key)};
}

#define TABLES(id)                                                                                 \
    .operand = id##_operands, .n_operands = sizeof id##_operands / sizeof id##_operands[0],        \
    .variant = id##_variants, .n_variants = sizeof id##_variants / sizeof id##_variants[0]
#define CASES(id)                                                                                  \
    .cases = id##_cases, .n_cases = sizeof id##_cases / sizeof id##_cases[0], .tol = id##_tol,     \
    .props = DSF_PROP_ROWS, .cost = cost_##id

const dsf_op dsf_op_hc_boundary = {.name = "hc_boundary",
                                   .dims = "ndmqte",
                                   .args_size = sizeof(dsf_hc_boundary_args),
                                   TABLES(boundary),
                                   CASES(boundary),
                                   .init = init_boundary,
                                   .fill = fill_boundary,
                                   .bound = bound_boundary};

const dsf_op dsf_op_row_q8 = {.name = "row_q8",
                              .dims = "nhdf",
                              .args_size = sizeof(dsf_row_record_args),
                              TABLES(q8),
                              CASES(record),
                              .init = init_record,
                              .fill = fill_record};

const dsf_op dsf_op_row_q4x = {.name = "row_q4x",
                               .dims = "nhdf",
                               .args_size = sizeof(dsf_row_record_args),
                               TABLES(q4x),
                               CASES(record),
                               .init = init_record,
                               .fill = fill_record};

const dsf_op dsf_op_swiglu_q8 = {.name = "swiglu_q8",
                                 .dims = "ni",
                                 .args_size = sizeof(dsf_swiglu_q8_args),
                                 TABLES(swiglu),
                                 CASES(swiglu),
                                 .init = init_swiglu};

const dsf_op dsf_op_row_pair = {.name = "row_pair",
                                .dims = "ndlf",
                                .args_size = sizeof(dsf_row_pair_args),
                                TABLES(pair),
                                CASES(pair),
                                .init = init_pair,
                                .fill = fill_pair};

const dsf_op dsf_op_attn_close = {.name = "attn_close",
                                  .dims = "nhdfsck",
                                  .args_size = sizeof(dsf_attn_close_args),
                                  TABLES(close),
                                  CASES(close),
                                  .fill = fill_close};
