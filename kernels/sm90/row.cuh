/* Row-wise kernels: channels of bf16 rows in chunks of 8 (16 bytes), one chunk a thread at a time.
 * Where a row length or a pointer does not allow 16-byte accesses the same chunks are moved element
 * by element, so that what a thread computes, and in which order, does not depend on it. */
#ifndef DSF_SM90_ROW_CUH
#define DSF_SM90_ROW_CUH

#include "sm90/ptx.cuh"
#include "sm90/sm90.cuh"

enum { CHUNK = 8 };

/* 8 bf16, the first in the low half of x. */
template <bool VEC> __device__ inline uint4 load_chunk(const uint16_t *row, unsigned c, unsigned d)
{
    if (VEC) return *reinterpret_cast<const uint4 *>(row + c);
    uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
    for (unsigned i = 0; i < CHUNK; i++)
        if (c + i < d) w[i / 2] |= uint32_t(row[c + i]) << 16 * (i % 2);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

template <bool VEC>
__device__ inline void store_chunk(uint16_t *row, unsigned c, unsigned d, uint4 v)
{
    if (VEC) {
        *reinterpret_cast<uint4 *>(row + c) = v;
        return;
    }
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (unsigned i = 0; i < CHUNK; i++)
        if (c + i < d) row[c + i] = uint16_t(w[i / 2] >> 16 * (i % 2));
}

__device__ inline void unpack_chunk(float (&f)[CHUNK], uint4 v)
{
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        f[2 * i] = num::low_bf16(w[i]);
        f[2 * i + 1] = num::high_bf16(w[i]);
    }
}

__device__ inline uint4 pack_chunk(const float (&f)[CHUNK])
{
    return make_uint4(num::pack_bf16(f[0], f[1]), num::pack_bf16(f[2], f[3]),
                      num::pack_bf16(f[4], f[5]), num::pack_bf16(f[6], f[7]));
}

/* One thread a chunk: item = row * chunks + chunk of the row. */
struct row_chunk {
    unsigned row, c; /* c: first channel */
};

__device__ inline bool this_chunk(row_chunk &at, unsigned items, unsigned chunks)
{
    unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= items) return false;
    at.row = item / chunks;
    at.c = (item - at.row * chunks) * CHUNK;
    return true;
}

/* Sum over the threads of a block, in an order that only the number of threads decides; every
 * thread gets it. Threads: a multiple of 32; `scratch`: one double a warp, free again after the
 * next barrier. */
__device__ inline double block_sum(double x, double *scratch)
{
    x = warp_sum(x);
    if (blockDim.x == 32) return x;
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) sum += scratch[w];
    return sum;
}

/* First in every kernel of this header's launches: what follows in the stream may start, and this
 * one waits until what came before has written all it writes. */
__device__ inline void begin()
{
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
}

/* ---- host ---- */

enum { FLAT_THREADS = 256 };

static inline bool aligned_to(const void *p, unsigned bytes)
{
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

static inline int64_t chunks_of(int64_t d) { return (d + CHUNK - 1) / CHUNK; }

/* Flat launches count their items in 32 bits: 2^31 chunks are 32 GB. */
static inline dsf_status flat_grid(unsigned *blocks, int64_t items)
{
    if (items >= int64_t(1) << 31)
        return DSF_FAIL(DSF_EINVAL, "row kernel: %lld items in one launch, at most 2^31 - 1",
                        static_cast<long long>(items));
    *blocks = dsf_blocks(items, FLAT_THREADS);
    return DSF_OK;
}

/* Rows of d channels may be moved 16 bytes at a time. */
template <typename... POINTERS> static inline bool whole_chunks(int64_t d, POINTERS... p)
{
    return d % CHUNK == 0 && (aligned_to(p, 16) && ...);
}

/* Queues n threads in blocks of FLAT_THREADS. */
template <typename KERNEL, typename... ARGS>
static inline dsf_status launch_flat(const dsf_launch *lc, int64_t n, KERNEL *kernel,
                                     const ARGS &...args)
{
    unsigned blocks = 0;
    DSF_TRY(flat_grid(&blocks, n));
    return launch_early(dsf_stream(lc), {blocks, FLAT_THREADS}, kernel, args...);
}

/* One thread a chunk of n rows of d channels; the kernel's last parameters are the number of
 * chunks in all, in a row, and d. */
template <typename KERNEL, typename... ARGS>
static inline dsf_status launch_chunks(const dsf_launch *lc, int64_t n, int64_t d, KERNEL *kernel,
                                       const ARGS &...args)
{
    int64_t chunks = chunks_of(d);
    return launch_flat(lc, n * chunks, kernel, args..., unsigned(n * chunks), unsigned(chunks),
                       unsigned(d));
}

#endif
