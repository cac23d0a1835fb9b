/* Sampling against sets and distributions that are counted by brute force. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsf.h"

enum { MOST = 600 };

static float work[MOST];

static int32_t draw(const float *x, int n, dsf_sampling s, int64_t position)
{
    int32_t id = -1;
    cr_assert_eq(dsf_sample(x, n, &s, position, work, &id, NULL), DSF_OK, "%s",
                 dsf_error_message());
    cr_assert(id >= 0 && id < n);
    return id;
}

/* Reproducible logits of a wide range; `ties`: rounded, so that many are equal. */
static void make_logits(float *x, int n, uint64_t seed, double spread, bool ties)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(seed >> 40) * 0x1p-24 - 0.5;
        x[i] = (float)(ties ? round(u * spread) : u * spread);
    }
}

/* ---- greedy ---- */

Test(sample, temperature_0_is_the_largest_and_the_smallest_id_on_ties)
{
    float x[5] = {1, 7, -3, 7, 7};
    const dsf_sampling greedy = {.temperature = 0, .top_p = 1};
    for (int64_t p = 0; p < 50; p++) cr_expect_eq(draw(x, 5, greedy, p), 1);
    x[0] = 7;
    cr_expect_eq(draw(x, 5, greedy, 3), 0);
    cr_expect_eq(draw(x, 1, greedy, 3), 0);
    int32_t id;
    cr_expect_eq(dsf_sample(x, 5, &greedy, 0, NULL, &id, NULL), DSF_OK, "needs no scratch");
}

Test(sample, a_temperature_near_0_is_greedy_where_there_is_no_tie)
{
    float x[200];
    make_logits(x, 200, 5, 20, false);
    const dsf_sampling cold = {.temperature = 1e-300, .top_p = 1},
                       greedy = {.temperature = 0, .top_p = 1};
    for (int64_t p = 0; p < 50; p++) cr_expect_eq(draw(x, 200, cold, p), draw(x, 200, greedy, p));
}

Test(sample, logprob_is_that_of_temperature_1)
{
    float x[MOST];
    make_logits(x, MOST, 9, 30, false);
    double sum = 0, logprob;
    for (int i = 0; i < MOST; i++) sum += exp(x[i]);
    const double temperature[] = {0, 0.3, 1, 5};
    for (int k = 0; k < 4; k++) {
        const dsf_sampling s = {.temperature = temperature[k], .top_p = 0.7, .seed = 1};
        int32_t id;
        cr_assert_eq(dsf_sample(x, MOST, &s, 4, work, &id, &logprob), DSF_OK);
        cr_expect(fabs(logprob - (x[id] - log(sum))) < 1e-9);
    }
}

/* ---- what is refused ---- */

Test(sample, parameters_outside_their_range_are_refused)
{
    static const dsf_sampling bad[] = {{.temperature = -1, .top_p = 1},
                                       {.temperature = NAN, .top_p = 1},
                                       {.temperature = INFINITY, .top_p = 1},
                                       {.temperature = 1, .top_p = 0},
                                       {.temperature = 1, .top_p = 1.01},
                                       {.temperature = 1, .top_p = NAN},
                                       {.temperature = 1, .top_p = 1, .min_p = 1},
                                       {.temperature = 1, .top_p = 1, .min_p = -0.1},
                                       {.temperature = 1, .top_p = 1, .min_p = NAN},
                                       {.temperature = 1, .top_p = 1, .top_k = -1}};
    const float x[2] = {0, 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t id = 77;
        cr_expect_eq(dsf_sample(x, 2, &bad[i], 0, work, &id, NULL), DSF_EINVAL, "case %zu", i);
        cr_expect_eq(id, 77);
    }
}

/* Whatever the place: a logit that is no number says that the model is broken. [B-44] */
Test(sample, nan_and_plus_infinity_are_refused_with_their_id)
{
    static const float bad[] = {NAN, INFINITY};
    const double temperature[] = {0, 1};
    for (int k = 0; k < 4; k++)
        for (int at = 0; at < 5; at++) {
            float x[5] = {0, 3, 1, 2, 0};
            char word[16];
            int32_t id = 77;
            const dsf_sampling s = {.temperature = temperature[k / 2], .top_p = 0.9};
            x[at] = bad[k % 2];
            cr_expect_eq(dsf_sample(x, 5, &s, 0, work, &id, NULL), DSF_ECORRUPT, "case %d at %d", k,
                         at);
            (void)snprintf(word, sizeof word, "id %d", at);
            cr_expect_not_null(strstr(dsf_error_message(), word), "%s", dsf_error_message());
            cr_expect_eq(id, 77);
        }
}

Test(sample, minus_infinity_is_never_drawn)
{
    float x[4] = {0, -INFINITY, 0, -INFINITY};
    const dsf_sampling s = {.temperature = 2, .top_p = 1, .seed = 3};
    for (int64_t p = 0; p < 2000; p++) cr_expect_eq(draw(x, 4, s, p) & 1, 0);
    for (int i = 0; i < 4; i++) x[i] = -INFINITY;
    int32_t id;
    cr_expect_eq(dsf_sample(x, 4, &s, 0, work, &id, NULL), DSF_ECORRUPT, "nothing is left");
}

/* ---- the sets of top-k, top-p and min-p ---- */

typedef struct {
    double p;
    int id;
} ranked;

static int by_p(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p) : x->id - y->id;
}

/* The filters one after the other, as their names say; values equal to the last one kept stay too.
 */
static int keep_by_rank(const float *x, int n, const dsf_sampling *s, bool *kept)
{
    static ranked r[MOST];
    double max = x[0], sum = 0, mass = 0, run = 0;
    for (int i = 1; i < n; i++) max = fmax(max, x[i]);
    for (int i = 0; i < n; i++) {
        r[i] = (ranked){exp((x[i] - max) / s->temperature), i};
        sum += r[i].p;
    }
    for (int i = 0; i < n; i++) r[i].p /= sum;
    qsort(r, (size_t)n, sizeof *r, by_p);
    int m = s->top_k > 0 && s->top_k < n ? (int)s->top_k : n;
    while (m < n && r[m].p == r[m - 1].p) m++;
    for (int i = 0; i < m; i++) mass += r[i].p;
    int k = 0;
    while (s->top_p < 1 && k < m && run < s->top_p * mass) run += r[k++].p;
    if (s->top_p == 1) k = m;
    while (k < m && r[k].p == r[k - 1].p) k++;
    while (k > 1 && r[k - 1].p < s->min_p * r[0].p) k--;
    memset(kept, 0, (size_t)n);
    for (int i = 0; i < k; i++) kept[r[i].id] = true;
    return k;
}

/* Draws until every kept id has come, as far as chance allows; none outside may come. */
static void check_set(const float *x, int n, dsf_sampling s, const char *what)
{
    bool kept[MOST], came[MOST] = {false};
    int want = keep_by_rank(x, n, &s, kept), got = 0;
    for (int64_t p = 0; p < 3000; p++) {
        int32_t id = draw(x, n, s, p);
        cr_assert(kept[id], "%s: id %d is not among the %d kept", what, id, want);
        got += !came[id];
        came[id] = true;
    }
    if (want <= 12) cr_expect_eq(got, want, "%s: %d of %d ids came", what, got, want);
}

Test(sample, only_the_kept_ids_are_drawn)
{
    static const int sizes[] = {2, 3, 17, MOST};
    for (int k = 0; k < 4; k++)
        for (int ties = 0; ties < 2; ties++) {
            float x[MOST];
            int n = sizes[k];
            make_logits(x, n, (uint64_t)k + 3, 6, ties);
            for (int64_t top = 1; top <= 8; top++)
                check_set(x, n, (dsf_sampling){.temperature = 3, .top_p = 1, .top_k = top},
                          "top-k");
            for (int p = 5; p < 100; p += 15)
                check_set(x, n, (dsf_sampling){.temperature = 1.5, .top_p = p / 100.0}, "top-p");
            for (int p = 1; p < 10; p += 2)
                check_set(x, n, (dsf_sampling){.temperature = 2, .top_p = 1, .min_p = p / 10.0},
                          "min-p");
            for (int64_t top = 2; top <= 8; top += 3)
                check_set(
                    x, n,
                    (dsf_sampling){.temperature = 2, .top_p = 0.8, .top_k = top, .min_p = 0.2},
                    "all three");
        }
}

/* top-p counts the mass that top-k has left. */
Test(sample, the_filters_act_one_after_the_other)
{
    float x[4] = {0, 0, 0, 0}; /* equal: top-k keeps all four, a border tie */
    check_set(x, 4, (dsf_sampling){.temperature = 1, .top_p = 0.5, .top_k = 2}, "ties");
    for (int i = 0; i < 4; i++) x[i] = logf((float)(4 - i)); /* 0.4 0.3 0.2 0.1 */
    bool kept[4];
    const dsf_sampling s = {.temperature = 1, .top_p = 0.55, .top_k = 2};
    cr_assert_eq(keep_by_rank(x, 4, &s, kept),
                 1); /* 4/7 of what is left; 0.4 of all would not do */
    check_set(x, 4, s, "top-p of what top-k left");
}

/* A set that reaches far down is cut at the right place, not where a search gave up. */
Test(sample, top_k_is_exact_among_tiny_probabilities)
{
    float x[MOST];
    for (int i = 0; i < MOST; i++) x[i] = i ? -60.0f - 0.01f * (float)i : 0.0f;
    for (int k = 0; k < 3; k++) {
        const dsf_sampling s = {.temperature = 1, .top_p = 1, .top_k = 10 + 100 * k};
        int32_t id;
        int kept = 0;
        cr_assert_eq(dsf_sample(x, MOST, &s, 0, work, &id, NULL), DSF_OK);
        for (int i = 0; i < MOST; i++) kept += work[i] > 0;
        cr_expect_eq(kept, s.top_k);
    }
}

/* ---- distribution ---- */

/* Sum of (seen - expected)^2 / expected. */
static double chi_square(const int *seen, const double *p, int n, int draws)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (p[i] > 0) sum += pow(seen[i] - p[i] * draws, 2) / (p[i] * draws);
    return sum;
}

/* Wilson-Hilferty: the value that chance passes once in a million with f degrees of freedom. */
static double chi_limit(int f)
{
    double a = 2.0 / (9 * f);
    return f * pow(1 - a + 4.753 * sqrt(a), 3);
}

Test(sample, draws_follow_the_probabilities)
{
    enum { N = 12, DRAWS = 40000 };
    float x[N];
    make_logits(x, N, 77, 4, false);
    for (int by = 0; by < 2; by++) /* over positions of one seed, and over seeds at one position */
        for (int k = 0; k < 3; k++) {
            dsf_sampling s = {
                .temperature = k == 1 ? 0.7 : 1.3, .top_p = k == 2 ? 0.8 : 1, .seed = 11};
            bool kept[N];
            double p[N], sum = 0;
            int seen[N] = {0}, left = keep_by_rank(x, N, &s, kept);
            for (int i = 0; i < N; i++) sum += p[i] = kept[i] ? exp(x[i] / s.temperature) : 0;
            for (int i = 0; i < N; i++) p[i] /= sum;
            for (int d = 0; d < DRAWS; d++) {
                if (by) s.seed = (uint64_t)d;
                seen[draw(x, N, s, by ? 5 : d)]++;
            }
            double chi = chi_square(seen, p, N, DRAWS), limit = chi_limit(left - 1);
            cr_expect_lt(chi, limit, "by %d, case %d: %g, limit %g", by, k, chi, limit);
        }
}

/* With equal logits the drawn id is floor(u n): the generator's own uniformity, in one dimension
 * and in pairs of neighbouring positions and neighbouring seeds. */
Test(sample, the_generator_is_uniform_also_in_pairs)
{
    enum { N = 16, DRAWS = 64000 };
    float x[N] = {0};
    double p[N * N];
    for (int i = 0; i < N * N; i++) p[i] = 1.0 / (N * N);
    for (int by = 0; by < 2; by++) {
        int pair[N * N] = {0}, one[N] = {0};
        for (int d = 0; d < DRAWS; d++) {
            dsf_sampling s = {.temperature = 1, .top_p = 1, .seed = by ? (uint64_t)d : 42};
            int a = draw(x, N, s, by ? 9 : d);
            if (by) s.seed++;
            int b = draw(x, N, s, by ? 9 : d + 1);
            one[a]++;
            pair[a * N + b]++;
        }
        double q[N];
        for (int i = 0; i < N; i++) q[i] = 1.0 / N;
        cr_expect_lt(chi_square(one, q, N, DRAWS), chi_limit(N - 1), "by %d", by);
        cr_expect_lt(chi_square(pair, p, N * N, DRAWS), chi_limit(N * N - 1), "by %d, pairs", by);
    }
}

Test(sample, a_draw_depends_on_seed_and_position_only)
{
    float x[MOST], y[MOST];
    int32_t want[100];
    make_logits(x, MOST, 3, 5, false);
    make_logits(y, MOST, 4, 5, false);
    const dsf_sampling s = {.temperature = 1, .top_p = 0.95, .seed = 123},
                       t = {.temperature = 1, .top_p = 1, .seed = 124};
    for (int p = 0; p < 100; p++) want[p] = draw(x, MOST, s, p);
    int other = 0;
    for (int p = 99; p >= 0; p--) { /* backwards, with others in between */
        (void)draw(y, MOST, t, p);
        cr_expect_eq(draw(x, MOST, s, p), want[p]);
        other += draw(x, MOST, t, p) != want[p];
    }
    cr_expect_gt(other, 80, "another seed draws otherwise");
    (void)draw(x, MOST, s, INT64_MAX);
    (void)draw(x, MOST, s, 0);
}

/* The same numbers on every machine: the mix is integer arithmetic, the logits are exact. */
Test(sample, the_draws_of_a_seed_are_fixed)
{
    float x[8] = {0};
    char line[33] = {0};
    for (int p = 0; p < 32; p++)
        line[p] =
            (char)('0' + draw(x, 8, (dsf_sampling){.temperature = 1, .top_p = 1, .seed = 7}, p));
    int32_t by_hand = 0; /* floor(8 u), u from the mix as the header of the source states it */
    uint64_t r = 7 + 0x9E3779B97F4A7C15u;
    for (int k = 0; k < 2; k++) { /* position 0: the second mix is of the first alone */
        r ^= r >> 30;
        r *= 0xBF58476D1CE4E5B9u;
        r ^= r >> 27;
        r *= 0x94D049BB133111EBu;
        r ^= r >> 31;
    }
    by_hand = (int32_t)(r >> 61);
    cr_expect_eq(line[0] - '0', by_hand, "%s", line);
}
