/* Injected mode (dump-schema.md 7): every layer from golden inputs, so that errors stay where they
 * arise. The golden values enter as the plan's given values, at the places that a production plan
 * has too. */
#ifndef DSF_GRAFT_H
#define DSF_GRAFT_H

#include "base/buf.h"
#include "dsf.h"

typedef struct {
    const char *model, *golden, *out; /* out: the dump to write, mode `injected` */
    const char *variants, *backend;
    int threads;
    bool by_layer_only;  /* do not fall back to operation by operation where layer inputs are absent
                          */
    bool by_op;          /* operation by operation, also where layer inputs are there */
    bool by_layer_range; /* only layers layer_from..layer_to, and no global taps */
    int layer_from, layer_to;
    const char *const *only; /* globs on paths, or on the part below the layer; NULL: all */
    int n_only;
    void (*progress)(const char *name, int64_t done, int64_t total);
} dsf_graft_options;

typedef struct {
    bool by_op;   /* operation by operation: some layer's inputs are not in the file for all rows */
    int64_t taps; /* shown and written */
    int64_t passes; /* one for each set of rows that stored taps share */
    dsf_buf given;  /* one line: which kinds of taps came from the file */
    dsf_buf absent; /* lines: golden taps that could not be computed, with the reason */
    int64_t n_absent;
    int64_t n_lost; /* of these: computable, and no longer shown by the engine; never good */
} dsf_graft_report;

DSF_MUST dsf_status dsf_graft_run(const dsf_graft_options *o, dsf_graft_report *r);
void dsf_graft_report_free(dsf_graft_report *r);

#endif
