/* dsf soak: long prefills and equal cycles with memory sampled at each phase. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "bench/soak/soak.h"
#include "inputs.h"

enum { USUAL_AT = 2048 };

typedef struct {
    input_options in;
    const char *margin, *guard, *json_out;
    opt_list chunks, ladders;
    int64_t chunk[DSF_SOAK_CHUNKS], ladder[32];
    dsf_soak_options soak;
    int64_t seed;
    bool json;
    dsf_file_out file; /* lines go to it as they come */
    bool writing;
    char lost[512]; /* why it no longer takes them */
} options;

/* ---- output ---- */

static void write_line(options *o, const char *json)
{
    if (!o->writing || *o->lost) return;
    dsf_status st = dsf_file_write(&o->file, json, strlen(json));
    if (st == DSF_OK) st = dsf_file_write(&o->file, "\n", 1);
    if (st == DSF_OK) return;
    /* The run goes on: its verdict is worth more than the file. */
    (void)snprintf(o->lost, sizeof o->lost, "%s", dsf_error_message());
    (void)fprintf(stderr, "dsf soak: %s; the run goes on without the file\n", o->lost);
}

static void take_line(void *ud, const char *json, const char *text)
{
    options *o = ud;
    if (json) write_line(o, json);
    if (o->json && json) (void)printf("%s\n", json);
    if (!o->json && text) (void)printf("%s\n", text);
    if (o->json || text) (void)fflush(stdout);
}

static void show_progress(void *ud, const char *name, int64_t done, int64_t total)
{
    (void)ud;
    dsf_progress(name, done, total);
}

/* ---- stopping ---- */

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    asked = 1;
    (void)signal(number, SIG_DFL); /* a second one ends the program */
}

static bool stop_asked(void) { return asked != 0; }

static void catch_signals(void)
{
    static const int number[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        struct sigaction was;
        bool ignored = sigaction(number[i], NULL, &was) == 0 && was.sa_handler == SIG_IGN;
        if (!ignored) (void)signal(number[i], on_signal); /* nohup stays nohup */
    }
}

/* ---- options ---- */

static dsf_status parse_list(const char *name, const opt_list *list, int most, int64_t *out)
{
    if (list->n > most)
        return DSF_FAIL(DSF_EINVAL, "%s: %d numbers, at most %d", name, list->n, most);
    for (int i = 0; i < list->n; i++) {
        char *end = NULL;
        out[i] = strtoll(list->item[i], &end, 10);
        if (end == list->item[i] || *end || out[i] < 1)
            return DSF_FAIL(DSF_EINVAL, "%s: \"%s\" is no number above 0", name, list->item[i]);
    }
    return DSF_OK;
}

/* 0 where the word says so: no such wish. */
static dsf_status parse_bytes(const char *name, const char *text, int64_t *out)
{
    *out = 0;
    return strcmp(text, "0") == 0 ? DSF_OK : dsf_inputs_size(name, text, out);
}

static dsf_status fill(options *o, const char **accept)
{
    dsf_soak_options *s = &o->soak;
    bool usual = o->ladders.n == 1 && strcmp(o->ladders.item[0], "default") == 0;
    if (!o->in.model && !s->synthetic)
        return DSF_FAIL(DSF_EINVAL, "no model folder given (or --synthetic LAYERS on a GPU)");
    DSF_TRY(dsf_inputs_options(&o->in, "cone", &s->engine, accept));
    bool device = strcmp(dsf_inputs_backend_name(s->engine.variants), "cuda") == 0;
    if (s->synthetic && !device)
        return DSF_FAIL(DSF_EINVAL, "--synthetic: weights are made on a GPU, with --backend cuda");
    if (s->to == 0) return DSF_FAIL(DSF_EINVAL, "--to N: the longest prompt is not given");
    if (s->minutes < 0) return DSF_FAIL(DSF_EINVAL, "--minutes %g: at least 0", s->minutes);
    DSF_TRY(parse_list("--chunk", &o->chunks, DSF_SOAK_CHUNKS, o->chunk));
    if (!usual) DSF_TRY(parse_list("--ladder", &o->ladders, 32, o->ladder));
    s->chunk = o->chunk;
    s->n_chunks = o->chunks.n ? o->chunks.n : 1;
    if (o->chunks.n == 0) o->chunk[0] = device ? 8192 : 256;
    s->ladder = usual || o->ladders.n == 0 ? NULL : o->ladder;
    s->n_ladder = o->ladders.n;
    DSF_TRY(parse_bytes("--margin", o->margin, &s->margin));
    DSF_TRY(parse_bytes("--guard", o->guard, &s->guard));
    if (s->at == 0)
        s->at = s->to < DSF_SOAK_LEAST_AT ? DSF_SOAK_LEAST_AT : s->to < USUAL_AT ? s->to : USUAL_AT;
    s->seed = (uint64_t)o->seed;
    s->stop = stop_asked;
    return DSF_OK;
}

static dsf_status run(options *o, dsf_soak_answer *answer)
{
    const char *accept[33];
    dsf_bench b = {.repeat = 1};
    DSF_TRY(fill(o, accept));
    DSF_TRY(dsf_inputs_check_out(o->json_out, NULL, 0));
    catch_signals();
    if (o->json_out) DSF_TRY(dsf_file_create(&o->file, o->json_out));
    o->writing = o->json_out != NULL;
    dsf_status st = dsf_bench_open(&b, (int)o->in.threads, 0);
    b.out = (dsf_bench_out){take_line, show_progress, o};
    o->soak.engine.threads = b.host.threads;
    if (st == DSF_OK) st = dsf_soak_run(&b, &o->soak, answer);
    dsf_bench_close(&b);
    if (st == DSF_OK && *o->lost) st = DSF_FAIL(DSF_EIO, "%s", o->lost);
    if (st == DSF_OK && o->writing) st = dsf_file_finish(&o->file);
    if (o->writing) dsf_file_abandon(&o->file);
    return st == DSF_OK ? dsf_inputs_flush() : dsf_error_pass(st, DSF_HERE);
}

int dsf_cmd_soak(int argc, char **argv)
{
    options o = {.margin = "1G",
                 .guard = "512M",
                 .seed = 7,
                 .soak = {.cycles = 20, .engram_vocab = 2700000}};
    const opt opts[] = {
        {"--to", OPT_INT, &o.soak.to, "N", "the longest prompt"},
        {"--ladder", OPT_LIST, &o.ladders, "N,N|default",
         "prompt lengths (default: powers of two, the window, and their neighbours, to N)"},
        {"--chunk", OPT_LIST, &o.chunks, "T,T",
         "rows of a pass; the whole ladder with each (256; on a GPU 8192)"},
        {"--cycles", OPT_INT, &o.soak.cycles, "C", "equal cycles after 3 warm ones (20; 0: none)"},
        {"--at", OPT_INT, &o.soak.at, "N", "positions of a cycle (2048, or --to if that is less)"},
        {"--minutes", OPT_NUMBER, &o.soak.minutes, "M", "cycles go on until M minutes are over"},
        {"--margin", OPT_STRING, &o.margin, "BYTES",
         "must be left at the highest point, and 3 % (1G; 0: 3 % alone)"},
        {"--guard", OPT_STRING, &o.guard, "BYTES",
         "stop with a report before the machine has less to give (512M; 0: off)"},
        {"--seed", OPT_INT, &o.seed, "S", "of the prompt (7)"},
        {"--plant", OPT_STRING, &o.soak.plant, "FAULT",
         "put a fault in, to see it found: temporary, leak or plan"},
        {"--synthetic", OPT_STRING, &o.soak.synthetic, "LAYERS",
         "on a GPU: these layers of the released model, weights made there"},
        {"--engram-vocab", OPT_INT, &o.soak.engram_vocab, "N",
         "--synthetic: rows of an Engram table's column (2700000: 64M rows each)"},
        {"--json", OPT_FLAG, &o.json, NULL,
         "JSON lines: start, samples, rungs, fit, slopes, verdict"},
        {"--json-out", OPT_STRING, &o.json_out, "FILE", "the same lines to FILE, as they come"},
        {"--prefill", OPT_STRING, &o.in.prefill, "MODE", "exact, cone or replay"},
        {"--backend", OPT_STRING, &o.in.backend, "B", "auto, cpu, ref or cuda"},
        {"--variants", OPT_STRING, &o.in.variants, "MASK", "kernel mask: ref, -avx512:attn"},
        {"--threads", OPT_INT, &o.in.threads, "N", "threads (default: all processors)"},
        {"--accept-config", OPT_LIST, &o.in.accept, "KEY", "accept this key of config.json"},
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {
        .command = "soak",
        .synopsis =
            "MODEL --to N [--ladder LIST] [--chunk T,T] [--cycles C --at N] [--margin BYTES]",
        .about =
            "Prompts of growing length, then equal cycles of prefill, cancel, resume, decode, rewind\n"
            "and fork, with memory sampled at each phase. Passes when all that was taken was planned,\n"
            "a margin is left, nothing creeps and the output stays the same; else names the culprit.\n"
            "Ctrl-C stops between two passes and reports what was measured (exit 3).",
        .example = "dsf soak mini --to 8192 --chunk 512,128 --json-out soak.json",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 1};
    dsf_soak_answer answer = DSF_SOAK_STOPPED;
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    o.in.model = positional[0];
    dsf_status st = run(&o, &answer);
    if (st != DSF_OK) return dsf_cmd_fail("soak", st);
    if (answer == DSF_SOAK_STOPPED) return DSF_EXIT_COULD_NOT;
    return answer == DSF_SOAK_PASSED ? DSF_EXIT_GOOD : DSF_EXIT_NO;
}
