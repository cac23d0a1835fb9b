/* Sixteen f32 lanes: bf16 rounding, number formats, the exponential. */
#ifndef DSF_AVX512_LANE_H
#define DSF_AVX512_LANE_H

#include <immintrin.h>
#include <stdint.h>

/* 16 bf16 to f32. */
static inline __m512 dsf_lane_from_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Round to the bf16 grid, nearest even, and stay f32. By integers and not by vcvtneps2bf16, which
 * takes subnormals as zero. Not for NaN payloads of all ones below bit 16. */
static inline __m512 dsf_lane_round_bf16(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xFFFF0000)));
}

/* Upper halves of the lanes: bf16 of values already on the grid. */
static inline __m256i dsf_lane_to_bf16(__m512 x)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16));
}

/* 16 e4m3 codes. As f16 the exponent counts from 15 instead of 7, which 2^8 makes up for. By way of
 * f16, because its subnormals convert at full speed; those of f32 cost an assist of 100 cycles. */
static inline __m512 dsf_lane_from_e4m3(__m128i code)
{
    __m256i c = _mm256_cvtepi8_epi16(code);
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(c, 7), _mm256_set1_epi16((short)0xBF80));
    __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(c, _mm256_set1_epi16(0x7F)),
                                            _mm256_set1_epi16(0x7F));
    __m512 x = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
    return _mm512_mask_mov_ps(x, nan, _mm512_set1_ps(__builtin_nanf("")));
}

/* e^x for x <= 0 or NaN, at most 1 ulp off: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor to r^7 (the
 * rest is below 2^-27), scaled by 2^n with gradual underflow. */
static inline __m512 dsf_lane_exp(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x); /* 0 from there on; the second operand if NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r =
        _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);    /* ln 2 in two parts: n times */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r); /* the first is exact */
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

#endif
