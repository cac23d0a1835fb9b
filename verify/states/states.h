/* The same tokens by every road: whole, in chunks, one by one, forked, rewound, with neighbours,
 * cone. All must leave the same bits: last-row logits and every cache (product.md 4,
 * architecture.md 13). */
#ifndef DSF_VERIFY_STATES_H
#define DSF_VERIFY_STATES_H

#include "base/buf.h"
#include "dsf.h"
#include "model/config.h"

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
/* The live part of every cache of a session's slot, laid end to end; out: room for all caches
 * (plan->cache_bytes). Adds to *bytes. */
DSF_MUST dsf_status dsf_states_caches(const dsf_session *s, uint8_t *out, int64_t *bytes);

/* Tokens after which a part of the model first acts otherwise: the window is full, the ring wraps,
 * the selection leaves entries out, positions pass what rope was trained on. */
typedef struct {
    char name[32];
    int64_t at; /* tokens */
} dsf_limit;
enum { DSF_LIMITS_MOST = 16 };
/* In list[DSF_LIMITS_MOST]; returns how many. rewind: positions that the ring keeps beyond the
 * window. */
int dsf_states_limits(const dsf_config *c, int64_t rewind, dsf_limit *list);

/* One prompt in passes of three sizes: every row of logits and, at the end, every cache, by hash.
 */
enum { DSF_CHUNK_SIZES = 3 };
typedef struct {
    const char *model, *variants;
    int64_t tokens; /* 0: by the size of the model */
    int threads;
} dsf_chunks_options;

typedef struct {
    int64_t tokens, chunk[DSF_CHUNK_SIZES];
    uint64_t logits[DSF_CHUNK_SIZES], caches[DSF_CHUNK_SIZES]; /* hashes */
    int64_t rows;        /* rows of logits compared, over the second and third size */
    int64_t cache_bytes; /* of each state */
    int64_t failed;      /* rows and states that differ from those of the first size */
    int64_t first;       /* position of the first such row; -1: none */
    dsf_limit limit[DSF_LIMITS_MOST];
    int n_limits;
} dsf_chunks_report;

/* EINVAL: more tokens than the model's positions. */
DSF_MUST dsf_status dsf_chunks_run(const dsf_chunks_options *o, dsf_chunks_report *r);
/* Opens its own engines on the model. A difference is in the report; a status is for what could not
 * run. */
DSF_MUST dsf_status dsf_states_run(const dsf_states_options *o, dsf_states_report *r);

#endif
