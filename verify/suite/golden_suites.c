/* Suites against golden dumps: layers (injected) and logits (free-running). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "verify/diff/diff.h"
#include "verify/diff/logits.h"
#include "verify/dump/reader.h"
#include "verify/dump/run.h"
#include "verify/graft/graft.h"
#include "verify/suite/suite.h"

static const char *set_name(const char *set)
{
    const char *slash = strrchr(set, '/');
    return slash && slash[1] ? slash + 1 : set;
}

/* --floor, else the set's own, else that of the folder above; "" when there is none. */
static dsf_status find_floor(const dsf_verify_options *o, const char *set, char *path)
{
    path[0] = 0;
    if (o->floor) {
        (void)snprintf(path, 4096, "%s", o->floor);
        return DSF_OK;
    }
    static const char *const where[] = {"noise_floor.json", "../noise_floor.json"};
    for (int i = 0; i < 2; i++) {
        DSF_TRY(dsf_file_join(path, set, where[i]));
        if (dsf_file_exists(path)) return DSF_OK;
    }
    path[0] = 0;
    return DSF_OK;
}

typedef struct {
    double worst;
    const dsf_diff_tap *tap, *out;
    int64_t taps, equal;
} layer_line;

/* One line a layer: its worst tap against its limit, and the stream that leaves it. */
static void add_layers(const dsf_diff_report *r, dsf_buf *b)
{
    layer_line line[256] = {{0}};
    int last = -1;
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        if (t->layer < 0 || t->layer >= 256 || strncmp(t->path, "layers/", 7) != 0) continue;
        layer_line *l = &line[t->layer];
        if (t->layer > last) last = t->layer;
        l->taps++;
        l->equal += t->verdict == DSF_DIFF_EXACT;
        if (!l->tap || t->ratio > l->worst) {
            l->worst = t->ratio;
            l->tap = t;
        }
        if (strcmp(t->kind, "out") == 0) l->out = t;
    }
    if (last < 0) return;
    dsf_buf_fmt(b, "  %-6s %5s %9s  %-26s %10s %10s %7s   %s\n", "layer", "taps", "bit-equal",
                "nearest to its limit", "row max", "limit", "ratio", "out: rel L2, unequal rows");
    for (int l = 0; l <= last; l++) {
        if (!line[l].tap) continue;
        const dsf_diff_tap *t = line[l].tap;
        dsf_buf_fmt(b, "  %-6d %5lld %9lld  %-26s %10.2e %10.2e %7.2f   ", l,
                    (long long)line[l].taps, (long long)line[l].equal, t->kind, t->row_max,
                    t->limit_row, line[l].worst);
        if (line[l].out)
            dsf_buf_fmt(b, "%.1e, %lld of %lld\n", line[l].out->rel_l2,
                        (long long)line[l].out->unequal, (long long)line[l].out->rows);
        else
            dsf_buf_str(b, "-\n");
    }
}

static void judge(dsf_check_result *c, const char *golden, const char *ours, const char *floor,
                  bool layers)
{
    const dsf_diff_options d = {.reference = golden, .ours = ours, .floor = *floor ? floor : NULL};
    dsf_diff_report r;
    if (dsf_diff_run(&d, &r) != DSF_OK) {
        c->verdict = DSF_COULD_NOT;
        (void)snprintf(c->words, sizeof c->words, "%s", dsf_error_message());
    } else {
        c->verdict = r.good && r.values > 0 ? DSF_PASS : DSF_FAILED;
        c->compared = r.values;
        (void)snprintf(c->words, sizeof c->words, "%s", r.verdict);
        if (layers) add_layers(&r, &c->detail);
        if (!r.good) dsf_diff_print(&r, false, &c->detail);
        if (r.logits.present)
            dsf_buf_fmt(&c->detail, "  logits: %lld rows, mean KL %.2e, best token equal %.4f\n",
                        (long long)r.logits.rows, r.logits.kl_mean, r.logits.top1);
    }
    dsf_diff_report_free(&r);
}

/* lost: taps that the engine no longer shows although their inputs are given. */
static dsf_status graft(const dsf_verify_options *o, const char *model, const char *golden,
                        const char *out, int64_t *lost)
{
    const dsf_graft_options g = {.model = model,
                                 .golden = golden,
                                 .out = out,
                                 .variants = o->variants,
                                 .backend = o->backend ? o->backend : "cpu",
                                 .threads = o->threads};
    dsf_graft_report r;
    dsf_status st = dsf_graft_run(&g, &r);
    *lost = r.n_lost;
    dsf_graft_report_free(&r);
    return st;
}

static dsf_status run_free(const dsf_verify_options *o, const char *model, const char *golden,
                           const char *out, int64_t *lost)
{
    *lost = 0;
    const dsf_dump_run d = {.engine = {.model = model,
                                       .prefill = DSF_PREFILL_EXACT,
                                       .variants = o->variants,
                                       .threads = o->threads},
                            .out = out,
                            .backend = o->backend ? o->backend : "cpu",
                            .inputs_from = golden,
                            .draft = true};
    dsf_dump_run_report r;
    return dsf_dump_run_model(&d, &r);
}

typedef dsf_status make_fn(const dsf_verify_options *o, const char *model, const char *golden,
                           const char *out, int64_t *lost);

/* One check for each dump of the set. */
static dsf_status over_dumps(const dsf_verify_options *o, const char *model, const char *set,
                             dsf_results *r, const char *suite, make_fn *make)
{
    char golden[4096], floor[4096], file[32];
    DSF_TRY(find_floor(o, set, floor));
    for (int p = 0; p < 100; p++) {
        (void)snprintf(file, sizeof file, "dump-p%d.h5", p);
        DSF_TRY(dsf_file_join(golden, set, file));
        if (!dsf_file_exists(golden)) continue;
        (void)snprintf(file, sizeof file, "p%d", p);
        char name[80];
        (void)snprintf(name, sizeof name, "%s/%.40s/%s", suite, set_name(set), file);
        dsf_check_result *c = dsf_results_add(r, suite, name);
        if (!c) return r->status;
        int64_t t0 = dsf_clock_ns();
        const char *out = o->temp;
        int64_t lost;
        if (make(o, model, golden, out, &lost) == DSF_OK) {
            judge(c, golden, out, floor, make == graft);
            if (lost) c->verdict = DSF_FAILED;
            if (lost)
                (void)snprintf(
                    c->words, sizeof c->words,
                    "%lld taps are no longer shown, though their inputs are given: dsf graft names them",
                    (long long)lost);
        } else {
            c->verdict = DSF_COULD_NOT;
            (void)snprintf(c->words, sizeof c->words, "%s", dsf_error_message());
        }
        (void)unlink(out);
        c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
        if (o->progress) o->progress(name, 1, 1);
    }
    return DSF_OK;
}

/* ---- decoder replay (architecture.md 2.3) against ced/ of the dump ---- */

static dsf_status run_replay(const dsf_verify_options *o, const char *model, const char *golden,
                             const char *out)
{
    static const char *const taps[] = {"logits"};
    const dsf_dump_run d = {.engine = {.model = model,
                                       .prefill = DSF_PREFILL_REPLAY,
                                       .variants = o->variants,
                                       .threads = o->threads},
                            .out = out,
                            .backend = o->backend ? o->backend : "cpu",
                            .inputs_from = golden,
                            .filter = {.glob = taps, .n_globs = 1}};
    dsf_dump_run_report r;
    return dsf_dump_run_model(&d, &r);
}

/* The last row's distribution; free-running, so the rule of prompts with selection (20 mnat, best
 * token). */
static dsf_status compare_replay(dsf_check_result *c, dsf_dump_file *golden, dsf_dump_file *ours)
{
    dsf_dump_array a = {.n = 0}, b = {.n = 0};
    int64_t *pair = NULL, n = 0;
    dsf_row *row = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_dump_read(golden, "ced/logits", &a));
    DSF_TRY_OUT(dsf_dump_read(ours, "logits", &b));
    DSF_TRY_OUT(dsf_dump_join(&a, &b, &pair, &n));
    if (a.width != b.width || !a.f || !b.f)
        DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT, "ced/logits: %lld values a row, ours %lld",
                             (long long)a.width, (long long)b.width));
    DSF_TRY_OUT(dsf_mem_new(&row, (size_t)n + 1, sizeof *row));
    const dsf_joined j = {.a = &a, .b = &b, .pair = pair, .n = n, .width = a.width};
    dsf_diff_logits l;
    dsf_logits_compare(&j, row, &l);
    int64_t near = l.ties + l.warned;
    c->compared = l.rows * a.width;
    c->verdict = l.rows > 0 && l.kl_mean <= 2e-2 && l.wrong == 0 ? DSF_PASS : DSF_FAILED;
    (void)snprintf(
        c->words, sizeof c->words,
        "decoder replay: %lld rows against ced/logits, mean KL %.2e (limit 2e-2), best token equal %.4f, near ties %lld",
        (long long)l.rows, l.kl_mean, l.top1, (long long)near);
out:
    dsf_mem_free(row);
    dsf_mem_free(pair);
    dsf_dump_array_free(&a);
    dsf_dump_array_free(&b);
    return st;
}

static dsf_status judge_replay(const dsf_verify_options *o, const char *model, const char *set,
                               dsf_dump_file *golden, dsf_results *r)
{
    char name[80], path[4096];
    dsf_dump_file *ours = NULL;
    (void)snprintf(name, sizeof name, "logits/%.40s/p0 replay", set_name(set));
    dsf_check_result *c = dsf_results_add(r, "logits", name);
    if (!c) return r->status;
    const char *out = o->temp;
    int64_t t0 = dsf_clock_ns();
    dsf_status st = dsf_file_join(path, set, "dump-p0.h5");
    if (st == DSF_OK) st = run_replay(o, model, path, out);
    if (st == DSF_OK) st = dsf_dump_open(&ours, out);
    if (st == DSF_OK) st = compare_replay(c, golden, ours);
    if (st != DSF_OK) (void)snprintf(c->words, sizeof c->words, "%s", dsf_error_message());
    dsf_dump_close(ours);
    (void)unlink(out);
    c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
    return DSF_OK;
}

/* Only where the golden holds it. */
static dsf_status suite_replay(const dsf_verify_options *o, const char *model, const char *set,
                               dsf_results *r)
{
    char path[4096];
    dsf_dump_file *golden = NULL;
    DSF_TRY(dsf_file_join(path, set, "dump-p0.h5"));
    if (dsf_dump_open(&golden, path) != DSF_OK) return DSF_OK; /* the checks above told so */
    dsf_status st =
        dsf_dump_find(golden, "ced/logits") ? judge_replay(o, model, set, golden, r) : DSF_OK;
    dsf_dump_close(golden);
    return st;
}

dsf_status dsf_suite_layers(const dsf_verify_options *o, const char *model, const char *set,
                            dsf_results *r)
{
    return over_dumps(o, model, set, r, "layers", graft);
}

dsf_status dsf_suite_logits(const dsf_verify_options *o, const char *model, const char *set,
                            dsf_results *r)
{
    DSF_TRY(over_dumps(o, model, set, r, "logits", run_free));
    return suite_replay(o, model, set, r);
}
