/* The error budget (verification.md 11): what the measured noise of single layers makes of a whole
 * run. Roundings are independent, so what layer l adds arrives at layer k grown by a measured
 * factor, and arrivals add in squares. */
#ifndef DSF_DIFF_BUDGET_H
#define DSF_DIFF_BUDGET_H

#include "verify/diff/diff.h"
#include "verify/diff/floor.h"

/* sqrt of the sum over l of (growth[l] local[l])^2. */
double dsf_budget_combine(const double *local, const double *growth, int n);
/* Fills r->budget from the compared streams, where the floor holds both modes by layer. */
DSF_MUST dsf_status dsf_budget_make(dsf_diff_report *r, const dsf_floor *f,
                                    const dsf_dump_geometry *g);

#endif
