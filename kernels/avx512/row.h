/* Sixteen channels of a bf16 row in and out, with a mask for the end of the row. */
#ifndef DSF_AVX512_ROW_H
#define DSF_AVX512_ROW_H

#include "lane.h"

/* Lanes of channels c..c+15 below d; c < d. */
static inline __mmask16 dsf_row_mask(int64_t c, int64_t d)
{
    return d - c >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << (d - c)) - 1);
}

/* Lanes beyond the mask are 0. */
static inline __m512 dsf_row_load(const uint16_t *p, __mmask16 m)
{
    return dsf_lane_from_bf16(_mm256_maskz_loadu_epi16(m, p));
}

/* One rounding, nearest even; every NaN becomes the quiet one, whatever its payload. */
static inline void dsf_row_store(uint16_t *p, __mmask16 m, __m512 x)
{
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m256i h = dsf_lane_to_bf16(dsf_lane_round_bf16(x));
    _mm256_mask_storeu_epi16(p, m, _mm256_mask_mov_epi16(h, nan, _mm256_set1_epi16(0x7FC0)));
}

/* Sum of the squares of d bf16 numbers: products exact, sums in double over 16 lanes. */
static inline double dsf_row_squares(const uint16_t *x, int64_t d)
{
    __m512d low = _mm512_setzero_pd(), high = low;
    for (int64_t c = 0; c < d; c += 16) {
        __m512 v = dsf_row_load(x + c, dsf_row_mask(c, d));
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        low = _mm512_fmadd_pd(a, a, low);
        high = _mm512_fmadd_pd(b, b, high);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
}

#endif
