/* experts_up and experts_down on the fp8 tensor cores, for many rows: EXPERTS.md.
 *
 * Tile: 128 pairs of one expert (M) by 256 weight rows (N; up: 128 channels, w1 and w3 alternating,
 * so that a thread holds both sums of a channel). Stage: 128 channels of K. One warpgroup expands
 * codes from global memory to e4m3 in shared memory (B) and copies the records (A); two warpgroups
 * multiply, 64 pairs each, or, where a tile has at most 64 pairs, half of the columns each.
 *
 * Arithmetic of an element: for each block of 32 channels part = one wgmma from zero, then
 * acc = fma(part, sx sw, acc), blocks ascending. sx is one number for a row of A: two registers.
 * sw would be one for each column, so it goes into the codes: a weight row is expanded relative to
 * its first scale, 2^(sw - first + part of the code), and the epilogue multiplies by 2^first.
 * Powers of two commute with every rounding here (no sum falls below the normal range: first scale
 * at least 2^-63, all terms multiples of 2^-104). A row whose scales do not fit (a factor of
 * 2^-5..2^6 around the first) makes the tile repeat its K loop with the product sx sw for each
 * element: same bits, slower. */
#include "sm90/experts_fp8.cuh"

namespace
{

using ptx::smem;

constexpr int group_threads = 128, groups = 3, threads = groups * group_threads;
constexpr int tile_m = DSF_EXPERTS_TILE_ROWS, tile_n = DSF_EXPERTS_TILE_COLS;
constexpr int stage_k = DSF_EXPERTS_STAGE_K, stage_blocks = stage_k / 32;
constexpr int stages = 3;
constexpr int chunk_n = 64; /* columns of one wgmma: two buffers of 32 registers */
/* Registers: the block has 384 x 168 = 128 x 56 + 256 x 224. */
constexpr int expand_registers = 56, multiply_registers = 224;
/* Tiles whose facts are kept: with at least two stages a tile, the expander is less than four ahead
 * of the multipliers' epilogue. */
constexpr int facts_kept = 4;
constexpr int units = tile_n / 32; /* (row, block) pairs of a stage for each expanding thread */
constexpr int stage_row = 144;     /* bytes: 64 bf16 and one access width against bank conflicts */
/* The first scale byte of a row from which no sum can leave the normal range. */
constexpr int least_first = 64;

struct tile_facts {
    int32_t pair[tile_m];    /* -1: none */
    uint32_t record[tile_m]; /* byte offset */
    float weight[tile_m];
    float first[tile_n]; /* 2^first of each weight row */
    uint8_t first_byte[tile_n];
    int32_t rows, misfit;
};

struct shared_memory {
    alignas(1024) uint8_t b[stages][tile_n * stage_k];
    alignas(1024) uint8_t a[stages][tile_m * stage_k];
    float weight_scale[stages][stage_blocks][tile_n]; /* misfit only */
    uint32_t record_scale[stages][tile_m];            /* four ue8m0 bytes */
    alignas(16) uint8_t staging[2 * 4][16 * stage_row];
    tile_facts facts[facts_kept];
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

/* Work item: a tile of pairs and a tile of columns; the columns of one tile of pairs follow one
 * another, so that its records and, from the next tile of the same expert, its weights are found in
 * the L2. */
struct work {
    int item, items;
    __device__ work(const expert_params &p)
        : item(int(blockIdx.x)), items(*p.lists.n_tiles * p.column_tiles)
    {
    }
    __device__ bool more() const { return item < items; }
    __device__ void next() { item += int(gridDim.x); }
    __device__ dsf_experts_tile tile(const expert_params &p) const
    {
        return p.lists.tiles[item / p.column_tiles];
    }
    __device__ int column(const expert_params &p) const { return item % p.column_tiles; }
};

template <bool UP> constexpr int tile_channels = UP ? tile_n / 2 : tile_n;

/* ---- the expanding warpgroup ---- */

/* What an expanding thread reads: block `block` of rows row8 + 8 j of its warp's 64. */
struct weight_rows {
    const uint8_t *codes, *scales;
    int step; /* bytes of codes from j to j + 1; of scales: a 16th */
};

template <bool UP> __device__ weight_rows find_rows(const expert_params &p, int expert, int column)
{
    int warp = threadIdx.x / 32, row8 = threadIdx.x % 32 / 4, block = threadIdx.x % 4;
    const expert_table &w = UP && (row8 & 1) ? p.w[1] : p.w[0];
    int64_t channel =
        UP ? column * (tile_n / 2) + warp * 32 + row8 / 2 : column * tile_n + warp * 64 + row8;
    weight_rows r;
    r.step = (UP ? 4 : 8) * (p.k / 2);
    r.codes = w.codes_of(expert) + channel * (p.k / 2) + block * 16;
    r.scales = w.scales_of(expert) + channel * (p.k / 32) + block;
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
        int row = t / 32 * 64 + j * 8 + t % 32 / 4;
        uint8_t first = __ldg(rows.scales + j * (rows.step / 16));
        f.first[row] = num::e8m0_to_f32(first);
        f.first_byte[row] = first;
    }
}

/* 128 channels of the tile's records, rows of 128 bytes with the chunk index xored by row % 8, and
 * their four scales. */
template <int COPY>
__device__ void copy_records(const expert_params &p, shared_memory &s, const tile_facts &f,
                             int slot, int stage)
{
    constexpr int per_row = stage_k / COPY, rows_at_once = group_threads / per_row;
    int t = threadIdx.x, row = t / per_row, at = t % per_row * COPY;
    uint32_t dst = smem(s.a[slot]) + row * stage_k + ((at & ~15) ^ (row % 8 * 16)) + (at & 15);
    const uint8_t *src = p.records + stage * stage_k + at;
    int n = (f.rows > tile_m / 2 ? tile_m : tile_m / 2) / rows_at_once;
#pragma unroll 2 /* more would take registers from the weights on their way */
    for (int i = 0; i < n; i++) {
        const uint8_t *from = src + f.record[row + i * rows_at_once];
        if constexpr (COPY == 16)
            ptx::cp_async_16(dst + i * rows_at_once * stage_k, from, COPY);
        else
            ptx::cp_async_8(dst + i * rows_at_once * stage_k, from, COPY);
    }
    ptx::cp_async_4(smem(&s.record_scale[slot][t]),
                    p.records + f.record[t] + p.k + stage * stage_blocks, 4);
}

/* Half of a stage on its way: the units of one half are expanded while the next half's are read. */
struct fetched {
    uint4 codes[units / 2];
    uint32_t scale[units / 2];
    __device__ void fetch(const weight_rows &r, int i, int half, int stage)
    {
        uint32_t at = uint32_t((half * (units / 2) + i) * r.step);
        codes[i] = ptx::ld_global_nc_v4(r.codes + (at + uint32_t(stage) * (stage_k / 2)));
        scale[i] = __ldg(r.scales + (at / 16 + uint32_t(stage) * stage_blocks));
    }
};

/* The registers reach half a stage ahead, which is less than the memory is away: two stages ahead
 * the lines, one for two stages of a row, are asked into the L2. The four threads of a row take
 * two of its j each, one in either stage. */
__device__ void prefetch_rows(const weight_rows &r, int stage, int n)
{
    int block = threadIdx.x % 4, line = (stage + 2) & ~1;
    if (line >= n) return;
    uint32_t at = uint32_t((block + 4 * (stage & 1)) * r.step + line * (stage_k / 2));
    ptx::prefetch_global_l2(r.codes + at);
}

/* One block of one row: 32 codes to 32 bytes at dst and dst ^ 16. */
__device__ void expand_block(const e2m1::table &t, const uint4 &codes, uint8_t *dst, uint8_t *dst2)
{
    uint4 x;
    e2m1::expand(t, codes.x, x.x, x.y);
    e2m1::expand(t, codes.y, x.z, x.w);
    *reinterpret_cast<uint4 *>(dst) = x;
    e2m1::expand(t, codes.z, x.x, x.y);
    e2m1::expand(t, codes.w, x.z, x.w);
    *reinterpret_cast<uint4 *>(dst2) = x;
}

/* All stages of a tile. MISFIT: codes as they are, scales beside them. */
template <int COPY, bool MISFIT>
__device__ void expand_tile(const expert_params &p, shared_memory &s, tile_facts &f,
                            const weight_rows &rows, ring &at)
{
    int warp = threadIdx.x / 32, row8 = threadIdx.x % 32 / 4, block = threadIdx.x % 4;
    uint32_t dst = warp * 64 * stage_k + row8 * stage_k + ((2 * block ^ row8) * 16);
    int n = p.k / stage_k;
    uint32_t worst = 0;
    fetched w;
#pragma unroll
    for (int i = 0; i < units / 2; i++) w.fetch(rows, i, 0, 0);
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        prefetch_rows(rows, stage, n);
        ptx::mbarrier_wait(smem(&s.empty[at.slot]), at.phase ^ 1);
        copy_records<COPY>(p, s, f, at.slot, stage);
        uint8_t *b = s.b[at.slot];
#pragma unroll
        for (int j = 0; j < units; j++) {
            constexpr int half = units / 2;
            uint4 codes = w.codes[j % half];
            uint32_t scale = w.scale[j % half];
            w.fetch(rows, j % half, j < half, j < half ? stage : min(stage + 1, n - 1));
            e2m1::table t = e2m1::plain();
            if constexpr (MISFIT) {
                s.weight_scale[at.slot][block][warp * 64 + j * 8 + row8] =
                    num::e8m0_to_f32(uint8_t(scale));
            } else {
                uint32_t shift = scale - f.first_byte[warp * 64 + j * 8 + row8] + e2m1::least;
                worst = max(worst, shift);
                t = e2m1::shifted(shift);
            }
            expand_block(t, codes, b + dst + j * 8 * stage_k, b + (dst ^ 16) + j * 8 * stage_k);
        }
        if (!MISFIT && stage == n - 1 && worst > e2m1::most) f.misfit = 1;
        ptx::fence_proxy_async();
        ptx::cp_async_mbarrier_arrive_noinc(smem(&s.full[at.slot]));
        ptx::mbarrier_arrive(smem(&s.full[at.slot]));
        at.advance();
    }
}

/* True when a row of the tile that the thread looks at starts too low for the folded form. */
__device__ bool too_small(const tile_facts &f)
{
    return f.first_byte[threadIdx.x] < least_first ||
           f.first_byte[threadIdx.x + group_threads] < least_first;
}

template <bool UP, int COPY> __device__ void expand_all(const expert_params &p, shared_memory &s)
{
    ring at = {0, 0};
    int n = 0;
    for (work w(p); w.more(); w.next(), n++) {
        dsf_experts_tile tile = w.tile(p);
        tile_facts &f = s.facts[n % facts_kept];
        weight_rows rows = find_rows<UP>(p, tile.expert, w.column(p));
        note_facts<UP>(p, tile, rows, f);
        ptx::bar_sync(1, group_threads);
        if (too_small(f)) f.misfit = 1;
        expand_tile<COPY, false>(p, s, f, rows, at);
        ptx::bar_sync(1, group_threads);
        if (!f.misfit) continue;
        ptx::hide(rows.step); /* or the first pass would keep addresses for this one */
        expand_tile<COPY, true>(p, s, f, rows, at);
    }
}

/* ---- the multiplying warpgroups ---- */

/* A warp's place in a tile. */
struct place {
    int row;    /* of the tile: the warp's 16 begin here */
    int column; /* of the tile: the warpgroup's columns begin here */
    int lane;
    uint32_t a_offset; /* of the lane's ldmatrix row */
    __device__ place(int group, int warp, bool split) : lane(threadIdx.x % 32)
    {
        row = (split ? 0 : group * 64) + warp * 16;
        column = split ? group * (tile_n / 2) : 0;
        a_offset = uint32_t(row + lane % 16) * stage_k;
    }
};

/* acc[c] = fma(part, s, acc[c]): s0 for the thread's first row, s1 for the second, eight below. */
template <int N>
__device__ __forceinline__ void promote(float (&acc)[N], const float (&part)[32], int c, float s0,
                                        float s1)
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        acc[c * 32 + i] = __fmaf_rn(part[i], i & 2 ? s1 : s0, acc[c * 32 + i]);
}

__device__ __forceinline__ float scale_byte(uint32_t word, int block)
{
    return __uint_as_float((block == 3 ? word >> 1 : word << (23 - 8 * block)) & 0x7F800000u);
}

__device__ __forceinline__ void load_a(uint32_t (&a)[4], uint32_t base, const place &at, int block)
{
    int chunk = 2 * block + at.lane / 16;
    ptx::ldmatrix_x4(a, base + at.a_offset + ((chunk ^ (at.lane % 8)) * 16));
}

__device__ __forceinline__ void release(shared_memory &s, int slot, int lane)
{
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(smem(&s.empty[slot]));
}

/* What a thread needs of a stage: descriptors, its rows' scales. */
struct operands {
    uint32_t a;
    uint64_t b;
    uint32_t scale[2];
    __device__ void take(shared_memory &s, const place &at, const ring &r)
    {
        int row = at.row + at.lane / 4;
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase);
        a = smem(s.a[r.slot]);
        b = ptx::wgmma_desc_128b(smem(s.b[r.slot]) + at.column * stage_k);
        scale[0] = s.record_scale[r.slot][row];
        scale[1] = s.record_scale[r.slot][row + 8];
    }
};

__device__ __forceinline__ void issue(float (&part)[32], const uint32_t (&a)[4], uint64_t b,
                                      int block, int c)
{
    ptx::wgmma_fence_operand(part);
    ptx::wgmma_fence();
    ptx::wgmma<chunk_n>::e4m3_rs(part, a, b + uint64_t((c * chunk_n * stage_k + block * 32) / 16),
                                 0);
    ptx::wgmma_commit_group();
}

/* State of a stage: one chunk is being multiplied while the one before is promoted. */
struct flight {
    float part[2][32];
    uint32_t a[2][4];
    float scale[2][2];
    operands o;
    /* Fragments and scales of a block. */
    __device__ __forceinline__ void load(const place &at, int block)
    {
        load_a(a[block % 2], o.a, at, block);
        scale[block % 2][0] = scale_byte(o.scale[0], block);
        scale[block % 2][1] = scale_byte(o.scale[1], block);
    }
};

/* Nothing is in flight from one stage to the next: the compiler would serialise what crosses the
 * loop's end; the other warpgroup fills the gap. */
template <int CHUNKS>
__device__ __forceinline__ void multiply(shared_memory &s, float (&acc)[CHUNKS * 32],
                                         const place &at, int n, ring &r)
{
    constexpr int all = stage_blocks * CHUNKS;
    flight f;
#pragma unroll
    for (int i = 0; i < CHUNKS * 32; i++) acc[i] = 0;
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        f.o.take(s, at, r);
        f.load(at, 0);
        issue(f.part[0], f.a[0], f.o.b, 0, 0);
#pragma unroll
        for (int i = 0; i < all; i++) {
            int next = i + 1, block = next / CHUNKS, c = next % CHUNKS;
            if (next < all) {
                if (c == 0) f.load(at, block);
                issue(f.part[next % 2], f.a[block % 2], f.o.b, block, c);
                ptx::wgmma_wait_group<1>();
            } else {
                ptx::wgmma_wait_group<0>();
                release(s, r.slot, at.lane);
            }
            ptx::wgmma_fence_operand(f.part[i % 2]);
            promote(acc, f.part[i % 2], i % CHUNKS, f.scale[i / CHUNKS % 2][0],
                    f.scale[i / CHUNKS % 2][1]);
        }
        r.advance();
    }
}

/* The same with a scale for each element. */
template <int CHUNKS>
__device__ __forceinline__ void multiply_misfit(shared_memory &s, float (&acc)[CHUNKS * 32],
                                                const place &at, int n, ring &r)
{
    float part[32];
    uint32_t a[4];
    int row = at.row + at.lane / 4, q = at.lane % 4;
#pragma unroll
    for (int i = 0; i < CHUNKS * 32; i++) acc[i] = 0;
#pragma unroll 1
    for (int stage = 0; stage < n; stage++) {
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase);
        uint64_t b = ptx::wgmma_desc_128b(smem(s.b[r.slot]) + at.column * stage_k);
#pragma unroll 1
        for (int block = 0; block < stage_blocks; block++) {
            load_a(a, smem(s.a[r.slot]), at, block);
            float s0 = num::e8m0_to_f32(uint8_t(s.record_scale[r.slot][row] >> 8 * block));
            float s1 = num::e8m0_to_f32(uint8_t(s.record_scale[r.slot][row + 8] >> 8 * block));
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                ptx::wgmma_fence_operand(part);
                ptx::wgmma_fence();
                ptx::wgmma<chunk_n>::e4m3_rs(
                    part, a, b + uint64_t((c * chunk_n * stage_k + block * 32) / 16), 0);
                ptx::wgmma_commit_group();
                ptx::wgmma_wait_group<0>();
                ptx::wgmma_fence_operand(part);
                const float *w = &s.weight_scale[r.slot][block][at.column + c * chunk_n + 2 * q];
#pragma unroll
                for (int i = 0; i < 32; i++) {
                    float scale = __fmul_rn(i & 2 ? s1 : s0, w[i / 4 * 8 + (i & 1)]);
                    acc[c * 32 + i] = __fmaf_rn(part[i], scale, acc[c * 32 + i]);
                }
            }
        }
        release(s, r.slot, at.lane);
        r.advance();
    }
}

/* Through the warp's staging rows to 16-byte stores. */
template <bool UP, int CHUNKS>
__device__ void store(const expert_params &p, uint8_t *staging, const tile_facts &f,
                      const float (&acc)[CHUNKS * 32], const place &at, int column_tile)
{
    constexpr int channels = UP ? chunk_n / 2 : chunk_n; /* of a chunk */
    constexpr int pieces = channels / 8;                 /* of 16 bytes, a row */
    int q = at.lane % 4, r = at.lane / 4;
    bool misfit = f.misfit != 0;
    float weight0 = UP ? f.weight[at.row + r] : 0, weight1 = UP ? f.weight[at.row + r + 8] : 0;
    int64_t first = int64_t(column_tile) * tile_channels<UP> + at.column / (UP ? 2 : 1);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const float *scale = &f.first[at.column + c * chunk_n + 2 * q];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float s0 = misfit ? 1.0f : scale[8 * j], s1 = misfit ? 1.0f : scale[8 * j + 1];
            float x0 = acc[c * 32 + 4 * j] * s0, x1 = acc[c * 32 + 4 * j + 1] * s1;
            float y0 = acc[c * 32 + 4 * j + 2] * s0, y1 = acc[c * 32 + 4 * j + 3] * s1;
            uint8_t *to = staging + r * stage_row + (4 * j + q) * (UP ? 2 : 4);
            if constexpr (UP) {
                *reinterpret_cast<uint16_t *>(to) = expert_swiglu(x0, x1, p.limit, weight0);
                *reinterpret_cast<uint16_t *>(to + 8 * stage_row) =
                    expert_swiglu(y0, y1, p.limit, weight1);
            } else {
                *reinterpret_cast<uint32_t *>(to) = num::pack_bf16(x0, x1);
                *reinterpret_cast<uint32_t *>(to + 8 * stage_row) = num::pack_bf16(y0, y1);
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * pieces / 32; i++) {
            int row = (i * 32 + at.lane) / pieces, piece = at.lane % pieces;
            int64_t pair = f.pair[at.row + row];
            if (pair >= 0)
                *reinterpret_cast<uint4 *>(p.out + pair * p.width + first + c * channels +
                                           piece * 8) =
                    *reinterpret_cast<const uint4 *>(staging + row * stage_row + piece * 16);
        }
        __syncwarp();
    }
}

template <bool UP, int CHUNKS>
__device__ __forceinline__ void multiply_tile(const expert_params &p, shared_memory &s,
                                              const tile_facts &f, int group, int warp,
                                              const work &w, ring &r)
{
    float acc[CHUNKS * 32];
    const place at(group, warp, CHUNKS * chunk_n < tile_n);
    int n = p.k / stage_k;
    multiply<CHUNKS>(s, acc, at, n, r);
    if (f.misfit) multiply_misfit<CHUNKS>(s, acc, at, n, r);
    int own = int(threadIdx.x) / 32 - 4;
    ptx::hide(own); /* or the address would take a register through the K loop */
    store<UP, CHUNKS>(p, s.staging[own], f, acc, at, w.column(p));
}

template <bool UP> __device__ void multiply_all(const expert_params &p, shared_memory &s)
{
    int group = threadIdx.x / group_threads - 1, warp = threadIdx.x / 32 % 4;
    ring r = {0, 0};
    int n = 0;
    for (work w(p); w.more(); w.next(), n++) {
        const tile_facts &f = s.facts[n % facts_kept];
        ptx::mbarrier_wait(smem(&s.full[r.slot]), r.phase); /* the facts are there, too */
        if (f.rows > tile_m / 2)
            multiply_tile<UP, 4>(p, s, f, group, warp, w, r);
        else
            multiply_tile<UP, 2>(p, s, f, group, warp, w, r);
    }
}

template <bool UP, int COPY>
__global__ void __launch_bounds__(threads, 1) experts_fp8(const __grid_constant__ expert_params p)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    shared_memory &s = *reinterpret_cast<shared_memory *>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            ptx::mbarrier_init(smem(&s.full[i]), 2 * group_threads); /* stores, copies */
            ptx::mbarrier_init(smem(&s.empty[i]), 2 * 4);            /* warps */
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < group_threads) {
        ptx::setmaxnreg_dec<expand_registers>();
        expand_all<UP, COPY>(p, s);
    } else {
        ptx::setmaxnreg_inc<multiply_registers>();
        multiply_all<UP>(p, s);
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

/* Records of a multiple of 16 bytes are copied by 16, others by 8. */
template <bool UP> dsf_status run(const dsf_launch *lc, expert_params &p)
{
    p.column_tiles = p.width / tile_channels<UP>;
    dsf_status status = dsf_experts_group(dsf_stream(lc), p.ids, p.lists);
    if (status != DSF_OK) return status;
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
    p.lists =
        lists_in(lc->scratch, dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0]));
    return run<true>(lc, p);
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
    p.lists =
        lists_in(lc->scratch, dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0]));
    return run<false>(lc, p);
}
