#include <string.h>

#include "base/mem.h"
#include "serve/engine.h"

dsf_status dsf_session_open(dsf_session **out, dsf_engine *e)
{
    int slot = 0;
    while (slot < e->opt.slots && e->slot_taken[slot]) slot++;
    if (slot == e->opt.slots)
        return DSF_FAIL(DSF_ENOMEM, "all %lld slots are taken by sessions",
                        (long long)e->opt.slots);
    dsf_session *s = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&s, 1, sizeof *s));
    size_t context = (size_t)e->opt.context;
    DSF_TRY_OUT(dsf_mem_new(&s->ids, context, sizeof *s->ids));
    DSF_TRY_OUT(dsf_mem_new(&s->vl, context, 1));
    if (e->opt.given_embed)
        DSF_TRY_OUT(dsf_mem_new(&s->embed, context * (size_t)e->load.config.dim, sizeof *s->embed));
    s->engine = e;
    s->slot = slot;
    s->head = -1;
    s->how.top_p = 1;
    e->slot_taken[slot] = true;
    *out = s;
    return DSF_OK;
out:
    dsf_session_close(s);
    return st;
}

void dsf_session_close(dsf_session *s)
{
    if (!s) return;
    if (s->engine) s->engine->slot_taken[s->slot] = false;
    dsf_mem_free(s->ids);
    dsf_mem_free(s->vl);
    dsf_mem_free(s->embed);
    dsf_mem_free(s);
}

static dsf_status check_feed(const dsf_session *s, const int32_t *ids, size_t n)
{
    const dsf_engine *e = s->engine;
    if (n > (size_t)(e->opt.context - s->fed))
        return DSF_FAIL(DSF_EINVAL, "%zu tokens after %lld: the context holds %lld", n,
                        (long long)s->fed, (long long)e->opt.context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->load.config.vocab_size)
            return DSF_FAIL(DSF_EINVAL, "token %zu: id %d is outside the vocabulary of %lld", i,
                            (int)ids[i], (long long)e->load.config.vocab_size);
    return DSF_OK;
}

static void append(dsf_session *s, const int32_t *ids, const uint8_t *mask, size_t n)
{
    if (s->n == s->fed) s->prompt_from = s->fed;
    if (n) memcpy(s->ids + s->fed, ids, n * sizeof *ids);
    for (size_t i = 0; i < n; i++) s->vl[(size_t)s->fed + i] = mask && mask[i];
    s->fed += (int64_t)n;
}

dsf_status dsf_session_feed(dsf_session *s, const int32_t *ids, size_t n)
{
    if (s->engine->opt.given_embed)
        return DSF_FAIL(DSF_EINVAL,
                        "this engine takes rows with their embedding: dsf_session_feed_embed");
    DSF_TRY(check_feed(s, ids, n));
    append(s, ids, NULL, n);
    return DSF_OK;
}

dsf_status dsf_session_feed_embed(dsf_session *s, const int32_t *ids, const uint8_t *mask,
                                  const uint16_t *embed, size_t n)
{
    size_t d = (size_t)s->engine->load.config.dim;
    if (!s->engine->opt.given_embed)
        return DSF_FAIL(DSF_EINVAL, "this engine was not opened for given embeddings");
    DSF_TRY(check_feed(s, ids, n));
    if (n) memcpy(s->embed + (size_t)s->fed * d, embed, n * d * sizeof *embed);
    append(s, ids, mask, n);
    return DSF_OK;
}

dsf_status dsf_session_rewind(dsf_session *s, int64_t position)
{
    if (position < 0 || position > s->n)
        return DSF_FAIL(DSF_EINVAL, "rewind to %lld: the session has %lld positions",
                        (long long)position, (long long)s->n);
    bool immediate = position >= s->floor && s->furthest - position <= s->engine->opt.rewind;
    s->head = -1;
    s->fed = position;
    if (immediate || position == 0) {
        s->n = position;
        s->prompt_from = position;
    } else { /* the rings no longer hold the window: compute the prefix again */
        s->n = 0;
        s->prompt_from = 0;
    }
    if (s->n == 0) s->furthest = s->floor = 0;
    return DSF_OK;
}

/* Copies one slot of a cache: its first `rows` rows. */
static dsf_status copy_slot(const dsf_exec *e, const dsf_value *v, int from, int to, int64_t rows)
{
    dsf_tensor t = dsf_plan_tensor(v);
    uint8_t *at = e->cache + v->offset;
    int64_t slot = dsf_tensor_stride(&t), row = slot / t.dim[1];
    if (rows > t.dim[1]) rows = t.dim[1];
    return dsf_space_copy(e->setup.device, at + to * slot, at + from * slot, (size_t)(rows * row));
}

dsf_status dsf_session_fork(dsf_session **out, const dsf_session *s)
{
    dsf_session *f = NULL;
    const dsf_plan *p = s->engine->plan;
    size_t fed = (size_t)s->fed;
    DSF_TRY(dsf_session_open(&f, s->engine));
    for (int i = 0; i < p->n_values; i++) {
        if (p->value[i].kind != DSF_VALUE_CACHE || p->value[i].base != DSF_NO_VAL) continue;
        dsf_status st =
            copy_slot(&s->engine->exec, &p->value[i], s->slot, f->slot, s->n > 0 ? INT64_MAX : 0);
        if (st == DSF_OK) continue;
        dsf_session_close(f);
        return dsf_error_pass(st, DSF_HERE);
    }
    if (fed) memcpy(f->ids, s->ids, fed * sizeof *f->ids);
    if (fed) memcpy(f->vl, s->vl, fed);
    if (fed && s->embed)
        memcpy(f->embed, s->embed, fed * (size_t)s->engine->load.config.dim * sizeof *f->embed);
    f->n = s->n;
    f->fed = s->fed;
    f->prompt_from = s->prompt_from;
    f->furthest = s->furthest;
    f->floor = s->floor;
    f->serial = s->serial;
    f->head = s->head;
    f->how = s->how;
    *out = f;
    return DSF_OK;
}

int64_t dsf_session_position(const dsf_session *s) { return s->n; }
int64_t dsf_session_queued(const dsf_session *s) { return s->fed - s->n; }

dsf_status dsf_session_result(const dsf_session *s, dsf_result which, dsf_tensor *t)
{
    const dsf_engine *e = s->engine;
    if (s->head < 0 || s->serial != e->serial || s->n != s->fed)
        return DSF_FAIL(DSF_EINVAL,
                        "no logits of this session from the last step (%lld computed, %lld fed)",
                        (long long)s->n, (long long)s->fed);
    return dsf_exec_result(&e->exec, which, t);
}

dsf_status dsf_session_logits(const dsf_session *s, const float **row)
{
    dsf_tensor t = {.data = NULL};
    DSF_TRY(dsf_session_result(s, DSF_RESULT_LOGITS, &t));
    *row = (const float *)t.data + s->head * s->engine->load.config.vocab_size;
    return DSF_OK;
}

dsf_status dsf_session_draft(dsf_session *s, int32_t anchor, int32_t *ids, float *confidence,
                             int *n, const dsf_tap_sink *sink)
{
    DSF_TRY(dsf_batch_draft(s, anchor, sink));
    dsf_tensor y, c;
    DSF_TRY(dsf_exec_result(&s->engine->draft, DSF_RESULT_DRAFT_IDS, &y));
    DSF_TRY(dsf_exec_result(&s->engine->draft, DSF_RESULT_CONFIDENCE, &c));
    *n = s->engine->load.config.dspark_block_size;
    memcpy(ids, y.data, (size_t)*n * sizeof *ids);
    memcpy(confidence, c.data, (size_t)*n * sizeof *confidence);
    return DSF_OK;
}
