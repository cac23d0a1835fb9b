/* Row quantisers, one group of 32 or 16 channels at a time. The power-of-two scales divide by
 * multiplying with the inverse, which is the same correctly rounded number; the e4m3 scale divides.
 * Codes are rounded on the bits of the f32: add half of the last kept place, ties to even. Below
 * the format's normal range the grid is even, and conversion to integer rounds it. */
#include "ops/quant.h"

#include "base/num.h"
#include "lane.h"

static __m512 load(const uint16_t *x)
{
    return dsf_lane_from_bf16(_mm256_loadu_si256((const __m256i *)x));
}

/* Codes of |v| with `bits` mantissa bits whose exponent field 1 means 2^least, at most `top`. */
static __m512i magnitude(__m512 v, int bits, int least, int top)
{
    int drop = 23 - bits;
    __m512 a = _mm512_abs_ps(v);
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, (unsigned)drop), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (drop - 1)) - 1)));
    u = _mm512_srli_epi32(u, (unsigned)drop);
    u = _mm512_sub_epi32(u, _mm512_set1_epi32((126 + least) << bits));
    __mmask16 sub = _mm512_cmp_ps_mask(a, _mm512_set1_ps(dsf_pow2(least)), _CMP_LT_OQ);
    __m512i even = _mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(dsf_pow2(bits - least))));
    return _mm512_min_epi32(_mm512_mask_mov_epi32(u, sub, even), _mm512_set1_epi32(top));
}

static __m512i sign_at(__m512 v, unsigned shift)
{
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32((int)0x80000000));
    return _mm512_srli_epi32(sign, shift);
}

static __m128i e4m3(__m512 v)
{
    __m512i code = magnitude(v, 3, -6, 0x7E);
    return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign_at(v, 24)));
}

/* Sixteen e2m1 codes in eight bytes, the even channel low. */
static void store_e2m1(uint8_t *out, __m512 v)
{
    __m512i code = _mm512_or_si512(magnitude(v, 1, 0, 7), sign_at(v, 28));
    __m128i pairs = _mm_maddubs_epi16(_mm512_cvtepi32_epi8(code), _mm_set1_epi16(0x1001));
    _mm_storel_epi64((__m128i *)out, _mm_cvtepi16_epi8(pairs));
}

static float amax_of(__m512 a, __m512 b, float floor)
{
    __m512 most = _mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b));
    return fmaxf(_mm512_reduce_max_ps(most), floor);
}

static void q8_row(uint8_t *out, const uint16_t *x, int64_t d)
{
    for (int64_t g = 0; g < d / 32; g++) {
        __m512 a = load(x + 32 * g), b = load(x + 32 * g + 16);
        int k = dsf_pow2ceil(amax_of(a, b, 1e-4f), 1.0f / 448.0f);
        __m512 inverse = _mm512_set1_ps(dsf_pow2(-k));
        _mm_storeu_si128((__m128i *)(out + 32 * g), e4m3(_mm512_mul_ps(a, inverse)));
        _mm_storeu_si128((__m128i *)(out + 32 * g + 16), e4m3(_mm512_mul_ps(b, inverse)));
        out[d + g] = (uint8_t)(k + 127);
    }
}

static void q4x_row(uint8_t *out, const uint16_t *x, int64_t d)
{
    for (int64_t g = 0; g < d / 32; g++) {
        __m512 a = load(x + 32 * g), b = load(x + 32 * g + 16);
        int k = dsf_pow2ceil(amax_of(a, b, 6.0f * dsf_pow2(-126)), 1.0f / 6.0f);
        __m512 inverse = _mm512_set1_ps(dsf_pow2(-k));
        store_e2m1(out + 16 * g, _mm512_mul_ps(a, inverse));
        store_e2m1(out + 16 * g + 8, _mm512_mul_ps(b, inverse));
        out[d / 2 + g] = (uint8_t)(k + 127);
    }
}

static void q4n_row(uint8_t *out, const uint16_t *x, int64_t d)
{
    for (int64_t g = 0; g < d / 16; g++) {
        __m512 a = load(x + 16 * g);
        uint8_t scale = dsf_f32_to_e4m3(amax_of(a, a, 6.0f * dsf_pow2(-9)) / 6.0f);
        store_e2m1(out + 8 * g, _mm512_div_ps(a, _mm512_set1_ps(dsf_e4m3_to_f32(scale))));
        out[d / 2 + g] = scale;
    }
}

typedef struct {
    const dsf_quant_args *a;
    void (*row)(uint8_t *out, const uint16_t *x, int64_t d);
} job;

static void run_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const job *j = arg;
    int64_t d = j->a->x.dim[2];
    j->row((uint8_t *)j->a->out.data + i * dsf_dtype_bytes(j->a->out.dtype, d),
           (const uint16_t *)j->a->x.data + i * d, d);
}

static dsf_status run(const dsf_launch *lc, job j)
{
    dsf_pool_run(lc->pool, dsf_tensor_rows(&j.a->x), run_row, &j);
    return DSF_OK;
}

dsf_status dsf_quant_q8_avx512(const dsf_launch *lc, const void *args)
{
    return run(lc, (job){args, q8_row});
}

dsf_status dsf_quant_q4x_avx512(const dsf_launch *lc, const void *args)
{
    return run(lc, (job){args, q4x_row});
}

dsf_status dsf_quant_q4n_avx512(const dsf_launch *lc, const void *args)
{
    return run(lc, (job){args, q4n_row});
}
