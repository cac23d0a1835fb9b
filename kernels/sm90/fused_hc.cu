/* hc_boundary for every shape: a block a row. Every thread takes chunks of 8 channels through
 * expansion and collapse, adds its products with fn in double, and after one reduction normalises
 * and quantises the same chunks, collapsed once more from the stream that it wrote. The order of a
 * sum is decided by d alone. */
#include "sm90/fused_hc.cuh"

using namespace boundary;

enum { THREADS = 256, WARPS = THREADS / 32, SUMS = MIXES + 2 };

/* sums[0..23] += the chunk's products with fn, stream k at channels [c, c + 8). */
__device__ inline void add_products(double (&sums)[SUMS], const float *fn, uint4 out, unsigned at,
                                    unsigned q)
{
    float v[CHUNK];
    unpack_chunk(v, out);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) sums[MIXES] = fma(double(v[i]), double(v[i]), sums[MIXES]);
#pragma unroll
    for (int m = 0; m < MIXES; m++) {
        const float4 *row = reinterpret_cast<const float4 *>(fn + int64_t(m) * q + at);
        float4 a = row[0], b = row[1];
        const float w[CHUNK] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sums[m] = fma(double(w[i]), double(v[i]), sums[m]);
    }
}

static __global__ void __launch_bounds__(THREADS) boundary_row(operands o, mixes m)
{
    __shared__ factors f;
    __shared__ double part[WARPS][SUMS], total[SUMS];
    __shared__ float entries[32];
    const int64_t row = blockIdx.x;
    const unsigned t = threadIdx.x;
    uint16_t *out = o.out + row * STREAMS * o.d;
    const uint16_t *x = o.x + row * STREAMS * o.d;
    fused::let_follow();
    ptx::griddepcontrol_wait();
    if (t < COEFFICIENTS) put_factor(f, int(t), factor(o.post, o.comb, o.pre, row, int(t)));
    __syncthreads();
    double sums[SUMS] = {0};
    for (unsigned c = CHUNK * t; c < o.d; c += CHUNK * THREADS) {
        uint4 in[STREAMS], back[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) in[k] = load_chunk<true>(x + k * o.d, c, o.d);
        expand_chunk<false>(back, in, sublayer_chunk(o, row, c), f);
        sums[MIXES + 1] += squares_of(collapse_chunk(back, f));
#pragma unroll
        for (int k = 0; k < STREAMS; k++) {
            store_chunk<true>(out + k * o.d, c, o.d, back[k]);
            add_products(sums, o.fn, back[k], k * o.d + c, STREAMS * o.d);
        }
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        double s = warp_sum(sums[i]);
        if (t % 32 == 0) part[t / 32][i] = s;
    }
    __syncthreads();
    if (t < SUMS) {
        double s = 0;
        for (int w = 0; w < WARPS; w++) s += part[w][t];
        total[t] = s;
    }
    __syncthreads();
    if (t < 32) { /* the first warp: rows are few or narrow where this kernel is wanted */
        mix_weights w = mix_weights_of(m);
        entries[t] = mix_lane(m, row, t < MIXES ? float(total[t]) : 0.0f, total[MIXES],
                              int64_t(STREAMS) * o.d, w.weight, w.base);
        __syncwarp();
        if (t == 0) mix_close(m, row, entries + 8);
    }
    float by = fused::norm_factor(total[MIXES + 1], o.d, o.eps);
    for (unsigned base = 0; base < o.d; base += CHUNK * THREADS) {
        unsigned c = base + CHUNK * t;
        bool live = c < o.d;
        uint4 back[STREAMS] = {};
#pragma unroll
        for (int k = 0; k < STREAMS && live; k++) back[k] = load_chunk<true>(out + k * o.d, c, o.d);
        float v[CHUNK];
        unpack_chunk(v, collapse_chunk(back, f));
        fused::scale_chunk(v, live ? load_chunk<true>(o.w, c, o.d) : make_uint4(0, 0, 0, 0), by);
        if (o.u && live) store_chunk<true>(o.u + row * o.d, c, o.d, pack_chunk(v));
        fused::put_q8(o.uq + row * (o.d + o.d / 32), v, c, o.d, live);
    }
}

extern "C" dsf_status dsf_hc_boundary_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_boundary_args *a = static_cast<const dsf_hc_boundary_args *>(args);
    operands o = operands_of(a);
    return fused::launch_early(lc, boundary_row, o.n, THREADS, o, mixes_of(a));
}
