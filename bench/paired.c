#include "paired.h"

#include <math.h>

void dsf_paired_add(dsf_paired *p, double old_ns, double new_ns)
{
    if (!(old_ns > 0) || !(new_ns > 0)) return;
    dsf_samples_add(&p->round, log(new_ns / old_ns));
    p->ns[0] += old_ns;
    p->ns[1] += new_ns;
    p->rounds++;
}

void dsf_paired_close(dsf_paired *p)
{
    if (p->round.n) dsf_samples_add(&p->pair, dsf_samples_median(&p->round));
    p->round.n = 0;
}

dsf_paired_judgement dsf_paired_judge(const dsf_paired *p, double least)
{
    double log_interval[2], change = dsf_samples_median(&p->pair), bound = log1p(least);
    dsf_samples_interval(&p->pair, 0.95, log_interval);
    dsf_paired_judgement j = {.ratio = exp(change),
                              .interval = {exp(log_interval[0]), exp(log_interval[1])},
                              .resolved = log_interval[1] - log_interval[0] <= 2 * bound};
    if (log_interval[0] > bound / 2 && change > bound) j.verdict = DSF_PAIRED_SLOWER;
    if (log_interval[1] < -bound / 2 && change < -bound) j.verdict = DSF_PAIRED_FASTER;
    j.open = fabs(change) > bound / 2 && !(j.verdict != DSF_PAIRED_SAME && j.resolved) &&
             fmax(fabs(log_interval[0]), fabs(log_interval[1])) > bound;
    return j;
}

const char *dsf_paired_words(dsf_paired_verdict v)
{
    static const char *const words[] = {"no difference", "faster", "slower"};
    return words[v];
}
