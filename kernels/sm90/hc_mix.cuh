/* The arithmetic of hc_mix, one for both of its paths: a row has the same bits whatever the number
 * of rows. The channels of a row (q = 4 d) are cut into segments of 64. Inside a segment the tensor
 * core sums products of x (bf16) with the three bf16 parts of each coefficient (8 + 8 + 8 of its 24
 * bits, an exact split): four steps of 16 for the first parts, eight for the other two, each from
 * zero, joined by one f32 addition. The sum of a segment is a double from there on: four chains,
 * segment s in chain s mod 4 in ascending order, joined from chain 0 to chain 3. */
#ifndef DSF_SM90_HC_MIX_CUH
#define DSF_SM90_HC_MIX_CUH

#include "sm90/ptx.cuh"
#include "sm90/row.cuh"

extern "C" {
#include "ops/hc.h"
#include "sm90/tune_hc.h"
}

namespace hc
{

enum {
    MIXES = 24,
    SUMS = MIXES + 1, /* and the squares */
    COLUMN_TILES = MIXES / 8,
    CHAINS = 4,
    PARTS = 3
};

/* A lane (g = lane / 4, t = lane % 4) holds channels 16 t .. 16 t + 15 of a segment, of rows g and
 * g + 8 of x and of rows g, g + 8, g + 16 of the coefficients: 8 words of two. Words 2 s and 2 s +
 * 1 are its operands of step s; that a step's 16 channels are not neighbours does not matter, since
 * both sides agree. */
struct coefficients {
    uint32_t w[PARTS][COLUMN_TILES][8];
};

__device__ inline uint32_t take_part(float &low, float &high)
{
    uint32_t pair = num::pack_bf16(low, high);
    low -= num::low_bf16(pair);
    high -= num::high_bf16(pair);
    return pair;
}

/* Words 2 i and 2 i + 1 of column tile n. */
__device__ inline void split(coefficients &b, int n, int i, float4 f)
{
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        b.w[p][n][2 * i] = take_part(f.x, f.y);
        b.w[p][n][2 * i + 1] = take_part(f.z, f.w);
    }
}

/* Sums in the making of 16 rows (mma) or of 16 rows a warp of 64 (wgmma): of the first parts, of
 * the rest. n: column tile; i = 0, 1: columns 8 n + 2 t, + 1 of row g; 2, 3: of row g + 8. */
struct products {
    float first[4 * COLUMN_TILES], rest[4 * COLUMN_TILES];
    __device__ inline float sum(int n, int i) const
    {
        return __fadd_rn(first[4 * n + i], rest[4 * n + i]);
    }
};

/* Squares of this lane's channels of a row, words in ascending order. */
__device__ inline float add_squares(float sum, const uint32_t (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(num::low_bf16(x[i]), num::low_bf16(x[i]), sum);
        sum = fmaf(num::high_bf16(x[i]), num::high_bf16(x[i]), sum);
    }
    return sum;
}

/* Of the whole segment, in all four lanes of the row. */
__device__ inline float join_squares(float sum)
{
    sum = __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 1));
    return __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 2));
}

/* ---- from sums to coefficients ---- */

struct mix_args {
    float *pre, *post, *comb;
    const uint16_t *x;
    const float *fn, *base, *scale;
    unsigned n, q;
    float norm_eps, hc_eps;
    int iters;
};

/* The argument of the sigmoid or softmax: steps 2 and 3 of section 4. */
__device__ inline double argument(const mix_args &a, int m, double sum, double squares)
{
    double r = rsqrt(__dadd_rn(squares / double(a.q), double(a.norm_eps)));
    return fma(__dmul_rn(sum, r), double(a.scale[m < 4 ? 0 : m < 8 ? 1 : 2]), double(a.base[m]));
}

/* pre (m < 4) and post (m < 8) of a row. */
__device__ inline void put_gate(const mix_args &a, int64_t row, int m, double arg)
{
    float s = __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-__double2float_rn(arg))));
    if (m < 4)
        a.pre[row * 4 + m] = __fadd_rn(s, a.hc_eps);
    else
        a.post[row * 4 + m - 4] = __fadd_rn(s, s);
}

/* f / (f sum + eps): what one normalisation does to a factor. */
__device__ inline float scaled(float f, float sum, float eps)
{
    return __fdividef(f, fmaf(f, sum, eps));
}

/* comb of a row from its 16 arguments. A normalisation divides rows or columns: the matrix stays
 * diag(u) C diag(v), and only u and v change. */
template <typename ARG>
__device__ inline void put_comb(const mix_args &a, int64_t row, const ARG &arg)
{
    float c[4][4], u[4], v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        double most = fmax(fmax(arg(4 * j), arg(4 * j + 1)), fmax(arg(4 * j + 2), arg(4 * j + 3)));
#pragma unroll
        for (int k = 0; k < 4; k++) c[j][k] = expf(__double2float_rn(arg(4 * j + k) - most));
        float sum = __fadd_rn(__fadd_rn(c[j][0], c[j][1]), __fadd_rn(c[j][2], c[j][3]));
#pragma unroll
        for (int k = 0; k < 4; k++) c[j][k] = __fadd_rn(__fdiv_rn(c[j][k], sum), a.hc_eps);
        u[j] = v[j] = 1.0f;
    }
    for (int t = 0; t < a.iters; t++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (t == 0) continue; /* columns come first */
            float sum = fmaf(c[j][3], v[3], c[j][2] * v[2]) + fmaf(c[j][1], v[1], c[j][0] * v[0]);
            u[j] = scaled(u[j], sum, a.hc_eps);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float sum = fmaf(c[3][k], u[3], c[2][k] * u[2]) + fmaf(c[1][k], u[1], c[0][k] * u[0]);
            v[k] = scaled(v[k], sum, a.hc_eps);
        }
    }
    float4 *out = reinterpret_cast<float4 *>(a.comb) + row * 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
        out[j] = make_float4(u[j] * c[j][0] * v[0], u[j] * c[j][1] * v[1], u[j] * c[j][2] * v[2],
                             u[j] * c[j][3] * v[3]);
}

} // namespace hc

#endif
