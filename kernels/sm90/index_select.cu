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
template <typename SOURCE> struct topk_result {
    using source = SOURCE;
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
                       int kept)
{
    bool newest = RESULT::newest(source);
    if (newest && threadIdx.x == 0) out[kept] = int32_t(source.count);
    for (int64_t i = kept + newest + threadIdx.x; i < RESULT::size(j); i += select_threads)
        out[i] = -1;
}

/* One block: a whole row to the result, or a part of it to the lists. */
template <typename RESULT>
__device__ void select_part(const select_job &j, const lists &l, int at, select_memory &memory)
{
    selector s(memory);
    int64_t row = at / l.parts;
    typename RESULT::source source(j, row, memory);
    int count = max(source.count, 0), length = ((count + l.parts - 1) / l.parts + 7) / 8 * 8;
    int from = min(at % l.parts * length, count), to = min(from + length, count);
    int kept = s.best(source, from, to, int(RESULT::wanted(j)), RESULT::least);
    if (l.parts == 1) {
        int32_t *out = RESULT::row(j, row);
        for (int i = threadIdx.x; i < kept; i += select_threads)
            out[i] = int32_t(source.entry(s.positions()[i]));
        finish<RESULT>(j, source, out, kept);
        return;
    }
    for (int i = threadIdx.x; i < l.kept; i += select_threads) {
        l.key[at * l.kept + i] = i < kept ? s.keys()[i] : 0;
        if (i < kept) l.pos[at * l.kept + i] = s.positions()[i];
    }
}

/* One block, one row. Parts are in order of position, and so are the places of each: a place in the
 * lists orders ties as its position does. */
template <typename RESULT>
__device__ void select_merge(const select_job &j, const lists &l, int64_t row,
                             select_memory &memory)
{
    selector s(memory);
    int64_t first = row * l.parts * l.kept;
    typename RESULT::source source(j, row, memory);
    list_source parts = {l.key + first, l.pos + first, int(l.parts * l.kept)};
    int kept = s.best(parts, 0, parts.count, int(RESULT::wanted(j)), 0);
    int32_t *out = RESULT::row(j, row);
    for (int i = threadIdx.x; i < kept; i += select_threads)
        out[i] = int32_t(source.entry(parts.pos[s.positions()[i]]));
    finish<RESULT>(j, source, out, kept);
}

/* The first pool_blocks blocks make the pool, the others the topk list. */
template <typename SOURCE>
__global__ void __launch_bounds__(select_threads, 2)
    select_parts(select_job j, lists topk, lists pool, int pool_blocks)
{
    extern __shared__ __align__(16) uint8_t memory[];
    select_memory &m = *reinterpret_cast<select_memory *>(memory);
    int at = int(blockIdx.x) - pool_blocks;
    follow();
    if (at < 0)
        select_part<pool_result>(j, pool, blockIdx.x, m);
    else
        select_part<topk_result<SOURCE>>(j, topk, at, m);
}

template <typename SOURCE>
__global__ void __launch_bounds__(select_threads, 2)
    select_merges(select_job j, lists topk, lists pool, int pool_blocks)
{
    extern __shared__ __align__(16) uint8_t memory[];
    select_memory &m = *reinterpret_cast<select_memory *>(memory);
    int at = int(blockIdx.x) - pool_blocks;
    follow();
    if (at < 0)
        select_merge<pool_result>(j, pool, blockIdx.x, m);
    else
        select_merge<topk_result<SOURCE>>(j, topk, at, m);
}

/* Lists longer than the buffer takes. */
template <typename RESULT>
__global__ void __launch_bounds__(select_threads, 2) select_wide(select_job j)
{
    extern __shared__ __align__(16) uint8_t memory[];
    select_memory &m = *reinterpret_cast<select_memory *>(memory);
    selector s(m);
    int64_t row = blockIdx.x;
    follow();
    typename RESULT::source source(j, row, m);
    int32_t *out = RESULT::row(j, row);
    int kept =
        s.best_wide(source, max(source.count, 0), int(RESULT::wanted(j)), RESULT::least, out);
    finish<RESULT>(j, source, out, kept);
}

lists lists_of(const select_job &j, dsf_index_cut cut, uint8_t *memory)
{
    return {reinterpret_cast<uint16_t *>(memory),
            reinterpret_cast<uint32_t *>(memory + 2 * j.n * cut.parts * cut.kept), cut.parts,
            cut.kept};
}

template <typename SOURCE>
dsf_status queue(const select_job &job, dsf_index_cut topk, dsf_index_cut pool, uint8_t *memory,
                 cudaStream_t stream)
{
    constexpr size_t bytes = sizeof(select_memory);
    unsigned rows = static_cast<unsigned>(job.n);
    bool list = job.k <= DSF_INDEX_MOST_KEPT, blocks = job.pool_out != nullptr;
    if (!list)
        DSF_TRY(launch_early(stream, {rows, select_threads, bytes},
                             select_wide<topk_result<SOURCE>>, job));
    if (blocks && pool_result::wanted(job) > DSF_INDEX_MOST_KEPT) {
        DSF_TRY(launch_early(stream, {rows, select_threads, bytes}, select_wide<pool_result>, job));
        blocks = false;
    }
    lists of_topk = lists_of(job, topk, memory), of_pool = lists_of(job, pool, memory + topk.bytes);
    unsigned first = blocks ? rows * pool.parts : 0, all = first + (list ? rows * topk.parts : 0);
    if (all)
        DSF_TRY(launch_early(stream, {all, select_threads, bytes}, select_parts<SOURCE>, job,
                             of_topk, of_pool, first));
    first = blocks && pool.parts > 1 ? rows : 0;
    all = first + (list && topk.parts > 1 ? rows : 0);
    if (all == 0) return DSF_OK;
    return launch_early(stream, {all, select_threads, bytes}, select_merges<SOURCE>, job, of_topk,
                        of_pool, first);
}

} // namespace

dsf_status index_sm90::select_rows(const select_job &job, dsf_index_cut topk, dsf_index_cut pool,
                                   uint8_t *memory, cudaStream_t stream)
{
    if (job.pool) return queue<pool_source>(job, topk, pool, memory, stream);
    return queue<all_source>(job, topk, pool, memory, stream);
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
