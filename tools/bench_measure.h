/* The options of `dsf bench`, and the measurement that they ask for. */
#ifndef DSF_TOOLS_BENCH_MEASURE_H
#define DSF_TOOLS_BENCH_MEASURE_H

#include "bench/bench.h"
#include "bench/format.h"
#include "inputs.h"

typedef struct {
    input_options in;
    const char *what, *op, *shape, *variant, *synthetic, *json_out, *conditions, *baseline, *file;
    const char *program; /* another build, to alternate with */
    char **argv;         /* after `dsf bench` */
    int64_t repeat, rows, tokens, ref_tokens, engram_vocab, gpus;
    double least_change, rate;
    opt_list at, batch;
    const char *format_word;
    dsf_format format;
    bool json, paced;
    dsf_buf lines; /* for --json-out and the formats that need all of them */
} bench_options;

/* EINVAL: there is no such thing to measure; ENOTSUP: this version cannot yet, and why. */
DSF_MUST dsf_status bench_check_kind(const char *what);
/* EINVAL: a number outside its limits, by the option's name. */
DSF_MUST dsf_status bench_check_numbers(const bench_options *o);
/* Bytes that the host's read rate is to be measured on; 0: not here. */
size_t bench_rate_buffer(const bench_options *o);
/* Rounds, when --repeat does not say. */
int bench_default_repeat(const bench_options *o);
DSF_MUST dsf_status bench_measure(dsf_bench *b, const bench_options *o);

#endif
