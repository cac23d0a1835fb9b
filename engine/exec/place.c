#include "exec/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/share.h"
#include "ops/engram.h"

enum { ALIGN = 256 }; /* of a tensor: what copy engine and vector loads want */

typedef struct {
    dsf_placed t; /* dtype I64: a table of pointers to other entries */
    size_t at;
} entry;

struct dsf_place {
    dsf_device *device;
    int64_t ranks;
    entry *list; /* sorted by host address after dsf_place_add */
    size_t n, cap, bytes;
    void *there;
};

dsf_status dsf_place_open(dsf_place **out, dsf_device *d, int64_t ranks)
{
    DSF_TRY(dsf_mem_new(out, 1, sizeof **out));
    (*out)->device = d;
    (*out)->ranks = ranks;
    return DSF_OK;
}

void dsf_place_close(dsf_place *l)
{
    if (!l) return;
    dsf_device_free(l->device, l->there);
    dsf_mem_free(l->list);
    dsf_mem_free(l);
}

static dsf_status add(dsf_place *l, const dsf_placed *t)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 1024;
        DSF_TRY(dsf_mem_grow(&l->list, cap, sizeof *l->list));
        l->cap = cap;
    }
    l->list[l->n++] = (entry){.t = *t};
    return DSF_OK;
}

static int by_host(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return (x->t.host > y->t.host) - (x->t.host < y->t.host);
}

/* Each address once, with the most bytes that were asked for, and its offset. */
static void settle(dsf_place *l)
{
    size_t n = 0;
    qsort(l->list, l->n, sizeof *l->list, by_host);
    for (size_t i = 0; i < l->n; i++) {
        entry *last = n ? &l->list[n - 1] : NULL;
        if (last && last->t.host == l->list[i].t.host) {
            if (l->list[i].t.bytes > last->t.bytes) last->t = l->list[i].t;
        } else {
            l->list[n++] = l->list[i];
        }
    }
    l->n = n;
    l->bytes = 0;
    for (size_t i = 0; i < n; i++) {
        l->list[i].at = l->bytes;
        l->bytes += (l->list[i].t.bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

bool dsf_place_stays(const dsf_step *s, int operand)
{
    size_t at = s->op->operand[operand].offset;
    return s->op == &dsf_op_engram_gather && (at == offsetof(dsf_engram_gather_args, table) ||
                                              at == offsetof(dsf_engram_gather_args, s));
}

static dsf_status add_value(dsf_place *l, const dsf_value *v)
{
    dsf_tensor t = dsf_plan_tensor(v);
    const dsf_placed whole = {v->data, (size_t)dsf_tensor_bytes(&t), v->dtype,
                              v->rank > 1 ? v->dim[v->rank - 1] : 0};
    DSF_TRY(add(l, &whole));
    if (v->dtype != DSF_I64) return DSF_OK;
    const int64_t *p = v->data;
    for (int64_t i = 0; i < dsf_share(v->dim[0], l->ranks); i++) {
        const dsf_placed target = {(const void *)(uintptr_t)p[i], // NOLINT
                                   v->target_bytes, v->target, 1};
        DSF_TRY(add(l, &target));
    }
    return DSF_OK;
}

dsf_status dsf_place_add(dsf_place *l, const dsf_plan *p)
{
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].op->n_operands; k++) {
            dsf_val v = dsf_plan_base(p, p->step[i].operand[k]);
            if (v == DSF_NO_VAL || p->value[v].kind != DSF_VALUE_CONST ||
                dsf_place_stays(&p->step[i], k))
                continue;
            DSF_TRY(add_value(l, &p->value[v]));
        }
    settle(l);
    return DSF_OK;
}

size_t dsf_place_bytes(const dsf_place *l) { return l->bytes; }

void *dsf_place_at(const dsf_place *l, const void *host)
{
    const entry key = {.t = {.host = host}}, *e = NULL;
    if (l->there && l->n) e = bsearch(&key, l->list, l->n, sizeof *l->list, by_host);
    return e ? (uint8_t *)l->there + e->at : NULL;
}

/* A table's entries become the addresses of what they lead to. */
static dsf_status load_table(const dsf_place *l, const entry *e)
{
    size_t n = e->t.bytes / sizeof(int64_t);
    int64_t *p = NULL;
    DSF_TRY(dsf_mem_new(&p, n, sizeof *p));
    for (size_t i = 0; i < n; i++)
        p[i] = (int64_t)(intptr_t)dsf_place_at(
            l, (const void *)(uintptr_t)((const int64_t *)e->t.host)[i]); // NOLINT
    dsf_status st = dsf_device_put(l->device, (uint8_t *)l->there + e->at, p, e->t.bytes);
    dsf_mem_free(p);
    return st;
}

dsf_status dsf_place_load(dsf_place *l, dsf_place_fn *fill, void *ud)
{
    DSF_TRY(dsf_device_new(l->device, &l->there, l->bytes));
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->list[i];
        uint8_t *there = (uint8_t *)l->there + e->at;
        if (e->t.dtype == DSF_I64)
            DSF_TRY(load_table(l, e));
        else if (fill)
            DSF_TRY(fill(ud, l->device, there, &e->t));
        else
            DSF_TRY(dsf_device_put(l->device, there, e->t.host, e->t.bytes));
    }
    return dsf_device_wait(l->device);
}
