/* The indexer on the device, for every shape: index_weight, plain scores, index_scores and
 * index_topk of both variants.
 *
 * Plain scores: one thread an entry, heads in fours. Twice an e2m1 value is a byte, so the dot of a
 * group of 32 is 8 DP4A and exact; then the contract's roundings in its order. A query is expanded
 * once a block into shared memory; a key's group once for four heads: about 24 instructions a head
 * and group, bound by issue. */
#include "sm90/index.cuh"

extern "C" {
#include "ops/index.h"
}

using namespace index_sm90;

namespace
{

constexpr int threads = 128;           /* entries of a block */
constexpr int heads = 4;               /* that share an expanded key */
constexpr int64_t query_bytes = 32768; /* of shared memory for expanded queries, at least 4 heads */
constexpr int64_t most_y = 32768;

/* ---- index_weight ---- */

__global__ void weight(uint16_t *out, const uint16_t *x, float factor, int64_t n)
{
    follow();
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = num::f32_to_bf16(__fmul_rn(num::bf16_to_f32(x[i]), factor));
}

/* ---- plain scores ---- */

/* Shared memory: expanded heads first..first+count-1 of one row. */
struct query {
    uint32_t *code; /* [count][d / 4] */
    float *scale;   /* [count][d / 32] */
};

__device__ void load_query(const score_job &j, const query &s, int64_t row, int64_t first,
                           int64_t count, bool aligned)
{
    int64_t groups = j.d / 32, bytes = j.d / 2 + groups;
    const uint8_t *rec = j.q + (row * j.h + first) * bytes;
    const grid plain(0);
    for (int64_t i = threadIdx.x; i < count * (j.d / 8); i += threads) {
        int64_t head = i / (j.d / 8), word = i % (j.d / 8);
        uint32_t a, b;
        plain.expand(load_word(rec + head * bytes + 4 * word, aligned), a, b);
        s.code[head * (j.d / 4) + 2 * word] = a;
        s.code[head * (j.d / 4) + 2 * word + 1] = b;
    }
    for (int64_t i = threadIdx.x; i < count * groups; i += threads)
        s.scale[i] = num::e8m0_to_f32(rec[i / groups * bytes + j.d / 2 + i % groups]);
}

/* q . k of up to four heads (an absent one repeats the first). */
__device__ void dots(float (&dot)[heads], const score_job &j, const query &s, int64_t head,
                     int64_t count, const uint8_t *key, bool aligned)
{
    int64_t groups = j.d / 32;
    const grid plain(0);
#pragma unroll
    for (int i = 0; i < heads; i++) dot[i] = 0;
    for (int64_t g = 0; g < groups; g++) {
        uint32_t k[8];
#pragma unroll
        for (int w = 0; w < 4; w++)
            plain.expand(load_word(key + 16 * g + 4 * w, aligned), k[2 * w], k[2 * w + 1]);
        float scale = num::e8m0_to_f32(key[j.d / 2 + g]);
#pragma unroll
        for (int i = 0; i < heads; i++) {
            int64_t at = head + i < count ? head + i : head;
            const uint32_t *q = s.code + at * (j.d / 4) + 8 * g;
            int sum = 0;
#pragma unroll
            for (int w = 0; w < 8; w++) sum = __dp4a(int(k[w]), int(q[w]), sum);
            float group = __fmul_rn(__int2float_rn(sum), 0.25f);
            dot[i] = __fmaf_rn(__fmul_rn(group, scale), s.scale[at * groups + g], dot[i]);
        }
    }
}

__device__ float add_heads(float total, const score_job &j, const query &s, const uint16_t *a,
                           int64_t count, const uint8_t *key, bool aligned)
{
    for (int64_t head = 0; head < count; head += heads) {
        float dot[heads];
        dots(dot, j, s, head, count, key, aligned);
#pragma unroll
        for (int i = 0; i < heads; i++) {
            if (head + i >= count) break;
            float x = num::round_bf16(dot[i]);
            x = x < 0 ? 0 : x; /* NaN stays */
            x = __fmul_rn(num::bf16_to_f32(a[head + i]), x);
            total = __fadd_rn(total, num::round_bf16(x));
        }
    }
    return total;
}

__global__ void __launch_bounds__(threads) score(score_job j, int64_t width, int64_t at_once)
{
    extern __shared__ __align__(16) uint8_t memory[];
    query s = {reinterpret_cast<uint32_t *>(memory),
               reinterpret_cast<float *>(memory + at_once * j.d)};
    int64_t bytes = j.d / 2 + j.d / 32, p = int64_t(blockIdx.x) * threads + threadIdx.x;
    bool aligned = bytes % 4 == 0;
    follow();
    for (int64_t row = blockIdx.y; row < j.n; row += gridDim.y) {
        int visible = int(visible_entries(j.pos[row], j.ratio, j.entries));
        int64_t entry = -1;
        if (p < width)
            entry = candidate_entry(j.pool ? j.pool + row * j.b : nullptr, int(j.b), j.block,
                                    visible, int(p));
        if (j.fill && entry < 0 && p < width) j.out[row * j.stride + p] = 0xFF80;
        if (!__syncthreads_or(entry >= 0)) continue;
        const uint8_t *key =
            j.keys + (int64_t(j.slot[row]) * j.c + (entry >= 0 ? entry : 0)) * bytes;
        float total = 0;
        for (int64_t first = 0; first < j.h; first += at_once) {
            int64_t count = j.h - first < at_once ? j.h - first : at_once;
            __syncthreads();
            load_query(j, s, row, first, count, aligned);
            __syncthreads();
            if (entry >= 0)
                total = add_heads(total, j, s, j.a + row * j.h + first, count, key, aligned);
        }
        if (entry >= 0) j.out[row * j.stride + p] = num::f32_to_bf16(total);
    }
}

/* Fits a pool's list, or the entries. */
int64_t row_width(const score_job &j) { return j.pool ? j.b * j.block : j.entries; }

} // namespace

dsf_status index_sm90::score_rows(const score_job &job, cudaStream_t stream)
{
    int64_t per_head = job.d + job.d / 8, at_once = query_bytes / per_head; /* codes, f32 scales */
    if (at_once < heads) at_once = heads;
    if (at_once > job.h) at_once = job.h;
    int64_t bytes = at_once * per_head, width = row_width(job);
    dim3 blocks(dsf_blocks(width, threads), static_cast<unsigned>(job.n < most_y ? job.n : most_y));
    return launch_early(stream, {blocks, threads, size_t(bytes)}, score, job, width, at_once);
}

extern "C" dsf_status dsf_index_weight_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_index_weight_args *a = static_cast<const dsf_index_weight_args *>(args);
    int64_t n = a->x.dim[0] * a->x.dim[1];
    return launch_early(dsf_stream(lc), {dsf_blocks(n, 256), 256}, weight,
                        data_of<uint16_t>(a->out), data_of<const uint16_t>(a->x), a->factor, n);
}

static score_job scores_job(const dsf_index_scores_args *a)
{
    score_job j = {};
    j.q = data_of<const uint8_t>(a->q);
    j.a = data_of<const uint16_t>(a->a);
    j.keys = data_of<const uint8_t>(a->keys);
    j.pos = data_of<const int32_t>(a->pos);
    j.slot = data_of<const int32_t>(a->slot);
    j.out = data_of<uint16_t>(a->scores);
    j.n = a->q.dim[0];
    j.h = a->q.dim[1];
    j.d = a->q.dim[2];
    j.c = a->keys.dim[1];
    j.entries = j.stride = a->scores.dim[1];
    j.ratio = a->ratio;
    j.block = 1;
    j.fill = true;
    return j;
}

extern "C" dsf_status dsf_index_scores_sm90(const dsf_launch *lc, const void *args)
{
    return score_rows(scores_job(static_cast<const dsf_index_scores_args *>(args)), dsf_stream(lc));
}

extern "C" dsf_status dsf_index_scores_sm90tc(const dsf_launch *lc, const void *args)
{
    return score_rows_tensor(scores_job(static_cast<const dsf_index_scores_args *>(args)),
                             lc->scratch, dsf_stream(lc));
}

/* Rows first..first+n-1 of index_topk: their scores to the workspace, then the selection. */
static score_job topk_scores(const dsf_index_topk_args *a, const dsf_index_layout &l, int64_t first,
                             int64_t n, uint8_t *scratch)
{
    score_job j = {};
    j.n = n;
    j.h = a->q.dim[1];
    j.d = a->q.dim[2];
    j.c = j.entries = a->keys.dim[1];
    j.q = data_of<const uint8_t>(a->q) + first * j.h * (j.d / 2 + j.d / 32);
    j.a = data_of<const uint16_t>(a->a) + first * j.h;
    j.keys = data_of<const uint8_t>(a->keys);
    j.pos = data_of<const int32_t>(a->pos) + first;
    j.slot = data_of<const int32_t>(a->slot) + first;
    j.out = reinterpret_cast<uint16_t *>(scratch);
    j.stride = l.stride;
    j.ratio = a->ratio;
    j.block = a->block;
    if (l.packed) {
        j.b = a->pool_in.dim[1];
        j.pool = data_of<const int32_t>(a->pool_in) + first * j.b;
    }
    return j;
}

static select_job topk_selection(const dsf_index_topk_args *a, const dsf_index_layout &l,
                                 int64_t first, int64_t n, const uint8_t *scratch)
{
    select_job j = {};
    j.n = n;
    j.scores = reinterpret_cast<const uint16_t *>(scratch);
    j.stride = l.stride;
    j.entries = a->keys.dim[1];
    j.pos = data_of<const int32_t>(a->pos) + first;
    j.k = a->topk.dim[1];
    j.topk = data_of<int32_t>(a->topk) + first * j.k;
    j.ratio = a->ratio;
    j.block = a->block;
    j.packed = l.packed != 0;
    if (a->pool_in.rank) {
        j.b = a->pool_in.dim[1];
        j.pool = data_of<const int32_t>(a->pool_in) + first * j.b;
    }
    if (a->pool_out.rank) {
        j.b_out = a->pool_out.dim[1];
        j.pool_out = data_of<int32_t>(a->pool_out) + first * j.b_out;
    }
    return j;
}

static dsf_status topk_rows(const dsf_launch *lc, const dsf_index_topk_args *a, int tensor)
{
    dsf_index_layout l = dsf_index_topk_layout(a, tensor);
    cudaStream_t stream = dsf_stream(lc);
    uint8_t *lists = lc->scratch + l.scores, *tiles = lists + l.lists;
    int64_t n = a->q.dim[0];
    for (int64_t first = 0; first < n; first += l.rows) {
        int64_t rows = n - first < l.rows ? n - first : l.rows;
        score_job scores = topk_scores(a, l, first, rows, lc->scratch);
        DSF_TRY(tensor ? score_rows_tensor(scores, tiles, stream) : score_rows(scores, stream));
        DSF_TRY(select_rows(topk_selection(a, l, first, rows, lc->scratch), l.topk, l.pool, lists,
                            stream));
    }
    return DSF_OK;
}

extern "C" dsf_status dsf_index_topk_sm90(const dsf_launch *lc, const void *args)
{
    return topk_rows(lc, static_cast<const dsf_index_topk_args *>(args), 0);
}

extern "C" dsf_status dsf_index_topk_sm90tc(const dsf_launch *lc, const void *args)
{
    return topk_rows(lc, static_cast<const dsf_index_topk_args *>(args), 1);
}
