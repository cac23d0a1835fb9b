/* Two builds measured in alternation, judged by the ratios of neighbouring rounds: what the machine
 * does to both alike falls out of them. What a process keeps for its life (where its pages lie)
 * does not; so several pairs of processes are started, and each pair is one sample. */
#ifndef DSF_BENCH_PAIRED_H
#define DSF_BENCH_PAIRED_H

#include "bench.h"

/* One thing that both were timed at: the whole of a case, or one operation of it. */
typedef struct {
    char name[96];     /* "attn:avx512"; of a whole "" */
    dsf_samples round; /* log of new over old time, of the pair of processes at hand */
    dsf_samples pair;  /* their medians: one each pair of processes */
    double ns[2];      /* sums over all rounds: old, new */
    int rounds;
} dsf_paired;

typedef enum { DSF_PAIRED_SAME, DSF_PAIRED_FASTER, DSF_PAIRED_SLOWER } dsf_paired_verdict;

typedef struct {
    dsf_paired_verdict verdict;
    double ratio, interval[2]; /* of new over old: median, and 95 % of its bootstrap */
    bool resolved;             /* the interval is narrow enough to tell the least change */
    bool open; /* changed by half of `least` or more, and not surely: more pairs would tell */
} dsf_paired_judgement;

void dsf_paired_add(dsf_paired *p, double old_ns, double new_ns);
/* A pair of processes has ended: its rounds become one sample. */
void dsf_paired_close(dsf_paired *p);
/* Slower or faster: the median has changed by more than `least` (0.1: 10 %), and its interval lies
 * beyond half of that, so it excludes 1. */
dsf_paired_judgement dsf_paired_judge(const dsf_paired *p, double least);
/* "no difference", "faster", "slower". */
const char *dsf_paired_words(dsf_paired_verdict v);

#endif
