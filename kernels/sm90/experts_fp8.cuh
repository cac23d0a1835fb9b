/* The pieces that the fp8 expert kernels share: arguments, e2m1 to e4m3. */
#ifndef DSF_SM90_EXPERTS_FP8_CUH
#define DSF_SM90_EXPERTS_FP8_CUH

#include "sm90/experts.cuh"
#include "sm90/experts_group.cuh"
#include "sm90/ptx.cuh"

/* experts_up (two tables) or experts_down (one). */
struct expert_params {
    const uint8_t *records; /* Q8, one for each `slots` pairs */
    uint16_t *out;          /* [pairs, width] */
    const float *weights;   /* [pairs], up only */
    const int32_t *ids;     /* [pairs] */
    expert_table w[2];
    int k, width; /* channels of a record; weight rows for each pair and table */
    int column_tiles;
    int slots; /* pairs that share a record: k of the contract for up, 1 for down */
    float limit;
    expert_lists lists;
};

namespace e2m1
{

/* The e4m3 codes of 2^(shift - least) {0, .5, 1, 1.5 | 2, 3, 4, 6}, a byte each; shift 0..most.
 * e2m1 uses exponents -1..2, normal e4m3 codes -6..8: every entry is exact and normal. */
constexpr int least = 5, most = 11;

struct table {
    uint32_t low, high;
};

__device__ inline table shifted(uint32_t shift)
{
    return {0x3C383000u - least * 0x08080800u + shift * 0x08080800u,
            0x4C484440u - least * 0x08080808u + shift * 0x08080808u};
}

__device__ inline table plain() { return {0x3C383000u, 0x4C484440u}; }

/* Eight codes, the first in the lowest nibble, to eight bytes. */
__device__ inline void expand(const table &t, uint32_t codes, uint32_t &low, uint32_t &high)
{
    uint32_t magnitudes = codes & 0x77777777u, even = codes << 4;
    low = __byte_perm(t.low, t.high, magnitudes) | (__byte_perm(even, codes, 0x5140) & 0x80808080u);
    high = __byte_perm(t.low, t.high, magnitudes >> 16) |
           (__byte_perm(even, codes, 0x7362) & 0x80808080u);
}

} // namespace e2m1

#endif
