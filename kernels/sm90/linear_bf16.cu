/* y[n, o] = x w^T of bf16 operands for many rows, f32 sums: linear_gb, linear_gf, and wo_a after
 * its weights were expanded (linear_group.cu).
 *
 * Tile: 128 columns x 192 tokens (or 128, where that fills the device better), two consumer
 * warpgroups of 64 x 192, one producer warp; K in stages of 64 channels (16 KiB of weights, 24 KiB
 * of tokens), 5 in flight. A stage is 8 x m64n192k16 = 768 cycles of the tensor cores for 40 KiB
 * from the L2 (53 bytes a cycle). A consumer keeps 96 accumulators and 96 sums of the current
 * segment of 512 channels. A persistent grid; the epilogue of one tile runs while the producer
 * fills the stages of the next. LINEAR_BF16.md has the budget. */
#include "sm90/linear_tc.cuh"

using namespace linear_tc;

namespace
{

template <int N> constexpr int stage_bytes = weight_bytes + N *row_bytes;
template <int N> constexpr int stages = DSF_LINEAR_MANY_STAGES(N);
constexpr int most_stages = DSF_LINEAR_MANY_STAGES(DSF_LINEAR_MANY_LEAST);
constexpr int consumers = 256;
constexpr int threads = 128 + consumers;
/* 384 threads start with 168; none may ask for more than the block has. */
constexpr int start_registers = 168, producer_registers = 40, consumer_registers = 232;
static_assert(producer_registers * 128 + consumer_registers * consumers <=
                  start_registers * threads,
              "registers of the block");
constexpr int band = 8; /* column tiles that share the tokens while these are in the L2 */

struct shape {
    int64_t n, k, o, groups;
    int column_tiles, token_tiles, tiles;
    linear_plain::grouped plain; /* wo_a */
};

struct tile {
    int64_t group, column, token; /* column inside the group */
};

/* Groups, then bands of column tiles, then token tiles, then the columns of the band. SHARE blocks
 * of a cluster have neighbouring columns and the same tokens. */
template <int N, int SHARE> __device__ inline tile tile_at(const shape &p, int index)
{
    constexpr int wide = band / SHARE;
    int group = index / (p.column_tiles * p.token_tiles);
    int rest = index - group * p.column_tiles * p.token_tiles;
    int first = rest / (wide * p.token_tiles) * wide, width = min(wide, p.column_tiles - first);
    rest -= first * p.token_tiles;
    int column = (first + rest % width) * SHARE + int(blockIdx.x) % SHARE;
    return {group, int64_t(column) * columns, int64_t(rest / width) * N};
}

/* Barriers: full, then empty. */
__device__ inline uint32_t full(uint32_t bars, int stage) { return bars + 8 * stage; }
__device__ inline uint32_t empty(uint32_t bars, int stage)
{
    return bars + 8 * (most_stages + stage);
}

/* Each block of a cluster brings its part of the tokens to all of them, so that a stage is free
 * when the consumers of all have left it. */
template <int N, int SHARE>
__device__ inline void produce(const CUtensorMap *w, const CUtensorMap *x, const shape &p,
                               uint32_t bars, uint32_t data)
{
    constexpr int part = N / SHARE;
    int rank = int(blockIdx.x) % SHARE;
    ring r = {stages<N>, 0, 1};
    for (int t = blockIdx.x / SHARE; t < p.tiles; t += gridDim.x / SHARE) {
        tile at = tile_at<N, SHARE>(p, t);
        int row = int(at.group * p.o + at.column), channel = int(at.group * p.k);
        for (int k = 0; k < p.k; k += depth) {
            uint32_t to = data + r.at * stage_bytes<N>, bar = full(bars, r.at);
            ptx::mbarrier_wait(empty(bars, r.at), r.parity);
            ptx::mbarrier_arrive_expect_tx(bar, stage_bytes<N>);
            ptx::cp_async_bulk_tensor_2d(to, w, bar, 2 * k, row);
            to += weight_bytes + rank * part * row_bytes;
            if constexpr (SHARE == 1)
                ptx::cp_async_bulk_tensor_2d(to, x, bar, 2 * (channel + k), int(at.token));
            else
                ptx::cp_async_bulk_tensor_2d_multicast(
                    to, x, bar, 2 * (channel + k), int(at.token) + rank * part, (1 << SHARE) - 1);
            r.next();
        }
    }
}

/* One arrival of a warp at the barrier, here or in every block of the cluster. */
template <int SHARE> __device__ inline void release(uint32_t bar)
{
    int lane = threadIdx.x % 32;
    if constexpr (SHARE == 1) {
        if (lane == 0) ptx::mbarrier_arrive(bar);
    } else {
        if (lane < SHARE) ptx::mbarrier_arrive_remote(bar, uint32_t(lane));
    }
}

/* wo_a: the columns of a warp have one row of scales. */
__device__ inline void redo_small_scales(const shape &p, const place &at, int64_t group, int tokens)
{
    int64_t column = group * p.o + at.column, scales = p.k / 32;
    if (at.column >= at.end) return;
    bool small = false;
    for (int64_t i = threadIdx.x % 32; i < scales; i += 32)
        small |= p.plain.s[column / 32 * scales + i] < least_scale;
    if (__any_sync(0xFFFFFFFFu, small)) redo_columns(p.plain, at, group, tokens, p.k);
}

template <typename RESULT, bool GROUPED, int N, int SHARE>
__device__ inline void consume(const shape &p, RESULT *out, uint32_t bars, uint32_t data)
{
    ring r = {stages<N>, 0, 0};
    int thread = threadIdx.x - 128, warp = thread / 32;
    uint32_t w = data + warp / 4 * 64 * row_bytes, x = data + weight_bytes;
    int chunks = int((p.k + depth - 1) / depth);
    for (int t = blockIdx.x / SHARE; t < p.tiles; t += gridDim.x / SHARE) {
        float acc[N / 2] = {}, part[N / 2];
        for (int k0 = 0; k0 < chunks; k0 += blocks) {
            int end = min(k0 + blocks, chunks), last = 0;
            for (int k = k0; k < end; k++) {
                ptx::mbarrier_wait(full(bars, r.at), r.parity);
                multiply_stage<N>(part, w + r.at * stage_bytes<N>, x + r.at * stage_bytes<N>,
                                  k == k0);
                if (k > k0) {
                    ptx::wgmma_wait_group<1>();
                    release<SHARE>(empty(bars, last));
                }
                last = r.at;
                r.next();
            }
            ptx::wgmma_wait_group<0>();
            ptx::wgmma_fence_operand(part);
            release<SHARE>(empty(bars, last));
            add_segment(acc, part);
        }
        tile at = tile_at<N, SHARE>(p, t);
        int64_t first = at.group * p.o;
        place to = {at.token, p.n, at.column + warp * 16, p.o, p.groups * p.o};
        store_tile(out + first, to, acc, N / 2);
        if constexpr (GROUPED) redo_small_scales(p, to, at.group, N);
    }
}

template <int SHARE> __device__ inline void sync_blocks()
{
    if constexpr (SHARE == 1)
        __syncthreads();
    else
        ptx::cluster_sync();
}

template <typename RESULT, bool GROUPED, int N, int SHARE>
__global__ void __launch_bounds__(threads, 1)
    many_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                const __grid_constant__ shape p, RESULT *out)
{
    extern __shared__ uint8_t shared[];
    ptx::griddepcontrol_launch_dependents();
    uint32_t base = (ptx::smem(shared) + alignment - 1) / alignment * alignment,
             data = base + DSF_LINEAR_HEAD;
    if (threadIdx.x == 0) {
        ptx::prefetch_tensormap(&w);
        ptx::prefetch_tensormap(&x);
        for (int i = 0; i < stages<N>; i++) {
            ptx::mbarrier_init(full(base, i), 1);
            ptx::mbarrier_init(empty(base, i), SHARE * consumers / 32);
        }
        ptx::fence_mbarrier_init();
    }
    sync_blocks<SHARE>();
    ptx::griddepcontrol_wait(); /* for the tokens, and the weights that wo_a expands before */
    if (threadIdx.x < 128) {
        ptx::setmaxnreg_dec<producer_registers>();
        if (threadIdx.x == 0) produce<N, SHARE>(&w, &x, p, base, data);
    } else {
        ptx::setmaxnreg_inc<consumer_registers>();
        consume<RESULT, GROUPED, N, SHARE>(p, out, base, data);
    }
    if constexpr (SHARE > 1) ptx::cluster_sync(); /* the others still copy and arrive here */
}

template <typename RESULT, bool GROUPED, int N, int SHARE> dsf_status launch_many(const job &j)
{
    CUtensorMap w, x;
    DSF_TRY(map_operands(j, &w, &x, N / SHARE));
    shape p = {j.n,
               j.k,
               j.o,
               j.groups,
               int((j.o + SHARE * columns - 1) / (SHARE * columns)),
               int((j.n + N - 1) / N),
               0,
               j.plain};
    int64_t tiles = j.groups * p.column_tiles * p.token_tiles;
    if (tiles > INT32_MAX)
        return DSF_FAIL(DSF_EINVAL, "linear: %lld tiles, at most 2^31 - 1", (long long)tiles);
    p.tiles = int(tiles);
    int processors = 0;
    DSF_TRY(dsf_multiprocessors(&processors));
    int64_t blocks = min(tiles, int64_t(processors / SHARE)) * SHARE;
    return launch(many_kernel<RESULT, GROUPED, N, SHARE>, blocks, threads, SHARE, j, w, x, p);
}

template <typename RESULT, bool GROUPED, int N> dsf_status choose_share(const job &j)
{
    return j.tile.cluster == 2 ? launch_many<RESULT, GROUPED, N, 2>(j)
                               : launch_many<RESULT, GROUPED, N, 1>(j);
}

template <typename RESULT, bool GROUPED> dsf_status choose_tokens(const job &j)
{
    return j.tile.tokens == DSF_LINEAR_MANY_LEAST
               ? choose_share<RESULT, GROUPED, DSF_LINEAR_MANY_LEAST>(j)
               : choose_share<RESULT, GROUPED, DSF_LINEAR_MANY>(j);
}

dsf_status run(const dsf_launch *lc, const void *args, bool f32)
{
    const dsf_linear_args *a = static_cast<const dsf_linear_args *>(args);
    job j = {a->w.data, a->x.data, a->out.data, a->out.dim[0], a->w.dim[1], a->w.dim[0], 1,
             {},        f32,       {},          dsf_stream(lc)};
    j.tile = dsf_tune_linear(j.n, j.k, j.o);
    return j.tile.many ? run_many(j) : run_few(j);
}

} // namespace

dsf_status linear_tc::run_many(const job &j)
{
    if (j.plain.w) return choose_tokens<uint16_t, true>(j);
    return j.f32 ? choose_tokens<float, false>(j) : choose_tokens<uint16_t, false>(j);
}

extern "C" dsf_status dsf_linear_gb_sm90tc(const dsf_launch *lc, const void *args)
{
    return run(lc, args, false);
}

extern "C" dsf_status dsf_linear_gf_sm90tc(const dsf_launch *lc, const void *args)
{
    return run(lc, args, true);
}
