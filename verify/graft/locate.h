/* From a failing comparison to one operation: the exact tier and the carried gate name a suspect,
 * then every operation is run on the inputs it had, so that an error stays where it arises
 * (verification.md 17). Two ways: our engine on a golden file, or our engine on another engine's
 * tensors, which needs no golden for their inputs: what our operation makes of them against what
 * theirs made. */
#ifndef DSF_GRAFT_LOCATE_H
#define DSF_GRAFT_LOCATE_H

#include "verify/diff/diff.h"
#include "verify/graft/graft.h"

typedef struct {
    dsf_graft_options graft; /* golden: the truth; out: the dump to keep, or a temporary one */
    const char *ours;        /* another engine's dump of the same prompt, or NULL: our own engine */
    const char *temp;        /* for a second run; removed by the caller */
    const char *floor;       /* bound to graft.golden; NULL: provisional limits */
    const char *no_gate;
    bool rows;
} dsf_locate_options;

typedef struct {
    bool good;
    bool proven;        /* an operation is wrong on the inputs it had */
    dsf_diff_tap first; /* the guilty operation or the suspect; path "" when all is good. Its row
                           and flip are the report's */
    double local_ratio; /* its error over the noise of the operation; NaN: none was measured */
    char sentence[512];
    char wiring[224];        /* layer inputs that are not what the layer before left; "" */
    dsf_diff_report local;   /* the file's tensors against ours, made from the same inputs */
    dsf_diff_report carried; /* with `ours`: golden against ours, free; n_taps 0 without */
    dsf_graft_report graft;
} dsf_located;

/* OK whenever an answer could be given. Free in either case. */
DSF_MUST dsf_status dsf_locate(const dsf_locate_options *o, dsf_located *r);
void dsf_located_free(dsf_located *r);

/* Is local.tap[i] another operation that is wrong on the inputs it had? Not when it was computed
 * from a wrong one, for want of a place to give that value. */
bool dsf_located_also(const dsf_located *r, int64_t i);
void dsf_located_print(const dsf_located *r, bool all, dsf_buf *b);
/* Schema dsf-graft-1. */
void dsf_located_json(const dsf_located *r, dsf_buf *b);

#endif
