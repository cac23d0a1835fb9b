/* The plain products on the device: y = x W^T in f32 for every shape of the contract.
 *
 * One warp computes one output column for ROWS rows. K goes in groups of 128: lane l takes the
 * channels l, l + 32, l + 64, l + 96 of a group, sums their products from zero, and adds the group
 * to its accumulator; the 32 lanes meet in one tree. The order depends on K alone, so a row has the
 * same bits in any company, and a term passes 4 + groups + 5 roundings: the contract's bound has 12
 * + groups. Operands expand exactly: codes times powers of two are f32 numbers. */
#include "sm90/linear_plain.cuh"
#include "sm90/ptx.cuh"

extern "C" {
#include "ops/linear.h"
}

namespace
{

using linear_plain::grouped;
using linear_plain::rows;
using linear_plain::shape;

constexpr int warps = 4;     /* columns of a block */
constexpr int most_y = 4096; /* blocks along the rows; more rows are strides */

/* Where the operands of one contract are: x(row, column, c), w(column, c) exactly, and the store.
 */
struct g8 {
    const uint8_t *x, *w, *s;
    uint16_t *out;

    __device__ float load_x(const shape &d, int64_t row, int64_t, int64_t c) const
    {
        const uint8_t *rec = x + row * (d.k + d.k / 32);
        return num::e4m3_to_f32(rec[c]) * num::e8m0_to_f32(rec[d.k + c / 32]);
    }
    __device__ float load_w(const shape &d, int64_t column, int64_t c) const
    {
        return num::e4m3_to_f32(w[column * d.k + c]) *
               num::e8m0_to_f32(s[column / 32 * (d.k / 32) + c / 32]);
    }
    __device__ void store(int64_t at, float y) const { out[at] = num::f32_to_bf16(y); }
};

template <typename RESULT> struct bf16 {
    const uint16_t *x, *w;
    RESULT *out;

    __device__ float load_x(const shape &d, int64_t row, int64_t, int64_t c) const
    {
        return num::bf16_to_f32(x[row * d.k + c]);
    }
    __device__ float load_w(const shape &d, int64_t column, int64_t c) const
    {
        return num::bf16_to_f32(w[column * d.k + c]);
    }
    __device__ void store(int64_t at, float y) const { put(out + at, y); }
    static __device__ void put(float *to, float y) { *to = y; }
    static __device__ void put(uint16_t *to, float y) { *to = num::f32_to_bf16(y); }
};

template <typename OPERANDS>
__global__ void __launch_bounds__(32 * warps) linear_kernel(OPERANDS p, shape d)
{
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
    int lane = threadIdx.x % 32;
    int64_t column = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
    if (column >= d.columns) return;
    for (int64_t row = int64_t(blockIdx.y) * rows; row < d.n; row += int64_t(gridDim.y) * rows)
        linear_plain::column_of_rows(p, d, row, column, lane);
}

template <typename OPERANDS>
dsf_status launch(const dsf_launch *lc, const OPERANDS &p, const shape &d)
{
    dim3 grid(dsf_blocks(d.columns, warps), min(dsf_blocks(d.n, rows), unsigned(most_y)));
    return launch_early(dsf_stream(lc), {grid, 32 * warps}, linear_kernel<OPERANDS>, p, d);
}

template <typename RESULT> dsf_status launch_bf16(const dsf_launch *lc, const void *args)
{
    const dsf_linear_args *a = static_cast<const dsf_linear_args *>(args);
    bf16<RESULT> p = {data_of<uint16_t>(a->x), data_of<uint16_t>(a->w), data_of<RESULT>(a->out)};
    return launch(lc, p, {a->out.dim[0], a->out.dim[1], a->w.dim[1]});
}

} // namespace

extern "C" dsf_status dsf_linear_g8_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_linear_g8_args *a = static_cast<const dsf_linear_g8_args *>(args);
    g8 p = {data_of<uint8_t>(a->x), data_of<uint8_t>(a->w), data_of<uint8_t>(a->s),
            data_of<uint16_t>(a->out)};
    return launch(lc, p, {a->out.dim[0], a->out.dim[1], a->w.dim[1]});
}

extern "C" dsf_status dsf_linear_gb_sm90(const dsf_launch *lc, const void *args)
{
    return launch_bf16<uint16_t>(lc, args);
}

extern "C" dsf_status dsf_linear_gf_sm90(const dsf_launch *lc, const void *args)
{
    return launch_bf16<float>(lc, args);
}

extern "C" dsf_status dsf_linear_group_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_linear_group_args *a = static_cast<const dsf_linear_group_args *>(args);
    int64_t groups = a->w.dim[0], o = a->w.dim[1];
    grouped p = {data_of<uint16_t>(a->x),
                 data_of<uint8_t>(a->w),
                 data_of<uint8_t>(a->s),
                 data_of<uint16_t>(a->out),
                 o,
                 groups};
    return launch(lc, p, {a->out.dim[0], groups * o, a->w.dim[2]});
}
