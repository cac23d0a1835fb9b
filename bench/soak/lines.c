/* The lines of the memory plan beside what was really taken for each of them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "bench/soak/state.h"

int64_t dsf_soak_planned(const dsf_engine *e) { return dsf_memory_total(e, &e->budget); }

/* What kernels were handed of the caches whose values' names start so. */
static int64_t handed(const dsf_soak *s, const char *prefix)
{
    const dsf_plan *p = s->engine->plan;
    int64_t sum = 0;
    for (int i = 0; i < p->n_values; i++)
        if (strncmp(p->value[i].name, prefix, strlen(prefix)) == 0)
            sum += (int64_t)s->cache_high[i];
    return sum;
}

static int64_t cache_line(const dsf_soak *s, const char *name)
{
    for (int i = 0; i < DSF_CACHE_KINDS; i++)
        if (strcmp(name, dsf_cache_kinds[i].line) == 0) return handed(s, dsf_cache_kinds[i].prefix);
    return -1;
}

static int64_t sessions_line(const dsf_soak *s, dsf_session *const *session, int n)
{
    int64_t sum = dsf_ledger_at(s->ledger, s->engine->embed);
    for (int i = 0; i < n; i++)
        sum += dsf_ledger_at(s->ledger, session[i]->ids) +
               dsf_ledger_at(s->ledger, session[i]->vl) +
               dsf_ledger_at(s->ledger, session[i]->embed);
    return sum;
}

/* Blocks of an exec, which its lines begin with. */
static int64_t exec_line(const dsf_soak *s, const dsf_exec *e, const char *name)
{
    const dsf_ledger *l = s->ledger;
    if (strcmp(name, "values") == 0) return dsf_ledger_at(l, e->scratch);
    if (strcmp(name, "kernel scratch") == 0) return dsf_ledger_at(l, e->worker);
    if (strcmp(name, "inputs") == 0) return dsf_ledger_at(l, e->input);
    if (strcmp(name, "given values") == 0) return dsf_ledger_at(l, e->given);
    return -1;
}

static int64_t host_line(const dsf_soak *s, const char *name)
{
    if (strncmp(name, "pass: ", 6) == 0) return exec_line(s, &s->engine->exec, name + 6);
    if (strncmp(name, "draft: ", 7) == 0) return exec_line(s, &s->engine->draft, name + 7);
    return -1;
}

static int64_t plan_bytes(const dsf_soak *s, const dsf_plan *p)
{
    const dsf_ledger *l = s->ledger;
    if (!p) return 0;
    return dsf_ledger_at(l, p) + dsf_ledger_at(l, p->step) + dsf_ledger_at(l, p->value) +
           dsf_ledger_at(l, p->args);
}

static int64_t engram_line(const dsf_soak *s)
{
    const dsf_weights *w = &s->engine->load.weights;
    int64_t sum = 0;
    for (int i = 0; i < w->n_tables; i++) sum += dsf_ledger_at(s->ledger, w->table[i]);
    return sum;
}

static int64_t measured(const dsf_soak *s, const char *name, dsf_session *const *session, int n)
{
    const dsf_engine *e = s->engine;
    int64_t cache = cache_line(s, name);
    if (cache >= 0) return cache;
    if (strcmp(name, "sessions") == 0) return sessions_line(s, session, n);
    if (strcmp(name, "plans") == 0) return plan_bytes(s, e->plan) + plan_bytes(s, e->draft_plan);
    if (strcmp(name, "token classes") == 0) return dsf_ledger_at(s->ledger, e->load.classes);
    if (strcmp(name, "weight tables") == 0)
        return dsf_ledger_at(s->ledger, e->load.weights.view) +
               dsf_ledger_at(s->ledger, e->load.weights.experts);
    if (strcmp(name, "Engram tables") == 0) return engram_line(s);
    if (!e->device) return host_line(s, name);
    if (strcmp(name, "pass: values") == 0) return (int64_t)s->arena[0].high;
    return -1;
}

int dsf_soak_lines(const dsf_soak *s, dsf_session *const *session, int n, dsf_soak_line *out)
{
    const dsf_budget *b = &s->engine->budget;
    for (int i = 0; i < b->n; i++) {
        const dsf_budget_line *l = &b->line[i];
        /* What lies in a file is no memory taken. */
        bool file = l->kind == DSF_BUDGET_FILE;
        out[i] = (dsf_soak_line){l, l->bytes, file ? -1 : measured(s, l->name, session, n)};
    }
    return b->n;
}

static void describe(const dsf_value *v, dsf_soak_value *out)
{
    int at = 0;
    *out = (dsf_soak_value){.bytes = (int64_t)v->bytes};
    (void)snprintf(out->name, sizeof out->name, "%s", v->name);
    for (int k = 0; k < v->rank; k++) {
        at += snprintf(out->formula + at, sizeof out->formula - (size_t)at, "%s%lld",
                       k ? " x " : "", (long long)v->dim[k]);
        if (at >= (int)sizeof out->formula - 32) break;
    }
    (void)snprintf(out->formula + at, sizeof out->formula - (size_t)at, " %s, steps %d to %d",
                   dsf_dtype_name(v->dtype), v->first, v->last);
}

int dsf_soak_largest(const dsf_soak *s, const dsf_plan *p, dsf_soak_value *out)
{
    int n = 0;
    int64_t below = INT64_MAX;
    while (n < DSF_SOAK_NAMED) {
        int best = -1;
        for (int i = 0; i < p->n_values; i++) {
            const dsf_value *v = &p->value[i];
            if (v->kind != DSF_VALUE_SCRATCH || v->base != DSF_NO_VAL || v->first < 0) continue;
            if ((int64_t)v->bytes < below && (best < 0 || v->bytes > p->value[best].bytes))
                best = i;
        }
        if (best < 0) return n;
        describe(&p->value[best], &out[n]);
        below = out[n].bytes; /* of equals one stands for all */
        for (int k = 0; k < s->n_products; k++)
            out[n].product = out[n].product || strcmp(s->product[k].name, out[n].name) == 0;
        n++;
    }
    return n;
}

/* A plan alone, of this size. */
static dsf_status open_plan(const dsf_soak *s, int64_t length, int64_t chunk, dsf_engine **out)
{
    dsf_options eo = s->options;
    eo.context = length;
    eo.chunk = chunk;
    eo.slots = 1;
    eo.plan_only = true;
    return dsf_engine_open(out, &eo);
}

static bool same_values(const dsf_plan *a, const dsf_plan *b) { return a->n_values == b->n_values; }

/* b(T, L) - b(T/2, L) - b(T, L/2) + b(T/2, L/2) is a quarter of the term in T L, and nothing else.
 */
static void keep_products(dsf_soak *s, dsf_engine *const e[4])
{
    for (int i = 0; i < e[0]->plan->n_values && s->n_products < DSF_SOAK_NAMED; i++) {
        const dsf_value *v = &e[0]->plan->value[i];
        if (v->base != DSF_NO_VAL || v->first < 0) continue;
        int64_t mixed = (int64_t)v->bytes - (int64_t)e[1]->plan->value[i].bytes -
                        (int64_t)e[2]->plan->value[i].bytes + (int64_t)e[3]->plan->value[i].bytes;
        if (mixed <= 1024) continue; /* four times the 256 bytes that sizes are rounded up to */
        describe(v, &s->product[s->n_products++]);
    }
}

dsf_status dsf_soak_products(dsf_soak *s, int64_t length, int64_t chunk)
{
    dsf_engine *e[4] = {NULL, NULL, NULL, NULL};
    dsf_status st = DSF_OK;
    if (chunk < 2 || length < 2 * chunk) return DSF_OK; /* halves would be no plan of this kind */
    for (int i = 0; i < 4; i++)
        DSF_TRY_OUT(open_plan(s, i & 2 ? length / 2 : length, i & 1 ? chunk / 2 : chunk, &e[i]));
    bool same = true;
    for (int i = 1; i < 4; i++) same = same && same_values(e[0]->plan, e[i]->plan);
    if (same) keep_products(s, e);
out:
    for (int i = 0; i < 4; i++) dsf_engine_close(e[i]);
    return st;
}
