/* dsf plan: memory by name and formula, and the steps, without allocating any of it. */
#include <stdio.h>

#include "inputs.h"

int dsf_cmd_plan(int argc, char **argv)
{
    input_options in = {.model = NULL};
    int64_t batch = 1;
    bool steps = false, json = false;
    const opt opts[] = {
        {"--batch", OPT_INT, &batch, "N", "sequences at the same time (default 1)"},
        {"--steps", OPT_FLAG, &steps, NULL,
         "one line for each step: operation, variant, values, taps"},
        {"--json", OPT_FLAG, &json, NULL, "the memory table as JSON"},
        INPUT_ENGINE_OPTS(in),
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {
        .command = "plan",
        .synopsis = "MODEL --ctx N --chunk T --batch B [--steps]",
        .about = "Prints what a run would take: every arena by name, formula and bytes.",
        .example = "dsf plan mini --ctx 4096 --chunk 256 --batch 4",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 1,
        .n_required = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    in.model = positional[0];
    const char *accept[33];
    dsf_options o;
    dsf_engine *e = NULL;
    char *text = NULL;
    dsf_status st = dsf_inputs_options(&in, "cone", &o, accept);
    o.slots = batch;
    o.plan_only = true;
    if (st == DSF_OK) st = dsf_engine_open(&e, &o);
    if (st == DSF_OK) st = dsf_engine_describe(e, steps, json, &text);
    if (st == DSF_OK) (void)printf("%s%s", text, json ? "\n" : "");
    if (st == DSF_OK) st = dsf_inputs_flush();
    dsf_text_free(text);
    dsf_engine_close(e);
    return st == DSF_OK ? DSF_EXIT_GOOD : dsf_cmd_fail("plan", st);
}
