/* Counting sort of the pairs by expert, stable, and the list of row tiles.
 *
 *   count: a block takes 1,024 consecutive pairs, a warp 128 of them, 32 at a time. Lanes with the
 *          same expert find each other by match_any; the warps' counters, one after the other, give
 *          a pair its rank among the block's pairs of its expert.
 *   scan:  one block, a thread an expert: counts of the blocks to what lies before each, experts to
 *          first positions, tiles.
 *   place: rank + what lies before.
 *
 * No result depends on the order in which threads run. Bytes: 12 for a pair, 12 for a block and
 * expert: at 98,304 pairs and 384 experts 1.6 MB, three launches of 2 to 4 us. */
#include "sm90/experts_group.cuh"

#include "sm90/ptx.cuh"

namespace
{

constexpr int warps = 8, rounds = DSF_EXPERTS_COUNTED / (warps * 32);

__global__ void __launch_bounds__(warps * 32) count_pairs(const int32_t *ids, const expert_lists l)
{
    extern __shared__ int32_t counter[]; /* [warps][experts] */
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < warps * l.experts; i += warps * 32) counter[i] = 0;
    __syncthreads();
    int32_t *mine = counter + warp * l.experts;
    int first = int(blockIdx.x) * DSF_EXPERTS_COUNTED + warp * rounds * 32 + lane;
    int id[rounds], rank[rounds];
#pragma unroll
    for (int r = 0; r < rounds; r++) {
        int pair = first + r * 32;
        id[r] = pair < l.pairs ? ids[pair] : -1;
        unsigned same = __match_any_sync(0xFFFFFFFFu, id[r]);
        int before = __popc(same & ((1u << lane) - 1));
        rank[r] = id[r] >= 0 ? mine[id[r]] + before : 0;
        __syncwarp();
        if (id[r] >= 0 && before == 0) mine[id[r]] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    for (int e = threadIdx.x; e < l.experts; e += warps * 32) {
        int32_t sum = 0;
        for (int w = 0; w < warps; w++) {
            int32_t n = counter[w * l.experts + e];
            counter[w * l.experts + e] = sum;
            sum += n;
        }
        l.counts[int64_t(blockIdx.x) * l.experts + e] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < rounds; r++)
        if (id[r] >= 0) l.rank[first + r * 32] = rank[r] + mine[id[r]];
}

/* What lies before the thread's value, in a block of 32 warps. */
__device__ int32_t scan_block(int32_t x, int32_t *sums, int32_t *total)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t upto = warp_scan(x);
    __syncthreads();
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    int32_t before = 0, all = 0;
#pragma unroll 1
    for (int w = 0; w < 32; w++) {
        before += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    *total = all;
    return before + upto - x;
}

__global__ void __launch_bounds__(DSF_EXPERTS_MOST, 1) scan_experts(const expert_lists l)
{
    __shared__ int32_t sums[32];
    int e = threadIdx.x;
    int32_t rows = 0, total;
    if (e < l.experts)
        for (int b = 0; b < l.blocks; b++) rows += l.counts[int64_t(b) * l.experts + e];
    int32_t first = scan_block(rows, sums, &total);
    int32_t n = (rows + l.tile_rows - 1) / l.tile_rows;
    int32_t tile = scan_block(n, sums, &total);
    if (e == 0) *l.n_tiles = total;
    for (int i = 0; i < n; i++) {
        int at = i * l.tile_rows;
        l.tiles[tile + i] = {e, first + at, min(rows - at, l.tile_rows), 0};
    }
    if (e >= l.experts) return;
    for (int b = 0; b < l.blocks; b++) {
        int32_t *count = l.counts + int64_t(b) * l.experts + e;
        int32_t own = *count;
        *count = first;
        first += own;
    }
}

__global__ void __launch_bounds__(DSF_EXPERTS_COUNTED / 4)
    place_pairs(const int32_t *ids, const expert_lists l)
{
    const int32_t *before = l.counts + int64_t(blockIdx.x) * l.experts;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int pair = int(blockIdx.x) * DSF_EXPERTS_COUNTED + r * (DSF_EXPERTS_COUNTED / 4) +
                   int(threadIdx.x);
        if (pair < l.pairs) l.order[before[ids[pair]] + l.rank[pair]] = pair;
    }
}

} // namespace

dsf_status dsf_experts_group(cudaStream_t stream, const int32_t *ids, const expert_lists &lists)
{
    unsigned blocks = static_cast<unsigned>(lists.blocks);
    size_t shared = size_t(warps) * size_t(lists.experts) * sizeof(int32_t);
    count_pairs<<<blocks, warps * 32, shared, stream>>>(ids, lists);
    DSF_CUDA_TRY(cudaGetLastError());
    scan_experts<<<1, DSF_EXPERTS_MOST, 0, stream>>>(lists);
    DSF_CUDA_TRY(cudaGetLastError());
    place_pairs<<<blocks, DSF_EXPERTS_COUNTED / 4, 0, stream>>>(ids, lists);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
