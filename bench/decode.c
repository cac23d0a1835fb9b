/* Time per generated token at given positions of a sequence. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pace.h"

enum {
    LIMIT_NS = 10 * 1000000,
    CACHED_EVERY = 8, /* steps between two measurements of the limits, which disturb caches */
    MOST_BATCH = 256
};

/* One run of the whole protocol for one batch size: to each context length, then `tokens` steps
 * there. Sequence i of the batch has a prompt of its own; the reference follows the first. */
typedef struct {
    dsf_bench *b;
    const dsf_bench_model_options *o;
    int batch;
    dsf_engine *engine, *ref;
    dsf_session *session[MOST_BATCH], *ref_session;
    int32_t *prompt[MOST_BATCH], *out; /* [last context]; [contexts, tokens, batch] */
    float *work;                       /* [vocab] */
    /* Of the frontier at hand. */
    dsf_division division;
    dsf_limits limits;
    dsf_samples time, ref_time, ratio;
    dsf_warmup warm;
    dsf_parity parity;
    double prefill_ns; /* of the prompts since the frontier before */
    int64_t prefilled; /* tokens of one of them */
} job;

/* At most so many at a frontier; the next one starts after them, however many were warm-up. */
static int64_t steps_of(const dsf_bench_model_options *o)
{
    return (o->ref_tokens > DSF_WARMUPS_MOST ? o->ref_tokens : DSF_WARMUPS_MOST) + o->tokens;
}

static dsf_status open_engine(const job *j, bool timed, const char *variants, dsf_engine **e)
{
    dsf_options eo = j->o->engine;
    eo.timed = timed;
    if (variants) eo.variants = variants;
    eo.context = j->o->context[j->o->n_contexts - 1] + steps_of(j->o);
    eo.slots = j->batch;
    if (eo.chunk && eo.chunk < j->batch) eo.chunk = j->batch;
    return dsf_engine_open(e, &eo);
}

static dsf_status open_sessions(job *j)
{
    for (int i = 0; i < j->batch; i++) DSF_TRY(dsf_session_open(&j->session[i], j->engine));
    return DSF_OK;
}

static void close_sessions(job *j)
{
    for (int i = 0; i < j->batch; i++) {
        dsf_session_close(j->session[i]);
        j->session[i] = NULL;
    }
    dsf_engine_close(j->engine);
    j->engine = NULL;
}

static dsf_status compare_rows(job *j)
{
    const float *ref = NULL, *got = NULL;
    DSF_TRY(dsf_session_logits(j->ref_session, &ref));
    DSF_TRY(dsf_session_logits(j->session[0], &got));
    dsf_parity_row(&j->parity, ref, got, dsf_engine_vocab(j->engine));
    return DSF_OK;
}

/* One token of every sequence, and of the first through the reference too while the check lasts, in
 * alternating order. */
static dsf_status step_both(job *j, int64_t i, const int32_t *ids, double *ns)
{
    double ref_ns = 0;
    bool both = j->ref_session && i < j->o->ref_tokens;
    if (both && i % 2) DSF_TRY(dsf_bench_feed(j->ref_session, ids, 1, NULL, &ref_ns));
    DSF_TRY(dsf_bench_feed_all(j->session, ids, j->batch,
                               j->engine->opt.timed ? &j->division : NULL, ns));
    if (both && !(i % 2)) DSF_TRY(dsf_bench_feed(j->ref_session, ids, 1, NULL, &ref_ns));
    if (!both) return DSF_OK;
    if (j->batch == 1) {
        dsf_samples_add(&j->ref_time, ref_ns);
        dsf_samples_add(&j->ratio, ref_ns / *ns);
    }
    return compare_rows(j);
}

/* The prompts up to a context length. Of a batch the last tokens go together, so that every
 * sequence has logits of one pass. */
static dsf_status prefill(job *j, int64_t to)
{
    int64_t at = dsf_session_position(j->session[0]), apart = j->batch > 1 ? 1 : 0;
    int32_t last[MOST_BATCH];
    j->prefill_ns = 0;
    j->prefilled = to - at - apart;
    for (int i = 0; i < j->batch; i++) {
        DSF_TRY(dsf_bench_feed(j->session[i], j->prompt[i] + at, to - at - apart, NULL,
                               &j->prefill_ns));
        last[i] = j->prompt[i][to - 1];
    }
    return apart ? dsf_bench_feed_all(j->session, last, j->batch, NULL, NULL) : DSF_OK;
}

static int32_t *ids_at(const job *j, int f, int64_t i)
{
    return j->out + ((int64_t)f * steps_of(j->o) + i) * j->batch;
}

/* Step i of frontier f: a token of every sequence. */
static dsf_status run_step(job *j, int f, int64_t i, double *ns)
{
    int32_t *ids = ids_at(j, f, i);
    for (int k = 0; k < j->batch; k++) DSF_TRY(dsf_bench_next(j->session[k], j->work, &ids[k]));
    return step_both(j, i, ids, ns);
}

static void measure_limits(job *j, int64_t i)
{
    int every = dsf_bench_cached(j->b, j->engine) ? CACHED_EVERY : 1;
    if (!j->b->paced && i % every == 0)
        (void)dsf_limits_take(j->b, &j->limits, (dsf_cost){0, 0}, LIMIT_NS);
}

/* The steps that are not timed: all of them without timers, else until two agree. */
static dsf_status warm_up(job *j, int f, int64_t *i)
{
    bool timed = j->engine->opt.timed, more = true;
    for (*i = 0; more && *i < steps_of(j->o); ++*i) {
        double ns = 0;
        DSF_TRY(run_step(j, f, *i, &ns));
        more = !timed || dsf_warmup_more(&j->warm, ns) || *i + 1 < j->o->ref_tokens;
    }
    j->division = (dsf_division){.n = 0};
    return DSF_OK;
}

/* To context length `at`, then steps. Frontier f of the run. */
static dsf_status run_frontier(job *j, int f)
{
    int64_t i = 0;
    DSF_TRY(prefill(j, j->o->context[f]));
    if (j->ref_session) DSF_TRY(dsf_bench_adopt(j->ref_session, j->session[0]));
    DSF_TRY(warm_up(j, f, &i));
    for (int64_t end = i + j->o->tokens; j->engine->opt.timed && i < end; i++) {
        double ns = 0;
        measure_limits(j, i);
        DSF_TRY(run_step(j, f, i, &ns));
        dsf_samples_add(&j->time, ns);
        j->b->out.progress(j->b->out.ud, "timed", j->time.n, j->o->tokens);
    }
    return DSF_OK;
}

/* The same protocol without timers, on an engine of its own: what the timed ids must be. */
static dsf_status run_untimed(job *j)
{
    int64_t vocab = 0;
    DSF_TRY(open_engine(j, false, NULL, &j->engine));
    DSF_TRY(open_sessions(j));
    vocab = dsf_engine_vocab(j->engine);
    DSF_TRY(dsf_mem_new(&j->work, (size_t)vocab, sizeof *j->work));
    for (int i = 0; i < j->batch; i++)
        DSF_TRY(dsf_bench_prompt(&j->prompt[i], j->engine->opt.context, vocab, 7 + (uint64_t)i));
    for (int f = 0; f < j->o->n_contexts; f++) DSF_TRY(run_frontier(j, f));
    close_sessions(j);
    return DSF_OK;
}

static void add_text(const job *j, int f, double share, dsf_buf *text)
{
    double t = dsf_samples_median(&j->time);
    dsf_buf_fmt(text, "decode at %lld", (long long)j->o->context[f]);
    if (j->batch > 1) dsf_buf_fmt(text, ", batch %d", j->batch);
    dsf_buf_fmt(text, ": %.2f ms a step +-%.1f%% (%.2f tokens/s)", t * 1e-6,
                100 * dsf_samples_spread(&j->time), 1e9 * j->batch / t);
    if (isfinite(share))
        dsf_buf_fmt(text, ", %.1f%% of %.2f GB/s", share,
                    dsf_samples_median(&j->limits.read) * 1e-9);
    if (j->ratio.n)
        dsf_buf_fmt(text, ", %.0f times the reference's speed", dsf_samples_median(&j->ratio));
    dsf_bench_flags(text, &j->time, &j->warm);
    if (j->batch == 1)
        dsf_buf_fmt(text, "\n  prefill of the %lld tokens before: %.1f tokens/s",
                    (long long)j->prefilled, 1e9 * (double)j->prefilled / j->prefill_ns);
}

static void add_figures(job *j, int f, dsf_buf *json, dsf_buf *text)
{
    const dsf_division *d = &j->division;
    double tokens = (double)d->passes * j->batch, t = dsf_samples_median(&j->time);
    double read = dsf_samples_median(&j->limits.read);
    bool cached = dsf_bench_cached(j->b, j->engine); /* then the memory is no limit */
    double share = read > 0 && !cached ? 1e11 * d->bytes / d->passes / read / t : NAN;
    dsf_json_add_num(json, "median_ns", t);
    dsf_json_add_num(json, "spread", dsf_samples_spread(&j->time));
    dsf_json_add_num(json, "mean_ns", d->wall_ns / d->passes);
    dsf_bench_stats(json, &j->time, 1, &j->warm);
    dsf_json_add_int(json, "tokens", j->o->tokens);
    dsf_json_add_num(json, "tokens_per_s", 1e9 * j->batch / t);
    dsf_json_add_num(json, "bytes_per_token", d->bytes / tokens);
    if (j->batch == 1) {
        dsf_json_add_int(json, "prefill_tokens", j->prefilled);
        dsf_json_add_num(json, "prefill_ns", j->prefill_ns);
        dsf_json_add_num(json, "prefill_tokens_per_s", 1e9 * (double)j->prefilled / j->prefill_ns);
    }
    dsf_json_add_int(json, "cache_bytes", (int64_t)j->engine->plan->cache_bytes);
    dsf_limits_json(json, &j->limits);
    dsf_json_add_cstr(json, "limit", cached ? "none: the weights fit the last cache" : "memory");
    dsf_json_add_num(json, "percent", share);
    if (j->ratio.n) {
        dsf_bench_sample(json, "ref_ns", &j->ref_time, 1);
        dsf_bench_sample(json, "ref_ratio", &j->ratio, 1);
    }
    add_text(j, f, share, text);
    dsf_division_json(d, cached ? NULL : &j->limits, tokens, json);
    dsf_division_text(d, cached ? NULL : &j->limits, tokens, text);
    j->b->missed += dsf_division_lacks(d, text);
}

static void identify(const job *j, int f, dsf_buf *json)
{
    dsf_bench_begin(j->b, json, "decode");
    dsf_bench_describe(j->engine, json);
    dsf_bench_row(json, "the model folder's", j->batch, j->o->context[f]);
}

/* Of the steps that every run makes at this frontier, however many of them were warm-up. */
static uint64_t hash_of(const job *j, int f)
{
    return dsf_parity_hash(0, ids_at(j, f, 0), (size_t)(j->o->tokens * j->batch) * sizeof *j->out);
}

/* Why this frontier has no figure; NULL: it has. */
static const char *wrong(const job *j, int f, const int32_t *untimed)
{
    size_t n = (size_t)((j->warm.runs + j->time.n) * j->batch) * sizeof *untimed;
    const int32_t *ids = ids_at(j, f, 0);
    if (memcmp(ids, untimed + (ids - j->out), n) != 0)
        return "the timed run gave other ids than the untimed one";
    return dsf_parity_good(&j->parity) ? NULL : "the logits are not the reference's";
}

static dsf_status report(job *j, int f, const int32_t *untimed)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    identify(j, f, &json);
    const char *why = wrong(j, f, untimed);
    if (why) return dsf_bench_refuse(j->b, "decode", why, &json);
    dsf_parity_json(&j->parity, &json);
    uint64_t hash = hash_of(j, f);
    dsf_bench_hash(&json, "ids_hash", hash);
    dsf_bench_hash(&json, "output_hash", hash);
    add_figures(j, f, &json, &text);
    return dsf_bench_emit(j->b, &json, &text);
}

/* Steps that another process starts. What they must give is known before: a wrong model ends here.
 */
static dsf_status pace_frontier(job *j, int f, const int32_t *untimed)
{
    dsf_buf json = {.max = 0};
    int64_t i = 0, end = steps_of(j->o);
    DSF_TRY(prefill(j, j->o->context[f]));
    if (j->ref_session) DSF_TRY(dsf_bench_adopt(j->ref_session, j->session[0]));
    DSF_TRY(warm_up(j, f, &i));
    if (wrong(j, f, untimed)) return report(j, f, untimed);
    identify(j, f, &json);
    dsf_parity_json(&j->parity, &json);
    dsf_json_add_int(&json, "tokens", j->o->tokens);
    dsf_json_add_raw(&json, "output_hash", "null"); /* known at the end */
    DSF_TRY(dsf_pace_case(j->b, &json));
    for (; dsf_pace_more() && i < end; i++) {
        double ns = 0;
        j->division = (dsf_division){.n = 0};
        DSF_TRY(run_step(j, f, i, &ns));
        dsf_samples_add(&j->time, ns);
        DSF_TRY(dsf_pace_round(j->b, ns, &j->division));
    }
    return wrong(j, f, untimed) ? report(j, f, untimed) : dsf_pace_done(j->b);
}

/* The steps that are left, so that the next frontier starts where the untimed run's did. */
static dsf_status finish_frontier(job *j, int f)
{
    for (int64_t i = j->warm.runs + j->time.n; i < steps_of(j->o); i++) {
        double ns = 0;
        DSF_TRY(run_step(j, f, i, &ns));
    }
    return DSF_OK;
}

static dsf_status run_timed(job *j, const int32_t *untimed)
{
    DSF_TRY(open_engine(j, true, NULL, &j->engine));
    DSF_TRY(open_sessions(j));
    if (j->o->ref_tokens > 0) {
        DSF_TRY(open_engine(j, false, "ref", &j->ref));
        DSF_TRY(dsf_session_open(&j->ref_session, j->ref));
    }
    for (int f = 0; f < j->o->n_contexts; f++) {
        dsf_limits_reset(&j->limits);
        j->time.n = j->ref_time.n = j->ratio.n = 0;
        j->parity = (dsf_parity){.n = 0};
        j->warm = (dsf_warmup){.most = j->b->paced ? DSF_WARMUPS_PACED : 0};
        if (j->b->paced) {
            DSF_TRY(pace_frontier(j, f, untimed));
        } else {
            DSF_TRY(run_frontier(j, f));
            DSF_TRY(report(j, f, untimed));
        }
        if (f + 1 < j->o->n_contexts) DSF_TRY(finish_frontier(j, f));
    }
    return DSF_OK;
}

static dsf_status check_options(const dsf_bench_model_options *o)
{
    if (o->tokens < 1 || o->ref_tokens < 0)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens, %lld through the reference: at least 1 and 0",
                        (long long)o->tokens, (long long)o->ref_tokens);
    for (int i = 0; i < o->n_batches; i++)
        if (o->batch[i] < 1 || o->batch[i] > MOST_BATCH)
            return DSF_FAIL(DSF_EINVAL, "batch %lld: 1 to %d", (long long)o->batch[i], MOST_BATCH);
    for (int i = 0; i < o->n_contexts; i++) {
        int64_t least = i ? o->context[i - 1] + steps_of(o) + 1 : 2;
        if (o->context[i] < least)
            return DSF_FAIL(DSF_EINVAL,
                            "context %lld: at least %lld, past the tokens and warm-ups of the one "
                            "before",
                            (long long)o->context[i], (long long)least);
    }
    return DSF_OK;
}

static dsf_status measure(dsf_bench *b, const dsf_bench_model_options *o, int batch)
{
    job *j = NULL;
    int32_t *untimed = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .o = o, .batch = batch};
    size_t n = (size_t)(o->n_contexts * steps_of(o) * batch);
    DSF_TRY_OUT(dsf_mem_new(&j->out, n, sizeof *j->out));
    DSF_TRY_OUT(dsf_mem_new(&untimed, n, sizeof *untimed));
    DSF_TRY_OUT(run_untimed(j));
    memcpy(untimed, j->out, n * sizeof *untimed);
    DSF_TRY_OUT(run_timed(j, untimed));
out:
    close_sessions(j);
    dsf_session_close(j->ref_session);
    dsf_engine_close(j->ref);
    for (int i = 0; i < batch; i++) dsf_mem_free(j->prompt[i]);
    dsf_mem_free(j->out);
    dsf_mem_free(j->work);
    dsf_mem_free(j);
    dsf_mem_free(untimed);
    return st;
}

dsf_status dsf_bench_decode(dsf_bench *b, const dsf_bench_model_options *o)
{
    DSF_TRY(check_options(o));
    for (int i = 0; i < o->n_batches; i++) DSF_TRY(measure(b, o, (int)o->batch[i]));
    return DSF_OK;
}
