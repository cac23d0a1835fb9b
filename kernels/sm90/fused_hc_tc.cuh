/* What the two tensor-core kernels of hc_boundary share (FUSION.md). A cluster of blocks takes some
 * rows, each block its share of their channels. A warp's step is a tile of 16 rows by 32 channels:
 * a lane holds 8 channels of two rows in the layout of an mma fragment, from the load to the store.
 *
 * Sums of a row, in one order whatever the kernel and the number of rows:
 *   tile: products with fn in one chain of 8 mma from zero (stream by stream, two times 16
 *     channels), fn as the sum of three bf16; hi + (mid + lo) in f32. Squares of the stream: 32 in
 * a chain, four lanes by a tree, f32. Squares of h: 8 in a chain, four lanes by a tree, double.
 *   part (a sixteenth of the row): its tiles in ascending order, from zero.
 *   row: its parts in ascending order, in double. */
#ifndef DSF_SM90_FUSED_HC_TC_CUH
#define DSF_SM90_FUSED_HC_TC_CUH

#include "sm90/fused_hc.cuh"
#include "sm90/ptx.cuh"

extern "C" {
#include "sm90/tune_fused.h"
}

namespace boundary
{

constexpr int parts = DSF_BOUNDARY_PARTS;
constexpr int tile = DSF_BOUNDARY_TILE, tile_rows = 16;
constexpr int outputs = MIXES / 8, columns = 3 * outputs; /* n-tiles of 8: hi, mid, lo of fn */
constexpr unsigned all_lanes = 0xFFFFFFFFu;
constexpr unsigned h_pad = 32; /* channels: rows of h fall on different halves of the banks */

/* Sums of one row over one tile or one part. */
struct __align__(16) sums
{
    float mix[MIXES];
    double squares, h_squares;
};

/* The same of a lane's two rows (lane / 4 and that + 8) and its columns of the mma result. */
struct lane_sums {
    float mix[outputs][4];
    double squares[2], h_squares[2];
};

__device__ inline void clear(lane_sums &s)
{
#pragma unroll
    for (int i = 0; i < outputs * 4; i++) s.mix[i / 4][i % 4] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) s.squares[r] = s.h_squares[r] = 0;
}

/* One row of a tile: the new stream and h from what was loaded; squares meet in the four lanes. */
template <bool AGAIN>
__device__ inline void row_of_tile(uint4 (&out)[STREAMS], uint4 &h, lane_sums &s, int r,
                                   const uint4 (&x)[STREAMS], uint4 y, const factors &f)
{
    expand_chunk<AGAIN>(out, x, y, f);
    h = collapse_chunk(out, f);
    float stream = 0;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        float v[CHUNK];
        unpack_chunk(v, out[k]);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) stream = fmaf(v[i], v[i], stream);
    }
    double collapsed = squares_of(h);
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {
        stream += __shfl_xor_sync(all_lanes, stream, d);
        collapsed += __shfl_xor_sync(all_lanes, collapsed, d);
    }
    s.squares[r] += double(stream);
    s.h_squares[r] += collapsed;
}

/* One stream of a tile: a and b are the two rows' 8 channels; w[j] holds those of fn's column tile
 * j in both halves of 16 channels. */
__device__ inline void multiply(float (&acc)[4], uint4 a, uint4 b, uint4 w)
{
    const uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
    const uint32_t w_first[2] = {w.x, w.y}, w_second[2] = {w.z, w.w};
    ptx::mma_m16n8k16_bf16(acc, first, w_first);
    ptx::mma_m16n8k16_bf16(acc, second, w_second);
}

__device__ inline void add_tile(lane_sums &s, const float (&acc)[columns][4])
{
#pragma unroll
    for (int j = 0; j < outputs; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s.mix[j][e] += acc[j][e] + (acc[outputs + j][e] + acc[2 * outputs + j][e]);
}

/* fn of 8 channels as three bf16 whose sum it is: 24 bits, 8 each. */
__device__ inline void cut(uint4 (&w)[3], float4 a, float4 b)
{
    float v[CHUNK] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int p = 0; p < 3; p++) {
        w[p] = pack_chunk(v);
        float rounded[CHUNK];
        unpack_chunk(rounded, w[p]);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) v[i] -= rounded[i];
    }
}

/* A lane's sums to its rows: `first` is the sums of row lane / 4, rows are `step` apart. */
__device__ inline void put_sums(sums *first, int step, const lane_sums &s, unsigned t)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sums *to = first + 8 * r * step;
#pragma unroll
        for (int j = 0; j < outputs; j++)
            *reinterpret_cast<float2 *>(&to->mix[8 * j + 2 * t]) =
                make_float2(s.mix[j][2 * r], s.mix[j][2 * r + 1]);
        if (t == 0) {
            to->squares = s.squares[r];
            to->h_squares = s.h_squares[r];
        }
    }
}

/* ---- after the tiles ---- */

template <int ROWS, int CLUSTER> struct finish_space {
    float entries[ROWS / CLUSTER][32]; /* of mix_lane(), by lane */
    float by[ROWS];                    /* factor of the norm */
};

struct block_rows {
    unsigned first, n; /* of the tensor; n >= 1 of them exist */
    unsigned channel, channels, h_stride;
};

/* Sum over the parts of a row, of the double or float at `addr` of its first part's sums. */
template <typename T, int CLUSTER>
__device__ inline double over_parts(uint32_t addr, uint32_t stride)
{
    constexpr int here = parts / CLUSTER;
    T v[parts];
#pragma unroll
    for (int p = 0; p < parts; p++) {
        uint32_t at = addr + uint32_t(p % here) * stride;
        v[p] = sizeof(T) == 8 ? T(ptx::ld_shared_cluster_f64(at, uint32_t(p / here)))
                              : T(ptx::ld_shared_cluster_f32(at, uint32_t(p / here)));
    }
    double sum = 0;
#pragma unroll
    for (int p = 0; p < parts; p++) sum += double(v[p]);
    return sum;
}

/* Chunks of h that a thread has under way: 40 of them (64 rows, d = 5,120) one after the other
 * would wait for each one's loads. */
constexpr int at_once = 4;

template <int ROWS, int CLUSTER, int THREADS>
__device__ inline void normalise_rows(const operands &o, const uint16_t *h,
                                      const finish_space<ROWS, CLUSTER> &space,
                                      const block_rows &rows, unsigned thread)
{
    const unsigned chunks = rows.channels / CHUNK, items = rows.n * chunks;
    for (unsigned base = 0; base < items; base += at_once * THREADS) { /* 4 lanes are in one row */
        uint4 value[at_once], weight[at_once];
        unsigned r[at_once], c[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            unsigned item = min(base + i * THREADS + thread, items - 1);
            r[i] = item / chunks;
            c[i] = (item - r[i] * chunks) * CHUNK;
            value[i] = *reinterpret_cast<const uint4 *>(h + r[i] * rows.h_stride + c[i]);
            c[i] += rows.channel;
            weight[i] = load_chunk<true>(o.w, c[i], o.d);
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            bool live = base + i * THREADS + thread < items;
            int64_t row = rows.first + r[i];
            float v[CHUNK];
            unpack_chunk(v, value[i]);
            fused::scale_chunk(v, weight[i], space.by[r[i]]);
            if (o.u && live) ptx::st_global_v4(o.u + row * o.d + c[i], pack_chunk(v));
            fused::put_q8(o.uq + row * (o.d + o.d / 32), v, c[i], o.d, live);
        }
    }
}

/* Norm, quantiser and coefficients of the cluster's rows, after a barrier of the cluster:
 * `of[part][row]` are complete in every block. Each makes the coefficients of its share of the
 * rows: their sums by the last warps, Sinkhorn's rounds by lanes of the last one. */
template <int ROWS, int CLUSTER, int THREADS>
__device__ inline void finish_rows(const operands &o, const mixes &m, const sums (*of)[ROWS],
                                   const uint16_t *h, finish_space<ROWS, CLUSTER> &space,
                                   block_rows rows)
{
    constexpr unsigned mine = ROWS / CLUSTER, stride = ROWS * sizeof(sums),
                       warps_here = THREADS / 32;
    const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const unsigned first = ptx::cluster_ctarank() * mine;
    const mix_weights w = mix_weights_of(m);
    for (unsigned i = warps_here - 1 - warp; i < mine && first + i < rows.n; i += warps_here) {
        const sums *row = &of[0][first + i];
        float sum = float(
            over_parts<float, CLUSTER>(ptx::smem(&row->mix[lane < MIXES ? lane : 0]), stride));
        double squares = over_parts<double, CLUSTER>(ptx::smem(&row->squares), stride);
        space.entries[i][lane] = mix_lane(m, rows.first + first + i, sum, squares,
                                          int64_t(STREAMS) * o.d, w.weight, w.base);
    }
    for (unsigned r = thread; r < rows.n; r += THREADS)
        space.by[r] = fused::norm_factor(
            over_parts<double, CLUSTER>(ptx::smem(&of[0][r].h_squares), stride), o.d, o.eps);
    ptx::cluster_arrive_relaxed(); /* this block reads no other's memory from here on */
    __syncthreads();
    if (thread >= THREADS - mine && first + thread - (THREADS - mine) < rows.n)
        mix_close(m, rows.first + first + thread - (THREADS - mine),
                  space.entries[thread - (THREADS - mine)] + 8);
    normalise_rows<ROWS, CLUSTER, THREADS>(o, h, space, rows, thread);
    ptx::cluster_wait(); /* the others have read this block's sums */
}

/* ---- host ---- */

struct cluster_grid {
    unsigned clusters, blocks, threads; /* blocks of a cluster, threads of a block */
    size_t shared;
    bool early; /* as fused::launch_early() */
};

template <typename KERNEL, typename... ARGS>
static inline dsf_status launch_clusters(const dsf_launch *lc, KERNEL *kernel, cluster_grid grid,
                                         ARGS... args)
{
    DSF_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(grid.shared)));
    if (grid.blocks > 8)
        DSF_CUDA_TRY(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchAttribute attr[2] = {};
    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = grid.blocks;
    attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
    attr[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.clusters * grid.blocks);
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = grid.shared;
    config.stream = dsf_stream(lc);
    config.attrs = attr;
    config.numAttrs = grid.early ? 2 : 1;
    DSF_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, args...));
    return DSF_OK;
}

dsf_status launch_few(const dsf_launch *lc, const operands &o, const mixes &m);

} // namespace boundary

#endif
