/* The operands of one run of an operation in device memory. */
#ifndef DSF_BENCH_DEVICE_FRAME_H
#define DSF_BENCH_DEVICE_FRAME_H

#include "device.h"
#include "device_fill.h"
#include "frame.h"

/* host has the sizes, and the contents of what is written here: indices, positions, flags; its
 * other memory is never touched. args is the same struct with device addresses. */
typedef struct {
    dsf_device *device;
    dsf_frame host;
    void *args;
    void *own[DSF_FRAME_OPERANDS]; /* in the block; NULL: another frame's, or absent */
    void *block;                   /* device memory */
    size_t bytes;
} dsf_device_frame;

/* Random operands in a realistic range. like: a frame of the same sizes whose pointer tables'
 * storage and whose operands above 1 GiB are shared (it must stay open); NULL: everything is its
 * own. */
DSF_MUST dsf_status dsf_device_frame_open(dsf_device_frame *f, dsf_device *device, const dsf_op *op,
                                          const dsf_case *c, const dsf_device_frame *like,
                                          uint64_t seed);
/* Rows rows[0..n-1] of `of` as a frame of n rows; what has no rows is shared. */
DSF_MUST dsf_status dsf_device_frame_rows(dsf_device_frame *f, const dsf_device_frame *of,
                                          const int64_t *rows, int64_t n);
void dsf_device_frame_close(dsf_device_frame *f); /* a zeroed one is fine */

/* What a checkpoint, a quantiser or a cache holds in a tensor of this type: scales a few powers of
 * two below 1, codes that use their whole range. */
dsf_fill_layout dsf_device_layout(const dsf_tensor *t);

/* Every output byte to the poison. */
DSF_MUST dsf_status dsf_device_frame_poison(dsf_device_frame *f, int byte);
/* Operands of one direction into a host frame of as many rows as `rows` has (NULL: all), when the
 * device is done. in: inputs (INOUT too), else outputs (INOUT too). */
DSF_MUST dsf_status dsf_device_frame_get(const dsf_device_frame *f, dsf_frame *to,
                                         const int64_t *rows, bool in);

#endif
