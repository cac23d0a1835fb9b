#include "ops/cache.h"

#include <math.h>

#include "base/num.h"
#include "config.h"
#include "ops/fill.h"

#define STORE_OPERANDS(name, format)                                                               \
    static const dsf_operand name[] = {                                                            \
        DSF_ARG(dsf_cache_store_args, cache, DSF_INOUT, format, "scd", 0),                         \
        DSF_ARG(dsf_cache_store_args, x, DSF_IN, format, "nd", 0),                                 \
        DSF_ARG(dsf_cache_store_args, slot, DSF_IN, DSF_I32, "n", 0),                              \
        DSF_ARG(dsf_cache_store_args, index, DSF_IN, DSF_I32, "n", 0),                             \
        DSF_ARG(dsf_cache_store_args, end, DSF_IN, DSF_I32, "n", 0)}
STORE_OPERANDS(q8_operands, DSF_Q8);
STORE_OPERANDS(q4x_operands, DSF_Q4X);
STORE_OPERANDS(q4n_operands, DSF_Q4N);

static const dsf_operand pool_operands[] = {
    DSF_ARG(dsf_pair_pool_args, out, DSF_OUT, DSF_BF16, "ed", 0),
    DSF_ARG(dsf_pair_pool_args, v, DSF_IN, DSF_F32, "nd", 0),
    DSF_ARG(dsf_pair_pool_args, g, DSF_IN, DSF_F32, "nd", 0),
    DSF_ARG(dsf_pair_pool_args, pend, DSF_IN, DSF_F32, "sp2d", 0),
    DSF_ARG(dsf_pair_pool_args, row, DSF_IN, DSF_I32, "e", 0),
    DSF_ARG(dsf_pair_pool_args, pos, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_pair_pool_args, start, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_pair_pool_args, slot, DSF_IN, DSF_I32, "n", 0)};

static const dsf_operand pend_operands[] = {
    DSF_ARG(dsf_pair_store_args, pend, DSF_INOUT, DSF_F32, "sp2d", 0),
    DSF_ARG(dsf_pair_store_args, v, DSF_IN, DSF_F32, "nd", 0),
    DSF_ARG(dsf_pair_store_args, g, DSF_IN, DSF_F32, "nd", 0),
    DSF_ARG(dsf_pair_store_args, pos, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_pair_store_args, end, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_pair_store_args, slot, DSF_IN, DSF_I32, "n", 0)};

static const dsf_operand gather_operands[] = {
    DSF_ARG(dsf_row_gather_args, out, DSF_OUT, DSF_BF16, "md", 0),
    DSF_ARG(dsf_row_gather_args, x, DSF_IN, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_row_gather_args, row, DSF_IN, DSF_I32, "m", 0)};

/* The moves are memcpy of whole rows: a vector version on the host would be the same. */
static const dsf_variant store_variants[] = {
    {"ref", 0, dsf_cache_store_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_cache_store_sm90), NULL, NULL}};
static const dsf_variant pend_variants[] = {
    {"ref", 0, dsf_pair_store_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_pair_store_sm90), NULL, NULL}};
static const dsf_variant gather_variants[] = {
    {"ref", 0, dsf_row_gather_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_row_gather_sm90), NULL, NULL}};
static const dsf_variant pool_variants[] = {
    {"ref", 0, dsf_pair_pool_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_pair_pool_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_pair_pool_sm90), NULL, NULL}};

/* n, s, c, d: a pass shorter than the ring, as long, longer; several sequences. */
static const dsf_case store_cases[] = {
    {{1, 1, 1, 32}}, {{3, 1, 8, 64}}, {{8, 1, 8, 128}}, {{37, 2, 8, 512}}, {{50, 5, 128, 512}}};
/* e, n, s, p, d */
static const dsf_case pool_cases[] = {{{1, 1, 1, 1, 1}},
                                      {{2, 3, 1, 4, 15}},
                                      {{2, 4, 2, 4, 16}},
                                      {{9, 20, 3, 4, 33}},
                                      {{60, 128, 1, 4, 512}}};
/* n, s, p, d */
static const dsf_case pend_cases[] = {{{1, 1, 1, 1}}, {{3, 1, 4, 17}}, {{40, 3, 4, 512}}};
/* m, n, d */
static const dsf_case gather_cases[] = {{{1, 1, 1}}, {{3, 7, 17}}, {{5, 40, 5120}}};

static const dsf_tol copy_tol[] = {{DSF_TOL_EXACT, 0, "a copy"}};
static const dsf_tol pool_tol[] = {
    {DSF_TOL_SUM, 8,
     "weight i is exp(-|dg|) over a sum: dg one rounding (error |dg| u), exp 2 ulp, sum 1, "
     "quotient 1, product 1, sum 1; bound holds (1 + |dg|) |pi v| and the underflow of exp"}};

/* Rows of s sequences one after the other; each starts somewhere in its own past. The last row of a
 * pass with room for it is padding. */
typedef struct {
    int32_t *slot, *pos, *start, *end; /* NULL where the op has none */
} pass_rows;

static void fill_pass(pass_rows p, int64_t n, int64_t s, int64_t ring, uint64_t *seed)
{
    for (int64_t b = 0; b < s; b++) {
        int64_t first = b * n / s, stop = (b + 1) * n / s;
        int64_t start = dsf_fill_below(seed, 3 * ring + 1);
        if (first == 0 && stop == 1) start |= 1; /* a single row must be able to close a pair */
        for (int64_t i = first; i < stop; i++) {
            p.slot[i] = (int32_t)(s - 1 - b);
            p.pos[i] = (int32_t)(start + i - first);
            if (p.start) p.start[i] = (int32_t)start;
            if (p.end) p.end[i] = (int32_t)(start + stop - first);
        }
    }
}

static void fill_store(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_cache_store_args *a = args;
    int64_t n = c->v[0];
    fill_pass((pass_rows){a->slot.data, a->index.data, NULL, a->end.data}, n, c->v[1], c->v[2],
              &seed);
    if (n > 2) ((int32_t *)a->slot.data)[n - 1] = -1;
}

static void fill_pool(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_pair_pool_args *a = args;
    int64_t e = c->v[0], n = c->v[1];
    int32_t *row = a->row.data;
    const int32_t *pos = a->pos.data;
    fill_pass((pass_rows){a->slot.data, a->pos.data, a->start.data, NULL}, n, c->v[2], c->v[3],
              &seed);
    int64_t at = -1;
    for (int64_t i = 0; i < e;
         i++) { /* the odd positions in order, from the first again at the end */
        do at = (at + 1) % n;
        while (pos[at] % 2 == 0);
        row[i] = (int32_t)at;
    }
}

static void fill_pend(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_pair_store_args *a = args;
    fill_pass((pass_rows){a->slot.data, a->pos.data, NULL, a->end.data}, c->v[0], c->v[1], c->v[2],
              &seed);
    if (c->v[0] > 2) ((int32_t *)a->slot.data)[c->v[0] - 1] = -1;
}

static void fill_gather(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_row_gather_args *a = args;
    for (int64_t i = 0; i < c->v[0]; i++)
        ((int32_t *)a->row.data)[i] = (int32_t)dsf_fill_below(&seed, c->v[1]);
}

static double bound_pool(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_pair_pool_args *a = args;
    int64_t d = a->out.dim[1], c = index % d;
    dsf_pair_view at = dsf_pair_of(a, index / d);
    double dg = (double)at.g[1][c] - (double)at.g[0][c], sum = 0;
    for (int i = 0; i < 2; i++) {
        double weight = 1.0 / (1.0 + exp(i ? -dg : dg));
        /* exp may flush below 2^-126: u times 2^-102 */
        sum += fabs((double)at.v[i][c]) * (weight * (1.0 + fabs(dg)) + 0x1p-102);
    }
    return sum;
}

static dsf_cost cost_store(const void *args)
{
    const dsf_cache_store_args *a = args;
    return (dsf_cost){0, 2 * (double)dsf_tensor_bytes(&a->x)};
}

static dsf_cost cost_pool(const void *args)
{
    const dsf_pair_pool_args *a = args;
    double n = (double)dsf_tensor_count(&a->out);
    return (dsf_cost){30 * n, 18 * n}; /* two exp of a dozen operations; 4 floats in, bf16 out */
}

static dsf_cost cost_pend(const void *args)
{
    const dsf_pair_store_args *a = args;
    return (dsf_cost){0, 2 * (double)dsf_tensor_bytes(&a->pend)};
}

static dsf_cost cost_gather(const void *args)
{
    const dsf_row_gather_args *a = args;
    return (dsf_cost){0, 2 * (double)dsf_tensor_bytes(&a->out)};
}

#define STORE_OP(format)                                                                           \
    {                                                                                              \
        .name = "cache_store_" #format, .dims = "nscd", .args_size = sizeof(dsf_cache_store_args), \
        .operand = format##_operands, .n_operands = 5, .variant = store_variants, .n_variants = 2, \
        .cases = store_cases, .n_cases = sizeof store_cases / sizeof store_cases[0],               \
        .tol = copy_tol, .fill = fill_store, .cost = cost_store                                    \
    }

const dsf_op dsf_op_cache_store_q8 = STORE_OP(q8);
const dsf_op dsf_op_cache_store_q4x = STORE_OP(q4x);
const dsf_op dsf_op_cache_store_q4n = STORE_OP(q4n);

const dsf_op dsf_op_pair_pool = {.name = "pair_pool",
                                 .dims = "enspd",
                                 .args_size = sizeof(dsf_pair_pool_args),
                                 .operand = pool_operands,
                                 .n_operands = 8,
                                 .variant = pool_variants,
                                 .n_variants = 3,
                                 .cases = pool_cases,
                                 .n_cases = sizeof pool_cases / sizeof pool_cases[0],
                                 .tol = pool_tol,
                                 .fill = fill_pool,
                                 .bound = bound_pool,
                                 .cost = cost_pool};

const dsf_op dsf_op_pair_store = {.name = "pair_store",
                                  .dims = "nspd",
                                  .args_size = sizeof(dsf_pair_store_args),
                                  .operand = pend_operands,
                                  .n_operands = 6,
                                  .variant = pend_variants,
                                  .n_variants = 2,
                                  .cases = pend_cases,
                                  .n_cases = sizeof pend_cases / sizeof pend_cases[0],
                                  .tol = copy_tol,
                                  .fill = fill_pend,
                                  .cost = cost_pend};

const dsf_op dsf_op_row_gather = {.name = "row_gather",
                                  .dims = "mnd",
                                  .args_size = sizeof(dsf_row_gather_args),
                                  .operand = gather_operands,
                                  .n_operands = 3,
                                  .variant = gather_variants,
                                  .n_variants = 2,
                                  .cases = gather_cases,
                                  .n_cases = sizeof gather_cases / sizeof gather_cases[0],
                                  .tol = copy_tol,
                                  .props = DSF_PROP_NAN,
                                  .fill = fill_gather,
                                  .cost = cost_gather};
