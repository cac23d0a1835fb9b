/* dsf graft: every layer from golden inputs; local errors against their limits. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "inputs.h"
#include "verify/diff/diff.h"
#include "verify/graft/graft.h"

typedef struct {
    const char *model, *golden, *out, *floor, *backend, *variants, *json_out;
    int64_t threads;
    bool by_op, json, all, no_gate;
} options;

static dsf_status judge(const options *o, const dsf_graft_report *g, const char *out, bool *good)
{
    const dsf_diff_options d = {.reference = o->golden,
                                .ours = out,
                                .floor = o->floor,
                                .no_gate = o->no_gate ? "graft" : NULL};
    dsf_diff_report r;
    dsf_buf b = {.max = 0};
    dsf_status st = dsf_diff_run(&d, &r);
    if (st == DSF_OK) {
        if (o->json) {
            dsf_diff_json(&r, &b);
            dsf_buf_char(&b, '\n');
        } else {
            dsf_diff_print(&r, o->all, &b);
            dsf_buf_fmt(&b, "\n%s, %lld passes; given: %s\n",
                        g->by_op ? "operation by operation" : "layer by layer",
                        (long long)g->passes, g->given.data ? g->given.data : "");
            if (g->n_absent) dsf_buf_str(&b, g->absent.data);
        }
        st = dsf_inputs_print(&b);
        *good = r.good && g->n_lost == 0;
    }
    dsf_buf_free(&b);
    dsf_diff_report_free(&r);
    return st;
}

static dsf_status run(const options *o, bool *good)
{
    const char *out = o->out ? o->out : dsf_inputs_temp(), *variants = o->variants, *backend;
    DSF_TRY(dsf_inputs_backend(o->backend, &variants, &backend));
    DSF_TRY(dsf_inputs_threads(o->threads));
    const dsf_graft_options g = {.model = o->model,
                                 .golden = o->golden,
                                 .out = out,
                                 .variants = variants,
                                 .backend = backend,
                                 .threads = (int)o->threads,
                                 .by_op = o->by_op,
                                 .progress = dsf_progress};
    dsf_graft_report r;
    dsf_status st = dsf_graft_run(&g, &r);
    if (st == DSF_OK) st = judge(o, &r, out, good);
    dsf_graft_report_free(&r);
    if (!o->out) (void)unlink(out);
    return st;
}

int dsf_cmd_graft(int argc, char **argv)
{
    options o = {.model = NULL};
    const opt opts[] = {
        {"-o", OPT_STRING, &o.out, "OUT.h5", "keep the tensors as a dump (mode injected)"},
        {"--floor", OPT_STRING, &o.floor, "FLOOR.json", "measured noise that the limits come from"},
        {"--by-op", OPT_FLAG, &o.by_op, NULL,
         "operation by operation: every stored tap is an input"},
        {"--all", OPT_FLAG, &o.all, NULL, "print every tap"},
        {"--no-gate", OPT_FLAG, &o.no_gate, NULL, "report without judging"},
        {"--json", OPT_FLAG, &o.json, NULL, "the comparison as JSON"},
        {"--backend", OPT_STRING, &o.backend, "B", "auto, cpu, ref or cuda"},
        {"--variants", OPT_STRING, &o.variants, "MASK", "kernel mask: ref, -avx512, -avx512:attn"},
        {"--threads", OPT_INT, &o.threads, "N", "threads (default: all processors)"},
    };
    const char *positional[2] = {NULL, NULL};
    const opt_spec spec = {
        .command = "graft",
        .synopsis = "MODEL GOLDEN.h5",
        .about =
            "Runs every layer on the golden inputs, so that an error stays where it arises, and judges each\n"
            "tap against its limit.",
        .example = "dsf graft mini golden/mini/dump-p0.h5 --floor golden/mini/noise_floor.json",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 2,
        .n_required = 2};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    o.model = positional[0];
    o.golden = positional[1];
    bool good = false;
    dsf_status st = run(&o, &good);
    if (st != DSF_OK) return dsf_cmd_fail("graft", st);
    return good ? DSF_EXIT_GOOD : DSF_EXIT_NO;
}
