/* dsf run: generate tokens. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "inputs.h"

typedef struct {
    input_options in;
    int64_t n, top_k, seed, draft;
    double temp, top_p, min_p;
    bool json, ignore_eos, quiet;
} options;

typedef struct {
    dsf_engine *engine;
    dsf_session *session;
    dsf_bpe *bpe;
    dsf_ids prompt, out;
    double *logprob;
    float *work;
    int64_t prefill_ns, decode_ns;
    const char *finish;
} generation;

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig) { interrupted = sig; }

static dsf_sampling sampling_of(const options *o)
{
    return (dsf_sampling){.temperature = o->temp,
                          .top_p = o->top_p,
                          .min_p = o->min_p,
                          .top_k = o->top_k,
                          .seed = (uint64_t)o->seed};
}

static dsf_status prefill(const options *o, generation *g)
{
    const dsf_sampling s = sampling_of(o);
    DSF_TRY(dsf_session_open(&g->session, g->engine));
    if (!o->json) DSF_TRY(dsf_session_sampling(g->session, &s));
    DSF_TRY(dsf_session_feed(g->session, g->prompt.id, g->prompt.n));
    int64_t t0 = dsf_clock_ns(), total = (int64_t)g->prompt.n;
    while (dsf_session_queued(g->session) > 0) {
        if (interrupted) return DSF_FAIL(DSF_ECANCELED, "stopped during prefill");
        DSF_TRY(dsf_engine_step(g->engine, &g->session, 1, NULL));
        if (!o->quiet) dsf_progress("prefill", dsf_session_position(g->session), total);
    }
    g->prefill_ns = dsf_clock_ns() - t0;
    return DSF_OK;
}

static dsf_status emit(const options *o, generation *g, dsf_bpe_tail *tail, int32_t id)
{
    if (o->json) return DSF_OK;
    dsf_buf b = {.max = 0};
    dsf_status st = DSF_OK;
    if (!g->bpe)
        dsf_buf_fmt(&b, "%s%d", g->out.n > 1 ? " " : "", (int)id);
    else
        st = dsf_bpe_stream(g->bpe, tail, id, true, &b);
    if (st == DSF_OK) st = dsf_buf_status(&b);
    if (st == DSF_OK && b.len) (void)fwrite(b.data, 1, b.len, stdout);
    dsf_buf_free(&b);
    DSF_TRY(st);
    return dsf_inputs_flush();
}

/* Token i: drawn by the step itself, or from its logits where their probabilities are wanted. */
static dsf_status next(const options *o, generation *g, int64_t i, int32_t *id)
{
    const dsf_sampling s = sampling_of(o);
    const float *logits;
    if (!o->json) return dsf_session_next(g->session, id);
    DSF_TRY(dsf_session_logits(g->session, &logits));
    return dsf_sample(logits, dsf_engine_vocab(g->engine), &s, dsf_session_position(g->session),
                      g->work, id, &g->logprob[i]);
}

static dsf_status generate(const options *o, generation *g)
{
    dsf_bpe_tail tail = {.n = 0};
    int64_t t0 = dsf_clock_ns();
    g->finish = "length";
    for (int64_t i = 0; i < o->n && !interrupted; i++) {
        int32_t id = -1;
        DSF_TRY(next(o, g, i, &id));
        DSF_TRY(dsf_ids_add(&g->out, &id, 1));
        if (id == dsf_engine_eos(g->engine) && !o->ignore_eos) {
            g->finish = "stop";
            break;
        }
        DSF_TRY(emit(o, g, &tail, id));
        if (i + 1 == o->n) break;
        DSF_TRY(dsf_session_feed(g->session, &id, 1));
        DSF_TRY(dsf_engine_step(g->engine, &g->session, 1, NULL));
    }
    if (interrupted) g->finish = "interrupted";
    g->decode_ns = dsf_clock_ns() - t0;
    if (o->json) return DSF_OK;
    (void)printf("\n");
    DSF_TRY(dsf_inputs_flush());
    double seconds = (double)g->decode_ns * 1e-9;
    if (!o->quiet)
        (void)fprintf(stderr, "dsf: %zu tokens in %.2f s (%.1f/s), finish: %s\n", g->out.n, seconds,
                      (double)g->out.n / seconds, g->finish);
    return DSF_OK;
}

static dsf_status print_json(const options *o, const generation *g)
{
    dsf_buf b = {.max = 0}, text = {.max = 0};
    dsf_json_begin(&b, NULL, '{');
    dsf_json_add_int(&b, "prompt_tokens", (int64_t)g->prompt.n);
    dsf_json_begin(&b, "ids", '[');
    for (size_t i = 0; i < g->out.n; i++) dsf_json_add_int(&b, NULL, g->out.id[i]);
    dsf_json_end(&b, ']');
    dsf_json_begin(&b, "logprobs", '[');
    for (size_t i = 0; i < g->out.n; i++) dsf_json_add_num(&b, NULL, g->logprob[i]);
    dsf_json_end(&b, ']');
    dsf_buf bytes = {.max = 0};
    if (g->bpe && dsf_bpe_decode(g->bpe, g->out.id, g->out.n, true, &bytes) == DSF_OK) {
        dsf_bpe_lossy(&text, bytes.data ? bytes.data : "", bytes.len);
        dsf_json_add_str(&b, "text", text.data ? text.data : "", text.len);
    }
    dsf_json_add_cstr(&b, "finish", g->finish);
    dsf_json_add_cstr(&b, "prefill", o->in.prefill ? o->in.prefill : "cone");
    dsf_json_add_int(&b, "seed", o->seed);
    dsf_json_add_num(&b, "prefill_seconds", (double)g->prefill_ns * 1e-9);
    dsf_json_add_num(&b, "decode_seconds", (double)g->decode_ns * 1e-9);
    dsf_json_end(&b, '}');
    dsf_buf_char(&b, '\n');
    dsf_status st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    dsf_buf_free(&text);
    dsf_buf_free(&bytes);
    return st;
}

static dsf_status run(options *o, generation *g)
{
    const char *accept[33];
    dsf_options eo;
    DSF_TRY(dsf_inputs_options(&o->in, "cone", &eo, accept));
    if (o->draft)
        return DSF_FAIL(DSF_ENOTSUP, "--draft %lld: the drafting loop is not in this version",
                        (long long)o->draft);
    if (o->n < 0 || o->n > INT32_MAX)
        return DSF_FAIL(DSF_EINVAL, "-n %lld: 0 to %d", (long long)o->n, INT32_MAX);
    if (dsf_bpe_open(&g->bpe, o->in.model) != DSF_OK)
        g->bpe = NULL; /* ids still work without a tokenizer */
    DSF_TRY(dsf_inputs_ids(&o->in, &g->bpe, &g->prompt));
    int64_t need = (int64_t)g->prompt.n + o->n;
    if (eo.context == 0) eo.context = need;
    eo.sampled = !o->json;
    DSF_TRY(dsf_engine_open(&g->engine, &eo));
    DSF_TRY(dsf_mem_new(&g->work, (size_t)dsf_engine_vocab(g->engine), sizeof *g->work));
    DSF_TRY(dsf_mem_new(&g->logprob, (size_t)o->n + 1, sizeof *g->logprob));
    if (!o->json && !o->quiet)
        (void)fprintf(stderr,
                      "dsf: %zu prompt tokens, seed %lld, temperature %g, top-p %g, prefill %s\n",
                      g->prompt.n, (long long)o->seed, o->temp, o->top_p,
                      o->in.prefill ? o->in.prefill : "cone");
    DSF_TRY(prefill(o, g));
    DSF_TRY(generate(o, g));
    return o->json ? print_json(o, g) : DSF_OK;
}

int dsf_cmd_run(int argc, char **argv)
{
    options o = {.n = 64, .temp = 1.0, .top_p = 0.95, .seed = (dsf_clock_ns() >> 10) & 0x7FFFFFFF};
    const opt opts[] = {
        INPUT_PROMPT_OPTS(o.in),
        {"-n", OPT_INT, &o.n, "N", "most tokens to generate (default 64)"},
        {"--temp", OPT_NUMBER, &o.temp, "T", "temperature; 0: greedy (default 1)"},
        {"--top-p", OPT_NUMBER, &o.top_p, "P", "nucleus (default 0.95)"},
        {"--top-k", OPT_INT, &o.top_k, "K", "0: off"},
        {"--min-p", OPT_NUMBER, &o.min_p, "P", "0: off"},
        {"--seed", OPT_INT, &o.seed, "S", "a draw depends on seed and position only; printed"},
        {"--ignore-eos", OPT_FLAG, &o.ignore_eos, NULL, "go on after the end token"},
        {"--draft", OPT_INT, &o.draft, "K", "draft tokens a step (not in this version)"},
        {"--json", OPT_FLAG, &o.json, NULL, "one JSON document: ids, logprobs, text, timings"},
        {"--quiet", OPT_FLAG, &o.quiet, NULL, "no notes on stderr"},
        INPUT_ENGINE_OPTS(o.in),
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {.command = "run",
                           .synopsis =
                               "MODEL (--prompt S | --chat FILE | --ids 1,2,3 | --ids-file F)",
                           .about = "Generates tokens and prints them as they come.",
                           .example = "dsf run mini --prompt \"Hello\" -n 32 --seed 7",
                           .opts = opts,
                           .n_opts = sizeof opts / sizeof *opts,
                           .positional = positional,
                           .n_positional = 1,
                           .n_required = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    o.in.model = positional[0];
    (void)signal(SIGINT, on_interrupt);
    generation g = {.engine = NULL};
    dsf_status st = run(&o, &g);
    dsf_session_close(g.session);
    dsf_engine_close(g.engine);
    dsf_bpe_close(g.bpe);
    dsf_ids_free(&g.prompt);
    dsf_ids_free(&g.out);
    dsf_mem_free(g.work);
    dsf_mem_free(g.logprob);
    return st == DSF_OK ? DSF_EXIT_GOOD : dsf_cmd_fail("run", st);
}
