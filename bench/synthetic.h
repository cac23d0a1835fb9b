/* Layers of the released model with synthetic weights on a GPU: what decode and prefill at depth
 * are measured on when the checkpoint is not at hand or does not fit. */
#ifndef DSF_BENCH_SYNTHETIC_H
#define DSF_BENCH_SYNTHETIC_H

#include "device_bench.h"
#include "limits.h"
#include "model.h"
#include "synthetic_config.h"

typedef struct {
    dsf_bench_device d;
    dsf_config whole; /* the released schedule */
    int layer[DSF_MAX_LAYERS];
    struct dsf_synthetic synthetic; /* the layers kept */
    dsf_engine *engine;
    dsf_session **session; /* opts.slots of them */
    int64_t *step_ns;      /* the engine's timers, which run only where it is told */
} dsf_bench_synthetic;

/* layers: "0-17" or "0-3,8,14,20". */
DSF_MUST dsf_status dsf_synthetic_open(dsf_bench_synthetic *s, dsf_bench *b,
                                       const dsf_bench_synthetic_options *o,
                                       const dsf_options *engine);
void dsf_synthetic_close(dsf_bench_synthetic *s);

/* Valid random records in every cache, the same for the same seed. */
DSF_MUST dsf_status dsf_synthetic_fill(dsf_bench_synthetic *s, uint64_t seed);
/* Session i stands at position n, as if it had computed all before. */
void dsf_synthetic_at(dsf_bench_synthetic *s, int i, int64_t n);
/* One pass of the first n sessions' queued tokens, and the microseconds of the device and of the
 * wall. timed: the engine's timers run. Either may be NULL. */
DSF_MUST dsf_status dsf_synthetic_step(dsf_bench_synthetic *s, int n, bool timed, double *device_us,
                                       double *wall_us);

/* The captured pass that the last step replayed, again, without the copies around it: microseconds
 * of the device, mean of `times`. */
DSF_MUST dsf_status dsf_synthetic_replay(dsf_bench_synthetic *s, int times, double *us);
/* Queues the token at hand of session i, or `count` of them. */
DSF_MUST dsf_status dsf_synthetic_feed(dsf_bench_synthetic *s, int i, int64_t count);
/* FNV-1a over the logits of the first n sessions, continued from *hash; EINVAL where one is no
 * number. */
DSF_MUST dsf_status dsf_synthetic_hash(const dsf_bench_synthetic *s, int n, uint64_t *hash);

/* --- where the time of timed passes went --- */

/* Of one layer or operation, sums over all timed passes. */
typedef struct {
    double us;
    int64_t steps;
} dsf_synthetic_time;

typedef struct {
    dsf_synthetic_time layer[DSF_MAX_LAYERS], outside, all; /* outside: embedding, head */
    dsf_division ops;
    int passes;
} dsf_synthetic_times;

/* Microseconds a pass of this part when the whole pass takes total_us. Steps timed one by one wait
 * for the host in between: what their sum has too much is the same for each step. */
double dsf_synthetic_part(const dsf_synthetic_times *t, dsf_synthetic_time part, double total_us);

/* Adds the pass that has just been timed, and resets the timers. */
void dsf_synthetic_add(dsf_bench_synthetic *s, dsf_synthetic_times *t);
/* "layers": [{"layer", "kind", "us", "steps"}], "outside_us" and "operations": [...]. */
void dsf_synthetic_json(const dsf_bench_synthetic *s, const dsf_synthetic_times *t, double total_us,
                        dsf_buf *json);
/* The operations that take most, as lines of text. */
void dsf_synthetic_text(const dsf_synthetic_times *t, double total_us, dsf_buf *text);
/* Config, layers, weights, memory of the device: the same for every line. */
void dsf_synthetic_describe(const dsf_bench_synthetic *s, dsf_buf *json);
/* Times of the layers scaled to layers from..to of the whole model. */
double dsf_synthetic_scale(const dsf_bench_synthetic *s, const dsf_synthetic_times *t,
                           double total_us, int from, int to, int *missing);

#endif
