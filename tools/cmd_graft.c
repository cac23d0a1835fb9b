/* dsf graft: every layer, or every operation, on given inputs; local errors against their limits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "inputs.h"
#include "verify/graft/locate.h"

typedef struct {
    const char *model, *golden, *ours, *out, *floor, *backend, *variants, *json_out, *layers,
        *no_gate;
    opt_list only;
    int64_t threads;
    bool by_op, json, all, rows;
} options;

/* "A-B" or "A". */
static dsf_status parse_layers(const char *text, dsf_graft_options *g)
{
    char *end;
    if (!text) return DSF_OK;
    long from = strtol(text, &end, 10), to = from;
    bool good = end > text;
    if (good && *end == '-') {
        const char *second = end + 1;
        to = strtol(second, &end, 10);
        good = end > second;
    }
    if (!good || *end || from < 0 || to < from || to > 1000)
        return DSF_FAIL(DSF_EINVAL, "--layers %s: A-B or A is allowed", text);
    g->by_layer_range = true;
    g->layer_from = (int)from;
    g->layer_to = (int)to;
    return DSF_OK;
}

static dsf_status answer(const options *o, const dsf_located *r)
{
    dsf_buf text = {.max = 0}, json = {.max = 0};
    dsf_located_json(r, &json);
    dsf_located_print(r, o->all, &text);
    dsf_status st = DSF_OK;
    if (o->json_out) st = dsf_inputs_write(o->json_out, &json);
    if (st == DSF_OK) st = dsf_inputs_print(o->json ? &json : &text);
    dsf_buf_free(&text);
    dsf_buf_free(&json);
    return st;
}

static dsf_status run(const options *o, bool *good)
{
    char second[4096];
    const char *temp, *variants = o->variants;
    const char *const input[] = {o->golden, o->ours, o->floor};
    DSF_TRY(dsf_inputs_check_out(o->out, input, 3));
    DSF_TRY(dsf_inputs_check_out(o->json_out, input, 3));
    DSF_TRY(dsf_inputs_temp(&temp));
    dsf_inputs_drop_on_stop(o->out);
    DSF_TRY(dsf_inputs_backend(o->backend, &variants));
    DSF_TRY(dsf_inputs_threads(o->threads));
    (void)snprintf(second, sizeof second, "%s", temp);
    dsf_locate_options l = {.graft = {.model = o->model,
                                      .golden = o->golden,
                                      .out = o->out ? o->out : temp,
                                      .variants = variants,
                                      .backend = dsf_inputs_backend_name(variants),
                                      .threads = (int)o->threads,
                                      .by_op = o->by_op,
                                      .only = o->only.n ? o->only.item : NULL,
                                      .n_only = o->only.n,
                                      .progress = dsf_progress},
                            .ours = o->ours,
                            .temp = second,
                            .floor = o->floor,
                            .no_gate = o->no_gate,
                            .rows = o->rows};
    DSF_TRY(parse_layers(o->layers, &l.graft));
    dsf_located r;
    dsf_status st = dsf_locate(&l, &r);
    if (st == DSF_OK) st = answer(o, &r);
    *good = r.good || o->no_gate;
    dsf_located_free(&r);
    (void)unlink(temp);
    return st;
}

static int print_usage_error(const char *words)
{
    (void)fprintf(stderr, "dsf graft: %s\n", words);
    return DSF_EXIT_USAGE;
}

int dsf_cmd_graft(int argc, char **argv)
{
    options o = {.model = NULL};
    const opt opts[] = {
        {"--ours", OPT_STRING, &o.ours, "THEIRS.h5",
         "judge this dump of any engine: our operations on its tensors"},
        {"--floor", OPT_STRING, &o.floor, "FLOOR.json",
         "measured noise of GOLDEN; without it limits are provisional"},
        {"--op", OPT_FLAG, &o.by_op, NULL, "operation by operation: every stored tap is an input"},
        {"--by-op", OPT_FLAG, &o.by_op, NULL, "the same"},
        {"--layers", OPT_STRING, &o.layers, "A-B", "these layers only"},
        {"--only", OPT_LIST, &o.only, "GLOB,...", "these taps only: layers/03/**, attn/q"},
        {"-o", OPT_STRING, &o.out, "OUT.h5", "keep the tensors as a dump (mode injected)"},
        {"--all", OPT_FLAG, &o.all, NULL, "print every tap"},
        {"--rows", OPT_FLAG, &o.rows, NULL, "figures of every row in the JSON"},
        {"--no-gate", OPT_STRING, &o.no_gate, "LABEL",
         "report without a verdict: the two are not meant to be equal"},
        {"--json", OPT_FLAG, &o.json, NULL, "the answer as JSON"},
        {"--json-out", OPT_STRING, &o.json_out, "FILE", "the answer as JSON into a file too"},
        {"--backend", OPT_STRING, &o.backend, "B", "auto, cpu, ref or cuda"},
        {"--variants", OPT_STRING, &o.variants, "MASK", "kernel mask: ref, -avx512, -avx512:attn"},
        {"--threads", OPT_INT, &o.threads, "N", "threads (default: all processors)"},
    };
    const char *positional[2] = {NULL, NULL};
    const opt_spec spec = {
        .command = "graft",
        .synopsis = "MODEL GOLDEN.h5 [--ours THEIRS.h5] [--floor FLOOR.json]",
        .about =
            "Runs every layer on the golden inputs, so that an error stays where it arises, and judges each\n"
            "tap against its limit; then, where a layer is wrong, every operation. With --ours the\n"
            "operations run on the tensors of another engine's dump. The first line names the first\n"
            "operation that is wrong on the inputs it had.",
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
    if (o.rows && !o.json && !o.json_out) return print_usage_error("--rows goes with --json");
    bool good = false;
    dsf_status st = run(&o, &good);
    if (st != DSF_OK) return dsf_cmd_fail("graft", st);
    return good ? DSF_EXIT_GOOD : DSF_EXIT_NO;
}
