/* A GPU as the engine sees it: memory, one stream, time, captured graphs. The CUDA runtime stays
 * behind it. Copies and launches are queued on the device's stream in order; dsf_device_wait()
 * returns when all that was queued is done, and reports what failed since. One thread at a time. */
#ifndef DSF_KERNELS_DEVICE_H
#define DSF_KERNELS_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dsf_device dsf_device;
typedef struct dsf_device_graph dsf_device_graph;

typedef struct {
    char name[64];
    int multiprocessors;
    int64_t l2_bytes;
    int driver, runtime; /* 13000: CUDA 13.0 */
} dsf_device_info;

/* Devices of compute capability 9.0 that this process can use; 0 when none, and `why` (may be NULL)
 * gets a static text. */
int dsf_device_count(const char **why);
/* ENOTSUP: a build without CUDA, or no such device; EDEVICE: it does not answer. */
DSF_MUST dsf_status dsf_device_open(dsf_device **out, int index);
void dsf_device_close(dsf_device *d); /* NULL is fine; memory taken from it is gone */
const dsf_device_info *dsf_device_describe(const dsf_device *d);
/* Bytes that the driver would still give. */
DSF_MUST dsf_status dsf_device_memory(const dsf_device *d, int64_t *free_bytes);

/* Device memory, 256-aligned, zeroed. ENOMEM with both numbers. */
DSF_MUST dsf_status dsf_device_new(dsf_device *d, void **out, size_t bytes);
void dsf_device_free(dsf_device *d, void *p); /* NULL is fine */
/* Host memory that the copy engine reads at full speed, zeroed. */
DSF_MUST dsf_status dsf_device_pin(dsf_device *d, void **out, size_t bytes);
void dsf_device_unpin(dsf_device *d, void *p); /* NULL is fine */
/* Allocations made through the two doors above; bytes of device memory held now and at most, and of
 * pinned memory. */
typedef struct {
    uint64_t allocations;
    int64_t bytes, peak;
    int64_t pinned, pinned_peak;
} dsf_device_usage;
dsf_device_usage dsf_device_used(const dsf_device *d);

/* Queued copies. put: host to device; the source may be changed after the next wait (pinned memory)
 * or at once (other memory). get: device to host; read it after the next wait. */
DSF_MUST dsf_status dsf_device_put(dsf_device *d, void *dst, const void *src, size_t bytes);
DSF_MUST dsf_status dsf_device_get(dsf_device *d, void *dst, const void *src, size_t bytes);
DSF_MUST dsf_status dsf_device_copy(dsf_device *d, void *dst, const void *src, size_t bytes);
DSF_MUST dsf_status dsf_device_set(dsf_device *d, void *dst, int byte, size_t bytes);
/* EDEVICE names the operation that failed. */
DSF_MUST dsf_status dsf_device_wait(dsf_device *d);
/* cudaStream_t, for dsf_launch.stream. */
void *dsf_device_stream(const dsf_device *d);

/* Time between two marks in the stream, in microseconds; waits for the second. Marks 0..7. */
enum { DSF_DEVICE_MARKS = 8 };
DSF_MUST dsf_status dsf_device_mark(dsf_device *d, int mark);
DSF_MUST dsf_status dsf_device_between(dsf_device *d, int from, int to, double *us);

/* What is queued between begin and end is recorded instead of run; run queues all of it at once.
 * Nothing may be waited for or allocated in between. */
DSF_MUST dsf_status dsf_device_graph_new(dsf_device_graph **out); /* empty: room for a recording */
DSF_MUST dsf_status dsf_device_capture_begin(dsf_device *d);
/* What g held before is gone. After a failure it is empty. */
DSF_MUST dsf_status dsf_device_capture_end(dsf_device *d, dsf_device_graph *g);
DSF_MUST dsf_status dsf_device_graph_run(dsf_device *d, dsf_device_graph *g);
/* Between begin and end: what is queued next waits for the named places alone, not for all that was
 * queued before. A place is where the capture stood when it was named; n 1 and the last place: as
 * it is without a word. EINVAL: places beyond DSF_DEVICE_PLACES, or one that was never named. */
enum { DSF_DEVICE_PLACES = 8192 };
DSF_MUST dsf_status dsf_device_capture_after(dsf_device *d, const int *place, int n);
DSF_MUST dsf_status dsf_device_capture_name(dsf_device *d, int place);
int64_t dsf_device_graph_nodes(const dsf_device_graph *g);
void dsf_device_graph_free(dsf_device_graph *g); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
