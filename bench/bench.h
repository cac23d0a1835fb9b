/* Measurements as ratios: the machine's own limits, operations at the model's shapes, decode and
 * prefill of a model, memory against its plan. Nothing is timed before its output was checked in
 * the same run, and every figure stands beside a limit that was measured between its own runs. */
#ifndef DSF_BENCH_BENCH_H
#define DSF_BENCH_BENCH_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/pool.h"
#include "baseline.h"
#include "dsf.h"
#include "op.h"

/* --- samples (stats.c) --- */

enum {
    DSF_BENCH_SAMPLES = 2048,
    DSF_WARMUPS_MOST = 24,
    DSF_WARMUPS_PACED = 4 /* rounds of a comparison are many and judged in pairs */
};

/* The first SAMPLES values; more are dropped. */
typedef struct {
    double v[DSF_BENCH_SAMPLES];
    int n;
} dsf_samples;

void dsf_samples_add(dsf_samples *s, double v);
/* Value at fraction q of the sorted samples, between neighbours in proportion; 0 when empty. */
double dsf_samples_at(const dsf_samples *s, double q);
double dsf_samples_median(const dsf_samples *s); /* 0 when empty */
/* Half the distance between the quartiles, over the median: 0.02 is 2 %. */
double dsf_samples_spread(const dsf_samples *s);
double dsf_samples_mean(const dsf_samples *s);
double dsf_samples_sd(const dsf_samples *s); /* of a sample (n - 1); NAN below two */
/* Bootstrap interval of the median: what `level` of the medians of 1000 redrawn samples lie
 * between. The draws have a fixed seed; NAN below two samples. */
void dsf_samples_interval(const dsf_samples *s, double level, double out[2]);
/* Enough samples for the percentile at fraction p: ten beyond it. */
bool dsf_samples_tell(const dsf_samples *s, double p);

/* Runs before the first timed one, until two in succession differ by less than 1 % or there were
 * DSF_WARMUPS_MOST of them. The first is told apart: it maps, faults in and fills caches. */
typedef struct {
    int most; /* 0: DSF_WARMUPS_MOST */
    int runs;
    bool settled;
    double first, last; /* ns */
} dsf_warmup;
/* Takes a run's time; true: one more is wanted. Start from zeros. */
bool dsf_warmup_more(dsf_warmup *w, double ns);

/* --- the machine's limits (ceiling.c) --- */

typedef struct {
    dsf_pool *pool;
    uint8_t *buffer; /* far larger than the last cache */
    size_t bytes, at;
    int threads;
    bool avx512; /* asked once: in a virtual machine the question costs as much as an item */
} dsf_ceiling;

DSF_MUST dsf_status dsf_ceiling_open(dsf_ceiling *c, dsf_pool *pool, size_t bytes);
void dsf_ceiling_close(dsf_ceiling *c);
/* Processor time of all threads of this process so far; exact over many clock ticks only. */
int64_t dsf_processor_ns(void);
/* One measurement each. Bytes a second of a streaming sum over the next `bytes` of the buffer. */
double dsf_ceiling_read(dsf_ceiling *c, size_t bytes);
/* Floating-point operations a second on all threads, registers only, for about `ms`
 * milliseconds; 0 where the machine lacks the instruction. */
double dsf_ceiling_bf16(dsf_ceiling *c, int ms);
double dsf_ceiling_f32(dsf_ceiling *c, int ms);

/* --- a session of measurements (session.c) --- */

typedef struct {
    char machine[96]; /* model name of the processor */
    char commit[64];  /* of the source tree that we stand in, or "unknown" */
    int processors, threads;
    int64_t last_cache; /* bytes; 0: unknown */
} dsf_host;

/* Takes one finished measurement: a JSON object on one line, and a row of the table. json NULL: a
 * heading of the table. */
typedef struct {
    void (*line)(void *ud, const char *json, const char *text);
    void (*progress)(void *ud, const char *name, int64_t done, int64_t total);
    void *ud;
} dsf_bench_out;

typedef struct {
    dsf_host host;
    dsf_pool *pool;
    dsf_ceiling ceiling;
    dsf_bench_out out;
    const char *conditions; /* free words of the caller; NULL: none */
    dsf_baseline *baseline; /* to compare with, owned by the caller; NULL: none */
    int repeat;             /* rounds of each measurement */
    bool paced;          /* another process starts the rounds (pace.h); limits are not measured */
    int refused, missed; /* figures refused for a wrong output; limits missed (memory, sums) */
    int slower;          /* than the baseline */
} dsf_bench;

/* threads 0: all processors. buffer: bytes that the read rate is measured on. */
DSF_MUST dsf_status dsf_bench_open(dsf_bench *b, int threads, size_t buffer);
void dsf_bench_close(dsf_bench *b);

/* A JSON line begins with what every line has: the kind, machine, commit, threads, load. */
void dsf_bench_begin(const dsf_bench *b, dsf_buf *json, const char *kind);
/* The same after the line's first key: who measured. */
void dsf_bench_host(const dsf_bench *b, dsf_buf *json);
/* {"median": m, "spread": s, "n": n} times scale. */
void dsf_bench_sample(dsf_buf *json, const char *key, const dsf_samples *s, double scale);
/* The members of a line that tell how sure its main figure is, times scale: "interval" (95 %),
 * "sd", "cv_percent", "noisy" (above 2 %), "min", "max", percentiles where there are samples enough
 * for them; w (may be NULL): "warmups", "settled", "first_ns". */
void dsf_bench_stats(dsf_buf *json, const dsf_samples *s, double scale, const dsf_warmup *w);
/* What a table says of that: " unsettled", " noisy". */
void dsf_bench_flags(dsf_buf *text, const dsf_samples *s, const dsf_warmup *w);
/* What every row of the host says beside its own: weights, batch, context; negative: null. Driver,
 * graphs and the share of a physical limit are null: a GPU's rows have them. */
void dsf_bench_row(dsf_buf *json, const char *weights, int64_t batch, int64_t context);
/* "output_hash": 16 hexadecimal digits. */
void dsf_bench_hash(dsf_buf *json, const char *key, uint64_t hash);
/* Ends the line and hands both out. */
DSF_MUST dsf_status dsf_bench_emit(dsf_bench *b, dsf_buf *json, dsf_buf *text);
void dsf_bench_heading(dsf_bench *b, const char *text);

/* The limits between whose measurements the runs of one figure lie. */
typedef struct {
    dsf_samples read, bf16, f32;  /* bytes and operations a second */
    double wall_ns, processor_ns; /* of these measurements, on all threads */
} dsf_limits;

/* Measures all three once, adds them to the samples, and returns the rate, in 1/ns, at which this
 * machine could do something of this cost, by the numbers of this moment. span_ns: length of the
 * runs beside it; the limits take as long (up to a bound), so that a busy machine interrupts both
 * alike. */
double dsf_limits_take(dsf_bench *b, dsf_limits *l, dsf_cost cost, double span_ns);
void dsf_limits_reset(dsf_limits *l);
/* How much of the processors we got while they were measured: 100 on a quiet machine. */
double dsf_limits_share(const dsf_limits *l);
void dsf_limits_json(dsf_buf *json, const dsf_limits *l);

/* --- the measurements --- */

DSF_MUST dsf_status dsf_bench_ceiling(dsf_bench *b);

typedef struct {
    const char *glob; /* names of operations; NULL: all of the table */
    const char
        *shape;   /* "1,5120,1280": sizes in the order of the op's letters; NULL: the table's */
    int64_t rows; /* only cases with so many rows; 0: all */
    const char *variant; /* on a device: these variants; NULL: the one that a plan takes */
} dsf_bench_op_options;
DSF_MUST dsf_status dsf_bench_op(dsf_bench *b, const dsf_bench_op_options *o);
/* The same on the first GPU, with its own table of shapes. Only in builds with CUDA. */
DSF_MUST dsf_status dsf_bench_op_device(dsf_bench *b, const dsf_bench_op_options *o);

typedef struct {
    dsf_options engine;
    int64_t tokens;         /* decode: timed tokens at each frontier; prefill: prompt length */
    const int64_t *context; /* decode: prompt lengths after which tokens are timed, ascending;
                               prefill: tokens before the prompt */
    int n_contexts;
    const int64_t *batch; /* decode: sequences a step */
    int n_batches;
    int64_t ref_tokens; /* tokens run through the reference, for the check and the ratio */
    const char *file;   /* dump: where it is written; removed again */
} dsf_bench_model_options;
DSF_MUST dsf_status dsf_bench_decode(dsf_bench *b, const dsf_bench_model_options *o);
DSF_MUST dsf_status dsf_bench_prefill(dsf_bench *b, const dsf_bench_model_options *o);
/* Anonymous memory and arenas against the plan; b->missed counts what is over. */
DSF_MUST dsf_status dsf_bench_memory(dsf_bench *b, const dsf_bench_model_options *o);
/* Prefill without, with a full dump and with statistics; b->missed counts what costs too much. Only
 * in builds with HDF5. */
DSF_MUST dsf_status dsf_bench_dump(dsf_bench *b, const dsf_bench_model_options *o);

/* A checkpoint opened and read, cold and warm, beside plain reads of its files. */
DSF_MUST dsf_status dsf_bench_load(dsf_bench *b, const char *folder);
/* `rows` rows of the first Engram table at random, cold and warm, beside pread() of the same. */
DSF_MUST dsf_status dsf_bench_disk(dsf_bench *b, const char *folder, int64_t rows);

typedef struct {
    const char *folder; /* whose config; NULL: the released one */
    int64_t gpus, chunk;
    double rate; /* bytes a second that a device's memory reads */
    const int64_t *context, *batch;
    int n_contexts, n_batches;
} dsf_bench_limits_options;
/* The limits of limits.h for each context and batch; measures nothing. */
DSF_MUST dsf_status dsf_bench_limits(dsf_bench *b, const dsf_bench_limits_options *o);

/* On the first GPU, layers of the released model with synthetic weights, caches filled with random
 * records in place of the context. Only in builds with CUDA. */
typedef struct {
    const char *layers; /* "0-17", "0-3,8,14,20" */
    int64_t engram_vocab;
    const int64_t *context; /* positions before the measured ones */
    int n_contexts;
    const int64_t *batch; /* decode: sequences a step */
    int n_batches;
    int64_t chunk;        /* prefill: rows a pass */
    const char *variants; /* kernel mask, "cuda" or longer */
} dsf_bench_synthetic_options;
DSF_MUST dsf_status dsf_bench_decode_device(dsf_bench *b, const dsf_bench_synthetic_options *o);
DSF_MUST dsf_status dsf_bench_prefill_device(dsf_bench *b, const dsf_bench_synthetic_options *o);

#endif
