/* What every kernel file of this folder starts from: the contracts, launches, reductions. */
#ifndef DSF_SM90_SM90_CUH
#define DSF_SM90_SM90_CUH

#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "op.h"
#include "sm90/chip.h"
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

/* Of the current device. */
static inline dsf_status dsf_multiprocessors(int *count)
{
    int device = 0;
    DSF_CUDA_TRY(cudaGetDevice(&device));
    DSF_CUDA_TRY(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device));
    return DSF_OK;
}

struct launch_shape {
    dim3 blocks;
    unsigned threads;     /* of a block */
    size_t shared = 0;    /* dynamic shared memory, bytes */
    unsigned cluster = 1; /* blocks of one */
};

/* Queues a kernel that may start before the one in front of it in the stream has ended: it waits
 * itself (griddepcontrol_wait) before it touches what another kernel writes or reads. */
template <typename... PARAMETERS, typename... ARGS>
static inline dsf_status launch_early(cudaStream_t stream, const launch_shape &l,
                                      void (*kernel)(PARAMETERS...), const ARGS &...args)
{
    if (l.shared > 0)
        DSF_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          int(l.shared)));
    if (l.cluster > 8) /* the portable most */
        DSF_CUDA_TRY(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchAttribute how[2] = {};
    how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how[0].val.programmaticStreamSerializationAllowed = 1;
    how[1].id = cudaLaunchAttributeClusterDimension;
    how[1].val.clusterDim = {l.cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = l.blocks;
    config.blockDim = dim3(l.threads);
    config.dynamicSmemBytes = l.shared;
    config.stream = stream;
    config.attrs = how;
    config.numAttrs = l.cluster > 1 ? 2 : 1;
    DSF_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, args...));
    return DSF_OK;
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

/* Sums of the lanes up to this one. */
template <typename T> __device__ inline T warp_scan(T x)
{
#pragma unroll
    for (unsigned d = 1; d < 32; d *= 2) {
        T before = __shfl_up_sync(0xFFFFFFFFu, x, d);
        if (threadIdx.x % 32 >= d) x += before;
    }
    return x;
}

__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    return x;
}

/* A hash: the end of splitmix64. */
__device__ inline uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Typed pointers of an argument struct's operands. */
template <typename T> static inline T *data_of(const dsf_tensor &t)
{
    return static_cast<T *>(t.data);
}

#endif
