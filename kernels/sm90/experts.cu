/* experts_up and experts_down for every shape, in f32 FMA.
 *
 * A block computes 32 channels of one (row, slot) pair: 8 warps, 4 channels a warp. The record is
 * expanded to f32 in shared memory, 2,048 channels at a time (its scales are powers of two: exact);
 * a lane takes 8 channels of every 256, adds their products in order, then the products' scaled sum
 * to its own sum; the 32 lanes meet in a tree. The order is the same for every n.
 *
 * Rounding: 8 in the group of 8, one for each 256 of K, 5 in the tree. */
#include "sm90/experts.cuh"

namespace
{

constexpr int warps = 8, per_warp = 4, channels = warps * per_warp;
constexpr int chunk = 2048; /* 8 KB of f32 */
constexpr int lane_k = 8;   /* channels of K that a lane reads at once: one word of codes */

struct dot_shape {
    int k;     /* of the record and of a weight row */
    int width; /* rows of the weight */
};

/* part + the products of 8 codes with 8 f32. */
__device__ float dot_word(uint32_t codes, const float *x)
{
    float part = 0;
#pragma unroll
    for (int i = 0; i < lane_k; i++)
        part = __fmaf_rn(x[i], num::e2m1_to_f32(codes >> 4 * i & 15), part);
    return part;
}

__device__ void stage(float *shared, const uint8_t *record, int k, int begin)
{
    for (int c = begin + int(threadIdx.x); c < min(begin + chunk, k); c += warps * 32)
        shared[c - begin] = num::e4m3_to_f32(record[c]) * num::e8m0_to_f32(record[k + c / 32]);
}

/* sum[t][j]: row first + j of table t's expert, times the record. Whole block; every lane gets the
 * sums. */
template <int TABLES>
__device__ void dot_rows(float (&sum)[TABLES][per_warp], const uint8_t *record,
                         const expert_table (&table)[TABLES], int32_t id, dot_shape shape,
                         int first)
{
    __shared__ float x[chunk];
    int lane = threadIdx.x % 32;
    for (int begin = 0; begin < shape.k; begin += chunk) {
        __syncthreads();
        stage(x, record, shape.k, begin);
        __syncthreads();
        for (int c = begin + lane * lane_k; c < min(begin + chunk, shape.k); c += 32 * lane_k)
#pragma unroll
            for (int t = 0; t < TABLES; t++)
#pragma unroll
                for (int j = 0; j < per_warp; j++) {
                    int64_t row = min(first + j, shape.width - 1);
                    uint32_t codes = *reinterpret_cast<const uint32_t *>(
                        table[t].codes_of(id) + row * (shape.k / 2) + c / 2);
                    uint8_t scale = table[t].scales_of(id)[row * (shape.k / 32) + c / 32];
                    float part = dot_word(codes, x + (c - begin));
                    sum[t][j] = __fmaf_rn(part, num::e8m0_to_f32(scale), sum[t][j]);
                }
    }
#pragma unroll
    for (int t = 0; t < TABLES; t++)
#pragma unroll
        for (int j = 0; j < per_warp; j++) sum[t][j] = warp_sum(sum[t][j]);
}

__device__ int first_channel()
{
    return int(blockIdx.y) * channels + int(threadIdx.x) / 32 * per_warp;
}

struct up_params {
    uint16_t *out;
    const uint8_t *x;
    const int32_t *ids;
    const float *weights;
    expert_table w1, w3;
    dot_shape shape;
    int slots;
    float limit;
};

/* Grid: pairs x blocks of channels. */
__global__ void __launch_bounds__(warps * 32) experts_up(const up_params p)
{
    int64_t pair = blockIdx.x;
    const uint8_t *record = p.x + pair / p.slots * (p.shape.k + p.shape.k / 32);
    const expert_table table[2] = {p.w1, p.w3};
    float sum[2][per_warp] = {};
    int first = first_channel();
    dot_rows<2>(sum, record, table, p.ids[pair], p.shape, first);
    if (threadIdx.x % 32) return;
    for (int j = 0; j < min(per_warp, p.shape.width - first); j++)
        p.out[pair * p.shape.width + first + j] =
            expert_swiglu(sum[0][j], sum[1][j], p.limit, p.weights[pair]);
}

struct down_params {
    uint16_t *out;
    const uint8_t *h;
    const int32_t *ids;
    expert_table w2;
    dot_shape shape;
};

__global__ void __launch_bounds__(warps * 32) experts_down(const down_params p)
{
    int64_t pair = blockIdx.x;
    const uint8_t *record = p.h + pair * (p.shape.k + p.shape.k / 32);
    const expert_table table[1] = {p.w2};
    float sum[1][per_warp] = {};
    int first = first_channel();
    dot_rows<1>(sum, record, table, p.ids[pair], p.shape, first);
    if (threadIdx.x % 32) return;
    for (int j = 0; j < min(per_warp, p.shape.width - first); j++)
        p.out[pair * p.shape.width + first + j] = num::f32_to_bf16(sum[0][j]);
}

dim3 grid_of(const dsf_tensor &ids, int width)
{
    return dim3(static_cast<unsigned>(ids.dim[0] * ids.dim[1]), dsf_blocks(width, channels));
}

} // namespace

extern "C" dsf_status dsf_experts_up_sm90(const dsf_launch *lc, const void *args)
{
    const auto *a = static_cast<const dsf_experts_up_args *>(args);
    const up_params p = {data_of<uint16_t>(a->out),
                         data_of<uint8_t>(a->x),
                         data_of<int32_t>(a->ids),
                         data_of<float>(a->weights),
                         table_of(a->w1, a->s1),
                         table_of(a->w3, a->s3),
                         {int(a->x.dim[1]), int(a->out.dim[2])},
                         int(a->out.dim[1]),
                         a->limit};
    experts_up<<<grid_of(a->ids, p.shape.width), warps * 32, 0, dsf_stream(lc)>>>(p);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

extern "C" dsf_status dsf_experts_down_sm90(const dsf_launch *lc, const void *args)
{
    const auto *a = static_cast<const dsf_experts_down_args *>(args);
    const down_params p = {data_of<uint16_t>(a->out),
                           data_of<uint8_t>(a->h),
                           data_of<int32_t>(a->ids),
                           table_of(a->w2, a->s2),
                           {int(a->h.dim[2]), int(a->out.dim[2])}};
    experts_down<<<grid_of(a->ids, p.shape.width), warps * 32, 0, dsf_stream(lc)>>>(p);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
