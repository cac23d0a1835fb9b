/* Engram (architecture.md 8.4, 8.5). engram_gather: 16 codes a thread, out twice the bytes in.
 * engram_gate: a block a (row, stream); three sums in double over the stream, then x + gamma value
 * from the registers that hold x. 26 bytes a channel of a row against 4 x 9 double operations: 255
 * us of memory and 100 us of arithmetic at 8,192 rows; measured 441, since a block waits for one
 * thread's gamma and every block reads its weights from the L2 again (several rows a block would
 * spare that). Two layers of the model have it. */
#include "sm90/fused.cuh"

extern "C" {
#include "ops/engram.h"
}

/* ---- engram_gather ---- */

enum { CODES = 16 };

/* Codes have 4 significant bits: every product is exact in f32 or infinite. */
static __global__ void __launch_bounds__(FLAT_THREADS)
    gather_kernel(uint4 *out, const int64_t *rows, const uint8_t *table, const uint8_t *scales,
                  unsigned items, unsigned d)
{
    begin();
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= items) return;
    unsigned units = d / CODES, pick = item / units, c = (item - pick * units) * CODES;
    int64_t row = rows[pick];
    uint4 v = *reinterpret_cast<const uint4 *>(table + row * d + c);
    float s = num::e8m0_to_f32(scales[row * (d / 32) + c / 32]);
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    uint32_t pair[CODES / 2];
#pragma unroll
    for (int i = 0; i < CODES / 2; i++) {
        uint32_t two = w[i / 2] >> 16 * (i % 2);
        pair[i] = num::pack_bf16(num::e4m3_to_f32(uint8_t(two)) * s,
                                 num::e4m3_to_f32(uint8_t(two >> 8)) * s);
    }
    out[2 * int64_t(item)] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    out[2 * int64_t(item) + 1] = make_uint4(pair[4], pair[5], pair[6], pair[7]);
}

extern "C" dsf_status dsf_engram_gather_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_engram_gather_args *a = static_cast<const dsf_engram_gather_args *>(args);
    int64_t d = a->out.dim[2], items = a->out.dim[0] * a->out.dim[1] * (d / CODES);
    return launch_flat(lc, items, gather_kernel, data_of<uint4>(a->out), data_of<int64_t>(a->rows),
                       data_of<uint8_t>(a->table), data_of<uint8_t>(a->s), unsigned(items),
                       unsigned(d));
}

/* ---- engram_gate ---- */

enum { KEPT = 2, MAX_THREADS = 1024 };

struct gate_args {
    uint16_t *out;
    float *gate;
    const uint16_t *x, *kv, *qw, *kw;
    const uint8_t *vl;
    unsigned d;
    double eps;
};

struct gate_sums {
    double dot, xx, kk;
};

/* bf16 to double, exact: a shift and a product, for the chip has few units that convert. */
__device__ inline double low_double(uint32_t v) { return fused::low_scaled(v) * fused::unscale; }
__device__ inline double high_double(uint32_t v) { return fused::high_scaled(v) * fused::unscale; }

/* One channel: products of two and of four bf16 are exact. */
__device__ inline void add_channel(gate_sums &s, double x, double key, double q, double k)
{
    s.dot = fma(x * key, q * k, s.dot);
    s.xx = fma(x, x, s.xx);
    s.kk = fma(key, key, s.kk);
}

__device__ inline void add_word(gate_sums &s, uint32_t x, uint32_t key, uint32_t q, uint32_t k)
{
    add_channel(s, low_double(x), low_double(key), low_double(q), low_double(k));
    add_channel(s, high_double(x), high_double(key), high_double(q), high_double(k));
}

__device__ inline void add_chunk(gate_sums &s, uint4 x, uint4 key, uint4 q, uint4 k)
{
    add_word(s, x.x, key.x, q.x, k.x);
    add_word(s, x.y, key.y, q.y, k.y);
    add_word(s, x.z, key.z, q.z, k.z);
    add_word(s, x.w, key.w, q.w, k.w);
}

__device__ inline float gamma_of(const gate_sums &s, double n, double eps)
{
    double t = s.dot / sqrt(s.xx / n + eps) / sqrt(s.kk / n + eps) / sqrt(n);
    double u = copysign(sqrt(fmax(fabs(t), 1e-6)), t);
    return __double2float_rn(1.0 / (1.0 + exp(-u)));
}

/* Sums over the block, in an order that the number of threads decides; the first thread gets them.
 */
__device__ inline void join_sums(gate_sums &s, gate_sums *scratch)
{
    s.dot = warp_sum(s.dot);
    s.xx = warp_sum(s.xx);
    s.kk = warp_sum(s.kk);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned w = 1; w < blockDim.x / 32; w++) {
        s.dot += scratch[w].dot;
        s.xx += scratch[w].xx;
        s.kk += scratch[w].kk;
    }
}

__device__ inline uint4 add_value(uint4 x, uint4 value, float gamma)
{
    float xv[CHUNK], v[CHUNK];
    unpack_chunk(xv, x);
    unpack_chunk(v, value);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) xv[i] = __fadd_rn(xv[i], __fmul_rn(gamma, v[i]));
    return pack_chunk(xv);
}

/* One (row, stream) a block. */
template <bool VEC> static __global__ void __launch_bounds__(MAX_THREADS) gate_kernel(gate_args a)
{
    begin();
    __shared__ gate_sums scratch[32];
    __shared__ float shared_gamma;
    unsigned row = blockIdx.x / 4, stream = blockIdx.x % 4, d = a.d;
    const uint16_t *x = a.x + int64_t(blockIdx.x) * d, *kv = a.kv + int64_t(row) * 5 * d;
    const uint16_t *key = kv + stream * d, *value = kv + 4 * d;
    const uint16_t *q = a.qw + stream * d, *k = a.kw + stream * d;
    uint16_t *out = a.out + int64_t(blockIdx.x) * d;
    unsigned step = CHUNK * blockDim.x, first = CHUNK * threadIdx.x;
    uint4 kept[KEPT];
    gate_sums s = {0, 0, 0};
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        unsigned c = first + j * step;
        kept[j] = c < d ? load_chunk<VEC>(x, c, d) : make_uint4(0, 0, 0, 0);
        if (c < d)
            add_chunk(s, kept[j], load_chunk<VEC>(key, c, d), load_chunk<VEC>(q, c, d),
                      load_chunk<VEC>(k, c, d));
    }
    for (unsigned c = first + KEPT * step; c < d; c += step)
        add_chunk(s, load_chunk<VEC>(x, c, d), load_chunk<VEC>(key, c, d), load_chunk<VEC>(q, c, d),
                  load_chunk<VEC>(k, c, d));
    join_sums(s, scratch);
    if (threadIdx.x == 0) {
        shared_gamma = a.vl[row] ? 0.0f : gamma_of(s, double(d), a.eps);
        a.gate[blockIdx.x] = shared_gamma;
    }
    __syncthreads();
    float gamma = shared_gamma;
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        unsigned c = first + j * step;
        if (c < d)
            store_chunk<VEC>(out, c, d, add_value(kept[j], load_chunk<VEC>(value, c, d), gamma));
    }
    for (unsigned c = first + KEPT * step; c < d; c += step)
        store_chunk<VEC>(out, c, d,
                         add_value(load_chunk<VEC>(x, c, d), load_chunk<VEC>(value, c, d), gamma));
}

extern "C" dsf_status dsf_engram_gate_sm90(const dsf_launch *lc, const void *args)
{
    const dsf_engram_gate_args *a = static_cast<const dsf_engram_gate_args *>(args);
    int64_t d = a->x.dim[2], threads = 32 * ((chunks_of(d) + 32 * KEPT - 1) / (32 * KEPT));
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    gate_args g = {data_of<uint16_t>(a->out),
                   data_of<float>(a->gate),
                   data_of<uint16_t>(a->x),
                   data_of<uint16_t>(a->kv),
                   data_of<uint16_t>(a->qw),
                   data_of<uint16_t>(a->kw),
                   data_of<uint8_t>(a->vl),
                   unsigned(d),
                   double(a->eps)};
    auto kernel =
        whole_chunks(d, g.out, g.x, g.kv, g.qw, g.kw) ? gate_kernel<true> : gate_kernel<false>;
    return launch_early(dsf_stream(lc), {unsigned(4 * a->x.dim[0]), unsigned(threads)}, kernel, g);
}
