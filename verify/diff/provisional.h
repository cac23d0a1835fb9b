/* Limits where no floor was measured: the fall-back values of verification.md 13. They find a
 * fault; they never make a run good. */
#ifndef DSF_DIFF_PROVISIONAL_H
#define DSF_DIFF_PROVISIONAL_H

#include "verify/diff/state.h"

/* Sets limits, ratio, verdict (exact, provisional or failed), beyond and why of t, and of its rows
 * ratio and over. */
void dsf_provisional_judge(const dsf_diff_state *s, dsf_tap tap, dsf_row *row, dsf_diff_tap *t);
/* The limit of a whole tap's relative L2 in a free run: 1 % at layer 1, growing with its root, at
 * most 5 %. Layers count from 0; global taps stand behind the last. */
double dsf_provisional_carried(int layer, int n_layers);

#endif
