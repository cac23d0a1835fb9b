/* Statistics of row blocks: what `dump --stats` keeps of a tap (dump-schema.md 8), and the same
 * from rows read back. */
#ifndef DSF_DUMP_STATS_H
#define DSF_DUMP_STATS_H

#include "verify/dump/types.h"

/* Rows that one record covers: rows 0..63 of a tap, 64..127, ..., by index. */
enum { DSF_DUMP_STATS_ROWS = 64 };

/* One record. min, max, mean, rms: over the finite values; 0 when there is none. The sums behind
 * them are made in a fixed order, so that equal rows give equal bits on every machine. */
typedef struct {
    uint64_t count, nan, inf;
    double min, max, mean, rms;
    uint64_t hash; /* xxh3-64 of the stored bytes of the rows */
} dsf_dump_stat;

/* A block of rows being counted. */
typedef struct dsf_dump_block dsf_dump_block;

DSF_MUST dsf_status dsf_stats_open(dsf_dump_block **out);
void dsf_stats_close(dsf_dump_block *b); /* NULL is fine */
/* Adds n stored elements of a row (any part of it, in order). */
void dsf_stats_add(dsf_dump_block *b, dsf_dump_kind kind, const void *data, int64_t n);
/* The record of what was added since the last one. */
dsf_dump_stat dsf_stats_take(dsf_dump_block *b);
/* xxh3-64 of n bytes, for whoever else needs a hash here. */
uint64_t dsf_stats_hash(const void *data, size_t n, uint64_t seed);

#endif
