/* hc_boundary of many rows: a cluster of 8 blocks for 64 of them, a warp for 16. Each warp walks
 * the block's eighth of the channels alone, loads one tile ahead, and keeps its sums in registers;
 * fn was cut into bf16 fragments before, which the four warps of a block share in the L1. Two
 * blocks a multiprocessor: one's norm runs under the other's loads. */
#include "sm90/fused_hc_tc.cuh"

namespace boundary
{

namespace
{

constexpr int CLUSTER = 8, parts_here = parts / CLUSTER;
constexpr int ROWS = DSF_BOUNDARY_MANY, WARPS = ROWS / tile_rows, THREADS = 32 * WARPS;

struct __align__(16) shared_space
{
    factors f[ROWS];
    sums part[parts_here][ROWS];
    finish_space<ROWS, CLUSTER> finish;
    /* then h [ROWS][h_stride] */
};

size_t shared_bytes(int64_t d)
{
    return sizeof(shared_space) + ROWS * (size_t(d) / CLUSTER + h_pad) * sizeof(uint16_t);
}

/* Fragments of fn: [d / 32 tiles][4 streams][9 column tiles][32 lanes] of 16 bytes. */
constexpr unsigned tile_words = STREAMS * columns * 32;

constexpr int CUT_THREADS = 128;

__global__ void __launch_bounds__(CUT_THREADS) cut_fn(uint4 *to, const float *fn, unsigned d)
{
    unsigned item = blockIdx.x * CUT_THREADS + threadIdx.x, lane = item % 32;
    unsigned j = item / 32 % outputs, k = item / 32 / outputs % STREAMS;
    unsigned at = item / 32 / outputs / STREAMS;
    if (at >= d / tile) return;
    const float4 *p = reinterpret_cast<const float4 *>(
        fn + int64_t(8 * j + lane / 4) * STREAMS * d + k * d + at * tile + CHUNK * (lane % 4));
    uint4 w[3];
    cut(w, p[0], p[1]);
#pragma unroll
    for (int i = 0; i < 3; i++)
        to[at * tile_words + (k * columns + i * outputs + j) * 32 + lane] = w[i];
}

/* One of a lane's two rows. Rows beyond n repeat the last one, unstored. */
struct lane_row {
    const uint16_t *x, *y, *parts;
    uint16_t *out, *h;
    bool live;
};

__device__ inline lane_row row_at(const operands &o, const block_rows &rows, uint16_t *h,
                                  unsigned at, unsigned c)
{
    bool live = at < rows.n;
    int64_t row = rows.first + (live ? at : rows.n - 1);
    return {o.x + row * STREAMS * o.d + rows.channel + c,
            o.y + row * o.d + rows.channel + c,
            o.parts + row * o.n_parts * o.d + rows.channel + c,
            o.out + row * STREAMS * o.d + rows.channel + c,
            h + at * rows.h_stride + c,
            live};
}

struct loaded {
    uint4 x[STREAMS], y;
};

__device__ inline void load(loaded &v, const lane_row &r, unsigned d, unsigned c)
{
#pragma unroll
    for (int k = 0; k < STREAMS; k++) v.x[k] = ptx::ld_global_nc_v4(r.x + k * d + c);
    v.y = ptx::ld_global_nc_v4(r.y + c);
}

/* PARTS: how many a row has, so that their loads are under way together; ANY: as many as there are.
 */
constexpr int ANY = -1;

__device__ inline void add_chunk(float (&sum)[CHUNK], uint4 v)
{
    float p[CHUNK];
    unpack_chunk(p, v);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], p[i]);
}

template <int PARTS>
__device__ inline uint4 sublayer(const loaded &v, const lane_row &r, const operands &o, unsigned c)
{
    if (PARTS == 0) return v.y;
    float sum[CHUNK] = {0};
    if (PARTS == ANY) {
#pragma unroll 1
        for (unsigned e = 0; e < o.n_parts; e++)
            add_chunk(sum, ptx::ld_global_nc_v4(r.parts + int64_t(e) * o.d + c));
    } else {
        uint4 part[PARTS > 0 ? PARTS : 1];
#pragma unroll
        for (int e = 0; e < PARTS; e++)
            part[e] = ptx::ld_global_nc_v4(r.parts + int64_t(e) * o.d + c);
#pragma unroll
        for (int e = 0; e < PARTS; e++) add_chunk(sum, part[e]);
    }
    add_chunk(sum, v.y);
    return pack_chunk(sum);
}

/* Expands, stores, and asks for the next tile in the registers that became free. */
template <int PARTS>
__device__ inline void step_row(uint4 (&out)[STREAMS], loaded &v, lane_sums &s, int r,
                                const operands &o, const lane_row &row, const factors &f,
                                unsigned c, bool more)
{
    uint4 h;
    row_of_tile<false>(out, h, s, r, v.x, sublayer<PARTS>(v, row, o, c), f);
    if (more) load(v, row, o.d, c + tile);
    if (PARTS && more)
        for (unsigned e = 0; e < (PARTS > 0 ? unsigned(PARTS) : o.n_parts); e++)
            ptx::prefetch_global_l2(row.parts + int64_t(e) * o.d + c + tile);
    if (!row.live) return;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) ptx::st_global_v4(row.out + k * o.d + c, out[k]);
    ptx::st_shared_v4(ptx::smem(row.h + c), h);
}

/* The fragments of one stream: they come from the L2, some 600 cycles away, and so are asked for
 * two streams ahead, the first before the tile's second rows are expanded. */
struct fragments {
    uint4 w[columns];
};

__device__ inline void load(fragments &to, const uint4 *fn, int k)
{
#pragma unroll
    for (int j = 0; j < columns; j++)
        to.w[j] = ptx::ld_global_nc_cached_v4(fn + (k * columns + j) * 32);
}

__device__ inline void multiply_stream(float (&acc)[columns][4], uint4 a, uint4 b,
                                       const fragments &w)
{
#pragma unroll
    for (int j = 0; j < columns; j++) multiply(acc[j], a, b, w.w[j]);
}

/* w0 holds stream 0. */
__device__ inline void multiply_tile(lane_sums &s, const uint4 (&a)[STREAMS],
                                     const uint4 (&b)[STREAMS], const uint4 *fn, fragments &w0)
{
    float acc[columns][4] = {};
    fragments w1;
    load(w1, fn, 1);
    multiply_stream(acc, a[0], b[0], w0);
    load(w0, fn, 2);
    multiply_stream(acc, a[1], b[1], w1);
    load(w1, fn, 3);
    multiply_stream(acc, a[2], b[2], w0);
    multiply_stream(acc, a[3], b[3], w1);
    add_tile(s, acc);
}

template <int PARTS>
__global__ void __launch_bounds__(THREADS, 2) boundary_many(operands o, mixes m, const uint4 *fn)
{
    extern __shared__ __align__(16) uint8_t memory[];
    shared_space &space = *reinterpret_cast<shared_space *>(memory);
    uint16_t *h = reinterpret_cast<uint16_t *>(memory + sizeof(shared_space));
    const unsigned slice = o.d / CLUSTER, tiles = slice / tile / parts_here;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    block_rows rows = {blockIdx.x / CLUSTER * ROWS, 0, ptx::cluster_ctarank() * slice, slice,
                       slice + h_pad};
    rows.n = min(o.n - rows.first, unsigned(ROWS));
    for (unsigned i = threadIdx.x; i < ROWS * COEFFICIENTS; i += THREADS)
        put_factor(space.f[i / COEFFICIENTS], int(i % COEFFICIENTS),
                   factor(o.post, o.comb, o.pre, rows.first + min(i / COEFFICIENTS, rows.n - 1),
                          int(i % COEFFICIENTS)));
    const unsigned at = warp * tile_rows + g;
    const lane_row row_a = row_at(o, rows, h, at, CHUNK * t);
    const lane_row row_b = row_at(o, rows, h, at + 8, CHUNK * t);
    loaded va, vb;
    load(va, row_a, o.d, 0);
    load(vb, row_b, o.d, 0);
    fn += rows.channel / tile * tile_words + lane;
    __syncthreads();
    for (unsigned p = 0; p < parts_here; p++) {
        lane_sums s;
        clear(s);
        for (unsigned i = p * tiles; i < (p + 1) * tiles; i++, fn += tile_words) {
            uint4 a[STREAMS], b[STREAMS];
            bool more = i + 1 < parts_here * tiles;
            step_row<PARTS>(a, va, s, 0, o, row_a, space.f[at], i * tile, more);
            fragments w0;
            load(w0, fn, 0);
            step_row<PARTS>(b, vb, s, 1, o, row_b, space.f[at + 8], i * tile, more);
            multiply_tile(s, a, b, fn, w0);
        }
        put_sums(&space.part[p][at], 1, s, t);
    }
    ptx::cluster_sync();
    finish_rows<ROWS, CLUSTER, THREADS>(o, m, space.part, h, space.finish, rows);
}

dsf_status launch_many(const dsf_launch *lc, const operands &o, const mixes &m)
{
    uint4 *cuts = reinterpret_cast<uint4 *>(lc->scratch);
    if (lc->scratch_bytes < dsf_tune_boundary_parts_bytes(o.d))
        return DSF_FAIL(DSF_EINVAL, "hc_boundary: %zu bytes of workspace, %zu wanted",
                        lc->scratch_bytes, dsf_tune_boundary_parts_bytes(o.d));
    int64_t items = int64_t(o.d / tile) * STREAMS * outputs * 32;
    cut_fn<<<dsf_blocks(items, CUT_THREADS), CUT_THREADS, 0, dsf_stream(lc)>>>(cuts, o.fn, o.d);
    DSF_CUDA_TRY(cudaGetLastError());
    cluster_grid grid = {dsf_blocks(o.n, ROWS), CLUSTER, THREADS, shared_bytes(o.d), false};
    auto kernel = o.n_parts == 0   ? boundary_many<0>
                  : o.n_parts == 6 ? boundary_many<6> /* the model's experts of a token */
                                   : boundary_many<ANY>;
    return launch_clusters(lc, kernel, grid, o, m, static_cast<const uint4 *>(cuts));
}

} // namespace

} // namespace boundary

extern "C" dsf_status dsf_hc_boundary_sm90tc(const dsf_launch *lc, const void *args)
{
    const dsf_hc_boundary_args *a = static_cast<const dsf_hc_boundary_args *>(args);
    boundary::operands o = boundary::operands_of(a);
    boundary::mixes m = boundary::mixes_of(a);
    return dsf_tune_boundary_many(o.n) ? boundary::launch_many(lc, o, m)
                                       : boundary::launch_few(lc, o, m);
}
