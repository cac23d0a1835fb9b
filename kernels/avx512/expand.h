/* Groups of 128 channels of the storage formats, expanded exactly to eight f32 vectors. In which
 * order the channels lie in the vectors depends on the format; weights and activations of one
 * product use the same one. In every order the four lanes 4 q .. 4 q + 3 of each vector belong to
 * the group's q-th block of 32, so that one vector of scales serves all eight.
 *
 *   E2M1 order  vector j, lane i                 channel 8 i + j
 *   E4M3 order  vector 2 m + h, lane 4 q + t     channel 32 q + 8 m + 2 t + h
 *   BF16 order  vector 2 m + h, lane t           channel 32 m + 2 t + h
 *
 * `valid` channels exist (up to 128); the others are read as zero, and not touched in memory. */
#ifndef DSF_AVX512_EXPAND_H
#define DSF_AVX512_EXPAND_H

#include <immintrin.h>
#include <stdint.h>

#if defined(__clang__)
#define DSF_UNROLL _Pragma("unroll")
#else
#define DSF_UNROLL _Pragma("GCC unroll 24")
#endif
#define DSF_INLINE static inline __attribute__((always_inline))

enum { DSF_GROUP = 128, DSF_GROUP_VECTORS = 8 };

/* The low `n` bits set; n from 0 (or below) to 64 (or above). */
DSF_INLINE __mmask64 dsf_mask_low(int64_t n)
{
    return n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1;
}

/* 64 bytes or 32 words at p, of which the first n exist. A constant n >= 64 makes a plain load. */
DSF_INLINE __m512i dsf_load_bytes(const void *p, int64_t n)
{
    return n >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(dsf_mask_low(n), p);
}

DSF_INLINE __m512i dsf_load_words(const void *p, int64_t n)
{
    return n >= 32 ? _mm512_loadu_si512(p)
                   : _mm512_maskz_loadu_epi16((__mmask32)dsf_mask_low(n), p);
}

/* bf16 of the e4m3 code c in 0..127: the exponent counts from 127 instead of 7; the eight
 * subnormal codes are m 2^-9. */
#define DSF_E4M3_BF16(c)                                                                           \
    ((c) == 0x7F ? 0x7FC0                                                                          \
     : (c) >= 8  ? ((c) << 4) + (120 << 7)                                                         \
     : (c) >= 4  ? (120 << 7) + ((c)-4) * 32                                                       \
     : (c) >= 2  ? (119 << 7) + ((c)-2) * 64                                                       \
                 : (c) * (118 << 7))
#define DSF_HIGH(c) DSF_E4M3_BF16(c) >> 8
#define DSF_LOW(c)  DSF_E4M3_BF16(c) & 255
#define DSF_ROW8(f, c)                                                                             \
    f((c) + 0), f((c) + 1), f((c) + 2), f((c) + 3), f((c) + 4), f((c) + 5), f((c) + 6), f((c) + 7)
#define DSF_ROW64(f, c)                                                                            \
    DSF_ROW8(f, c), DSF_ROW8(f, (c) + 8), DSF_ROW8(f, (c) + 16), DSF_ROW8(f, (c) + 24),            \
        DSF_ROW8(f, (c) + 32), DSF_ROW8(f, (c) + 40), DSF_ROW8(f, (c) + 48), DSF_ROW8(f, (c) + 56)

static const uint8_t dsf_e4m3_high[128]
    __attribute__((aligned(64))) = {DSF_ROW64(DSF_HIGH, 0), DSF_ROW64(DSF_HIGH, 64)};
static const uint8_t dsf_e4m3_low[128]
    __attribute__((aligned(64))) = {DSF_ROW64(DSF_LOW, 0), DSF_ROW64(DSF_LOW, 64)};

/* Two bf16 in every dword: even words to v[0], odd ones to v[1]. */
DSF_INLINE void dsf_split_bf16(__m512i pairs, __m512 *v)
{
    v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    v[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xFFFF0000)));
}

/* 64 codes. Unpacking interleaves inside each 16 codes: the first eight of them go to v[0] and
 * v[1], the last eight to v[2] and v[3]. */
DSF_INLINE void dsf_expand_codes(__m512i code, __m512 *v)
{
    __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(dsf_e4m3_high), code,
                                            _mm512_load_si512(dsf_e4m3_high + 64));
    __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(dsf_e4m3_low), code,
                                           _mm512_load_si512(dsf_e4m3_low + 64));
    high = _mm512_ternarylogic_epi32(high, code, _mm512_set1_epi8((char)0x80), 0xF8); /* the sign */
    dsf_split_bf16(_mm512_unpacklo_epi8(low, high), v);
    dsf_split_bf16(_mm512_unpackhi_epi8(low, high), v + 2);
}

DSF_INLINE void dsf_expand_e4m3(const uint8_t *w, int64_t valid, __m512 *v)
{
    __m512i a = dsf_load_bytes(w, valid);
    __m512i b = dsf_load_bytes(w + 64, valid - 64);
    dsf_expand_codes(_mm512_shuffle_i64x2(a, b, 0x88), v); /* the first half of each block */
    dsf_expand_codes(_mm512_shuffle_i64x2(a, b, 0xDD), v + 4);
}

/* The same codes in E2M1 order: a permutation inside each block of 32. */
#define DSF_ORDER(q, m)                                                                            \
    32 * (q) + 2 * (m), 32 * (q) + 2 * (m) + 1, 32 * (q) + 2 * (m) + 8, 32 * (q) + 2 * (m) + 9,    \
        32 * (q) + 2 * (m) + 16, 32 * (q) + 2 * (m) + 17, 32 * (q) + 2 * (m) + 24,                 \
        32 * (q) + 2 * (m) + 25
#define DSF_ORDER64(m)                                                                             \
    DSF_ORDER(0, m), DSF_ORDER(0, (m) + 1), DSF_ORDER(1, m), DSF_ORDER(1, (m) + 1),                \
        DSF_ORDER(2, m), DSF_ORDER(2, (m) + 1), DSF_ORDER(3, m), DSF_ORDER(3, (m) + 1)
static const uint8_t dsf_e2m1_order[128]
    __attribute__((aligned(64))) = {DSF_ORDER64(0), DSF_ORDER64(2)};

DSF_INLINE void dsf_expand_e4m3_as_e2m1(const uint8_t *x, int64_t valid, __m512 *v)
{
    __m512i a = dsf_load_bytes(x, valid);
    __m512i b = dsf_load_bytes(x + 64, valid - 64);
    dsf_expand_codes(_mm512_permutex2var_epi8(a, _mm512_load_si512(dsf_e2m1_order), b), v);
    dsf_expand_codes(_mm512_permutex2var_epi8(a, _mm512_load_si512(dsf_e2m1_order + 64), b), v + 4);
}

/* 64 bytes: nibble j of every dword to vector j. The table look-up takes the low four bits. */
DSF_INLINE void dsf_expand_e2m1(const uint8_t *w, int64_t valid, __m512 *v)
{
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                        -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    __m512i bits = dsf_load_bytes(w, valid / 2);
    v[0] = _mm512_permutexvar_ps(bits, table);
    DSF_UNROLL for (unsigned j = 1; j < 8; j++) v[j] =
        _mm512_permutexvar_ps(_mm512_srli_epi32(bits, 4 * j), table);
}

DSF_INLINE void dsf_expand_bf16(const uint16_t *w, int64_t valid, __m512 *v)
{
    DSF_UNROLL for (int m = 0; m < 4; m++)
        dsf_split_bf16(dsf_load_words(w + 32 * m, valid - 32 * m), v + 2 * m);
}

/* bf16 channels in E4M3 order: quarters of 128 bits transposed. */
DSF_INLINE void dsf_expand_bf16_as_e4m3(const uint16_t *x, int64_t valid, __m512 *v)
{
    __m512i b[4], u[4];
    DSF_UNROLL for (int m = 0; m < 4; m++) b[m] = dsf_load_words(x + 32 * m, valid - 32 * m);
    u[0] = _mm512_shuffle_i64x2(b[0], b[1], 0x88); /* quarters 0 2 of both */
    u[1] = _mm512_shuffle_i64x2(b[2], b[3], 0x88);
    u[2] = _mm512_shuffle_i64x2(b[0], b[1], 0xDD); /* quarters 1 3 */
    u[3] = _mm512_shuffle_i64x2(b[2], b[3], 0xDD);
    dsf_split_bf16(_mm512_shuffle_i64x2(u[0], u[1], 0x88), v);
    dsf_split_bf16(_mm512_shuffle_i64x2(u[2], u[3], 0x88), v + 2);
    dsf_split_bf16(_mm512_shuffle_i64x2(u[0], u[1], 0xDD), v + 4);
    dsf_split_bf16(_mm512_shuffle_i64x2(u[2], u[3], 0xDD), v + 6);
}

/* Up to 16 ue8m0 scales as f32; byte 0 is 2^-127, below the normal range. */
DSF_INLINE __m512 dsf_expand_scales(const uint8_t *s, int64_t valid)
{
    __m128i b = _mm_maskz_loadu_epi8((__mmask16)dsf_mask_low(valid), s);
    __m512i e = _mm512_slli_epi32(_mm512_cvtepu8_epi32(b), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(e, _mm512_set1_epi32(0x00400000)));
}

/* Which of 16 scales each lane takes for the first group; the next group's are 4 further. */
DSF_INLINE __m512i dsf_scale_lanes(void)
{
    return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
}

#endif
