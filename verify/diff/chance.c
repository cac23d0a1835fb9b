#include "verify/diff/chance.h"

#include <math.h>

/* z with P(Z > z) = alpha, by halving: 60 steps are exact enough for any use here. */
static double normal_quantile(double alpha)
{
    double low = -40.0, high = 40.0;
    for (int i = 0; i < 60; i++) {
        double z = 0.5 * (low + high);
        if (0.5 * erfc(z / sqrt(2.0)) > alpha)
            low = z;
        else
            high = z;
    }
    return high;
}

int64_t dsf_chance_poisson(double mean, double alpha)
{
    if (!(mean > 0.0)) return 0;
    if (mean > 1e4) { /* third-order expansion; its error is far below one count here */
        double z = normal_quantile(alpha);
        return (int64_t)ceil(mean + z * sqrt(mean) + (z * z + 2.0) / 6.0);
    }
    /* The tail above k, summed from far above downwards so that small terms are not lost. */
    int64_t k = (int64_t)(mean + 12.0 * sqrt(mean) + 64.0);
    double tail = 0.0;
    while (k > 0) {
        tail += exp((double)k * log(mean) - mean - lgamma((double)k + 1.0));
        if (tail > alpha) return k;
        k--;
    }
    return 0;
}

double dsf_chance_binomial(int64_t n, int64_t k, double p)
{
    if (k <= 0) return 1.0;
    if (k > n || p <= 0.0) return 0.0;
    if (p >= 1.0) return 1.0;
    double sum = 0.0, all = lgamma((double)n + 1.0);
    for (int64_t i = k; i <= n; i++) {
        double term = exp(all - lgamma((double)i + 1.0) - lgamma((double)(n - i) + 1.0) +
                          (double)i * log(p) + (double)(n - i) * log1p(-p));
        sum += term;
        if (i > (int64_t)((double)n * p) && term < 1e-18 * sum) break;
    }
    return sum < 1.0 ? sum : 1.0;
}
