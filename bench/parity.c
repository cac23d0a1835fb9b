#include <math.h>

#include "model.h"

static int64_t best_of(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static double log_sum(const float *row, int64_t n, float top)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)row[i] - (double)top);
    return (double)top + log(sum);
}

void dsf_parity_row(dsf_parity *p, const float *ref, const float *got, int64_t n)
{
    int64_t a = best_of(ref, n), b = best_of(got, n);
    double norm_a = log_sum(ref, n, ref[a]), norm_b = log_sum(got, n, got[b]);
    double kl = 0, squares = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)ref[i] - norm_a, y = (double)got[i] - norm_b;
        kl += exp(x) * (x - y);
        squares += (double)ref[i] * (double)ref[i];
        worst = fmax(worst, fabs((double)ref[i] - (double)got[i]));
    }
    double rms = sqrt(squares / (double)n);
    if (rms > 0) p->worst = fmax(p->worst, worst / rms);
    p->kl += kl;
    p->agree += a == b;
    p->n++;
}

bool dsf_parity_good(const dsf_parity *p)
{
    return p->n == 0 || (p->kl / p->n <= 2e-2 /* false for NaN */ && p->agree >= 0.8 * p->n);
}

void dsf_parity_json(const dsf_parity *p, dsf_buf *json)
{
    dsf_json_begin(json, "against_ref", '{');
    dsf_json_add_int(json, "rows", p->n);
    dsf_json_add_int(json, "same_best", p->agree);
    dsf_json_add_num(json, "mean_kl", p->n ? p->kl / p->n : 0);
    dsf_json_add_num(json, "worst_over_rms", p->worst);
    dsf_json_end(json, '}');
}

uint64_t dsf_parity_hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    if (h == 0) h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}
