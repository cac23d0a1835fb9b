/* Tails of the two distributions that turn a measured rate into an allowed count. */
#ifndef DSF_DIFF_CHANCE_H
#define DSF_DIFF_CHANCE_H

#include <stdint.h>

/* The least k with P(X > k) <= alpha, X Poisson of mean `mean` >= 0; 0 for mean 0. */
int64_t dsf_chance_poisson(double mean, double alpha);
/* P(X >= k), X binomial (n, p). */
double dsf_chance_binomial(int64_t n, int64_t k, double p);

#endif
