/* dsf diff: two dumps, the first divergence, the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "inputs.h"
#include "verify/diff/diff.h"

typedef struct {
    const char *positional[2], *floor, *no_gate, *json_out, *mode, *positions;
    opt_list only;
    bool json, all, rows;
} options;

static dsf_status write_json(const char *path, const dsf_diff_report *r)
{
    dsf_buf b = {0};
    dsf_file_out out;
    dsf_status st = DSF_OK;
    dsf_diff_json(r, &b);
    DSF_TRY_OUT(dsf_buf_status(&b));
    DSF_TRY_OUT(dsf_file_create(&out, path));
    st = dsf_file_write(&out, b.data, b.len);
    if (st == DSF_OK) st = dsf_file_finish(&out);
    if (st != DSF_OK) dsf_file_abandon(&out);
out:
    dsf_buf_free(&b);
    return st;
}

static int answer(const options *o, const dsf_diff_report *r)
{
    dsf_buf b = {0};
    if (o->json)
        dsf_diff_json(r, &b);
    else
        dsf_diff_print(r, o->all, &b);
    int code = dsf_cmd_print(&b);
    dsf_buf_free(&b);
    if (code != DSF_EXIT_GOOD) return code;
    return r->good || !r->gated ? DSF_EXIT_GOOD : DSF_EXIT_NO;
}

/* "A-B" or "A". */
static dsf_status parse_positions(const char *text, dsf_diff_options *d)
{
    char *end, *second;
    if (!text) return DSF_OK;
    long from = strtol(text, &end, 10), to = from;
    bool good = end > text;
    if (good && *end == '-') {
        second = end + 1;
        to = strtol(second, &end, 10);
        good = end > second;
    }
    if (!good || *end || from < 0 || to < from)
        return DSF_FAIL(DSF_EINVAL, "--positions %s: A-B or A is allowed", text);
    d->by_position = true;
    d->position_from = from;
    d->position_to = to;
    return DSF_OK;
}

int dsf_cmd_diff(int argc, char **argv)
{
    options o = {0};
    const opt opts[] = {
        {"--floor", OPT_STRING, &o.floor, "FLOOR.json",
         "measured noise that limits come from; without it they are provisional and no pass"},
        {"--only", OPT_LIST, &o.only, "GLOB,...",
         "compare these taps, which must be there: layers/03/**, attn/q"},
        {"--positions", OPT_STRING, &o.positions, "A-B",
         "compare the rows of these positions, of a dump made with --positions"},
        {"--mode", OPT_STRING, &o.mode, "MODE",
         "judge B as exact, cone, replay or injected, whatever its attribute says"},
        {"--no-gate", OPT_STRING, &o.no_gate, "LABEL",
         "report without a verdict: the two are not meant to be equal"},
        {"--all", OPT_FLAG, &o.all, NULL,
         "every tap, not the first failing ones and one line a kind"},
        {"--rows", OPT_FLAG, &o.rows, NULL, "figures of every row in the JSON"},
        {"--json", OPT_FLAG, &o.json, NULL, "the report as JSON"},
        {"--json-out", OPT_STRING, &o.json_out, "FILE", "the report as JSON into a file too"},
    };
    const opt_spec spec = {
        .command = "diff",
        .synopsis = "A.h5 B.h5 [--floor FLOOR.json]",
        .about = "Compares two dumps in execution order. A is the reference. The first line is the "
                 "verdict:\nthe first divergence with both values, or what was compared. Either "
                 "may hold statistics\n(dsf dump --stats): then the hashes of blocks of rows are "
                 "compared.",
        .example = "dsf diff golden/mini/dump-p0.h5 ours.h5 --floor golden/mini/noise_floor.json",
        .opts = opts,
        .n_opts = (int)(sizeof opts / sizeof *opts),
        .positional = o.positional,
        .n_positional = 2,
        .n_required = 2,
    };
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    dsf_diff_options d = {.reference = o.positional[0],
                          .ours = o.positional[1],
                          .floor = o.floor,
                          .only = o.only.item,
                          .n_only = o.only.n,
                          .no_gate = o.no_gate,
                          .mode = o.mode,
                          .rows = o.rows};
    const char *const input[] = {d.reference, d.ours, d.floor};
    dsf_diff_report r = {.n_taps = 0};
    dsf_status st = dsf_inputs_check_out(o.json_out, input, 3);
    if (st == DSF_OK) st = parse_positions(o.positions, &d);
    if (st == DSF_OK) st = dsf_diff_run(&d, &r);
    if (st == DSF_OK && o.json_out) st = write_json(o.json_out, &r);
    code = st == DSF_OK ? answer(&o, &r) : dsf_cmd_fail("diff", st);
    dsf_diff_report_free(&r);
    return code;
}
