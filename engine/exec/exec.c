#include "exec/exec.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static uint8_t *value_data(const dsf_exec *e, dsf_val v)
{
    const dsf_value *b = &e->plan->value[dsf_plan_base(e->plan, v)];
    switch (b->kind) {
    case DSF_VALUE_SCRATCH:
        return e->scratch + b->offset;
    case DSF_VALUE_CACHE:
        return e->cache + b->offset;
    case DSF_VALUE_INPUT:
        return e->input + b->offset;
    case DSF_VALUE_GIVEN:
        return (uint8_t *)(uintptr_t)e->given[dsf_plan_base(e->plan, v)].data;
    default:
        return (uint8_t *)(uintptr_t)b->data;
    }
}

dsf_status dsf_exec_open(dsf_exec *e, dsf_plan *plan, dsf_pool *pool, const dsf_exec *cache_from,
                         bool timed)
{
    *e = (dsf_exec){.plan = plan, .pool = pool, .owns_cache = !cache_from};
    e->worker_bytes = plan->worker_bytes * (size_t)dsf_pool_threads(pool);
    dsf_status st = DSF_OK;
    void *p;
    DSF_TRY_OUT(dsf_mem_map(&p, plan->scratch_bytes));
    e->scratch = p;
    DSF_TRY_OUT(dsf_mem_map(&p, plan->input_bytes));
    e->input = p;
    DSF_TRY_OUT(dsf_mem_map(&p, e->worker_bytes));
    e->worker = p;
    if (cache_from) {
        if (cache_from->plan->cache_bytes != plan->cache_bytes)
            DSF_TRY_OUT(DSF_FAIL(DSF_EINVAL,
                                 "shared caches: %zu bytes in one plan, %zu in the other",
                                 cache_from->plan->cache_bytes, plan->cache_bytes));
        e->cache = cache_from->cache;
    } else {
        DSF_TRY_OUT(dsf_mem_map(&p, plan->cache_bytes));
        e->cache = p;
    }
    DSF_TRY_OUT(dsf_mem_new(&e->given, (size_t)plan->n_values + 1, sizeof *e->given));
    if (timed) DSF_TRY_OUT(dsf_mem_new(&e->step_ns, (size_t)plan->n_steps + 1, sizeof *e->step_ns));
    for (int i = 0; i < plan->n_steps; i++) /* what has no rows is bound once */
        for (int k = 0; k < plan->step[i].op->n_operands; k++) {
            dsf_val v = plan->step[i].operand[k];
            if (v == DSF_NO_VAL) continue;
            dsf_op_operand(plan->step[i].op, plan->args + plan->step[i].args, k)->data =
                value_data(e, v);
        }
    return DSF_OK;
out:
    dsf_exec_close(e);
    return st;
}

void dsf_exec_close(dsf_exec *e)
{
    if (!e->plan) return;
    dsf_mem_unmap(e->scratch, e->plan->scratch_bytes);
    dsf_mem_unmap(e->input, e->plan->input_bytes);
    dsf_mem_unmap(e->worker, e->worker_bytes);
    if (e->owns_cache) dsf_mem_unmap(e->cache, e->plan->cache_bytes);
    dsf_mem_free(e->given);
    dsf_mem_free(e->step_ns);
    *e = (dsf_exec){.plan = NULL};
}

void *dsf_exec_input(const dsf_exec *e, dsf_input input, int index)
{
    for (int i = 0; i < e->plan->n_values; i++) {
        const dsf_value *v = &e->plan->value[i];
        if (v->kind == DSF_VALUE_INPUT && v->base == DSF_NO_VAL && v->input == (int)input &&
            v->input_index == index)
            return e->input + v->offset;
    }
    return NULL;
}

dsf_status dsf_exec_give(dsf_exec *e, dsf_tap tap, const void *data, int64_t rows)
{
    for (int i = 0; i < e->plan->n_values; i++) {
        const dsf_value *v = &e->plan->value[i];
        if (v->kind != DSF_VALUE_GIVEN || v->base != DSF_NO_VAL || v->tap.id != tap.id ||
            v->tap.layer != tap.layer)
            continue;
        e->given[i].data = data;
        e->given[i].rows = rows;
        return DSF_OK;
    }
    char path[64];
    dsf_tap_path(path, tap, e->plan->n_layers);
    return DSF_FAIL(DSF_EINVAL, "%s is not asked for by this plan", path);
}

/* Rows of the pass as this operand sees them: the step's own, or all. */
static dsf_status bind_rows(const dsf_exec *e, const dsf_step *s, int k, const dsf_row_range *range)
{
    dsf_val v = s->operand[k];
    const dsf_value *val = &e->plan->value[v];
    dsf_tensor *t = dsf_op_operand(s->op, e->plan->args + s->args, k);
    bool own = s->op->operand[k].dims[0] == s->row_letter;
    dsf_row_range r = range[own ? s->rows : val->rows];
    int64_t last = r.first + r.count;
    uint8_t *data = value_data(e, v);
    if (val->kind == DSF_VALUE_GIVEN) {
        int64_t have = e->given[dsf_plan_base(e->plan, v)].rows;
        if (!data || (own && last > have))
            return DSF_FAIL(DSF_EINVAL, "%s: %lld given rows, %lld wanted", val->name,
                            (long long)have, (long long)last);
        if (!own) last = have;
    }
    t->data = own ? data + r.first * dsf_tensor_stride(t) : data;
    t->dim[0] = own ? r.count : last;
    return DSF_OK;
}

static const int32_t *label_of(const dsf_exec *e, int rows, bool slot)
{
    dsf_input i = slot ? DSF_INPUT_SLOT : DSF_INPUT_POS;
    if (rows == DSF_ROWS_POOLED || rows == DSF_ROWS_PAIRS)
        i = slot ? DSF_INPUT_PAIR_SLOT : DSF_INPUT_PAIR_INDEX;
    if (rows == DSF_ROWS_SINGLES) i = slot ? DSF_INPUT_SINGLE_SLOT : DSF_INPUT_SINGLE_POS;
    if (rows == DSF_ROWS_HEAD) i = slot ? DSF_INPUT_HEAD_SLOT : DSF_INPUT_HEAD_POS;
    return dsf_exec_input(e, i, 0);
}

static dsf_tensor value_view(const dsf_exec *e, dsf_val v, dsf_row_range r)
{
    const dsf_value *val = &e->plan->value[v];
    dsf_tensor t = {.dtype = val->dtype, .rank = val->rank};
    memcpy(t.dim, val->dim, sizeof t.dim);
    t.data = value_data(e, v);
    if (val->rows == DSF_ROWS_NONE) return t;
    t.data = (uint8_t *)t.data + r.first * dsf_tensor_stride(&t);
    t.dim[0] = r.count;
    return t;
}

static dsf_status show_taps(const dsf_exec *e, const dsf_step *s, dsf_row_range r,
                            const dsf_tap_sink *sink)
{
    for (int i = 0; i < s->n_taps; i++) {
        if (sink->wants && !sink->wants(sink->ud, s->tap[i].tap)) continue;
        dsf_tensor t = value_view(e, s->tap[i].value, r);
        const int32_t *label = label_of(e, s->rows, false), *slot = label_of(e, s->rows, true);
        dsf_tap_value v = {.tap = s->tap[i].tap,
                           .value = &t,
                           .n = r.count,
                           .label = label + r.first,
                           .slot = slot + r.first};
        DSF_TRY(sink->on_value(sink->ud, &v));
    }
    return DSF_OK;
}

dsf_status dsf_exec_run(dsf_exec *e, const dsf_row_range *range, const dsf_tap_sink *sink)
{
    dsf_plan *p = e->plan;
    const dsf_launch lc = {.pool = e->pool, .scratch = e->worker, .scratch_bytes = p->worker_bytes};
    int n_sets = (int)(sizeof e->rows_run / sizeof *e->rows_run);
    for (int i = 0; i < n_sets; i++) e->rows_run[i] += range[i].count;
    e->passes++;
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *s = &p->step[i];
        dsf_row_range r = range[s->rows];
        if (r.count == 0) continue;
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL && p->value[s->operand[k]].rows != DSF_ROWS_NONE)
                DSF_TRY(bind_rows(e, s, k, range));
        int64_t t0 = e->step_ns ? dsf_clock_ns() : 0;
        DSF_TRY(s->variant->run(&lc, p->args + s->args));
        if (e->step_ns) e->step_ns[i] += dsf_clock_ns() - t0;
        if (sink && s->n_taps) DSF_TRY(show_taps(e, s, r, sink));
    }
    return DSF_OK;
}

dsf_status dsf_exec_result(const dsf_exec *e, dsf_tap tap, dsf_tensor *out)
{
    const dsf_plan *p = e->plan;
    for (int i = p->n_steps - 1; i >= 0; i--)
        for (int k = 0; k < p->step[i].n_taps; k++) {
            if (p->step[i].tap[k].tap.id != tap.id || p->step[i].tap[k].tap.layer != tap.layer)
                continue;
            dsf_val v = p->step[i].tap[k].value;
            *out = (dsf_tensor){
                .dtype = p->value[v].dtype, .rank = p->value[v].rank, .data = value_data(e, v)};
            memcpy(out->dim, p->value[v].dim, sizeof out->dim);
            return DSF_OK;
        }
    char path[64];
    dsf_tap_path(path, tap, p->n_layers);
    return DSF_FAIL(DSF_EINVAL, "%s is not a result of this plan", path);
}

bool dsf_exec_cache(const dsf_exec *e, const char *name, dsf_tensor *out)
{
    for (int i = 0; i < e->plan->n_values; i++) {
        const dsf_value *v = &e->plan->value[i];
        if (v->kind != DSF_VALUE_CACHE || v->base != DSF_NO_VAL || strcmp(v->name, name) != 0)
            continue;
        *out = (dsf_tensor){.dtype = v->dtype, .rank = v->rank, .data = e->cache + v->offset};
        memcpy(out->dim, v->dim, sizeof out->dim);
        return true;
    }
    return false;
}
