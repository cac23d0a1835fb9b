/* Two taps of which at least one is there as statistics: records of the same rows are compared by
 * their hash, bit-equal or not. How large a difference is they cannot tell (dump-schema.md 8). */
#ifndef DSF_DIFF_HASHES_H
#define DSF_DIFF_HASHES_H

#include "verify/diff/state.h"
#include "verify/diff/walk.h"

/* Fills t (started), of which `rows` is 0 where neither side has a row. ECORRUPT: records that do
 * not count what their labels say. */
DSF_MUST dsf_status dsf_hashes_compare(const dsf_diff_state *s, const dsf_walk_item *x,
                                       const dsf_diff_options *o, dsf_diff_tap *t);

/* Relative difference of the rms of the first block that differs; NaN where the reference has none.
 */
double dsf_hashes_rms(const dsf_diff_blocks *k);
/* "hash A here B, rms ..." of the first block that differs. */
void dsf_hashes_figures(char *out, size_t size, const dsf_diff_tap *t);
/* The object "blocks" of an open JSON object. */
void dsf_hashes_json(const dsf_diff_tap *t, dsf_buf *b);

#endif
