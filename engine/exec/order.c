#include "exec/order.h"

#include <string.h>

#include "base/mem.h"

/* Steps are compared with so many before them. Older ones are waited for by way of the oldest. */
enum { BACK = 192, WORDS = BACK / 64 };

typedef struct {
    dsf_value_kind arena;
    size_t from, to;
    bool writes;
} span;

typedef struct {
    span span[DSF_MAX_OPERANDS + 1];
    int n;
    uint64_t waits[WORDS]; /* bit k: this step ends after step (its number - 1 - k) */
} access;

/* The bytes that a step touches: its scratch and cache values, and the workspace that all kernels
 * share, as an arena of its own. Inputs, constants and given rows are only read. */
static void look(const dsf_plan *p, const dsf_step *s, access *a)
{
    a->n = 0;
    for (int k = 0; k < s->op->n_operands; k++) {
        dsf_val v = dsf_plan_base(p, s->operand[k]);
        if (v == DSF_NO_VAL) continue;
        const dsf_value *b = &p->value[v];
        if (b->kind != DSF_VALUE_SCRATCH && b->kind != DSF_VALUE_CACHE) continue;
        a->span[a->n++] =
            (span){b->kind, b->offset, b->offset + b->bytes, s->op->operand[k].dir != DSF_IN};
    }
    bool works = s->variant && s->variant->scratch && s->variant->scratch(p->args + s->args) > 0;
    if (works) a->span[a->n++] = (span){DSF_VALUE_CONST, 0, 1, true};
}

static bool conflict(const access *a, const access *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            const span *x = &a->span[i], *y = &b->span[k];
            if (x->arena == y->arena && (x->writes || y->writes) && x->from < y->to &&
                y->from < x->to)
                return true;
        }
    return false;
}

static bool waits_for(const access *a, int distance)
{
    return distance >= 1 && distance <= BACK &&
           (a->waits[(distance - 1) / 64] >> (distance - 1) % 64 & 1);
}

/* a comes to wait for the step `distance` before it, and for all that this one waits for. */
static void wait_for(access *a, const access *other, int distance)
{
    a->waits[(distance - 1) / 64] |= (uint64_t)1 << (distance - 1) % 64;
    for (int d = 1; d + distance <= BACK; d++)
        if (waits_for(other, d))
            a->waits[(d + distance - 1) / 64] |= (uint64_t)1 << (d + distance - 1) % 64;
}

typedef struct {
    dsf_order *o;
    int n, cap;
} list;

static dsf_status append(list *l, int step)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        DSF_TRY(dsf_mem_grow(&l->o->after, (size_t)l->cap, sizeof *l->o->after));
    }
    l->o->after[l->n++] = step;
    return DSF_OK;
}

/* seen: the last BACK steps and step i itself. */
static dsf_status order_one(list *l, access *seen, int i)
{
    access *a = &seen[i % (BACK + 1)];
    for (int d = 1; d <= BACK && d <= i; d++) {
        const access *b = &seen[(i - d) % (BACK + 1)];
        bool oldest = d == BACK;
        if (waits_for(a, d) || !(oldest || conflict(a, b))) continue;
        DSF_TRY(append(l, i - d));
        wait_for(a, b, d);
    }
    return DSF_OK;
}

static dsf_status fill(dsf_order *o, const dsf_plan *p, access *seen)
{
    list l = {.o = o};
    for (int i = 0; i < p->n_steps; i++) {
        access *a = &seen[i % (BACK + 1)];
        memset(a->waits, 0, sizeof a->waits);
        look(p, &p->step[i], a);
        o->first[i] = l.n;
        DSF_TRY(order_one(&l, seen, i));
    }
    o->first[p->n_steps] = l.n;
    o->bytes = ((size_t)p->n_steps + 1 + (size_t)l.cap) * sizeof(int);
    return DSF_OK;
}

dsf_status dsf_order_open(dsf_order *o, const dsf_plan *p)
{
    access *seen = NULL;
    *o = (dsf_order){.n_steps = p->n_steps};
    DSF_TRY(dsf_mem_new(&o->first, (size_t)p->n_steps + 1, sizeof *o->first));
    DSF_TRY(dsf_mem_new(&seen, BACK + 1, sizeof *seen));
    dsf_status st = fill(o, p, seen);
    dsf_mem_free(seen);
    return st;
}

void dsf_order_close(dsf_order *o)
{
    dsf_mem_free(o->first);
    dsf_mem_free(o->after);
    *o = (dsf_order){.n_steps = 0};
}

static int add(int *out, int n, int step)
{
    for (int i = 0; i < n; i++)
        if (out[i] == step) return n;
    out[n] = step;
    return n + 1;
}

int dsf_order_after(const dsf_order *o, int step, const bool *captured, int *out)
{
    int n = 0;
    for (int i = o->first[step]; i < o->first[step + 1]; i++) n = add(out, n, o->after[i]);
    for (int i = 0; i < n;) {
        int one = out[i];
        if (captured[one]) {
            i++;
            continue;
        }
        out[i] = out[--n];
        for (int k = o->first[one]; k < o->first[one + 1]; k++) n = add(out, n, o->after[k]);
    }
    return n;
}
