/* One pass: row views, steps, timers, taps. */
#include <string.h>

#include "base/clock.h"
#include "exec/stage.h"

uint8_t *dsf_exec_data(const dsf_exec *e, dsf_val v)
{
    dsf_val at = dsf_plan_base(e->plan, v);
    const dsf_value *b = &e->plan->value[at];
    switch (b->kind) {
    case DSF_VALUE_SCRATCH:
        return e->scratch + b->offset;
    case DSF_VALUE_CACHE:
        return e->cache + b->offset;
    case DSF_VALUE_INPUT:
        return e->input_there + b->offset;
    case DSF_VALUE_GIVEN:
        return e->setup.device ? e->given[at].there : (uint8_t *)(uintptr_t)e->given[at].data;
    default:
        return e->setup.device ? dsf_place_at(e->setup.place, b->data)
                               : (uint8_t *)(uintptr_t)b->data;
    }
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
    uint8_t *data = dsf_exec_data(e, v);
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

/* The rows of a value in host memory: where they are, or brought here. */
static dsf_status value_view(const dsf_exec *e, dsf_val v, dsf_row_range r, dsf_tensor *t)
{
    const dsf_value *val = &e->plan->value[v];
    *t = dsf_plan_tensor(val);
    t->data = dsf_exec_data(e, v);
    if (val->rows != DSF_ROWS_NONE) {
        t->data = (uint8_t *)t->data + r.first * dsf_tensor_stride(t);
        t->dim[0] = r.count;
    }
    if (!e->setup.device) return DSF_OK;
    if (val->kind == DSF_VALUE_INPUT) { /* the caller's own rows; not all of them travel */
        size_t at = (size_t)((uint8_t *)t->data - e->input_there);
        t->data = e->input + at;
        return DSF_OK;
    }
    DSF_TRY(dsf_space_read(e->setup.device, e->shown, t->data, (size_t)dsf_tensor_bytes(t)));
    t->data = e->shown;
    return DSF_OK;
}

static dsf_status show_taps(const dsf_exec *e, const dsf_step *s, dsf_row_range r,
                            const dsf_tap_sink *sink)
{
    for (int i = 0; i < s->n_taps; i++) {
        if (sink->wants && !sink->wants(sink->ud, s->tap[i].tap)) continue;
        dsf_tensor t;
        DSF_TRY(value_view(e, s->tap[i].value, r, &t));
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

/* On a device the time between two marks around the step's launches. */
static dsf_status run_step(dsf_exec *e, int i, const dsf_launch *lc)
{
    const dsf_step *s = &e->plan->step[i];
    dsf_device *d = e->step_ns ? e->setup.device : NULL;
    int64_t t0 = e->step_ns ? dsf_clock_ns() : 0;
    if (d) DSF_TRY(dsf_device_mark(d, 0));
    DSF_TRY(s->variant->run(lc, e->plan->args + s->args));
    if (d) {
        double us = 0;
        DSF_TRY(dsf_device_mark(d, 1));
        DSF_TRY(dsf_device_between(d, 0, 1, &us));
        e->step_ns[i] += (int64_t)(1e3 * us);
    } else if (e->step_ns) {
        e->step_ns[i] += dsf_clock_ns() - t0;
    }
    return DSF_OK;
}

/* A pass that is replayed or captured has its table rows before it starts; another has each stage's
 * when the steps before it are queued, so that the gathering hides behind them. */
static dsf_status stage_all(dsf_exec *e, const dsf_row_range *range)
{
    for (int k = 0; k < e->n_stages; k++) DSF_TRY(dsf_stage_run(e, k, range));
    return DSF_OK;
}

static dsf_status stage_step(dsf_exec *e, int i, const dsf_row_range *range, bool staged)
{
    for (int k = 0; k < e->n_stages; k++) {
        if (dsf_stage_step(e, k) != i) continue;
        if (!staged) DSF_TRY(dsf_stage_run(e, k, range));
        dsf_stage_bind(e, k);
    }
    return DSF_OK;
}

static dsf_status run_steps(dsf_exec *e, const dsf_row_range *range, const dsf_tap_sink *sink,
                            bool staged)
{
    const dsf_plan *p = e->plan;
    const dsf_launch lc = {.pool = e->setup.pool,
                           .scratch = e->worker,
                           .scratch_bytes = p->worker_bytes,
                           .stream = e->setup.device ? dsf_device_stream(e->setup.device) : NULL};
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *s = &p->step[i];
        dsf_row_range r = range[s->rows];
        if (r.count == 0) continue;
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL && p->value[s->operand[k]].rows != DSF_ROWS_NONE)
                DSF_TRY(bind_rows(e, s, k, range));
        DSF_TRY(stage_step(e, i, range, staged));
        DSF_TRY(dsf_replay_step(e, i));
        DSF_TRY(run_step(e, i, &lc));
        DSF_TRY(dsf_replay_stepped(e, i));
        if (sink && s->n_taps) DSF_TRY(show_taps(e, s, r, sink));
    }
    return DSF_OK;
}

enum { SMALL = 1 << 16 }; /* bytes that travel faster at once than picked one by one */

/* Bytes of a value up to the last row that the pass has of it. */
static size_t pass_bytes(const dsf_value *v, const dsf_row_range *range)
{
    dsf_tensor t = dsf_plan_tensor(v);
    if (v->rows != DSF_ROWS_NONE) t.dim[0] = range[v->rows].first + range[v->rows].count;
    return (size_t)dsf_tensor_bytes(&t);
}

/* The rows of each input that this pass has. Engram rows are staged instead. */
static dsf_status send_inputs(const dsf_exec *e, const dsf_row_range *range)
{
    const dsf_plan *p = e->plan;
    dsf_device *d = e->setup.device;
    if (p->input_bytes <= SMALL) return dsf_device_put(d, e->input_there, e->input, p->input_bytes);
    for (int i = 0; i < p->n_values; i++) {
        const dsf_value *v = &p->value[i];
        if (v->kind != DSF_VALUE_INPUT || v->base != DSF_NO_VAL || v->first < 0 ||
            v->input == DSF_INPUT_ENGRAM)
            continue;
        DSF_TRY(dsf_device_put(d, e->input_there + v->offset, e->input + v->offset,
                               pass_bytes(v, range)));
    }
    return DSF_OK;
}

/* What the pass reads from the host travels: the inputs, given rows, staged table rows. */
static dsf_status send(dsf_exec *e, const dsf_row_range *range)
{
    const dsf_plan *p = e->plan;
    dsf_device *d = e->setup.device;
    DSF_TRY(send_inputs(e, range));
    for (int i = 0; i < p->n_values; i++) {
        const struct dsf_given *g = &e->given[i];
        if (!g->data || p->value[i].first < 0) continue;
        dsf_tensor t = dsf_plan_tensor(&p->value[i]);
        size_t bytes = (size_t)(g->rows * dsf_tensor_stride(&t));
        DSF_TRY(dsf_device_put(d, g->there, g->data, bytes < g->bytes ? bytes : g->bytes));
    }
    return DSF_OK;
}

/* Results come back: the rows that the pass had of each. */
static dsf_status fetch(const dsf_exec *e, const dsf_row_range *range)
{
    const dsf_plan *p = e->plan;
    for (int i = 0; i < p->n_values; i++) {
        const dsf_value *v = &p->value[i];
        if (v->result == DSF_NO_RESULT || v->base != DSF_NO_VAL) continue;
        DSF_TRY(dsf_device_get(e->setup.device, e->result + v->result, dsf_exec_data(e, i),
                               pass_bytes(v, range)));
    }
    return dsf_device_wait(e->setup.device);
}

dsf_status dsf_exec_run(dsf_exec *e, const dsf_row_range *range, const dsf_tap_sink *sink)
{
    bool done = false;
    bool graphs = e->setup.device && e->setup.graphs && !sink && !e->step_ns &&
                  range[DSF_ROWS_ALL].count <= DSF_REPLAY_ROWS;
    for (int i = 0; i < DSF_EXEC_SETS; i++) e->rows_run[i] += range[i].count;
    e->passes++;
    if (e->setup.device) DSF_TRY(send(e, range));
    if (graphs) DSF_TRY(stage_all(e, range));
    if (graphs) DSF_TRY(dsf_replay_begin(e, range, &done));
    if (!done) {
        dsf_status st = run_steps(e, range, sink, graphs);
        if (graphs) st = dsf_replay_end(e, st);
        if (st != DSF_OK) return dsf_error_pass(st, DSF_HERE);
    }
    return e->setup.device ? fetch(e, range) : DSF_OK;
}
