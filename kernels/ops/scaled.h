/* Bounds and input domains of products with block-scaled or bf16 operands, for the contract tables.
 *
 * Domain: an activation record holds what the quantiser writes for |x| < 2^34 (scale bytes
 * 105..152: the floor 1e-4 gives 2^-22); a weight scale is at most 2^60 (byte 187) and may go down
 * to 2^-127 (byte 0); bf16 operands stay below 2^56. Then no product, block partial or running sum
 * of up to 2^14 terms leaves the f32 range, whatever its order. */
#ifndef DSF_OPS_SCALED_H
#define DSF_OPS_SCALED_H

#include "base/num.h"
#include "base/tensor.h"
#include "ops/fp8_sum.h"

enum { DSF_Q8_SCALE_LEAST = 105, DSF_Q8_SCALE_MOST = 152, DSF_WEIGHT_SCALE_MOST = 187 };

/* Moves a byte into lo..hi; bytes already there stay. */
static inline uint8_t dsf_limit_byte(uint8_t b, int lo, int hi)
{
    return b < lo || b > hi ? (uint8_t)(lo + b % (hi - lo + 1)) : b;
}

/* e4m3 has two NaN codes; they become +-448. */
static inline void dsf_limit_codes(uint8_t *code, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((code[i] & 0x7F) == 0x7F) code[i] ^= 1;
}

static inline void dsf_limit_scales(const dsf_tensor *t)
{
    uint8_t *s = (uint8_t *)t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++)
        s[i] = dsf_limit_byte(s[i], 0, DSF_WEIGHT_SCALE_MOST);
}

static inline void dsf_limit_q8(const dsf_tensor *t)
{
    int64_t d = t->dim[t->rank - 1];
    for (int64_t i = 0; i < dsf_tensor_rows(t); i++) {
        uint8_t *rec = (uint8_t *)t->data + i * (d + d / 32);
        dsf_limit_codes(rec, d);
        for (int64_t b = d; b < d + d / 32; b++)
            rec[b] = dsf_limit_byte(rec[b], DSF_Q8_SCALE_LEAST, DSF_Q8_SCALE_MOST);
    }
}

static inline void dsf_limit_bf16(const dsf_tensor *t)
{
    uint16_t *v = (uint16_t *)t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++)
        if ((v[i] & 0x7F80) >= (127 + 56) << 7)
            v[i] = (uint16_t)((v[i] & 0x807F) | (127 + 55) << 7);
}

/* What is beyond +-limit keeps its remainder. */
static inline void dsf_limit_f32(const dsf_tensor *t, float limit)
{
    float *v = (float *)t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++)
        if (fabsf(v[i]) > limit) v[i] = fmodf(v[i], limit);
}

/* Numbers of at least this size become 2^-70 of themselves. */
static inline void dsf_shrink_bf16(const dsf_tensor *t, float least)
{
    uint16_t *v = (uint16_t *)t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++)
        if (fabsf(dsf_bf16_to_f32(v[i])) >= least)
            v[i] = dsf_f32_to_bf16(dsf_bf16_to_f32(v[i]) * 0x1p-70f);
}

static inline double dsf_q8_abs(const uint8_t *rec, int64_t d, int64_t c)
{
    return fabs((double)dsf_e4m3_to_f32(rec[c]) * (double)dsf_e8m0_to_f32(rec[d + c / 32]));
}

static inline double dsf_bf16_abs(uint16_t h) { return fabs((double)dsf_bf16_to_f32(h)); }

/* The f32 error of a k-term product in units of 2^-24, to be used with k = 1: a term passes through
 * at most 8 roundings inside its group of 128, then one for each group, then 4 of the lane tree.
 * Every operation may also lose 2^-150 where it falls below the normal range. */
static inline double dsf_sum_bound(double abs_sum, int64_t k)
{
    int64_t roundings = 12 + (k + 127) / 128;
    return (double)roundings * abs_sum + (double)k * 0x1p-126;
}

/* What a sum of the tensor core (ops/fp8_sum.h) may lose, at most, as a share of the largest
 * product, where that is not below its place: 2 to the sum of its operands' exponents (normal
 * codes). */
#define DSF_FP8_BLOCK_LOSS (64 * 0x1p-13)

/* Of one block of linear_g8, in units of 2^-24 of the result. */
static inline double dsf_fp8_block_bound(const uint8_t *x, const uint8_t *w, uint8_t x_scale,
                                         uint8_t w_scale)
{
    double place = 0, sum = 0;
    for (int c = 0; c < 32; c++) {
        double v = (double)dsf_e4m3_to_f32(x[c]) * (double)dsf_e4m3_to_f32(w[c]);
        sum += v;
        if (v != 0)
            place = fmax(place, dsf_pow2(dsf_e4m3_exponent(x[c]) + dsf_e4m3_exponent(w[c])));
    }
    double lost = 0x1p-13 * (DSF_FP8_SUM_TERMS * place + fabs(sum));
    return 0x1p24 * lost * (double)dsf_e8m0_to_f32(x_scale) * (double)dsf_e8m0_to_f32(w_scale);
}

#define DSF_SUM_WHY                                                                                \
    "k = 1: the bound counts roundings itself: (8 in a group + groups of 128 + 4 of the tree) "    \
    "sum|ab|; products are exact, power-of-two scales too"

#endif
