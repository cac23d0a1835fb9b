/* What the device benchmarks share: the device, its memory's rates, its clocks, the check. */
#ifndef DSF_BENCH_DEVICE_BENCH_H
#define DSF_BENCH_DEVICE_BENCH_H

#include "bench.h"
#include "device_frame.h"
#include "nvml.h"

/* --- device_session.c --- */

typedef struct {
    dsf_bench *b;
    dsf_device *device;
    dsf_nvml *nvml;
    dsf_nvml_reading reading;
    void *from, *to; /* what the rates are measured on */
    size_t bytes;
} dsf_bench_device;

DSF_MUST dsf_status dsf_bench_device_open(dsf_bench_device *d, dsf_bench *b, int index);
void dsf_bench_device_close(dsf_bench_device *d);
/* One measurement each, bytes a second (a copy counts what it reads and what it writes). */
DSF_MUST dsf_status dsf_bench_device_rates(dsf_bench_device *d, dsf_samples *copy,
                                           dsf_samples *read);
/* Name, driver, clocks at the last reading. */
void dsf_bench_device_json(const dsf_bench_device *d, dsf_buf *json);

/* --- op_check.c --- */

typedef struct {
    const char *against; /* "ref", "sm90", or NULL: nothing that computes the same in another way */
    int64_t rows;        /* that were compared */
    double worst;        /* against ref: largest error in units of its allowance */
    double l2, unequal;  /* against a variant: relative, and the share of other bits */
    bool law;            /* tried: the rows alone give the bits that they have among all rows */
    int64_t model_elements, model_equal; /* of fp8 sums: recomputed as the tensor core adds */
    char why[320];                       /* the output is wrong; empty: it is right */
} dsf_device_check;

/* Runs v on the frame and checks rows of its output: against the reference by the contract's
 * tolerance where that is cheap, else against the simplest device variant; and each by itself. */
DSF_MUST dsf_status dsf_bench_device_check(dsf_bench_device *d, const dsf_variant *v,
                                           dsf_device_frame *f, dsf_device_check *c);
/* op_model.c: adds up model_elements and model_equal for rows of v's output (rows NULL: all of
 * them). */
DSF_MUST dsf_status dsf_bench_device_model(const dsf_bench_device *d, const dsf_variant *v,
                                           const dsf_device_frame *f, const dsf_frame *got,
                                           const int64_t *rows, dsf_device_check *c);
/* Queues v on the frame. scratch: as v asks, or NULL. */
DSF_MUST dsf_status dsf_bench_device_launch(dsf_bench_device *d, const dsf_variant *v,
                                            const dsf_device_frame *f, void *scratch);
/* The simplest (first) or the preferred (last) device variant that takes these arguments; NULL when
 * there is none. */
const dsf_variant *dsf_bench_device_variant(const dsf_op *op, const void *args, bool simplest);

#endif
