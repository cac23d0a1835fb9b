#include "ops/attn.h"

#include <math.h>

#include "op_variants.h"
#include "vectors.h"

/* One pass over caches of one sequence in slot 1 of 2. */
enum { ROWS = 140, RING = 130, MAIN = 80, KEYS = 80, HEADS = 3, WIDTH = 384 };

typedef struct {
    dsf_attn_args a;
    uint8_t kv_new[ROWS * (WIDTH + WIDTH / 32)], ring[2 * RING * (WIDTH + WIDTH / 32)];
    uint8_t main[2 * MAIN * (WIDTH / 2 + WIDTH / 16)];
    uint16_t q[HEADS * WIDTH], out[HEADS * WIDTH];
    int32_t topk[KEYS], row, pos, start, lo, slot;
    float sink[HEADS];
} world;

/* One query at position t; c: ring slots; k: list places. All keys 0, no sink. */
static void make(world *w, int64_t h, int64_t d, int64_t window, int64_t k)
{
    memset(w, 0, sizeof *w);
    w->a.out = tensor_of(w->out, DSF_BF16, 1, h, d);
    w->a.q = tensor_of(w->q, DSF_BF16, 1, h, d);
    w->a.kv_new = tensor_of(w->kv_new, DSF_Q8, ROWS, d, 0);
    w->a.ring = tensor_of(w->ring, DSF_Q8, 2, RING, d);
    w->a.main = tensor_of(w->main, DSF_Q4N, 2, MAIN, d);
    w->a.topk = tensor_of(w->topk, DSF_I32, 1, k, 0);
    if (k == 0) w->a.topk.rank = w->a.main.rank = 0;
    w->a.sink = tensor_of(w->sink, DSF_F32, h, 0, 0);
    w->a.row = tensor_of(&w->row, DSF_I32, 1, 0, 0);
    w->a.pos = tensor_of(&w->pos, DSF_I32, 1, 0, 0);
    w->a.start = tensor_of(&w->start, DSF_I32, 1, 0, 0);
    w->a.lo = tensor_of(&w->lo, DSF_I32, 1, 0, 0);
    w->a.slot = tensor_of(&w->slot, DSF_I32, 1, 0, 0);
    w->a.window = (int)window;
    w->slot = 1;
    for (int i = 0; i < HEADS; i++) w->sink[i] = -INFINITY;
    for (int i = 0; i < KEYS; i++) w->topk[i] = -1;
}

/* Pass row, ring slot or main entry that a key of the list is. */
enum { PASS = 1000, SLOT = 2000, ENTRY = 3000 };

static int name_key(const world *w, const dsf_attn_key *key)
{
    int64_t d = w->a.q.dim[2], q8 = dsf_dtype_bytes(DSF_Q8, d), q4n = dsf_dtype_bytes(DSF_Q4N, d);
    const uint8_t *r = key->record;
    if (key->is_main) return ENTRY + (int)((r - w->main) / q4n - MAIN);
    if (r >= w->ring && r < w->ring + sizeof w->ring)
        return SLOT + (int)((r - w->ring) / q8 - w->a.ring.dim[1]);
    return PASS + (int)((r - w->kv_new) / q8);
}

static void expect_list(const world *w, const int *want, int n)
{
    dsf_attn_key key[512];
    int got = dsf_attn_list(&w->a, 0, key);
    cr_assert_leq(got, dsf_attn_list_max(&w->a));
    cr_assert_eq(got, n, "position %d: %d keys, expected %d", w->pos, got, n);
    for (int i = 0; i < n; i++)
        cr_expect_eq(name_key(w, &key[i]), want[i], "position %d, key %d: %d, expected %d", w->pos,
                     i, name_key(w, &key[i]), want[i]);
}
#define EXPECT_LIST(w, ...)                                                                        \
    expect_list(w, (const int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))

static void place(world *w, int32_t start, int32_t t, int32_t row)
{
    w->start = start;
    w->pos = t;
    w->row = row;
}

Test(attn, list_ends_at_the_query_and_begins_at_the_window)
{
    static world w;
    make(&w, 1, 32, 4, 0);
    place(&w, 0, 0, 7);
    EXPECT_LIST(&w, PASS + 7);
    place(&w, 0, 3, 10);
    EXPECT_LIST(&w, PASS + 7, PASS + 8, PASS + 9, PASS + 10);
    place(&w, 0, 4, 11);
    EXPECT_LIST(&w, PASS + 8, PASS + 9, PASS + 10, PASS + 11);
}

Test(attn, list_takes_earlier_positions_from_the_ring)
{
    static world w;
    make(&w, 1, 32, 4, 0);
    w.a.ring.dim[1] = 4; /* wraps */
    place(&w, 5, 5, 2);
    EXPECT_LIST(&w, SLOT + 2, SLOT + 3, SLOT + 0, PASS + 2);
    place(&w, 5, 7, 4);
    EXPECT_LIST(&w, SLOT + 0, PASS + 2, PASS + 3, PASS + 4);
    place(&w, 5, 8, 5);
    EXPECT_LIST(&w, PASS + 2, PASS + 3, PASS + 4, PASS + 5);
    place(&w, 1048575, 1048575, 0);
    EXPECT_LIST(&w, SLOT + 0, SLOT + 1, SLOT + 2, PASS + 0);
    w.a.ring.dim[1] = 6; /* larger than the window */
    place(&w, 1048575, 1048575, 0);
    EXPECT_LIST(&w, SLOT + 0, SLOT + 1, SLOT + 2, PASS + 0);
    place(&w, 8, 8, 3);
    EXPECT_LIST(&w, SLOT + 5, SLOT + 0, SLOT + 1, PASS + 3);
}

Test(attn, list_is_cut_at_lo)
{
    static world w;
    make(&w, 1, 32, 4, 0);
    w.lo = 9;
    place(&w, 9, 9, 0);
    EXPECT_LIST(&w, PASS + 0);
    place(&w, 10, 11, 1);
    EXPECT_LIST(&w, SLOT + 9, PASS + 0, PASS + 1);
    place(&w, 9, 13, 4);
    EXPECT_LIST(&w, PASS + 1, PASS + 2, PASS + 3, PASS + 4);
}

Test(attn, list_ends_with_the_selected_entries)
{
    static world w;
    make(&w, 1, 32, 2, 5);
    place(&w, 0, 1, 1);
    EXPECT_LIST(&w, PASS + 0, PASS + 1);
    w.topk[0] = 0;
    w.topk[1] = 3;
    w.topk[2] = MAIN - 1;
    EXPECT_LIST(&w, PASS + 0, PASS + 1, ENTRY + 0, ENTRY + 3, ENTRY + MAIN - 1);
}

Test(attn, list_of_a_draft_row_is_the_ring_as_stored_then_the_whole_block)
{
    static world w;
    make(&w, 1, 32, 4, 0);
    w.a.block = 3;
    w.a.ring.dim[1] = 6;
    place(&w, 2, 3, 8); /* two filled slots, second row of the block */
    EXPECT_LIST(&w, SLOT + 0, SLOT + 1, PASS + 7, PASS + 8, PASS + 9);
    place(&w, 6, 6, 0); /* positions 4 5 2 3 */
    EXPECT_LIST(&w, SLOT + 4, SLOT + 5, SLOT + 2, SLOT + 3, PASS + 0, PASS + 1, PASS + 2);
    place(&w, 6, 8, 2);
    EXPECT_LIST(&w, SLOT + 4, SLOT + 5, SLOT + 2, SLOT + 3, PASS + 0, PASS + 1, PASS + 2);
    place(&w, 9, 9, 0); /* positions 8 5 6 7 */
    EXPECT_LIST(&w, SLOT + 2, SLOT + 5, SLOT + 0, SLOT + 1, PASS + 0, PASS + 1, PASS + 2);
}

static void put_q8(uint8_t *records, int64_t d, int64_t row, int64_t c, float v)
{
    uint8_t *r = records + row * dsf_dtype_bytes(DSF_Q8, d);
    r[c] = dsf_f32_to_e4m3(v);
    r[d + c / 32] = 127;
}

static void put_q4n(uint8_t *records, int64_t d, int64_t row, int64_t c, float v)
{
    uint8_t *r = records + row * dsf_dtype_bytes(DSF_Q4N, d);
    int shift = c & 1 ? 4 : 0;
    r[c / 2] = (uint8_t)((r[c / 2] & ~(15 << shift)) | dsf_f32_to_e2m1(v) << shift);
    r[d / 2 + c / 16] = 0x38; /* 1 */
}

static float out_at(const world *w, int64_t i) { return dsf_bf16_to_f32(w->out[i]); }

Test(attn, an_empty_list_gives_a_zero_row)
{
    static world w;
    make(&w, 2, 64, 4, 3);
    w.lo = 1; /* past the query */
    w.q[0] = 0x3F80;
    w.sink[0] = 1;
    w.sink[1] = -1000;
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
        memset(w.out, 0xFF, sizeof w.out);
        variant_run(v, &w.a);
        for (int i = 0; i < 2 * 64; i++) cr_expect_eq(w.out[i], 0, "%s %d", v->name, i);
    }
}

Test(attn, one_key_returns_its_value_and_an_equal_sink_halves_it)
{
    static world w;
    make(&w, 3, 32, 1, 0);
    for (int c = 0; c < 32; c++) put_q8(w.kv_new, 32, 0, c, (float)(c - 16));
    w.q[32] = 0x4000; /* head 1: 2 . -16 / sqrt(32) */
    w.sink[1] = -32.0f * (float)(1 / sqrt(32));
    w.sink[2] = 200; /* takes everything */
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
        variant_run(v, &w.a);
        for (int c = 0; c < 32; c++) {
            cr_expect_eq(out_at(&w, c), (float)(c - 16), "%s", v->name);
            cr_expect_eq(out_at(&w, 32 + c), (float)(c - 16) / 2, "%s", v->name);
            cr_expect_eq(out_at(&w, 64 + c), 0, "%s", v->name);
        }
    }
}

/* Keys that match have a logit of 128 or more, the others 0: probabilities are 1 and 0, values
 * small integers, so that the result is their mean whatever the order, in any variant. Lists of one
 * block less one, one block, one block and one, and past two. */
static void expect_mean(world *w, int64_t window, int64_t selected, int every)
{
    enum { D = 96, H = HEADS };
    make(w, H, D, window, selected);
    double sum[D] = {0};
    int matches = 0;
    place(w, 0, (int32_t)window - 1, (int32_t)window - 1);
    for (int h = 0; h < H; h++) w->q[h * D] = dsf_f32_to_bf16(2048);
    for (int64_t j = 0; j < window + selected; j++) {
        bool match = j % every == 1;
        matches += match;
        for (int64_t c = 0; c < D; c++) {
            float v = c == 0 ? (float)match : (float)((j * 5 + c) % 4 - 1);
            if (j < window)
                put_q8(w->kv_new, D, j, c, v);
            else
                put_q4n(w->main, D, MAIN + j - window, c, v); /* slot 1 */
            if (match) sum[c] += (double)v;
        }
        if (j >= window) w->topk[j - window] = (int32_t)(j - window);
    }
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
        variant_run(v, &w->a);
        for (int i = 0; i < H * D; i++)
            cr_expect_eq(w->out[i], dsf_f64_to_bf16(sum[i % D] / matches),
                         "%s, %d keys: channel %d is %g, expected %g", v->name,
                         (int)(window + selected), i % D, (double)out_at(w, i),
                         sum[i % D] / matches);
    }
}

Test(attn, matching_keys_are_averaged_exactly)
{
    static world w;
    expect_mean(&w, 63, 0, 7);
    expect_mean(&w, 64, 0, 5);
    expect_mean(&w, 65, 0, 64);
    expect_mean(&w, 60, 10, 3);
    expect_mean(&w, 128, 80, 9);
}

/* 64 keys of logit 0, then one of logit l in the next block: the first block's probabilities were
 * rounded as 1, not as e^-l. */
Test(attn, probabilities_round_against_the_running_maximum)
{
    static world w;
    int told_apart = 0;
    for (int code = 0x38; code < 0x58; code++) {
        make(&w, 1, 32, 65, 0);
        place(&w, 0, 64, 64);
        w.q[0] = 0x3F80;
        for (int j = 0; j < 64; j++) put_q8(w.kv_new, 32, j, 1, 1);
        put_q8(w.kv_new, 32, 64, 0, dsf_e4m3_to_f32((uint8_t)code));
        double l = (double)(dsf_e4m3_to_f32((uint8_t)code) * (float)(1 / sqrt(32))), p = exp(-l);
        uint16_t want = dsf_f64_to_bf16(64 * p / (64 * p + 1));
        double rounded = (double)dsf_bf16_to_f32(dsf_f64_to_bf16(p));
        told_apart += want != dsf_f64_to_bf16(64 * rounded / (64 * p + 1));
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
            variant_run(v, &w.a);
            cr_expect_eq(w.out[1], want, "%s, logit %g: %04x, expected %04x", v->name, l, w.out[1],
                         want);
        }
    }
    cr_assert_gt(told_apart, 3);
}

/* One key of logit l and value 0, 60 of logit 0 and value 1: the product takes e^-l as bf16, the
 * denominator as it is. [B-17] */
Test(attn, the_denominator_sums_unrounded_probabilities)
{
    static world w;
    int unlike_rounded = 0, unlike_unrounded = 0;
    for (int code = 0x38; code < 0x58; code++) {
        make(&w, 1, 32, 61, 0);
        place(&w, 0, 60, 60);
        w.q[0] = 0x3F80;
        for (int j = 0; j < 60; j++) put_q8(w.kv_new, 32, j, 1, 1);
        put_q8(w.kv_new, 32, 60, 0, dsf_e4m3_to_f32((uint8_t)code));
        float l = dsf_e4m3_to_f32((uint8_t)code) * (float)(1 / sqrt(32));
        double p = exp(-(double)l), rounded = (double)dsf_bf16_to_f32(dsf_f64_to_bf16(p));
        uint16_t want = dsf_f64_to_bf16(60 * rounded / (60 * p + 1));
        unlike_rounded += want != dsf_f64_to_bf16(60 * rounded / (60 * rounded + 1));
        unlike_unrounded += want != dsf_f64_to_bf16(60 * p / (60 * p + 1));
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
            variant_run(v, &w.a);
            cr_expect_eq(w.out[1], want, "%s, logit %g: %04x, expected %04x", v->name, (double)l,
                         w.out[1], want);
        }
    }
    cr_assert_gt(unlike_rounded, 3);
    cr_assert_gt(unlike_unrounded, 3);
}

/* The vector's f32 queries and keys as sums of parts that the formats hold: 3 bf16 parts of q by 4
 * e4m3 parts of k, each pair in a group of its own. */
enum { PARTS = 3, DIGITS = 4, VECTOR = 8 };

static void put_query(world *w, int h, const float *q, double scale)
{
    for (int c = 0; c < VECTOR; c++) {
        double rest = (double)q[c] * scale * sqrt(WIDTH);
        for (int p = 0; p < PARTS; p++) {
            uint16_t part = dsf_f64_to_bf16(rest);
            rest -= (double)dsf_bf16_to_f32(part);
            for (int g = 0; g < DIGITS; g++) w->q[h * WIDTH + (p * DIGITS + g) * 32 + c] = part;
        }
    }
}

static void put_key(world *w, int j, const float *k)
{
    uint8_t *rec = w->kv_new + j * dsf_dtype_bytes(DSF_Q8, WIDTH);
    for (int c = 0; c < VECTOR; c++) {
        float rest = k[c];
        for (int g = 0; g < DIGITS; g++) {
            float scale = dsf_pow2(-6 - 4 * g);
            uint8_t code = dsf_f32_to_e4m3(rest / scale);
            rest -= dsf_e4m3_to_f32(code) * scale;
            for (int p = 0; p < PARTS; p++) {
                rec[(p * DIGITS + g) * 32 + c] = code;
                rec[WIDTH + p * DIGITS + g] = (uint8_t)(127 - 6 - 4 * g);
            }
        }
    }
}

Test(attn, follows_the_float64_vector)
{
    static world w;
    float q[2 * VECTOR], kv[64 * VECTOR], out[2 * VECTOR], most = 0;
    dsf_json_doc *doc = vectors_open();
    const dsf_json *item = vector(doc, "sink_attention_f64");
    make(&w, 2, WIDTH, 64, 0);
    int keys = floats(dsf_json_get(item, "kv"), kv, 64 * VECTOR) / VECTOR;
    cr_assert_eq(floats(dsf_json_get(item, "q"), q, 2 * VECTOR), 2 * VECTOR);
    cr_assert_eq(floats(dsf_json_get(item, "out"), out, 2 * VECTOR), 2 * VECTOR);
    cr_assert_eq(floats(dsf_json_get(item, "sink"), w.sink, 2), 2);
    double scale = number(dsf_json_get(item, "scale"));
    dsf_json_free(doc);
    place(&w, 0, keys - 1, keys - 1);
    for (int h = 0; h < 2; h++) put_query(&w, h, q + h * VECTOR, scale);
    for (int j = 0; j < keys; j++) put_key(&w, j, kv + j * VECTOR);
    for (int i = 0; i < keys * VECTOR; i++) most = fmaxf(most, fabsf(kv[i]));
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
        variant_run(v, &w.a);
        for (int i = 0; i < 2 * VECTOR; i++) {
            double got = 0;
            for (int g = 0; g < DIGITS; g++)
                got += (double)out_at(&w, i / VECTOR * WIDTH + g * 32 + i % VECTOR);
            /* Half a bf16 step of every probability and of the output. */
            cr_expect_float_eq(got, (double)out[i], (double)most * 0x1p-8,
                               "%s %d: %.9g, expected %.9g", v->name, i, got, (double)out[i]);
        }
    }
}
