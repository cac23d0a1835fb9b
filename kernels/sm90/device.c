#include "device.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct dsf_device {
    int index;
    dsf_device_info info;
    dsf_device_usage used;
    cudaStream_t stream;
    cudaEvent_t mark[DSF_DEVICE_MARKS];
    struct block { /* of device memory and of pinned memory, for the totals */
        void *p;
        size_t bytes;
        bool pinned;
    } * block;
    int n_blocks, cap_blocks;
    /* Of the capture that runs: the node at which each named place stands. */
    cudaGraphNode_t *place;
    int last; /* the place that was named last, with nothing queued since; -1: none */
};

struct dsf_device_graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes;
};

static dsf_status check(cudaError_t e, const char *what, const char *where)
{
    if (e == cudaSuccess) return DSF_OK;
    (void)cudaGetLastError(); /* what is not sticky must not show again at the next call */
    return dsf_error_raise(DSF_EDEVICE, where, "%s: %s (CUDA error %d)", what,
                           cudaGetErrorString(e), (int)e);
}
#define TRY(call) DSF_TRY(check((call), #call, DSF_HERE))

static int usable(int index)
{
    int major = 0, minor = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) ==
               cudaSuccess &&
           major == 9 && minor == 0;
}

int dsf_device_count(const char **why)
{
    int all = 0, good = 0;
    cudaError_t e = cudaGetDeviceCount(&all);
    const char *text = e == cudaSuccess ? NULL : cudaGetErrorString(e);
    if (e != cudaSuccess) all = 0;
    for (int i = 0; i < all; i++) good += usable(i);
    if (!text && good == 0)
        text = all ? "no device of compute capability 9.0 (Hopper)" : "no CUDA device";
    if (why) *why = good ? "" : text;
    return good;
}

/* The index-th usable device. */
static int find(int index)
{
    int all = 0;
    if (cudaGetDeviceCount(&all) != cudaSuccess) return -1;
    for (int i = 0; i < all; i++)
        if (usable(i) && index-- == 0) return i;
    return -1;
}

static dsf_status describe(dsf_device_info *info, int device)
{
    struct cudaDeviceProp p;
    TRY(cudaGetDeviceProperties(&p, device));
    *info = (dsf_device_info){.multiprocessors = p.multiProcessorCount, .l2_bytes = p.l2CacheSize};
    (void)snprintf(info->name, sizeof info->name, "%.63s", p.name);
    TRY(cudaDriverGetVersion(&info->driver));
    TRY(cudaRuntimeGetVersion(&info->runtime));
    return DSF_OK;
}

static dsf_status open_device(dsf_device *d)
{
    TRY(cudaSetDevice(d->index));
    DSF_TRY(describe(&d->info, d->index));
    DSF_TRY(dsf_mem_new(&d->place, DSF_DEVICE_PLACES, sizeof(cudaGraphNode_t)));
    TRY(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
    for (int i = 0; i < DSF_DEVICE_MARKS; i++) TRY(cudaEventCreate(&d->mark[i]));
    return DSF_OK;
}

dsf_status dsf_device_open(dsf_device **out, int index)
{
    const char *why = NULL;
    int have = dsf_device_count(&why);
    if (index < 0 || index >= have)
        return DSF_FAIL(DSF_ENOTSUP, "CUDA device %d: %d usable on this machine%s%s", index, have,
                        have ? "" : ": ", have ? "" : why);
    dsf_device *d = NULL;
    DSF_TRY(dsf_mem_new(&d, 1, sizeof *d));
    d->index = find(index);
    dsf_status st = open_device(d);
    if (st != DSF_OK) {
        dsf_device_close(d);
        return dsf_error_pass(st, DSF_HERE);
    }
    *out = d;
    return DSF_OK;
}

static void give_back(const struct block *b)
{
    (void)(b->pinned ? cudaFreeHost(b->p) : cudaFree(b->p));
}

void dsf_device_close(dsf_device *d)
{
    if (!d) return;
    if (d->stream) (void)cudaStreamSynchronize(d->stream);
    for (int i = 0; i < d->n_blocks; i++) give_back(&d->block[i]);
    for (int i = 0; i < DSF_DEVICE_MARKS; i++)
        if (d->mark[i]) (void)cudaEventDestroy(d->mark[i]);
    if (d->stream) (void)cudaStreamDestroy(d->stream);
    dsf_mem_free(d->block);
    dsf_mem_free(d->place);
    dsf_mem_free(d);
}

const dsf_device_info *dsf_device_describe(const dsf_device *d) { return &d->info; }
dsf_device_usage dsf_device_used(const dsf_device *d) { return d->used; }
void *dsf_device_stream(const dsf_device *d) { return d->stream; }

dsf_status dsf_device_memory(const dsf_device *d, int64_t *free_bytes)
{
    size_t have = 0, all = 0;
    TRY(cudaSetDevice(d->index));
    TRY(cudaMemGetInfo(&have, &all));
    *free_bytes = (int64_t)have;
    return DSF_OK;
}

static void count(dsf_device *d, const struct block *b, int64_t sign)
{
    int64_t *now = b->pinned ? &d->used.pinned : &d->used.bytes;
    int64_t *peak = b->pinned ? &d->used.pinned_peak : &d->used.peak;
    *now += sign * (int64_t)b->bytes;
    if (*now > *peak) *peak = *now;
}

static dsf_status keep(dsf_device *d, struct block b)
{
    if (d->n_blocks == d->cap_blocks) {
        int cap = d->cap_blocks ? 2 * d->cap_blocks : 16;
        dsf_status st = dsf_mem_grow(&d->block, (size_t)cap, sizeof *d->block);
        if (st != DSF_OK) {
            give_back(&b);
            return dsf_error_pass(st, DSF_HERE);
        }
        d->cap_blocks = cap;
    }
    d->block[d->n_blocks++] = b;
    d->used.allocations++;
    count(d, &b, 1);
    return DSF_OK;
}

static void drop(dsf_device *d, const void *p)
{
    for (int i = 0; p && i < d->n_blocks; i++) {
        if (d->block[i].p != p) continue;
        struct block b = d->block[i];
        d->block[i] = d->block[--d->n_blocks];
        count(d, &b, -1);
        give_back(&b);
        return;
    }
}

dsf_status dsf_device_new(dsf_device *d, void **out, size_t bytes)
{
    *out = NULL;
    if (bytes == 0) return DSF_OK;
    int64_t have = 0;
    DSF_TRY(dsf_device_memory(d, &have));
    void *p = NULL;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return DSF_FAIL(DSF_ENOMEM, "device memory: %zu bytes wanted, %lld free", bytes,
                        (long long)have);
    }
    DSF_TRY(check(e, "cudaMalloc", DSF_HERE));
    DSF_TRY(keep(d, (struct block){p, bytes, false}));
    TRY(cudaMemsetAsync(p, 0, bytes, d->stream));
    *out = p;
    return DSF_OK;
}

void dsf_device_free(dsf_device *d, void *p) { drop(d, p); }

dsf_status dsf_device_pin(dsf_device *d, void **out, size_t bytes)
{
    *out = NULL;
    if (bytes == 0) return DSF_OK;
    TRY(cudaSetDevice(d->index));
    TRY(cudaHostAlloc(out, bytes, cudaHostAllocDefault));
    memset(*out, 0, bytes);
    dsf_status st = keep(d, (struct block){*out, bytes, true});
    if (st != DSF_OK) *out = NULL;
    return st;
}

void dsf_device_unpin(dsf_device *d, void *p) { drop(d, p); }

static dsf_status copy(dsf_device *d, void *dst, const void *src, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    if (bytes > 0) TRY(cudaMemcpyAsync(dst, src, bytes, kind, d->stream));
    return DSF_OK;
}

dsf_status dsf_device_put(dsf_device *d, void *dst, const void *src, size_t bytes)
{
    return copy(d, dst, src, bytes, cudaMemcpyHostToDevice);
}

dsf_status dsf_device_get(dsf_device *d, void *dst, const void *src, size_t bytes)
{
    return copy(d, dst, src, bytes, cudaMemcpyDeviceToHost);
}

dsf_status dsf_device_copy(dsf_device *d, void *dst, const void *src, size_t bytes)
{
    return copy(d, dst, src, bytes, cudaMemcpyDeviceToDevice);
}

dsf_status dsf_device_set(dsf_device *d, void *dst, int byte, size_t bytes)
{
    if (bytes > 0) TRY(cudaMemsetAsync(dst, byte, bytes, d->stream));
    return DSF_OK;
}

dsf_status dsf_device_wait(dsf_device *d)
{
    TRY(cudaStreamSynchronize(d->stream));
    return DSF_OK;
}

dsf_status dsf_device_mark(dsf_device *d, int mark)
{
    TRY(cudaEventRecord(d->mark[mark], d->stream));
    return DSF_OK;
}

dsf_status dsf_device_between(dsf_device *d, int from, int to, double *us)
{
    float ms = 0;
    TRY(cudaEventSynchronize(d->mark[to]));
    TRY(cudaEventElapsedTime(&ms, d->mark[from], d->mark[to]));
    *us = 1e3 * (double)ms;
    return DSF_OK;
}

dsf_status dsf_device_capture_begin(dsf_device *d)
{
    memset(d->place, 0, DSF_DEVICE_PLACES * sizeof(cudaGraphNode_t));
    d->last = -1;
    TRY(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal));
    return DSF_OK;
}

/* Where the capture stands: its one last node. */
static dsf_status stand(dsf_device *d, cudaGraphNode_t *node)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *at = NULL;
    const cudaGraphEdgeData *edge = NULL;
    size_t n = 0;
    TRY(cudaStreamGetCaptureInfo(d->stream, &status, NULL, NULL, &at, &edge, &n));
    if (status != cudaStreamCaptureStatusActive || n != 1)
        return DSF_FAIL(DSF_EDEVICE, "capture: %zu last nodes where one is expected", n);
    *node = at[0];
    return DSF_OK;
}

dsf_status dsf_device_capture_name(dsf_device *d, int place)
{
    if (place < 0 || place >= DSF_DEVICE_PLACES)
        return DSF_FAIL(DSF_EINVAL, "capture: place %d, at most %d", place, DSF_DEVICE_PLACES);
    DSF_TRY(stand(d, &d->place[place]));
    d->last = place;
    return DSF_OK;
}

dsf_status dsf_device_capture_after(dsf_device *d, const int *place, int n)
{
    enum { MOST = 64 };
    cudaGraphNode_t node[MOST];
    if (n == 1 && place[0] == d->last) return DSF_OK; /* an edge of programmatic launch stays one */
    if (n > MOST)
        return DSF_FAIL(DSF_EINVAL, "capture: %d places to wait for, at most %d", n, MOST);
    for (int i = 0; i < n; i++) {
        if (place[i] < 0 || place[i] >= DSF_DEVICE_PLACES || !d->place[place[i]])
            return DSF_FAIL(DSF_EINVAL, "capture: place %d was never named", place[i]);
        node[i] = d->place[place[i]];
    }
    TRY(cudaStreamUpdateCaptureDependencies(d->stream, node, NULL, (size_t)n,
                                            cudaStreamSetCaptureDependencies));
    return DSF_OK;
}

dsf_status dsf_device_graph_new(dsf_device_graph **out)
{
    return dsf_mem_new(out, 1, sizeof **out);
}

static void empty(dsf_device_graph *g)
{
    if (g->exec) (void)cudaGraphExecDestroy(g->exec);
    if (g->graph) (void)cudaGraphDestroy(g->graph);
    *g = (dsf_device_graph){.nodes = 0};
}

dsf_status dsf_device_capture_end(dsf_device *d, dsf_device_graph *g)
{
    cudaGraph_t made = NULL;
    dsf_status st = check(cudaStreamEndCapture(d->stream, &made), "cudaStreamEndCapture", DSF_HERE);
    empty(g); /* not before: destroying a graph during a capture ends it */
    g->graph = made;
    if (st == DSF_OK) st = check(cudaGraphGetNodes(g->graph, NULL, &g->nodes), "nodes", DSF_HERE);
    if (st == DSF_OK)
        st = check(cudaGraphInstantiate(&g->exec, g->graph, 0), "cudaGraphInstantiate", DSF_HERE);
    if (st == DSF_OK) return DSF_OK;
    empty(g);
    return dsf_error_pass(st, DSF_HERE);
}

dsf_status dsf_device_graph_run(dsf_device *d, dsf_device_graph *g)
{
    TRY(cudaGraphLaunch(g->exec, d->stream));
    return DSF_OK;
}

int64_t dsf_device_graph_nodes(const dsf_device_graph *g) { return (int64_t)g->nodes; }

void dsf_device_graph_free(dsf_device_graph *g)
{
    if (!g) return;
    empty(g);
    dsf_mem_free(g);
}
