/* The lengths of a soak: where something in the model changes, and their neighbours. */
#ifndef DSF_BENCH_SOAK_LADDER_H
#define DSF_BENCH_SOAK_LADDER_H

#include <stdint.h>

#include "base/status.h"

enum { DSF_LADDER_RUNGS = 256, DSF_LADDER_SMALL = 512 };

typedef struct {
    int64_t length[DSF_LADDER_RUNGS]; /* ascending, each once */
    int n;
} dsf_ladder;

/* 1, the window and its neighbours, 127 to 129, powers of two from 128 and their neighbours, each
 * up to DSF_LADDER_SMALL also at every remainder modulo `ratio` (the largest compression ratio);
 * all at most `to`, which is the last. EINVAL: to < 1. */
DSF_MUST dsf_status dsf_ladder_default(dsf_ladder *l, int64_t to, int64_t window, int64_t ratio);
/* These lengths, sorted, each once. EINVAL: one outside 1..to, too many. */
DSF_MUST dsf_status dsf_ladder_of(dsf_ladder *l, const int64_t *length, int n, int64_t to);

#endif
