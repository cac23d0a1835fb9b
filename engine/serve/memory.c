/* The memory plan: what the engine will take, by name and formula, from the same plan that it then
 * binds. */
#include <string.h>
#include <unistd.h>

#include "serve/engine.h"

/* Sum over cache values whose name starts with `prefix`. */
static int64_t cache_bytes(const dsf_plan *p, const char *prefix)
{
    int64_t sum = 0;
    for (int i = 0; i < p->n_values; i++)
        if (p->value[i].kind == DSF_VALUE_CACHE && p->value[i].base == DSF_NO_VAL &&
            strncmp(p->value[i].name, prefix, strlen(prefix)) == 0)
            sum += (int64_t)p->value[i].bytes;
    return sum;
}

static bool on_device(const dsf_engine *e) { return e->plan->target & DSF_NEEDS_SM90; }

/* Lines of what lives in the plan's space: this process, or the device. */
static void plan_space(const dsf_engine *e, dsf_budget *b)
{
    const dsf_options *o = &e->opt;
    const dsf_config *c = &e->load.config;
    int kind = on_device(e) ? DSF_BUDGET_DEVICE : DSF_BUDGET_HOST;
    long long slots = o->slots, ctx = o->context, t = o->chunk;
    if (e->place)
        dsf_budget_add_kind(b, kind, "weights", (int64_t)dsf_place_bytes(e->place),
                            "what the plan reads, each tensor at 256 B");
    dsf_budget_add_kind(b, kind, "cache: main KV", cache_bytes(e->plan, "kv_main"),
                        "slots %lld x entries of context %lld x %lld B", slots, ctx,
                        (long long)dsf_dtype_bytes(DSF_Q4N, c->head_dim));
    dsf_budget_add_kind(b, kind, "cache: index keys", cache_bytes(e->plan, "index_k"),
                        "slots %lld x entries of context %lld x %lld B", slots, ctx,
                        (long long)dsf_dtype_bytes(DSF_Q4X, c->index_head_dim));
    dsf_budget_add_kind(b, kind, "cache: window rings", cache_bytes(e->plan, "ring"),
                        "slots %lld x %d layers x (%d + %lld) x %lld B", slots,
                        c->n_layers + c->n_mtp_layers, c->window_size, (long long)o->rewind,
                        (long long)dsf_dtype_bytes(DSF_Q8, c->head_dim));
    dsf_budget_add_kind(b, kind, "cache: pending groups", cache_bytes(e->plan, "pend"),
                        "slots %lld x (rewind %lld / 2 + 1) x 2 x %d x 4 B", slots,
                        (long long)o->rewind, c->head_dim);
    int64_t draft =
        e->draft_plan ? (int64_t)(e->draft_plan->scratch_bytes + e->draft_plan->input_bytes) : 0;
    dsf_budget_add_kind(b, kind, "pass: values", (int64_t)e->plan->scratch_bytes,
                        "chunk %lld rows, by lifetime", t);
    dsf_budget_add_kind(b, kind, "pass: inputs", (int64_t)e->plan->input_bytes, "chunk %lld rows",
                        t);
    dsf_budget_add_kind(b, kind, "pass: draft", draft, "block %d rows", c->dspark_block_size);
    size_t worker = e->plan->worker_bytes + (e->draft_plan ? e->draft_plan->worker_bytes : 0);
    int workers = on_device(e) ? 1 : o->threads;
    dsf_budget_add_kind(b, kind, "kernel scratch", (int64_t)worker * workers, "%d %s x %zu B",
                        workers, on_device(e) ? "workspace" : "threads", worker);
}

/* What a device needs beside it, on both sides of the link. */
static void plan_link(const dsf_engine *e, dsf_budget *b)
{
    size_t near = 0, draft_near = 0, extra = dsf_exec_extra_bytes(e->plan, &near);
    if (e->draft_plan) extra += dsf_exec_extra_bytes(e->draft_plan, &draft_near);
    dsf_budget_add_kind(b, DSF_BUDGET_DEVICE, "pass: staged rows", (int64_t)extra,
                        "chunk %lld rows: Engram rows, given taps", (long long)e->opt.chunk);
    dsf_budget_add(b, "pinned", (int64_t)(near + draft_near),
                   "inputs, Engram rows, results, shown taps");
}

void dsf_memory_plan(const dsf_engine *e, dsf_budget *b)
{
    const dsf_options *o = &e->opt;
    const dsf_config *c = &e->load.config;
    long long slots = o->slots, ctx = o->context, t = o->chunk;
    plan_space(e, b);
    if (on_device(e)) plan_link(e, b);
    dsf_budget_add(b, "weight tables", e->load.weights.table_bytes, "views and expert pointers");
    dsf_budget_add(b, "token classes", e->load.classes ? 4 * c->vocab_size : 0, "vocab %lld x 4 B",
                   (long long)c->vocab_size);
    int64_t row = 4 + 1 + (o->given_embed ? 2LL * c->dim : 0);
    dsf_budget_add(b, "sessions", slots * ctx * row + (o->given_embed ? 2 * t * c->dim : 0),
                   "slots %lld x context %lld x %lld B", slots, ctx, (long long)row);
    if (o->synthetic)
        dsf_budget_add(b, "Engram tables", dsf_weights_synthetic_tables(&e->load.weights),
                       "made from a seed");
    else
        dsf_budget_add_file(b, "weights", e->load.weights.mapped_bytes);
}

static dsf_status too_much(const dsf_engine *e, const dsf_budget *b, const char *where,
                           int64_t want, int64_t have)
{
    dsf_buf t = {.max = 0};
    dsf_budget_print(b, &t);
    dsf_status st = DSF_FAIL(
        DSF_ENOMEM, "context %lld, %lld slots, chunk %lld: %lld bytes planned, the %s has %lld\n%s",
        (long long)e->opt.context, (long long)e->opt.slots, (long long)e->opt.chunk,
        (long long)want, where, (long long)have, t.data ? t.data : "");
    dsf_buf_free(&t);
    return st;
}

dsf_status dsf_memory_check(const dsf_engine *e, const dsf_budget *b)
{
    int64_t page = sysconf(_SC_PAGESIZE), have = (int64_t)sysconf(_SC_PHYS_PAGES) * page;
    int64_t want = dsf_budget_total(b, DSF_BUDGET_HOST);
    if (want > have) return too_much(e, b, "machine", want, have);
    if (!e->device) return DSF_OK;
    want = dsf_budget_total(b, DSF_BUDGET_DEVICE);
    DSF_TRY(dsf_device_memory(e->device, &have));
    return want > have ? too_much(e, b, "device", want, have) : DSF_OK;
}
