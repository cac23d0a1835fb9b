#include "verify/dump/run.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "ckpt/digest.h"
#include "serve/engine.h"
#include "verify/dump/reader.h"

typedef struct {
    const dsf_dump_run *d;
    dsf_dump_filter filter; /* with the steps as positions */
    dsf_dump_geometry geometry;
    dsf_options opt;
    int32_t *ids;
    uint8_t *mask;
    uint16_t *embed; /* [n, embed_width] bf16 */
    int64_t n, embed_width;
    dsf_file config;
    char *config_text;
    dsf_dump *dump;
    dsf_tap_sink sink, planned;
    int n_layers;
    int64_t vocab;
    dsf_engine *engine;
    dsf_session *session;
    dsf_dump_run_report *r;
} run;

/* Token ids, and for image prompts the mask and the embedding rows that replace the table's. */
static dsf_status read_inputs(run *w)
{
    dsf_dump_file *f = NULL;
    int32_t *mask = NULL;
    int64_t n_mask = 0;
    dsf_dump_array e = {.n = 0};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_dump_open(&f, w->d->inputs_from));
    DSF_TRY_OUT(dsf_dump_read_axis(f, "token_ids", &w->ids, &w->n));
    if (!w->ids) DSF_TRY_OUT(DSF_FAIL(DSF_EINVAL, "%s: no token_ids", w->d->inputs_from));
    DSF_TRY_OUT(dsf_dump_read_axis(f, "image_mask", &mask, &n_mask));
    if (!mask) goto out;
    DSF_TRY_OUT(dsf_dump_read(f, "embed", &e));
    if (n_mask != w->n || e.n != w->n || !e.f)
        DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT, "%s: %lld token ids, %lld mask entries, %lld embed rows",
                             w->d->inputs_from, (long long)w->n, (long long)n_mask,
                             (long long)e.n));
    DSF_TRY_OUT(dsf_mem_new(&w->mask, (size_t)w->n, 1));
    DSF_TRY_OUT(dsf_mem_new(&w->embed, (size_t)(e.n * e.width), sizeof *w->embed));
    for (int64_t i = 0; i < w->n; i++) w->mask[i] = mask[i] != 0;
    for (int64_t i = 0; i < e.n * e.width; i++) w->embed[i] = dsf_f32_to_bf16(e.f[i]);
    w->embed_width = e.width;
    w->opt.given_embed = true;
out:
    dsf_dump_array_free(&e);
    dsf_mem_free(mask);
    dsf_dump_close(f);
    return st;
}

static dsf_status read_config(run *w)
{
    char path[4096];
    DSF_TRY(dsf_file_join(path, w->opt.model, "config.json"));
    DSF_TRY(dsf_file_open(&w->config, path));
    DSF_TRY(dsf_mem_new(&w->config_text, w->config.size + 1, 1));
    memcpy(w->config_text, w->config.data, w->config.size);
    return DSF_OK;
}

static dsf_status open_dump(run *w, const char *variants, const char *checkpoint, const char *plan)
{
    static const char *const mode[] = {"cone", "exact", "replay"};
    const char *slash = strrchr(w->opt.model, '/');
    const dsf_dump_meta meta = {.producer = "dsf",
                                .model = slash && slash[1] ? slash + 1 : w->opt.model,
                                .config_json = w->config_text,
                                .mode = mode[w->opt.prefill],
                                .backend = w->d->backend,
                                .variants = variants,
                                .checkpoint_digest = checkpoint,
                                .plan_digest = plan,
                                .token_ids = w->ids,
                                .n_tokens = w->n,
                                .n_decode = w->d->decode,
                                .image_mask = w->mask,
                                .filter = w->filter,
                                .stats = w->d->stats,
                                .compress = w->d->compress,
                                .pool = w->engine->pool};
    int64_t bytes;
    DSF_TRY(dsf_dump_estimate(&meta, &bytes));
    if (w->d->max_bytes && bytes > w->d->max_bytes)
        return DSF_FAIL(
            DSF_ENOMEM,
            "the dump would hold up to %lld bytes, --max-bytes allows %lld: fewer taps, layers or positions",
            (long long)bytes, (long long)w->d->max_bytes);
    DSF_TRY(dsf_dump_create(&w->dump, w->d->out, &meta));
    w->sink = dsf_dump_sink(w->dump);
    return DSF_OK;
}

/* The engine is planned for a sink that wants the same taps; the dump opens once variants are
 * known. */
static bool wants(void *ud, dsf_tap tap)
{
    const run *w = ud;
    if (tap.id == DSF_TAP_EMBED && w->mask) return false; /* given, not computed: show_embed */
    return dsf_dump_filter_wants(&w->filter, tap, w->n_layers);
}

/* Steps are positions: step 0 the prompt's, step k that of the kth decoded token. */
static dsf_status place_steps(run *w)
{
    const dsf_dump_run *d = w->d;
    w->filter = d->filter;
    if (!d->by_step) return DSF_OK;
    dsf_dump_filter *f = &w->filter;
    int64_t from = d->step_from ? w->n + d->step_from - 1 : 0, to = w->n + d->step_to - 1;
    if (d->step_from > d->decode)
        return DSF_FAIL(DSF_EINVAL,
                        "steps %lld-%lld: nothing to dump, --decode %lld ends with %lld",
                        (long long)d->step_from, (long long)d->step_to, (long long)d->decode,
                        (long long)d->decode);
    if (!f->by_position || from > f->position_from) f->position_from = from;
    if (!f->by_position || to < f->position_to) f->position_to = to;
    if (f->position_from > f->position_to)
        return DSF_FAIL(
            DSF_EINVAL, "steps %lld-%lld are positions %lld-%lld: none of the positions asked for",
            (long long)d->step_from, (long long)d->step_to, (long long)from, (long long)to);
    f->by_position = true;
    return DSF_OK;
}

/* Whether the run will show this tap at all. */
static bool shows(const run *w, dsf_tap t)
{
    const dsf_dump_geometry *g = &w->geometry;
    bool stage = dsf_taps[t.id].scope == DSF_SCOPE_LAYER && t.layer >= g->n_layers;
    bool draft = dsf_taps[t.id].rows == DSF_ROWS_DRAFT || stage;
    if (dsf_taps[t.id].scope == DSF_SCOPE_DRAFT && t.layer < g->n_layers) return false;
    return (w->d->draft || !draft) && dsf_dump_geometry_has(g, t);
}

/* A filter that leaves nothing is a mistake of the user's, told before anything is computed. */
static dsf_status check_filter(const run *w)
{
    const dsf_dump_geometry *g = &w->geometry;
    const dsf_dump_filter *f = &w->filter;
    int64_t tokens = w->n + w->d->decode;
    int layers = g->n_layers + g->n_stages;
    bool named = false;
    if (f->by_layer && f->layer_from >= layers)
        return DSF_FAIL(DSF_EINVAL, "layers %d-%d: nothing to dump, the model has %d + %d stages",
                        f->layer_from, f->layer_to, g->n_layers, g->n_stages);
    if (f->by_position && f->position_from >= tokens)
        return DSF_FAIL(DSF_EINVAL, "positions %lld-%lld: nothing to dump, there are %lld tokens",
                        (long long)f->position_from, (long long)f->position_to, (long long)tokens);
    for (int id = 0; id < DSF_N_TAPS; id++)
        for (int l = -1; l < layers; l++) {
            bool global = dsf_taps[id].scope == DSF_SCOPE_GLOBAL;
            dsf_tap t = {(dsf_tap_id)id, l};
            if (global != (l < 0) || !dsf_dump_filter_wants(f, t, g->n_layers)) continue;
            if (shows(w, t)) return DSF_OK;
            named = true;
        }
    if (named)
        return DSF_FAIL(DSF_EINVAL, "the taps asked for exist, but not in these layers of this run"
                                    " (dsf info tells which layers have sources, Engram, a draft)");
    return DSF_FAIL(DSF_EINVAL, "the taps asked for match nothing (\"attn/q\", \"layers/0?/out\")");
}

/* Given rows must be the model's. */
static dsf_status check_embed(const run *w, const dsf_config *c)
{
    if (!w->embed || w->embed_width == c->dim) return DSF_OK;
    return DSF_FAIL(DSF_ECORRUPT, "%s: embed has %lld values a row, the model has %d",
                    w->d->inputs_from, (long long)w->embed_width, c->dim);
}

static dsf_status open_engine(run *w)
{
    dsf_config c;
    char path[4096], checkpoint[33], plan_digest[33];
    DSF_TRY(dsf_file_join(path, w->opt.model, "config.json"));
    const char *const *accept = w->opt.accept_config;
    int n_accept = 0;
    while (accept && accept[n_accept]) n_accept++;
    const dsf_config_accept keys = {accept, n_accept};
    DSF_TRY(dsf_config_load(&c, path, &keys));
    w->n_layers = c.n_layers;
    w->vocab = c.vocab_size;
    DSF_TRY(dsf_dump_geometry_parse(&w->geometry, path, w->config_text, w->config.size));
    DSF_TRY(place_steps(w));
    DSF_TRY(check_filter(w));
    DSF_TRY(check_embed(w, &c));
    w->planned = (dsf_tap_sink){.wants = wants, .ud = w};
    w->opt.sink = &w->planned;
    w->opt.unfused = true;
    w->opt.all_logits = w->opt.prefill == DSF_PREFILL_EXACT;
    if (w->opt.context == 0) w->opt.context = w->n + w->d->decode;
    if (w->opt.chunk == 0) w->opt.chunk = w->n < 512 ? w->n : 512;
    DSF_TRY(dsf_engine_open(&w->engine, &w->opt));
    dsf_buf variants = {.max = 0}, plan = {.max = 0};
    dsf_plan_variants(w->engine->plan, &variants);
    dsf_plan_print(w->engine->plan, &plan);
    dsf_digest_bytes(plan.data, plan.len, plan_digest);
    dsf_status st = dsf_buf_status(&plan);
    if (st == DSF_OK) st = dsf_ckpt_digest(w->engine->load.ckpt, checkpoint);
    if (st == DSF_OK) st = open_dump(w, variants.data, checkpoint, plan_digest);
    dsf_buf_free(&variants);
    dsf_buf_free(&plan);
    return st;
}

static bool stopped(const run *w) { return w->d->stop && w->d->stop(); }

/* The rows that came in place of the table's are the dump's embed. */
static dsf_status show_embed(run *w)
{
    const dsf_tap tap = {DSF_TAP_EMBED, -1};
    int64_t dim = w->engine->load.config.dim;
    int32_t *label = NULL, *slot = NULL;
    dsf_status st = DSF_OK;
    if (!dsf_dump_filter_wants(&w->filter, tap, w->n_layers)) return DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&label, (size_t)w->n, sizeof *label));
    DSF_TRY_OUT(dsf_mem_new(&slot, (size_t)w->n, sizeof *slot));
    for (int64_t i = 0; i < w->n; i++) label[i] = (int32_t)i;
    const dsf_tensor t = {.data = w->embed, .dtype = DSF_BF16, .rank = 2, .dim = {w->n, dim}};
    const dsf_tap_value v = {.tap = tap, .value = &t, .n = w->n, .label = label, .slot = slot};
    DSF_TRY_OUT(w->sink.on_value(w->sink.ud, &v));
out:
    dsf_mem_free(label);
    dsf_mem_free(slot);
    return st;
}

static dsf_status prefill(run *w)
{
    dsf_dump_logits_oneshot(w->dump, w->opt.all_logits);
    DSF_TRY(dsf_session_open(&w->session, w->engine));
    DSF_TRY(w->mask ? dsf_session_feed_embed(w->session, w->ids, w->mask, w->embed, (size_t)w->n)
                    : dsf_session_feed(w->session, w->ids, (size_t)w->n));
    if (w->mask) DSF_TRY(show_embed(w));
    while (dsf_session_queued(w->session) > 0 && !stopped(w)) {
        DSF_TRY(dsf_engine_step(w->engine, &w->session, 1, &w->sink));
        if (w->d->progress) w->d->progress("prefill", dsf_session_position(w->session), w->n);
    }
    w->r->tokens = dsf_session_position(w->session);
    return DSF_OK;
}

static dsf_status best_token(const run *w, int32_t *id)
{
    const dsf_sampling greedy = {.temperature = 0.0, .top_p = 1.0};
    const float *row;
    DSF_TRY(dsf_session_logits(w->session, &row));
    return dsf_sample(row, w->vocab, &greedy, 0, NULL, id, NULL);
}

/* The dump that gives the inputs also gives the token that the block starts from: a near tie of its
 * logits must not make two runs draft from two tokens. */
static dsf_status find_anchor(const run *w, int32_t *anchor)
{
    dsf_dump_file *f = NULL;
    int64_t theirs = -1;
    DSF_TRY(best_token(w, anchor));
    if (!w->d->inputs_from) return DSF_OK;
    DSF_TRY(dsf_dump_open(&f, w->d->inputs_from));
    dsf_status st = dsf_dump_anchor(f, w->d->inputs_from, w->n, w->vocab, &theirs);
    dsf_dump_close(f);
    if (theirs >= 0) *anchor = (int32_t)theirs;
    return st;
}

static dsf_status draft(run *w)
{
    int32_t anchor = 0, ids[64];
    float confidence[64];
    int n;
    if (!w->d->draft || !w->engine->draft_plan || w->engine->load.config.dspark_block_size > 64)
        return DSF_OK;
    DSF_TRY(find_anchor(w, &anchor));
    return dsf_session_draft(w->session, anchor, ids, confidence, &n, &w->sink);
}

static dsf_status decode(run *w)
{
    dsf_dump_logits_oneshot(w->dump, false);
    for (int64_t i = 0; i < w->d->decode && !stopped(w); i++) {
        int32_t id = 0;
        DSF_TRY(best_token(w, &id));
        DSF_TRY(dsf_dump_add_tokens(w->dump, &id, 1));
        DSF_TRY(dsf_session_feed(w->session, &id, 1));
        DSF_TRY(dsf_engine_step(w->engine, &w->session, 1, &w->sink));
        w->r->decoded++;
    }
    return DSF_OK;
}

/* Whatever the run still owed when it was told to stop. */
static dsf_status note_stop(run *w, bool drafted)
{
    dsf_dump_run_report *r = w->r;
    int64_t done = r->tokens + r->decoded, all = w->n + w->d->decode;
    if (done == all && drafted) return DSF_OK;
    r->stopped = true;
    (void)snprintf(r->words, sizeof r->words, "after %lld of %lld tokens%s", (long long)done,
                   (long long)all, done == all ? ", before the draft" : "");
    return dsf_dump_note_stop(w->dump, r->words);
}

static dsf_status run_all(run *w)
{
    if (w->d->inputs_from && dsf_file_same(w->d->inputs_from, w->d->out))
        return DSF_FAIL(DSF_EINVAL, "%s: input and output are one file", w->d->out);
    DSF_TRY(dsf_file_may_replace(w->d->out));
    if (w->d->inputs_from) {
        DSF_TRY(read_inputs(w));
    } else {
        w->n = w->d->n;
        DSF_TRY(dsf_mem_new(&w->ids, (size_t)w->n, sizeof *w->ids));
        memcpy(w->ids, w->d->ids, (size_t)w->n * sizeof *w->ids);
    }
    if (w->mask && w->d->decode)
        return DSF_FAIL(DSF_ENOTSUP,
                        "--decode after an image prompt: rows come with their embedding here");
    DSF_TRY(read_config(w));
    DSF_TRY(open_engine(w));
    DSF_TRY(prefill(w));
    bool drafted = w->r->tokens == w->n && !stopped(w);
    if (drafted) DSF_TRY(draft(w));
    DSF_TRY(decode(w));
    DSF_TRY(note_stop(w, drafted || !w->d->draft || !w->engine->draft_plan));
    w->r->bytes = dsf_dump_bytes(w->dump);
    if (w->r->bytes == 0 && !stopped(w))
        return DSF_FAIL(DSF_EINVAL, "nothing to dump: no tap asked for has rows here (logits of all"
                                    " positions need --prefill exact)");
    dsf_dump *dump = w->dump;
    w->dump = NULL;
    return dsf_dump_finish(dump);
}

dsf_status dsf_dump_run_model(const dsf_dump_run *d, dsf_dump_run_report *r)
{
    *r = (dsf_dump_run_report){.tokens = 0};
    run w = {.d = d, .opt = d->engine, .r = r};
    dsf_status st = run_all(&w);
    dsf_dump_abandon(w.dump);
    dsf_session_close(w.session);
    dsf_engine_close(w.engine);
    dsf_file_close(&w.config);
    dsf_mem_free(w.config_text);
    dsf_mem_free(w.ids);
    dsf_mem_free(w.mask);
    dsf_mem_free(w.embed);
    return st;
}
