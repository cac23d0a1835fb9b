#include "verify/states/states.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/engine.h"

const char *dsf_road_name(dsf_road r)
{
    static const char *const name[] = {
#define X(id, text) text,
        DSF_ROAD_MAP(X)
#undef X
    };
    return name[r];
}

/* What one road left behind. */
typedef struct {
    float *logits;  /* [vocab] */
    uint8_t *cache; /* the live part of every cache, laid end to end */
    int64_t bytes;
} state;

typedef struct {
    const dsf_states_options *o;
    dsf_states_report *r;
    dsf_engine *exact, *cone;
    int64_t longest, window, vocab, most_bytes;
    int32_t *ids, *other;
    state want, have;
} run;

/* Any tokens do; a counter mixed with primes repeats n-grams now and then, as text does. */
static void make_ids(int32_t *ids, int64_t n, int64_t vocab, uint64_t salt)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = ((uint64_t)(i % 23) * 2654435761u + salt * 40503u + (uint64_t)(i / 11)) *
                     0x9E3779B97F4A7C15u;
        ids[i] = (int32_t)((x >> 33) % (uint64_t)vocab);
    }
}

/* Copies rows [from, to) of a slot, index modulo the cache's length. */
static dsf_status add_rows(state *s, const dsf_exec *e, const dsf_tensor *t, int slot, int64_t from,
                           int64_t to)
{
    int64_t slot_bytes = dsf_tensor_stride(t), row = slot_bytes / t->dim[1];
    for (int64_t i = from; i < to; i++) {
        DSF_TRY(dsf_space_read(e->setup.device, s->cache + s->bytes,
                               (uint8_t *)t->data + slot * slot_bytes + (i % t->dim[1]) * row,
                               (size_t)row));
        s->bytes += row;
    }
    return DSF_OK;
}

static dsf_status take_layer(const dsf_session *q, int layer, state *s)
{
    const dsf_config *c = &q->engine->load.config;
    const dsf_exec *e = &q->engine->exec;
    char name[32];
    dsf_tensor t;
    (void)snprintf(name, sizeof name, "ring%d", layer);
    int64_t from = q->n > c->window_size ? q->n - c->window_size : 0;
    if (dsf_exec_cache(e, name, &t)) DSF_TRY(add_rows(s, e, &t, q->slot, from, q->n));
    if (layer >= c->n_layers || dsf_config_kv_source(c, layer) != layer) return DSF_OK;
    int64_t entries = q->n / c->ratio[layer];
    (void)snprintf(name, sizeof name, "kv_main%d", layer);
    if (dsf_exec_cache(e, name, &t)) DSF_TRY(add_rows(s, e, &t, q->slot, 0, entries));
    (void)snprintf(name, sizeof name, "index_k%d", layer);
    if (dsf_exec_cache(e, name, &t)) DSF_TRY(add_rows(s, e, &t, q->slot, 0, entries));
    (void)snprintf(name, sizeof name, "pend%d", layer);
    if (q->n % 2 == 1 && dsf_exec_cache(e, name, &t))
        DSF_TRY(add_rows(s, e, &t, q->slot, q->n / 2, q->n / 2 + 1));
    return DSF_OK;
}

dsf_status dsf_states_caches(const dsf_session *s, uint8_t *out, int64_t *bytes)
{
    const dsf_config *c = &s->engine->load.config;
    state all = {.cache = out, .bytes = *bytes};
    for (int l = 0; l < c->n_layers + c->n_mtp_layers; l++) DSF_TRY(take_layer(s, l, &all));
    *bytes = all.bytes;
    return DSF_OK;
}

static dsf_status take_state(const run *w, const dsf_session *q, state *s)
{
    const float *row;
    s->bytes = 0;
    DSF_TRY(dsf_states_caches(q, s->cache, &s->bytes));
    DSF_TRY(dsf_session_logits(q, &row));
    memcpy(s->logits, row, (size_t)w->vocab * sizeof *row);
    return DSF_OK;
}

/* Feeds ids in pieces and runs until nothing is queued. */
static dsf_status feed(dsf_session *s, const int32_t *ids, int64_t n, int64_t piece)
{
    for (int64_t i = 0; i < n; i += piece) {
        int64_t k = n - i < piece ? n - i : piece;
        DSF_TRY(dsf_session_feed(s, ids + i, (size_t)k));
        while (dsf_session_queued(s) > 0) DSF_TRY(dsf_engine_step(s->engine, &s, 1, NULL));
    }
    return DSF_OK;
}

/* ---- the roads: each leaves a session that has computed ids[0, n) ---- */

/* Odd lengths go on with the original, even ones with the twin; the other one goes its own way
 * first. */
static dsf_status by_fork(dsf_session **s, const run *w, int64_t n)
{
    dsf_session *twin = NULL;
    int64_t half = n / 2;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(feed(*s, w->ids, half, n));
    DSF_TRY_OUT(dsf_session_fork(&twin, *s));
    if (n % 2 == 0) {
        dsf_session *original = *s;
        *s = twin;
        twin = original;
    }
    DSF_TRY_OUT(feed(twin, w->other, n, n));
    DSF_TRY_OUT(feed(*s, w->ids + half, n - half, n));
out:
    dsf_session_close(twin);
    return st;
}

static dsf_status by_rewind(dsf_session *s, const run *w, int64_t n, int64_t beyond)
{
    int64_t back = n > 3 ? n - 3 : 0; /* other tokens there: they must go, and be replaced */
    DSF_TRY(feed(s, w->ids, back, 3));
    DSF_TRY(feed(s, w->other, n - back + beyond, 2));
    DSF_TRY(dsf_session_rewind(s, back));
    if (dsf_session_position(s) != back)
        return feed(s, w->ids + back, n - back, n); /* queued again by itself */
    return feed(s, w->ids + back, n - back, 2);
}

static dsf_status by_batch(dsf_session *s, const run *w, int64_t n)
{
    dsf_session *a = NULL, *b = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_session_open(&a, s->engine));
    DSF_TRY_OUT(dsf_session_open(&b, s->engine));
    DSF_TRY_OUT(dsf_session_feed(a, w->other, (size_t)(n % 5) + 1));
    DSF_TRY_OUT(dsf_session_feed(s, w->ids, (size_t)n));
    DSF_TRY_OUT(dsf_session_feed(b, w->other + 1, (size_t)(n % 3) + 2));
    dsf_session *const all[] = {a, s, b};
    while (dsf_session_queued(s) + dsf_session_queued(a) > 0)
        DSF_TRY_OUT(dsf_engine_step(s->engine, all, 3, NULL));
    if (dsf_session_queued(b) > 0) st = DSF_FAIL(DSF_EINVAL, "batch: a neighbour was left waiting");
out:
    dsf_session_close(a);
    dsf_session_close(b);
    return st;
}

static dsf_status take_road(dsf_session **road_end, const run *w, dsf_road road, int64_t n)
{
    dsf_session *s = *road_end;
    static const int64_t piece[] = {1, 2, 3, 7};
    switch (road) {
    case DSF_ROAD_CHUNK1:
    case DSF_ROAD_CHUNK2:
    case DSF_ROAD_CHUNK3:
    case DSF_ROAD_CHUNK7:
        return feed(s, w->ids, n, piece[road]);
    case DSF_ROAD_CHUNK_WINDOW:
        return feed(s, w->ids, n, w->window);
    case DSF_ROAD_DECODE: {
        int64_t half = (n + 1) / 2;
        DSF_TRY(feed(s, w->ids, half, n));
        return feed(s, w->ids + half, n - half, 1);
    }
    case DSF_ROAD_FORK:
        return by_fork(road_end, w, n);
    case DSF_ROAD_REWIND:
        return by_rewind(s, w, n, 4);
    case DSF_ROAD_RECOMPUTE:
        return by_rewind(s, w, n, 3 * w->window);
    case DSF_ROAD_BATCH:
        return by_batch(s, w, n);
    case DSF_ROAD_CONE:
        return feed(s, w->ids, n, n);
    default: {
        int64_t tail = n > 6 ? 4 : 0;
        DSF_TRY(feed(s, w->ids, n - tail, n));
        return feed(s, w->ids + n - tail, tail, 1);
    }
    }
}

static void note_difference(run *w, dsf_road road, int64_t n)
{
    w->r->failed[road]++;
    if (w->r->first[0]) return;
    int64_t at = 0;
    while (at < w->vocab && memcmp(&w->want.logits[at], &w->have.logits[at], sizeof(float)) == 0)
        at++;
    if (at < w->vocab)
        (void)snprintf(w->r->first, sizeof w->r->first,
                       "%lld tokens, %s: logit %lld is %.9g, whole gives %.9g", (long long)n,
                       dsf_road_name(road), (long long)at, (double)w->have.logits[at],
                       (double)w->want.logits[at]);
    else
        (void)snprintf(w->r->first, sizeof w->r->first,
                       "%lld tokens, %s: logits equal, caches differ (%lld and %lld bytes)",
                       (long long)n, dsf_road_name(road), (long long)w->have.bytes,
                       (long long)w->want.bytes);
}

/* Rows that a fresh cone prefill of n tokens computes at each layer (product.md 4). */
static void check_cone_rows(run *w, int64_t n, const int64_t *before)
{
    const dsf_config *c = &w->cone->load.config;
    for (int l = 0; l < c->n_layers; l++) {
        /* product.md 4, said a second time on purpose: the engine's own formula proves nothing */
        int64_t below = c->n_layers - 1 - l, reach = c->window_size - 1;
        int64_t want = l < dsf_config_split(c) ? n : 1 + below * reach;
        int64_t keys = l < dsf_config_split(c) ? n : want + reach;
        if (want > n) want = n;
        if (keys > n) keys = n;
        int64_t got = w->cone->exec.rows_run[DSF_ROWS_Q(l)] - before[DSF_ROWS_Q(l)];
        int64_t got_keys = w->cone->exec.rows_run[DSF_ROWS_KV(l)] - before[DSF_ROWS_KV(l)];
        if (got == want && got_keys == keys) continue;
        if (!w->r->cone_rows_wrong++ && !w->r->first[0])
            (void)snprintf(w->r->first, sizeof w->r->first,
                           "cone of %lld tokens computed %lld rows at layer %d, %lld survive",
                           (long long)n, (long long)got, l, (long long)want);
    }
}

static dsf_status compare_road(run *w, dsf_road road, int64_t n)
{
    bool cone = road == DSF_ROAD_CONE || road == DSF_ROAD_CONE_CHUNKED;
    dsf_engine *e = cone ? w->cone : w->exact;
    dsf_session *s = NULL;
    dsf_status st = DSF_OK;
    int64_t before[sizeof e->exec.rows_run / sizeof *e->exec.rows_run];
    memcpy(before, e->exec.rows_run, sizeof before);
    /* No session is open: what the road before left in the caches must not help this one. */
    DSF_TRY_OUT(dsf_space_fill(e->device, e->exec.cache, 0xFF, e->plan->cache_bytes));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(take_road(&s, w, road, n));
    DSF_TRY_OUT(take_state(w, s, &w->have));
    bool same = w->have.bytes == w->want.bytes &&
                memcmp(w->have.cache, w->want.cache, (size_t)w->want.bytes) == 0 &&
                memcmp(w->have.logits, w->want.logits, (size_t)w->vocab * sizeof(float)) == 0;
    if (!same) note_difference(w, road, n);
    if (road == DSF_ROAD_CONE) check_cone_rows(w, n, before);
    w->r->ran[road]++;
    w->r->compared++;
    w->r->bytes += w->want.bytes + w->vocab * (int64_t)sizeof(float);
out:
    dsf_session_close(s);
    return st;
}

static dsf_status compare_length(run *w, int64_t n)
{
    dsf_session *s = NULL;
    DSF_TRY(dsf_session_open(&s, w->exact));
    dsf_status st = feed(s, w->ids, n, n);
    if (st == DSF_OK) st = take_state(w, s, &w->want);
    dsf_session_close(s);
    DSF_TRY(st);
    for (int r = 0; r < DSF_N_ROADS; r++) DSF_TRY(compare_road(w, (dsf_road)r, n));
    return DSF_OK;
}

static dsf_status prepare(run *w)
{
    dsf_options o = {.model = w->o->model,
                     .variants = w->o->variants,
                     .threads = w->o->threads,
                     .slots = 3,
                     .prefill = DSF_PREFILL_EXACT};
    dsf_config c;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/config.json", w->o->model);
    DSF_TRY(dsf_config_load(&c, path, NULL));
    w->window = c.window_size;
    w->longest = w->o->longest ? w->o->longest : 3 * w->window;
    o.context = o.chunk = w->longest + 4 * w->window + 8;
    DSF_TRY(dsf_engine_open(&w->exact, &o));
    o.prefill = DSF_PREFILL_CONE;
    o.chunk = 5; /* the cone crosses chunk borders */
    DSF_TRY(dsf_engine_open(&w->cone, &o));
    w->vocab = dsf_engine_vocab(w->exact);
    size_t ids = (size_t)(w->longest + 4 * w->window + 8);
    DSF_TRY(dsf_mem_new(&w->ids, ids, sizeof *w->ids));
    DSF_TRY(dsf_mem_new(&w->other, ids, sizeof *w->other));
    make_ids(w->ids, (int64_t)ids, w->vocab, 1);
    make_ids(w->other, (int64_t)ids, w->vocab, 2);
    size_t bytes = w->exact->plan->cache_bytes;
    DSF_TRY(dsf_mem_new(&w->want.cache, bytes, 1));
    DSF_TRY(dsf_mem_new(&w->have.cache, bytes, 1));
    DSF_TRY(dsf_mem_new(&w->want.logits, (size_t)w->vocab, sizeof(float)));
    return dsf_mem_new(&w->have.logits, (size_t)w->vocab, sizeof(float));
}

dsf_status dsf_states_run(const dsf_states_options *o, dsf_states_report *r)
{
    *r = (dsf_states_report){.compared = 0};
    run w = {.o = o, .r = r};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(prepare(&w));
    for (int64_t n = 1; n <= w.longest; n++) {
        DSF_TRY_OUT(compare_length(&w, n));
        if (o->progress) o->progress("states", n, w.longest);
    }
out:
    dsf_mem_free(w.ids);
    dsf_mem_free(w.other);
    dsf_mem_free(w.want.cache);
    dsf_mem_free(w.have.cache);
    dsf_mem_free(w.want.logits);
    dsf_mem_free(w.have.logits);
    dsf_engine_close(w.exact);
    dsf_engine_close(w.cone);
    return st;
}
