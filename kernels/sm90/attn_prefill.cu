/* Sparse attention on the tensor cores, d 512: a block takes one row and up to 64 heads at a time
 * and goes through its keys in tiles of 64. Five warpgroups (ATTN.md has the budget):
 *
 *   two producers  gather packed records, expand them to a bf16 tile in shared memory
 *   scorer         s = q k (64 x 64), running maximum, p = e^(s - max) -> shared memory as bf16
 *   two summers    o = o rescale + p v, each 64 heads x 256 channels in registers
 *
 * Two tiles of keys; a tile is handed over in halves of 32 keys. Sums are the tensor cores' own:
 * channels (q k) and keys (p v) ascending, 16 at a time, in one chain per element. */
#include "sm90/attn_tile.cuh"

namespace
{

using attn::BLOCK;
using attn::D;
using attn::HEADS;

constexpr int THREADS = 640, STAGES = 2, HALF = BLOCK / 2, WARPS = 4;
constexpr int PARTS = 4; /* of a thread's work on half a tile: 32 channels of its key each */
constexpr int PANEL = BLOCK * 128, TILE = D / 64 * PANEL;
/* Registers of the five warpgroups; the block starts with 96 a thread. */
constexpr int PRODUCER_REGS = 48, SCORER_REGS = 64, SUMMER_REGS = 160;
static_assert(2 * PRODUCER_REGS + SCORER_REGS + 2 * SUMMER_REGS <= THREADS / 128 * 96,
              "what the block starts with");

struct shared_memory {
    uint8_t q[TILE];
    uint8_t kv[STAGES][TILE];
    uint8_t p[STAGES][PANEL];
    uint4 codes[PARTS][256]; /* records on their way, by producer thread */
    float rescale[STAGES][HEADS];
    float inverse[STAGES][HEADS]; /* of the denominator, with a row's last tile */
    uint8_t count[STAGES][8];     /* keys, by half and producer warp */
    int last[STAGES];             /* the tile ends its row */
    uint64_t full[STAGES][2], empty[STAGES][2];
    uint64_t scored[STAGES];
    uint64_t q_full;
};
static_assert(sizeof(shared_memory) <= DSF_SM90_BLOCK_SHARED, "shared memory of a block");

__device__ void init_barriers(shared_memory *m)
{
    for (int s = 0; s < STAGES; s++) {
        for (int half = 0; half < 2; half++) {
            ptx::mbarrier_init(ptx::smem(&m->full[s][half]), WARPS);
            ptx::mbarrier_init(ptx::smem(&m->empty[s][half]), 2 * WARPS);
        }
        ptx::mbarrier_init(ptx::smem(&m->scored[s]), WARPS);
    }
    ptx::mbarrier_init(ptx::smem(&m->q_full), 1);
    ptx::fence_mbarrier_init();
}

/* One arrival a warp, after what all its lanes did. Who reads with the tensor cores what others
 * stored fences after the wait: a producer's fence would wait for its records on their way. */
__device__ inline void arrive(uint64_t *bar)
{
    __syncwarp();
    if ((threadIdx.x & 31) == 0) ptx::mbarrier_arrive(ptx::smem(bar));
}

__device__ inline void wait(uint64_t *bar, int parity)
{
    ptx::mbarrier_wait(ptx::smem(bar), parity);
}

/* A row's group of heads. All rows, then the next group. */
struct item {
    int row, head; /* the first */
};

__device__ inline item item_of(const attn::problem &p, int i) { return {i % p.n, i / p.n * HEADS}; }

/* What this block takes: rows next to each other, since their windows overlap: if each block took
 * every 132nd row, all would read the same few lines at the same time. */
struct span {
    int first, end;
};

__device__ inline span span_of(int items)
{
    int block = blockIdx.x, share = items / int(gridDim.x), more = items % int(gridDim.x);
    int first = block * share + min(block, more);
    return {first, first + share + (block < more ? 1 : 0)};
}

/* ---- the lists, by a kernel before: producers must not wait for ids ---- */

/* Written while the big kernel may already wait: read by ordinary loads. A row's list is padded to
 * whole tiles. An entry: its source in the two upper bits, and the
 * record; NONE is past the end. */
struct lists {
    uint32_t *entry; /* [n][stride] */
    int *tiles;      /* [n]: one at least */
    int stride;
};
constexpr uint32_t NONE = 3u << 30, INDEX = ~NONE;

__global__ void __launch_bounds__(128) list_keys(const __grid_constant__ attn::problem p, lists out)
{
    int row = blockIdx.x, count = 0;
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    attn::list l = attn::list_of(p, row);
    for (int from = 0; from < out.stride; from += 128) {
        int j = from + int(threadIdx.x), id = j < out.stride ? attn::id_at(p, l, j) : -1;
        uint32_t entry = NONE;
        if (id >= 0) {
            attn::place at = attn::place_at(p, l, j, id);
            entry = uint32_t(at.from) << 30 | uint32_t(at.index);
        }
        if (j < out.stride) out.entry[int64_t(row) * out.stride + j] = entry;
        count += __syncthreads_count(id >= 0);
    }
    if (threadIdx.x == 0) out.tiles[row] = max(1, (count + BLOCK - 1) / BLOCK);
}

/* ---- producers: a lane has one key of its warpgroup's half of every tile ---- */

/* Four times 16 bytes of codes a lane are one unit of work: a Q4N key, or half a Q8 key. All of a
 * warp's tile is two units when any of its keys is Q8. */
enum : uint32_t {
    IS_MAIN = 1,
    IS_THERE = 2,
    TWO = 4,    /* the tile has two units */
    SECOND = 8, /* this is the second; also 8 bytes further in the scales */
    LAST = 16,  /* the tile is its item's last */
    ENDS = 32   /* there is no tile */
};
struct unit {
    const uint8_t *record;
    uint32_t is;
};

/* The next tile to be looked up: its first entry, and the tiles left to its item with it. */
struct cursor {
    int item, entry, left;
};

__device__ inline void begin_item(cursor *c, const attn::problem &p, const lists &k, int end)
{
    if (c->item >= end) return;
    int row = item_of(p, c->item).row;
    c->entry = row * k.stride;
    c->left = k.tiles[row];
}

__device__ inline uint32_t load_entry(const cursor &c, const lists &k, int end, int slot)
{
    return c.item < end ? k.entry[c.entry + slot] : NONE;
}

/* The lane's key of the tile at c, whose entry has come; moves c on. */
__device__ inline unit take(cursor *c, uint32_t entry, const attn::problem &p, const lists &k,
                            int end)
{
    attn::source from = attn::source(entry >> 30);
    bool is_there = entry < NONE, is_q8 = is_there && from != attn::MAIN;
    attn::place at = {is_there ? from : attn::KV_NEW, is_there ? int(entry & INDEX) : 0};
    unit x = {attn::key_of(p, at).record, is_q8 ? 0u : uint32_t(IS_MAIN)};
    if (is_there) x.is |= IS_THERE;
    if (__any_sync(0xFFFFFFFFu, is_q8)) x.is |= TWO;
    if (c->item >= end) return {x.record, x.is | ENDS};
    c->entry += BLOCK;
    if (--c->left == 0) {
        x.is |= LAST;
        c->item++;
        begin_item(c, p, k, end);
    }
    return x;
}

/* Codes of channels 32 (4 i + lane / 8)..+31 of a Q4N key, i = 0..3, or 16 (4 i + lane / 8)..+15 of
 * half a Q8 key. */
__device__ inline void fetch_part(shared_memory *m, const unit &x, int i)
{
    const uint8_t *from = x.record + (threadIdx.x & 31) / 8 * 16;
    from += (x.is & (SECOND | IS_MAIN)) == SECOND ? D / 2 : 0;
    ptx::cp_async_16(ptx::smem(&m->codes[i][threadIdx.x]), from + 64 * i);
    ptx::cp_async_commit_group();
}

/* 8 bytes of the unit's scales, which the four lanes of a key have to exchange: one load of 8 bytes
 * where four of 2 would keep the load unit as busy as all the codes do. Q4N: of channels
 * 128 (lane / 8)..+127. Q8: all 8 of the unit. */
__device__ inline uint2 load_scales(const unit &x)
{
    int at = x.is & IS_MAIN ? D / 2 + (threadIdx.x & 31) / 8 * 8 : D + (x.is & SECOND);
    return __ldg(reinterpret_cast<const uint2 *>(x.record + at));
}

/* -> two bytes a part: a 4 x 4 transposition among the lanes of a key, for Q4N. */
__device__ inline uint2 exchange(uint2 v, const unit &x)
{
    bool upper = threadIdx.x & 16, odd = threadIdx.x & 8;
    uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? v.x : v.y, 16);
    uint32_t first = upper ? got : v.x, second = upper ? v.y : got; /* two columns of two rows */
    uint32_t even_column = __byte_perm(first, second, 0x5410);
    uint32_t odd_column = __byte_perm(first, second, 0x7632);
    got = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_column : odd_column, 8);
    uint32_t mine = odd ? odd_column : even_column;
    uint32_t low = odd ? got : mine, high = odd ? mine : got; /* rows 0, 2 and rows 1, 3 */
    if (!(x.is & IS_MAIN)) return v;
    return make_uint2(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
}

/* `to`: the lane's first 64 bytes of its key in the tile, channels 32 (lane / 8) on. Of Q8 it has
 * chunks 2 (lane / 8) and the next of every panel. */
__device__ inline void store_part(uint32_t to, const unit &x, uint4 code, uint32_t scale, int i)
{
    if (!(x.is & IS_MAIN)) {
        uint32_t lane = threadIdx.x & 31, row = lane & 7, part = lane >> 3;
        to -= (part >> 1) * PANEL + (((part & 1) * 4 ^ row) << 4);
        to += (x.is & SECOND ? 4 + i : i) * PANEL + ((2 * part ^ row) << 4);
        attn::store_q8(to, code, scale >> lane / 16 * 8 & 255);
    } else if (x.is & SECOND) {
        return;
    } else if (x.is & IS_THERE) {
        attn::store_q4n(to + 2 * i * PANEL, code, scale);
    } else {
        attn::store_zero(to + 2 * i * PANEL);
    }
}

/* Writes a unit to the tile, and asks for the one after part by part. */
__device__ inline void expand(shared_memory *m, uint32_t to, const unit &x, uint2 scale,
                              const unit &next)
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        ptx::cp_async_wait_group<PARTS - 1>();
        uint4 code = ptx::ld_shared_v4(ptx::smem(&m->codes[i][threadIdx.x]));
        fetch_part(m, next, i);
        store_part(to, x, code, (i < 2 ? scale.x : scale.y) >> 16 * (i % 2), i);
    }
}

__device__ __forceinline__ void produce(shared_memory *m, const attn::problem &p, const lists &k,
                                        span s, int half)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS;
    uint32_t row = lane & 7, part = lane >> 3, slot = HALF * half + 8 * warp + row;
    uint32_t at = (part >> 1) * PANEL + slot * 128 + (((part & 1) * 4 ^ row) << 4);
    cursor c = {s.first, 0, 0};
    begin_item(&c, p, k, s.end);
    unit now = take(&c, load_entry(c, k, s.end, slot), p, k, s.end);
    uint2 scale = exchange(load_scales(now), now);
    for (int i = 0; i < PARTS; i++) fetch_part(m, now, i);
    unit next = now;
    next.is |= SECOND;
    if (!(now.is & TWO)) next = take(&c, load_entry(c, k, s.end, slot), p, k, s.end);
    uint32_t entry = load_entry(c, k, s.end, slot);
    for (int b = 0; !(now.is & ENDS);) {
        int stage = b & 1;
        uint2 next_scale = load_scales(next);
        if (b >= STAGES && !(now.is & SECOND)) wait(&m->empty[stage][half], (b >> 1 & 1) ^ 1);
        expand(m, ptx::smem(m->kv[stage]) + at, now, scale, next);
        if ((now.is & (TWO | SECOND)) != TWO) {
            unsigned valid = __ballot_sync(0xFFFFFFFFu, now.is & IS_THERE) & 0xFF;
            if (lane == 0) m->count[stage][half * WARPS + warp] = __popc(valid);
            if (half == 0 && warp == 0 && lane == 0) m->last[stage] = now.is & LAST;
            arrive(&m->full[stage][half]);
            b++;
        }
        /* What was asked for at the top and an iteration ago has come. */
        scale = exchange(next_scale, next);
        now = next;
        if ((next.is & (TWO | SECOND)) == TWO) {
            next.is |= SECOND;
        } else {
            next = take(&c, entry, p, k, s.end);
            entry = load_entry(c, k, s.end, slot);
        }
    }
    ptx::cp_async_wait_group<0>();
}

/* ---- scorer ---- */

/* 64 rows of q by the copy engine; past the last head they are those of another row, or zero. */
__device__ inline void fetch_q(shared_memory *m, const CUtensorMap *map, const attn::problem &p,
                               item it)
{
    uint32_t bar = ptx::smem(&m->q_full);
    ptx::mbarrier_arrive_expect_tx(bar, TILE);
    for (int i = 0; i < D / 64; i++)
        ptx::cp_async_bulk_tensor_2d(ptx::smem(m->q) + i * PANEL, map, bar, 128 * i,
                                     it.row * p.h + it.head);
}

__device__ inline void score_tile(float (&s)[32], uint32_t q, uint32_t k)
{
    uint64_t a = ptx::wgmma_desc_128b(q), b = ptx::wgmma_desc_128b(k);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int step = (i / 4 * PANEL + i % 4 * 32) >> 4;
        ptx::wgmma<64>::bf16_ss<0>(s, a + step, b + step, i > 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(s);
}

__device__ inline int count_of(const uint8_t (&count)[8])
{
    const uint32_t *v = reinterpret_cast<const uint32_t *>(count);
    return int(__dp4a(v[0], 0x01010101u, __dp4a(v[1], 0x01010101u, 0u)));
}

__device__ inline float sink_at(const attn::problem &p, int head)
{
    return head < p.h ? p.sink[head] : 0;
}

__device__ __forceinline__ void score(shared_memory *m, const CUtensorMap *map,
                                      const attn::problem &p, span rows)
{
    using attn::operator-;
    using attn::operator+;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS, row = 16 * warp + lane / 4;
    float2 max = {attn::LOWEST, attn::LOWEST}, sum = {0, 0};
    int at_item = rows.first, begins = 1, q_parity = 0;
    if (threadIdx.x % 128 == 0) fetch_q(m, map, p, item_of(p, at_item));
    for (int b = 0; at_item < rows.end; b++) {
        int stage = b & 1, parity = b >> 1 & 1;
        float s[32];
        if (begins) {
            wait(&m->q_full, q_parity);
            q_parity ^= 1;
        }
        wait(&m->full[stage][0], parity);
        wait(&m->full[stage][1], parity);
        ptx::fence_proxy_async();
        score_tile(s, ptx::smem(m->q), ptx::smem(m->kv[stage]));
        int last = begins = m->last[stage];
        if (last) {
            ptx::bar_sync(1, 128); /* all warps have read q */
            if (threadIdx.x % 128 == 0 && at_item + 1 < rows.end)
                fetch_q(m, map, p, item_of(p, at_item + 1));
        }
        attn::logits_of(s, p.scale, count_of(m->count[stage]));
        float2 next = max;
#pragma unroll
        for (int u = 0; u < 4; u++) next = attn::larger(next, attn::quarter_max(s + 8 * u));
        next = {attn::quad_max(next.x), attn::quad_max(next.y)};
        float2 rescale = attn::fast_exp(max - next), part = {0, 0};
        max = next;
#pragma unroll
        for (uint32_t u = 0; u < 4; u++) {
            part = part + attn::quarter_probabilities(s + 8 * u, max);
            attn::store_quarter(ptx::smem(m->p[stage]) + 16 * warp * 128, s + 8 * u, u);
        }
        sum.x = attn::next_sum(sum.x, rescale.x, part.x);
        sum.y = attn::next_sum(sum.y, rescale.y, part.y);
        if (lane % 4 == 0) {
            m->rescale[stage][row] = rescale.x;
            m->rescale[stage][row + 8] = rescale.y;
        }
        if (last) {
            int head = item_of(p, at_item).head + row;
            float x = attn::inverse_of(sum.x, max.x, sink_at(p, head));
            float y = attn::inverse_of(sum.y, max.y, sink_at(p, head + 8));
            if (lane % 4 == 0) {
                m->inverse[stage][row] = x;
                m->inverse[stage][row + 8] = y;
            }
            max = {attn::LOWEST, attn::LOWEST};
            sum = {0, 0};
            at_item++;
        }
        ptx::fence_proxy_async();
        arrive(&m->scored[stage]);
    }
}

/* ---- summers: 64 heads x 256 channels as two accumulators of 128 ---- */

__device__ inline void rescale_sums(float (&o)[2][64], float2 by)
{
    if (!__any_sync(0xFFFFFFFFu, by.x != 1 || by.y != 1)) return;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        o[0][i] = __fmul_rn(o[0][i], i % 4 < 2 ? by.x : by.y);
        o[1][i] = __fmul_rn(o[1][i], i % 4 < 2 ? by.x : by.y);
    }
}

/* o (+)= p v, releasing each half of the tile when it has been read. */
__device__ inline void add_tile(float (&o)[2][64], uint32_t p, uint32_t v, int accumulate,
                                uint64_t (&empty)[2])
{
    uint64_t a = ptx::wgmma_desc_128b(p), b = ptx::wgmma_desc_128b(v, PANEL);
    ptx::wgmma_fence_operand(o[0]);
    ptx::wgmma_fence_operand(o[1]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCK / 16; i++) {
        int step = i * 16 * 128 >> 4;
        ptx::wgmma<128>::bf16_ss<1>(o[0], a + 2 * i, b + step, i || accumulate);
        ptx::wgmma<128>::bf16_ss<1>(o[1], a + 2 * i, b + step + (2 * PANEL >> 4), i || accumulate);
        if (i % 2) ptx::wgmma_commit_group();
    }
    ptx::wgmma_wait_group<1>();
    arrive(&empty[0]);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o[0]);
    ptx::wgmma_fence_operand(o[1]);
    arrive(&empty[1]);
}

/* Rows `head` and head + 8 of the item's output, from channel `column` of the thread on. */
__device__ inline void store_sums(const attn::problem &p, item it, const float (&o)[2][64],
                                  float2 inverse, int head, int column)
{
    uint16_t *out = p.out + (int64_t(it.row) * p.h + it.head + head) * D + column;
    bool low = it.head + head < p.h, high = it.head + head + 8 < p.h;
#pragma unroll
    for (int i = 0; i < 128; i += 4) {
        const float *x = &o[i / 64][i % 64];
        uint32_t *to = reinterpret_cast<uint32_t *>(out + 2 * i);
        if (low) to[0] = num::pack_bf16(x[0] * inverse.x, x[1] * inverse.x);
        if (high) to[8 * D / 2] = num::pack_bf16(x[2] * inverse.y, x[3] * inverse.y);
    }
}

__device__ __forceinline__ void sum(shared_memory *m, const attn::problem &p, span rows, int side)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS, row = 16 * warp + lane / 4;
    int at_item = rows.first, begins = 1;
    float o[2][64];
    for (int b = 0; at_item < rows.end; b++) {
        int stage = b & 1, parity = b >> 1 & 1;
        wait(&m->scored[stage], parity);
        ptx::fence_proxy_async();
        float2 rescale = {m->rescale[stage][row], m->rescale[stage][row + 8]};
        float2 inverse = {m->inverse[stage][row], m->inverse[stage][row + 8]};
        int last = m->last[stage];
        if (!begins) rescale_sums(o, rescale);
        add_tile(o, ptx::smem(m->p[stage]), ptx::smem(m->kv[stage]) + side * 4 * PANEL, !begins,
                 m->empty[stage]);
        begins = last;
        if (!last) continue;
        store_sums(p, item_of(p, at_item), o, inverse, row, side * 256 + 2 * (lane & 3));
        at_item++;
    }
}

__global__ void __launch_bounds__(THREADS, 1)
    attend(const __grid_constant__ attn::problem p, const __grid_constant__ CUtensorMap map,
           const __grid_constant__ lists k, int items)
{
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared_memory *m = reinterpret_cast<shared_memory *>(bytes);
    if (threadIdx.x == 0) init_barriers(m);
    __syncthreads();
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    int role = threadIdx.x / 128;
    if (role < 2) {
        ptx::setmaxnreg_dec<PRODUCER_REGS>();
        produce(m, p, k, span_of(items), role);
    } else if (role == 2) {
        ptx::setmaxnreg_dec<SCORER_REGS>();
        score(m, &map, p, span_of(items));
    } else {
        ptx::setmaxnreg_inc<SUMMER_REGS>();
        sum(m, p, span_of(items), role - 3);
    }
}

dsf_status launch(const dsf_launch *lc, const attn::problem &p, int slots)
{
    int items = p.n * ((p.h + HEADS - 1) / HEADS), cores = 0;
    lists k = {reinterpret_cast<uint32_t *>(lc->scratch), nullptr, slots};
    CUtensorMap map;
    k.tiles = reinterpret_cast<int *>(k.entry + int64_t(p.n) * k.stride);
    DSF_TRY(attn::map_of_q(&map, p));
    DSF_TRY(dsf_multiprocessors(&cores));
    DSF_TRY(launch_early(dsf_stream(lc), {unsigned(p.n), 128}, list_keys, p, k));
    launch_shape shape = {unsigned(items < cores ? items : cores), THREADS, sizeof(shared_memory)};
    return launch_early(dsf_stream(lc), shape, attend, p, map, k, items);
}

} // namespace

extern "C" dsf_status dsf_attn_sm90tc(const dsf_launch *lc, const void *args)
{
    const dsf_attn_args *a = static_cast<const dsf_attn_args *>(args);
    attn::problem p = attn::problem_of(a);
    dsf_attn_tile tile = dsf_attn_tune(a);
    return tile.spread ? attn::spread(lc, p, tile.quarters) : launch(lc, p, tile.slots);
}
