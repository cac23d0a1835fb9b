/* y = bf16(x W^T), fp8 with scales of 32 x 32 blocks, for many tokens (n > 64; LINEAR_G8.md).
 *
 * Tile 128 tokens x 128 outputs, persistent over the tiles; steps of 128 along K in a ring of
 * shared memory. Two consumer warpgroups of 64 tokens: for each block of 32 along K one wgmma
 * m64n128k32 from zero into one of two part accumulators, while the other is promoted:
 * acc = fmaf(part, sx sw, acc), blocks ascending. A third warpgroup feeds: one thread the copy
 * engine and all 128 the scales. A cluster of two blocks with different tokens shares each weight
 * tile: every block loads half of it into both.
 *
 * A step of both warpgroups: 512 cycles of the tensor core, 512 FFMA a scheduler and 180 other
 * instructions; but FFMA and the tensor core's results together need 2,048 accesses of the register
 * file, which gives 2 a cycle: measured 1,200 to 1,250 cycles. */
#include "sm90/linear_g8.cuh"

namespace
{

constexpr int TOKENS = 128, OUTPUTS = 128, STAGES = 5;
constexpr int CONSUMERS = 2; /* warpgroups of 64 tokens */
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int AHEAD = 4;                     /* stages whose scales are asked for together */
constexpr int OUT_CHUNKS = OUTPUTS * 2 / 16; /* of 16 bytes in a row of the tile's result */

struct __align__(1024) stage
{
    uint8_t x[TOKENS * g8::STEP];
    uint8_t w[OUTPUTS * g8::STEP];
    float4 sx[TOKENS];     /* [row] the 4 blocks of the step */
    float4 sw[g8::BLOCKS]; /* [block] the 4 groups of 32 outputs */
};
static_assert(OUTPUTS / 32 == 4, "one float4 of weight scales a block");

struct shared_memory {
    stage ring[STAGES];
    uint4 out[TOKENS * OUT_CHUNKS];
    uint64_t full[STAGES], empty[STAGES];
};
static_assert(sizeof(shared_memory) <= DSF_SM90_BLOCK_SHARED, "a multiprocessor's shared memory");

using ring = g8::ring<STAGES>;

/* First token and first output of this block's tile in the cluster's u-th group. Bands of 8 output
 * tiles: what one wave reads stays in the L2. */
template <int CLUSTER>
__device__ void tile_at(const g8::operands &p, int u, int *token, int *output)
{
    constexpr int BAND = 8;
    int groups = p.token_tiles / CLUSTER, rank = int(blockIdx.x) % CLUSTER;
    int band = u / (BAND * groups), rest = u - band * BAND * groups;
    int width = min(BAND, p.output_tiles - band * BAND);
    *token = (rest / width * CLUSTER + rank) * TOKENS;
    *output = (band * BAND + rest % width) * OUTPUTS;
}

/* A warpgroup: every thread brings the scales of one token, the first also asks the copy engine for
 * the codes, lanes 0..3 of warp 1 bring the scales of a group of 32 outputs each. */
template <int CLUSTER>
__device__ void feed(shared_memory &sh, const g8::maps &m, const g8::operands &p, int thread)
{
    int group = thread - 32;
    bool outputs = group >= 0 && group < OUTPUTS / 32;
    constexpr int W_ROWS = OUTPUTS / CLUSTER;
    int rank = int(blockIdx.x) % CLUSTER;
    ring at;
    for (int u = int(blockIdx.x) / CLUSTER; u < p.token_tiles / CLUSTER * p.output_tiles;
         u += int(gridDim.x) / CLUSTER) {
        int token, output;
        tile_at<CLUSTER>(p, u, &token, &output);
        const uint32_t *x_row = g8::token_scales(p, token + thread);
        const uint32_t *w_row = outputs ? g8::output_scales(p, 0, output / 32 + group) : nullptr;
        for (int s = 0; s < p.steps; s += AHEAD) {
            g8::scale_words<AHEAD> x, w;
            x.load(x_row, s, 1, p.steps);
            w.load(w_row, s, 1, p.steps);
#pragma unroll 1
            for (int i = 0; i < AHEAD; i++) {
                if (s + i >= p.steps) break;
                stage &to = sh.ring[at.slot];
                uint32_t full = ptx::smem(&sh.full[at.slot]);
                ptx::mbarrier_wait(ptx::smem(&sh.empty[at.slot]), at.parity ^ 1);
                if (thread == 0) {
                    ptx::mbarrier_arrive_expect_tx(full, sizeof to.x + sizeof to.w);
                    ptx::cp_async_bulk_tensor_2d(ptx::smem(to.x), &m.x, full, (s + i) * g8::STEP,
                                                 token);
                    uint32_t w = ptx::smem(to.w) + uint32_t(rank * W_ROWS * g8::STEP);
                    if (CLUSTER == 1)
                        ptx::cp_async_bulk_tensor_2d(w, &m.w[0], full, (s + i) * g8::STEP, output);
                    else
                        ptx::cp_async_bulk_tensor_2d_multicast(w, &m.w[0], full, (s + i) * g8::STEP,
                                                               output + rank * W_ROWS,
                                                               (1 << CLUSTER) - 1);
                }
                to.sx[thread] = g8::expand_scales(x.next());
                if (outputs) {
                    float *sw = reinterpret_cast<float *>(to.sw) + group;
                    float4 f = g8::expand_scales(w.next());
                    sw[0] = f.x, sw[4] = f.y, sw[8] = f.z, sw[12] = f.w;
                }
                __syncwarp();
                if (thread % 32 == 0) ptx::mbarrier_arrive(full);
                at.advance();
            }
        }
    }
}

/* The products of a thread's two rows (a, b) with the four groups of 32 outputs. */
struct products {
    float a[4], b[4];
    __device__ products(float sa, float sb, const float4 &sw)
        : a{sa * sw.x, sa * sw.y, sa * sw.z, sa * sw.w}, b{sb * sw.x, sb * sw.y, sb * sw.z,
                                                           sb * sw.w}
    {
    }
};

__device__ inline void promote(float (&acc)[64], float (&part)[64], const products &s)
{
    ptx::wgmma_fence_operand(part); /* not before the wait */
#pragma unroll
    for (int j = 0; j < 16; j++) {
        acc[4 * j] = __fmaf_rn(part[4 * j], s.a[j / 4], acc[4 * j]);
        acc[4 * j + 1] = __fmaf_rn(part[4 * j + 1], s.a[j / 4], acc[4 * j + 1]);
        acc[4 * j + 2] = __fmaf_rn(part[4 * j + 2], s.b[j / 4], acc[4 * j + 2]);
        acc[4 * j + 3] = __fmaf_rn(part[4 * j + 3], s.b[j / 4], acc[4 * j + 3]);
    }
    ptx::wgmma_fence_operand(acc); /* and before part is the target again */
}

/* Queues the product of block b of a stage. */
__device__ inline void multiply(float (&part)[64], uint64_t x, uint64_t w, int b)
{
    ptx::wgmma_fence();
    ptx::wgmma<128>::e4m3_ss(part, x + uint64_t(b * g8::DESC_BLOCK),
                             w + uint64_t(b * g8::DESC_BLOCK), 0);
    ptx::wgmma_commit_group();
}

/* A warp's 16 rows through its own part of shared memory (chunks xored with the row: no bank
 * conflicts), then out in lines of 256 bytes. */
__device__ void store_tile(const float (&acc)[64], uint4 *rows, const g8::operands &p, int token,
                           int output, int first_row, int lane)
{
    int row = lane % 16; /* this lane names a row of two 8 x 8 matrices: left half, right half */
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
        const uint32_t v[4] = {num::pack_bf16(acc[4 * j], acc[4 * j + 1]),
                               num::pack_bf16(acc[4 * j + 2], acc[4 * j + 3]),
                               num::pack_bf16(acc[4 * j + 4], acc[4 * j + 5]),
                               num::pack_bf16(acc[4 * j + 6], acc[4 * j + 7])};
        ptx::stmatrix_x4(ptx::smem(&rows[row * OUT_CHUNKS + ((j + lane / 16) ^ (row & 7))]), v);
    }
    __syncwarp();
    const g8::matrix &y = p.of[0];
    int column = output + lane % 16 * 8;
    for (int i = 0; i < 8; i++) {
        int r = 2 * i + lane / 16;
        int t = token + first_row + r;
        if (t >= p.n) continue;
        uint4 v = rows[r * OUT_CHUNKS + (lane % 16 ^ (r & 7))];
        uint16_t *to = y.out + int64_t(t) * y.o + column;
        if (y.o % 8 == 0 && column < y.o) {
            *reinterpret_cast<uint4 *>(to) = v;
        } else {
            const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int c = 0; c < 8; c++)
                if (column + c < y.o) to[c] = uint16_t(word[c / 2] >> (c % 2 * 16));
        }
    }
    __syncwarp();
}

template <int CLUSTER> __device__ void consume(shared_memory &sh, const g8::operands &p, int group)
{
    int warp = int(threadIdx.x) / 32 % 4, lane = int(threadIdx.x) % 32;
    int first_row = group * 64 + warp * 16, my_row = first_row + lane / 4;
    int u = int(blockIdx.x) / CLUSTER, stride = int(gridDim.x) / CLUSTER;
    int tiles = p.token_tiles / CLUSTER * p.output_tiles;
    ring at;

    float acc[64], even[64], odd[64];
#pragma unroll
    for (int i = 0; i < 64; i++) acc[i] = even[i] = odd[i] = 0;
    uint64_t x0 = ptx::wgmma_desc_128b(ptx::smem(sh.ring[0].x) + uint32_t(group * 64 * g8::STEP));
    uint64_t w0 = ptx::wgmma_desc_128b(ptx::smem(sh.ring[0].w));
    constexpr uint64_t DESC_STAGE = sizeof(stage) >> 4;

    /* Every block's scales are read while the block before is promoted. */
    ptx::mbarrier_wait(ptx::smem(&sh.full[0]), 0);
    multiply(even, x0, w0, 0);
    float4 sa = sh.ring[0].sx[my_row], sb = sh.ring[0].sx[my_row + 8];
    products s0(sa.x, sb.x, sh.ring[0].sw[0]);
    do { /* loops that run at least once: ptxas then knows that nothing is in flight after them */
        int token, output;
        tile_at<CLUSTER>(p, u, &token, &output);
        int s = 0;
        do {
            const float4 *sw = sh.ring[at.slot].sw;
            uint64_t x = x0 + DESC_STAGE * uint64_t(at.slot);
            uint64_t w = w0 + DESC_STAGE * uint64_t(at.slot);

            multiply(odd, x, w, 1);
            ptx::wgmma_wait_group<1>();
            products s1(sa.y, sb.y, sw[1]);
            promote(acc, even, s0);
            multiply(even, x, w, 2);
            ptx::wgmma_wait_group<1>();
            products s2(sa.z, sb.z, sw[2]);
            promote(acc, odd, s1);
            multiply(odd, x, w, 3);
            ptx::wgmma_wait_group<1>();
            products s3(sa.w, sb.w, sw[3]);
            promote(acc, even, s2);

            /* Block 0 of the next step, also that of the next tile. After the very last one it
             * multiplies what lies in the ring, for nobody: a branch around it would make the
             * compiler wait for the accumulators in flight. */
            uint32_t empty = ptx::smem(&sh.empty[at.slot]);
            at.advance();
            if (s + 1 < p.steps || u + stride < tiles)
                ptx::mbarrier_wait(ptx::smem(&sh.full[at.slot]), at.parity);
            multiply(even, x0 + DESC_STAGE * uint64_t(at.slot), w0 + DESC_STAGE * uint64_t(at.slot),
                     0);
            ptx::wgmma_wait_group<1>();
            __syncwarp();
            if (CLUSTER == 1) {
                if (lane == 0) ptx::mbarrier_arrive(empty);
            } else if (lane < CLUSTER) {
                ptx::mbarrier_arrive_remote(empty, uint32_t(lane));
            }
            const stage &next = sh.ring[at.slot];
            sa = next.sx[my_row];
            sb = next.sx[my_row + 8];
            s0 = products(sa.x, sb.x, next.sw[0]);
            promote(acc, odd, s3);
            ptx::wgmma_wait_group<0>(); /* ptxas follows no group around the loop */
        } while (++s < p.steps);
        store_tile(acc, &sh.out[first_row * OUT_CHUNKS], p, token, output, first_row, lane);
#pragma unroll
        for (int i = 0; i < 64; i++) acc[i] = 0;
    } while ((u += stride) < tiles);
}

template <int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1)
    linear_g8(const __grid_constant__ g8::maps m, const __grid_constant__ g8::operands p)
{
    ptx::griddepcontrol_launch_dependents();
    extern __shared__ __align__(1024) uint8_t raw[];
    auto &sh = *reinterpret_cast<shared_memory *>(raw);
    int group = __shfl_sync(0xFFFFFFFFu, int(threadIdx.x) / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            ptx::mbarrier_init(ptx::smem(&sh.full[i]), 1 + 4); /* copy engine, warps that feed */
            ptx::mbarrier_init(ptx::smem(&sh.empty[i]), CONSUMERS * 4 * CLUSTER);
        }
        ptx::fence_mbarrier_init();
    }
    if (CLUSTER == 1)
        __syncthreads();
    else
        ptx::cluster_sync();
    ptx::griddepcontrol_wait();
    if (group == CONSUMERS) {
        ptx::setmaxnreg_dec<40>();
        feed<CLUSTER>(sh, m, p, int(threadIdx.x) % 128);
    } else {
        ptx::setmaxnreg_inc<232>();
        consume<CLUSTER>(sh, p, group);
    }
    if (CLUSTER > 1) ptx::cluster_sync(); /* the other block still writes and arrives here */
}

/* The codes of x without the scales between them: rows of k bytes in 16 at a time. */
template <typename UNIT> __global__ void pack_codes(uint4 *out, const uint8_t *x, int64_t n, int k)
{
    constexpr int UNITS = int(sizeof(uint4) / sizeof(UNIT));
    union {
        uint4 all;
        UNIT part[UNITS];
    } v;
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, each = k / 16;
    if (i >= n * each) return;
    auto from = reinterpret_cast<const UNIT *>(x + i / each * (k + k / 32) + i % each * 16);
#pragma unroll
    for (int j = 0; j < UNITS; j++) v.part[j] = from[j];
    out[i] = v.all;
}

dsf_status pack(const dsf_launch *lc, const dsf_linear_g8_args *a)
{
    int64_t n = a->out.dim[0], k = a->w.dim[1];
    auto x = data_of<const uint8_t>(a->x);
    auto out = reinterpret_cast<uint4 *>(lc->scratch);
    unsigned blocks = dsf_blocks(n * k / 16, 256);
    auto kernel = (k + k / 32) % 8 == 0 ? pack_codes<uint2> : pack_codes<uint32_t>;
    return launch_early(dsf_stream(lc), {blocks, 256}, kernel, out, x, n, int(k));
}

} // namespace

extern "C" dsf_status dsf_linear_g8_sm90fp8(const dsf_launch *lc, const void *args)
{
    auto a = static_cast<const dsf_linear_g8_args *>(args);
    g8::problem q = {a->x, {{a->out, a->w, a->s}, {}}, 1};
    int64_t k = a->x.dim[1];
    dsf_g8_tile t = dsf_linear_g8_sm90fp8_tile(a->x.dim[0], k, a->out.dim[1], 0);
    if (t.slices > 1) return g8::launch_slices(lc, q, t);
    if (t.slices == 1) return g8::launch_decode(lc, q, t);
    if (!t.direct) DSF_TRY(pack(lc, a));
    g8::maps m = {};
    DSF_TRY(g8::make_maps(&m, q, t, t.direct ? a->x.data : lc->scratch, t.direct ? k + k / 32 : k,
                          OUTPUTS / t.cluster));
    g8::operands p = g8::make_operands(q, t);
    auto kernel = t.cluster == 1 ? linear_g8<1> : linear_g8<2>;
    return g8::launch(lc, t, THREADS, sizeof(shared_memory), kernel, m, p);
}

extern "C" dsf_status dsf_linear_g8_pair_sm90fp8(const dsf_launch *lc, const void *args)
{
    auto a = static_cast<const dsf_linear_g8_pair_args *>(args);
    g8::problem q = {a->x, {{a->out_a, a->w_a, a->s_a}, {a->out_b, a->w_b, a->s_b}}, 2};
    dsf_g8_tile t =
        dsf_linear_g8_sm90fp8_tile(a->x.dim[0], a->x.dim[1], a->out_a.dim[1], a->out_b.dim[1]);
    return t.slices > 1 ? g8::launch_slices(lc, q, t) : g8::launch_decode(lc, q, t);
}

extern "C" dsf_status dsf_linear_g8_pair_sm90(const dsf_launch *lc, const void *args)
{
    auto p = static_cast<const dsf_linear_g8_pair_args *>(args);
    dsf_linear_g8_args a = {p->out_a, p->x, p->w_a, p->s_a}, b = {p->out_b, p->x, p->w_b, p->s_b};
    DSF_TRY(dsf_linear_g8_sm90(lc, &a));
    return dsf_linear_g8_sm90(lc, &b);
}
