#include "ops/engram.h"

#include <math.h>

#include "avx512/expand.h"
#include "avx512/lane.h"

enum { LANES = 16 };

DSF_INLINE __m512 load_bf16(__mmask16 have, const uint16_t *p)
{
    return dsf_lane_from_bf16(_mm256_maskz_loadu_epi16(have, p));
}

/* Item: one (row, column). */
static void gather_row(void *arg, int64_t item, int worker)
{
    (void)worker;
    const dsf_engram_gather_args *a = arg;
    int64_t d = a->out.dim[2];
    int64_t row = ((const int64_t *)a->rows.data)[item];
    const uint8_t *code = (const uint8_t *)a->table.data + row * d;
    const uint8_t *s = (const uint8_t *)a->s.data + row * a->s.dim[1];
    uint16_t *out = (uint16_t *)a->out.data + item * d;
    for (int64_t c = 0; c < d; c += 64) {
        __m512 v[4];
        dsf_expand_codes(dsf_load_bytes(code + c, d - c), v);
        /* halves of 16 codes: lanes 0..7 of block c / 32, lanes 8..15 of the next */
        const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        __m512 scale = _mm512_permutexvar_ps(half, dsf_expand_scales(s + c / 32, (d - c) / 32));
        DSF_UNROLL for (int j = 0; j < 4; j++) v[j] =
            dsf_lane_round_bf16(_mm512_mul_ps(v[j], scale));
        __m512i pair[2];
        DSF_UNROLL for (int j = 0; j < 2; j++) pair[j] =
            _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(v[2 * j]), 16),
                            _mm512_castps_si512(v[2 * j + 1]));
        const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        _mm512_mask_storeu_epi16(out + c, (__mmask32)dsf_mask_low(d - c),
                                 _mm512_permutex2var_epi64(pair[0], first, pair[1]));
        _mm512_mask_storeu_epi16(out + c + 32, (__mmask32)dsf_mask_low(d - c - 32),
                                 _mm512_permutex2var_epi64(pair[0], second, pair[1]));
    }
}

dsf_status dsf_engram_gather_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_engram_gather_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0] * a->out.dim[1], gather_row, (void *)a);
    return DSF_OK;
}

DSF_INLINE __m512d half(__m512 v, int upper)
{
    return _mm512_cvtps_pd(upper ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v));
}

/* gamma of one stream. Products of four bf16 are exact in double; its sums are too, as far as f32
 * is concerned, which leaves the order free. */
static float gate(const uint16_t *x, const uint16_t *q, const uint16_t *k, const uint16_t *key,
                  int64_t d, double eps)
{
    __m512d dot[2], xx[2], kk[2];
    for (int h = 0; h < 2; h++) dot[h] = xx[h] = kk[h] = _mm512_setzero_pd();
    for (int64_t c = 0; c < d; c += LANES) {
        __mmask16 have = (__mmask16)dsf_mask_low(d - c);
        __m512 xc = load_bf16(have, x + c), kc = load_bf16(have, key + c);
        __m512 qc = load_bf16(have, q + c), wc = load_bf16(have, k + c);
        DSF_UNROLL for (int h = 0; h < 2; h++)
        {
            __m512d xd = half(xc, h), kd = half(kc, h);
            __m512d w = _mm512_mul_pd(half(qc, h), half(wc, h));
            dot[h] = _mm512_fmadd_pd(_mm512_mul_pd(xd, w), kd, dot[h]);
            xx[h] = _mm512_fmadd_pd(xd, xd, xx[h]);
            kk[h] = _mm512_fmadd_pd(kd, kd, kk[h]);
        }
    }
    double n = (double)d;
    double x2 = _mm512_reduce_add_pd(_mm512_add_pd(xx[0], xx[1])) / n + eps;
    double k2 = _mm512_reduce_add_pd(_mm512_add_pd(kk[0], kk[1])) / n + eps;
    double t = _mm512_reduce_add_pd(_mm512_add_pd(dot[0], dot[1])) / sqrt(x2) / sqrt(k2) / sqrt(n);
    double u = copysign(sqrt(fmax(fabs(t), 1e-6)), t);
    return (float)(1.0 / (1.0 + exp(-u)));
}

static void gate_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_engram_gate_args *a = arg;
    int64_t d = a->x.dim[2];
    const uint16_t *kv = (const uint16_t *)a->kv.data + i * 5 * d;
    int dead = ((const uint8_t *)a->vl.data)[i];
    for (int64_t s = 0; s < 4; s++) {
        const uint16_t *x = (const uint16_t *)a->x.data + (4 * i + s) * d;
        uint16_t *out = (uint16_t *)a->out.data + (4 * i + s) * d;
        float gamma =
            dead ? 0.0f
                 : gate(x, (const uint16_t *)a->qw.data + s * d,
                        (const uint16_t *)a->kw.data + s * d, kv + s * d, d, (double)a->eps);
        ((float *)a->gate.data)[4 * i + s] = gamma;
        for (int64_t c = 0; c < d; c += LANES) {
            __mmask16 have = (__mmask16)dsf_mask_low(d - c);
            __m512 write = _mm512_mul_ps(_mm512_set1_ps(gamma), load_bf16(have, kv + 4 * d + c));
            __m512 y = dsf_lane_round_bf16(_mm512_add_ps(load_bf16(have, x + c), write));
            _mm256_mask_storeu_epi16(out + c, have, dsf_lane_to_bf16(y));
        }
    }
}

dsf_status dsf_engram_gate_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_engram_gate_args *a = args;
    dsf_pool_run(lc->pool, a->x.dim[0], gate_row, (void *)a);
    return DSF_OK;
}
