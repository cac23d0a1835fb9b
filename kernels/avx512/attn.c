/* Sparse attention, one work item a row and a group of heads. The list is taken in its blocks of 64
 * keys; for each block
 *
 *   decode    64 records -> V [d/64][64 keys][64 channels] f32, and its transpose K [d][64 keys]
 *   logits    L [h][64 keys]  = Q [h][d] K          both products by the same register tile of
 *   softmax   P [h][64 keys], running max and sum   6 heads by 64 columns
 *   values    O [h][d]       += P V
 *
 * Panels of 64 x 64 f32 (16 KiB) stay in the first cache while all heads pass over them. f32
 * multiply-add, because vdpbf16ps has half its rate per product on the processors at hand, and
 * takes subnormals as zero. Each element is one chain in ascending order, whatever the tile. */
#include "ops/attn.h"

#include <math.h>
#include <string.h>

#include "avx512/lane.h"
#include "base/num.h"

enum {
    PANEL = DSF_ATTN_BLOCK, /* keys of a block; also channels of a panel */
    LANES = 16,
    TILE = 6, /* heads: 6 x 4 accumulators, 4 columns, 1 broadcast of 32 registers */
    GROUP = 16,
    FEW_ROWS = 16 /* below: heads are split too, and each group decodes the keys again */
};

/* Per worker. pd: d rounded up to whole panels; columns past d are zero. */
typedef struct {
    float *v;         /* [pd/64][64][64] */
    float *k;         /* [pd/64][64 channels][64 keys] */
    float *q, *o;     /* [heads][pd] */
    float *p;         /* [heads][64] */
    float *max, *sum; /* [heads] */
    dsf_attn_key *key;
} workspace;

typedef struct {
    const dsf_launch *lc;
    const dsf_attn_args *a;
    int64_t h, d, pd, heads, groups; /* heads: of a full group */
} job;

static job job_of(const dsf_launch *lc, const dsf_attn_args *a)
{
    job j = {.lc = lc, .a = a, .h = a->q.dim[1], .d = a->q.dim[2]};
    j.pd = (j.d + PANEL - 1) / PANEL * PANEL;
    j.heads = a->q.dim[0] < FEW_ROWS && j.h > GROUP ? GROUP : j.h;
    j.groups = (j.h + j.heads - 1) / j.heads;
    return j;
}

static float *take(float **at, int64_t count)
{
    float *p = *at;
    *at += (count + LANES - 1) / LANES * LANES;
    return p;
}

static workspace cut(const job *j, float **at)
{
    workspace w;
    w.v = take(at, j->pd * PANEL);
    w.k = take(at, j->pd * PANEL);
    w.q = take(at, j->heads * j->pd);
    w.o = take(at, j->heads * j->pd);
    w.p = take(at, j->heads * PANEL);
    w.max = take(at, j->heads);
    w.sum = take(at, j->heads);
    w.key = (dsf_attn_key *)(void *)*at;
    return w;
}

size_t dsf_attn_scratch_avx512(const void *args)
{
    job j = job_of(NULL, args);
    int64_t floats =
        2 * j.pd * PANEL + 2 * j.heads * j.pd + j.heads * PANEL + 2 * (j.heads + LANES);
    return (size_t)floats * sizeof(float) + (size_t)dsf_attn_list_max(j.a) * sizeof(dsf_attn_key);
}

/* Decoding. `v` is key's row in the first panel; 32 channels lie in a row of half a panel. */

static float *half_row(float *v, int64_t g) { return v + g / 2 * PANEL * PANEL + g % 2 * 32; }

static void decode_q8(float *v, const uint8_t *rec, int64_t d)
{
    for (int64_t g = 0; g < d / 32; g++) {
        __m512 scale = _mm512_set1_ps(dsf_e8m0_to_f32(rec[d + g]));
        float *out = half_row(v, g);
        for (int64_t c = 0; c < 32; c += LANES) {
            __m128i code = _mm_loadu_si128((const __m128i *)(const void *)(rec + 32 * g + c));
            __m512 x = dsf_lane_from_e4m3(code);
            _mm512_store_ps(out + c, _mm512_mul_ps(x, scale));
        }
    }
}

/* 32 channels from 16 bytes; scale: of the first 16 in the low lanes, of the others in the high. */
static void decode_e2m1(float *out, const uint8_t *bytes, __m512 scale)
{
    const __m512 grid =
        _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6);
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    /* Two channels a lane; permutes look at 4 bits. */
    __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
    __m512 even = _mm512_mul_ps(_mm512_permutexvar_ps(x, grid), scale);
    __m512 odd = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(x, 4), grid), scale);
    _mm512_store_ps(out, _mm512_permutex2var_ps(even, first, odd));
    _mm512_store_ps(out + LANES, _mm512_permutex2var_ps(even, second, odd));
}

static void decode_q4n(float *v, const uint8_t *rec, int64_t d)
{
    const __m512i two = _mm512_set1_epi32(2);
    for (int64_t g = 0; g < d / 32; g += LANES / 2) { /* 16 scales at a time */
        int64_t left = d / 32 - g < LANES / 2 ? d / 32 - g : LANES / 2;
        __mmask16 mask = (__mmask16)((1u << 2 * left) - 1);
        __m512 scales = dsf_lane_from_e4m3(_mm_maskz_loadu_epi8(mask, rec + d / 2 + 2 * g));
        __m512i pick = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        for (int64_t i = 0; i < left; i++, pick = _mm512_add_epi32(pick, two))
            decode_e2m1(half_row(v, g + i), rec + 16 * (g + i),
                        _mm512_permutexvar_ps(pick, scales));
    }
}

/* 16 rows of stride PANEL to 16 rows of stride PANEL. Two rounds inside the 128-bit lanes, two
 * between them. */
static void transpose16(float *out, const float *in)
{
    __m512 a[LANES], b[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) a[i] = _mm512_load_ps(in + i * PANEL);
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) { /* a[i + c]: channels c, 4 + c, ... of rows i..i+3 */
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xEE);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512 x = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
        __m512 y = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
        __m512 z = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xDD);
        __m512 w = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xDD);
        _mm512_store_ps(out + c * PANEL, _mm512_shuffle_f32x4(x, y, 0x88));
        _mm512_store_ps(out + (4 + c) * PANEL, _mm512_shuffle_f32x4(z, w, 0x88));
        _mm512_store_ps(out + (8 + c) * PANEL, _mm512_shuffle_f32x4(x, y, 0xDD));
        _mm512_store_ps(out + (12 + c) * PANEL, _mm512_shuffle_f32x4(z, w, 0xDD));
    }
}

/* Selected records lie anywhere in memory: ask for the next block's while this one is worked on. */
static void prefetch_block(const job *j, const dsf_attn_key *key, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = dsf_dtype_bytes(key[i].is_main ? DSF_Q4N : DSF_Q8, j->d);
        for (int64_t at = 0; at < bytes; at += 64)
            _mm_prefetch((const char *)key[i].record + at, _MM_HINT_T1);
    }
}

static void decode_block(const job *j, const workspace *w, const dsf_attn_key *key, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (key[i].is_main)
            decode_q4n(w->v + i * PANEL, key[i].record, j->d);
        else
            decode_q8(w->v + i * PANEL, key[i].record, j->d);
        if (j->d % PANEL) memset(half_row(w->v + i * PANEL, j->d / 32), 0, 32 * sizeof(float));
    }
    for (int64_t c = 0; c < j->pd && count < PANEL; c += PANEL)
        memset(w->v + (c + count) * PANEL, 0, (size_t)((PANEL - count) * PANEL) * sizeof(float));
    for (int64_t c = 0; c < j->pd; c += LANES)
        for (int64_t i = 0; i < PANEL; i += LANES)
            transpose16(w->k + c * PANEL + i,
                        w->v + c / PANEL * PANEL * PANEL + i * PANEL + c % PANEL);
}

/* c [heads][64] += x [heads][steps] y [steps][64], rows of c and x at their strides. */
typedef struct {
    float *c;
    int64_t c_stride;
    const float *x;
    int64_t x_stride;
    const float *y;
    int64_t steps;
} product;

static inline __attribute__((always_inline)) void tile(const product *p, int64_t head,
                                                       const int heads)
{
    float *c = p->c + head * p->c_stride;
    const float *x = p->x + head * p->x_stride, *y = p->y;
    __m512 acc[TILE][4];
#pragma GCC unroll 6
    for (int i = 0; i < heads; i++)
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) acc[i][n] = _mm512_load_ps(c + i * p->c_stride + n * LANES);
    for (int64_t s = 0; s < p->steps; s++, y += PANEL) {
        __m512 col[4];
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) col[n] = _mm512_load_ps(y + n * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < heads; i++) {
            __m512 row = _mm512_set1_ps(x[i * p->x_stride + s]);
#pragma GCC unroll 4
            for (int n = 0; n < 4; n++) acc[i][n] = _mm512_fmadd_ps(row, col[n], acc[i][n]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < heads; i++)
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) _mm512_store_ps(c + i * p->c_stride + n * LANES, acc[i][n]);
}

static void multiply(product p, int64_t heads)
{
    int64_t head = 0;
    for (; head + TILE <= heads; head += TILE) tile(&p, head, TILE);
    switch (heads - head) {
    case 5:
        tile(&p, head, 5);
        break;
    case 4:
        tile(&p, head, 4);
        break;
    case 3:
        tile(&p, head, 3);
        break;
    case 2:
        tile(&p, head, 2);
        break;
    case 1:
        tile(&p, head, 1);
        break;
    default:
        break;
    }
}

/* Turns one head's dot products p[64] into probabilities on the bf16 grid, and moves its maximum.
 */
static void softmax_head(const job *j, const workspace *w, int64_t head, int64_t count)
{
    float *p = w->p + head * PANEL, *o = w->o + head * j->pd;
    __m512 scale = _mm512_set1_ps((float)(1.0 / sqrt((double)j->d)));
    __m512 l[4], max = _mm512_set1_ps(w->max[head]), sum = _mm512_setzero_ps();
    for (int n = 0; n < 4; n++) {
        int64_t here = count - n * LANES;
        __mmask16 mask = here >= LANES ? 0xFFFF : here > 0 ? (__mmask16)((1 << here) - 1) : 0;
        l[n] = _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), mask, _mm512_load_ps(p + n * LANES),
                                  scale);
        max = _mm512_max_ps(max, l[n]);
    }
    float old = w->max[head], new_max = _mm512_reduce_max_ps(max);
    max = _mm512_set1_ps(new_max);
    for (int n = 0; n < 4; n++) {
        __m512 e = dsf_lane_exp(_mm512_sub_ps(l[n], max));
        sum = _mm512_add_ps(sum, e);
        _mm512_store_ps(p + n * LANES, dsf_lane_round_bf16(e));
    }
    float total = _mm512_reduce_add_ps(sum);
    if (new_max != old) {
        __m512 rescale = dsf_lane_exp(_mm512_set1_ps(old - new_max));
        w->sum[head] *= _mm512_cvtss_f32(rescale);
        for (int64_t c = 0; c < j->pd; c += LANES)
            _mm512_store_ps(o + c, _mm512_mul_ps(_mm512_load_ps(o + c), rescale));
        w->max[head] = new_max;
    }
    w->sum[head] += total;
}

static void attend_block(const job *j, const workspace *w, int64_t heads, int64_t count)
{
    memset(w->p, 0, (size_t)(heads * PANEL) * sizeof(float));
    for (int64_t c = 0; c < j->d; c += PANEL) {
        int64_t steps = j->d - c < PANEL ? j->d - c : PANEL;
        multiply((product){w->p, PANEL, w->q + c, j->pd, w->k + c * PANEL, steps}, heads);
    }
    for (int64_t head = 0; head < heads; head++) softmax_head(j, w, head, count);
    for (int64_t c = 0; c < j->d; c += PANEL)
        multiply((product){w->o + c, j->pd, w->p, PANEL, w->v + c * PANEL, count}, heads);
}

static void begin(const job *j, const workspace *w, const uint16_t *q, int64_t heads)
{
    memset(w->o, 0, (size_t)(heads * j->pd) * sizeof(float));
    for (int64_t head = 0; head < heads; head++) {
        w->max[head] = -1e30f;
        w->sum[head] = 0;
        for (int64_t c = 0; c < j->d; c += LANES) {
            const void *in = q + head * j->d + c;
            _mm512_store_ps(w->q + head * j->pd + c, dsf_lane_from_bf16(_mm256_loadu_si256(in)));
        }
    }
}

/* The sink joins the denominator: e^(sink - max) may be large, and is infinite for an empty list,
 * whose row is 0. */
static void finish(const job *j, const workspace *w, uint16_t *out, const float *sink,
                   int64_t heads)
{
    for (int64_t head = 0; head < heads; head++) {
        float sum = w->sum[head] + (float)exp((double)(sink[head] - w->max[head]));
        for (int64_t c = 0; c < j->d; c += LANES) {
            __m512 o = _mm512_load_ps(w->o + head * j->pd + c);
            o = dsf_lane_round_bf16(_mm512_div_ps(o, _mm512_set1_ps(sum)));
            void *to = out + head * j->d + c;
            _mm256_storeu_si256(to, dsf_lane_to_bf16(o));
        }
    }
}

static void attend(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    int64_t i = item / j->groups, first = item % j->groups * j->heads;
    int64_t heads = j->h - first < j->heads ? j->h - first : j->heads;
    int64_t at = (i * j->h + first) * j->d;
    float *scratch = (float *)(void *)(j->lc->scratch + (size_t)worker * j->lc->scratch_bytes);
    workspace w = cut(j, &scratch);
    int64_t total = dsf_attn_list(j->a, i, w.key);
    begin(j, &w, (const uint16_t *)j->a->q.data + at, heads);
    for (int64_t b = 0; b < total; b += PANEL) {
        int64_t count = total - b < PANEL ? total - b : PANEL;
        int64_t next = total - b - count < PANEL ? total - b - count : PANEL;
        decode_block(j, &w, w.key + b, count);
        prefetch_block(j, w.key + b + count, next);
        attend_block(j, &w, heads, count);
    }
    finish(j, &w, (uint16_t *)j->a->out.data + at, (const float *)j->a->sink.data + first, heads);
}

dsf_status dsf_attn_avx512(const dsf_launch *lc, const void *args)
{
    job j = job_of(lc, args);
    dsf_pool_run(lc->pool, j.a->q.dim[0] * j.groups, attend, &j);
    return DSF_OK;
}
