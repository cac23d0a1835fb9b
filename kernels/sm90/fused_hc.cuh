/* The boundary between two sublayers on a chunk of 8 channels of one row, in registers, and the
 * coefficients from the finished sums. The sums of the reference are taken in double; products of a
 * f32 and a bf16 are exact there, so that a chain of fused multiply-adds in the written order has
 * its bits. */
#ifndef DSF_SM90_FUSED_HC_CUH
#define DSF_SM90_FUSED_HC_CUH

#include "sm90/fused.cuh"

extern "C" {
#include "ops/fused.h"
}

namespace boundary
{

enum { STREAMS = 4, MIXES = 24, COEFFICIENTS = 24 };

/* One row's factors: post, then comb[j][k], then pre. */
struct __align__(16) factors
{
    double post[STREAMS], comb[STREAMS][STREAMS], pre[STREAMS];
    double pad[2]; /* rows in shared memory fall on all banks */
};
static_assert(offsetof(factors, pad) == COEFFICIENTS * sizeof(double), "a table of 24 doubles");

__device__ inline void put_factor(factors &f, int i, double v)
{
    reinterpret_cast<double *>(&f)[i] = v;
}

/* Entry i of a row's factors. */
__device__ inline double factor(const float *post, const float *comb, const float *pre, int64_t row,
                                int i)
{
    float v = i < 4 ? post[row * 4 + i] : i < 20 ? comb[row * 16 + i - 4] : pre[row * 4 + i - 20];
    return double(v);
}

__device__ inline uint32_t pack(double low, double high)
{
    return num::pack_bf16(fused::narrow(low), fused::narrow(high));
}

/* Two channels: x[j] of the four streams and y in, out[k] back. */
__device__ inline void expand_word(uint32_t (&out)[STREAMS], const uint32_t (&x)[STREAMS],
                                   uint32_t y, const factors &f)
{
    double low[STREAMS], high[STREAMS];
    double yl = fused::low_scaled(y), yh = fused::high_scaled(y);
#pragma unroll
    for (int j = 0; j < STREAMS; j++) {
        low[j] = fused::low_scaled(x[j]);
        high[j] = fused::high_scaled(x[j]);
    }
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        double a = f.post[k] * yl, b = f.post[k] * yh;
#pragma unroll
        for (int j = 0; j < STREAMS; j++) {
            a = fma(f.comb[j][k], low[j], a);
            b = fma(f.comb[j][k], high[j], b);
        }
        out[k] = pack(a, b);
    }
}

/* h of two channels. */
__device__ inline uint32_t collapse_word(const uint32_t (&out)[STREAMS], const factors &f)
{
    double a = 0, b = 0;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        a = fma(f.pre[k], fused::low_scaled(out[k]), a);
        b = fma(f.pre[k], fused::high_scaled(out[k]), b);
    }
    return pack(a, b);
}

/* bf16 to double by its exponent. Zeros and subnormals come out below 2^-126: their squares vanish
 * in any mean that is a f32 number. */
__device__ inline double magnitude(uint32_t high_half)
{
    return __hiloint2double(int((high_half >> 3 & 0x0FFFE000) + 0x38000000), 0);
}

/* squares + the two squares of a word, low half first. */
__device__ inline double add_squares(double squares, uint32_t v)
{
    double low = magnitude(v << 16), high = magnitude(v);
    return fma(high, high, fma(low, low, squares));
}

/* ---- coefficients ---- */

__device__ inline float sigmoid(float x)
{
    float e = expf(-fabsf(x));
    return __fdividef(x < 0 ? e : 1.0f, 1.0f + e);
}

/* Sinkhorn's rounds for one row by one thread: c[j][k] = a[j] k0[j][k] b[k], of which only a and b
 * change, four reciprocals a half round. A sum of four, a fused multiply-add, a reciprocal (1 ulp)
 * and a product are within what the contract counts for a round. */
__device__ inline void sinkhorn(float (&c)[STREAMS][STREAMS], float eps, int iters)
{
    float a[STREAMS] = {1, 1, 1, 1}, b[STREAMS] = {1, 1, 1, 1};
#pragma unroll 1
    for (int t = 0; t < iters; t++) {
#pragma unroll
        for (int j = 0; j < STREAMS && t > 0; j++) {
            float sum = fmaf(c[j][0], b[0], c[j][1] * b[1]) + fmaf(c[j][2], b[2], c[j][3] * b[3]);
            a[j] *= ptx::rcp_approx(fmaf(a[j], sum, eps));
        }
#pragma unroll
        for (int k = 0; k < STREAMS; k++) {
            float sum = fmaf(c[0][k], a[0], c[1][k] * a[1]) + fmaf(c[2][k], a[2], c[3][k] * a[3]);
            b[k] *= ptx::rcp_approx(fmaf(b[k], sum, eps));
        }
    }
#pragma unroll
    for (int i = 0; i < STREAMS * STREAMS; i++) c[i / 4][i % 4] *= a[i / 4] * b[i % 4];
}

struct mixes {
    float *pre, *post, *comb;
    const float *base, *scale;
    float norm_eps, hc_eps;
    int iters;
};

/* A warp on one row. Lane i < 24 has the sum of products with row i of fn, all have the sum of the
 * q squares. Lanes 0 to 7 finish pre and post; lanes 8 to 23 return an entry of the softmax that
 * Sinkhorn starts from. weight, base: of this lane's output. */
__device__ inline float mix_lane(const mixes &m, int64_t row, float sum, double squares, int64_t q,
                                 float weight, float base)
{
    const unsigned all = 0xFFFFFFFFu, lane = threadIdx.x % 32;
    float r = __frsqrt_rn(__double2float_rn(squares / double(q)) + m.norm_eps);
    float arg = fmaf(sum * r, weight, base);
    if (lane < 4) m.pre[row * 4 + lane] = sigmoid(arg) + m.hc_eps;
    if (lane >= 4 && lane < 8) m.post[row * 4 + lane - 4] = 2 * sigmoid(arg);
    float most = fmaxf(arg, __shfl_xor_sync(all, arg, 1));
    most = fmaxf(most, __shfl_xor_sync(all, most, 2));
    float e = expf(arg - most);
    float total = e + __shfl_xor_sync(all, e, 1);
    total += __shfl_xor_sync(all, total, 2);
    return fmaf(e, ptx::rcp_approx(total), m.hc_eps);
}

/* What a lane of mix_lane() reads of the weights. */
struct mix_weights {
    float weight, base;
};

__device__ inline mix_weights mix_weights_of(const mixes &m)
{
    const unsigned lane = threadIdx.x % 32;
    if (lane >= MIXES) return {0, 0};
    return {m.scale[lane < 4 ? 0 : lane < 8 ? 1 : 2], m.base[lane]};
}

/* The last step of one row by one thread: the 16 entries of mix_lane(), in shared memory. */
__device__ inline void mix_close(const mixes &m, int64_t row, const float *entries)
{
    float4 *comb = reinterpret_cast<float4 *>(m.comb) + 4 * row;
    float c[STREAMS][STREAMS];
#pragma unroll
    for (int i = 0; i < STREAMS * STREAMS; i++) c[i / 4][i % 4] = entries[i];
    sinkhorn(c, m.hc_eps, m.iters);
#pragma unroll
    for (int j = 0; j < STREAMS; j++) comb[j] = make_float4(c[j][0], c[j][1], c[j][2], c[j][3]);
}

/* What the kernels of this operation get. */
struct operands {
    uint16_t *out, *u; /* u may be NULL */
    uint8_t *uq;
    const uint16_t *x, *y, *parts, *w; /* parts may be NULL */
    const float *post, *comb, *pre, *fn;
    unsigned n, d, n_parts;
    float eps;
};

static inline operands operands_of(const dsf_hc_boundary_args *a)
{
    operands o = {};
    o.out = data_of<uint16_t>(a->out);
    o.u = a->u.rank ? data_of<uint16_t>(a->u) : nullptr;
    o.uq = data_of<uint8_t>(a->uq);
    o.x = data_of<uint16_t>(a->x);
    o.y = data_of<uint16_t>(a->y);
    o.parts = a->parts.rank ? data_of<uint16_t>(a->parts) : nullptr;
    o.w = data_of<uint16_t>(a->w);
    o.post = data_of<float>(a->post);
    o.comb = data_of<float>(a->comb);
    o.pre = data_of<float>(a->pre);
    o.fn = data_of<float>(a->fn);
    o.n = unsigned(a->x.dim[0]);
    o.d = unsigned(a->x.dim[2]);
    o.n_parts = a->parts.rank ? unsigned(a->parts.dim[1]) : 0;
    o.eps = a->eps;
    return o;
}

static inline mixes mixes_of(const dsf_hc_boundary_args *a)
{
    return {data_of<float>(a->next_pre),
            data_of<float>(a->next_post),
            data_of<float>(a->next_comb),
            data_of<float>(a->base),
            data_of<float>(a->scale),
            a->mix_eps,
            a->hc_eps,
            a->iters};
}

/* Channels [c, c + 8) of the sublayer's output of one row. */
__device__ inline uint4 sublayer_chunk(const operands &o, int64_t row, unsigned c)
{
    uint4 y = load_chunk<true>(o.y + row * o.d, c, o.d);
    if (!o.parts) return y;
    float sum[CHUNK] = {0}, v[CHUNK];
    const uint16_t *part = o.parts + row * o.n_parts * o.d;
    for (unsigned e = 0; e < o.n_parts; e++) {
        unpack_chunk(v, load_chunk<true>(part + int64_t(e) * o.d, c, o.d));
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], v[i]);
    }
    unpack_chunk(v, y);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], v[i]);
    return pack_chunk(sum);
}

/* The same channels of the four new streams, each a vector of four words. AGAIN: factors are read
 * from shared memory for every word, which spares 48 registers. */
template <bool AGAIN>
__device__ inline void expand_chunk(uint4 (&out)[STREAMS], const uint4 (&x)[STREAMS], uint4 y,
                                    const factors &f)
{
    const uint32_t *from[STREAMS], yw[4] = {y.x, y.y, y.z, y.w};
    uint32_t *to[STREAMS];
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        from[k] = &x[k].x;
        to[k] = &out[k].x;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t in[STREAMS], back[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) in[k] = from[k][i];
        if (AGAIN) asm volatile("" ::: "memory");
        expand_word(back, in, yw[i], f);
#pragma unroll
        for (int k = 0; k < STREAMS; k++) to[k][i] = back[k];
    }
}

__device__ inline uint4 collapse_chunk(const uint4 (&out)[STREAMS], const factors &f)
{
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t in[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) in[k] = (&out[k].x)[i];
        h[i] = collapse_word(in, f);
    }
    return make_uint4(h[0], h[1], h[2], h[3]);
}

__device__ inline double squares_of(uint4 v)
{
    return add_squares(add_squares(add_squares(add_squares(0, v.x), v.y), v.z), v.w);
}

} // namespace boundary

#endif
