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

void dsf_memory_plan(const dsf_engine *e, dsf_budget *b)
{
    const dsf_options *o = &e->opt;
    const dsf_config *c = &e->load.config;
    long long slots = o->slots, ctx = o->context, t = o->chunk;
    dsf_budget_add(b, "cache: main KV", cache_bytes(e->plan, "kv_main"),
                   "slots %lld x entries of context %lld x %lld B", slots, ctx,
                   (long long)dsf_dtype_bytes(DSF_Q4N, c->head_dim));
    dsf_budget_add(b, "cache: index keys", cache_bytes(e->plan, "index_k"),
                   "slots %lld x entries of context %lld x %lld B", slots, ctx,
                   (long long)dsf_dtype_bytes(DSF_Q4X, c->index_head_dim));
    dsf_budget_add(b, "cache: window rings", cache_bytes(e->plan, "ring"),
                   "slots %lld x %d layers x (%d + %lld) x %lld B", slots,
                   c->n_layers + c->n_mtp_layers, c->window_size, (long long)o->rewind,
                   (long long)dsf_dtype_bytes(DSF_Q8, c->head_dim));
    dsf_budget_add(b, "cache: pending groups", cache_bytes(e->plan, "pend"),
                   "slots %lld x (rewind %lld / 2 + 1) x 2 x %d x 4 B", slots, (long long)o->rewind,
                   c->head_dim);
    int64_t draft =
        e->draft_plan ? (int64_t)(e->draft_plan->scratch_bytes + e->draft_plan->input_bytes) : 0;
    dsf_budget_add(b, "pass: values", (int64_t)e->plan->scratch_bytes,
                   "chunk %lld rows, by lifetime", t);
    dsf_budget_add(b, "pass: inputs", (int64_t)e->plan->input_bytes, "chunk %lld rows", t);
    dsf_budget_add(b, "pass: draft", draft, "block %d rows", c->dspark_block_size);
    size_t worker = e->plan->worker_bytes + (e->draft_plan ? e->draft_plan->worker_bytes : 0);
    dsf_budget_add(b, "kernel scratch", (int64_t)worker * o->threads, "%d threads x %zu B",
                   o->threads, worker);
    dsf_budget_add(b, "weight tables", e->load.weights.table_bytes, "views and expert pointers");
    dsf_budget_add(b, "token classes", e->load.classes ? 4 * c->vocab_size : 0, "vocab %lld x 4 B",
                   (long long)c->vocab_size);
    int64_t row = 4 + 1 + (o->given_embed ? 2LL * c->dim : 0);
    dsf_budget_add(b, "sessions", slots * ctx * row + (o->given_embed ? 2 * t * c->dim : 0),
                   "slots %lld x context %lld x %lld B", slots, ctx, (long long)row);
    dsf_budget_add_file(b, "weights", e->load.weights.mapped_bytes);
}

dsf_status dsf_memory_check(const dsf_engine *e, const dsf_budget *b)
{
    int64_t page = sysconf(_SC_PAGESIZE), have = (int64_t)sysconf(_SC_PHYS_PAGES) * page;
    int64_t want = dsf_budget_total(b, 0);
    if (want <= have) return DSF_OK;
    dsf_buf t = {.max = 0};
    dsf_budget_print(b, &t);
    dsf_status st = DSF_FAIL(
        DSF_ENOMEM,
        "context %lld, %lld slots, chunk %lld: %lld bytes planned, the machine has %lld\n%s",
        (long long)e->opt.context, (long long)e->opt.slots, (long long)e->opt.chunk,
        (long long)want, (long long)have, t.data ? t.data : "");
    dsf_buf_free(&t);
    return st;
}
