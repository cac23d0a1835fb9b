#include "bench_measure.h"

#include <stdlib.h>
#include <string.h>

#include "bench/ab.h"
#include "config.h"

enum { MOST_CONTEXTS = 32, MOST_TOKENS = 1 << 30 };

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
        if (end == list->item[i] || *end || at[i] < least || at[i] > MOST_TOKENS)
            return DSF_FAIL(DSF_EINVAL, "%s: \"%s\" is no number from %lld to %d", name,
                            list->item[i], (long long)least, (int)MOST_TOKENS);
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

static dsf_status measure_model(dsf_bench *b, const bench_options *o)
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

static bool on_device(const bench_options *o)
{
    return o->in.backend && strcmp(o->in.backend, "cuda") == 0;
}

static dsf_status measure_op(dsf_bench *b, const bench_options *o)
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

static dsf_status measure_synthetic(dsf_bench *b, const bench_options *o)
{
    int64_t at[MOST_CONTEXTS], batch[MOST_CONTEXTS];
    dsf_bench_synthetic_options s = {.layers = o->synthetic,
                                     .engram_vocab = o->engram_vocab,
                                     .context = at,
                                     .batch = batch,
                                     .chunk = o->in.chunk ? o->in.chunk : 8192};
    if (b->paced)
        return DSF_FAIL(DSF_ENOTSUP,
                        "--baseline-program: for op on a GPU, not for --synthetic yet");
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

static dsf_status compare(dsf_bench *b, const bench_options *o)
{
    const dsf_ab_options ab = {.program = o->program,
                               .argv = o->argv,
                               .least = o->least_change > 0 ? o->least_change / 100
                                        : on_device(o)      ? 0.03
                                                            : 0.1,
                               .pairs = o->repeat ? (int)o->repeat : 8};
    return dsf_ab_run(b, &ab);
}

static dsf_status measure_limits(dsf_bench *b, const bench_options *o)
{
    int64_t at[MOST_CONTEXTS], batch[MOST_CONTEXTS];
    dsf_bench_limits_options l = {.folder = o->in.model,
                                  .gpus = o->gpus,
                                  .chunk = o->in.chunk ? o->in.chunk : 8192,
                                  .rate = o->rate * 1e9,
                                  .context = at,
                                  .batch = batch};
    DSF_TRY(parse_numbers("--at", &o->at, 0, at, &l.n_contexts));
    DSF_TRY(parse_numbers("--batch", &o->batch, 1, batch, &l.n_batches));
    return dsf_bench_limits(b, &l);
}

static dsf_status measure_ceiling(dsf_bench *b, const bench_options *o)
{
    (void)o;
    return dsf_bench_ceiling(b);
}

static dsf_status measure_load(dsf_bench *b, const bench_options *o)
{
    if (!o->in.model) return DSF_FAIL(DSF_EINVAL, "load needs a model folder");
    return dsf_bench_load(b, o->in.model);
}

static dsf_status measure_disk(dsf_bench *b, const bench_options *o)
{
    if (!o->in.model) return DSF_FAIL(DSF_EINVAL, "disk needs a model folder");
    if (o->rows < 0 || o->rows > 1 << 24)
        return DSF_FAIL(DSF_EINVAL, "--rows %lld: 1 to %d", (long long)o->rows, 1 << 24);
    return dsf_bench_disk(b, o->in.model, o->rows ? o->rows : 4096);
}

typedef struct {
    const char *name;
    dsf_status (*measure)(dsf_bench *b, const bench_options *o); /* NULL: not yet, and why */
    const char *why;
    int rounds;
    bool host_rates; /* the host's limits are measured beside it. Not beside `memory`, which
                        measures the memory of the process. */
} kind;

static const kind kinds[] = {
    {"ceiling", measure_ceiling, NULL, 101, true},
    {"op", measure_op, NULL, 101, true},
    {"decode", measure_model, NULL, 101, true},
    {"prefill", measure_model, NULL, 5, true},
    {"load", measure_load, NULL, 9, false},
    {"disk", measure_disk, NULL, 9, false},
    {"memory", measure_model, NULL, 5, false},
    {"dump", measure_model, NULL, 5, false},
    {"limits", measure_limits, NULL, 5, false},
    {"serve", NULL, "this version has no server to load", 0, false},
    {"comm", NULL, "this version has no communication layer: one process, one device", 0, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const kind *find_kind(const char *what)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(what, kinds[i].name) == 0) return &kinds[i];
    return NULL;
}

dsf_status bench_check_kind(const char *what)
{
    const char *names[KINDS];
    const kind *k = find_kind(what);
    dsf_buf list = {.max = 0};
    if (k && k->measure) return DSF_OK;
    if (k) return DSF_FAIL(DSF_ENOTSUP, "bench %s: %s", what, k->why);
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i].name;
        if (kinds[i].measure) dsf_buf_fmt(&list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = dsf_cmd_nearest(what, names, KINDS);
    dsf_status st = DSF_FAIL(DSF_EINVAL, "nothing to measure is called \"%s\"; meant %s? (%s)",
                             what, near ? near : "op", list.data ? list.data : "");
    dsf_buf_free(&list);
    return st;
}

size_t bench_rate_buffer(const bench_options *o)
{
    bool here = find_kind(o->what)->host_rates && !on_device(o) && !o->program && !o->paced;
    return here ? (size_t)2 << 30 : 0;
}

int bench_default_repeat(const bench_options *o)
{
    int rounds = find_kind(o->what)->rounds;
    return on_device(o) && rounds > 25 ? 25 : rounds;
}

dsf_status bench_check_numbers(const bench_options *o)
{
    const struct {
        const char *name;
        int64_t n;
    } of[] = {{"--tokens", o->tokens}, {"--ref-tokens", o->ref_tokens}, {"--rows", o->rows}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].n < 0 || of[i].n > MOST_TOKENS)
            return DSF_FAIL(DSF_EINVAL, "%s %lld: 0 to %d", of[i].name, (long long)of[i].n,
                            (int)MOST_TOKENS);
    if (!(o->least_change >= 0 && o->least_change <= 1000))
        return DSF_FAIL(DSF_EINVAL, "--least-change %g: above 0, to 1000", o->least_change);
    return DSF_OK;
}

dsf_status bench_measure(dsf_bench *b, const bench_options *o)
{
    if (o->program && !o->paced) return compare(b, o);
    if (o->synthetic) return measure_synthetic(b, o);
    return find_kind(o->what)->measure(b, o);
}
