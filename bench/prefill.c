/* Time per prompt token, in passes of one chunk. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model.h"

enum {
    LIMIT_NS = 10 * 1000000,
    LIMITS_EACH = 8
}; /* measurements of the limits before each prompt */

typedef struct {
    dsf_bench *b;
    const dsf_bench_model_options *o;
    dsf_engine *engine, *ref;
    int32_t *prompt;
    float *row; /* [vocab]: of the last prompt token, by the untimed run */
    dsf_division division;
    dsf_limits limits;
    dsf_samples time, short_time, ref_time, ratio;
    dsf_parity parity;
    bool same; /* every timed run gave the untimed run's bits */
} job;

static dsf_status open_engine(const job *j, bool timed, const char *variants, dsf_engine **e)
{
    dsf_options eo = j->o->engine;
    eo.timed = timed;
    if (variants) eo.variants = variants;
    if (eo.context == 0) eo.context = j->o->tokens + 1;
    return dsf_engine_open(e, &eo);
}

/* One prompt of n tokens in a session of its own; row: its logits, [vocab]. */
static dsf_status run_prompt(const job *j, dsf_engine *e, int64_t n, dsf_division *d, double *ns,
                             float *row)
{
    dsf_session *s = NULL;
    const float *logits = NULL;
    dsf_status st = DSF_OK;
    *ns = 0;
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(dsf_bench_feed(s, j->prompt, n, d, ns));
    DSF_TRY_OUT(dsf_session_logits(s, &logits));
    memcpy(row, logits, (size_t)dsf_engine_vocab(e) * sizeof *row);
out:
    dsf_session_close(s);
    return st;
}

static dsf_status run_untimed(job *j)
{
    double ns = 0;
    DSF_TRY(open_engine(j, false, NULL, &j->engine));
    DSF_TRY(dsf_mem_new(&j->row, (size_t)dsf_engine_vocab(j->engine) * 3, sizeof *j->row));
    DSF_TRY(dsf_bench_prompt(&j->prompt, j->o->tokens, dsf_engine_vocab(j->engine), 7));
    DSF_TRY(run_prompt(j, j->engine, j->o->tokens, NULL, &ns, j->row));
    dsf_engine_close(j->engine);
    j->engine = NULL;
    return DSF_OK;
}

static dsf_status time_prompts(job *j)
{
    size_t vocab = (size_t)dsf_engine_vocab(j->engine);
    float *row = j->row + vocab;
    j->same = true;
    for (int r = 0; r < j->b->repeat; r++) {
        double ns = 0;
        for (int i = 0; i < LIMITS_EACH; i++)
            (void)dsf_limits_take(j->b, &j->limits, (dsf_cost){0, 0}, LIMIT_NS);
        DSF_TRY(run_prompt(j, j->engine, j->o->tokens, &j->division, &ns, row));
        dsf_samples_add(&j->time, ns / (double)j->o->tokens);
        j->same = j->same && memcmp(row, j->row, vocab * sizeof *row) == 0;
        j->b->out.progress(j->b->out.ud, "prefill", r + 1, j->b->repeat);
    }
    return DSF_OK;
}

/* Short prompts through both, alternating: the reference is too slow for long ones. */
static dsf_status time_ref(job *j)
{
    int64_t n = j->o->ref_tokens < j->o->tokens ? j->o->ref_tokens : j->o->tokens;
    float *row = j->row + dsf_engine_vocab(j->engine), *want = row + dsf_engine_vocab(j->engine);
    double ns = 0, ref_ns = 0;
    if (n == 0) return DSF_OK;
    DSF_TRY(open_engine(j, false, "ref", &j->ref));
    for (int r = 0; r < 3; r++) {
        if (r % 2) DSF_TRY(run_prompt(j, j->ref, n, NULL, &ref_ns, want));
        DSF_TRY(run_prompt(j, j->engine, n, NULL, &ns, row));
        if (r % 2 == 0) DSF_TRY(run_prompt(j, j->ref, n, NULL, &ref_ns, want));
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
    dsf_json_add_int(json, "runs", j->time.n);
    dsf_json_add_num(json, "tokens_per_s", 1e9 / t);
    dsf_json_add_num(json, "flops_per_token", d->flops / tokens);
    dsf_limits_json(json, &j->limits);
    dsf_json_add_cstr(json, "limit", "bf16");
    dsf_json_add_num(json, "percent", share);
    dsf_buf_fmt(text,
                "prefill of %lld: %.2f ms a token +-%.1f%% (%.1f tokens/s), %.1f%% of %.1f GFLOP/s "
                "bf16",
                (long long)j->o->tokens, t * 1e-6, 100 * dsf_samples_spread(&j->time), 1e9 / t,
                share, bf16 * 1e-9);
    if (j->ratio.n) {
        int64_t n = j->o->ref_tokens < j->o->tokens ? j->o->ref_tokens : j->o->tokens;
        dsf_json_add_int(json, "ref_tokens", n);
        dsf_bench_sample(json, "ref_ns", &j->ref_time, 1);
        dsf_bench_sample(json, "same_tokens_ns", &j->short_time, 1);
        dsf_bench_sample(json, "ref_ratio", &j->ratio, 1);
        dsf_buf_fmt(text, ", %.0f times the reference's speed at %lld tokens",
                    dsf_samples_median(&j->ratio), (long long)n);
    }
    dsf_division_json(d, limits, tokens, json);
    dsf_division_text(d, limits, tokens, text);
    if (dsf_division_outside(d) > 5) j->b->missed++;
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    char hash[32];
    dsf_bench_begin(j->b, &json, "prefill");
    dsf_bench_describe(j->engine, &json);
    dsf_json_add_int(&json, "tokens", j->o->tokens);
    if (!j->same)
        return dsf_bench_refuse(j->b, "prefill",
                                "a timed run gave other logits than the untimed one", &json);
    dsf_parity_json(&j->parity, &json);
    if (!dsf_parity_good(&j->parity))
        return dsf_bench_refuse(j->b, "prefill", "the logits are not the reference's", &json);
    (void)snprintf(hash, sizeof hash, "%016llx",
                   (unsigned long long)dsf_parity_hash(
                       0, j->row, (size_t)dsf_engine_vocab(j->engine) * sizeof *j->row));
    dsf_json_add_cstr(&json, "logits_hash", hash);
    add_figures(j, &json, &text);
    return dsf_bench_emit(j->b, &json, &text);
}

static dsf_status run(job *j)
{
    DSF_TRY(run_untimed(j));
    DSF_TRY(open_engine(j, true, NULL, &j->engine));
    DSF_TRY(time_prompts(j));
    DSF_TRY(time_ref(j));
    return report(j);
}

dsf_status dsf_bench_prefill(dsf_bench *b, const dsf_bench_model_options *o)
{
    if (o->tokens < 1 || o->ref_tokens < 0)
        return DSF_FAIL(DSF_EINVAL, "%lld tokens, %lld through the reference: at least 1 and 0",
                        (long long)o->tokens, (long long)o->ref_tokens);
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .o = o};
    dsf_status st = run(j);
    dsf_engine_close(j->engine);
    dsf_engine_close(j->ref);
    dsf_mem_free(j->prompt);
    dsf_mem_free(j->row);
    dsf_mem_free(j);
    return st;
}
