/* dsf plan: memory by name and formula, what fits, and the steps, without allocating any of it. */
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "bench/synthetic_config.h"
#include "inputs.h"
#include "model/synth.h"
#include "serve/planned.h"

typedef struct {
    input_options in;
    int64_t batch, ranks, engram_vocab;
    const char *preset, *synthetic, *memory, *reserve, *explain;
    bool steps, json;
} options;

static dsf_status make_preset(const char *name, dsf_config *c)
{
    dsf_buf json = {.max = 0};
    dsf_status st = dsf_synth_preset(c, name);
    if (st == DSF_OK) st = dsf_synth_finish(c, &json);
    dsf_buf_free(&json);
    return st;
}

/* A folder is opened as it is; of a config.json alone, or of layers of the released one, names and
 * sizes are enough. */
static dsf_status find_model(const options *o, struct dsf_synthetic *s, dsf_options *e)
{
    dsf_config whole;
    int layer[DSF_MAX_LAYERS];
    if (!!o->synthetic + !!o->preset + !!o->in.model != 1)
        return DSF_FAIL(DSF_EINVAL,
                        "give one of a model folder, a config.json, --preset and --synthetic");
    if (o->in.model && dsf_file_is_folder(o->in.model)) return DSF_OK;
    e->synthetic = s;
    e->model = NULL;
    if (o->synthetic) return dsf_synthetic_config(s, o->synthetic, o->engram_vocab, &whole, layer);
    s->planned = true;
    if (o->preset) return make_preset(o->preset, &s->config);
    const dsf_config_accept accept = {o->in.accept.item, o->in.accept.n};
    return dsf_config_load(&s->config, o->in.model, &accept);
}

static dsf_status write_plan(const options *o, const dsf_engine *e, dsf_buf *out, bool *fits)
{
    dsf_planned p;
    dsf_planned_options po = {.search = !o->explain};
    if (o->memory) DSF_TRY(dsf_inputs_size("--memory", o->memory, &po.memory));
    if (o->reserve) DSF_TRY(dsf_inputs_size("--reserve", o->reserve, &po.reserve));
    DSF_TRY(dsf_planned_make(&p, e, &po));
    *fits = dsf_planned_fits(&p);
    if (o->explain) return dsf_planned_explain(&p, o->explain, out);
    if (o->json) {
        dsf_planned_json(&p, out);
        dsf_buf_char(out, '\n');
        return DSF_OK;
    }
    dsf_planned_print(&p, out);
    if (o->steps) dsf_plan_print(e->plan, out);
    return DSF_OK;
}

static dsf_status run(const options *o, bool *fits)
{
    const char *accept[33];
    struct dsf_synthetic *s = NULL; /* large */
    dsf_options e;
    dsf_engine *engine = NULL;
    dsf_buf out = {.max = 0};
    dsf_status st;
    DSF_TRY_OUT(dsf_mem_new(&s, 1, sizeof *s));
    DSF_TRY_OUT(dsf_inputs_options(&o->in, "cone", &e, accept));
    if (o->ranks < 0 || o->ranks > 4096)
        DSF_TRY_OUT(DSF_FAIL(DSF_EINVAL, "--ranks %lld: 1 to 4096", (long long)o->ranks));
    e.slots = o->batch;
    e.ranks = (int)o->ranks;
    e.plan_only = true;
    DSF_TRY_OUT(find_model(o, s, &e));
    DSF_TRY_OUT(dsf_engine_open(&engine, &e));
    DSF_TRY_OUT(write_plan(o, engine, &out, fits));
    DSF_TRY_OUT(dsf_inputs_print(&out));
out:
    dsf_buf_free(&out);
    dsf_engine_close(engine);
    dsf_mem_free(s);
    return st;
}

int dsf_cmd_plan(int argc, char **argv)
{
    options o = {.batch = 1, .ranks = 1};
    const opt opts[] = {
        {"--batch", OPT_INT, &o.batch, "N", "sequences at the same time (default 1)"},
        {"--memory", OPT_STRING, &o.memory, "BYTES",
         "of each device, or of the host (default: this machine's): 139GiB"},
        {"--reserve", OPT_STRING, &o.reserve, "BYTES", "of --memory, to be left free (default 0)"},
        {"--explain", OPT_STRING, &o.explain, "NAME", "one line of the table: what, why, smaller"},
        {"--ranks", OPT_INT, &o.ranks, "N", "devices that share the experts (planned, not run)"},
        {"--preset", OPT_STRING, &o.preset, "NAME",
         "in place of MODEL: full (as released), mini or tiny"},
        {"--synthetic", OPT_STRING, &o.synthetic, "LAYERS",
         "in place of MODEL: these layers of the released one, made from a seed: 0-17"},
        {"--engram-vocab", OPT_INT, &o.engram_vocab, "N",
         "--synthetic: rows of an Engram table's column (default: as released)"},
        {"--steps", OPT_FLAG, &o.steps, NULL,
         "one line for each step: operation, variant, values, taps"},
        {"--json", OPT_FLAG, &o.json, NULL, "everything as JSON"},
        INPUT_ENGINE_OPTS(o.in),
    };
    const char *positional[1] = {NULL};
    const opt_spec spec = {
        .command = "plan",
        .synopsis = "MODEL|config.json | --preset NAME | --synthetic LAYERS [options]",
        .about = "Prints what a run would take, by the code that would take it: every arena and\n"
                 "temporary by name, formula, bytes and owner phase; whether it fits (exit 1 when\n"
                 "not), and the largest context and chunk that would.",
        .example = "dsf plan mini --ctx 4096 --chunk 256 --batch 4",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 1,
        .n_required = 0};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    bool fits = true;
    o.in.model = positional[0];
    dsf_status st = run(&o, &fits);
    if (st != DSF_OK) return dsf_cmd_fail("plan", st);
    return fits ? DSF_EXIT_GOOD : DSF_EXIT_NO;
}
