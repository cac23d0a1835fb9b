#include "ops/norm.h"

#include "base/num.h"
#include "config.h"
#include "ops/fill.h"

static const dsf_operand operands[] = {DSF_ARG(dsf_rms_norm_args, out, DSF_OUT, DSF_BF16, "nd", 0),
                                       DSF_ARG(dsf_rms_norm_args, x, DSF_IN, DSF_BF16, "nd", 0),
                                       DSF_ARG(dsf_rms_norm_args, w, DSF_IN, DSF_BF16, "d", 0)};

static const dsf_variant variants[] = {
    {"ref", 0, dsf_rms_norm_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_rms_norm_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_rms_norm_sm90), NULL, NULL}};

/* n, d: 1, the vector width and its neighbours, the model's widths, many rows. */
static const dsf_case cases[] = {{{1, 1}},   {{1, 15}},   {{2, 16}},   {{3, 17}},   {{4, 128}},
                                 {{3, 512}}, {{2, 1280}}, {{3, 5120}}, {{65, 129}}, {{512, 512}}};

static const dsf_tol tol[] = {
    {DSF_TOL_ULP, 1,
     "both sum exact squares in double and round the mean and its root to f32: the factor is equal "
     "or next to it, which moves a bf16 result across one tie at most"}};

static void init(void *args, const dsf_case *c)
{
    (void)c;
    ((dsf_rms_norm_args *)args)->eps = 1e-20f;
}

/* Half of the rows become small, down to where only the right eps is invisible. */
static void fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_rms_norm_args *a = args;
    for (int64_t i = 0; i < c->v[0]; i++) {
        float factor = dsf_pow2(-(int)dsf_fill_below(&seed, 30));
        uint16_t *x = (uint16_t *)a->x.data + i * c->v[1];
        if (dsf_fill_below(&seed, 2)) continue;
        for (int64_t k = 0; k < c->v[1]; k++)
            x[k] = dsf_f32_to_bf16(dsf_bf16_to_f32(x[k]) * factor);
    }
}

static dsf_cost cost(const void *args)
{
    const dsf_rms_norm_args *a = args;
    return (dsf_cost){4 * (double)dsf_tensor_count(&a->x), /* square, add, two products */
                      2 * (double)dsf_tensor_bytes(&a->x) + (double)dsf_tensor_bytes(&a->w)};
}

const dsf_op dsf_op_rms_norm = {.name = "rms_norm",
                                .dims = "nd",
                                .args_size = sizeof(dsf_rms_norm_args),
                                .operand = operands,
                                .n_operands = 3,
                                .variant = variants,
                                .n_variants = 3,
                                .cases = cases,
                                .n_cases = sizeof cases / sizeof cases[0],
                                .tol = tol,
                                .props = DSF_PROP_ROWS | DSF_PROP_ALIAS | DSF_PROP_NAN,
                                .init = init,
                                .fill = fill,
                                .cost = cost};
