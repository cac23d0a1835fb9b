/* The many-row expert kernel's block (experts_fp8.cu): its constants, its shared memory, its work,
 * and the warpgroup that expands weights. */
#ifndef DSF_SM90_EXPERTS_EXPAND_CUH
#define DSF_SM90_EXPERTS_EXPAND_CUH

#include "sm90/experts_fp8.cuh"

namespace
{

using ptx::smem;

constexpr int group_threads = 128, groups = 3, threads = groups * group_threads;
constexpr int tile_m = DSF_EXPERTS_TILE_ROWS, tile_n = DSF_EXPERTS_TILE_COLS;
constexpr int stage_k = DSF_EXPERTS_STAGE_K, stage_blocks = stage_k / 32;
constexpr int stages = 3;
/* Columns of a multiplying warpgroup: three chunks, one a wgmma; two are in flight. Split: one. */
constexpr int chunks = 3;
/* Registers: the block has 384 x 168 = 128 x 72 + 256 x 216. */
constexpr int expand_registers = 72, multiply_registers = 216;
/* Tiles whose facts are kept: with at least two stages a tile, the expander is less than four ahead
 * of the multipliers' epilogue. */
constexpr int facts_kept = 4;
constexpr int units = tile_n / 32; /* (row, block) pairs of a stage for each expanding thread */
constexpr int raw_stages = 4;      /* of codes on their way: 2 us, more than the memory is away */
constexpr int record_stages = 3;
constexpr int stage_row = 208; /* bytes: 96 bf16 and one access width against bank conflicts */
/* The first scale byte of a row from which no sum can leave the normal range. */
constexpr int least_first = 64;

struct tile_facts {
    int32_t pair[tile_m];    /* -1: none */
    uint32_t record[tile_m]; /* byte offset */
    float weight[tile_m];
    float first[tile_n]; /* 2^first of each weight row; 1 in a misfit's second pass */
    uint8_t first_byte[tile_n];
    int32_t rows, misfit;
};

struct shared_memory {
    alignas(1024) uint8_t b[stages][tile_n * stage_k];
    alignas(128) uint8_t a[record_stages][2 * 4][16 * stage_k]; /* a warp's 16 records */
    uint4 raw[raw_stages][units * group_threads];               /* codes as they come */
    uint32_t raw_scale[raw_stages][tile_n];
    uint32_t record_scale[record_stages][2 * 4][16];  /* four ue8m0 bytes */
    float weight_scale[stages][stage_blocks][tile_n]; /* misfit only */
    alignas(16) uint8_t staging[2 * 4][16 * stage_row];
    tile_facts facts[facts_kept];
    int32_t items;
    alignas(8) uint64_t full[stages], empty[stages];
};

static_assert(sizeof(shared_memory) <= DSF_SM90_BLOCK_SHARED, "what a block may have");
static_assert(group_threads * (expand_registers + 2 * multiply_registers) <= threads * 168,
              "setmaxnreg waits for ever for more than the block starts with");

/* A place in the ring of stages. */
struct ring {
    int slot;
    uint32_t phase;
    __device__ void advance()
    {
        if (++slot == stages) {
            slot = 0;
            phase ^= 1;
        }
    }
};

template <bool UP> constexpr int tile_channels = UP ? tile_n / 2 : tile_n;

/* Work item: a tile of pairs and a tile of columns; the columns of one tile of pairs follow one
 * another, so that its records and, from the next tile of the same expert, its weights are found in
 * the L2. The last column tile ends with the row and may overlap the one before: equal bits. */
struct work {
    int n; /* items before, in this block */

    __device__ int item() const { return int(blockIdx.x + unsigned(n) * gridDim.x); }
    __device__ bool more(const shared_memory &s) const { return item() < s.items; }
    __device__ dsf_experts_tile tile(const expert_params &p) const
    {
        return p.lists.tiles[item() / p.column_tiles];
    }
    template <bool UP> __device__ int channel(const expert_params &p) const
    {
        return min(item() % p.column_tiles * tile_channels<UP>, p.width - tile_channels<UP>);
    }
};

/* ---- the expanding warpgroup: the last, so that the others go first where they compete ---- */

__device__ int thread() { return int(threadIdx.x) % group_threads; }

/* Row of the tile of an expanding thread's unit j. */
__device__ int unit_row(int j) { return thread() / 32 * (units * 8) + j * 8 + thread() % 32 / 4; }

/* What an expanding thread reads: block threadIdx % 4 of its units' rows. */
struct weight_rows {
    const uint8_t *codes, *scales; /* of the block; of the row */
    int step;                      /* bytes of codes from j to j + 1; of scales: a 16th */
};

template <bool UP> __device__ weight_rows find_rows(const expert_params &p, int expert, int first)
{
    int row = unit_row(0);
    const expert_table &w = UP && (row & 1) ? p.w[1] : p.w[0];
    int64_t channel = first + (UP ? row / 2 : row);
    weight_rows r;
    r.step = (UP ? 4 : 8) * (p.k / 2);
    r.codes = w.codes_of(expert) + channel * (p.k / 2) + thread() % 4 * 16;
    r.scales = w.scales_of(expert) + channel * (p.k / 32);
    return r;
}

/* Pairs, records and first scales of a tile. All expanding threads; the caller waits for them. */
template <bool UP>
__device__ void note_facts(const expert_params &p, const dsf_experts_tile &tile,
                           const weight_rows &rows, tile_facts &f)
{
    int t = thread();
    int32_t pair = p.lists.order[tile.first + (t < tile.rows ? t : 0)];
    f.pair[t] = t < tile.rows ? pair : -1;
    f.record[t] = uint32_t(pair / p.slots) * uint32_t(p.k + p.k / 32);
    if (UP) f.weight[t] = p.weights[pair];
    if (t == 0) {
        f.rows = tile.rows;
        f.misfit = 0;
    }
    if (t % 4) return; /* whose scales begin with the row's first */
#pragma unroll
    for (int j = 0; j < units; j++) {
        uint8_t first = __ldg(rows.scales + j * (rows.step / 16));
        f.first[unit_row(j)] = num::e8m0_to_f32(first);
        f.first_byte[unit_row(j)] = first;
    }
}

/* True when a row of the tile that the thread looks at starts too low for the folded form. */
__device__ bool too_small(const tile_facts &f)
{
    int t = thread();
    return f.first_byte[t] < least_first ||
           f.first_byte[min(t + group_threads, tile_n - 1)] < least_first;
}

/* Codes and scales on their way. A thread reads back what it copied itself; a row's scales are
 * copied by one of its four threads, a warp's own. */
__device__ void copy_units(shared_memory &s, const weight_rows &r, int stage)
{
    int slot = stage % raw_stages, t = thread();
    uint32_t dst = smem(&s.raw[slot][t]);
    const uint8_t *codes = r.codes + stage * (stage_k / 2);
    const uint8_t *scales = r.scales + stage * stage_blocks;
#pragma unroll
    for (int j = 0; j < units; j++)
        ptx::cp_async_16(dst + j * group_threads * 16, codes + j * r.step);
#pragma unroll
    for (int j = 0; j < units; j += 4) {
        int mine = j + t % 4;
        if (mine < units)
            ptx::cp_async_4(smem(&s.raw_scale[slot][unit_row(mine)]),
                            scales + mine * (r.step / 16));
    }
}

/* One block of one row: 32 codes to 32 bytes at dst and dst2. */
__device__ void expand_block(const e2m1::table &t, const uint4 &codes, uint8_t *dst, uint8_t *dst2)
{
    uint4 low, high;
    e2m1::expand(t, codes.x, low.x, low.y);
    e2m1::expand(t, codes.y, low.z, low.w);
    e2m1::expand(t, codes.z, high.x, high.y);
    e2m1::expand(t, codes.w, high.z, high.w);
    *reinterpret_cast<uint4 *>(dst) = low;
    *reinterpret_cast<uint4 *>(dst2) = high;
}

/* A unit as it came. */
struct raw_unit {
    uint4 codes;
    uint32_t scale, first;
    __device__ __forceinline__ void read(const shared_memory &s, const tile_facts &f, int raw,
                                         int j)
    {
        codes = s.raw[raw][j * group_threads + thread()];
        scale = reinterpret_cast<const uint8_t *>(&s.raw_scale[raw][unit_row(j)])[thread() % 4];
        first = f.first_byte[unit_row(j)];
    }
};

/* A stage of the thread's units; returns the largest shift met. MISFIT: codes as they are, scales
 * beside them. */
template <bool MISFIT>
__device__ uint32_t expand_stage(shared_memory &s, const tile_facts &f, int stage, int slot,
                                 uint32_t worst)
{
    int block = thread() % 4, raw = stage % raw_stages, row8 = thread() % 32 / 4;
    uint32_t dst = uint32_t(unit_row(0)) * stage_k + ((2 * block ^ row8) * 16);
    uint8_t *b = s.b[slot];
    raw_unit unit[2]; /* read one ahead: the compiler may not move reads over the stores */
    unit[0].read(s, f, raw, 0);
#pragma unroll
    for (int j = 0; j < units; j++) {
        if (j + 1 < units) unit[(j + 1) % 2].read(s, f, raw, j + 1);
        const raw_unit &u = unit[j % 2];
        e2m1::table t = e2m1::plain();
        if constexpr (MISFIT) {
            s.weight_scale[slot][block][unit_row(j)] = num::e8m0_to_f32(uint8_t(u.scale));
        } else {
            uint32_t shift = u.scale - u.first + e2m1::least;
            worst = max(worst, shift);
            t = e2m1::shifted(shift);
        }
        expand_block(t, u.codes, b + dst + j * 8 * stage_k, b + (dst ^ 16) + j * 8 * stage_k);
    }
    return worst;
}

template <bool MISFIT>
__device__ void expand_tile(const expert_params &p, shared_memory &s, tile_facts &f,
                            const weight_rows &rows, ring &at)
{
    int n = p.k / stage_k;
    uint32_t worst = 0;
#pragma unroll 1
    for (int stage = 0; stage < raw_stages - 1; stage++) {
        if (stage < n) copy_units(s, rows, stage);
        ptx::cp_async_commit_group();
    }
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        /* into what the stage before was read from */
        if (stage + raw_stages - 1 < n) copy_units(s, rows, stage + raw_stages - 1);
        ptx::cp_async_commit_group();
        ptx::mbarrier_wait(smem(&s.empty[at.slot]), at.phase ^ 1);
        ptx::cp_async_wait_group<raw_stages - 1>();
        __syncwarp();
        worst = expand_stage<MISFIT>(s, f, stage, at.slot, worst);
        if (!MISFIT && stage == n - 1 && worst > e2m1::most) f.misfit = 1;
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(smem(&s.full[at.slot]));
        at.advance();
    }
}

template <bool UP> __device__ void expand_all(const expert_params &p, shared_memory &s)
{
    ring at = {0, 0};
    for (work w = {0}; w.more(s); w.n++) {
        dsf_experts_tile tile = w.tile(p);
        tile_facts &f = s.facts[w.n % facts_kept];
        weight_rows rows = find_rows<UP>(p, tile.expert, w.channel<UP>(p));
        note_facts<UP>(p, tile, rows, f);
        ptx::bar_sync(1, group_threads);
        if (too_small(f)) f.misfit = 1;
        expand_tile<false>(p, s, f, rows, at);
        ptx::bar_sync(1, group_threads);
        if (!f.misfit) continue;
        for (int i = thread(); i < tile_n; i += group_threads) f.first[i] = 1;
        ptx::hide(rows.step); /* or the first pass would keep addresses for this one */
        expand_tile<true>(p, s, f, rows, at);
    }
}

} // namespace

#endif
