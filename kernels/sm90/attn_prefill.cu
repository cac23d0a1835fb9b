/* Sparse attention on the tensor cores, d 512: a block takes one row and up to 64 heads at a time
 * and goes through its keys in tiles of 64. Four warpgroups (ATTN.md has the budget):
 *
 *   producer   gathers packed records, expands them to a bf16 tile in shared memory
 *   scorer     s = q k (64 x 64), running maximum, p = e^(s - max) -> shared memory as bf16
 *   two summers o = o rescale + p v, each 64 heads x 256 channels in registers
 *
 * Two tiles of keys; a tile is handed over in halves of 32 keys. Sums are the tensor cores' own:
 * channels (q k) and keys (p v) ascending, 16 at a time, in one chain per element. */
#include "sm90/attn_tile.cuh"
#include "sm90/tensormap.cuh"
#include "sm90/tune_attn.h"

namespace {

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
    uint4 codes[2][PARTS][128]; /* records on their way, by producer thread */
    float rescale[STAGES][HEADS];
    float inverse[STAGES][HEADS]; /* of the denominator, with a row's last tile */
    uint8_t count[STAGES][8];     /* keys, by half and producer warp */
    int last[STAGES];             /* the tile ends its row */
    uint64_t full[STAGES][2], empty[STAGES][2];
    uint64_t scored[STAGES];
    uint64_t q_full;
};
static_assert(sizeof(shared_memory) <= 232448, "shared memory of a block");

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

/* A row's group of heads; a block takes every gridDim.x-th. */
struct item {
    int row, head; /* the first */
};

__device__ inline item item_of(const attn::problem &p, int i)
{
    int groups = (p.h + HEADS - 1) / HEADS;
    return {i / groups, i % groups * HEADS};
}

/* ---- producers: a lane has one key of its warpgroup's half of every tile ---- */

/* Where in the lists of this block's items the next lookup is. */
struct cursor {
    int item, id, main; /* of the item: its ids begin at topk + id, its entries at `main` */
    int n_window, first; /* slot of the tile's first key */
    int peek;            /* id of the lane-th key of the next tile: negative when there is none */
};

/* A lane's key, whose id may be on its way: record index + id of its source. */
struct lookup {
    int index, id;
    attn::source from;
    bool last, ends; /* the tile is its item's last; there is no tile */
};

__device__ inline int id_at(const attn::problem &p, const cursor &c, int j)
{
    if (j < c.n_window) return 0;
    if (j >= c.n_window + (p.block ? p.block : p.k)) return -1;
    return p.block ? 0 : __ldg(p.topk + c.id + (j - c.n_window));
}

__device__ inline void begin_item(cursor *c, const attn::problem &p, int items)
{
    if (c->item >= items) return;
    int row = item_of(p, c->item).row;
    attn::list l = attn::list_of(p, row);
    c->id = row * p.k;
    c->main = l.slot * p.entries;
    c->n_window = l.n_window;
    c->first = 0;
    c->peek = id_at(p, *c, BLOCK + (threadIdx.x & 31));
}

/* Takes the lookup of the lane's key, `slot` in its tile, and moves on to the next tile. */
__device__ inline lookup look_up(cursor *c, const attn::problem &p, int items, int slot)
{
    lookup u = {0, -1, attn::KV_NEW, false, true};
    if (c->item >= items) return u;
    int j = c->first + slot;
    u = {c->main, id_at(p, *c, j), p.k ? attn::MAIN : attn::KV_NEW,
         __shfl_sync(0xFFFFFFFFu, c->peek, 0) < 0, false};
    if ((j < c->n_window || p.block) && u.id == 0) {
        int row = item_of(p, c->item).row; /* seldom: not kept */
        attn::list l = {p.slot[row], p.pos[row], p.row[row], p.start[row], c->n_window, 0, nullptr};
        attn::place at = attn::window_at(p, l, j);
        u.from = at.from;
        u.index = at.index;
    }
    if (u.last) {
        c->item += gridDim.x;
        begin_item(c, p, items);
    } else {
        c->first += BLOCK;
        c->peek = id_at(p, *c, c->first + BLOCK + (threadIdx.x & 31));
    }
    return u;
}

/* The same when the id has come. A slot past the end: record 0 of its neighbours' source. */
struct found {
    attn::place at;
    bool is_there, last, ends;
};

__device__ inline found resolve(const lookup &u)
{
    return {{u.from, u.id >= 0 ? u.index + u.id : 0}, u.id >= 0, u.last, u.ends};
}

/* Codes of channels 32 (4 i + lane / 8)..+31, i = 0..3, of the lane's key. A warp whose keys are all
 * Q4N has them copied to shared memory a tile ahead; window keys wait for their loads. */
__device__ inline const uint8_t *record_of(const attn::problem &p, int index)
{
    return p.main + index * int64_t(attn::Q4N_BYTES);
}

__device__ inline void fetch_part(uint32_t to, const uint8_t *record, int i)
{
    ptx::cp_async_16(to + i * int(sizeof(uint4)) * 128,
                     record + 64 * i + (threadIdx.x & 31) / 8 * 16, 16);
}

/* Two bytes of scales a part, as they arrive. */
struct scales {
    uint32_t of[PARTS];
};

__device__ inline uint2 pack(const scales &s)
{
    return make_uint2(__byte_perm(s.of[0], s.of[1], 0x5410), __byte_perm(s.of[2], s.of[3], 0x5410));
}

__device__ inline scales load_scales(const uint8_t *record)
{
    const uint16_t *at =
        reinterpret_cast<const uint16_t *>(record + D / 2) + (threadIdx.x & 31) / 8;
    scales s;
#pragma unroll
    for (int i = 0; i < PARTS; i++) s.of[i] = __ldg(at + 4 * i);
    return s;
}

/* next: the record to fetch, negative: none. */
__device__ inline void expand_fetched(uint32_t to, uint32_t codes, bool is_there,
                                      uint2 scale, const attn::problem &p, int next)
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        ptx::cp_async_wait_group<PARTS - 1>();
        uint4 code = ptx::ld_shared_v4(codes + i * int(sizeof(uint4)) * 128);
        if (next >= 0) fetch_part(codes, record_of(p, next), i);
        ptx::cp_async_commit_group();
        if (is_there)
            attn::store_q4n(to + 2 * i * PANEL, code, (i < 2 ? scale.x : scale.y) >> 16 * (i % 2));
        else
            attn::store_zero(to + 2 * i * PANEL);
    }
}

__device__ inline void expand_loaded(uint32_t to, attn::key key)
{
#pragma unroll 1
    for (int i = 0; i < PARTS; i++) {
        attn::raw raw;
        int chunk = 4 * i + (threadIdx.x & 31) / 8;
        attn::load_raw(&raw, key, chunk);
        attn::store_expanded(to + 2 * i * PANEL, raw, key, chunk);
    }
}

__device__ __forceinline__ void produce(shared_memory *m, const attn::problem &p, int items,
                                        int half)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS;
    int row = lane & 7, part = lane >> 3, slot = HALF * half + 8 * warp + row;
    uint32_t at = (part >> 1) * PANEL + slot * 128 + (((part & 1) * 4 ^ row) << 4);
    uint32_t codes = ptx::smem(&m->codes[half][0][threadIdx.x & 127]);
    cursor c = {int(blockIdx.x), 0, 0, 0, 0, 0};
    begin_item(&c, p, items);
    /* Of the tile in work; the next one's id is on its way. The first tile is not fetched ahead. */
    found now = resolve(look_up(&c, p, items, slot));
    lookup ahead = look_up(&c, p, items, slot);
    bool fetched = false;
    uint2 scale = {};
    for (int b = 0; !now.ends; b++) {
        int stage = b & 1;
        found next = resolve(ahead);
        bool fetch = __all_sync(0xFFFFFFFFu, next.at.from == attn::MAIN);
        ahead = look_up(&c, p, items, slot);
        scales next_scale = {};
        if (fetch) next_scale = load_scales(record_of(p, next.at.index));
        if (b >= STAGES) wait(&m->empty[stage][half], (b >> 1 & 1) ^ 1);
        uint32_t to = ptx::smem(m->kv[stage]) + at;
        if (fetched) {
            expand_fetched(to, codes, now.is_there, scale, p, fetch ? next.at.index : -1);
        } else {
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                if (fetch) fetch_part(codes, record_of(p, next.at.index), i);
                ptx::cp_async_commit_group();
            }
            attn::key key = attn::key_of(p, now.at);
            key.is_there = now.is_there;
            expand_loaded(to, key);
        }
        unsigned valid = __ballot_sync(0xFFFFFFFFu, now.is_there) & 0xFF;
        if (lane == 0) m->count[stage][half * WARPS + warp] = __popc(valid);
        if (half == 0 && warp == 0 && lane == 0) m->last[stage] = now.last;
        arrive(&m->full[stage][half]);
        now = next;
        scale = pack(next_scale);
        fetched = fetch;
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
                                      const attn::problem &p, int items)
{
    using attn::operator-;
    using attn::operator+;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS, row = 16 * warp + lane / 4;
    float2 max = {attn::LOWEST, attn::LOWEST}, sum = {0, 0};
    int at_item = blockIdx.x, begins = 1, q_parity = 0;
    if (threadIdx.x % 128 == 0) fetch_q(m, map, p, item_of(p, at_item));
    for (int b = 0; at_item < items; b++) {
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
            if (threadIdx.x % 128 == 0 && at_item + int(gridDim.x) < items)
                fetch_q(m, map, p, item_of(p, at_item + gridDim.x));
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
            at_item += gridDim.x;
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
    uint64_t a = ptx::wgmma_desc_128b(p), b = ptx::wgmma_desc_128b(v, PANEL, 1024);
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

__device__ __forceinline__ void sum(shared_memory *m, const attn::problem &p, int items, int side)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS, row = 16 * warp + lane / 4;
    int at_item = blockIdx.x, begins = 1;
    float o[2][64];
    for (int b = 0; at_item < items; b++) {
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
        at_item += gridDim.x;
    }
}

__global__ void __launch_bounds__(THREADS, 1)
    attend(const __grid_constant__ attn::problem p, const __grid_constant__ CUtensorMap map,
           int items)
{
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared_memory *m = reinterpret_cast<shared_memory *>(bytes);
    if (threadIdx.x == 0) init_barriers(m);
    __syncthreads();
    ptx::griddepcontrol_wait();
    int role = threadIdx.x / 128;
    if (role < 2) {
        ptx::setmaxnreg_dec<PRODUCER_REGS>();
        produce(m, p, items, role);
    } else if (role == 2) {
        ptx::setmaxnreg_dec<SCORER_REGS>();
        score(m, &map, p, items);
    } else {
        ptx::setmaxnreg_inc<SUMMER_REGS>();
        sum(m, p, items, role - 3);
    }
    ptx::griddepcontrol_launch_dependents();
}

} // namespace

extern "C" dsf_status dsf_attn_prefill_sm90(const dsf_launch *lc, const void *args)
{
    attn::problem p = attn::problem_of(static_cast<const dsf_attn_args *>(args));
    int items = p.n * ((p.h + HEADS - 1) / HEADS), device = 0, cores = 0;
    CUtensorMap map;
    DSF_TRY(dsf_tensormap_bytes(&map, {p.q, int64_t(p.n) * p.h, 2 * D, 2 * D, HEADS, 128},
                                CU_TENSOR_MAP_SWIZZLE_128B));
    DSF_CUDA_TRY(cudaGetDevice(&device));
    DSF_CUDA_TRY(cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, device));
    DSF_CUDA_TRY(cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(sizeof(shared_memory))));
    int grid = items < cores ? items : cores;
    attend<<<grid, THREADS, sizeof(shared_memory), dsf_stream(lc)>>>(p, map, items);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

extern "C" dsf_status dsf_attn_sm90tc(const dsf_launch *lc, const void *args)
{
    dsf_attn_tile tile = dsf_attn_tune(static_cast<const dsf_attn_args *>(args));
    return tile.spread ? dsf_attn_decode_sm90(lc, args) : dsf_attn_prefill_sm90(lc, args);
}
