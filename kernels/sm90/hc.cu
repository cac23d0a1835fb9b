/* Hyper-connections (architecture.md 4) but for the coefficients (hc_mix.cu): one thread a chunk of
 * 8 channels of all four streams, 16-byte accesses, all loads before the first use. Bytes a channel
 * of a row: start 10, collapse 10, expand 18, mean 10: bound by memory. */
#include "sm90/row.cuh"

extern "C" {
#include "ops/hc.h"
}

enum { STREAMS = 4 };

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    start_kernel(uint16_t *x, float4 *premix, const uint16_t *e, unsigned items, unsigned chunks,
                 unsigned d)
{
    begin();
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    uint4 v = load_chunk<VEC>(e + int64_t(at.row) * d, at.c, d);
    uint16_t *to = x + int64_t(at.row) * STREAMS * d;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) store_chunk<VEC>(to + int64_t(k) * d, at.c, d, v);
    if (at.c == 0) premix[at.row] = make_float4(1.0f, 0.0f, 0.0f, 0.0f);
}

template <bool VEC>
__device__ inline void load_streams(float (&v)[STREAMS][CHUNK], const uint16_t *x, row_chunk at,
                                    unsigned d)
{
    const uint16_t *from = x + int64_t(at.row) * STREAMS * d;
    uint4 raw[STREAMS];
#pragma unroll
    for (int k = 0; k < STREAMS; k++) raw[k] = load_chunk<VEC>(from + int64_t(k) * d, at.c, d);
#pragma unroll
    for (int k = 0; k < STREAMS; k++) unpack_chunk(v[k], raw[k]);
}

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    collapse_kernel(uint16_t *out, const uint16_t *x, const float4 *w, unsigned items,
                    unsigned chunks, unsigned d)
{
    begin();
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    float v[STREAMS][CHUNK], sum[CHUNK];
    float4 weight = w[at.row];
    load_streams<VEC>(v, x, at, d);
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        sum[i] = fmaf(weight.w, v[3][i],
                      fmaf(weight.z, v[2][i], fmaf(weight.y, v[1][i], weight.x * v[0][i])));
    store_chunk<VEC>(out + int64_t(at.row) * d, at.c, d, pack_chunk(sum));
}

/* out may be x: a chunk's four streams are read before any is written. */
template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    expand_kernel(uint16_t *out, const uint16_t *x, const uint16_t *y, const float4 *post,
                  const float4 *comb, unsigned items, unsigned chunks, unsigned d)
{
    begin();
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    float v[STREAMS][CHUNK], yv[CHUNK];
    uint4 raw = load_chunk<VEC>(y + int64_t(at.row) * d, at.c, d);
    load_streams<VEC>(v, x, at, d);
    unpack_chunk(yv, raw);
    float4 p4 = post[at.row], c4[STREAMS];
#pragma unroll
    for (int j = 0; j < STREAMS; j++) c4[j] = comb[int64_t(at.row) * STREAMS + j];
    const float p[STREAMS] = {p4.x, p4.y, p4.z, p4.w};
    uint16_t *to = out + int64_t(at.row) * STREAMS * d;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        float sum[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            sum[i] = p[k] * yv[i];
#pragma unroll
            for (int j = 0; j < STREAMS; j++) {
                const float c[STREAMS] = {c4[j].x, c4[j].y, c4[j].z, c4[j].w};
                sum[i] = fmaf(c[k], v[j][i], sum[i]);
            }
        }
        store_chunk<VEC>(to + int64_t(k) * d, at.c, d, pack_chunk(sum));
    }
}

/* Quarters are exact and keep the sum from overflowing where the mean does not. */
template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    mean_kernel(uint16_t *out, const uint16_t *x, unsigned items, unsigned chunks, unsigned d,
                unsigned columns, unsigned column)
{
    begin();
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    float v[STREAMS][CHUNK], sum[CHUNK];
    load_streams<VEC>(v, x, at, d);
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        sum[i] = (0.25f * v[0][i] + 0.25f * v[1][i]) + (0.25f * v[2][i] + 0.25f * v[3][i]);
    store_chunk<VEC>(out + (int64_t(at.row) * columns + column) * d, at.c, d, pack_chunk(sum));
}

/* ---- host ---- */

extern "C" dsf_status dsf_hc_start_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_start_args *a = static_cast<const dsf_hc_start_args *>(args);
    uint16_t *x = data_of<uint16_t>(a->x);
    const uint16_t *e = data_of<uint16_t>(a->e);
    int64_t d = a->e.dim[1], items = a->e.dim[0] * chunks_of(d);
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, items));
    bool vec = d % CHUNK == 0 && aligned_to(x, 16) && aligned_to(e, 16);
    auto kernel = vec ? start_kernel<true> : start_kernel<false>;
    return queue(lc, kernel, blocks, FLAT_THREADS, 0, x, data_of<float4>(a->premix), e,
                 unsigned(items), unsigned(chunks_of(d)), unsigned(d));
}

extern "C" dsf_status dsf_hc_collapse_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_collapse_args *a = static_cast<const dsf_hc_collapse_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x);
    int64_t d = a->out.dim[1], items = a->out.dim[0] * chunks_of(d);
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, items));
    bool vec = d % CHUNK == 0 && aligned_to(out, 16) && aligned_to(x, 16);
    auto kernel = vec ? collapse_kernel<true> : collapse_kernel<false>;
    return queue(lc, kernel, blocks, FLAT_THREADS, 0, out, x, data_of<float4>(a->w),
                 unsigned(items), unsigned(chunks_of(d)), unsigned(d));
}

extern "C" dsf_status dsf_hc_expand_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_expand_args *a = static_cast<const dsf_hc_expand_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x), *y = data_of<uint16_t>(a->y);
    int64_t d = a->y.dim[1], items = a->y.dim[0] * chunks_of(d);
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, items));
    bool vec = d % CHUNK == 0 && aligned_to(out, 16) && aligned_to(x, 16) && aligned_to(y, 16);
    auto kernel = vec ? expand_kernel<true> : expand_kernel<false>;
    return queue(lc, kernel, blocks, FLAT_THREADS, 0, out, x, y, data_of<float4>(a->post),
                 data_of<float4>(a->comb), unsigned(items), unsigned(chunks_of(d)), unsigned(d));
}

extern "C" dsf_status dsf_hc_mean_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_mean_args *a = static_cast<const dsf_hc_mean_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x);
    int64_t d = a->out.dim[2], items = a->out.dim[0] * chunks_of(d);
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, items));
    bool vec = d % CHUNK == 0 && aligned_to(out, 16) && aligned_to(x, 16);
    auto kernel = vec ? mean_kernel<true> : mean_kernel<false>;
    return queue(lc, kernel, blocks, FLAT_THREADS, 0, out, x, unsigned(items),
                 unsigned(chunks_of(d)), unsigned(d), unsigned(a->out.dim[1]), unsigned(a->column));
}
