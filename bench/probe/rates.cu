#include "product.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

static constexpr size_t STREAM_BYTES = (size_t)4 << 30; /* 70 times the L2 */
static constexpr size_t LINK_BYTES = (size_t)1 << 30;
static constexpr int REPEATS = 20;
static constexpr int NODES = 100;

__global__ static void copy(uint4 *__restrict__ dst, const uint4 *__restrict__ src, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = __ldcs(src + i + j * stride);
#pragma unroll
        for (int j = 0; j < 4; j++) __stcs(dst + i + j * stride, v[j]);
    }
    for (; i < n; i += stride) __stcs(dst + i, __ldcs(src + i));
}

/* The sum keeps the loads; the store never happens. */
__global__ static void read_only(uint32_t *out, const uint4 *__restrict__ src, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * stride < n; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __ldcs(src + i + j * stride);
#pragma unroll
        for (int j = 0; j < 8; j++) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < n; i += stride) sum += __ldcs(src + i).x;
    if (sum == 0x9E3779B9u) *out = sum;
}

__global__ static void tiny(uint32_t *x)
{
    if (threadIdx.x == 0) x[blockIdx.x] += 1;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* What is timed: enqueues one run on the stream. */
typedef void (*enqueue_fn)(void *what, cudaStream_t stream);

/* Median and the 10th and 90th percentile of REPEATS timings, in ms. */
static void time_it(enqueue_fn enqueue, void *what, float at[3])
{
    float ms[REPEATS];
    cudaEvent_t begin, end;
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = -3; i < REPEATS; i++) {
        CUDA(cudaEventRecord(begin, stream));
        enqueue(what, stream);
        CUDA(cudaEventRecord(end, stream));
        CUDA(cudaEventSynchronize(end));
        if (i >= 0) CUDA(cudaEventElapsedTime(&ms[i], begin, end));
    }
    CUDA(cudaGetLastError());
    qsort(ms, REPEATS, sizeof ms[0], ascending);
    at[0] = ms[REPEATS / 2];
    at[1] = ms[REPEATS / 10];
    at[2] = ms[REPEATS - 1 - REPEATS / 10];
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    CUDA(cudaStreamDestroy(stream));
}

struct memory {
    void *dst, *src;
    size_t bytes;
    int blocks;
    cudaGraphExec_t graph;
};

static void enqueue_copy(void *what, cudaStream_t stream)
{
    struct memory *m = (struct memory *)what;
    copy<<<m->blocks, 512, 0, stream>>>((uint4 *)m->dst, (const uint4 *)m->src, m->bytes / 16);
}

static void enqueue_read(void *what, cudaStream_t stream)
{
    struct memory *m = (struct memory *)what;
    read_only<<<m->blocks, 512, 0, stream>>>((uint32_t *)m->dst, (const uint4 *)m->src,
                                             m->bytes / 16);
}

static void enqueue_memcpy(void *what, cudaStream_t stream)
{
    struct memory *m = (struct memory *)what;
    CUDA(cudaMemcpyAsync(m->dst, m->src, m->bytes, cudaMemcpyDefault, stream));
}

static void enqueue_graph(void *what, cudaStream_t stream)
{
    CUDA(cudaGraphLaunch(((struct memory *)what)->graph, stream));
}

/* moved: bytes that cross the memory or the link. */
static void print_rate(const char *name, double moved, const float ms[3])
{
    printf("{\"probe\":\"rate\",\"what\":\"%s\",\"bytes\":%.0f,\"ms\":%.4f,\"p10\":%.4f,"
           "\"p90\":%.4f,\"gb_per_s\":%.1f}\n",
           name, moved, ms[0], ms[1], ms[2], moved / ms[0] / 1e6);
}

static void measure_memory(int blocks)
{
    struct memory m = {};
    float ms[3];
    CUDA(cudaMalloc(&m.src, STREAM_BYTES));
    CUDA(cudaMalloc(&m.dst, STREAM_BYTES));
    CUDA(cudaMemset(m.src, 1, STREAM_BYTES));
    m.bytes = STREAM_BYTES;
    m.blocks = blocks;
    time_it(enqueue_copy, &m, ms);
    print_rate("copy kernel, read + write", 2.0 * STREAM_BYTES, ms);
    time_it(enqueue_memcpy, &m, ms);
    print_rate("cudaMemcpy on the device, read + write", 2.0 * STREAM_BYTES, ms);
    time_it(enqueue_read, &m, ms);
    print_rate("read only", STREAM_BYTES, ms);
    void *device = m.dst, *host;
    CUDA(cudaMallocHost(&host, LINK_BYTES));
    struct memory up = {device, host, LINK_BYTES, 0, NULL},
                  down = {host, device, LINK_BYTES, 0, NULL};
    time_it(enqueue_memcpy, &up, ms);
    print_rate("pinned host to device", LINK_BYTES, ms);
    time_it(enqueue_memcpy, &down, ms);
    print_rate("device to pinned host", LINK_BYTES, ms);
    CUDA(cudaFreeHost(host));
    CUDA(cudaFree(m.src));
    CUDA(cudaFree(m.dst));
}

/* A chain of NODES kernels of one warp, launched one by one and as one graph. */
static void measure_graph(void)
{
    struct memory m = {};
    float ms[3];
    cudaGraph_t graph;
    cudaStream_t stream;
    uint32_t *x;
    CUDA(cudaMalloc(&x, 4096));
    CUDA(cudaMemset(x, 0, 4096));
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < NODES; i++) tiny<<<132, 32, 0, stream>>>(x);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&m.graph, graph, 0));
    time_it(enqueue_graph, &m, ms);
    printf("{\"probe\":\"rate\",\"what\":\"graph of %d dependent kernels\",\"us\":%.2f,"
           "\"us_per_node\":%.3f}\n",
           NODES, ms[0] * 1e3, ms[0] * 1e3 / NODES);
    CUDA(cudaGraphExecDestroy(m.graph));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(x));
}

void measure_rates(void)
{
    cudaDeviceProp prop;
    CUDA(cudaGetDeviceProperties(&prop, 0));
    printf("{\"probe\":\"device\",\"name\":\"%s\",\"sms\":%d,\"l2_bytes\":%d,\"memory_bytes\":%zu,"
           "\"shared_per_block\":%zu}\n",
           prop.name, prop.multiProcessorCount, prop.l2CacheSize, prop.totalGlobalMem,
           prop.sharedMemPerBlockOptin);
    measure_memory(prop.multiProcessorCount * 4);
    measure_graph();
}
