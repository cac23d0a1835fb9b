/* What the arenas of a placed plan hold, for the tables that explain it. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

static bool owns_scratch(const dsf_value *v)
{
    return v->kind == DSF_VALUE_SCRATCH && v->base == DSF_NO_VAL && v->first >= 0;
}

static bool lives_in(const dsf_value *v, int step)
{
    return owns_scratch(v) && v->first <= step && v->last >= step;
}

static size_t live_bytes(const dsf_plan *p, int step)
{
    size_t sum = 0;
    for (int i = 0; i < p->n_values; i++)
        if (lives_in(&p->value[i], step)) sum += p->value[i].bytes;
    return sum;
}

/* Biggest first, then in the order of recording. */
static int by_bytes(const void *a, const void *b)
{
    const dsf_inside *x = a, *y = b;
    if (x->bytes != y->bytes) return (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return (x->value > y->value) - (x->value < y->value);
}

/* Puts x among the sorted first `room`. */
static int insert(dsf_inside *list, int n, int room, dsf_inside x)
{
    if (n == room && (room == 0 || by_bytes(&list[n - 1], &x) <= 0)) return n;
    int at = n < room ? n++ : n - 1;
    for (; at > 0 && by_bytes(&list[at - 1], &x) > 0; at--) list[at] = list[at - 1];
    list[at] = x;
    return n;
}

int dsf_plan_peak(const dsf_plan *p, dsf_inside *list, int room, int *step, size_t *live)
{
    int n = 0, all = 0;
    *step = 0;
    *live = 0;
    for (int i = 0; i < p->n_steps; i++) {
        size_t bytes = live_bytes(p, i);
        if (bytes <= *live) continue;
        *live = bytes;
        *step = i;
    }
    for (int i = 0; i < p->n_values; i++) {
        if (!lives_in(&p->value[i], *step)) continue;
        all++;
        n = insert(list, n, room, (dsf_inside){i, p->value[i].bytes});
    }
    return all;
}

void dsf_plan_value_text(const dsf_plan *p, dsf_val v, dsf_buf *out)
{
    const dsf_value *x = &p->value[v];
    dsf_buf_fmt(out, "%s: ", x->name);
    for (int i = 0; i < x->rank; i++)
        dsf_buf_fmt(out, "%s%lld", i ? " x " : "", (long long)x->dim[i]);
    dsf_buf_fmt(out, " %s", dsf_dtype_name(x->dtype));
}

const struct dsf_cache_kind dsf_cache_kinds[DSF_CACHE_KINDS] = {{"kv_main", "cache: main KV"},
                                                                {"index_k", "cache: index keys"},
                                                                {"ring", "cache: window rings"},
                                                                {"pend", "cache: pending groups"}};

static bool same_shape(const dsf_value *a, const dsf_value *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool in_group(const dsf_value *v, const char *prefix)
{
    return v->kind == DSF_VALUE_CACHE && v->base == DSF_NO_VAL &&
           strncmp(v->name, prefix, strlen(prefix)) == 0;
}

/* Values of the group with the shape of value i; 0 when an earlier one has it. */
static int shape_count(const dsf_plan *p, const char *prefix, int i)
{
    int n = 0;
    for (int k = 0; k < p->n_values; k++) {
        if (!in_group(&p->value[k], prefix) || !same_shape(&p->value[k], &p->value[i])) continue;
        if (k < i) return 0;
        n++;
    }
    return n;
}

size_t dsf_plan_cache_group(const dsf_plan *p, const char *prefix, dsf_buf *out)
{
    size_t sum = 0;
    for (int i = 0; i < p->n_values; i++) {
        const dsf_value *v = &p->value[i];
        if (!in_group(v, prefix)) continue;
        sum += v->bytes;
        int n = shape_count(p, prefix, i);
        if (n == 0) continue;
        dsf_buf_fmt(out, "%s%d x (", out->len ? " + " : "", n);
        for (int k = 0; k < v->rank - 1; k++)
            dsf_buf_fmt(out, "%s%lld", k ? " x " : "", (long long)v->dim[k]);
        dsf_buf_fmt(out, " x %lld B %s)", (long long)dsf_dtype_bytes(v->dtype, v->dim[v->rank - 1]),
                    dsf_dtype_name(v->dtype));
    }
    return sum;
}

static int by_workspace(const void *a, const void *b)
{
    const dsf_workspace *x = a, *y = b;
    if (x->bytes != y->bytes) return (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return (x->step > y->step) - (x->step < y->step);
}

/* The place of the step's operation, at the end when it is new. */
static int place_of(const dsf_plan *p, const dsf_workspace *list, int n, const dsf_step *s)
{
    for (int i = 0; i < n; i++)
        if (p->step[list[i].step].op == s->op) return i;
    return n;
}

int dsf_plan_workspaces(const dsf_plan *p, dsf_workspace *list, int room)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *s = &p->step[i];
        size_t bytes =
            s->variant && s->variant->scratch ? s->variant->scratch(p->args + s->args) : 0;
        int at = place_of(p, list, n, s);
        if (bytes == 0 || at == room) continue;
        if (at == n) list[n++] = (dsf_workspace){i, bytes};
        if (bytes > list[at].bytes) list[at] = (dsf_workspace){i, bytes};
    }
    qsort(list, (size_t)n, sizeof *list, by_workspace);
    return n;
}

size_t dsf_plan_heap(const dsf_plan *p)
{
    return (size_t)p->cap_steps * sizeof *p->step + (size_t)p->cap_values * sizeof *p->value +
           p->args_cap + sizeof *p;
}
