/* Sampling (architecture.md 9): eight blocks of a cluster share a row of logits, each warp a run of
 * neighbouring ids; probabilities lie in shared memory (in the workspace when they are too many).
 * What all need (the best logit, sums, what a filter keeps) is exchanged through shared memory of
 * the cluster, about 3 us each time: 1 exchange for a greedy row, 3 for a plain draw, 16 more for
 * top-k and for top-p, whose borders are found by a search over the bits of the probabilities, a
 * quarter of the rest a step (an eighth was no faster). Work a row of 129,280 ids: 517 KB from
 * memory (0.1 us), exp and two quotients in double, 30 operations each over 8 multiprocessors (5
 * us). Masses are sums of integers in units of 2^-60, so that their order does not matter; the sum
 * of exp is one of doubles in a fixed order. Measured at 1 to 16 rows: greedy 6 us, a plain draw
 * 29, top-k 79, top-p 121, all filters 119. */
#include "sm90/ptx.cuh"
#include "sm90/sm90.cuh"

extern "C" {
#include "ops/sample.h"
#include "sm90/tune_sample.h"
}

enum {
    CLUSTER = DSF_SAMPLE_CLUSTER,
    THREADS = DSF_SAMPLE_THREADS,
    WARPS = THREADS / 32,
    BORDERS = 3 /* tried in one step of a search */
};

typedef unsigned long long u64;

/* What is exchanged, and how two of it become one. */
struct alignas(16) word {
    u64 a, b;
};

struct best_logit { /* a: order of the logit, then of the smaller id; b: one of them is broken */
    static __device__ inline word join(word x, word y)
    {
        return {x.a > y.a ? x.a : y.a, x.b | y.b};
    }
};

struct add_counts { /* a: how many; b: their mass */
    static __device__ inline word join(word x, word y) { return {x.a + y.a, x.b + y.b}; }
};

struct add_doubles { /* a */
    static __device__ inline word join(word x, word y)
    {
        double sum = __longlong_as_double(x.a) + __longlong_as_double(y.a);
        return {u64(__double_as_longlong(sum)), 0};
    }
};

struct sample_shared {
    word slot[2][CLUSTER][BORDERS]; /* of each block, in turns: a block is at most one exchange
                                       ahead */
    word warp[WARPS][BORDERS];
    u64 mass[WARPS]; /* of each warp, for the pick */
};

template <typename OP> __device__ inline word join_warp(word v)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1)
        v = OP::join(v,
                     {__shfl_xor_sync(0xFFFFFFFFu, v.a, d), __shfl_xor_sync(0xFFFFFFFFu, v.b, d)});
    return v;
}

/* Joins K words of all threads of the cluster, blocks in ascending order; turn: 0 or 1. Warp k
 * joins word k of the warps. */
template <typename OP, int K>
__device__ inline void exchange(sample_shared &sh, word (&v)[K], unsigned turn)
{
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = ptx::cluster_ctarank();
#pragma unroll
    for (int k = 0; k < K; k++) {
        v[k] = join_warp<OP>(v[k]);
        if (lane == 0) sh.warp[warp][k] = v[k];
    }
    __syncthreads();
    if (warp < K) {
        word w = join_warp<OP>(lane < WARPS ? sh.warp[lane][warp] : word{0, 0});
        if (lane < CLUSTER)
            ptx::st_shared_cluster_v4(
                ptx::mapa(ptx::smem(&sh.slot[turn][rank][warp]), lane),
                make_uint4(uint32_t(w.a), uint32_t(w.a >> 32), uint32_t(w.b), uint32_t(w.b >> 32)));
    }
    ptx::cluster_sync();
#pragma unroll
    for (int k = 0; k < K; k++) {
        v[k] = sh.slot[turn][0][k];
#pragma unroll
        for (int i = 1; i < CLUSTER; i++) v[k] = OP::join(v[k], sh.slot[turn][i][k]);
    }
}

template <typename OP> __device__ inline word exchange_one(sample_shared &sh, word v, unsigned turn)
{
    word one[1] = {v};
    exchange<OP, 1>(sh, one, turn);
    return one[0];
}

/* A row and this thread's ids in it: begin, begin + 32, .. below end. */
struct row_part {
    const float *logits;
    double *e;     /* exp of each id */
    float *p;      /* probabilities of the block's ids: shared memory or workspace */
    int64_t first; /* the block's first id */
    int64_t begin, end;
    unsigned turn; /* exchanges so far, mod 2 */
};

__device__ inline unsigned next_turn(row_part &r) { return r.turn ^= 1; }

/* The best logit and its id; false: the row is broken. */
__device__ inline bool find_best(sample_shared &sh, row_part &r, float *best, int32_t *id)
{
    word v = {0, 0};
    for (int64_t i = r.begin; i < r.end; i += 32) {
        float x = r.logits[i] + 0.0f;
        v = best_logit::join(
            v, {u64(num::order_of(x)) << 32 | uint32_t(~uint32_t(i)), !(x < INFINITY)});
    }
    v = exchange_one<best_logit>(sh, v, next_turn(r));
    *best = num::float_of_order(uint32_t(v.a >> 32));
    *id = int32_t(~uint32_t(v.a));
    return v.b == 0 && *best > -INFINITY;
}

/* p in units of 2^-60; what is below is cut. */
__device__ inline u64 mass_of(float p)
{
    uint32_t bits = __float_as_uint(p);
    int shift = int(bits >> 23) - 90; /* the last bit of a normal p is 2^(e - 150) */
    u64 m = (bits & 0x7FFFFFu) | 0x800000u;
    return shift >= 0 ? m << shift : shift > -24 ? m >> -shift : 0;
}

/* How many of this thread's probabilities are at least least[k] (bits, ascending), and their mass.
 */
template <int K>
__device__ inline void count_above(word (&v)[K], const row_part &r, const uint32_t (&least)[K])
{
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = {0, 0};
#pragma unroll 4
    for (int64_t i = r.begin - r.first; i < r.end - r.first; i += 32) {
        float p = r.p[i];
        if (__float_as_uint(p) < least[0]) continue;
        word one = {1, mass_of(p)};
#pragma unroll
        for (int k = 0; k < K; k++)
            if (__float_as_uint(p) >= least[k]) v[k] = add_counts::join(v[k], one);
    }
}

__device__ inline word count_kept(const row_part &r, uint32_t least)
{
    const uint32_t border[1] = {least};
    word v[1];
    count_above(v, r, border);
    return v[0];
}

/* The number of units that is not below x: a sum of units reaches x when it reaches this. */
__device__ inline u64 units(double x) { return u64(__double2ull_ru(x)); }

/* What is kept: probabilities whose bits are at least `least`; their mass. */
struct kept {
    uint32_t least;
    u64 mass;
};

/* The reference's threshold(): the largest border with at least `count` ids and `mass` above it. */
__device__ inline void raise(sample_shared &sh, row_part &r, kept &k, u64 count, u64 mass)
{
    uint32_t lo = 0, hi = 0x3F800001u;
    while (hi - lo > 1) {
        uint32_t step = (hi - lo + BORDERS) / (BORDERS + 1), border[BORDERS], least[BORDERS];
        word v[BORDERS];
#pragma unroll
        for (int i = 0; i < BORDERS; i++) {
            border[i] = min(lo + (i + 1) * step, hi - 1);
            least[i] = max(border[i], k.least);
        }
        count_above(v, r, least);
        exchange<add_counts, BORDERS>(sh, v, next_turn(r));
#pragma unroll
        for (int i = 0; i < BORDERS; i++) { /* what holds at a border holds below it */
            if (v[i].a >= count && v[i].b >= mass) {
                lo = border[i];
                k.mass = v[i].b;
            } else if (border[i] < hi) {
                hi = border[i];
            }
        }
    }
    if (lo > k.least) k.least = lo;
}

__device__ inline double uniform(u64 seed, int64_t position)
{
    u64 r = mix64(mix64(seed + 0x9E3779B97F4A7C15u) ^ (u64(position) * 0xD1B54A32D192ED03u));
    return (double(r >> 11) + 0.5) * 0x1p-53;
}

/* One warp, whose ids the draw falls into: the first at which the running mass from `run` reaches
 * `need`. */
__device__ inline void pick_in_warp(const row_part &r, const kept &k, u64 run, u64 need,
                                    int32_t *id)
{
    unsigned lane = threadIdx.x % 32;
    for (int64_t i = r.begin; i - lane < r.end; i += 32) {
        float p = i < r.end ? r.p[i - r.first] : 0.0f;
        u64 mass = p > 0.0f && __float_as_uint(p) >= k.least ? mass_of(p) : 0,
            sum = warp_scan(mass);
        unsigned reached = __ballot_sync(0xFFFFFFFFu, run + sum >= need);
        if (reached) {
            if (lane == unsigned(__ffs(int(reached)) - 1)) *id = int32_t(i);
            return;
        }
        run += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
}

/* Drawn by the masses of blocks, of warps, of ids. */
__device__ inline void pick(sample_shared &sh, row_part &r, const kept &k, double u, int32_t *id)
{
    unsigned warp = threadIdx.x / 32, rank = ptx::cluster_ctarank();
    word own = join_warp<add_counts>(count_kept(r, k.least > 0 ? k.least : 1));
    if (threadIdx.x % 32 == 0) sh.mass[warp] = own.b;
    word part = threadIdx.x % 32 == 0 ? own : word{0, 0};
    unsigned turn = next_turn(r);
    u64 all = exchange_one<add_counts>(sh, part, turn).b, need = units(u * double(all)), run = 0;
    if (need > all) need = all;
    for (unsigned i = 0; i < rank; i++) run += sh.slot[turn][i][0].b;
    for (unsigned i = 0; i < warp; i++) run += sh.mass[i];
    if (need > run && need <= run + own.b) pick_in_warp(r, k, run, need, id);
}

/* x / y where 1 / y is known: the correctly rounded quotient but for the ends of the range
 * (Markstein 1990). */
__device__ inline double quotient(double x, double y, double inverse)
{
    double q = __dmul_rn(x, inverse);
    return fma(fma(-q, y, x), inverse, q);
}

/* exp of every logit, and their sum. */
__device__ inline double exponentiate(sample_shared &sh, row_part &r, double max, double t)
{
    double part = 0, inverse = 1.0 / t;
#pragma unroll 4
    for (int64_t i = r.begin; i < r.end; i += 32) {
        float x = r.logits[i];
        double e = x > -INFINITY ? exp(quotient(double(x) - max, t, inverse)) : 0.0;
        r.e[i] = e;
        part += e;
    }
    word v = exchange_one<add_doubles>(sh, {u64(__double_as_longlong(part)), 0}, next_turn(r));
    return __longlong_as_double(v.a);
}

__device__ inline void draw(sample_shared &sh, row_part &r, const dsf_sample_how &how, double max,
                            int64_t n, int32_t *id)
{
    double sum = exponentiate(sh, r, max, fmax(how.temperature, 1e-5)), inverse = 1.0 / sum;
#pragma unroll 4
    for (int64_t i = r.begin; i < r.end; i += 32)
        r.p[i - r.first] = __double2float_rn(quotient(r.e[i], sum, inverse));
    kept k = {0, 0};
    bool top_k = how.top_k > 0 && how.top_k < n;
    if (top_k) raise(sh, r, k, u64(how.top_k), 0);
    if (how.top_p < 1.0) {
        if (!top_k || k.least == 0)
            k.mass = exchange_one<add_counts>(sh, count_kept(r, 0), next_turn(r)).b;
        raise(sh, r, k, 1, units(how.top_p * double(k.mass)));
    }
    if (how.min_p > 0.0) {
        uint32_t least = __float_as_uint(__double2float_rn(how.min_p / sum));
        if (least > k.least) k.least = least;
    }
    pick(sh, r, k, uniform(how.seed, how.position), id);
}

/* in_shared: a block's probabilities fit its shared memory. */
static __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    sample_kernel(int32_t *ids, const float *logits, const dsf_sample_how *how, uint8_t *scratch,
                  int64_t n, int64_t v, int64_t each, bool in_shared)
{
    extern __shared__ float probabilities[];
    __shared__ sample_shared sh;
    unsigned rank = ptx::cluster_ctarank(), cluster = blockIdx.x / CLUSTER;
    int64_t room = (v + 1) / 2 * 2, first = (rank * WARPS + threadIdx.x / 32) * each;
    uint8_t *own = scratch + cluster * room * DSF_SAMPLE_BYTES;
    row_part r = {};
    r.first = rank * WARPS * each;
    r.e = reinterpret_cast<double *>(own);
    r.p = in_shared ? probabilities
                    : reinterpret_cast<float *>(own + room * sizeof(double)) + r.first;
    r.begin = first + threadIdx.x % 32;
    r.end = first + each < v ? first + each : v;
    ptx::cluster_sync(); /* all blocks are there: their memory may be written */
    for (int64_t row = cluster; row < n; row += gridDim.x / CLUSTER) {
        float best;
        int32_t id;
        r.logits = logits + row * v;
        bool sound = find_best(sh, r, &best, &id);
        if (sound && how[row].temperature > 0.0)
            draw(sh, r, how[row], double(best), v, ids + row);
        else if (rank == 0 && threadIdx.x == 0)
            ids[row] = sound ? id : -1;
    }
}

extern "C" dsf_status dsf_sample_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_sample_args *a = static_cast<const dsf_sample_args *>(args);
    int64_t n = a->logits.dim[0], v = a->logits.dim[1], each = dsf_sample_each(v);
    unsigned blocks = unsigned(dsf_sample_clusters(n)) * CLUSTER;
    int64_t bytes = dsf_sample_shared(v);
    DSF_CUDA_TRY(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      DSF_SAMPLE_SHARED));
    sample_kernel<<<blocks, THREADS, size_t(bytes), dsf_stream(lc)>>>(
        data_of<int32_t>(a->ids), data_of<float>(a->logits), data_of<dsf_sample_how>(a->how),
        lc->scratch, n, v, each, bytes > 0);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
