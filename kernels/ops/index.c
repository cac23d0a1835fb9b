#include "ops/index.h"

#include <math.h>

#include "base/num.h"
#include "config.h"
#include "ops/fill.h"
#include "sm90/tune_index.h"

enum { PLUS_INF = 0x7F80, MINUS_INF = 0xFF80, NOT_A_NUMBER = 0x7FC0 };

/* Flags of the cases. */
enum {
    POOL_OUT = 1,
    POOL_IN = 2,
    FEW_VALUES = 4, /* ties everywhere */
    WEIRD = 8,      /* NaN, both infinities, both zeros, subnormals among the scores */
    FAR = 16,       /* positions up to 1,048,575, past the entries there are */
    NEAR = 32,      /* the scales of most records lie within 2^3, as those of real ones do */
    RISING = 64     /* scores in ascending order */
};

static const dsf_tol exact[] = {
    {DSF_TOL_EXACT, 0, "one f32 product, one rounding"},
};
static const dsf_tol exact_scores[] = {
    {DSF_TOL_EXACT, 0, "group sums are exact and every other addition has a stated order"},
};
static const dsf_tol exact_ids[] = {
    {DSF_TOL_EXACT, 0, "indices, ties to the smaller id"},
    {DSF_TOL_EXACT, 0, "indices, ties to the smaller block"},
};

/* Rows that see no entry, one, k, one less and one more, all, any number. */
static void fill_positions(dsf_tensor *pos, int ratio, int64_t k, int64_t e, int64_t flags,
                           uint64_t *r)
{
    int32_t *t = pos->data;
    for (int64_t i = 0; i < pos->dim[0]; i++) {
        const int64_t counts[] = {e, k, k + 1, k - 1, 0, 1, e - 1, dsf_fill_below(r, e + 1)};
        int64_t visible = counts[i % 8];
        if (visible > e) visible = e;
        int64_t last = visible * ratio - 1 + dsf_fill_below(r, ratio);
        if (flags & FAR && i % 3 == 0) last = 1048575 - dsf_fill_below(r, 4);
        t[i] = last < 0 ? 0 : (int32_t)last;
    }
}

static void fill_slots(dsf_tensor *slot, int64_t s, uint64_t *r)
{
    for (int64_t i = 0; i < slot->dim[0]; i++)
        ((int32_t *)slot->data)[i] = (int32_t)dsf_fill_below(r, s);
}

/* Records whose scales lie within 2^-8..2^8; near: within 2^3 of each other, but for a few records;
 * few values: one or two distinct records, so that scores tie. */
static void fill_records(dsf_tensor *t, int64_t flags, uint64_t *r)
{
    int64_t d = t->dim[t->rank - 1], bytes = dsf_dtype_bytes(DSF_Q4X, d);
    uint64_t seeds[2] = {dsf_fill_next(r), dsf_fill_next(r)};
    for (int64_t i = 0; i < dsf_tensor_rows(t); i++) {
        uint8_t *rec = (uint8_t *)t->data + i * bytes;
        uint64_t own = flags & FEW_VALUES ? seeds[dsf_fill_below(r, 2)] : dsf_fill_next(r);
        for (int64_t c = 0; c < d / 2; c++) rec[c] = (uint8_t)dsf_fill_next(&own);
        int near = flags & NEAR && i % 211 != 5;
        int64_t base = near ? 119 + dsf_fill_below(&own, 14) : 119;
        for (int64_t g = 0; g < d / 32; g++)
            rec[d / 2 + g] = (uint8_t)(base + dsf_fill_below(&own, near ? 4 : 17));
        if (flags & WEIRD && i % 7 == 0) rec[d / 2] = (uint8_t)(i % 2 ? 0 : 230);
    }
}

/* Weights of both signs, some zero. */
static void fill_weights(dsf_tensor *a, int64_t flags, uint64_t *r)
{
    uint16_t *w = a->data;
    for (int64_t i = 0; i < dsf_tensor_count(a); i++) {
        float x = (float)(dsf_fill_below(r, 2001) - 1000) * 0x1p-9f;
        if (flags & FEW_VALUES) x = (float)(dsf_fill_below(r, 3) - 1);
        w[i] = dsf_f32_to_bf16(x);
    }
}

/* Ascending blocks in lists of all lengths; blocks past the visible ones too. */
static void fill_pool(dsf_tensor *pool, int64_t blocks, uint64_t *r)
{
    int64_t b = pool->dim[1];
    for (int64_t i = 0; i < pool->dim[0]; i++) {
        int32_t *id = (int32_t *)pool->data + i * b;
        const int64_t lengths[] = {b, b / 2, 0, 1};
        int64_t want = lengths[i % 4], count = 0;
        if (want > blocks) want = blocks;
        for (int64_t m = 0; m < blocks && count < want; m++)
            if (dsf_fill_below(r, blocks - m) < want - count) id[count++] = (int32_t)m;
        while (count < b) id[count++] = -1;
    }
}

static void drop_absent(dsf_tensor *pool_out, dsf_tensor *pool_in, int64_t flags)
{
    if (!(flags & POOL_OUT)) pool_out->rank = 0;
    if (!(flags & POOL_IN)) pool_in->rank = 0;
}

/* index_weight: n h. */

static void weight_init(void *args, const dsf_case *c)
{
    /* The model's 2^-6 is exact; 2^-5.5 rounds. */
    ((dsf_index_weight_args *)args)->factor = c->v[2] ? 0x1p-6f : 0x1.6a09e6p-6f;
}

static dsf_cost weight_cost(const void *args)
{
    const dsf_index_weight_args *a = args;
    double n = (double)dsf_tensor_count(&a->x);
    return (dsf_cost){n, 4 * n};
}

static const dsf_operand weight_operands[] = {
    DSF_ARG(dsf_index_weight_args, out, DSF_OUT, DSF_BF16, "nh", 0),
    DSF_ARG(dsf_index_weight_args, x, DSF_IN, DSF_BF16, "nh", 0)};
static const dsf_variant weight_variants[] = {
    {"ref", 0, dsf_index_weight_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_index_weight_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_index_weight_sm90), NULL, NULL}};
static const dsf_case weight_cases[] = {
    {{1, 1, 0}}, {{3, 4, 0}}, {{5, 31, 0}}, {{2, 33, 1}}, {{300, 32, 1}}};

const dsf_op dsf_op_index_weight = {.name = "index_weight",
                                    .dims = "nh",
                                    .args_size = sizeof(dsf_index_weight_args),
                                    .operand = DSF_TABLE(weight_operands),
                                    .variant = DSF_TABLE(weight_variants),
                                    .cases = DSF_TABLE(weight_cases),
                                    .tol = exact,
                                    .props = DSF_PROP_ROWS | DSF_PROP_ALIAS | DSF_PROP_NAN,
                                    .init = weight_init,
                                    .cost = weight_cost};

/* index_scores: n e h d s c, then ratio, flags. */

static void scores_init(void *args, const dsf_case *c)
{
    ((dsf_index_scores_args *)args)->ratio = (int)c->v[6];
}

/* Patterns are fine as scores' inputs unless the case asks for something special. */
static void fill_inputs(dsf_tensor *q, dsf_tensor *keys, dsf_tensor *a, int64_t flags, uint64_t *r)
{
    if (!(flags & (FEW_VALUES | WEIRD | NEAR))) return;
    fill_records(q, flags, r);
    fill_records(keys, flags, r);
    fill_weights(a, flags, r);
}

static void scores_fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_index_scores_args *a = args;
    int64_t e = a->scores.dim[1], flags = c->v[7];
    fill_inputs(&a->q, &a->keys, &a->a, flags, &seed);
    fill_positions(&a->pos, a->ratio, e / 2, e, flags, &seed);
    fill_slots(&a->slot, a->keys.dim[0], &seed);
}

/* A dot, a product and a sum for each head and entry. */
static dsf_cost scoring_cost(const dsf_tensor *q, const dsf_tensor *keys, double entries)
{
    double heads = (double)dsf_tensor_rows(q), d = (double)q->dim[2];
    return (dsf_cost){heads * entries * (2 * d + 2),
                      (double)(dsf_tensor_bytes(q) + dsf_tensor_bytes(keys))};
}

static dsf_cost scores_cost(const void *args)
{
    const dsf_index_scores_args *a = args;
    dsf_cost cost = scoring_cost(&a->q, &a->keys, (double)a->scores.dim[1]);
    cost.bytes += (double)dsf_tensor_bytes(&a->scores);
    return cost;
}

static const dsf_operand scores_operands[] = {
    DSF_ARG(dsf_index_scores_args, scores, DSF_OUT, DSF_BF16, "ne", 0),
    DSF_ARG(dsf_index_scores_args, q, DSF_IN, DSF_Q4X, "nhd", 0),
    DSF_ARG(dsf_index_scores_args, a, DSF_IN, DSF_BF16, "nh", 0),
    DSF_ARG(dsf_index_scores_args, keys, DSF_IN, DSF_Q4X, "scd", 0),
    DSF_ARG(dsf_index_scores_args, pos, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_index_scores_args, slot, DSF_IN, DSF_I32, "n", 0)};
static const dsf_variant scores_variants[] = {
    {"ref", 0, dsf_index_scores_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_index_scores_avx512), NULL,
     DSF_X86(dsf_index_scores_scratch_avx512)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_index_scores_sm90), NULL, NULL},
    {"sm90tc", DSF_NEEDS_SM90, DSF_CUDA(dsf_index_scores_sm90tc), dsf_index_scores_accepts_sm90tc,
     dsf_index_scores_scratch_sm90tc}};
static const dsf_case scores_cases[] = {{{1, 1, 1, 32, 1, 1, 1, 0}},
                                        {{9, 24, 4, 64, 2, 24, 2, 0}},
                                        {{8, 15, 3, 96, 1, 16, 2, 0}},
                                        {{8, 17, 5, 160, 3, 20, 1, WEIRD}},
                                        {{16, 65, 32, 128, 2, 70, 2, FAR}},
                                        {{9, 300, 32, 128, 2, 300, 1, FEW_VALUES}},
                                        {{1, 2048, 32, 128, 1, 2048, 1, 0}},
                                        {{33, 1030, 32, 128, 2, 1100, 2, WEIRD}},
                                        {{3, 33, 32, 128, 2, 40, 1, NEAR}},
                                        {{6, 65, 20, 128, 3, 70, 1, NEAR}},
                                        {{35, 1030, 32, 128, 2, 1100, 2, NEAR}},
                                        {{262, 300, 4, 128, 2, 300, 1, NEAR}}};

const dsf_op dsf_op_index_scores = {.name = "index_scores",
                                    .dims = "nehdsc",
                                    .args_size = sizeof(dsf_index_scores_args),
                                    .operand = DSF_TABLE(scores_operands),
                                    .variant = DSF_TABLE(scores_variants),
                                    .cases = DSF_TABLE(scores_cases),
                                    .tol = exact_scores,
                                    .props = DSF_PROP_ROWS,
                                    .init = scores_init,
                                    .fill = scores_fill,
                                    .cost = scores_cost};

/* index_select: n e k b, then ratio, block, flags. */

static void select_init(void *args, const dsf_case *c)
{
    dsf_index_select_args *a = args;
    a->ratio = (int)c->v[4];
    a->block = (int)c->v[5];
    drop_absent(&a->pool_out, &a->pool_in, c->v[6]);
}

static void fill_scores(dsf_tensor *scores, int64_t flags, uint64_t *r)
{
    static const uint16_t weird[] = {PLUS_INF, MINUS_INF, NOT_A_NUMBER, 0xFFC1,
                                     0x0000,   0x8000,    0x0001,       0x8001};
    uint16_t *x = scores->data;
    int64_t e = scores->dim[1];
    for (int64_t i = 0; i < dsf_tensor_count(scores); i++) {
        uint64_t u = dsf_fill_next(r);
        x[i] = (uint16_t)((u & 0xBFFF) | 0x2000); /* finite, both signs */
        if (flags & FEW_VALUES) x[i] = (uint16_t)(0x3F80 | (u & 0x8001));
        if (flags & RISING) x[i] = (uint16_t)(i % e * 0x7F00 / e);
        if (flags & WEIRD && (u >> 20 & 1)) x[i] = weird[u >> 32 & 7];
        if (flags & WEIRD && i / 20 % 4 == 1) x[i] = i & 1 ? MINUS_INF : NOT_A_NUMBER; /* blocks */
    }
}

static void select_fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_index_select_args *a = args;
    int64_t e = a->scores.dim[1], flags = c->v[6];
    if (flags & (FEW_VALUES | WEIRD | RISING)) fill_scores(&a->scores, flags, &seed);
    fill_positions(&a->pos, a->ratio, a->topk.dim[1], e, flags, &seed);
    if (a->pool_in.rank) fill_pool(&a->pool_in, (e + a->block - 1) / a->block, &seed);
}

static dsf_cost select_cost(const void *args)
{
    const dsf_index_select_args *a = args;
    double n = (double)dsf_tensor_count(&a->scores);
    return (dsf_cost){n, 2 * n + (double)dsf_tensor_bytes(&a->topk)};
}

static const dsf_operand select_operands[] = {
    DSF_ARG(dsf_index_select_args, topk, DSF_OUT, DSF_I32, "nk", 0),
    DSF_ARG(dsf_index_select_args, pool_out, DSF_OUT, DSF_I32, "nb", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_index_select_args, pool_in, DSF_IN, DSF_I32, "nb", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_index_select_args, scores, DSF_IN, DSF_BF16, "ne", 0),
    DSF_ARG(dsf_index_select_args, pos, DSF_IN, DSF_I32, "n", 0)};
static const dsf_variant select_variants[] = {
    {"ref", 0, dsf_index_select_ref, NULL, dsf_index_select_scratch_ref},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_index_select_avx512), NULL,
     DSF_X86(dsf_index_select_scratch_avx512)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_index_select_sm90), NULL, dsf_index_select_scratch_sm90}};
static const dsf_case select_cases[] = {
    {{1, 1, 1, 1, 1, 1, POOL_OUT}},
    {{16, 24, 6, 3, 2, 4, POOL_OUT}},
    {{16, 24, 6, 3, 1, 4, POOL_IN | FEW_VALUES}},
    {{16, 33, 8, 5, 1, 8, POOL_OUT | POOL_IN | WEIRD}},
    {{16, 64, 64, 9, 2, 8, WEIRD | FAR}},
    {{16, 63, 64, 7, 1, 8, POOL_OUT | FEW_VALUES}},
    {{16, 65, 64, 9, 1, 8, POOL_OUT | POOL_IN | FEW_VALUES | FAR}},
    {{24, 700, 512, 40, 2, 8, POOL_OUT | WEIRD | FEW_VALUES}},
    {{8, 4100, 512, 300, 1, 8, POOL_OUT}},
    {{8, 20000, 512, 2048, 1, 8, POOL_OUT | FEW_VALUES | FAR}},
    {{4, 20000, 512, 2048, 1, 8, POOL_IN | FAR}},
    {{8, 20000, 512, 300, 1, 8, POOL_OUT | RISING}},
    {{8, 9000, 4500, 4200, 1, 2, POOL_OUT | FEW_VALUES}},
    {{3, 70001, 512, 2048, 1, 8, POOL_OUT | FAR}},
    {{2, 300000, 512, 2048, 1, 8, POOL_OUT | FEW_VALUES | FAR}}};

const dsf_op dsf_op_index_select = {.name = "index_select",
                                    .dims = "nekb",
                                    .args_size = sizeof(dsf_index_select_args),
                                    .operand = DSF_TABLE(select_operands),
                                    .variant = DSF_TABLE(select_variants),
                                    .cases = DSF_TABLE(select_cases),
                                    .tol = exact_ids,
                                    .props = DSF_PROP_ROWS,
                                    .init = select_init,
                                    .fill = select_fill,
                                    .cost = select_cost};

/* index_topk: n k b h d s c, then ratio, block, flags. */

static void topk_init(void *args, const dsf_case *c)
{
    dsf_index_topk_args *a = args;
    a->ratio = (int)c->v[7];
    a->block = (int)c->v[8];
    drop_absent(&a->pool_out, &a->pool_in, c->v[9]);
}

static void topk_fill(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_index_topk_args *a = args;
    int64_t e = a->keys.dim[1], flags = c->v[9];
    fill_inputs(&a->q, &a->keys, &a->a, flags, &seed);
    fill_positions(&a->pos, a->ratio, a->topk.dim[1], e, flags, &seed);
    fill_slots(&a->slot, a->keys.dim[0], &seed);
    if (a->pool_in.rank) fill_pool(&a->pool_in, (e + a->block - 1) / a->block, &seed);
}

static dsf_cost topk_cost(const void *args)
{
    const dsf_index_topk_args *a = args;
    double entries = (double)a->keys.dim[1];
    if (a->pool_in.rank && (double)a->pool_in.dim[1] * a->block < entries)
        entries = (double)a->pool_in.dim[1] * a->block;
    dsf_cost cost = scoring_cost(&a->q, &a->keys, entries);
    /* Each row has a pool of its own: together they read no more than all keys. */
    double pools = (double)a->q.dim[0] * entries * (double)dsf_dtype_bytes(DSF_Q4X, a->q.dim[2]);
    if (a->pool_in.rank) cost.bytes = fmin(cost.bytes, (double)dsf_tensor_bytes(&a->q) + pools);
    return cost;
}

static const dsf_operand topk_operands[] = {
    DSF_ARG(dsf_index_topk_args, topk, DSF_OUT, DSF_I32, "nk", 0),
    DSF_ARG(dsf_index_topk_args, pool_out, DSF_OUT, DSF_I32, "nb", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_index_topk_args, pool_in, DSF_IN, DSF_I32, "nb", DSF_OPERAND_OPTIONAL),
    DSF_ARG(dsf_index_topk_args, q, DSF_IN, DSF_Q4X, "nhd", 0),
    DSF_ARG(dsf_index_topk_args, a, DSF_IN, DSF_BF16, "nh", 0),
    DSF_ARG(dsf_index_topk_args, keys, DSF_IN, DSF_Q4X, "scd", 0),
    DSF_ARG(dsf_index_topk_args, pos, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_index_topk_args, slot, DSF_IN, DSF_I32, "n", 0)};
static const dsf_variant topk_variants[] = {
    {"ref", 0, dsf_index_topk_ref, NULL, dsf_index_topk_scratch_ref},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_index_topk_avx512), NULL,
     DSF_X86(dsf_index_topk_scratch_avx512)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_index_topk_sm90), NULL, dsf_index_topk_scratch_sm90},
    {"sm90tc", DSF_NEEDS_SM90, DSF_CUDA(dsf_index_topk_sm90tc), dsf_index_topk_accepts_sm90tc,
     dsf_index_topk_scratch_sm90tc}};
static const dsf_case topk_cases[] = {
    {{1, 1, 1, 1, 32, 1, 1, 1, 1, POOL_OUT}},
    {{16, 6, 3, 4, 64, 2, 24, 2, 4, POOL_OUT}},
    {{16, 6, 3, 4, 64, 2, 24, 1, 4, POOL_IN | FAR}},
    {{16, 64, 32, 4, 128, 1, 300, 1, 8, POOL_OUT | POOL_IN | FEW_VALUES}},
    {{17, 64, 32, 3, 160, 3, 257, 2, 8, WEIRD}},
    {{9, 512, 64, 32, 128, 2, 1100, 1, 8, POOL_OUT | FEW_VALUES}},
    {{40, 512, 128, 32, 128, 2, 1500, 2, 8, FAR}},
    {{3, 512, 128, 32, 128, 1, 3000, 1, 8, POOL_IN | WEIRD}},
    {{4, 8, 5, 8, 128, 2, 100, 1, 8, POOL_OUT | NEAR}},
    {{3, 16, 6, 8, 128, 1, 128, 1, 8, POOL_IN | NEAR}},
    {{5, 512, 128, 32, 128, 2, 3000, 1, 8, POOL_IN | NEAR | FAR}},
    {{17, 512, 128, 32, 128, 2, 1300, 1, 8, POOL_OUT | NEAR}}};

const dsf_op dsf_op_index_topk = {.name = "index_topk",
                                  .dims = "nkbhdsc",
                                  .args_size = sizeof(dsf_index_topk_args),
                                  .operand = DSF_TABLE(topk_operands),
                                  .variant = DSF_TABLE(topk_variants),
                                  .cases = DSF_TABLE(topk_cases),
                                  .tol = exact_ids,
                                  .props = DSF_PROP_ROWS,
                                  .init = topk_init,
                                  .fill = topk_fill,
                                  .cost = topk_cost};
