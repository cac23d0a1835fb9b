/* What one wgmma k32 of e4m3 codes computes from zero on Hopper, bit for bit, as measured
 * (bench/probe/README.md): each product is aligned to the largest sum of the operands' exponents
 * and cut toward zero 13 fraction bits below it, the cut products are added exactly, and the sum is
 * cut toward zero to 13 fraction bits. */
#ifndef DSF_OPS_FP8_SUM_H
#define DSF_OPS_FP8_SUM_H

#include <math.h>

#include "base/num.h"

enum { DSF_FP8_SUM_BITS = 13, DSF_FP8_SUM_TERMS = 32 };

/* Exponent of a code as the unit takes it: a subnormal has that of the least normal. */
static inline int dsf_e4m3_exponent(uint8_t c) { return (c >> 3 & 15) ? (c >> 3 & 15) - 7 : -6; }

/* n codes each, n <= 32: the rest of the instruction is zero. No NaN codes. */
static inline float dsf_fp8_sum(const uint8_t *x, const uint8_t *w, int n)
{
    int top = -100;
    int64_t sum = 0; /* in units of 2^(top - 13) */
    for (int i = 0; i < n; i++) {
        int e = dsf_e4m3_exponent(x[i]) + dsf_e4m3_exponent(w[i]);
        if ((x[i] & 0x7F) && (w[i] & 0x7F) && e > top) top = e;
    }
    for (int i = 0; i < n; i++) {
        double p = (double)dsf_e4m3_to_f32(x[i]) * (double)dsf_e4m3_to_f32(w[i]);
        sum += (int64_t)(p * ldexp(1, DSF_FP8_SUM_BITS - top)); /* C cuts toward zero */
    }
    int64_t size = sum < 0 ? -sum : sum, unit = 1;
    while (size / unit >= (int64_t)2 << DSF_FP8_SUM_BITS) unit *= 2;
    size = size / unit * unit;
    return (float)ldexp((double)(sum < 0 ? -size : size), top - DSF_FP8_SUM_BITS);
}

#endif
