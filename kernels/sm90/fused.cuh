/* Parts of fused kernels: what one thread does with a chunk of 8 channels in registers. A group of
 * 32 channels is 4 neighbouring lanes. */
#ifndef DSF_SM90_FUSED_CUH
#define DSF_SM90_FUSED_CUH

#include "sm90/ptx.cuh"
#include "sm90/row.cuh"

namespace fused
{

/* bf16 as the bits of a double 2^-896 times as large: its exponents are those of bf16, subnormal
 * ones included, so that a shift does it, where a conversion instruction takes 9 cycles a warp
 * (measured). A factor 2^896 times as large as it should be makes up for it. Finite numbers only.
 */
__device__ inline double low_scaled(uint32_t v)
{
    return __hiloint2double(int((int32_t(v << 16) >> 3) & 0x8FFFE000), 0);
}
__device__ inline double high_scaled(uint32_t v)
{
    return __hiloint2double(int((int32_t(v) >> 3) & 0x8FFFE000), 0);
}
constexpr double unscale = 0x1p896;

/* Largest magnitude of the group (of 32) that this lane and its neighbours hold. All lanes call it.
 */
template <int LANES = 4> __device__ inline float group_max(const float (&x)[CHUNK], float floor)
{
    float most = floor;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) most = fmaxf(most, fabsf(x[i]));
#pragma unroll
    for (int d = 1; d < LANES; d *= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, d));
    return most;
}

__device__ inline void put_word(uint8_t *p, uint32_t v)
{
    if (reinterpret_cast<uintptr_t>(p) % 4 == 0) {
        *reinterpret_cast<uint32_t *>(p) = v;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = uint8_t(v >> 8 * i);
}

/* Two or eight bf16 as they are loaded. */
template <int N> struct words;
template <> struct words<2> {
    using type = uint32_t;
};
template <> struct words<CHUNK> {
    using type = uint4;
};
__device__ inline void unpack(float (&f)[2], uint32_t v)
{
    f[0] = num::low_bf16(v);
    f[1] = num::high_bf16(v);
}
__device__ inline void unpack(float (&f)[CHUNK], uint4 v) { unpack_chunk(f, v); }

__device__ inline void put_codes(uint8_t *p, const uint32_t (&pair)[4])
{
    uint2 codes = make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
    if (reinterpret_cast<uintptr_t>(p) % 8 == 0) {
        *reinterpret_cast<uint2 *>(p) = codes;
        return;
    }
    put_word(p, codes.x);
    put_word(p + 4, codes.y);
}
__device__ inline void put_codes(uint8_t *p, const uint32_t (&pair)[1])
{
    p[0] = uint8_t(pair[0]);
    p[1] = uint8_t(pair[0] >> 8);
}

/* Channels [c, c + N) of a Q8 record of d channels, from bf16 values of a group whose largest
 * magnitude is `most`. */
template <int N>
__device__ inline void put_q8_codes(uint8_t *rec, const float (&x)[N], float most, unsigned c,
                                    unsigned d, bool live)
{
    int k = num::pow2ceil(most, 1.0f / 448.0f);
    float inverse = num::pow2(-k); /* normal, as 2^k is: the product is the rounded quotient */
    if (!live) return;
    uint32_t pair[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        pair[i] = __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i] * inverse, x[2 * i + 1] * inverse),
                                           __NV_SATFINITE, __NV_E4M3);
    put_codes(rec + c, pair);
    if (c % 32 == 0) rec[d + c / 32] = uint8_t(k + 127);
}

/* The same of a chunk, its group in four neighbouring lanes. `live`: this lane writes. */
__device__ inline void put_q8(uint8_t *rec, const float (&x)[CHUNK], unsigned c, unsigned d,
                              bool live)
{
    put_q8_codes(rec, x, group_max(x, 1e-4f), c, d, live);
}

/* The same for Q4X: two codes a byte. */
__device__ inline void put_q4x(uint8_t *rec, const float (&x)[CHUNK], unsigned c, unsigned d,
                               bool live)
{
    int k = num::pow2ceil(group_max(x, 6 * 0x1p-126f), 1.0f / 6.0f);
    float inverse = num::pow2(-k);
    if (!live) return;
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) codes |= num::f32_to_e2m1(x[i] * inverse) << 4 * i;
    put_word(rec + c / 2, codes);
    if (c % 32 == 0) rec[d / 2 + c / 32] = uint8_t(k + 127);
}

/* 1 / x of a normal x, by Newton's steps: 2^-20, 2^-40, rounding. */
__device__ inline double reciprocal(double x)
{
    double r = ptx::rcp_approx(x);
#pragma unroll
    for (int i = 0; i < 2; i++) r = fma(fma(-x, r, 1.0), r, r);
    return r;
}

/* The factor of rms_norm from the sum of squares over d channels: f32(1 / sqrt(f32(mean) + eps)).
 * Newton's steps from the f32 root reach 2^-52 in a third of the time that a library root and
 * quotient take. A mean of zero or infinity, or none, has its root already. */
__device__ inline float norm_factor(double squares, unsigned d, float eps)
{
    float mean = __fadd_rn(__double2float_rn(squares * reciprocal(double(d))), eps);
    float start = rsqrtf(mean);
    double half = 0.5 * double(mean), y = double(start);
#pragma unroll
    for (int i = 0; i < 2; i++) y = fma(y, fma(-half * y, y, 0.5), y);
    return start > 0 && start < __int_as_float(0x7F800000) ? __double2float_rn(y) : start;
}

/* bf16 results of rms_norm, as f32. */
__device__ inline void scale_chunk(float (&x)[CHUNK], uint4 weight, float factor)
{
    float w[CHUNK];
    unpack_chunk(w, weight);
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        x[i] = num::round_bf16(__fmul_rn(w[i], __fmul_rn(x[i], factor)));
}

/* Turns the pairs among channels [c, c + 8) that lie in the tail from `plain` on (even); cs: this
 * row's cosines and sines; sign -1: back. */
__device__ inline void rotate_chunk(float (&x)[CHUNK], const float2 *cs, unsigned c, unsigned plain,
                                    float sign = 1.0f)
{
#pragma unroll
    for (unsigned i = 0; i < CHUNK; i += 2) {
        if (c + i < plain) continue;
        float2 a = cs[(c + i - plain) / 2];
        a.y *= sign;
        float re = x[i], im = x[i + 1];
        x[i] = num::round_bf16(__fsub_rn(__fmul_rn(re, a.x), __fmul_rn(im, a.y)));
        x[i + 1] = num::round_bf16(__fadd_rn(__fmul_rn(re, a.y), __fmul_rn(im, a.x)));
    }
}

} // namespace fused

#endif
