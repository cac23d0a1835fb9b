/* The number formats of the model, one value at a time: the definition that every kernel is held to
 * (architecture.md 3.1-3.3, appendix B). bf16 as uint16_t, fp8 e4m3 and ue8m0 as bytes, e2m1 as a
 * nibble. */
#ifndef DSF_BASE_NUM_H
#define DSF_BASE_NUM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t dsf_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float dsf_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline float dsf_bf16_to_f32(uint16_t h) { return dsf_f32_from_bits((uint32_t)h << 16); }

/* Round to nearest even; NaN stays a quiet NaN. */
static inline uint16_t dsf_f32_to_bf16(float x)
{
    uint32_t u = dsf_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1)) >> 16);
}

/* A sum kept in double, rounded as the model rounds it: to its f32 accumulator, then to bf16. (One
 * rounding from double would break exact f32 ties the other way.) */
static inline uint16_t dsf_f64_to_bf16(double x) { return dsf_f32_to_bf16((float)x); }

/* 2^k for -149 <= k <= 127; no flush to zero below the normal range. */
static inline float dsf_pow2(int k)
{
    return k >= -126 ? dsf_f32_from_bits((uint32_t)(k + 127) << 23)
                     : dsf_f32_from_bits(1u << (k + 149));
}

/* ue8m0 byte u -> 2^(u-127). 255 is NaN. */
static inline float dsf_e8m0_to_f32(uint8_t u) { return u == 255 ? NAN : dsf_pow2((int)u - 127); }

/* e4m3 "fn": bias 7, no infinity, 0x7F and 0xFF are NaN. */
static inline float dsf_e4m3_to_f32(uint8_t c)
{
    int e = (c >> 3) & 15, m = c & 7;
    float v = e == 0 ? (float)m * dsf_pow2(-9) : (float)(8 + m) * dsf_pow2(e - 10);
    if ((c & 0x7F) == 0x7F) v = NAN;
    return c & 0x80 ? -v : v;
}

/* Round to nearest even on the e4m3 grid, saturating at 448; NaN -> 0x7F. Keeps the sign of zero.
 */
static inline uint8_t dsf_f32_to_e4m3(float x)
{
    uint32_t u = dsf_f32_bits(x);
    uint8_t sign = (uint8_t)((u >> 24) & 0x80);
    float a = fabsf(x);
    if (a != a) return 0x7F;
    if (a >= 448.0f) return sign | 0x7E;
    if (a < dsf_pow2(-6)) { /* subnormal grid of 2^-9: nearbyint rounds half to even */
        int m = (int)nearbyintf(a * 512.0f);
        return (uint8_t)(sign | m);
    }
    uint32_t b = dsf_f32_bits(a);
    b += 0x7FFFFu + ((b >> 20) & 1); /* RNE to 3 mantissa bits */
    int e = (int)(b >> 23) - 127 + 7;
    int code = e << 3 | (int)((b >> 20) & 7);
    return (uint8_t)(sign | (code > 0x7E ? 0x7E : code));
}

/* e2m1: {0, .5, 1, 1.5, 2, 3, 4, 6}, bit 3 is the sign. */
static inline float dsf_e2m1_to_f32(unsigned nibble)
{
    static const float table[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return table[nibble & 15];
}

/* RNE on the e2m1 grid, saturating at 6. Ties go to the even code: .25 down, .75 up, 1.25 down, ...
 */
static inline unsigned dsf_f32_to_e2m1(float x)
{
    float a = fabsf(x);
    unsigned c = 0;
    c += a > 0.25f;
    c += a >= 0.75f;
    c += a > 1.25f;
    c += a >= 1.75f;
    c += a > 2.5f;
    c += a >= 3.5f;
    c += a > 5.0f;
    return c | (dsf_f32_bits(x) >> 28 & 8);
}

/* Least k with 2^k >= f32(a * c), a > 0 (3.1): decided on the bits of the f32 product. */
static inline int dsf_pow2ceil(float a, float c)
{
    uint32_t b = dsf_f32_bits(a * c);
    return (int)(b >> 23 & 255) - 127 + ((b & 0x7FFFFF) != 0);
}

#endif
