/* Decode steps of a GPU: some layers of the released model, at a depth, for several batches. */
#include <string.h>

#include "base/mem.h"
#include "device_shapes.h"
#include "synthetic.h"

enum { ROUNDS = 20, REPLAYS = 8, TIMED_PASSES = 6, CAPTURE_STEPS = 3, SPARE = 64 };

typedef struct {
    dsf_bench_synthetic s;
    int rows;
    int64_t depth;
    dsf_synthetic_times times;
    dsf_samples graph, wall; /* us a step: the replayed graph alone, everything */
    dsf_samples copy, read;  /* bytes a second */
    int64_t nodes;           /* of both parities' graphs */
    uint64_t hash[2];        /* of the logits: launched one by one, replayed */
} job;

/* Every other sequence is at an odd position, where a compressed entry closes: as many as in a
 * service. One sequence alternates: parity is 0, then 1. */
static dsf_status place_rows(job *j, int parity)
{
    for (int i = 0; i < j->rows; i++) {
        dsf_synthetic_at(&j->s, i, j->depth + ((i + parity) & 1));
        DSF_TRY(dsf_synthetic_feed(&j->s, i, 1));
    }
    return DSF_OK;
}

static dsf_status run_step(job *j, int parity, bool timed, double *wall)
{
    DSF_TRY(place_rows(j, parity));
    return dsf_synthetic_step(&j->s, j->rows, timed, NULL, wall);
}

/* The same state through launches and through the captured graph. */
static dsf_status check_replay(job *j)
{
    dsf_exec *e = &j->s.engine->exec;
    DSF_TRY(dsf_synthetic_fill(&j->s, 1));
    for (int p = 0; p < 2; p++) {
        e->setup.graphs = false;
        DSF_TRY(run_step(j, p, false, NULL));
        DSF_TRY(dsf_synthetic_hash(&j->s, j->rows, &j->hash[0]));
        e->setup.graphs = true;
        for (int i = 0; i < CAPTURE_STEPS; i++) DSF_TRY(run_step(j, p, false, NULL));
        DSF_TRY(dsf_synthetic_hash(&j->s, j->rows, &j->hash[1]));
        j->nodes += dsf_replay_nodes(e, j->s.engine->range);
    }
    return DSF_OK;
}

static dsf_status time_all(job *j)
{
    int rounds = j->s.d.b->repeat < ROUNDS ? j->s.d.b->repeat : ROUNDS;
    for (int r = 0; r < rounds; r++) {
        double wall[2] = {0}, graph[2] = {0};
        for (int p = 0; p < 2; p++) {
            DSF_TRY(run_step(j, p, false, &wall[p]));
            DSF_TRY(dsf_synthetic_replay(&j->s, REPLAYS, &graph[p]));
        }
        dsf_samples_add(&j->wall, (wall[0] + wall[1]) / 2);
        dsf_samples_add(&j->graph, (graph[0] + graph[1]) / 2);
        DSF_TRY(dsf_bench_device_rates(&j->s.d, &j->copy, &j->read));
    }
    for (int i = 0; i < TIMED_PASSES; i++) {
        DSF_TRY(run_step(j, i & 1, true, NULL));
        dsf_synthetic_add(&j->s, &j->times);
    }
    dsf_nvml_read(j->s.d.nvml, &j->s.d.reading);
    return DSF_OK;
}

/* What the step is held against. */
typedef struct {
    double us, limit, limit_copy, outside, scaled;
    int missing;
} figures;

static figures figures_of(const job *j)
{
    dsf_inventory inv;
    figures f = {.us = dsf_samples_median(&j->graph)};
    dsf_inventory_of(&j->s.synthetic.config, &inv);
    f.limit = 1e6 * dsf_limit_decode(&inv, j->rows, j->depth, 1, dsf_device_memory_peak);
    f.limit_copy = 1e6 * dsf_limit_decode(&inv, j->rows, j->depth, 1, dsf_samples_median(&j->copy));
    f.outside = dsf_synthetic_part(&j->times, j->times.outside, f.us);
    f.scaled =
        f.outside + dsf_synthetic_scale(&j->s, &j->times, f.us, 0, j->s.whole.n_layers, &f.missing);
    return f;
}

static void begin_line(const job *j, dsf_buf *json)
{
    dsf_bench_begin(j->s.d.b, json, "decode_device");
    dsf_synthetic_describe(&j->s, json);
    dsf_json_add_int(json, "batch", j->rows);
    dsf_json_add_int(json, "context", j->depth);
    dsf_json_add_raw(json, "acceptance", "null"); /* no drafts */
    dsf_json_add_bool(json, "graphs", true);
}

static void write_text(const job *j, const figures *f, dsf_buf *text)
{
    const dsf_config *c = &j->s.synthetic.config;
    dsf_buf_fmt(
        text,
        "decode batch %d at %lld: %.1f us a step (spread %.1f%%, with copies and host %.1f); "
        "%d layers %.1f us each, %.1f nodes each; byte limit %.1f us = %.1f%%, at copy rate "
        "%.1f%%; head and embedding %.1f us; 40 layers by kind %.2f ms%s",
        j->rows, (long long)j->depth, f->us, 100 * dsf_samples_spread(&j->graph),
        dsf_samples_median(&j->wall), c->n_layers, (f->us - f->outside) / c->n_layers,
        (double)j->nodes / 2 / c->n_layers, f->limit, 100 * f->limit / f->us,
        100 * f->limit_copy / f->us, f->outside, 1e-3 * f->scaled,
        f->missing ? " (kinds missing)" : "");
    dsf_synthetic_text(&j->times, f->us, text);
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    begin_line(j, &json);
    if (j->hash[0] != j->hash[1])
        return dsf_bench_refuse(j->s.d.b, "decode",
                                "logits of the replayed graph are not those of launches", &json);
    const figures f = figures_of(j);
    int layers = j->s.synthetic.config.n_layers;
    dsf_json_add_cstr(&json, "checked", "logits of the replayed graph equal those of launches");
    dsf_bench_hash(&json, "output_hash", j->hash[0]);
    dsf_bench_sample(&json, "graph_us", &j->graph, 1);
    dsf_json_add_num(&json, "median_ns", 1e3 * f.us);
    dsf_bench_stats(&json, &j->graph, 1e3, NULL);
    dsf_bench_sample(&json, "step_us", &j->wall, 1);
    dsf_json_add_num(&json, "layer_us", (f.us - f.outside) / layers);
    dsf_json_add_num(&json, "nodes_a_layer", (double)j->nodes / 2 / layers);
    dsf_bench_sample(&json, "copy_gb_s", &j->copy, 1e-9);
    dsf_bench_sample(&json, "read_gb_s", &j->read, 1e-9);
    dsf_json_add_num(&json, "byte_limit_us", f.limit);
    dsf_json_add_num(&json, "percent_of_physical", 100 * f.limit / f.us);
    dsf_json_add_num(&json, "percent_at_copy_rate", 100 * f.limit_copy / f.us);
    dsf_json_add_num(&json, "whole_model_us", f.scaled);
    dsf_json_add_int(&json, "whole_model_missing_layers", f.missing);
    dsf_json_add_cstr(
        &json, "method",
        "steps timed one by one, less the same wait each so that they add up to the graph; each kind's mean layer "
        "times its number in the model, and head and embedding once");
    dsf_synthetic_json(&j->s, &j->times, f.us, &json);
    write_text(j, &f, &text);
    return dsf_bench_emit(j->s.d.b, &json, &text);
}

static dsf_status measure(job *j, int64_t depth, int rows)
{
    memset(&j->times, 0, sizeof j->times);
    j->graph.n = j->wall.n = j->copy.n = j->read.n = 0;
    j->hash[0] = j->hash[1] = 0;
    j->nodes = 0;
    j->depth = depth;
    j->rows = rows;
    DSF_TRY(check_replay(j));
    if (j->hash[0] == j->hash[1]) DSF_TRY(time_all(j));
    return report(j);
}

static dsf_status measure_all(job *j, const dsf_bench_synthetic_options *o)
{
    for (int c = 0; c < o->n_contexts; c++)
        for (int b = 0; b < o->n_batches; b++) DSF_TRY(measure(j, o->context[c], (int)o->batch[b]));
    return DSF_OK;
}

dsf_status dsf_bench_decode_device(dsf_bench *b, const dsf_bench_synthetic_options *o)
{
    job *j = NULL;
    int64_t most = 0, deepest = 0;
    for (int i = 0; i < o->n_batches; i++) most = o->batch[i] > most ? o->batch[i] : most;
    for (int i = 0; i < o->n_contexts; i++)
        deepest = o->context[i] > deepest ? o->context[i] : deepest;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    const dsf_options engine = {.context = deepest + SPARE, .slots = most, .chunk = most};
    dsf_status st = dsf_synthetic_open(&j->s, b, o, &engine);
    if (st == DSF_OK) st = measure_all(j, o);
    dsf_synthetic_close(&j->s);
    dsf_mem_free(j);
    return st;
}
