/* The device of a build without CUDA: there is none, and everything says so. */
#include "device.h"

#include "synth.h"

static const char *const missing = "this build has no CUDA kernels (meson option cuda)";

int dsf_device_count(const char **why)
{
    if (why) *why = missing;
    return 0;
}

dsf_status dsf_device_open(dsf_device **out, int index)
{
    *out = NULL;
    return DSF_FAIL(DSF_ENOTSUP, "CUDA device %d: %s", index, missing);
}

void dsf_device_close(dsf_device *d) { (void)d; }

const dsf_device_info *dsf_device_describe(const dsf_device *d)
{
    (void)d;
    return NULL;
}

dsf_device_usage dsf_device_used(const dsf_device *d)
{
    (void)d;
    return (dsf_device_usage){0};
}

void *dsf_device_stream(const dsf_device *d)
{
    (void)d;
    return NULL;
}

void dsf_device_free(dsf_device *d, void *p) { (void)d, (void)p; }
void dsf_device_unpin(dsf_device *d, void *p) { (void)d, (void)p; }
void dsf_device_graph_free(dsf_device_graph *g) { (void)g; }

int64_t dsf_device_graph_nodes(const dsf_device_graph *g)
{
    (void)g;
    return 0;
}

/* No device was ever opened, so none of these can be reached with one. */
#define ABSENT(name, ...)                                                                          \
    dsf_status name(__VA_ARGS__) { return DSF_FAIL(DSF_ENOTSUP, "%s", missing); }

#pragma GCC diagnostic ignored "-Wunused-parameter"
ABSENT(dsf_device_memory, const dsf_device *d, int64_t *free_bytes)
ABSENT(dsf_device_new, dsf_device *d, void **out, size_t bytes)
ABSENT(dsf_device_pin, dsf_device *d, void **out, size_t bytes)
ABSENT(dsf_device_put, dsf_device *d, void *dst, const void *src, size_t bytes)
ABSENT(dsf_device_get, dsf_device *d, void *dst, const void *src, size_t bytes)
ABSENT(dsf_device_copy, dsf_device *d, void *dst, const void *src, size_t bytes)
ABSENT(dsf_device_set, dsf_device *d, void *dst, int byte, size_t bytes)
ABSENT(dsf_device_wait, dsf_device *d)
ABSENT(dsf_device_mark, dsf_device *d, int mark)
ABSENT(dsf_device_between, dsf_device *d, int from, int to, double *us)
ABSENT(dsf_device_capture_begin, dsf_device *d)
ABSENT(dsf_device_graph_new, dsf_device_graph **out)
ABSENT(dsf_device_capture_end, dsf_device *d, dsf_device_graph *g)
ABSENT(dsf_synth_there, dsf_device *d, void *there, size_t bytes, dsf_dtype dtype, int64_t width,
       uint64_t seed)
ABSENT(dsf_device_capture_after, dsf_device *d, const int *place, int n)
ABSENT(dsf_device_capture_name, dsf_device *d, int place)
ABSENT(dsf_device_graph_run, dsf_device *d, dsf_device_graph *g)
