#include "verify/diff/logits.h"

#include <math.h>

static int64_t best_of(const float *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    return best;
}

/* log of the sum of exp(v - v[best]). */
static double log_sum(const float *v, int64_t n, int64_t best)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)v[i] - (double)v[best]);
    return log(sum);
}

static double divergence(const float *p, const float *q, int64_t n)
{
    int64_t bp = best_of(p, n), bq = best_of(q, n);
    double lp = log_sum(p, n, bp), lq = log_sum(q, n, bq), kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double a = (double)p[i] - (double)p[bp] - lp, b = (double)q[i] - (double)q[bq] - lq;
        kl += exp(a) * (a - b);
    }
    return kl > 0.0 ? kl : 0.0; /* it is not negative; its rounding may be */
}

/* Gaps are those of the reference, in nats: 0.125 and rank 2 is a tie, up to 0.5 a warning. */
static void judge_best(const float *p, int64_t n, int64_t ours, dsf_diff_logits *out)
{
    int64_t best = best_of(p, n), above = 0;
    if (ours == best) return;
    for (int64_t i = 0; i < n; i++) above += p[i] > p[ours];
    double gap = (double)p[best] - (double)p[ours];
    if (gap <= 0.125 && above <= 1)
        out->ties++;
    else if (gap <= 0.5)
        out->warned++;
    else
        out->wrong++;
}

void dsf_logits_compare(const dsf_joined *j, const dsf_row *row, dsf_diff_logits *out)
{
    *out = (dsf_diff_logits){.present = true, .kl_max_row = -1};
    double sum = 0.0;
    int64_t same = 0;
    for (int64_t i = 0; i < j->n; i++) {
        const float *p = j->a->f + j->pair[2 * i] * j->a->width;
        const float *q = j->b->f + j->pair[2 * i + 1] * j->b->width;
        if (row[i].status == DSF_ROW_REPORTED) continue;
        double kl = divergence(p, q, j->width);
        out->rows++;
        sum += kl;
        if (!(kl <= out->kl_max)) {
            out->kl_max = kl;
            out->kl_max_row = row[i].label;
        }
        int64_t ours = best_of(q, j->width);
        same += ours == best_of(p, j->width);
        judge_best(p, j->width, ours, out);
    }
    out->kl_mean = out->rows ? sum / (double)out->rows : 0.0;
    out->top1 = out->rows ? (double)same / (double)out->rows : 1.0;
}
