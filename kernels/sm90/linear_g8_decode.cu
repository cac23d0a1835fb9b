/* y = bf16(x W^T), fp8 with scales of 32 x 32 blocks, for few tokens (n <= 64; LINEAR_G8.md): bound
 * by the bytes of W.
 *
 * Weights are the M side of the tensor core, tokens the N side (8, 16, 32, 64), so the blocks of 32
 * products are those of the kernel for many tokens, and so is the chain over them: one wgmma
 * m64nNk32 from zero a block, acc = fmaf(part, sx sw, acc), blocks ascending. A block of threads
 * streams tiles of 64 outputs through a ring of shared memory; a multiprocessor's blocks
 * have about 160 KB of weights on their way. Weights of the first ring are fetched before the
 * kernel in front has ended; activations and their scales after. */
#include "sm90/linear_g8.cuh"

namespace
{

template <int TOKENS> struct tile {
    static constexpr int OUTPUTS = 64;                /* one warpgroup */
    static constexpr int PARTS = TOKENS < 64 ? 4 : 2; /* blocks in flight: what registers allow */
    static constexpr int THREADS = 128 + 64;          /* the copy engine's thread, scales */
    static constexpr int X_BYTES = TOKENS * g8::STEP, W_BYTES = OUTPUTS * g8::STEP;
    static constexpr int SCALE_BYTES = (TOKENS + OUTPUTS / 32) * 4;
    static constexpr int RESIDENT = DSF_G8_RESIDENT; /* blocks a multiprocessor */
    /* 228 KB, of which each block loses 1 KB to the system */
    static constexpr int ROOM = DSF_SM90_SM_SHARED / RESIDENT - DSF_SM90_BLOCK_OWN;
    static constexpr int STAGES = (ROOM - 128) / (X_BYTES + W_BYTES + SCALE_BYTES + 16);

    struct shared_memory {
        uint8_t w[STAGES][W_BYTES];
        uint8_t x[STAGES][X_BYTES];
        uint32_t sx[STAGES][TOKENS]; /* of a word the 4 blocks of the step */
        uint32_t sw[STAGES][OUTPUTS / 32];
        uint64_t full[STAGES], empty[STAGES];
    };
    static_assert(sizeof(shared_memory) <= ROOM, "all resident blocks fit");
    using ring = g8::ring<STAGES>;
};

template <int TOKENS>
__device__ void load_x(typename tile<TOKENS>::shared_memory &sh, const g8::maps &m,
                       const g8::operands &p, int slot, int step)
{
    if (p.direct)
        ptx::cp_async_bulk_tensor_2d(ptx::smem(sh.x[slot]), &m.x, ptx::smem(&sh.full[slot]),
                                     step * g8::STEP, 0);
}

/* Announces all that the copy engine brings to a stage and asks for the weights. */
template <int TOKENS>
__device__ void load_w(typename tile<TOKENS>::shared_memory &sh, const g8::maps &m,
                       const g8::operands &p, int slot, int step, int u)
{
    using T = tile<TOKENS>;
    uint32_t full = ptx::smem(&sh.full[slot]);
    ptx::mbarrier_arrive_expect_tx(full, uint32_t(T::W_BYTES + (p.direct ? T::X_BYTES : 0)));
    g8::place at(p, u);
    ptx::cp_async_bulk_tensor_2d(ptx::smem(sh.w[slot]), &m.w[at.which], full, step * g8::STEP,
                                 at.tile * T::OUTPUTS);
}

template <int TOKENS>
__device__ void feed_tiles(typename tile<TOKENS>::shared_memory &sh, const g8::maps &m,
                           const g8::operands &p)
{
    using T = tile<TOKENS>;
    typename T::ring at;
    if (p.direct) ptx::prefetch_tensormap(&m.x);
    int early = 0, step = 0;
    for (int u = int(blockIdx.x); u < p.output_tiles && early < T::STAGES; u += int(gridDim.x))
        for (int s = 0; s < p.steps && early < T::STAGES; s++, early++)
            load_w<TOKENS>(sh, m, p, early, s, u);
    ptx::griddepcontrol_wait();
    for (int i = 0; i < early; i++) {
        load_x<TOKENS>(sh, m, p, i, step);
        if (++step == p.steps) step = 0;
    }
    int count = 0;
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
        for (int s = 0; s < p.steps; s++, at.advance()) {
            if (count++ < early) continue;
            ptx::mbarrier_wait(ptx::smem(&sh.empty[at.slot]), at.parity ^ 1);
            load_w<TOKENS>(sh, m, p, at.slot, s, u);
            load_x<TOKENS>(sh, m, p, at.slot, s);
        }
    }
}

/* One warp: lane and lane + 32 are tokens, lanes 0 and 1 also groups of 32 outputs. It also copies
 * x where the copy engine can't. */
template <int TOKENS>
__device__ void feed_scales(typename tile<TOKENS>::shared_memory &sh, const g8::operands &p,
                            int lane)
{
    using T = tile<TOKENS>;
    constexpr int GROUPS = T::OUTPUTS / 32, MINE = (TOKENS + 31) / 32;
    typename T::ring at;
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
        g8::place of(p, u);
        for (int i = 0; i < GROUPS; i++)
            g8::prefetch_scales(p, g8::output_scales(p, of.which, of.tile * GROUPS + i), lane);
        const uint32_t *token[MINE], *group = nullptr;
        for (int i = 0; i < MINE; i++)
            token[i] = lane + 32 * i < TOKENS ? g8::token_scales(p, lane + 32 * i) : nullptr;
        if (lane < GROUPS) group = g8::output_scales(p, of.which, of.tile * GROUPS + lane);
        ptx::griddepcontrol_wait(); /* done at once from the second tile on */
        for (int s = 0; s < p.steps; s++, at.advance()) {
            ptx::mbarrier_wait(ptx::smem(&sh.empty[at.slot]), at.parity ^ 1);
#pragma unroll
            for (int i = 0; i < MINE; i++)
                if (token[i])
                    ptx::cp_async_4(ptx::smem(&sh.sx[at.slot][lane + 32 * i]), token[i] + s);
            if (group) ptx::cp_async_4(ptx::smem(&sh.sw[at.slot][lane]), group + s);
            if (!p.direct) g8::copy_x(ptx::smem(sh.x[at.slot]), p, p.n, s, lane);
            ptx::cp_async_mbarrier_arrive_noinc(ptx::smem(&sh.full[at.slot]));
        }
    }
}

/* acc += part, scaled; a thread's columns of group j are tokens 8 j + 2 (lane % 4) and the next, sx
 * their scales for this block. */
template <int TOKENS>
__device__ inline void promote(float (&acc)[TOKENS / 2], float (&part)[TOKENS / 2],
                               const float (&by)[TOKENS / 4])
{
    ptx::wgmma_fence_operand(part); /* not before the wait */
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
        acc[4 * j] = __fmaf_rn(part[4 * j], by[2 * j], acc[4 * j]);
        acc[4 * j + 1] = __fmaf_rn(part[4 * j + 1], by[2 * j + 1], acc[4 * j + 1]);
        acc[4 * j + 2] = __fmaf_rn(part[4 * j + 2], by[2 * j], acc[4 * j + 2]);
        acc[4 * j + 3] = __fmaf_rn(part[4 * j + 3], by[2 * j + 1], acc[4 * j + 3]);
    }
}

/* The words of scales of a step for a thread's columns, and of its outputs. */
template <int TOKENS> struct step_scales {
    uint32_t x[TOKENS / 4], w;
    bool special;
    __device__ void load(const uint32_t *sx, uint32_t sw)
    {
        w = sw;
        special = g8::special_scales(w);
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            uint2 two = *reinterpret_cast<const uint2 *>(sx + 8 * j);
            x[2 * j] = two.x;
            x[2 * j + 1] = two.y;
            special |= g8::special_scales(two.x) | g8::special_scales(two.y);
        }
    }
    /* The products of N blocks from b on. */
    template <int N> __device__ void multiply(float (&by)[N][TOKENS / 4], int b) const
    {
        if (special) {
#pragma unroll
            for (int i = 0; i < N; i++)
#pragma unroll
                for (int j = 0; j < TOKENS / 4; j++)
                    by[i][j] = num::e8m0_to_f32(x[j] >> 8 * (b + i) & 255) *
                               num::e8m0_to_f32(w >> 8 * (b + i) & 255);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++)
#pragma unroll
                for (int j = 0; j < TOKENS / 4; j++)
                    by[i][j] = g8::plain_scale(x[j], b + i) * g8::plain_scale(w, b + i);
        }
    }
};

template <int TOKENS>
__device__ void store_tile(const float (&acc)[TOKENS / 2], const g8::operands &p,
                           const g8::matrix &y, int output, int lane)
{
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) {
        int row = output + lane / 4 + (i & 2) * 4, column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
        if (column < p.n && row < y.o)
            y.out[int64_t(column) * y.o + row] = num::f32_to_bf16(acc[i]);
    }
}

template <int TOKENS>
__device__ void consume(typename tile<TOKENS>::shared_memory &sh, const g8::operands &p)
{
    using T = tile<TOKENS>;
    int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    uint64_t w0 = ptx::wgmma_desc_128b(ptx::smem(sh.w[0]));
    uint64_t x0 = ptx::wgmma_desc_128b(ptx::smem(sh.x[0]));
    typename T::ring at;
    float acc[TOKENS / 2], part[T::PARTS][TOKENS / 2] = {};
    for (int u = int(blockIdx.x); u < p.output_tiles; u += int(gridDim.x)) {
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) acc[i] = 0;
        for (int s = 0; s < p.steps; s++, at.advance()) {
            uint64_t w = w0 + uint64_t(at.slot * (T::W_BYTES >> 4));
            uint64_t x = x0 + uint64_t(at.slot * (T::X_BYTES >> 4));
            ptx::mbarrier_wait(ptx::smem(&sh.full[at.slot]), at.parity);
            if (!p.direct) ptx::fence_proxy_async(); /* x came by ordinary copies */
            step_scales<TOKENS> scales;
#pragma unroll
            for (int b = 0; b < g8::BLOCKS; b += T::PARTS) {
                ptx::wgmma_fence();
#pragma unroll
                for (int i = 0; i < T::PARTS; i++)
                    ptx::wgmma<TOKENS>::e4m3_ss(part[i], w + uint64_t((b + i) * g8::DESC_BLOCK),
                                                x + uint64_t((b + i) * g8::DESC_BLOCK), 0);
                ptx::wgmma_commit_group();
                if (b == 0) scales.load(&sh.sx[at.slot][lane % 4 * 2], sh.sw[at.slot][warp / 2]);
                /* 64 tokens leave no registers for the products of all blocks */
                constexpr int EACH = TOKENS < 64 ? T::PARTS : 1;
                float by[EACH][TOKENS / 4];
                if (EACH > 1) scales.multiply(by, b);
                ptx::wgmma_wait_group<0>();
#pragma unroll
                for (int i = 0; i < T::PARTS; i++) {
                    if (EACH == 1) scales.multiply(by, b + i);
                    promote<TOKENS>(acc, part[i], by[i % EACH]);
                }
            }
            __syncwarp();
            if (lane == 0) ptx::mbarrier_arrive(ptx::smem(&sh.empty[at.slot]));
        }
        g8::place of(p, u);
        store_tile<TOKENS>(acc, p, p.of[of.which], of.tile * T::OUTPUTS + warp * 16, lane);
    }
}

template <int TOKENS>
__global__ void __launch_bounds__(tile<TOKENS>::THREADS, tile<TOKENS>::RESIDENT)
    linear_g8_decode(const __grid_constant__ g8::maps m, const __grid_constant__ g8::operands p)
{
    using T = tile<TOKENS>;
    ptx::griddepcontrol_launch_dependents();
    extern __shared__ __align__(1024) uint8_t raw[];
    auto &sh = *reinterpret_cast<typename T::shared_memory *>(raw);
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; i++) {
            ptx::mbarrier_init(ptx::smem(&sh.full[i]), 1 + 32); /* copy engine, scales */
            ptx::mbarrier_init(ptx::smem(&sh.empty[i]), 4);
        }
        ptx::fence_mbarrier_init();
    }
    for (int i = int(threadIdx.x); i < T::STAGES * TOKENS; i += T::THREADS)
        sh.sx[0][i] = g8::NO_SCALES;
    if (threadIdx.x < T::STAGES * T::OUTPUTS / 32) sh.sw[0][threadIdx.x] = g8::NO_SCALES;
    __syncthreads();
    int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    if (warp < 4)
        consume<TOKENS>(sh, p);
    else if (warp == 4 && lane == 0)
        feed_tiles<TOKENS>(sh, m, p);
    else if (warp == 4 + 1)
        feed_scales<TOKENS>(sh, p, lane);
}

template <int TOKENS>
dsf_status launch_tokens(const dsf_launch *lc, const g8::maps &m, const g8::operands &p,
                         const dsf_g8_tile &t)
{
    using T = tile<TOKENS>;
    return g8::launch(lc, t, T::THREADS, sizeof(typename T::shared_memory),
                      linear_g8_decode<TOKENS>, m, p);
}

} // namespace

dsf_status g8::launch_decode(const dsf_launch *lc, const problem &q, const dsf_g8_tile &of_shape)
{
    dsf_g8_tile t = at_address(of_shape, q);
    maps m = {};
    int64_t k = q.x.dim[1];
    DSF_TRY(make_maps(&m, q, t, q.x.data, k + k / 32, t.outputs));
    operands p = make_operands(q, t);
    switch (t.tokens) {
    case 8:
        return launch_tokens<8>(lc, m, p, t);
    case 16:
        return launch_tokens<16>(lc, m, p, t);
    case 32:
        return launch_tokens<32>(lc, m, p, t);
    default:
        return launch_tokens<64>(lc, m, p, t);
    }
}
