/* The verdict over a whole report, in one line. */
#ifndef DSF_DIFF_VERDICT_H
#define DSF_DIFF_VERDICT_H

#include "verify/diff/state.h"
#include "verify/diff/walk.h"

/* Fills first, worst, good, sentence, verdict and notes from the taps, and of every tap the ratio
 * of its inputs. */
void dsf_verdict_conclude(dsf_diff_report *r, const dsf_walk *w, const dsf_diff_options *o,
                          const dsf_diff_state *s);

#endif
