/* Random records that hold numbers, for caches. */
#ifndef DSF_UNIT_RECORDS_H
#define DSF_UNIT_RECORDS_H

#include "base/num.h"
#include "base/tensor.h"
#include "ops/fill.h"

static inline void fill_bytes(uint8_t *p, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) p[i] = (uint8_t)dsf_fill_next(&seed);
}

/* Records of d channels: codes of any kind, scales near 1. */
static inline void fill_records(uint8_t *p, int64_t n, int64_t d, dsf_dtype t, uint64_t seed)
{
    int64_t bytes = dsf_dtype_bytes(t, d);
    int64_t codes = t == DSF_Q8 ? d : d / 2;
    fill_bytes(p, n * bytes, seed);
    for (int64_t i = 0; i < n * bytes; i++)
        if (i % bytes >= codes) /* e4m3 and e8m0 scales */
            p[i] = t == DSF_Q4N ? (uint8_t)(0x38 + p[i] % 8) : (uint8_t)(126 + p[i] % 3);
        else if (t == DSF_Q8)
            p[i] &= 0xBF; /* no NaN, below 2 */
}

#endif
