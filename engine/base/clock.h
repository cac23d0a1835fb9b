/* Monotonic time. */
#ifndef DSF_BASE_CLOCK_H
#define DSF_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed moment. */
int64_t dsf_clock_ns(void);

#endif
