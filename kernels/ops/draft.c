#include "ops/draft.h"

#include "config.h"
#include "ops/fill.h"
#include "ops/scaled.h"

static const dsf_operand markov_operands[] = {
    DSF_ARG(dsf_markov_chain_args, logits, DSF_OUT, DSF_F32, "bv", 0),
    DSF_ARG(dsf_markov_chain_args, mu, DSF_OUT, DSF_BF16, "br", 0),
    DSF_ARG(dsf_markov_chain_args, ids, DSF_OUT, DSF_I32, "b", 0),
    DSF_ARG(dsf_markov_chain_args, base, DSF_IN, DSF_F32, "bv", 0),
    DSF_ARG(dsf_markov_chain_args, embed, DSF_IN, DSF_BF16, "vr", 0),
    DSF_ARG(dsf_markov_chain_args, head, DSF_IN, DSF_BF16, "vr", 0),
    DSF_ARG(dsf_markov_chain_args, anchor, DSF_IN, DSF_I32, "o", 0)};

/* q = d + r */
static const dsf_operand confidence_operands[] = {
    DSF_ARG(dsf_confidence_args, out, DSF_OUT, DSF_F32, "b", 0),
    DSF_ARG(dsf_confidence_args, h, DSF_IN, DSF_BF16, "bd", 0),
    DSF_ARG(dsf_confidence_args, mu, DSF_IN, DSF_BF16, "br", 0),
    DSF_ARG(dsf_confidence_args, w, DSF_IN, DSF_BF16, "q", 0)};

static const dsf_variant markov_variants[] = {
    {"ref", 0, dsf_markov_chain_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_markov_chain_avx512), NULL,
     DSF_X86(dsf_draft_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_markov_chain_sm90), NULL, dsf_markov_chain_sm90_scratch}};
static const dsf_variant confidence_variants[] = {
    {"ref", 0, dsf_confidence_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_confidence_avx512), NULL,
     DSF_X86(dsf_draft_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_confidence_sm90), NULL, NULL}};

/* b, v, r, o */
static const dsf_case markov_cases[] = {
    {{1, 1, 1, 1}}, {{5, 17, 15, 1}}, {{2, 64, 128, 1}}, {{3, 200, 129, 1}}, {{5, 1000, 256, 1}}};
/* b, d, r, q */
static const dsf_case confidence_cases[] = {
    {{1, 1, 1, 2}}, {{5, 17, 15, 32}}, {{2, 128, 33, 161}}, {{5, 5120, 256, 5376}}};

static const dsf_tol markov_tol[] = {
    {DSF_TOL_EXACT, 0, "small integers: every order of the f32 sum is exact"},
    {DSF_TOL_EXACT, 0, "a copy"},
    {DSF_TOL_EXACT, 0, "equal logits: the smallest id wins"}};
static const dsf_tol confidence_tol[] = {
    {DSF_TOL_SUM, 1, DSF_SUM_WHY "; one more rounding joins the two parts"}};

/* Integers -3..3: what an id is must not hang on the order of a sum, and ties are frequent. */
static void small_integers(const dsf_tensor *t, uint64_t *seed)
{
    for (int64_t i = 0; i < dsf_tensor_count(t); i++) {
        float v = (float)(dsf_fill_below(seed, 7) - 3);
        if (t->dtype == DSF_F32)
            ((float *)t->data)[i] = 4 * v;
        else
            ((uint16_t *)t->data)[i] = dsf_f32_to_bf16(v);
    }
}

static void fill_markov(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_markov_chain_args *a = args;
    small_integers(&a->base, &seed);
    small_integers(&a->embed, &seed);
    small_integers(&a->head, &seed);
    *(int32_t *)a->anchor.data = (int32_t)dsf_fill_below(&seed, a->embed.dim[0]);
}

static void fill_confidence(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_confidence_args *a = args;
    dsf_limit_bf16(&a->h);
    dsf_limit_bf16(&a->mu);
    dsf_limit_bf16(&a->w);
}

static double bound_confidence(const void *args, int operand, int64_t i)
{
    (void)operand;
    const dsf_confidence_args *a = args;
    int64_t d = a->h.dim[1], r = a->mu.dim[1];
    const uint16_t *h = (const uint16_t *)a->h.data + i * d;
    const uint16_t *mu = (const uint16_t *)a->mu.data + i * r, *w = a->w.data;
    double sum = 0;
    for (int64_t c = 0; c < d; c++) sum += dsf_bf16_abs(h[c]) * dsf_bf16_abs(w[c]);
    for (int64_t c = 0; c < r; c++) sum += dsf_bf16_abs(mu[c]) * dsf_bf16_abs(w[d + c]);
    return dsf_sum_bound(sum, d + r) + sum;
}

static double bytes(const dsf_tensor *t) { return (double)dsf_tensor_bytes(t); }

/* The steps depend on each other: the head is read once for each. */
static dsf_cost cost_markov(const void *args)
{
    const dsf_markov_chain_args *a = args;
    double b = (double)a->ids.dim[0];
    return (dsf_cost){2 * b * (double)dsf_tensor_count(&a->head),
                      b * bytes(&a->head) + bytes(&a->base) + bytes(&a->logits)};
}

static dsf_cost cost_confidence(const void *args)
{
    const dsf_confidence_args *a = args;
    return (dsf_cost){2.0 * (double)a->out.dim[0] * (double)a->w.dim[0],
                      bytes(&a->h) + bytes(&a->mu) + bytes(&a->w)};
}

#define TABLES(id)                                                                                 \
    .operand = id##_operands, .n_operands = sizeof id##_operands / sizeof id##_operands[0],        \
    .variant = id##_variants, .n_variants = sizeof id##_variants / sizeof id##_variants[0],        \
    .cases = id##_cases, .n_cases = sizeof id##_cases / sizeof id##_cases[0], .tol = id##_tol,     \
    .fill = fill_##id, .cost = cost_##id

const dsf_op dsf_op_markov_chain = {.name = "markov_chain",
                                    .dims = "bvro",
                                    .args_size = sizeof(dsf_markov_chain_args),
                                    TABLES(markov)};
const dsf_op dsf_op_confidence = {.name = "confidence",
                                  .dims = "bdrq",
                                  .args_size = sizeof(dsf_confidence_args),
                                  TABLES(confidence),
                                  .bound = bound_confidence};
