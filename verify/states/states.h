/* The same tokens by every road: whole, in chunks, one by one, forked, rewound, with neighbours,
 * cone. All must leave the same bits: last-row logits and every cache (product.md 4,
 * architecture.md 13). */
#ifndef DSF_VERIFY_STATES_H
#define DSF_VERIFY_STATES_H

#include "base/buf.h"
#include "dsf.h"

typedef struct {
    const char *model, *variants;
    int64_t longest; /* prompt lengths 1..longest; 0: three windows */
    int threads;
    void (*progress)(const char *name, int64_t done, int64_t total);
} dsf_states_options;

#define DSF_ROAD_MAP(X)                                                                            \
    X(CHUNK1, "chunks of 1")                                                                       \
    X(CHUNK2, "chunks of 2")                                                                       \
    X(CHUNK3, "chunks of 3")                                                                       \
    X(CHUNK7, "chunks of 7")                                                                       \
    X(CHUNK_WINDOW, "chunks of one window")                                                        \
    X(DECODE, "half prefilled, the rest decoded")                                                  \
    X(FORK, "forked half-way")                                                                     \
    X(REWIND, "run on, then rewound")                                                              \
    X(RECOMPUTE, "rewound beyond the ring, recomputed")                                            \
    X(BATCH, "batched with neighbours")                                                            \
    X(CONE, "cone")                                                                                \
    X(CONE_CHUNKED, "cone in chunks of 5, then decoded on")

typedef enum {
#define X(id, text) DSF_ROAD_##id,
    DSF_ROAD_MAP(X)
#undef X
        DSF_N_ROADS
} dsf_road;

typedef struct {
    int64_t compared; /* (length, road) pairs */
    int64_t bytes;    /* cache and logit bytes compared */
    int64_t failed[DSF_N_ROADS], ran[DSF_N_ROADS];
    int64_t cone_rows_wrong; /* layers whose computed rows differ from product.md 4 */
    char first[256];         /* the first difference, in words */
} dsf_states_report;

const char *dsf_road_name(dsf_road r);
/* Opens its own engines on the model. A difference is in the report; a status is for what could not
 * run. */
DSF_MUST dsf_status dsf_states_run(const dsf_states_options *o, dsf_states_report *r);

#endif
