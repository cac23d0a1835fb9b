#include <math.h>

#include "op_variants.h"
#include "ops/index.h"

static uint16_t bf16(float x) { return dsf_f32_to_bf16(x); }

Test(indexer, weight_is_one_product_rounded_once)
{
    /* The model's 2^-6 rounds nothing; a factor between two bf16 numbers does. */
    uint16_t x[3] = {bf16(258), 0x8000, 0x3F80}, out[3];
    dsf_index_weight_args a = {tensor_of(out, DSF_BF16, 1, 3, 0), tensor_of(x, DSF_BF16, 1, 3, 0),
                               0x1p-6f};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_weight, v));) {
        a.factor = 0x1p-6f;
        variant_run(v, &a);
        cr_expect_eq(out[0], bf16(258.0f / 64), "%s", v->name);
        cr_expect_eq(out[1], 0x8000, "%s", v->name);
        a.factor = 1.01171875f; /* 1 + 3 * 2^-8: a tie, to the even one */
        variant_run(v, &a);
        cr_expect_eq(out[2], bf16(1.015625f), "%s", v->name);
    }
}

/* Q4X records of one group: channel c holds value[c], rest 0. */
static void put_record(uint8_t *rec, int scale_byte, const float *value, int n)
{
    memset(rec, 0, 16);
    for (int c = 0; c < n; c++)
        rec[c / 2] = (uint8_t)(rec[c / 2] | dsf_f32_to_e2m1(value[c]) << (c & 1 ? 4 : 0));
    rec[16] = (uint8_t)scale_byte;
}

typedef struct {
    dsf_index_scores_args args;
    uint8_t q[4 * 17], keys[2 * 4 * 17];
    uint16_t a[4], scores[4];
    int32_t pos, slot;
} scoring;

/* h heads against four entries of slot 1. */
static void make_scoring(scoring *s, int64_t h)
{
    memset(s, 0, sizeof *s);
    s->args.q = tensor_of(s->q, DSF_Q4X, 1, h, 32);
    s->args.a = tensor_of(s->a, DSF_BF16, 1, h, 0);
    s->args.keys = tensor_of(s->keys, DSF_Q4X, 2, 4, 32);
    s->args.scores = tensor_of(s->scores, DSF_BF16, 1, 4, 0);
    s->args.pos = tensor_of(&s->pos, DSF_I32, 1, 0, 0);
    s->args.slot = tensor_of(&s->slot, DSF_I32, 1, 0, 0);
    s->args.ratio = 1;
    s->slot = 1;
    s->pos = 2;
}

/* [B-25] */
Test(indexer, score_rounds_each_dot_and_each_product)
{
    static scoring s;
    const float six[8] = {6, 6, 6, 6, 6, 6, 6, 6}, key[8] = {6, 6, 6, 6, 6, 6, 6, 1.5f};
    const float odd[3] = {.5f, 0, -3};
    make_scoring(&s, 3);
    for (int h = 0; h < 3; h++) {
        put_record(s.q + 17 * h, 127, six, 8);
        s.a[h] = 0x3F80;
    }
    put_record(s.keys + 17 * 4, 127, key, 8);      /* 261: a tie, to 260; three of them 780 */
    put_record(s.keys + 17 * 5, 127, odd, 3);      /* -15: 0 */
    put_record(s.keys + 17 * 6, 127 - 20, key, 8); /* scaled */
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_scores, v));) {
        variant_run(v, &s.args);
        cr_expect_eq(s.scores[0], bf16(780), "%s: %04x", v->name, s.scores[0]);
        cr_expect_eq(s.scores[1], 0, "%s: %04x", v->name, s.scores[1]);
        cr_expect_eq(s.scores[2], bf16(780 * 0x1p-20f), "%s: %04x", v->name, s.scores[2]);
        cr_expect_eq(s.scores[3], 0xFF80, "%s: past V(t): %04x", v->name, s.scores[3]);
    }
    /* 260 (1 + 2^-7) = 262.03 becomes 262: the sum 786 is a tie, to 784; 786.09 would go to 788. */
    for (int h = 0; h < 3; h++) s.a[h] = 0x3F81;
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_scores, v));) {
        variant_run(v, &s.args);
        cr_expect_eq(s.scores[0], bf16(784), "%s: %04x", v->name, s.scores[0]);
    }
    s.a[2] = 0xBF81; /* negative weights subtract */
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_scores, v));) {
        variant_run(v, &s.args);
        cr_expect_eq(s.scores[0], bf16(262), "%s: %04x", v->name, s.scores[0]);
    }
}

Test(indexer, score_sees_complete_groups_only)
{
    static scoring s;
    const float one[1] = {1};
    make_scoring(&s, 1);
    put_record(s.q, 127, one, 1);
    s.a[0] = 0x3F80;
    for (int e = 0; e < 4; e++) put_record(s.keys + 17 * (4 + e), 127, one, 1);
    s.args.ratio = 2;
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_scores, v));) {
        for (s.pos = 0; s.pos < 12; s.pos++) {
            variant_run(v, &s.args);
            for (int e = 0; e < 4; e++)
                cr_expect_eq(s.scores[e], e < (s.pos + 1) / 2 ? 0x3F80 : 0xFF80, "%s, position %d",
                             v->name, s.pos);
        }
    }
}

/* Selection by hand. */

enum { MOST = 64 };

typedef struct {
    dsf_index_select_args args;
    uint16_t scores[MOST];
    int32_t topk[MOST], pool_out[MOST], pool_in[MOST], pos;
} selection;

static void make_selection(selection *s, const float *score, int64_t e, int64_t k, int64_t b)
{
    memset(s, 0, sizeof *s);
    s->args.scores = tensor_of(s->scores, DSF_BF16, 1, e, 0);
    s->args.topk = tensor_of(s->topk, DSF_I32, 1, k, 0);
    s->args.pos = tensor_of(&s->pos, DSF_I32, 1, 0, 0);
    if (b) s->args.pool_out = tensor_of(s->pool_out, DSF_I32, 1, b, 0);
    s->args.ratio = 1;
    s->args.block = 2;
    s->pos = (int32_t)e - 1;
    for (int64_t i = 0; i < e; i++) s->scores[i] = bf16(score[i]);
}

static void expect_ids(const char *what, const int32_t *got, const int *want, int n)
{
    for (int i = 0; i < n; i++)
        cr_expect_eq(got[i], want[i], "%s: place %d holds %d, expected %d", what, i, got[i],
                     want[i]);
}

static void expect_topk(const selection *s, const int *want, int n)
{
    cr_assert_eq(n, s->args.topk.dim[1]);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_select, v));) {
        variant_run(v, &s->args);
        expect_ids(v->name, s->topk, want, n);
    }
}

static void expect_pool(const selection *s, const int *want, int n)
{
    cr_assert_eq(n, s->args.pool_out.dim[1]);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_select, v));) {
        variant_run(v, &s->args);
        expect_ids(v->name, s->pool_out, want, n);
    }
}
#define EXPECT_TOPK(s, ...)                                                                        \
    expect_topk(&(s), (const int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))
#define EXPECT_POOL(s, ...)                                                                        \
    expect_pool(&(s), (const int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))
#define INF INFINITY

Test(indexer, ties_go_to_the_smaller_id)
{
    selection s;
    make_selection(&s, (const float[]){1, 2, 1, 2, 1, 2}, 6, 2, 0);
    EXPECT_TOPK(s, 1, 3);
    make_selection(&s, (const float[]){1, 2, 1, 2, 1, 2}, 6, 4, 0);
    EXPECT_TOPK(s, 0, 1, 3, 5);
    make_selection(&s, (const float[]){0.0f, -0.0f, 0.0f, -0.0f}, 4, 3, 0); /* one zero */
    EXPECT_TOPK(s, 0, 1, 2);
    make_selection(&s, (const float[]){-3, -2, -1, -2, INF}, 5, 3, 0);
    EXPECT_TOPK(s, 1, 2, 4);
}

Test(indexer, list_is_whole_around_k)
{
    const float score[7] = {5, -INF, 4, 6, 1, 2, 3};
    selection s;
    make_selection(&s, score, 7, 5, 0);
    s.pos = 3; /* k - 1 visible, minus infinity among them: visible is what counts */
    EXPECT_TOPK(s, 0, 1, 2, 3, -1);
    s.pos = 4;
    EXPECT_TOPK(s, 0, 1, 2, 3, 4);
    s.pos = 5;
    EXPECT_TOPK(s, 0, 2, 3, 4, 5);
    s.pos = 1000; /* more than there are */
    EXPECT_TOPK(s, 0, 2, 3, 5, 6);
    s.pos = 0;
    EXPECT_TOPK(s, 0, -1, -1, -1, -1);
    s.args.ratio = 2; /* none yet */
    EXPECT_TOPK(s, -1, -1, -1, -1, -1);
}

Test(indexer, nan_counts_as_minus_infinity)
{
    selection s;
    make_selection(&s, (const float[]){NAN, -1, -NAN, -2, -INF}, 5, 2, 0);
    EXPECT_TOPK(s, 1, 3);
    make_selection(&s, (const float[]){NAN, -1, -NAN, -2, -INF}, 5, 4, 0);
    EXPECT_TOPK(s, 0, 1, 2, 3);
    make_selection(&s, (const float[]){NAN, NAN, 0, NAN, -1, -1}, 6, 6, 3);
    EXPECT_POOL(s, 1, 2, -1);
}

Test(indexer, pool_keeps_the_newest_visible_block)
{
    selection s;
    make_selection(&s, (const float[]){9, 1, 8, 1, 7, 7, -5}, 7, 1, 2);
    EXPECT_POOL(s, 0, 3); /* half a block with the worst score */
    s.pos = 4;
    EXPECT_POOL(s, 0, 2); /* 7 is visible, block 3 is not */
    s.pos = 1;
    EXPECT_POOL(s, 0, -1);
    s.args.ratio = 4;
    EXPECT_POOL(s, -1, -1);
    make_selection(&s, (const float[]){INF, 1, INF, 1, 2, 2}, 6, 1, 1);
    EXPECT_POOL(s, 2); /* before infinity too */
}

Test(indexer, pool_takes_blocks_by_their_best_entry)
{
    selection s;
    make_selection(&s, (const float[]){1, 5, 4, 4, 5, 0, 6, -9, 0, 0}, 10, 1, 3);
    EXPECT_POOL(s, 0, 3, 4); /* 5 twice: the smaller block */
    make_selection(&s, (const float[]){-INF, -INF, -7, -INF, -INF, -INF, 0, 0}, 8, 1, 4);
    EXPECT_POOL(s, 1, 3, -1, -1); /* nothing above minus infinity: dropped */
    make_selection(&s, (const float[]){-INF, -INF, -7, 0, -INF, -INF}, 6, 1, 4);
    EXPECT_POOL(s, 1, 2, -1, -1); /* but not the newest */
}

Test(indexer, pool_restricts_the_list_but_not_the_next_pool)
{
    selection s;
    make_selection(&s, (const float[]){9, 9, 1, 2, 9, 9, 3, 1, 9}, 9, 3, 2);
    s.args.pool_in = tensor_of(s.pool_in, DSF_I32, 1, 2, 0);
    s.pool_in[0] = 1;
    s.pool_in[1] = 3;
    EXPECT_TOPK(s, 2, 3, 6);
    EXPECT_POOL(s, 0, 4);
    s.pool_in[1] = -1; /* fewer than k */
    EXPECT_TOPK(s, 2, 3, -1);
    s.pool_in[1] = 4; /* cut by the last entry */
    EXPECT_TOPK(s, 2, 3, 8);
    s.pos = 2; /* block 1 half visible, block 4 not at all */
    EXPECT_TOPK(s, 2, -1, -1);
    s.pool_in[0] = -1;
    EXPECT_TOPK(s, -1, -1, -1);
}

/* The fused operation against its two parts, variant by variant, on the contract's own cases. */

typedef struct {
    uint16_t *scores;
    int32_t *topk, *pool;
} parts;

static void run_parts(const dsf_index_topk_args *a, const dsf_variant *score,
                      const dsf_variant *select, parts *p)
{
    int64_t n = a->q.dim[0], c = a->keys.dim[1];
    dsf_index_scores_args by_score = {
        tensor_of(p->scores, DSF_BF16, n, c, 0), a->q, a->a, a->keys, a->pos, a->slot, a->ratio};
    variant_run(score, &by_score);
    dsf_index_select_args by_rank = {.topk = a->topk,
                                     .pool_out = a->pool_out,
                                     .pool_in = a->pool_in,
                                     .scores = by_score.scores,
                                     .pos = a->pos,
                                     .ratio = a->ratio,
                                     .block = a->block};
    by_rank.topk.data = p->topk;
    by_rank.pool_out.data = p->pool;
    variant_run(select, &by_rank);
}

static void expect_fused(const dsf_index_topk_args *a, const char *name)
{
    int64_t n = a->q.dim[0], c = a->keys.dim[1];
    parts p = {calloc((size_t)(n * c), 2), calloc((size_t)dsf_tensor_bytes(&a->topk), 1),
               calloc((size_t)dsf_tensor_bytes(&a->pool_out) + 1, 1)};
    for (const dsf_variant *score = NULL; (score = variant_next(&dsf_op_index_scores, score));)
        for (const dsf_variant *select = NULL;
             (select = variant_next(&dsf_op_index_select, select));) {
            run_parts(a, score, select, &p);
            cr_expect_eq(memcmp(p.topk, a->topk.data, (size_t)dsf_tensor_bytes(&a->topk)), 0,
                         "%s against %s and %s: list", name, score->name, select->name);
            cr_expect_eq(memcmp(p.pool, a->pool_out.data, (size_t)dsf_tensor_bytes(&a->pool_out)),
                         0, "%s against %s and %s: pool", name, score->name, select->name);
        }
    free(p.scores);
    free(p.topk);
    free(p.pool);
}

/* [B-59] */
Test(indexer, fused_equals_its_parts)
{
    const dsf_op *op = &dsf_op_index_topk;
    for (int i = 0; i < op->n_cases; i++) {
        dsf_index_topk_args a;
        case_open(op, &op->cases[i], &a, (uint64_t)i);
        for (const dsf_variant *v = NULL; (v = variant_next(op, v));) {
            variant_run(v, &a);
            expect_fused(&a, v->name);
        }
        case_close(op, &a);
    }
}
