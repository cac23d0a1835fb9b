/* The verdict over a whole report, in one line. */
#ifndef DSF_DIFF_VERDICT_H
#define DSF_DIFF_VERDICT_H

#include "verify/diff/floor.h"
#include "verify/diff/walk.h"

/* Fills first, worst, good, verdict and notes from the taps. */
void dsf_verdict_conclude(dsf_diff_report *r, const dsf_walk *w, const dsf_diff_options *o,
                          const dsf_dump_info *ours, const dsf_floor *floor);

#endif
