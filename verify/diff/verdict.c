#include "verify/diff/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* How the taps that ran before stand: the fault is here only where its inputs agree. */
static const char *inputs(const dsf_diff_report *r, int64_t at)
{
    bool changed = false;
    for (int64_t i = 0; i < at; i++) {
        if (r->tap[i].beyond) return "inputs already differ";
        changed = changed || (r->tap[i].layer == r->tap[at].layer && r->tap[i].changed > 0);
    }
    return changed ? "inputs agree within their limits" : "inputs agree";
}

static void name_divergence(dsf_diff_report *r, int64_t at)
{
    const dsf_diff_tap *t = &r->tap[at];
    line(r, "first divergence: %s", t->path);
    if (t->at_row >= 0) line(r, " row %d", (int)t->at_row);
    if (t->at_column >= 0)
        line(r, " column %lld: reference %.9g, here %.9g", (long long)t->at_column, t->reference,
             t->ours);
    line(r, " (%s); %s", t->why[0] ? t->why : "different", inputs(r, at));
}

static void name_same(dsf_diff_report *r)
{
    line(r, "same: %lld taps, %lld values compared", (long long)r->n_taps, (long long)r->values);
    if (r->worst_at >= 0)
        line(r, ", worst ratio %.2g at %s", r->worst, r->tap[r->worst_at].path);
    else
        line(r, ", all that is gated bit-equal");
    if (r->n_absent) line(r, "; %lld taps skipped: absent here", (long long)r->n_absent);
    int64_t beyond = 0, first = first_with(r, false);
    for (int64_t i = 0; i < r->n_taps; i++) beyond += r->tap[i].beyond;
    if (beyond)
        line(r,
             "; %lld taps carry more than the noise of exact inputs, first %s (not gated: graft "
             "tells)",
             (long long)beyond, r->tap[first].path);
}

static bool logits_broken(const dsf_diff_report *r)
{
    return r->logits.present && r->floor[0] && !r->injected &&
           (!(r->logits.kl_mean <= kl_limit) || r->logits.top1 < top1_limit);
}

/* What was asked for and is not there: names it and returns true. */
static bool asked_in_vain(dsf_diff_report *r, const dsf_walk *w, const dsf_diff_options *o)
{
    if (o->n_only == 0) return false;
    if (w->n_asked == 0) {
        line(r, "nothing compared: the reference holds no tap that matches %s", o->only[0]);
        return true;
    }
    for (int64_t i = 0; i < w->n; i++) {
        if (w->item[i].b[0]) continue;
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
    if (o->no_gate)
        (void)snprintf(r->ours_notes, sizeof r->ours_notes, "not gated: %.120s", o->no_gate);
}

void dsf_verdict_conclude(dsf_diff_report *r, const dsf_walk *w, const dsf_diff_options *o,
                          const dsf_dump_info *ours, const dsf_floor *floor)
{
    (void)floor;
    write_notes(r, o, ours);
    find_worst(r);
    r->first = first_with(r, true);
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
    } else {
        name_same(r);
        r->good = true;
    }
}
