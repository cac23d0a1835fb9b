#include "verify/diff/sentence.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char *out;
    size_t size;
} text;

static void add(text *b, const char *fmt, ...) DSF_PRINTF(2, 3);
static void add(text *b, const char *fmt, ...)
{
    size_t used = strlen(b->out);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(b->out + used, b->size - used, fmt, ap);
    va_end(ap);
}

const dsf_diff_tap *dsf_sentence_tap(const dsf_diff_report *r, dsf_tap tap)
{
    for (int64_t i = 0; i < r->n_taps && tap.id != DSF_TAP_NONE; i++)
        if (r->tap[i].tap.id == tap.id && r->tap[i].tap.layer == tap.layer) return &r->tap[i];
    return NULL;
}

double dsf_sentence_floor_ratio(const dsf_diff_tap *t)
{
    if (t->discrete) return t->choice_ratio > 0.0 ? t->choice_ratio : NAN;
    if (isnan(t->floor_rel_l2)) return NAN;
    if (t->floor_rel_l2 == 0.0) return t->rel_l2 > 0.0 ? INFINITY : 0.0;
    return t->rel_l2 / t->floor_rel_l2;
}

static void add_rows(text *b, const dsf_diff_tap *t)
{
    int64_t wrong = t->wrong_rows ? t->wrong_rows : t->unequal;
    const char *verb = t->wrong_rows ? "wrong" : "unequal";
    if (wrong == 0) return;
    add(b, "%lld of %lld rows %s", (long long)wrong, (long long)t->rows, verb);
    if (t->wrong_at[0] && wrong < t->rows) add(b, " (row%s %s)", wrong > 1 ? "s" : "", t->wrong_at);
}

static void add_blocks(text *b, const dsf_diff_tap *t)
{
    const dsf_diff_blocks *k = &t->blocks;
    add(b, "rows %d-%d (%lld of %lld blocks differ)", (int)k->from, (int)k->to,
        (long long)k->differ, (long long)k->n);
}

static void add_inputs(text *b, const dsf_diff_tap *t)
{
    if (t->n_inputs == 0 && t->tap.id != DSF_TAP_NONE)
        add(b, ", from token ids alone");
    else if (isnan(t->inputs_ratio))
        add(b, ", its inputs were not compared");
    else if (t->inputs_ratio == 0.0)
        add(b, ", inputs agree (bit-equal)");
    else if (t->inputs_ratio <= 1.0)
        add(b, ", inputs agree (ratio %.2g)", t->inputs_ratio);
    else
        add(b, ", inputs already differ (ratio %.3g at %s)", t->inputs_ratio, t->inputs_at);
}

static void add_error(text *b, const dsf_diff_tap *t)
{
    double ratio = dsf_sentence_floor_ratio(t);
    const char *kind = t->local ? "local" : "carried";
    if (t->discrete && ratio > 0.0)
        add(b, ", margin %.3gx the noise", ratio);
    else if (t->discrete)
        return;
    else if (isinf(ratio))
        add(b, ", %s error %.2g where the floor is 0", kind, t->rel_l2);
    else if (ratio > 0.0)
        add(b, ", %s error %.3gx floor", kind, ratio);
    else if (t->rel_l2 > 0.0)
        add(b, ", %s error %.2g", kind, t->rel_l2);
}

void dsf_sentence_write(char *out, size_t size, const dsf_diff_tap *t)
{
    text b = {out, size};
    out[0] = 0;
    add(&b, "%s: ", t->path);
    if (t->rows == 0) {
        add(&b, "%s", t->why);
        return;
    }
    if (t->by_hash)
        add_blocks(&b, t);
    else
        add_rows(&b, t);
    add_inputs(&b, t);
    add_error(&b, t);
    if (t->pattern.text[0]) add(&b, ": %s", t->pattern.text);
}
