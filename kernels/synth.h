/* Weights made on a device, for benchmarks at shapes whose checkpoint is not at hand: each element
 * depends on (seed, index) alone. */
#ifndef DSF_KERNELS_SYNTH_H
#define DSF_KERNELS_SYNTH_H

#include "base/tensor.h"
#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `bytes` bytes at `there`. width: elements of the last dimension, 0 for a vector. Values
 * look like a trained layer's: matrices of deviation width^-1/2 (codes of all signs and of several
 * binades, scales a power of two near it and its neighbours), vectors near 1 in bf16 and near 0 in
 * f32. EINVAL: no such dtype. */
DSF_MUST dsf_status dsf_synth_there(dsf_device *d, void *there, size_t bytes, dsf_dtype dtype,
                                    int64_t width, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
