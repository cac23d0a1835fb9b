/* Synthetic weights: one hash a 16-byte word of the tensor, written once. Bytes: those of the
 * tensor; bound: HBM write rate. */
#include "sm90/sm90.cuh"

extern "C" {
#include "synth.h"
}

namespace
{

/* Sum of four uniforms of 16 bits: bell-shaped, unit variance. */
__device__ inline float bell(uint64_t bits)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += float(bits >> (16 * i) & 0xFFFF);
    return (sum * 0x1p-16f - 2.0f) * 1.7320508f;
}

struct shape {
    uint64_t seed;
    float deviation, mean; /* of bf16 and f32 elements */
    int scale;             /* e8m0 byte of the middle */
};

__device__ inline uint8_t byte_of(dsf_dtype t, const shape &s, uint64_t bits)
{
    if (t == DSF_E8M0) return uint8_t(s.scale - 1 + int(bits % 3));
    if (t == DSF_E4M3) return uint8_t((bits & 0x80) | (5 + (bits >> 8 & 3)) << 3 | (bits & 7));
    return uint8_t(bits); /* two e2m1 codes */
}

__global__ void fill(uint8_t *out, int64_t n, dsf_dtype t, shape s)
{
    int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t bits = mix64(s.seed + uint64_t(i) * 0x9E3779B97F4A7C15u);
        if (t == DSF_BF16) {
            reinterpret_cast<uint16_t *>(out)[i] =
                num::f32_to_bf16(s.mean + s.deviation * bell(bits));
        } else if (t == DSF_F32) {
            reinterpret_cast<float *>(out)[i] = s.mean + s.deviation * bell(bits);
        } else {
            out[i] = byte_of(t, s, bits);
        }
    }
}

/* Eight bytes of codes a hash: matrices of experts are most of a model. */
__global__ void fill_codes(uint64_t *out, int64_t n, uint64_t seed, uint64_t keep, uint64_t set)
{
    int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = (mix64(seed + uint64_t(i) * 0x9E3779B97F4A7C15u) & keep) + set;
}

} // namespace

extern "C" dsf_status dsf_synth_there(dsf_device *d, void *there, size_t bytes, dsf_dtype t,
                                      int64_t width, uint64_t seed)
{
    cudaStream_t stream = static_cast<cudaStream_t>(dsf_device_stream(d));
    const unsigned blocks = 8u * unsigned(dsf_device_describe(d)->multiprocessors);
    if (t != DSF_BF16 && t != DSF_F32 && t != DSF_E4M3 && t != DSF_E8M0 && t != DSF_E2M1X2)
        return DSF_FAIL(DSF_EINVAL, "no synthetic weights of type %s", dsf_dtype_name(t));
    if ((t == DSF_E4M3 || t == DSF_E2M1X2) && bytes % 8 == 0) {
        /* e4m3: sign and mantissa free, exponent field 5..8 (2^-2 to 2^1). */
        const uint64_t ones = 0x0101010101010101u;
        uint64_t keep = t == DSF_E4M3 ? 0x9Fu * ones : ~uint64_t(0),
                 set = t == DSF_E4M3 ? 0x28u * ones : 0;
        fill_codes<<<blocks, 256, 0, stream>>>(static_cast<uint64_t *>(there), int64_t(bytes / 8),
                                               seed, keep, set);
    } else {
        shape s = {seed, 0.1f, t == DSF_BF16 ? 1.0f : 0.0f, 121};
        if (width > 0) s.mean = 0, s.deviation = rsqrtf(float(width));
        int64_t n = int64_t(bytes) / dsf_dtype_bytes(t, 1);
        fill<<<blocks, 256, 0, stream>>>(static_cast<uint8_t *>(there), n, t, s);
    }
    DSF_CUDA_TRY(cudaGetLastError());
    return DSF_OK;
}
