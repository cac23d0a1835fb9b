/* Discrete taps: hash rows, expert ids, top-k lists, the candidate pool. A differing choice is
 * right only where the reference itself was near a tie (verification.md 14). */
#ifndef DSF_DIFF_CHOICE_H
#define DSF_DIFF_CHOICE_H

#include "verify/diff/state.h"

/* Compares the joined rows (integer arrays) and fills the discrete figures, verdict and why. keep:
 * also every row with another choice. */
DSF_MUST dsf_status dsf_choice_compare(dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                                       bool keep, dsf_diff_tap *t);
/* Integers without a margin: every element equal. */
DSF_MUST dsf_status dsf_choice_exact(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                                     dsf_diff_tap *t);

#endif
