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
#include "sm90/tune_attn.h"

namespace {

using attn::BLOCK;
using attn::D;
using attn::HEADS;

constexpr int THREADS = 512, STAGES = 2, HALF = BLOCK / 2, WARPS = 4;
constexpr int PARTS = 4; /* of a thread's work on half a tile: 32 channels of its key each */
constexpr int PANEL = BLOCK * 128, TILE = D / 64 * PANEL;
/* Registers: 128 threads a role, 512 in sum. */
constexpr int PRODUCER_REGS = 96, SCORER_REGS = 80, SUMMER_REGS = 168;
static_assert(PRODUCER_REGS + SCORER_REGS + 2 * SUMMER_REGS == 65536 / 128, "the register file");

struct shared_memory {
    uint8_t q[TILE];
    uint8_t kv[STAGES][TILE];
    uint8_t p[STAGES][PANEL];
    uint4 codes[PARTS][2][128]; /* records on their way, by producer thread */
    float rescale[STAGES][HEADS];
    float inverse[STAGES][HEADS]; /* of the denominator, with a row's last tile */
    uint8_t count[STAGES][8];     /* keys, by half and producer warp */
    int last[STAGES];             /* the tile ends its row */
    uint64_t full[STAGES][2], empty[STAGES][2];
    uint64_t scored[STAGES];
    uint64_t q_empty;
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
    ptx::mbarrier_init(ptx::smem(&m->q_empty), WARPS);
    ptx::fence_mbarrier_init();
}

/* One arrival a warp, after what all its lanes did. */
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

/* ---- producer ---- */

/* Where in the lists of this block's items the next lookup is; a lane looks up one key. */
struct cursor {
    attn::list list;
    int item, items;
    int first, half; /* slot of the tile's first key */
    int peek;        /* id of the lane-th key of the next tile: negative when there is none */
};

/* A key whose id is on its way. */
struct lookup {
    const uint8_t *base;
    int id;
    bool is_main, last;
};

__device__ inline void begin_item(cursor *c, const attn::problem &p)
{
    if (c->item >= c->items) return;
    c->list = attn::list_of(p, item_of(p, c->item).row);
    c->first = c->half = 0;
    c->peek = attn::id_at(p, c->list, BLOCK + (threadIdx.x & 31));
}

/* Takes the lookup of the lane's key, `slot` in this half, and moves on by half a tile. */
__device__ inline lookup look_up(cursor *c, const attn::problem &p, int slot)
{
    if (c->item >= c->items) return {p.kv_new, -1, false, false};
    int j = c->first + c->half * HALF + slot;
    lookup u;
    u.id = attn::id_at(p, c->list, j);
    attn::key key = attn::key_at(p, c->list, j, j < c->list.n_window + c->list.n_tail ? 0 : -1);
    u.base = key.record;
    u.is_main = key.is_main;
    u.last = c->half == 1 && __shfl_sync(0xFFFFFFFFu, c->peek, 0) < 0;
    if (c->half == 0) {
        c->half = 1;
    } else if (!u.last) {
        c->half = 0;
        c->first += BLOCK;
        c->peek = attn::id_at(p, c->list, c->first + BLOCK + (threadIdx.x & 31));
    } else {
        c->item += gridDim.x;
        begin_item(c, p);
    }
    return u;
}

__device__ inline attn::key resolve(const lookup &u)
{
    bool is_there = u.id >= 0;
    return {u.base + (u.is_main && is_there ? u.id * int64_t(attn::Q4N_BYTES) : 0), u.is_main,
            is_there};
}

/* 64 rows of q; those past the last head are zero. */
__device__ __forceinline__ void load_q(shared_memory *m, const attn::problem &p, item it)
{
    int tid = threadIdx.x & 127, heads = min(p.h - it.head, HEADS);
    const uint16_t *q = p.q + (int64_t(it.row) * p.h + it.head) * D;
    uint32_t to = ptx::smem(m->q);
    for (int i = tid; i < HEADS * (D / 8); i += 128) {
        int head = i / (D / 8), chunk = i % (D / 8), there = head < heads;
        uint32_t at = chunk / 8 * PANEL + head * 128 + (((chunk ^ head) & 7) << 4);
        ptx::cp_async_16(to + at, q + (there ? head * D + chunk * 8 : 0), there ? 16 : 0);
    }
    ptx::cp_async_commit_group();
}

/* Asks for channels 32 (4 part + lane / 8)..+31 of the lane's key; one group a part. */
__device__ inline void fetch(shared_memory *m, attn::key key, int part)
{
    const uint8_t *from = attn::codes_of(key, 4 * part + (threadIdx.x & 31) / 8);
    uint32_t to = ptx::smem(&m->codes[part][0][threadIdx.x & 127]);
    ptx::cp_async_16(to, from, 16);
    if (!key.is_main) ptx::cp_async_16(to + sizeof m->codes[0][0], from + 16, 16);
    ptx::cp_async_commit_group();
}

struct scales {
    uint32_t of[PARTS];
};

__device__ inline scales load_scales(attn::key key)
{
    scales s;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        s.of[i] = attn::load_scale(key, 4 * i + (threadIdx.x & 31) / 8);
    return s;
}

/* Writes the lane's key to half a tile, and asks for the one of the next half part by part. */
__device__ inline void expand_half(shared_memory *m, uint32_t to, attn::key key, const scales &scale,
                                   attn::key next)
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        ptx::cp_async_wait_group<PARTS - 1>();
        const uint4(&code)[2][128] = m->codes[i];
        attn::raw raw = {{code[0][threadIdx.x & 127], {}}, scale.of[i]};
        if (!key.is_main) raw.code[1] = code[1][threadIdx.x & 127];
        attn::store_expanded(to + 2 * i * PANEL, raw, key, (threadIdx.x & 31) / 8);
        fetch(m, next, i);
    }
}

__device__ __forceinline__ void produce(shared_memory *m, const attn::problem &p, int items)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS;
    int row = lane & 7, part = lane >> 3, slot = 8 * warp + row;
    uint32_t at = (part >> 1) * PANEL + slot * 128 + (((part & 1) * 4 ^ row) << 4);
    cursor c = {{}, int(blockIdx.x), items, 0, 0, 0};
    begin_item(&c, p);
    lookup ahead = look_up(&c, p, slot);
    attn::key key = resolve(ahead);
    scales scale = load_scales(key);
    bool last = false, begins = true;
    int loaded = 0, at_item = blockIdx.x;
    for (int i = 0; i < PARTS; i++) fetch(m, key, i);
    ahead = look_up(&c, p, slot);
    for (int g = 0; at_item < items; g++) {
        int stage = g >> 1 & 1, half = g & 1;
        attn::key next = resolve(ahead);
        bool next_last = ahead.last;
        ahead = look_up(&c, p, slot);
        scales next_scale = load_scales(next);
        if (g >= 2 * STAGES) wait(&m->empty[stage][half], (g >> 2 & 1) ^ 1);
        expand_half(m, ptx::smem(m->kv[stage]) + half * HALF * 128 + at, key, scale, next);
        unsigned valid = __ballot_sync(0xFFFFFFFFu, key.is_there) & 0xFF;
        if (lane == 0) m->count[stage][half * WARPS + warp] = __popc(valid);
        if (half == 1 && lane == 0 && warp == 0) m->last[stage] = last;
        /* q was asked for before the parts of the next half. */
        if (half == 1 && begins) ptx::cp_async_wait_group<PARTS>();
        ptx::fence_proxy_async();
        arrive(&m->full[stage][half]);
        if (half == 0 && begins) {
            if (loaded) wait(&m->q_empty, (loaded - 1) & 1);
            load_q(m, p, item_of(p, at_item));
            loaded++;
        }
        if (half == 1) {
            begins = last;
            if (last) at_item += gridDim.x;
        }
        key = next;
        scale = next_scale;
        last = next_last;
    }
    ptx::cp_async_wait_group<0>();
}

/* ---- scorer ---- */

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

__device__ __forceinline__ void score(shared_memory *m, const attn::problem &p, int items)
{
    using attn::operator-;
    using attn::operator+;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS, row = 16 * warp + lane / 4;
    float2 max = {attn::LOWEST, attn::LOWEST}, sum = {0, 0};
    int at_item = blockIdx.x;
    for (int b = 0; at_item < items; b++) {
        int stage = b & 1, parity = b >> 1 & 1;
        float s[32];
        wait(&m->full[stage][0], parity);
        wait(&m->full[stage][1], parity);
        score_tile(s, ptx::smem(m->q), ptx::smem(m->kv[stage]));
        int last = m->last[stage];
        if (last) arrive(&m->q_empty);
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

__global__ void __launch_bounds__(THREADS, 1) attend(const __grid_constant__ attn::problem p,
                                                     int items)
{
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared_memory *m = reinterpret_cast<shared_memory *>(bytes);
    if (threadIdx.x == 0) init_barriers(m);
    __syncthreads();
    ptx::griddepcontrol_wait();
    int role = threadIdx.x / 128;
    if (role == 0) {
        ptx::setmaxnreg_dec<PRODUCER_REGS>();
        produce(m, p, items);
    } else if (role == 1) {
        ptx::setmaxnreg_dec<SCORER_REGS>();
        score(m, p, items);
    } else {
        ptx::setmaxnreg_inc<SUMMER_REGS>();
        sum(m, p, items, role - 2);
    }
    ptx::griddepcontrol_launch_dependents();
}

} // namespace

extern "C" dsf_status dsf_attn_prefill_sm90(const dsf_launch *lc, const void *args)
{
    attn::problem p = attn::problem_of(static_cast<const dsf_attn_args *>(args));
    int items = p.n * ((p.h + HEADS - 1) / HEADS), device = 0, cores = 0;
    DSF_CUDA_TRY(cudaGetDevice(&device));
    DSF_CUDA_TRY(cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, device));
    DSF_CUDA_TRY(cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(sizeof(shared_memory))));
    attend<<<items < cores ? items : cores, THREADS, sizeof(shared_memory), dsf_stream(lc)>>>(p,
                                                                                            items);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

extern "C" dsf_status dsf_attn_sm90tc(const dsf_launch *lc, const void *args)
{
    dsf_attn_tile tile = dsf_attn_tune(static_cast<const dsf_attn_args *>(args));
    return tile.spread ? dsf_attn_decode_sm90(lc, args) : dsf_attn_prefill_sm90(lc, args);
}
