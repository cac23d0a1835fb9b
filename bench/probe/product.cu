#include "product.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "sm90/ptx.cuh"

static constexpr int ROWS = 64;
static constexpr int STEP_BYTES = 32;
static constexpr int SWIZZLE_ROW = 128; /* bytes of a row of the swizzled tile; 32 are used */

void cuda_check(int error, const char *what)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

/* Puts step `step` of `rows` rows where a 128-byte swizzled K-major descriptor finds them. */
__device__ static void place(uint8_t *tile, const uint8_t *src, int rows, int steps, int step)
{
    for (int i = threadIdx.x; i < rows * 2; i += blockDim.x) {
        int row = i >> 1, chunk = i & 1;
        const uint8_t *from = src + ((size_t)row * steps + step) * STEP_BYTES + chunk * 16;
        *(uint4 *)(tile + row * SWIZZLE_ROW + ((chunk ^ (row & 7)) << 4)) = *(const uint4 *)from;
    }
}

template <int N, enum format F>
__global__ void __launch_bounds__(128)
    wgmma_kernel(const uint8_t *a, const uint8_t *b, const float *scales, float *d, int steps,
                 enum combine combine)
{
    __shared__ alignas(1024) uint8_t sa[ROWS * SWIZZLE_ROW];
    __shared__ alignas(1024) uint8_t sb[N * SWIZZLE_ROW];
    a += (size_t)blockIdx.x * ROWS * steps * STEP_BYTES;
    b += (size_t)blockIdx.x * N * steps * STEP_BYTES;
    d += (size_t)blockIdx.x * ROWS * N;
    int row = (threadIdx.x >> 5) * 16 + ((threadIdx.x & 31) >> 2), col = (threadIdx.x & 3) * 2;
    float sum[N / 2], acc[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        acc[i] = 0;
        sum[i] = combine == ONTO
                     ? d[(size_t)(row + (i & 2 ? 8 : 0)) * N + (i >> 2) * 8 + col + (i & 1)]
                     : 0;
    }
    for (int step = 0; step < steps; step++) {
        __syncthreads();
        place(sa, a, ROWS, steps, step);
        place(sb, b, N, steps, step);
        ptx::fence_proxy_async();
        __syncthreads();
        uint64_t da = ptx::wgmma_desc_128b(ptx::smem(sa));
        uint64_t db = ptx::wgmma_desc_128b(ptx::smem(sb));
        int onto = combine == ONTO || (combine == CHAIN && step > 0);
        ptx::wgmma_fence_operand(sum);
        ptx::wgmma_fence();
        if constexpr (F == E4M3)
            ptx::wgmma<N>::e4m3_ss(sum, da, db, onto);
        else
            ptx::wgmma<N>::template bf16_ss<0>(sum, da, db, onto);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        ptx::wgmma_fence_operand(sum);
        if (combine == PROMOTE) {
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[i] = fmaf(sum[i], scales[step], acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[(size_t)(row + (i & 2 ? 8 : 0)) * N + (i >> 2) * 8 + col + (i & 1)] =
            combine == PROMOTE ? acc[i] : sum[i];
}

/* One warp a 16 x 8 piece: blockIdx.x tile, .y piece of rows, .z piece of columns. */
template <enum format F>
__global__ void mma_kernel(const uint8_t *a, const uint8_t *b, const float *scales, float *d, int n,
                           int steps, enum combine combine)
{
    int g = threadIdx.x >> 2, t = threadIdx.x & 3;
    int row = blockIdx.y * 16 + g, col = blockIdx.z * 8;
    size_t pitch = (size_t)steps * STEP_BYTES;
    const uint8_t *pa = a + ((size_t)blockIdx.x * ROWS + row) * pitch + t * 4;
    const uint8_t *pb = b + ((size_t)blockIdx.x * n + col + g) * pitch + t * 4;
    float *out = d + ((size_t)blockIdx.x * ROWS + row) * n + col + t * 2;
    float acc[4] = {}, sum[4] = {};
    if (combine == ONTO)
        for (int i = 0; i < 4; i++) sum[i] = out[(size_t)(i >> 1) * 8 * n + (i & 1)];
    for (int step = 0; step < steps; step++, pa += STEP_BYTES, pb += STEP_BYTES) {
        uint32_t fa[4] = {*(const uint32_t *)pa, *(const uint32_t *)(pa + 8 * pitch),
                          *(const uint32_t *)(pa + 16), *(const uint32_t *)(pa + 8 * pitch + 16)};
        uint32_t fb[2] = {*(const uint32_t *)pb, *(const uint32_t *)(pb + 16)};
        if (combine == PROMOTE)
            for (int i = 0; i < 4; i++) sum[i] = 0;
        if constexpr (F == E4M3)
            ptx::mma_m16n8k32_e4m3(sum, fa, fb);
        else
            ptx::mma_m16n8k16_bf16(sum, fa, fb);
        if (combine == PROMOTE)
            for (int i = 0; i < 4; i++) acc[i] = fmaf(sum[i], scales[step], acc[i]);
    }
    for (int i = 0; i < 4; i++)
        out[(size_t)(i >> 1) * 8 * n + (i & 1)] = combine == PROMOTE ? acc[i] : sum[i];
}

/* The batch on the device. */
struct device_batch {
    uint8_t *a, *b;
    float *d, *scales;
};

static struct device_batch upload(const struct batch *batch)
{
    struct device_batch on = {};
    size_t pitch = (size_t)batch->steps * STEP_BYTES, tiles = (size_t)batch->tiles;
    size_t out = tiles * ROWS * batch->n * sizeof(float);
    CUDA(cudaMalloc(&on.a, tiles * ROWS * pitch));
    CUDA(cudaMalloc(&on.b, tiles * batch->n * pitch));
    CUDA(cudaMalloc(&on.d, out));
    CUDA(cudaMalloc(&on.scales, batch->steps * sizeof(float)));
    CUDA(cudaMemcpy(on.a, batch->a, tiles * ROWS * pitch, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(on.b, batch->b, tiles * batch->n * pitch, cudaMemcpyHostToDevice));
    if (batch->combine == ONTO) CUDA(cudaMemcpy(on.d, batch->d, out, cudaMemcpyHostToDevice));
    if (batch->scales)
        CUDA(cudaMemcpy(on.scales, batch->scales, batch->steps * sizeof(float),
                        cudaMemcpyHostToDevice));
    return on;
}

static void download(const struct batch *batch, struct device_batch *on)
{
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(batch->d, on->d, (size_t)batch->tiles * ROWS * batch->n * sizeof(float),
                    cudaMemcpyDeviceToHost));
    CUDA(cudaFree(on->a));
    CUDA(cudaFree(on->b));
    CUDA(cudaFree(on->d));
    CUDA(cudaFree(on->scales));
}

template <int N> static void launch(const struct batch *batch, const struct device_batch *on)
{
    if (batch->format == E4M3)
        wgmma_kernel<N, E4M3>
            <<<batch->tiles, 128>>>(on->a, on->b, on->scales, on->d, batch->steps, batch->combine);
    else
        wgmma_kernel<N, BF16>
            <<<batch->tiles, 128>>>(on->a, on->b, on->scales, on->d, batch->steps, batch->combine);
}

void run_wgmma(const struct batch *batch)
{
    struct device_batch on = upload(batch);
    switch (batch->n) {
    case 8:
        launch<8>(batch, &on);
        break;
    case 64:
        launch<64>(batch, &on);
        break;
    case 128:
        launch<128>(batch, &on);
        break;
    default:
        launch<256>(batch, &on);
        break;
    }
    download(batch, &on);
}

void run_mma(const struct batch *batch)
{
    struct device_batch on = upload(batch);
    dim3 grid(batch->tiles, ROWS / 16, batch->n / 8);
    if (batch->format == E4M3)
        mma_kernel<E4M3>
            <<<grid, 32>>>(on.a, on.b, on.scales, on.d, batch->n, batch->steps, batch->combine);
    else
        mma_kernel<BF16>
            <<<grid, 32>>>(on.a, on.b, on.scales, on.d, batch->n, batch->steps, batch->combine);
    download(batch, &on);
}
