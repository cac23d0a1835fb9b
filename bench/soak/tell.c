/* The lines of a soak, as JSON and as rows of a table. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "bench/soak/state.h"

void dsf_soak_find(dsf_soak_finding *f, const char *name, double measured, double limit,
                   const char *fmt, ...)
{
    va_list ap;
    if (f->n++ > 0 && measured - limit <= f->measured - f->limit) return; /* the worst is told */
    f->measured = measured;
    f->limit = limit;
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    va_start(ap, fmt);
    (void)vsnprintf(f->words, sizeof f->words, fmt, ap);
    va_end(ap);
}

void dsf_soak_begin(dsf_buf *json, const char *kind)
{
    dsf_json_begin(json, NULL, '{');
    dsf_json_add_cstr(json, "soak", kind);
}

/* What is told is the observer's own: not counted. text NULL: no row. */
dsf_status dsf_soak_emit(dsf_soak *s, dsf_buf *json, dsf_buf *text)
{
    dsf_ledger_hush(s->ledger, true);
    dsf_json_end(json, '}');
    dsf_status st = dsf_buf_status(json);
    if (st == DSF_OK && text) st = dsf_buf_status(text);
    if (st == DSF_OK) s->b->out.line(s->b->out.ud, json->data, text ? text->data : NULL);
    dsf_buf_free(json);
    if (text) dsf_buf_free(text);
    dsf_ledger_hush(s->ledger, false);
    return st;
}

static void add_list(dsf_buf *json, const char *key, const int64_t *v, int n)
{
    dsf_json_begin(json, key, '[');
    for (int i = 0; i < n; i++) dsf_json_add_int(json, NULL, v[i]);
    dsf_json_end(json, ']');
}

static void add_limits(dsf_buf *json, const dsf_soak_options *o)
{
    dsf_json_begin(json, "limits", '{');
    dsf_json_add_int(json, "margin_bytes", o->margin);
    dsf_json_add_num(json, "margin_percent", DSF_SOAK_MARGIN_PERCENT);
    dsf_json_add_num(json, "residual_percent", DSF_SOAK_RESIDUAL_PERCENT);
    dsf_json_add_int(json, "slope_bytes", DSF_SOAK_SLOPE_BYTES);
    dsf_json_add_int(json, "guard_bytes", o->guard);
    dsf_json_end(json, '}');
}

dsf_status dsf_soak_tell_start(dsf_soak *s, const dsf_engine *e)
{
    static const char *const heading =
        "length     chunk      planned B     measured B         left B  left %  tokens/s  output";
    const dsf_soak_options *o = s->o;
    dsf_buf json = {.max = 0}, text = {.max = 0};
    dsf_ledger_hush(s->ledger, true);
    dsf_soak_begin(&json, "start");
    dsf_bench_host(s->b, &json);
    dsf_bench_describe(e, &json);
    dsf_json_add_int(&json, "context", o->to);
    add_list(&json, "chunks", o->chunk, o->n_chunks);
    add_list(&json, "ladder", s->ladder.length, s->ladder.n);
    dsf_json_add_int(&json, "cycles", o->cycles);
    dsf_json_add_int(&json, "at", o->at);
    dsf_json_add_int(&json, "seed", (int64_t)o->seed);
    dsf_json_add_cstr(&json, "backend", dsf_plan_on_device(s->options.variants) ? "cuda" : "cpu");
    if (o->synthetic) dsf_json_add_cstr(&json, "layer_list", o->synthetic);
    if (o->plant) dsf_json_add_cstr(&json, "planted", o->plant);
    dsf_json_add_int(&json, "machine_bytes", s->start.machine.total);
    dsf_budget_json_lines(&e->budget, "budget", &json);
    dsf_json_add_int(&json, "planned_bytes", dsf_soak_planned(e));
    add_limits(&json, o);
    dsf_buf_str(&text, heading);
    return dsf_soak_emit(s, &json, &text);
}

static void add_arenas(const dsf_soak *s, dsf_buf *json)
{
    dsf_json_begin(json, "arenas", '[');
    for (int i = 0; i < DSF_ARENAS; i++) {
        if (!s->arena[i].base) continue;
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_cstr(json, "name", s->arena[i].name);
        dsf_json_add_int(json, "planned", (int64_t)s->arena[i].planned);
        dsf_json_add_int(json, "high_water", (int64_t)s->arena[i].high);
        dsf_json_end(json, '}');
    }
    dsf_json_end(json, ']');
}

static void add_curve(const dsf_soak *s, dsf_buf *json)
{
    dsf_json_begin(json, "curve", '[');
    for (int i = 0; i < s->n_curve; i++) {
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_int(json, "depth", s->curve[i].depth);
        dsf_json_add_int(json, "tokens", s->curve[i].tokens);
        dsf_json_add_num(json, "seconds", s->curve[i].seconds);
        dsf_json_end(json, '}');
    }
    dsf_json_end(json, ']');
}

static void add_largest(const dsf_soak_value *v, int n, dsf_buf *json)
{
    dsf_json_begin(json, "largest", '[');
    for (int i = 0; i < n; i++) {
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_cstr(json, "name", v[i].name);
        dsf_json_add_int(json, "bytes", v[i].bytes);
        dsf_json_add_cstr(json, "formula", v[i].formula);
        dsf_json_add_bool(json, "chunk_times_length", v[i].product);
        dsf_json_end(json, '}');
    }
    dsf_json_end(json, ']');
}

void dsf_soak_left(const dsf_soak *s, const dsf_soak_rung *r, int64_t *bytes, double *percent)
{
    int64_t total = s->start.machine.total;
    *bytes = r->available;
    if (r->device_free >= 0) {
        *bytes = r->device_free;
        total = s->device_total;
    }
    *percent = total > 0 ? 100 * (double)*bytes / (double)total : 0;
}

dsf_status dsf_soak_tell_rung(dsf_soak *s, const dsf_soak_rung *r, const dsf_soak_value *v, int n)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    char hash[32];
    int64_t left = 0;
    double percent = 0, rate = r->seconds > 0 ? (double)r->length / r->seconds : 0;
    dsf_soak_left(s, r, &left, &percent);
    (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    dsf_ledger_hush(s->ledger, true);
    dsf_soak_begin(&json, "rung");
    dsf_json_add_int(&json, "length", r->length);
    dsf_json_add_int(&json, "chunk", r->chunk);
    dsf_json_add_int(&json, "planned_bytes", r->planned);
    dsf_json_add_int(&json, "measured_bytes", r->measured);
    dsf_json_add_int(&json, "high_water_bytes", r->high);
    dsf_json_add_int(&json, "beside_plan_bytes", r->beside);
    dsf_json_add_int(&json, "resident_bytes", r->resident);
    dsf_json_add_int(&json, "margin_bytes", left);
    dsf_json_add_num(&json, "margin_percent", percent);
    dsf_json_add_num(&json, "seconds", r->seconds);
    dsf_json_add_num(&json, "tokens_per_s", rate);
    add_curve(s, &json);
    add_arenas(s, &json);
    add_largest(v, n, &json);
    dsf_json_add_cstr(&json, "hash", hash);
    dsf_json_add_bool(&json, "same", r->same);
    dsf_buf_fmt(&text, "%-10lld %-6lld %14lld %14lld %14lld %6.1f%% %9.0f  %.8s%s",
                (long long)r->length, (long long)r->chunk, (long long)r->planned,
                (long long)r->measured, (long long)left, percent, rate, hash,
                r->same ? "" : " DIFFERS");
    return dsf_soak_emit(s, &json, &text);
}
