/* Work that the device benchmarks queue beside the operations: random operands made where they are
 * used, and a read that measures the memory. */
#ifndef DSF_BENCH_DEVICE_FILL_H
#define DSF_BENCH_DEVICE_FILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run of bytes holds. */
typedef enum {
    DSF_FILL_BYTES, /* any byte from low to high */
    DSF_FILL_E4M3,  /* codes of normal values, never NaN */
    DSF_FILL_BF16,  /* normal values */
    DSF_FILL_F32
} dsf_fill_kind;

typedef struct {
    dsf_fill_kind kind;
    int low, high; /* BYTES */
    float sigma;   /* of the normal values */
} dsf_fill_values;

/* Rows of `record` bytes: the first `codes` bytes of each hold one thing, the rest another. Plain
 * bytes have codes == record; BF16 and F32 have no records. */
typedef struct {
    dsf_fill_values code, scale;
    int64_t codes, record;
} dsf_fill_layout;

/* Queues the fill of `bytes` bytes, rounded up to 4 (allocations are), different for every seed. */
DSF_MUST dsf_status dsf_device_fill(void *stream, void *dst, size_t bytes,
                                    const dsf_fill_layout *layout, uint64_t seed);
/* Queues a read of `bytes` (a multiple of 16) at the memory's full rate. sink: 4 bytes. */
DSF_MUST dsf_status dsf_device_stream_read(void *stream, void *sink, const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
