/* Selections: one block a row, or several where rows are few, each with a part of the candidates;
 * then one more block merges what they kept. Reads each score once: bound by memory. */
#include "sm90/select.cuh"

extern "C" {
#include "ops/index.h"
}

using namespace index_sm90;

namespace
{

/* What the parts of the rows keep: [rows * parts, kept] numbers, then as many positions. */
struct lists {
    uint16_t *key;
    uint32_t *pos;
    int parts;
    int64_t kept;
};

/* Where the result goes: entries, or blocks and the newest one. */
struct topk_result {
    using source = entry_source;
    static constexpr uint32_t least = 0; /* -inf competes */
    static __host__ __device__ int64_t size(const select_job &j) { return j.k; }
    static __host__ __device__ int64_t wanted(const select_job &j) { return j.k; }
    static __device__ int32_t *row(const select_job &j, int64_t row) { return j.topk + row * j.k; }
    static __device__ bool newest(const source &) { return false; }
};

struct pool_result {
    using source = block_source;
    static constexpr uint32_t least = select_minus_inf; /* -inf does not */
    static __host__ __device__ int64_t size(const select_job &j) { return j.b_out; }
    static __host__ __device__ int64_t wanted(const select_job &j) { return j.b_out - 1; }
    static __device__ int32_t *row(const select_job &j, int64_t row)
    {
        return j.pool_out + row * j.b_out;
    }
    static __device__ bool newest(const source &s) { return s.count >= 0; }
};

/* Ends a row of which `kept` ids are written. */
template <typename RESULT>
__device__ void finish(const select_job &j, const typename RESULT::source &source, int32_t *out,
                       int64_t kept)
{
    bool newest = RESULT::newest(source);
    if (newest && threadIdx.x == 0) out[kept] = int32_t(source.count);
    for (int64_t i = kept + newest + threadIdx.x; i < RESULT::size(j); i += select_threads)
        out[i] = -1;
}

/* Block (row, part): the whole row to the result, or a part of it to the lists. */
template <typename RESULT>
__global__ void __launch_bounds__(select_threads, 2) select_part(select_job j, lists l)
{
    extern __shared__ __align__(16) uint8_t memory[];
    selector s(*reinterpret_cast<select_memory *>(memory));
    int64_t row = blockIdx.x / l.parts, part = blockIdx.x % l.parts;
    ptx::griddepcontrol_wait();
    typename RESULT::source source(j, row);
    int64_t count = source.count > 0 ? source.count : 0;
    int64_t length = ((count + l.parts - 1) / l.parts + 7) / 8 * 8;
    int64_t from = part * length, to = from + length < count ? from + length : count;
    int kept = s.best(source, from, to, int(RESULT::wanted(j)), RESULT::least);
    if (l.parts == 1) {
        int32_t *out = RESULT::row(j, row);
        for (int i = threadIdx.x; i < kept; i += select_threads)
            out[i] = int32_t(source.entry(s.positions()[i]));
        finish<RESULT>(j, source, out, kept);
        return;
    }
    for (int i = threadIdx.x; i < l.kept; i += select_threads) {
        l.key[blockIdx.x * l.kept + i] = i < kept ? s.keys()[i] : 0;
        if (i < kept) l.pos[blockIdx.x * l.kept + i] = s.positions()[i];
    }
}

/* Parts are in order of position, and so are the places of each: a place in the lists orders ties
 * as its position does. */
template <typename RESULT>
__global__ void __launch_bounds__(select_threads, 2) select_merge(select_job j, lists l)
{
    extern __shared__ __align__(16) uint8_t memory[];
    selector s(*reinterpret_cast<select_memory *>(memory));
    int64_t row = blockIdx.x, first = row * l.parts * l.kept;
    ptx::griddepcontrol_wait();
    typename RESULT::source source(j, row);
    list_source parts = {l.key + first, l.pos + first, l.parts * l.kept};
    int kept = s.best(parts, 0, parts.count, int(RESULT::wanted(j)), 0);
    int32_t *out = RESULT::row(j, row);
    for (int i = threadIdx.x; i < kept; i += select_threads)
        out[i] = int32_t(source.entry(parts.pos[s.positions()[i]]));
    finish<RESULT>(j, source, out, kept);
}

/* Lists longer than the buffer takes. */
template <typename RESULT>
__global__ void __launch_bounds__(select_threads, 2) select_wide(select_job j)
{
    extern __shared__ __align__(16) uint8_t memory[];
    selector s(*reinterpret_cast<select_memory *>(memory));
    int64_t row = blockIdx.x;
    ptx::griddepcontrol_wait();
    typename RESULT::source source(j, row);
    int64_t count = source.count > 0 ? source.count : 0;
    int32_t *out = RESULT::row(j, row);
    int64_t kept = s.best_wide(source, count, RESULT::wanted(j), RESULT::least, out);
    finish<RESULT>(j, source, out, kept);
}

template <typename KERNEL> dsf_status allow_memory(KERNEL kernel)
{
    DSF_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(sizeof(select_memory))));
    return DSF_OK;
}

template <typename RESULT>
dsf_status queue(const select_job &j, dsf_index_cut cut, uint8_t *memory, cudaStream_t stream)
{
    constexpr size_t bytes = sizeof(select_memory);
    unsigned rows = static_cast<unsigned>(j.n);
    if (RESULT::wanted(j) > DSF_INDEX_MOST_KEPT) {
        DSF_TRY(allow_memory(select_wide<RESULT>));
        select_wide<RESULT><<<rows, select_threads, bytes, stream>>>(j);
        DSF_CUDA_TRY(cudaGetLastError());
        return DSF_OK;
    }
    lists l = {reinterpret_cast<uint16_t *>(memory), nullptr, cut.parts, cut.kept};
    l.pos = reinterpret_cast<uint32_t *>(memory + 2 * j.n * cut.parts * cut.kept);
    DSF_TRY(allow_memory(select_part<RESULT>));
    select_part<RESULT><<<rows * cut.parts, select_threads, bytes, stream>>>(j, l);
    DSF_CUDA_TRY(cudaGetLastError());
    if (cut.parts == 1) return DSF_OK;
    DSF_TRY(allow_memory(select_merge<RESULT>));
    select_merge<RESULT><<<rows, select_threads, bytes, stream>>>(j, l);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

} // namespace

dsf_status index_sm90::select_rows(const select_job &job, dsf_index_cut topk, dsf_index_cut pool,
                                   uint8_t *lists, cudaStream_t stream)
{
    DSF_TRY(queue<topk_result>(job, topk, lists, stream));
    if (job.pool_out) DSF_TRY(queue<pool_result>(job, pool, lists + topk.bytes, stream));
    return DSF_OK;
}

extern "C" dsf_status dsf_index_select_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_index_select_args *a = static_cast<const dsf_index_select_args *>(args);
    select_job j = {};
    j.scores = data_of<const uint16_t>(a->scores);
    j.n = a->scores.dim[0];
    j.stride = j.entries = a->scores.dim[1];
    j.pos = data_of<const int32_t>(a->pos);
    j.topk = data_of<int32_t>(a->topk);
    j.k = a->topk.dim[1];
    j.ratio = a->ratio;
    j.block = a->block;
    if (a->pool_in.rank) {
        j.pool = data_of<const int32_t>(a->pool_in);
        j.b = a->pool_in.dim[1];
    }
    if (a->pool_out.rank) {
        j.pool_out = data_of<int32_t>(a->pool_out);
        j.b_out = a->pool_out.dim[1];
    }
    return select_rows(j, dsf_index_select_topk_cut(a), dsf_index_select_pool_cut(a), lc->scratch,
                       dsf_stream(lc));
}
