/* Hyper-connections (architecture.md 4) but for the coefficients (hc_mix.cu): one thread a chunk of
 * 8 channels of all four streams, 16-byte accesses, all loads before the first use. Bytes a channel
 * of a row: start 10, collapse 10, expand 18, mean 10: bound by memory. Sums of collapse and expand
 * are the reference's, in double and in its order (fused_hc.cuh): 5 operations a channel and
 * stream, 57 us at 8,192 rows beside 185 us of memory. */
#include "sm90/fused_hc.cuh"

extern "C" {
#include "ops/hc.h"
}

using namespace boundary;

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
__device__ inline void load_streams(uint4 (&v)[STREAMS], const uint16_t *x, row_chunk at,
                                    unsigned d)
{
    const uint16_t *from = x + int64_t(at.row) * STREAMS * d;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) v[k] = load_chunk<VEC>(from + int64_t(k) * d, at.c, d);
}

/* Shifts take finite numbers only; the other way is three times as long. */
__device__ inline uint32_t any_not_finite(const uint4 (&v)[STREAMS])
{
    return not_finite(v[0]) | not_finite(v[1]) | not_finite(v[2]) | not_finite(v[3]);
}

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    collapse_kernel(uint16_t *out, const uint16_t *x, const float4 *w, unsigned items,
                    unsigned chunks, unsigned d)
{
    begin();
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    uint4 v[STREAMS];
    float4 weight = w[at.row];
    load_streams<VEC>(v, x, at, d);
    const double scale = any_not_finite(v) ? 1.0 : fused::unscale;
    factors f;
    f.pre[0] = weight.x * scale, f.pre[1] = weight.y * scale;
    f.pre[2] = weight.z * scale, f.pre[3] = weight.w * scale;
    store_chunk<VEC>(out + int64_t(at.row) * d, at.c, d,
                     scale == 1.0 ? collapse_chunk<by_conversion>(v, f)
                                  : collapse_chunk<by_shifts>(v, f));
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
    uint4 v[STREAMS], back[STREAMS], added = load_chunk<VEC>(y + int64_t(at.row) * d, at.c, d);
    load_streams<VEC>(v, x, at, d);
    const double scale = any_not_finite(v) | not_finite(added) ? 1.0 : fused::unscale;
    float4 p = post[at.row];
    factors f;
    f.post[0] = p.x * scale, f.post[1] = p.y * scale;
    f.post[2] = p.z * scale, f.post[3] = p.w * scale;
#pragma unroll
    for (int j = 0; j < STREAMS; j++) {
        float4 c = comb[int64_t(at.row) * STREAMS + j];
        f.comb[j][0] = c.x * scale, f.comb[j][1] = c.y * scale;
        f.comb[j][2] = c.z * scale, f.comb[j][3] = c.w * scale;
    }
    if (scale == 1.0)
        expand_chunk<by_conversion>(back, v, added, f);
    else
        expand_chunk<by_shifts>(back, v, added, f);
    uint16_t *to = out + int64_t(at.row) * STREAMS * d;
#pragma unroll
    for (int k = 0; k < STREAMS; k++) store_chunk<VEC>(to + int64_t(k) * d, at.c, d, back[k]);
}

/* Quarters are exact and keep the sum from overflowing where the mean does not. */
template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    mean_kernel(uint16_t *out, const uint16_t *x, unsigned columns, unsigned column, unsigned items,
                unsigned chunks, unsigned d)
{
    begin();
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    uint4 raw[STREAMS];
    float v[STREAMS][CHUNK], sum[CHUNK];
    load_streams<VEC>(raw, x, at, d);
#pragma unroll
    for (int k = 0; k < STREAMS; k++) unpack_chunk(v[k], raw[k]);
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
    int64_t n = a->e.dim[0], d = a->e.dim[1];
    auto kernel = whole_chunks(d, x, e) ? start_kernel<true> : start_kernel<false>;
    return launch_chunks(lc, n, d, kernel, x, data_of<float4>(a->premix), e);
}

extern "C" dsf_status dsf_hc_collapse_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_collapse_args *a = static_cast<const dsf_hc_collapse_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x);
    int64_t n = a->out.dim[0], d = a->out.dim[1];
    auto kernel = whole_chunks(d, out, x) ? collapse_kernel<true> : collapse_kernel<false>;
    return launch_chunks(lc, n, d, kernel, out, x, data_of<float4>(a->w));
}

extern "C" dsf_status dsf_hc_expand_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_expand_args *a = static_cast<const dsf_hc_expand_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x), *y = data_of<uint16_t>(a->y);
    int64_t n = a->y.dim[0], d = a->y.dim[1];
    auto kernel = whole_chunks(d, out, x, y) ? expand_kernel<true> : expand_kernel<false>;
    return launch_chunks(lc, n, d, kernel, out, x, y, data_of<float4>(a->post),
                         data_of<float4>(a->comb));
}

extern "C" dsf_status dsf_hc_mean_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_hc_mean_args *a = static_cast<const dsf_hc_mean_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *x = data_of<uint16_t>(a->x);
    int64_t n = a->out.dim[0], d = a->out.dim[2];
    auto kernel = whole_chunks(d, out, x) ? mean_kernel<true> : mean_kernel<false>;
    return launch_chunks(lc, n, d, kernel, out, x, unsigned(a->out.dim[1]), unsigned(a->column));
}
