/* experts_up and experts_down on the fp8 tensor cores, for many rows: EXPERTS.md.
 *
 * Tile: 128 pairs of one expert (M) by 192 weight rows (N; up: 96 channels, w1 and w3 alternating,
 * so that a thread holds both sums of a channel). Stage: 128 channels of K. One warpgroup expands
 * codes to e4m3 in shared memory (B); two warpgroups multiply, 64 pairs each, or, where a tile has
 * at most 64 pairs, half of the columns each. Each multiplying warp copies the records of its 16
 * pairs itself (A), by cp.async, two stages ahead.
 *
 * Arithmetic of an element: for each block of 32 channels part = one wgmma from zero, then
 * acc = fma(part, sx sw, acc), blocks ascending. sx is one number for a row of A: two registers.
 * sw would be one for each column, so it goes into the codes: a weight row is expanded relative to
 * its first scale, 2^(sw - first + part of the code), and the epilogue multiplies by 2^first.
 * Powers of two commute with every rounding here (no sum falls below the normal range: first scale
 * at least 2^-63, all terms multiples of 2^-104). A row whose scales do not fit (a factor of
 * 2^-5..2^6 around the first) makes the tile repeat its K loop with the product sx sw for each
 * element: same bits, slower.
 */
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

/* ---- the expanding warpgroup ---- */

/* Row of the tile of an expanding thread's unit j. */
__device__ int unit_row(int j)
{
    return int(threadIdx.x) / 32 * (units * 8) + j * 8 + int(threadIdx.x) % 32 / 4;
}

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
    r.codes = w.codes_of(expert) + channel * (p.k / 2) + threadIdx.x % 4 * 16;
    r.scales = w.scales_of(expert) + channel * (p.k / 32);
    return r;
}

/* Pairs, records and first scales of a tile. All expanding threads; the caller waits for them. */
template <bool UP>
__device__ void note_facts(const expert_params &p, const dsf_experts_tile &tile,
                           const weight_rows &rows, tile_facts &f)
{
    int t = threadIdx.x;
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
    int t = threadIdx.x;
    return f.first_byte[t] < least_first ||
           f.first_byte[min(t + group_threads, tile_n - 1)] < least_first;
}

/* Codes and scales on their way. A thread reads back what it copied itself; a row's scales are
 * copied by one of its four threads, a warp's own. */
__device__ void copy_units(shared_memory &s, const weight_rows &r, int stage)
{
    int slot = stage % raw_stages, t = threadIdx.x;
    uint32_t dst = smem(&s.raw[slot][t]);
    const uint8_t *codes = r.codes + stage * (stage_k / 2);
    const uint8_t *scales = r.scales + stage * stage_blocks;
#pragma unroll
    for (int j = 0; j < units; j++)
        ptx::cp_async_16(dst + j * group_threads * 16, codes + j * r.step, 16);
#pragma unroll
    for (int j = 0; j < units; j += 4) {
        int mine = j + t % 4;
        if (mine < units)
            ptx::cp_async_4(smem(&s.raw_scale[slot][unit_row(mine)]), scales + mine * (r.step / 16),
                            4);
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
        codes = s.raw[raw][j * group_threads + threadIdx.x];
        scale = reinterpret_cast<const uint8_t *>(&s.raw_scale[raw][unit_row(j)])[threadIdx.x % 4];
        first = f.first_byte[unit_row(j)];
    }
};

/* A stage of the thread's units; returns the largest shift met. MISFIT: codes as they are, scales
 * beside them. */
template <bool MISFIT>
__device__ uint32_t expand_stage(shared_memory &s, const tile_facts &f, int stage, int slot,
                                 uint32_t worst)
{
    int block = threadIdx.x % 4, raw = stage % raw_stages, row8 = threadIdx.x % 32 / 4;
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
        for (int i = threadIdx.x; i < tile_n; i += group_threads) f.first[i] = 1;
        ptx::hide(rows.step); /* or the first pass would keep addresses for this one */
        expand_tile<true>(p, s, f, rows, at);
    }
}

/* ---- the multiplying warpgroups ---- */

/* A warp's place in a tile. SPLIT: both warpgroups have the same rows, each half of the columns. */
struct place {
    int warp;   /* 0..7 */
    int row;    /* of the tile: the warp's 16 begin here */
    int column; /* of the tile: the warpgroup's columns begin here */

    __device__ place(bool split) : warp(int(threadIdx.x) / 32 - 4)
    {
        row = (split ? 0 : warp / 4 * 64) + warp % 4 * 16;
        column = split ? warp / 4 * (tile_n / 2) : 0;
    }
};

/* The warp's records of a stage: rows of 128 bytes, the index of 16 bytes xored with row % 8. COPY:
 * what records are a multiple of, 8 or 16 bytes. */
template <int COPY>
__device__ void copy_records(const expert_params &p, shared_memory &s, const tile_facts &f,
                             const place &at, int stage)
{
    constexpr int per_row = stage_k / COPY, rows = 32 / per_row;
    int slot = stage % record_stages, lane = threadIdx.x % 32;
    int row = lane / per_row, byte = lane % per_row * COPY;
    uint32_t dst = smem(s.a[slot][at.warp]) + row * stage_k + byte % 16;
    const uint8_t *src = p.records + (stage * stage_k + byte);
#pragma unroll
    for (int i = 0; i < 16 / rows; i++) {
        const uint8_t *from = src + f.record[at.row + row + i * rows];
        uint32_t to = dst + i * rows * stage_k + ((byte / 16 ^ (row + i * rows) % 8) * 16);
        if constexpr (COPY == 16)
            ptx::cp_async_16(to, from, COPY);
        else
            ptx::cp_async_8(to, from, COPY);
    }
    if (lane < 16)
        ptx::cp_async_4(smem(&s.record_scale[slot][at.warp][lane]),
                        p.records + (f.record[at.row + lane] + p.k + stage * stage_blocks), 4);
}

/* The lane's fragment of block `block` of the stage at base. */
__device__ __forceinline__ void load_a(uint32_t (&a)[4], uint32_t base, int block)
{
    int lane = threadIdx.x % 32, chunk = 2 * block + lane / 16;
    ptx::ldmatrix_x4(a, base + lane % 16 * stage_k + ((chunk ^ (lane % 8)) * 16));
}

/* acc[c] = fma(part, s, acc[c]): s0 for the thread's first row, s1 for the second. */
template <int N, int M>
__device__ __forceinline__ void promote(float (&acc)[N], const float (&part)[M], int c, float s0,
                                        float s1)
{
#pragma unroll
    for (int i = 0; i < M; i++)
        acc[c * M + i] = __fmaf_rn(part[i], i & 2 ? s1 : s0, acc[c * M + i]);
}

__device__ __forceinline__ float scale_byte(uint32_t word, int block)
{
    return __uint_as_float((block == 3 ? word >> 1 : word << (23 - 8 * block)) & 0x7F800000u);
}

__device__ __forceinline__ void release(shared_memory &s, int slot)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem(&s.empty[slot]));
}

template <int N>
__device__ __forceinline__ void issue(float (&part)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                      int block, int c)
{
    ptx::wgmma_fence_operand(part);
    ptx::wgmma_fence();
    ptx::wgmma<N>::e4m3_rs(part, a, b + uint64_t((c * N * stage_k + block * 32) / 16), 0);
    ptx::wgmma_commit_group();
}

/* Two stages of records on their way. */
template <int COPY>
__device__ __forceinline__ void begin_records(const expert_params &p, shared_memory &s,
                                              const tile_facts &f, const place &at)
{
    __syncwarp(); /* what was there has been read */
    for (int stage = 0; stage < record_stages - 1; stage++) {
        copy_records<COPY>(p, s, f, at, stage);
        ptx::cp_async_commit_group();
    }
}

/* Waits for the records of a stage. */
__device__ __forceinline__ void wait_records()
{
    ptx::cp_async_wait_group<record_stages - 2>();
    __syncwarp();
}

/* Asks for the records two stages ahead: where those of the stage before were. */
template <int COPY>
__device__ __forceinline__ void next_records(const expert_params &p, shared_memory &s,
                                             const tile_facts &f, const place &at, int stage, int n)
{
    if (stage + record_stages - 1 < n) copy_records<COPY>(p, s, f, at, stage + record_stages - 1);
    ptx::cp_async_commit_group();
}

/* The K loop in chunks of N columns: while one is multiplied, the one before is promoted. Nothing
 * is in flight from one stage to the next: the compiler would serialise what crosses the loop's
 * end; the other warpgroup fills the gap. */
template <int COPY, int N, int CHUNKS>
__device__ __forceinline__ void multiply(const expert_params &p, shared_memory &s,
                                         const tile_facts &f, float (&acc)[CHUNKS * N / 2],
                                         const place &at, ring &r)
{
    constexpr int all = stage_blocks * CHUNKS;
    int n = p.k / stage_k, row = threadIdx.x % 32 / 4;
    float part[2][N / 2], scale[2][2];
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < CHUNKS * N / 2; i++) acc[i] = 0;
    begin_records<COPY>(p, s, f, at);
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        wait_records();
        uint32_t base = smem(s.a[stage % record_stages][at.warp]);
        const uint32_t *words = s.record_scale[stage % record_stages][at.warp];
        uint32_t word0 = words[row], word1 = words[row + 8];
        load_a(a[0], base, 0);
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase);
        uint64_t b = ptx::wgmma_desc_128b(smem(s.b[r.slot]) + at.column * stage_k);
        issue<N>(part[0], a[0], b, 0, 0);
        next_records<COPY>(p, s, f, at, stage, n);
#pragma unroll
        for (int i = 0; i < all; i++) {
            int block = (i + 1) / CHUNKS, c = (i + 1) % CHUNKS;
            if (i % CHUNKS == 0) {
                scale[i / CHUNKS % 2][0] = scale_byte(word0, i / CHUNKS);
                scale[i / CHUNKS % 2][1] = scale_byte(word1, i / CHUNKS);
            }
            if (i + 1 < all) {
                if (c == 0) load_a(a[block % 2], base, block);
                issue<N>(part[(i + 1) % 2], a[block % 2], b, block, c);
                ptx::wgmma_wait_group<1>();
            } else {
                ptx::wgmma_wait_group<0>();
                release(s, r.slot);
            }
            ptx::wgmma_fence_operand(part[i % 2]);
            promote(acc, part[i % 2], i % CHUNKS, scale[i / CHUNKS % 2][0],
                    scale[i / CHUNKS % 2][1]);
        }
        r.advance();
    }
}

/* The same with a scale for each element. */
template <int COPY, int N, int CHUNKS>
__device__ __forceinline__ void multiply_misfit(const expert_params &p, shared_memory &s,
                                                const tile_facts &f, float (&acc)[CHUNKS * N / 2],
                                                const place &at, ring &r)
{
    float part[N / 2];
    uint32_t a[4];
    int n = p.k / stage_k, row = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < CHUNKS * N / 2; i++) acc[i] = 0;
    begin_records<COPY>(p, s, f, at);
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        wait_records();
        next_records<COPY>(p, s, f, at, stage, n);
        const uint32_t *words = s.record_scale[stage % record_stages][at.warp];
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase);
        uint64_t b = ptx::wgmma_desc_128b(smem(s.b[r.slot]) + at.column * stage_k);
#pragma unroll 1
        for (int block = 0; block < stage_blocks; block++) {
            load_a(a, smem(s.a[stage % record_stages][at.warp]), block);
            float s0 = num::e8m0_to_f32(uint8_t(words[row] >> 8 * block));
            float s1 = num::e8m0_to_f32(uint8_t(words[row + 8] >> 8 * block));
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                issue<N>(part, a, b, block, c);
                ptx::wgmma_wait_group<0>();
                ptx::wgmma_fence_operand(part);
                const float *w = &s.weight_scale[r.slot][block][at.column + c * N + 2 * q];
#pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    float scale = __fmul_rn(i & 2 ? s1 : s0, w[i / 4 * 8 + (i & 1)]);
                    acc[c * (N / 2) + i] = __fmaf_rn(part[i], scale, acc[c * (N / 2) + i]);
                }
            }
        }
        release(s, r.slot);
        r.advance();
    }
}

/* Through the warp's staging rows to 16-byte stores. first: the tile's first channel. */
template <bool UP, int N, int CHUNKS>
__device__ void store(const expert_params &p, uint8_t *staging, const tile_facts &f,
                      const float (&acc)[CHUNKS * N / 2], const place &at, int64_t first)
{
    constexpr int channels = UP ? N / 2 : N; /* of a chunk */
    constexpr int pieces = channels / 8;     /* of 16 bytes, a row */
    int lane = threadIdx.x % 32, q = lane % 4, r = lane / 4;
    float weight0 = UP ? f.weight[at.row + r] : 0, weight1 = UP ? f.weight[at.row + r + 8] : 0;
    first += at.column / (UP ? 2 : 1);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const float *scale = &f.first[at.column + c * N + 2 * q];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float *v = &acc[c * (N / 2) + 4 * j];
            float s0 = scale[8 * j], s1 = scale[8 * j + 1];
            uint8_t *to = staging + r * stage_row + (4 * j + q) * (UP ? 2 : 4);
            if constexpr (UP) {
                *reinterpret_cast<uint16_t *>(to) =
                    expert_swiglu(v[0] * s0, v[1] * s1, p.limit, weight0);
                *reinterpret_cast<uint16_t *>(to + 8 * stage_row) =
                    expert_swiglu(v[2] * s0, v[3] * s1, p.limit, weight1);
            } else {
                *reinterpret_cast<uint32_t *>(to) = num::pack_bf16(v[0] * s0, v[1] * s1);
                *reinterpret_cast<uint32_t *>(to + 8 * stage_row) =
                    num::pack_bf16(v[2] * s0, v[3] * s1);
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * pieces / 32; i++) {
            int row = (i * 32 + lane) / pieces, piece = (i * 32 + lane) % pieces;
            int64_t pair = f.pair[at.row + row];
            if (pair >= 0)
                *reinterpret_cast<uint4 *>(p.out + pair * p.width + first + c * channels +
                                           piece * 8) =
                    *reinterpret_cast<const uint4 *>(staging + row * stage_row + piece * 16);
        }
        __syncwarp();
    }
}

template <bool UP, int COPY, int N, int CHUNKS>
__device__ __forceinline__ void multiply_tile(const expert_params &p, shared_memory &s,
                                              const tile_facts &f, const work &w, ring &r)
{
    float acc[CHUNKS * N / 2];
    const place at(N * CHUNKS < tile_n);
    multiply<COPY, N, CHUNKS>(p, s, f, acc, at, r);
    if (f.misfit) multiply_misfit<COPY, N, CHUNKS>(p, s, f, acc, at, r);
    int own = int(threadIdx.x) / 32 - 4;
    ptx::hide(own); /* or the address would take a register through the K loop */
    store<UP, N, CHUNKS>(p, s.staging[own], f, acc, at, w.channel<UP>(p));
}

template <bool UP, int COPY> __device__ void multiply_all(const expert_params &p, shared_memory &s)
{
    ring r = {0, 0};
    for (work w = {0}; w.more(s); w.n++) {
        const tile_facts &f = s.facts[w.n % facts_kept];
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase); /* the facts are there, too */
        if (f.rows > tile_m / 2)
            multiply_tile<UP, COPY, tile_n / chunks, chunks>(p, s, f, w, r);
        else
            multiply_tile<UP, COPY, tile_n / 2, 1>(p, s, f, w, r);
    }
}

template <bool UP, int COPY>
__global__ void __launch_bounds__(threads, 1) experts_fp8(const __grid_constant__ expert_params p)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    shared_memory &s = *reinterpret_cast<shared_memory *>(memory);
    if (threadIdx.x == 0) {
        s.items = *p.lists.n_tiles * p.column_tiles;
        for (int i = 0; i < stages; i++) {
            ptx::mbarrier_init(smem(&s.full[i]), group_threads);
            ptx::mbarrier_init(smem(&s.empty[i]), 2 * 4); /* warps */
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < group_threads) {
        ptx::setmaxnreg_dec<expand_registers>();
        expand_all<UP>(p, s);
    } else {
        ptx::setmaxnreg_inc<multiply_registers>();
        multiply_all<UP, COPY>(p, s);
    }
}

template <bool UP, int COPY> dsf_status launch(const dsf_launch *lc, const expert_params &p)
{
    int device = 0, processors = 0;
    DSF_CUDA_TRY(cudaGetDevice(&device));
    DSF_CUDA_TRY(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    int bytes = int(sizeof(shared_memory));
    DSF_CUDA_TRY(cudaFuncSetAttribute(experts_fp8<UP, COPY>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    experts_fp8<UP, COPY><<<unsigned(processors), threads, size_t(bytes), dsf_stream(lc)>>>(p);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

template <bool UP>
dsf_status run(const dsf_launch *lc, expert_params &p, const dsf_experts_lists &lists)
{
    cudaStream_t stream = dsf_stream(lc);
    p.lists = lists_in(lc->scratch, lists);
    p.listed = lists.listed;
    p.column_tiles = (p.width + tile_channels<UP> - 1) / tile_channels<UP>;
    if (lists.listed) {
        dsf_status status = dsf_experts_group(stream, p.ids, p.lists);
        if (status != DSF_OK) return status;
    }
    if (lists.tile_rows < tile_m)
        return UP ? dsf_experts_decode_up(stream, p) : dsf_experts_decode_down(stream, p);
    return p.k % 512 ? launch<UP, 8>(lc, p) : launch<UP, 16>(lc, p);
}

} // namespace

extern "C" dsf_status dsf_experts_up_sm90fp8(const dsf_launch *lc, const void *args)
{
    const auto *a = static_cast<const dsf_experts_up_args *>(args);
    expert_params p = {};
    p.records = data_of<uint8_t>(a->x);
    p.out = data_of<uint16_t>(a->out);
    p.weights = data_of<float>(a->weights);
    p.ids = data_of<int32_t>(a->ids);
    p.w[0] = table_of(a->w1, a->s1);
    p.w[1] = table_of(a->w3, a->s3);
    p.k = int(a->x.dim[1]);
    p.width = int(a->out.dim[2]);
    p.slots = int(a->out.dim[1]);
    p.limit = a->limit;
    return run<true>(lc, p, dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0]));
}

extern "C" dsf_status dsf_experts_down_sm90fp8(const dsf_launch *lc, const void *args)
{
    const auto *a = static_cast<const dsf_experts_down_args *>(args);
    expert_params p = {};
    p.records = data_of<uint8_t>(a->h);
    p.out = data_of<uint16_t>(a->out);
    p.ids = data_of<int32_t>(a->ids);
    p.w[0] = table_of(a->w2, a->s2);
    p.k = int(a->h.dim[2]);
    p.width = int(a->out.dim[2]);
    p.slots = 1;
    return run<false>(lc, p, dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0]));
}
