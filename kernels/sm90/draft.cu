/* The draft head's own operations (architecture.md 10.3).
 * markov_chain: one launch a step, for each step needs the id of the one before. A step reads the
 * head, 66 MB at the model's shape: bound by memory, 15 us at 4.3 TB/s. A step's blocks start while
 * the step before ends, and have their first rows of the head in registers when its id arrives.
 * Each block keeps the largest of its logits; an atomic maximum over (value, smallest id) in one
 * 64-bit word joins them, in whatever order, and the last block to arrive writes the id.
 * confidence: a block a row, sums in double. */
#include "sm90/row.cuh"

extern "C" {
#include "ops/draft.h"
}

/* ---- markov_chain ---- */

/* A warp takes 8 rows of the head at a time: 8 loads of 16 bytes a lane in flight, and one
 * butterfly of 8 + 4 + 2 shuffles instead of 8 x 5. */
enum { MARKOV_THREADS = 256, MARKOV_ROWS = 8, MARKOV_MOST_BLOCKS = DSF_SM90_SMS * 3 };

/* Workspace of a step. */
struct markov_word {
    unsigned long long best; /* ordered logit << 32 | ~id; starts at 0 */
    unsigned done;           /* blocks that have arrived */
    unsigned unused;
};

struct markov_args {
    float *logits;     /* [v] of this step */
    uint16_t *mu;      /* [r] of this step */
    int32_t *id;       /* result of this step */
    const float *base; /* [v] of this step */
    const uint16_t *embed, *head;
    const int32_t *from; /* the id whose row is mu */
    markov_word *word;
    unsigned v, r;
};

/* Sums v[j] of all lanes; lanes 4 j .. 4 j + 3 return that of j. */
__device__ inline float sum_eight(const float (&v)[MARKOV_ROWS], unsigned lane)
{
    float four[4], two[2], one;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float keep = lane & 16 ? v[i + 4] : v[i], give = lane & 16 ? v[i] : v[i + 4];
        four[i] = keep + __shfl_xor_sync(0xFFFFFFFFu, give, 16);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float keep = lane & 8 ? four[i + 2] : four[i], give = lane & 8 ? four[i] : four[i + 2];
        two[i] = keep + __shfl_xor_sync(0xFFFFFFFFu, give, 8);
    }
    float keep = lane & 4 ? two[1] : two[0], give = lane & 4 ? two[0] : two[1];
    one = keep + __shfl_xor_sync(0xFFFFFFFFu, give, 4);
    one += __shfl_xor_sync(0xFFFFFFFFu, one, 2);
    return one + __shfl_xor_sync(0xFFFFFFFFu, one, 1);
}

/* Larger logit first, then smaller id; the two zeros are one, NaN loses to all. */
__device__ inline unsigned long long rank_of(float logit, unsigned id)
{
    uint32_t order = num::order_of(logit + 0.0f), key = logit != logit ? 0 : order;
    return static_cast<unsigned long long>(key) << 32 | static_cast<uint32_t>(~id);
}

__device__ inline unsigned long long max_rank(unsigned long long a, unsigned long long b)
{
    return a > b ? a : b;
}

/* MARKOV_ROWS head rows: 8 channels of each, from c on. */
struct head_rows {
    uint4 w[MARKOV_ROWS];
};

template <bool VEC>
__device__ inline void load_rows(head_rows &to, const markov_args &a, unsigned row0, unsigned c)
{
#pragma unroll
    for (unsigned j = 0; j < MARKOV_ROWS; j++)
        to.w[j] = row0 + j < a.v && c < a.r
                      ? load_chunk<VEC>(a.head + int64_t(row0 + j) * a.r, c, a.r)
                      : make_uint4(0, 0, 0, 0);
}

/* mu: shared memory, f32, zeros up to a whole number of chunks. */
__device__ inline void add_products(float (&sum)[MARKOV_ROWS], const head_rows &rows,
                                    const float *mu, unsigned c)
{
    float m[CHUNK], x[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) m[i] = mu[c + i];
#pragma unroll
    for (unsigned j = 0; j < MARKOV_ROWS; j++) {
        unpack_chunk(x, rows.w[j]);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sum[j] = fmaf(x[i], m[i], sum[j]);
    }
}

/* Joins the ranks of all blocks; the last one to arrive writes the winner. */
__device__ inline void join_blocks(const markov_args &a, unsigned long long best)
{
    __shared__ unsigned long long ranks[MARKOV_THREADS / 32];
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) best = max_rank(best, __shfl_xor_sync(0xFFFFFFFFu, best, d));
    if (threadIdx.x % 32 == 0) ranks[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < MARKOV_THREADS / 32; w++) best = max_rank(best, ranks[w]);
    atomicMax(&a.word->best, best);
    __threadfence();
    if (atomicAdd(&a.word->done, 1) != gridDim.x - 1) return;
    __threadfence();
    *a.id = static_cast<int32_t>(~static_cast<uint32_t>(atomicMax(&a.word->best, 0)));
}

template <bool VEC>
static __global__ void __launch_bounds__(MARKOV_THREADS) markov_step(markov_args a)
{
    extern __shared__ float mu[];
    unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * MARKOV_THREADS + threadIdx.x) / 32;
    unsigned step = gridDim.x * (MARKOV_THREADS / 32) * MARKOV_ROWS, row0 = warp * MARKOV_ROWS;
    head_rows rows;
    load_rows<VEC>(rows, a, row0, lane * CHUNK);
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait(); /* for the id */
    const uint16_t *row = a.embed + int64_t(*a.from) * a.r;
    for (unsigned c = threadIdx.x; c < (a.r + CHUNK - 1) / CHUNK * CHUNK; c += MARKOV_THREADS) {
        mu[c] = c < a.r ? num::bf16_to_f32(row[c]) : 0.0f;
        if (blockIdx.x == 0 && c < a.r) a.mu[c] = row[c];
    }
    __syncthreads();
    unsigned long long best = 0;
    for (; row0 < a.v; row0 += step) {
        unsigned o = row0 + lane / 4;
        float base = o < a.v ? a.base[o] : 0.0f, sum[MARKOV_ROWS] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (lane * CHUNK < a.r) add_products(sum, rows, mu, lane * CHUNK);
        for (unsigned c = (32 + lane) * CHUNK; c < a.r; c += 32 * CHUNK) {
            load_rows<VEC>(rows, a, row0, c);
            add_products(sum, rows, mu, c);
        }
        load_rows<VEC>(rows, a, row0 + step, lane * CHUNK); /* the next ones, on their way */
        float logit = base + sum_eight(sum, lane);
        if (o >= a.v) continue;
        if (lane % 4 == 0) a.logits[o] = logit;
        best = max_rank(best, rank_of(logit, o));
    }
    join_blocks(a, best);
}

/* The first step follows the clearing of the workspace; the others start early. */
static dsf_status launch_step(const dsf_launch *lc, const markov_args &m, bool early)
{
    unsigned blocks = dsf_blocks(m.v, MARKOV_ROWS * (MARKOV_THREADS / 32));
    if (blocks > MARKOV_MOST_BLOCKS) blocks = MARKOV_MOST_BLOCKS;
    size_t bytes = size_t(chunks_of(m.r)) * CHUNK * sizeof(float);
    bool vec = m.r % CHUNK == 0 && aligned_to(m.head, 16);
    auto kernel = vec ? markov_step<true> : markov_step<false>;
    if (early) return launch_early(dsf_stream(lc), {blocks, MARKOV_THREADS, bytes}, kernel, m);
    kernel<<<blocks, MARKOV_THREADS, bytes, dsf_stream(lc)>>>(m);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

extern "C" dsf_status dsf_markov_chain_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_markov_chain_args *a = static_cast<const dsf_markov_chain_args *>(args);
    int64_t b = a->logits.dim[0], v = a->logits.dim[1], r = a->mu.dim[1];
    markov_word *words = reinterpret_cast<markov_word *>(lc->scratch);
    DSF_CUDA_TRY(cudaMemsetAsync(words, 0, size_t(b) * sizeof *words, dsf_stream(lc)));
    markov_args m = {};
    m.embed = data_of<uint16_t>(a->embed);
    m.head = data_of<uint16_t>(a->head);
    m.from = data_of<int32_t>(a->anchor);
    m.v = unsigned(v);
    m.r = unsigned(r);
    for (int64_t i = 0; i < b; i++) {
        m.logits = data_of<float>(a->logits) + i * v;
        m.base = data_of<float>(a->base) + i * v;
        m.mu = data_of<uint16_t>(a->mu) + i * r;
        m.id = data_of<int32_t>(a->ids) + i;
        m.word = words + i;
        DSF_TRY(launch_step(lc, m, i > 0));
        m.from = m.id;
    }
    return DSF_OK;
}

/* ---- confidence ---- */

enum { CONFIDENCE_THREADS = 256 };

/* Part of sum x w over c channels, in double, where the products are exact. */
__device__ inline double dot_part(const uint16_t *x, const uint16_t *w, unsigned n)
{
    double sum = 0;
#pragma unroll 4
    for (unsigned c = threadIdx.x; c < n; c += CONFIDENCE_THREADS)
        sum = fma(double(num::bf16_to_f32(x[c])), double(num::bf16_to_f32(w[c])), sum);
    return sum;
}

static __global__ void __launch_bounds__(CONFIDENCE_THREADS)
    confidence_kernel(float *out, const uint16_t *h, const uint16_t *mu, const uint16_t *w,
                      unsigned d, unsigned r)
{
    __shared__ double scratch[32];
    int64_t row = blockIdx.x;
    begin();
    double sum = dot_part(h + row * d, w, d) + dot_part(mu + row * r, w + d, r);
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) out[row] = __double2float_rn(sum);
}

extern "C" dsf_status dsf_confidence_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_confidence_args *a = static_cast<const dsf_confidence_args *>(args);
    return launch_early(dsf_stream(lc), {unsigned(a->out.dim[0]), CONFIDENCE_THREADS},
                        confidence_kernel, data_of<float>(a->out), data_of<uint16_t>(a->h),
                        data_of<uint16_t>(a->mu), data_of<uint16_t>(a->w), unsigned(a->h.dim[1]),
                        unsigned(a->mu.dim[1]));
}
