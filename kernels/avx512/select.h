/* The k best of bf16 scores. Scores become 16-bit numbers in the same order, a bisection finds the
 * k-th best (16 counting passes, whatever the data), one pass collects positions in ascending
 * order. */
#ifndef DSF_AVX512_SELECT_H
#define DSF_AVX512_SELECT_H

#include <immintrin.h>
#include <stdint.h>

enum { DSF_SELECT_LANES = 32 };
enum { DSF_SELECT_MINUS_INF = 0x007F }; /* what -inf becomes */

/* 32 scores as numbers whose unsigned order is theirs: NaN is -inf, both zeros are one. */
static inline __m512i dsf_select_order(__m512i x)
{
    __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7FFF));
    __mmask32 nan = _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(0x7F80));
    x = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(magnitude, magnitude), x);
    x = _mm512_mask_mov_epi16(x, nan, _mm512_set1_epi16((short)0xFF80));
    __m512i flip = _mm512_or_si512(_mm512_srai_epi16(x, 15), _mm512_set1_epi16((short)0x8000));
    return _mm512_xor_si512(x, flip);
}

/* Lanes of a vector that holds the numbers at..n-1. */
static inline __mmask32 dsf_select_mask(int64_t at, int64_t n)
{
    return n - at < DSF_SELECT_LANES ? (1u << (n - at)) - 1 : 0xFFFFFFFFu;
}

/* How many are at least the threshold. */
static inline int64_t dsf_select_count(const uint16_t *x, int64_t n, unsigned threshold)
{
    __m512i t = _mm512_set1_epi16((short)threshold);
    int64_t count = 0;
    for (int64_t at = 0; at < n; at += DSF_SELECT_LANES) {
        __mmask32 mask = dsf_select_mask(at, n);
        __m512i v = _mm512_maskz_loadu_epi16(mask, x + at);
        count += __builtin_popcount(_mm512_mask_cmpge_epu16_mask(mask, v, t));
    }
    return count;
}

/* Positions in x of its k largest that are at least `least` (ties: the first ones), ascending.
 * Returns how many. */
static inline int64_t dsf_select_best(int32_t *best, int64_t k, const uint16_t *x, int64_t n,
                                      unsigned least)
{
    unsigned low = least, high = 0x10000; /* at least k are >= low, if as many are >= least */
    int64_t ties = n, kept = 0;
    if (dsf_select_count(x, n, least) > k) {
        while (high - low > 1) {
            unsigned mid = low + (high - low) / 2;
            if (dsf_select_count(x, n, mid) >= k)
                low = mid;
            else
                high = mid;
        }
        ties = k - (high < 0x10000 ? dsf_select_count(x, n, high) : 0);
    }
    for (int64_t at = 0; at < n; at += DSF_SELECT_LANES) {
        __mmask32 in = dsf_select_mask(at, n);
        __m512i v = _mm512_maskz_loadu_epi16(in, x + at), t = _mm512_set1_epi16((short)low);
        uint32_t taken = _mm512_mask_cmpge_epu16_mask(in, v, t);
        uint32_t equal = _mm512_mask_cmpeq_epu16_mask(in, v, t);
        for (; taken; taken &= taken - 1) {
            uint32_t bit = taken & -taken;
            if (equal & bit && ties-- <= 0) continue;
            best[kept++] = (int32_t)(at + __builtin_ctz(taken));
        }
    }
    return kept;
}

#endif
