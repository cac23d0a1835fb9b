/* A fixed pool of worker threads. Work is split by item, never by thread count, so that more
 * threads change the time only. */
#ifndef DSF_BASE_POOL_H
#define DSF_BASE_POOL_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dsf_pool dsf_pool;
/* item: 0..n-1; worker: 0..threads-1, for per-worker scratch only. */
typedef void dsf_pool_fn(void *arg, int64_t item, int worker);

/* threads >= 1 in all; the caller is worker 0 and works too. */
DSF_MUST dsf_status dsf_pool_open(dsf_pool **out, int threads);
void dsf_pool_close(dsf_pool *p);        /* NULL is fine */
int dsf_pool_threads(const dsf_pool *p); /* 1 for NULL */
/* Runs fn for every item and returns when all are done. One caller at a time. NULL pool: in this
 * thread. */
void dsf_pool_run(dsf_pool *p, int64_t n, dsf_pool_fn *fn, void *arg);
/* Processors that this process may use. */
int dsf_pool_processors(void);

#ifdef __cplusplus
}
#endif
#endif
