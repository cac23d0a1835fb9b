/* Many sessions -> one pass: rows, their labels, and which rows each layer computes. */
#include <string.h>

#include "model/engram_hash.h"
#include "serve/engine.h"

typedef struct {
    dsf_engine *e;
    int64_t n, pairs, heads;
} layout;

static int32_t *column(const layout *w, dsf_input i) { return w->e->in[i]; }

/* Class of position t for the hash: DEAD before the sequence and inside image spans (8.3). */
static int32_t class_at(const dsf_session *s, int64_t t)
{
    return t < 0 || s->vl[t] ? DSF_CLASS_DEAD : s->engine->load.classes[s->ids[t]];
}

static void put_engram_rows(const layout *w, const dsf_session *s, int64_t t)
{
    const dsf_config *c = &w->e->load.config;
    int columns = dsf_config_engram_columns(c);
    int32_t window[DSF_MAX_NGRAM];
    if (c->n_engram == 0) return;
    for (int k = 0; k < c->engram_max_ngram_size; k++) window[k] = class_at(s, t - k);
    int32_t pad = w->e->load.classes[c->engram_pad_id];
    for (int i = 0; i < c->n_engram; i++)
        if (w->e->engram[i]) dsf_engram_rows(c, i, window, pad, w->e->engram[i] + w->n * columns);
}

static void put_pair(layout *w, const dsf_session *s, int64_t t, int64_t end)
{
    if (t % 2 == 0) return;
    column(w, DSF_INPUT_PAIR_ROW)[w->pairs] = (int32_t)w->n;
    column(w, DSF_INPUT_PAIR_POS)[w->pairs] = (int32_t)(t - 1);
    column(w, DSF_INPUT_PAIR_INDEX)[w->pairs] = (int32_t)(t / 2);
    column(w, DSF_INPUT_PAIR_SLOT)[w->pairs] = s->slot;
    column(w, DSF_INPUT_PAIR_END)[w->pairs] = (int32_t)(end / 2);
    w->pairs++;
}

/* Lowest window position of the decoder half: `replay` cuts a prompt's windows there, whether or
 * not its pass is shared, so that its bits do not depend on neighbours. One token is no prompt. */
static int64_t cut_of(const dsf_session *s)
{
    const dsf_engine *e = s->engine;
    int64_t window = e->load.config.window_size;
    bool cuts = e->opt.prefill == DSF_PREFILL_REPLAY && s->fed - s->prompt_from > 1;
    return cuts && s->fed > window ? s->fed - window : 0;
}

/* How the token after position t is drawn. */
static void put_how(const layout *w, const dsf_session *s, int64_t t)
{
    dsf_sample_how *how = (dsf_sample_how *)w->e->in[DSF_INPUT_HEAD_HOW] + w->heads;
    *how = s->how;
    how->position = t + 1;
}

/* Rows [s->n, s->n + s->take) of one session. */
static void put_rows(layout *w, dsf_session *s)
{
    dsf_engine *e = w->e;
    int64_t end = s->n + s->take, cut = cut_of(s);
    for (int64_t t = s->n; t < end; t++, w->n++) {
        column(w, DSF_INPUT_IDS)[w->n] = s->ids[t];
        column(w, DSF_INPUT_POS)[w->n] = (int32_t)t;
        column(w, DSF_INPUT_SLOT)[w->n] = s->slot;
        column(w, DSF_INPUT_ROW)[w->n] = (int32_t)w->n;
        column(w, DSF_INPUT_START)[w->n] = (int32_t)s->n;
        column(w, DSF_INPUT_END)[w->n] = (int32_t)end;
        column(w, DSF_INPUT_LO)[w->n] = 0;
        column(w, DSF_INPUT_LO_DECODER)[w->n] = (int32_t)(cut < t ? cut : t);
        ((uint8_t *)e->in[DSF_INPUT_VL])[w->n] = s->vl[t];
        column(w, DSF_INPUT_SINGLE_POS)[w->n] = (int32_t)t;
        column(w, DSF_INPUT_SINGLE_SLOT)[w->n] = s->slot;
        column(w, DSF_INPUT_SINGLE_END)[w->n] = (int32_t)end;
        put_engram_rows(w, s, t);
        put_pair(w, s, t, end);
        size_t d = (size_t)e->load.config.dim;
        if (s->embed)
            memcpy(e->embed + (size_t)w->n * d, s->embed + (size_t)t * d, d * sizeof *e->embed);
        if (!e->opt.all_logits && t != s->fed - 1) continue;
        column(w, DSF_INPUT_HEAD_ROW)[w->heads] = (int32_t)w->n;
        column(w, DSF_INPUT_HEAD_POS)[w->heads] = (int32_t)t;
        column(w, DSF_INPUT_HEAD_SLOT)[w->heads] = s->slot;
        if (e->opt.sampled) put_how(w, s, t);
        if (t == s->fed - 1) s->head = w->heads;
        w->heads++;
    }
}

int64_t dsf_batch_cone_rows(const dsf_config *c, int layer)
{
    return 1 + (int64_t)(c->n_layers - 1 - layer) * (c->window_size - 1);
}

/* The last `keep` positions of a prompt that ends at `fed`, as a suffix of rows [from, from + n).
 */
static dsf_row_range suffix(int64_t from, int64_t n, int64_t fed, int64_t keep)
{
    int64_t first = fed - keep - from;
    if (first < 0) first = 0;
    if (first > n) first = n;
    return (dsf_row_range){first, n - first};
}

/* Which rows each layer computes. A row of layer l is needed when it feeds the last row's logits or
 * a window ring: layer l+1 needs window keys for its own query rows and the window - 1 before each.
 */
static void set_ranges(layout *w, const dsf_session *s, dsf_prefill mode)
{
    dsf_engine *e = w->e;
    const dsf_config *c = &e->load.config;
    for (size_t i = 0; i < sizeof e->range / sizeof *e->range; i++)
        e->range[i] = (dsf_row_range){0, w->n};
    e->range[DSF_ROWS_POOLED].count = e->range[DSF_ROWS_PAIRS].count = w->pairs;
    e->range[DSF_ROWS_HEAD].count = w->heads;
    if (mode == DSF_PREFILL_EXACT) return;
    int64_t window = c->window_size;
    e->range[DSF_ROWS_CONTEXT] = suffix(s->n, w->n, s->fed, window);
    for (int l = dsf_config_split(c); l < c->n_layers; l++) {
        int64_t q = mode == DSF_PREFILL_CONE ? dsf_batch_cone_rows(c, l) : window;
        int64_t kv = mode == DSF_PREFILL_CONE ? q + window - 1 : window;
        e->range[DSF_ROWS_Q(l)] = suffix(s->n, w->n, s->fed, q);
        e->range[DSF_ROWS_KV(l)] = suffix(s->n, w->n, s->fed, kv);
    }
}

/* A session that skipped rows, or cut their windows, for the sake of its prompt's end can be taken
 * back no further than to that end: s->floor. */
static void commit(dsf_session *s, dsf_prefill mode)
{
    bool skipped =
        mode != DSF_PREFILL_EXACT && s->fed - s->engine->load.config.window_size > s->prompt_from;
    s->n += s->take;
    if (s->n > s->furthest) s->furthest = s->n;
    s->serial = s->engine->serial;
    if (skipped || cut_of(s) > 0) s->floor = s->fed;
}

/* After a failed pass: its rows may have overwritten ring rows of the last window. Then everything
 * is queued again. */
static void take_back(dsf_session *s)
{
    int64_t reached = s->n + s->take;
    s->head = -1;
    if (reached > s->furthest) s->furthest = reached;
    if (s->furthest - s->n <= s->engine->opt.rewind) return;
    s->n = s->prompt_from = s->furthest = s->floor = 0;
}

/* Every session once, and of this engine; s->take is 0 after. */
static dsf_status check_batch(const dsf_engine *e, dsf_session *const *batch, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (batch[i]->engine != e)
            return DSF_FAIL(DSF_EINVAL, "step: session %zu belongs to another engine", i);
        batch[i]->take = -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (batch[i]->take == 0)
            return DSF_FAIL(DSF_EINVAL, "step: session %zu is in the batch twice", i);
        batch[i]->take = 0;
    }
    return DSF_OK;
}

/* Lays out what is queued, session by session, up to a chunk. Returns one that has rows, or NULL.
 */
static const dsf_session *put_batch(layout *w, dsf_session *const *batch, size_t n)
{
    const dsf_session *one = NULL;
    for (size_t i = 0; i < n && w->n < w->e->opt.chunk; i++) {
        dsf_session *s = batch[i];
        int64_t queued = s->fed - s->n, room = w->e->opt.chunk - w->n;
        s->take = queued < room ? queued : room;
        if (s->take == 0) continue;
        s->head = -1;
        put_rows(w, s);
        one = s;
    }
    return one;
}

dsf_status dsf_batch_run(dsf_engine *e, dsf_session *const *batch, size_t n,
                         const dsf_tap_sink *sink)
{
    layout w = {.e = e};
    size_t used = 0;
    DSF_TRY(check_batch(e, batch, n));
    for (size_t i = 0; i < n && used < 2; i++) used += batch[i]->fed > batch[i]->n;
    const dsf_session *alone = put_batch(&w, batch, n);
    if (!alone) return DSF_FAIL(DSF_EINVAL, "step: none of the %zu sessions has queued tokens", n);
    dsf_prefill mode = used == 1 ? e->opt.prefill : DSF_PREFILL_EXACT;
    bool prompt = alone->fed - alone->prompt_from > 1;
    if (!prompt && mode == DSF_PREFILL_REPLAY) mode = DSF_PREFILL_CONE;
    set_ranges(&w, alone, mode);
    e->serial++; /* also when the pass fails: it has written over the logits */
    dsf_status st = dsf_exec_run(&e->exec, e->range, sink);
    for (size_t i = 0; i < n; i++) {
        if (batch[i]->take == 0) continue;
        if (st == DSF_OK)
            commit(batch[i], mode);
        else
            take_back(batch[i]);
    }
    return st == DSF_OK ? st : dsf_error_pass(st, DSF_HERE);
}

dsf_status dsf_batch_draft(dsf_session *s, int32_t anchor, const dsf_tap_sink *sink)
{
    dsf_engine *e = s->engine;
    const dsf_config *c = &e->load.config;
    if (!e->draft_plan) return DSF_FAIL(DSF_ENOTSUP, "this model has no draft stages");
    if (s->n == 0 || s->n != s->fed)
        return DSF_FAIL(DSF_EINVAL, "draft: %lld of %lld tokens computed", (long long)s->n,
                        (long long)s->fed);
    if (anchor < 0 || anchor >= c->vocab_size)
        return DSF_FAIL(DSF_EINVAL, "draft: anchor %d is outside the vocabulary of %lld",
                        (int)anchor, (long long)c->vocab_size);
    int b = c->dspark_block_size;
    struct {
        dsf_input input;
        int64_t base, step;
    } fill[] = {{DSF_INPUT_IDS, c->dspark_noise_token_id, 0},
                {DSF_INPUT_POS, s->n, 1},
                {DSF_INPUT_SLOT, s->slot, 0},
                {DSF_INPUT_ROW, 0, 1},
                {DSF_INPUT_START, s->n, 0},
                {DSF_INPUT_END, s->n + b, 0},
                {DSF_INPUT_LO, 0, 0}};
    for (size_t k = 0; k < sizeof fill / sizeof *fill; k++) {
        int32_t *v = dsf_exec_input(&e->draft, fill[k].input, 0);
        for (int i = 0; v && i < b; i++) v[i] = (int32_t)(fill[k].base + i * fill[k].step);
    }
    int32_t *ids = dsf_exec_input(&e->draft, DSF_INPUT_IDS, 0),
            *a = dsf_exec_input(&e->draft, DSF_INPUT_ANCHOR, 0);
    uint8_t *vl = dsf_exec_input(&e->draft, DSF_INPUT_VL, 0);
    ids[0] = *a = anchor;
    if (vl) memset(vl, 0, (size_t)b);
    dsf_row_range range[sizeof e->range / sizeof *e->range];
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) range[i] = (dsf_row_range){0, b};
    return dsf_exec_run(&e->draft, range, sink);
}
