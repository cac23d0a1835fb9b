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
    int listed; /* 0: no lists, ids says it all */
};

/* Streams the weights past tiles of 4 or 8 pairs: experts_decode.cu. */
dsf_status dsf_experts_decode_up(cudaStream_t stream, const expert_params &p);
dsf_status dsf_experts_decode_down(cudaStream_t stream, const expert_params &p);

namespace e2m1
{

/* The e4m3 codes of 2^(shift - least) {0, .5, 1, 1.5 | 2, 3, 4, 6}, a byte each; shift 0..most.
 * e2m1 uses exponents -1..2, normal e4m3 codes -6..8: every entry is exact and normal. */
constexpr int least = 5, most = 11;
constexpr uint32_t zero_to_1_5 = 0x3C383000, two_to_6 = 0x4C484440;

/* An e2m1 code as a selector of prmt: bit 3, its sign, makes the result 0, since no entry has the
 * top bit. So one table serves positive codes and, with the bits 3 turned over, another negative
 * ones: its entries are half of (sign | code), codes being even, and are doubled when added. */
struct table {
    uint32_t positive[2], negative[2];
};

__device__ inline table shifted(uint32_t shift)
{
    constexpr uint32_t step0 = 0x08080800, step1 = 0x08080808;
    constexpr uint32_t base0 = zero_to_1_5 - least * step0, base1 = two_to_6 - least * step1;
    return {{base0 + shift * step0, base1 + shift * step1},
            {0x40404040 + base0 / 2 + shift * (step0 / 2),
             0x40404040 + base1 / 2 + shift * (step1 / 2)}};
}

__device__ inline table plain() { return shifted(least); }

/* Four codes, the first in the lowest nibble; what is above bit 15 is ignored. */
__device__ inline uint32_t expand4(const table &t, uint32_t codes)
{
    return ptx::prmt(t.positive[0], t.positive[1], codes) +
           2 * ptx::prmt(t.negative[0], t.negative[1], codes ^ 0x88888888u);
}

__device__ inline void expand(const table &t, uint32_t codes, uint32_t &low, uint32_t &high)
{
    low = expand4(t, codes);
    high = expand4(t, codes >> 16);
}

} // namespace e2m1

#endif
