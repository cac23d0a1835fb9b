#include "ops/quant.h"

#include "config.h"
#include "ops/fill.h"

/* What differs between the three formats is one dtype. */
#define OPERANDS(name, format)                                                                     \
    static const dsf_operand name[] = {DSF_ARG(dsf_quant_args, out, DSF_OUT, format, "nhd", 0),    \
                                       DSF_ARG(dsf_quant_args, x, DSF_IN, DSF_BF16, "nhd", 0)}
OPERANDS(q8_operands, DSF_Q8);
OPERANDS(q4x_operands, DSF_Q4X);
OPERANDS(q4n_operands, DSF_Q4N);

static const dsf_variant q8_variants[] = {
    {"ref", 0, dsf_quant_q8_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_quant_q8_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_quant_q8_sm90), NULL, NULL}};
static const dsf_variant q4x_variants[] = {
    {"ref", 0, dsf_quant_q4x_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_quant_q4x_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_quant_q4x_sm90), NULL, NULL}};
static const dsf_variant q4n_variants[] = {
    {"ref", 0, dsf_quant_q4n_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_quant_q4n_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_quant_q4n_sm90), NULL, NULL}};

/* n, h, d: one group, a few, the model's widths (index key, latent, stream, wo_b input), many rows.
 */
static const dsf_case cases[] = {{{1, 1, 32}},   {{3, 1, 96}},   {{2, 32, 128}}, {{5, 3, 512}},
                                 {{2, 1, 5120}}, {{1, 1, 8192}}, {{257, 1, 64}}, {{1024, 1, 512}}};

static const dsf_tol tol[] = {{DSF_TOL_EXACT, 0,
                               "amax is exact, the scale is one rounding, x/S "
                               "is correctly rounded, codes are RNE"}};

/* Adds to some groups what patterns of moderate size lack: the largest bf16, nothing but zeros, one
 * outlier over values that vanish under it. */
static void fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_quant_args *a = args;
    int64_t n = c->v[0] * c->v[1] * c->v[2];
    for (int64_t g = 0; g < n; g += 16) {
        uint16_t *x = (uint16_t *)a->x.data + g;
        switch (dsf_fill_below(&seed, 16)) {
        case 0:
            x[dsf_fill_below(&seed, 16)] = seed & 1 ? 0x7F7F : 0xFF7F;
            break;
        case 1:
            for (int i = 0; i < 16; i++) x[i] &= 0x8000;
            break;
        case 2:
            x[dsf_fill_below(&seed, 16)] = 0x5000 | (seed & 0x807F);
            break;
        default:
            break;
        }
    }
}

static dsf_cost cost(const void *args)
{
    const dsf_quant_args *a = args;
    double n = (double)dsf_tensor_count(&a->x);
    /* abs, max, scale, round: 4 a value */
    return (dsf_cost){4 * n, (double)(dsf_tensor_bytes(&a->x) + dsf_tensor_bytes(&a->out))};
}

#define OP(format)                                                                                 \
    {                                                                                              \
        .name = "quant_" #format, .dims = "nhd", .args_size = sizeof(dsf_quant_args),              \
        .operand = format##_operands, .n_operands = 2, .variant = format##_variants,               \
        .n_variants = 3, .cases = cases, .n_cases = sizeof cases / sizeof cases[0], .tol = tol,    \
        .props = DSF_PROP_ROWS, .fill = fill, .cost = cost                                         \
    }

const dsf_op dsf_op_quant_q8 = OP(q8);
const dsf_op dsf_op_quant_q4x = OP(q4x);
const dsf_op dsf_op_quant_q4n = OP(q4n);
