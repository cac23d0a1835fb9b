/* A report as text for people and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/diff/causes.h"
#include "verify/diff/hashes.h"
#include "verify/diff/sentence.h"

static void figure(dsf_buf *b, double v, int width)
{
    if (isnan(v))
        dsf_buf_fmt(b, "%*s", width, "-");
    else if (v == 0.0)
        dsf_buf_fmt(b, "%*s", width, "0");
    else
        dsf_buf_fmt(b, "%*.2e", width, v);
}

static void print_head(dsf_buf *b)
{
    dsf_buf_fmt(b, "%-30s %6s %9s %8s %8s %9s %9s %9s %7s  %s\n", "tap", "rows", "elements",
                "changed", "unequal", "rel L2", "row max", "limit", "ratio", "verdict");
}

static void print_ratio(dsf_buf *b, double ratio)
{
    if (isinf(ratio))
        dsf_buf_fmt(b, " %7s", "inf");
    else
        dsf_buf_fmt(b, " %7.2g", ratio);
}

static void print_tap(dsf_buf *b, const dsf_diff_tap *t)
{
    dsf_buf_fmt(b, "%-30s %6lld %9lld %8lld %8lld ", t->path, (long long)t->rows,
                (long long)t->rows * (long long)t->width, (long long)t->changed,
                (long long)t->unequal);
    figure(b, t->discrete ? NAN : t->rel_l2, 9);
    dsf_buf_char(b, ' ');
    figure(b, t->discrete ? NAN : t->row_max, 9);
    dsf_buf_char(b, ' ');
    figure(b, t->discrete ? 0.0 : t->limit_row, 9);
    print_ratio(b, t->ratio);
    dsf_buf_fmt(b, "  %s", dsf_diff_verdict_name(t->verdict));
    if (t->ungated && t->ungated < t->rows)
        dsf_buf_fmt(b, " (%lld rows reported)", (long long)t->ungated);
    if (t->why[0] && t->verdict != DSF_DIFF_EXACT && t->verdict != DSF_DIFF_WITHIN)
        dsf_buf_fmt(b, ": %s", t->why);
    if (t->zeros) dsf_buf_fmt(b, " [%lld zeros of the other sign]", (long long)t->zeros);
    dsf_buf_char(b, '\n');
}

static void print_block_head(dsf_buf *b)
{
    dsf_buf_fmt(b, "%-30s %6s %9s %8s %8s %-13s %11s %11s %9s  %s\n", "tap, by hash", "rows",
                "elements", "blocks", "differ", "first rows", "rms", "here", "relative", "verdict");
}

static void print_blocks(dsf_buf *b, const dsf_diff_tap *t)
{
    const dsf_diff_blocks *k = &t->blocks;
    char rows[32] = "-";
    if (k->differ) (void)snprintf(rows, sizeof rows, "%d-%d", (int)k->from, (int)k->to);
    dsf_buf_fmt(b, "%-30s %6lld %9lld %8lld %8lld %-13s ", t->path, (long long)t->rows,
                (long long)t->rows * (long long)t->width, (long long)k->n, (long long)k->differ,
                rows);
    if (k->differ) {
        dsf_buf_fmt(b, "%11.5g %11.5g ", k->reference.rms, k->ours.rms);
        figure(b, dsf_hashes_rms(k), 9);
    } else {
        dsf_buf_fmt(b, "%11s %11s %9s", "-", "-", "-");
    }
    dsf_buf_fmt(b, "  %s", dsf_diff_verdict_name(t->verdict));
    if (t->why[0] && t->rows == 0) dsf_buf_fmt(b, ": %s", t->why);
    if (k->left) dsf_buf_fmt(b, " (%lld blocks of other rows)", (long long)k->left);
    dsf_buf_char(b, '\n');
}

/* Taps of one kind in one line: counts add up, figures are the worst. */
typedef struct {
    int64_t taps, exact, rows, elements, changed, unequal, blocks, differ;
    double rel_l2, row_max, ratio;
    dsf_diff_verdict verdict;
} pooled;

static void add(pooled *p, const dsf_diff_tap *t)
{
    p->taps++;
    p->exact += t->changed == 0 && t->verdict != DSF_DIFF_FAILED;
    p->rows += t->rows;
    p->elements += t->rows * t->width;
    p->changed += t->changed;
    p->unequal += t->unequal;
    p->blocks += t->blocks.n;
    p->differ += t->blocks.differ;
    p->rel_l2 = fmax(p->rel_l2, t->rel_l2);
    p->row_max = fmax(p->row_max, t->row_max);
    p->ratio = fmax(p->ratio, t->ratio);
    if (t->verdict > p->verdict) p->verdict = t->verdict;
}

/* Behind the first block that differs nearly all differ: some of the list tell as much. */
enum { SHOWN = 16 };

static bool same_kind(const dsf_diff_tap *a, const dsf_diff_tap *b)
{
    return strcmp(a->kind, b->kind) == 0 && a->by_hash == b->by_hash;
}

static void print_kind(const dsf_diff_report *r, int64_t at, dsf_buf *b)
{
    const dsf_diff_tap *first = &r->tap[at];
    for (int64_t i = 0; i < at; i++)
        if (same_kind(&r->tap[i], first)) return;
    pooled p = {0};
    for (int64_t i = at; i < r->n_taps; i++)
        if (same_kind(&r->tap[i], first)) add(&p, &r->tap[i]);
    char name[64];
    (void)snprintf(name, sizeof name, "%s x%lld", first->kind, (long long)p.taps);
    dsf_buf_fmt(b, "%-30s %6lld %9lld %8lld %8lld ", name, (long long)p.rows, (long long)p.elements,
                (long long)(first->by_hash ? p.blocks : p.changed),
                (long long)(first->by_hash ? p.differ : p.unequal));
    if (first->by_hash) {
        dsf_buf_fmt(b, "%47s", "");
    } else {
        figure(b, first->discrete ? NAN : p.rel_l2, 9);
        dsf_buf_char(b, ' ');
        figure(b, first->discrete ? NAN : p.row_max, 9);
        dsf_buf_fmt(b, " %9s", "");
        print_ratio(b, p.ratio);
    }
    dsf_buf_fmt(b, "  %s, %lld of %lld bit-equal\n", dsf_diff_verdict_name(p.verdict),
                (long long)p.exact, (long long)p.taps);
}

/* Taps of values, or those by hash: with `all` each, else those that fail, then a line a kind. */
static void print_taps(const dsf_diff_report *r, bool by_hash, bool all, dsf_buf *b)
{
    int64_t n = 0, shown = 0;
    for (int64_t i = 0; i < r->n_taps; i++) n += r->tap[i].by_hash == by_hash;
    if (n == 0) return;
    if (by_hash)
        print_block_head(b);
    else
        print_head(b);
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        if (t->by_hash != by_hash || !(all || t->verdict == DSF_DIFF_FAILED)) continue;
        shown++;
        if (!all && shown > SHOWN) continue;
        if (by_hash)
            print_blocks(b, t);
        else
            print_tap(b, t);
    }
    if (!all && shown > SHOWN)
        dsf_buf_fmt(b, "and %lld more (--all lists them)\n", (long long)(shown - SHOWN));
    if (!all && shown) dsf_buf_char(b, '\n');
    for (int64_t i = 0; i < r->n_taps && !all; i++)
        if (r->tap[i].by_hash == by_hash) print_kind(r, i, b);
    dsf_buf_char(b, '\n');
}

static void print_logits(const dsf_diff_logits *l, dsf_buf *b)
{
    if (!l->present) return;
    dsf_buf_fmt(b,
                "logits: %lld rows, KL mean %.3g, max %.3g (row %d); top-1 equal %.4f, near ties "
                "%lld, gap up to 0.5: %lld, above: %lld\n",
                (long long)l->rows, l->kl_mean, l->kl_max, (int)l->kl_max_row, l->top1,
                (long long)l->ties, (long long)l->warned, (long long)l->wrong);
}

/* What noise alone makes of each stream, beside what was measured. */
static void print_budget(const dsf_diff_report *r, dsf_buf *b)
{
    if (!r->n_budget) return;
    dsf_buf_str(b, "error budget (relative L2 of out)\n"
                   "layer     floor    budget  measured  measured/budget\n");
    for (int i = 0; i < r->n_budget; i++) {
        const dsf_diff_budget *x = &r->budget[i];
        dsf_buf_fmt(b, "%5d ", x->layer);
        figure(b, x->floor, 9);
        dsf_buf_char(b, ' ');
        figure(b, x->budget, 9);
        dsf_buf_char(b, ' ');
        figure(b, x->measured, 9);
        dsf_buf_fmt(b, "  %.2g\n", x->budget > 0.0 ? x->measured / x->budget : 0.0);
    }
    dsf_buf_char(b, '\n');
}

static void print_list(const char *title, const dsf_buf *lines, int64_t n, bool all, dsf_buf *b)
{
    const char *at = lines->data ? lines->data : "";
    int64_t shown = 0, most = all ? n : 8;
    if (!n) return;
    dsf_buf_fmt(b, "%s (%lld):", title, (long long)n);
    for (; *at && shown < most; shown++) {
        size_t k = strcspn(at, "\n");
        dsf_buf_str(b, shown && memchr(at, ' ', k) ? ", " : " ");
        dsf_buf_add(b, at, k);
        at += k + (at[k] == '\n');
    }
    dsf_buf_str(b, *at ? " ...\n" : "\n");
}

void dsf_diff_print(const dsf_diff_report *r, bool all, dsf_buf *b)
{
    dsf_buf_fmt(b, "%s\n", r->verdict);
    if (r->first >= 0 && !r->good) {
        const dsf_diff_tap *t = &r->tap[r->first];
        if (t->by_hash && t->rows > 0) dsf_buf_fmt(b, "%s\n", t->why);
        dsf_causes_print(t, b);
    }
    dsf_diff_print_tables(r, all, b);
}

void dsf_diff_print_tables(const dsf_diff_report *r, bool all, dsf_buf *b)
{
    if (r->ours_notes[0]) dsf_buf_fmt(b, "%s\n", r->ours_notes);
    bool values = false; /* statistics alone: no limits, and no rows that select */
    for (int64_t i = 0; i < r->n_taps; i++) values |= !r->tap[i].by_hash;
    if (r->n_taps && !values)
        dsf_buf_fmt(b, "mode %s; statistics: bit-equal or not\n\n", r->mode);
    else
        dsf_buf_fmt(b, "mode %s; %s; rows %s\n\n", r->mode,
                    r->floor[0] ? r->floor
                                : "no floor: provisional limits, no pass unless bit-equal",
                    r->selects ? "select among entries" : "take every visible entry");
    print_taps(r, false, all, b);
    print_taps(r, true, all, b);
    print_budget(r, b);
    print_logits(&r->logits, b);
    print_list("given as inputs", &r->given, r->n_given, all, b);
    print_list("not made, the reference lacks their inputs or rows", &r->no_way, r->n_no_way, all,
               b);
    print_list("not here", &r->absent, r->n_absent, all, b);
    print_list("rows not here", &r->lacking, r->n_lacking, all, b);
    if (r->n_extra)
        dsf_buf_fmt(b, "only here, not compared: %lld datasets\n", (long long)r->n_extra);
}

void dsf_diff_json_num(dsf_buf *b, const char *key, double v)
{
    if (isinf(v))
        dsf_json_add_cstr(b, key, v > 0 ? "inf" : "-inf");
    else
        dsf_json_add_num(b, key, v);
}

static void json_rows(const dsf_diff_tap *t, dsf_buf *b)
{
    if (!t->row) return;
    dsf_json_begin(b, "row", '{');
    dsf_json_begin(b, "label", '[');
    for (int64_t i = 0; i < t->n_row; i++) dsf_json_add_int(b, NULL, t->row[i].label);
    dsf_json_end(b, ']');
    dsf_json_begin(b, "rel_l2", '[');
    for (int64_t i = 0; i < t->n_row; i++) dsf_diff_json_num(b, NULL, t->row[i].rel_l2);
    dsf_json_end(b, ']');
    dsf_json_begin(b, "ratio", '[');
    for (int64_t i = 0; i < t->n_row; i++) dsf_diff_json_num(b, NULL, t->row[i].ratio);
    dsf_json_end(b, ']');
    dsf_json_end(b, '}');
}

static void json_ids(const char *key, const int64_t *id, dsf_buf *b)
{
    dsf_json_begin(b, key, '[');
    for (int k = 0; k < DSF_FLIP_IDS && id[k] >= 0; k++) dsf_json_add_int(b, NULL, id[k]);
    dsf_json_end(b, ']');
}

static void json_flips(const dsf_diff_tap *t, dsf_buf *b)
{
    if (!t->flip) return;
    dsf_json_begin(b, "flip", '[');
    for (int64_t i = 0; i < t->n_flips; i++) {
        const dsf_diff_flip *f = &t->flip[i];
        dsf_json_begin(b, NULL, '{');
        dsf_json_add_int(b, "label", f->label);
        dsf_diff_json_num(b, "margin", f->margin);
        json_ids("lost", f->lost, b);
        json_ids("gained", f->gained, b);
        dsf_json_add_cstr(b, "class", f->tie ? "tie" : "wrong");
        dsf_json_end(b, '}');
    }
    dsf_json_end(b, ']');
}

static void json_detail(const dsf_diff_tap *t, dsf_buf *b)
{
    dsf_diff_json_num(b, "floor_rel_l2", t->floor_rel_l2);
    dsf_diff_json_num(b, "inputs_ratio", t->inputs_ratio);
    dsf_json_add_cstr(b, "inputs_at", t->inputs_at);
    dsf_json_add_int(b, "wrong_rows", t->wrong_rows);
    dsf_json_add_cstr(b, "wrong_at", t->wrong_at);
    dsf_json_add_cstr(b, "pattern", t->pattern.text);
    json_rows(t, b);
    json_flips(t, b);
}

static void json_tap(const dsf_diff_tap *t, dsf_buf *b)
{
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "path", t->path);
    dsf_json_add_cstr(b, "kind", t->kind);
    dsf_json_add_int(b, "layer", t->layer);
    dsf_json_add_cstr(b, "verdict", dsf_diff_verdict_name(t->verdict));
    dsf_json_add_int(b, "rows", t->rows);
    dsf_json_add_int(b, "elements", t->rows * t->width);
    dsf_json_add_int(b, "missing_rows", t->missing);
    dsf_json_add_int(b, "ungated_rows", t->ungated);
    dsf_json_add_int(b, "changed", t->changed);
    dsf_json_add_int(b, "unequal", t->unequal);
    dsf_json_add_bool(b, "discrete", t->discrete);
    dsf_json_add_int(b, "width", t->width);
    if (t->by_hash) dsf_hashes_json(t, b);
    if (t->discrete) {
        dsf_json_add_int(b, "flips", t->flips);
        dsf_json_add_int(b, "ties", t->ties);
        dsf_json_add_int(b, "wrong", t->wrong);
    } else {
        dsf_diff_json_num(b, "rel_l2", t->rel_l2);
        dsf_diff_json_num(b, "row_median", t->row_median);
        dsf_diff_json_num(b, "row_max", t->row_max);
        dsf_json_add_int(b, "row_max_label", t->row_max_label);
        dsf_diff_json_num(b, "max_abs", t->max_abs);
        dsf_diff_json_num(b, "gain", t->gain);
        dsf_diff_json_num(b, "bias_z", t->bias_z);
        dsf_json_add_int(b, "zeros_of_other_sign", t->zeros);
        dsf_diff_json_num(b, "limit_rel_l2", t->limit_rel_l2);
        dsf_diff_json_num(b, "limit_median", t->limit_median);
        dsf_diff_json_num(b, "limit_row", t->limit_row);
        dsf_json_add_int(b, "limit_changed", t->limit_changed);
        dsf_json_add_int(b, "limit_unequal", t->limit_unequal);
    }
    json_detail(t, b);
    dsf_diff_json_num(b, "ratio", t->ratio);
    dsf_json_add_bool(b, "beyond", t->beyond);
    if (t->at_row >= 0) dsf_json_add_int(b, "at_row", t->at_row);
    if (t->at_column >= 0) {
        dsf_json_add_int(b, "at_column", t->at_column);
        dsf_diff_json_num(b, "reference", t->reference);
        dsf_diff_json_num(b, "ours", t->ours);
    }
    dsf_json_add_cstr(b, "why", t->why);
    dsf_json_end(b, '}');
}

static void json_logits(const dsf_diff_logits *l, dsf_buf *b)
{
    dsf_json_begin(b, "logits", '{');
    dsf_json_add_int(b, "rows", l->rows);
    dsf_diff_json_num(b, "kl_mean", l->kl_mean);
    dsf_diff_json_num(b, "kl_max", l->kl_max);
    dsf_json_add_int(b, "kl_max_row", l->kl_max_row);
    dsf_diff_json_num(b, "top1", l->top1);
    dsf_json_add_int(b, "near_ties", l->ties);
    dsf_json_add_int(b, "gap_to_half", l->warned);
    dsf_json_add_int(b, "gap_above_half", l->wrong);
    dsf_json_end(b, '}');
}

void dsf_diff_json_first(dsf_buf *b, const dsf_diff_tap *t, const char *sentence,
                         double local_ratio)
{
    if (!t) {
        dsf_diff_json_num(b, "first", NAN);
        return;
    }
    dsf_json_begin(b, "first", '{');
    dsf_json_add_cstr(b, "path", t->path);
    dsf_json_add_cstr(b, "kind", t->kind);
    dsf_json_add_int(b, "layer", t->layer);
    dsf_json_add_cstr(b, "sentence", sentence);
    dsf_json_add_cstr(b, "pattern", t->pattern.text);
    dsf_causes_json(t, b);
    dsf_diff_json_num(b, "inputs_ratio", t->inputs_ratio);
    dsf_diff_json_num(b, "local_ratio", local_ratio);
    dsf_json_end(b, '}');
}

static void json_budget(const dsf_diff_report *r, dsf_buf *b)
{
    dsf_json_begin(b, "budget", '[');
    for (int i = 0; i < r->n_budget; i++) {
        dsf_json_begin(b, NULL, '{');
        dsf_json_add_int(b, "layer", r->budget[i].layer);
        dsf_json_add_cstr(b, "tap", "out");
        dsf_diff_json_num(b, "floor", r->budget[i].floor);
        dsf_diff_json_num(b, "budget", r->budget[i].budget);
        dsf_diff_json_num(b, "measured", r->budget[i].measured);
        dsf_json_end(b, '}');
    }
    dsf_json_end(b, ']');
}

void dsf_diff_json_lines(dsf_buf *b, const char *key, const dsf_buf *lines)
{
    dsf_json_begin(b, key, '[');
    for (const char *at = lines->data ? lines->data : ""; *at;) {
        size_t n = strcspn(at, "\n");
        dsf_json_add_str(b, NULL, at, n);
        at += n + (at[n] == '\n');
    }
    dsf_json_end(b, ']');
}

void dsf_diff_json(const dsf_diff_report *r, dsf_buf *b)
{
    dsf_json_begin(b, NULL, '{');
    dsf_diff_json_fields(r, b);
    dsf_json_end(b, '}');
    dsf_buf_char(b, '\n');
}

void dsf_diff_json_fields(const dsf_diff_report *r, dsf_buf *b)
{
    dsf_json_add_cstr(b, "schema", "dsf-diff-1");
    dsf_json_add_cstr(b, "reference", r->reference_path);
    dsf_json_add_cstr(b, "ours", r->ours_path);
    dsf_json_add_cstr(b, "model", r->model);
    dsf_json_add_int(b, "prompt_tokens", r->prompt_tokens);
    dsf_json_add_bool(b, "provisional", r->provisional);
    dsf_json_add_cstr(b, "verdict", r->verdict);
    dsf_json_add_bool(b, "good", r->good);
    dsf_json_add_bool(b, "gated", r->gated);
    dsf_json_add_cstr(b, "notes", r->ours_notes);
    dsf_json_add_cstr(b, "mode", r->mode);
    dsf_json_add_cstr(b, "floor", r->floor);
    dsf_json_add_bool(b, "selects", r->selects);
    dsf_json_add_int(b, "taps_compared", r->n_taps);
    dsf_json_add_int(b, "values_compared", r->values);
    const dsf_diff_tap *first = r->first >= 0 ? &r->tap[r->first] : NULL;
    dsf_diff_json_first(b, first, r->sentence,
                        first && first->local ? dsf_sentence_floor_ratio(first) : NAN);
    json_budget(r, b);
    dsf_diff_json_num(b, "worst_ratio", r->worst);
    if (r->worst_at >= 0) dsf_json_add_cstr(b, "worst_at", r->tap[r->worst_at].path);
    if (r->logits.present) json_logits(&r->logits, b);
    dsf_diff_json_lines(b, "absent", &r->absent);
    dsf_diff_json_lines(b, "given", &r->given);
    dsf_diff_json_lines(b, "not_makeable", &r->no_way);
    dsf_diff_json_lines(b, "rows_absent", &r->lacking);
    dsf_json_begin(b, "taps", '[');
    for (int64_t i = 0; i < r->n_taps; i++) json_tap(&r->tap[i], b);
    dsf_json_end(b, ']');
}
