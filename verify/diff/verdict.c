#include "verify/diff/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verify/diff/flow.h"
#include "verify/diff/hashes.h"
#include "verify/diff/sentence.h"

/* Free-running over prompts that select: what a quantised network reaches for any cause at all is
 * KL 1e-2 and top-1 0.85 (golden-official README); beyond that something is broken. */
static const double kl_limit = 2e-2, top1_limit = 0.8;

static void line(dsf_diff_report *r, const char *fmt, ...) DSF_PRINTF(2, 3);
static void line(dsf_diff_report *r, const char *fmt, ...)
{
    va_list ap;
    size_t used = strlen(r->verdict);
    va_start(ap, fmt);
    (void)vsnprintf(r->verdict + used, sizeof r->verdict - used, fmt, ap);
    va_end(ap);
}

static void find_worst(dsf_diff_report *r)
{
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        if (t->verdict == DSF_DIFF_REPORTED || !(t->ratio > r->worst)) continue;
        r->worst = t->ratio;
        r->worst_at = i;
    }
}

static int64_t first_with(const dsf_diff_report *r, bool gated)
{
    for (int64_t i = 0; i < r->n_taps; i++)
        if (gated ? r->tap[i].verdict == DSF_DIFF_FAILED : r->tap[i].beyond) return i;
    return -1;
}

/* Looked up by token ids alone: here the first mismatch is final, whatever ran before. */
static bool exact_tier(const dsf_diff_tap *t)
{
    return t->tap.id == DSF_TAP_ENGRAM_ROWS || t->tap.id == DSF_TAP_EMBED;
}

/* Statistics without a block of the same rows: fails, and is no divergence. */
static bool unseen(const dsf_diff_tap *t)
{
    return t->by_hash && t->blocks.n == 0 && t->blocks.left > 0;
}

/* The exact tier first; then, in execution order, what fails while its inputs agree. */
static int64_t find_first(const dsf_diff_report *r)
{
    for (int64_t i = 0; i < r->n_taps; i++)
        if (r->tap[i].verdict == DSF_DIFF_FAILED && exact_tier(&r->tap[i]) && !unseen(&r->tap[i]))
            return i;
    for (int64_t i = 0; i < r->n_taps; i++)
        if (r->tap[i].verdict == DSF_DIFF_FAILED && !(r->tap[i].inputs_ratio > 1.0) &&
            !unseen(&r->tap[i]))
            return i;
    return first_with(r, true);
}

static void name_divergence(dsf_diff_report *r, int64_t at)
{
    const dsf_diff_tap *t = &r->tap[at];
    char figures[400];
    dsf_sentence_write(r->sentence, sizeof r->sentence, t);
    if (t->by_hash && t->rows > 0) {
        dsf_hashes_figures(figures, sizeof figures, t);
        line(r, "not the same: %s; %s", r->sentence, figures);
        return;
    }
    line(r, "%s: %s", unseen(t) ? "not compared" : "first divergence", r->sentence);
    if (t->rows == 0) return; /* the sentence is what was found */
    if (t->at_row >= 0) line(r, "; row %d", (int)t->at_row);
    if (t->at_column >= 0)
        line(r, " column %lld: reference %.9g, here %.9g", (long long)t->at_column, t->reference,
             t->ours);
    if (t->why[0]) line(r, "%s%s", t->at_row >= 0 ? ": " : "; ", t->why);
}

/* Without a floor nothing is good but equal bits. */
static bool name_provisional(dsf_diff_report *r)
{
    int64_t first = -1, differ = 0;
    for (int64_t i = 0; i < r->n_taps; i++) {
        if (r->tap[i].verdict == DSF_DIFF_EXACT) continue;
        if (differ++ == 0) first = i;
    }
    if (!r->provisional || first < 0) return false;
    const dsf_diff_tap *t = &r->tap[first];
    r->first = first;
    dsf_sentence_write(r->sentence, sizeof r->sentence, t);
    line(r,
         "not a pass: no floor was given, %lld of %lld taps are not bit-equal, all within "
         "provisional limits; first %s",
         (long long)differ, (long long)r->n_taps, r->sentence);
    if (t->at_column >= 0)
        line(r, "; row %d column %lld: reference %.9g, here %.9g", (int)t->at_row,
             (long long)t->at_column, t->reference, t->ours);
    return true;
}

/* Hashes: how many blocks spoke, and which had no counterpart. */
static void name_blocks(dsf_diff_report *r)
{
    int64_t n = 0, left = 0;
    for (int64_t i = 0; i < r->n_taps; i++) {
        n += r->tap[i].blocks.n;
        left += r->tap[i].blocks.left;
    }
    if (n) line(r, ", by the hashes of %lld blocks of rows", (long long)n);
    if (left) line(r, "; %lld blocks not compared: no block of the same rows", (long long)left);
}

static void name_same(dsf_diff_report *r)
{
    line(r, "same: %lld taps, %lld values compared", (long long)r->n_taps, (long long)r->values);
    if (r->worst_at >= 0)
        line(r, ", worst ratio %.2g at %s", r->worst, r->tap[r->worst_at].path);
    else
        line(r, ", all that is gated bit-equal");
    name_blocks(r);
    if (r->n_given) line(r, "; %lld taps given as inputs", (long long)r->n_given);
    if (r->n_no_way)
        line(r, "; %lld not made: the reference lacks their inputs or rows",
             (long long)r->n_no_way);
    if (r->n_cut) line(r, "; of %lld the reference holds some rows only", (long long)r->n_cut);
    int64_t beyond = 0, first = first_with(r, false);
    for (int64_t i = 0; i < r->n_taps; i++) beyond += r->tap[i].beyond;
    if (beyond)
        line(r,
             "; %lld taps carry more than the noise of exact inputs, first %s (not gated: graft "
             "tells)",
             (long long)beyond, r->tap[first].path);
}

/* Part of the reference has nothing to meet: what was compared is no pass for the whole. */
static bool name_uncompared(dsf_diff_report *r)
{
    if (r->n_absent == 0 && r->n_lacking == 0) return false;
    line(r, "not judged: %lld taps, %lld values compared%s; ", (long long)r->n_taps,
         (long long)r->values, first_with(r, false) < 0 ? ", none wrong" : "");
    const char *rows = r->lacking.data ? r->lacking.data : "";
    if (r->n_lacking)
        line(r, "rows of %lld taps are not here, first %.*s", (long long)r->n_lacking,
             (int)strcspn(rows, "\n"), rows);
    if (r->n_lacking && r->n_absent) line(r, "; ");
    const char *taps = r->absent.data ? r->absent.data : "";
    if (r->n_absent)
        line(r, "%lld taps of the reference are not here, first %.*s", (long long)r->n_absent,
             (int)strcspn(taps, "\n"), taps);
    line(r, " (%s compares what is there)",
         r->n_absent == 0    ? "--positions"
         : r->n_lacking == 0 ? "--only"
                             : "--only with --positions");
    return true;
}

static bool logits_broken(const dsf_diff_report *r)
{
    return r->logits.present && r->floor[0] && !r->injected &&
           (!(r->logits.kl_mean <= kl_limit) || r->logits.top1 < top1_limit);
}

/* What was asked for and is not there: names it and returns true. */
static bool asked_in_vain(dsf_diff_report *r, const dsf_walk *w, const dsf_diff_options *o)
{
    if (w->vain && w->vain_matches) {
        line(r,
             "nothing compared: what matches %s is given, or its inputs are not in the reference",
             w->vain);
        return true;
    }
    if (w->vain) {
        line(r, "nothing compared: the reference holds no tap that matches %s", w->vain);
        return true;
    }
    for (int64_t i = 0; i < w->n && o->n_only > 0; i++) {
        if (w->item[i].absence != DSF_WALK_ABSENT) continue;
        line(r, "asked for and absent: %s is not in %s", w->item[i].a, o->ours);
        return true;
    }
    return false;
}

static void write_notes(dsf_diff_report *r, const dsf_diff_options *o, const dsf_dump_info *ours)
{
    if (ours->partial)
        (void)snprintf(r->ours_notes, sizeof r->ours_notes,
                       "%.60s is a partial dump: its run did not finish", ours->path);
    if (*ours->stopped)
        (void)snprintf(r->ours_notes, sizeof r->ours_notes, "%.60s: its run stopped early, %.60s",
                       ours->path, ours->stopped);
    if (o->no_gate)
        (void)snprintf(r->ours_notes, sizeof r->ours_notes, "not gated: %.120s", o->no_gate);
}

/* Some taps of a free run were asked for: what they were computed from was not compared, so an
 * error may be carried or their own. Neither is a pass. */
static bool name_unjudged(dsf_diff_report *r, const dsf_diff_options *o)
{
    int64_t at = first_with(r, false);
    if (r->injected || at < 0 || (o->n_only == 0 && !o->by_layer)) return false;
    dsf_sentence_write(r->sentence, sizeof r->sentence, &r->tap[at]);
    r->first = at;
    line(r, "not judged: %s; what it was computed from was not compared: compare all, or graft",
         r->sentence);
    return true;
}

static void find_inputs(dsf_diff_report *r, const dsf_dump_geometry *g)
{
    for (int64_t i = 0; i < r->n_taps; i++) {
        dsf_diff_tap *t = &r->tap[i];
        dsf_tap from[DSF_FLOW_MAX];
        int n = t->n_inputs = dsf_flow_inputs(g, t->tap, from);
        for (int k = 0; k < n; k++) {
            const dsf_diff_tap *in = dsf_sentence_tap(r, from[k]);
            /* without a gate of its own (a stream that is the one before) its inputs speak for it
             */
            bool open = in && in->verdict == DSF_DIFF_REPORTED && in->changed > 0;
            double ratio = !in ? NAN : open ? in->inputs_ratio : in->ratio;
            if (isnan(ratio) || t->inputs_ratio >= ratio) continue;
            t->inputs_ratio = ratio;
            (void)snprintf(t->inputs_at, sizeof t->inputs_at, "%s", in->path);
        }
    }
}

void dsf_verdict_conclude(dsf_diff_report *r, const dsf_walk *w, const dsf_diff_options *o,
                          const dsf_diff_state *s)
{
    write_notes(r, o, dsf_dump_info_of(s->b));
    find_inputs(r, s->g);
    find_worst(r);
    r->first = find_first(r);
    if (r->n_taps == 0 || r->values == 0) {
        if (!asked_in_vain(r, w, o))
            line(r, "nothing compared: %s and %s share no rows of any tap", o->reference, o->ours);
    } else if (asked_in_vain(r, w, o)) {
        r->good = false;
    } else if (r->first >= 0) {
        name_divergence(r, r->first);
    } else if (w->odd[0]) {
        line(r, "taps do not fit together: %s", w->odd);
    } else if (logits_broken(r)) {
        r->first = first_with(r, false);
        line(r, "logits differ: mean KL %.3g (limit %.0e), top-1 %.3f (limit %.1f); ",
             r->logits.kl_mean, kl_limit, r->logits.top1, top1_limit);
        if (r->first >= 0) name_divergence(r, r->first);
    } else if (!name_uncompared(r) && !name_provisional(r) && !name_unjudged(r, o)) {
        name_same(r);
        r->good = true;
    }
}
