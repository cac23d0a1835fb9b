/* The number formats, exhaustively where they are small. What is expected comes from the definition
 * of the format (sign, exponent, mantissa; nearest, ties to even) and not from the code under test;
 * the vectors come from the publisher's arithmetic. */
#include <criterion/criterion.h>

#include "base/num.h"
#include "config.h"
#include "ops/hc.h"
#include "ops/quant.h"
#include "ops/rope.h"
#include "vectors.h"

/* Value of an e4m3 code by its fields (OCP 8-bit formats, "fn"). */
static double e4m3_value(int code)
{
    int e = code >> 3 & 15, m = code & 7;
    double v = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
    return code & 0x80 ? -v : v;
}

static double e2m1_value(int code)
{
    int e = code >> 1 & 3, m = code & 1;
    double v = e == 0 ? ldexp(m, -1) : ldexp(2 + m, e - 2);
    return code & 8 ? -v : v;
}

/* The code 0..n-1 of an ascending table nearest to a >= 0; ties to the even code; beyond the last,
 * the last. */
static int nearest(double (*value)(int), int n, double a)
{
    int best = 0;
    if (a >= value(n - 1)) return n - 1;
    for (int c = 1; c < n; c++) {
        double old = fabs(value(best) - a), new = fabs(value(c) - a);
        if (new < old || (new == old &&c % 2 == 0)) best = c;
    }
    return best;
}

/* [B-28] */
Test(num, all_e4m3_codes_decode)
{
    for (int c = 0; c < 256; c++) {
        float v = dsf_e4m3_to_f32((uint8_t)c);
        if ((c & 0x7F) == 0x7F)
            cr_expect(isnan(v), "%#x", c);
        else
            cr_expect((double)v == e4m3_value(c) && !signbit(v) == !(c & 0x80), "%#x: %g", c, v);
    }
}

Test(num, all_e4m3_codes_survive_a_round_trip)
{
    for (int c = 0; c < 256; c++)
        if ((c & 0x7F) != 0x7F) cr_expect_eq(dsf_f32_to_e4m3(dsf_e4m3_to_f32((uint8_t)c)), c);
}

Test(num, e4m3_ties_go_to_even_and_only_ties)
{
    for (int c = 0; c < 0x7E; c++) {
        float middle = (float)((e4m3_value(c) + e4m3_value(c + 1)) / 2); /* exact */
        cr_expect_eq(dsf_f32_to_e4m3(middle), c + c % 2, "%#x", c);
        cr_expect_eq(dsf_f32_to_e4m3(nextafterf(middle, 0)), c, "%#x", c);
        cr_expect_eq(dsf_f32_to_e4m3(nextafterf(middle, 1000)), c + 1, "%#x", c);
        cr_expect_eq(dsf_f32_to_e4m3(-middle), (c + c % 2) | 0x80, "%#x", c);
    }
}

Test(num, e4m3_saturates_and_keeps_nan)
{
    const float big[] = {448, 449, 464, 465, 480, 512, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof big / sizeof big[0]; i++) {
        cr_expect_eq(dsf_f32_to_e4m3(big[i]), 0x7E, "%g", (double)big[i]);
        cr_expect_eq(dsf_f32_to_e4m3(-big[i]), 0xFE, "%g", (double)big[i]);
    }
    cr_expect_eq(dsf_f32_to_e4m3(NAN) & 0x7F, 0x7F);
    cr_expect_eq(dsf_f32_to_e4m3(-0.0f), 0x80);
}

/* [B-11] */
Test(num, every_bf16_rounds_to_the_nearest_e4m3_and_e2m1)
{
    for (int h = 0; h < 0x7F80; h++) {
        float a = dsf_bf16_to_f32((uint16_t)h);
        int want8 = nearest(e4m3_value, 0x7F, (double)a), want4 = nearest(e2m1_value, 8, (double)a);
        cr_assert_eq(dsf_f32_to_e4m3(a), want8, "%#x", h);
        cr_assert_eq(dsf_f32_to_e4m3(-a), want8 | 0x80, "%#x", h);
        cr_assert_eq(dsf_f32_to_e2m1(a), (unsigned)want4, "%#x", h);
        cr_assert_eq(dsf_f32_to_e2m1(-a), (unsigned)want4 | 8, "%#x", h);
    }
}

/* [B-10] */
Test(num, all_e2m1_codes_decode_and_survive)
{
    for (int c = 0; c < 16; c++) {
        float v = dsf_e2m1_to_f32((unsigned)c);
        cr_expect((double)v == e2m1_value(c) && !signbit(v) == !(c & 8), "%d: %g", c, (double)v);
        cr_expect_eq(dsf_f32_to_e2m1(v), (unsigned)c);
    }
}

/* [B-11] */
Test(num, e2m1_ties_go_to_even_and_only_ties)
{
    for (int c = 0; c < 7; c++) {
        float middle = (float)((e2m1_value(c) + e2m1_value(c + 1)) / 2);
        cr_expect_eq(dsf_f32_to_e2m1(middle), (unsigned)(c + c % 2), "%d", c);
        cr_expect_eq(dsf_f32_to_e2m1(nextafterf(middle, 0)), (unsigned)c, "%d", c);
        cr_expect_eq(dsf_f32_to_e2m1(nextafterf(middle, 9)), (unsigned)c + 1, "%d", c);
    }
    cr_expect_eq(dsf_f32_to_e2m1(1e30f), 7u);
    cr_expect_eq(dsf_f32_to_e2m1(-INFINITY), 15u);
}

Test(num, all_bf16_survive_a_round_trip)
{
    for (int h = 0; h < 65536; h++) {
        float v = dsf_bf16_to_f32((uint16_t)h);
        if (isnan(v)) {
            cr_assert(isnan(dsf_bf16_to_f32(dsf_f32_to_bf16(v))), "%#x", h);
        } else {
            cr_assert_eq(dsf_f32_to_bf16(v), h);
            cr_assert_eq(dsf_f64_to_bf16((double)v), h);
        }
    }
    cr_expect(isnan(dsf_bf16_to_f32(dsf_f32_to_bf16(dsf_f32_from_bits(0x7F800001)))),
              "a NaN whose payload is lost must not become infinity");
    cr_expect(isnan(dsf_bf16_to_f32(dsf_f32_to_bf16(dsf_f32_from_bits(0xFFFFFFFF)))));
}

Test(num, bf16_ties_go_to_even_and_only_ties)
{
    for (uint32_t h = 0; h < 0x7F80; h++) { /* the last rounds to infinity */
        uint32_t middle = h << 16 | 0x8000;
        cr_assert_eq(dsf_f32_to_bf16(dsf_f32_from_bits(middle)), h + (h & 1));
        cr_assert_eq(dsf_f32_to_bf16(dsf_f32_from_bits(middle - 1)), h);
        cr_assert_eq(dsf_f32_to_bf16(dsf_f32_from_bits(middle + 1)), h + 1);
        cr_assert_eq(dsf_f32_to_bf16(dsf_f32_from_bits(middle | 0x80000000)),
                     (h + (h & 1)) | 0x8000);
    }
}

/* The model's accumulators are f32: a sum beside a tie by less than f32 holds falls on the tie. */
Test(num, double_to_bf16_rounds_through_f32)
{
    for (uint32_t h = 0; h < 0x7F7F; h++) {
        double middle = (double)dsf_f32_from_bits(h << 16 | 0x8000);
        double below = nextafter(middle, 0), above = nextafter(middle, INFINITY);
        cr_assert_eq(dsf_f64_to_bf16(middle), h + (h & 1), "%#x", h);
        cr_assert_eq(dsf_f64_to_bf16(below), h + (h & 1), "%#x", h);
        cr_assert_eq(dsf_f64_to_bf16(above), h + (h & 1), "%#x", h);
        cr_assert_eq(dsf_f64_to_bf16(-above), (h + (h & 1)) | 0x8000, "%#x", h);
    }
    cr_expect_eq(dsf_f64_to_bf16(1e-300), 0);
    cr_expect_eq(dsf_f64_to_bf16(-1e-300), 0x8000);
    cr_expect_eq(dsf_f64_to_bf16(1e300), 0x7F80);
    cr_expect_eq(dsf_f64_to_bf16(-INFINITY), 0xFF80);
    cr_expect(isnan(dsf_bf16_to_f32(dsf_f64_to_bf16((double)NAN))));
}

/* [B-04] [B-12] */
Test(num, powers_of_two_are_exact_down_to_the_smallest)
{
    for (int k = -149; k <= 127; k++) cr_expect(dsf_pow2(k) == ldexpf(1, k), "%d", k);
    for (int u = 0; u < 255; u++)
        cr_expect(dsf_e8m0_to_f32((uint8_t)u) == ldexpf(1, u - 127), "%d", u);
    cr_expect(isnan(dsf_e8m0_to_f32(255)));
}

/* [B-01] */
Test(num, pow2ceil_is_the_least_power_not_below)
{
    for (int h = 0x0200; h < 0x7F80; h++) {
        float a = dsf_bf16_to_f32((uint16_t)h);
        for (int i = 0; i < 2; i++) {
            float c = i ? 1.0f / 6.0f : 1.0f / 448.0f, p = a * c;
            int k = dsf_pow2ceil(a, c);
            if (p < 0x1p-126f) continue;
            cr_assert(ldexp(1, k) >= (double)p && ldexp(1, k - 1) < (double)p, "%g", (double)a);
        }
    }
}

Test(vectors, pow2ceil)
{
    dsf_json_doc *doc = vectors_open();
    int n = 0;
    for (const dsf_json *v = dsf_json_first(vector(doc, "pow2ceil")); v;
         v = dsf_json_next(v), n++) {
        bool fp8 = strcmp(dsf_json_text(dsf_json_get(v, "inv"), NULL), "1/448") == 0;
        int k =
            dsf_pow2ceil((float)number(dsf_json_get(v, "amax")), fp8 ? 1.0f / 448.0f : 1.0f / 6.0f);
        cr_expect_eq(k, (int)number(dsf_json_get(v, "k")), "vector %d", n);
    }
    cr_expect_eq(n, 12);
    dsf_json_free(doc);
}

typedef struct {
    const char *name, *codes, *scales;
    void (*row)(uint8_t *out, const uint16_t *x, int64_t d);
    void (*unpack)(uint16_t *out, const uint8_t *rec, int64_t d);
} format_vector;

static void check_format(dsf_json_doc *doc, const format_vector *f)
{
    uint16_t x[64], back[64], want[64];
    uint8_t record[128], codes[64], scales[8];
    const dsf_json *v = vector(doc, f->name);
    int d = halves(dsf_json_get(v, "x_bf16_hex"), x, 64);
    int n_codes = bytes_of_hex(dsf_json_get(v, f->codes), codes, 64);
    int n_scales = bytes_of_numbers(dsf_json_get(v, f->scales), scales, 8);
    f->row(record, x, d);
    cr_expect_arr_eq(record, codes, (size_t)n_codes, "%s: codes", f->name);
    cr_expect_arr_eq(record + n_codes, scales, (size_t)n_scales, "%s: scales", f->name);
    cr_assert_eq(halves(dsf_json_get(v, "dequant_bf16_hex"), want, 64), d);
    f->unpack(back, record, d);
    cr_expect_arr_eq(back, want, (size_t)d * 2, "%s: round trip", f->name);
}

/* [B-02] */
Test(vectors, quantisers)
{
    const format_vector all[] = {
        {"q8_random", "codes_hex", "scale_bytes", dsf_q8_row, dsf_q8_unpack},
        {"q8_edge", "codes_hex", "scale_bytes", dsf_q8_row, dsf_q8_unpack},
        {"q4_index_ties", "packed_hex", "scale_bytes", dsf_q4x_row, dsf_q4x_unpack},
        {"q4_index_random", "packed_hex", "scale_bytes", dsf_q4x_row, dsf_q4x_unpack},
        {"q4_mainkv_random", "packed_hex", "scale_e4m3_bytes", dsf_q4n_row, dsf_q4n_unpack},
        {"q4_mainkv_zero_and_big", "packed_hex", "scale_e4m3_bytes", dsf_q4n_row, dsf_q4n_unpack},
    };
    dsf_json_doc *doc = vectors_open();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) check_format(doc, &all[i]);
    dsf_json_free(doc);
}

enum { PAIRS = 32 };

static void check_rope(dsf_json_doc *doc, const dsf_json *v, const uint16_t *x)
{
    float freq[PAIRS], cs[2 * PAIRS];
    uint16_t want[2 * PAIRS], got[2 * PAIRS], back[2 * PAIRS];
    int32_t pos = (int32_t)number(dsf_json_get(v, "pos"));
    const char *table = dsf_json_text(dsf_json_get(v, "table"), NULL);
    cr_assert_eq(floats(dsf_json_get(vector(doc, "rope_freqs"), table), freq, PAIRS), PAIRS);
    cr_assert_eq(halves(dsf_json_get(v, "y_bf16_hex"), want, 2 * PAIRS), 2 * PAIRS);
    dsf_launch lc = {0};
    dsf_rope_table_args t = {
        {cs, DSF_F32, 3, {1, PAIRS, 2}}, {&pos, DSF_I32, 1, {1}}, {freq, DSF_F32, 1, {PAIRS}}};
    cr_assert_eq(dsf_rope_table_ref(&lc, &t), DSF_OK);
    dsf_rope_args r = {{got, DSF_BF16, 3, {1, 1, 2 * PAIRS}},
                       {(void *)x, DSF_BF16, 3, {1, 1, 2 * PAIRS}},
                       t.cs,
                       0};
    cr_assert_eq(dsf_rope_ref(&lc, &r), DSF_OK);
    cr_expect_arr_eq(got, want, sizeof want, "%s at %d", table, pos);
    r.out.data = back;
    r.x.data = got;
    r.inverse = 1;
    cr_assert_eq(dsf_rope_ref(&lc, &r), DSF_OK);
    for (int i = 0; i < 2 * PAIRS; i++)
        cr_expect_float_eq(dsf_bf16_to_f32(back[i]), dsf_bf16_to_f32(x[i]), 0.04f,
                           "the inverse undoes it up to bf16");
}

/* [B-22] */
Test(vectors, rope)
{
    dsf_json_doc *doc = vectors_open();
    const dsf_json *all = vector(doc, "rope");
    uint16_t x[2 * PAIRS];
    cr_assert_eq(halves(dsf_json_get(all, "x_bf16_hex"), x, 2 * PAIRS), 2 * PAIRS);
    int n = 0;
    const dsf_json *v = dsf_json_first(dsf_json_get(all, "cases"));
    for (; v; v = dsf_json_next(v), n++) check_rope(doc, v, x);
    cr_expect_eq(n, 4);
    dsf_json_free(doc);
}

/* The coefficient predictor fed with given projections: x of ones has mean square 1, and row m of
 * the matrix holds the projection in its first column. [B-20] */
Test(vectors, hc_split)
{
    dsf_json_doc *doc = vectors_open();
    const dsf_json *v = vector(doc, "hc_split");
    enum { D = 4, Q = 4 * D, M = 24 };
    float mixes[M], fn[M * Q] = {0}, base[M], scale[3], pre[4], post[4], comb[16];
    float want_pre[4], want_post[4], want_comb[16];
    uint16_t x[Q];
    cr_assert_eq(floats(dsf_json_get(v, "mixes"), mixes, M), M);
    cr_assert_eq(floats(dsf_json_get(v, "base"), base, M), M);
    cr_assert_eq(floats(dsf_json_get(v, "scale"), scale, 3), 3);
    cr_assert_eq(floats(dsf_json_get(v, "pre"), want_pre, 4), 4);
    cr_assert_eq(floats(dsf_json_get(v, "post"), want_post, 4), 4);
    cr_assert_eq(floats(dsf_json_get(v, "comb_jk"), want_comb, 16), 16);
    for (int m = 0; m < M; m++) fn[m * Q] = mixes[m];
    for (int i = 0; i < Q; i++) x[i] = 0x3F80;
    dsf_launch lc = {0};
    dsf_hc_mix_args a = {{pre, DSF_F32, 2, {1, 4}},
                         {post, DSF_F32, 2, {1, 4}},
                         {comb, DSF_F32, 3, {1, 4, 4}},
                         {x, DSF_BF16, 3, {1, 4, D}},
                         {fn, DSF_F32, 2, {M, Q}},
                         {base, DSF_F32, 1, {M}},
                         {scale, DSF_F32, 1, {3}},
                         1e-20f,
                         1e-6f,
                         20};
    cr_assert_eq(dsf_hc_mix_ref(&lc, &a), DSF_OK);
    for (int k = 0; k < 4; k++) {
        cr_expect_float_eq(pre[k], want_pre[k], 2e-7f, "pre %d", k);
        cr_expect_float_eq(post[k], want_post[k], 4e-7f, "post %d", k);
    }
    for (int k = 0; k < 16; k++) cr_expect_float_eq(comb[k], want_comb[k], 4e-7f, "comb %d", k);
    dsf_json_free(doc);
}
