/* The row-wise part of the mixture of experts (architecture.md 7): router, activation, sum.
 * route: a block of 128 threads a row. Scores need exp, log1p and sqrt in double (the contract is
 * exact), about 150 double operations each, spread over the block; the choice takes k rounds of one
 * warp over keys in shared memory. swiglu: 6 bytes a channel. moe_sum: 2 k + 4 bytes a channel. */
#include "sm90/row.cuh"

extern "C" {
#include "ops/moe.h"
}

/* ---- route ---- */

enum { ROUTE_THREADS = 128 };

struct route_args {
    float *scores, *weights;
    int32_t *ids;
    const float *z, *bias, *bias_vl;
    const uint8_t *vl;
    unsigned e, k;
    float scale;
    bool normalise;
};

__device__ inline float score_of(float z)
{
    return __double2float_rn(sqrt(z > 20.0f ? double(z) : log1p(exp(double(z)))));
}

/* Unsigned numbers in the order of floats, above 0; the two zeros are one. */
__device__ inline uint32_t key_of(float v)
{
    uint32_t b = __float_as_uint(v + 0.0f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

/* One warp: the largest of keys[0..e), the smallest id among equals. */
__device__ inline unsigned best_of(const uint32_t *keys, unsigned e)
{
    uint32_t best = 0;
    unsigned id = 0xFFFFFFFFu;
    for (unsigned j = threadIdx.x; j < e; j += 32)
        if (keys[j] > best) {
            best = keys[j];
            id = j;
        }
    uint32_t most = __reduce_max_sync(0xFFFFFFFFu, best);
    return __reduce_min_sync(0xFFFFFFFFu, best == most ? id : 0xFFFFFFFFu);
}

/* One warp: the k best, ascending by id, and their weights. Shared memory: keys[e], chosen[k]. */
__device__ inline void choose(const route_args &a, const float *r, uint32_t *keys, unsigned *chosen,
                              int64_t row)
{
    unsigned lane = threadIdx.x;
    for (unsigned j = 0; j < a.k; j++) {
        unsigned id = best_of(keys, a.e);
        if (lane == 0) {
            chosen[j] = id;
            keys[id] = 0;
        }
        __syncwarp();
    }
    for (unsigned j = lane; j < a.k; j += 32) { /* its place: how many are smaller */
        unsigned id = chosen[j], place = 0;
        for (unsigned i = 0; i < a.k; i++) place += chosen[i] < id;
        keys[place] = id;
    }
    __syncwarp();
    double sum = 0;
    for (unsigned j = 0; j < a.k; j++) sum += double(r[keys[j]]);
    for (unsigned j = lane; j < a.k; j += 32) {
        double w = r[keys[j]];
        if (a.normalise) w /= sum + 1e-20;
        a.weights[row * a.k + j] = __double2float_rn(w * double(a.scale));
        a.ids[row * a.k + j] = int32_t(keys[j]);
    }
}

static __global__ void __launch_bounds__(ROUTE_THREADS) route_kernel(route_args a)
{
    extern __shared__ uint32_t shared[];
    float *r = reinterpret_cast<float *>(shared);
    uint32_t *keys = shared + a.e;
    int64_t row = blockIdx.x;
    const float *bias = a.bias_vl && a.vl[row] ? a.bias_vl : a.bias;
    for (unsigned j = threadIdx.x; j < a.e; j += ROUTE_THREADS) {
        float v = score_of(a.z[row * a.e + j]);
        r[j] = v;
        keys[j] = key_of(__fadd_rn(v, bias[j]));
        a.scores[row * a.e + j] = v;
    }
    __syncthreads();
    if (threadIdx.x < 32) choose(a, r, keys, keys + a.e, row);
}

/* Scores, keys and the chosen of a row lie in shared memory: up to about 5,000 experts. */
extern "C" dsf_status dsf_route_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_route_args *a = static_cast<const dsf_route_args *>(args);
    int64_t e = a->z.dim[1], k = a->ids.dim[1];
    route_args r = {data_of<float>(a->scores),
                    data_of<float>(a->weights),
                    data_of<int32_t>(a->ids),
                    data_of<float>(a->z),
                    data_of<float>(a->bias),
                    a->bias_vl.rank ? data_of<const float>(a->bias_vl) : nullptr,
                    data_of<uint8_t>(a->vl),
                    unsigned(e),
                    unsigned(k),
                    a->scale,
                    a->norm_topk_prob && k > 1};
    size_t bytes = size_t(2 * e + k) * 4;
    route_kernel<<<unsigned(a->z.dim[0]), ROUTE_THREADS, bytes, dsf_stream(lc)>>>(r);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

/* ---- swiglu ---- */

__device__ inline float swiglu(float g, float v, float limit)
{
    g = fminf(g, limit);
    v = fminf(fmaxf(v, -limit), limit);
    return __fmul_rn(__fdiv_rn(g, 1.0f + expf(-g)), v);
}

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    swiglu_kernel(uint16_t *out, const uint16_t *g, const uint16_t *v, unsigned items,
                  unsigned chunks, unsigned d, float limit)
{
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    int64_t row = int64_t(at.row) * d;
    float a[CHUNK], b[CHUNK];
    unpack_chunk(a, load_chunk<VEC>(g + row, at.c, d));
    unpack_chunk(b, load_chunk<VEC>(v + row, at.c, d));
#pragma unroll
    for (int i = 0; i < CHUNK; i++) a[i] = swiglu(a[i], b[i], limit);
    store_chunk<VEC>(out + row, at.c, d, pack_chunk(a));
}

extern "C" dsf_status dsf_swiglu_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_swiglu_args *a = static_cast<const dsf_swiglu_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *g = data_of<uint16_t>(a->g), *v = data_of<uint16_t>(a->v);
    int64_t d = a->out.dim[1], items = a->out.dim[0] * chunks_of(d);
    bool vec = d % CHUNK == 0 && aligned_to(out, 16) && aligned_to(g, 16) && aligned_to(v, 16);
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, items));
    auto kernel = vec ? swiglu_kernel<true> : swiglu_kernel<false>;
    kernel<<<blocks, FLAT_THREADS, 0, dsf_stream(lc)>>>(
        out, g, v, unsigned(items), unsigned(chunks_of(d)), unsigned(d), a->limit);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}

/* ---- moe_sum ---- */

enum { AHEAD = 4 }; /* chunks of y in flight a thread */

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    moe_sum_kernel(uint16_t *out, const uint16_t *y, const uint16_t *shared, unsigned items,
                   unsigned chunks, unsigned d, unsigned k)
{
    row_chunk at;
    if (!this_chunk(at, items, chunks)) return;
    const uint16_t *from = y + int64_t(at.row) * k * d;
    float sum[CHUNK] = {0, 0, 0, 0, 0, 0, 0, 0}, v[CHUNK];
    uint4 last = load_chunk<VEC>(shared + int64_t(at.row) * d, at.c, d);
#pragma unroll AHEAD
    for (unsigned j = 0; j < k; j++) {
        unpack_chunk(v, load_chunk<VEC>(from + int64_t(j) * d, at.c, d));
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], v[i]);
    }
    unpack_chunk(v, last);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) sum[i] = __fadd_rn(sum[i], v[i]);
    store_chunk<VEC>(out + int64_t(at.row) * d, at.c, d, pack_chunk(sum));
}

extern "C" dsf_status dsf_moe_sum_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_moe_sum_args *a = static_cast<const dsf_moe_sum_args *>(args);
    uint16_t *out = data_of<uint16_t>(a->out);
    const uint16_t *y = data_of<uint16_t>(a->y), *shared = data_of<uint16_t>(a->shared);
    int64_t d = a->out.dim[1], items = a->out.dim[0] * chunks_of(d);
    bool vec = d % CHUNK == 0 && aligned_to(out, 16) && aligned_to(y, 16) && aligned_to(shared, 16);
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, items));
    auto kernel = vec ? moe_sum_kernel<true> : moe_sum_kernel<false>;
    kernel<<<blocks, FLAT_THREADS, 0, dsf_stream(lc)>>>(out, y, shared, unsigned(items),
                                                        unsigned(chunks_of(d)), unsigned(d),
                                                        unsigned(a->y.dim[1]));
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
