/* What decode, prefill and memory share: runs of an engine, the division of a pass into its
 * operations, and the check of its output. */
#ifndef DSF_BENCH_MODEL_H
#define DSF_BENCH_MODEL_H

#include "bench.h"
#include "serve/engine.h"

/* --- division.c: where the time of passes goes --- */

enum { DSF_DIVISION_ROWS = 96 };

typedef struct {
    const char *op, *variant;
    int steps; /* of the plan that ran */
    double ns, bytes, flops;
} dsf_division_part;

typedef struct {
    dsf_division_part part[DSF_DIVISION_ROWS];
    int n, passes;
    double wall_ns, bytes, flops; /* of all passes */
} dsf_division;

/* The part that a step belongs to, made when it is the first of its operation and variant. */
dsf_division_part *dsf_division_of(dsf_division *d, const dsf_step *s);
/* What a step of the last pass costs, by the shapes of its views alone: its early data has been
 * written over since. Experts count as if every pair had its own, as far as they go. positions: of
 * index keys those that are visible there, not all that there is room for (0: all). */
dsf_cost dsf_division_cost(const dsf_plan *p, const dsf_step *s, int64_t positions);
/* Largest part first. */
void dsf_division_sort(dsf_division *d);
/* Takes the times and costs of the pass that e has just run, and resets its timers. */
void dsf_division_add(dsf_division *d, dsf_engine *e, double wall_ns);
void dsf_division_reset(dsf_engine *e);
/* Share of the wall time that no step has, in percent. */
double dsf_division_outside(const dsf_division *d);
/* The operations do not add up to their passes: more than 5 % lies outside, and more than a pass
 * costs by itself (0.1 ms: queues, rows laid out), of which a short one may consist. Says so in
 * text. */
bool dsf_division_lacks(const dsf_division *d, dsf_buf *text);
/* Largest first, for one token of `tokens`; l gives each part's share of its own limit; NULL: none.
 */
void dsf_division_json(const dsf_division *d, const dsf_limits *l, double tokens, dsf_buf *json);
void dsf_division_text(const dsf_division *d, const dsf_limits *l, double tokens, dsf_buf *text);

/* --- parity.c: the same output as a run that nobody timed, and as the reference --- */

typedef struct {
    int n, agree;     /* rows compared; rows with the same best id */
    double kl, worst; /* sum of KL(ref || got); largest difference of a logit over the row's rms */
} dsf_parity;

void dsf_parity_row(dsf_parity *p, const float *ref, const float *got, int64_t n);
/* The gate of verification: mean KL at most 2e-2, best ids equal in 80 % of the rows. */
bool dsf_parity_good(const dsf_parity *p);
void dsf_parity_json(const dsf_parity *p, dsf_buf *json);
/* FNV-1a over n bytes, continuing from h (0: start). */
uint64_t dsf_parity_hash(uint64_t h, const void *data, size_t n);

/* --- runs.c --- */

/* A prompt without repetition: ids from `seed`, none of them special. [n], dsf_mem_free. */
DSF_MUST dsf_status dsf_bench_prompt(int32_t **ids, int64_t n, int64_t vocab, uint64_t seed);
/* Feeds and runs ids until none is queued; d may be NULL. Adds the wall time to *ns. */
DSF_MUST dsf_status dsf_bench_feed(dsf_session *s, const int32_t *ids, int64_t n, dsf_division *d,
                                   double *ns);
/* One pass, or as many as it takes, for ids[i] in session i of n. */
DSF_MUST dsf_status dsf_bench_feed_all(dsf_session *const *s, const int32_t *ids, int n,
                                       dsf_division *d, double *ns);
/* Gives an empty session of one engine the state of a session of another one with equal caches: the
 * reference is too slow to compute a prompt, but can go on from one. */
DSF_MUST dsf_status dsf_bench_adopt(dsf_session *to, const dsf_session *from);
/* The next id at temperature 1 and a fixed seed. work: [vocab]. */
DSF_MUST dsf_status dsf_bench_next(const dsf_session *s, float *work, int32_t *id);
/* Name, sizes, context, chunk, prefill mode and variants of an engine. */
void dsf_bench_describe(const dsf_engine *e, dsf_buf *json);
/* The weights stay in the last cache: what the memory can do is no limit then. */
bool dsf_bench_cached(const dsf_bench *b, const dsf_engine *e);
/* Emits a line in place of a figure whose output is wrong. */
DSF_MUST dsf_status dsf_bench_refuse(dsf_bench *b, const char *what, const char *why,
                                     dsf_buf *json);

#endif
