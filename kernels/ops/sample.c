#include "ops/sample.h"

#include "config.h"
#include "ops/fill.h"

static const dsf_operand operands[] = {DSF_ARG(dsf_sample_args, ids, DSF_OUT, DSF_I32, "n", 0),
                                       DSF_ARG(dsf_sample_args, logits, DSF_IN, DSF_F32, "nv", 0),
                                       DSF_ARG(dsf_sample_args, how, DSF_IN, DSF_I64, "nh", 0)};

static const dsf_variant variants[] = {
    {"ref", 0, dsf_sample_ref, NULL, dsf_sample_ref_scratch},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_sample_sm90), NULL, dsf_sample_sm90_scratch}};

/* n, v, h: one id, less than a warp, more rows than clusters, the model's vocabulary. */
static const dsf_case cases[] = {{{1, 1, DSF_SAMPLE_WORDS}},
                                 {{3, 17, DSF_SAMPLE_WORDS}},
                                 {{6, 1000, DSF_SAMPLE_WORDS}},
                                 {{37, 430, DSF_SAMPLE_WORDS}},
                                 {{2, 129280, DSF_SAMPLE_WORDS}}};

static const dsf_tol tol[] = {
    {DSF_TOL_EXACT, 0,
     "exp in double, probabilities rounded once to f32, masses within 2^-40: an id changes only if "
     "the draw or a filter's border falls that close to the mass of a prefix"}};

static double between(uint64_t *seed, double low, double high)
{
    return low + (high - low) * ((double)(dsf_fill_next(seed) >> 11) * 0x1p-53);
}

/* Every filter alone and with the others, and greedy rows. */
static void fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_sample_args *a = args;
    dsf_sample_how *how = a->how.data;
    int64_t n = c->v[0], v = c->v[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t which = dsf_fill_below(&seed, 16);
        how[i] = (dsf_sample_how){.temperature = which == 0 ? 0 : between(&seed, 0.2, 3),
                                  .top_p = which & 1 ? between(&seed, 0.01, 0.999) : 1,
                                  .min_p = which & 2 ? between(&seed, 0.001, 0.7) : 0,
                                  .seed = dsf_fill_next(&seed),
                                  .position = dsf_fill_below(&seed, 1 << 20)};
        how[i].top_k = which & 4 ? 1 + dsf_fill_below(&seed, v + 2) : 0;
        if (which == 8) how[i].temperature = 1e-300;
        if (which & 8 && how[i].top_k > 50) how[i].top_k = 1 + dsf_fill_below(&seed, 50);
    }
}

/* exp and quotient; the logits are read once. */
static dsf_cost cost(const void *args)
{
    const dsf_sample_args *a = args;
    double n = (double)dsf_tensor_count(&a->logits);
    return (dsf_cost){40 * n, 4 * n};
}

const dsf_op dsf_op_sample = {.name = "sample",
                              .dims = "nvh",
                              .args_size = sizeof(dsf_sample_args),
                              .operand = operands,
                              .n_operands = 3,
                              .variant = variants,
                              .n_variants = 2,
                              .cases = cases,
                              .n_cases = sizeof cases / sizeof cases[0],
                              .tol = tol,
                              .props = DSF_PROP_ROWS | DSF_PROP_NAN,
                              .fill = fill,
                              .cost = cost};
