/* y[n, o] = x w^T of bf16 operands for few rows: the weights stream past once.
 *
 * Tile: 128 columns x N = 8..64 tokens, two consumer warpgroups of 64 x N, one producer warp;
 * stages of 64 channels, 16 KiB of weights and N x 128 bytes of tokens, as many as fit. One wgmma
 * m64nNk16 reads 2 KiB of weights in 16 cycles; HBM brings 19 bytes a cycle and SM, so that the
 * tensor cores wait and the stages in flight (6 and more, >= 96 KiB, against 34 KiB for a latency
 * of 1 us at full rate) decide.
 *
 * Large o: a persistent grid, one block walks all of K for its tiles. Small o (router: 3 tiles): a
 * cluster shares a tile, a block takes `each` whole segments of 512 channels; the segments meet in
 * shared memory and every block adds some of the accumulators, segments ascending: the same chain
 * as in one block. Weights do not depend on the kernel before (programmatic dependent launch): the
 * first stages of them are asked for before the wait. */
#include "sm90/linear_tc.cuh"

using namespace linear_tc;

namespace
{

constexpr int consumers = 256;
constexpr int threads = consumers + 32;
constexpr int most_stages = DSF_LINEAR_FEW_STAGES;
static_assert(2 * 8 * most_stages <= DSF_LINEAR_HEAD, "barriers");

struct shape {
    int64_t n, k, o;
    int token_tiles, tiles, cluster, each, stages;
};

template <int N> constexpr int stage_bytes = weight_bytes + N *row_bytes;

__device__ inline uint32_t full(uint32_t bars, int stage) { return bars + 8 * stage; }
__device__ inline uint32_t empty(uint32_t bars, int stage)
{
    return bars + 8 * (most_stages + stage);
}

/* What a block does: tiles first, first + step, ..; of each the stages (64 channels) begin..end. */
struct share {
    int first, step, begin, end;
};

__device__ inline share share_of(const shape &p)
{
    int rank = p.cluster > 1 ? int(ptx::cluster_ctarank()) : 0;
    int begin = rank * p.each * blocks, all = int((p.k + depth - 1) / depth);
    return {int(blockIdx.x) / p.cluster, int(gridDim.x) / p.cluster, begin,
            min(begin + p.each * blocks, all)};
}

template <int N> struct producer {
    const CUtensorMap *w, *x;
    const shape &p;
    share s;
    uint32_t bars, data;

    /* Stage number i of this block: its weights or its tokens into `slot`. */
    __device__ void ask(int i, int slot, bool tokens) const
    {
        int per = s.end - s.begin, tile = s.first + i / per * s.step, k = s.begin + i % per;
        uint32_t to = data + slot * stage_bytes<N>, bar = full(bars, slot);
        if (tokens)
            ptx::cp_async_bulk_tensor_2d(to + weight_bytes, x, bar, k * row_bytes,
                                         tile % p.token_tiles * N);
        else
            ptx::cp_async_bulk_tensor_2d(to, w, bar, k * row_bytes, tile / p.token_tiles * columns);
    }

    __device__ void run() const
    {
        int mine = s.first < p.tiles ? (p.tiles - s.first + s.step - 1) / s.step : 0;
        int all = mine * (s.end - s.begin), ahead = min(all, p.stages);
        for (int i = 0; i < ahead; i++) {
            ptx::mbarrier_arrive_expect_tx(full(bars, i), stage_bytes<N>);
            ask(i, i, false);
        }
        ptx::griddepcontrol_wait();
        for (int i = 0; i < ahead; i++) ask(i, i, true);
        ring r = {p.stages, 0, 0};
        for (int i = ahead; i < all; i++, r.next()) {
            ptx::mbarrier_wait(empty(bars, r.at), r.parity);
            ptx::mbarrier_arrive_expect_tx(full(bars, r.at), stage_bytes<N>);
            ask(i, r.at, false);
            ask(i, r.at, true);
        }
    }
};

/* The sum of one segment: stages k .. end - 1. */
template <int N>
__device__ inline void sum_segment(float (&part)[N / 2], ring &r, int k, int end, uint32_t bars,
                                   uint32_t data)
{
    bool leader = threadIdx.x % 32 == 0;
    uint32_t w = data + threadIdx.x / 128 * 64 * row_bytes, x = data + weight_bytes;
    int last = r.at;
    for (bool first = true; k < end; k++, first = false) {
        ptx::mbarrier_wait(full(bars, r.at), r.parity);
        multiply_stage<N>(part, w + r.at * stage_bytes<N>, x + r.at * stage_bytes<N>, first);
        if (!first) {
            ptx::wgmma_wait_group<1>();
            if (leader) ptx::mbarrier_arrive(empty(bars, last));
        }
        last = r.at;
        r.next();
    }
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(part);
    if (leader) ptx::mbarrier_arrive(empty(bars, last));
}

template <int N> __device__ inline place place_of(const shape &p, int tile)
{
    int64_t column = int64_t(tile / p.token_tiles) * columns + threadIdx.x / 32 * 16;
    return {int64_t(tile % p.token_tiles) * N, p.n, column, p.o, p.o};
}

__device__ inline void put(float *to, float y) { *to = y; }
__device__ inline void put(uint16_t *to, float y) { *to = num::f32_to_bf16(y); }

/* Where the segments of a tile meet: accumulator i of every thread in the block i % cluster. */
struct meeting {
    int segments, rank, mine; /* mine: accumulators of a thread that end in this block */
    uint32_t bar, parts;      /* floats [i / cluster][segment][thread] */

    __device__ uint32_t at(int i, int s) const
    {
        return parts + 4 * ((i * segments + s) * consumers + threadIdx.x);
    }
};

template <int N> __device__ inline meeting meeting_of(const shape &p, uint32_t bars, uint32_t parts)
{
    int rank = int(ptx::cluster_ctarank());
    return {int((p.k + segment - 1) / segment), rank, (N / 2 - rank + p.cluster - 1) / p.cluster,
            bars + 8 * 2 * most_stages, parts};
}

/* Sends the segments of this block to where they are added. */
template <int N>
__device__ inline void send_segments(const shape &p, const share &s, const meeting &m,
                                     uint32_t bars, uint32_t data)
{
    ring r = {p.stages, 0, 0};
    float part[N / 2];
    for (int k = s.begin; k < s.end; k += blocks) {
        sum_segment<N>(part, r, k, min(k + blocks, s.end), bars, data);
        if (k == s.begin) ptx::cluster_wait(); /* all barriers of the cluster are there */
        int to = 0, row = 0;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            ptx::st_async_f32(ptx::mapa(m.at(row, k / blocks), uint32_t(to)), part[i],
                              ptx::mapa(m.bar, uint32_t(to)));
            if (++to == p.cluster) to = 0, row++;
        }
    }
}

/* Adds what came, segments ascending. */
template <typename RESULT>
__device__ inline void add_segments(const shape &p, const meeting &m, const float *parts,
                                    const place &to, RESULT *out)
{
    int lane = threadIdx.x % 32;
    for (int j = 0; j < m.mine; j++) {
        int i = m.rank + j * p.cluster;
        const float *own = parts + j * m.segments * consumers + threadIdx.x;
        float acc = 0;
        for (int s = 0; s < m.segments; s++) acc = __fadd_rn(acc, own[s * consumers]);
        int64_t token = to.token + i / 4 * 8 + lane % 4 * 2 + i % 2;
        int64_t column = to.column + lane / 4 + (i & 2) * 4;
        if (token < to.n && column < to.end) put(out + token * to.pitch + column, acc);
    }
}

template <int N, typename RESULT>
__device__ inline void consume_alone(const shape &p, const share &s, RESULT *out, uint32_t bars,
                                     uint32_t data)
{
    ring r = {p.stages, 0, 0};
    for (int t = s.first; t < p.tiles; t += s.step) {
        float acc[N / 2] = {}, part[N / 2];
        for (int k = s.begin; k < s.end; k += blocks) {
            sum_segment<N>(part, r, k, min(k + blocks, s.end), bars, data);
            add_segment(acc, part);
        }
        store_tile(out, place_of<N>(p, t), acc, N / 2);
    }
}

template <int N, typename RESULT>
__global__ void __launch_bounds__(threads, 1)
    few_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ shape p, RESULT *out)
{
    extern __shared__ uint8_t shared[];
    ptx::griddepcontrol_launch_dependents();
    uint32_t start = ptx::smem(shared), base = (start + alignment - 1) / alignment * alignment,
             data = base + DSF_LINEAR_HEAD;
    uint32_t parts = data + p.stages * stage_bytes<N>;
    meeting m = meeting_of<N>(p, base, parts);
    share s = share_of(p);
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            ptx::mbarrier_init(full(base, i), 1);
            ptx::mbarrier_init(empty(base, i), consumers / 32);
        }
        ptx::mbarrier_init(m.bar, 1);
        ptx::fence_mbarrier_init();
        if (p.cluster > 1)
            ptx::mbarrier_arrive_expect_tx(m.bar, m.mine * m.segments * consumers * 4);
    }
    __syncthreads();
    if (p.cluster > 1) ptx::cluster_arrive_relaxed();
    if (threadIdx.x >= consumers) {
        if (threadIdx.x == consumers) producer<N>{&w, &x, p, s, base, data}.run();
    } else if (p.cluster == 1) {
        consume_alone<N>(p, s, out, base, data);
    } else {
        send_segments<N>(p, s, m, base, data);
        if (m.mine <= 0) return;
        ptx::mbarrier_wait(m.bar, 0);
        add_segments(p, m, reinterpret_cast<const float *>(shared + (parts - start)),
                     place_of<N>(p, s.first), out);
    }
}

template <int N, typename RESULT> dsf_status launch_few(const job &j)
{
    CUtensorMap w, x;
    DSF_TRY(map_operands(j, &w, &x, N));
    const dsf_linear_tile &t = j.tile;
    int64_t token_tiles = (j.n + N - 1) / N, tiles = (j.o + columns - 1) / columns * token_tiles;
    if (tiles > INT32_MAX / 16)
        return DSF_FAIL(DSF_EINVAL, "linear: %lld tiles, at most 2^27", (long long)tiles);
    shape p = {j.n, j.k, j.o, int(token_tiles), int(tiles), t.cluster, t.each, t.stages};
    int processors = 0;
    DSF_TRY(dsf_multiprocessors(&processors));
    int64_t blocks = t.cluster > 1 ? tiles * t.cluster : min(tiles, int64_t(processors));
    return launch(few_kernel<N, RESULT>, blocks, threads, t.cluster, j, w, x, p);
}

template <typename RESULT> dsf_status choose_tokens(const job &j)
{
    switch (j.tile.tokens) {
    case 8:
        return launch_few<8, RESULT>(j);
    case 16:
        return launch_few<16, RESULT>(j);
    case 32:
        return launch_few<32, RESULT>(j);
    default:
        return launch_few<64, RESULT>(j);
    }
}

} // namespace

dsf_status linear_tc::run_few(const job &j)
{
    return j.f32 ? choose_tokens<float>(j) : choose_tokens<uint16_t>(j);
}
