#include "exec/stage.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/engram.h"

/* The blocks of one stage, in one allocation on either side: places, codes, scales. */
typedef struct {
    int64_t rows, d, groups; /* most table rows of a pass; channels and scales of one */
    size_t codes, scales, bytes;
} shape;

struct dsf_stage {
    int step;
    dsf_val rows, table, scale;
    shape shape;
    uint8_t *here, *there;
    /* Open addressing: which table rows have a place already. Bigger than the rows by two. */
    int64_t *key;
    int32_t *place;
    size_t mask;
    int64_t *row; /* table row of each place */
};

static size_t align(size_t n) { return (n + 255) & ~(size_t)255; }

static shape shape_of(const dsf_plan *p, const dsf_step *s)
{
    const dsf_engram_gather_args *a = (const void *)(p->args + s->args);
    shape h = {
        .rows = a->rows.dim[0] * a->rows.dim[1], .d = a->table.dim[1], .groups = a->s.dim[1]};
    h.codes = align((size_t)h.rows * sizeof(int64_t));
    h.scales = h.codes + align((size_t)(h.rows * h.d));
    h.bytes = h.scales + align((size_t)(h.rows * h.groups));
    return h;
}

#define ROWS_WORDS "%lld table rows x (8 B place + %lld codes + %lld scales)"

static dsf_status open_one(dsf_exec *e, struct dsf_stage *g, int i)
{
    const dsf_step *s = &e->plan->step[i];
    *g = (struct dsf_stage){.step = i, .shape = shape_of(e->plan, s)};
    const shape *h = &g->shape;
    g->rows = dsf_plan_operand(s, offsetof(dsf_engram_gather_args, rows));
    g->table = dsf_plan_operand(s, offsetof(dsf_engram_gather_args, table));
    g->scale = dsf_plan_operand(s, offsetof(dsf_engram_gather_args, s));
    size_t places = 64;
    while (places < 2 * (size_t)h->rows) places *= 2;
    g->mask = places - 1;
    static const char *const what[5] = {"rows", "rows pinned", "keys", "numbers", "list"};
    char name[5][32];
    for (int k = 0; k < 5; k++)
        (void)snprintf(name[k], sizeof name[k], "Engram %s L%d", what[k], s->layer);
    long long n = h->rows, d = h->d, k = h->groups;
    DSF_TRY(
        dsf_source_take(&e->from, DSF_AT_SPACE, &g->there, h->bytes, name[0], ROWS_WORDS, n, d, k));
    DSF_TRY(
        dsf_source_take(&e->from, DSF_AT_NEAR, &g->here, h->bytes, name[1], ROWS_WORDS, n, d, k));
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &g->key, places * sizeof *g->key, name[2],
                            "%zu places x 8 B", places));
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &g->place, places * sizeof *g->place, name[3],
                            "%zu places x 4 B", places));
    return dsf_source_take(&e->from, DSF_AT_HEAP, &g->row, (size_t)h->rows * sizeof *g->row,
                           name[4], "%lld table rows x 8 B", n);
}

dsf_status dsf_stage_open(dsf_exec *e)
{
    int n = 0;
    for (int i = 0; i < e->plan->n_steps; i++) n += e->plan->step[i].op == &dsf_op_engram_gather;
    if (n == 0) return DSF_OK;
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &e->stage, (size_t)n * sizeof *e->stage,
                            "stages", "%d gathering steps x %zu B", n, sizeof *e->stage));
    for (int i = 0; i < e->plan->n_steps; i++) {
        struct dsf_stage counted; /* of an exec that only counts */
        if (e->plan->step[i].op != &dsf_op_engram_gather) continue;
        DSF_TRY(open_one(e, e->stage ? &e->stage[e->n_stages++] : &counted, i));
    }
    return DSF_OK;
}

void dsf_stage_close(dsf_exec *e)
{
    for (int k = 0; k < e->n_stages; k++) {
        struct dsf_stage *g = &e->stage[k];
        dsf_space_drop(e->setup.device, g->there, g->shape.bytes);
        dsf_space_drop_near(e->setup.device, g->here, g->shape.bytes);
        dsf_mem_free(g->key);
        dsf_mem_free(g->place);
        dsf_mem_free(g->row);
    }
    dsf_mem_free(e->stage);
    e->stage = NULL;
    e->n_stages = 0;
}

/* Place of a table row among those of this pass; *fresh: it was not there before. */
static int32_t place_of(struct dsf_stage *g, int64_t row, int32_t next, bool *fresh)
{
    size_t at = ((uint64_t)row * 0x9E3779B97F4A7C15u >> 20) & g->mask;
    while (g->place[at] > 0 && g->key[at] != row) at = (at + 1) & g->mask;
    *fresh = g->place[at] == 0;
    if (*fresh) {
        g->key[at] = row;
        g->place[at] = next + 1;
    }
    return g->place[at] - 1;
}

enum { COPIED = 256 }; /* table rows that one task copies: each is a miss of its own */

typedef struct {
    const struct dsf_stage *g;
    const uint8_t *table, *scale;
    int64_t kept;
} gathering;

static void gather(void *arg, int64_t item, int worker)
{
    (void)worker;
    const gathering *w = arg;
    const shape *h = &w->g->shape;
    int64_t last = (item + 1) * COPIED < w->kept ? (item + 1) * COPIED : w->kept;
    for (int64_t i = item * COPIED; i < last; i++) {
        int64_t row = w->g->row[i];
        memcpy(w->g->here + h->codes + i * h->d, w->table + row * h->d, (size_t)h->d);
        memcpy(w->g->here + h->scales + i * h->groups, w->scale + row * h->groups,
               (size_t)h->groups);
    }
}

/* Places of the rows of this pass; returns how many table rows they are. */
static int64_t find_places(struct dsf_stage *g, const int64_t *row, int64_t from, int64_t to)
{
    int64_t *at = (int64_t *)(void *)g->here;
    int32_t kept = 0;
    memset(g->place, 0, (g->mask + 1) * sizeof *g->place);
    for (int64_t i = from; i < to; i++) {
        bool fresh = false;
        int32_t place = place_of(g, row[i], kept, &fresh);
        at[i] = place;
        if (fresh) g->row[kept++] = row[i];
    }
    return kept;
}

dsf_status dsf_stage_run(dsf_exec *e, int k, const dsf_row_range *range)
{
    struct dsf_stage *g = &e->stage[k];
    const dsf_plan *p = e->plan;
    const shape *h = &g->shape;
    dsf_row_range r = range[p->step[g->step].rows];
    const dsf_value *v = &p->value[dsf_plan_base(p, g->rows)];
    int64_t columns = v->dim[1], n = (r.first + r.count) * columns;
    if (r.count == 0) return DSF_OK;
    const int64_t *row = (const int64_t *)(const void *)(e->input + v->offset);
    gathering w = {.g = g, .table = p->value[g->table].data, .scale = p->value[g->scale].data};
    w.kept = find_places(g, row, r.first * columns, n);
    dsf_pool_run(e->setup.pool, (w.kept + COPIED - 1) / COPIED, gather, &w);
    dsf_device *d = e->setup.device;
    DSF_TRY(dsf_device_put(d, g->there, g->here, (size_t)n * sizeof(int64_t)));
    DSF_TRY(dsf_device_put(d, g->there + h->codes, g->here + h->codes, (size_t)(w.kept * h->d)));
    return dsf_device_put(d, g->there + h->scales, g->here + h->scales,
                          (size_t)(w.kept * h->groups));
}

int dsf_stage_step(const dsf_exec *e, int k) { return e->stage[k].step; }

void dsf_stage_bind(dsf_exec *e, int k)
{
    const struct dsf_stage *g = &e->stage[k];
    dsf_engram_gather_args *a = (void *)(e->plan->args + e->plan->step[g->step].args);
    int64_t first =
        ((uint8_t *)a->rows.data - dsf_exec_data(e, g->rows)) / (int64_t)sizeof(int64_t);
    a->rows.data = g->there + (size_t)first * sizeof(int64_t);
    a->table.data = g->there + g->shape.codes;
    a->s.data = g->there + g->shape.scales;
    a->table.dim[0] = a->s.dim[0] = g->shape.rows;
}
