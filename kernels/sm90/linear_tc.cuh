/* What the tensor-core products of bf16 operands share: tiles, the store of a tile, launches.
 *
 * Weights are the M side of every instruction and tokens the N side, whatever n: an output element
 * is summed by the same instruction in the same order in all kernels. K goes in segments of 512:
 * inside one the tensor core sums steps of 16 channels from zero, ascending; segments are added in
 * f32, ascending from zero. */
#ifndef DSF_SM90_LINEAR_TC_CUH
#define DSF_SM90_LINEAR_TC_CUH

#include "sm90/linear_plain.cuh"
#include "sm90/ptx.cuh"
#include "sm90/sm90.cuh"
#include "sm90/tensormap.cuh"

extern "C" {
#include "ops/linear.h"
#include "sm90/tune_linear.h"
}

namespace linear_tc
{

constexpr int segment = DSF_LINEAR_SEGMENT;
constexpr int depth = 64;                   /* channels of a stage: 128 bytes, one swizzled row */
constexpr int steps = depth / 16;           /* instructions along a stage */
constexpr int blocks = segment / depth;     /* stages of a segment */
constexpr int columns = DSF_LINEAR_COLUMNS; /* two warpgroups of 64 */
constexpr int row_bytes = depth * 2;        /* of a stage, weights and tokens */
constexpr int weight_bytes = columns * row_bytes;
constexpr uint32_t alignment = DSF_LINEAR_ALIGN; /* of the stages */

/* One launch. wo_a: `groups` products side by side, x and out with a row of all groups; `plain`
 * leads to what the weights were expanded from. */
struct job {
    const void *w, *x;
    void *out;
    int64_t n, k, o, groups;
    linear_plain::grouped plain;
    bool f32;
    dsf_linear_tile tile;
    cudaStream_t stream;
};

dsf_status run_many(const job &j);
dsf_status run_few(const job &j);

/* Boxes of one stage. Channels behind k and rows behind the last are zero. */
static inline dsf_status map_operands(const job &j, CUtensorMap *w, CUtensorMap *x, int tokens)
{
    int64_t k = 2 * j.k;
    dsf_byte_matrix mw = {j.w, j.groups * j.o, k, k, uint32_t(columns), uint32_t(row_bytes)};
    dsf_byte_matrix mx = {
        j.x, j.n, j.groups * k, j.groups * k, uint32_t(tokens), uint32_t(row_bytes)};
    DSF_TRY(dsf_tensormap_bytes(w, mw, CU_TENSOR_MAP_SWIZZLE_128B));
    return dsf_tensormap_bytes(x, mx, CU_TENSOR_MAP_SWIZZLE_128B);
}

/* The part of the output that a warp holds: 16 columns from `column`, tokens from `token`. */
struct place {
    int64_t token, n;    /* first, and end */
    int64_t column, end; /* first, and end */
    int64_t pitch;       /* of a row of out */
};

/* A warp's store of one register writes 8 columns of 4 tokens: whole sectors of 32 bytes. */
__device__ inline void store_tile(float *out, const place &p, const float *d, int registers)
{
    int lane = threadIdx.x % 32;
    int64_t token = p.token + lane % 4 * 2, column = p.column + lane / 4;
    float *to = out + token * p.pitch + column;
    int left = int(p.n - token); /* of tokens */
    bool upper = column < p.end, lower = column + 8 < p.end;
#pragma unroll
    for (int i = 0; i < registers; i += 4, to += 8 * p.pitch) {
        bool even = i * 2 < left, odd = i * 2 + 1 < left;
        if (even && upper) to[0] = d[i];
        if (odd && upper) to[p.pitch] = d[i + 1];
        if (even && lower) to[8] = d[i + 2];
        if (odd && lower) to[p.pitch + 8] = d[i + 3];
    }
}

/* Columns column .. column + 3 of one token; all at once where they lie at multiples of 8 bytes. */
__device__ inline void store_columns(uint16_t *to, uint2 v, int64_t columns_left, bool whole)
{
    if (whole) {
        if (columns_left > 0) *reinterpret_cast<uint2 *>(to) = v;
        return;
    }
    if (columns_left > 0) to[0] = uint16_t(v.x);
    if (columns_left > 1) to[1] = uint16_t(v.x >> 16);
    if (columns_left > 2) to[2] = uint16_t(v.y);
    if (columns_left > 3) to[3] = uint16_t(v.y >> 16);
}

/* Two transposed 8 x 8 tiles and one exchange between neighbours: a lane has four columns of a
 * token, so that a warp writes whole sectors of 32 bytes. */
__device__ inline void store_tile(uint16_t *out, const place &p, const float *d, int registers)
{
    int lane = threadIdx.x % 32, odd = lane & 1;
    int64_t token = p.token + lane / 4, column = p.column + (lane & 2) * 2 + odd * 8;
    uint16_t *to = out + token * p.pitch + column;
    int left = int(p.n - token);
    bool whole = (p.pitch & 3) == 0 && (p.end & 3) == 0;
#pragma unroll
    for (int i = 0; i < registers; i += 4, to += 8 * p.pitch) {
        uint32_t low = ptx::movmatrix_trans(num::pack_bf16(d[i], d[i + 1]));
        uint32_t high = ptx::movmatrix_trans(num::pack_bf16(d[i + 2], d[i + 3]));
        uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, odd ? low : high, 1);
        uint2 v = odd ? make_uint2(other, high) : make_uint2(low, other);
        if (i * 2 < left) store_columns(to, v, p.end - column, whole);
    }
}

/* wo_a: the least scale (a byte) with which every e4m3 code is a bf16 number, 2^-9 2^-124. */
constexpr int least_scale = 3;

/* Columns of a block of 32 with a scale below that are summed by the plain kernel's rule instead,
 * whatever n: the 16 columns of a warp, after their stores. */
__device__ inline void redo_columns(const linear_plain::grouped &g, const place &at, int64_t group,
                                    int tokens, int64_t k)
{
    int lane = threadIdx.x % 32;
    linear_plain::shape d = {at.n, g.groups * g.o, k};
    int64_t column = group * g.o + at.column, end = min(at.token + tokens, at.n);
    __syncwarp(); /* the stores before, by other lanes */
    for (int64_t row = at.token; row < end; row += linear_plain::rows)
        for (int c = 0; c < 16; c++) linear_plain::column_of_rows(g, d, row, column + c, lane);
}

/* One stage: 64 columns of weights at `w`, N tokens at `x`, both rows of 128 swizzled bytes. */
template <int N>
__device__ inline void multiply_stage(float (&part)[N / 2], uint32_t w, uint32_t x, bool first)
{
    uint64_t a = ptx::wgmma_desc_128b(w), b = ptx::wgmma_desc_128b(x);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; i++)
        ptx::wgmma<N>::template bf16_ss<0>(part, a + 2 * i, b + 2 * i, !first || i > 0);
    ptx::wgmma_commit_group();
}

template <int R> __device__ inline void add_segment(float (&acc)[R], const float (&part)[R])
{
#pragma unroll
    for (int i = 0; i < R; i++) acc[i] = __fadd_rn(acc[i], part[i]);
}

/* A ring of stages as one side goes round it. */
struct ring {
    int stages, at;
    uint32_t parity;

    __device__ void next()
    {
        if (++at < stages) return;
        at = 0;
        parity ^= 1;
    }
};

/* blocks of `threads`, in clusters; the kernel starts while the one before ends. */
template <typename RESULT, typename SHAPE>
static inline dsf_status launch(void (*kernel)(CUtensorMap, CUtensorMap, SHAPE, RESULT *),
                                int64_t blocks, int threads, int cluster, const job &j,
                                const CUtensorMap &w, const CUtensorMap &x, const SHAPE &p)
{
    if (blocks > INT32_MAX)
        return DSF_FAIL(DSF_EINVAL, "linear: %lld blocks, at most 2^31 - 1", (long long)blocks);
    launch_shape l = {unsigned(blocks), unsigned(threads), size_t(j.tile.shared),
                      unsigned(cluster)};
    return launch_early(j.stream, l, kernel, w, x, p, static_cast<RESULT *>(j.out));
}

} // namespace linear_tc

#endif
