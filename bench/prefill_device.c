/* Prefill of a GPU: one chunk at a depth, on some layers of the released model. */
#include <string.h>

#include "base/mem.h"
#include "device_shapes.h"
#include "synthetic.h"

enum { LEAST_ROUNDS = 5, TIMED_PASSES = 2 };

typedef struct {
    dsf_bench_synthetic s;
    int64_t depth, chunk;
    dsf_synthetic_times times;
    dsf_samples device, wall; /* us a chunk */
    dsf_samples copy, read;
    uint64_t hash[2]; /* of the last row's logits: one pass, two passes */
} job;

static dsf_status run_chunk(job *j, bool timed, double *device, double *wall)
{
    double d = 0, w = 0;
    dsf_synthetic_at(&j->s, 0, j->depth);
    DSF_TRY(dsf_synthetic_feed(&j->s, 0, j->chunk));
    for (*device = *wall = 0; dsf_session_queued(j->s.session[0]) > 0; *device += d, *wall += w)
        DSF_TRY(dsf_synthetic_step(&j->s, 1, timed, &d, &w));
    return DSF_OK;
}

/* The chunk at once and in two halves, from the same caches: the same bits. */
static dsf_status check_halves(job *j)
{
    double device = 0, wall = 0;
    for (int halves = 0; halves < 2; halves++) {
        j->s.engine->opt.chunk = halves ? (j->chunk + 1) / 2 : j->chunk;
        DSF_TRY(dsf_synthetic_fill(&j->s, 1));
        DSF_TRY(run_chunk(j, false, &device, &wall));
        DSF_TRY(dsf_synthetic_hash(&j->s, 1, &j->hash[halves]));
    }
    j->s.engine->opt.chunk = j->chunk;
    return DSF_OK;
}

static dsf_status time_all(job *j)
{
    int rounds = j->s.d.b->repeat > LEAST_ROUNDS ? j->s.d.b->repeat : LEAST_ROUNDS;
    double device = 0, wall = 0;
    for (int r = 0; r < rounds; r++) {
        DSF_TRY(run_chunk(j, false, &device, &wall));
        dsf_nvml_read(j->s.d.nvml, &j->s.d.reading);
        dsf_samples_add(&j->device, device);
        dsf_samples_add(&j->wall, wall);
        DSF_TRY(dsf_bench_device_rates(&j->s.d, &j->copy, &j->read));
    }
    for (int i = 0; i < TIMED_PASSES; i++) {
        DSF_TRY(run_chunk(j, true, &device, &wall));
        dsf_synthetic_add(&j->s, &j->times);
    }
    return DSF_OK;
}

typedef struct {
    double us, outside, scaled, token, limit, wall_token;
    int missing;
} figures;

/* Per token of the encoder half, all its layers by kind; the limit at this depth: the index scores
 * of a prompt twice as long, which are averaged over it. */
static figures figures_of(const job *j)
{
    dsf_inventory inv;
    figures f = {.us = dsf_samples_median(&j->device)};
    dsf_inventory_of(&j->s.whole, &inv);
    f.outside = dsf_synthetic_part(&j->times, j->times.outside, f.us);
    f.scaled =
        dsf_synthetic_scale(&j->s, &j->times, f.us, 0, dsf_config_split(&j->s.whole), &f.missing);
    f.token = f.scaled / (double)j->chunk;
    f.wall_token = f.token * dsf_samples_median(&j->wall) / f.us;
    f.limit =
        1e6 * dsf_limit_prefill(&inv, 2 * j->depth + j->chunk, 1, dsf_device_peak[DSF_PEAK_FP8],
                                dsf_device_peak[DSF_PEAK_BF16]);
    return f;
}

static void begin_line(const job *j, dsf_buf *json)
{
    dsf_bench_begin(j->s.d.b, json, "prefill_device");
    dsf_synthetic_describe(&j->s, json);
    dsf_json_add_int(json, "chunk", j->chunk);
    dsf_json_add_int(json, "context", j->depth);
    dsf_json_add_int(json, "batch", 1);
    dsf_json_add_cstr(json, "prefill", "exact");
    dsf_json_add_raw(json, "acceptance", "null");
    dsf_json_add_cstr(json, "context_is", "random valid records in every cache, no real prefill");
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    begin_line(j, &json);
    if (j->hash[0] != j->hash[1])
        return dsf_bench_refuse(j->s.d.b, "prefill",
                                "two halves of the chunk give other logits than the chunk", &json);
    const figures f = figures_of(j);
    int layers = j->s.synthetic.config.n_layers;
    dsf_json_add_cstr(&json, "checked",
                      "last row's logits equal those of two passes of half a chunk");
    dsf_bench_hash(&json, "output_hash", j->hash[0]);
    dsf_bench_sample(&json, "device_us", &j->device, 1);
    dsf_json_add_num(&json, "median_ns", 1e3 * f.us);
    dsf_bench_stats(&json, &j->device, 1e3, NULL);
    dsf_bench_sample(&json, "wall_us", &j->wall, 1);
    dsf_bench_sample(&json, "copy_gb_s", &j->copy, 1e-9);
    dsf_bench_sample(&json, "read_gb_s", &j->read, 1e-9);
    dsf_json_add_num(&json, "layer_us", (f.us - f.outside) / layers);
    dsf_json_add_num(&json, "encoder_us_a_token", f.token);
    dsf_json_add_num(&json, "encoder_wall_us_a_token", f.wall_token);
    dsf_json_add_int(&json, "encoder_missing_layers", f.missing);
    dsf_json_add_num(&json, "speed_of_light_us_a_token", f.limit);
    dsf_json_add_num(&json, "percent_of_speed_of_light", 100 * f.limit / f.token);
    dsf_json_add_cstr(
        &json, "method",
        "steps timed one by one, less the same wait each so that they add up to the chunk; each kind's mean layer times "
        "its number among the encoder's 20; layer 20's compressor is not in it");
    dsf_synthetic_json(&j->s, &j->times, f.us, &json);
    dsf_buf_fmt(
        &text,
        "prefill %lld rows at %lld: %.1f ms on the device (spread %.1f%%), %.1f ms in all; "
        "%d layers %.0f us each; 20 encoder layers by kind %.2f us a token = %.1f%% of speed of "
        "light (%.2f us)%s",
        (long long)j->chunk, (long long)j->depth, 1e-3 * f.us, 100 * dsf_samples_spread(&j->device),
        1e-3 * dsf_samples_median(&j->wall), layers, (f.us - f.outside) / layers, f.token,
        100 * f.limit / f.token, f.limit, f.missing ? " (kinds missing)" : "");
    dsf_synthetic_text(&j->times, f.us, &text);
    return dsf_bench_emit(j->s.d.b, &json, &text);
}

static dsf_status measure(job *j, int64_t depth)
{
    memset(&j->times, 0, sizeof j->times);
    j->device.n = j->wall.n = j->copy.n = j->read.n = 0;
    j->hash[0] = j->hash[1] = 0;
    j->depth = depth;
    DSF_TRY(check_halves(j));
    if (j->hash[0] == j->hash[1]) DSF_TRY(time_all(j));
    return report(j);
}

dsf_status dsf_bench_prefill_device(dsf_bench *b, const dsf_bench_synthetic_options *o)
{
    job *j = NULL;
    int64_t deepest = 0;
    for (int i = 0; i < o->n_contexts; i++)
        deepest = o->context[i] > deepest ? o->context[i] : deepest;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    j->chunk = o->chunk;
    const dsf_options engine = {
        .context = deepest + o->chunk, .slots = 1, .chunk = o->chunk, .prefill = DSF_PREFILL_EXACT};
    dsf_status st = dsf_synthetic_open(&j->s, b, o, &engine);
    for (int i = 0; i < o->n_contexts && st == DSF_OK; i++) st = measure(j, o->context[i]);
    dsf_synthetic_close(&j->s);
    dsf_mem_free(j);
    return st;
}
