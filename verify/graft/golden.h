/* A golden dump as the source of given values: which taps it can give for which rows, in the plan's
 * types. */
#ifndef DSF_GRAFT_GOLDEN_H
#define DSF_GRAFT_GOLDEN_H

#include "model/config.h"
#include "plan/plan.h"
#include "verify/dump/reader.h"

typedef struct {
    const dsf_config *config;
    dsf_dump_file *file;
    const char *path;
    int32_t *ids, *mask; /* [n]; mask NULL without images */
    int64_t n;
    dsf_status status; /* sticky: reading failed where the answer was yes or no */
} dsf_golden;

DSF_MUST dsf_status dsf_golden_open(dsf_golden *g, const dsf_config *c, const char *path);
void dsf_golden_close(dsf_golden *g);

/* The dataset that holds a tap: its own, or, for a layer's `in` and `premix`, the previous layer's
 * `out` and `ffn/pre`, which are the same values. NULL: the file has none. */
const dsf_dump_entry *dsf_golden_find(const dsf_golden *g, dsf_tap tap);
/* Does the file give this tap for all of these rows? label: ascending positions of the pass. Window
 * keys and entries must be there from 0 on without a gap, whatever the pass's rows. */
bool dsf_golden_gives(dsf_golden *g, dsf_tap tap, const int32_t *label, int64_t n);
/* Those rows in the given value's type and shape; *rows of them. Free with dsf_mem_free. */
DSF_MUST dsf_status dsf_golden_rows(const dsf_golden *g, dsf_tap tap, const int32_t *label,
                                    int64_t n, const dsf_value *v, void **out, int64_t *rows);
/* Row labels of a dataset. Free with dsf_mem_free. */
DSF_MUST dsf_status dsf_golden_labels(const dsf_golden *g, const dsf_dump_entry *e, int32_t **label,
                                      int64_t *n);
/* Has the file the last window of draft stage S: the ring itself (dspark/ring_kv), or the context
 * rows (dspark/ctx_kv)? */
bool dsf_golden_has_ring(dsf_golden *g, int stage);
/* That ring: records for `slots` ring rows, position p at p mod slots. */
DSF_MUST dsf_status dsf_golden_ring(const dsf_golden *g, int stage, uint8_t *ring, int64_t slots);

#endif
