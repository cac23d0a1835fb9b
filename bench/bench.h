/* Measurements as ratios: the machine's own limits, operations at the model's shapes, decode and
 * prefill of a model, memory against its plan. Nothing is timed before its output was checked in
 * the same run, and every figure stands beside a limit that was measured between its own runs. */
#ifndef DSF_BENCH_BENCH_H
#define DSF_BENCH_BENCH_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/pool.h"

/* --- samples (stats.c) --- */

enum { DSF_BENCH_SAMPLES = 512 };

/* The first SAMPLES values; more are dropped. */
typedef struct {
    double v[DSF_BENCH_SAMPLES];
    int n;
} dsf_samples;

void dsf_samples_add(dsf_samples *s, double v);
double dsf_samples_median(const dsf_samples *s); /* 0 when empty */
/* Half the distance between the quartiles, over the median: 0.02 is 2 %. */
double dsf_samples_spread(const dsf_samples *s);

/* --- the machine's limits (ceiling.c) --- */

typedef struct {
    dsf_pool *pool;
    uint8_t *buffer; /* far larger than the last cache */
    size_t bytes, at;
    int threads;
} dsf_ceiling;

DSF_MUST dsf_status dsf_ceiling_open(dsf_ceiling *c, dsf_pool *pool, size_t bytes);
void dsf_ceiling_close(dsf_ceiling *c);
/* One measurement each. Bytes a second of a streaming sum over the next `bytes` of the buffer. */
double dsf_ceiling_read(dsf_ceiling *c, size_t bytes);
/* Floating-point operations a second on all threads, registers only; 0 where the machine lacks the
 * instruction. */
double dsf_ceiling_bf16(dsf_ceiling *c);
double dsf_ceiling_f32(dsf_ceiling *c);

#endif
