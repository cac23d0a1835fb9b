/* The arithmetic of hc_mix, one for both of its paths: a row has the same bits whatever the number
 * of rows. The channels of a row (q = 4 d) are cut into segments of 64. Inside a segment the tensor
 * core sums products of x (bf16) with the three bf16 parts of each coefficient (8 + 8 + 8 of its 24
 * bits, an exact split): four steps of 16 from zero for each part, joined as first + (second +
 * third) in f32. The sum of a segment is a double from there on: four chains, segment s in chain s
 * mod 4 in ascending order, joined from chain 0 to chain 3. */
#ifndef DSF_SM90_HC_MIX_CUH
#define DSF_SM90_HC_MIX_CUH

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

/* The words of rows g and g + 8: of the segment's first half, of its second. */
struct row_words {
    uint32_t x0[2][4], x8[2][4];
};

/* Sums in the making of 16 rows (mma) or of 16 rows a warp of 64 (wgmma): by part p of the
 * coefficients and column tile n; i = 0, 1: columns 8 n + 2 t, + 1 of row g; 2, 3: of row g + 8. */
struct products {
    float part[PARTS * COLUMN_TILES * 4];
    __device__ inline float sum(int n, int i) const
    {
        const float *at = part + 4 * n + i;
        return __fadd_rn(at[0], __fadd_rn(at[4 * COLUMN_TILES], at[8 * COLUMN_TILES]));
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

/* One normalisation: factors f of rows (columns) where the sums over the others' factors g are
 * f c g. f / (f s + eps) = 1 / (s + eps / f): the inverses are kept beside the factors. */
__device__ inline void normalise(float (&f)[4], float (&inverse)[4], const float (&s)[4], float eps)
{
#pragma unroll
    for (int i = 0; i < 4; i++) inverse[i] = fmaf(eps, inverse[i], s[i]);
#pragma unroll
    for (int i = 0; i < 4; i++) f[i] = ptx::rcp_approx(inverse[i]);
}

__device__ inline float sum_four(float a, float b, float c, float d, const float (&f)[4])
{
    return __fadd_rn(fmaf(a, f[0], __fmul_rn(b, f[1])), fmaf(c, f[2], __fmul_rn(d, f[3])));
}

/* comb of a row from its 16 arguments. A normalisation divides rows or columns: the matrix stays
 * diag(u) C diag(v), and only u and v change. */
template <typename ARG>
__device__ inline void put_comb(const mix_args &a, int64_t row, const ARG &arg)
{
    float c[4][4], u[4], v[4], iu[4], iv[4], s[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        double most = fmax(fmax(arg(4 * j), arg(4 * j + 1)), fmax(arg(4 * j + 2), arg(4 * j + 3)));
#pragma unroll
        for (int k = 0; k < 4; k++) c[j][k] = expf(__double2float_rn(arg(4 * j + k) - most));
        s[j] = __fadd_rn(__fadd_rn(c[j][0], c[j][1]), __fadd_rn(c[j][2], c[j][3]));
        u[j] = v[j] = iu[j] = iv[j] = 1.0f;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float inverse = ptx::rcp_approx(s[j]); /* of 1 to 4 */
#pragma unroll
        for (int k = 0; k < 4; k++) c[j][k] = fmaf(c[j][k], inverse, a.hc_eps);
    }
    for (int t = 0; t < a.iters; t++) {
        if (t > 0) { /* columns come first */
#pragma unroll
            for (int j = 0; j < 4; j++) s[j] = sum_four(c[j][0], c[j][1], c[j][2], c[j][3], v);
            normalise(u, iu, s, a.hc_eps);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) s[k] = sum_four(c[0][k], c[1][k], c[2][k], c[3][k], u);
        normalise(v, iv, s, a.hc_eps);
    }
    float4 *out = reinterpret_cast<float4 *>(a.comb) + row * 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
        out[j] = make_float4(u[j] * c[j][0] * v[0], u[j] * c[j][1] * v[1], u[j] * c[j][2] * v[2],
                             u[j] * c[j][3] * v[3]);
}

} // namespace hc

#endif
