/* Faults that other engines had with scales, number formats and single operations: the rows of
 * group A of verify/BUGLOG.md that no other test shows, and what groups C and D say of kernels.
 * Every variant of this machine is held to them. */
#include "op_variants.h"
#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/hc.h"
#include "ops/index.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/quant.h"
#include "ops/rope.h"

static uint16_t bf16(float x) { return dsf_f32_to_bf16(x); }

/* ---- scales ---- */

/* Four groups of 32 whose largest elements are 1, 1.5, 3 and 0.7 times the largest code. */
static void expect_scale_bytes(const dsf_op *op, dsf_dtype dtype, float most, int codes)
{
    static const float scale[4] = {1, 1.5f, 3, 0.7f};
    static const uint8_t want[4] = {127, 128, 129, 127}; /* 2^0, 2^1, 2^2, 2^0: never below */
    uint16_t x[128];
    uint8_t out[128 + 4] = {0};
    for (int i = 0; i < 128; i++)
        x[i] = bf16(i % 32 == 5 ? -most * scale[i / 32] : most * scale[i / 32] / 8);
    dsf_quant_args a = {tensor_of(out, dtype, 1, 1, 128), tensor_of(x, DSF_BF16, 1, 1, 128)};
    for (const dsf_variant *v = NULL; (v = variant_next(op, v));) {
        memset(out, 0, sizeof out);
        variant_run(v, &a);
        cr_expect_arr_eq(out + codes, want, 4, "%s %s: %d %d %d %d", op->name, v->name, out[codes],
                         out[codes + 1], out[codes + 2], out[codes + 3]);
    }
}

/* [B-01] The exponent bits of a scale that is no power of two, taken as they are, round it down. */
Test(bug, b01_a_scale_is_rounded_up_to_a_power_of_two_before_it_is_packed)
{
    expect_scale_bytes(&dsf_op_quant_q8, DSF_Q8, 448, 128);
    expect_scale_bytes(&dsf_op_quant_q4x, DSF_Q4X, 6, 64);
}

/* [B-02] 450 / 448 is a little more than 1: the scale is 2, no code is above 448 and none is cut.
 */
Test(bug, b02_what_is_stored_is_the_scale_that_the_codes_were_made_with)
{
    uint16_t x[32], back[32];
    uint8_t out[33];
    for (int i = 0; i < 32; i++) x[i] = bf16(i ? (float)(i * 14) : 450);
    dsf_quant_args a = {tensor_of(out, DSF_Q8, 1, 1, 32), tensor_of(x, DSF_BF16, 1, 1, 32)};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_quant_q8, v));) {
        variant_run(v, &a);
        cr_expect_eq(out[32], 128, "%s: scale byte %d", v->name, out[32]);
        dsf_q8_unpack(back, out, 32);
        for (int i = 0; i < 32; i++) {
            float want = dsf_bf16_to_f32(x[i]);
            cr_expect_leq((out[i] & 0x7F), 0x7E, "%s: %d", v->name, i);
            cr_expect_leq(fabsf(dsf_bf16_to_f32(back[i]) - want), want / 16, "%s: %d", v->name, i);
        }
    }
}

/* [B-10] The low nibble is the even channel, by the published table of fp4. */
Test(bug, b10_the_low_nibble_is_the_even_channel)
{
    uint8_t record[17] = {0x10, 0x21, 0xF7};
    uint16_t out[32];
    static const float want[] = {0, 0.5f, 0.5f, 1, 6, -6};
    record[16] = 127;
    dsf_q4x_unpack(out, record, 32);
    for (int i = 0; i < 6; i++) cr_expect_eq(dsf_bf16_to_f32(out[i]), want[i], "channel %d", i);
    record[16] = 0; /* the smallest scale is 2^-127, a bf16 subnormal */
    dsf_q4x_unpack(out, record, 32);
    cr_expect_eq(dsf_bf16_to_f32(out[3]), 0x1p-127f);
}

/* ---- products ---- */

enum { K = 64, O = 96, MOST = 129 };

static uint8_t x8[MOST * (K + K / 32)], w8[O * K], s8[O * (K / 32)];
static uint16_t some[MOST * O], alone[O];

static void fill_products(void)
{
    uint64_t seed = 9;
    for (size_t i = 0; i < sizeof w8; i++) w8[i] = (uint8_t)(0x20 + dsf_fill_below(&seed, 0x28));
    for (size_t i = 0; i < sizeof s8; i++) s8[i] = (uint8_t)(120 + i % 15);
    for (int r = 0; r < MOST; r++)
        for (int c = 0; c < K + K / 32; c++)
            x8[r * (K + K / 32) + c] = (uint8_t)(c < K ? 0x20 + dsf_fill_below(&seed, 0x28) : 127);
}

/* Rows as linear_g8 or, with weights that are pairs of fp4, as experts_down takes them. */
static void run_rows(const dsf_op *op, const dsf_variant *v, uint16_t *out, uint8_t *x, int n)
{
    static int32_t ids[MOST];
    int64_t codes = (int64_t)(uintptr_t)w8, scales = (int64_t)(uintptr_t)s8;
    dsf_linear_g8_args g = {tensor_of(out, DSF_BF16, n, O, 0), tensor_of(x, DSF_Q8, n, K, 0),
                            tensor_of(w8, DSF_E4M3, O, K, 0),
                            tensor_of(s8, DSF_E8M0, O / 32, K / 32, 0)};
    dsf_experts_down_args e = {.out = tensor_of(out, DSF_BF16, n, 1, O),
                               .h = tensor_of(x, DSF_Q8, n, 1, K),
                               .ids = tensor_of(ids, DSF_I32, n, 1, 0),
                               .w2 = tensor_of(&codes, DSF_I64, 1, 0, 0),
                               .s2 = tensor_of(&scales, DSF_I64, 1, 0, 0)};
    variant_run(v, op == &dsf_op_linear_g8 ? (const void *)&g : &e);
}

/* [B-09] A kernel chosen by the number of rows gave zeros for some of them; a cosine saw nothing.
 * Weights and activations are positive, so no result is 0. */
Test(bug, b09_any_number_of_rows_gives_each_row_the_bits_it_has_alone)
{
    static const dsf_op *const ops[2] = {&dsf_op_linear_g8, &dsf_op_experts_down};
    for (int o = 0; o < 2; o++) {
        fill_products();
        for (int i = 0; o && i < O * K; i++) w8[i] &= 0x77;
        for (const dsf_variant *v = NULL; (v = variant_next(ops[o], v));)
            for (int n = 1; n <= MOST; n = n == 17 ? 31 : n == 33 ? 127 : n + 1) {
                memset(some, 0, sizeof some);
                run_rows(ops[o], v, some, x8, n);
                for (int r = 0; r < n; r++) {
                    run_rows(ops[o], v, alone, x8 + r * (K + K / 32), 1);
                    cr_assert_arr_eq(some + r * O, alone, sizeof alone, "%s %s: row %d of %d",
                                     ops[o]->name, v->name, r, n);
                    for (int c = 0; c < O; c++) cr_assert(dsf_bf16_to_f32(alone[c]) > 0);
                }
            }
    }
}

/* ---- router ---- */

enum { EXPERTS = 6 };

typedef struct {
    dsf_route_args a;
    float z[EXPERTS], scores[EXPERTS], bias[EXPERTS], weights[EXPERTS];
    int32_t ids[EXPERTS];
    uint8_t vl;
} router;

static void make_router(router *r, const float *z, int e, int k)
{
    memset(r, 0, sizeof *r);
    memcpy(r->z, z, (size_t)e * sizeof *z);
    r->a = (dsf_route_args){.scores = tensor_of(r->scores, DSF_F32, 1, e, 0),
                            .ids = tensor_of(r->ids, DSF_I32, 1, k, 0),
                            .weights = tensor_of(r->weights, DSF_F32, 1, k, 0),
                            .z = tensor_of(r->z, DSF_F32, 1, e, 0),
                            .bias = tensor_of(r->bias, DSF_F32, e, 0, 0),
                            .vl = tensor_of(&r->vl, DSF_U8, 1, 0, 0),
                            .scale = 1.5f,
                            .norm_topk_prob = 1};
}

/* [B-14] log(1 + e^z) in f32 is 0 from -16.64 down and overflows above 88.7. */
Test(bug, b14_router_scores_neither_vanish_nor_overflow)
{
    static const float z[EXPERTS] = {-100, -17, -16.6f, 0, 89, 100};
    router r;
    make_router(&r, z, EXPERTS, EXPERTS);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_route, v));) {
        variant_run(v, &r.a);
        float sum = 0;
        for (int i = 0; i < EXPERTS; i++) {
            double x = (double)z[i], want = sqrt(x > 20 ? x : log1p(exp(x)));
            cr_expect(fabs((double)r.scores[i] - want) <= 1e-6 * want, "%s: %g gives %g, not %g",
                      v->name, x, (double)r.scores[i], want);
            sum += r.weights[i];
        }
        cr_expect_float_eq(sum, 1.5f, 1e-5f);
    }
}

/* [B-15] The weights of a row whose scores are all 0 are 0, not 0/0. */
Test(bug, b15_a_row_without_any_score_gives_no_nan)
{
    static const float z[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    router r;
    make_router(&r, z, 4, 2);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_route, v));) {
        variant_run(v, &r.a);
        for (int i = 0; i < 2; i++) {
            cr_expect_eq(r.ids[i], i, "%s", v->name);
            cr_expect_eq(r.weights[i], 0.0f, "%s: %g", v->name, (double)r.weights[i]);
        }
    }
}

/* [B-17] Logits of 64 and 64.1 are one number in 16 bits, and the smaller id would win. */
Test(bug, b17_router_logits_beyond_60_keep_their_order)
{
    static const float z[3] = {64, 64.1f, -64.1f};
    router r;
    make_router(&r, z, 3, 1);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_route, v));) {
        variant_run(v, &r.a);
        cr_expect_eq(r.ids[0], 1, "%s", v->name);
    }
}

/* ---- streams and rotation ---- */

/* [B-19] A 4 x 4 matrix fits transposed too: a cyclic shift tells the two apart. */
Test(bug, b19_the_residual_mix_goes_from_its_first_index_to_its_second)
{
    enum { D = 32 };
    static const float stream[4] = {1, 2, 3, 4};
    uint16_t x[4 * D], y[D] = {0}, out[4 * D];
    float post[4] = {0}, comb[16] = {0};
    for (int i = 0; i < 4 * D; i++) x[i] = bf16(stream[i / D]);
    for (int j = 0; j < 4; j++) comb[4 * j + (j + 1) % 4] = 1;
    dsf_hc_expand_args a = {tensor_of(out, DSF_BF16, 1, 4, D), tensor_of(x, DSF_BF16, 1, 4, D),
                            tensor_of(y, DSF_BF16, 1, D, 0), tensor_of(post, DSF_F32, 1, 4, 0),
                            tensor_of(comb, DSF_F32, 1, 4, 4)};
    static const float want[4] = {4, 1, 2, 3};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_hc_expand, v));) {
        variant_run(v, &a);
        for (int i = 0; i < 4 * D; i++)
            cr_expect_eq(dsf_bf16_to_f32(out[i]), want[i / D], "%s: stream %d", v->name, i / D);
    }
}

/* [B-23] The first rotary channel turns into its neighbour, not into the one half a head on. */
Test(bug, b23_rotation_pairs_adjacent_channels)
{
    enum { D = 64, R = 32 };
    uint16_t x[D] = {0}, out[D];
    float freq[R / 2] = {1}, cs[R];
    int32_t pos = 1;
    x[D - R] = bf16(1);
    dsf_rope_table_args t = {tensor_of(cs, DSF_F32, 1, R / 2, 2), tensor_of(&pos, DSF_I32, 1, 0, 0),
                             tensor_of(freq, DSF_F32, R / 2, 0, 0)};
    dsf_rope_args a = {.out = tensor_of(out, DSF_BF16, 1, 1, D),
                       .x = tensor_of(x, DSF_BF16, 1, 1, D),
                       .cs = tensor_of(cs, DSF_F32, 1, R / 2, 2)};
    variant_run(variant_next(&dsf_op_rope_table, NULL), &t);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_rope, v));) {
        variant_run(v, &a);
        for (int i = 0; i < D; i++) {
            double want = i == D - R ? cos(1) : i == D - R + 1 ? sin(1) : 0;
            cr_expect_eq(out[i], bf16((float)want), "%s: channel %d", v->name, i);
        }
    }
}

/* ---- caches ---- */

static void fill_record(uint8_t *rec, int codes, int scales, int seed)
{
    for (int i = 0; i < codes; i++) rec[i] = (uint8_t)(0x11 + 0x13 * i + seed);
    for (int i = 0; i < scales; i++) rec[codes + i] = (uint8_t)(120 + i + seed);
}

/* [B-26] Writer and reader of the index keys mean the same bytes: two neighbours, stored, then read
 * back by the scores, which tell them apart. */
Test(bug, b26_index_keys_are_read_where_they_were_written)
{
    enum { D = 64, REC = D / 2 + D / 32, C = 4 };
    uint8_t keys[2 * C * REC], rows[2 * REC], q[REC] = {0};
    int32_t slot[2] = {1, 1}, index[2] = {1, 2}, end[2] = {3, 3}, pos = 2, at = 1;
    uint16_t one = bf16(1), scores[C];
    fill_record(rows, D / 2, D / 32, 0);
    fill_record(rows + REC, D / 2, D / 32, 1);
    memset(q, 0x22, D / 2); /* ones */
    memset(q + D / 2, 127, D / 32);
    dsf_cache_store_args store = {
        tensor_of(keys, DSF_Q4X, 2, C, D), tensor_of(rows, DSF_Q4X, 2, D, 0),
        tensor_of(slot, DSF_I32, 2, 0, 0), tensor_of(index, DSF_I32, 2, 0, 0),
        tensor_of(end, DSF_I32, 2, 0, 0)};
    dsf_index_scores_args score = {tensor_of(scores, DSF_BF16, 1, C, 0),
                                   tensor_of(q, DSF_Q4X, 1, 1, D),
                                   tensor_of(&one, DSF_BF16, 1, 1, 0),
                                   tensor_of(keys, DSF_Q4X, 2, C, D),
                                   tensor_of(&pos, DSF_I32, 1, 0, 0),
                                   tensor_of(&at, DSF_I32, 1, 0, 0),
                                   1};
    for (const dsf_variant *w = NULL; (w = variant_next(&dsf_op_cache_store_q4x, w));) {
        memset(keys, 0, sizeof keys);
        variant_run(w, &store);
        cr_expect_arr_eq(keys + (C + 1) * REC, rows, sizeof rows, "%s", w->name);
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_scores, v));) {
            variant_run(v, &score);
            for (int e = 0; e < 2; e++) {
                uint16_t values[D];
                double sum = 0;
                dsf_q4x_unpack(values, rows + e * REC, D);
                for (int c = 0; c < D; c++) sum += (double)dsf_bf16_to_f32(values[c]);
                cr_expect_eq(scores[e + 1], bf16(sum > 0 ? (float)sum : 0), "%s: key %d", v->name,
                             e);
            }
        }
    }
}

/* [B-30] Each group of a stored entry keeps its own scale up to the attention's output: with a
 * query of zeros the entry and the query's own key (zero) weigh one half each. */
Test(bug, b30_every_group_of_a_key_is_read_with_its_own_scale)
{
    enum { D = 128, REC = D / 2 + D / 16 };
    uint16_t x[D], q[D] = {0}, out[D], value[D];
    uint8_t main[REC], near[D + D / 32] = {0};
    int32_t topk = 0, zero = 0, pos = 9, slot = 0;
    float sink = -INFINITY;
    for (int c = 0; c < D; c++) x[c] = bf16(ldexpf(1 + 0.25f * (float)(c % 5), c / 16 - 4));
    dsf_q4n_row(main, x, D);
    for (int g = 1; g < D / 16; g++) cr_assert_neq(main[D / 2 + g], main[D / 2 + g - 1]);
    dsf_q4n_unpack(value, main, D);
    dsf_attn_args a = {.out = tensor_of(out, DSF_BF16, 1, 1, D),
                       .q = tensor_of(q, DSF_BF16, 1, 1, D),
                       .kv_new = tensor_of(near, DSF_Q8, 1, D, 0),
                       .ring = tensor_of(near, DSF_Q8, 1, 1, D),
                       .main = tensor_of(main, DSF_Q4N, 1, 1, D),
                       .topk = tensor_of(&topk, DSF_I32, 1, 1, 0),
                       .sink = tensor_of(&sink, DSF_F32, 1, 0, 0),
                       .row = tensor_of(&zero, DSF_I32, 1, 0, 0),
                       .pos = tensor_of(&pos, DSF_I32, 1, 0, 0),
                       .start = tensor_of(&pos, DSF_I32, 1, 0, 0),
                       .lo = tensor_of(&pos, DSF_I32, 1, 0, 0),
                       .slot = tensor_of(&slot, DSF_I32, 1, 0, 0),
                       .window = 1};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
        variant_run(v, &a);
        for (int c = 0; c < D; c++)
            cr_expect_eq(out[c], bf16(dsf_bf16_to_f32(value[c]) / 2), "%s: channel %d", v->name, c);
    }
}

/* [B-88] A store writes the rows it owns: the last place of one sequence, and not the first of the
 * next. */
Test(bug, b88_a_partial_tail_leaves_its_neighbours)
{
    enum { D = 64, REC = D + D / 32, C = 65, SLOTS = 3 };
    static uint8_t cache[SLOTS * C * REC], want[sizeof cache];
    uint8_t x[REC];
    int32_t slot = 1, index = C - 1, end = C;
    fill_record(x, D, D / 32, 3);
    dsf_cache_store_args a = {tensor_of(cache, DSF_Q8, SLOTS, C, D), tensor_of(x, DSF_Q8, 1, D, 0),
                              tensor_of(&slot, DSF_I32, 1, 0, 0),
                              tensor_of(&index, DSF_I32, 1, 0, 0),
                              tensor_of(&end, DSF_I32, 1, 0, 0)};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_cache_store_q8, v));) {
        memset(cache, 0xAB, sizeof cache);
        memset(want, 0xAB, sizeof want);
        memcpy(want + (2 * C - 1) * REC, x, REC);
        variant_run(v, &a);
        cr_expect_arr_eq(cache, want, sizeof want, "%s", v->name);
    }
}

/* ---- selection at its limits ---- */

enum { LONGEST = 32769, BEST = 512 };

/* What the rule says: larger score first, then smaller id; the list ascending. */
static const uint16_t *ranked_scores;

static int by_rank(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = dsf_bf16_to_f32(ranked_scores[i]), y = dsf_bf16_to_f32(ranked_scores[j]);
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : i > j;
}

static int by_id(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* [B-56] A limit of 32,768 that nobody checked, passed by a warm-up of 256. */
Test(bug, b56_selection_around_32768_entries_is_exact)
{
    static uint16_t scores[LONGEST];
    static int32_t order[LONGEST];
    int32_t topk[BEST], pos;
    uint64_t seed = 5;
    for (int i = 0; i < LONGEST; i++)
        scores[i] = bf16((float)dsf_fill_below(&seed, 3000)); /* ties */
    ranked_scores = scores;
    for (int e = LONGEST - 2; e <= LONGEST; e++) {
        for (int i = 0; i < e; i++) order[i] = i;
        qsort(order, (size_t)e, sizeof *order, by_rank);
        qsort(order, BEST, sizeof *order, by_id);
        pos = e - 1;
        dsf_index_select_args a = {.topk = tensor_of(topk, DSF_I32, 1, BEST, 0),
                                   .scores = tensor_of(scores, DSF_BF16, 1, e, 0),
                                   .pos = tensor_of(&pos, DSF_I32, 1, 0, 0),
                                   .ratio = 1,
                                   .block = 4};
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_select, v));) {
            variant_run(v, &a);
            cr_expect_arr_eq(topk, order, sizeof topk, "%s: %d entries", v->name, e);
        }
    }
}

/* [B-62] An empty place, position -1, is no length of 4,294,967,295. */
Test(bug, b62_an_empty_row_selects_nothing)
{
    uint16_t scores[4] = {0x3F80, 0x3F80, 0x3F80, 0x3F80};
    int32_t topk[2], pool[2], pos = -1;
    for (int ratio = 1; ratio <= 2; ratio++) {
        dsf_index_select_args a = {.topk = tensor_of(topk, DSF_I32, 1, 2, 0),
                                   .pool_out = tensor_of(pool, DSF_I32, 1, 2, 0),
                                   .scores = tensor_of(scores, DSF_BF16, 1, 4, 0),
                                   .pos = tensor_of(&pos, DSF_I32, 1, 0, 0),
                                   .ratio = ratio,
                                   .block = 2};
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_index_select, v));) {
            memset(topk, 0, sizeof topk);
            variant_run(v, &a);
            for (int i = 0; i < 2; i++) {
                cr_expect_eq(topk[i], -1, "%s", v->name);
                cr_expect_eq(pool[i], -1, "%s", v->name);
            }
        }
    }
}
