/* The row-wise part of the mixture of experts (architecture.md 7): router, activation, sum.
 * route: a block a row, a thread a score while there are at most 512: exp, log1p and sqrt in double
 * (the contract is exact), about 150 double operations each: bound by these, 46 us at 8,192 rows
 * and 3.3 at one. The choice takes k rounds of one warp over keys in its registers, two reductions
 * each. swiglu: 6 bytes a channel and 18 double operations (silu.cuh). moe_sum: 2 k + 4 bytes a
 * channel: bound by memory. */
#include "sm90/silu.cuh"

extern "C" {
#include "ops/moe.h"
}

/* ---- route ---- */

/* Threads of a block; keys that a lane of the choosing warp keeps in registers. */
enum { ROUTE_MOST_THREADS = 512, ROUTE_KEPT = 12 };

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

/* In the order of scores, above 0. */
__device__ inline uint32_t key_of(float v) { return max(num::order_of(v + 0.0f), 1u); }

/* The best of what a lane of the choosing warp has; key 0: nothing. */
struct candidate {
    uint32_t key;
    unsigned id;
};

/* The keys of ids lane, lane + 32, ..: the first ROUTE_KEPT in registers, the rest in shared
 * memory. */
struct lane_keys {
    uint32_t kept[ROUTE_KEPT];
};

__device__ inline void load_keys(lane_keys &own, const uint32_t *keys, unsigned e)
{
#pragma unroll
    for (unsigned i = 0; i < ROUTE_KEPT; i++) {
        unsigned id = threadIdx.x + 32 * i;
        own.kept[i] = id < e ? keys[id] : 0;
    }
}

__device__ inline candidate best_of(const lane_keys &own, const uint32_t *keys, unsigned e)
{
    candidate best = {0, 0xFFFFFFFFu};
#pragma unroll
    for (unsigned i = 0; i < ROUTE_KEPT; i++)
        if (own.kept[i] > best.key) best = {own.kept[i], threadIdx.x + 32 * i};
    for (unsigned id = threadIdx.x + 32 * ROUTE_KEPT; id < e; id += 32)
        if (keys[id] > best.key) best = {keys[id], id};
    return best;
}

__device__ inline void drop(lane_keys &own, uint32_t *keys, unsigned id)
{
#pragma unroll
    for (unsigned i = 0; i < ROUTE_KEPT; i++)
        if (id == threadIdx.x + 32 * i) own.kept[i] = 0;
    if (id >= 32 * ROUTE_KEPT) keys[id] = 0;
}

/* One warp: the k best ids, the smallest among equals, in chosen[k]. */
__device__ inline void choose(uint32_t *keys, unsigned *chosen, unsigned e, unsigned k)
{
    lane_keys own;
    load_keys(own, keys, e);
    candidate best = best_of(own, keys, e);
    for (unsigned j = 0; j < k; j++) {
        uint32_t most = __reduce_max_sync(0xFFFFFFFFu, best.key);
        unsigned id = __reduce_min_sync(0xFFFFFFFFu, best.key == most ? best.id : 0xFFFFFFFFu);
        if (best.id == id) {
            chosen[j] = id;
            drop(own, keys, id);
            best = best_of(own, keys, e);
        }
    }
    __syncwarp();
}

/* One warp: ids ascending, and their weights. sorted[k] in shared memory. */
__device__ inline void put_choice(const route_args &a, const float *r, const unsigned *chosen,
                                  unsigned *sorted, int64_t row)
{
    unsigned lane = threadIdx.x;
    for (unsigned base = 0; base < a.k; base += 32) { /* its place: how many are smaller */
        unsigned j = base + lane, id = j < a.k ? chosen[j] : 0, place = 0;
#pragma unroll 8
        for (unsigned i = 0; i < a.k; i++) place += chosen[i] < id;
        __syncwarp(); /* all have read before the first writes */
        if (j < a.k) sorted[place] = id;
    }
    __syncwarp();
    double sum = 0;
#pragma unroll 8
    for (unsigned j = 0; j < a.k; j++) sum += double(r[sorted[j]]);
    for (unsigned j = lane; j < a.k; j += 32) {
        double w = r[sorted[j]];
        if (a.normalise) w /= sum + 1e-20;
        a.weights[row * a.k + j] = __double2float_rn(w * double(a.scale));
        a.ids[row * a.k + j] = int32_t(sorted[j]);
    }
}

static __global__ void __launch_bounds__(ROUTE_MOST_THREADS) route_kernel(route_args a)
{
    extern __shared__ uint32_t shared[];
    float *r = reinterpret_cast<float *>(shared);
    uint32_t *keys = shared + a.e;
    unsigned *chosen = keys + a.e, *sorted = chosen + a.k;
    int64_t row = blockIdx.x;
    ptx::griddepcontrol_launch_dependents();
    float own = threadIdx.x < a.e ? a.bias[threadIdx.x] : 0.0f; /* a weight: before the wait */
    ptx::griddepcontrol_wait();
    const float *bias = a.bias_vl && a.vl[row] ? a.bias_vl : a.bias;
    for (unsigned j = threadIdx.x; j < a.e; j += blockDim.x) {
        float v = score_of(a.z[row * a.e + j]);
        r[j] = v;
        keys[j] = key_of(__fadd_rn(v, bias == a.bias && j == threadIdx.x ? own : bias[j]));
        a.scores[row * a.e + j] = v;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    choose(keys, chosen, a.e, a.k);
    put_choice(a, r, chosen, sorted, row);
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
    int64_t threads = (e + 31) / 32 * 32;
    if (threads > ROUTE_MOST_THREADS) threads = ROUTE_MOST_THREADS;
    size_t bytes = size_t(2 * e + 2 * k) * 4;
    return launch_early(dsf_stream(lc), {unsigned(a->z.dim[0]), unsigned(threads), bytes},
                        route_kernel, r);
}

/* ---- swiglu ---- */

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    swiglu_kernel(uint16_t *out, const uint16_t *g, const uint16_t *v, float limit, unsigned items,
                  unsigned chunks, unsigned d)
{
    begin();
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
    int64_t n = a->out.dim[0], d = a->out.dim[1];
    auto kernel = whole_chunks(d, out, g, v) ? swiglu_kernel<true> : swiglu_kernel<false>;
    return launch_chunks(lc, n, d, kernel, out, g, v, a->limit);
}

/* ---- moe_sum ---- */

enum { AHEAD = 4 }; /* chunks of y in flight a thread */

template <bool VEC>
static __global__ void __launch_bounds__(FLAT_THREADS)
    moe_sum_kernel(uint16_t *out, const uint16_t *y, const uint16_t *shared, unsigned k,
                   unsigned items, unsigned chunks, unsigned d)
{
    begin();
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
    int64_t n = a->out.dim[0], d = a->out.dim[1];
    auto kernel = whole_chunks(d, out, y, shared) ? moe_sum_kernel<true> : moe_sum_kernel<false>;
    return launch_chunks(lc, n, d, kernel, out, y, shared, unsigned(a->y.dim[1]));
}
