/* Earlier measurements, as --json-out wrote them, to compare with. */
#ifndef DSF_BENCH_BASELINE_H
#define DSF_BENCH_BASELINE_H

#include <stddef.h>

#include "base/status.h"

typedef struct dsf_baseline dsf_baseline;

typedef enum {
    DSF_CMP_ABSENT,
    DSF_CMP_SAME,
    DSF_CMP_FASTER,
    DSF_CMP_SLOWER,
    DSF_CMP_MACHINE
} dsf_comparison;

/* In percent of the earlier time; control: of the reference's time, NAN where it was not run. */
typedef struct {
    dsf_comparison verdict;
    double change, noise, control;
    int line; /* of the baseline's text, from 1, that it was held against; 0: none */
} dsf_judgement;

/* text: JSON lines. ECORRUPT: not JSON, or none. */
DSF_MUST dsf_status dsf_baseline_open(dsf_baseline **out, const char *name, const char *text,
                                      size_t n);
void dsf_baseline_close(dsf_baseline *b); /* NULL is fine */
/* A measurement's line against the line of the same thing, sizes and machine. */
dsf_comparison dsf_baseline_judge(const dsf_baseline *b, const char *line, dsf_judgement *j);
const char *dsf_comparison_words(dsf_comparison v);

#endif
