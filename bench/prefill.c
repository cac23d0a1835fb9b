/* Time per prompt token, in passes of one chunk, at depths: after so many tokens before. */
#include <string.h>

#include "base/mem.h"
#include "pace.h"

enum {
    LIMIT_NS = 10 * 1000000,
    LIMITS_EACH = 8
}; /* measurements of the limits before each prompt */

typedef struct {
    dsf_bench *b;
    const dsf_bench_model_options *o;
    dsf_engine *engine, *ref;
    dsf_session *before; /* holds the tokens of the depth at hand; NULL at depth 0 */
    int64_t depth;
    int32_t *prompt; /* [deepest + tokens] */
    float *row;      /* [2, vocab]: a run's last row, and one for the reference's */
    float *want;     /* [contexts, vocab]: last row of each depth, by the untimed run */
    dsf_division division;
    dsf_limits limits;
    dsf_samples time, short_time, ref_time, ratio;
    dsf_warmup warm;
    dsf_parity parity;
    bool same; /* every timed run gave the untimed run's bits */
} job;

static int64_t deepest(const dsf_bench_model_options *o) { return o->context[o->n_contexts - 1]; }

static dsf_status open_engine(const job *j, bool timed, const char *variants, dsf_engine **e)
{
    dsf_options eo = j->o->engine;
    eo.timed = timed;
    if (variants) eo.variants = variants;
    if (eo.context == 0) eo.context = deepest(j->o) + j->o->tokens + 1;
    eo.slots = deepest(j->o) > 0 ? 2 : 1; /* the tokens before, and a fork of them */
    return dsf_engine_open(e, &eo);
}

/* The session that every run at this depth forks from; goes on from the depth before. */
static dsf_status go_to(job *j, dsf_engine *e, int64_t depth)
{
    j->depth = depth;
    if (depth == 0) return DSF_OK;
    if (!j->before) DSF_TRY(dsf_session_open(&j->before, e));
    int64_t at = dsf_session_position(j->before);
    return dsf_bench_feed(j->before, j->prompt + at, depth - at, NULL, NULL);
}

/* n tokens of the prompt from position `at`, in a session of their own; row: the last one's logits,
 * [vocab]. */
static dsf_status run_prompt(dsf_engine *e, const dsf_session *before, const int32_t *ids,
                             int64_t n, dsf_division *d, double *ns, float *row)
{
    dsf_session *s = NULL;
    const float *logits = NULL;
    dsf_status st = DSF_OK;
    *ns = 0;
    DSF_TRY_OUT(before ? dsf_session_fork(&s, before) : dsf_session_open(&s, e));
    DSF_TRY_OUT(dsf_bench_feed(s, ids, n, d, ns));
    DSF_TRY_OUT(dsf_session_logits(s, &logits));
    memcpy(row, logits, (size_t)dsf_engine_vocab(e) * sizeof *row);
out:
    dsf_session_close(s);
    return st;
}

static dsf_status run_interval(job *j, dsf_division *d, double *ns, float *row)
{
    return run_prompt(j->engine, j->before, j->prompt + j->depth, j->o->tokens, d, ns, row);
}

static void close_engine(job *j)
{
    dsf_session_close(j->before);
    dsf_engine_close(j->engine);
    j->before = NULL;
    j->engine = NULL;
}

static dsf_status run_untimed(job *j)
{
    double ns = 0;
    DSF_TRY(open_engine(j, false, NULL, &j->engine));
    size_t vocab = (size_t)dsf_engine_vocab(j->engine);
    DSF_TRY(dsf_mem_new(&j->row, vocab * 2, sizeof *j->row));
    DSF_TRY(dsf_mem_new(&j->want, vocab * (size_t)j->o->n_contexts, sizeof *j->want));
    DSF_TRY(dsf_bench_prompt(&j->prompt, deepest(j->o) + j->o->tokens, (int64_t)vocab, 7));
    for (int i = 0; i < j->o->n_contexts; i++) {
        DSF_TRY(go_to(j, j->engine, j->o->context[i]));
        DSF_TRY(run_interval(j, NULL, &ns, j->want + (size_t)i * vocab));
    }
    close_engine(j);
    return DSF_OK;
}

/* One run of the interval, compared with the untimed one. */
static dsf_status run_checked(job *j, int depth, dsf_division *d, double *ns)
{
    size_t vocab = (size_t)dsf_engine_vocab(j->engine);
    DSF_TRY(run_interval(j, d, ns, j->row));
    const float *want = j->want + (size_t)depth * vocab;
    j->same = j->same && memcmp(j->row, want, vocab * sizeof *want) == 0;
    return DSF_OK;
}

static dsf_status warm_up(job *j, int depth)
{
    double ns = 0;
    j->warm = (dsf_warmup){.most = j->b->paced ? DSF_WARMUPS_PACED : 0};
    do DSF_TRY(run_checked(j, depth, NULL, &ns));
    while (dsf_warmup_more(&j->warm, ns));
    return DSF_OK;
}

static dsf_status time_prompts(job *j, int depth)
{
    for (int r = 0; r < j->b->repeat; r++) {
        double ns = 0;
        for (int i = 0; i < LIMITS_EACH; i++)
            (void)dsf_limits_take(j->b, &j->limits, (dsf_cost){0, 0}, LIMIT_NS);
        DSF_TRY(run_checked(j, depth, &j->division, &ns));
        dsf_samples_add(&j->time, ns / (double)j->o->tokens);
        j->b->out.progress(j->b->out.ud, "prefill", r + 1, j->b->repeat);
    }
    return DSF_OK;
}

/* Short prompts through both, alternating: the reference is too slow for long ones. */
static dsf_status time_ref(job *j)
{
    int64_t n = j->o->ref_tokens < j->o->tokens ? j->o->ref_tokens : j->o->tokens;
    float *row = j->row, *want = j->row + dsf_engine_vocab(j->engine);
    double ns = 0, ref_ns = 0;
    if (n == 0) return DSF_OK;
    DSF_TRY(open_engine(j, false, "ref", &j->ref));
    for (int r = 0; r < 3; r++) {
        if (r % 2) DSF_TRY(run_prompt(j->ref, NULL, j->prompt, n, NULL, &ref_ns, want));
        DSF_TRY(run_prompt(j->engine, NULL, j->prompt, n, NULL, &ns, row));
        if (r % 2 == 0) DSF_TRY(run_prompt(j->ref, NULL, j->prompt, n, NULL, &ref_ns, want));
        dsf_parity_row(&j->parity, want, row, dsf_engine_vocab(j->engine));
        dsf_samples_add(&j->short_time, ns / (double)n);
        dsf_samples_add(&j->ref_time, ref_ns / (double)n);
        dsf_samples_add(&j->ratio, ref_ns / ns);
    }
    return DSF_OK;
}

static void add_figures(job *j, dsf_buf *json, dsf_buf *text)
{
    const dsf_division *d = &j->division;
    double tokens = (double)j->o->tokens * j->time.n, t = dsf_samples_median(&j->time);
    double bf16 = dsf_samples_median(&j->limits.bf16);
    const dsf_limits *limits = dsf_bench_cached(j->b, j->engine) ? NULL : &j->limits;
    double share = bf16 > 0 ? 1e11 * d->flops / tokens / bf16 / t : 0;
    dsf_json_add_num(json, "median_ns", t);
    dsf_json_add_num(json, "spread", dsf_samples_spread(&j->time));
    dsf_json_add_num(json, "mean_ns", d->wall_ns / tokens);
    dsf_bench_stats(json, &j->time, 1, &j->warm);
    dsf_json_add_int(json, "runs", j->time.n);
    dsf_json_add_num(json, "tokens_per_s", 1e9 / t);
    dsf_json_add_num(json, "flops_per_token", d->flops / tokens);
    dsf_limits_json(json, &j->limits);
    dsf_json_add_cstr(json, "limit", "bf16");
    dsf_json_add_num(json, "percent", share);
    dsf_buf_fmt(
        text,
        "prefill of %lld at %lld: %.2f ms a token +-%.1f%% (%.1f tokens/s), %.1f%% of %.1f GFLOP/s "
        "bf16",
        (long long)j->o->tokens, (long long)j->depth, t * 1e-6, 100 * dsf_samples_spread(&j->time),
        1e9 / t, share, bf16 * 1e-9);
    if (j->ratio.n) {
        int64_t n = j->o->ref_tokens < j->o->tokens ? j->o->ref_tokens : j->o->tokens;
        dsf_json_add_int(json, "ref_tokens", n);
        dsf_bench_sample(json, "ref_ns", &j->ref_time, 1);
        dsf_bench_sample(json, "same_tokens_ns", &j->short_time, 1);
        dsf_bench_sample(json, "ref_ratio", &j->ratio, 1);
        dsf_buf_fmt(text, ", %.0f times the reference's speed at %lld tokens",
                    dsf_samples_median(&j->ratio), (long long)n);
    }
    dsf_bench_flags(text, &j->time, &j->warm);
    dsf_division_json(d, limits, tokens, json);
    dsf_division_text(d, limits, tokens, text);
    j->b->missed += dsf_division_lacks(d, text);
}

static void identify(const job *j, dsf_buf *json)
{
    dsf_bench_begin(j->b, json, "prefill");
    dsf_bench_describe(j->engine, json);
    dsf_bench_row(json, "the model folder's", 1, j->depth);
    dsf_json_add_int(json, "tokens", j->o->tokens);
}

/* Why there is no figure; NULL: there is. */
static const char *wrong(const job *j)
{
    if (!j->same) return "a run gave other logits than the untimed one";
    return dsf_parity_good(&j->parity) ? NULL : "the logits are not the reference's";
}

static uint64_t hash_of(const job *j, int depth)
{
    size_t vocab = (size_t)dsf_engine_vocab(j->engine);
    return dsf_parity_hash(0, j->want + (size_t)depth * vocab, vocab * sizeof *j->want);
}

static dsf_status report(job *j, int depth)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    identify(j, &json);
    if (wrong(j)) return dsf_bench_refuse(j->b, "prefill", wrong(j), &json);
    dsf_parity_json(&j->parity, &json);
    uint64_t hash = hash_of(j, depth);
    dsf_bench_hash(&json, "logits_hash", hash);
    dsf_bench_hash(&json, "output_hash", hash);
    add_figures(j, &json, &text);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status pace_prompts(job *j, int depth)
{
    dsf_buf json = {.max = 0};
    if (wrong(j)) return report(j, depth);
    identify(j, &json);
    dsf_parity_json(&j->parity, &json);
    dsf_bench_hash(&json, "output_hash", hash_of(j, depth));
    DSF_TRY(dsf_pace_case(j->b, &json));
    while (dsf_pace_more()) {
        double ns = 0;
        j->division = (dsf_division){.n = 0};
        DSF_TRY(run_checked(j, depth, &j->division, &ns));
        DSF_TRY(dsf_pace_round(j->b, ns, &j->division));
    }
    return wrong(j) ? report(j, depth) : dsf_pace_done(j->b);
}

static dsf_status measure(job *j, int depth)
{
    j->time.n = 0;
    j->same = true;
    j->division = (dsf_division){.n = 0};
    dsf_limits_reset(&j->limits);
    DSF_TRY(go_to(j, j->engine, j->o->context[depth]));
    DSF_TRY(warm_up(j, depth));
    if (j->b->paced) return pace_prompts(j, depth);
    if (!wrong(j)) DSF_TRY(time_prompts(j, depth));
    return report(j, depth);
}

static dsf_status run(job *j)
{
    DSF_TRY(run_untimed(j));
    DSF_TRY(open_engine(j, true, NULL, &j->engine));
    DSF_TRY(time_ref(j));
    for (int i = 0; i < j->o->n_contexts; i++) DSF_TRY(measure(j, i));
    return DSF_OK;
}

static dsf_status check_options(const dsf_bench_model_options *o)
{
    if (o->tokens < 1 || o->ref_tokens < 0)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens, %lld through the reference: at least 1 and 0",
                        (long long)o->tokens, (long long)o->ref_tokens);
    for (int i = 1; i < o->n_contexts; i++)
        if (o->context[i] <= o->context[i - 1])
            return DSF_FAIL(DSF_EINVAL, "depth %lld after %lld: they ascend",
                            (long long)o->context[i], (long long)o->context[i - 1]);
    return DSF_OK;
}

dsf_status dsf_bench_prefill(dsf_bench *b, const dsf_bench_model_options *o)
{
    DSF_TRY(check_options(o));
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .o = o};
    dsf_status st = run(j);
    close_engine(j);
    dsf_engine_close(j->ref);
    dsf_mem_free(j->prompt);
    dsf_mem_free(j->row);
    dsf_mem_free(j->want);
    dsf_mem_free(j);
    return st;
}
