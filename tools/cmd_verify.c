/* dsf verify: the suites, a verdict each, and one for all. */
#include <stdio.h>
#include <string.h>

#include "inputs.h"
#include "verify/suite/suite.h"

typedef struct {
    dsf_verify_options v;
    const char *backend, *json_out, *junit;
    int64_t threads;
    bool list, json, quiet;
} options;

static int list_suites(void)
{
#define X(name, built, question)                                                                   \
    (void)printf("%-10s %s%s\n", #name, (built) ? "" : "(not a suite in this version) ",           \
                 (question));
    DSF_SUITE_MAP(X)
#undef X
    return DSF_EXIT_GOOD;
}

static void print_text(const dsf_results *r, bool quiet, dsf_buf *b)
{
    for (int i = 0; i < r->n; i++) {
        const dsf_check_result *c = &r->check[i];
        dsf_buf_fmt(b, "%-9s %-24s %12lld compared %7.2f s  %s\n", dsf_verdict_name(c->verdict),
                    c->name, (long long)c->compared, c->seconds, c->words);
        if (c->detail.data && (!quiet || c->verdict == DSF_FAILED)) dsf_buf_str(b, c->detail.data);
    }
    dsf_buf_fmt(b, "%d passed, %d failed, %d skipped\n", dsf_results_count(r, DSF_PASS),
                dsf_results_count(r, DSF_FAILED) + dsf_results_count(r, DSF_COULD_NOT),
                dsf_results_count(r, DSF_SKIPPED));
}

static dsf_status output(const options *o, const dsf_results *r)
{
    dsf_buf text = {.max = 0}, json = {.max = 0}, xml = {.max = 0};
    print_text(r, o->quiet, &text);
    dsf_results_json(r, &o->v, &json);
    dsf_results_junit(r, &xml);
    dsf_status st = DSF_OK;
    if (o->json_out) st = dsf_inputs_write(o->json_out, &json);
    if (st == DSF_OK && o->junit) st = dsf_inputs_write(o->junit, &xml);
    if (st == DSF_OK) st = dsf_inputs_print(o->json ? &json : &text);
    dsf_buf_free(&text);
    dsf_buf_free(&json);
    dsf_buf_free(&xml);
    return st;
}

static dsf_status run(options *o, dsf_results *r)
{
    DSF_TRY(dsf_inputs_backend(o->backend, &o->v.variants, &o->v.backend));
    o->v.temp = dsf_inputs_temp();
    DSF_TRY(dsf_inputs_threads(o->threads));
    o->v.threads = (int)o->threads;
    o->v.progress = dsf_progress;
    DSF_TRY(dsf_verify_run(&o->v, r));
    return output(o, r);
}

int dsf_cmd_verify(int argc, char **argv)
{
    options o = {.list = false};
    const opt opts[] = {
        {"--golden", OPT_STRING, &o.v.golden, "DIR", "a set of golden dumps, or a folder of sets"},
        {"--suite", OPT_STRING, &o.v.suites, "a,b", "only these suites"},
        {"--only", OPT_STRING, &o.v.only, "GLOB", "only these checks"},
        {"--floor", OPT_STRING, &o.v.floor, "FLOOR.json",
         "measured noise (default: noise_floor.json of DIR or above it)"},
        {"--list", OPT_FLAG, &o.list, NULL, "what the suites are"},
        {"--json", OPT_FLAG, &o.json, NULL, "the verdicts as JSON"},
        {"--json-out", OPT_STRING, &o.json_out, "F", "the same into a file"},
        {"--junit", OPT_STRING, &o.junit, "F", "JUnit XML into a file"},
        {"--quiet", OPT_FLAG, &o.quiet, NULL, "tables of failed checks only"},
        {"--backend", OPT_STRING, &o.backend, "B", "auto, cpu, ref or cuda"},
        {"--variants", OPT_STRING, &o.v.variants, "MASK",
         "kernel mask: ref, -avx512, -avx512:attn"},
        {"--threads", OPT_INT, &o.threads, "N", "threads"},
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {
        .command = "verify",
        .synopsis = "[MODEL] [--golden DIR]",
        .about =
            "Is this engine right? Exit 0 when every check passed; \"nothing compared\" is no pass.",
        .example = "dsf verify mini --golden golden/mini",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 1,
        .n_required = 0};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    if (o.list) return list_suites();
    o.v.model = positional[0];
    dsf_results r = {.n = 0};
    dsf_status st = run(&o, &r);
    int failed = dsf_results_count(&r, DSF_FAILED);
    bool good = dsf_results_good(&r);
    dsf_results_free(&r);
    if (st != DSF_OK) return dsf_cmd_fail("verify", st);
    return failed ? DSF_EXIT_NO : good ? DSF_EXIT_GOOD : DSF_EXIT_COULD_NOT;
}
