/* How N ranks share what is not on every one of them: contiguous ranges, thing i of n on rank
 * i N / n. `dsf info` prices it and `dsf plan` plans with it. */
#ifndef DSF_BASE_SHARE_H
#define DSF_BASE_SHARE_H

#include <stdint.h>

/* Things of the rank that has most. */
static inline int64_t dsf_share(int64_t n, int64_t ranks) { return (n + ranks - 1) / ranks; }

#endif
