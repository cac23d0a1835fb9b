/* Rows of an engine tensor as the dump stores them: bf16, fp8 and fp4 widened to float32 (exact),
 * selections and masks in the schema's form. */
#ifndef DSF_DUMP_WIDEN_H
#define DSF_DUMP_WIDEN_H

#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"
#include "verify/dump/types.h"

/* How one tap's rows are stored. */
typedef struct {
    dsf_dump_kind kind;
    int64_t width; /* elements of a stored row */
    int64_t block; /* attn/pool: entries per block, to turn kept block ids into the mask; else 0 */
    bool trim;     /* the stored row may be narrower or wider than the tensor's: entry axis */
    double fill;   /* what stands in columns that the tensor does not have (trim) */
} dsf_widen_plan;

/* Elements of one row of t. */
int64_t dsf_widen_width(const dsf_tensor *t);
/* Row r of t to `out` (plan->width stored elements). `scratch`: bf16, one record (the tensor's last
 * dimension). EINVAL when the types do not fit or an int64 does not fit the stored int32. */
DSF_MUST dsf_status dsf_widen_row(void *out, const dsf_widen_plan *plan, const dsf_tensor *t,
                                  int64_t r, uint16_t *scratch);
/* Row r of t where its bytes are the stored ones, else NULL. */
const void *dsf_widen_as_is(const dsf_widen_plan *plan, const dsf_tensor *t, int64_t r);

#endif
