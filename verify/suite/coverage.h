/* What a comparison with a golden file looked at: a pass that left layers, the logits or taps of
 * our own run out is none. */
#ifndef DSF_VERIFY_SUITE_COVERAGE_H
#define DSF_VERIFY_SUITE_COVERAGE_H

#include "verify/diff/diff.h"
#include "verify/suite/unit.h"

/* r: golden against an injected dump. A layer is covered when the stream that leaves it was
 * compared, or what both of its halves add to it. "Could not" for a pass that leaves layers of the
 * model's config out, except those that the golden file holds on rows of /rows_sub: nothing can be
 * injected there, suite logits compares them. Adds the coverage to the words. */
DSF_MUST dsf_status dsf_coverage_layers(const dsf_suite_unit *u, const char *golden,
                                        const dsf_diff_report *r, dsf_suite_check *c);
/* r: golden against a free run. A fail when the run did not make a tap that the file holds; "could
 * not" without logits. */
DSF_MUST dsf_status dsf_coverage_run(const char *golden, const dsf_diff_report *r,
                                     dsf_suite_check *c);

#endif
