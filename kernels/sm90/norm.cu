/* RMSNorm (architecture.md 3.5): a block a row, its chunks in registers between the two passes.
 * 4 bytes a channel: bound by memory. The squares are summed in double, in an order that d alone
 * decides. */
#include "sm90/fused_hc.cuh"

extern "C" {
#include "ops/norm.h"
}

enum { KEPT = 2, MAX_THREADS = 1024 }; /* chunks a thread keeps: rows of up to 16,384 channels */

__device__ inline uint4 scale_chunk(uint4 v, uint4 weight, float factor)
{
    float x[CHUNK], w[CHUNK];
    unpack_chunk(x, v);
    unpack_chunk(w, weight);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) x[i] = __fmul_rn(w[i], __fmul_rn(x[i], factor));
    return pack_chunk(x);
}

template <bool VEC>
static __global__ void __launch_bounds__(MAX_THREADS, 1)
    rms_norm_kernel(uint16_t *out, const uint16_t *x, const uint16_t *w, unsigned d, float eps)
{
    begin();
    __shared__ double scratch[32];
    const uint16_t *row = x + int64_t(blockIdx.x) * d;
    uint16_t *to = out + int64_t(blockIdx.x) * d;
    unsigned step = CHUNK * blockDim.x, first = CHUNK * threadIdx.x;
    uint4 kept[KEPT];
    double sum = 0;
#pragma unroll
    for (int j = 0; j < KEPT; j++)
        kept[j] = first + j * step < d ? load_chunk<VEC>(row, first + j * step, d)
                                       : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < KEPT; j++) sum += boundary::squares_of(kept[j]);
    for (unsigned c = first + KEPT * step; c < d; c += step)
        sum += boundary::squares_of(load_chunk<VEC>(row, c, d));
    sum = block_sum(sum, scratch);
    float factor = fused::norm_factor(sum, d, eps);
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        unsigned c = first + j * step;
        if (c < d)
            store_chunk<VEC>(to, c, d, scale_chunk(kept[j], load_chunk<VEC>(w, c, d), factor));
    }
    for (unsigned c = first + KEPT * step; c < d; c += step)
        store_chunk<VEC>(to, c, d,
                         scale_chunk(load_chunk<VEC>(row, c, d), load_chunk<VEC>(w, c, d), factor));
}

extern "C" dsf_status dsf_rms_norm_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_rms_norm_args *a = static_cast<const dsf_rms_norm_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x), *w = data_of<uint16_t>(a->w);
    int64_t d = a->x.dim[1], threads = 32 * ((chunks_of(d) + 32 * KEPT - 1) / (32 * KEPT));
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    auto kernel = whole_chunks(d, out, x, w) ? rms_norm_kernel<true> : rms_norm_kernel<false>;
    return launch_early(dsf_stream(lc), {unsigned(a->x.dim[0]), unsigned(threads)}, kernel, out, x,
                        w, unsigned(d), a->eps);
}
