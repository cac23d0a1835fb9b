#include "verify/dump/rows.h"

#include "base/mem.h"

enum { ROWS_AT_ONCE = 16 }; /* that one thread takes */

struct dsf_rows_worker {
    uint8_t *row; /* one, stored */
    uint16_t *scratch;
    size_t row_cap, scratch_cap;
    dsf_dump_block *block;
    int64_t failed; /* a row that could not be made, or -1 */
};

dsf_status dsf_rows_open(dsf_rows *r, dsf_pool *pool)
{
    r->pool = pool;
    DSF_TRY(dsf_mem_new(&r->worker, (size_t)dsf_pool_threads(pool), sizeof *r->worker));
    for (int i = 0; i < dsf_pool_threads(pool); i++) DSF_TRY(dsf_stats_open(&r->worker[i].block));
    return DSF_OK;
}

void dsf_rows_close(dsf_rows *r)
{
    for (int i = 0; r->worker && i < dsf_pool_threads(r->pool); i++) {
        dsf_mem_free(r->worker[i].row);
        dsf_mem_free(r->worker[i].scratch);
        dsf_stats_close(r->worker[i].block);
    }
    dsf_mem_free(r->worker);
    r->worker = NULL;
}

/* Room for a row and its unpacking in every thread, before they start. */
static dsf_status prepare(dsf_rows *r, const dsf_widen_plan *plan, const dsf_tensor *t)
{
    size_t bytes = (size_t)(plan->width * dsf_dump_kind_bytes(plan->kind));
    size_t record = (size_t)t->dim[t->rank - 1];
    for (int i = 0; i < dsf_pool_threads(r->pool); i++) {
        dsf_rows_worker *w = &r->worker[i];
        w->failed = -1;
        if (bytes > w->row_cap) {
            DSF_TRY(dsf_mem_grow(&w->row, bytes, 1));
            w->row_cap = bytes;
        }
        if (record > w->scratch_cap) {
            DSF_TRY(dsf_mem_grow(&w->scratch, record, sizeof *w->scratch));
            w->scratch_cap = record;
        }
    }
    return DSF_OK;
}

/* Error records stay in their thread; the row fails again in this one. */
static dsf_status check(dsf_rows *r, const dsf_widen_plan *plan, const dsf_tensor *t)
{
    for (int i = 0; i < dsf_pool_threads(r->pool); i++) {
        const dsf_rows_worker *w = &r->worker[i];
        if (w->failed >= 0) DSF_TRY(dsf_widen_row(w->row, plan, t, w->failed, w->scratch));
    }
    return DSF_OK;
}

typedef struct {
    dsf_rows *r;
    const dsf_widen_plan *plan;
    dsf_rows_of rows;
    uint8_t *out;
    dsf_dump_stat *stat;
    dsf_dump_kind kind;
} job;

static void widen_some(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    dsf_rows_worker *w = &j->r->worker[worker];
    int64_t bytes = j->plan->width * dsf_dump_kind_bytes(j->plan->kind);
    int64_t end = (item + 1) * ROWS_AT_ONCE < j->rows.n ? (item + 1) * ROWS_AT_ONCE : j->rows.n;
    for (int64_t i = item * ROWS_AT_ONCE; i < end; i++)
        if (dsf_widen_row(j->out + i * bytes, j->plan, j->rows.tensor, j->rows.order[i],
                          w->scratch) != DSF_OK)
            w->failed = j->rows.order[i];
}

dsf_status dsf_rows_widen(dsf_rows *r, const dsf_widen_plan *plan, dsf_rows_of rows, uint8_t *out)
{
    job j = {.r = r, .plan = plan, .rows = rows, .out = out};
    if (plan->width == 0) return DSF_OK;
    DSF_TRY(prepare(r, plan, rows.tensor));
    dsf_pool_run(r->pool, (rows.n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, widen_some, &j);
    return check(r, plan, rows.tensor);
}

static void count_row(const job *j, dsf_rows_worker *w, int64_t i, dsf_dump_block *block)
{
    if (j->plan->width == 0) return;
    const void *row = dsf_widen_as_is(j->plan, j->rows.tensor, j->rows.order[i]);
    if (!row &&
        dsf_widen_row(w->row, j->plan, j->rows.tensor, j->rows.order[i], w->scratch) != DSF_OK)
        w->failed = j->rows.order[i];
    dsf_stats_add(block, j->plan->kind, row ? row : w->row, j->plan->width);
}

static void count_block(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    dsf_rows_worker *w = &j->r->worker[worker];
    for (int64_t i = 0; i < DSF_DUMP_STATS_ROWS; i++)
        count_row(j, w, item * DSF_DUMP_STATS_ROWS + i, w->block);
    j->stat[item] = dsf_stats_take(w->block);
}

/* The first n rows, in this thread, to the block that goes on over values. */
static dsf_status count_some(job *j, dsf_series *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        count_row(j, &j->r->worker[0], i, s->block);
        if (++s->rows % DSF_DUMP_STATS_ROWS == 0) DSF_TRY(dsf_series_count_end(s));
    }
    j->rows.order += n;
    j->rows.n -= n;
    return DSF_OK;
}

dsf_status dsf_rows_count(dsf_rows *r, dsf_series *s, dsf_rows_of rows)
{
    job j = {.r = r, .plan = &s->plan, .rows = rows};
    int64_t begun = s->rows % DSF_DUMP_STATS_ROWS;
    int64_t head = begun ? DSF_DUMP_STATS_ROWS - begun : 0;
    DSF_TRY(prepare(r, &s->plan, rows.tensor));
    if (!s->block) DSF_TRY(dsf_stats_open(&s->block));
    DSF_TRY(count_some(&j, s, head < rows.n ? head : rows.n));
    int64_t blocks = j.rows.n / DSF_DUMP_STATS_ROWS;
    DSF_TRY(dsf_series_records(s, blocks, &j.stat));
    dsf_pool_run(r->pool, blocks, count_block, &j);
    j.rows.order += blocks * DSF_DUMP_STATS_ROWS;
    j.rows.n -= blocks * DSF_DUMP_STATS_ROWS;
    DSF_TRY(count_some(&j, s, j.rows.n));
    return check(r, &s->plan, rows.tensor);
}
