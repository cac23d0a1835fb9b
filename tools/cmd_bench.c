/* dsf bench: measurements as ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "bench/ab.h"
#include "bench/format.h"
#include "config.h"
#include "inputs.h"

enum { MOST_CONTEXTS = 32 };

typedef struct {
    input_options in;
    const char *what, *op, *shape, *variant, *synthetic, *json_out, *conditions, *baseline, *file;
    const char *program; /* another build, to alternate with */
    char **argv;
    int64_t repeat, rows, tokens, ref_tokens, engram_vocab;
    double least_change;
    opt_list at, batch;
    const char *format_word;
    dsf_format format;
    bool json, paced;
    dsf_buf lines; /* for --json-out and the formats that need all of them */
} options;

static void take_line(void *ud, const char *json, const char *text)
{
    options *o = ud;
    if (json) {
        dsf_buf_str(&o->lines, json);
        dsf_buf_char(&o->lines, '\n');
    }
    if (o->format == DSF_FORMAT_JSON && json) (void)printf("%s\n", json);
    if (o->format == DSF_FORMAT_TABLE) (void)printf("%s\n", text);
    (void)fflush(stdout);
}

/* What is printed and written when all lines are there. */
static dsf_status put_out(const options *o)
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

/* Numbers from 1, or from 0 where that is what stands there without any. */
static dsf_status parse_numbers(const char *name, const opt_list *list, int64_t otherwise,
                                int64_t *at, int *n)
{
    int64_t least = otherwise ? 1 : 0;
    *n = list->n ? list->n : 1;
    at[0] = otherwise;
    if (list->n > MOST_CONTEXTS)
        return DSF_FAIL(DSF_EINVAL, "%s: %d numbers, at most %d", name, list->n, MOST_CONTEXTS);
    for (int i = 0; i < list->n; i++) {
        char *end = NULL;
        at[i] = strtoll(list->item[i], &end, 10);
        if (end == list->item[i] || *end || at[i] < least)
            return DSF_FAIL(DSF_EINVAL, "%s: \"%s\" is no number from %lld", name, list->item[i],
                            (long long)least);
    }
    return DSF_OK;
}

static dsf_status measure_dump(dsf_bench *b, dsf_bench_model_options *m)
{
    if (m->engine.chunk == 0) m->engine.chunk = 512;
#if HAVE_HDF5
    return dsf_bench_dump(b, m);
#else
    (void)b;
    return DSF_FAIL(DSF_ENOTSUP, "bench dump: this build has no HDF5");
#endif
}

static dsf_status measure_model(dsf_bench *b, options *o)
{
    const char *accept[33];
    int64_t at[MOST_CONTEXTS], batch[MOST_CONTEXTS];
    dsf_bench_model_options m = {
        .context = at, .batch = batch, .ref_tokens = o->ref_tokens, .file = o->file};
    if (!o->in.model) return DSF_FAIL(DSF_EINVAL, "%s needs a model folder", o->what);
    bool dump = strcmp(o->what, "dump") == 0;
    DSF_TRY(dsf_inputs_options(&o->in, dump ? "exact" : "cone", &m.engine, accept));
    m.engine.threads = b->host.threads;
    bool decode = strcmp(o->what, "decode") == 0;
    DSF_TRY(parse_numbers("--at", &o->at, decode ? 128 : 0, at, &m.n_contexts));
    DSF_TRY(parse_numbers("--batch", &o->batch, 1, batch, &m.n_batches));
    m.tokens = o->tokens ? o->tokens : decode ? 32 : dump ? 4096 : 512;
    if (dump) return measure_dump(b, &m);
    if (decode) return dsf_bench_decode(b, &m);
    return strcmp(o->what, "prefill") == 0 ? dsf_bench_prefill(b, &m) : dsf_bench_memory(b, &m);
}

static bool on_device(const options *o)
{
    return o->in.backend && strcmp(o->in.backend, "cuda") == 0;
}

static dsf_status measure_op(dsf_bench *b, const options *o)
{
    const dsf_bench_op_options op = {
        .glob = o->op, .shape = o->shape, .rows = o->rows, .variant = o->variant};
    if (!on_device(o)) return dsf_bench_op(b, &op);
#if HAVE_CUDA
    return dsf_bench_op_device(b, &op);
#else
    return DSF_FAIL(DSF_ENOTSUP, "--backend cuda: this build has no CUDA kernels");
#endif
}

static dsf_status measure_synthetic(dsf_bench *b, const options *o)
{
    int64_t at[MOST_CONTEXTS], batch[MOST_CONTEXTS];
    dsf_bench_synthetic_options s = {.layers = o->synthetic,
                                     .engram_vocab = o->engram_vocab,
                                     .context = at,
                                     .batch = batch,
                                     .chunk = o->in.chunk ? o->in.chunk : 8192};
    if (!on_device(o))
        return DSF_FAIL(DSF_EINVAL, "--synthetic: weights are made on a GPU, with --backend cuda");
    DSF_TRY(parse_numbers("--at", &o->at, 4096, at, &s.n_contexts));
    DSF_TRY(parse_numbers("--batch", &o->batch, 1, batch, &s.n_batches));
#if HAVE_CUDA
    if (strcmp(o->what, "decode") == 0) return dsf_bench_decode_device(b, &s);
    if (strcmp(o->what, "prefill") == 0) return dsf_bench_prefill_device(b, &s);
    return DSF_FAIL(DSF_EINVAL, "--synthetic: for decode and prefill, not for %s", o->what);
#else
    (void)b;
    return DSF_FAIL(DSF_ENOTSUP, "--backend cuda: this build has no CUDA kernels");
#endif
}

static dsf_status compare(dsf_bench *b, const options *o)
{
    const dsf_ab_options ab = {.program = o->program,
                               .argv = o->argv,
                               .least = o->least_change > 0 ? o->least_change / 100
                                        : on_device(o)      ? 0.03
                                                            : 0.1,
                               .pairs = o->repeat ? (int)o->repeat : 8};
    return dsf_ab_run(b, &ab);
}

static dsf_status measure(dsf_bench *b, options *o)
{
    if (o->program && !o->paced) return compare(b, o);
    if (strcmp(o->what, "ceiling") == 0) return dsf_bench_ceiling(b);
    if (strcmp(o->what, "op") == 0) return measure_op(b, o);
    return o->synthetic ? measure_synthetic(b, o) : measure_model(b, o);
}

/* Names what can be measured; what cannot yet says why. */
static dsf_status check_kind(const char *what)
{
    static const struct {
        const char *name, *why; /* NULL: it can */
    } kind[] = {{"ceiling", NULL},
                {"op", NULL},
                {"decode", NULL},
                {"prefill", NULL},
                {"memory", NULL},
                {"dump", NULL},
                {"serve", "this version has no server to load"},
                {"comm", "this version has no communication layer: one process, one device"}};
    enum { KINDS = sizeof kind / sizeof *kind };
    const char *names[KINDS];
    dsf_buf list = {.max = 0};
    for (int i = 0; i < KINDS; i++) {
        names[i] = kind[i].name;
        if (!kind[i].why) dsf_buf_fmt(&list, "%s%s", i ? ", " : "", kind[i].name);
        if (strcmp(what, kind[i].name) != 0) continue;
        dsf_buf_free(&list);
        if (kind[i].why) return DSF_FAIL(DSF_ENOTSUP, "bench %s: %s", what, kind[i].why);
        return DSF_OK;
    }
    const char *near = dsf_cmd_nearest(what, names, KINDS);
    dsf_status st = DSF_FAIL(DSF_EINVAL, "nothing to measure is called \"%s\"; meant %s? (%s)",
                             what, near ? near : "op", list.data ? list.data : "");
    dsf_buf_free(&list);
    return st;
}

static dsf_status run(options *o, dsf_bench *b)
{
    DSF_TRY(check_kind(o->what));
    if (o->format_word) DSF_TRY(dsf_format_parse(o->format_word, &o->format));
    if (o->json || o->paced) o->format = DSF_FORMAT_JSON;
    if (o->repeat < 0 || o->repeat > DSF_BENCH_SAMPLES)
        return DSF_FAIL(DSF_EINVAL, "--repeat %lld: 1 to %d", (long long)o->repeat,
                        (int)DSF_BENCH_SAMPLES);
    DSF_TRY(dsf_inputs_check_out(o->json_out, NULL, 0));
    bool memory = strcmp(o->what, "memory") == 0, dump = strcmp(o->what, "dump") == 0;
    bool prompts = dump || strcmp(o->what, "prefill") == 0;
    b->out = (dsf_bench_out){take_line, show_progress, o};
    b->repeat = o->repeat ? (int)o->repeat : prompts ? 5 : on_device(o) ? 25 : 101;
    b->conditions = o->conditions;
    b->paced = o->paced;
    if (o->baseline && !o->paced) DSF_TRY(open_baseline(o->baseline, &b->baseline));
    /* The memory of the process is what `memory` measures: no buffer beside it. */
    bool host_rates = !memory && !dump && !on_device(o) && !o->program && !o->paced;
    DSF_TRY(dsf_bench_open(b, (int)o->in.threads, host_rates ? (size_t)2 << 30 : 0));
    DSF_TRY(measure(b, o));
    return put_out(o);
}

int dsf_cmd_bench(int argc, char **argv)
{
    options o = {.ref_tokens = 4, .engram_vocab = 2700000, .file = "dsf-bench-dump.h5"};
    const opt opts[] = {
        {"--op", OPT_STRING, &o.op, "GLOB", "op: only operations of this name"},
        {"--shape", OPT_STRING, &o.shape, "SIZES", "op: sizes in the order of the op's letters"},
        {"--rows", OPT_INT, &o.rows, "N", "op: only cases of N rows"},
        {"--variant", OPT_STRING, &o.variant, "GLOB",
         "op on a GPU: these kernels (default: what a plan takes)"},
        {"--at", OPT_LIST, &o.at, "N,N",
         "decode, --synthetic: contexts to measure at (128; --synthetic 4096)"},
        {"--synthetic", OPT_STRING, &o.synthetic, "LAYERS",
         "decode, prefill on a GPU: these layers of the released model, weights made there"},
        {"--batch", OPT_LIST, &o.batch, "N,N", "decode --synthetic: sequences a step (1)"},
        {"--engram-vocab", OPT_INT, &o.engram_vocab, "N",
         "--synthetic: rows of an Engram table's column (2700000: 64M rows each)"},
        {"--tokens", OPT_INT, &o.tokens, "N",
         "decode: tokens at each (32); prompt of prefill (512), dump (4096)"},
        {"--file", OPT_STRING, &o.file, "FILE", "dump: the file to write, and to remove again"},
        {"--ref-tokens", OPT_INT, &o.ref_tokens, "N",
         "tokens checked against the reference, whose time is the control (default 4)"},
        {"--repeat", OPT_INT, &o.repeat, "N",
         "rounds of each measurement (default 101; prefill, dump 5)"},
        {"--baseline", OPT_STRING, &o.baseline, "FILE",
         "earlier lines to compare with: faster, slower (exit 1) or no difference"},
        {"--baseline-program", OPT_STRING, &o.program, "DSF",
         "another build to measure in alternation with: faster, slower (exit 1) or no difference"},
        {"--least-change", OPT_NUMBER, &o.least_change, "PERCENT",
         "--baseline-program: less is no difference (default 10; on a GPU 3)"},
        {"--paced", OPT_FLAG, &o.paced, NULL,
         "what --baseline-program starts: a round for each r on standard input"},
        {"--conditions", OPT_STRING, &o.conditions, "TEXT", "words kept in every JSON line"},
        {"--format", OPT_STRING, &o.format_word, "F",
         "table, json, md, csv, sql (as llama-bench), ds4 (ds4-bench's columns; decode)"},
        {"--json", OPT_FLAG, &o.json, NULL, "one JSON line a measurement: --format json"},
        {"--json-out", OPT_STRING, &o.json_out, "FILE", "the same lines to FILE"},
        INPUT_ENGINE_OPTS(o.in),
    };
    const char *positional[2] = {NULL, NULL};
    const opt_spec spec = {
        .command = "bench",
        .synopsis = "ceiling | op | decode MODEL | prefill MODEL | memory MODEL | dump MODEL",
        .about =
            "Measures speed beside this machine's own limits, measured between the runs.\n"
            "With --backend cuda: op, and decode and prefill of layers made there (--synthetic).\n"
            "Output is checked first: a wrong one is refused and not timed (exit 1).\n"
            "memory: resident bytes and arenas against the plan (exit 1 when over).\n"
            "dump: time with a full dump and with statistics beside the run without.",
        .example = "dsf bench op --op 'linear_*' --rows 1 --json-out op.json",
        .opts = opts,
        .n_opts = sizeof opts / sizeof *opts,
        .positional = positional,
        .n_positional = 2,
        .n_required = 1};
    int code = dsf_opt_parse(&spec, argc, argv);
    if (code >= 0) return code;
    o.what = positional[0];
    o.argv = argv + 1;
    o.in.model = positional[1];
    dsf_bench b = {.repeat = 0};
    dsf_status st = run(&o, &b);
    dsf_bench_close(&b);
    dsf_baseline_close(b.baseline);
    dsf_buf_free(&o.lines);
    if (st != DSF_OK) return dsf_cmd_fail("bench", st);
    return b.refused || b.missed || b.slower ? DSF_EXIT_NO : DSF_EXIT_GOOD;
}
