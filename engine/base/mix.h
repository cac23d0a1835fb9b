/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection in which every bit of x moves
 * every bit of the result. Counter-based generators mix a key and a position with it. */
#ifndef DSF_BASE_MIX_H
#define DSF_BASE_MIX_H

#include <stdint.h>

static inline uint64_t dsf_mix64(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

#endif
