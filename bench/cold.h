/* The page cache: emptied of a file, and how much of one it holds. */
#ifndef DSF_BENCH_COLD_H
#define DSF_BENCH_COLD_H

#include <stddef.h>

#include "base/status.h"

/* A figure of a cold run stands while no more than this share was in the cache before it. */
static const double dsf_cold_most = 0.02;

/* Writes the file's pages out and asks the kernel to forget them; pages that somebody maps stay.
 * EIO. */
DSF_MUST dsf_status dsf_cold_drop(const char *path);
/* Takes n mapped bytes out of this process's tables, so that they can be dropped; they come back
 * when they are touched. data, n: any part of a read-only map. */
void dsf_cold_unmap(const void *data, size_t n);
/* Share of the pages of n mapped bytes that the cache holds, 0 to 1; 1 when it cannot be told. */
double dsf_cold_resident(const void *data, size_t n);

#endif
