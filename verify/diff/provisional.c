#include "verify/diff/provisional.h"

#include <math.h>
#include <stdio.h>

/* One operation on exact inputs: worst row of a quantised product (verification.md 13, tier 3), and
 * what float32 in another order may cost. A layer is several operations, each on the last one's
 * roundings, and one flipped FP8 rounding inside an expert moves a small tap by a percent. */
static const double local_bf16 = 5e-3, local_f32 = 1e-4, layer_bf16 = 2e-2, layer_f32 = 1e-3;
/* Cosine and norm ratio that go with the carried limits. */
static const double least_cosine = 0.999, most_gain = 0.01;

double dsf_provisional_carried(int layer, int n_layers)
{
    int place = layer < 0 ? n_layers : layer + 1;
    return fmin(0.05, 0.01 * sqrt((double)(place > 0 ? place : 1)));
}

/* Looked up or handed on: equal whatever ran before (hash rows, embeddings). */
static bool looked_up(dsf_tap tap)
{
    return tap.id == DSF_TAP_EMBED || tap.id == DSF_TAP_ENGRAM_EMB ||
           tap.id == DSF_TAP_DSPARK_MARKOV_EMBED;
}

static double row_ratio(const dsf_row *r, double limit)
{
    if (r->rel == 0.0) return 0.0;
    return limit > 0.0 ? r->rel / limit : INFINITY;
}

void dsf_provisional_judge(const dsf_diff_state *s, dsf_tap tap, dsf_row *row, dsf_diff_tap *t)
{
    bool local = s->injected || !s->touched || looked_up(tap), exact = !s->touched && !s->injected;
    bool f32 = t->source == DSF_SRC_F32;
    double limit = looked_up(tap) ? 0.0
                   : !local       ? dsf_provisional_carried(t->layer, s->g->n_layers)
                   : exact        ? (f32 ? local_f32 : local_bf16)
                                  : (f32 ? layer_f32 : layer_bf16);
    double cosine = 1.0;
    if (t->gain > 0.0) cosine = (1.0 + t->gain * t->gain - t->rel_l2 * t->rel_l2) / (2.0 * t->gain);
    t->local = local;
    t->limit_rel_l2 = limit;
    t->limit_row = exact ? limit : 3.0 * limit;
    t->ratio = t->rel_l2 > 0.0 ? limit > 0.0 ? t->rel_l2 / limit : INFINITY : 0.0;
    for (int64_t i = 0; i < t->rows; i++) {
        double base = t->limit_row + (local && limit > 0.0 ? row[i].step : 0.0);
        row[i].ratio = row[i].status == DSF_ROW_JUDGED ? row_ratio(&row[i], base) : 0.0;
        row[i].over = row[i].ratio > 1.0;
        t->ratio = fmax(t->ratio, row[i].ratio);
    }
    if (!local && t->rel_l2 > 0.0) {
        t->ratio = fmax(t->ratio, fabs(t->gain - 1.0) / most_gain);
        t->ratio = fmax(t->ratio, (1.0 - cosine) / (1.0 - least_cosine));
    }
    t->beyond = t->ratio > 1.0;
    t->verdict = t->changed == 0 ? DSF_DIFF_EXACT
                 : t->beyond     ? DSF_DIFF_FAILED
                                 : DSF_DIFF_PROVISIONAL;
    if (t->ungated == t->rows && t->changed) t->verdict = DSF_DIFF_REPORTED;
    if (t->changed)
        (void)snprintf(
            t->why, sizeof t->why,
            "%s: rel L2 %.2e (limit %.1e), worst row %.2e (%.1e); provisional: no floor was given",
            exact   ? "an operation"
            : local ? "a layer"
                    : "carried",
            t->rel_l2, limit, t->row_max, t->limit_row);
}
