/* One prompt in passes of three sizes. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/mix.h"
#include "serve/engine.h"
#include "verify/states/states.h"

/* ---- the limits of a model ---- */

static void add_limit(dsf_limit *list, int *n, int64_t at, const char *name)
{
    if (*n == DSF_LIMITS_MOST || at < 1) return;
    (void)snprintf(list[*n].name, sizeof list[*n].name, "%s", name);
    list[(*n)++].at = at;
}

/* Each ratio that a layer has, once. */
static void add_ratio_limits(const dsf_config *c, dsf_limit *list, int *n)
{
    char name[32];
    int last = 0;
    for (int l = 0; l < c->n_layers; l++) {
        int ratio = c->ratio[l];
        if (ratio <= 0 || ratio == last) continue;
        last = ratio;
        (void)snprintf(name, sizeof name, "ratio %d: an entry", ratio);
        add_limit(list, n, ratio, name);
        (void)snprintf(name, sizeof name, "ratio %d: index top-k", ratio);
        add_limit(list, n, (int64_t)ratio * c->index_topk, name);
    }
}

int dsf_states_limits(const dsf_config *c, int64_t rewind, dsf_limit *list)
{
    int n = 0;
    add_limit(list, &n, c->window_size, "window");
    add_limit(list, &n, c->window_size + rewind, "ring");
    add_ratio_limits(c, list, &n);
    if (c->candidate_source_layer >= 0) {
        int64_t ratio = c->ratio[c->candidate_source_layer];
        add_limit(list, &n, ratio * c->candidate_block_size, "pool block");
        add_limit(list, &n, ratio * c->candidate_block_size * c->candidate_topk_blocks,
                  "candidate pool");
    }
    if (c->n_engram) add_limit(list, &n, c->engram_max_ngram_size, "Engram n-gram");
    add_limit(list, &n, c->original_seq_len, "rope's original length");
    return n;
}

/* ---- the runs ---- */

typedef struct {
    const dsf_chunks_options *o;
    dsf_chunks_report *r;
    int size;       /* which of the three */
    uint64_t *row;  /* [tokens] hash of the first size's logits */
    uint8_t *cache; /* room for a state */
    int32_t *ids;
} run;

static uint64_t hash_of(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, n - i < 8 ? n - i : 8);
        h = dsf_mix64(h ^ word) + 0x9E3779B97F4A7C15u;
    }
    return h;
}

static bool wants_logits(void *ud, dsf_tap tap)
{
    (void)ud;
    return tap.id == DSF_TAP_LOGITS;
}

static dsf_status take_rows(void *ud, const dsf_tap_value *v)
{
    run *w = ud;
    size_t bytes = (size_t)dsf_tensor_stride(v->value);
    for (int64_t i = 0; i < v->n; i++) {
        int64_t t = v->label[i];
        uint64_t h =
            hash_of((uint64_t)t, (const uint8_t *)v->value->data + (size_t)i * bytes, bytes);
        w->r->logits[w->size] += h; /* rows come in any number of passes */
        if (w->size == 0) {
            w->row[t] = h;
            continue;
        }
        w->r->rows++;
        if (w->row[t] == h) continue;
        w->r->failed++;
        if (w->r->first < 0 || t < w->r->first) w->r->first = t;
    }
    return DSF_OK;
}

static dsf_status run_size(run *w, dsf_engine *e, const dsf_tap_sink *sink)
{
    dsf_session *s = NULL;
    int64_t bytes = 0;
    dsf_status st;
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(dsf_session_feed(s, w->ids, (size_t)w->r->tokens));
    while (dsf_session_queued(s) > 0) DSF_TRY_OUT(dsf_engine_step(e, &s, 1, sink));
    DSF_TRY_OUT(dsf_mem_new(&w->cache, e->plan->cache_bytes, 1));
    DSF_TRY_OUT(dsf_states_caches(s, w->cache, &bytes));
    w->r->cache_bytes = bytes;
    w->r->caches[w->size] = hash_of(0, w->cache, (size_t)bytes);
    w->r->failed += w->r->caches[w->size] != w->r->caches[0];
out:
    dsf_mem_free(w->cache);
    w->cache = NULL;
    dsf_session_close(s);
    return st;
}

static dsf_status open_and_run(run *w)
{
    const dsf_tap_sink sink = {take_rows, w, wants_logits};
    const dsf_options o = {.model = w->o->model,
                           .variants = w->o->variants,
                           .threads = w->o->threads,
                           .context = w->r->tokens,
                           .chunk = w->r->chunk[w->size],
                           .prefill = DSF_PREFILL_EXACT,
                           .all_logits = true,
                           .sink = &sink};
    dsf_engine *e = NULL;
    DSF_TRY(dsf_engine_open(&e, &o));
    if (w->size == 0)
        w->r->n_limits = dsf_states_limits(&e->load.config, e->opt.rewind, w->r->limit);
    dsf_status st = run_size(w, e, &sink);
    dsf_engine_close(e);
    return st;
}

/* Every limit of a small model lies within 300 tokens, those of the publisher's small ones but
 * rope's within 1,024; of a large one the window's. */
static int64_t tokens_for(const dsf_config *c)
{
    int64_t n = c->window_size <= 32 ? 300 : c->dim <= 1024 ? 1024 : 160;
    return n < c->max_seq_len ? n : c->max_seq_len;
}

/* Edges that fall on no block, on some, and few of them. */
static void choose_sizes(dsf_chunks_report *r)
{
    const int64_t small[] = {7, 64, r->tokens};
    const int64_t large[] = {r->tokens / 32 + 1, r->tokens / 8, r->tokens / 2};
    memcpy(r->chunk, r->tokens <= 1024 ? small : large, sizeof r->chunk);
}

static dsf_status prepare(run *w)
{
    dsf_config c;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/config.json", w->o->model);
    DSF_TRY(dsf_config_load(&c, path, NULL));
    w->r->tokens = w->o->tokens ? w->o->tokens : tokens_for(&c);
    if (w->r->tokens < 8 || w->r->tokens > c.max_seq_len)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens: 8 to the model's %lld positions",
                        (long long)w->r->tokens, (long long)c.max_seq_len);
    choose_sizes(w->r);
    DSF_TRY(dsf_mem_new(&w->row, (size_t)w->r->tokens, sizeof *w->row));
    DSF_TRY(dsf_mem_new(&w->ids, (size_t)w->r->tokens, sizeof *w->ids));
    for (int64_t i = 0; i < w->r->tokens; i++) /* n-grams come again now and then, as in text */
        w->ids[i] = (int32_t)(dsf_mix64((uint64_t)(i % 97 + i / 41)) % (uint64_t)c.vocab_size);
    return DSF_OK;
}

dsf_status dsf_chunks_run(const dsf_chunks_options *o, dsf_chunks_report *r)
{
    *r = (dsf_chunks_report){.first = -1};
    run w = {.o = o, .r = r};
    dsf_status st = prepare(&w);
    for (; st == DSF_OK && w.size < DSF_CHUNK_SIZES; w.size++) st = open_and_run(&w);
    dsf_mem_free(w.row);
    dsf_mem_free(w.ids);
    return st;
}
