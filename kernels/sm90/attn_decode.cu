/* Sparse attention for few rows, d 512: a cluster of 8 blocks takes one row and up to 64 heads, so
 * that all its records are on the way at once (ATTN.md has the times). Of 8 x 16 Q list slots,
 *
 *   1  a block gathers and expands its own 16 Q keys, whole, and then 64 channels of every key
 *   2  s = q k of its own keys; their maxima, by block of 64, go round the cluster
 *   3  p = e^(s - running maximum) goes round as bf16, and so do the sums of p
 *   4  o = o rescale + p v for its 64 channels, all keys in list order
 *
 * Every sum is the chain that attn_prefill.cu has: q k is split by keys, p v by channels. */
#include "sm90/attn_tile.cuh"

namespace
{

using attn::BLOCK;
using attn::D;
using attn::HEADS;

constexpr int CLUSTER = DSF_ATTN_CLUSTER, THREADS = 384, GROUP = 128, WARPS = THREADS / 32;
constexpr int PANEL = HEADS * 128; /* of q or p: 64 rows of 64 channels or keys */
static_assert(D == 64 * CLUSTER, "a block of the cluster sums one panel of channels");

/* Q: quarters of a block of 64 keys that one block of the cluster scores. */
template <int Q> struct shape {
    static constexpr int OWN = 16 * Q, KEYS = CLUSTER * OWN, BLOCKS = KEYS / BLOCK;
    static constexpr int OWN_PANEL = OWN * 128, OWN_TILE = CLUSTER * OWN_PANEL;
    static constexpr int UNITS = 8 * Q; /* of a warp's work: 32 lanes expand 32 channels each */
    static_assert(Q <= 5 && OWN_TILE == BLOCKS * PANEL, "own keys touch two blocks of 64 at most");
};

/* Codes lie where their own bf16 values will, in a lane's 64 bytes of them, and so does the list:
 * shared memory is full. */
template <int Q> struct shared_memory {
    uint8_t q[CLUSTER * PANEL];      /* then running_max and rescale */
    uint8_t own[shape<Q>::OWN_TILE]; /* own keys; then all p: a panel of 64 keys after the other */
    uint8_t all[shape<Q>::KEYS * 128];
    float max[2][HEADS];  /* of own keys, in the first and the second block they touch */
    float sum[Q][HEADS];  /* of own p, by quarter */
    float inverse[HEADS]; /* of the denominator */
    uint64_t q_full, p_full[shape<Q>::BLOCKS];
};
static_assert(sizeof(shared_memory<5>) <= DSF_SM90_BLOCK_SHARED, "shared memory of a block");

/* After the scores, by block of 64. */
struct tables {
    float max[2 * DSF_ATTN_CLUSTER][HEADS], rescale[2 * DSF_ATTN_CLUSTER][HEADS];
};

struct work {
    const attn::problem *p;
    int row, head, heads;
    int rank, count, blocks; /* keys in the list, its blocks of 64 */
};

/* ---- 1: keys ---- */

/* The place of 32 channels of a key in a panel: 64 bytes, of one lane. */
__device__ inline uint32_t in_panel(int key, int chunk)
{
    return key * 128 + ((((chunk & 1) * 4) ^ (key & 7)) << 4);
}

/* Where slot j of the list lies until its channels are expanded. */
template <int Q> __device__ inline uint64_t *entry_of(shared_memory<Q> *m, int j)
{
    return reinterpret_cast<uint64_t *>(m->all + (in_panel(j, 0) ^ 48));
}

__device__ inline attn::key unpack(uint64_t entry)
{
    return {reinterpret_cast<const uint8_t *>(entry & ~uint64_t(15)), (entry & 1) != 0,
            (entry & 2) != 0};
}

template <int Q> __device__ inline void read_list(shared_memory<Q> *m, work *w)
{
    const attn::problem &p = *w->p;
    attn::list l = attn::list_of(p, w->row);
    w->count = 0;
#pragma unroll 1
    for (int from = 0; from < shape<Q>::KEYS; from += THREADS) {
        int j = from + threadIdx.x;
        attn::key key = attn::key_at(p, l, j, attn::id_at(p, l, j));
        if (j < shape<Q>::KEYS)
            *entry_of(m, j) = reinterpret_cast<uint64_t>(key.record) | (key.is_main ? 1 : 0) |
                              (key.is_there ? 2 : 0);
        w->count += __syncthreads_count(key.is_there);
    }
    w->blocks = max(1, (w->count + BLOCK - 1) / BLOCK);
}

/* 64 rows of q by the copy engine; past the last head they are those of another row, or zero. */
template <int Q>
__device__ inline void fetch_q(shared_memory<Q> *m, const CUtensorMap *map, const work &w)
{
    uint32_t bar = ptx::smem(&m->q_full);
    ptx::mbarrier_init(bar, 1);
    for (int b = 0; b < shape<Q>::BLOCKS; b++) ptx::mbarrier_init(ptx::smem(&m->p_full[b]), 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(bar, sizeof m->q);
    for (int i = 0; i < CLUSTER; i++)
        ptx::cp_async_bulk_tensor_2d(ptx::smem(m->q) + i * PANEL, map, bar, 128 * i,
                                     w.row * w.p->h + w.head);
}

/* What a lane expands in a unit: 32 channels of a key, to 64 bytes of its own. */
struct piece {
    int key, chunk;
    uint32_t at;
};

/* 8 own keys x 128 channels; slots of the list are counted from the rank's first. */
template <int Q> __device__ inline piece own_piece(const shared_memory<Q> *m, int unit)
{
    int lane = threadIdx.x & 31, key = unit / 4 * 8 + (lane & 7),
        chunk = unit % 4 * 4 + (lane >> 3);
    return {key, chunk, ptx::smem(m->own) + chunk / 2 * shape<Q>::OWN_PANEL + in_panel(key, chunk)};
}

/* 16 keys x the rank's 64 channels. */
template <int Q> __device__ inline piece all_piece(const shared_memory<Q> *m, int unit, int rank)
{
    int lane = threadIdx.x & 31, key = unit * 16 + (lane >> 4) * 8 + (lane & 7);
    int chunk = 2 * rank + (lane >> 3 & 1);
    return {key, chunk, ptx::smem(m->all) + in_panel(key, chunk)};
}

/* The 4 bytes of scales with those of chunk c: which, and how far up they lie. */
__device__ inline int scale_at(attn::key key, int c)
{
    return key.is_main ? D / 2 + 2 * (c & ~1) : D + (c & ~3);
}
__device__ inline int scale_shift(attn::key key, int c)
{
    return key.is_main ? 16 * (c & 1) : 8 * (c & 2);
}

__device__ inline void fetch(const piece &x, attn::key key)
{
    if (!key.is_there) return;
    const uint8_t *from = attn::codes_of(key, x.chunk);
    ptx::cp_async_16(x.at, from);
    if (!key.is_main) ptx::cp_async_16(x.at ^ 16, from + 16);
    ptx::cp_async_4(x.at ^ 32, key.record + scale_at(key, x.chunk));
}

__device__ inline void expand(const piece &x, attn::key key)
{
    attn::raw raw;
    raw.code[0] = ptx::ld_shared_v4(x.at);
    raw.code[1] = ptx::ld_shared_v4(x.at ^ 16);
    raw.scale = ptx::ld_shared_u32(x.at ^ 32) >> scale_shift(key, x.chunk) & 0xFFFF;
    __syncwarp(); /* the list's entries are read */
    attn::store_expanded(x.at, raw, key, x.chunk);
}

/* Everything is asked for before anything is used: own keys, then channels of all keys. */
template <int Q> __device__ inline void fetch_all(shared_memory<Q> *m, const work &w)
{
    int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int unit = warp; unit < shape<Q>::UNITS; unit += WARPS) {
        piece x = own_piece(m, unit);
        fetch(x, unpack(*entry_of(m, w.rank * shape<Q>::OWN + x.key)));
    }
    ptx::cp_async_commit_group();
    if (warp < 4) return;
#pragma unroll 1
    for (int unit = warp - 4; unit < shape<Q>::UNITS; unit += WARPS - 4) {
        piece x = all_piece(m, unit, w.rank);
        fetch(x, unpack(*entry_of(m, x.key)));
    }
    ptx::cp_async_commit_group();
}

template <int Q> __device__ inline void expand_own(shared_memory<Q> *m, const work &w)
{
#pragma unroll 1
    for (int unit = threadIdx.x / 32; unit < shape<Q>::UNITS; unit += WARPS) {
        piece x = own_piece(m, unit);
        expand(x, unpack(*entry_of(m, w.rank * shape<Q>::OWN + x.key)));
    }
}

/* By all warps but the first four. */
template <int Q> __device__ inline void expand_all(shared_memory<Q> *m, const work &w)
{
#pragma unroll 1
    for (int unit = threadIdx.x / 32 - 4; unit < shape<Q>::UNITS; unit += WARPS - 4) {
        piece x = all_piece(m, unit, w.rank);
        expand(x, unpack(*entry_of(m, x.key)));
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

template <int Q> __device__ inline tables *tables_of(shared_memory<Q> *m)
{
    return reinterpret_cast<tables *>(m->q);
}

/* The running maximum after each block and what sums are multiplied by before it, of head
 * threadIdx.x, from the maxima that the cluster's blocks have. */
template <int Q> __device__ inline void fill_tables(shared_memory<Q> *m)
{
    int head = threadIdx.x;
    float part[2 * CLUSTER], max = attn::LOWEST;
#pragma unroll
    for (int i = 0; i < 2 * CLUSTER; i++)
        part[i] = ptx::ld_shared_cluster_f32(ptx::smem(&m->max[i % 2][head]), i / 2);
#pragma unroll
    for (int b = 0; b < shape<Q>::BLOCKS; b++) {
        float next = max;
#pragma unroll
        for (int rank = 4 * b / Q; rank <= (4 * b + 3) / Q; rank++) /* with keys in block b */
            next = fmaxf(next, part[2 * rank + (block_of<Q>(rank, 0) != b)]);
        tables_of(m)->max[b][head] = next;
        tables_of(m)->rescale[b][head] = attn::fast_exp(__fsub_rn(max, next));
        max = next;
    }
}

/* p of own keys to the row's panels in global memory, as they will lie in shared memory; their
 * sums. Through the L2 and back costs each block 80 KB once; to the seven others' shared memory it
 * took 4 thousand cycles. */
template <int Q>
__device__ inline void store_own(shared_memory<Q> *m, uint8_t *panels, float (&s)[8 * Q],
                                 const work &w, int row)
{
    const tables *t = tables_of(m);
    int b0 = block_of<Q>(w.rank, 0), b1 = block_of<Q>(w.rank, Q - 1);
    float2 first = {t->max[b0][row], t->max[b0][row + 8]};
    float2 second = {t->max[b1][row], t->max[b1][row + 8]};
    uint8_t *to = panels + row * 128 + (threadIdx.x & 3) * 4;
#pragma unroll
    for (int u = 0; u < Q; u++) {
        int b = block_of<Q>(w.rank, u), chunk = (w.rank * Q + u) % 4 * 2;
        float2 sum = attn::quarter_probabilities(s + 8 * u, b == b0 ? first : second);
#pragma unroll
        for (int j = 0; j < 2; j++) { /* row + 8 has the same swizzle */
            uint8_t *at = to + b * PANEL + ((chunk + j) ^ (row & 7)) * 16;
            const float *x = s + 8 * u + 4 * j;
            *reinterpret_cast<uint32_t *>(at) = num::pack_bf16(x[0], x[1]);
            *reinterpret_cast<uint32_t *>(at + 8 * 128) = num::pack_bf16(x[2], x[3]);
        }
        if (threadIdx.x % 4 == 0) {
            m->sum[u][row] = sum.x;
            m->sum[u][row + 8] = sum.y;
        }
    }
}

/* ---- 4: sums ---- */

/* The denominator of head threadIdx.x. */
template <int Q> __device__ inline void store_inverse(shared_memory<Q> *m, const work &w)
{
    int head = threadIdx.x;
    float part[4 * shape<Q>::BLOCKS], sum = 0;
#pragma unroll
    for (int u = 0; u < 4 * shape<Q>::BLOCKS; u++)
        part[u] = ptx::ld_shared_cluster_f32(ptx::smem(&m->sum[u % Q][head]), u / Q);
    float sink = w.head + head < w.p->h ? w.p->sink[w.head + head] : 0;
    const tables *t = tables_of(m);
#pragma unroll
    for (int b = 0; b < shape<Q>::BLOCKS; b++) {
        if (b == w.blocks) break;
        float here = __fadd_rn(__fadd_rn(__fadd_rn(part[4 * b], part[4 * b + 1]), part[4 * b + 2]),
                               part[4 * b + 3]);
        sum = attn::next_sum(sum, t->rescale[b][head], here);
    }
    m->inverse[head] = attn::inverse_of(sum, t->max[w.blocks - 1][head], sink);
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

/* Asks for all panels of p, by one thread. */
template <int Q>
__device__ inline void fetch_panels(shared_memory<Q> *m, const uint8_t *panels, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        uint32_t bar = ptx::smem(&m->p_full[b]);
        ptx::mbarrier_arrive_expect_tx(bar, PANEL);
        ptx::cp_async_bulk(ptx::smem(m->own) + b * PANEL, panels + b * PANEL, PANEL, bar);
    }
}

template <int Q>
__device__ inline void sum_all(float (&o)[32], shared_memory<Q> *m, int row, int blocks)
{
    uint64_t p = ptx::wgmma_desc_128b(ptx::smem(m->own)),
             v = ptx::wgmma_desc_128b(ptx::smem(m->all));
    const tables *t = tables_of(m);
    float x = 1, y = 1;
#pragma unroll 1
    for (int b = 0; b < blocks; b++) {
        ptx::mbarrier_wait(ptx::smem(&m->p_full[b]), 0);
        if (__any_sync(0xFFFFFFFFu, x != 1 || y != 1)) {
#pragma unroll
            for (int i = 0; i < 32; i++) o[i] = __fmul_rn(o[i], i % 4 < 2 ? x : y);
        }
        int next = b + 1 < blocks ? b + 1 : b;
        x = t->rescale[next][row];
        y = t->rescale[next][row + 8];
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
    attend(const __grid_constant__ attn::problem p, const __grid_constant__ CUtensorMap map,
           uint8_t *scratch)
{
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared_memory<Q> *m = reinterpret_cast<shared_memory<Q> *>(bytes);
    int groups = (p.h + HEADS - 1) / HEADS, item = blockIdx.x / CLUSTER;
    int group = threadIdx.x / GROUP, row = threadIdx.x % GROUP / 32 * 16 + (threadIdx.x & 31) / 4;
    uint8_t *panels = scratch + int64_t(item) * shape<Q>::BLOCKS * PANEL;
    work w = {&p, item / groups, item % groups * HEADS, 0, int(ptx::cluster_ctarank()), 0, 0};
    w.heads = min(p.h - w.head, HEADS);
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    if (threadIdx.x == 0) fetch_q(m, &map, w);
    read_list(m, &w);
    fetch_all(m, w);
    if (group == 0)
        ptx::cp_async_wait_group<0>();
    else
        ptx::cp_async_wait_group<1>();
    expand_own(m, w);
    ptx::cp_async_wait_group<0>();
    ptx::fence_proxy_async();
    __syncthreads();

    float s[8 * Q];
    if (group == 0) {
        ptx::mbarrier_wait(ptx::smem(&m->q_full), 0);
        score_own(s, m);
        publish_max(m, s, w, row);
    } else {
        expand_all(m, w);
        ptx::fence_proxy_async();
    }
    ptx::cluster_sync();
    if (threadIdx.x < HEADS) fill_tables(m);
    __syncthreads();
    if (group == 0) {
        store_own(m, panels, s, w, row);
        ptx::fence_proxy_async_global(); /* the copy engine reads it */
    }
    ptx::cluster_sync();

    float o[32];
    if (threadIdx.x == GROUP) {
        ptx::fence_proxy_async_global();
        fetch_panels(m, panels, w.blocks);
    }
    if (threadIdx.x < HEADS) store_inverse(m, w);
    ptx::cluster_arrive(); /* nobody ends before its sums have been read */
    if (group == 1) sum_all(o, m, row, w.blocks);
    __syncthreads();
    if (group == 1) store_out(o, m, w, row);
    ptx::cluster_wait();
}

template <int Q> dsf_status launch(const dsf_launch *lc, const attn::problem &p)
{
    int items = p.n * ((p.h + HEADS - 1) / HEADS);
    CUtensorMap map;
    DSF_TRY(attn::map_of_q(&map, p));
    return launch_early(dsf_stream(lc),
                        {unsigned(items * CLUSTER), THREADS, sizeof(shared_memory<Q>)}, attend<Q>,
                        p, map, lc->scratch);
}

} // namespace

dsf_status attn::spread(const dsf_launch *lc, const attn::problem &p, int quarters)
{
    return quarters == 2 ? launch<2>(lc, p) : launch<5>(lc, p);
}
