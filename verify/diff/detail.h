/* What a report keeps of a tap beyond its figures: the wrong rows, their pattern, every row's
 * error. */
#ifndef DSF_DIFF_DETAIL_H
#define DSF_DIFF_DETAIL_H

#include "verify/diff/state.h"

/* Values: rows were judged by the gate. keep: all rows into t->row. */
DSF_MUST dsf_status dsf_detail_values(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                                      dsf_row *row, bool keep, dsf_diff_tap *t);
/* Choices: `row` has the labels, `over` on wrong ones. */
DSF_MUST dsf_status dsf_detail_choice(const dsf_diff_state *s, dsf_tap tap, const dsf_row *row,
                                      int64_t n, dsf_diff_tap *t);

#endif
