/* Sparse attention for few rows, d 512: a cluster of 8 blocks takes one row and up to 64 heads, so
 * that all its records are on the way at once (ATTN.md has the times). Of 8 x 16 Q list slots,
 *
 *   1  a block gathers and expands its own 16 Q keys, whole, and then 64 channels of every key
 *   2  s = q k of its own keys; their maxima, by block of 64, go round the cluster
 *   3  p = e^(s - running maximum), as bf16 to all 8 blocks, and the sums of p
 *   4  o = o rescale + p v for its 64 channels, all keys in list order
 *
 * Every sum is the chain that attn_prefill.cu has: q k is split by keys, p v by channels. */
#include "sm90/attn_tile.cuh"
#include "sm90/tune_attn.h"

namespace {

using attn::BLOCK;
using attn::D;
using attn::HEADS;

constexpr int CLUSTER = DSF_ATTN_CLUSTER, THREADS = 256, GROUP = 128, WARPS = THREADS / 32;
constexpr int PANEL = HEADS * 128; /* of q or p: 64 rows of 64 channels or keys */
static_assert(D == 64 * CLUSTER, "a block of the cluster sums one panel of channels");

/* Q: quarters of a block of 64 keys that one block of the cluster scores. */
template <int Q> struct shape {
    static constexpr int OWN = 16 * Q, KEYS = CLUSTER * OWN, BLOCKS = KEYS / BLOCK;
    static constexpr int OWN_PANEL = OWN * 128, OWN_TILE = CLUSTER * OWN_PANEL;
    static constexpr int OWN_UNITS = 8 * Q / WARPS; /* of a warp: 8 keys x 4 times 32 channels */
    static constexpr int ALL_UNITS = 8 * Q / 4;     /* of a warp of 4: 16 keys x 2 times 32 */
    static_assert(Q <= 5 && OWN_TILE == BLOCKS * PANEL, "own keys touch two blocks of 64 at most");
};

template <int Q> struct shared_memory {
    uint8_t q[CLUSTER * PANEL];
    uint8_t own[shape<Q>::OWN_TILE]; /* own keys; then all p, a panel of 64 keys after the other */
    uint8_t all[shape<Q>::KEYS * 128];
    float max[2][HEADS];  /* of own keys, in the first and the second block they touch */
    float sum[Q][HEADS];  /* of own p, by quarter */
    float inverse[HEADS]; /* of the denominator */
    int tail;             /* ids */
};
static_assert(sizeof(shared_memory<5>) <= 232448, "shared memory of a block");

/* ---- 1: keys ---- */

struct work {
    const attn::problem *p;
    attn::list list;
    int row, head, heads;
    int rank, count; /* keys in the list */
};

/* The ids lie where the expanded channels of all keys will. */
template <int Q> __device__ inline attn::key key_of(const shared_memory<Q> *m, const work &w, int j)
{
    const int *id = reinterpret_cast<const int *>(m->all);
    bool has_id = !w.p->block && j >= w.list.n_window && j < w.count;
    return attn::key_at(*w.p, w.list, j, j >= w.count ? -1 : has_id ? id[j - w.list.n_window] : 0);
}

template <int Q> __device__ inline void read_list(shared_memory<Q> *m, work *w)
{
    const attn::problem &p = *w->p;
    int *id = reinterpret_cast<int *>(m->all), found = 0;
    if (threadIdx.x == 0) m->tail = 0;
    for (int i = threadIdx.x; i < p.k; i += THREADS) {
        id[i] = __ldg(p.topk + int64_t(w->row) * p.k + i);
        found += id[i] >= 0;
    }
    w->list = attn::list_of(p, w->row);
    __syncthreads();
    found = __reduce_add_sync(0xFFFFFFFFu, found);
    if ((threadIdx.x & 31) == 0 && found) atomicAdd(&m->tail, found);
    __syncthreads();
    w->count = w->list.n_window + (p.block ? p.block : m->tail);
}

template <int Q> __device__ inline void load_q(shared_memory<Q> *m, const work &w)
{
    const uint16_t *q = w.p->q + (int64_t(w.row) * w.p->h + w.head) * D;
    uint32_t to = ptx::smem(m->q);
    for (int i = threadIdx.x; i < HEADS * (D / 8); i += THREADS) {
        int head = i / (D / 8), chunk = i % (D / 8), there = head < w.heads;
        uint32_t at = chunk / 8 * PANEL + head * 128 + (((chunk ^ head) & 7) << 4);
        ptx::cp_async_16(to + at, q + (there ? head * D + chunk * 8 : 0), there ? 16 : 0);
    }
    ptx::cp_async_commit_group();
}

/* Records of own keys by all warps, channels of all keys by the second four: everything is asked
 * for before anything is used. */
template <int Q> struct records {
    attn::key own_key[shape<Q>::OWN_UNITS], all_key[shape<Q>::ALL_UNITS];
    attn::raw own[shape<Q>::OWN_UNITS], all[shape<Q>::ALL_UNITS];
};

/* Key and 32 channels of unit u for this lane. */
struct place {
    int key, chunk;
};

template <int Q> __device__ inline place own_place(int u)
{
    int unit = threadIdx.x / 32 * shape<Q>::OWN_UNITS + u, lane = threadIdx.x & 31;
    return {unit / 4 * 8 + (lane & 7), unit % 4 * 4 + (lane >> 3)};
}

template <int Q> __device__ inline place all_place(int u, int rank)
{
    int unit = threadIdx.x / 32 % 4 * shape<Q>::ALL_UNITS + u, lane = threadIdx.x & 31;
    return {unit * 16 + (lane >> 4) * 8 + (lane & 7), 2 * rank + (lane >> 3 & 1)};
}

template <int Q>
__device__ __forceinline__ void load_records(records<Q> *r, const shared_memory<Q> *m,
                                             const work &w)
{
#pragma unroll
    for (int u = 0; u < shape<Q>::OWN_UNITS; u++) {
        place at = own_place<Q>(u);
        r->own_key[u] = key_of(m, w, w.rank * shape<Q>::OWN + at.key);
        attn::load_raw(&r->own[u], r->own_key[u], at.chunk);
    }
    if (threadIdx.x < GROUP) return;
#pragma unroll
    for (int u = 0; u < shape<Q>::ALL_UNITS; u++) {
        place at = all_place<Q>(u, w.rank);
        r->all_key[u] = key_of(m, w, at.key);
        attn::load_raw(&r->all[u], r->all_key[u], at.chunk);
    }
}

/* Of a key's 64 channels in a panel, the place of 32. */
__device__ inline uint32_t in_panel(int key, int chunk)
{
    return key * 128 + ((((chunk & 1) * 4) ^ (key & 7)) << 4);
}

template <int Q> __device__ inline void expand_own(shared_memory<Q> *m, const records<Q> &r)
{
#pragma unroll
    for (int u = 0; u < shape<Q>::OWN_UNITS; u++) {
        place at = own_place<Q>(u);
        uint32_t to = ptx::smem(m->own) + at.chunk / 2 * shape<Q>::OWN_PANEL;
        attn::store_expanded(to + in_panel(at.key, at.chunk), r.own[u], r.own_key[u],
                             at.chunk);
    }
}

template <int Q>
__device__ inline void expand_all(shared_memory<Q> *m, const records<Q> &r, int rank)
{
#pragma unroll
    for (int u = 0; u < shape<Q>::ALL_UNITS; u++) {
        place at = all_place<Q>(u, rank);
        attn::store_expanded(ptx::smem(m->all) + in_panel(at.key, at.chunk), r.all[u],
                             r.all_key[u], at.chunk);
    }
}

/* ---- 2, 3: scores of own keys, by the first warpgroup ---- */

template <int Q> __device__ inline void score_own(float (&s)[8 * Q], const shared_memory<Q> *m)
{
    uint64_t a = ptx::wgmma_desc_128b(ptx::smem(m->q)), b = ptx::wgmma_desc_128b(ptx::smem(m->own));
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int panel = i / 4, step = i % 4 * 32;
        ptx::wgmma<16 * Q>::template bf16_ss<0>(s, a + ((panel * PANEL + step) >> 4),
                                                b + ((panel * shape<Q>::OWN_PANEL + step) >> 4),
                                                i > 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(s);
}

/* The block of 64 that quarter u of `rank` lies in. */
template <int Q> __device__ inline int block_of(int rank, int u) { return (rank * Q + u) / 4; }

/* s -> logits; their maxima to shared memory. */
template <int Q>
__device__ inline void publish_max(shared_memory<Q> *m, float (&s)[8 * Q], const work &w, int row)
{
    attn::logits_of(s, w.p->scale, w.count - w.rank * shape<Q>::OWN);
    float2 first = {attn::LOWEST, attn::LOWEST}, second = first;
#pragma unroll
    for (int u = 0; u < Q; u++) {
        float2 here = attn::quarter_max(s + 8 * u);
        if (block_of<Q>(w.rank, u) == block_of<Q>(w.rank, 0))
            first = attn::larger(first, here);
        else
            second = attn::larger(second, here);
    }
    first = {attn::quad_max(first.x), attn::quad_max(first.y)};
    second = {attn::quad_max(second.x), attn::quad_max(second.y)};
    if (threadIdx.x % 4) return;
    m->max[0][row] = first.x;
    m->max[0][row + 8] = first.y;
    m->max[1][row] = second.x;
    m->max[1][row + 8] = second.y;
}

/* Maxima of all blocks, where q was: [2 CLUSTER][HEADS]. */
template <int Q> __device__ inline float *all_max(shared_memory<Q> *m)
{
    return reinterpret_cast<float *>(m->q);
}

template <int Q> __device__ inline void gather_max(shared_memory<Q> *m)
{
    for (int i = threadIdx.x; i < 2 * CLUSTER * HEADS; i += THREADS) {
        uint32_t from = ptx::smem(&m->max[0][0] + i % (2 * HEADS));
        all_max(m)[i] = ptx::ld_shared_cluster_f32(from, i / (2 * HEADS));
    }
}

/* The running maximum of `head` after block b, from that before. */
template <int Q> __device__ inline float next_max(shared_memory<Q> *m, float max, int head, int b)
{
    int from = 4 * b / Q, to = (4 * b + 3) / Q; /* ranks with keys in block b */
    for (int rank = from; rank <= to; rank++) {
        int second = block_of<Q>(rank, 0) != b;
        max = fmaxf(max, all_max(m)[(2 * rank + second) * HEADS + head]);
    }
    return max;
}

/* p of own keys to this block's panels, and their sums. */
template <int Q>
__device__ inline void store_own(shared_memory<Q> *m, float (&s)[8 * Q], const work &w, int row)
{
    int b0 = block_of<Q>(w.rank, 0), b1 = block_of<Q>(w.rank, Q - 1);
    float2 first = {attn::LOWEST, attn::LOWEST};
    for (int b = 0; b <= b0; b++)
        first = {next_max(m, first.x, row, b), next_max(m, first.y, row + 8, b)};
    float2 second = first;
    if (b1 != b0) second = {next_max(m, first.x, row, b1), next_max(m, first.y, row + 8, b1)};
    uint32_t to = ptx::smem(m->own) + (threadIdx.x / 32 * 16) * 128;
#pragma unroll
    for (int u = 0; u < Q; u++) {
        int b = block_of<Q>(w.rank, u);
        float2 sum = attn::quarter_probabilities(s + 8 * u, b == b0 ? first : second);
        attn::store_quarter(to + b * PANEL, s + 8 * u, (w.rank * Q + u) % 4);
        if (threadIdx.x % 4 == 0) {
            m->sum[u][row] = sum.x;
            m->sum[u][row + 8] = sum.y;
        }
    }
}

/* Own p to the same places of the other blocks. */
template <int Q> __device__ inline void send_own(shared_memory<Q> *m, int rank)
{
    constexpr int chunks = 2 * Q; /* of 16 bytes a row */
    for (int i = threadIdx.x; i < HEADS * chunks; i += THREADS) {
        int row = i / chunks, chunk = rank * chunks + i % chunks;
        uint32_t at = chunk / 8 * PANEL + row * 128 + (((chunk ^ row) & 7) << 4);
        uint4 v = *reinterpret_cast<const uint4 *>(m->own + at);
        for (int r = 1; r < CLUSTER; r++)
            ptx::st_shared_cluster_v4(ptx::mapa(ptx::smem(m->own) + at, (rank + r) % CLUSTER), v);
    }
}

/* ---- 4: sums ---- */

/* The denominator of head threadIdx.x. */
template <int Q> __device__ inline void store_inverse(shared_memory<Q> *m, const work &w, int blocks)
{
    int head = threadIdx.x;
    float max = attn::LOWEST, sum = 0;
    for (int b = 0; b < blocks; b++) {
        float part = 0, next = next_max(m, max, head, b);
        for (int u = 4 * b; u < 4 * b + 4; u++)
            part = __fadd_rn(
                part, ptx::ld_shared_cluster_f32(ptx::smem(&m->sum[u % Q][head]), u / Q));
        sum = attn::next_sum(sum, attn::fast_exp(__fsub_rn(max, next)), part);
        max = next;
    }
    float sink = w.head + head < w.p->h ? w.p->sink[w.head + head] : 0;
    m->inverse[head] = attn::inverse_of(sum, max, sink);
}

__device__ inline void add_block(float (&o)[32], uint64_t p, uint64_t v, int accumulate)
{
    ptx::wgmma_fence_operand(o);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCK / 16; i++)
        ptx::wgmma<64>::bf16_ss<1>(o, p + 2 * i, v + (i * 16 * 128 >> 4), i || accumulate);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
}

/* What the sums of rows `row` and row + 8 are multiplied by before each block. */
template <int Q>
__device__ inline void rescales_of(float2 (&by)[shape<Q>::BLOCKS], shared_memory<Q> *m, int row)
{
    float2 max = {attn::LOWEST, attn::LOWEST};
#pragma unroll
    for (int b = 0; b < shape<Q>::BLOCKS; b++) {
        float2 next = {next_max(m, max.x, row, b), next_max(m, max.y, row + 8, b)};
        by[b] = {attn::fast_exp(__fsub_rn(max.x, next.x)),
                 attn::fast_exp(__fsub_rn(max.y, next.y))};
        max = next;
    }
}

template <int Q>
__device__ inline void sum_all(float (&o)[32], const float2 (&by)[shape<Q>::BLOCKS],
                               const shared_memory<Q> *m, int blocks)
{
    uint64_t p = ptx::wgmma_desc_128b(ptx::smem(m->own)), v = ptx::wgmma_desc_128b(ptx::smem(m->all));
#pragma unroll
    for (int b = 0; b < shape<Q>::BLOCKS; b++) {
        if (b == blocks) break;
        if (b > 0) {
#pragma unroll
            for (int i = 0; i < 32; i++) o[i] = __fmul_rn(o[i], i % 4 < 2 ? by[b].x : by[b].y);
        }
        add_block(o, p + (b * PANEL >> 4), v + (b * BLOCK * 128 >> 4), b > 0);
    }
}

template <int Q>
__device__ inline void store_out(const float (&o)[32], const shared_memory<Q> *m, const work &w,
                                 int row)
{
    int64_t at = (int64_t(w.row) * w.p->h + w.head + row) * D + w.rank * 64 + 2 * (threadIdx.x & 3);
    uint32_t *out = reinterpret_cast<uint32_t *>(w.p->out + at);
    float x = m->inverse[row], y = m->inverse[row + 8];
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        if (row < w.heads) out[i] = num::pack_bf16(o[i] * x, o[i + 1] * x);
        if (row + 8 < w.heads) out[i + 8 * D / 2] = num::pack_bf16(o[i + 2] * y, o[i + 3] * y);
    }
}

template <int Q>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    attend(const __grid_constant__ attn::problem p)
{
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared_memory<Q> *m = reinterpret_cast<shared_memory<Q> *>(bytes);
    int groups = (p.h + HEADS - 1) / HEADS, item = blockIdx.x / CLUSTER;
    int row = threadIdx.x % GROUP / 32 * 16 + (threadIdx.x & 31) / 4;
    work w = {&p, {}, item / groups, item % groups * HEADS, 0, int(ptx::cluster_ctarank()), 0};
    w.heads = min(p.h - w.head, HEADS);
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    load_q(m, w);
    read_list(m, &w);
    int blocks = max(1, (w.count + BLOCK - 1) / BLOCK);
    records<Q> r;
    load_records(&r, m, w);
    expand_own(m, r);
    ptx::cp_async_wait_group<0>();
    ptx::fence_proxy_async();
    __syncthreads();

    float s[8 * Q];
    if (threadIdx.x < GROUP) {
        score_own(s, m);
        publish_max(m, s, w, row);
    } else {
        expand_all(m, r, w.rank);
    }
    ptx::cluster_sync();
    gather_max(m);
    __syncthreads();
    float2 by[shape<Q>::BLOCKS];
    if (threadIdx.x < GROUP)
        store_own(m, s, w, row);
    else
        rescales_of(by, m, row);
    __syncthreads();
    send_own(m, w.rank);
    ptx::fence_proxy_async_cluster();
    ptx::cluster_sync();

    ptx::fence_proxy_async_cluster();
    float o[32];
    if (threadIdx.x >= GROUP)
        sum_all(o, by, m, blocks);
    else if (threadIdx.x < HEADS)
        store_inverse(m, w, blocks);
    __syncthreads();
    if (threadIdx.x >= GROUP) store_out(o, m, w, row);
    ptx::cluster_sync(); /* the sums are read from other blocks */
}

template <int Q> dsf_status launch(const dsf_launch *lc, const attn::problem &p)
{
    int items = p.n * ((p.h + HEADS - 1) / HEADS), bytes = int(sizeof(shared_memory<Q>));
    DSF_CUDA_TRY(cudaFuncSetAttribute(attend<Q>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    attend<Q><<<items * CLUSTER, THREADS, bytes, dsf_stream(lc)>>>(p);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

} // namespace

extern "C" dsf_status dsf_attn_decode_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_attn_args *a = static_cast<const dsf_attn_args *>(args);
    attn::problem p = attn::problem_of(a);
    return dsf_attn_tune(a).quarters == 2 ? launch<2>(lc, p) : launch<5>(lc, p);
}
