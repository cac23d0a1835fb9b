#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/plan.h"

dsf_status dsf_plan_open(dsf_plan **out, const dsf_plan_size *size, int n_layers)
{
    dsf_plan *p = NULL;
    DSF_TRY(dsf_mem_new(&p, 1, sizeof *p));
    p->size = *size;
    p->n_layers = n_layers;
    p->layer_now = -1;
    for (int i = 0; i < DSF_N_RESULTS; i++) p->result[i] = DSF_NO_VAL;
    *out = p;
    return DSF_OK;
}

void dsf_plan_close(dsf_plan *p)
{
    if (!p) return;
    dsf_mem_free(p->step);
    dsf_mem_free(p->value);
    dsf_mem_free(p->args);
    dsf_mem_free(p);
}

int64_t dsf_plan_capacity(const dsf_plan *p, int rows)
{
    return rows == DSF_ROWS_HEAD ? p->size.heads : p->size.rows;
}

static dsf_val fail(dsf_plan *p, dsf_status st)
{
    if (p->status == DSF_OK) p->status = st;
    return DSF_NO_VAL;
}

static dsf_value *new_value(dsf_plan *p, const char *name, dsf_value_kind kind, dsf_dtype t)
{
    if (p->status != DSF_OK) return NULL;
    if (p->n_values == p->cap_values) {
        int cap = p->cap_values ? 2 * p->cap_values : 256;
        dsf_status st = dsf_mem_grow(&p->value, (size_t)cap, sizeof *p->value);
        if (st != DSF_OK) {
            (void)fail(p, st);
            return NULL;
        }
        p->cap_values = cap;
    }
    dsf_value *v = &p->value[p->n_values++];
    *v = (dsf_value){.kind = kind,
                     .dtype = t,
                     .rows = DSF_ROWS_NONE,
                     .base = DSF_NO_VAL,
                     .tap = {DSF_TAP_NONE, -1},
                     .first = -1,
                     .last = -1};
    (void)snprintf(v->name, sizeof v->name, "%.31s", name);
    return v;
}

/* Shape [rows, tail...] for the current row set. */
static void set_row_shape(dsf_plan *p, dsf_value *v, int rows, int rank, const int64_t *tail)
{
    v->rows = rows;
    v->rank = rank;
    v->dim[0] = rows == DSF_ROWS_NONE ? 1 : dsf_plan_capacity(p, rows);
    for (int i = 1; i < rank; i++) v->dim[i] = tail[i - 1];
}

static dsf_val index_of(const dsf_plan *p, const dsf_value *v) { return (dsf_val)(v - p->value); }

dsf_val dsf_plan_scratch(dsf_plan *p, const char *name, dsf_dtype t, int rank, const int64_t *tail)
{
    dsf_value *v = new_value(p, name, DSF_VALUE_SCRATCH, t);
    if (!v) return DSF_NO_VAL;
    set_row_shape(p, v, p->rows_now, rank, tail);
    return index_of(p, v);
}

dsf_val dsf_plan_const(dsf_plan *p, const char *name, const dsf_tensor *w)
{
    dsf_value *v = new_value(p, name, DSF_VALUE_CONST, w->dtype);
    if (!v) return DSF_NO_VAL;
    v->rank = w->rank;
    memcpy(v->dim, w->dim, sizeof v->dim);
    v->data = w->data;
    return index_of(p, v);
}

dsf_val dsf_plan_table(dsf_plan *p, const char *name, const dsf_tensor *w, size_t bytes,
                       dsf_dtype target)
{
    dsf_val v = dsf_plan_const(p, name, w);
    if (v == DSF_NO_VAL) return v;
    p->value[v].target_bytes = bytes;
    p->value[v].target = target;
    return v;
}

dsf_val dsf_plan_cache(dsf_plan *p, const char *name, dsf_dtype t, int rank, const int64_t *dim)
{
    dsf_value *v = new_value(p, name, DSF_VALUE_CACHE, t);
    if (!v) return DSF_NO_VAL;
    v->rank = rank;
    for (int i = 0; i < rank; i++) v->dim[i] = dim[i];
    return index_of(p, v);
}

dsf_val dsf_plan_input(dsf_plan *p, dsf_input input, int index, int rank, const int64_t *tail)
{
    static const struct {
        const char *name;
        dsf_dtype dtype;
        int rows;
    } info[] = {
#define X(id, dtype, rows) {#id, DSF_##dtype, DSF_ROWS_##rows},
        DSF_INPUT_MAP(X)
#undef X
    };
    for (int i = 0; i < p->n_values; i++)
        if (p->value[i].kind == DSF_VALUE_INPUT && p->value[i].input == (int)input &&
            p->value[i].input_index == index)
            return i;
    char name[32];
    size_t k = 0;
    for (const char *s = info[input].name; *s; s++) name[k++] = (char)tolower((unsigned char)*s);
    name[k] = 0;
    dsf_value *v = new_value(p, name, DSF_VALUE_INPUT, info[input].dtype);
    if (!v) return DSF_NO_VAL;
    set_row_shape(p, v, info[input].rows, rank, tail);
    v->input = (int)input;
    v->input_index = index;
    return index_of(p, v);
}

dsf_val dsf_plan_view(dsf_plan *p, dsf_val v, int rank, const int64_t *tail)
{
    if (p->status != DSF_OK || v == DSF_NO_VAL) return DSF_NO_VAL;
    const dsf_value from = p->value[v]; /* a copy: new values may move the array */
    dsf_value *w = new_value(p, from.name, from.kind, from.dtype);
    if (!w) return DSF_NO_VAL;
    *w = from;
    w->rank = rank;
    w->base = dsf_plan_base(p, v);
    int64_t was = 1, is = 1;
    for (int i = 1; i < from.rank; i++) was *= from.dim[i];
    for (int i = 1; i < rank; i++) is *= w->dim[i] = tail[i - 1];
    if (was != is)
        return fail(p, DSF_FAIL(DSF_EINVAL, "view of %s: %lld elements a row seen as %lld",
                                from.name, (long long)was, (long long)is));
    return index_of(p, w);
}

dsf_val dsf_plan_given_value(dsf_plan *p, dsf_tap tap, dsf_dtype t, int rank, const int64_t *tail)
{
    char path[64];
    dsf_tap_path(path, tap, p->n_layers);
    dsf_value *v = new_value(p, path, DSF_VALUE_GIVEN, t);
    if (!v) return DSF_NO_VAL;
    set_row_shape(p, v, p->rows_now, rank, tail);
    v->tap = tap;
    return index_of(p, v);
}

/* What dimension i of an operand must be: its letter's size, which the first use decides. */
static int64_t wanted(char c, int i, const dsf_value *v, int64_t *size)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'Z') {
        int64_t full = size[c - 'A'];
        return full < 0 ? v->dim[i] : (full + 31) / 32;
    }
    bool row = i == 0 && v->rows != DSF_ROWS_NONE; /* capacities of two row sets may differ */
    if (size[c - 'a'] < 0 || row) size[c - 'a'] = v->dim[i];
    return size[c - 'a'];
}

/* Every letter of the contract's shapes must mean one size throughout the step. */
static dsf_status bind_letters(const dsf_op *op, const dsf_operand *o, const dsf_value *v,
                               int64_t *size)
{
    if ((int)strlen(o->dims) != v->rank || v->dtype != o->dtype)
        return DSF_FAIL(DSF_EINVAL, "%s.%s: value %s is %s of rank %d, the contract says %s [%s]",
                        op->name, o->name, v->name, dsf_dtype_name(v->dtype), v->rank,
                        dsf_dtype_name(o->dtype), o->dims);
    for (int i = 0; i < v->rank; i++) {
        int64_t want = wanted(o->dims[i], i, v, size);
        if (v->dim[i] != want)
            return DSF_FAIL(DSF_EINVAL, "%s.%s: value %s has %lld in dimension %c, %lld expected",
                            op->name, o->name, v->name, (long long)v->dim[i], o->dims[i],
                            (long long)want);
    }
    return DSF_OK;
}

static dsf_status check_operands(const dsf_plan *p, const dsf_op *op, const dsf_val *vals)
{
    int64_t size[26];
    for (int i = 0; i < 26; i++) size[i] = -1;
    for (int i = 0; i < op->n_operands; i++) {
        const dsf_operand *o = &op->operand[i];
        if (vals[i] == DSF_NO_VAL) {
            if (o->flags & (DSF_OPERAND_OPTIONAL | DSF_OPERAND_AUX)) continue;
            return DSF_FAIL(DSF_EINVAL, "%s.%s: no value", op->name, o->name);
        }
        DSF_TRY(bind_letters(op, o, &p->value[vals[i]], size));
    }
    return DSF_OK;
}

static dsf_status append(dsf_plan *p, const dsf_op *op, const void *args, const dsf_val *vals)
{
    size_t at = (p->args_bytes + 15) & ~(size_t)15;
    if (at + op->args_size > p->args_cap) {
        size_t cap = 2 * (at + op->args_size) + 4096;
        DSF_TRY(dsf_mem_grow(&p->args, cap, 1));
        p->args_cap = cap;
    }
    if (p->n_steps == p->cap_steps) {
        int cap = p->cap_steps ? 2 * p->cap_steps : 256;
        DSF_TRY(dsf_mem_grow(&p->step, (size_t)cap, sizeof *p->step));
        p->cap_steps = cap;
    }
    memcpy(p->args + at, args, op->args_size);
    dsf_step *s = &p->step[p->n_steps++];
    *s = (dsf_step){.op = op, .rows = p->rows_now, .layer = p->layer_now, .args = at};
    p->args_bytes = at + op->args_size;
    for (int i = 0; i < op->n_operands; i++) {
        s->operand[i] = vals[i];
        if (vals[i] == DSF_NO_VAL) continue;
        *dsf_op_operand(op, p->args + at, i) = dsf_plan_tensor(&p->value[vals[i]]);
        if (!s->row_letter && p->value[vals[i]].rows != DSF_ROWS_NONE)
            s->row_letter = op->operand[i].dims[0];
    }
    return DSF_OK;
}

void dsf_plan_step(dsf_plan *p, const dsf_op *op, const void *args, const dsf_bind *bind, int n)
{
    if (p->status != DSF_OK) return;
    assert(op->n_operands <= DSF_MAX_OPERANDS);
    dsf_val vals[DSF_MAX_OPERANDS];
    int found = 0;
    for (int i = 0; i < op->n_operands; i++) {
        vals[i] = DSF_NO_VAL;
        for (int k = 0; k < n; k++) {
            if (bind[k].offset != op->operand[i].offset) continue;
            vals[i] = bind[k].value;
            found++;
        }
    }
    assert(found == n); /* every bound offset is an operand of this op */
    (void)found;
    dsf_status st = check_operands(p, op, vals);
    if (st == DSF_OK) st = append(p, op, args, vals);
    if (st != DSF_OK) (void)fail(p, dsf_error_pass(st, DSF_HERE));
}

/* The last step that writes v, or NULL when v is no computed value. */
static dsf_step *producer(dsf_plan *p, dsf_val v)
{
    for (int i = p->n_steps - 1; i >= 0; i--) {
        dsf_step *s = &p->step[i];
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL &&
                dsf_plan_base(p, s->operand[k]) == dsf_plan_base(p, v) &&
                s->op->operand[k].dir != DSF_IN)
                return s;
    }
    return NULL;
}

void dsf_plan_show(dsf_plan *p, dsf_tap_id id, int layer, dsf_val v)
{
    if (p->status != DSF_OK || v == DSF_NO_VAL) return;
    dsf_step *s = producer(p, v);
    if (!s && p->value[v].kind == DSF_VALUE_INPUT && p->n_steps > 0) s = &p->step[p->n_steps - 1];
    if (!s) return; /* given: the caller has it already */
    if (s->n_taps == DSF_STEP_TAPS) {
        (void)fail(p, DSF_FAIL(DSF_EINVAL, "%s: more than %d taps on one step", s->op->name,
                               (int)DSF_STEP_TAPS));
        return;
    }
    s->tap[s->n_taps].tap = (dsf_tap){id, layer};
    s->tap[s->n_taps].value = v;
    s->n_taps++;
}

void dsf_plan_result(dsf_plan *p, dsf_result which, dsf_val v)
{
    if (p->status == DSF_OK) p->result[which] = v;
}

const char *dsf_plan_result_name(dsf_result which)
{
    static const char *const name[DSF_N_RESULTS] = {"logits", "next", "draft_ids", "confidence"};
    return name[which];
}

dsf_val dsf_plan_tap(dsf_plan *p, dsf_tap_id id, int layer, dsf_val v)
{
    dsf_plan_show(p, id, layer, v);
    dsf_tap tap = {id, layer};
    if (p->status != DSF_OK || v == DSF_NO_VAL || !p->given || !p->given(p->given_ud, tap))
        return v;
    const dsf_value from = p->value[v]; /* a copy: new values may move the array */
    if (from.kind == DSF_VALUE_GIVEN) return v;
    return dsf_plan_given_value(p, tap, from.dtype, from.rank, from.dim + 1);
}
