/* dsf verify: the suites, a verdict each, and one for all. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "config.h"
#include "inputs.h"
#include "verify/suite/suite.h"

typedef struct {
    dsf_verify_options v;
    const char *backend, *json_out, *junit, *html;
    int64_t threads;
    bool list, json, quiet;
} options;

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}
static bool stop_now(void) { return interrupted != 0; }

static dsf_status list_suites(const options *o)
{
    dsf_buf b = {.max = 0};
    if (o->json) dsf_json_begin(&b, NULL, '[');
    for (int i = 0; i < DSF_N_SUITES; i++) {
        if (!o->json) {
            dsf_buf_fmt(&b, "%-10s %s\n", dsf_suites[i].name, dsf_suites[i].question);
            continue;
        }
        dsf_json_begin(&b, NULL, '{');
        dsf_json_add_cstr(&b, "suite", dsf_suites[i].name);
        dsf_json_add_cstr(&b, "question", dsf_suites[i].question);
        dsf_json_end(&b, '}');
    }
    if (o->json) {
        dsf_json_end(&b, ']');
        dsf_buf_char(&b, '\n');
    }
    dsf_status st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    return st;
}

/* The checks of this model and these golden sets; what is left out says why. */
static dsf_status list_checks(const options *o)
{
    dsf_results r;
    dsf_buf b = {.max = 0};
    dsf_status st = dsf_verify_list(&o->v, &r);
    if (st == DSF_OK && o->json) dsf_results_json(&r, &o->v, &b);
    for (int i = 0; st == DSF_OK && !o->json && i < r.n; i++) {
        const dsf_suite_check *c = &r.check[i];
        bool left = c->verdict == DSF_SKIPPED || strcmp(c->words, "not run") != 0;
        dsf_buf_fmt(&b, "%s%s%s\n", c->name, left ? "  left out: " : "", left ? c->words : "");
    }
    if (st == DSF_OK) st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    dsf_results_free(&r);
    return st;
}

/* Text comes as it is known; a line that standard output does not take is told at the end. */
static void print_check(void *ud, const dsf_suite_check *c)
{
    const options *o = ud;
    dsf_buf b = {.max = 0};
    dsf_suite_text(c, !o->quiet, &b);
    if (b.data) (void)fputs(b.data, stdout);
    (void)fflush(stdout);
    dsf_buf_free(&b);
}

static dsf_status print_sum(const options *o, const dsf_results *r)
{
    dsf_buf b = {.max = 0}, why = {.max = 0};
    int could = dsf_results_count(r, DSF_COULD_NOT);
    if (o->json) {
        dsf_results_json(r, &o->v, &b);
    } else {
        dsf_buf_fmt(&b, "%d passed, %d failed, ", dsf_results_count(r, DSF_PASS),
                    dsf_results_count(r, DSF_FAILED));
        if (could) dsf_buf_fmt(&b, "%d could not run, ", could);
        dsf_buf_fmt(&b, "%d skipped", dsf_results_count(r, DSF_SKIPPED));
        dsf_results_reasons(r, &why);
        if (why.len) dsf_buf_fmt(&b, " (%s)", why.data);
        if (r->digest[0]) dsf_buf_fmt(&b, "; digest %s", r->digest);
        dsf_buf_char(&b, '\n');
    }
    dsf_buf_free(&why);
    dsf_status st = dsf_inputs_print(&b);
    dsf_buf_free(&b);
    return st;
}

static dsf_status write_files(const options *o, const dsf_results *r)
{
    dsf_buf json = {.max = 0}, xml = {.max = 0}, html = {.max = 0};
    dsf_status st = DSF_OK, one; /* a file that fails does not keep the others from being written */
    dsf_results_json(r, &o->v, &json);
    dsf_results_junit(r, &xml);
    dsf_results_html(r, &o->v, &html);
    const char *const path[] = {o->json_out, o->junit, o->html};
    const dsf_buf *const text[] = {&json, &xml, &html};
    for (int i = 0; i < 3; i++)
        if (path[i] && (one = dsf_inputs_write(path[i], text[i])) != DSF_OK) st = one;
    dsf_buf_free(&json);
    dsf_buf_free(&xml);
    dsf_buf_free(&html);
    return st;
}

/* A run that was stopped writes what it has: checks that were not run say so. */
static dsf_status run(options *o, dsf_results *r)
{
    o->v.progress = dsf_progress;
    o->v.finished = o->json ? NULL : print_check;
    o->v.ud = o;
    o->v.stop = stop_now;
    (void)signal(SIGINT, on_interrupt);
    (void)signal(SIGTERM, on_interrupt);
    (void)signal(SIGHUP, on_interrupt);
    dsf_status st = dsf_verify_run(&o->v, r);
    if (st != DSF_OK && st != DSF_ECANCELED) return dsf_error_pass(st, DSF_HERE);
    DSF_TRY(print_sum(o, r)); /* before the files: a full disk does not hide a verdict */
    DSF_TRY(write_files(o, r));
    return st == DSF_ECANCELED ? DSF_FAIL(DSF_ECANCELED, "stopped on request") : DSF_OK;
}

/* Whether two outputs would be one file, written as "x" and "./x" too. */
static bool same_place(const char *a, const char *b)
{
    char folder[2][4096];
    const char *path[] = {a, b}, *name[2];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(path[i], '/');
        name[i] = slash ? slash + 1 : path[i];
        int n = slash ? (int)(slash - path[i]) + 1 : 0;
        if (snprintf(folder[i], 4096, "%.*s.", n, path[i]) >= 4096) return false;
    }
    return dsf_file_same(a, b) ||
           (strcmp(name[0], name[1]) == 0 && dsf_file_same(folder[0], folder[1]));
}

/* What is read is not written over: dumps and weights by their names, the files that a folder of
 * them has, and the limits. */
static dsf_status spare_inputs(const options *o, const char *out)
{
    static const char *const kept[] = {"config.json", "tokenizer.json", "noise_floor.json",
                                       "model.safetensors.index.json"};
    const char *const folder[] = {o->v.model, o->v.golden};
    const char *dot = strrchr(out, '.');
    char path[4096];
    const char *const input[] = {path}, *const floor[] = {o->v.floor};
    if (dot && (strcmp(dot, ".h5") == 0 || strcmp(dot, ".safetensors") == 0) &&
        dsf_file_exists(out))
        return DSF_FAIL(DSF_EINVAL, "%s: results do not replace a dump or weights", out);
    for (size_t i = 0; i < 2 * (sizeof kept / sizeof *kept); i++) {
        if (!folder[i % 2]) continue;
        DSF_TRY(dsf_file_join(path, folder[i % 2], kept[i / 2]));
        DSF_TRY(dsf_inputs_check_out(out, input, 1));
    }
    return dsf_inputs_check_out(out, floor, 1);
}

/* Before minutes of work: can every file be written, and is each of them another? */
static dsf_status check_files(const options *o)
{
    const char *const flag[] = {"--json-out", "--junit", "--html"};
    const char *const path[] = {o->json_out, o->junit, o->html};
    for (int i = 0; i < 3; i++) {
        if (!path[i]) continue;
        for (int k = 0; k < i; k++)
            if (path[k] && same_place(path[i], path[k]))
                return DSF_FAIL(DSF_EINVAL, "%s and %s are one file: %s", flag[k], flag[i],
                                path[i]);
        DSF_TRY(spare_inputs(o, path[i]));
    }
    return DSF_OK;
}

/* The cases lie beside the checkout that this program was built from, wherever it is started. */
static void find_cases(options *o)
{
    static const char *const where[] = {DSF_SHARED "/reference/encoding-cases",
                                        DSF_SOURCE_ROOT "/" DSF_SHARED "/reference/encoding-cases"};
    int from = DSF_SHARED[0] != '/';
    if (!o->v.cases && dsf_file_is_folder(where[from])) o->v.cases = where[from];
}

static dsf_status prepare(options *o)
{
    DSF_TRY(dsf_inputs_backend(o->backend, &o->v.variants));
    o->v.backend = dsf_inputs_backend_name(o->v.variants);
    DSF_TRY(dsf_inputs_threads(o->threads));
    o->v.threads = (int)o->threads;
    find_cases(o);
    return check_files(o);
}

int dsf_cmd_verify(int argc, char **argv)
{
    options o = {.list = false};
    const opt opts[] = {
        {"--golden", OPT_STRING, &o.v.golden, "DIR",
         "a set of golden dumps, or a folder of sets; absent: a named skip, or exit 3 with --suite"},
        {"--suite", OPT_STRING, &o.v.suites, "a,b", "only these suites"},
        {"--only", OPT_STRING, &o.v.only, "GLOB", "only these checks: \"layers/*/p0\", \"ops/**\""},
        {"--floor", OPT_STRING, &o.v.floor, "FLOOR.json",
         "measured noise (default: noise_floor.json of DIR or above it)"},
        {"--cases", OPT_STRING, &o.v.cases, "DIR",
         "the reference encoder's cases (default: " DSF_SHARED "/reference/encoding-cases)"},
        {"--list", OPT_FLAG, &o.list, NULL,
         "what the suites are; with MODEL or --golden the checks"},
        {"--json", OPT_FLAG, &o.json, NULL, "the verdicts, or the list, as JSON"},
        {"--json-out", OPT_STRING, &o.json_out, "F", "the same into a file"},
        {"--junit", OPT_STRING, &o.junit, "F", "JUnit XML into a file"},
        {"--html", OPT_STRING, &o.html, "F", "one self-contained page into a file"},
        {"--quiet", OPT_FLAG, &o.quiet, NULL, "figures and tables of failed checks only"},
        {"--backend", OPT_STRING, &o.backend, "B", "auto, cpu, ref or cuda"},
        {"--variants", OPT_STRING, &o.v.variants, "MASK",
         "kernel mask: ref, -avx512, -avx512:attn"},
        {"--threads", OPT_INT, &o.threads, "N", "threads, shared by checks that run together"},
        {"--tokens", OPT_INT, &o.v.tokens, "N", "suite chunks: length of the prompt"},
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {
        .command = "verify",
        .synopsis = "[MODEL] [--golden DIR]",
        .about = "Is this engine right? Exit 0 when every check passed, 1 when one failed, 3 when "
                 "one could not run; \"nothing compared\" is no pass.",
        .example = "dsf verify mini --golden golden/mini --html verify.html",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 1,
        .n_required = 0};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    o.v.model = positional[0];
    dsf_results r = {.n = 0};
    dsf_status st = prepare(&o);
    bool suites_alone = !o.v.model && !o.v.golden && !o.v.suites;
    if (st == DSF_OK && o.list) st = suites_alone ? list_suites(&o) : list_checks(&o);
    if (st == DSF_OK && !o.list) st = run(&o, &r);
    int failed = dsf_results_count(&r, DSF_FAILED);
    bool good = o.list || dsf_results_good(&r);
    dsf_results_free(&r);
    if (st != DSF_OK) return dsf_cmd_fail("verify", st);
    return failed ? DSF_EXIT_NO : good ? DSF_EXIT_GOOD : DSF_EXIT_COULD_NOT;
}
