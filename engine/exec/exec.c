#include "exec/exec.h"

#include <string.h>

#include "base/mem.h"
#include "exec/stage.h"

/* Bytes of the largest value that a tap shows. */
static size_t shown_bytes(const dsf_plan *p)
{
    size_t most = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_taps; k++) {
            dsf_tensor t = dsf_plan_tensor(&p->value[p->step[i].tap[k].value]);
            size_t bytes = (size_t)dsf_tensor_bytes(&t);
            if (bytes > most) most = bytes;
        }
    return most;
}

size_t dsf_exec_extra_bytes(const dsf_plan *p, size_t *near)
{
    *near = 0;
    if (!(p->target & DSF_NEEDS_SM90)) return 0;
    size_t given = 0;
    for (int i = 0; i < p->n_values; i++)
        if (p->value[i].kind == DSF_VALUE_GIVEN && p->value[i].base == DSF_NO_VAL) {
            dsf_tensor t = dsf_plan_tensor(&p->value[i]);
            given += (size_t)dsf_tensor_bytes(&t);
        }
    size_t staged = dsf_stage_bytes(p);
    *near = p->input_bytes + staged + p->result_bytes + shown_bytes(p);
    return given + staged;
}

/* What a device needs beside the memory that a host has too. */
static dsf_status open_device(dsf_exec *e)
{
    dsf_plan *p = e->plan;
    dsf_device *d = e->setup.device;
    DSF_TRY(dsf_space_take(d, &e->input_there, p->input_bytes));
    DSF_TRY(dsf_space_take_near(d, &e->shown, shown_bytes(p)));
    DSF_TRY(dsf_space_take_near(d, &e->result, p->result_bytes));
    for (int i = 0; i < p->n_values; i++) {
        if (p->value[i].kind != DSF_VALUE_GIVEN || p->value[i].base != DSF_NO_VAL) continue;
        dsf_tensor t = dsf_plan_tensor(&p->value[i]);
        e->given[i].bytes = (size_t)dsf_tensor_bytes(&t);
        DSF_TRY(dsf_space_take(d, &e->given[i].there, e->given[i].bytes));
    }
    if (e->setup.graphs) DSF_TRY(dsf_replay_open(e));
    return dsf_stage_open(e);
}

static dsf_status take_cache(dsf_exec *e)
{
    const dsf_exec *from = e->setup.cache_from;
    size_t bytes = e->plan->cache_bytes;
    if (!from) return dsf_space_take(e->setup.device, &e->cache, bytes);
    if (from->plan->cache_bytes != bytes)
        return DSF_FAIL(DSF_EINVAL, "shared caches: %zu bytes in one plan, %zu in the other",
                        from->plan->cache_bytes, bytes);
    e->cache = from->cache;
    return DSF_OK;
}

/* What has no rows is bound once. */
static dsf_status bind_fixed(dsf_exec *e)
{
    const dsf_plan *p = e->plan;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].op->n_operands; k++) {
            dsf_val v = p->step[i].operand[k];
            if (v == DSF_NO_VAL || (e->setup.device && dsf_place_stays(&p->step[i], k))) continue;
            uint8_t *at = dsf_exec_data(e, v);
            if (!at && p->value[v].kind == DSF_VALUE_CONST)
                return DSF_FAIL(DSF_EINVAL, "%s was not placed on the device", p->value[v].name);
            dsf_op_operand(p->step[i].op, p->args + p->step[i].args, k)->data = at;
        }
    return DSF_OK;
}

static dsf_status open_all(dsf_exec *e)
{
    dsf_plan *p = e->plan;
    dsf_device *d = e->setup.device;
    if ((p->target & DSF_NEEDS_SM90) && !d)
        return DSF_FAIL(DSF_EINVAL, "a plan for a CUDA device, and none given");
    int workers = d ? 1 : dsf_pool_threads(e->setup.pool);
    e->worker_bytes = p->worker_bytes * (size_t)workers;
    DSF_TRY(dsf_mem_new(&e->given, (size_t)p->n_values + 1, sizeof *e->given));
    DSF_TRY(dsf_space_take(d, &e->scratch, p->scratch_bytes));
    DSF_TRY(dsf_space_take(d, &e->worker, e->worker_bytes));
    DSF_TRY(dsf_space_take_near(d, &e->input, p->input_bytes));
    DSF_TRY(take_cache(e));
    if (e->setup.timed)
        DSF_TRY(dsf_mem_new(&e->step_ns, (size_t)p->n_steps + 1, sizeof *e->step_ns));
    if (d)
        DSF_TRY(open_device(e));
    else
        e->input_there = e->input;
    return bind_fixed(e);
}

dsf_status dsf_exec_open(dsf_exec *e, dsf_plan *plan, const dsf_exec_setup *setup)
{
    *e = (dsf_exec){.plan = plan, .setup = *setup};
    dsf_status st = open_all(e);
    if (st != DSF_OK) dsf_exec_close(e);
    return st;
}

void dsf_exec_close(dsf_exec *e)
{
    if (!e->plan) return;
    dsf_device *d = e->setup.device;
    dsf_replay_close(e);
    dsf_stage_close(e);
    dsf_space_drop(d, e->scratch, e->plan->scratch_bytes);
    dsf_space_drop(d, e->worker, e->worker_bytes);
    if (!e->setup.cache_from) dsf_space_drop(d, e->cache, e->plan->cache_bytes);
    if (d) dsf_space_drop(d, e->input_there, e->plan->input_bytes);
    dsf_space_drop_near(d, e->input, e->plan->input_bytes);
    dsf_space_drop_near(d, e->shown, shown_bytes(e->plan));
    dsf_space_drop_near(d, e->result, e->plan->result_bytes);
    for (int i = 0; e->given && i < e->plan->n_values; i++)
        if (d) dsf_space_drop(d, e->given[i].there, e->given[i].bytes);
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

dsf_status dsf_exec_result(const dsf_exec *e, dsf_result which, dsf_tensor *out)
{
    const dsf_plan *p = e->plan;
    dsf_val v = p->result[which], base = dsf_plan_base(p, v);
    if (v == DSF_NO_VAL || p->value[base].result == DSF_NO_RESULT)
        return DSF_FAIL(DSF_EINVAL, "this plan has no result `%s`", dsf_plan_result_name(which));
    *out = dsf_plan_tensor(&p->value[v]);
    out->data = e->setup.device ? e->result + p->value[base].result : dsf_exec_data(e, v);
    return DSF_OK;
}

bool dsf_exec_cache(const dsf_exec *e, const char *name, dsf_tensor *out)
{
    for (int i = 0; i < e->plan->n_values; i++) {
        const dsf_value *v = &e->plan->value[i];
        if (v->kind != DSF_VALUE_CACHE || v->base != DSF_NO_VAL || strcmp(v->name, name) != 0)
            continue;
        *out = dsf_plan_tensor(v);
        out->data = e->cache + v->offset;
        return true;
    }
    return false;
}
