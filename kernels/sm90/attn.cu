/* Sparse attention for every shape, in f32 on the ordinary cores: a block takes one row and 8
 * heads, a warp one head. 64 keys at a time:
 *
 *   kv [64][d + 2] bf16 <- records     exact; the odd word stride keeps keys of a warp in 32 banks
 *   l  = q kv d^-1/2                   a lane holds two keys: one chain over the channels
 *   p  = e^(l - max)                   running maximum and sum in registers
 *   o += bf16(p) kv                    a lane holds d/32 channels: one chain over the keys
 *
 * 4 d operations a key and head at about a tenth of the tensor cores' rate: for shapes that
 * attn_prefill.cu and attn_decode.cu do not take, and to judge them by. */
#include "sm90/attn_list.cuh"
#include "sm90/tune_attn.h"

namespace
{

constexpr int HEADS = 8, THREADS = 32 * HEADS, BLOCK = DSF_ATTN_BLOCK, MAX_D = DSF_ATTN_MOST_D;
constexpr int WORDS = MAX_D / 64; /* of a lane: two channels each */

/* Channels 16 g..16 g + 15 of a record as bf16. */
__device__ void decode16(uint16_t *out, attn::key key, int d, int g)
{
    const uint8_t *r = key.record;
    if (!key.is_there) {
        for (int c = 0; c < 16; c++) out[c] = 0;
    } else if (key.is_main) {
        float scale = num::e4m3_to_f32(r[d / 2 + g]);
        for (int c = 0; c < 8; c++) {
            uint8_t pair = r[8 * g + c];
            out[2 * c] = num::f32_to_bf16(num::e2m1_to_f32(pair & 15) * scale);
            out[2 * c + 1] = num::f32_to_bf16(num::e2m1_to_f32(pair >> 4) * scale);
        }
    } else {
        float scale = num::e8m0_to_f32(r[d + g / 2]);
        for (int c = 0; c < 16; c++)
            out[c] = num::f32_to_bf16(num::e4m3_to_f32(r[16 * g + c]) * scale);
    }
}

/* Returns how many keys the block has. */
__device__ int decode_block(uint16_t *kv, const attn::problem &p, const attn::list &l, int first)
{
    int groups = p.d / 16, count = 0;
    for (int i = threadIdx.x; i < BLOCK * groups; i += THREADS) {
        int j = first + i / groups;
        attn::key key = attn::key_at(p, l, j, attn::id_at(p, l, j));
        decode16(kv + i / groups * (p.d + 2) + i % groups * 16, key, p.d, i % groups);
    }
    if (threadIdx.x < BLOCK) count = attn::id_at(p, l, first + int(threadIdx.x)) >= 0;
    return __syncthreads_count(count);
}

struct head_state {
    float max, sum;
    float2 o[WORDS];
};

__device__ float dot(const float2 *q, const uint32_t *k, int words)
{
    float sum = 0;
    for (int c = 0; c < words; c++) {
        float2 x = q[c];
        sum = fmaf(x.x, num::low_bf16(k[c]), sum);
        sum = fmaf(x.y, num::high_bf16(k[c]), sum);
    }
    return sum;
}

/* p: room of this warp for 64 probabilities. */
__device__ void attend_block(head_state *s, const float2 *q, const uint32_t *kv, float *p,
                             const attn::problem &a, int count)
{
    int lane = threadIdx.x & 31, words = a.d / 2, stride = words + 1;
    float l0 = __fmul_rn(dot(q, kv + lane * stride, words), a.scale);
    float l1 = __fmul_rn(dot(q, kv + (lane + 32) * stride, words), a.scale);
    if (lane >= count) l0 = -INFINITY;
    if (lane + 32 >= count) l1 = -INFINITY;
    float max = fmaxf(s->max, warp_max(fmaxf(l0, l1)));
    float rescale = expf(s->max - max), p0 = expf(l0 - max), p1 = expf(l1 - max);
    s->max = max;
    s->sum = fmaf(s->sum, rescale, warp_sum(p0 + p1));
    p[lane] = num::round_bf16(p0);
    p[lane + 32] = num::round_bf16(p1);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int c = lane + 32 * i;
        if (c >= words) break;
        float2 o = {s->o[i].x * rescale, s->o[i].y * rescale};
        for (int j = 0; j < count; j++) {
            uint32_t v = kv[j * stride + c];
            o.x = fmaf(p[j], num::low_bf16(v), o.x);
            o.y = fmaf(p[j], num::high_bf16(v), o.y);
        }
        s->o[i] = o;
    }
    __syncwarp();
}

/* e^(sink - max) is infinite for an empty list, whose row is 0. */
__device__ void store_head(uint16_t *out, const head_state *s, float sink, int words)
{
    float sum = s->sum + expf(sink - s->max);
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int c = (threadIdx.x & 31) + 32 * i;
        if (c >= words) break;
        reinterpret_cast<uint32_t *>(out)[c] =
            num::pack_bf16(__fdiv_rn(s->o[i].x, sum), __fdiv_rn(s->o[i].y, sum));
    }
}

constexpr int shared_bytes(int d) { return BLOCK * (d + 2) * 2 + HEADS * (d + BLOCK) * 4; }

__global__ void __launch_bounds__(THREADS) attend(attn::problem p)
{
    extern __shared__ __align__(16) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, head = blockIdx.y * HEADS + warp;
    float *q = reinterpret_cast<float *>(shared) + warp * p.d;
    float *prob = reinterpret_cast<float *>(shared) + HEADS * p.d + warp * BLOCK;
    uint16_t *kv = reinterpret_cast<uint16_t *>(shared + HEADS * (p.d + BLOCK) * 4);
    attn::list l = attn::list_of(p, blockIdx.x);
    int64_t at = (int64_t(blockIdx.x) * p.h + head) * p.d;
    bool mine = head < p.h;
    head_state s = {-1e30f, 0, {}};
    for (int c = lane; c < p.d; c += 32) q[c] = mine ? num::bf16_to_f32(p.q[at + c]) : 0;
    for (int first = 0; first < l.n_window + l.n_tail; first += BLOCK) {
        int count = decode_block(kv, p, l, first);
        if (count && mine)
            attend_block(&s, reinterpret_cast<float2 *>(q), reinterpret_cast<uint32_t *>(kv), prob,
                         p, count);
        __syncthreads();
        if (count < BLOCK) break;
    }
    if (mine) store_head(p.out + at, &s, p.sink[head], p.d / 2);
}

} // namespace

extern "C" dsf_status dsf_attn_sm90(const dsf_launch *lc, const void *args)
{
    attn::problem p = attn::problem_of(static_cast<const dsf_attn_args *>(args));
    dim3 grid(p.n, (p.h + HEADS - 1) / HEADS);
    DSF_CUDA_TRY(cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      shared_bytes(MAX_D)));
    attend<<<grid, THREADS, shared_bytes(p.d), dsf_stream(lc)>>>(p);
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
