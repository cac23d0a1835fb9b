/* What a dump costs: the same prompt without, with a full dump and with statistics only, in
 * alternating order, beside what the disk does alone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "model.h"
#include "verify/dump/writer.h"

/* What a dump may cost: times of the run without, bytes of the file a second of the whole run. */
static const double most_full = 3.0, most_stats = 1.3, least_rate = 150e6;
enum { DISK_BYTES = 256 << 20, DISK_PIECE = 1 << 20, KINDS = 3 };
typedef enum { PLAIN, FULL, STATS } kind;

typedef struct {
    dsf_bench *b;
    const dsf_bench_model_options *o;
    dsf_engine *engine[2]; /* without taps, and planned for all of them */
    dsf_tap_sink planned;
    int32_t *prompt;
    char *config;
    float *row; /* [3][vocab]: logits of the last token by each kind of run */
    dsf_samples time[KINDS], ratio[KINDS], rate, disk;
    int64_t bytes, file_bytes, stats_bytes;
    bool same;
} job;

static dsf_status open_engines(job *j)
{
    dsf_options eo = j->o->engine;
    if (eo.context == 0) eo.context = j->o->tokens;
    eo.all_logits = eo.prefill == DSF_PREFILL_EXACT;
    DSF_TRY(dsf_engine_open(&j->engine[0], &eo));
    eo.sink = &j->planned; /* no `wants`: all taps */
    eo.unfused = true;
    return dsf_engine_open(&j->engine[1], &eo);
}

static dsf_status read_config(job *j)
{
    char path[4096];
    dsf_file f;
    DSF_TRY(dsf_file_join(path, j->o->engine.model, "config.json"));
    DSF_TRY(dsf_file_open(&f, path));
    dsf_status st = dsf_mem_new(&j->config, f.size + 1, 1);
    if (st == DSF_OK) memcpy(j->config, f.data, f.size);
    dsf_file_close(&f);
    return st;
}

static dsf_status run_prompt(const job *j, dsf_engine *e, const dsf_tap_sink *sink, float *row)
{
    dsf_session *s = NULL;
    const float *logits = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(dsf_session_feed(s, j->prompt, (size_t)j->o->tokens));
    while (dsf_session_queued(s) > 0) DSF_TRY_OUT(dsf_engine_step(e, &s, 1, sink));
    DSF_TRY_OUT(dsf_session_logits(s, &logits));
    memcpy(row, logits, (size_t)dsf_engine_vocab(e) * sizeof *row);
out:
    dsf_session_close(s);
    return st;
}

/* Creating, writing and syncing the file belong to the run. */
static dsf_status run_dump(job *j, kind k, float *row)
{
    static const char *const mode[] = {"cone", "exact", "replay"};
    const dsf_dump_meta m = {.producer = "dsf bench",
                             .config_json = j->config,
                             .mode = mode[j->o->engine.prefill],
                             .token_ids = j->prompt,
                             .n_tokens = j->o->tokens,
                             .pool = j->engine[1]->pool,
                             .stats = k == STATS};
    dsf_dump *d = NULL;
    DSF_TRY(dsf_dump_create(&d, j->o->file, &m));
    const dsf_tap_sink sink = dsf_dump_sink(d);
    dsf_dump_logits_oneshot(d, j->engine[1]->opt.all_logits);
    dsf_status st = run_prompt(j, j->engine[1], &sink, row);
    if (st != DSF_OK) {
        dsf_dump_abandon(d);
        return st;
    }
    j->bytes = dsf_dump_bytes(d);
    return dsf_dump_finish(d);
}

static dsf_status time_run(job *j, kind k, double *seconds)
{
    struct stat s;
    float *row = j->row + (size_t)k * (size_t)dsf_engine_vocab(j->engine[0]);
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(k == PLAIN ? run_prompt(j, j->engine[0], NULL, row) : run_dump(j, k, row));
    *seconds = 1e-9 * (double)(dsf_clock_ns() - t0);
    dsf_samples_add(&j->time[k], *seconds);
    if (k == PLAIN) return DSF_OK;
    if (stat(j->o->file, &s) != 0) return DSF_FAIL(DSF_EIO, "%s: %s", j->o->file, strerror(errno));
    if (k == FULL)
        j->file_bytes = (int64_t)s.st_size;
    else
        j->stats_bytes = (int64_t)s.st_size;
    (void)unlink(j->o->file);
    return DSF_OK;
}

/* A plain file in the same place, written and synced. */
static dsf_status time_disk(job *j)
{
    char *piece = NULL;
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(dsf_mem_new(&piece, DISK_PIECE, 1));
    int fd = open(j->o->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0;
    for (int64_t n = 0; n < DISK_BYTES && good; n += DISK_PIECE)
        good = write(fd, piece, DISK_PIECE) == DISK_PIECE;
    good = good && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) (void)close(fd);
    (void)unlink(j->o->file);
    dsf_mem_free(piece);
    if (!good) return DSF_FAIL(DSF_EIO, "%s: %s", j->o->file, strerror(error));
    dsf_samples_add(&j->disk, DISK_BYTES / (1e-9 * (double)(dsf_clock_ns() - t0)));
    return DSF_OK;
}

static dsf_status measure(job *j)
{
    size_t vocab = (size_t)dsf_engine_vocab(j->engine[0]);
    DSF_TRY(dsf_mem_new(&j->row, KINDS * vocab, sizeof *j->row));
    j->same = true;
    for (int r = 0; r < j->b->repeat; r++) {
        double t[KINDS] = {1, 1, 1};
        for (int i = 0; i < KINDS; i++) /* each kind is first, second and last in turn */
            DSF_TRY(time_run(j, (kind)((i + r) % KINDS), &t[(i + r) % KINDS]));
        DSF_TRY(time_disk(j));
        for (int k = FULL; k < KINDS; k++) {
            dsf_samples_add(&j->ratio[k], t[k] / t[PLAIN]);
            j->same = j->same && memcmp(j->row + (size_t)k * vocab, j->row, vocab * 4) == 0;
        }
        dsf_samples_add(&j->rate, (double)j->file_bytes / t[FULL]);
        j->b->out.progress(j->b->out.ud, "dump", r + 1, j->b->repeat);
    }
    return DSF_OK;
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    dsf_bench_begin(j->b, &json, "dump");
    dsf_bench_describe(j->engine[1], &json);
    dsf_json_add_int(&json, "tokens", j->o->tokens);
    if (!j->same)
        return dsf_bench_refuse(j->b, "dump", "a run with a dump gave other logits", &json);
    double full = dsf_samples_median(&j->ratio[FULL]), stats = dsf_samples_median(&j->ratio[STATS]);
    double rate = dsf_samples_median(&j->rate), disk = dsf_samples_median(&j->disk);
    bool good = full <= most_full && stats <= most_stats && rate >= least_rate;
    dsf_json_add_int(&json, "tensor_bytes", j->bytes);
    dsf_json_add_int(&json, "file_bytes", j->file_bytes);
    dsf_json_add_int(&json, "stats_file_bytes", j->stats_bytes);
    dsf_bench_sample(&json, "plain_s", &j->time[PLAIN], 1);
    dsf_bench_sample(&json, "full_s", &j->time[FULL], 1);
    dsf_bench_sample(&json, "stats_s", &j->time[STATS], 1);
    dsf_bench_sample(&json, "full_ratio", &j->ratio[FULL], 1);
    dsf_bench_sample(&json, "stats_ratio", &j->ratio[STATS], 1);
    dsf_bench_sample(&json, "bytes_per_s", &j->rate, 1);
    dsf_bench_sample(&json, "disk_bytes_per_s", &j->disk, 1);
    dsf_json_add_bool(&json, "within_limits", good);
    dsf_buf_fmt(&text,
                "dump of %lld tokens: %.2f s without, %.2f s full (x%.2f, at most %.1f; %.0f MB at "
                "%.0f MB/s, at least %.0f; the disk alone %.0f), %.2f s statistics (x%.2f, at most "
                "%.1f)%s",
                (long long)j->o->tokens, dsf_samples_median(&j->time[PLAIN]),
                dsf_samples_median(&j->time[FULL]), full, most_full, 1e-6 * (double)j->file_bytes,
                1e-6 * rate, 1e-6 * least_rate, 1e-6 * disk, dsf_samples_median(&j->time[STATS]),
                stats, most_stats, good ? "" : "  OVER");
    j->b->missed += !good;
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status run(job *j)
{
    DSF_TRY(dsf_file_may_replace(j->o->file));
    if (dsf_file_exists(j->o->file))
        return DSF_FAIL(DSF_EINVAL, "%s: is there already; --file names a new one", j->o->file);
    DSF_TRY(read_config(j));
    DSF_TRY(open_engines(j));
    DSF_TRY(dsf_bench_prompt(&j->prompt, j->o->tokens, dsf_engine_vocab(j->engine[0]), 7));
    DSF_TRY(measure(j));
    return report(j);
}

dsf_status dsf_bench_dump(dsf_bench *b, const dsf_bench_model_options *o)
{
    if (o->tokens < 1) return DSF_FAIL(DSF_EINVAL, "%lld tokens: at least 1", (long long)o->tokens);
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .o = o};
    dsf_status st = run(j);
    for (int i = 0; i < 2; i++) dsf_engine_close(j->engine[i]);
    dsf_mem_free(j->prompt);
    dsf_mem_free(j->config);
    dsf_mem_free(j->row);
    dsf_mem_free(j);
    return st;
}
