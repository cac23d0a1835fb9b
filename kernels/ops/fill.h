/* Seeded numbers for the fill() functions of the contract tables. */
#ifndef DSF_OPS_FILL_H
#define DSF_OPS_FILL_H

#include <stdint.h>

#include "base/mix.h"

/* splitmix64 (Steele, Lea, Flood 2014): any seed is good, 0 too. */
static inline uint64_t dsf_fill_next(uint64_t *state)
{
    return dsf_mix64(*state += 0x9E3779B97F4A7C15u);
}

/* 0..n-1; n >= 1, far below 2^64 so that the modulo's bias does not matter. */
static inline int64_t dsf_fill_below(uint64_t *state, int64_t n)
{
    return (int64_t)(dsf_fill_next(state) % (uint64_t)n);
}

#endif
