/* hc_boundary as two passes with the bits of its parts: a block a row does what goes channel by
 * channel (sum of the experts, expansion, collapse, norm, quantiser), then hc_mix runs on the
 * stream that it wrote, the same code as without fusion. Bytes a channel of a row: 10 read (and 2
 * for each expert), 8 + 33/32 written, then 8 read again by hc_mix. Double operations a channel: 24
 * (the reference's sums); about 60 us at 8,192 rows beside 190 us of memory. A group of 256
 * channels belongs to one warp, its squares are one sum; groups are added in ascending order, so
 * that d alone decides the order, not the number of warps. */
#include "sm90/fused_hc.cuh"

extern "C" {
#include "ops/hc.h"
#include "sm90/tune_hc.h"
}

using namespace boundary;

enum { GROUP = 32 * CHUNK };

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

__device__ inline void load_pass(pass_chunk &in, const operands &o, unsigned c)
{
    const int64_t row = blockIdx.x;
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

/* The new stream out, h back. */
__device__ inline uint4 expand_pass(const pass_chunk &in, const operands &o, unsigned c,
                                    const factors &f)
{
    uint32_t to[4][STREAMS];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t from[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) from[k] = (&in.x[k].x)[i];
        expand_again(to[i], from, (&in.y.x)[i], ptx::smem(&f));
    }
    uint16_t *out = o.out + int64_t(blockIdx.x) * STREAMS * o.d;
    uint4 back[STREAMS]; /* made whole: vectors made word by word are stored word by word */
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        back[k] = make_uint4(to[0][k], to[1][k], to[2][k], to[3][k]);
        ptx::st_global_v4(out + k * o.d + c, back[k]);
    }
    return collapse_chunk(back, f);
}

/* A block's shared memory: factors, h of all chunks, squares of the groups. */
extern __shared__ __align__(16) uint8_t pass_space[];

__device__ inline factors &own_factors() { return *reinterpret_cast<factors *>(pass_space); }
__device__ inline uint4 *own_h() { return reinterpret_cast<uint4 *>(pass_space + sizeof(factors)); }
__device__ inline double *own_squares(unsigned groups)
{
    return reinterpret_cast<double *>(own_h() + groups * 32);
}

/* Group g of the first half: the new stream, h and its squares. */
__device__ inline void expand_group(const pass_chunk &in, const operands &o, unsigned groups,
                                    unsigned g)
{
    unsigned lane = threadIdx.x % 32, c = (g * 32 + lane) * CHUNK;
    uint4 h = c < o.d ? expand_pass(in, o, c, own_factors()) : make_uint4(0, 0, 0, 0);
    own_h()[g * 32 + lane] = h;
    double squares = warp_sum(squares_of(h));
    if (lane == 0) own_squares(groups)[g] = squares;
}

/* d is a multiple of 32: groups of the quantiser never span warps. AHEAD groups of a warp are on
 * their way before the factors are there; WARPS: at most; BLOCKS: a multiprocessor. */
template <int AHEAD, int WARPS, int BLOCKS>
static __global__ void __launch_bounds__(WARPS * 32, BLOCKS) pass_kernel(operands o)
{
    unsigned groups = (o.d + GROUP - 1) / GROUP, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned warps = blockDim.x / 32;
    begin();
    pass_chunk in[AHEAD + 1];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) load_pass(in[i], o, ((warp + i * warps) * 32 + lane) * CHUNK);
    if (threadIdx.x < COEFFICIENTS)
        put_factor(own_factors(), int(threadIdx.x),
                   factor(o.post, o.comb, o.pre, blockIdx.x, int(threadIdx.x)));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (warp + i * warps < groups) expand_group(in[i], o, groups, warp + i * warps);
#pragma unroll 1
    for (unsigned g = warp + AHEAD * warps; g < groups; g += blockDim.x / 32) {
        load_pass(in[AHEAD], o, (g * 32 + lane) * CHUNK);
        expand_group(in[AHEAD], o, groups, g);
    }
    __syncthreads();
    double squares = 0;
    for (unsigned g = 0; g < groups; g++) squares += own_squares(groups)[g];
    float by = fused::norm_factor(squares, o.d, o.eps);
#pragma unroll 1
    for (unsigned g = threadIdx.x / 32; g < groups; g += blockDim.x / 32) {
        unsigned c = (g * 32 + lane) * CHUNK;
        bool live = c < o.d;
        float v[CHUNK];
        unpack_chunk(v, own_h()[g * 32 + lane]);
        fused::scale_chunk(v, live ? load_chunk<true>(o.w, c, o.d) : make_uint4(0, 0, 0, 0), by);
        if (live && o.u) store_chunk<true>(o.u + int64_t(blockIdx.x) * o.d, c, o.d, pack_chunk(v));
        fused::put_q8(o.uq + int64_t(blockIdx.x) * (o.d + o.d / 32), v, c, o.d, live);
    }
}

extern "C" dsf_status dsf_hc_boundary_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_boundary_args *a = static_cast<const dsf_hc_boundary_args *>(args);
    operands o = operands_of(a);
    unsigned groups = (o.d + GROUP - 1) / GROUP, warps = unsigned(dsf_boundary_warps(o.n, o.d));
    size_t bytes = sizeof(factors) + groups * (32 * sizeof(uint4) + sizeof(double));
    auto kernel = dsf_boundary_few(o.n) ? pass_kernel<2, DSF_BOUNDARY_FEW_WARPS, 1>
                                        : pass_kernel<0, DSF_BOUNDARY_MANY_WARPS, 5>;
    if (bytes > 48 * 1024)
        DSF_CUDA_TRY(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
    DSF_TRY(queue(lc, kernel, dim3(o.n), 32 * warps, bytes, o));
    if (!a->fn.rank) return DSF_OK; /* hc_mix is a step of its own */
    dsf_hc_mix_args m = dsf_boundary_mix(a);
    return dsf_hc_mix_sm90(lc, &m);
}
