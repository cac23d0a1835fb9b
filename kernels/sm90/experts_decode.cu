/* experts_up and experts_down on the fp8 tensor cores, for few rows: EXPERTS.md.
 *
 * Bound by the bytes of the weights: each expert in use is read once. A block (four share a
 * multiprocessor) computes 64 weight rows (M; up: 32 channels of w1 and of w3, so that a thread
 * holds both sums of a channel) for up to 8 pairs (N), in stages of 256 channels. Four warps copy
 * codes and scales by cp.async, three stages ahead (26 KB a block, 105 KB a multiprocessor), and
 * multiply. The fifth puts the records into shared memory: the tensor cores read them there, so
 * that a proxy fence has to follow the stores, and in the other warps it would wait for all that is
 * on its way.
 *
 * Codes are expanded in registers into the fragments of A. A lane's fragment holds channels
 * 4 q .. 4 q + 3 and 16 + 4 q .. of a block, but an ldmatrix brings it the codes of 8 q .. 8 q + 7:
 * the records are therefore stored with their words in the order 0 2 4 6 1 3 5 7, which puts equal
 * channels at equal places; the tensor core's sum of a block does not depend on places.
 *
 * Arithmetic of an element as in experts_fp8.cu: for each block of 32 channels part = one wgmma
 * from zero, then acc = fma(part, sx sw, acc), blocks ascending; rows and columns may be exchanged.
 */
#include "sm90/experts_fp8.cuh"

namespace
{

using ptx::smem;

constexpr int compute_threads = 128, threads = 160, blocks_per_processor = 4;
constexpr int rows = DSF_EXPERTS_DECODE_COLS; /* of weights */
constexpr int stage_k = 256, stage_blocks = stage_k / 32;
constexpr int stages = 4;

struct shared_memory {
    alignas(1024) uint8_t codes[stages][rows * stage_k / 2];
    alignas(1024) uint8_t records[stages][8 * stage_k]; /* two atoms of 8 rows of 128 bytes */
    alignas(16) uint8_t scales[stages][rows * stage_blocks];
    float record_scales[stages][stage_blocks * 8];   /* [block][token], halves of the scales */
    alignas(8) uint64_t full[stages], empty[stages]; /* of records */
    int32_t id[DSF_EXPERTS_UNLISTED];
    int32_t leader[DSF_EXPERTS_UNLISTED]; /* the first pair of each expert in use */
    uint32_t votes[2];
    int32_t pair[8], n_pairs, n_leaders;
    e2m1::table plain; /* as constants two of its words would be moved to registers at each use */
};

static_assert(blocks_per_processor * (sizeof(shared_memory) + 1024) <= 233472,
              "what a multiprocessor has");

/* ---- which work there is ---- */

/* Fills leader: pairs that no earlier pair shares its expert with. */
__device__ void find_leaders(const expert_params &p, shared_memory &s)
{
    int t = threadIdx.x, warp = t / 32, lane = t % 32, n = p.lists.pairs;
    if (t < DSF_EXPERTS_UNLISTED) s.id[t] = t < n ? p.ids[t] : -1;
    __syncthreads();
    bool first = t < n;
    if (first)
        for (int i = 0; i < t; i++) first &= s.id[i] != s.id[t];
    unsigned vote = __ballot_sync(0xFFFFFFFFu, first);
    if (lane == 0 && warp < 2) s.votes[warp] = vote;
    __syncthreads();
    int rank = __popc(vote & ((1u << lane) - 1)) + (warp ? __popc(s.votes[0]) : 0);
    if (first) s.leader[rank] = t;
    if (t == 0) s.n_leaders = __popc(s.votes[0]) + __popc(s.votes[1]);
    __syncthreads();
}

/* Pairs of tile `tile`, and its expert. All threads. */
__device__ int find_pairs(const expert_params &p, shared_memory &s, int tile)
{
    int t = threadIdx.x, lane = t % 32;
    __syncthreads(); /* the tile before is done with */
    if (p.listed) {
        dsf_experts_tile found = p.lists.tiles[tile];
        if (t < found.rows) s.pair[t] = p.lists.order[found.first + t];
        if (t == 0) s.n_pairs = found.rows;
        __syncthreads();
        return found.expert;
    }
    int expert = s.id[s.leader[tile]];
    bool mine = t < p.lists.pairs && s.id[t] == expert;
    unsigned vote = __ballot_sync(0xFFFFFFFFu, mine);
    if (lane == 0 && t < DSF_EXPERTS_UNLISTED) s.votes[t / 32] = vote;
    __syncthreads();
    int rank = __popc(vote & ((1u << lane) - 1)) + (t >= 32 ? __popc(s.votes[0]) : 0);
    if (mine) s.pair[rank] = t;
    if (t == 0) s.n_pairs = __popc(s.votes[0]) + __popc(s.votes[1]);
    __syncthreads();
    return expert;
}

/* ---- copies ---- */

/* What a thread copies of every stage. */
struct copier {
    const uint8_t *codes; /* 16 bytes of rows t / 8 + 16 i */
    int64_t step;
    const uint8_t *scales; /* threads 0..63: 8 bytes of row t */
};

/* Row r of the 64: a warp's 16 are 8 of w1, then the same channels of w3; for down 16 channels. */
template <bool UP>
__device__ const uint8_t *row_of(const expert_params &p, int expert, int first, int r, bool scales)
{
    const expert_table &w = UP && (r & 8) ? p.w[1] : p.w[0];
    int64_t channel = UP ? first + r / 16 * 8 + r % 8 : first + r;
    return scales ? w.scales_of(expert) + channel * (p.k / 32)
                  : w.codes_of(expert) + channel * (p.k / 2);
}

template <bool UP> __device__ copier make_copier(const expert_params &p, int expert, int first)
{
    int t = threadIdx.x;
    copier c;
    c.codes = row_of<UP>(p, expert, first, t / 8, false) + t % 8 * 16;
    c.step = int64_t(UP ? 8 : 16) * (p.k / 2);
    c.scales = row_of<UP>(p, expert, first, t % rows, true);
    return c;
}

__device__ void copy_stage(shared_memory &s, const copier &c, int slot, int stage)
{
    int t = threadIdx.x, row = t / 8, chunk = t % 8;
    uint32_t dst = smem(s.codes[slot]) + row * 128 + ((chunk ^ (row % 8)) * 16);
    const uint8_t *from = c.codes + stage * (stage_k / 2);
#pragma unroll
    for (int i = 0; i < rows / 16; i++) ptx::cp_async_16(dst + i * 16 * 128, from + i * c.step);
    if (t < rows)
        ptx::cp_async_8(smem(s.scales[slot]) + t * stage_blocks, c.scales + stage * stage_blocks);
}

/* ---- records: the fifth warp ---- */

__device__ const uint8_t *record_of(const expert_params &p, int pair)
{
    return p.records + int64_t(pair / p.slots) * (p.k + p.k / 32);
}

/* Word g of a stage's 64 goes where its channels' codes are expanded to. */
template <int TOKENS>
__device__ void put_words(const expert_params &p, shared_memory &s, int slot, int stage)
{
    int lane = threadIdx.x % 32;
    uint32_t word[TOKENS][2];
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        if (i >= s.n_pairs) break;
        const uint32_t *from =
            reinterpret_cast<const uint32_t *>(record_of(p, s.pair[i]) + stage * stage_k);
        word[i][0] = __ldg(from + lane);
        word[i][1] = __ldg(from + lane + 32);
    }
    int block = lane / 8, chunk = block * 2 + lane % 2, q = lane / 2 % 4;
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        if (i >= s.n_pairs) break;
        int row = TOKENS == 4 ? 2 * i : i;
        uint8_t *to = s.records[slot] + row * 128 + ((chunk ^ row) * 16) + q * 4;
        *reinterpret_cast<uint32_t *>(to) = word[i][0];
        *reinterpret_cast<uint32_t *>(to + 1024) = word[i][1];
    }
}

/* Halves of the scales, so that the weights' may be doubled: their least, 2^-127, is no normal
 * number. */
template <int TOKENS>
__device__ void put_scales(const expert_params &p, shared_memory &s, int slot, int stage)
{
    int lane = threadIdx.x % 32, block = lane % 8;
#pragma unroll
    for (int i = 0; i < TOKENS / 4; i++) {
        int token = lane / 8 + 4 * i;
        float scale = 0;
        if (token < s.n_pairs)
            scale = 0.5f * num::e8m0_to_f32(__ldg(record_of(p, s.pair[token]) + p.k +
                                                  stage * stage_blocks + block));
        s.record_scales[slot][block * TOKENS + token] = scale;
    }
}

template <int TOKENS>
__device__ void bring_records(const expert_params &p, shared_memory &s, int &turn)
{
    int n = p.k / stage_k;
#pragma unroll 1
    for (int stage = 0; stage < n; stage++, turn++) {
        int slot = turn % stages;
        ptx::mbarrier_wait(smem(&s.empty[slot]), (turn / stages & 1) ^ 1);
        put_words<TOKENS>(p, s, slot, stage);
        put_scales<TOKENS>(p, s, slot, stage);
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(smem(&s.full[slot]));
    }
}

/* ---- sums: four warps ---- */

/* Four blocks: expanded, multiplied together, promoted in order. bytes0, bytes1: the scale bytes of
 * rows r and r + 8, each plus one, which doubles the scale. never: not positive. */
template <int TOKENS>
__device__ __forceinline__ void multiply_four(const shared_memory &s, float (&acc)[4], int slot,
                                              int half, uint32_t bytes0, uint32_t bytes1,
                                              const e2m1::table &t, int never)
{
    constexpr int columns = TOKENS / 4; /* of a thread's two that hold pairs */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q = lane % 4;
    int row = warp * 16 + lane % 16;
    uint32_t codes = smem(s.codes[slot]) + row * 128;
    uint32_t a[4][4];
    float part[4][4];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t w[4]; /* block i: rows r and r + 8; block i + 1 */
        int chunk = half * 4 + i + lane / 16;
        ptx::ldmatrix_x4(w, codes + ((chunk ^ (row % 8)) * 16));
#pragma unroll
        for (int j = 0; j < 4; j++)
            e2m1::expand(t, w[j], a[i + j / 2][j % 2], a[i + j / 2][j % 2 + 2]);
    }
    uint64_t b = ptx::wgmma_desc_128b(smem(s.records[slot]) + half * 1024);
#pragma unroll
    for (int i = 0; i < 4; i++) ptx::wgmma_fence_operand(part[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) ptx::wgmma<8>::e4m3_rs(part[i], a[i], b + uint64_t(i * 2), 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (int i = 0; i < 4; i++) ptx::wgmma_fence_operand(part[i]);
    if (columns < 2 && never > 0) /* or the compiler would serialise what nobody reads */
#pragma unroll
        for (int i = 0; i < 4; i++) acc[0] += part[i][1] + part[i][3];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *x = &s.record_scales[slot][(half * 4 + i) * TOKENS + columns * q];
        float w0 = num::normal_e8m0(bytes0, i), w1 = num::normal_e8m0(bytes1, i);
#pragma unroll
        for (int c = 0; c < columns; c++) {
            acc[c] = __fmaf_rn(part[i][c], __fmul_rn(x[c], w0), acc[c]);
            acc[2 + c] = __fmaf_rn(part[i][2 + c], __fmul_rn(x[c], w1), acc[2 + c]);
        }
    }
}

template <int TOKENS>
__device__ void multiply(const expert_params &p, shared_memory &s, const copier &c, float (&acc)[4],
                         int &turn)
{
    int lane = threadIdx.x % 32, row = int(threadIdx.x) / 32 * 16 + lane / 4;
    int n = p.k / stage_k;
    const e2m1::table t = s.plain;
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] = 0;
#pragma unroll 1
    for (int stage = 0; stage < stages - 1; stage++) {
        if (stage < n) copy_stage(s, c, (turn + stage) % stages, stage);
        ptx::cp_async_commit_group();
    }
#pragma unroll 1
    for (int stage = 0; stage < n; stage++, turn++) {
        int slot = turn % stages;
        ptx::cp_async_wait_group<stages - 2>();
        ptx::bar_sync(1, compute_threads);
        if (stage + stages - 1 < n)
            copy_stage(s, c, (turn + stages - 1) % stages, stage + stages - 1);
        ptx::cp_async_commit_group();
        uint2 s0 = *reinterpret_cast<const uint2 *>(&s.scales[slot][row * stage_blocks]);
        uint2 s1 = *reinterpret_cast<const uint2 *>(&s.scales[slot][(row + 8) * stage_blocks]);
        constexpr uint32_t one = 0x01010101;
        ptx::mbarrier_wait(smem(&s.full[slot]), turn / stages & 1);
        multiply_four<TOKENS>(s, acc, slot, 0, s0.x + one, s1.x + one, t, -p.k);
        multiply_four<TOKENS>(s, acc, slot, 1, s0.y + one, s1.y + one, t, -p.k);
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(smem(&s.empty[slot]));
    }
}

/* A thread has weight rows r and r + 8 for one or two pairs. */
template <bool UP, int TOKENS>
__device__ void store(const expert_params &p, const shared_memory &s, const float (&acc)[4],
                      int first)
{
    constexpr int columns = TOKENS / 4;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4;
#pragma unroll
    for (int c = 0; c < columns; c++) {
        int token = lane % 4 * columns + c;
        if (token >= s.n_pairs) continue;
        int64_t pair = s.pair[token];
        uint16_t *out = p.out + pair * p.width + first;
        if constexpr (UP) {
            out[warp * 8 + r] = expert_swiglu(acc[c], acc[2 + c], p.limit, p.weights[pair]);
        } else {
            out[warp * 16 + r] = num::f32_to_bf16(acc[c]);
            out[warp * 16 + r + 8] = num::f32_to_bf16(acc[2 + c]);
        }
    }
}

template <bool UP, int TOKENS>
__global__ void __launch_bounds__(threads, blocks_per_processor)
    experts_decode(const __grid_constant__ expert_params p)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    shared_memory &s = *reinterpret_cast<shared_memory *>(memory);
    constexpr int channels = UP ? rows / 2 : rows;
    ptx::griddepcontrol_launch_dependents(); /* the next kernel waits for the end of this one */
    if (threadIdx.x == 0) {
        s.plain = e2m1::plain();
        for (int i = 0; i < stages; i++) {
            ptx::mbarrier_init(smem(&s.full[i]), threads - compute_threads);
            ptx::mbarrier_init(smem(&s.empty[i]), compute_threads / 32);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::griddepcontrol_wait();
    int slices = p.width / channels, tiles, turn = 0;
    if (p.listed) {
        tiles = *p.lists.n_tiles;
    } else {
        find_leaders(p, s);
        tiles = s.n_leaders;
    }
    for (int item = int(blockIdx.x); item < tiles * slices; item += int(gridDim.x)) {
        int expert = find_pairs(p, s, item / slices), first = item % slices * channels;
        if (threadIdx.x >= compute_threads) {
            bring_records<TOKENS>(p, s, turn);
            continue;
        }
        copier c = make_copier<UP>(p, expert, first);
        float acc[4];
        multiply<TOKENS>(p, s, c, acc, turn);
        store<UP, TOKENS>(p, s, acc, first);
    }
}

template <bool UP, int TOKENS> dsf_status launch(cudaStream_t stream, const expert_params &p)
{
    int processors = 0;
    DSF_TRY(dsf_multiprocessors(&processors));
    return launch_early(
        stream, {unsigned(processors * blocks_per_processor), threads, sizeof(shared_memory)},
        experts_decode<UP, TOKENS>, p);
}

template <bool UP> dsf_status run(cudaStream_t stream, const expert_params &p)
{
    return p.lists.tile_rows == 4 ? launch<UP, 4>(stream, p) : launch<UP, 8>(stream, p);
}

} // namespace

dsf_status dsf_experts_decode_up(cudaStream_t stream, const expert_params &p)
{
    return run<true>(stream, p);
}

dsf_status dsf_experts_decode_down(cudaStream_t stream, const expert_params &p)
{
    return run<false>(stream, p);
}
