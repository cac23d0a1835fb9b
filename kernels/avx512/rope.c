/* Rotary tables and rotation. sin and cos are evaluated in double on eight lanes: the angle is
 * reduced by multiples of pi/2 given as two doubles. An f32 angle minus n times the first is exact
 * (a multiple of 2^-52 below 1), so what is lost is below 2^-50, and one rounding to f32 follows.
 * Taylor series to r^17 and r^16 on |r| <= pi/4: the next terms are below 2^-58. */
#include "ops/rope.h"

#include "row.h"

/* pi/2 = HALF_PI + HALF_PI_REST + about 2^-110 */
#define HALF_PI      0x1.921fb54442d18p+0
#define HALF_PI_REST 0x1.1a62633145c07p-54
#define TWO_OVER_PI  0x1.45f306dc9c883p-1

/* sum of c[i] z^i */
static __m512d series(const double *c, int n, __m512d z)
{
    __m512d p = _mm512_set1_pd(c[n - 1]);
    for (int i = n - 2; i >= 0; i--) p = _mm512_fmadd_pd(p, z, _mm512_set1_pd(c[i]));
    return p;
}

static void sin_cos(__m512d x, __m256 *sin_out, __m256 *cos_out)
{
    /* 1 / k! with alternating signs */
    static const double odd[] = {1.0,
                                 -1.0 / 6,
                                 1.0 / 120,
                                 -1.0 / 5040,
                                 1.0 / 362880,
                                 -1.0 / 39916800,
                                 1.0 / 6227020800,
                                 -1.0 / 1307674368000,
                                 1.0 / 355687428096000};
    static const double even[] = {1.0,
                                  -1.0 / 2,
                                  1.0 / 24,
                                  -1.0 / 720,
                                  1.0 / 40320,
                                  -1.0 / 3628800,
                                  1.0 / 479001600,
                                  -1.0 / 87178291200,
                                  1.0 / 20922789888000};
    __m512d n = _mm512_roundscale_pd(_mm512_mul_pd(x, _mm512_set1_pd(TWO_OVER_PI)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512d r = _mm512_fnmadd_pd(n, _mm512_set1_pd(HALF_PI), x);
    r = _mm512_fnmadd_pd(n, _mm512_set1_pd(HALF_PI_REST), r);
    __m512d z = _mm512_mul_pd(r, r);
    __m512d s = _mm512_mul_pd(r, series(odd, 9, z)), c = series(even, 9, z);
    /* Quadrant q: (sin, cos) = (s, c), (c, -s), (-s, -c), (-c, s). */
    __m512i q = _mm512_cvtpd_epi64(n), one = _mm512_set1_epi64(1);
    __mmask8 swap = _mm512_test_epi64_mask(q, one);
    __m512d sine = _mm512_mask_blend_pd(swap, s, c), cosine = _mm512_mask_blend_pd(swap, c, s);
    __m512i sign_s = _mm512_slli_epi64(_mm512_srli_epi64(q, 1), 63);
    __m512i sign_c = _mm512_slli_epi64(_mm512_srli_epi64(_mm512_add_epi64(q, one), 1), 63);
    *sin_out = _mm512_cvtpd_ps(_mm512_xor_pd(sine, _mm512_castsi512_pd(sign_s)));
    *cos_out = _mm512_cvtpd_ps(_mm512_xor_pd(cosine, _mm512_castsi512_pd(sign_c)));
}

static void table_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_rope_table_args *a = arg;
    int64_t f = a->freq.dim[0];
    const float *freq = a->freq.data;
    float *cs = (float *)a->cs.data + i * f * 2;
    __m256 pos = _mm256_set1_ps((float)((const int32_t *)a->pos.data)[i]);
    const __m512i interleave =
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    for (int64_t c = 0; c < f; c += 8) {
        int64_t n = f - c < 8 ? f - c : 8;
        __m256 s, co, angle = _mm256_maskz_loadu_ps((__mmask8)((1u << n) - 1), freq + c);
        sin_cos(_mm512_cvtps_pd(_mm256_mul_ps(pos, angle)), &s, &co);
        __m512 pairs = _mm512_permutex2var_ps(_mm512_castps256_ps512(co), interleave,
                                              _mm512_castps256_ps512(s));
        _mm512_mask_storeu_ps(cs + 2 * c, (__mmask16)((1u << (2 * n)) - 1), pairs);
    }
}

dsf_status dsf_rope_table_avx512(const dsf_launch *lc, const void *args)
{
    dsf_rope_table_args a = *(const dsf_rope_table_args *)args;
    dsf_pool_run(lc->pool, a.pos.dim[0], table_row, &a);
    return DSF_OK;
}

/* bf16 of the lanes in the low halves; every NaN becomes the quiet one. */
static __m512i round_low(__m512 x)
{
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i h = _mm512_srli_epi32(_mm512_castps_si512(dsf_lane_round_bf16(x)), 16);
    return _mm512_mask_mov_epi32(h, nan, _mm512_set1_epi32(0x7FC0));
}

/* Pairs i..i+n-1 of one head, n <= 16: a pair is one dword, its real channel the low half. */
static void rotate_pairs(uint16_t *out, const uint16_t *x, const float *cs, int64_t n, __m512 flip)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __mmask16 m = n >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << n) - 1);
    __mmask16 m0 = n >= 8 ? (__mmask16)0xFFFF : (__mmask16)((1u << (2 * n)) - 1);
    __mmask16 m1 = n <= 8    ? (__mmask16)0
                   : n >= 16 ? (__mmask16)0xFFFF
                             : (__mmask16)((1u << (2 * n - 16)) - 1);
    __m512 cs0 = _mm512_maskz_loadu_ps(m0, cs), cs1 = _mm512_maskz_loadu_ps(m1, cs + 16);
    __m512 c = _mm512_permutex2var_ps(cs0, even, cs1);
    __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 s = _mm512_xor_ps(_mm512_permutex2var_ps(cs0, odd, cs1), flip);
    __m512i pair = _mm512_maskz_loadu_epi32(m, x);
    __m512 re = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
    __m512 im = _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xFFFF0000)));
    __m512 re_out = _mm512_sub_ps(_mm512_mul_ps(re, c), _mm512_mul_ps(im, s));
    __m512 im_out = _mm512_add_ps(_mm512_mul_ps(re, s), _mm512_mul_ps(im, c));
    __m512i both = _mm512_or_si512(round_low(re_out), _mm512_slli_epi32(round_low(im_out), 16));
    _mm512_mask_storeu_epi32(out, m, both);
}

static void rotate_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_rope_args *a = arg;
    int64_t h = a->x.dim[1], d = a->x.dim[2], f = a->cs.dim[1], plain = d - 2 * f;
    const float *cs = (const float *)a->cs.data + i * f * 2;
    __m512 flip = a->inverse ? _mm512_set1_ps(-0.0f) : _mm512_setzero_ps();
    for (int64_t k = i * h; k < (i + 1) * h; k++) {
        const uint16_t *x = (const uint16_t *)a->x.data + k * d;
        uint16_t *out = (uint16_t *)a->out.data + k * d;
        if (out != x)
            for (int64_t c = 0; c < plain; c += 32) {
                __mmask32 m = plain - c >= 32 ? 0xFFFFFFFFu : (1u << (plain - c)) - 1;
                _mm512_mask_storeu_epi16(out + c, m, _mm512_maskz_loadu_epi16(m, x + c));
            }
        for (int64_t p = 0; p < f; p += 16)
            rotate_pairs(out + plain + 2 * p, x + plain + 2 * p, cs + 2 * p, f - p, flip);
    }
}

dsf_status dsf_rope_avx512(const dsf_launch *lc, const void *args)
{
    dsf_rope_args a = *(const dsf_rope_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], rotate_row, &a);
    return DSF_OK;
}
