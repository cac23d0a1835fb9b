/* Rows of an Engram table at random: the gather that a pass runs, through the map, beside pread()
 * of the same bytes at the same places by as many threads. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cold.h"
#include "model.h"
#include "ops/engram.h"
#include "ops/fill.h"

enum { COLD = 0, WARM, STATES, CODES = 0, SCALES, PARTS };

typedef struct {
    dsf_bench *b;
    dsf_loaded load;
    const dsf_ckpt_entry *part[PARTS]; /* the table's codes and scales in their files */
    int fd[PARTS];
    int64_t n, row_bytes[PARTS], layer;
    int64_t *row;         /* [n] */
    uint16_t *out, *want; /* [n, d] */
    uint8_t *raw;         /* [n, row bytes] */
    dsf_engram_gather_args args;
    const dsf_variant *v;
    bool same, failed; /* the gather gave the reference's bits; a pread did not read its row */
    double in_cache;
    dsf_samples time[STATES], plain[STATES], percent[STATES];
} job;

static const dsf_ckpt_entry *entry_of(const dsf_ckpt *c, const void *data)
{
    for (int64_t i = 0; i < dsf_ckpt_count(c); i++)
        if (dsf_ckpt_at(c, i)->view.data == data) return dsf_ckpt_at(c, i);
    return NULL;
}

static dsf_status open_part(job *j, int part, const dsf_tensor *t)
{
    j->part[part] = entry_of(j->load.ckpt, t->data);
    if (!j->part[part])
        return DSF_FAIL(DSF_ENOTSUP, "the table of layer %lld is no plain view of its file",
                        (long long)j->layer);
    const char *path = dsf_ckpt_shard_path(j->load.ckpt, j->part[part]->shard);
    j->row_bytes[part] = dsf_tensor_stride(t);
    j->fd[part] = open(path, O_RDONLY | O_CLOEXEC);
    return j->fd[part] >= 0 ? DSF_OK : DSF_FAIL(DSF_EIO, "%s: %s", path, strerror(errno));
}

static dsf_tensor tensor3(void *data, dsf_dtype type, int64_t n, int64_t d)
{
    return (dsf_tensor){.data = data, .dtype = type, .rank = d ? 3 : 2, .dim = {n, 1, d}};
}

static dsf_status open_table(job *j, const char *folder)
{
    DSF_TRY(dsf_load_open(&j->load, folder, NULL));
    const dsf_config *c = &j->load.config;
    if (c->n_engram == 0)
        return DSF_FAIL(DSF_ENOTSUP, "%s: this model has no Engram table", folder);
    j->layer = c->engram[0].layer;
    const dsf_tensor *t = dsf_weights_at(&j->load.weights, (int)j->layer, DSF_ROLE_ENGRAM_EMBED, 0);
    const dsf_tensor *s = dsf_weights_at(&j->load.weights, (int)j->layer, DSF_ROLE_ENGRAM_EMBED, 1);
    DSF_TRY(open_part(j, CODES, t));
    DSF_TRY(open_part(j, SCALES, s));
    size_t values = (size_t)(j->n * t->dim[1]);
    DSF_TRY(dsf_mem_new(&j->row, (size_t)j->n, sizeof *j->row));
    DSF_TRY(dsf_mem_new(&j->out, values, sizeof *j->out));
    DSF_TRY(dsf_mem_new(&j->want, values, sizeof *j->want));
    DSF_TRY(dsf_mem_new(&j->raw, (size_t)(j->n * (j->row_bytes[0] + j->row_bytes[1])), 1));
    j->args = (dsf_engram_gather_args){.out = tensor3(j->out, DSF_BF16, j->n, t->dim[1]),
                                       .rows = tensor3(j->row, DSF_I64, j->n, 0),
                                       .table = *t,
                                       .s = *s};
    return DSF_OK;
}

static dsf_status run_gather(job *j, const dsf_variant *v, uint16_t *out)
{
    const dsf_launch lc = {.pool = j->b->pool};
    j->args.out.data = out;
    return v->run(&lc, &j->args);
}

/* Other rows each round, so that none was read before. */
static dsf_status draw_rows(job *j, uint64_t seed)
{
    for (int64_t i = 0; i < j->n; i++)
        j->row[i] = (int64_t)dsf_fill_below(&seed, j->args.table.dim[0]);
    return run_gather(j, &dsf_op_engram_gather.variant[0], j->want);
}

static dsf_status drop(job *j)
{
    for (int p = 0; p < PARTS; p++) {
        const dsf_tensor *t = &j->part[p]->view;
        size_t n = (size_t)dsf_tensor_bytes(t);
        dsf_cold_unmap(t->data, n);
        DSF_TRY(dsf_cold_drop(dsf_ckpt_shard_path(j->load.ckpt, j->part[p]->shard)));
        j->in_cache = fmax(j->in_cache, dsf_cold_resident(t->data, n));
    }
    return DSF_OK;
}

static void pread_row(void *arg, int64_t i, int worker)
{
    job *j = arg;
    (void)worker;
    uint8_t *to = j->raw + i * (j->row_bytes[0] + j->row_bytes[1]);
    for (int p = 0; p < PARTS; p++) {
        int64_t n = j->row_bytes[p], at = (int64_t)j->part[p]->offset + j->row[i] * n;
        if (pread(j->fd[p], to, (size_t)n, at) != n) j->failed = true;
        to += n;
    }
}

static dsf_status time_gather(job *j, int state)
{
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(run_gather(j, j->v, j->out));
    dsf_samples_add(&j->time[state], (double)(dsf_clock_ns() - t0));
    j->same = j->same && memcmp(j->out, j->want, (size_t)dsf_tensor_bytes(&j->args.out)) == 0;
    return DSF_OK;
}

static dsf_status run_round(job *j, int round, int state)
{
    DSF_TRY(draw_rows(j, 1 + (uint64_t)round));
    for (int k = 0; k < 2; k++) {
        if (state == COLD) DSF_TRY(drop(j));
        if ((k + round) % 2 == 0) {
            DSF_TRY(time_gather(j, state));
            continue;
        }
        int64_t t0 = dsf_clock_ns();
        dsf_pool_run(j->b->pool, j->n, pread_row, j);
        dsf_samples_add(&j->plain[state], (double)(dsf_clock_ns() - t0));
    }
    const dsf_samples *a = &j->time[state], *p = &j->plain[state];
    dsf_samples_add(&j->percent[state], 100 * p->v[p->n - 1] / a->v[a->n - 1]);
    return DSF_OK;
}

static dsf_status report(job *j, int state)
{
    static const char *const name[] = {"cold", "warm"};
    dsf_buf json = {.max = 0}, text = {.max = 0};
    const dsf_samples *t = &j->time[state];
    double rows = 1e9 * (double)j->n / dsf_samples_median(t);
    int64_t bytes = j->row_bytes[CODES] + j->row_bytes[SCALES];
    dsf_bench_begin(j->b, &json, "disk");
    dsf_json_add_cstr(&json, "use", name[state]);
    dsf_json_add_cstr(&json, "op", "engram_gather");
    dsf_json_add_cstr(&json, "variant", j->v->name);
    dsf_bench_row(&json, "the model folder's", -1, -1);
    dsf_json_add_int(&json, "rows", j->n);
    dsf_json_add_int(&json, "row_bytes", bytes);
    dsf_json_add_int(&json, "table_rows", j->args.table.dim[0]);
    if (!j->same) return dsf_bench_refuse(j->b, "disk", "the rows are not the reference's", &json);
    if (state == COLD) dsf_json_add_num(&json, "in_cache_before", j->in_cache);
    if (state == COLD && j->in_cache > dsf_cold_most)
        return dsf_bench_refuse(j->b, "disk cold", "the page cache cannot be emptied here", &json);
    dsf_json_add_num(&json, "median_ns", dsf_samples_median(t));
    dsf_json_add_num(&json, "spread", dsf_samples_spread(t));
    dsf_bench_stats(&json, t, 1, NULL);
    dsf_json_add_num(&json, "rows_per_s", rows);
    dsf_json_add_num(&json, "bytes_per_s", rows * (double)bytes);
    dsf_json_add_num(&json, "pread_rows_per_s",
                     1e9 * (double)j->n / dsf_samples_median(&j->plain[state]));
    dsf_json_add_cstr(&json, "limit", "pread() of the same rows by as many threads");
    dsf_bench_sample(&json, "percent", &j->percent[state], 1);
    dsf_bench_hash(&json, "output_hash",
                   dsf_parity_hash(0, j->want, (size_t)dsf_tensor_bytes(&j->args.out)));
    dsf_buf_fmt(&text, "disk %s: %.0f Engram rows a second of %lld bytes, %.0f by pread(): %.0f%%",
                name[state], rows, (long long)bytes,
                1e9 * (double)j->n / dsf_samples_median(&j->plain[state]),
                dsf_samples_median(&j->percent[state]));
    dsf_bench_flags(&text, t, NULL);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status run(job *j, const char *folder)
{
    DSF_TRY(open_table(j, folder));
    j->v = dsf_plan_pick(&dsf_op_engram_gather, &j->args, dsf_machine(), NULL);
    for (int r = 0; r < j->b->repeat; r++)
        for (int state = 0; state < STATES; state++) DSF_TRY(run_round(j, r, state));
    if (j->failed) return DSF_FAIL(DSF_EIO, "a pread of a row did not read all of it");
    for (int state = 0; state < STATES; state++) DSF_TRY(report(j, state));
    return DSF_OK;
}

dsf_status dsf_bench_disk(dsf_bench *b, const char *folder, int64_t rows)
{
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .n = rows, .fd = {-1, -1}, .same = true};
    dsf_status st = run(j, folder);
    for (int p = 0; p < PARTS; p++)
        if (j->fd[p] >= 0) (void)close(j->fd[p]);
    dsf_load_close(&j->load);
    dsf_mem_free(j->row);
    dsf_mem_free(j->out);
    dsf_mem_free(j->want);
    dsf_mem_free(j->raw);
    dsf_mem_free(j);
    return st;
}
