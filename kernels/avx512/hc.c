/* Hyper-connections. hc_mix is a product with a 24-row matrix: items are tiles of up to four rows
 * times a quarter of its rows, so that one token too is shared among the workers. Its sums are
 * taken in double, where products are exact: it is one part in a thousand of a layer's work, and
 * what it decides is multiplied into everything. A dot product has eight lanes in the same order
 * whatever the tile. The raw products wait in the three outputs, which hold exactly 24 floats a
 * row, until the second pass turns them into coefficients. */
#include "ops/hc.h"

#include <math.h>

#include "expand.h"
#include "row.h"

enum { STREAMS = 4, MIXES = 24, TILE = 4, GROUP = 6 };

static float *raw_at(const dsf_hc_mix_args *a, int64_t row, int m)
{
    if (m < 4) return (float *)a->pre.data + row * 4 + m;
    if (m < 8) return (float *)a->post.data + row * 4 + m - 4;
    return (float *)a->comb.data + row * 16 + m - 8;
}

/* Eight bf16 to double. */
static inline __m512d load_x(const uint16_t *p, __mmask8 m)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(m, p));
    return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(u, 16)));
}

/* GROUP matrix rows from m0 with `rows` token rows; inlined for each constant number of them and
 * unrolled, so that the sums live in registers. */
DSF_INLINE void dot_tile(const dsf_hc_mix_args *a, int64_t row0, int m0, const int rows)
{
    int64_t q = a->fn.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + row0 * q;
    const float *fn = (const float *)a->fn.data + m0 * q;
    __m512d sum[GROUP][TILE];
    DSF_UNROLL for (int i = 0; i < GROUP * TILE; i++) sum[i / TILE][i % TILE] = _mm512_setzero_pd();
    for (int64_t c = 0; c < q; c += 8) {
        __mmask8 m = q - c >= 8 ? (__mmask8)0xFF : (__mmask8)((1u << (q - c)) - 1);
        __m512d v[TILE];
        DSF_UNROLL for (int r = 0; r < rows; r++) v[r] = load_x(x + r * q + c, m);
        DSF_UNROLL for (int g = 0; g < GROUP; g++)
        {
            __m512d w = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(m, fn + g * q + c));
            DSF_UNROLL for (int r = 0; r < rows; r++)
            {
                sum[g][r] = _mm512_fmadd_pd(w, v[r], sum[g][r]);
            }
        }
    }
    DSF_UNROLL for (int i = 0; i < GROUP * rows; i++)
    {
        __m512d lanes = sum[i / rows][i % rows];
        *raw_at(a, row0 + i % rows, m0 + i / rows) = (float)_mm512_reduce_add_pd(lanes);
    }
}

static void dot_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_hc_mix_args *a = arg;
    int64_t row0 = item / (MIXES / GROUP) * TILE, left = a->x.dim[0] - row0;
    int m0 = (int)(item % (MIXES / GROUP)) * GROUP;
    switch (left) {
    case 1:
        dot_tile(a, row0, m0, 1);
        break;
    case 2:
        dot_tile(a, row0, m0, 2);
        break;
    case 3:
        dot_tile(a, row0, m0, 3);
        break;
    default:
        dot_tile(a, row0, m0, TILE);
    }
}

/* 1 / (1 + e^-x) without overflow: e^-|x| is at most 1. */
static __m512 sigmoid(__m512 x)
{
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 e = dsf_lane_exp(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
    __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_div_ps(_mm512_mask_blend_ps(negative, one, e), _mm512_add_ps(one, e));
}

/* Lane 4 j + k is C[j][k]. Every lane gets the sum over its k or over its j. */
static __m512 row_sum(__m512 c)
{
    c = _mm512_add_ps(c, _mm512_permute_ps(c, 0xB1));
    return _mm512_add_ps(c, _mm512_permute_ps(c, 0x4E));
}

static __m512 column_sum(__m512 c)
{
    c = _mm512_add_ps(c, _mm512_shuffle_f32x4(c, c, 0xB1));
    return _mm512_add_ps(c, _mm512_shuffle_f32x4(c, c, 0x4E));
}

static __m512 sinkhorn(__m512 logits, float hc_eps, int iters)
{
    __m512 eps = _mm512_set1_ps(hc_eps);
    __m512 most = _mm512_max_ps(logits, _mm512_permute_ps(logits, 0xB1));
    most = _mm512_max_ps(most, _mm512_permute_ps(most, 0x4E));
    __m512 c = dsf_lane_exp(_mm512_sub_ps(logits, most));
    c = _mm512_add_ps(_mm512_div_ps(c, row_sum(c)), eps);
    c = _mm512_div_ps(c, _mm512_add_ps(column_sum(c), eps));
    for (int t = 1; t < iters; t++) {
        c = _mm512_div_ps(c, _mm512_add_ps(row_sum(c), eps));
        c = _mm512_div_ps(c, _mm512_add_ps(column_sum(c), eps));
    }
    return c;
}

static void finish_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_mix_args *a = arg;
    int64_t q = a->fn.dim[1];
    const float *scale = a->scale.data, *base = a->base.data;
    double squares = dsf_row_squares((const uint16_t *)a->x.data + i * q, q);
    float r = (float)(1.0 / sqrt(squares / (double)q + (double)a->norm_eps));
    float gate[16] = {0};
    for (int m = 0; m < 8; m++) gate[m] = *raw_at(a, i, m) * r * scale[m / 4] + base[m];
    __m512 g = sigmoid(_mm512_loadu_ps(gate));
    _mm512_mask_storeu_ps(raw_at(a, i, 0), 0x000F, _mm512_add_ps(g, _mm512_set1_ps(a->hc_eps)));
    _mm512_mask_storeu_ps(raw_at(a, i, 4) - 4, 0x00F0, _mm512_add_ps(g, g));
    __m512 logits = _mm512_mul_ps(_mm512_loadu_ps(raw_at(a, i, 8)), _mm512_set1_ps(r));
    logits =
        _mm512_add_ps(_mm512_mul_ps(logits, _mm512_set1_ps(scale[2])), _mm512_loadu_ps(base + 8));
    _mm512_storeu_ps(raw_at(a, i, 8), sinkhorn(logits, a->hc_eps, a->iters));
}

dsf_status dsf_hc_mix_avx512(const dsf_launch *lc, const void *args)
{
    dsf_hc_mix_args a = *(const dsf_hc_mix_args *)args;
    int64_t tiles = (a.x.dim[0] + TILE - 1) / TILE;
    dsf_pool_run(lc->pool, tiles * (MIXES / GROUP), dot_item, &a);
    dsf_pool_run(lc->pool, a.x.dim[0], finish_row, &a);
    return DSF_OK;
}

/* ((w0 x0 + w1 x1) + w2 x2) + w3 x3 */
DSF_INLINE __m512 weighted(const __m512 *w, const __m512 *x)
{
    __m512 sum = _mm512_mul_ps(w[0], x[0]);
    DSF_UNROLL for (int k = 1; k < STREAMS; k++) sum =
        _mm512_add_ps(sum, _mm512_mul_ps(w[k], x[k]));
    return sum;
}

DSF_INLINE void load_streams(__m512 *v, const uint16_t *x, int64_t d, __mmask16 m)
{
    DSF_UNROLL for (int k = 0; k < STREAMS; k++) v[k] = dsf_row_load(x + k * d, m);
}

static void collapse_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_collapse_args *a = arg;
    int64_t d = a->out.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * STREAMS * d;
    __m512 w[STREAMS], v[STREAMS];
    for (int k = 0; k < STREAMS; k++)
        w[k] = _mm512_set1_ps(((const float *)a->w.data)[i * STREAMS + k]);
    for (int64_t c = 0; c < d; c += 16) {
        __mmask16 m = dsf_row_mask(c, d);
        load_streams(v, x + c, d, m);
        dsf_row_store((uint16_t *)a->out.data + i * d + c, m, weighted(w, v));
    }
}

dsf_status dsf_hc_collapse_avx512(const dsf_launch *lc, const void *args)
{
    dsf_hc_collapse_args a = *(const dsf_hc_collapse_args *)args;
    dsf_pool_run(lc->pool, a.out.dim[0], collapse_row, &a);
    return DSF_OK;
}

static void expand_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_expand_args *a = arg;
    int64_t d = a->x.dim[2];
    const uint16_t *x = (const uint16_t *)a->x.data + i * STREAMS * d;
    const uint16_t *y = (const uint16_t *)a->y.data + i * d;
    const float *post = (const float *)a->post.data + i * STREAMS;
    const float *comb = (const float *)a->comb.data + i * STREAMS * STREAMS;
    uint16_t *out = (uint16_t *)a->out.data + i * STREAMS * d;
    __m512 p[STREAMS], w[STREAMS][STREAMS], v[STREAMS];
    for (int k = 0; k < STREAMS; k++) {
        p[k] = _mm512_set1_ps(post[k]);
        for (int j = 0; j < STREAMS; j++) w[k][j] = _mm512_set1_ps(comb[STREAMS * j + k]);
    }
    for (int64_t c = 0; c < d; c += 16) { /* all four streams are read first: out may be x */
        __mmask16 m = dsf_row_mask(c, d);
        __m512 u = dsf_row_load(y + c, m);
        load_streams(v, x + c, d, m);
        DSF_UNROLL for (int k = 0; k < STREAMS; k++)
        {
            __m512 sum = _mm512_add_ps(_mm512_mul_ps(p[k], u), weighted(w[k], v));
            dsf_row_store(out + k * d + c, m, sum);
        }
    }
}

dsf_status dsf_hc_expand_avx512(const dsf_launch *lc, const void *args)
{
    dsf_hc_expand_args a = *(const dsf_hc_expand_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], expand_row, &a);
    return DSF_OK;
}

static void mean_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_mean_args *a = arg;
    int64_t d = a->x.dim[2], columns = a->out.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * STREAMS * d;
    uint16_t *out = (uint16_t *)a->out.data + (i * columns + a->column) * d;
    __m512 v[STREAMS], quarter = _mm512_set1_ps(0.25f);
    for (int64_t c = 0; c < d; c += 16) {
        __mmask16 m = dsf_row_mask(c, d);
        load_streams(v, x + c, d, m);
        __m512 sum = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(v[0], v[1]), v[2]), v[3]);
        dsf_row_store(out + c, m, _mm512_mul_ps(sum, quarter));
    }
}

dsf_status dsf_hc_mean_avx512(const dsf_launch *lc, const void *args)
{
    dsf_hc_mean_args a = *(const dsf_hc_mean_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], mean_row, &a);
    return DSF_OK;
}
