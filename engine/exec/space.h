/* Where a plan's values live: this process's memory, or a device's. Reads and writes from outside
 * the kernels go through here; on a device they are queued in order, and a read waits. */
#ifndef DSF_EXEC_SPACE_H
#define DSF_EXEC_SPACE_H

#include "base/budget.h"
#include "device.h"

/* Where a block of an exec lies. */
typedef enum {
    DSF_AT_SPACE, /* with the values */
    DSF_AT_NEAR,  /* host memory that the space reads from and writes to at full speed */
    DSF_AT_HEAP   /* host */
} dsf_at;

/* Where blocks come from. With `count` none is taken: each becomes a line of the budget, so that
 * what plans an exec's memory is the code that takes it. */
typedef struct {
    dsf_device *device; /* NULL: the host, or a device that is only planned for */
    bool there;         /* the space is a device's */
    dsf_budget *count;
    const char *owner; /* count: what the lines begin with */
} dsf_source;

/* *out (a T **) gets a zeroed block; NULL for no bytes and while counting. The line is
 * "OWNER: NAME". */
DSF_MUST dsf_status dsf_source_take(const dsf_source *s, dsf_at at, void *out, size_t bytes,
                                    const char *name, const char *fmt, ...) DSF_PRINTF(6, 7);

/* What was taken at DSF_AT_SPACE and DSF_AT_NEAR; device NULL: the host. */
void dsf_space_drop(dsf_device *d, uint8_t *p, size_t bytes); /* NULL is fine */
void dsf_space_drop_near(dsf_device *d, uint8_t *p, size_t bytes);
DSF_MUST dsf_status dsf_space_write(dsf_device *d, void *dst, const void *host, size_t bytes);
DSF_MUST dsf_status dsf_space_read(dsf_device *d, void *host, const void *src, size_t bytes);
/* Inside the space; the two ranges do not overlap. */
DSF_MUST dsf_status dsf_space_copy(dsf_device *d, void *dst, const void *src, size_t bytes);
DSF_MUST dsf_status dsf_space_fill(dsf_device *d, void *dst, int byte, size_t bytes);

#endif
