#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model.h"
#include "ops/fill.h"

dsf_status dsf_bench_prompt(int32_t **ids, int64_t n, int64_t vocab, uint64_t seed)
{
    DSF_TRY(dsf_mem_new(ids, (size_t)n, sizeof **ids));
    for (int64_t i = 0; i < n; i++) {
        int64_t plain =
            vocab > 64 ? vocab - 32 : vocab; /* special ids are few and lie at the ends */
        (*ids)[i] = (int32_t)(plain > 8 ? 4 + dsf_fill_below(&seed, plain - 4)
                                        : dsf_fill_below(&seed, plain));
    }
    return DSF_OK;
}

/* Passes until nothing is queued in any of the sessions. */
static dsf_status drain(dsf_session *const *s, int n, dsf_division *d, double *ns)
{
    dsf_engine *e = s[0]->engine;
    for (;;) {
        int64_t queued = 0;
        for (int i = 0; i < n; i++) queued += dsf_session_queued(s[i]);
        if (queued == 0) return DSF_OK;
        if (d) dsf_division_reset(e);
        int64_t t0 = dsf_clock_ns();
        DSF_TRY(dsf_engine_step(e, s, (size_t)n, NULL));
        double wall = (double)(dsf_clock_ns() - t0);
        if (d) dsf_division_add(d, e, wall);
        if (ns) *ns += wall;
    }
}

dsf_status dsf_bench_feed(dsf_session *s, const int32_t *ids, int64_t n, dsf_division *d,
                          double *ns)
{
    DSF_TRY(dsf_session_feed(s, ids, (size_t)n));
    return drain(&s, 1, d, ns);
}

dsf_status dsf_bench_feed_all(dsf_session *const *s, const int32_t *ids, int n, dsf_division *d,
                              double *ns)
{
    for (int i = 0; i < n; i++) DSF_TRY(dsf_session_feed(s[i], &ids[i], 1));
    return drain(s, n, d, ns);
}

dsf_status dsf_bench_adopt(dsf_session *to, const dsf_session *from)
{
    const dsf_engine *a = from->engine, *b = to->engine;
    size_t n = (size_t)from->fed;
    if (a->plan->cache_bytes != b->plan->cache_bytes || from->slot != to->slot)
        return DSF_FAIL(DSF_EINVAL, "caches of %zu and %zu bytes, slots %d and %d: not the same",
                        a->plan->cache_bytes, b->plan->cache_bytes, from->slot, to->slot);
    if (a->device || b->device)
        return DSF_FAIL(DSF_ENOTSUP, "a session of one device cannot adopt another's caches");
    memcpy(b->exec.cache, a->exec.cache, a->plan->cache_bytes);
    memcpy(to->ids, from->ids, n * sizeof *to->ids);
    memcpy(to->vl, from->vl, n);
    to->n = from->n;
    to->fed = from->fed;
    to->prompt_from = from->prompt_from;
    to->furthest = from->furthest;
    to->floor = from->floor;
    return DSF_OK;
}

/* Greedy choices of a synthetic model repeat one id, and with it one set of experts. */
dsf_status dsf_bench_next(const dsf_session *s, float *work, int32_t *id)
{
    static const dsf_sampling draw = {.temperature = 1, .top_p = 1, .seed = 1};
    const float *row = NULL;
    DSF_TRY(dsf_session_logits(s, &row));
    return dsf_sample(row, dsf_engine_vocab(s->engine), &draw, dsf_session_position(s), work, id,
                      NULL);
}

void dsf_bench_describe(const dsf_engine *e, dsf_buf *json)
{
    static const char *const mode[] = {"cone", "exact", "replay"};
    const dsf_config *c = &e->load.config;
    const char *model = e->opt.model ? e->opt.model : "synthetic", *name = strrchr(model, '/');
    dsf_buf variants = {.max = 0};
    dsf_plan_variants(e->plan, &variants);
    dsf_json_add_cstr(json, "model", name && name[1] ? name + 1 : model);
    dsf_json_begin(json, "sizes", '{');
    dsf_json_add_int(json, "layers", c->n_layers);
    dsf_json_add_int(json, "dim", c->dim);
    dsf_json_add_int(json, "experts", c->n_routed_experts);
    dsf_json_add_int(json, "experts_per_token", c->n_activated_experts);
    dsf_json_add_int(json, "vocab", c->vocab_size);
    dsf_json_add_int(json, "weight_bytes", e->load.weights.mapped_bytes);
    dsf_json_end(json, '}');
    dsf_json_add_int(json, "context_limit", e->opt.context);
    dsf_json_add_int(json, "chunk", e->opt.chunk);
    dsf_json_add_cstr(json, "prefill", mode[e->opt.prefill]);
    dsf_json_add_cstr(json, "variants", variants.data ? variants.data : "");
    dsf_buf_free(&variants);
}

bool dsf_bench_cached(const dsf_bench *b, const dsf_engine *e)
{
    return e->load.weights.mapped_bytes < 2 * b->host.last_cache;
}

dsf_status dsf_bench_refuse(dsf_bench *b, const char *what, const char *why, dsf_buf *json)
{
    dsf_buf text = {.max = 0};
    dsf_json_add_cstr(json, "refused", why);
    dsf_buf_fmt(&text, "%s REFUSED, no figure: %s", what, why);
    b->refused++;
    return dsf_bench_emit(b, json, &text);
}
