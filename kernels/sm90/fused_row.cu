/* Fused row operations: norm, rotation and quantiser of a record without the bf16 rows between
 * them, and SwiGLU with its quantiser. A thread keeps a chunk of 8 channels in registers from the
 * first step to the record. Bytes a channel: 2 read, 1 (Q8) or 1/2 (Q4X) written; SwiGLU reads 4:
 * bound by memory, at one row by the latency of one load and one block reduction. */
#include "sm90/silu.cuh"

extern "C" {
#include "ops/fused.h"
}

enum {
    MAX_THREADS = 1024,
    FEW_ROWS = 64,   /* 2,304 channels of so many rows do not fill the machine 8 a thread */
    FEW_THREADS = 64 /* spread over as many multiprocessors as they reach */
};

template <bool Q8>
__device__ inline void put_record(uint8_t *rec, const float (&x)[CHUNK], unsigned c, unsigned d,
                                  bool live)
{
    if (Q8)
        fused::put_q8(rec, x, c, d, live);
    else
        fused::put_q4x(rec, x, c, d, live);
}

struct record_shape {
    unsigned d, plain, f, bytes; /* channels, those before the rotated ones, pairs, of a record */
    unsigned heads;
    float eps;
};

/* One record with its norm, by a block. Threads: one a chunk as far as they go; their number
 * decides the order of the sum, and d theirs. */
template <bool Q8>
__device__ inline void normed_row(uint8_t *rec, const uint16_t *row, const uint16_t *w,
                                  const float2 *cs, const record_shape &s)
{
    __shared__ double scratch[32];
    const uint4 none = make_uint4(0, 0, 0, 0);
    unsigned step = CHUNK * blockDim.x, first = CHUNK * threadIdx.x;
    ptx::griddepcontrol_launch_dependents();
    uint4 weight = first < s.d ? load_chunk<true>(w, first, s.d) : none;
    ptx::griddepcontrol_wait();
    uint4 mine = first < s.d ? load_chunk<true>(row, first, s.d) : none;
    float v[CHUNK];
    double sum = 0;
    for (unsigned c = first; c < s.d; c += step) {
        unpack_chunk(v, c == first ? mine : load_chunk<true>(row, c, s.d));
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sum = fma(double(v[i]), double(v[i]), sum);
    }
    sum = block_sum(sum, scratch);
    float factor = fused::norm_factor(sum, s.d, s.eps);
    for (unsigned base = 0; base < s.d; base += step) { /* all lanes meet in the shuffles */
        unsigned c = base + first;
        bool live = c < s.d;
        if (base > 0) {
            mine = live ? load_chunk<true>(row, c, s.d) : none;
            weight = live ? load_chunk<true>(w, c, s.d) : none;
        }
        unpack_chunk(v, mine);
        fused::scale_chunk(v, weight, factor);
        if (live && s.f) fused::rotate_chunk(v, cs, c, s.plain);
        put_record<Q8>(rec, v, c, s.d, live);
    }
}

template <bool Q8>
static __global__ void __launch_bounds__(MAX_THREADS)
    normed_record(uint8_t *out, const uint16_t *x, const uint16_t *w, const float2 *cs,
                  record_shape s)
{
    int64_t row = blockIdx.x;
    normed_row<Q8>(out + row * s.bytes, x + row * s.d, w, cs + row * s.f, s);
}

/* Two tensors of records: blocks [0, n) have those of the first. */
struct record_operands {
    uint8_t *out;
    const uint16_t *x, *w;
    const float2 *cs;
    record_shape shape;
};

static __global__ void __launch_bounds__(MAX_THREADS)
    normed_pair(record_operands a, record_operands b, unsigned n)
{
    int64_t row = blockIdx.x < n ? blockIdx.x : blockIdx.x - n;
    if (blockIdx.x < n) /* not one call with a choice of operands: they would go through memory */
        normed_row<true>(a.out + row * a.shape.bytes, a.x + row * a.shape.d, a.w,
                         a.cs + row * a.shape.f, a.shape);
    else
        normed_row<true>(b.out + row * b.shape.bytes, b.x + row * b.shape.d, b.w,
                         b.cs + row * b.shape.f, b.shape);
}

/* A thread a chunk of any record. */
template <bool Q8>
static __global__ void __launch_bounds__(FLAT_THREADS)
    plain_record(uint8_t *out, const uint16_t *x, const float2 *cs, record_shape s, unsigned items)
{
    row_chunk at = {0, 0};
    bool live = this_chunk(at, items, s.d / CHUNK);
    begin();
    float v[CHUNK];
    unpack_chunk(v, live ? load_chunk<true>(x + int64_t(at.row) * s.d, at.c, s.d)
                         : make_uint4(0, 0, 0, 0));
    if (live && s.f) fused::rotate_chunk(v, cs + int64_t(at.row / s.heads) * s.f, at.c, s.plain);
    put_record<Q8>(out + int64_t(at.row) * s.bytes, v, at.c, s.d, live);
}

/* EACH channels a thread: 8, or 2 where rows are so few that only latency counts. */
template <int EACH>
static __global__ void __launch_bounds__(FLAT_THREADS)
    swiglu_record(uint8_t *out, const uint16_t *g, const uint16_t *v, float limit, unsigned d,
                  unsigned items)
{
    constexpr unsigned lanes = 32 / EACH; /* of a group */
    using word = typename fused::words<EACH>::type;
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x, row = item / (d / EACH);
    unsigned c = (item - row * (d / EACH)) * EACH;
    bool live = item < items;
    word gate = {}, up = {};
    begin();
    if (live) {
        gate = *reinterpret_cast<const word *>(g + int64_t(row) * d + c);
        up = *reinterpret_cast<const word *>(v + int64_t(row) * d + c);
    }
    float a[EACH], b[EACH], most = 1e-4f;
    fused::unpack(a, gate);
    fused::unpack(b, up);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        a[i] = num::round_bf16(swiglu(a[i], b[i], limit));
        most = fmaxf(most, fabsf(a[i]));
    }
#pragma unroll
    for (unsigned l = 1; l < lanes; l *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, l));
    uint8_t *rec = out + int64_t(row) * (d + d / 32);
    fused::put_q8_codes(rec, a, most, c, d, live);
}

/* ---- host ---- */

static int64_t threads_for(int64_t d)
{
    int64_t threads = (d / CHUNK + 31) / 32 * 32;
    return threads > MAX_THREADS ? int64_t(MAX_THREADS) : threads;
}

template <bool Q8> static dsf_status record(const dsf_launch *lc, const void *args)
{
    const dsf_row_record_args *a = static_cast<const dsf_row_record_args *>(args);
    int64_t n = a->x.dim[0], h = a->x.dim[1], d = a->x.dim[2], f = a->cs.rank ? a->cs.dim[1] : 0;
    uint8_t *out = data_of<uint8_t>(a->out);
    const uint16_t *x = data_of<const uint16_t>(a->x);
    const float2 *cs = a->cs.rank ? data_of<float2>(a->cs) : nullptr;
    record_shape s = {unsigned(d), unsigned(d - 2 * f),
                      unsigned(f), unsigned(dsf_dtype_bytes(a->out.dtype, d)),
                      unsigned(h), a->eps};
    if (a->w.rank) {
        if (h != 1)
            return DSF_FAIL(DSF_EINVAL, "row record: %lld records a row with a norm, 1 is allowed",
                            static_cast<long long>(h));
        return launch_early(dsf_stream(lc), {unsigned(n), unsigned(threads_for(d))},
                            normed_record<Q8>, out, x, data_of<const uint16_t>(a->w), cs, s);
    }
    int64_t items = n * h * (d / CHUNK);
    return launch_flat(lc, items, plain_record<Q8>, out, x, cs, s, unsigned(items));
}

extern "C" dsf_status dsf_row_q8_sm90(const dsf_launch *lc, const void *args)
{
    return record<true>(lc, args);
}

extern "C" dsf_status dsf_row_q4x_sm90(const dsf_launch *lc, const void *args)
{
    return record<false>(lc, args);
}

extern "C" dsf_status dsf_swiglu_q8_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_swiglu_q8_args *a = static_cast<const dsf_swiglu_q8_args *>(args);
    int64_t n = a->g.dim[0], d = a->g.dim[1];
    bool few = n <= FEW_ROWS;
    int64_t items = n * (d / (few ? 2 : CHUNK));
    unsigned blocks = 0, threads = few ? unsigned(FEW_THREADS) : unsigned(FLAT_THREADS);
    DSF_TRY(flat_grid(&blocks, items * (FLAT_THREADS / threads)));
    auto kernel = few ? swiglu_record<2> : swiglu_record<CHUNK>;
    return launch_early(dsf_stream(lc), {blocks, threads}, kernel, data_of<uint8_t>(a->out),
                        data_of<const uint16_t>(a->g), data_of<const uint16_t>(a->v), a->limit,
                        unsigned(d), unsigned(items));
}

static record_operands record_of(const dsf_tensor &out, const dsf_tensor &x, const dsf_tensor &w,
                                 const dsf_tensor *cs, float eps)
{
    int64_t d = x.dim[1], f = cs ? cs->dim[1] : 0;
    return {data_of<uint8_t>(out),
            data_of<uint16_t>(x),
            data_of<uint16_t>(w),
            cs ? data_of<float2>(*cs) : nullptr,
            {unsigned(d), unsigned(d - 2 * f), unsigned(f), unsigned(d + d / 32), 1, eps}};
}

extern "C" dsf_status dsf_row_pair_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_row_pair_args *a = static_cast<const dsf_row_pair_args *>(args);
    int64_t n = a->x.dim[0], d = a->x.dim[1], l = a->r.dim[1];
    return launch_early(dsf_stream(lc), {unsigned(2 * n), unsigned(threads_for(d > l ? d : l))},
                        normed_pair, record_of(a->key, a->x, a->w, &a->cs, a->eps),
                        record_of(a->latent, a->r, a->wr, nullptr, a->eps), unsigned(n));
}
