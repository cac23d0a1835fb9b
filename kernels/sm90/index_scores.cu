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
 * roundings and the ordered sum stay in the thread. A block: 3 warpgroups of 128 keys (two tiles)
 * each, and a warp that copies the prepared query tiles through a ring; 32 tiles (128 tokens) for
 * one set of keys, the next set on its way.
 *
 * A tile costs the tensor cores 256 cycles, and each scheduler 3.5 instructions an element = 224 +
 * about 60: with warpgroups in different phases both run at once. 16.6 KiB of L2 reads for six
 * tiles. */
#include "sm90/index_tile.cuh"

using namespace index_sm90;

namespace
{

constexpr int warpgroups = 3;
constexpr int keys_wg = 128;
constexpr int keys_block = warpgroups * keys_wg;
constexpr int consumers = warpgroups * 128;
constexpr int threads = consumers + 128; /* a warpgroup that copies: one of its warps does */
/* 512 threads start with 128 registers each; what the copying warpgroup gives up, the others get.
 */
constexpr int start_registers = 128, producer_registers = 32, consumer_registers = 160;
static_assert(consumers * consumer_registers + 128 * producer_registers <=
                  threads * start_registers,
              "a block shares what it was given at its start");
constexpr int block_tiles = 32; /* tiles for one set of keys: one a lane */
constexpr int stages = 6;

constexpr uint32_t copied = offsetof(tile, a); /* bytes in shared memory */
constexpr uint32_t stage_bytes = (copied + 1023) / 1024 * 1024;
static_assert(copied % 16 == 0, "bulk copies");
constexpr uint32_t shared_bytes = stages * stage_bytes + 1024 + 2 * stages * 8;

/* ---- keys ---- */

/* Past the last key: that one again. */
__device__ const uint8_t *key_record(const score_job &j, int key, int slot)
{
    return j.keys + (int64_t(slot) * j.c + min(key, int(j.c) - 1)) * record;
}
__device__ uint32_t load_scales(const score_job &j, int key, int slot)
{
    return load_word(key_record(j, key, slot) + DSF_INDEX_CHANNELS / 2, true);
}

/* What one thread reads of its four keys, first..first+3: word c of every group, the scales. */
struct raw_keys {
    uint32_t word[4][groups], bytes[4];

    __device__ void load(const score_job &j, int first, int slot, int c)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint8_t *rec = key_record(j, first + i, slot);
#pragma unroll
            for (int g = 0; g < groups; g++) word[i][g] = load_word(rec + 16 * g + 4 * c, true);
            bytes[i] = load_scales(j, first + i, slot);
        }
    }
};

enum { out_of_range, in_range, folded }; /* what all keys of a warpgroup are at least */

/* The A fragments of a warpgroup's two tiles: rows r and r + 8 of tile i are the keys 2i and 2i + 1
 * of the thread's four. */
struct key_tiles {
    uint32_t a[2][groups][4];
    uint32_t exponents; /* of the four keys' units, biased, where they fold */
    int state;

    __device__ void expand(const raw_keys &raw, int barrier)
    {
        bool ranges = true, folds = true;
        exponents = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            scales s(raw.bytes[i]);
            folds = folds && s.folds;
            ranges = ranges && s.in_range;
            exponents |= uint32_t(s.base - 2) << 8 * i; /* both doublings are a quarter */
#pragma unroll
            for (int g = 0; g < groups; g++)
                grid(s.shift(g)).expand(raw.word[i][g], a[i / 2][g][i % 2], a[i / 2][g][i % 2 + 2]);
        }
        state = folded;
        if (ptx::bar_red_and(barrier, 128, folds)) return;
        state = ptx::bar_red_and(barrier, 128, ranges) ? in_range : out_of_range;
    }
};

/* ---- a tile ---- */

__device__ float high_half(__nv_bfloat162 x) { return __uint_as_float(word(x)); } /* low: +0 */

/* total += bf16(a bf16(relu(x))) of two heads; the weights have their low halves 0. */
__device__ void add_pair(float &total, int x0, int x1, uint32_t a0, uint32_t a1)
{
    __nv_bfloat162 x = bf16x2(ptx::cvt_rn_relu_bf16x2(__int2float_rn(x1), __int2float_rn(x0)));
    total = __fadd_rn(total, high_half(__hmul2_rn(__low2bfloat162(x), bf16x2(a0))));
    total = __fadd_rn(total, high_half(__hmul2_rn(x, bf16x2(a1))));
}

/* Two keys in integers, one sum a dot. */
__device__ void score_fast(float &total0, float &total1, const uint32_t (&a)[groups][4],
                           const tile *t, uint64_t b, int c)
{
    int d[64];
    ptx::wgmma_fence();
#pragma unroll
    for (int g = 0; g < groups; g++) ptx::wgmma_s8<128>::rs(d, a[g], b + 2 * g, g > 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(d);
    total0 = total1 = 0;
#pragma unroll
    for (int i = 0; i < heads / 4; i++) {
        uint4 w = *reinterpret_cast<const uint4 *>(t->weight[i][c]);
        add_pair(total0, d[8 * i], d[8 * i + 1], w.x, w.y);
        add_pair(total1, d[8 * i + 2], d[8 * i + 3], w.x, w.y);
        add_pair(total0, d[8 * i + 4], d[8 * i + 5], w.z, w.w);
        add_pair(total1, d[8 * i + 6], d[8 * i + 7], w.z, w.w);
    }
}

/* Two keys by the contract's additions, one product a group. Where everything is in range the
 * query's scale is in the weight, as above; otherwise unfold and scale, from device memory, make
 * the very numbers of the contract. */
template <bool IN_RANGE>
__device__ void score_slow(float &total0, float &total1, const uint32_t (&a)[groups][4],
                           const scales (&s)[2], const tile *t, const tile *source, uint64_t b,
                           int c)
{
    float total[2] = {0, 0};
#pragma unroll 1
    for (int part = 0; part < 4; part++) { /* 8 heads */
        float dot[16] = {};
#pragma unroll
        for (int g = 0; g < groups; g++) {
            int d[16];
            ptx::wgmma_fence();
            ptx::wgmma_s8<32>::rs(d, a[g], b + 2 * g, 0);
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            ptx::wgmma_fence_operand(d);
            const float quarter = IN_RANGE ? 0.25f : 1.0f; /* otherwise in unfold */
            const float outside[2] = {s[0].outside(g) * quarter, s[1].outside(g) * quarter};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int head = 8 * part + i / 4 * 2 + i % 2;
                float group = __int2float_rn(d[i]), k = outside[i / 2 % 2];
                if (IN_RANGE)
                    dot[i] = __fmaf_rn(group, k, dot[i]);
                else
                    dot[i] = __fmaf_rn(__fmul_rn(__fmul_rn(group, source->unfold[head][c][g]), k),
                                       source->scale[head][c][g], dot[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int head = 8 * part + i / 4 * 2 + i % 2, r = i / 2 % 2;
            float weight =
                IN_RANGE ? __uint_as_float(t->weight[head / 4][c][head % 4]) : source->a[c][head];
            float x = num::round_bf16(dot[i]);
            x = __fmul_rn(weight, x < 0 ? 0 : x); /* NaN stays */
            total[r] = __fadd_rn(total[r], num::round_bf16(x));
        }
        b += 32 * DSF_INDEX_CHANNELS / 16; /* the next 32 columns */
    }
    total0 = total[0];
    total1 = total[1];
}

/* The scores of a thread's four keys, first..first+3 of the slot, for token c. */
__device__ void score_tile(float (&total)[4], const key_tiles &k, const score_job &j, int first,
                           int slot, const tile *t, const tile *source, uint64_t b, int c)
{
    if (k.state == folded && t->fast) {
#pragma unroll
        for (int i = 0; i < 2; i++) score_fast(total[2 * i], total[2 * i + 1], k.a[i], t, b, c);
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[i] = __fmul_rn(total[i], __uint_as_float((k.exponents >> 8 * i & 255) << 23));
        return;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const scales s[2] = {scales(load_scales(j, first + 2 * i, slot)),
                             scales(load_scales(j, first + 2 * i + 1, slot))};
        if (k.state != out_of_range && t->fast)
            score_slow<true>(total[2 * i], total[2 * i + 1], k.a[i], s, t, source, b, c);
        else
            score_slow<false>(total[2 * i], total[2 * i + 1], k.a[i], s, t, source, b, c);
    }
}

/* ---- the grid ---- */

/* Which (tokens, keys) units this block does: all of them in one row, dealt in turn, those without
 * a visible entry left out. The same in every warp. */
struct schedule {
    const tile *tiles;
    int n_tiles, first, unit, base, count;

    __device__ schedule(const tile *all, int n) : tiles(all), n_tiles(n), first(0), base(0)
    {
        look();
    }
    __device__ int most() const /* of tile first + lane */
    {
        int at = first + threadIdx.x % 32;
        return at < n_tiles ? tiles[at].most : 0;
    }
    __device__ void look()
    {
        int largest = __reduce_max_sync(0xFFFFFFFFu, most());
        count = (largest + keys_block - 1) / keys_block;
        int ahead = (int(blockIdx.x) - base) % int(gridDim.x);
        unit = ahead < 0 ? ahead + int(gridDim.x) : ahead;
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
    /* Those of the unit's tiles that have a token which sees the keys, a bit each. */
    __device__ unsigned seen() const
    {
        return __ballot_sync(0xFFFFFFFFu, most() > unit * keys_block);
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
        for (unsigned left = s.seen(); left; left &= left - 1) {
            int i = __ffs(int(left)) - 1;
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

__device__ void store(const score_job &j, int64_t row, int first, int visible,
                      const float (&total)[4])
{
    uint16_t *out = j.out + row * j.stride + first;
    uint2 all = make_uint2(num::pack_bf16(total[0], total[1]), num::pack_bf16(total[2], total[3]));
    if (first + 3 < visible && j.stride % 4 == 0) {
        *reinterpret_cast<uint2 *>(out) = all;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i < visible) out[i] = uint16_t((i < 2 ? all.x : all.y) >> 16 * (i % 2));
}

/* A warpgroup's keys: which are expanded, which are on their way. */
struct key_state {
    key_tiles k;
    raw_keys raw;
    int slot, raw_slot; /* -1: none */

    /* The keys of the next unit, if it has the same tokens. */
    __device__ void look_ahead(const score_job &j, const schedule &s, int first, int c)
    {
        raw_slot = s.unit + int(gridDim.x) < s.count ? slot : -1;
        if (raw_slot >= 0) raw.load(j, first + int(gridDim.x) * keys_block, raw_slot, c);
    }
    __device__ void use(const score_job &j, int first, int now, int c, int barrier)
    {
        if (raw_slot != now) raw.load(j, first, now, c);
        raw_slot = -1;
        slot = now;
        k.expand(raw, barrier);
    }
};

__device__ void consume(const score_job &j, schedule s, ring r, const uint8_t *data)
{
    int wg = threadIdx.x / 128, lane = threadIdx.x % 32, c = lane % 4;
    key_state keys;
    keys.raw_slot = -1;
    for (; s.settle(); s.next()) {
        int first = s.unit * keys_block + wg * keys_wg + threadIdx.x % 128 / 4 * 4;
        bool fresh = true; /* the keys of this unit are still to come */
        for (unsigned left = s.seen(); left; left &= left - 1) {
            int i = __ffs(int(left)) - 1;
            const tile *t = reinterpret_cast<const tile *>(data + r.stage * stage_bytes);
            uint64_t b = ptx::wgmma_desc_128b(r.data + r.stage * stage_bytes);
            ptx::mbarrier_wait(r.full + 8 * r.stage, r.phase);
            for (unsigned todo = 15; todo;) { /* once for each slot of the four tokens */
                unsigned members = 15;
                int now = t->common;
                if (now < 0) now = t->slot[__ffs(int(todo)) - 1], members = t->same_slot(now);
                todo &= ~members;
                if (fresh || now != keys.slot) {
                    keys.use(j, first, now, c, 1 + wg);
                    if (fresh) keys.look_ahead(j, s, first, c);
                    fresh = false;
                }
                float total[4];
                score_tile(total, keys.k, j, first, keys.slot, t, s.tiles + s.first + i, b, c);
                if (members >> c & 1)
                    store(j, int64_t(s.first + i) * tokens + c, first, t->visible[c], total);
            }
            __syncwarp();
            if (lane == 0) ptx::mbarrier_arrive(r.empty + 8 * r.stage);
            r.next();
        }
    }
}

__global__ void __launch_bounds__(threads, 1) score(score_job j, const tile *tiles, int n_tiles)
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
    follow();
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
    follow();
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
        DSF_TRY(launch_early(stream, {blocks, 256}, fill, job));
    }
    if (own_keys_fit(job)) return score_own_keys(job, stream);
    if (job.pool) return score_rows(job, stream);
    tile *t = reinterpret_cast<tile *>(tiles);
    int n_tiles = static_cast<int>((job.n + tokens - 1) / tokens);
    DSF_TRY(prepare_tiles(job, t, stream));
    int processors = 0;
    DSF_TRY(dsf_multiprocessors(&processors));
    return launch_early(stream, {unsigned(processors), threads, shared_bytes}, score, job, t,
                        n_tiles);
}
