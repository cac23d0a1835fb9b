#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"

static const double noisy_percent = 2;

/* The value after "key : " of the first such line of a file under /proc; false when there is none.
 */
static bool proc_line(const char *path, const char *key, char *out, size_t n)
{
    char line[512];
    bool found = false;
    FILE *f = fopen(path, "r");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        colon[strcspn(colon, "\n")] = 0;
        (void)snprintf(out, n, "%s", colon + 1 + strspn(colon + 1, " \t"));
        found = true;
    }
    (void)fclose(f);
    return found;
}

/* Only where the current folder belongs to this project's own history. */
static void find_commit(char *out, size_t n)
{
    (void)snprintf(out, n, "unknown");
    FILE *f = popen("git ls-files --error-unmatch :/engine/include/dsf.h >/dev/null 2>&1 && "
                    "git describe --always --dirty 2>/dev/null",
                    "r");
    if (!f) return;
    char line[64];
    if (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(out, n, "%s", line);
    }
    (void)pclose(f);
}

static double load_now(void)
{
    double load = 0;
    FILE *f = fopen("/proc/loadavg", "r");
    if (!f) return 0;
    if (fscanf(f, "%lf", &load) != 1) load = 0; // NOLINT
    (void)fclose(f);
    return load;
}

dsf_status dsf_bench_open(dsf_bench *b, int threads, size_t buffer)
{
    dsf_host *h = &b->host;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    *h = (dsf_host){.processors = dsf_pool_processors(), .last_cache = cache > 0 ? cache : 0};
    h->threads = threads > 0 ? threads : h->processors;
    if (!proc_line("/proc/cpuinfo", "model name", h->machine, sizeof h->machine))
        (void)snprintf(h->machine, sizeof h->machine, "unknown");
    find_commit(h->commit, sizeof h->commit);
    if (buffer && (int64_t)buffer < 4 * h->last_cache) buffer = (size_t)(4 * h->last_cache);
    DSF_TRY(dsf_pool_open(&b->pool, h->threads));
    return buffer ? dsf_ceiling_open(&b->ceiling, b->pool, buffer) : DSF_OK;
}

void dsf_bench_close(dsf_bench *b)
{
    dsf_ceiling_close(&b->ceiling);
    dsf_pool_close(b->pool);
    b->pool = NULL;
}

void dsf_bench_begin(const dsf_bench *b, dsf_buf *json, const char *kind)
{
    dsf_json_begin(json, NULL, '{');
    dsf_json_add_cstr(json, "bench", kind);
    dsf_bench_host(b, json);
}

void dsf_bench_host(const dsf_bench *b, dsf_buf *json)
{
    dsf_json_add_cstr(json, "commit", b->host.commit);
    dsf_json_add_cstr(json, "machine", b->host.machine);
    dsf_json_add_int(json, "processors", b->host.processors);
    dsf_json_add_int(json, "threads", b->host.threads);
    dsf_json_add_num(json, "load", load_now());
    if (b->conditions) dsf_json_add_cstr(json, "conditions", b->conditions);
}

void dsf_bench_sample(dsf_buf *json, const char *key, const dsf_samples *s, double scale)
{
    dsf_json_begin(json, key, '{');
    dsf_json_add_num(json, "median", dsf_samples_median(s) * scale);
    dsf_json_add_num(json, "spread", dsf_samples_spread(s));
    dsf_json_add_int(json, "n", s->n);
    dsf_json_end(json, '}');
}

static double cv_percent(const dsf_samples *s)
{
    return 100 * dsf_samples_sd(s) / fabs(dsf_samples_mean(s));
}

void dsf_bench_stats(dsf_buf *json, const dsf_samples *s, double scale, const dsf_warmup *w)
{
    static const struct {
        const char *key;
        double p;
    } percentile[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}};
    double interval[2];
    dsf_samples_interval(s, 0.95, interval);
    dsf_json_begin(json, "interval", '[');
    for (int i = 0; i < 2; i++) dsf_json_add_num(json, NULL, interval[i] * scale);
    dsf_json_end(json, ']');
    dsf_json_add_num(json, "sd", dsf_samples_sd(s) * scale);
    dsf_json_add_num(json, "cv_percent", cv_percent(s));
    dsf_json_add_bool(json, "noisy", cv_percent(s) > noisy_percent);
    dsf_json_add_num(json, "min", dsf_samples_at(s, 0) * scale);
    dsf_json_add_num(json, "max", dsf_samples_at(s, 1) * scale);
    for (size_t i = 0; i < sizeof percentile / sizeof *percentile; i++)
        if (dsf_samples_tell(s, percentile[i].p))
            dsf_json_add_num(json, percentile[i].key, dsf_samples_at(s, percentile[i].p) * scale);
    if (!w) return;
    dsf_json_add_int(json, "warmups", w->runs);
    dsf_json_add_bool(json, "settled", w->settled);
    dsf_json_add_num(json, "first_ns", w->first);
}

void dsf_bench_flags(dsf_buf *text, const dsf_samples *s, const dsf_warmup *w)
{
    if (w && !w->settled) dsf_buf_str(text, " unsettled");
    if (cv_percent(s) > noisy_percent) dsf_buf_str(text, " noisy");
}

void dsf_bench_hash(dsf_buf *json, const char *key, uint64_t hash)
{
    char text[20];
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    dsf_json_add_cstr(json, key, text);
}

static void add_count(dsf_buf *json, const char *key, int64_t n)
{
    if (n < 0)
        dsf_json_add_raw(json, key, "null");
    else
        dsf_json_add_int(json, key, n);
}

void dsf_bench_row(dsf_buf *json, const char *weights, int64_t batch, int64_t context)
{
    char mhz[64];
    bool there = proc_line("/proc/cpuinfo", "cpu MHz", mhz, sizeof mhz);
    dsf_json_add_raw(json, "driver", "null");
    dsf_json_add_num(json, "clock_mhz", there ? strtod(mhz, NULL) : NAN);
    dsf_json_add_cstr(json, "weights", weights);
    add_count(json, "batch", batch);
    add_count(json, "context", context);
    dsf_json_add_raw(json, "graphs", "null");
    dsf_json_add_raw(json, "acceptance", "null");
    dsf_json_add_raw(json, "percent_of_physical", "null");
}

static void compare(dsf_bench *b, dsf_buf *json, dsf_buf *text)
{
    dsf_buf line = {.max = 0};
    dsf_judgement j;
    dsf_buf_add(&line, json->data, json->len);
    dsf_buf_char(&line, '}');
    dsf_comparison c = dsf_baseline_judge(b->baseline, line.data ? line.data : "", &j);
    dsf_buf_free(&line);
    b->slower += c == DSF_CMP_SLOWER;
    dsf_json_begin(json, "against_baseline", '{');
    dsf_json_add_cstr(json, "verdict", dsf_comparison_words(c));
    dsf_json_add_num(json, "change_percent", j.change);
    dsf_json_add_num(json, "noise_percent", j.noise);
    dsf_json_add_num(json, "control_percent", j.control);
    dsf_json_end(json, '}');
    dsf_buf_fmt(text, "\n  against the baseline: %s", dsf_comparison_words(c));
    if (c != DSF_CMP_ABSENT) dsf_buf_fmt(text, " (%+.1f%%, noise %.1f%%)", j.change, j.noise);
}

dsf_status dsf_bench_emit(dsf_bench *b, dsf_buf *json, dsf_buf *text)
{
    if (b->baseline) compare(b, json, text);
    dsf_json_end(json, '}');
    dsf_status st = dsf_buf_status(json);
    if (st == DSF_OK) st = dsf_buf_status(text);
    if (st == DSF_OK) b->out.line(b->out.ud, json->data, text->data ? text->data : "");
    dsf_buf_free(json);
    dsf_buf_free(text);
    return st;
}

void dsf_bench_heading(dsf_bench *b, const char *text) { b->out.line(b->out.ud, NULL, text); }

enum { READ_SLICE = 32 << 20, SLICE_NS = 4 * 1000000, MOST_SLICES = 16 };

/* Of something that moves bytes and computes at once. */
static double rate_of(dsf_cost cost, double read, double bf16, double f32)
{
    double peak = fmax(bf16, f32);
    double seconds = fmax(read > 0 ? cost.bytes / read : 0, peak > 0 ? cost.flops / peak : 0);
    return seconds > 0 ? 1e-9 / seconds : 0;
}

double dsf_limits_take(dsf_bench *b, dsf_limits *l, dsf_cost cost, double span_ns)
{
    int slices = (int)fmin(fmax(span_ns / SLICE_NS, 1), MOST_SLICES);
    int64_t t0 = dsf_clock_ns(), p0 = dsf_processor_ns();
    double read = dsf_ceiling_read(&b->ceiling, (size_t)slices * READ_SLICE);
    double bf16 = dsf_ceiling_bf16(&b->ceiling, slices);
    double f32 = dsf_ceiling_f32(&b->ceiling, slices);
    l->wall_ns += (double)(dsf_clock_ns() - t0) * b->host.threads;
    l->processor_ns += (double)(dsf_processor_ns() - p0);
    dsf_samples_add(&l->read, read);
    dsf_samples_add(&l->bf16, bf16);
    dsf_samples_add(&l->f32, f32);
    return rate_of(cost, read, bf16, f32);
}

void dsf_limits_json(dsf_buf *json, const dsf_limits *l)
{
    dsf_json_begin(json, "ceiling", '{');
    dsf_bench_sample(json, "read_gb_s", &l->read, 1e-9);
    dsf_bench_sample(json, "bf16_gflop_s", &l->bf16, 1e-9);
    dsf_bench_sample(json, "f32_gflop_s", &l->f32, 1e-9);
    dsf_json_end(json, '}');
    dsf_json_add_num(json, "processor_share_percent", dsf_limits_share(l));
}

void dsf_limits_reset(dsf_limits *l)
{
    l->read.n = l->bf16.n = l->f32.n = 0;
    l->wall_ns = l->processor_ns = 0;
}

double dsf_limits_share(const dsf_limits *l)
{
    return l->wall_ns > 0 ? fmin(100, 100 * l->processor_ns / l->wall_ns) : 0;
}

dsf_status dsf_bench_ceiling(dsf_bench *b)
{
    dsf_limits l = {.read = {.n = 0}};
    for (int i = 0; i < b->repeat; i++) {
        b->out.progress(b->out.ud, "ceiling", i, b->repeat);
        (void)dsf_limits_take(b, &l, (dsf_cost){0, 0}, 10e6);
    }
    b->out.progress(b->out.ud, "ceiling", b->repeat, b->repeat);
    dsf_bench_heading(b, "ceiling                median  spread");
    const struct {
        const char *name, *unit;
        const dsf_samples *s;
    } row[] = {{"memory read", "GB/s", &l.read},
               {"bf16 dot", "GFLOP/s", &l.bf16},
               {"f32 fma", "GFLOP/s", &l.f32}};
    dsf_buf json = {.max = 0}, text = {.max = 0};
    for (int i = 0; i < 3; i++)
        dsf_buf_fmt(&text, "%-16s %12.2f %6.1f%% %s\n", row[i].name,
                    dsf_samples_median(row[i].s) * 1e-9, 100 * dsf_samples_spread(row[i].s),
                    row[i].unit);
    dsf_buf_fmt(&text, "%.0f%% of the processors' time was ours", dsf_limits_share(&l));
    dsf_bench_begin(b, &json, "ceiling");
    dsf_json_add_int(&json, "buffer_bytes", (int64_t)b->ceiling.bytes);
    dsf_json_add_int(&json, "last_cache_bytes", b->host.last_cache);
    dsf_limits_json(&json, &l);
    return dsf_bench_emit(b, &json, &text);
}
