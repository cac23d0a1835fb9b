/* hc_boundary of few rows: a cluster of 8 or 16 blocks for 16 of them. All warps of a block work on
 * the same rows, each on tiles of its own; fn comes to the cluster once and is cut in registers. At
 * one row 2 MB of fn flow into 16 multiprocessors, some 64 bytes a clock each: 1.2 us. */
#include "sm90/fused_hc_tc.cuh"

namespace boundary
{

namespace
{

constexpr int ROWS = DSF_BOUNDARY_FEW, WARPS = 10, THREADS = 32 * WARPS;
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

/* The lines that load_fn() will want of streams k to 3. */
__device__ inline void prefetch_fn(const float *fn, unsigned d, unsigned c, unsigned k)
{
    if (threadIdx.x % 4) return;
    for (; k < STREAMS; k++)
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

/* One of a lane's two rows: loads, expands, stores. Rows beyond n repeat the last one unstored. */
__device__ inline void expand_row(uint4 (&out)[STREAMS], lane_sums &s, int r, const operands &o,
                                  const block_rows &rows, const factors *f, uint16_t *h, unsigned c,
                                  unsigned local)
{
    unsigned at = (threadIdx.x % 32) / 4 + 8 * r, row_here = at < rows.n ? at : rows.n - 1;
    int64_t row = rows.first + row_here;
    uint4 x[STREAMS], kept;
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
        x[k] = ptx::ld_global_nc_v4(o.x + (row * STREAMS + k) * o.d + c);
    row_of_tile<true>(out, kept, s, r, x, sublayer_chunk(o, row, c), f[row_here]);
    if (at >= rows.n) return;
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
        ptx::st_global_v4(o.out + (row * STREAMS + k) * o.d + c, out[k]);
    ptx::st_shared_v4(ptx::smem(h + at * rows.h_stride + local), kept);
}

/* Parts from their tiles, in ascending order. */
template <int CLUSTER>
__device__ inline void add_parts(sums (*part)[ROWS], const sums (*of)[ROWS], unsigned n,
                                 unsigned tiles)
{
    constexpr unsigned each = MIXES + 2, parts_here = parts / CLUSTER;
    for (unsigned i = threadIdx.x; i < parts_here * n * each; i += THREADS) {
        unsigned p = i / (n * each), r = i / each % n, column = i % each;
        const sums(*from)[ROWS] = of + p * tiles;
        float mix = 0;
        double squares = 0;
        for (unsigned t = 0; t < tiles; t++) {
            if (column < MIXES)
                mix += from[t][r].mix[column];
            else
                squares += column == MIXES ? from[t][r].squares : from[t][r].h_squares;
        }
        if (column < MIXES)
            part[p][r].mix[column] = mix;
        else if (column == MIXES)
            part[p][r].squares = squares;
        else
            part[p][r].h_squares = squares;
    }
}

/* EIGHT: no cluster has more than 8 rows. */
template <int CLUSTER, bool EIGHT>
__global__ void __launch_bounds__(THREADS, 1) boundary_few(operands o, mixes m)
{
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
    fn_of_tile w0;
    for (unsigned at = warp; at < tiles; at += WARPS) {
        unsigned c = rows.channel + at * tile + CHUNK * t;
        if (at == warp) load_fn(w0, o.fn, o.d, c, 0);
        prefetch_fn(o.fn, o.d, c, at == warp);
    }
    ptx::griddepcontrol_wait(); /* fn is a weight; everything else was just written */
    for (unsigned i = threadIdx.x; i < rows.n * COEFFICIENTS; i += THREADS)
        reinterpret_cast<double *>(space.f)[i] =
            factor(o.post, o.comb, o.pre, rows.first + i / COEFFICIENTS, int(i % COEFFICIENTS));
    __syncthreads();
    for (unsigned at = warp; at < tiles; at += WARPS) {
        unsigned local = at * tile + CHUNK * t, c = rows.channel + local;
        if (at != warp) load_fn(w0, o.fn, o.d, c, 0);
        lane_sums s;
        clear(s);
        uint4 a[STREAMS], b[STREAMS] = {};
        expand_row(a, s, 0, o, rows, space.f, h, c, local);
        if (!EIGHT && rows.n > 8) expand_row(b, s, 1, o, rows, space.f, h, c, local);
        fn_of_tile w1, w2, w3;
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
    add_parts<CLUSTER>(space.part, of, rows.n, tiles / (parts / CLUSTER));
    finish_rows<ROWS, CLUSTER, THREADS>(o, m, space.part, h, space.finish, rows);
}

template <int CLUSTER> dsf_status launch(const dsf_launch *lc, const operands &o, const mixes &m)
{
    cluster_grid grid = {dsf_blocks(o.n, ROWS), CLUSTER, THREADS, shared_bytes<CLUSTER>(o.d), true};
    return o.n <= 8 ? launch_clusters(lc, boundary_few<CLUSTER, true>, grid, o, m)
                    : launch_clusters(lc, boundary_few<CLUSTER, false>, grid, o, m);
}

} // namespace

dsf_status launch_few(const dsf_launch *lc, const operands &o, const mixes &m)
{
    return dsf_tune_boundary_cluster(o.n) == 16 ? launch<16>(lc, o, m) : launch<8>(lc, o, m);
}

} // namespace boundary
