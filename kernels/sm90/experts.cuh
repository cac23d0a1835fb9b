/* What the expert kernels share: tables of device pointers, the end of experts_up. */
#ifndef DSF_SM90_EXPERTS_CUH
#define DSF_SM90_EXPERTS_CUH

#include "sm90/sm90.cuh"

extern "C" {
#include "ops/moe.h"
}

/* One projection of all experts: e pointers to codes [out, in/2] and to scales [out, in/32]. */
struct expert_table {
    const int64_t *codes;
    const int64_t *scales;

    __device__ const uint8_t *codes_of(int32_t id) const
    {
        return reinterpret_cast<const uint8_t *>(codes[id]);
    }
    __device__ const uint8_t *scales_of(int32_t id) const
    {
        return reinterpret_cast<const uint8_t *>(scales[id]);
    }
};

static inline expert_table table_of(const dsf_tensor &codes, const dsf_tensor &scales)
{
    return {data_of<const int64_t>(codes), data_of<const int64_t>(scales)};
}

/* moe.h: silu(min(g, limit)) clamp(v) w of two sums that were rounded to bf16. The exponential and
 * the quotient are the approximate instructions: within 2 ulp each, and what exp(-g) loses for a
 * large negative g is nothing against |g|, which the contract's error is a share of. exp overflows
 * to infinity below g = -88: the quotient is then 0. */
__device__ inline uint16_t expert_swiglu(float g, float v, float limit, float weight)
{
    g = fminf(num::round_bf16(g), limit);
    v = fminf(fmaxf(num::round_bf16(v), -limit), limit);
    float h = __fdividef(g, __fadd_rn(1.0f, __expf(-g)));
    return num::f32_to_bf16(__fmul_rn(__fmul_rn(h, v), weight));
}

#endif
