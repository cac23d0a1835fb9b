/* One operation on a GPU at one shape: checked, then timed as a replayed graph of launches between
 * measurements of the memory's rates. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device_bench.h"
#include "device_shapes.h"
#include "pace.h"

enum { MOST_FRAMES = 32, MOST_CALLS = 256, LEAST_ROUNDS = 5, MARK_FROM = 3, MARK_TO = 4 };
/* Operands rotate until four times the L2 lies between two uses of one. */
static const double caches = 4, frame_bytes_most = 40e9;
static const double graph_us = 2000,
                    case_us = 0.6e6; /* length of one timed graph, of all of them */

typedef struct {
    dsf_bench_device *d;
    const dsf_op *op;
    const dsf_variant *v;
    const dsf_device_shape *shape;
    dsf_case sizes;
    dsf_device_frame frame[MOST_FRAMES];
    int n_frames, calls;
    void *scratch;
    dsf_device_graph *graph;
    char eager[256]; /* why the launches could not be captured; empty: they were */
    dsf_cost cost;
    dsf_device_check check;
    dsf_samples time, copy, read; /* us a call; bytes a second */
    dsf_warmup warm;
    double capture_ns; /* of the group of launches into a graph */
} job;

static int64_t rows_of(const job *j)
{
    for (int i = 0; i < 12; i++)
        if (j->shape->sizes.v[i] == DSF_ROWS) return j->sizes.v[i];
    return j->sizes.v[0];
}

static dsf_status open_frames(job *j)
{
    dsf_device *device = j->d->device;
    DSF_TRY(dsf_device_frame_open(&j->frame[0], device, j->op, &j->sizes, NULL, 1));
    j->n_frames = 1;
    j->cost = j->op->cost(j->frame[0].host.args);
    double rotate = caches * (double)dsf_device_describe(device)->l2_bytes;
    double want = ceil(rotate / fmax(j->cost.bytes, 1));
    want = fmin(want, fmin(MOST_FRAMES, frame_bytes_most / (double)j->frame[0].bytes));
    for (; j->n_frames < (int)want; j->n_frames++)
        DSF_TRY(dsf_device_frame_open(&j->frame[j->n_frames], device, j->op, &j->sizes,
                                      &j->frame[0], (uint64_t)j->n_frames + 1));
    return DSF_OK;
}

static void close_job(job *j)
{
    dsf_device_graph_free(j->graph);
    for (int i = 0; i < j->n_frames; i++) dsf_device_frame_close(&j->frame[i]);
    dsf_device_free(j->d->device, j->scratch);
}

static dsf_status queue(job *j, int calls)
{
    for (int i = 0; i < calls; i++)
        DSF_TRY(dsf_bench_device_launch(j->d, j->v, &j->frame[i % j->n_frames], j->scratch));
    return DSF_OK;
}

static dsf_status time_once(job *j, double *us)
{
    DSF_TRY(dsf_device_mark(j->d->device, MARK_FROM));
    if (j->eager[0])
        DSF_TRY(queue(j, j->calls));
    else
        DSF_TRY(dsf_device_graph_run(j->d->device, j->graph));
    DSF_TRY(dsf_device_mark(j->d->device, MARK_TO));
    DSF_TRY(dsf_device_between(j->d->device, MARK_FROM, MARK_TO, us));
    *us /= j->calls;
    return DSF_OK;
}

/* A graph of `calls` launches: no gap of the host between them. What cannot be captured is launched
 * one by one, and the line says so. */
static dsf_status capture(job *j, int calls)
{
    j->calls = calls;
    if (j->eager[0]) return DSF_OK;
    if (!j->graph) DSF_TRY(dsf_device_graph_new(&j->graph));
    DSF_TRY(dsf_device_capture_begin(j->d->device));
    dsf_status st = queue(j, calls);
    if (st != DSF_OK) (void)snprintf(j->eager, sizeof j->eager, "%s", dsf_error_message());
    dsf_status end = dsf_device_capture_end(j->d->device, j->graph);
    if (end != DSF_OK && !j->eager[0])
        (void)snprintf(j->eager, sizeof j->eager, "%s", dsf_error_message());
    return dsf_device_wait(j->d->device);
}

/* Groups until two agree. */
static dsf_status warm_up(job *j)
{
    double us = 0;
    j->warm.most = j->d->b->paced ? DSF_WARMUPS_PACED : 0;
    do DSF_TRY(time_once(j, &us));
    while (dsf_warmup_more(&j->warm, 1e3 * us));
    return DSF_OK;
}

static void begin_line(const job *j, dsf_buf *json)
{
    dsf_buf shape = {.max = 0};
    for (size_t i = 0; i < strlen(j->op->dims); i++)
        dsf_buf_fmt(&shape, "%s%c=%lld", i ? " " : "", j->op->dims[i], (long long)j->sizes.v[i]);
    dsf_bench_begin(j->d->b, json, "op_device");
    dsf_bench_device_json(j->d, json);
    dsf_json_add_cstr(json, "op", j->op->name);
    dsf_json_add_cstr(json, "use", j->shape->use);
    dsf_json_add_cstr(json, "variant", j->v ? j->v->name : "none");
    dsf_json_add_int(json, "rows", rows_of(j));
    dsf_json_add_cstr(json, "shape", shape.data ? shape.data : "");
    dsf_buf_free(&shape);
}

/* Groups that another process starts. */
static dsf_status pace_all(job *j)
{
    dsf_buf json = {.max = 0};
    double us = 0;
    begin_line(j, &json);
    DSF_TRY(dsf_pace_case(j->d->b, &json));
    while (dsf_pace_more()) {
        DSF_TRY(time_once(j, &us));
        DSF_TRY(dsf_pace_round(j->d->b, 1e3 * us, NULL));
    }
    return dsf_pace_done(j->d->b);
}

static dsf_status time_all(job *j)
{
    double us = 0;
    DSF_TRY(dsf_device_new(j->d->device, &j->scratch,
                           j->v->scratch ? j->v->scratch(j->frame[0].args) : 0));
    DSF_TRY(queue(j, j->n_frames)); /* warm-up, without a graph; the check was one too */
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(capture(j, j->n_frames));
    DSF_TRY(time_once(j, &us));
    int calls = (int)fmin(ceil(graph_us / us / j->n_frames) * j->n_frames, MOST_CALLS);
    if (calls > j->calls) {
        t0 = dsf_clock_ns();
        DSF_TRY(capture(j, calls));
    }
    j->capture_ns = (double)(dsf_clock_ns() - t0);
    DSF_TRY(warm_up(j));
    if (j->d->b->paced) return pace_all(j);
    us = 1e-3 * j->warm.last;
    double rounds = fmax(fmin(j->d->b->repeat, case_us / (us * j->calls)), LEAST_ROUNDS);
    for (int r = 0; r < (int)rounds; r++) {
        if (r % 2) DSF_TRY(dsf_bench_device_rates(j->d, &j->copy, &j->read));
        DSF_TRY(time_once(j, &us));
        dsf_samples_add(&j->time, us);
        if (!(r % 2)) DSF_TRY(dsf_bench_device_rates(j->d, &j->copy, &j->read));
    }
    DSF_TRY(j->eager[0] ? queue(j, j->calls) : dsf_device_graph_run(j->d->device, j->graph));
    dsf_nvml_read(j->d->nvml, &j->d->reading); /* while it runs */
    return dsf_device_wait(j->d->device);
}

/* Shares of a limit, in percent. */
typedef struct {
    const char *limit; /* "memory" or "arithmetic", by the datasheet */
    double us, gb_s, tflops, physical, of_copy, of_read;
} shares;

static shares shares_of(const job *j)
{
    shares s = {.us = dsf_samples_median(&j->time)};
    double seconds = 1e-6 * s.us, memory = j->cost.bytes / dsf_device_memory_peak;
    double arithmetic = j->cost.flops / dsf_device_peak[j->shape->peak];
    s.limit = memory > arithmetic ? "memory" : "arithmetic";
    s.gb_s = 1e-9 * j->cost.bytes / seconds;
    s.tflops = 1e-12 * j->cost.flops / seconds;
    s.physical = 100 * fmax(memory, arithmetic) / seconds;
    s.of_copy = 100e9 * s.gb_s / dsf_samples_median(&j->copy);
    s.of_read = 100e9 * s.gb_s / dsf_samples_median(&j->read);
    return s;
}

static void check_json(const job *j, dsf_buf *json)
{
    const dsf_device_check *c = &j->check;
    dsf_json_begin(json, "checked", '{');
    dsf_json_add_cstr(json, "against", c->against ? c->against : "itself");
    dsf_json_add_int(json, "rows", c->rows);
    if (c->law) dsf_json_add_bool(json, "rows_alone_equal", true);
    if (c->model_elements) {
        dsf_json_add_int(json, "fp8_model_elements", c->model_elements);
        dsf_json_add_int(json, "fp8_model_equal", c->model_equal);
    }
    if (c->against && strcmp(c->against, "ref") == 0)
        dsf_json_add_num(json, "worst", c->worst);
    else if (c->against) {
        dsf_json_add_num(json, "relative_l2", c->l2);
        dsf_json_add_num(json, "unequal_share", c->unequal);
    }
    dsf_json_end(json, '}');
}

static dsf_status refuse(job *j, const char *why)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    begin_line(j, &json);
    dsf_json_add_cstr(&json, "refused", why);
    dsf_buf_fmt(&text, "%-13s %-28s %-7s %5lld REFUSED, no figure: %s", j->op->name, j->shape->use,
                j->v ? j->v->name : "none", (long long)rows_of(j), why);
    j->d->b->refused++;
    return dsf_bench_emit(j->d->b, &json, &text);
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    if (j->check.why[0]) return refuse(j, j->check.why);
    shares s = shares_of(j);
    begin_line(j, &json);
    check_json(j, &json);
    dsf_json_add_num(&json, "bytes", j->cost.bytes);
    dsf_json_add_num(&json, "flops", j->cost.flops);
    dsf_json_add_int(&json, "operand_sets", j->n_frames);
    dsf_json_add_int(&json, "launches_a_group", j->calls);
    if (j->eager[0])
        dsf_json_add_cstr(&json, "not_captured", j->eager);
    else
        dsf_json_add_int(&json, "nodes_a_launch", dsf_device_graph_nodes(j->graph) / j->calls);
    dsf_bench_sample(&json, "us", &j->time, 1);
    dsf_json_add_num(&json, "median_ns", 1e3 * s.us);
    dsf_bench_stats(&json, &j->time, 1e3, &j->warm);
    dsf_json_add_num(&json, "capture_ns", j->capture_ns);
    dsf_json_add_num(&json, "gb_s", s.gb_s);
    dsf_json_add_num(&json, "tflops", s.tflops);
    dsf_json_begin(&json, "ceiling", '{');
    dsf_bench_sample(&json, "copy_gb_s", &j->copy, 1e-9);
    dsf_bench_sample(&json, "read_gb_s", &j->read, 1e-9);
    dsf_json_end(&json, '}');
    dsf_json_add_cstr(&json, "limit", s.limit);
    dsf_json_add_num(&json, "percent_of_physical", s.physical);
    dsf_json_add_num(&json, "percent_of_copy_rate", s.of_copy);
    dsf_json_add_num(&json, "percent_of_read_rate", s.of_read);
    dsf_buf_fmt(&text, "%-13s %-28s %-7s %5lld %10.2f us %5.1f%% %8.1f %8.1f %6.1f%% %6.1f%%%s",
                j->op->name, j->shape->use, j->v->name, (long long)rows_of(j), s.us,
                100 * dsf_samples_spread(&j->time), s.gb_s, s.tflops, s.physical, s.of_copy,
                j->eager[0] ? " launched one by one" : "");
    dsf_bench_flags(&text, &j->time, &j->warm);
    return dsf_bench_emit(j->d->b, &json, &text);
}

static dsf_status measure_job(job *j)
{
    DSF_TRY(open_frames(j));
    if (!j->v) j->v = dsf_bench_device_variant(j->op, j->frame[0].args, false);
    if (!j->v) return DSF_OK;
    if (j->v->accepts && !j->v->accepts(j->frame[0].args)) return DSF_OK;
    DSF_TRY(dsf_bench_device_check(j->d, j->v, &j->frame[0], &j->check));
    if (!j->check.why[0]) DSF_TRY(time_all(j));
    return j->d->b->paced && !j->check.why[0] ? DSF_OK : report(j);
}

/* v NULL: the one that the plan would take. What fails is reported and the next one measured,
 * unless the device is gone. */
static dsf_status measure(dsf_bench_device *d, const dsf_device_shape *s, int64_t rows,
                          const dsf_variant *v)
{
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    j->d = d;
    j->op = dsf_op_find(s->op);
    j->v = v;
    j->shape = s;
    j->sizes = dsf_device_sizes(s, rows);
    dsf_status st = measure_job(j);
    if (st != DSF_OK) {
        dsf_status told = refuse(j, dsf_error_message());
        st = told != DSF_OK ? told : dsf_device_wait(d->device);
    }
    close_job(j);
    dsf_mem_free(j);
    return st;
}

static bool has_device_variant(const dsf_op *op)
{
    for (int i = 1; op && i < op->n_variants; i++)
        if (dsf_variant_runs(&op->variant[i], DSF_NEEDS_SM90)) return true;
    return false;
}

static dsf_status measure_variants(dsf_bench_device *d, const dsf_bench_op_options *o,
                                   const dsf_device_shape *s, int64_t rows, int *done)
{
    const dsf_op *op = dsf_op_find(s->op);
    if (!has_device_variant(op)) return DSF_OK;
    ++*done;
    if (!o->variant) return measure(d, s, rows, NULL);
    for (int i = 1; i < op->n_variants; i++)
        if (dsf_variant_runs(&op->variant[i], DSF_NEEDS_SM90) &&
            fnmatch(o->variant, op->variant[i].name, 0) == 0)
            DSF_TRY(measure(d, s, rows, &op->variant[i]));
    return DSF_OK;
}

static dsf_status measure_table(dsf_bench_device *d, const dsf_bench_op_options *o)
{
    int done = 0;
    for (int i = 0; i < dsf_n_device_shapes; i++) {
        const dsf_device_shape *s = &dsf_device_shapes[i];
        if (o->glob && fnmatch(o->glob, s->op, 0) != 0) continue;
        for (int k = 0; k < DSF_N_AT; k++) {
            if (!(s->at & 1U << k) || (o->rows && o->rows != dsf_device_rows[k])) continue;
            DSF_TRY(measure_variants(d, o, s, dsf_device_rows[k], &done));
        }
    }
    if (done == 0)
        return DSF_FAIL(DSF_EINVAL, "no operation with a device kernel matches \"%s\"",
                        o->glob ? o->glob : "*");
    return DSF_OK;
}

dsf_status dsf_bench_op_device(dsf_bench *b, const dsf_bench_op_options *o)
{
    dsf_bench_device d;
    if (o->shape)
        return DSF_FAIL(DSF_EINVAL, "--shape: the device's table has its own sizes; use --rows");
    dsf_status st = dsf_bench_device_open(&d, b, 0);
    dsf_bench_heading(
        b, "operation     use                          variant  rows        median spread     GB/s "
           "  TFLOPS   limit    copy");
    if (st == DSF_OK) st = measure_table(&d, o);
    dsf_bench_device_close(&d);
    return st;
}
