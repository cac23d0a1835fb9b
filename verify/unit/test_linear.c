#include "ops/linear.h"

#include "op_variants.h"
#include "ops/moe.h"

/* K: two whole groups of 128 and one block. N: few rows, row tiles with a remainder, row blocks. */
enum { K = 288, N_MAX = 140 };
static const int row_counts[] = {1, 5, 8, 9, N_MAX};

static uint8_t x8[N_MAX * (K + K / 32)], w8[K * K], s8[K * (K / 32)];
static uint16_t x16[N_MAX * K], w16[K * K], out16[N_MAX * K];
static float out32[N_MAX * K];

/* Activations: every code but NaN, every scale that the quantiser writes for small numbers. */
static void fill_q8(uint8_t *rec, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++, rec += K + K / 32)
        for (int c = 0; c < K + K / 32; c++) {
            int64_t r = dsf_fill_below(&seed, 256);
            rec[c] = c < K ? (uint8_t)((r & 127) == 127 ? r - 1 : r) : (uint8_t)(105 + r % 40);
        }
}

static double q8_value(int row, int c)
{
    const uint8_t *rec = x8 + row * (K + K / 32);
    return (double)dsf_e4m3_to_f32(rec[c]) * (double)dsf_e8m0_to_f32(rec[K + c / 32]);
}

static void expect_channels_q8(const char *name, int n, int scale_rows)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < K; c++) {
            double scale = dsf_e8m0_to_f32(s8[c / scale_rows * (K / 32) + c / 32]);
            double want = q8_value(i, c) * scale;
            cr_assert_eq((double)dsf_bf16_to_f32(out16[i * K + c]), want,
                         "%s, %d rows: row %d channel %d is %g, not %g", name, n, i, c,
                         (double)dsf_bf16_to_f32(out16[i * K + c]), want);
        }
}

/* W = identity: output c must be channel c times its scale, exactly: a channel that meets another's
 * weight or another block's scale shows, at any place and for any number of rows. [B-03] [B-08] */
Test(linear, g8_identity_returns_every_channel_with_its_scale)
{
    fill_q8(x8, N_MAX, 1);
    for (int c = 0; c < K; c++) w8[c * K + c] = 0x38; /* 1 */
    for (int b = 0; b < K / 32 * (K / 32); b++) s8[b] = (uint8_t)(100 + b);
    for (size_t r = 0; r < sizeof row_counts / sizeof row_counts[0]; r++) {
        int n = row_counts[r];
        dsf_linear_g8_args a = {tensor_of(out16, DSF_BF16, n, K, 0), tensor_of(x8, DSF_Q8, n, K, 0),
                                tensor_of(w8, DSF_E4M3, K, K, 0),
                                tensor_of(s8, DSF_E8M0, K / 32, K / 32, 0)};
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_linear_g8, v));) {
            variant_run(v, &a);
            expect_channels_q8(v->name, n, 32);
        }
    }
}

/* The same for fp4 weights: the low nibble is the even channel, scales are by output. [B-04] [B-07]
 */
Test(linear, g4_identity_returns_every_channel_with_its_scale)
{
    fill_q8(x8, N_MAX, 2);
    for (int c = 0; c < K; c++) w8[c * (K / 2) + c / 2] = c % 2 ? 0x20 : 0x02; /* 1 */
    for (int b = 0; b < K * (K / 32); b++) s8[b] = (uint8_t)(90 + b % 71);
    int32_t ids[N_MAX] = {0};
    int64_t codes = (int64_t)(uintptr_t)w8, scales = (int64_t)(uintptr_t)s8;
    for (size_t r = 0; r < sizeof row_counts / sizeof row_counts[0]; r++) {
        int n = row_counts[r];
        dsf_experts_down_args a = {.out = tensor_of(out16, DSF_BF16, n, 1, K),
                                   .h = tensor_of(x8, DSF_Q8, n, 1, K),
                                   .ids = tensor_of(ids, DSF_I32, n, 1, 0),
                                   .w2 = tensor_of(&codes, DSF_I64, 1, 0, 0),
                                   .s2 = tensor_of(&scales, DSF_I64, 1, 0, 0)};
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_experts_down, v));) {
            variant_run(v, &a);
            expect_channels_q8(v->name, n, 1);
        }
    }
}

static void fill_bf16(int n, uint64_t seed)
{
    for (int i = 0; i < n * K; i++)
        x16[i] =
            (uint16_t)((0x3000 + dsf_fill_below(&seed, 0x2000)) | dsf_fill_below(&seed, 2) << 15);
}

/* wo_a: two groups of half the outputs, each with its own columns of x and block of w; x stays
 * bf16. */
Test(linear, group_identity_returns_every_channel_of_its_group)
{
    enum { G = 2, KG = 160, OG = KG };
    memset(w8, 0, sizeof w8);
    fill_bf16(N_MAX, 3);
    for (int c = 0; c < G * KG; c++) w8[c * KG + c % KG] = 0x38;
    for (int b = 0; b < G * (OG / 32) * (KG / 32); b++) s8[b] = (uint8_t)(100 + b);
    for (size_t r = 0; r < 3; r++) {
        static const int counts[] = {1, 7, 70}; /* n * G * KG fits */
        int n = counts[r];
        dsf_linear_group_args a = {
            tensor_of(out16, DSF_BF16, n, G, OG), tensor_of(x16, DSF_BF16, n, G, KG),
            tensor_of(w8, DSF_E4M3, G, OG, KG), tensor_of(s8, DSF_E8M0, G, OG / 32, KG / 32)};
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_linear_group, v));) {
            variant_run(v, &a);
            for (int i = 0; i < n * G * KG; i++) {
                int c = i % (G * KG);
                float scale = dsf_e8m0_to_f32(s8[c / 32 * (KG / 32) + c % KG / 32]);
                float want = dsf_bf16_to_f32(x16[i]) * scale;
                cr_assert_eq(dsf_bf16_to_f32(out16[i]), want, "%s, %d rows: element %d", v->name, n,
                             i);
            }
        }
    }
}

/* bf16 products keep subnormals, which the processor's own bf16 instructions do not. */
Test(linear, bf16_identity_returns_every_channel_and_subnormals)
{
    fill_bf16(N_MAX, 4);
    for (int i = 0; i < 40; i++) x16[i] = (uint16_t)(1 + 3 * i); /* below 2^-126 */
    for (int c = 0; c < K; c++) w16[c * K + c] = 0x3F80;
    for (size_t r = 0; r < sizeof row_counts / sizeof row_counts[0]; r++) {
        int n = row_counts[r];
        dsf_linear_args a = {tensor_of(out16, DSF_BF16, n, K, 0), tensor_of(x16, DSF_BF16, n, K, 0),
                             tensor_of(w16, DSF_BF16, K, K, 0)};
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_linear_gb, v));) {
            variant_run(v, &a);
            for (int i = 0; i < n * K; i++) cr_assert_eq(out16[i], x16[i], "%s: %d", v->name, i);
        }
        a.out = tensor_of(out32, DSF_F32, n, K, 0);
        for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_linear_gf, v));) {
            variant_run(v, &a);
            for (int i = 0; i < n * K; i++)
                cr_assert_eq(out32[i], dsf_bf16_to_f32(x16[i]), "%s: %d", v->name, i);
        }
    }
}

/* One accumulation order for every number of rows: alone, in a few, in row blocks. [B-09] */
Test(linear, a_row_has_the_same_bits_in_any_company)
{
    static uint16_t alone[K];
    fill_bf16(N_MAX, 5);
    uint64_t seed = 6;
    for (int i = 0; i < K * K; i++)
        w16[i] =
            (uint16_t)((0x3C00 + dsf_fill_below(&seed, 0x300)) | dsf_fill_below(&seed, 2) << 15);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_linear_gb, v));)
        for (size_t r = 1; r < sizeof row_counts / sizeof row_counts[0]; r++) {
            int n = row_counts[r];
            dsf_linear_args a = {tensor_of(out16, DSF_BF16, n, K, 0),
                                 tensor_of(x16, DSF_BF16, n, K, 0),
                                 tensor_of(w16, DSF_BF16, K, K, 0)};
            variant_run(v, &a);
            for (int i = 0; i < n; i++) {
                a.x = tensor_of(x16 + i * K, DSF_BF16, 1, K, 0);
                a.out = tensor_of(alone, DSF_BF16, 1, K, 0);
                variant_run(v, &a);
                cr_assert_arr_eq(alone, out16 + i * K, sizeof alone, "%s: row %d of %d", v->name, i,
                                 n);
            }
        }
}
