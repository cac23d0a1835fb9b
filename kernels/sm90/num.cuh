/* The number formats of the model on the device: bit for bit those of engine/base/num.h. */
#ifndef DSF_SM90_NUM_CUH
#define DSF_SM90_NUM_CUH

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace num
{

__device__ inline float bf16_to_f32(uint16_t h) { return __uint_as_float(uint32_t(h) << 16); }

__device__ inline uint16_t f32_to_bf16(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* Rounds to bf16 and back. */
__device__ inline float round_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

/* Unsigned numbers in the order of floats; 0.0f added to x makes one of the two zeros. */
__device__ inline uint32_t order_of(float x)
{
    uint32_t b = __float_as_uint(x);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
__device__ inline float float_of_order(uint32_t order)
{
    return __uint_as_float(order & 0x80000000u ? order & 0x7FFFFFFFu : ~order);
}

/* Two bf16 in one word, the first in the low half. */
__device__ inline uint32_t pack_bf16(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&v);
}
__device__ inline float low_bf16(uint32_t v) { return __uint_as_float(v << 16); }
__device__ inline float high_bf16(uint32_t v) { return __uint_as_float(v & 0xFFFF0000u); }

/* 2^k, -149 <= k <= 127. */
__device__ inline float pow2(int k)
{
    return k >= -126 ? __uint_as_float(uint32_t(k + 127) << 23) : __uint_as_float(1u << (k + 149));
}

/* ue8m0: byte 0 is 2^-127 (subnormal), 255 is NaN: both have one bit below the exponent's. */
__device__ inline float e8m0_to_f32(uint8_t u)
{
    return __uint_as_float(uint32_t(u) << 23 | (uint8_t(u - 1) > 253 ? 0x00400000u : 0));
}

/* That of byte i of a word, 1..254. */
__device__ inline float normal_e8m0(uint32_t word, int i)
{
    return __uint_as_float((i == 3 ? word >> 1 : word << (23 - 8 * i)) & 0x7F800000u);
}

__device__ inline float e4m3_to_f32(uint8_t c)
{
    __half_raw h = __nv_cvt_fp8_to_halfraw(c, __NV_E4M3);
    return __half2float(__half(h));
}

/* Nearest even, saturating at 448; NaN -> 0x7F (the sign is dropped, as in num.h). */
__device__ inline uint8_t f32_to_e4m3(float x)
{
    return x != x ? 0x7F : uint8_t(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
}

/* {0, .5, 1, 1.5, 2, 3, 4, 6}; bit 3 is the sign. */
__device__ inline float e2m1_to_f32(unsigned nibble)
{
    /* exponent and mantissa as f32 bits: normal codes are 2^(e-1) (1 + m/2), e = code >> 1 & 3 */
    unsigned m = nibble & 1, e = nibble >> 1 & 3;
    float v = e == 0 ? 0.5f * float(m) : __uint_as_float((e + 126) << 23 | m << 22);
    return nibble & 8 ? -v : v;
}

/* x / s to the nearest even of the e2m1 grid, saturating at 6: the number of borders below it. s
 * has few bits: a border times s is exact. */
__device__ inline unsigned f32_to_e2m1(float x, float s = 1.0f)
{
    float a = fabsf(x);
    unsigned c = (a > 0.25f * s) + (a >= 0.75f * s) + (a > 1.25f * s) + (a >= 1.75f * s) +
                 (a > 2.5f * s) + (a >= 3.5f * s) + (a > 5.0f * s);
    return c | (__float_as_uint(x) >> 28 & 8);
}

/* Least k with 2^k >= f32(a c), a > 0. */
__device__ inline int pow2ceil(float a, float c)
{
    uint32_t b = __float_as_uint(__fmul_rn(a, c));
    return int(b >> 23 & 255) - 127 + ((b & 0x7FFFFF) != 0);
}

} // namespace num

#endif
