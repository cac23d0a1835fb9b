/* Every block that the program holds, by the place in the source that took it: what no total can
 * say, namely who. It watches the door to the heap (base/mem.h); one at a time in a process. */
#ifndef DSF_BENCH_SOAK_LEDGER_H
#define DSF_BENCH_SOAK_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dsf_ledger dsf_ledger;

/* Starts to watch: blocks that were taken before are not known. ENOMEM. */
DSF_MUST dsf_status dsf_ledger_open(dsf_ledger **out);
void dsf_ledger_close(dsf_ledger *l); /* NULL is fine */

/* hush: what is taken from now on is the observer's own and not counted. What is given back always
 * is. */
void dsf_ledger_hush(dsf_ledger *l, bool hush);

/* A stretch begins: peak and largest are of it alone; blocks taken in it carry the name (static).
 */
void dsf_ledger_mark(dsf_ledger *l, const char *phase);

typedef struct {
    const char *where; /* "engine/serve/session.c:21"; NULL: none */
    const char *phase; /* in which they were taken */
    int64_t bytes;     /* of all of them */
    int64_t blocks;
} dsf_ledger_group;

typedef struct {
    int64_t live, blocks;     /* bytes and blocks held now */
    int64_t peak;             /* most bytes held at one time in the stretch */
    int64_t taken;            /* blocks taken in the stretch, also those given back since */
    dsf_ledger_group largest; /* the largest of them */
    uint64_t serial;          /* of the next block: a point in time */
    bool lost;                /* the ledger was full once: totals are too small */
} dsf_ledger_state;
dsf_ledger_state dsf_ledger_now(const dsf_ledger *l);

/* Bytes of the block at this address; 0: none that is known. */
int64_t dsf_ledger_at(const dsf_ledger *l, const void *block);
/* Blocks held now that were taken since `serial`, by place and phase, the most bytes first. Returns
 * how many groups; out has room for n. */
int dsf_ledger_since(const dsf_ledger *l, uint64_t serial, dsf_ledger_group *out, int n);

#endif
