#include "verify/graft/locate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "verify/diff/bind.h"
#include "verify/diff/metrics.h"
#include "verify/diff/sentence.h"
#include "verify/dump/reader.h"

static dsf_diff_options options_of(const dsf_locate_options *o, const char *reference,
                                   const char *ours)
{
    return (dsf_diff_options){.reference = reference,
                              .ours = ours,
                              .floor = o->floor,
                              .bind = o->graft.golden,
                              .no_gate = o->no_gate,
                              .only = o->graft.only,
                              .n_only = o->graft.n_only,
                              .by_layer = o->graft.by_layer_range,
                              .layer_from = o->graft.layer_from,
                              .layer_to = o->graft.layer_to,
                              .rows = o->rows};
}

/* Runs every operation, or every layer, on the tensors of `file` and compares with what it holds.
 */
static dsf_status run_local(const dsf_locate_options *o, const char *file, const char *out,
                            bool by_op, dsf_located *r)
{
    dsf_graft_options g = o->graft;
    g.golden = file;
    g.out = out;
    g.by_op = by_op;
    dsf_graft_report_free(&r->graft);
    dsf_diff_report_free(&r->local);
    DSF_TRY(dsf_graft_run(&g, &r->graft));
    const dsf_diff_options d = options_of(o, file, out);
    return dsf_diff_run(&d, &r->local);
}

static dsf_status count_unequal(dsf_dump_file *f, const char *a, const char *b, int64_t *n)
{
    dsf_dump_array x = {.n = 0}, y = {.n = 0};
    dsf_status st = DSF_OK;
    *n = 0;
    if (!dsf_dump_find(f, a) || !dsf_dump_find(f, b)) return DSF_OK;
    DSF_TRY_OUT(dsf_dump_read(f, a, &x));
    DSF_TRY_OUT(dsf_dump_read(f, b, &y));
    if (!x.f || !y.f || x.n != y.n || x.width != y.width) goto out;
    for (int64_t i = 0; i < x.n; i++)
        *n += memcmp(x.f + i * x.width, y.f + i * y.width, (size_t)x.width * sizeof *x.f) != 0;
out:
    dsf_dump_array_free(&x);
    dsf_dump_array_free(&y);
    return st;
}

/* A layer's inputs are given to it, so no operation is blamed for them: they must be what the layer
 * before left in the same file. */
static dsf_status check_wiring(const char *file, dsf_located *r)
{
    dsf_dump_file *f = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_dump_open(&f, file));
    const dsf_dump_geometry *g = &dsf_dump_info_of(f)->geometry;
    for (int l = 1; l < g->n_layers && !r->wiring[0]; l++)
        for (int k = 0; k < 2 && !r->wiring[0]; k++) {
            char here[64], before[64];
            int64_t n;
            dsf_tap_path(here, (dsf_tap){k ? DSF_TAP_PREMIX : DSF_TAP_IN, l}, g->n_layers);
            dsf_tap_path(before, (dsf_tap){k ? DSF_TAP_FFN_PRE : DSF_TAP_OUT, l - 1}, g->n_layers);
            DSF_TRY_OUT(count_unequal(f, here, before, &n));
            if (n)
                (void)snprintf(r->wiring, sizeof r->wiring,
                               "%s: %lld rows are not those of %s, which it must repeat", here,
                               (long long)n, before);
        }
out:
    dsf_dump_close(f);
    return st;
}

/* Whether the wiring fault lies before the first wrong operation. */
static bool wiring_first(const dsf_located *r)
{
    if (!r->wiring[0]) return false;
    return r->local.first < 0 || strncmp(r->wiring, r->local.tap[r->local.first].path, 9) <= 0;
}

static bool has_failed(const dsf_diff_tap *t) { return t->verdict == DSF_DIFF_FAILED; }

/* A value that the plan could take from the file for the operations behind it, as it stands there:
 * a quantised store takes what its grid holds. */
static bool is_given(const dsf_located *r, dsf_tap_id id)
{
    char word[64], list[1024];
    if (id == DSF_TAP_ATTN_KV_WINDOW) return false;
    (void)snprintf(word, sizeof word, " %s ", dsf_taps[id].path);
    (void)snprintf(list, sizeof list, " %s ", r->graft.given.data ? r->graft.given.data : "");
    return strstr(list, word) != NULL;
}

/* How much larger a tap's error is than the largest of what it is computed from. */
static double amplification(const dsf_diff_report *r, const dsf_diff_tap *t)
{
    for (int64_t i = 0; i < r->n_taps; i++)
        if (strcmp(r->tap[i].path, t->inputs_at) == 0 && r->tap[i].rel_l2 > 0.0)
            return t->rel_l2 / r->tap[i].rel_l2;
    return NAN;
}

static void name_carried(dsf_located *r, const dsf_diff_report *carried)
{
    r->first = carried->tap[carried->first];
    double g = amplification(carried, &r->first);
    r->local_ratio = NAN;
    const dsf_diff_tap *own = dsf_sentence_tap(&r->local, r->first.tap);
    if (own) r->local_ratio = dsf_sentence_floor_ratio(own);
    (void)snprintf(r->sentence, sizeof r->sentence,
                   "%.300s; no operation is wrong on the inputs it had: the error is carried",
                   carried->sentence);
    size_t used = strlen(r->sentence);
    if (g > 0.0)
        (void)snprintf(r->sentence + used, sizeof r->sentence - used,
                       ", amplified %.3g times from %s", g, r->first.inputs_at);
}

static void name_operation(dsf_located *r)
{
    dsf_diff_tap t = r->local.tap[r->local.first];
    const dsf_diff_tap *seen = dsf_sentence_tap(&r->carried, t.tap);
    /* in `by op` its inputs are the file's: how they stand is told by the comparison with the
     * golden */
    if (r->graft.by_op) t.inputs_ratio = seen ? seen->inputs_ratio : 0.0;
    if (seen) memcpy(t.inputs_at, seen->inputs_at, sizeof t.inputs_at);
    r->first = t;
    r->local_ratio = dsf_sentence_floor_ratio(&t);
    r->proven = true;
    dsf_sentence_write(r->sentence, sizeof r->sentence, &t);
}

bool dsf_located_also(const dsf_located *r, int64_t i)
{
    const dsf_diff_tap *t = &r->local.tap[i], *in = NULL;
    if (!r->graft.by_op || !has_failed(t) || strcmp(t->path, r->first.path) == 0) return false;
    for (int64_t k = 0; k < i && !in; k++)
        if (strcmp(r->local.tap[k].path, t->inputs_at) == 0) in = &r->local.tap[k];
    return !in || !has_failed(in) || is_given(r, in->tap.id);
}

static void conclude(dsf_located *r)
{
    bool gated = r->carried.n_taps > 0;
    bool failed = r->local.first >= 0 && has_failed(&r->local.tap[r->local.first]);
    r->good = r->local.good && r->graft.n_lost == 0 && !r->wiring[0] && (!gated || r->carried.good);
    r->local_ratio = NAN;
    if (wiring_first(r)) {
        (void)snprintf(r->first.path, sizeof r->first.path, "%.*s", (int)strcspn(r->wiring, ":"),
                       r->wiring);
        r->first.tap = (dsf_tap){DSF_TAP_NONE, -1};
        r->first.layer = -1;
        r->first.inputs_ratio = NAN;
        (void)snprintf(r->sentence, sizeof r->sentence, "%s", r->wiring);
        r->proven = true;
    } else if (failed) {
        name_operation(r);
    } else if (gated && r->carried.first >= 0 && !r->carried.good) {
        name_carried(r, &r->carried);
    } else if (gated && r->local.good && !r->carried.good) {
        (void)snprintf(r->sentence, sizeof r->sentence, "free run: %.490s", r->carried.verdict);
    } else {
        (void)snprintf(r->sentence, sizeof r->sentence, "%s", r->local.verdict);
    }
}

static dsf_status locate_ours(const dsf_locate_options *o, dsf_located *r)
{
    bool op = o->graft.by_op;
    DSF_TRY(run_local(o, o->graft.golden, o->graft.out, op, r));
    if (r->graft.by_op || r->local.first < 0 || !has_failed(&r->local.tap[r->local.first]))
        return DSF_OK;
    /* A layer is wrong: which of its operations, each on golden inputs? Errors that only arise
     * together vanish here; then the layer's own verdict stands. */
    dsf_located one = {.good = false};
    dsf_status st = run_local(o, o->graft.golden, o->temp, true, &one);
    if (st == DSF_OK && one.local.first >= 0 && has_failed(&one.local.tap[one.local.first])) {
        dsf_diff_report d = r->local;
        dsf_graft_report g = r->graft;
        r->local = one.local;
        r->graft = one.graft;
        one.local = d;
        one.graft = g;
    }
    dsf_located_free(&one);
    return st;
}

static dsf_status locate_theirs(const dsf_locate_options *o, dsf_located *r)
{
    dsf_diff_options d = options_of(o, o->graft.golden, o->ours);
    d.by_layer = false; /* how the inputs stand is told by all that ran before */
    d.n_only = 0;
    DSF_TRY(dsf_diff_run(&d, &r->carried));
    DSF_TRY(run_local(o, o->ours, o->graft.out, true, r));
    return check_wiring(o->ours, r);
}

/* The model must be the one that the golden file is of: told before anything is run. */
static dsf_status check_model(const dsf_locate_options *o)
{
    char path[4096];
    dsf_file config = {0};
    dsf_dump_file *golden = NULL;
    dsf_buf text = {0};
    dsf_status st = DSF_OK;
    if (o->no_gate) return DSF_OK;
    DSF_TRY(dsf_file_join(path, o->graft.model, "config.json"));
    DSF_TRY_OUT(dsf_file_open(&config, path));
    dsf_buf_add(&text, (const char *)config.data, config.size);
    DSF_TRY_OUT(dsf_buf_status(&text));
    DSF_TRY_OUT(dsf_dump_open(&golden, o->graft.golden));
    const dsf_dump_info own = {.path = path, .config_json = text.data ? text.data : ""};
    st = dsf_bind_configs(dsf_dump_info_of(golden), &own);
out:
    dsf_dump_close(golden);
    dsf_buf_free(&text);
    dsf_file_close(&config);
    return st;
}

dsf_status dsf_locate(const dsf_locate_options *o, dsf_located *r)
{
    *r = (dsf_located){.local_ratio = NAN};
    DSF_TRY(check_model(o));
    DSF_TRY(o->ours ? locate_theirs(o, r) : locate_ours(o, r));
    conclude(r);
    return DSF_OK;
}

void dsf_located_free(dsf_located *r)
{
    dsf_diff_report_free(&r->local);
    dsf_diff_report_free(&r->carried);
    dsf_graft_report_free(&r->graft);
    *r = (dsf_located){.good = false};
}
