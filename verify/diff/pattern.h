/* Where the wrong elements of a tap lie: which rows and which channels (verification.md 17, 6). The
 * pattern tells a wrong weight from a wrong window, a wrong owner from a wrong layout. */
#ifndef DSF_DIFF_PATTERN_H
#define DSF_DIFF_PATTERN_H

#include "verify/diff/metrics.h"
#include "verify/diff/state.h"

/* Judges which rows are wrong (wrong[n], 1 or 0) and where in them, and writes kind and words. row:
 * figures of the joined rows; j: their values, or for choices NULL. */
DSF_MUST dsf_status dsf_pattern_find(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                                     const dsf_row *row, int64_t n, const uint8_t *wrong,
                                     dsf_diff_pattern *out);
/* "rows 129-131, 140" of the labels marked, at most `size` characters. */
void dsf_pattern_rows(char *out, size_t size, const dsf_row *row, int64_t n, const uint8_t *wrong);

#endif
