/* Row quantisers (architecture.md 3.1-3.3). A thread holds 8 channels; the 4 (Q8, Q4X) or 2 (Q4N)
 * neighbours of a group share their largest magnitude by shuffles. 2 bytes are read and 1 or 1/2
 * written a channel, about 6 instructions each: bound by memory.
 * Exact: scales of Q8 and Q4X are powers of two, and x 2^-k is the correctly rounded quotient (both
 * powers are normal numbers). e4m3 scales of Q4N have 4 significant bits, so that a border of the
 * e2m1 grid times the scale is exact and x is compared with it instead of being divided. */
#include "sm90/row.cuh"

extern "C" {
#include "ops/quant.h"
}

enum quant_format { Q8, Q4X, Q4N };

/* Largest magnitude of the group that this thread's chunk belongs to. LANES neighbours a group. */
template <int LANES> __device__ inline float group_max(const float (&x)[CHUNK], float floor)
{
    float most = floor;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) most = fmaxf(most, fabsf(x[i]));
#pragma unroll
    for (int d = 1; d < LANES; d *= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, d));
    return most;
}

__device__ inline uint2 codes_e4m3(const float (&x)[CHUNK], float inverse)
{
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i] * inverse, x[2 * i + 1] * inverse),
                                           __NV_SATFINITE, __NV_E4M3);
    return make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
}

/* e2m1 code of x / s: the number of borders below |x|; ties go to the even code. */
__device__ inline uint32_t code_e2m1(float x, float s)
{
    float a = fabsf(x);
    uint32_t c = (a > 0.25f * s) + (a >= 0.75f * s) + (a > 1.25f * s) + (a >= 1.75f * s) +
                 (a > 2.5f * s) + (a >= 3.5f * s) + (a > 5.0f * s);
    return c | (__float_as_uint(x) >> 28 & 8);
}

__device__ inline uint32_t codes_e2m1(const float (&x)[CHUNK], float s)
{
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) codes |= code_e2m1(x[i], s) << 4 * i;
    return codes;
}

__device__ inline void put_bytes(uint8_t *p, uint32_t v)
{
    if (reinterpret_cast<uintptr_t>(p) % 4 == 0) {
        *reinterpret_cast<uint32_t *>(p) = v;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = uint8_t(v >> 8 * i);
}

__device__ inline void put_codes(uint8_t *p, uint2 v)
{
    if (reinterpret_cast<uintptr_t>(p) % 8 == 0) {
        *reinterpret_cast<uint2 *>(p) = v;
        return;
    }
    put_bytes(p, v.x);
    put_bytes(p + 4, v.y);
}

/* The record of one group's chunk; `lead`: this thread writes the group's scale. */
template <quant_format F>
__device__ inline void put_chunk(uint8_t *rec, const float (&x)[CHUNK], unsigned c, unsigned d,
                                 bool live)
{
    constexpr int LANES = F == Q4N ? 2 : 4;
    constexpr float FLOOR = F == Q8 ? 1e-4f : F == Q4X ? 6 * 0x1p-126f : 6 * 0x1p-9f;
    float most = group_max<LANES>(x, FLOOR);
    if (!live) return;
    unsigned codes = F == Q8 ? d : d / 2, group = c / (LANES * CHUNK);
    bool lead = c % (LANES * CHUNK) == 0;
    if (F == Q4N) {
        uint8_t s = num::f32_to_e4m3(__fdiv_rn(most, 6.0f));
        put_bytes(rec + c / 2, codes_e2m1(x, num::e4m3_to_f32(s)));
        if (lead) rec[codes + group] = s;
        return;
    }
    int k = num::pow2ceil(most, F == Q8 ? 1.0f / 448.0f : 1.0f / 6.0f);
    if (F == Q8)
        put_codes(rec + c, codes_e4m3(x, num::pow2(-k)));
    else
        put_bytes(rec + c / 2, codes_e2m1(x, num::pow2(k)));
    if (lead) rec[codes + group] = uint8_t(k + 127);
}

template <quant_format F>
static __global__ void __launch_bounds__(FLAT_THREADS)
    quant_kernel(uint8_t *out, const uint16_t *x, unsigned items, unsigned chunks, unsigned bytes)
{
    begin();
    row_chunk at = {0, 0};
    bool live = this_chunk(at, items, chunks); /* every lane takes part in the shuffles */
    unsigned d = chunks * CHUNK;
    float v[CHUNK];
    unpack_chunk(v, live ? load_chunk<true>(x + int64_t(at.row) * d, at.c, d)
                         : make_uint4(0, 0, 0, 0));
    put_chunk<F>(out + int64_t(at.row) * bytes, v, at.c, d, live);
}

/* d is a multiple of 32: rows of x are 64-byte aligned whenever the tensor is. */
template <quant_format F> static dsf_status quant(const dsf_launch *lc, const void *args)
{
    const dsf_quant_args *a = static_cast<const dsf_quant_args *>(args);
    int64_t d = a->x.dim[2], items = dsf_tensor_rows(&a->x) * (d / CHUNK);
    return launch_flat(lc, items, quant_kernel<F>, data_of<uint8_t>(a->out),
                       data_of<const uint16_t>(a->x), unsigned(items), unsigned(d / CHUNK),
                       unsigned(dsf_dtype_bytes(a->out.dtype, d)));
}

extern "C" dsf_status dsf_quant_q8_sm90(const dsf_launch *lc, const void *args)
{
    return quant<Q8>(lc, args);
}

extern "C" dsf_status dsf_quant_q4x_sm90(const dsf_launch *lc, const void *args)
{
    return quant<Q4X>(lc, args);
}

extern "C" dsf_status dsf_quant_q4n_sm90(const dsf_launch *lc, const void *args)
{
    return quant<Q4N>(lc, args);
}
