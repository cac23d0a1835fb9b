/* The sums of the plain products (linear.cu), for every kernel that must agree with them. */
#ifndef DSF_SM90_LINEAR_PLAIN_CUH
#define DSF_SM90_LINEAR_PLAIN_CUH

#include "sm90/sm90.cuh"

namespace linear_plain
{

constexpr int rows = 8;    /* of one warp: a weight is expanded once for so many */
constexpr int group = 128; /* channels between two additions to the accumulator */

struct shape {
    int64_t n, columns, k;
};

/* Column g * o + j reads group g of x; o % 32 == 0, so that the scale rows run on over groups. */
struct grouped {
    const uint16_t *x;
    const uint8_t *w, *s;
    uint16_t *out;
    int64_t o, groups;

    __device__ float load_x(const shape &d, int64_t row, int64_t column, int64_t c) const
    {
        return num::bf16_to_f32(x[(row * groups + column / o) * d.k + c]);
    }
    __device__ float load_w(const shape &d, int64_t column, int64_t c) const
    {
        return num::e4m3_to_f32(w[column * d.k + c]) *
               num::e8m0_to_f32(s[column / 32 * (d.k / 32) + c / 32]);
    }
    __device__ void store(int64_t at, float y) const { out[at] = num::f32_to_bf16(y); }
};

/* The lane's part of one column, for `rows` rows from `row`; rows behind the last repeat it. */
template <typename OPERANDS>
__device__ inline void sum_lane(float (&acc)[rows], const OPERANDS &p, const shape &d, int64_t row,
                                int64_t column, int lane)
{
    for (int64_t k0 = 0; k0 < d.k; k0 += group) {
        float part[rows] = {};
#pragma unroll
        for (int i = 0; i < group; i += 32) {
            int64_t c = k0 + i + lane;
            if (c >= d.k) continue;
            float w = p.load_w(d, column, c);
#pragma unroll
            for (int r = 0; r < rows; r++)
                part[r] = __fmaf_rn(p.load_x(d, min(row + r, d.n - 1), column, c), w, part[r]);
        }
#pragma unroll
        for (int r = 0; r < rows; r++) acc[r] = __fadd_rn(acc[r], part[r]);
    }
}

/* A warp: rows row .. row + 7 of one column. */
template <typename OPERANDS>
__device__ inline void column_of_rows(const OPERANDS &p, const shape &d, int64_t row,
                                      int64_t column, int lane)
{
    float acc[rows] = {};
    sum_lane(acc, p, d, row, column, lane);
#pragma unroll
    for (int r = 0; r < rows; r++) {
        float y = warp_sum(acc[r]);
        if (lane == r && row + r < d.n) p.store((row + r) * d.columns + column, y);
    }
}

} // namespace linear_plain

#endif
