/* Limits and verdict of one tap of values: derived from measured noise, never from the candidate.
 *
 * A count or a maximum that was measured on a small sample is itself a chance result. A tap in
 * which no rounding flipped in six runs may show one flip in the seventh; a row whose few flips hit
 * small elements says little about a flip of a large one. So:
 *  - the worst row may exceed 4 x the published maximum by one rounding step at its largest
 * element;
 *  - the number of changed elements may reach the upper Poisson quantile at the largest published
 *    rate of its kind of tap: bursts of whole rows (a changed scale moves all of a row) count as
 * one event of `width` elements;
 *  - rows behind a tap that already differs are held to the noise of all sets, not to that of this
 *    prompt, in which perhaps nothing had flipped before them;
 *  - a class of rows (inside the window, beyond it, t mod ratio, one expert) fails when most of its
 *    rows differ and chance at the rate of the other rows does not explain it.
 * The chance of each count is 1 % over the number of counts of the report (Bonferroni). Kinds that
 * were bit-equal in every run have rate zero and stay exact. */
#ifndef DSF_DIFF_GATE_H
#define DSF_DIFF_GATE_H

#include "verify/diff/state.h"

/* Sets limits, ratio, verdict, beyond and why of t, ratio and over of its rows. */
DSF_MUST dsf_status dsf_gate_values(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                                    dsf_row *row, dsf_diff_tap *t);
/* Counts of a report for the Bonferroni correction: the whole tap, and its classes. */
enum { DSF_GATE_COUNTS = 8 };

#endif
