/* dsf soak: long prefills and many equal cycles, with memory sampled at each phase, and a verdict:
 * is what is taken what was planned, is a margin left, does nothing creep, is the output the same
 * to the end. */
#ifndef DSF_BENCH_SOAK_SOAK_H
#define DSF_BENCH_SOAK_SOAK_H

#include "bench/bench.h"

enum { DSF_SOAK_CHUNKS = 8, DSF_SOAK_CYCLES = 4096, DSF_SOAK_WARM = 3, DSF_SOAK_LEAST_AT = 32 };

typedef struct {
    dsf_options engine;    /* context, chunk and slots are the soak's own */
    int64_t to;            /* longest prompt */
    const int64_t *ladder; /* prompt lengths; NULL: the default ladder to `to` */
    int n_ladder;
    const int64_t *chunk; /* chunk sizes, each a run of the ladder */
    int n_chunks;
    int64_t cycles, at;    /* equal cycles after the warm ones, on a context of `at`; 0: none */
    double minutes;        /* cycles go on until so many minutes are over; 0: no such wish */
    int64_t margin;        /* bytes that must be left at the highest point */
    int64_t guard;         /* the run stops before the machine has less than this to give */
    uint64_t seed;         /* of the prompt */
    const char *plant;     /* NULL, "temporary", "leak" or "plan": a fault to be found */
    const char *synthetic; /* a device: these layers, weights made there; NULL: a model */
    int64_t engram_vocab;  /* with synthetic */
    bool (*stop)(void);    /* asked between passes; NULL: never */
} dsf_soak_options;

typedef enum { DSF_SOAK_PASSED, DSF_SOAK_FAILED, DSF_SOAK_STOPPED } dsf_soak_answer;

/* Lines and rows of the table go to b->out; a text of NULL: no row of the table. EINVAL: what can
 * never be met (lengths beyond the model, a margin beyond the machine), before anything is run.
 * STOPPED: on request, with what was measured till then and no fault in it. */
DSF_MUST dsf_status dsf_soak_run(dsf_bench *b, const dsf_soak_options *o, dsf_soak_answer *answer);

#endif
