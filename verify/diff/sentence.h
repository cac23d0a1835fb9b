/* One tap's fault in one sentence: where, what, whether its inputs agree, how large against the
 * noise, and the pattern. */
#ifndef DSF_DIFF_SENTENCE_H
#define DSF_DIFF_SENTENCE_H

#include "verify/diff/diff.h"

void dsf_sentence_write(char *out, size_t size, const dsf_diff_tap *t);
/* The compared tap, or NULL. */
const dsf_diff_tap *dsf_sentence_tap(const dsf_diff_report *r, dsf_tap tap);
/* Error over the noise measured in this mode, for choices the margin over what noise reaches; NaN:
 * unknown, infinite where the noise is none. */
double dsf_sentence_floor_ratio(const dsf_diff_tap *t);

#endif
