#include "verify/diff/diff.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "verify/diff/bind.h"
#include "verify/diff/budget.h"
#include "verify/diff/choice.h"
#include "verify/diff/detail.h"
#include "verify/diff/gate.h"
#include "verify/diff/hashes.h"
#include "verify/diff/logits.h"
#include "verify/diff/state.h"
#include "verify/diff/verdict.h"
#include "verify/diff/walk.h"

const char *dsf_diff_verdict_name(dsf_diff_verdict v)
{
    static const char *const name[] = {"exact",       "within",   "ties",
                                       "provisional", "reported", "FAILED"};
    return name[v];
}

static void failed(dsf_diff_tap *t, const char *why)
{
    t->verdict = DSF_DIFF_FAILED;
    t->beyond = true;
    t->ratio = INFINITY;
    (void)snprintf(t->why, sizeof t->why, "%s", why);
}

/* The entry axis grows with the file's length; other rows have one shape. */
static bool entry_axis(dsf_tap_id id)
{
    return id == DSF_TAP_ATTN_INDEX_SCORES || id == DSF_TAP_ATTN_POOL || id == DSF_TAP_ATTN_TOPK;
}

/* Columns on the entry axis: what N tokens of this file make. A killed run keeps room for more. */
static bool width_fits(dsf_dump_file *f, dsf_tap tap, const dsf_dump_array *x, dsf_diff_tap *t)
{
    const dsf_dump_info *in = dsf_dump_info_of(f);
    int64_t dim[3];
    char why[200];
    if (x->rank != 2 || !in->n_tokens) return true; /* told by shapes_fit */
    if (dsf_dump_geometry_row(&in->geometry, tap, in->n_tokens, dim) != 1) return true;
    if (in->partial ? x->dim[1] >= dim[0] : x->dim[1] == dim[0]) return true;
    (void)snprintf(why, sizeof why, "shape: %lld columns in %.80s, whose %lld tokens make %lld",
                   (long long)x->dim[1], in->path, (long long)in->n_tokens, (long long)dim[0]);
    failed(t, why);
    return false;
}

static bool shapes_fit(const dsf_diff_state *s, const dsf_walk_item *x, const dsf_joined *j,
                       dsf_diff_tap *t)
{
    const dsf_dump_array *a = j->a, *b = j->b;
    char why[160];
    if ((a->f || a->i) && (b->f || b->i) && !a->f != !b->f) {
        failed(t, "type: values on one side, integers on the other");
        return false;
    }
    bool same = a->rank == b->rank, entries = entry_axis(x->tap.id);
    for (int i = 1; i < a->rank && same; i++) same = a->dim[i] == b->dim[i];
    if (entries && (!width_fits(s->a, x->tap, a, t) || !width_fits(s->b, x->tap, b, t)))
        return false;
    bool longer = dsf_dump_info_of(s->a)->n_tokens != dsf_dump_info_of(s->b)->n_tokens ||
                  dsf_dump_info_of(s->b)->partial;
    if (same || (entries && longer && a->rank == 2 && b->rank == 2)) return true;
    (void)snprintf(why, sizeof why, "shape: rows of rank %d with %lld elements, here %d with %lld",
                   a->rank - 1, (long long)a->width, b->rank - 1, (long long)b->width);
    failed(t, why);
    return false;
}

/* Weights belong to experts, not to places in a list: ours are brought into the reference's order.
 */
static dsf_status match_experts(dsf_diff_state *s, const dsf_walk_item *x, dsf_joined *j,
                                dsf_dump_array *b)
{
    char path[64];
    dsf_tap_path(path, (dsf_tap){DSF_TAP_FFN_EXPERT_IDS, x->tap.layer}, s->g->n_layers);
    if (!dsf_dump_find(s->a, path) || !dsf_dump_find(s->b, path)) return DSF_OK;
    dsf_dump_array ids = {0}, own = {0};
    dsf_status st = DSF_OK;
    float *row = NULL;
    DSF_TRY_OUT(dsf_dump_read(s->a, path, &ids));
    DSF_TRY_OUT(dsf_dump_read(s->b, path, &own));
    if (!ids.i || !own.i || own.width != b->width || ids.width != j->width || own.n != b->n)
        goto out;
    DSF_TRY_OUT(dsf_mem_new(&row, (size_t)j->width, sizeof *row));
    for (int64_t i = 0; i < j->n; i++) {
        int64_t ra = j->pair[2 * i], rb = j->pair[2 * i + 1];
        int32_t label = j->a->label[ra];
        int64_t at = ra; /* the ids may hold more rows than the weights */
        while (at < ids.n && ids.label[at] < label) at++;
        if (at >= ids.n || ids.label[at] != label || own.label[rb] != label) continue;
        for (int64_t c = 0; c < j->width; c++) {
            /* an expert that ours did not take: its row is excused as a flip, or has failed */
            row[c] = j->a->f[ra * j->a->width + c];
            for (int64_t k = 0; k < own.width; k++)
                if (own.i[rb * own.width + k] == ids.i[at * ids.width + c])
                    row[c] = b->f[rb * b->width + k];
        }
        memcpy(b->f + rb * b->width, row, (size_t)j->width * sizeof *row);
    }
out:
    dsf_mem_free(row);
    dsf_dump_array_free(&ids);
    dsf_dump_array_free(&own);
    return st;
}

static void report_unfinite(const dsf_joined *j, const dsf_unfinite *bad, dsf_diff_tap *t)
{
    char why[200];
    if (bad->nan_reference + bad->nan_ours + bad->inf == 0) return;
    t->at_row = bad->label;
    t->at_column = bad->column;
    t->reference = (double)j->a->f[j->pair[2 * bad->row] * j->a->width + bad->column];
    t->ours = (double)dsf_metrics_ours(j, bad->row, bad->column);
    (void)snprintf(why, sizeof why,
                   "NaN or infinity: %lld NaN in the reference, %lld here, %lld infinities that do "
                   "not belong",
                   (long long)bad->nan_reference, (long long)bad->nan_ours, (long long)bad->inf);
    failed(t, why);
}

static dsf_status compare_values(dsf_diff_state *s, const dsf_walk_item *x, const dsf_joined *j,
                                 bool keep, dsf_diff_report *r)
{
    dsf_diff_tap *t = &r->tap[r->n_taps];
    dsf_diff_logits *logits = &r->logits;
    dsf_row *row = NULL;
    dsf_unfinite bad;
    dsf_status st = DSF_OK;
    bool tap = x->tap.id != DSF_TAP_NONE;
    DSF_TRY_OUT(dsf_mem_new(&row, (size_t)j->n, sizeof *row));
    dsf_metrics_rows(j, row, &bad);
    if (tap) dsf_state_mark(s, x->tap, row, j->n);
    /* rows of `logits` come from a prefill that ends there: cut as ours, whatever the dump's length
     */
    for (int64_t i = 0; i < j->n && !s->injected && strcmp(x->a, "logits") == 0; i++)
        if (row[i].status == DSF_ROW_REPORTED) row[i].status = DSF_ROW_JUDGED;
    DSF_TRY_OUT(dsf_metrics_sum(j, row, t));
    if (x->tap.id == DSF_TAP_LOGITS && (!logits->present || strcmp(x->a, "logits") == 0))
        dsf_logits_compare(j, row, logits);
    if (tap) {
        DSF_TRY_OUT(dsf_gate_values(s, x->tap, j, row, t));
        dsf_state_learn(s, x->tap, row, j->n);
    } else {
        t->verdict = t->changed ? DSF_DIFF_REPORTED : DSF_DIFF_EXACT;
        if (t->changed) (void)snprintf(t->why, sizeof t->why, "no gate on this dataset");
    }
    report_unfinite(j, &bad, t);
    if (tap) DSF_TRY_OUT(dsf_detail_values(s, x->tap, j, row, keep, t));
out:
    dsf_mem_free(row);
    return st;
}

static dsf_status compare_rows(dsf_diff_state *s, const dsf_walk_item *x, dsf_joined *j,
                               dsf_dump_array *b, bool keep, dsf_diff_report *r)
{
    dsf_diff_tap *t = &r->tap[r->n_taps];
    if (!shapes_fit(s, x, j, t)) return DSF_OK;
    j->width = j->a->width < b->width ? j->a->width : b->width;
    j->inf_known = x->tap.id == DSF_TAP_ATTN_INDEX_SCORES;
    if (j->a->f) {
        if (x->tap.id == DSF_TAP_FFN_EXPERT_WEIGHTS) DSF_TRY(match_experts(s, x, j, b));
        return compare_values(s, x, j, keep, r);
    }
    if (!j->a->i || !b->i) { /* an axis of no entries: nothing to differ in */
        t->rows = j->n;
        return DSF_OK;
    }
    bool choice = entry_axis(x->tap.id) || x->tap.id == DSF_TAP_FFN_EXPERT_IDS;
    if (choice) {
        DSF_TRY(dsf_choice_compare(s, x->tap, j, keep, t));
    } else {
        DSF_TRY(dsf_choice_exact(s, x->tap, j, t));
    }
    t->beyond = t->verdict == DSF_DIFF_FAILED;
    /* Carried noise may turn any selection; hash rows depend on ids alone. */
    if (t->beyond && !s->injected && s->touched && x->tap.id != DSF_TAP_ENGRAM_ROWS)
        t->verdict = DSF_DIFF_REPORTED;
    s->touched = s->touched || t->changed > 0;
    if (t->verdict == DSF_DIFF_TIES && !s->floor) t->verdict = DSF_DIFF_PROVISIONAL;
    if (t->verdict == DSF_DIFF_FAILED) t->ratio = INFINITY;
    return DSF_OK;
}

static void start_tap(dsf_diff_tap *t, const dsf_walk_item *x)
{
    *t = (dsf_diff_tap){.layer = x->tap.layer,
                        .tap = x->tap,
                        .gain = 1.0,
                        .limit_rel_l2 = NAN,
                        .limit_median = NAN,
                        .limit_row = NAN,
                        .limit_changed = -1,
                        .limit_unequal = -1,
                        .at_row = -1,
                        .floor_rel_l2 = NAN,
                        .inputs_ratio = NAN,
                        .row_max_label = -1,
                        .at_column = -1};
    (void)snprintf(t->path, sizeof t->path, "%s", x->a);
    (void)snprintf(t->kind, sizeof t->kind, "%s", x->kind);
}

/* Keeps the pairs that were asked for; returns how many. */
static int64_t narrow_pairs(const dsf_diff_state *s, const dsf_diff_options *o, dsf_tap tap,
                            const dsf_dump_array *a, int64_t *pair, int64_t n)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!dsf_walk_row_wanted(s, o, tap, a->label[pair[2 * i]])) continue;
        pair[2 * kept] = pair[2 * i];
        pair[2 * kept++ + 1] = pair[2 * i + 1];
    }
    return kept;
}

/* Rows before the first that a cone or replay computes in a layer are no part of that run. */
static int32_t first_computed(const dsf_diff_state *s, const dsf_dump_array *b)
{
    const char *mode = dsf_dump_info_of(s->b)->mode;
    bool tail = strcmp(mode, "cone") == 0 || strcmp(mode, "replay") == 0;
    return tail && b->n > 0 ? b->label[0] : 0;
}

/* Rows of the reference that did not meet one of ours, though nothing explains why. */
static void note_missing(const dsf_diff_state *s, const dsf_diff_options *o, const dsf_walk_item *x,
                         const dsf_joined *j, dsf_diff_report *r)
{
    const dsf_dump_array *a = j->a;
    int64_t wanted = 0, at = 0, missing = 0;
    int32_t from = first_computed(s, j->b);
    for (int64_t i = 0; i < a->n; i++) {
        if (a->label[i] < from || !dsf_walk_row_wanted(s, o, x->tap, a->label[i])) continue;
        wanted++;
        while (at < j->n && a->label[j->pair[2 * at]] < a->label[i]) at++;
        missing += at == j->n || a->label[j->pair[2 * at]] != a->label[i];
    }
    bool empty = a->n == 0 && x->trimmed; /* a dataset of the reference without any row */
    if (j->n > 0) r->tap[r->n_taps].missing = missing;
    if ((missing == 0 && !empty) || x->tap.id == DSF_TAP_NONE) return;
    bool no_way = s->injected && j->n > 0 && dsf_walk_lacks_inputs(s->a, x->tap);
    dsf_buf *list = no_way ? &r->no_way : &r->lacking;
    if (empty)
        dsf_buf_fmt(list, "%s: the reference holds no row\n", x->a);
    else
        dsf_buf_fmt(list, "%s: %lld of %lld rows\n", x->a, (long long)missing, (long long)wanted);
    r->n_no_way += no_way;
    r->n_lacking += !no_way;
}

static dsf_status compare_item(dsf_diff_state *s, const dsf_walk_item *x, const dsf_diff_options *o,
                               dsf_diff_report *r)
{
    dsf_dump_array a = {0}, b = {0};
    int64_t *pair = NULL, n = 0;
    dsf_diff_tap *t = &r->tap[r->n_taps];
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_dump_read(s->a, x->a, &a));
    DSF_TRY_OUT(dsf_dump_read(s->b, x->b, &b));
    DSF_TRY_OUT(dsf_dump_join(&a, &b, &pair, &n));
    n = narrow_pairs(s, o, x->tap, &a, pair, n);
    dsf_joined j = {.a = &a, .b = &b, .pair = pair, .n = n};
    if (j.n) start_tap(t, x);
    note_missing(s, o, x, &j, r);
    if (j.n == 0) goto out; /* no common rows: not compared */
    t->source = a.source;
    if (x->tap.id != DSF_TAP_NONE) dsf_state_enter(s, x->tap);
    DSF_TRY_OUT(compare_rows(s, x, &j, &b, o->rows, r));
    r->values += t->rows * t->width;
    r->n_cut += x->trimmed;
    r->n_taps++;
out:
    dsf_mem_free(pair);
    dsf_dump_array_free(&a);
    dsf_dump_array_free(&b);
    return st;
}

static dsf_status compare_hashes(dsf_diff_state *s, const dsf_walk_item *x,
                                 const dsf_diff_options *o, dsf_diff_report *r)
{
    dsf_diff_tap *t = &r->tap[r->n_taps];
    start_tap(t, x);
    DSF_TRY(dsf_hashes_compare(s, x, o, t));
    if (t->missing && t->rows > 0) {
        dsf_buf_fmt(&r->lacking, "%s: %lld of %lld rows, by blocks\n", x->a, (long long)t->missing,
                    (long long)t->missing + (long long)t->rows);
        r->n_lacking++;
    }
    r->values += t->rows * t->width;
    r->n_taps += t->rows > 0 || t->verdict == DSF_DIFF_FAILED;
    return DSF_OK;
}

/* What a free run was computed from is known only when what ran before is compared too: not when
 * some taps were asked for, nor when the first layer of the dump is another than the model's. */
static bool starts_amid(const dsf_walk *w, bool some)
{
    for (int64_t i = 0; i < w->n && !some; i++)
        if (w->item[i].b[0] && w->item[i].tap.id != DSF_TAP_NONE && w->item[i].tap.layer >= 0)
            return w->item[i].tap.layer > 0;
    return some;
}

static void note_absent(const dsf_walk_item *x, dsf_diff_report *r)
{
    dsf_buf *list = x->absence == DSF_WALK_GIVEN    ? &r->given
                    : x->absence == DSF_WALK_NO_WAY ? &r->no_way
                                                    : &r->absent;
    dsf_buf_fmt(list, "%s\n", x->a);
    r->n_given += x->absence == DSF_WALK_GIVEN;
    r->n_no_way += x->absence == DSF_WALK_NO_WAY;
    r->n_absent += x->absence == DSF_WALK_ABSENT;
}

static dsf_status compare_all(dsf_diff_state *s, const dsf_walk *w, const dsf_diff_options *o,
                              dsf_diff_report *r)
{
    bool some = o->n_only > 0 || o->by_layer || o->by_position;
    DSF_TRY(dsf_mem_new(&r->tap, (size_t)w->n, sizeof *r->tap));
    s->touched = !s->injected && starts_amid(w, some);
    s->alpha = 0.01 / (double)((w->n ? w->n : 1) * DSF_GATE_COUNTS);
    for (int64_t i = 0; i < w->n; i++) {
        const dsf_walk_item *x = &w->item[i];
        if (!x->b[0]) {
            if (x->tap.id != DSF_TAP_NONE) note_absent(x, r);
        } else {
            DSF_TRY(x->stats ? compare_hashes(s, x, o, r) : compare_item(s, x, o, r));
        }
        /* what was not seen may differ: from here on a free run may be on its own */
        s->touched |= !s->injected && r->n_absent + r->n_lacking > 0;
    }
    r->n_extra = w->n_extra;
    DSF_TRY(dsf_buf_status(&r->given));
    DSF_TRY(dsf_buf_status(&r->no_way));
    DSF_TRY(dsf_buf_status(&r->lacking));
    return dsf_buf_status(&r->absent);
}

/* The same prompt: all tokens of the reference; ours may go on behind them. */
static dsf_status check_prompt(dsf_dump_file *a, dsf_dump_file *b)
{
    int32_t *x = NULL, *y = NULL;
    int64_t nx, ny;
    dsf_status st = DSF_OK;
    const dsf_dump_info *ours = dsf_dump_info_of(b);
    DSF_TRY_OUT(dsf_dump_read_axis(a, "token_ids", &x, &nx));
    DSF_TRY_OUT(dsf_dump_read_axis(b, "token_ids", &y, &ny));
    for (int64_t i = 0; i < nx && i < ny && st == DSF_OK; i++)
        if (x[i] != y[i])
            st =
                DSF_FAIL(DSF_EINVAL, "different prompts: token %lld is %d in %s and %d in %s",
                         (long long)i, (int)x[i], dsf_dump_info_of(a)->path, (int)y[i], ours->path);
    if (st == DSF_OK && (nx == 0 || (ny < nx && !ours->partial)))
        st = DSF_FAIL(DSF_EINVAL, "different prompts: %lld tokens in %s and %lld in %s",
                      (long long)nx, dsf_dump_info_of(a)->path, (long long)ny, ours->path);
out:
    dsf_mem_free(x);
    dsf_mem_free(y);
    return st;
}

static dsf_status set_mode(const dsf_diff_options *o, dsf_diff_state *s, dsf_diff_report *r)
{
    static const char *const known[] = {"exact", "cone", "replay", "injected"};
    const dsf_dump_info *ours = dsf_dump_info_of(s->b);
    const char *mode = o->mode ? o->mode : *ours->mode ? ours->mode : "exact";
    bool good = false;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        good = good || strcmp(mode, known[i]) == 0;
    if (!good)
        return o->mode ? DSF_FAIL(DSF_EINVAL, "--mode %.60s: exact, cone, replay or injected", mode)
                       : DSF_FAIL(DSF_ECORRUPT,
                                  "%s: attribute mode is %.60s, allowed are exact, cone, replay, "
                                  "injected",
                                  ours->path, mode);
    (void)snprintf(r->mode, sizeof r->mode, "%.15s", mode);
    r->injected = s->injected = strcmp(mode, "injected") == 0;
    return DSF_OK;
}

static dsf_status open_floor(const dsf_diff_options *o, dsf_diff_state *s, dsf_diff_report *r)
{
    if (!o->floor) return DSF_OK;
    DSF_TRY(dsf_floor_open(&s->floor, o->floor));
    dsf_dump_file *bound = NULL;
    dsf_status st = DSF_OK;
    if (o->bind) st = dsf_dump_open(&bound, o->bind);
    if (st == DSF_OK) st = dsf_floor_bind(s->floor, bound ? bound : s->a, s->b);
    dsf_dump_close(bound);
    DSF_TRY(st);
    (void)snprintf(r->floor, sizeof r->floor, "%s", dsf_floor_name(s->floor));
    return DSF_OK;
}

static void describe_report(const dsf_diff_options *o, const dsf_diff_state *s, dsf_diff_report *r)
{
    (void)snprintf(r->reference_path, sizeof r->reference_path, "%s", o->reference);
    (void)snprintf(r->ours_path, sizeof r->ours_path, "%s", o->ours);
    (void)snprintf(r->model, sizeof r->model, "%s", dsf_dump_info_of(s->a)->model);
    r->prompt_tokens = s->n;
    r->selects = s->selects;
    r->provisional = !s->floor;
}

dsf_status dsf_diff_run(const dsf_diff_options *o, dsf_diff_report *r)
{
    dsf_dump_file *a = NULL, *b = NULL;
    dsf_diff_state s = {0};
    dsf_walk w = {0};
    dsf_status st = DSF_OK;
    *r = (dsf_diff_report){.first = -1, .worst_at = -1, .gated = !o->no_gate};
    DSF_TRY_OUT(dsf_dump_open(&a, o->reference));
    DSF_TRY_OUT(dsf_dump_open(&b, o->ours));
    DSF_TRY_OUT(check_prompt(a, b));
    DSF_TRY_OUT(dsf_state_open(&s, a, b));
    DSF_TRY_OUT(set_mode(o, &s, r));
    if (!o->no_gate) DSF_TRY_OUT(dsf_bind_configs(dsf_dump_info_of(a), dsf_dump_info_of(b)));
    DSF_TRY_OUT(open_floor(o, &s, r));
    describe_report(o, &s, r);
    DSF_TRY_OUT(dsf_walk_make(&w, &s, o));
    DSF_TRY_OUT(compare_all(&s, &w, o, r));
    if (s.floor) DSF_TRY_OUT(dsf_budget_make(r, s.floor, s.g));
    dsf_verdict_conclude(r, &w, o, &s);
out:
    dsf_walk_free(&w);
    dsf_floor_close(s.floor);
    dsf_state_close(&s);
    dsf_dump_close(a);
    dsf_dump_close(b);
    return st;
}

void dsf_diff_report_free(dsf_diff_report *r)
{
    for (int64_t i = 0; r->tap && i < r->n_taps; i++) {
        dsf_mem_free(r->tap[i].row);
        dsf_mem_free(r->tap[i].flip);
    }
    dsf_mem_free(r->tap);
    dsf_mem_free(r->budget);
    dsf_buf_free(&r->absent);
    dsf_buf_free(&r->given);
    dsf_buf_free(&r->no_way);
    dsf_buf_free(&r->lacking);
    *r = (dsf_diff_report){0};
}
