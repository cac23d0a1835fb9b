/* dsf bench: measurements as ratios. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "bench_measure.h"

enum { LEAST_REPEAT = 5 };

static void take_line(void *ud, const char *json, const char *text)
{
    bench_options *o = ud;
    if (json) {
        dsf_buf_str(&o->lines, json);
        dsf_buf_char(&o->lines, '\n');
    }
    if (o->format == DSF_FORMAT_JSON && json) (void)printf("%s\n", json);
    if (o->format == DSF_FORMAT_TABLE) (void)printf("%s\n", text);
    (void)fflush(stdout);
}

/* What is printed and written when all lines are there. */
static dsf_status put_out(const bench_options *o)
{
    dsf_buf out = {.max = 0};
    if (o->paced) return DSF_OK;
    if (o->json_out) DSF_TRY(dsf_inputs_write(o->json_out, &o->lines));
    if (o->format == DSF_FORMAT_TABLE || o->format == DSF_FORMAT_JSON) return DSF_OK;
    dsf_status st = dsf_format_rows(&o->lines, o->format, &out);
    if (st == DSF_OK) st = dsf_inputs_print(&out);
    dsf_buf_free(&out);
    return st;
}

static void show_progress(void *ud, const char *name, int64_t done, int64_t total)
{
    (void)ud;
    dsf_progress(name, done, total);
}

static dsf_status open_baseline(const char *path, dsf_baseline **out)
{
    dsf_file f;
    DSF_TRY(dsf_file_open(&f, path));
    dsf_status st = dsf_baseline_open(out, path, (const char *)f.data, f.size);
    dsf_file_close(&f);
    return st;
}

static dsf_status check(const bench_options *o)
{
    DSF_TRY(bench_check_kind(o->what));
    if (o->repeat && (o->repeat < LEAST_REPEAT || o->repeat > DSF_BENCH_SAMPLES))
        return DSF_FAIL(DSF_EINVAL, "--repeat %lld: %d to %d", (long long)o->repeat, LEAST_REPEAT,
                        (int)DSF_BENCH_SAMPLES);
    if (o->baseline && o->program)
        return DSF_FAIL(DSF_EINVAL, "--baseline and --baseline-program: one of them");
    DSF_TRY(bench_check_numbers(o));
    return dsf_inputs_check_out(o->json_out, NULL, 0);
}

static dsf_status run(bench_options *o, dsf_bench *b)
{
    DSF_TRY(check(o));
    if (o->format_word) DSF_TRY(dsf_format_parse(o->format_word, &o->format));
    bool rows = o->format != DSF_FORMAT_TABLE && o->format != DSF_FORMAT_JSON;
    if (rows && strcmp(o->what, "limits") == 0)
        return DSF_FAIL(DSF_EINVAL, "--format %s: limits has table and json", o->format_word);
    if (o->json || o->paced) o->format = DSF_FORMAT_JSON;
    b->out = (dsf_bench_out){take_line, show_progress, o};
    b->repeat = o->repeat ? (int)o->repeat : bench_default_repeat(o);
    b->conditions = o->conditions;
    b->paced = o->paced;
    if (o->baseline && !o->paced) DSF_TRY(open_baseline(o->baseline, &b->baseline));
    DSF_TRY(dsf_bench_open(b, (int)o->in.threads, bench_rate_buffer(o)));
    DSF_TRY(bench_measure(b, o));
    return put_out(o);
}

static bench_options given = {.ref_tokens = 4,
                              .engram_vocab = 2700000,
                              .gpus = 1,
                              .rate = 4800, /* of an H200, by its datasheet */
                              .file = "dsf-bench-dump.h5"};

static const opt opts[] = {
    {"--op", OPT_STRING, &given.op, "GLOB", "op: only operations of this name"},
    {"--shape", OPT_STRING, &given.shape, "SIZES", "op: sizes in the order of the op's letters"},
    {"--rows", OPT_INT, &given.rows, "N", "op: only cases of N rows; disk: rows a round (4096)"},
    {"--variant", OPT_STRING, &given.variant, "GLOB",
     "op on a GPU: these kernels (default: what a plan takes)"},
    {"--at", OPT_LIST, &given.at, "N,N",
     "decode: contexts to measure at (128); prefill: tokens before (0); --synthetic: 4096"},
    {"--synthetic", OPT_STRING, &given.synthetic, "LAYERS",
     "decode, prefill on a GPU: these layers of the released model, weights made there"},
    {"--batch", OPT_LIST, &given.batch, "N,N", "decode: sequences a step (1)"},
    {"--gpus", OPT_INT, &given.gpus, "N", "limits: devices that share the work (1)"},
    {"--rate", OPT_NUMBER, &given.rate, "GB_S", "limits: what the memory of one reads (4800)"},
    {"--engram-vocab", OPT_INT, &given.engram_vocab, "N",
     "--synthetic: rows of an Engram table's column (2700000: 64M rows each)"},
    {"--tokens", OPT_INT, &given.tokens, "N",
     "decode: tokens at each (32); prompt of prefill (512), dump (4096)"},
    {"--file", OPT_STRING, &given.file, "FILE", "dump: the file to write, and to remove again"},
    {"--ref-tokens", OPT_INT, &given.ref_tokens, "N",
     "tokens checked against the reference, whose time is the control (default 4)"},
    {"--repeat", OPT_INT, &given.repeat, "N",
     "rounds of each measurement, 5 or more (101; prefill, dump 5; load, disk 9); pairs (8)"},
    {"--baseline", OPT_STRING, &given.baseline, "FILE",
     "earlier lines to compare with: faster, slower (exit 1) or no difference"},
    {"--baseline-program", OPT_STRING, &given.program, "DSF",
     "another build to measure in alternation with: faster, slower (exit 1) or no difference"},
    {"--least-change", OPT_NUMBER, &given.least_change, "PERCENT",
     "--baseline-program: less is no difference (default 10; on a GPU 3)"},
    {"--paced", OPT_FLAG, &given.paced, NULL,
     "what --baseline-program starts: a round for each r on standard input"},
    {"--conditions", OPT_STRING, &given.conditions, "TEXT", "words kept in every JSON line"},
    {"--format", OPT_STRING, &given.format_word, "F",
     "table, json, md, csv, sql (as llama-bench), ds4 (ds4-bench's columns; decode)"},
    {"--json", OPT_FLAG, &given.json, NULL, "one JSON line a measurement: --format json"},
    {"--json-out", OPT_STRING, &given.json_out, "FILE", "the same lines to FILE"},
    INPUT_ENGINE_OPTS(given.in),
};

int dsf_cmd_bench(int argc, char **argv)
{
    const char *positional[2] = {NULL, NULL};
    const opt_spec spec = {
        .command = "bench",
        .synopsis =
            "ceiling | op | decode MODEL | prefill MODEL | load MODEL | disk MODEL | memory "
            "MODEL | dump MODEL | limits [MODEL]",
        .about =
            "Measures speed beside this machine's own limits, measured between the runs.\n"
            "With --backend cuda: op, and decode and prefill of layers made there (--synthetic).\n"
            "Output is checked first: a wrong one is refused and not timed (exit 1).\n"
            "memory: resident bytes and arenas against the plan (exit 1 when over).\n"
            "load: a checkpoint from the disk and from the cache. disk: Engram rows at random.\n"
            "dump: time with a full dump and with statistics beside the run without.\n"
            "limits: what the model costs on paper. serve, comm: not in this version (exit 3).",
        .example = "dsf bench op --op 'linear_*' --rows 1 --json-out op.json",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 2,
        .n_required = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    given.what = positional[0];
    given.argv = argv + 1;
    given.in.model = positional[1];
    dsf_bench b = {.repeat = 0};
    dsf_status st = run(&given, &b);
    dsf_bench_close(&b);
    dsf_baseline_close(b.baseline);
    dsf_buf_free(&given.lines);
    if (st != DSF_OK) return dsf_cmd_fail("bench", st);
    return b.refused || b.missed || b.slower ? DSF_EXIT_NO : DSF_EXIT_GOOD;
}
