/* Weights on a device: every constant that a plan's steps read, copied there once. First collected
 * (so that their bytes are known before anything is allocated), then loaded. */
#ifndef DSF_EXEC_PLACE_H
#define DSF_EXEC_PLACE_H

#include "device.h"
#include "plan/plan.h"

typedef struct dsf_place dsf_place;

/* One tensor to place. width: elements of its last dimension, 0 for a vector. */
typedef struct {
    const void *host;
    size_t bytes;
    dsf_dtype dtype;
    int64_t width;
} dsf_placed;

/* Writes the tensor to the device memory at `there`. */
typedef dsf_status dsf_place_fn(void *ud, dsf_device *d, void *there, const dsf_placed *t);

/* ranks: devices that the experts are shared among (base/share.h); the largest share is
 * collected. 1: all of them. */
DSF_MUST dsf_status dsf_place_open(dsf_place **out, dsf_device *d, int64_t ranks);
void dsf_place_close(dsf_place *l); /* NULL is fine; before the device */
/* Adds what the steps of a chosen plan read and what their pointer tables lead to. Tables that the
 * executor stages row by row (Engram) stay on the host. Before the load. */
DSF_MUST dsf_status dsf_place_add(dsf_place *l, const dsf_plan *p);
size_t dsf_place_bytes(const dsf_place *l);
/* Takes the memory and fills it: by copying, or by `fill`. ENOMEM, EDEVICE. */
DSF_MUST dsf_status dsf_place_load(dsf_place *l, dsf_place_fn *fill, void *ud);
/* The device address of a placed constant; NULL when it was never added. */
void *dsf_place_at(const dsf_place *l, const void *host);

/* True for constants that stay on the host: an Engram table and its scales. */
bool dsf_place_stays(const dsf_step *s, int operand);

#endif
