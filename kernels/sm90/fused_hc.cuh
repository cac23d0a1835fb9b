/* Expansion and collapse of a chunk of 8 channels of one row, in registers. The sums of the
 * reference are taken in double; products of a f32 and a bf16 are exact there, so that a chain of
 * fused multiply-adds in the written order has its bits. */
#ifndef DSF_SM90_FUSED_HC_CUH
#define DSF_SM90_FUSED_HC_CUH

#include "sm90/fused.cuh"

extern "C" {
#include "ops/fused.h"
}

namespace boundary
{

enum { STREAMS = 4, COEFFICIENTS = 24 };

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

/* Entry i of a row's factors, for by_shifts. */
__device__ inline double factor(const float *post, const float *comb, const float *pre, int64_t row,
                                int i)
{
    float v = i < 4 ? post[row * 4 + i] : i < 20 ? comb[row * 16 + i - 4] : pre[row * 4 + i - 20];
    return double(v) * fused::unscale;
}

/* How bf16 go to double: by shifts, which need factors times fused::unscale and finite numbers, or
 * by conversions, which take any. */
struct by_shifts {
    static __device__ inline double low(uint32_t v) { return fused::low_scaled(v); }
    static __device__ inline double high(uint32_t v) { return fused::high_scaled(v); }
};
struct by_conversion {
    static __device__ inline double low(uint32_t v) { return num::low_bf16(v); }
    static __device__ inline double high(uint32_t v) { return num::high_bf16(v); }
};

__device__ inline uint32_t pack(double low, double high)
{
    return num::pack_bf16(__double2float_rn(low), __double2float_rn(high));
}

/* Two channels: x[j] of the four streams and y in, out[k] back. */
template <typename WAY>
__device__ inline void expand_word(uint32_t (&out)[STREAMS], const uint32_t (&x)[STREAMS],
                                   uint32_t y, const factors &f)
{
    double low[STREAMS], high[STREAMS], yl = WAY::low(y), yh = WAY::high(y);
#pragma unroll
    for (int j = 0; j < STREAMS; j++) {
        low[j] = WAY::low(x[j]);
        high[j] = WAY::high(x[j]);
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
template <typename WAY>
__device__ inline uint32_t collapse_word(const uint32_t (&out)[STREAMS], const factors &f)
{
    double a = 0, b = 0;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        a = fma(f.pre[k], WAY::low(out[k]), a);
        b = fma(f.pre[k], WAY::high(out[k]), b);
    }
    return pack(a, b);
}

/* bf16 to double by its exponent. Zeros and subnormals come out below 2^-126: their squares vanish
 * in any mean that is a f32 number. Infinity and NaN stay what they are. */
__device__ inline double magnitude(uint32_t high_half)
{
    uint32_t high = (high_half >> 3 & 0x0FFFE000) + 0x38000000;
    return __hiloint2double(int(high >= 0x47F00000 ? high + 0x38000000 : high), 0);
}

/* squares + the two squares of a word, low half first. */
__device__ inline double add_squares(double squares, uint32_t v)
{
    double low = magnitude(v << 16), high = magnitude(v);
    return fma(high, high, fma(low, low, squares));
}

/* What the kernels of this operation get. */
struct operands {
    uint16_t *out, *u; /* u may be NULL */
    uint8_t *uq;
    const uint16_t *x, *y, *parts, *w; /* parts may be NULL */
    const float *post, *comb, *pre;
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
    o.n = unsigned(a->x.dim[0]);
    o.d = unsigned(a->x.dim[2]);
    o.n_parts = a->parts.rank ? unsigned(a->parts.dim[1]) : 0;
    o.eps = a->eps;
    return o;
}

/* Not 0 when one of 8 bf16 is infinite or NaN: an exponent of ones carries into the sign's place.
 */
__device__ inline uint32_t not_finite(uint4 v)
{
    constexpr uint32_t exponents = 0x7F807F80, ones = 0x00800080;
    return (((v.x & exponents) + ones) | ((v.y & exponents) + ones) | ((v.z & exponents) + ones) |
            ((v.w & exponents) + ones)) &
           0x80008000;
}

/* Eight channels of the four new streams, each a vector of four words. */
template <typename WAY>
__device__ inline void expand_chunk(uint4 (&out)[STREAMS], const uint4 (&x)[STREAMS], uint4 y,
                                    const factors &f)
{
    uint32_t to[4][STREAMS];
    const uint32_t yw[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t from[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) from[k] = (&x[k].x)[i];
        expand_word<WAY>(to[i], from, yw[i], f);
    }
#pragma unroll
    for (int k = 0; k < STREAMS; k++) out[k] = make_uint4(to[0][k], to[1][k], to[2][k], to[3][k]);
}

template <typename WAY = by_shifts>
__device__ inline uint4 collapse_chunk(const uint4 (&out)[STREAMS], const factors &f)
{
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t in[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) in[k] = (&out[k].x)[i];
        h[i] = collapse_word<WAY>(in, f);
    }
    return make_uint4(h[0], h[1], h[2], h[3]);
}

__device__ inline double squares_of(uint4 v)
{
    return add_squares(add_squares(add_squares(add_squares(0, v.x), v.y), v.z), v.w);
}

} // namespace boundary

#endif
