/* A/B: this program and another build of it, each in a process of its own that waits at every round
 * (pace.h), so that their rounds alternate: old new, new old, old new. */
#ifndef DSF_BENCH_AB_H
#define DSF_BENCH_AB_H

#include "bench.h"

typedef struct {
    const char *program; /* the other build, which is the baseline */
    char *const *argv;   /* after `dsf bench`, NULL at the end: what both measure */
    double least;        /* the least change that counts: 0.1 is 10 % */
    int pairs;           /* pairs of processes, each of which runs all cases; three times as many
                            where a change shows that these cannot tell from none */
} dsf_ab_options;

/* One line a case and one verdict over all. b->slower counts cases that are slower, in the whole or
 * in an operation of at least 5 % of it; b->refused outputs that were wrong, in either program:
 * then there is no figure. ENOTSUP: the other program cannot pace; EINVAL: it measures other
 * things. */
DSF_MUST dsf_status dsf_ab_run(dsf_bench *b, const dsf_ab_options *o);

#endif
