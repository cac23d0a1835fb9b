/* Time per generated token at given positions of a sequence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model.h"

enum {
    LIMIT_NS = 10 * 1000000,
    CACHED_EVERY = 8
}; /* tokens between two measurements of the limits, which disturb caches */

/* One run of the whole protocol: to each context length, then `tokens` tokens there. */
typedef struct {
    dsf_bench *b;
    const dsf_bench_model_options *o;
    dsf_engine *engine, *ref;
    dsf_session *session, *ref_session;
    int32_t *prompt, *out; /* [last context], [contexts * tokens] */
    float *work;           /* [vocab] */
    /* Of the frontier at hand. */
    dsf_division division;
    dsf_limits limits;
    dsf_samples time, ref_time, ratio;
    dsf_parity parity;
} job;

static dsf_status open_engine(const job *j, bool timed, const char *variants, dsf_engine **e)
{
    dsf_options eo = j->o->engine;
    eo.timed = timed;
    if (variants) eo.variants = variants;
    eo.context = j->o->context[j->o->n_contexts - 1] + j->o->tokens;
    return dsf_engine_open(e, &eo);
}

static dsf_status compare_rows(job *j)
{
    const float *ref = NULL, *got = NULL;
    DSF_TRY(dsf_session_logits(j->ref_session, &ref));
    DSF_TRY(dsf_session_logits(j->session, &got));
    dsf_parity_row(&j->parity, ref, got, dsf_engine_vocab(j->engine));
    return DSF_OK;
}

/* One token through the engine, and through the reference too while the check lasts, in alternating
 * order. */
static dsf_status step_both(job *j, int64_t i, int32_t id)
{
    double ns = 0, ref_ns = 0;
    bool both = j->ref_session && i < j->o->ref_tokens;
    if (both && i % 2) DSF_TRY(dsf_bench_feed(j->ref_session, &id, 1, NULL, &ref_ns));
    DSF_TRY(dsf_bench_feed(j->session, &id, 1, j->engine->opt.timed ? &j->division : NULL, &ns));
    if (both && !(i % 2)) DSF_TRY(dsf_bench_feed(j->ref_session, &id, 1, NULL, &ref_ns));
    dsf_samples_add(&j->time, ns);
    if (!both) return DSF_OK;
    dsf_samples_add(&j->ref_time, ref_ns);
    dsf_samples_add(&j->ratio, ref_ns / ns);
    return compare_rows(j);
}

/* To context length `at`, then tokens. Frontier f of the run. */
static dsf_status run_frontier(job *j, int f)
{
    int64_t at = dsf_session_position(j->session), to = j->o->context[f];
    DSF_TRY(dsf_bench_feed(j->session, j->prompt + at, to - at, NULL, NULL));
    if (j->ref_session) DSF_TRY(dsf_bench_adopt(j->ref_session, j->session));
    for (int64_t i = 0; i < j->o->tokens; i++) {
        int32_t id = 0;
        DSF_TRY(dsf_bench_next(j->session, j->work, &id));
        j->out[(int64_t)f * j->o->tokens + i] = id;
        int every = dsf_bench_cached(j->b, j->engine) ? CACHED_EVERY : 1;
        if (j->engine->opt.timed && i % every == 0)
            (void)dsf_limits_take(j->b, &j->limits, (dsf_cost){0, 0}, LIMIT_NS);
        DSF_TRY(step_both(j, i, id));
        j->b->out.progress(j->b->out.ud, j->engine->opt.timed ? "timed" : "untimed", i + 1,
                           j->o->tokens);
    }
    return DSF_OK;
}

/* The same protocol without timers, on an engine of its own: what the timed ids must be. */
static dsf_status run_untimed(job *j, int32_t *ids)
{
    DSF_TRY(open_engine(j, false, NULL, &j->engine));
    DSF_TRY(dsf_session_open(&j->session, j->engine));
    DSF_TRY(dsf_mem_new(&j->work, (size_t)dsf_engine_vocab(j->engine), sizeof *j->work));
    DSF_TRY(dsf_bench_prompt(&j->prompt, j->engine->opt.context, dsf_engine_vocab(j->engine), 7));
    for (int f = 0; f < j->o->n_contexts; f++) DSF_TRY(run_frontier(j, f));
    memcpy(ids, j->out, (size_t)(j->o->n_contexts * j->o->tokens) * sizeof *ids);
    dsf_session_close(j->session);
    dsf_engine_close(j->engine);
    j->session = NULL;
    j->engine = NULL;
    return DSF_OK;
}

static void add_figures(job *j, int64_t context, dsf_buf *json, dsf_buf *text)
{
    const dsf_division *d = &j->division;
    double tokens = d->passes, t = dsf_samples_median(&j->time);
    double read = dsf_samples_median(&j->limits.read);
    bool cached = dsf_bench_cached(j->b, j->engine); /* then the memory is no limit */
    double share = read > 0 && !cached ? 1e11 * d->bytes / tokens / read / t : NAN;
    dsf_json_add_num(json, "median_ns", t);
    dsf_json_add_num(json, "spread", dsf_samples_spread(&j->time));
    dsf_json_add_num(json, "mean_ns", d->wall_ns / tokens);
    dsf_json_add_int(json, "tokens", d->passes);
    dsf_json_add_num(json, "tokens_per_s", 1e9 / t);
    dsf_json_add_num(json, "bytes_per_token", d->bytes / tokens);
    dsf_limits_json(json, &j->limits);
    dsf_json_add_cstr(json, "limit", cached ? "none: the weights fit the last cache" : "memory");
    dsf_json_add_num(json, "percent", share);
    if (j->ratio.n) {
        dsf_bench_sample(json, "ref_ns", &j->ref_time, 1);
        dsf_bench_sample(json, "ref_ratio", &j->ratio, 1);
    }
    dsf_division_json(d, cached ? NULL : &j->limits, tokens, json);
    dsf_buf_fmt(text, "decode at %lld: %.2f ms a token +-%.1f%% (%.2f tokens/s)",
                (long long)context, t * 1e-6, 100 * dsf_samples_spread(&j->time), 1e9 / t);
    if (!cached) dsf_buf_fmt(text, ", %.1f%% of %.2f GB/s", share, read * 1e-9);
    if (j->ratio.n)
        dsf_buf_fmt(text, ", %.0f times the reference's speed", dsf_samples_median(&j->ratio));
    dsf_division_text(d, cached ? NULL : &j->limits, tokens, text);
    if (dsf_division_outside(d) > 5) j->b->missed++;
}

static dsf_status report(job *j, int f, const int32_t *untimed)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    size_t bytes = (size_t)j->o->tokens * sizeof *untimed;
    const int32_t *ids = j->out + (int64_t)f * j->o->tokens;
    char hash[32];
    dsf_bench_begin(j->b, &json, "decode");
    dsf_bench_describe(j->engine, &json);
    dsf_json_add_int(&json, "context", j->o->context[f]);
    if (memcmp(ids, untimed + (int64_t)f * j->o->tokens, bytes) != 0)
        return dsf_bench_refuse(j->b, "decode", "the timed run gave other ids than the untimed one",
                                &json);
    dsf_parity_json(&j->parity, &json);
    if (!dsf_parity_good(&j->parity))
        return dsf_bench_refuse(j->b, "decode", "the logits are not the reference's", &json);
    (void)snprintf(hash, sizeof hash, "%016llx",
                   (unsigned long long)dsf_parity_hash(0, ids, bytes));
    dsf_json_add_cstr(&json, "ids_hash", hash);
    add_figures(j, j->o->context[f], &json, &text);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status run_timed(job *j, const int32_t *untimed)
{
    DSF_TRY(open_engine(j, true, NULL, &j->engine));
    DSF_TRY(dsf_session_open(&j->session, j->engine));
    if (j->o->ref_tokens > 0) {
        DSF_TRY(open_engine(j, false, "ref", &j->ref));
        DSF_TRY(dsf_session_open(&j->ref_session, j->ref));
    }
    for (int f = 0; f < j->o->n_contexts; f++) {
        j->division = (dsf_division){.n = 0};
        dsf_limits_reset(&j->limits);
        j->time.n = j->ref_time.n = j->ratio.n = 0;
        j->parity = (dsf_parity){.n = 0};
        DSF_TRY(run_frontier(j, f));
        DSF_TRY(report(j, f, untimed));
    }
    return DSF_OK;
}

static dsf_status check_options(const dsf_bench_model_options *o)
{
    if (o->tokens < 1 || o->ref_tokens < 0)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens, %lld through the reference: at least 1 and 0",
                        (long long)o->tokens, (long long)o->ref_tokens);
    for (int i = 0; i < o->n_contexts; i++) {
        int64_t least = i ? o->context[i - 1] + o->tokens + 1 : 1;
        if (o->context[i] < least)
            return DSF_FAIL(DSF_EINVAL,
                            "context %lld: at least %lld, past the tokens of the one before",
                            (long long)o->context[i], (long long)least);
    }
    return DSF_OK;
}

dsf_status dsf_bench_decode(dsf_bench *b, const dsf_bench_model_options *o)
{
    job *j = NULL;
    int32_t *untimed = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY(check_options(o));
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .o = o};
    size_t n = (size_t)(o->n_contexts * o->tokens);
    DSF_TRY_OUT(dsf_mem_new(&j->out, n, sizeof *j->out));
    DSF_TRY_OUT(dsf_mem_new(&untimed, n, sizeof *untimed));
    DSF_TRY_OUT(run_untimed(j, untimed));
    DSF_TRY_OUT(run_timed(j, untimed));
out:
    dsf_session_close(j->session);
    dsf_session_close(j->ref_session);
    dsf_engine_close(j->engine);
    dsf_engine_close(j->ref);
    dsf_mem_free(j->prompt);
    dsf_mem_free(j->out);
    dsf_mem_free(j->work);
    dsf_mem_free(j);
    dsf_mem_free(untimed);
    return st;
}
