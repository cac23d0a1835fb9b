#include "ops/hc.h"

#include <math.h>

#include "base/num.h"
#include "config.h"
#include "ops/scaled.h"

static const dsf_operand start_operands[] = {
    DSF_ARG(dsf_hc_start_args, x, DSF_OUT, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_start_args, premix, DSF_OUT, DSF_F32, "n4", 0),
    DSF_ARG(dsf_hc_start_args, e, DSF_IN, DSF_BF16, "nd", 0)};

static const dsf_operand mix_operands[] = {
    DSF_ARG(dsf_hc_mix_args, pre, DSF_OUT, DSF_F32, "n4", 0),
    DSF_ARG(dsf_hc_mix_args, post, DSF_OUT, DSF_F32, "n4", 0),
    DSF_ARG(dsf_hc_mix_args, comb, DSF_OUT, DSF_F32, "n44", 0),
    DSF_ARG(dsf_hc_mix_args, x, DSF_IN, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_mix_args, fn, DSF_IN, DSF_F32, "mq", 0),
    DSF_ARG(dsf_hc_mix_args, base, DSF_IN, DSF_F32, "m", 0),
    DSF_ARG(dsf_hc_mix_args, scale, DSF_IN, DSF_F32, "t", 0)};

static const dsf_operand collapse_operands[] = {
    DSF_ARG(dsf_hc_collapse_args, out, DSF_OUT, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_hc_collapse_args, x, DSF_IN, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_collapse_args, w, DSF_IN, DSF_F32, "n4", 0)};

static const dsf_operand expand_operands[] = {
    DSF_ARG(dsf_hc_expand_args, out, DSF_OUT, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_expand_args, x, DSF_IN, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_hc_expand_args, y, DSF_IN, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_hc_expand_args, post, DSF_IN, DSF_F32, "n4", 0),
    DSF_ARG(dsf_hc_expand_args, comb, DSF_IN, DSF_F32, "n44", 0)};

static const dsf_operand mean_operands[] = {
    DSF_ARG(dsf_hc_mean_args, out, DSF_INOUT, DSF_BF16, "ntd", 0),
    DSF_ARG(dsf_hc_mean_args, x, DSF_IN, DSF_BF16, "n4d", 0)};

/* A copy: a vector version on the host would be the same memcpy. */
static const dsf_variant start_variants[] = {
    {"ref", 0, dsf_hc_start_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_hc_start_sm90), NULL, NULL}};
static const dsf_variant mix_variants[] = {
    {"ref", 0, dsf_hc_mix_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_hc_mix_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_hc_mix_sm90), NULL, dsf_hc_mix_sm90_scratch}};
static const dsf_variant collapse_variants[] = {
    {"ref", 0, dsf_hc_collapse_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_hc_collapse_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_hc_collapse_sm90), NULL, NULL}};
static const dsf_variant expand_variants[] = {
    {"ref", 0, dsf_hc_expand_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_hc_expand_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_hc_expand_sm90), NULL, NULL}};
static const dsf_variant mean_variants[] = {
    {"ref", 0, dsf_hc_mean_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_hc_mean_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_hc_mean_sm90), NULL, NULL}};

/* n, d: 1, the vector width and its neighbours, the model's width, many rows. */
static const dsf_case row_cases[] = {{{1, 1}},  {{2, 15}},   {{3, 16}},  {{2, 17}},
                                     {{1, 33}}, {{3, 5120}}, {{65, 130}}};
/* n, d, m, q, t: row tiles of 4 with every remainder, ends of 8 lanes, the model, tiles of 64 rows
 * over an odd number of segments. */
static const dsf_case mix_cases[] = {{{1, 4, 24, 16, 3}},       {{2, 17, 24, 68, 3}},
                                     {{3, 128, 24, 512, 3}},    {{4, 129, 24, 516, 3}},
                                     {{21, 256, 24, 1024, 3}},  {{2, 5120, 24, 20480, 3}},
                                     {{2100, 272, 24, 1088, 3}}};
/* n, d, t, column */
static const dsf_case mean_cases[] = {
    {{1, 1, 1, 0}}, {{2, 17, 3, 1}}, {{3, 5120, 3, 2}}, {{65, 130, 2, 0}}};

static const dsf_tol start_tol[] = {{DSF_TOL_EXACT, 0, "a copy"}, {DSF_TOL_EXACT, 0, "constants"}};

/* The argument of the sigmoid or softmax is f32((f32(f32(m) r) scale)) + base with m summed in
 * double: five roundings, at most 5 u (|scale m r| + |base| + 1) =: 5 u B. */
static const dsf_tol mix_tol[] = {
    {DSF_TOL_SUM, 8, "the sigmoid's slope is at most 1/4: 5/4 u B, and 6 u for its evaluation"},
    {DSF_TOL_SUM, 16, "twice pre"},
    {DSF_TOL_SUM, 160,
     "Sinkhorn scaling does not expand Hilbert's metric: 8 times the largest argument error, and "
     "40 rounds of 3 u: 8 * 5 + 120"}};
static const dsf_tol collapse_tol[] = {{DSF_TOL_SUM, 4, "four products, three sums"}};
static const dsf_tol expand_tol[] = {{DSF_TOL_SUM, 5, "five products, four sums"}};
static const dsf_tol mean_tol[] = {{DSF_TOL_SUM, 3, "three sums; the quarter is exact"}};

static void init_mix(void *args, const dsf_case *c)
{
    (void)c;
    dsf_hc_mix_args *a = args;
    a->norm_eps = 1e-20f;
    a->hc_eps = 1e-6f;
    a->iters = 20;
}

static void init_mean(void *args, const dsf_case *c)
{
    ((dsf_hc_mean_args *)args)->column = (int)c->v[3];
}

/* The coefficients are weights of a trained predictor, and the mean of x^2 must be an f32 number:
 * beyond these ranges the model's own f32 formula is infinite or void. */
static void fill_mix(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_hc_mix_args *a = args;
    float *fn = a->fn.data, unit = 1.0f / sqrtf((float)a->fn.dim[1]); /* projections of order 1 */
    dsf_limit_f32(&a->fn, 8);
    dsf_limit_f32(&a->base, 16);
    dsf_limit_f32(&a->scale, 4);
    for (int64_t i = 0; i < dsf_tensor_count(&a->fn); i++) fn[i] *= unit;
    dsf_shrink_bf16(&a->x, 0x1p60f);
}

/* |scale m r| + |base| + 1 of output m of one row. */
static double argument_bound(const dsf_hc_mix_args *a, int64_t row, int64_t m)
{
    int64_t q = a->fn.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + row * q;
    const float *fn = (const float *)a->fn.data + m * q;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < q; i++) {
        double v = dsf_bf16_to_f32(x[i]);
        sum += v * (double)fn[i];
        squares += v * v;
    }
    double scale = ((const float *)a->scale.data)[m < 4 ? 0 : m < 8 ? 1 : 2];
    double r = 1.0 / sqrt(squares / (double)q + (double)a->norm_eps);
    return fabs(scale * r * sum) + fabs((double)((const float *)a->base.data)[m]) + 1.0;
}

static double bound_mix(const void *args, int operand, int64_t index)
{
    const dsf_hc_mix_args *a = args;
    if (operand < 2) return argument_bound(a, index / 4, index % 4 + 4 * operand);
    double most = 0;
    for (int m = 8; m < 24; m++) most = fmax(most, argument_bound(a, index / 16, m));
    return most;
}

static double bound_collapse(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_hc_collapse_args *a = args;
    int64_t d = a->out.dim[1], i = index / d, c = index % d;
    const uint16_t *x = (const uint16_t *)a->x.data + i * 4 * d + c;
    const float *w = (const float *)a->w.data + i * 4;
    double sum = 0;
    for (int k = 0; k < 4; k++) sum += fabs((double)w[k] * (double)dsf_bf16_to_f32(x[k * d]));
    return sum;
}

static double bound_expand(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_hc_expand_args *a = args;
    int64_t d = a->x.dim[2], c = index % d, k = index / d % 4, i = index / d / 4;
    const uint16_t *x = (const uint16_t *)a->x.data + i * 4 * d + c;
    const float *comb = (const float *)a->comb.data + i * 16 + k;
    double y = dsf_bf16_to_f32(((const uint16_t *)a->y.data)[i * d + c]);
    double sum = fabs((double)((const float *)a->post.data)[i * 4 + k] * y);
    for (int j = 0; j < 4; j++)
        sum += fabs((double)comb[4 * j] * (double)dsf_bf16_to_f32(x[j * d]));
    return sum;
}

/* Untouched columns are compared as exact: their bound is 0. */
static double bound_mean(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_hc_mean_args *a = args;
    int64_t d = a->out.dim[2], t = a->out.dim[1], c = index % d, i = index / d / t;
    if (index / d % t != a->column) return 0;
    const uint16_t *x = (const uint16_t *)a->x.data + i * 4 * d + c;
    double sum = 0;
    for (int k = 0; k < 4; k++) sum += fabs((double)dsf_bf16_to_f32(x[k * d]));
    return sum; /* not / 4: the sum may overflow where the mean does not */
}

static dsf_cost cost_start(const void *args)
{
    const dsf_hc_start_args *a = args;
    return (dsf_cost){0, (double)(dsf_tensor_bytes(&a->e) + dsf_tensor_bytes(&a->x))};
}

static dsf_cost cost_mix(const void *args)
{
    const dsf_hc_mix_args *a = args;
    double x = (double)dsf_tensor_count(&a->x);
    return (dsf_cost){2 * x * 24 + 2 * x, 2 * x + (double)dsf_tensor_bytes(&a->fn)};
}

static dsf_cost cost_collapse(const void *args)
{
    const dsf_hc_collapse_args *a = args;
    return (dsf_cost){2 * (double)dsf_tensor_count(&a->x),
                      (double)(dsf_tensor_bytes(&a->x) + dsf_tensor_bytes(&a->out))};
}

static dsf_cost cost_expand(const void *args)
{
    const dsf_hc_expand_args *a = args;
    return (dsf_cost){10 * (double)dsf_tensor_count(&a->x),
                      2 * (double)dsf_tensor_bytes(&a->x) + (double)dsf_tensor_bytes(&a->y)};
}

static dsf_cost cost_mean(const void *args)
{
    const dsf_hc_mean_args *a = args;
    double x = (double)dsf_tensor_count(&a->x);
    return (dsf_cost){x, 2.5 * x}; /* 4 streams of 2 bytes read, one written */
}

const dsf_op dsf_op_hc_start = {.name = "hc_start",
                                .dims = "nd",
                                .args_size = sizeof(dsf_hc_start_args),
                                .operand = start_operands,
                                .n_operands = 3,
                                .variant = start_variants,
                                .n_variants = 2,
                                .cases = row_cases,
                                .n_cases = sizeof row_cases / sizeof row_cases[0],
                                .tol = start_tol,
                                .props = DSF_PROP_ROWS | DSF_PROP_NAN,
                                .cost = cost_start};

const dsf_op dsf_op_hc_mix = {.name = "hc_mix",
                              .dims = "ndmqt",
                              .args_size = sizeof(dsf_hc_mix_args),
                              .operand = mix_operands,
                              .n_operands = 7,
                              .variant = mix_variants,
                              .n_variants = 3,
                              .cases = mix_cases,
                              .n_cases = sizeof mix_cases / sizeof mix_cases[0],
                              .tol = mix_tol,
                              .props = DSF_PROP_ROWS,
                              .init = init_mix,
                              .fill = fill_mix,
                              .bound = bound_mix,
                              .cost = cost_mix};

const dsf_op dsf_op_hc_collapse = {.name = "hc_collapse",
                                   .dims = "nd",
                                   .args_size = sizeof(dsf_hc_collapse_args),
                                   .operand = collapse_operands,
                                   .n_operands = 3,
                                   .variant = collapse_variants,
                                   .n_variants = 3,
                                   .cases = row_cases,
                                   .n_cases = sizeof row_cases / sizeof row_cases[0],
                                   .tol = collapse_tol,
                                   .props = DSF_PROP_ROWS | DSF_PROP_NAN,
                                   .bound = bound_collapse,
                                   .cost = cost_collapse};

const dsf_op dsf_op_hc_expand = {.name = "hc_expand",
                                 .dims = "nd",
                                 .args_size = sizeof(dsf_hc_expand_args),
                                 .operand = expand_operands,
                                 .n_operands = 5,
                                 .variant = expand_variants,
                                 .n_variants = 3,
                                 .cases = row_cases,
                                 .n_cases = sizeof row_cases / sizeof row_cases[0],
                                 .tol = expand_tol,
                                 .props = DSF_PROP_ROWS | DSF_PROP_ALIAS | DSF_PROP_NAN,
                                 .bound = bound_expand,
                                 .cost = cost_expand};

const dsf_op dsf_op_hc_mean = {.name = "hc_mean",
                               .dims = "ndt",
                               .args_size = sizeof(dsf_hc_mean_args),
                               .operand = mean_operands,
                               .n_operands = 2,
                               .variant = mean_variants,
                               .n_variants = 3,
                               .cases = mean_cases,
                               .n_cases = sizeof mean_cases / sizeof mean_cases[0],
                               .tol = mean_tol,
                               .props = DSF_PROP_ROWS | DSF_PROP_NAN,
                               .init = init_mean,
                               .bound = bound_mean,
                               .cost = cost_mean};
