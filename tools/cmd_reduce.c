/* dsf reduce: the smallest failing case of a command; a file that holds one operation's case. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "inputs.h"
#include "reduce_case.h"
#include "verify/dump/reader.h"
#include "verify/reduce/reduce.h"

typedef struct {
    input_options in;
    opt_list fails;
    reduce_case made; /* what is said of a case */
    const char *from, *layers, *model, *record, *resume, *ids_out, *replay;
    const char *positional[2];
    int64_t length, batch, filler, repeat, tries;
    double limit;
    char *const *command;
    int n_command;
} options;

static volatile sig_atomic_t interrupted;
/* The second one ends the program at once. */
static void on_interrupt(int sig)
{
    interrupted = sig;
    dsf_inputs_stop_on_signals(); // NOLINT(bugprone-signal-handler): sigaction and signal alone
}
static bool stop_now(void) { return interrupted != 0; }

static void show(const dsf_candidate *best, unsigned axes, int64_t tests)
{
    static int terminal = -1;
    if (terminal < 0) terminal = isatty(STDERR_FILENO);
    if (!terminal) return;
    dsf_buf b = {.max = 1 << 16};
    dsf_candidate_words(best, axes, &b);
    (void)fprintf(stderr, "\r\033[Kreduce: %lld runs, smallest so far: %.100s", (long long)tests,
                  b.data ? b.data : "");
    dsf_buf_free(&b);
}

static dsf_status read_ids(const options *o, dsf_ids *ids)
{
    dsf_bpe *bpe = NULL;
    if (!o->from) {
        input_options in = o->in;
        if (!in.ids && !in.ids_file && !in.prompt && !in.chat) return DSF_OK;
        in.model = o->model;
        if ((in.prompt || in.chat) && !in.model)
            return DSF_FAIL(DSF_EINVAL, "--prompt and --chat need --model DIR");
        dsf_status st = dsf_inputs_ids(&in, &bpe, ids);
        dsf_bpe_close(bpe);
        return st;
    }
    dsf_dump_file *f;
    int32_t *id = NULL;
    int64_t n = 0;
    DSF_TRY(dsf_dump_open(&f, o->from));
    dsf_status st = dsf_dump_read_axis(f, "token_ids", &id, &n);
    if (st == DSF_OK && id) st = dsf_ids_add(ids, id, (size_t)n);
    dsf_mem_free(id);
    dsf_dump_close(f);
    return st;
}

static dsf_status fill_start(const options *o, const dsf_ids *ids, dsf_reduce_options *r)
{
    dsf_candidate *c = &r->start;
    *c = (dsf_candidate){.ids = ids->id,
                         .n_ids = (int64_t)ids->n,
                         .length = o->length,
                         .chunk = o->in.chunk,
                         .batch = o->batch};
    DSF_TRY(dsf_candidate_range("--layers", o->layers, c->layers));
    DSF_TRY(dsf_candidate_range("--rows", o->made.rows, c->rows));
    DSF_TRY(dsf_variant_parse(o->in.variants ? o->in.variants : "", &c->fast));
    r->filler = o->filler >= 0 ? (int32_t)o->filler : ids->n ? ids->id[0] : 0;
    return dsf_command_fails(o->fails.item, o->fails.n, r->fails, &r->n_fails);
}

static dsf_status write_ids(const options *o, const dsf_candidate *c)
{
    dsf_buf b = {.max = 0};
    for (int64_t i = 0; i < c->n_ids; i++) dsf_buf_fmt(&b, "%d\n", (int)c->ids[i]);
    dsf_status st = dsf_inputs_write(o->ids_out, &b);
    dsf_buf_free(&b);
    return st;
}

/* ---- the search ---- */

static int search_code(const dsf_reduce_report *r)
{
    if (r->flaky) return DSF_EXIT_COULD_NOT;
    if (r->found.end == DSF_SEARCH_GOOD) return DSF_EXIT_NO;
    return r->found.end == DSF_SEARCH_MINIMAL ? DSF_EXIT_GOOD : DSF_EXIT_COULD_NOT;
}

/* What was found decides what the case holds. */
static dsf_status case_of_search(const options *o, const dsf_reduce_report *r, dsf_case_report *c,
                                 bool *found)
{
    const dsf_candidate *best = &r->found.best;
    reduce_case made = o->made;
    char rows[48];
    dsf_buf mask = {.max = 1 << 16};
    if (r->axes & DSF_AXIS_LAYERS && best->layers[0] == best->layers[1] && made.layer < 0)
        made.layer = best->layers[0];
    (void)snprintf(rows, sizeof rows, "%lld-%lld", (long long)best->rows[0],
                   (long long)best->rows[1]);
    if (r->axes & DSF_AXIS_ROWS) made.rows = rows;
    dsf_variant_mask(best->fast, &mask);
    if (r->axes & DSF_AXIS_VARIANTS) made.variants = mask.data;
    dsf_status st = dsf_reduce_case_make(&made, r->command.data, c, found);
    dsf_buf_free(&mask);
    return st;
}

/* c: the case that was written, or NULL. */
static dsf_status report(const options *o, const dsf_reduce_options *r,
                         const dsf_reduce_report *found, const dsf_case_report *c)
{
    dsf_buf b = {.max = 0};
    if (isatty(STDERR_FILENO)) (void)fprintf(stderr, "\r\033[K");
    if (o->made.json) {
        dsf_json_begin(&b, NULL, '{');
        dsf_reduce_json(r, found, &b);
        if (c) dsf_case_json(c, "case", o->made.out, &b);
        dsf_json_end(&b, '}');
        dsf_buf_char(&b, '\n');
    } else {
        dsf_reduce_print(r, found, &b);
        if (c) dsf_case_print(c, o->made.out, &b);
    }
    dsf_status st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    if (st == DSF_OK && o->ids_out) st = write_ids(o, &found->found.best);
    return st;
}

/* The first of dsf-reduce.jsonl, dsf-reduce-2.jsonl, ... that is not there. */
static const char *free_record(void)
{
    static char name[40] = "dsf-reduce.jsonl";
    for (int k = 2; dsf_file_exists(name) && k < 100000; k++)
        (void)snprintf(name, sizeof name, "dsf-reduce-%d.jsonl", k);
    return name;
}

static dsf_status search(options *o, int *code)
{
    if (!o->record && !o->resume) o->record = free_record();
    dsf_ids ids = {.n = 0};
    dsf_reduce_report found = {.seconds = 0};
    dsf_reduce_options r = {.argv = o->command,
                            .n = o->n_command,
                            .model = o->model ? o->model : o->positional[0],
                            .record = o->resume ? o->resume : o->record,
                            .resume = o->resume != NULL,
                            .repeat = (int)o->repeat,
                            .most_tests = o->tries,
                            .limit = o->limit,
                            .ids_name = o->ids_out,
                            .stop = stop_now,
                            .progress = show};
    dsf_status st = DSF_OK;
    if (!o->model) o->model = o->positional[0];
    DSF_TRY_OUT(read_ids(o, &ids));
    DSF_TRY_OUT(fill_start(o, &ids, &r));
    const char *const input[] = {o->from, o->in.ids_file, o->resume, o->positional[1],
                                 o->made.floor};
    DSF_TRY_OUT(dsf_inputs_check_out(o->ids_out, input, 5));
    DSF_TRY_OUT(dsf_inputs_check_out(o->made.out, input, 5));
    DSF_TRY_OUT(dsf_reduce_run(&r, &found));
    *code = search_code(&found);
    bool wanted = o->made.out && *code == DSF_EXIT_GOOD, written = false;
    dsf_case_report c;
    dsf_status case_st = wanted ? case_of_search(o, &found, &c, &written) : DSF_OK;
    DSF_TRY_OUT(report(o, &r, &found, case_st == DSF_OK && written ? &c : NULL));
    st = case_st;
    if (st == DSF_OK && wanted && !written) *code = dsf_reduce_case_none(&o->made);
out:
    dsf_reduce_report_free(&found);
    dsf_ids_free(&ids);
    return st;
}

/* --- the command line --- */

static options o = {.filler = -1, .made = {.layer = -1}, .limit = 600.0};
static const opt opts[] = {
    {"--replay", OPT_STRING, &o.replay, "CASE.h5",
     "run a case: exit 1 when it fails here, 0 when not"},
    {"-o", OPT_STRING, &o.made.out, "CASE.h5", "write the case of the first wrong operation"},
    {"--layer", OPT_INT, &o.made.layer, "L", "of this layer, wrong or not"},
    {"--op", OPT_STRING, &o.made.op, "PATH",
     "of this operation: layers/03/ffn/y, or ffn/y with --layer"},
    {"--floor", OPT_STRING, &o.made.floor, "FLOOR.json",
     "measured noise that the limits come from"},
    {"--max-bytes", OPT_STRING, &o.made.max_bytes, "S", "refuse a larger case (default 10000000)"},
    INPUT_PROMPT_OPTS(o.in),
    {"--ids-from", OPT_STRING, &o.from, "F.h5", "the token ids of a dump"},
    {"--length", OPT_INT, &o.length, "N", "{length} to start from"},
    {"--layers", OPT_STRING, &o.layers, "A-B", "{layers} to start from (default: all of MODEL)"},
    {"--rows", OPT_STRING, &o.made.rows, "A-B", "{rows} to start from; rows of a case"},
    {"--chunk", OPT_INT, &o.in.chunk, "N", "{chunk} to start from"},
    {"--batch", OPT_INT, &o.batch, "N", "{batch} to start from"},
    {"--variants", OPT_STRING, &o.in.variants, "MASK",
     "{variants} to start from (default: all); of a case, to run it with"},
    {"--model", OPT_STRING, &o.model, "MODEL", "what {model} is cut from, a text encoded with"},
    {"--filler", OPT_INT, &o.filler, "ID",
     "the id that tokens are replaced by (default: the first)"},
    {"--fails", OPT_LIST, &o.fails, "CODE,...",
     "exit codes that mean failure (default 1); 128 + signal, timeout"},
    {"--timeout", OPT_NUMBER, &o.limit, "S", "seconds of one run (default 600)"},
    {"--repeat", OPT_INT, &o.repeat, "N",
     "run each candidate up to N times: one failure is enough"},
    {"--max-tries", OPT_INT, &o.tries, "N", "stop after N runs"},
    {"--record", OPT_STRING, &o.record, "FILE",
     "every try, as JSON lines (default dsf-reduce.jsonl, or -2, -3, ... where that is there)"},
    {"--resume", OPT_STRING, &o.resume, "FILE",
     "go on from a record: what was run is not run again"},
    {"--ids-out", OPT_STRING, &o.ids_out, "FILE", "write the ids of the result"},
    {"--backend", OPT_STRING, &o.in.backend, "B", "auto, cpu, ref or cuda, for a case"},
    {"--threads", OPT_INT, &o.in.threads, "N", "threads (default: all processors), for a case"},
    {"--json", OPT_FLAG, &o.made.json, NULL, "the result as JSON"},
};

static int run(void)
{
    int code = DSF_EXIT_GOOD, forms = (o.replay != NULL) + (o.n_command > 0 || o.made.out != NULL);
    dsf_status st = DSF_OK;
    bool both = o.positional[0] && o.positional[1];
    if (forms != 1)
        st = DSF_FAIL(DSF_EINVAL,
                      "one of: -- COMMAND, MODEL GOLDEN.h5 -o CASE.h5, --replay CASE.h5");
    else if (o.made.out && !both)
        st = DSF_FAIL(DSF_EINVAL, "-o CASE.h5 needs MODEL and GOLDEN.h5");
    else if (o.made.layer < -1 || o.made.layer > 1000)
        st =
            DSF_FAIL(DSF_EINVAL, "--layer %lld: layers go from 0 to 1000", (long long)o.made.layer);
    else if (o.replay && (o.made.layer >= 0 || o.made.op || o.made.floor || o.made.max_bytes))
        st = DSF_FAIL(DSF_EINVAL, "--replay takes all from the case: no --layer, --op, --floor, "
                                  "--max-bytes beside it");
    else if (o.replay)
        st = dsf_reduce_case_replay(&o.made, o.replay, &code);
    else
        st = o.n_command ? search(&o, &code) : dsf_reduce_case_write(&o.made, &code);
    return st == DSF_OK ? code : dsf_cmd_fail("reduce", st);
}

int dsf_cmd_reduce(int argc, char **argv)
{
    const opt_spec spec = {
        .command = "reduce",
        .synopsis = "[options] -- COMMAND with {placeholders}\n"
                    "       dsf reduce MODEL GOLDEN.h5 -o CASE.h5 [options] [-- COMMAND]\n"
                    "       dsf reduce --replay CASE.h5 [options]",
        .about =
            "Finds the smallest case in which a command still fails. The command is any check: exit 0 good,\n"
            "1 fails, anything else no answer. What stands in its placeholders is made smaller: {ids} (a file\n"
            "of token ids), {id_list} (1,2,3), {length}, {layers} (A-B), {model} (the checkpoint cut after\n"
            "layer B), {rows} (A-B), {chunk}, {batch}, {variants} (a kernel mask); {dump} is a file that the\n"
            "command may write. Exit 0: found; 1: the start does not fail; 3: no answer, stopped, or flaky.\n"
            "\n"
            "A case (-o) is one file with the golden inputs and outputs of the first wrong operation and the\n"
            "weights that it reads; --replay runs it where the checkpoint is not.",
        .example =
            "dsf reduce --ids-from long.h5 --model mini --ids-out small.txt -- ./check.sh {model} {ids}",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = o.positional,
        .n_positional = 2};
    int own = 1; /* words before the first "--" are ours */
    while (own < argc && strcmp(argv[own], "--") != 0) own++;
    if (own + 1 < argc) {
        o.command = argv + own + 1;
        o.n_command = argc - own - 1;
    }
    int code = dsf_opt_parse(&spec, own, argv);
    if (code >= 0) return code;
    o.made.model = o.positional[0];
    o.made.golden = o.positional[1];
    o.made.variants = o.in.variants;
    o.made.backend = o.in.backend;
    o.made.threads = o.in.threads;
    if (o.n_command == 0) {
        dsf_inputs_stop_on_signals();
        return run();
    }
    (void)signal(SIGINT, on_interrupt);
    (void)signal(SIGTERM, on_interrupt);
    (void)signal(SIGHUP, on_interrupt);
    return run();
}
