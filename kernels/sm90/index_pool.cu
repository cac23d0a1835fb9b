/* Scores on the tensor cores of rows that have their keys for themselves: a pool's entries,
 * gathered by blocks of 8, and all entries where there are few rows. The arithmetic is that of
 * index_scores.cu, with the first and the last of its three paths.
 *
 * Step: 128 candidates (two M tiles of 64) x the 32 heads of one row (N = 32). Lane c of a quad
 * gets heads 8c..8c+7 of the quad's four candidates; the weighted terms, two bf16 a word, are
 * transposed within the quad (16 shuffles), so that lane c adds all 32 of candidate c in order.
 * Blocks of keys (544 bytes) come by the copy engine, three steps ahead. A block of threads expands
 * its row's query itself.
 *
 * Instructions: a step costs a thread about 280 for two expanded tiles, 110 for 32 elements, 50 for
 * the transposition, 64 for the sums: 128 candidates in about 510 cycles of a scheduler, four
 * blocks an SM share it. L2: 68 bytes a candidate. */
#include "sm90/index_tile.cuh"

using namespace index_sm90;

namespace
{

constexpr int threads = 128;
constexpr int block = 8; /* entries of a pool's block */
constexpr int step = 128, step_blocks = step / block;
constexpr uint32_t block_bytes = block * record; /* 544 */
constexpr int stages = 3;
constexpr int resident = 4; /* blocks of an SM */
constexpr int64_t most_blocks = DSF_SM90_SMS * resident;

/* Column 8g + 2c + e of the query is head 8c + 2g + e. */
struct shared {
    uint8_t code[heads * DSF_INDEX_CHANNELS]; /* at a multiple of 1024; 128-byte swizzle */
    uint8_t key[stages][step * record];
    uint4 weight[4]; /* a times 2^base, two bf16 a word: heads 8c..8c+7 */
    /* for the slow path */
    float unfold[heads][groups], scale[heads][groups], a[heads];
    uint64_t full[stages];
    int blocks[stages]; /* how many were copied */
};
static_assert(step * record % 16 == 0 && sizeof(uint64_t) == 8, "barriers are aligned");

struct work {
    const int32_t *pool; /* nullptr: block m is block m */
    const uint8_t *keys; /* of the row's sequence */
    int b, visible;

    __device__ work(const score_job &j, int64_t row)
        : pool(j.pool ? j.pool + row * j.b : nullptr),
          keys(j.keys + int64_t(j.slot[row]) * j.c * record),
          visible(int(visible_entries(j.pos[row], j.ratio, j.entries)))
    {
        b = (visible + block - 1) / block;
        if (pool) b = min(b, int(j.b)); /* there are no more with a visible entry */
    }
};

/* Copies the blocks of one step (warp 0). Blocks ascend, so the ones that count come first. */
__device__ void issue(shared &s, const work &w, int at, int stage)
{
    int lane = threadIdx.x % 32;
    int m = at * step_blocks + lane;
    int32_t id = -1;
    if (lane < step_blocks && m < w.b) id = w.pool ? w.pool[m] : m;
    bool there = id >= 0 && int64_t(id) * block < w.visible;
    int count = __popc(__ballot_sync(0xFFFFFFFFu, there));
    uint32_t bar = ptx::smem(&s.full[stage]);
    if (lane == 0) {
        s.blocks[stage] = count;
        ptx::mbarrier_arrive_expect_tx(bar, count * block_bytes);
    }
    __syncwarp();
    if (there)
        ptx::cp_async_bulk(ptx::smem(s.key[stage] + lane * block_bytes),
                           w.keys + int64_t(id) * block_bytes, block_bytes, bar);
}

/* The A fragments of two tiles: rows r and r + 8 of tile i are candidates 2i and 2i + 1 of the
 * quad's four. */
struct key_pair {
    uint32_t a[2][groups][4];
    uint32_t bytes[4];
};

/* From shared memory; rows past the last copied block are left with scales of 1. True: all fold. */
__device__ bool load_keys(key_pair &k, const uint8_t *first, int c, bool there)
{
    bool folds = true;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t *rec = reinterpret_cast<const uint32_t *>(first + i * record);
        k.bytes[i] = there ? rec[16] : 0x7F7F7F7F;
        scales s(k.bytes[i]);
        folds = folds && s.folds;
#pragma unroll
        for (int g = 0; g < groups; g++)
            grid(s.shift(g)).expand(rec[4 * g + c], k.a[i / 2][g][i % 2], k.a[i / 2][g][i % 2 + 2]);
    }
    return folds;
}

/* What a sum of folded terms of this key is counted in. */
__device__ float unit_of(const uint8_t *key, bool there)
{
    int base = there ? scales(reinterpret_cast<const uint32_t *>(key)[16]).base : 127;
    return num::pow2(max(base, least_scale) - 129);
}

/* term[candidate][g]: bf16(a bf16(relu(q . k))) of heads 8c + 2g and the next. */
__device__ void terms_fast(uint32_t (&term)[4][4], const key_pair &k, uint64_t b, const uint4 &a)
{
    int d[2][16];
    ptx::wgmma_fence();
#pragma unroll
    for (int g = 0; g < groups; g++) {
        ptx::wgmma_s8<32>::rs(d[0], k.a[0][g], b + 2 * g, g > 0);
        ptx::wgmma_s8<32>::rs(d[1], k.a[1][g], b + 2 * g, g > 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(d[0]);
    ptx::wgmma_fence_operand(d[1]);
    const uint32_t weight[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int g = 0; g < 4; g++) {
            int at = 4 * g + i % 2 * 2;
            uint32_t x = ptx::cvt_rn_relu_bf16x2(__int2float_rn(d[i / 2][at + 1]),
                                                 __int2float_rn(d[i / 2][at]));
            term[i][g] = word(__hmul2_rn(bf16x2(x), bf16x2(weight[g])));
        }
    }
}

/* The same of one tile by the contract's additions, one product a group. */
__device__ void terms_slow(uint32_t (&term)[2][4], const uint32_t (&a)[groups][4],
                           const uint32_t (&bytes)[2], uint64_t b, const shared &s, int c)
{
    float dot[16] = {};
#pragma unroll
    for (int g = 0; g < groups; g++) {
        int d[16];
        ptx::wgmma_fence();
        ptx::wgmma_s8<32>::rs(d, a[g], b + 2 * g, 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        ptx::wgmma_fence_operand(d);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int head = 8 * c + i / 4 * 2 + i % 2;
            float group = __fmul_rn(__int2float_rn(d[i]), s.unfold[head][g]);
            group = __fmul_rn(group, scales(bytes[i / 2 % 2]).outside(g));
            dot[i] = __fmaf_rn(group, s.scale[head][g], dot[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        float p[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float x = num::round_bf16(dot[i + e]);
            x = x < 0 ? 0 : x; /* NaN stays */
            p[e] = __fmul_rn(s.a[8 * c + i / 4 * 2 + e], x);
        }
        term[i / 2 % 2][i / 4] = num::pack_bf16(p[0], p[1]);
    }
}

/* Both tiles in turn by the same code: it is rare, and large. */
__device__ void terms_slow(uint32_t (&term)[4][4], const key_pair &k, uint64_t b, const shared &s,
                           int c)
{
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        uint32_t a[groups][4], part[2][4];
        const uint32_t bytes[2] = {half ? k.bytes[2] : k.bytes[0], half ? k.bytes[3] : k.bytes[1]};
#pragma unroll
        for (int i = 0; i < 4 * groups; i++)
            a[i / 4][i % 4] = half ? k.a[1][i / 4][i % 4] : k.a[0][i / 4][i % 4];
        terms_slow(part, a, bytes, b, s, c);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            term[2 + i / 4][i % 4] = part[i / 4][i % 4];
            if (half == 0) term[i / 4][i % 4] = part[i / 4][i % 4];
        }
    }
}

/* The sum of candidate c's 32 terms in order: a transposition within the quad, then 32 additions.
 */
__device__ float add_terms(const uint32_t (&term)[4][4], int c)
{
    bool odd = c & 1, upper = c & 2;
    uint32_t pair[2][2][4]; /* [candidate / 2][source lane % 2] */
#pragma unroll
    for (int p = 0; p < 2; p++) {
#pragma unroll
        for (int g = 0; g < 4; g++) {
            uint32_t keep = odd ? term[2 * p + 1][g] : term[2 * p][g];
            uint32_t send = odd ? term[2 * p][g] : term[2 * p + 1][g];
            uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, send, 1);
            pair[p][0][g] = odd ? got : keep;
            pair[p][1][g] = odd ? keep : got;
        }
    }
    uint32_t all[4][4]; /* [source lane] */
#pragma unroll
    for (int l = 0; l < 2; l++) {
#pragma unroll
        for (int g = 0; g < 4; g++) {
            uint32_t keep = upper ? pair[1][l][g] : pair[0][l][g];
            uint32_t send = upper ? pair[0][l][g] : pair[1][l][g];
            uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, send, 2);
            all[l][g] = upper ? got : keep;
            all[2 + l][g] = upper ? keep : got;
        }
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        total = __fadd_rn(total, num::low_bf16(all[i / 4][i % 4]));
        total = __fadd_rn(total, num::high_bf16(all[i / 4][i % 4]));
    }
    return total;
}

/* Four threads a head, one for each group. True: everything folds and is in range. */
__device__ bool load_query(shared &s, const score_job &j, int64_t row)
{
    int head = threadIdx.x / groups, g = threadIdx.x % groups;
    uint32_t word[4] = {}, bytes = 0x7F7F7F7F;
    uint16_t a = 0;
    if (head < j.h) {
        const uint8_t *rec = j.q + (row * j.h + head) * record;
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = load_word(rec + 16 * g + 4 * i, true);
        bytes = load_word(rec + 64, true);
        a = j.a[row * j.h + head];
    }
    scales own(bytes);
    bool in_range;
    int column = head % 8 / 2 * 8 + head / 8 * 2 + head % 2;
    uint32_t x[4], y[4];
    const grid table(own.shift(g));
#pragma unroll
    for (int i = 0; i < 4; i++) table.expand(word[i], x[i], y[i]);
    uint4 *out = reinterpret_cast<uint4 *>(s.code + column * DSF_INDEX_CHANNELS);
    out[(2 * g) ^ (column & 7)] = make_uint4(x[0], x[1], x[2], x[3]);
    out[(2 * g + 1) ^ (column & 7)] = make_uint4(y[0], y[1], y[2], y[3]);
    s.unfold[head][g] = num::pow2(-2 - own.shift(g));
    s.scale[head][g] = num::e8m0_to_f32(uint8_t(own.at(g)));
    uint16_t weight = scaled_weight(a, own.base, in_range);
    if (g == 0) {
        reinterpret_cast<uint16_t *>(s.weight)[head] = weight;
        s.a[head] = num::bf16_to_f32(a);
    }
    ptx::fence_proxy_async();
    return __syncthreads_and(own.folds && in_range);
}

/* Block (row, part). */
__global__ void __launch_bounds__(threads, resident) score_pool(score_job j, int parts)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    uint32_t shift = (1024 - ptx::smem(memory) % 1024) % 1024;
    shared &s = *reinterpret_cast<shared *>(memory + shift);
    int64_t row = blockIdx.x / parts;
    int part = blockIdx.x % parts, warp = threadIdx.x / 32, lane = threadIdx.x % 32, c = lane % 4;
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) ptx::mbarrier_init(ptx::smem(&s.full[i]), 1);
        ptx::fence_mbarrier_init();
    }
    follow();
    __syncthreads();
    const work w(j, row);
    int steps = (w.b + step_blocks - 1) / step_blocks, each = (steps + parts - 1) / parts;
    int from = part * each, to = min(from + each, steps);
    if (from >= to) return;
    if (warp == 0)
        for (int i = 0; i < stages && from + i < to; i++) issue(s, w, from + i, i);
    const bool query_folds = load_query(s, j, row);
    uint16_t *out = j.out + row * j.stride;
    uint64_t b = ptx::wgmma_desc_128b(ptx::smem(s.code));
    int stage = 0, phase = 0;
    for (int at = from; at < to; at++) {
        ptx::mbarrier_wait(ptx::smem(&s.full[stage]), phase);
        int blocks = s.blocks[stage];
        if (blocks == 0) break; /* and none after it */
        key_pair k;
        bool there = warp * 4 + lane / 8 < blocks;
        const uint8_t *quad = s.key[stage] + (warp * 32 + lane / 4 * 4) * record;
        bool folds = load_keys(k, quad, c, there);
        float unit = unit_of(quad + c * record, there);
        bool fast = __syncthreads_and(folds) && query_folds;
        if (warp == 0 && at + stages < to) issue(s, w, at + stages, stage);
        if (++stage == stages) stage = 0, phase ^= 1;
        uint32_t term[4][4];
        if (fast)
            terms_fast(term, k, b, s.weight[c]);
        else
            terms_slow(term, k, b, s, c);
        float total = add_terms(term, c);
        if (fast) total = __fmul_rn(total, unit);
        int p = at * step + threadIdx.x;
        if (p < (w.pool ? w.b * block : w.visible)) out[p] = num::f32_to_bf16(total);
    }
}

} // namespace

/* Blocks are copied whole from 16-byte addresses. */
bool index_sm90::own_keys_fit(const score_job &job)
{
    if (job.c % block != 0) return false;
    if (job.pool) return job.block == block;
    return job.n <= DSF_INDEX_LONE_ROWS || job.n * job.entries <= DSF_INDEX_LONE_SCORES;
}

dsf_status index_sm90::score_own_keys(const score_job &job, cudaStream_t stream)
{
    int64_t blocks = job.pool ? job.b : (job.entries + block - 1) / block;
    int64_t steps = (blocks + step_blocks - 1) / step_blocks, parts = most_blocks / job.n;
    if (parts > steps) parts = steps;
    if (parts < 1) parts = 1;
    return launch_early(stream, {unsigned(job.n * parts), threads, sizeof(shared) + 1024},
                        score_pool, job, parts);
}
