/* Scores on the tensor cores: exact, in integers.
 *
 * Twice an e2m1 value is an integer of at most 12, and the scales are powers of two. Where the four
 * scales of a record lie within 2^3 they are folded into its codes (at most 96, signed bytes), and
 * q . k is one sum of 128 integer products: below 2^21, times a power of two. Every partial sum of
 * the contract's order is a multiple of the same unit below 2^24 of them, so it is exact and the
 * order does not matter. Records that cannot be folded (INDEX.md) make their tile take the slow
 * path: one product a group, then the contract's additions in f32.
 *
 * Tile: 64 keys (M, in registers) x 4 tokens of 32 heads (N = 128). Column 8g + 2c + e is head 2g +
 * e of token c, so that lane c of a quad holds all heads of token c for its two keys: relu,
 * roundings and the ordered sum stay in the thread. A block: 4 warpgroups of 64 keys each, and a
 * warp that copies the prepared query tiles through a ring; 64 tiles (256 tokens) for one set of
 * keys.
 *
 * A tile costs the tensor cores 256 cycles, and each scheduler 3.5 instructions an element = 224 +
 * about 25: with four warpgroups in different phases both run at once. 16.6 KiB of L2 reads for
 * 1,024 cycles. */
#include "sm90/index_tile.cuh"

using namespace index_sm90;

namespace
{

constexpr int warpgroups = 4;
constexpr int keys_wg = 64;
constexpr int keys_block = warpgroups * keys_wg;
constexpr int consumers = warpgroups * 128;
constexpr int threads = consumers + 128; /* a warpgroup that copies: one of its warps does */
/* 640 threads start with 96 registers each; what the copying warpgroup gives up, the others get. */
constexpr int start_registers = 96, producer_registers = 32, consumer_registers = 112;
static_assert(consumers * consumer_registers + 128 * producer_registers <=
                  threads * start_registers,
              "a block shares what it was given at its start");
constexpr int block_tiles = 64; /* tiles for one set of keys; two a lane */
constexpr int stages = 6;

constexpr uint32_t copied = offsetof(tile, a); /* bytes in shared memory */
constexpr uint32_t stage_bytes = (copied + 1023) / 1024 * 1024;
static_assert(copied % 16 == 0, "bulk copies");
constexpr uint32_t shared_bytes = stages * stage_bytes + 1024 + 2 * stages * 8;

/* ---- keys ---- */

/* The A fragments of one warpgroup: thread rows r and r + 8 of its warp's 16 are the keys first and
 * first + 1. */
struct key_tile {
    uint32_t a[groups][4];
    uint32_t bytes[2];
    bool fast; /* all 64 keys fold */
};

__device__ void load_keys(key_tile &k, const score_job &j, int64_t first, int64_t slot, int lane_c,
                          int barrier)
{
    uint32_t word[2][groups];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t key = first + r < j.c ? first + r : j.c - 1;
        const uint8_t *rec = j.keys + (slot * j.c + key) * record;
#pragma unroll
        for (int g = 0; g < groups; g++) word[r][g] = load_word(rec + 16 * g + 4 * lane_c, true);
        k.bytes[r] = load_word(rec + 64, true);
    }
    bool folds = true;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        scales s(k.bytes[r]);
        folds = folds && s.folds;
#pragma unroll
        for (int g = 0; g < groups; g++)
            grid(s.shift(g)).expand(word[r][g], k.a[g][r], k.a[g][r + 2]);
    }
    k.fast = ptx::bar_red_and(barrier, 128, folds);
}

/* ---- a tile ---- */

__device__ float high_half(__nv_bfloat162 x) { return __uint_as_float(word(x)); } /* low: +0 */

/* total += bf16(a bf16(relu(x))) of two heads; the weights have their low halves 0. */
__device__ void add_pair(float &total, int x0, int x1, uint32_t a0, uint32_t a1)
{
    __nv_bfloat162 x = bf16x2(ptx::cvt_rn_relu_bf16x2(__int2float_rn(x1), __int2float_rn(x0)));
    total = __fadd_rn(total, high_half(__hmul2_rn(__low2bfloat162(x), bf16x2(a0))));
    total = __fadd_rn(total, high_half(__hmul2_rn(x, bf16x2(a1))));
}

/* Integers, one sum a dot. */
__device__ void score_fast(float (&total)[2], const key_tile &k, const tile *t, uint64_t b, int c)
{
    int d[64];
    ptx::wgmma_fence();
#pragma unroll
    for (int g = 0; g < groups; g++) ptx::wgmma_s8<128>::rs(d, k.a[g], b + 2 * g, g > 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(d);
    total[0] = total[1] = 0;
#pragma unroll
    for (int i = 0; i < heads / 4; i++) {
        uint4 a = *reinterpret_cast<const uint4 *>(t->weight + 16 * i + 4 * c);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            add_pair(total[r], d[8 * i + 2 * r], d[8 * i + 2 * r + 1], a.x, a.y);
            add_pair(total[r], d[8 * i + 4 + 2 * r], d[8 * i + 5 + 2 * r], a.z, a.w);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) /* both doublings are a quarter */
        total[r] = __fmul_rn(total[r], num::pow2(scales(k.bytes[r]).base - 129));
}

/* The contract's additions, one product a group. source: the tile in device memory. */
__device__ void score_slow(float (&total)[2], const key_tile &k, const tile *source, uint64_t b,
                           int c)
{
    total[0] = total[1] = 0;
    const scales s[2] = {scales(k.bytes[0]), scales(k.bytes[1])};
    for (int part = 0; part < 4; part++) { /* 8 heads */
        float dot[16] = {};
#pragma unroll
        for (int g = 0; g < groups; g++) {
            int d[16];
            ptx::wgmma_fence();
            ptx::wgmma_s8<32>::rs(d, k.a[g], b + 2 * g, 0);
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            ptx::wgmma_fence_operand(d);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int head = 8 * part + i / 4 * 2 + i % 2;
                float group = __fmul_rn(__int2float_rn(d[i]), source->unfold[head][c][g]);
                group = __fmul_rn(group, s[i / 2 % 2].outside(g));
                dot[i] = __fmaf_rn(group, source->scale[head][c][g], dot[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int head = 8 * part + i / 4 * 2 + i % 2, r = i / 2 % 2;
            float x = num::round_bf16(dot[i]);
            x = x < 0 ? 0 : x; /* NaN stays */
            x = __fmul_rn(source->a[c][head], x);
            total[r] = __fadd_rn(total[r], num::round_bf16(x));
        }
        b += 32 * DSF_INDEX_CHANNELS / 16; /* the next 32 columns */
    }
}

/* ---- the grid ---- */

/* Which (tokens, keys) units this block does: all of them in one row, dealt in turn, those without
 * a visible entry left out. The same in every warp. */
struct schedule {
    const tile *tiles;
    int64_t n_tiles, first, unit, base, count;
    int most[block_tiles / 32]; /* of tile first + lane + 32 i */

    __device__ schedule(const tile *all, int64_t n) : tiles(all), n_tiles(n), first(0), base(0)
    {
        look();
    }
    __device__ void look()
    {
        int lane = threadIdx.x % 32, largest = 0;
#pragma unroll
        for (int i = 0; i < block_tiles / 32; i++) {
            int64_t at = first + lane + 32 * i;
            most[i] = at < n_tiles ? tiles[at].most : 0;
            largest = max(largest, most[i]);
        }
        largest = __reduce_max_sync(0xFFFFFFFFu, largest);
        count = (int64_t(largest) + keys_block - 1) / keys_block;
        int64_t ahead = (int64_t(blockIdx.x) - base) % gridDim.x;
        unit = ahead < 0 ? ahead + gridDim.x : ahead;
    }
    /* False: no unit is left. Otherwise unit: its keys. */
    __device__ bool settle()
    {
        while (unit >= count) {
            base += count;
            first += block_tiles;
            if (first >= n_tiles) return false;
            look();
        }
        return true;
    }
    __device__ void next() { unit += gridDim.x; }
    __device__ int tiles_here() const
    {
        return n_tiles - first < block_tiles ? int(n_tiles - first) : block_tiles;
    }
    __device__ bool skipped(int i) const /* no token of the tile sees the keys */
    {
        int m = __shfl_sync(0xFFFFFFFFu, i < 32 ? most[0] : most[1], i % 32);
        return m <= unit * keys_block;
    }
};

struct ring {
    uint32_t data, full, empty; /* shared addresses */
    int stage, phase;

    __device__ void next()
    {
        if (++stage < stages) return;
        stage = 0;
        phase ^= 1;
    }
};

__device__ void produce(schedule s, ring r)
{
    for (; s.settle(); s.next()) {
        for (int i = 0; i < s.tiles_here(); i++) {
            if (s.skipped(i)) continue;
            if (threadIdx.x % 32 == 0) {
                ptx::mbarrier_wait(r.empty + 8 * r.stage, r.phase ^ 1);
                ptx::mbarrier_arrive_expect_tx(r.full + 8 * r.stage, copied);
                ptx::cp_async_bulk(r.data + r.stage * stage_bytes, s.tiles + s.first + i, copied,
                                   r.full + 8 * r.stage);
            }
            __syncwarp();
            r.next();
        }
    }
}

__device__ void store(const score_job &j, int64_t row, int64_t first, int visible,
                      const float (&total)[2])
{
    uint16_t *out = j.out + row * j.stride + first;
    uint32_t both = num::pack_bf16(total[0], total[1]);
    if (first + 1 < visible && j.stride % 2 == 0)
        *reinterpret_cast<uint32_t *>(out) = both;
    else {
        if (first < visible) out[0] = uint16_t(both);
        if (first + 1 < visible) out[1] = uint16_t(both >> 16);
    }
}

__device__ void consume(const score_job &j, schedule s, ring r, const uint8_t *data)
{
    int wg = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    int c = lane % 4;
    key_tile k;
    for (; s.settle(); s.next()) {
        int64_t first = s.unit * keys_block + wg * keys_wg + warp * 16 + lane / 4 * 2;
        int64_t slot = -1;
        for (int i = 0; i < s.tiles_here(); i++) {
            if (s.skipped(i)) continue;
            const tile *t = reinterpret_cast<const tile *>(data + r.stage * stage_bytes);
            uint64_t b = ptx::wgmma_desc_128b(r.data + r.stage * stage_bytes);
            ptx::mbarrier_wait(r.full + 8 * r.stage, r.phase);
            int4 slots = *reinterpret_cast<const int4 *>(t->slot);
            int visible = t->visible[c], mine = t->slot[c];
            for (unsigned todo = 15; todo;) { /* once for each slot of the four tokens */
                int now = todo & 1 ? slots.x : todo & 2 ? slots.y : todo & 4 ? slots.z : slots.w;
                todo &= ~(unsigned(slots.x == now) | unsigned(slots.y == now) << 1 |
                          unsigned(slots.z == now) << 2 | unsigned(slots.w == now) << 3);
                if (now != slot) load_keys(k, j, first, now, c, 1 + wg);
                slot = now;
                float total[2];
                if (k.fast && t->fast)
                    score_fast(total, k, t, b, c);
                else
                    score_slow(total, k, s.tiles + s.first + i, b, c);
                if (mine == now) store(j, (s.first + i) * tokens + c, first, visible, total);
            }
            __syncwarp();
            if (lane == 0) ptx::mbarrier_arrive(r.empty + 8 * r.stage);
            r.next();
        }
    }
}

__global__ void __launch_bounds__(threads, 1) score(score_job j, const tile *tiles, int64_t n_tiles)
{
    extern __shared__ uint8_t memory[];
    uint32_t start = ptx::smem(memory), data = (start + 1023) / 1024 * 1024;
    ring r = {data, data + stages * stage_bytes, data + stages * stage_bytes + 8 * stages, 0, 0};
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            ptx::mbarrier_init(r.full + 8 * i, 1);
            ptx::mbarrier_init(r.empty + 8 * i, consumers / 32);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::griddepcontrol_wait();
    if (threadIdx.x >= consumers) {
        ptx::setmaxnreg_dec<producer_registers>();
        if (threadIdx.x < consumers + 32) produce(schedule(tiles, n_tiles), r);
    } else {
        ptx::setmaxnreg_inc<consumer_registers>();
        consume(j, schedule(tiles, n_tiles), r, memory + (data - start));
    }
}

/* -inf for the entries that row y does not see. */
__global__ void __launch_bounds__(256) fill(score_job j)
{
    ptx::griddepcontrol_wait();
    for (int64_t row = blockIdx.y; row < j.n; row += gridDim.y) {
        int64_t e = visible_entries(j.pos[row], j.ratio, j.entries);
        for (e += int64_t(blockIdx.x) * 256 + threadIdx.x; e < j.entries; e += 256 * gridDim.x)
            j.out[row * j.stride + e] = 0xFF80;
    }
}

} // namespace

dsf_status index_sm90::score_rows_tensor(const score_job &job, uint8_t *tiles, cudaStream_t stream)
{
    if (job.fill) {
        dim3 blocks(dsf_blocks(job.entries, 256 * 64),
                    static_cast<unsigned>(job.n < 16384 ? job.n : 16384));
        fill<<<blocks, 256, 0, stream>>>(job);
        DSF_CUDA_TRY(cudaGetLastError());
    }
    tile *t = reinterpret_cast<tile *>(tiles);
    if (job.pool)
        return pool_fits(job) ? score_pool_tensor(job, t, stream) : score_rows(job, stream);
    int64_t n_tiles = (job.n + tokens - 1) / tokens;
    DSF_TRY(prepare_tiles(job, t, stream));
    int device = 0, processors = 0;
    DSF_CUDA_TRY(cudaGetDevice(&device));
    DSF_CUDA_TRY(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    DSF_CUDA_TRY(
        cudaFuncSetAttribute(score, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    score<<<static_cast<unsigned>(processors), threads, shared_bytes, stream>>>(job, t, n_tiles);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
