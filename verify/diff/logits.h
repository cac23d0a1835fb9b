/* Next-token distributions: KL divergence and the best token with its near-tie rule
 * (verification.md 14 f and 15). */
#ifndef DSF_DIFF_LOGITS_H
#define DSF_DIFF_LOGITS_H

#include "verify/diff/metrics.h"

/* Judged rows only. */
void dsf_logits_compare(const dsf_joined *j, const dsf_row *row, dsf_diff_logits *out);

#endif
