/* The coefficient predictor of the hyper-connections (architecture.md 4), q = 20,480 channels and
 * 24 outputs a row. Arithmetic: hc_mix.cuh; budget and design: HC_MIX.md.
 *
 * Few rows: a warp a segment, its coefficients in registers, over all rows; 2 MB of coefficients
 * are read by 80 blocks. A second launch adds the 320 sums of each row.
 *
 * Many rows: a first launch splits the coefficients into bf16 matrices. Then a block takes 64 rows
 * over all channels, warpgroup j the segments of chain j. Its slice of x (8 KB) and the matrices (9
 * KB, from the L2) come by the copy engine, three stages deep: 139 KB ahead a multiprocessor. x is
 * A in registers, where its squares are taken too; four wgmma m64n72k16. A segment moves 8 + 8 (x)
 * and 9 + 9 KB (B) through shared memory: 270 clocks, 320 segments 50 us; memory takes 78 us at
 * 8,192 rows (40 KB each): bound by memory. */
#include "sm90/hc_mix.cuh"
#include "sm90/tensormap.cuh"

using namespace hc;

/* ---- few rows ---- */

enum { SPREAD_WARPS = 4, SPREAD_TILES = 8, JOIN_THREADS = 512, JOIN_PIECE = 320 };

static_assert(JOIN_PIECE % CHAINS == 0, "a chain goes on in the next piece");

/* 8 channels of a row from c: q is a multiple of 4 (and of 8 with VEC), rows are 8 (16)-byte
 * aligned. */
template <bool VEC>
__device__ inline void load_x(uint32_t (&w)[4], const uint16_t *row, unsigned c, unsigned q,
                              bool live)
{
    if constexpr (VEC) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (live && c < q) v = *reinterpret_cast<const uint4 *>(row + c);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            uint2 v = make_uint2(0, 0);
            if (live && c + 4 * i < q) v = *reinterpret_cast<const uint2 *>(row + c + 4 * i);
            w[2 * i] = v.x, w[2 * i + 1] = v.y;
        }
    }
}

/* Steps 2 HALF and 2 HALF + 1 from words 4 HALF .. 4 HALF + 3 of rows g (x0) and g + 8 (x8). */
template <int HALF>
__device__ inline void multiply(products &sum, const uint32_t (&x0)[4], const uint32_t (&x8)[4],
                                const coefficients &b)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int w = 4 * HALF + 2 * i;
        const uint32_t a[4] = {x0[2 * i], x8[2 * i], x0[2 * i + 1], x8[2 * i + 1]};
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n++) {
                const uint32_t pair[2] = {b.w[p][n][w], b.w[p][n][w + 1]};
                float *tile = sum.part + 4 * (COLUMN_TILES * p + n);
                ptx::mma_m16n8k16_bf16(reinterpret_cast<float(&)[4]>(*tile), a, pair);
            }
    }
}

/* The sums of row g (h = 0) or g + 8: 25 floats, and zeros up to 32. */
__device__ inline void put_segment(float *to, const products &sum, float squares, unsigned t, int h)
{
#pragma unroll
    for (int n = 0; n < COLUMN_TILES; n++)
        *reinterpret_cast<float2 *>(to + 8 * n + 2 * t) =
            make_float2(sum.sum(n, 2 * h), sum.sum(n, 2 * h + 1));
    if (t < 2) /* to the end of the sector */
        *reinterpret_cast<float4 *>(to + MIXES + 4 * t) =
            make_float4(t == 0 ? squares : 0.0f, 0, 0, 0);
}

/* Rows `row` and row + 8, this lane's channels from c on; zeros past n. */
template <bool VEC>
__device__ inline void load_tile(row_words &x, const mix_args &a, unsigned row, unsigned c)
{
    const uint16_t *from = a.x + int64_t(row) * a.q, *from8 = from + int64_t(8) * a.q;
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        load_x<VEC>(x.x0[i], from, c + 8 * i, a.q, row < a.n);
        load_x<VEC>(x.x8[i], from8, c + 8 * i, a.q, row + 8 < a.n);
    }
}

template <bool VEC>
static __global__ void __launch_bounds__(32 * SPREAD_WARPS)
    spread_kernel(mix_args a, float *sums, unsigned segments)
{
    unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    unsigned segment = blockIdx.x * SPREAD_WARPS + threadIdx.x / 32;
    if (segment >= segments) return;
    unsigned c = segment * DSF_HC_SEGMENT + 16 * t, row = 16 * blockIdx.y + g,
             step = 16 * gridDim.y;
    coefficients b;
#pragma unroll
    for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *from = a.fn + int64_t(8 * n + g) * a.q + c + 4 * i;
            split(b, n, i,
                  c + 4 * i < a.q ? *reinterpret_cast<const float4 *>(from)
                                  : make_float4(0, 0, 0, 0));
        }
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait(); /* for x: the coefficients are weights */
    row_words next;
    load_tile<VEC>(next, a, row, c);
    for (; row < a.n + g; row += step) { /* the same for all lanes */
        row_words x = next;
        load_tile<VEC>(next, a, row + step, c);
        products sum = {};
        multiply<0>(sum, x.x0[0], x.x8[0], b);
        multiply<1>(sum, x.x0[1], x.x8[1], b);
        float squares = join_squares(add_squares(add_squares(0, x.x0[0]), x.x0[1]));
        float squares8 = join_squares(add_squares(add_squares(0, x.x8[0]), x.x8[1]));
        float *to = sums + (int64_t(row) * segments + segment) * DSF_HC_STRIDE;
        if (row < a.n) put_segment(to, sum, squares, t, 0);
        if (row + 8 < a.n)
            put_segment(to + int64_t(8) * segments * DSF_HC_STRIDE, sum, squares8, t, 1);
    }
}

/* A block a row. Its sums are fetched with all loads in flight, those of the model at once; then
 * warp j adds chain j, a lane a column. */
static __global__ void __launch_bounds__(JOIN_THREADS, 1)
    join_kernel(mix_args a, const float *sums, unsigned segments)
{
    __shared__ float4 fetched[JOIN_PIECE * DSF_HC_STRIDE / 4];
    __shared__ double chain[CHAINS][32], arg[32];
    unsigned m = threadIdx.x % 32, j = threadIdx.x / 32;
    int64_t row = blockIdx.x;
    const float *own = reinterpret_cast<const float *>(fetched) + m;
    double sum = 0;
    begin();
    for (unsigned base = 0; base < segments; base += JOIN_PIECE) {
        unsigned n = min(segments - base, unsigned(JOIN_PIECE));
        const float4 *from =
            reinterpret_cast<const float4 *>(sums + (row * segments + base) * DSF_HC_STRIDE);
        if (base > 0) __syncthreads();
#pragma unroll 5
        for (unsigned i = threadIdx.x; i < n * (DSF_HC_STRIDE / 4); i += JOIN_THREADS)
            fetched[i] = from[i];
        __syncthreads();
        if (j < CHAINS)
#pragma unroll 8
            for (unsigned s = j; s < n; s += CHAINS) sum += double(own[s * DSF_HC_STRIDE]);
    }
    if (j < CHAINS) chain[j][m] = sum;
    __syncthreads();
    if (j != 0) return;
    for (int i = 1; i < CHAINS; i++) sum += chain[i][m];
    double squares = __shfl_sync(0xFFFFFFFFu, sum, MIXES);
    if (m < MIXES) arg[m] = argument(a, m, sum, squares);
    __syncwarp();
    if (m < 8) put_gate(a, row, m, arg[m]);
    if (m == 8) put_comb(a, row, [&](int i) { return arg[8 + i]; });
}

static dsf_status mix_few(const dsf_launch *lc, mix_args a)
{
    float *sums = reinterpret_cast<float *>(lc->scratch);
    unsigned n = a.n, segments = (a.q + DSF_HC_SEGMENT - 1) / DSF_HC_SEGMENT;
    bool vec = a.q % CHUNK == 0 && aligned_to(a.x, 16);
    auto kernel = vec ? spread_kernel<true> : spread_kernel<false>;
    cudaStream_t stream = dsf_stream(lc);
    for (unsigned row = 0; row < n; row += DSF_HC_PIECE) {
        a.n = min(n - row, unsigned(DSF_HC_PIECE));
        dim3 grid(dsf_blocks(segments, SPREAD_WARPS), dsf_blocks(a.n, 16 * SPREAD_TILES));
        DSF_TRY(launch_early(stream, {grid, 32 * SPREAD_WARPS}, kernel, a, sums, segments));
        DSF_TRY(launch_early(stream, {a.n, JOIN_THREADS}, join_kernel, a, sums, segments));
        a.x += int64_t(a.n) * a.q;
        a.pre += 4 * a.n;
        a.post += 4 * a.n;
        a.comb += 16 * a.n;
    }
    return DSF_OK;
}

/* ---- many rows ---- */

enum {
    GROUP = 128, /* threads of a warpgroup */
    TILE_THREADS = GROUP * CHAINS,
    X_BYTES = DSF_HC_TILE * DSF_HC_SEGMENT * 2,
    B_BYTES = DSF_HC_SPLIT_BYTES,
    STAGE_BYTES = X_BYTES + B_BYTES,
    STAGES = 3,
    GROUP_BYTES = STAGES * STAGE_BYTES, /* 52,224 */
    BARRIERS = CHAINS * GROUP_BYTES,    /* where they lie */
    TILE_BYTES = BARRIERS + CHAINS * STAGES * 8,
    LOADS = MIXES * DSF_HC_SEGMENT / 4 / GROUP /* float4 of coefficients a thread */
};
static_assert(B_BYTES == PARTS * MIXES * DSF_HC_SEGMENT * 2, "three bf16 matrices");
static_assert(BARRIERS >= (CHAINS + 1) * DSF_HC_TILE * SUMS * 8, "the chains reuse the stages");
static_assert(X_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "swizzled tiles start at 1024");
static_assert(int(TILE_BYTES) <= DSF_SM90_BLOCK_SHARED, "shared memory of a block");

/* Rows are 128 bytes, their 16-byte chunks swizzled: chunk c of row r. */
__device__ inline unsigned place(unsigned r, unsigned c) { return r * 128 + (c ^ (r & 7)) * 16; }

/* A block a segment: its coefficients as the matrix [3 x 24, 64] that the tensor core wants, a part
 * below the other, swizzled, so that a tile's copy is one piece. A thread has channels 4 c .. 4 c +
 * 3, c = thread % 16, of rows thread / 16 + 8 i. Channels 16 t + 4 s .. + 3 are places 2 t, 2 t +
 * 1, 8 + 2 t, 9 + 2 t of step s: lane t of a row holds those channels of x. */
static __global__ void __launch_bounds__(GROUP) split_kernel(mix_args a, uint8_t *split)
{
    unsigned r = threadIdx.x / 16, t = threadIdx.x % 16 / 4, s = threadIdx.x % 4;
    const float *from =
        a.fn + int64_t(r) * a.q + blockIdx.x * DSF_HC_SEGMENT + threadIdx.x % 16 * 4;
    float4 f[LOADS];
#pragma unroll
    for (unsigned i = 0; i < LOADS; i++)
        f[i] = *reinterpret_cast<const float4 *>(from + int64_t(GROUP / 16 * i) * a.q);
    begin();
    uint8_t *b = split + int64_t(blockIdx.x) * B_BYTES + 4 * t;
#pragma unroll
    for (unsigned i = 0; i < LOADS; i++)
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            unsigned row = MIXES * p + GROUP / 16 * i + r;
            *reinterpret_cast<uint32_t *>(b + place(row, 2 * s)) = take_part(f[i].x, f[i].y);
            *reinterpret_cast<uint32_t *>(b + place(row, 2 * s + 1)) = take_part(f[i].z, f[i].w);
        }
}

/* From a stage, rows r and r + 8: A of four steps. */
__device__ inline void load_rows(row_words &x, const uint8_t *stage, unsigned r, unsigned t)
{
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        uint4 v = *reinterpret_cast<const uint4 *>(stage + place(r, 2 * t + i));
        uint4 v8 = *reinterpret_cast<const uint4 *>(stage + place(r + 8, 2 * t + i));
        x.x0[i][0] = v.x, x.x0[i][1] = v.y, x.x0[i][2] = v.z, x.x0[i][3] = v.w;
        x.x8[i][0] = v8.x, x.x8[i][1] = v8.y, x.x8[i][2] = v8.z, x.x8[i][3] = v8.w;
    }
}

/* Starts the products of a segment; x, sum and b are in use until finish_products(). */
__device__ inline void start_products(products &sum, const row_words &x, uint32_t b)
{
    uint64_t desc = ptx::wgmma_desc_128b(b);
    ptx::wgmma_fence_operand(sum.part);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) {
        const int h = s / 2, w = s % 2 * 2;
        const uint32_t a[4] = {x.x0[h][w], x.x8[h][w], x.x0[h][w + 1], x.x8[h][w + 1]};
        ptx::wgmma<PARTS * MIXES>::bf16_rs(sum.part, a, desc + 2 * s, s > 0);
    }
    ptx::wgmma_commit_group();
}

__device__ inline void finish_products(products &sum)
{
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(sum.part);
}

/* Chain sums of a thread: rows 16 warp + g and + 8 of the tile; squares in all lanes of a
 * row. */
struct chain_sums {
    double t[COLUMN_TILES][4], squares[2];
};

__device__ inline void add_segment(chain_sums &chain, const products &sum, const row_words &x)
{
#pragma unroll
    for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) chain.t[n][i] += double(sum.sum(n, i));
    chain.squares[0] += double(join_squares(add_squares(add_squares(0, x.x0[0]), x.x0[1])));
    chain.squares[1] += double(join_squares(add_squares(add_squares(0, x.x8[0]), x.x8[1])));
}

/* chain[row][column] of one warpgroup's chain. */
__device__ inline void put_chain(double *to, const chain_sums &chain, unsigned row, unsigned t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        double *at = to + (row + 8 * h) * SUMS;
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++) {
            at[8 * n + 2 * t] = chain.t[n][2 * h];
            at[8 * n + 2 * t + 1] = chain.t[n][2 * h + 1];
        }
        if (t == 0) at[MIXES] = chain.squares[h];
    }
}

/* Joins the chains of all rows of the tile and writes their coefficients. */
__device__ inline void finish_tile(const mix_args &a, double *chains, unsigned row0)
{
    constexpr unsigned CHAIN = DSF_HC_TILE * SUMS;
    double *total = chains + CHAINS * CHAIN;
    for (unsigned i = threadIdx.x; i < CHAIN; i += TILE_THREADS) {
        double sum = chains[i];
        for (int j = 1; j < CHAINS; j++) sum += chains[j * CHAIN + i];
        total[i] = sum;
    }
    __syncthreads();
    double *args = chains; /* [row][24] */
    for (unsigned i = threadIdx.x; i < DSF_HC_TILE * MIXES; i += TILE_THREADS) {
        unsigned r = i / MIXES, m = i - r * MIXES;
        double arg = argument(a, int(m), total[r * SUMS + m], total[r * SUMS + MIXES]);
        args[i] = arg;
        if (m < 8 && row0 + r < a.n) put_gate(a, row0 + r, int(m), arg);
    }
    __syncthreads();
    unsigned r = threadIdx.x;
    if (r < DSF_HC_TILE && row0 + r < a.n)
        put_comb(a, row0 + r, [&](int i) { return args[r * MIXES + 8 + i]; });
}

/* What a warpgroup works on. */
struct chain_run {
    const CUtensorMap *x;
    const uint8_t *split;
    uint8_t *own;  /* stages: x, then B */
    uint32_t bars; /* a barrier a stage */
    unsigned row0, segments;
};

/* One thread: starts the copies of a segment. Rows past n read as zeros. */
__device__ inline void fetch(const chain_run &run, unsigned slot, unsigned segment)
{
    uint32_t stage = ptx::smem(run.own + slot * STAGE_BYTES), bar = run.bars + 8 * slot;
    ptx::mbarrier_arrive_expect_tx(bar, STAGE_BYTES);
    ptx::cp_async_bulk_tensor_2d(stage, run.x, bar, int(segment * DSF_HC_SEGMENT * 2),
                                 int(run.row0));
    ptx::cp_async_bulk(stage + X_BYTES, run.split + int64_t(segment) * B_BYTES, B_BYTES, bar);
}

/* Waits for a stage and loads its x. turn: segments of this chain before it. */
__device__ inline void load_turn(row_words &words, const chain_run &run, unsigned turn)
{
    unsigned slot = turn % STAGES, lane = threadIdx.x % 32;
    ptx::mbarrier_wait(run.bars + 8 * slot, turn / STAGES % 2);
    load_rows(words, run.own + slot * STAGE_BYTES, threadIdx.x % GROUP / 32 * 16 + lane / 4,
              lane % 4);
}

/* The segments of one chain, by one warpgroup: while the tensor core multiplies one, the next one's
 * x is loaded. The barrier says that all are done with a stage. */
__device__ inline void run_chain(chain_sums &chain, const chain_run &run)
{
    unsigned s = threadIdx.x / GROUP, turn = 0;
    if (s >= run.segments) return;
    row_words words;
    load_turn(words, run, turn);
    for (;;) {
        unsigned slot = turn % STAGES, refill = s + STAGES * CHAINS;
        products sum;
        row_words ahead;
        start_products(sum, words, ptx::smem(run.own + slot * STAGE_BYTES + X_BYTES));
        s += CHAINS;
        turn++;
        if (s < run.segments) load_turn(ahead, run, turn);
        finish_products(sum);
        ptx::bar_sync(int(1 + threadIdx.x / GROUP), GROUP);
        if (threadIdx.x % GROUP == 0 && refill < run.segments) fetch(run, slot, refill);
        add_segment(chain, sum, words);
        if (s >= run.segments) break;
        words = ahead;
    }
}

static __global__ void __launch_bounds__(TILE_THREADS, 1)
    tile_kernel(mix_args a, const __grid_constant__ CUtensorMap x, const uint8_t *split,
                unsigned segments)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    unsigned group = threadIdx.x / GROUP, lane = threadIdx.x % 32;
    unsigned row0 = blockIdx.x * DSF_HC_TILE;
    const chain_run run = {&x,
                           split,
                           shared + group * GROUP_BYTES,
                           ptx::smem(shared + BARRIERS) + group * STAGES * 8,
                           row0,
                           segments};
    begin();
    if (threadIdx.x % GROUP == 0) {
        for (unsigned i = 0; i < STAGES; i++) ptx::mbarrier_init(run.bars + 8 * i, 1);
        ptx::fence_mbarrier_init();
        for (unsigned i = 0; i < STAGES; i++)
            if (group + i * CHAINS < segments) fetch(run, i, group + i * CHAINS);
    }
    __syncthreads();
    chain_sums chain = {};
    run_chain(chain, run);
    __syncthreads();
    double *chains = reinterpret_cast<double *>(shared);
    put_chain(chains + group * DSF_HC_TILE * SUMS, chain, threadIdx.x % GROUP / 32 * 16 + lane / 4,
              lane % 4);
    __syncthreads();
    finish_tile(a, chains, row0);
}

static dsf_status mix_tiles(const dsf_launch *lc, const mix_args &m)
{
    CUtensorMap x;
    DSF_TRY(dsf_tensormap_bytes(
        &x, {m.x, m.n, 2 * int64_t(m.q), 2 * int64_t(m.q), DSF_HC_TILE, DSF_HC_SEGMENT * 2},
        CU_TENSOR_MAP_SWIZZLE_128B));
    unsigned segments = m.q / DSF_HC_SEGMENT;
    launch_shape tiles = {dsf_blocks(m.n, DSF_HC_TILE), TILE_THREADS, TILE_BYTES};
    DSF_TRY(launch_early(dsf_stream(lc), {segments, GROUP}, split_kernel, m, lc->scratch));
    return launch_early(dsf_stream(lc), tiles, tile_kernel, m, x, lc->scratch, segments);
}

extern "C" dsf_status dsf_hc_mix_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_mix_args *a = static_cast<const dsf_hc_mix_args *>(args);
    mix_args m = {data_of<float>(a->pre),
                  data_of<float>(a->post),
                  data_of<float>(a->comb),
                  data_of<uint16_t>(a->x),
                  data_of<float>(a->fn),
                  data_of<float>(a->base),
                  data_of<float>(a->scale),
                  unsigned(a->x.dim[0]),
                  unsigned(a->fn.dim[1]),
                  a->norm_eps,
                  a->hc_eps,
                  a->iters};
    return dsf_hc_mix_tiled(m.n, m.q) ? mix_tiles(lc, m) : mix_few(lc, m);
}
