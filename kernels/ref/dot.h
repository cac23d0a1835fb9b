/* Inner products of one output element, in double: the sums of architecture.md 3.4. Products of
 * these formats are exact in double, so that only the running sum rounds (2^-53). */
#ifndef DSF_REF_DOT_H
#define DSF_REF_DOT_H

#include "base/num.h"

/* x: Q8 record of k channels. w: k e4m3 codes, s: k/32 scales. */
static inline double dsf_dot_q8_e4m3(const uint8_t *x, const uint8_t *w, const uint8_t *s,
                                     int64_t k)
{
    double sum = 0;
    for (int64_t b = 0; b < k / 32; b++) {
        double part = 0;
        for (int64_t c = 32 * b; c < 32 * b + 32; c++)
            part += (double)dsf_e4m3_to_f32(x[c]) * dsf_e4m3_to_f32(w[c]);
        sum += part * dsf_e8m0_to_f32(x[k + b]) * dsf_e8m0_to_f32(s[b]);
    }
    return sum;
}

/* x: Q8 record of k channels. w: k/2 bytes of two e2m1 codes, low nibble first; s: k/32 scales. */
static inline double dsf_dot_q8_e2m1(const uint8_t *x, const uint8_t *w, const uint8_t *s,
                                     int64_t k)
{
    double sum = 0;
    for (int64_t b = 0; b < k / 32; b++) {
        double part = 0;
        for (int64_t c = 32 * b; c < 32 * b + 32; c++)
            part += (double)dsf_e4m3_to_f32(x[c]) * dsf_e2m1_to_f32(w[c / 2] >> 4 * (c & 1));
        sum += part * dsf_e8m0_to_f32(x[k + b]) * dsf_e8m0_to_f32(s[b]);
    }
    return sum;
}

/* x: k bf16. w: k e4m3 codes, s: k/32 scales. */
static inline double dsf_dot_bf16_e4m3(const uint16_t *x, const uint8_t *w, const uint8_t *s,
                                       int64_t k)
{
    double sum = 0;
    for (int64_t c = 0; c < k; c++)
        sum += (double)dsf_bf16_to_f32(x[c]) * dsf_e4m3_to_f32(w[c]) * dsf_e8m0_to_f32(s[c / 32]);
    return sum;
}

static inline double dsf_dot_bf16(const uint16_t *x, const uint16_t *w, int64_t k)
{
    double sum = 0;
    for (int64_t c = 0; c < k; c++) sum += (double)dsf_bf16_to_f32(x[c]) * dsf_bf16_to_f32(w[c]);
    return sum;
}

#endif
