/* wo_a: group g of x (bf16) times its own block of fp8 weights, which expand to bf16 exactly: a
 * code has 4 significant bits, a scale is a power of two.
 *
 * Few rows: the weights stream past once as fp8 and become the register operand of the tensor core.
 * Tile: 64 columns x N tokens and all of K; four consumer warpgroups take the segments (512
 * channels) in turn, from rings of their own; the running sum goes from one to the next through
 * shared memory, segments ascending. Stages of 128 channels: 8 KiB of weights, N x 256 bytes of
 * tokens. HBM brings 19 weights a cycle and SM; expanding two takes 6 instructions (load, PRMT,
 * LOP3, 2 IMAD, HMUL2), 1.8 warp instructions a cycle of the 4 that an SM issues. 8 tokens go by
 * mma.sync, which has the bits of wgmma (measured): there four dependent wgmma take longer than the
 * bytes of their weights. More tokens go by wgmma, which reads them from shared memory once for
 * four warps.
 *
 * Many rows: the weights are expanded once into the workspace (3 bytes moved a weight, 25 us for
 * 33.5 M) and linear_bf16.cu multiplies: at 8,192 rows 3% of its time. */
#include "sm90/linear_tc.cuh"

using namespace linear_tc;

namespace
{

constexpr int tile_columns = DSF_LINEAR_GROUP_COLUMNS;
constexpr int channels = DSF_LINEAR_GROUP_CHANNELS; /* of a stage */
constexpr int per_segment = segment / channels;
constexpr int code_bytes = tile_columns * channels;
constexpr int groups = DSF_LINEAR_GROUP_RINGS; /* warpgroups of consumers */
constexpr int consumers = groups * 128;
constexpr int threads = consumers + 128; /* the producer's warpgroup gives its registers away */
/* A block starts with what ptxas gives 640 threads, and no warpgroup may ask for more than is left
 * of that: it would wait for ever. */
constexpr int start_registers = 96;
constexpr int producer_registers = 24, consumer_registers = 112;
constexpr int most_stages = DSF_LINEAR_GROUP_STAGES;
constexpr int most_scales = 2 * DSF_LINEAR_GROUP_MOST_K / 32;
constexpr int shared_head = DSF_LINEAR_GROUP_HEAD; /* barriers, then scales */
static_assert(producer_registers * 128 + consumer_registers * consumers <=
                  start_registers * threads,
              "registers of the block");
static_assert(2 * 8 * groups * most_stages + most_scales <= shared_head, "before the stages");

template <int N> constexpr int stage_bytes = code_bytes + 2 * N *row_bytes;

struct shape {
    int64_t n, k, o;
    int column_tiles, token_tiles, stages, segments;
    linear_plain::grouped plain;
};

/* Two codes as bf16 times 2^-120: exponent and fraction in place, the bias is off by 120; the sign
 * goes from bit 7 to bit 15. The shift and the sum are for the multipliers: the unit of PRMT and
 * LOP3 takes two cycles a warp and would be the narrowest. HIGH: bytes 2 and 3 of the word. */
template <bool HIGH = false> __device__ inline uint32_t widen(uint32_t codes)
{
    uint32_t spread = __byte_perm(codes, 0, HIGH ? 0x4342 : 0x4140), sign = spread & 0x00800080u;
    return sign * 240u + spread * 16u;
}

__device__ inline uint32_t multiply(uint32_t a, uint32_t b)
{
    __nv_bfloat162 y =
        __hmul2(*reinterpret_cast<__nv_bfloat162 *>(&a), *reinterpret_cast<__nv_bfloat162 *>(&b));
    return *reinterpret_cast<uint32_t *>(&y);
}

/* 2^(120 + k) twice for the scale byte k + 127, in two factors: 2^60 and the rest are normal, so is
 * the product between them. Up to k = 7 one factor holds it. */
constexpr uint32_t lift = (127u + 60u) * 0x00800080u;
constexpr uint32_t one_factor = 134; /* the largest scale byte */
__device__ inline uint32_t rest_of(uint32_t scale) { return (60u + scale) * 0x00800080u; }
__device__ inline uint32_t whole_of(uint32_t scale) { return (120u + scale) * 0x00800080u; }

template <bool ONE_FACTOR, bool HIGH = false>
__device__ inline uint32_t expand(uint32_t codes, uint32_t factor)
{
    uint32_t y = widen<HIGH>(codes);
    return multiply(ONE_FACTOR ? y : multiply(y, lift), factor);
}
template <bool ONE_FACTOR> __device__ inline uint32_t factor_of(uint32_t scale)
{
    return ONE_FACTOR ? whole_of(scale) : rest_of(scale);
}

/* ---- many rows ---- */

/* One thread: 16 codes of one row. */
__global__ void __launch_bounds__(256)
    expand_kernel(const uint8_t *codes, const uint8_t *scales, uint16_t *out, int64_t n, int64_t k)
{
    ptx::griddepcontrol_launch_dependents();
    int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n / 16) return;
    int64_t row = i / (k / 16), c = i % (k / 16) * 16;
    uint32_t rest = rest_of(scales[row / 32 * (k / 32) + c / 32]);
    uint4 v = ptx::ld_global_nc_v4(codes + 16 * i);
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
    uint32_t y[8];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        y[j] = expand<false>(word[j / 2], rest);
        y[j + 1] = expand<false, true>(word[j / 2], rest);
    }
    uint4 *to = reinterpret_cast<uint4 *>(out + 16 * i);
    ptx::griddepcontrol_wait(); /* the workspace may still be someone's */
    to[0] = make_uint4(y[0], y[1], y[2], y[3]);
    to[1] = make_uint4(y[4], y[5], y[6], y[7]);
}

/* ---- few rows ---- */

/* Ring g has the segments g, g + 4, ..: the block of 128 channels in its stage number i. */
__device__ inline int block_of(int g, int i)
{
    return (i / per_segment * groups + g) * per_segment + i % per_segment;
}

__device__ inline uint32_t full(uint32_t bars, int slot) { return bars + 8 * slot; }
__device__ inline uint32_t empty(uint32_t bars, int slot)
{
    return bars + 8 * (groups * most_stages + slot);
}

struct position {
    int64_t group, column, token;
};

__device__ inline position position_of(const shape &p)
{
    int token = blockIdx.x % p.token_tiles, rest = blockIdx.x / p.token_tiles;
    return {rest / p.column_tiles, int64_t(rest % p.column_tiles) * tile_columns, token};
}

template <int N> struct producer {
    const CUtensorMap *w, *x;
    const shape &p;
    position at;
    uint32_t bars, data;

    __device__ uint32_t stage(int slot) const { return data + slot * stage_bytes<N>; }

    __device__ void ask_weights(int slot, int block) const
    {
        ptx::mbarrier_arrive_expect_tx(full(bars, slot), stage_bytes<N>);
        ptx::cp_async_bulk_tensor_2d(stage(slot), w, full(bars, slot), block * channels,
                                     int(at.group * p.o + at.column));
    }

    __device__ void ask_tokens(int slot, int block) const
    {
        int c = int(2 * (at.group * p.k + int64_t(block) * channels));
        uint32_t to = stage(slot) + code_bytes, bar = full(bars, slot);
        ptx::cp_async_bulk_tensor_2d(to, x, bar, c, int(at.token * N));
        ptx::cp_async_bulk_tensor_2d(to + N * row_bytes, x, bar, c + row_bytes, int(at.token * N));
    }

    __device__ void run() const
    {
        int all = int(p.k / channels), slots = groups * p.stages;
        for (int s = 0; s < slots; s++)
            if (block_of(s % groups, s / groups) < all)
                ask_weights(s % groups * p.stages + s / groups, block_of(s % groups, s / groups));
        ptx::griddepcontrol_wait();
        for (int s = 0; s < slots; s++)
            if (block_of(s % groups, s / groups) < all)
                ask_tokens(s % groups * p.stages + s / groups, block_of(s % groups, s / groups));
        ring r = {p.stages, 0, 0};
        for (int i = p.stages; block_of(0, i) < all; i++, r.next()) /* no ring has more */
            for (int g = 0; g < groups; g++) {
                int slot = g * p.stages + r.at, block = block_of(g, i);
                if (block >= all) continue;
                ptx::mbarrier_wait(empty(bars, slot), r.parity);
                ask_weights(slot, block);
                ask_tokens(slot, block);
            }
    }
};

/* Of the 4 scales of a stage. */
__device__ inline bool fits_one_factor(uint32_t scales)
{
    return __vcmpgtu4(scales, one_factor * 0x01010101u) == 0;
}

/* The warp's 16 rows of half a stage as 4 register operands of 16 channels: a lane takes the rows
 * lane / 4 and + 8, channels 2 (lane % 4), + 1, + 8, + 9. Rows are 128 swizzled bytes. */
struct operand {
    uint32_t step[4][4];
};

/* Where a lane's codes are in a stage; step q of 16 channels is at ^ 16 q (the swizzle). */
__device__ inline int lane_offset()
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    return row * channels + (lane / 4) * 16 + lane % 4 * 2;
}

/* `codes`: the lane's place in the stage. `scales`: the 4 bytes of the stage. */
template <bool ONE_FACTOR>
__device__ inline void expand_half(operand &a, uint32_t codes, uint32_t scales, int half)
{
    constexpr int down = 8 * channels, right = 8; /* to row + 8, to channel + 8 */
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint32_t from = codes ^ (4 * half + q) * 16, scale = scales >> (2 * half + q / 2) * 8 & 255;
        uint32_t factor = factor_of<ONE_FACTOR>(scale);
        const uint32_t pair[4] = {ptx::ld_shared_u16<0>(from), ptx::ld_shared_u16<down>(from),
                                  ptx::ld_shared_u16<right>(from),
                                  ptx::ld_shared_u16<down + right>(from)};
#pragma unroll
        for (int i = 0; i < 4; i++) a.step[q][i] = expand<ONE_FACTOR>(pair[i], factor);
    }
}

__device__ inline void expand_half(operand &a, uint32_t codes, uint32_t scales, int half)
{
    if (fits_one_factor(scales))
        expand_half<true>(a, codes, scales, half);
    else
        expand_half<false>(a, codes, scales, half);
}

/* tokens: 64 channels of N tokens. */
template <int N>
__device__ inline void multiply_half(float (&part)[N / 2], const operand &a, uint32_t tokens,
                                     bool first)
{
    uint64_t b = ptx::wgmma_desc_128b(tokens);
    ptx::wgmma_fence();
#pragma unroll
    for (int q = 0; q < 4; q++) ptx::wgmma<N>::bf16_rs(part, a.step[q], b + q * 2, !first || q > 0);
    ptx::wgmma_commit_group();
}

/* What a consumer works on. */
struct workshop {
    uint32_t bars, data;
    uint32_t lane; /* where the lane's codes and tokens are in a stage */
    uint32_t lane_tokens;
    const uint32_t *scales; /* of the warp's block of 32 columns, a word a stage */
    float *sum;             /* the running sum: [register][thread of a warpgroup] */
};

/* One segment: stages b .. end - 1. While the tensor cores work on one half of a stage, the other
 * is expanded. */
template <int N>
__device__ inline void sum_segment(float (&part)[N / 2], ring &r, const shape &p, const workshop &s,
                                   int b, int end)
{
    int base = threadIdx.x / 128 * p.stages, last = -1;
    bool leader = threadIdx.x % 32 == 0;
    operand left, right;
    for (; b < end; b++, r.next()) {
        int slot = base + r.at, offset = slot * stage_bytes<N>;
        uint32_t scale = s.scales[b], tokens = s.data + offset + code_bytes;
        uint32_t codes = s.data + offset + s.lane;
        ptx::mbarrier_wait(full(s.bars, slot), r.parity);
        ptx::wgmma_wait_group<1>();
        expand_half(left, codes, scale, 0);
        multiply_half<N>(part, left, tokens, last < 0);
        ptx::wgmma_wait_group<1>();
        if (leader && last >= 0) ptx::mbarrier_arrive(empty(s.bars, last));
        expand_half(right, codes, scale, 1);
        multiply_half<N>(part, right, tokens + N * row_bytes, false);
        last = slot;
    }
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(part);
    if (leader) ptx::mbarrier_arrive(empty(s.bars, last));
}

/* ---- 8 tokens: mma.sync takes both operands from registers. A sum of 16 products has no order in
 * the tensor core, so that a lane takes channels 4 c .. 4 c + 3 (c = lane % 4) of both: one load of
 * 4 codes, and one of 8 bytes of a token. ---- */

template <int N> constexpr bool by_warps = N <= 8;

/* Places in a stage: of the codes at ^ 16 q for step q, of the tokens of a half at ^ 32 q. */
__device__ inline int lane_codes()
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    return row * channels + (lane / 4) * 16 + lane % 4 * 4;
}

__device__ inline int lane_tokens()
{
    int lane = threadIdx.x % 32, c = lane % 4;
    return lane / 4 * row_bytes + (c / 2 ^ lane / 4) * 16 + c % 2 * 8;
}

template <int N, bool ONE_FACTOR>
__device__ inline void add_stage(float (&part)[N / 8][4], uint32_t codes, uint32_t tokens,
                                 uint32_t scales)
{
#pragma unroll
    for (int q = 0; q < 8; q++) {
        uint32_t from = codes ^ q * 16, row = ptx::ld_shared_u32(from);
        uint32_t below = ptx::ld_shared_u32(from + 8 * channels);
        uint32_t factor = factor_of<ONE_FACTOR>(scales >> q / 2 * 8 & 255);
        const uint32_t a[4] = {expand<ONE_FACTOR>(row, factor), expand<ONE_FACTOR>(below, factor),
                               expand<ONE_FACTOR, true>(row, factor),
                               expand<ONE_FACTOR, true>(below, factor)};
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            uint32_t b[2], half = tokens + (q / 4 * N + 8 * j) * row_bytes;
            ptx::ld_shared_v2_u32(b, half ^ q % 4 * 32);
            ptx::mma_m16n8k16_bf16(part[j], a, b);
        }
    }
}

template <int N>
__device__ inline void sum_segment_by_warps(float (&sum)[N / 2], ring &r, const shape &p,
                                            const workshop &s, int b, int end)
{
    float part[N / 8][4] = {};
    int base = threadIdx.x / 128 * p.stages;
    for (; b < end; b++, r.next()) {
        int slot = base + r.at;
        uint32_t stage = s.data + slot * stage_bytes<N>, codes = stage + s.lane;
        uint32_t tokens = stage + code_bytes + s.lane_tokens, scales = s.scales[b];
        ptx::mbarrier_wait(full(s.bars, slot), r.parity);
        if (fits_one_factor(scales))
            add_stage<N, true>(part, codes, tokens, scales);
        else
            add_stage<N, false>(part, codes, tokens, scales);
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty(s.bars, slot));
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) sum[i] = part[i / 4][i % 4];
}

/* The sum up to here, from the warpgroup of the segment before. The order of all accesses to it is
 * that of the named barriers, one for each pair of neighbours in turn: a warpgroup writes it and
 * arrives, the next one waits, reads, writes (each thread the places it has read) and arrives at
 * its own. (racecheck doesn't follow bar.arrive, and reports the pair.) */
template <int N> __device__ inline void add_before(float (&part)[N / 2], const workshop &s, int i)
{
    if (i == 0) {
#pragma unroll
        for (int j = 0; j < N / 2; j++) part[j] = __fadd_rn(0.0f, part[j]);
        return;
    }
    ptx::bar_sync(1 + (i - 1) % groups, 256);
#pragma unroll
    for (int j = 0; j < N / 2; j++)
        part[j] = __fadd_rn(s.sum[j * 128 + threadIdx.x % 128], part[j]);
}

/* Is a scale of the warp's columns below the least that the tensor core takes? */
__device__ inline bool has_small(const uint32_t *scales, int words)
{
    bool small = false;
    for (int i = threadIdx.x % 32; i < words; i += 32)
        small |= __vcmpltu4(scales[i], least_scale * 0x01010101u) != 0;
    return __any_sync(0xFFFFFFFFu, small);
}

template <int N>
__device__ inline void consume(const shape &p, const position &at, const workshop &s, uint16_t *out)
{
    float part[N / 2];
    int all = int(p.k / channels);
    ring r = {p.stages, 0, 0};
    for (int i = threadIdx.x / 128; i < p.segments; i += groups) {
        int b = i * per_segment, end = min(b + per_segment, all);
        if constexpr (by_warps<N>)
            sum_segment_by_warps<N>(part, r, p, s, b, end);
        else
            sum_segment<N>(part, r, p, s, b, end);
        add_before<N>(part, s, i);
        if (i + 1 == p.segments) break;
#pragma unroll
        for (int j = 0; j < N / 2; j++) s.sum[j * 128 + threadIdx.x % 128] = part[j];
        ptx::bar_arrive(1 + i % groups, 256);
    }
    if (threadIdx.x / 128 != (p.segments - 1) % groups) return;
    int64_t column = at.column + threadIdx.x / 32 % 4 * 16;
    place to = {at.token * N, p.n, column, p.o, p.plain.groups * p.o};
    store_tile(out + at.group * p.o, to, part, N / 2);
    if (column < p.o && has_small(s.scales, all)) redo_columns(p.plain, to, at.group, N, p.k);
}

/* The scales of the tile's two blocks of 32 columns, a block behind the last as the last. */
__device__ inline void load_scales(uint8_t *to, const shape &p, const position &at)
{
    int scales = int(p.k / 32);
    int64_t first = (at.group * p.o + at.column) / 32, last = ((at.group + 1) * p.o) / 32 - 1;
    for (int i = threadIdx.x; i < 2 * scales; i += consumers)
        to[i] = p.plain.s[min(first + i / scales, last) * scales + i % scales];
}

template <int N>
__global__ void __launch_bounds__(threads, 1)
    few_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ shape p, uint16_t *out)
{
    extern __shared__ uint8_t shared[];
    ptx::griddepcontrol_launch_dependents();
    uint32_t start = ptx::smem(shared),
             data = (start + shared_head + alignment - 1) / alignment * alignment;
    uint8_t *scales = shared + 2 * 8 * groups * most_stages, *stages = shared + (data - start);
    position at = position_of(p);
    if (threadIdx.x == 0) {
        for (int i = 0; i < groups * p.stages; i++) {
            ptx::mbarrier_init(full(start, i), 1);
            ptx::mbarrier_init(empty(start, i), 4);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= consumers) {
        ptx::setmaxnreg_dec<producer_registers>();
        if (threadIdx.x == consumers) producer<N>{&w, &x, p, at, start, data}.run();
    } else {
        ptx::setmaxnreg_inc<consumer_registers>();
        load_scales(scales, p, at);
        ptx::bar_sync(1 + groups, consumers);
        const uint32_t *words = reinterpret_cast<const uint32_t *>(scales);
        float *sum = reinterpret_cast<float *>(stages + groups * p.stages * stage_bytes<N>);
        words += threadIdx.x / 64 % 2 * int(p.k / channels);
        uint32_t lane = uint32_t(by_warps<N> ? lane_codes() : lane_offset());
        consume<N>(p, at, {start, data, lane, uint32_t(lane_tokens()), words, sum}, out);
    }
}

template <int N> dsf_status launch_few(const job &j, shape p)
{
    CUtensorMap w, x;
    int64_t all = j.groups * j.k * 2;
    dsf_byte_matrix mw = {j.plain.w, j.groups * j.o,         j.k,
                          j.k,       uint32_t(tile_columns), uint32_t(channels)};
    dsf_byte_matrix mx = {j.x, j.n, all, all, uint32_t(N), uint32_t(row_bytes)};
    DSF_TRY(dsf_tensormap_bytes(&w, mw, CU_TENSOR_MAP_SWIZZLE_128B));
    DSF_TRY(dsf_tensormap_bytes(&x, mx, CU_TENSOR_MAP_SWIZZLE_128B));
    p.token_tiles = int((j.n + N - 1) / N);
    return launch(few_kernel<N>, j.groups * p.column_tiles * p.token_tiles, threads, 1, j, w, x, p);
}

dsf_status run_few_rows(const job &j)
{
    int segments = int((j.k + segment - 1) / segment);
    shape p = {j.n, j.k,           j.o,      int((j.o + tile_columns - 1) / tile_columns),
               0,   j.tile.stages, segments, j.plain};
    switch (j.tile.tokens) {
    case 8:
        return launch_few<8>(j, p);
    case 16:
        return launch_few<16>(j, p);
    case 32:
        return launch_few<32>(j, p);
    default:
        return launch_few<64>(j, p);
    }
}

dsf_status expand_weights(const job &j)
{
    int64_t n = j.groups * j.o * j.k;
    return launch_early(j.stream, {dsf_blocks(n / 16, 256), 256}, expand_kernel, j.plain.w,
                        j.plain.s, static_cast<uint16_t *>(const_cast<void *>(j.w)), n, j.k);
}

} // namespace

extern "C" dsf_status dsf_linear_group_sm90tc(const dsf_launch *lc, const void *args)
{
    const dsf_linear_group_args *a = static_cast<const dsf_linear_group_args *>(args);
    int64_t groups = a->w.dim[0], o = a->w.dim[1];
    job j = {lc->scratch, a->x.data, a->out.data, a->out.dim[0], a->w.dim[2], o, groups,
             {},          false,     {},          dsf_stream(lc)};
    j.plain = {data_of<uint16_t>(a->x),
               data_of<uint8_t>(a->w),
               data_of<uint8_t>(a->s),
               data_of<uint16_t>(a->out),
               o,
               groups};
    j.tile = dsf_tune_linear_group(j.n, j.o, j.groups);
    if (!j.tile.many) return run_few_rows(j);
    DSF_TRY(expand_weights(j));
    return run_many(j);
}
