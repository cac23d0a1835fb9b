#include "serve/planned.h"

#include <string.h>

#include "ops/index.h"

/* ---- what is asked of the plans ---- */

static void find_peak(const dsf_plan *p, dsf_planned_peak *k)
{
    k->all = dsf_plan_peak(p, k->value, DSF_PLANNED_SHOWN, &k->step, &k->live);
    k->n = k->all < DSF_PLANNED_SHOWN ? k->all : DSF_PLANNED_SHOWN;
}

/* The pass arena of a decode batch by itself: as many rows as there are sequences. */
static dsf_status find_decode(const dsf_engine *e, int64_t *bytes)
{
    dsf_budget b;
    DSF_TRY(dsf_memory_at(e, e->opt.context, e->opt.slots, &b));
    const dsf_budget_line *l = dsf_budget_find(&b, "pass: values");
    *bytes = l ? l->bytes : 0;
    return DSF_OK;
}

dsf_status dsf_planned_make(dsf_planned *p, const dsf_engine *e, const dsf_planned_options *o)
{
    *p = (dsf_planned){.e = e, .o = *o, .most_context = -1, .most_chunk = -1};
    if (!o->memory && !dsf_memory_on_device(e)) p->o.memory = dsf_memory_machine();
    if (p->o.memory && p->o.reserve >= p->o.memory)
        return DSF_FAIL(DSF_EINVAL, "a reserve of %lld bytes leaves nothing of %lld",
                        (long long)o->reserve, (long long)p->o.memory);
    p->limit = p->o.memory - (p->o.memory ? o->reserve : 0);
    p->total = dsf_memory_total(e, &e->budget);
    find_peak(e->plan, &p->peak[0]);
    if (e->draft_plan) find_peak(e->draft_plan, &p->peak[1]);
    p->n_work = dsf_plan_workspaces(e->plan, p->work, DSF_PLANNED_WORKSPACES);
    DSF_TRY(find_decode(e, &p->decode));
    if (!o->search || !p->limit) return DSF_OK;
    DSF_TRY(dsf_memory_most_context(e, p->limit, &p->most_context));
    return dsf_memory_most_chunk(e, p->limit, &p->most_chunk);
}

/* ---- text ---- */

static const char *place_name(const dsf_planned *p)
{
    return dsf_memory_on_device(p->e) ? "device" : "host";
}

static void print_request(const dsf_planned *p, dsf_buf *out)
{
    const dsf_options *o = &p->e->opt;
    const dsf_config *c = &p->e->load.config;
    dsf_buf_fmt(out,
                "%d layers, %d draft stages; context %lld, chunk %lld, %lld sequences, rewind "
                "%lld; %d %s\n",
                c->n_layers, c->n_mtp_layers, (long long)o->context, (long long)o->chunk,
                (long long)o->slots, (long long)o->rewind, o->ranks, place_name(p));
    if (o->ranks > 1)
        dsf_buf_fmt(out,
                    "planned; running on %d devices is not built. Each device: experts shared "
                    "(expert e on rank e N / E, the largest share counted),\nall else on every "
                    "device; host lines: of each rank, Engram rows in %d ranges\n",
                    o->ranks, o->ranks);
}

/* The next smaller line that the limit is held against; NULL after the last. */
static const dsf_budget_line *next_largest(const dsf_planned *p, const dsf_budget_line *last)
{
    int kind = dsf_memory_on_device(p->e) ? DSF_BUDGET_DEVICE : DSF_BUDGET_HOST;
    const dsf_budget_line *best = NULL, *line = p->e->budget.line;
    for (const dsf_budget_line *l = line; l < line + p->e->budget.n; l++) {
        if (l->kind != kind || l->absent || l == last) continue;
        if (last && (l->bytes > last->bytes || (l->bytes == last->bytes && l < last))) continue;
        if (!best || l->bytes > best->bytes) best = l;
    }
    return best;
}

enum { OVER_SHOWN = 4 };

static void print_over(const dsf_planned *p, dsf_buf *out)
{
    const dsf_budget_line *l = NULL;
    dsf_buf_fmt(out, "OVER by %lld bytes; the largest:", (long long)(p->total - p->limit));
    for (int i = 0; i < OVER_SHOWN && (l = next_largest(p, l)); i++)
        dsf_buf_fmt(out, "%s %s %lld%s", i ? "," : "", l->name, (long long)l->bytes,
                    l->bytes > p->limit ? " (alone over)" : "");
    dsf_buf_char(out, '\n');
}

static void print_most(dsf_buf *out, const char *what, int64_t most, int64_t cap,
                       const char *other_name, int64_t other)
{
    if (most < 0) return;
    dsf_buf_fmt(out, "largest %s with %s %lld: ", what, other_name, (long long)other);
    if (most == 0)
        dsf_buf_str(out, "none fits\n");
    else
        dsf_buf_fmt(out, "%lld%s\n", (long long)most, most == cap ? ", more is not allowed" : "");
}

static void print_limit(const dsf_planned *p, dsf_buf *out)
{
    const dsf_options *o = &p->e->opt;
    if (!p->limit) {
        dsf_buf_str(out, "not held against a device's memory: give --memory\n");
        return;
    }
    dsf_buf_fmt(out, "%s: %lld bytes, reserve %lld: ", place_name(p), (long long)p->o.memory,
                (long long)p->o.reserve);
    if (dsf_planned_fits(p))
        dsf_buf_fmt(out, "fits, %lld bytes left beside the reserve\n",
                    (long long)(p->limit - p->total));
    else
        print_over(p, out);
    print_most(out, "context", p->most_context, p->e->load.config.max_seq_len, "chunk", o->chunk);
    print_most(out, "chunk", p->most_chunk, dsf_memory_chunk_cap(p->e), "context", o->context);
}

void dsf_planned_peak_print(const dsf_plan *plan, const dsf_planned_peak *k, const char *name,
                            dsf_buf *out)
{
    if (!k->n) return;
    const dsf_step *s = &plan->step[k->step];
    dsf_buf_fmt(out, "%s at the peak, step %d (layer %d, %s): %d values, %zu of %zu bytes live\n",
                name, k->step, s->layer, s->op->name, k->all, k->live, plan->scratch_bytes);
    for (int i = 0; i < k->n; i++) {
        dsf_buf_fmt(out, "  %18zu  ", k->value[i].bytes);
        dsf_plan_value_text(plan, k->value[i].value, out);
        const dsf_step *from = &plan->step[plan->value[k->value[i].value].first];
        dsf_buf_fmt(out, " (layer %d, %s)\n", from->layer, from->op->name);
    }
}

void dsf_planned_work_print(const dsf_planned *p, dsf_buf *out)
{
    dsf_buf_str(out, "pass: kernel scratch by operation, one at a time\n");
    for (int i = 0; i < p->n_work; i++) {
        const dsf_step *s = &p->e->plan->step[p->work[i].step];
        dsf_buf_fmt(out, "  %18zu  %s %s", p->work[i].bytes, s->op->name, s->variant->name);
        if (s->op == &dsf_op_index_topk && dsf_memory_on_device(p->e))
            dsf_buf_fmt(out,
                        ": the index workspace; budget %lld: %lld of scores whatever the context, "
                        "%lld a row, lists",
                        (long long)DSF_INDEX_BUDGET(p->e->opt.chunk),
                        (long long)DSF_INDEX_SCORE_BYTES, (long long)DSF_INDEX_ROW_BYTES);
        dsf_buf_char(out, '\n');
    }
}

void dsf_planned_print(const dsf_planned *p, dsf_buf *out)
{
    const dsf_engine *e = p->e;
    print_request(p, out);
    dsf_budget_print(&e->budget, out);
    print_limit(p, out);
    dsf_buf_fmt(out,
                "a decode batch of %lld lies in the pass arenas; alone its values would take "
                "%lld bytes\n",
                (long long)e->opt.slots, (long long)p->decode);
    dsf_planned_peak_print(e->plan, &p->peak[0], "pass: values", out);
    if (e->draft_plan) dsf_planned_peak_print(e->draft_plan, &p->peak[1], "draft: values", out);
    dsf_planned_work_print(p, out);
}

/* ---- JSON ---- */

static void json_peak(const dsf_plan *plan, const dsf_planned_peak *k, const char *arena,
                      dsf_buf *out)
{
    if (!k->n) return;
    dsf_json_begin(out, NULL, '{');
    dsf_json_add_cstr(out, "arena", arena);
    dsf_json_add_int(out, "step", k->step);
    dsf_json_add_int(out, "layer", plan->step[k->step].layer);
    dsf_json_add_cstr(out, "op", plan->step[k->step].op->name);
    dsf_json_add_int(out, "live_bytes", (int64_t)k->live);
    dsf_json_begin(out, "largest", '[');
    for (int i = 0; i < k->n; i++) {
        dsf_buf text = {.max = 4096};
        dsf_plan_value_text(plan, k->value[i].value, &text);
        dsf_json_begin(out, NULL, '{');
        dsf_json_add_cstr(out, "name", plan->value[k->value[i].value].name);
        dsf_json_add_int(out, "bytes", (int64_t)k->value[i].bytes);
        dsf_json_add_cstr(out, "formula", text.data ? text.data : "");
        dsf_json_end(out, '}');
        dsf_buf_free(&text);
    }
    dsf_json_end(out, ']');
    dsf_json_end(out, '}');
}

static void json_request(const dsf_planned *p, dsf_buf *out)
{
    const dsf_options *o = &p->e->opt;
    dsf_json_add_cstr(out, "place", place_name(p));
    dsf_json_add_int(out, "ranks", o->ranks);
    dsf_json_add_bool(out, "runs", o->ranks == 1);
    dsf_json_add_int(out, "layers", p->e->load.config.n_layers);
    dsf_json_add_int(out, "context", o->context);
    dsf_json_add_int(out, "chunk", o->chunk);
    dsf_json_add_int(out, "slots", o->slots);
    dsf_json_add_int(out, "rewind", o->rewind);
}

static void json_over(const dsf_planned *p, dsf_buf *out)
{
    const dsf_budget_line *l = NULL;
    dsf_json_begin(out, "over", '[');
    for (int i = 0; !dsf_planned_fits(p) && i < OVER_SHOWN && (l = next_largest(p, l)); i++)
        dsf_json_add_cstr(out, NULL, l->name);
    dsf_json_end(out, ']');
}

static void json_limit(const dsf_planned *p, dsf_buf *out)
{
    dsf_json_add_int(out, "planned_bytes", p->total);
    dsf_json_add_int(out, "decode_batch_bytes", p->decode);
    if (!p->limit) return;
    dsf_json_add_int(out, "memory_bytes", p->o.memory);
    dsf_json_add_int(out, "reserve_bytes", p->o.reserve);
    dsf_json_add_bool(out, "fits", dsf_planned_fits(p));
    json_over(p, out);
    if (p->most_context >= 0) dsf_json_add_int(out, "largest_context", p->most_context);
    if (p->most_chunk >= 0) dsf_json_add_int(out, "largest_chunk", p->most_chunk);
}

static void json_work(const dsf_planned *p, dsf_buf *out)
{
    dsf_json_begin(out, "workspaces", '[');
    for (int i = 0; i < p->n_work; i++) {
        const dsf_step *s = &p->e->plan->step[p->work[i].step];
        dsf_json_begin(out, NULL, '{');
        dsf_json_add_cstr(out, "op", s->op->name);
        dsf_json_add_cstr(out, "variant", s->variant->name);
        dsf_json_add_int(out, "bytes", (int64_t)p->work[i].bytes);
        dsf_json_end(out, '}');
    }
    dsf_json_end(out, ']');
}

void dsf_planned_json(const dsf_planned *p, dsf_buf *out)
{
    dsf_json_begin(out, NULL, '{');
    json_request(p, out);
    dsf_budget_json_members(&p->e->budget, out);
    json_limit(p, out);
    dsf_json_begin(out, "peaks", '[');
    json_peak(p->e->plan, &p->peak[0], "pass: values", out);
    if (p->e->draft_plan) json_peak(p->e->draft_plan, &p->peak[1], "draft: values", out);
    dsf_json_end(out, ']');
    json_work(p, out);
    dsf_json_end(out, '}');
}
