/* dsf dump: the tensors of a run, as HDF5. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "inputs.h"
#include "verify/dump/recover.h"
#include "verify/dump/run.h"
#include "verify/reduce/candidate.h"

static volatile sig_atomic_t interrupted;
/* The second one ends the program at once: what was committed stays recoverable. */
static void on_interrupt(int sig)
{
    interrupted = sig;
    (void)signal(sig, SIG_DFL);
}
static bool stop_now(void) { return interrupted != 0; }

typedef struct {
    input_options in;
    opt_list taps;
    const char *out, *layers, *positions, *steps, *max_bytes, *from, *recover;
    int64_t decode;
    bool stats, json, no_draft, compress;
} options;

/* "3-5" or "3" to an inclusive range. */
static dsf_status parse_range(const char *name, const char *text, int64_t *from, int64_t *to)
{
    int64_t range[2];
    DSF_TRY(dsf_candidate_range(name, text, range));
    *from = range[0];
    *to = range[1];
    return DSF_OK;
}

static dsf_status fill_filter(const options *o, dsf_dump_filter *f)
{
    int64_t a = 0, b = 0;
    f->glob = o->taps.item;
    f->n_globs = o->taps.n;
    if (o->layers) {
        DSF_TRY(parse_range("--layers", o->layers, &a, &b));
        f->by_layer = true;
        if (a > 1000) return DSF_FAIL(DSF_EINVAL, "--layers %s: layers go to 1000", o->layers);
        f->layer_from = (int)a;
        f->layer_to = (int)(b < 1000 ? b : 1000);
    }
    if (o->positions) {
        f->by_position = true;
        DSF_TRY(parse_range("--positions", o->positions, &f->position_from, &f->position_to));
    }
    return DSF_OK;
}

static dsf_status run(options *o, dsf_dump_run_report *r)
{
    const char *accept[33];
    dsf_ids ids = {.n = 0};
    dsf_bpe *bpe = NULL;
    dsf_dump_run d = {.out = o->out,
                      .decode = o->decode,
                      .stats = o->stats,
                      .draft = !o->no_draft,
                      .compress = o->compress,
                      .inputs_from = o->from,
                      .max_bytes = (int64_t)8 << 30,
                      .progress = dsf_progress,
                      .stop = stop_now};
    dsf_status st = DSF_OK;
    if (!o->out) DSF_TRY(DSF_FAIL(DSF_EINVAL, "-o OUT.h5 is missing"));
    if (o->decode < 0 || o->decode > INT32_MAX)
        return DSF_FAIL(DSF_EINVAL, "--decode %lld: 0 to %d", (long long)o->decode, INT32_MAX);
    const char *const input[] = {o->from, o->in.ids_file, o->in.chat};
    DSF_TRY(dsf_inputs_check_out(o->out, input, 3));
    DSF_TRY(dsf_inputs_options(&o->in, "exact", &d.engine, accept));
    DSF_TRY(fill_filter(o, &d.filter));
    d.by_step = o->steps != NULL;
    if (o->steps) DSF_TRY(parse_range("--steps", o->steps, &d.step_from, &d.step_to));
    if (o->compress && o->stats)
        DSF_TRY(DSF_FAIL(DSF_EINVAL, "--compress: statistics are small as they are"));
    if (o->max_bytes) DSF_TRY(dsf_inputs_size("--max-bytes", o->max_bytes, &d.max_bytes));
    d.backend = dsf_inputs_backend_name(d.engine.variants);
    if (!o->from) {
        DSF_TRY_OUT(dsf_inputs_ids(&o->in, &bpe, &ids));
        d.ids = ids.id;
        d.n = (int64_t)ids.n;
    }
    DSF_TRY_OUT(dsf_dump_run_model(&d, r));
out:
    dsf_ids_free(&ids);
    dsf_bpe_close(bpe);
    return st;
}

/* What a killed run left becomes a file. */
static dsf_status recover(options *o)
{
    dsf_dump_recovery r;
    dsf_buf b = {.max = 0}, name = {.max = 4096};
    size_t n = strlen(o->recover);
    dsf_status st = DSF_OK;
    if (!o->out && n > 5) {
        dsf_buf_fmt(&name, "%.*s", (int)(n - 5), o->recover);
        DSF_TRY_OUT(dsf_buf_status(&name));
        o->out = name.data;
    }
    DSF_TRY_OUT(dsf_dump_recover(o->recover, o->out ? o->out : o->recover, &r));
    if (o->json) {
        dsf_json_begin(&b, NULL, '{');
        dsf_json_add_cstr(&b, "file", o->out);
        dsf_json_add_int(&b, "taps", r.taps);
        dsf_json_add_int(&b, "rows", r.rows);
        dsf_json_add_int(&b, "unfinished", r.short_taps);
        dsf_json_add_bool(&b, "copied", r.copied);
        dsf_json_end(&b, '}');
        dsf_buf_char(&b, '\n');
    } else {
        dsf_buf_fmt(&b, "%s: %lld taps, %lld of them unfinished, %lld rows\n", o->out,
                    (long long)r.taps, (long long)r.short_taps, (long long)r.rows);
        if (r.copied) dsf_buf_fmt(&b, "%s is as it was: made on another disk\n", o->recover);
    }
    DSF_TRY_OUT(dsf_inputs_print(&b));
out:
    dsf_buf_free(&b);
    dsf_buf_free(&name);
    return st;
}

static dsf_status report(const options *o, const dsf_dump_run_report *r)
{
    dsf_buf b = {.max = 0};
    if (o->json) {
        dsf_json_begin(&b, NULL, '{');
        dsf_json_add_cstr(&b, "file", o->out);
        dsf_json_add_int(&b, "tokens", r->tokens);
        dsf_json_add_int(&b, "decoded", r->decoded);
        dsf_json_add_int(&b, "bytes", r->bytes);
        if (r->stopped) dsf_json_add_cstr(&b, "stopped", r->words);
        dsf_json_end(&b, '}');
        dsf_buf_char(&b, '\n');
    } else {
        dsf_buf_fmt(&b, "%s: %lld tokens, %lld decoded, %lld bytes of tensors%s%s\n", o->out,
                    (long long)r->tokens, (long long)r->decoded, (long long)r->bytes,
                    r->stopped ? "; stopped " : "", r->words);
    }
    dsf_status st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    return st;
}

int dsf_cmd_dump(int argc, char **argv)
{
    options o = {.decode = 0};
    const opt opts[] = {
        INPUT_PROMPT_OPTS(o.in),
        {"--inputs-from", OPT_STRING, &o.from, "F.h5",
         "token ids, image mask and embeddings of a dump"},
        {"-o", OPT_STRING, &o.out, "OUT.h5", "the file to write"},
        {"--taps", OPT_LIST, &o.taps, "GLOB",
         "only these taps (\"attn/q\", \"layers/0?/out\"); repeatable"},
        {"--layers", OPT_STRING, &o.layers, "A-B",
         "of the layers only these (draft stages count on); embed, final, logits stay"},
        {"--positions", OPT_STRING, &o.positions, "A-B", "only rows of these positions"},
        {"--steps", OPT_STRING, &o.steps, "A-B",
         "only rows of these steps: 0 is the prompt, 1 the first decoded token"},
        {"--decode", OPT_INT, &o.decode, "N", "then decode N tokens greedily, their rows too"},
        {"--stats", OPT_FLAG, &o.stats, NULL, "statistics of row blocks in place of values"},
        {"--compress", OPT_FLAG, &o.compress, NULL,
         "shuffle, gzip and checksums: smaller and slower"},
        {"--no-draft", OPT_FLAG, &o.no_draft, NULL, "no draft pass after the prompt"},
        {"--max-bytes", OPT_STRING, &o.max_bytes, "S", "refuse a larger dump (default 8G)"},
        {"--recover", OPT_STRING, &o.recover, "OUT.h5.part",
         "make a file of what a killed run left (no MODEL)"},
        {"--json", OPT_FLAG, &o.json, NULL, "the result as JSON"},
        INPUT_ENGINE_OPTS(o.in),
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {
        .command = "dump",
        .synopsis = "MODEL (--ids 1,2,3 | --prompt S | ... | --inputs-from F.h5) -o OUT.h5\n"
                    "       dsf dump --recover OUT.h5.part [-o OUT.h5]",
        .about =
            "Runs the model and writes its tensors (dump-schema.md). The output bits of the run are\n"
            "those of a run without taps.",
        .example = "dsf dump mini --prompt \"Hello\" -o hello.h5 --taps \"layers/*/out\"",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 1,
        .n_required = 0};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    o.in.model = positional[0];
    dsf_dump_run_report r = {.bytes = 0};
    dsf_status st = DSF_OK;
    if (o.recover) {
        st = o.in.model ? DSF_FAIL(DSF_EINVAL, "--recover: no model (%s) is needed", o.in.model)
                        : recover(&o);
    } else if (!o.in.model) {
        st = DSF_FAIL(DSF_EINVAL, "a MODEL folder is missing");
    } else {
        (void)signal(SIGINT, on_interrupt);
        (void)signal(SIGTERM, on_interrupt);
        st = run(&o, &r);
        if (st == DSF_OK) st = report(&o, &r);
    }
    if (st != DSF_OK) return dsf_cmd_fail("dump", st);
    if (!r.stopped) return DSF_EXIT_GOOD;
    (void)fprintf(stderr, "dsf dump: stopped %s: %s holds what is finished\n", r.words, o.out);
    return DSF_EXIT_COULD_NOT;
}
