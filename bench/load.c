/* Opening a checkpoint and reading all of it, from the disk and from the page cache, beside what
 * the disk gives to plain reads of the same files. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cold.h"
#include "model.h"

enum { PIECE = 1 << 20, COLD = 0, WARM, STATES };

typedef struct {
    dsf_bench *b;
    const char *folder;
    char (*path)[4096]; /* of the shards */
    int shards;
    uint8_t *piece;         /* [PIECE] */
    char digest[33];        /* of the contents, by the first run */
    bool same;              /* every run read the same */
    double bytes, in_cache; /* of the files; the largest share that was there before a cold run */
    dsf_samples open[STATES], time[STATES], rate[STATES], disk[STATES], percent[STATES];
} job;

static dsf_status list_shards(job *j)
{
    dsf_ckpt *c = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_ckpt_open(&c, j->folder));
    j->shards = dsf_ckpt_shards(c);
    DSF_TRY_OUT(dsf_mem_new(&j->path, (size_t)j->shards, sizeof *j->path));
    for (int i = 0; i < j->shards; i++) {
        dsf_file f;
        DSF_TRY_OUT(dsf_file_open(&f, dsf_ckpt_shard_path(c, i)));
        memcpy(j->path[i], f.path, sizeof f.path);
        j->bytes += (double)f.size;
        dsf_file_close(&f);
    }
    DSF_TRY_OUT(dsf_ckpt_digest_content(c, j->digest));
out:
    dsf_ckpt_close(c);
    return st;
}

/* Empties the cache of all shards; what stays is remembered. */
static dsf_status drop(job *j)
{
    for (int i = 0; i < j->shards; i++) {
        dsf_file f;
        DSF_TRY(dsf_cold_drop(j->path[i]));
        DSF_TRY(dsf_file_open(&f, j->path[i]));
        j->in_cache = fmax(j->in_cache, dsf_cold_resident(f.data, f.size));
        dsf_file_close(&f);
    }
    return DSF_OK;
}

/* Headers checked, then every byte of every tensor. */
static dsf_status open_and_read(job *j, int state)
{
    dsf_ckpt *c = NULL;
    char digest[33] = "";
    dsf_status st = DSF_OK;
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(dsf_ckpt_open(&c, j->folder));
    double open = (double)(dsf_clock_ns() - t0);
    DSF_TRY_OUT(dsf_ckpt_digest_content(c, digest));
    double all = (double)(dsf_clock_ns() - t0);
    dsf_samples_add(&j->open[state], open);
    dsf_samples_add(&j->time[state], all);
    dsf_samples_add(&j->rate[state], 1e9 * j->bytes / all);
    j->same = j->same && strcmp(digest, j->digest) == 0;
out:
    dsf_ckpt_close(c);
    return st;
}

static dsf_status read_file(job *j, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;
    if (fd < 0) return DSF_FAIL(DSF_EIO, "%s: %s", path, strerror(errno));
    while (n > 0) n = read(fd, j->piece, PIECE);
    int code = errno;
    (void)close(fd);
    return n == 0 ? DSF_OK : DSF_FAIL(DSF_EIO, "%s: %s", path, strerror(code));
}

/* The same bytes by read(), a mebibyte at a time. */
static dsf_status read_plainly(job *j, int state)
{
    int64_t t0 = dsf_clock_ns();
    for (int i = 0; i < j->shards; i++) DSF_TRY(read_file(j, j->path[i]));
    dsf_samples_add(&j->disk[state], 1e9 * j->bytes / (double)(dsf_clock_ns() - t0));
    return DSF_OK;
}

/* Both in a state of the cache, in alternating order. */
static dsf_status run_round(job *j, int round, int state)
{
    for (int k = 0; k < 2; k++) {
        if (state == COLD) DSF_TRY(drop(j));
        DSF_TRY((k + round) % 2 ? read_plainly(j, state) : open_and_read(j, state));
    }
    double rate = j->rate[state].v[j->rate[state].n - 1],
           disk = j->disk[state].v[j->disk[state].n - 1];
    dsf_samples_add(&j->percent[state], 100 * rate / disk);
    return DSF_OK;
}

static dsf_status report(job *j, int state)
{
    static const char *const name[] = {"cold", "warm"};
    dsf_buf json = {.max = 0}, text = {.max = 0};
    const dsf_samples *t = &j->time[state];
    const char *model = strrchr(j->folder, '/');
    dsf_bench_begin(j->b, &json, "load");
    dsf_json_add_cstr(&json, "use", name[state]);
    dsf_json_add_cstr(&json, "model", model && model[1] ? model + 1 : j->folder);
    dsf_bench_row(&json, "the model folder's", -1, -1);
    dsf_json_add_num(&json, "bytes", j->bytes);
    if (!j->same) return dsf_bench_refuse(j->b, "load", "two runs read other contents", &json);
    if (state == COLD) dsf_json_add_num(&json, "in_cache_before", j->in_cache);
    if (state == COLD && j->in_cache > dsf_cold_most)
        return dsf_bench_refuse(j->b, "load cold", "the page cache cannot be emptied here", &json);
    dsf_json_add_num(&json, "median_ns", dsf_samples_median(t));
    dsf_json_add_num(&json, "spread", dsf_samples_spread(t));
    dsf_bench_stats(&json, t, 1, NULL);
    dsf_json_add_num(&json, "bytes_per_s", dsf_samples_median(&j->rate[state]));
    dsf_bench_sample(&json, "open_ns", &j->open[state], 1);
    dsf_bench_sample(&json, "read_bytes_per_s", &j->disk[state], 1);
    dsf_json_add_cstr(&json, "limit", "read() of the same files, 1 MiB at a time");
    dsf_bench_sample(&json, "percent", &j->percent[state], 1);
    dsf_json_add_cstr(&json, "output_hash", j->digest);
    dsf_buf_fmt(&text, "load %s: %.2f ms for %.1f MB (open %.2f ms), %.1f MB/s: %.0f%% of read()",
                name[state], 1e-6 * dsf_samples_median(t), 1e-6 * j->bytes,
                1e-6 * dsf_samples_median(&j->open[state]),
                1e-6 * dsf_samples_median(&j->rate[state]), dsf_samples_median(&j->percent[state]));
    dsf_bench_flags(&text, t, NULL);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status run(job *j)
{
    DSF_TRY(dsf_mem_new(&j->piece, PIECE, 1));
    DSF_TRY(list_shards(j));
    for (int r = 0; r < j->b->repeat; r++)
        for (int state = 0; state < STATES; state++) DSF_TRY(run_round(j, r, state));
    for (int state = 0; state < STATES; state++) DSF_TRY(report(j, state));
    return DSF_OK;
}

dsf_status dsf_bench_load(dsf_bench *b, const char *folder)
{
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .folder = folder, .same = true};
    dsf_status st = run(j);
    dsf_mem_free(j->path);
    dsf_mem_free(j->piece);
    dsf_mem_free(j);
    return st;
}
