#include "ops/rope.h"

#include <math.h>

#include "config.h"
#include "ops/fill.h"

static const dsf_operand table_operands[] = {
    DSF_ARG(dsf_rope_table_args, cs, DSF_OUT, DSF_F32, "nf2", 0),
    DSF_ARG(dsf_rope_table_args, pos, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_rope_table_args, freq, DSF_IN, DSF_F32, "f", 0)};

static const dsf_operand rope_operands[] = {
    DSF_ARG(dsf_rope_args, out, DSF_OUT, DSF_BF16, "nhd", 0),
    DSF_ARG(dsf_rope_args, x, DSF_IN, DSF_BF16, "nhd", 0),
    DSF_ARG(dsf_rope_args, cs, DSF_IN, DSF_F32, "nf2", 0)};

static const dsf_variant table_variants[] = {
    {"ref", 0, dsf_rope_table_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_rope_table_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_rope_table_sm90), NULL, NULL}};
static const dsf_variant rope_variants[] = {
    {"ref", 0, dsf_rope_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_rope_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_rope_sm90), NULL, NULL}};

/* n, f */
static const dsf_case table_cases[] = {{{1, 1}}, {{2, 7}}, {{3, 9}}, {{5, 16}}, {{1024, 32}}};
/* n, h, d, f, then inverse: rank-1 latents, index heads, query heads, tails of the vector width */
static const dsf_case rope_cases[] = {
    {{1, 1, 2, 1, 0}},     {{2, 3, 34, 15, 0}},   {{3, 2, 36, 17, 1}}, {{4, 1, 512, 32, 0}},
    {{3, 32, 128, 32, 0}}, {{2, 64, 512, 32, 1}}, {{65, 2, 64, 16, 1}}};

static const dsf_tol table_tol[] = {
    {DSF_TOL_ULP, 1,
     "both evaluate in double to 2^-50 and round once to f32: only a tie within that can differ"}};
static const dsf_tol rope_tol[] = {
    {DSF_TOL_EXACT, 0, "two products, one sum, each rounded to f32, then bf16: no freedom"}};

/* Positions of every magnitude up to 2^24 (exact in f32) and the two kinds of frequency table. */
static void fill_table(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_rope_table_args *a = args;
    int32_t *pos = a->pos.data;
    float *freq = a->freq.data;
    double base = seed & 1 ? 10000.0 : 160000.0;
    for (int64_t i = 0; i < c->v[0]; i++)
        pos[i] = (int32_t)(dsf_fill_next(&seed) & ((1u << dsf_fill_below(&seed, 25)) - 1));
    for (int64_t i = 0; i < c->v[1]; i++) freq[i] = (float)pow(base, -(double)i / (double)c->v[1]);
}

static void init_rope(void *args, const dsf_case *c)
{
    ((dsf_rope_args *)args)->inverse = (int)c->v[4];
}

static dsf_cost table_cost(const void *args)
{
    const dsf_rope_table_args *a = args;
    double n = (double)dsf_tensor_count(&a->cs);
    return (dsf_cost){20 * n, 4 * n}; /* a polynomial of 8 terms and its reduction each */
}

static dsf_cost rope_cost(const void *args)
{
    const dsf_rope_args *a = args;
    double pairs = (double)(a->x.dim[0] * a->x.dim[1] * a->cs.dim[1]);
    return (dsf_cost){6 * pairs,
                      2 * (double)dsf_tensor_bytes(&a->x) + (double)dsf_tensor_bytes(&a->cs)};
}

const dsf_op dsf_op_rope_table = {.name = "rope_table",
                                  .dims = "nf",
                                  .args_size = sizeof(dsf_rope_table_args),
                                  .operand = table_operands,
                                  .n_operands = 3,
                                  .variant = table_variants,
                                  .n_variants = 3,
                                  .cases = table_cases,
                                  .n_cases = sizeof table_cases / sizeof table_cases[0],
                                  .tol = table_tol,
                                  .props = DSF_PROP_ROWS,
                                  .fill = fill_table,
                                  .cost = table_cost};

const dsf_op dsf_op_rope = {.name = "rope",
                            .dims = "nhdf",
                            .args_size = sizeof(dsf_rope_args),
                            .operand = rope_operands,
                            .n_operands = 3,
                            .variant = rope_variants,
                            .n_variants = 3,
                            .cases = rope_cases,
                            .n_cases = sizeof rope_cases / sizeof rope_cases[0],
                            .tol = rope_tol,
                            .props = DSF_PROP_ROWS | DSF_PROP_ALIAS | DSF_PROP_NAN,
                            .init = init_rope,
                            .cost = rope_cost};
