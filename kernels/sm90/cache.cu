/* Moves between pass rows and caches (architecture.md 13), the ratio-2 compressor (5.2), and
 * embedding rows. Copies are made in the widest unit that row length and pointers allow, one unit a
 * thread: bound by memory. */
#include "sm90/row.cuh"

extern "C" {
#include "ops/cache.h"
#include "ops/engram.h"
}

/* Where row i of a copy comes from and goes to, in bytes. The maps below fill it in, or return
 * false: the row goes nowhere. */
struct move {
    int64_t from, to;
};

struct store_rows { /* cache_store */
    const int32_t *slot, *index, *end;
    int64_t ring, bytes;
    __device__ bool operator()(unsigned i, move &m) const
    {
        int64_t s = slot[i], at = index[i];
        if (s < 0 || at < end[i] - ring) return false;
        m = {i * bytes, (s * ring + at % ring) * bytes};
        return true;
    }
};

struct take_rows { /* row_gather, embed */
    const int32_t *row;
    int64_t bytes;
    __device__ bool operator()(unsigned i, move &m) const
    {
        m = {row[i] * bytes, i * bytes};
        return true;
    }
};

template <typename UNIT, typename MAP>
static __global__ void __launch_bounds__(FLAT_THREADS)
    copy_rows(uint8_t *to, const uint8_t *from, MAP map, unsigned items, unsigned units)
{
    begin();
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= items) return;
    unsigned row = item / units, at = item - row * units;
    move m;
    if (!map(row, m)) return;
    reinterpret_cast<UNIT *>(to + m.to)[at] = reinterpret_cast<const UNIT *>(from + m.from)[at];
}

template <typename UNIT, typename MAP>
static dsf_status launch_copy(const dsf_launch *lc, void *to, const void *from, MAP map, int64_t n,
                              int64_t bytes)
{
    int64_t units = bytes / int64_t(sizeof(UNIT));
    return launch_flat(lc, n * units, copy_rows<UNIT, MAP>, static_cast<uint8_t *>(to),
                       static_cast<const uint8_t *>(from), map, unsigned(n * units),
                       unsigned(units));
}

/* n rows of `bytes`. */
template <typename MAP>
static dsf_status copy(const dsf_launch *lc, void *to, const void *from, MAP map, int64_t n,
                       int64_t bytes)
{
    if (bytes % 16 == 0 && aligned_to(to, 16) && aligned_to(from, 16))
        return launch_copy<uint4>(lc, to, from, map, n, bytes);
    if (bytes % 4 == 0 && aligned_to(to, 4) && aligned_to(from, 4))
        return launch_copy<uint32_t>(lc, to, from, map, n, bytes);
    return launch_copy<uint8_t>(lc, to, from, map, n, bytes);
}

extern "C" dsf_status dsf_cache_store_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_cache_store_args *a = static_cast<const dsf_cache_store_args *>(args);
    int64_t bytes = dsf_dtype_bytes(a->x.dtype, a->x.dim[1]);
    store_rows map = {data_of<int32_t>(a->slot), data_of<int32_t>(a->index),
                      data_of<int32_t>(a->end), a->cache.dim[1], bytes};
    return copy(lc, a->cache.data, a->x.data, map, a->x.dim[0], bytes);
}

extern "C" dsf_status dsf_row_gather_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_row_gather_args *a = static_cast<const dsf_row_gather_args *>(args);
    int64_t bytes = 2 * a->x.dim[1];
    take_rows map = {data_of<int32_t>(a->row), bytes};
    return copy(lc, a->out.data, a->x.data, map, a->out.dim[0], bytes);
}

extern "C" dsf_status dsf_embed_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_embed_args *a = static_cast<const dsf_embed_args *>(args);
    int64_t bytes = 2 * a->out.dim[1];
    take_rows map = {data_of<int32_t>(a->ids), bytes};
    return copy(lc, a->out.data, a->table.data, map, a->out.dim[0], bytes);
}

/* ---- pair_store ---- */

struct store_args {
    float *pend;
    const float *v, *g;
    const int32_t *slot, *pos, *end;
    unsigned items, d, p;
};

/* W channels a thread, of v in the first half of the items, of g in the second. */
template <typename UNIT>
static __global__ void __launch_bounds__(FLAT_THREADS) pair_store_kernel(store_args a)
{
    begin();
    constexpr unsigned W = sizeof(UNIT) / sizeof(float);
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x, half = a.items / 2, which = item >= half;
    if (item >= a.items) return;
    if (which) item -= half;
    unsigned row = item / (a.d / W), c = (item - row * (a.d / W)) * W;
    int64_t slot = a.slot[row], pos = a.pos[row], p = a.p;
    if (slot < 0 || pos % 2 != 0 || pos < a.end[row] - 2 * p) return;
    float *to = a.pend + ((slot * p + pos / 2 % p) * 2 + which) * int64_t(a.d) + c;
    const float *from = (which ? a.g : a.v) + int64_t(row) * a.d + c;
    *reinterpret_cast<UNIT *>(to) = *reinterpret_cast<const UNIT *>(from);
}

extern "C" dsf_status dsf_pair_store_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_pair_store_args *a = static_cast<const dsf_pair_store_args *>(args);
    int64_t n = a->v.dim[0], d = a->v.dim[1];
    bool vec = d % 4 == 0 && aligned_to(a->pend.data, 16) && aligned_to(a->v.data, 16) &&
               aligned_to(a->g.data, 16);
    int64_t items = 2 * n * (vec ? d / 4 : d);
    store_args s = {data_of<float>(a->pend),  data_of<float>(a->v),
                    data_of<float>(a->g),     data_of<int32_t>(a->slot),
                    data_of<int32_t>(a->pos), data_of<int32_t>(a->end),
                    unsigned(items),          unsigned(d),
                    unsigned(a->pend.dim[1])};
    auto kernel = vec ? pair_store_kernel<float4> : pair_store_kernel<float>;
    return launch_flat(lc, items, kernel, s);
}

/* ---- pair_pool ---- */

struct pool_args {
    uint16_t *out;
    const float *v, *g, *pend;
    const int32_t *row, *pos, *start, *slot;
    unsigned items, d, p;
};

/* Softmax of two numbers times two values: the larger weight is 1 / (1 + e), e = exp(-|dg|). */
__device__ inline float pool_pair(float v0, float v1, float g0, float g1)
{
    float most = fmaxf(g0, g1);
    float e0 = expf(g0 - most), e1 = expf(g1 - most), sum = e0 + e1;
    return fmaf(__fdiv_rn(e0, sum), v0, __fdiv_rn(e1, sum) * v1);
}

/* W channels a thread: 4 where rows are 16-byte aligned. */
template <int W>
static __global__ void __launch_bounds__(FLAT_THREADS) pair_pool_kernel(pool_args a)
{
    begin();
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= a.items) return;
    unsigned e = item / (a.d / W), c = (item - e * (a.d / W)) * W;
    int64_t row = a.row[e], d = a.d;
    int32_t even = a.pos[row] - 1;
    const float *v1 = a.v + row * d + c, *g1 = a.g + row * d + c, *v0 = v1 - d, *g0 = g1 - d;
    if (even < a.start[row]) { /* before this pass: the pending half-group */
        v0 = a.pend + (a.slot[row] * int64_t(a.p) + even / 2 % int(a.p)) * 2 * d + c;
        g0 = v0 + d;
    }
    uint16_t *out = a.out + e * d + c;
    if (W == 4) {
        float4 va = *reinterpret_cast<const float4 *>(v0),
               vb = *reinterpret_cast<const float4 *>(v1);
        float4 ga = *reinterpret_cast<const float4 *>(g0),
               gb = *reinterpret_cast<const float4 *>(g1);
        *reinterpret_cast<uint2 *>(out) = make_uint2(
            num::pack_bf16(pool_pair(va.x, vb.x, ga.x, gb.x), pool_pair(va.y, vb.y, ga.y, gb.y)),
            num::pack_bf16(pool_pair(va.z, vb.z, ga.z, gb.z), pool_pair(va.w, vb.w, ga.w, gb.w)));
        return;
    }
    *out = num::f32_to_bf16(pool_pair(*v0, *v1, *g0, *g1));
}

extern "C" dsf_status dsf_pair_pool_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_pair_pool_args *a = static_cast<const dsf_pair_pool_args *>(args);
    int64_t e = a->out.dim[0], d = a->out.dim[1];
    bool vec = d % 4 == 0 && aligned_to(a->out.data, 8) && aligned_to(a->v.data, 16) &&
               aligned_to(a->g.data, 16) && aligned_to(a->pend.data, 16);
    int64_t items = e * (vec ? d / 4 : d);
    pool_args p = {data_of<uint16_t>(a->out),
                   data_of<float>(a->v),
                   data_of<float>(a->g),
                   data_of<float>(a->pend),
                   data_of<int32_t>(a->row),
                   data_of<int32_t>(a->pos),
                   data_of<int32_t>(a->start),
                   data_of<int32_t>(a->slot),
                   unsigned(items),
                   unsigned(d),
                   unsigned(a->pend.dim[1])};
    auto kernel = vec ? pair_pool_kernel<4> : pair_pool_kernel<1>;
    return launch_flat(lc, items, kernel, p);
}
