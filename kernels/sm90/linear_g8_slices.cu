/* y = bf16(x W^T), fp8 with scales of 32 x 32 blocks, for few tokens (n <= 16) and few outputs
 * (LINEAR_G8.md): where tiles of 64 outputs would leave multiprocessors without work.
 *
 * A tile is 64 / SLICES outputs. The 64 rows of the tensor core's M side hold SLICES different
 * pieces of K of those outputs, its N side the same pieces of the tokens; of the product only the
 * blocks where both are the same piece mean anything: SLICES - 1 of SLICES parts of the
 * multiplications are wasted, which costs nothing in a kernel that waits for memory. A block of 32
 * products is still one wgmma k32 from zero. The parts go through shared memory to a second
 * warpgroup, which runs the chain of each output: acc = fmaf(part, sx sw, acc), blocks ascending.
 */
#include "sm90/linear_g8.cuh"

namespace
{

constexpr int AHEAD = 4; /* stages whose scales are asked for together */

template <int TOKENS, int SLICES> struct tile {
    static constexpr int OUTPUTS = 64 / SLICES, N = TOKENS * SLICES;
    static constexpr int BLOCKS = g8::BLOCKS * SLICES; /* along K in a stage */
    static constexpr int THREADS = 128 + 128 + 64; /* products, chains, copy engine and scales */
    static constexpr int X_BYTES = N * g8::STEP, W_BYTES = 64 * g8::STEP;
    static constexpr int WORDS = OUTPUTS * TOKENS;     /* results of the tile, parts of one block */
    static constexpr int CHAINS = (WORDS + 127) / 128; /* of one thread */
    static constexpr int FLIGHT = N < 64 ? 4 : 2;      /* blocks in flight: what registers allow */
    static constexpr int SCALE_BYTES = (TOKENS + 1) * BLOCKS * 4;
    static constexpr int ROOM =
        DSF_SM90_SM_SHARED / 2 - DSF_SM90_BLOCK_OWN; /* two blocks a multiprocessor */
    static constexpr int STAGES =
        (ROOM - 256 - 2 * BLOCKS * WORDS * 4) / (X_BYTES + W_BYTES + SCALE_BYTES + 16);

    struct shared_memory {
        uint8_t w[STAGES][W_BYTES]; /* [slice][output] rows of 128 bytes */
        uint8_t x[STAGES][X_BYTES]; /* [slice][token] */
        float part[2][BLOCKS][WORDS];
        float sx[STAGES][BLOCKS][TOKENS];
        float sw[STAGES][BLOCKS];
        uint64_t full[STAGES], empty[STAGES], part_full[2], part_empty[2];
    };
    static_assert(sizeof(shared_memory) <= ROOM, "two blocks fit");
    static_assert(32 % OUTPUTS == 0, "a tile lies in one group of 32 outputs");
    using ring = g8::ring<STAGES>;
    using part_ring = g8::ring<2>;

    static __device__ int stages(const g8::operands &p) { return (p.steps + SLICES - 1) / SLICES; }
};

/* Slices past the end of K read as zero or are not there; their parts are not used. */
template <int TOKENS, int SLICES>
__device__ void load_x(typename tile<TOKENS, SLICES>::shared_memory &sh, const g8::maps &m,
                       const g8::operands &p, int slot, int stage)
{
    if (p.direct)
        ptx::cp_async_bulk_tensor_3d(ptx::smem(sh.x[slot]), &m.x, ptx::smem(&sh.full[slot]), 0, 0,
                                     stage * SLICES);
}

template <int TOKENS, int SLICES>
__device__ void load_w(typename tile<TOKENS, SLICES>::shared_memory &sh, const g8::maps &m,
                       const g8::operands &p, int slot, int stage, int u)
{
    using T = tile<TOKENS, SLICES>;
    uint32_t full = ptx::smem(&sh.full[slot]);
    ptx::mbarrier_arrive_expect_tx(full, uint32_t(T::W_BYTES + (p.direct ? T::X_BYTES : 0)));
    g8::place at(p, u);
    ptx::cp_async_bulk_tensor_3d(ptx::smem(sh.w[slot]), &m.w[at.which], full, 0,
                                 at.tile * T::OUTPUTS, stage * SLICES);
}

template <int TOKENS, int SLICES>
__device__ void feed_tiles(typename tile<TOKENS, SLICES>::shared_memory &sh, const g8::maps &m,
                           const g8::operands &p)
{
    using T = tile<TOKENS, SLICES>;
    typename T::ring at;
    if (p.direct) ptx::prefetch_tensormap(&m.x);
    int early = 0, stage = 0, stages = T::stages(p);
    for (int u = int(blockIdx.x); u < p.output_tiles && early < T::STAGES; u += int(gridDim.x))
        for (int s = 0; s < stages && early < T::STAGES; s++, early++)
            load_w<TOKENS, SLICES>(sh, m, p, early, s, u);
    ptx::griddepcontrol_wait();
    for (int i = 0; i < early; i++) {
        load_x<TOKENS, SLICES>(sh, m, p, i, stage);
        if (++stage == stages) stage = 0;
    }
    int count = 0;
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
        for (int s = 0; s < stages; s++, at.advance()) {
            if (count++ < early) continue;
            ptx::mbarrier_wait(ptx::smem(&sh.empty[at.slot]), at.parity ^ 1);
            load_w<TOKENS, SLICES>(sh, m, p, at.slot, s, u);
            load_x<TOKENS, SLICES>(sh, m, p, at.slot, s);
        }
    }
}

/* One warp; item = slice and token, lanes below SLICES also a slice of the outputs' scales. It also
 * copies x where the copy engine can't. */
template <int TOKENS, int SLICES>
__device__ void feed_scales(typename tile<TOKENS, SLICES>::shared_memory &sh, const g8::operands &p,
                            int lane)
{
    using T = tile<TOKENS, SLICES>;
    constexpr int MINE = (T::N + 31) / 32;
    const uint32_t *row[MINE];
    for (int i = 0; i < MINE; i++) {
        int token = (lane + 32 * i) % TOKENS;
        row[i] = lane + 32 * i < T::N ? g8::token_scales(p, token) : nullptr;
    }
    typename T::ring at;
    int stages = T::stages(p);
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
        g8::place of(p, u);
        const uint32_t *group =
            lane < SLICES ? g8::output_scales(p, of.which, of.tile * T::OUTPUTS / 32) : nullptr;
        for (int s = 0; s < stages; s += AHEAD) {
            g8::scale_words<AHEAD> tokens[MINE], outputs;
            outputs.load(group, s * SLICES + lane, SLICES, p.steps);
            ptx::griddepcontrol_wait(); /* weights don't wait; done at once from the second on */
            for (int j = 0; j < MINE; j++)
                tokens[j].load(row[j], s * SLICES + (lane + 32 * j) / TOKENS, SLICES, p.steps);
#pragma unroll 1
            for (int i = 0; i < AHEAD; i++) {
                if (s + i >= stages) break;
                ptx::mbarrier_wait(ptx::smem(&sh.empty[at.slot]), at.parity ^ 1);
                if (!p.direct) {
                    for (int j = 0; j < SLICES; j++)
                        if ((s + i) * SLICES + j < p.steps)
                            g8::copy_x(ptx::smem(sh.x[at.slot]) + uint32_t(j * TOKENS * g8::STEP),
                                       p, p.n, (s + i) * SLICES + j, lane);
                    ptx::cp_async_mbarrier_arrive_noinc(ptx::smem(&sh.full[at.slot]));
                }
#pragma unroll
                for (int j = 0; j < MINE; j++) {
                    int slice = (lane + 32 * j) / TOKENS, token = (lane + 32 * j) % TOKENS;
                    if (slice >= SLICES) continue;
                    float4 f = g8::expand_scales(tokens[j].next());
                    float *to = &sh.sx[at.slot][g8::BLOCKS * slice][token];
                    to[0] = f.x, to[TOKENS] = f.y, to[2 * TOKENS] = f.z, to[3 * TOKENS] = f.w;
                }
                if (lane < SLICES)
                    *reinterpret_cast<float4 *>(&sh.sw[at.slot][g8::BLOCKS * lane]) =
                        g8::expand_scales(outputs.next());
                __syncwarp();
                if (lane == 0) ptx::mbarrier_arrive(ptx::smem(&sh.full[at.slot]));
                at.advance();
            }
        }
    }
}

/* Block b of the pieces of K that the rows of warp WARP hold; half h of a fragment are 8 rows. */
template <int TOKENS, int SLICES, int WARP>
__device__ inline void store_part(float (*to)[tile<TOKENS, SLICES>::WORDS],
                                  const float (&part)[TOKENS * SLICES / 2], int b, int lane)
{
    constexpr int OUTPUTS = tile<TOKENS, SLICES>::OUTPUTS;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        constexpr int FIRST = 16 * WARP;
        int slice = (FIRST + 8 * h) / OUTPUTS, row = (FIRST + 8 * h) % OUTPUTS + lane / 4;
#pragma unroll
        for (int g = 0; g < TOKENS / 8; g++) {
            int j = 4 * (slice * TOKENS / 8 + g) + 2 * h;
            *reinterpret_cast<float2 *>(
                &to[g8::BLOCKS * slice + b][row * TOKENS + lane % 4 * 2 + 8 * g]) =
                make_float2(part[j], part[j + 1]);
        }
    }
}

/* Of blocks b, b + 1, ...: a warp's registers need constant indices, so there is a copy for each.
 */
template <int TOKENS, int SLICES>
__device__ inline void
store_parts(float (*to)[tile<TOKENS, SLICES>::WORDS],
            const float (&part)[tile<TOKENS, SLICES>::FLIGHT][TOKENS * SLICES / 2], int b, int warp,
            int lane)
{
    constexpr int FLIGHT = tile<TOKENS, SLICES>::FLIGHT;
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
        if (warp == 0) store_part<TOKENS, SLICES, 0>(to, part[i], b + i, lane);
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
        if (warp == 1) store_part<TOKENS, SLICES, 1>(to, part[i], b + i, lane);
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
        if (warp == 2) store_part<TOKENS, SLICES, 2>(to, part[i], b + i, lane);
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
        if (warp == 3) store_part<TOKENS, SLICES, 3>(to, part[i], b + i, lane);
    if (SLICES < 8) return;
    int never = 4;
    ptx::hide(never); /* half of the results is of no use to any warp, and must seem read: C7511 */
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
#pragma unroll
        for (int j = 0; j < SLICES; j++)
            if (warp == never)
                *reinterpret_cast<float2 *>(&to[i][2 * j]) =
                    make_float2(part[i][4 * j + 2 - j % 2 * 2], part[i][4 * j + 3 - j % 2 * 2]);
}

template <int TOKENS, int SLICES>
__device__ void multiply(typename tile<TOKENS, SLICES>::shared_memory &sh, const g8::operands &p)
{
    using T = tile<TOKENS, SLICES>;
    int lane = int(threadIdx.x) % 32, warp = __shfl_sync(0xFFFFFFFFu, int(threadIdx.x) / 32, 0);
    uint64_t w0 = ptx::wgmma_desc_128b(ptx::smem(sh.w[0]));
    uint64_t x0 = ptx::wgmma_desc_128b(ptx::smem(sh.x[0]));
    int stages = T::stages(p);
    typename T::ring at;
    typename T::part_ring to;
    float part[T::FLIGHT][T::N / 2] = {};
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
        for (int s = 0; s < stages; s++, at.advance(), to.advance()) {
            uint64_t w = w0 + uint64_t(at.slot * (T::W_BYTES >> 4));
            uint64_t x = x0 + uint64_t(at.slot * (T::X_BYTES >> 4));
            ptx::mbarrier_wait(ptx::smem(&sh.full[at.slot]), at.parity);
            ptx::mbarrier_wait(ptx::smem(&sh.part_empty[to.slot]), to.parity ^ 1);
            if (!p.direct) ptx::fence_proxy_async(); /* x came by ordinary copies */
#pragma unroll
            for (int b = 0; b < g8::BLOCKS; b += T::FLIGHT) {
                ptx::wgmma_fence();
#pragma unroll
                for (int i = 0; i < T::FLIGHT; i++)
                    ptx::wgmma<T::N>::e4m3_ss(part[i], w + uint64_t((b + i) * g8::DESC_BLOCK),
                                              x + uint64_t((b + i) * g8::DESC_BLOCK), 0);
                ptx::wgmma_commit_group();
                ptx::wgmma_wait_group<0>();
#pragma unroll
                for (int i = 0; i < T::FLIGHT; i++) ptx::wgmma_fence_operand(part[i]);
                store_parts<TOKENS, SLICES>(sh.part[to.slot], part, b, warp, lane);
            }
            /* Orders the parts before the chains' reads, and below their reads before the next
             * parts: the warp's accesses by __syncwarp before its one arrival, which releases, then
             * the other side's wait, which acquires. (racecheck does not follow the first of
             * these.) */
            __syncwarp();
            if (lane == 0) {
                ptx::mbarrier_arrive(ptx::smem(&sh.part_full[to.slot]));
                ptx::mbarrier_arrive(ptx::smem(&sh.empty[at.slot]));
            }
        }
    }
}

/* A thread's results are words thread, thread + 128, ... of the tile: [output][token]. */
template <int TOKENS, int SLICES>
__device__ void chain(typename tile<TOKENS, SLICES>::shared_memory &sh, const g8::operands &p,
                      int thread)
{
    using T = tile<TOKENS, SLICES>;
    int stages = T::stages(p), token = thread % TOKENS;
    bool mine = thread < T::WORDS;
    constexpr int EACH = 8; /* blocks whose operands are read together */
    typename T::ring at;
    typename T::part_ring from;
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
        float acc[T::CHAINS] = {};
        for (int s = 0; s < stages; s++, at.advance(), from.advance()) {
            int blocks = min(T::BLOCKS, (p.steps - s * SLICES) * g8::BLOCKS);
            ptx::mbarrier_wait(ptx::smem(&sh.full[at.slot]), at.parity);
            ptx::mbarrier_wait(ptx::smem(&sh.part_full[from.slot]), from.parity);
#pragma unroll 1
            for (int b = 0; b < (mine ? blocks : 0); b += EACH) {
                float part[EACH][T::CHAINS], scale[EACH];
#pragma unroll
                for (int j = 0; j < EACH; j++) { /* past the end of K: not used */
                    scale[j] = sh.sx[at.slot][b + j][token] * sh.sw[at.slot][b + j];
#pragma unroll
                    for (int i = 0; i < T::CHAINS; i++)
                        part[j][i] = sh.part[from.slot][b + j][thread + 128 * i];
                }
#pragma unroll
                for (int j = 0; j < EACH; j++)
#pragma unroll
                    for (int i = 0; i < T::CHAINS; i++)
                        if (b + j < blocks) acc[i] = __fmaf_rn(part[j][i], scale[j], acc[i]);
            }
            __syncwarp();
            if (thread % 32 == 0) {
                ptx::mbarrier_arrive(ptx::smem(&sh.part_empty[from.slot]));
                ptx::mbarrier_arrive(ptx::smem(&sh.empty[at.slot]));
            }
        }
        g8::place of(p, u);
        const g8::matrix &y = p.of[of.which];
#pragma unroll
        for (int i = 0; i < T::CHAINS; i++) {
            int row = of.tile * T::OUTPUTS + (thread + 128 * i) / TOKENS;
            if (mine && token < p.n && row < y.o)
                y.out[int64_t(token) * y.o + row] = num::f32_to_bf16(acc[i]);
        }
    }
}

template <int TOKENS, int SLICES>
__global__ void __launch_bounds__(tile<TOKENS, SLICES>::THREADS, 2)
    linear_g8_slices(const __grid_constant__ g8::maps m, const __grid_constant__ g8::operands p)
{
    using T = tile<TOKENS, SLICES>;
    ptx::griddepcontrol_launch_dependents();
    extern __shared__ __align__(1024) uint8_t raw[];
    auto &sh = *reinterpret_cast<typename T::shared_memory *>(raw);
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; i++) {
            /* the copy engine, the scales, the lanes that copy x */
            ptx::mbarrier_init(ptx::smem(&sh.full[i]), p.direct ? 2 : 2 + 32);
            ptx::mbarrier_init(ptx::smem(&sh.empty[i]), 8); /* warps of products and chains */
        }
        for (int i = 0; i < 2; i++) {
            ptx::mbarrier_init(ptx::smem(&sh.part_full[i]), 4);
            ptx::mbarrier_init(ptx::smem(&sh.part_empty[i]), 4);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    if (warp < 4)
        multiply<TOKENS, SLICES>(sh, p);
    else if (warp < 8)
        chain<TOKENS, SLICES>(sh, p, int(threadIdx.x) - 128);
    else if (warp == 8 && lane == 0)
        feed_tiles<TOKENS, SLICES>(sh, m, p);
    else if (warp == 9)
        feed_scales<TOKENS, SLICES>(sh, p, lane);
}

template <int TOKENS, int SLICES>
dsf_status launch_tile(const dsf_launch *lc, const g8::maps &m, const g8::operands &p,
                       const dsf_g8_tile &t)
{
    using T = tile<TOKENS, SLICES>;
    return g8::launch(lc, t, T::THREADS, sizeof(typename T::shared_memory),
                      linear_g8_slices<TOKENS, SLICES>, m, p);
}

} // namespace

dsf_status g8::launch_slices(const dsf_launch *lc, const problem &q, const dsf_g8_tile &of_shape)
{
    dsf_g8_tile t = at_address(of_shape, q);
    maps m = {};
    int64_t k = q.x.dim[1];
    DSF_TRY(make_maps(&m, q, t, q.x.data, k + k / 32, t.outputs));
    operands p = make_operands(q, t);
    if (t.tokens == 8)
        return t.slices == 2   ? launch_tile<8, 2>(lc, m, p, t)
               : t.slices == 4 ? launch_tile<8, 4>(lc, m, p, t)
                               : launch_tile<8, 8>(lc, m, p, t);
    return t.slices == 2 ? launch_tile<16, 2>(lc, m, p, t) : launch_tile<16, 4>(lc, m, p, t);
}
