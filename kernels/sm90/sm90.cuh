/* What every kernel file of this folder starts from: the contracts, launch errors, reductions. */
#ifndef DSF_SM90_SM90_CUH
#define DSF_SM90_SM90_CUH

#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "op.h"
}

#include "sm90/num.cuh"

/* After a launch: an error of the launch itself. What a kernel does wrong shows at the next wait.
 */
#define DSF_CUDA_TRY(call)                                                                         \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess)                                                                 \
            return DSF_FAIL(DSF_EDEVICE, "%s: %s", #call, cudaGetErrorString(error_));             \
    } while (0)

static inline cudaStream_t dsf_stream(const dsf_launch *lc)
{
    return static_cast<cudaStream_t>(lc->stream);
}

/* Blocks of `threads` for n items, at least one. */
static inline unsigned dsf_blocks(int64_t n, int64_t per_block)
{
    int64_t blocks = (n + per_block - 1) / per_block;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks);
}

__device__ inline float warp_sum(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

__device__ inline double warp_sum(double x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    return x;
}

/* Typed pointers of an argument struct's operands. */
template <typename T> static inline T *data_of(const dsf_tensor &t)
{
    return static_cast<T *>(t.data);
}

#endif
