/* What the tensor-core attention kernels share, so that a row has the same bits in both: records to
 * bf16 tiles, and the softmax of a block in the accumulator's layout. d is 512.
 *
 * A tile of keys is 8 panels of 64 channels; a panel is a row of 128 bytes a key, in the 128-byte
 * swizzle of the tensor cores (16-byte chunk c of row r lies at c ^ r % 8). The same tile is
 * K-major for q k and N-major for p v. */
#ifndef DSF_SM90_ATTN_TILE_CUH
#define DSF_SM90_ATTN_TILE_CUH

#include "sm90/attn_list.cuh"
#include "sm90/ptx.cuh"
#include "sm90/tensormap.cuh"
#include "sm90/tune_attn.h"

namespace attn
{

constexpr int D = DSF_ATTN_TILE_D, HEADS = DSF_ATTN_HEADS, BLOCK = DSF_ATTN_BLOCK;

/* ---- records to bf16, exactly: codes are shifted to where bf16 has its exponent, which makes
 * e2m1 2^-126 and e4m3 2^-120 of the value (subnormal codes included), and multiplied back ---- */

__device__ inline uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x = *reinterpret_cast<__nv_bfloat162 *>(&a);
    __nv_bfloat162 y = *reinterpret_cast<__nv_bfloat162 *>(&b);
    __nv_bfloat162 z = __hmul2_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&z);
}

constexpr uint32_t SIGNS = 0x80008000u;
constexpr uint32_t TWO_120 = 0x7B807B80u, TWO_126 = 0x7E807E80u; /* 2^120, 2^126 twice */

/* 8 nibbles, the first lowest, times the pair of factors `scale` / 2^6. */
__device__ inline uint4 expand_e2m1(uint32_t x, uint32_t scale)
{
    constexpr uint32_t code = 0x01C001C0u;
    uint32_t v04 = ((x << 12) & SIGNS) | ((x << 6) & code);
    uint32_t v15 = ((x << 8) & SIGNS) | ((x << 2) & code);
    uint32_t v26 = ((x << 4) & SIGNS) | ((x >> 2) & code);
    uint32_t v37 = (x & SIGNS) | ((x >> 6) & code);
    v04 = mul_bf16x2(mul_bf16x2(v04, TWO_120), scale);
    v15 = mul_bf16x2(mul_bf16x2(v15, TWO_120), scale);
    v26 = mul_bf16x2(mul_bf16x2(v26, TWO_120), scale);
    v37 = mul_bf16x2(mul_bf16x2(v37, TWO_120), scale);
    return make_uint4(__byte_perm(v04, v15, 0x5410), __byte_perm(v26, v37, 0x5410),
                      __byte_perm(v04, v15, 0x7632), __byte_perm(v26, v37, 0x7632));
}

/* The e4m3 codes in bytes 0 and 2, or 1 and 3, as bf16 2^-120. */
__device__ inline uint32_t e4m3_even(uint32_t x)
{
    return ((x << 8) & SIGNS) | ((x << 4) & 0x07F007F0u);
}
__device__ inline uint32_t e4m3_odd(uint32_t x) { return (x & SIGNS) | ((x >> 4) & 0x07F007F0u); }

/* 8 codes times the pair of factors `scale`. */
__device__ inline uint4 expand_e4m3(uint32_t x, uint32_t y, uint32_t scale)
{
    uint32_t x02 = mul_bf16x2(mul_bf16x2(e4m3_even(x), TWO_120), scale);
    uint32_t x13 = mul_bf16x2(mul_bf16x2(e4m3_odd(x), TWO_120), scale);
    uint32_t y02 = mul_bf16x2(mul_bf16x2(e4m3_even(y), TWO_120), scale);
    uint32_t y13 = mul_bf16x2(mul_bf16x2(e4m3_odd(y), TWO_120), scale);
    return make_uint4(__byte_perm(x02, x13, 0x5410), __byte_perm(x02, x13, 0x7632),
                      __byte_perm(y02, y13, 0x5410), __byte_perm(y02, y13, 0x7632));
}

/* A ue8m0 byte as a pair of bf16: 0 is 2^-127, 255 is NaN. */
__device__ inline uint32_t expand_e8m0(uint32_t u)
{
    return (u << 7 | (u == 0 || u == 255 ? 0x40u : 0u)) * 0x00010001u;
}

/* 32 channels of a record, as they lie in memory. */
struct raw {
    uint4 code[2];  /* Q4N: one */
    uint32_t scale; /* two bytes: of 16 channels each, or one of them of all */
};

/* Of channels 32 c..32 c + 31: the codes, 16 bytes or 32. */
__device__ inline const uint8_t *codes_of(key key, int c)
{
    return key.record + (key.is_main ? 16 : 32) * c;
}

/* 32 channels to the 16-byte chunks at ^ 0, 16, 32, 48. scale: two bytes, the rest is ignored. */
__device__ inline void store_q4n(uint32_t at, uint4 code, uint32_t scale)
{
    uint32_t pair = e4m3_even(__byte_perm(scale, 0, 0x4140)); /* bytes 0, 1 to 0, 2 */
    pair = mul_bf16x2(pair, TWO_126);
    uint32_t first = __byte_perm(pair, 0, 0x1010), second = __byte_perm(pair, 0, 0x3232);
    ptx::st_shared_v4(at, expand_e2m1(code.x, first));
    ptx::st_shared_v4(at ^ 16, expand_e2m1(code.y, first));
    ptx::st_shared_v4(at ^ 32, expand_e2m1(code.z, second));
    ptx::st_shared_v4(at ^ 48, expand_e2m1(code.w, second));
}

/* 16 channels to at ^ 0, 16. */
__device__ inline void store_q8(uint32_t at, uint4 code, uint32_t scale)
{
    scale = expand_e8m0(scale);
    ptx::st_shared_v4(at, expand_e4m3(code.x, code.y, scale));
    ptx::st_shared_v4(at ^ 16, expand_e4m3(code.z, code.w, scale));
}

/* A slot past the end of the list is a zero key: its probability is 0, and 0 times what was there
 * before might not be. */
__device__ inline void store_zero(uint32_t at)
{
    for (uint32_t j = 0; j < 64; j += 16) ptx::st_shared_v4(at ^ j, make_uint4(0, 0, 0, 0));
}

/* Channels 32 c.. of a key. */
__device__ inline void store_expanded(uint32_t at, const raw &r, key key, int c)
{
    if (!key.is_there)
        store_zero(at);
    else if (key.is_main)
        store_q4n(at, r.code[0], r.scale);
    else {
        uint32_t scale = c % 2 ? r.scale >> 8 : r.scale & 255;
        store_q8(at, r.code[0], scale);
        store_q8(at ^ 32, r.code[1], scale);
    }
}

/* ---- softmax by quarters of a block, 16 keys each; a thread has rows lane / 4 and lane / 4 + 8 of
 * its warp's 16: of quarter u, values s[8 u + i], columns 16 u + 8 (i / 4) + 2 (lane % 4) + i % 2,
 * the upper row for i % 4 < 2 ---- */

constexpr float LOG2_E = 1.4426950408889634f, LOWEST = -1e30f;

/* e^x by the special-function unit: 2 ulp of 2^x, and a rounding of x log2 e. */
__device__ inline float fast_exp(float x) { return ptx::ex2_approx(__fmul_rn(x, LOG2_E)); }

__device__ inline float2 fast_exp(float2 x) { return {fast_exp(x.x), fast_exp(x.y)}; }
__device__ inline float2 operator-(float2 x, float2 y)
{
    return {__fsub_rn(x.x, y.x), __fsub_rn(x.y, y.y)};
}
__device__ inline float2 operator+(float2 x, float2 y)
{
    return {__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y)};
}
__device__ inline float2 larger(float2 x, float2 y) { return {fmaxf(x.x, y.x), fmaxf(x.y, y.y)}; }

__device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

/* q k -> logits; columns from `count` on are -infinity. */
template <int N> __device__ inline void logits_of(float (&s)[N], float scale, int count)
{
#pragma unroll
    for (int i = 0; i < N; i++) s[i] = __fmul_rn(s[i], scale);
    if (count >= 2 * N) return;
    int column = 2 * (threadIdx.x & 3);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (8 * (i / 4) + column + i % 2 >= count) s[i] = -INFINITY;
}

/* The thread's maxima of a quarter; quad_max makes them the rows'. */
__device__ inline float2 quarter_max(const float *s)
{
    return {fmaxf(fmaxf(s[0], s[1]), fmaxf(s[4], s[5])),
            fmaxf(fmaxf(s[2], s[3]), fmaxf(s[6], s[7]))};
}

/* Logits of a quarter -> probabilities, to be rounded to bf16. Returns the rows' sums of the
 * unrounded ones; a block's is q0 + q1 + q2 + q3 in this order. */
__device__ inline float2 quarter_probabilities(float *s, float2 max)
{
#pragma unroll
    for (int i = 0; i < 8; i++) s[i] = fast_exp(__fsub_rn(s[i], i % 4 < 2 ? max.x : max.y));
    return {quad_sum(__fadd_rn(__fadd_rn(__fadd_rn(s[0], s[1]), s[4]), s[5])),
            quad_sum(__fadd_rn(__fadd_rn(__fadd_rn(s[2], s[3]), s[6]), s[7]))};
}

/* sum rescale + part */
__device__ inline float next_sum(float sum, float rescale, float part)
{
    return __fmaf_rn(sum, rescale, part);
}

/* 1 / denominator. For an empty list the sink's e^(sink - max) is infinite: 0. */
__device__ inline float inverse_of(float sum, float max, float sink)
{
    return __frcp_rn(__fadd_rn(sum, fast_exp(__fsub_rn(sink, max))));
}

/* Writes a quarter's probabilities of the warp's 16 rows to the block's panel of 64 keys, `rows`
 * being that of the warp's first. */
__device__ inline void store_quarter(uint32_t rows, const float *s, uint32_t quarter)
{
    uint32_t lane = threadIdx.x & 31, row = lane & 15, chunk = 2 * quarter + (lane >> 4);
    const uint32_t r[4] = {num::pack_bf16(s[0], s[1]), num::pack_bf16(s[2], s[3]),
                           num::pack_bf16(s[4], s[5]), num::pack_bf16(s[6], s[7])};
    ptx::stmatrix_x4(rows + row * 128 + ((chunk ^ (row & 7)) << 4), r);
}

/* q as rows of 1 KB, in boxes of a panel: 64 rows of 64 channels. */
static inline dsf_status map_of_q(CUtensorMap *map, const problem &p)
{
    return dsf_tensormap_bytes(map, {p.q, int64_t(p.n) * p.h, 2 * D, 2 * D, HEADS, 128},
                               CU_TENSOR_MAP_SWIZZLE_128B);
}

/* attn_decode.cu; quarters: of dsf_attn_tile. */
dsf_status spread(const dsf_launch *lc, const problem &p, int quarters);

} // namespace attn

#endif
