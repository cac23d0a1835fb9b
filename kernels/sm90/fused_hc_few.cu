/* hc_boundary of few rows: a cluster of 8 or 16 blocks for 16 of them. All warps of a block work on
 * the same rows, each on tiles of its own; fn comes to the cluster once and is cut in registers. At
 * one row 2 MB of fn flow into 16 multiprocessors, some 64 bytes a clock each: 1.2 us. */
#include "sm90/fused_hc_tc.cuh"

namespace boundary
{

namespace
{

constexpr int ROWS = DSF_BOUNDARY_FEW;
/* Ten warps take the ten tiles of a block at once (d = 5,120, cluster of 16). Two rows a lane need
 * more registers than ten warps leave: eight, two on each scheduler. */
template <bool EIGHT> constexpr int warps = EIGHT ? 10 : 8;
static_assert(ROWS == tile_rows, "one tile of rows a block");

template <int CLUSTER> struct __align__(16) shared_space
{
    factors f[ROWS];
    sums part[parts / CLUSTER][ROWS];
    finish_space<ROWS, CLUSTER> finish;
    /* then sums of [tiles][ROWS], then h [ROWS][h_stride] */
};

template <int CLUSTER> size_t shared_bytes(int64_t d)
{
    size_t slice = size_t(d) / CLUSTER;
    return sizeof(shared_space<CLUSTER>) + slice / tile * ROWS * sizeof(sums) +
           ROWS * (slice + h_pad) * sizeof(uint16_t);
}

/* The 8 channels of this lane in its output of each column tile, one stream. */
struct fn_of_tile {
    float4 v[outputs][2];
};

__device__ inline const float *fn_at(const float *fn, unsigned d, unsigned k, unsigned j,
                                     unsigned c)
{
    unsigned g = threadIdx.x % 32 / 4;
    return fn + int64_t(8 * j + g) * STREAMS * d + k * d + c;
}

__device__ inline void load_fn(fn_of_tile &w, const float *fn, unsigned d, unsigned c, unsigned k)
{
#pragma unroll
    for (int j = 0; j < outputs; j++) {
        const float4 *p = reinterpret_cast<const float4 *>(fn_at(fn, d, k, j, c));
        w.v[j][0] = __ldg(p);
        w.v[j][1] = __ldg(p + 1);
    }
}

/* The lines that load_fn() will want. */
__device__ inline void prefetch_fn(const float *fn, unsigned d, unsigned c)
{
    if (threadIdx.x % 4) return;
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
#pragma unroll
        for (int j = 0; j < outputs; j++) ptx::prefetch_global_l2(fn_at(fn, d, k, j, c));
}

__device__ inline void multiply_stream(float (&acc)[columns][4], uint4 a, uint4 b,
                                       const fn_of_tile &w)
{
#pragma unroll
    for (int j = 0; j < outputs; j++) {
        uint4 cuts[3];
        cut(cuts, w.v[j][0], w.v[j][1]);
#pragma unroll
        for (int p = 0; p < 3; p++) multiply(acc[p * outputs + j], a, b, cuts[p]);
    }
}

/* One of a lane's two rows. Rows beyond n repeat the last one and are not stored. */
struct lane_row {
    unsigned local; /* of the block's rows */
    bool live;
    int64_t row;
};

__device__ inline lane_row row_at(const block_rows &rows, int r)
{
    unsigned at = threadIdx.x % 32 / 4 + 8 * r;
    bool live = at < rows.n;
    return {live ? at : rows.n - 1, live, int64_t(rows.first) + (live ? at : rows.n - 1)};
}

struct loaded {
    uint4 x[STREAMS], y;
};

__device__ inline void load(loaded &v, const operands &o, const lane_row &r, unsigned c)
{
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
        v.x[k] = ptx::ld_global_nc_v4(o.x + (r.row * STREAMS + k) * o.d + c);
    v.y = sublayer_chunk(o, r.row, c);
}

__device__ inline void expand(uint4 (&out)[STREAMS], lane_sums &s, int r, const loaded &v,
                              const lane_row &row, const factors *f, uint16_t *h_here)
{
    uint4 h;
    row_of_tile<true>(out, h, s, r, v.x, v.y, f[row.local]);
    if (row.live) ptx::st_shared_v4(ptx::smem(h_here), h);
}

__device__ inline void store(const operands &o, const lane_row &r, unsigned c,
                             const uint4 (&out)[STREAMS])
{
    if (!r.live) return;
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
        ptx::st_global_v4(o.out + (r.row * STREAMS + k) * o.d + c, out[k]);
}

constexpr int most_tiles = 10; /* of a part: d = 5,120 */

/* Their sum in ascending order, from zero; all are loaded before the first is added. */
template <typename T> __device__ inline T over_tiles(const T *first, unsigned step, unsigned tiles)
{
    T v[most_tiles], sum = 0;
#pragma unroll
    for (unsigned t = 0; t < most_tiles; t++) v[t] = t < tiles ? first[t * step] : T(0);
#pragma unroll
    for (unsigned t = 0; t < most_tiles; t++)
        if (t < tiles) sum += v[t];
    return sum;
}

/* Parts from their tiles: a warp a row, a lane an output, two more for the squares. */
template <int CLUSTER, int WARPS>
__device__ inline void add_parts(sums (*part)[ROWS], const sums (*of)[ROWS], unsigned n,
                                 unsigned tiles)
{
    constexpr unsigned here = parts / CLUSTER, step = ROWS * sizeof(sums);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = threadIdx.x / 32; i < here * n; i += WARPS) {
        unsigned p = i / n, r = i - p * n;
        const sums &from = of[p * tiles][r];
        sums &to = part[p][r];
        if (lane < MIXES)
            to.mix[lane] = over_tiles(&from.mix[lane], step / sizeof(float), tiles);
        else if (lane == MIXES)
            to.squares = over_tiles(&from.squares, step / sizeof(double), tiles);
        else if (lane == MIXES + 1)
            to.h_squares = over_tiles(&from.h_squares, step / sizeof(double), tiles);
    }
}

/* EIGHT: no cluster has more than 8 rows. */
template <int CLUSTER, bool EIGHT>
__global__ void __launch_bounds__(32 * warps<EIGHT>, 1) boundary_few(operands o, mixes m)
{
    constexpr int WARPS = warps<EIGHT>, THREADS = 32 * WARPS;
    extern __shared__ __align__(16) uint8_t memory[];
    using space_type = shared_space<CLUSTER>;
    space_type &space = *reinterpret_cast<space_type *>(memory);
    const unsigned slice = o.d / CLUSTER, tiles = slice / tile;
    sums(*of)[ROWS] = reinterpret_cast<sums(*)[ROWS]>(memory + sizeof(space_type));
    uint16_t *h = reinterpret_cast<uint16_t *>(of + tiles);
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    block_rows rows = {blockIdx.x / CLUSTER * ROWS, 0, ptx::cluster_ctarank() * slice, slice,
                       slice + h_pad};
    rows.n = min(o.n - rows.first, unsigned(ROWS));
    fused::let_follow();
    for (unsigned at = warp; at < tiles; at += WARPS)
        prefetch_fn(o.fn, o.d, rows.channel + at * tile + CHUNK * t);
    ptx::griddepcontrol_wait(); /* fn is a weight; everything else was just written */
    const lane_row row_a = row_at(rows, 0), row_b = row_at(rows, 1);
    const bool both = !EIGHT && rows.n > 8;
    unsigned c = rows.channel + warp * tile + CHUNK * t;
    loaded v;
    if (warp < tiles) load(v, o, row_a, c);
    for (unsigned i = threadIdx.x; i < rows.n * COEFFICIENTS; i += THREADS)
        put_factor(
            space.f[i / COEFFICIENTS], int(i % COEFFICIENTS),
            factor(o.post, o.comb, o.pre, rows.first + i / COEFFICIENTS, int(i % COEFFICIENTS)));
    __syncthreads();
    uint4 a[STREAMS], b[STREAMS] = {};
    for (unsigned at = warp; at < tiles; at += WARPS) {
        if (at != warp) { /* the tile before is done with its registers */
            store(o, row_a, c, a);
            if (both) store(o, row_b, c, b);
            c += WARPS * tile;
            load(v, o, row_a, c);
        }
        lane_sums s;
        clear(s);
        uint16_t *h_here = h + c - rows.channel;
        expand(a, s, 0, v, row_a, space.f, h_here + row_a.local * rows.h_stride);
        if (both) {
            load(v, o, row_b, c);
            expand(b, s, 1, v, row_b, space.f, h_here + row_b.local * rows.h_stride);
        }
        fn_of_tile w0, w1, w2, w3;
        load_fn(w0, o.fn, o.d, c, 0);
        load_fn(w1, o.fn, o.d, c, 1);
        float acc[columns][4] = {};
        multiply_stream(acc, a[0], b[0], w0);
        load_fn(w2, o.fn, o.d, c, 2);
        load_fn(w3, o.fn, o.d, c, 3);
        multiply_stream(acc, a[1], b[1], w1);
        multiply_stream(acc, a[2], b[2], w2);
        multiply_stream(acc, a[3], b[3], w3);
        add_tile(s, acc);
        put_sums(&of[at][g], 1, s, t);
    }
    __syncthreads();
    add_parts<CLUSTER, WARPS>(space.part, of, rows.n, tiles / (parts / CLUSTER));
    ptx::cluster_arrive(); /* waits for stores on their way: so the last tile's follow it */
    if (warp < tiles) store(o, row_a, c, a);
    if (warp < tiles && both) store(o, row_b, c, b);
    ptx::cluster_wait();
    finish_rows<ROWS, CLUSTER, THREADS>(o, m, space.part, h, space.finish, rows);
}

template <int CLUSTER> dsf_status launch(const dsf_launch *lc, const operands &o, const mixes &m)
{
    const bool eight = o.n <= 8;
    cluster_grid grid = {dsf_blocks(o.n, ROWS), CLUSTER, 32u * (eight ? warps<true> : warps<false>),
                         shared_bytes<CLUSTER>(o.d), true};
    return eight ? launch_clusters(lc, boundary_few<CLUSTER, true>, grid, o, m)
                 : launch_clusters(lc, boundary_few<CLUSTER, false>, grid, o, m);
}

} // namespace

dsf_status launch_few(const dsf_launch *lc, const operands &o, const mixes &m)
{
    return dsf_tune_boundary_cluster(o.n) == 16 ? launch<16>(lc, o, m) : launch<8>(lc, o, m);
}

} // namespace boundary
