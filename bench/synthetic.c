#include "synthetic.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ops/fill.h"

enum { MARK_FROM = 5, MARK_TO = 6, SHOWN = 20 };

/* Ids without repetition before and after every place that a session is put to. */
static void fill_ids(dsf_session *s, uint64_t seed)
{
    const dsf_engine *e = s->engine;
    for (int64_t t = 0; t < e->opt.context; t++)
        s->ids[t] = (int32_t)(4 + dsf_fill_below(&seed, e->load.config.vocab_size - 64));
}

static dsf_status open_sessions(dsf_bench_synthetic *s)
{
    int64_t slots = s->engine->opt.slots;
    DSF_TRY(dsf_mem_new(&s->session, (size_t)slots, sizeof(dsf_session *)));
    for (int64_t i = 0; i < slots; i++) {
        DSF_TRY(dsf_session_open(&s->session[i], s->engine));
        fill_ids(s->session[i], (uint64_t)i + 1);
    }
    return DSF_OK;
}

dsf_status dsf_synthetic_open(dsf_bench_synthetic *s, dsf_bench *b,
                              const dsf_bench_synthetic_options *o, const dsf_options *engine)
{
    dsf_options opt = *engine;
    memset(s, 0, sizeof *s);
    DSF_TRY(dsf_synthetic_config(&s->synthetic, o->layers, o->engram_vocab, &s->whole, s->layer));
    DSF_TRY(dsf_bench_device_open(&s->d, b, 0));
    opt.synthetic = &s->synthetic;
    opt.variants = o->variants ? o->variants : "cuda";
    opt.timed = true;
    DSF_TRY(dsf_engine_open(&s->engine, &opt));
    s->step_ns = s->engine->exec.step_ns;
    s->engine->exec.step_ns = NULL;
    return open_sessions(s);
}

void dsf_synthetic_close(dsf_bench_synthetic *s)
{
    for (int64_t i = 0; s->session && i < s->engine->opt.slots; i++)
        dsf_session_close(s->session[i]);
    dsf_mem_free(s->session);
    if (s->engine) s->engine->exec.step_ns = s->step_ns;
    dsf_engine_close(s->engine);
    dsf_bench_device_close(&s->d);
    memset(s, 0, sizeof *s);
}

dsf_status dsf_synthetic_fill(dsf_bench_synthetic *s, uint64_t seed)
{
    const dsf_engine *e = s->engine;
    void *stream = dsf_device_stream(e->device);
    for (int i = 0; i < e->plan->n_values; i++) {
        const dsf_value *v = &e->plan->value[i];
        if (v->kind != DSF_VALUE_CACHE || v->base != DSF_NO_VAL) continue;
        dsf_tensor t = {.dtype = v->dtype, .rank = v->rank, .data = e->exec.cache + v->offset};
        memcpy(t.dim, v->dim, sizeof t.dim);
        const dsf_fill_layout l = dsf_device_layout(&t);
        DSF_TRY(dsf_device_fill(stream, t.data, (size_t)dsf_tensor_bytes(&t), &l,
                                seed * 1000 + (uint64_t)i));
    }
    return dsf_device_wait(e->device);
}

void dsf_synthetic_at(dsf_bench_synthetic *s, int i, int64_t n)
{
    dsf_session *x = s->session[i];
    x->n = x->fed = x->furthest = x->prompt_from = n;
    x->floor = 0;
    x->head = -1;
}

dsf_status dsf_synthetic_step(dsf_bench_synthetic *s, int n, bool timed, double *device_us,
                              double *wall_us)
{
    dsf_engine *e = s->engine;
    double us = 0;
    e->exec.step_ns = timed ? s->step_ns : NULL;
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(dsf_device_mark(e->device, MARK_FROM));
    dsf_status st = dsf_engine_step(e, s->session, (size_t)n, NULL);
    e->exec.step_ns = NULL;
    if (st != DSF_OK) return dsf_error_pass(st, DSF_HERE);
    if (wall_us) *wall_us = 1e-3 * (double)(dsf_clock_ns() - t0);
    DSF_TRY(dsf_device_mark(e->device, MARK_TO));
    DSF_TRY(dsf_device_between(e->device, MARK_FROM, MARK_TO, &us));
    if (device_us) *device_us = us;
    return DSF_OK;
}

dsf_status dsf_synthetic_replay(dsf_bench_synthetic *s, int times, double *us)
{
    dsf_engine *e = s->engine;
    DSF_TRY(dsf_device_mark(e->device, MARK_FROM));
    for (int i = 0; i < times; i++) {
        bool done = false;
        DSF_TRY(dsf_replay_begin(&e->exec, e->range, &done));
        if (!done) return DSF_FAIL(DSF_EINVAL, "the pass was not captured");
    }
    DSF_TRY(dsf_device_mark(e->device, MARK_TO));
    DSF_TRY(dsf_device_between(e->device, MARK_FROM, MARK_TO, us));
    *us /= times;
    return DSF_OK;
}

dsf_status dsf_synthetic_feed(dsf_bench_synthetic *s, int i, int64_t count)
{
    dsf_session *x = s->session[i];
    if (count > s->engine->opt.context - x->fed)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens after %lld", (long long)count, (long long)x->fed);
    if (x->n == x->fed) x->prompt_from = x->fed;
    x->fed += count; /* the ids are there already */
    return DSF_OK;
}

dsf_status dsf_synthetic_hash(const dsf_bench_synthetic *s, int n, uint64_t *hash)
{
    int64_t vocab = dsf_engine_vocab(s->engine);
    for (int i = 0; i < n; i++) {
        const float *row = NULL;
        DSF_TRY(dsf_session_logits(s->session[i], &row));
        for (int64_t k = 0; k < vocab; k++)
            if (!isfinite(row[k]))
                return DSF_FAIL(DSF_EINVAL, "logit %lld of sequence %d is %g", (long long)k, i,
                                (double)row[k]);
        *hash = dsf_parity_hash(*hash, row, (size_t)vocab * sizeof *row);
    }
    return DSF_OK;
}

static void add_time(dsf_synthetic_time *t, double us)
{
    t->us += us;
    t->steps++;
}

void dsf_synthetic_add(dsf_bench_synthetic *s, dsf_synthetic_times *t)
{
    const dsf_plan *p = s->engine->plan;
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *step = &p->step[i];
        double us = 1e-3 * (double)s->step_ns[i];
        if (s->step_ns[i] == 0) continue; /* no rows in this pass */
        dsf_cost c = dsf_division_cost(p, step, s->session[0]->n);
        dsf_division_part *part = dsf_division_of(&t->ops, step);
        bool inside = step->layer >= 0 && step->layer < DSF_MAX_LAYERS;
        part->bytes += c.bytes;
        part->flops += c.flops;
        part->ns += (double)s->step_ns[i];
        part->steps++;
        add_time(inside ? &t->layer[step->layer] : &t->outside, us);
        add_time(&t->all, us);
        s->step_ns[i] = 0;
    }
    t->passes++;
}

double dsf_synthetic_part(const dsf_synthetic_times *t, dsf_synthetic_time part, double total_us)
{
    if (t->all.steps == 0) return 0;
    double each = fmax((t->all.us - total_us * t->passes) / (double)t->all.steps, 0);
    return fmax(part.us - each * (double)part.steps, 0) / t->passes;
}

static double part_us(const dsf_synthetic_times *t, const dsf_division_part *p, double total_us)
{
    return dsf_synthetic_part(t, (dsf_synthetic_time){1e-3 * p->ns, p->steps}, total_us);
}

static void layers_json(const dsf_bench_synthetic *s, const dsf_synthetic_times *t, double total_us,
                        dsf_buf *json)
{
    const dsf_config *c = &s->synthetic.config;
    dsf_json_begin(json, "layers", '[');
    for (int l = 0; l < c->n_layers; l++) {
        char kind[64];
        dsf_layer_kind_name(dsf_layer_kind(c, l), kind);
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_int(json, "layer", s->layer[l]);
        dsf_json_add_cstr(json, "kind", kind);
        dsf_json_add_num(json, "us", dsf_synthetic_part(t, t->layer[l], total_us));
        dsf_json_add_num(json, "steps", (double)t->layer[l].steps / t->passes);
        dsf_json_end(json, '}');
    }
    dsf_json_end(json, ']');
}

void dsf_synthetic_json(const dsf_bench_synthetic *s, const dsf_synthetic_times *t, double total_us,
                        dsf_buf *json)
{
    double passes = t->passes ? t->passes : 1;
    dsf_json_add_num(json, "sum_of_steps_us", t->all.us / passes);
    dsf_json_add_num(json, "steps", (double)t->all.steps / passes);
    layers_json(s, t, total_us, json);
    dsf_json_add_num(json, "outside_us", dsf_synthetic_part(t, t->outside, total_us));
    dsf_json_begin(json, "operations", '[');
    for (int i = 0; i < t->ops.n; i++) {
        const dsf_division_part *p = &t->ops.part[i];
        double us = part_us(t, p, total_us);
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_cstr(json, "op", p->op);
        dsf_json_add_cstr(json, "variant", p->variant);
        dsf_json_add_num(json, "us", us);
        dsf_json_add_num(json, "percent", 100 * us / total_us);
        dsf_json_add_num(json, "steps", (double)p->steps / passes);
        dsf_json_add_num(json, "gb_s", us > 0 ? 1e-3 * p->bytes / passes / us : 0);
        dsf_json_add_num(json, "tflops", us > 0 ? 1e-6 * p->flops / passes / us : 0);
        dsf_json_end(json, '}');
    }
    dsf_json_end(json, ']');
}

void dsf_synthetic_text(const dsf_synthetic_times *t, double total_us, dsf_buf *text)
{
    dsf_division sorted = t->ops;
    double passes = t->passes ? t->passes : 1;
    dsf_division_sort(&sorted);
    for (int i = 0; i < sorted.n && i < SHOWN; i++) {
        const dsf_division_part *p = &sorted.part[i];
        double us = part_us(t, p, total_us);
        dsf_buf_fmt(text, "\n    %-14s %-7s %5.1f steps %10.1f us %5.1f%% %8.1f GB/s %7.1f TFLOPS",
                    p->op, p->variant, (double)p->steps / passes, us, 100 * us / total_us,
                    us > 0 ? 1e-3 * p->bytes / passes / us : 0,
                    us > 0 ? 1e-6 * p->flops / passes / us : 0);
    }
}

void dsf_synthetic_describe(const dsf_bench_synthetic *s, dsf_buf *json)
{
    const dsf_engine *e = s->engine;
    const dsf_config *c = &s->synthetic.config;
    dsf_device_usage used = dsf_device_used(e->device);
    dsf_buf variants = {.max = 0};
    dsf_plan_variants(e->plan, &variants);
    dsf_bench_device_json(&s->d, json);
    dsf_json_add_cstr(json, "weights",
                      "synthetic, made on the device, seed 1; routing by random router weights");
    dsf_buf list = {.max = 0};
    for (int l = 0; l < c->n_layers; l++) dsf_buf_fmt(&list, l ? ",%d" : "%d", s->layer[l]);
    dsf_json_add_cstr(json, "layer_list", list.data ? list.data : "");
    dsf_buf_free(&list);
    dsf_json_add_int(json, "engram_rows", c->n_engram ? c->engram[0].rows : 0);
    dsf_json_add_cstr(json, "variants", variants.data ? variants.data : "");
    dsf_json_add_int(json, "device_bytes", used.bytes);
    dsf_json_add_int(json, "device_peak_bytes", used.peak);
    dsf_json_add_int(json, "device_planned_bytes", dsf_budget_total(&e->budget, DSF_BUDGET_DEVICE));
    dsf_json_add_int(json, "device_allocations", (int64_t)used.allocations);
    dsf_buf_free(&variants);
}

double dsf_synthetic_scale(const dsf_bench_synthetic *s, const dsf_synthetic_times *t,
                           double total_us, int from, int to, int *missing)
{
    double time[DSF_MAX_LAYERS];
    for (int l = 0; l < DSF_MAX_LAYERS; l++) time[l] = dsf_synthetic_part(t, t->layer[l], total_us);
    return dsf_layers_scale(&s->synthetic.config, time, &s->whole, from, to, missing);
}
