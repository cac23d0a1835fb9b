/* Where a plan's values live: this process's memory, or a device's. Reads and writes from outside
 * the kernels go through here; on a device they are queued in order, and a read waits. */
#ifndef DSF_EXEC_SPACE_H
#define DSF_EXEC_SPACE_H

#include "device.h"

/* device NULL: the host. Memory is zeroed. */
DSF_MUST dsf_status dsf_space_take(dsf_device *d, uint8_t **out, size_t bytes);
void dsf_space_drop(dsf_device *d, uint8_t *p, size_t bytes); /* NULL is fine */
/* Host memory that the space reads from and writes to at full speed. */
DSF_MUST dsf_status dsf_space_take_near(dsf_device *d, uint8_t **out, size_t bytes);
void dsf_space_drop_near(dsf_device *d, uint8_t *p, size_t bytes);
DSF_MUST dsf_status dsf_space_write(dsf_device *d, void *dst, const void *host, size_t bytes);
DSF_MUST dsf_status dsf_space_read(dsf_device *d, void *host, const void *src, size_t bytes);
/* Inside the space; the two ranges do not overlap. */
DSF_MUST dsf_status dsf_space_copy(dsf_device *d, void *dst, const void *src, size_t bytes);
DSF_MUST dsf_status dsf_space_fill(dsf_device *d, void *dst, int byte, size_t bytes);

#endif
