/* hc_boundary: what goes channel by channel (sum of the experts, expansion, collapse, norm,
 * quantiser) in one pass; hc_mix, where it is asked for, on the stream that this wrote, the same
 * code as without fusion. Bytes a channel of a row: 10 read (and 2 for each expert), 8 + 33/32
 * written (and 2 for u). The reference's sums in double: 25 operations a channel, 60 us at 8,192
 * rows beside 210 us of memory; a chunk of 8 channels is 750 instructions, 130 us: bound by memory.
 * A group of 256 channels belongs to one warp, its squares are one sum; groups are added in an
 * order that d alone decides. Few rows: one row is 15,000 warp instructions, 2 us for one
 * multiprocessor, so four share it; blocks exchange the squares of their groups. */
#include "sm90/fused_hc.cuh"

extern "C" {
#include "ops/hc.h"
#include "sm90/tune_hc.h"
}

using namespace boundary;

enum { GROUP = 32 * CHUNK, CHAINS = 4 };

/* The experts' outputs are added to y one after the other, six loads ahead. */
__device__ inline uint4 add_parts(const uint16_t *part, unsigned n, unsigned d, unsigned c, uint4 y)
{
    float sum[CHUNK] = {0}, v[CHUNK];
#pragma unroll 6
    for (unsigned e = 0; e < n; e++) {
        unpack_chunk(v, load_chunk<true>(part + int64_t(e) * d, c, d));
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], v[i]);
    }
    unpack_chunk(v, y);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], v[i]);
    return pack_chunk(sum);
}

/* One chunk of the row as it comes in: the stream and the sublayer's output. */
struct pass_chunk {
    uint4 x[STREAMS], y;
};

__device__ inline void load_pass(pass_chunk &in, const operands &o, int64_t row, unsigned c)
{
    const uint16_t *x = o.x + row * STREAMS * o.d;
    if (c >= o.d) return;
    in.y = load_chunk<true>(o.y + row * o.d, c, o.d);
#pragma unroll
    for (int k = 0; k < STREAMS; k++) in.x[k] = load_chunk<true>(x + k * o.d, c, o.d);
    if (o.parts) in.y = add_parts(o.parts + row * o.n_parts * o.d, o.n_parts, o.d, c, in.y);
}

/* expand_word(), stream after stream in, with factors that are read where they are used: registers
 * hold the sums alone. f: shared address of a row's factors. */
__device__ inline void expand_again(uint32_t (&out)[STREAMS], const uint32_t (&x)[STREAMS],
                                    uint32_t y, uint32_t f)
{
    double low[STREAMS], high[STREAMS], a = fused::low_scaled(y), b = fused::high_scaled(y);
#pragma unroll
    for (int k = 0; k < STREAMS; k += 2) {
        double2 post = ptx::ld_volatile_shared_v2_f64(f + offsetof(factors, post) + 8 * k);
        low[k] = post.x * a, high[k] = post.x * b;
        low[k + 1] = post.y * a, high[k + 1] = post.y * b;
    }
#pragma unroll
    for (int j = 0; j < STREAMS; j++) {
        a = fused::low_scaled(x[j]), b = fused::high_scaled(x[j]);
#pragma unroll
        for (int k = 0; k < STREAMS; k += 2) {
            double2 comb =
                ptx::ld_volatile_shared_v2_f64(f + offsetof(factors, comb) + 8 * (STREAMS * j + k));
            low[k] = fma(comb.x, a, low[k]), high[k] = fma(comb.x, b, high[k]);
            low[k + 1] = fma(comb.y, a, low[k + 1]), high[k + 1] = fma(comb.y, b, high[k + 1]);
        }
    }
#pragma unroll
    for (int k = 0; k < STREAMS; k++) out[k] = pack(low[k], high[k]);
}

/* The new stream of a chunk. */
__device__ inline void expand_pass(uint4 (&back)[STREAMS], const pass_chunk &in, const factors &f)
{
    uint32_t to[4][STREAMS];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t from[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) from[k] = (&in.x[k].x)[i];
        expand_again(to[i], from, (&in.y.x)[i], ptx::smem(&f));
    }
#pragma unroll
    for (int k = 0; k < STREAMS; k++) back[k] = make_uint4(to[0][k], to[1][k], to[2][k], to[3][k]);
}

__device__ inline void store_pass(const operands &o, int64_t row, unsigned c,
                                  const uint4 (&back)[STREAMS])
{
    uint16_t *out = o.out + row * STREAMS * o.d;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) ptx::st_global_v4(out + k * o.d + c, back[k]);
}

/* u and its record, of a chunk of h. All lanes call it: a group of the quantiser is four of them.
 */
__device__ inline void finish_chunk(const operands &o, int64_t row, unsigned c, uint4 h,
                                    uint4 weight, float by)
{
    bool live = c < o.d;
    float v[CHUNK];
    unpack_chunk(v, h);
    fused::scale_chunk(v, weight, by);
    if (live && o.u) ptx::st_global_v4(o.u + row * o.d + c, pack_chunk(v));
    fused::put_q8(o.uq + row * (o.d + o.d / 32), v, c, o.d, live);
}

__device__ inline uint4 weight_chunk(const operands &o, unsigned c)
{
    return c < o.d ? load_chunk<true>(o.w, c, o.d) : make_uint4(0, 0, 0, 0);
}

__device__ inline void take_factors(factors &f, const operands &o, int64_t row)
{
    if (threadIdx.x < COEFFICIENTS)
        put_factor(f, int(threadIdx.x), factor(o.post, o.comb, o.pre, row, int(threadIdx.x)));
}

/* ---- few rows: a cluster a row, a warp a group ---- */

enum { SPREAD = DSF_BOUNDARY_CLUSTER, MOST_GROUPS = SPREAD * DSF_BOUNDARY_FEW_WARPS };
static_assert(MOST_GROUPS <= 32, "a lane a group");

/* Lane l has group l's squares; all lanes get the sum in the order of join_squares(). */
__device__ inline double join_lanes(double mine, unsigned groups)
{
    const unsigned all = 0xFFFFFFFFu, lane = threadIdx.x % 32;
    double sum = 0;
    for (unsigned g = 0; g < groups; g += CHAINS) sum += __shfl_sync(all, mine, g + lane % CHAINS);
    double total = __shfl_sync(all, sum, 0);
#pragma unroll
    for (int i = 1; i < CHAINS; i++) total += __shfl_sync(all, sum, i);
    return total;
}

static __global__ void __launch_bounds__(DSF_BOUNDARY_FEW_WARPS * 32) spread_kernel(operands o)
{
    __shared__ factors f;
    __shared__ double own[DSF_BOUNDARY_FEW_WARPS];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const unsigned groups = (o.d + GROUP - 1) / GROUP;
    const unsigned c = ((ptx::cluster_ctarank() * warps + warp) * 32 + lane) * CHUNK;
    const int64_t row = blockIdx.x / SPREAD;
    ptx::griddepcontrol_launch_dependents();
    uint4 weight = weight_chunk(o, c);
    ptx::griddepcontrol_wait(); /* all but the norm's weight was just written */
    pass_chunk in = {};
    load_pass(in, o, row, c);
    take_factors(f, o, row);
    __syncthreads();
    uint4 back[STREAMS];
    expand_pass(back, in, f);
    uint4 h = collapse_chunk(back, f);
    double squares = warp_sum(c < o.d ? squares_of(h) : 0.0);
    if (lane == 0) own[warp] = squares;
    ptx::cluster_arrive(); /* waits for stores on their way: so the stream's follow it */
    if (c < o.d) store_pass(o, row, c, back);
    ptx::cluster_wait();
    squares = 0;
    if (lane < groups)
        squares = ptx::ld_shared_cluster_f64(ptx::smem(own + lane % warps), lane / warps);
    squares = join_lanes(squares, groups);
    ptx::cluster_arrive_relaxed(); /* what others have was read */
    finish_chunk(o, row, c, h, weight, fused::norm_factor(squares, o.d, o.eps));
    ptx::cluster_wait();
}

/* ---- many rows: a block a row ---- */

/* A block's shared memory: factors, h of all chunks, squares of the groups. */
extern __shared__ __align__(16) uint8_t pass_space[];

__device__ inline factors &own_factors() { return *reinterpret_cast<factors *>(pass_space); }
__device__ inline uint4 *own_h() { return reinterpret_cast<uint4 *>(pass_space + sizeof(factors)); }
__device__ inline double *own_squares(unsigned groups)
{
    return reinterpret_cast<double *>(own_h() + groups * 32);
}

/* Group g is in chain g mod 4 in ascending order; chains are joined in theirs. */
__device__ inline double join_squares(const double *squares, unsigned groups)
{
    double sum[CHAINS] = {0};
    for (unsigned g = 0; g < groups; g += CHAINS)
#pragma unroll
        for (unsigned i = 0; i < CHAINS; i++)
            if (g + i < groups) sum[i] += squares[g + i];
    return ((sum[0] + sum[1]) + sum[2]) + sum[3];
}

/* d is a multiple of 32: groups of the quantiser never span warps. */
static __global__ void __launch_bounds__(DSF_BOUNDARY_MANY_WARPS * 32, 5) pass_kernel(operands o)
{
    const unsigned groups = (o.d + GROUP - 1) / GROUP, lane = threadIdx.x % 32;
    const int64_t row = blockIdx.x;
    begin();
    take_factors(own_factors(), o, row);
    __syncthreads();
#pragma unroll 1
    for (unsigned g = threadIdx.x / 32; g < groups; g += blockDim.x / 32) {
        unsigned c = (g * 32 + lane) * CHUNK;
        pass_chunk in = {};
        uint4 back[STREAMS];
        load_pass(in, o, row, c);
        expand_pass(back, in, own_factors());
        if (c < o.d) store_pass(o, row, c, back);
        uint4 h = collapse_chunk(back, own_factors());
        own_h()[g * 32 + lane] = h;
        double squares = warp_sum(c < o.d ? squares_of(h) : 0.0);
        if (lane == 0) own_squares(groups)[g] = squares;
    }
    __syncthreads();
    float by = fused::norm_factor(join_squares(own_squares(groups), groups), o.d, o.eps);
#pragma unroll 1
    for (unsigned g = threadIdx.x / 32; g < groups; g += blockDim.x / 32) {
        unsigned c = (g * 32 + lane) * CHUNK;
        finish_chunk(o, row, c, own_h()[g * 32 + lane], weight_chunk(o, c), by);
    }
}

static dsf_status launch_pass(const dsf_launch *lc, const operands &o)
{
    unsigned groups = (o.d + GROUP - 1) / GROUP, warps = unsigned(dsf_boundary_warps(o.n, o.d));
    if (dsf_boundary_few(o.n, o.d))
        return launch_early(dsf_stream(lc), {o.n * SPREAD, 32 * warps, 0, SPREAD}, spread_kernel,
                            o);
    size_t bytes = sizeof(factors) + groups * (32 * sizeof(uint4) + sizeof(double));
    return launch_early(dsf_stream(lc), {o.n, 32 * warps, bytes}, pass_kernel, o);
}

extern "C" dsf_status dsf_hc_boundary_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_boundary_args *a = static_cast<const dsf_hc_boundary_args *>(args);
    DSF_TRY(launch_pass(lc, operands_of(a)));
    if (!a->fn.rank) return DSF_OK; /* hc_mix is a step of its own */
    dsf_hc_mix_args m = dsf_boundary_mix(a);
    return dsf_hc_mix_sm90(lc, &m);
}
