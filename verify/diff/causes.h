/* What usually is behind a fault of this kind in this place: the traps of architecture.md 15 and of
 * the sections that define each tap, as a table. A guess with a reason, not a verdict. */
#ifndef DSF_DIFF_CAUSES_H
#define DSF_DIFF_CAUSES_H

#include "verify/diff/diff.h"

enum { DSF_CAUSES_MAX = 4 };

/* Likely causes, the ones that fit the pattern first; returns how many. */
int dsf_causes_find(dsf_tap_id id, const dsf_diff_pattern *pattern,
                    const char *out[DSF_CAUSES_MAX]);
/* "likely: ..." lines. */
void dsf_causes_print(const dsf_diff_tap *t, dsf_buf *b);
/* The array "causes" of an open JSON object. */
void dsf_causes_json(const dsf_diff_tap *t, dsf_buf *b);

#endif
