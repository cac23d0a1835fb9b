#include <immintrin.h>

#include "ceiling.h"

/* Only an unrolled loop keeps its array in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif

/* Four streams: one alone leaves the memory a tenth below its rate. */
uint64_t dsf_read_avx512(const uint8_t *p, size_t n)
{
    enum { STREAMS = 4, STRIDE = 256, AHEAD = 4096 };
    __m512i sum[STREAMS];
    size_t part = n / STREAMS;
    UNROLL for (int i = 0; i < STREAMS; i++) sum[i] = _mm512_setzero_si512();
    for (size_t at = 0; at < part; at += STRIDE) UNROLL for (int k = 0; k < STREAMS; k++)
        {
            const uint8_t *q = p + (size_t)k * part + at;
            UNROLL for (int i = 0; i < STRIDE; i += 64)
            {
                _mm_prefetch((const char *)q + AHEAD + i, _MM_HINT_T0);
                sum[k] = _mm512_add_epi64(sum[k], _mm512_load_si512(q + i));
            }
        }
    UNROLL for (int i = 1; i < STREAMS; i++) sum[0] = _mm512_add_epi64(sum[0], sum[i]);
    uint64_t lane[8], total = 0; /* the compiler's reduction adds signed, which may overflow */
    _mm512_storeu_si512(lane, sum[0]);
    for (int i = 0; i < 8; i++) total += lane[i];
    return total;
}

/* 24 chains hide the latency of either instruction on two ports. The empty asm keeps the compiler
 * from moving, merging or dropping the additions. */
#define KEEP(v) __asm__ volatile("" : "+v"(v))

float dsf_spin_bf16_avx512(int64_t rounds)
{
    __m512 sum[DSF_SPIN_CHAINS];
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3C00), b = (__m512bh)_mm512_set1_epi16(0x3B80);
    UNROLL for (int i = 0; i < DSF_SPIN_CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < DSF_SPIN_CHAINS; i++)
        {
            sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
            KEEP(sum[i]);
        }
    }
    UNROLL for (int i = 1; i < DSF_SPIN_CHAINS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    return _mm512_reduce_add_ps(sum[0]);
}

float dsf_spin_f32_avx512(int64_t rounds)
{
    __m512 sum[DSF_SPIN_CHAINS], a = _mm512_set1_ps(0x1p-7f), b = _mm512_set1_ps(0x1p-8f);
    UNROLL for (int i = 0; i < DSF_SPIN_CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < DSF_SPIN_CHAINS; i++)
        {
            sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
            KEEP(sum[i]);
        }
    }
    UNROLL for (int i = 1; i < DSF_SPIN_CHAINS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    return _mm512_reduce_add_ps(sum[0]);
}
