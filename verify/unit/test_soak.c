/* dsf soak: its statistics against brute force, its ladder, its ledger and its guard; and the whole
 * of it on the mini model, where each planted fault is found by name. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/proc.h"
#include "bench/soak/state.h"
#include "engine_fixture.h"
#include "ops/fill.h"

TestSuite(soak, .fini = mini_clean);

/* ---- Theil-Sen ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double brute_slope(const double *v, int n)
{
    static double all[128 * 127 / 2];
    int k = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) all[k++] = (v[i] - v[j]) / (i - j);
    qsort(all, (size_t)k, sizeof *all, by_value);
    return k % 2 ? all[k / 2] : 0.5 * (all[k / 2 - 1] + all[k / 2]);
}

Test(soak, slope_is_the_median_of_all_pairs)
{
    uint64_t seed = 5;
    for (int n = 2; n < 40; n++) {
        double v[40];
        dsf_trend t;
        for (int i = 0; i < n; i++)
            v[i] = 3.5 * i + (double)dsf_fill_below(&seed, 1000) * (i % 7 == 3 ? 100 : 0.01);
        GOOD(dsf_trend_of(&t, v, n, 1));
        cr_expect_float_eq(t.slope, brute_slope(v, n), 1e-9 * fabs(t.slope), "%d points", n);
        cr_expect(t.low <= t.slope && t.slope <= t.high, "%g [%g, %g]", t.slope, t.low, t.high);
    }
}

Test(soak, slope_of_equal_values_is_exactly_zero_and_of_a_line_exactly_its_own)
{
    double flat[30], line[30];
    dsf_trend t;
    for (int i = 0; i < 30; i++) flat[i] = 1234567.0, line[i] = 1e9 + 65536.0 * i;
    GOOD(dsf_trend_of(&t, flat, 30, 1));
    cr_expect(t.slope == 0 && t.low == 0 && t.high == 0);
    GOOD(dsf_trend_of(&t, line, 30, 1));
    cr_expect(t.slope == 65536 && t.low == 65536 && t.high == 65536);
}

Test(soak, one_wild_value_does_not_move_the_slope)
{
    double v[21];
    dsf_trend t;
    for (int i = 0; i < 21; i++) v[i] = 10.0 * i;
    v[20] = 1e12;
    GOOD(dsf_trend_of(&t, v, 21, 1));
    cr_expect_float_eq(t.slope, 10, 1e-9);
}

Test(soak, interval_depends_on_the_seed_alone_and_tells_noise_from_a_leak)
{
    double noise[24], leak[24];
    uint64_t seed = 3;
    dsf_trend a, b, c;
    for (int i = 0; i < 24; i++) {
        noise[i] = (double)dsf_fill_below(&seed, 400000);
        leak[i] = noise[i] + 2e6 * i;
    }
    GOOD(dsf_trend_of(&a, noise, 24, 9));
    GOOD(dsf_trend_of(&b, noise, 24, 9));
    GOOD(dsf_trend_of(&c, noise, 24, 10));
    cr_expect(a.low == b.low && a.high == b.high);
    cr_expect(a.low != c.low || a.high != c.high, "another seed, another draw");
    cr_expect(a.low < a.high && a.high < 1 << 20, "[%g, %g]", a.low, a.high);
    GOOD(dsf_trend_of(&c, leak, 24, 9));
    cr_expect_gt(c.low, 1 << 20);
}

Test(soak, long_series_are_thinned_and_keep_their_slope)
{
    static double v[4000];
    dsf_trend t;
    for (int i = 0; i < 4000; i++) v[i] = 7.0 * i + (i % 5);
    GOOD(dsf_trend_of(&t, v, 4000, 1));
    cr_expect_eq(t.n, DSF_TREND_POINTS);
    cr_expect_float_eq(t.slope, 7, 0.05);
}

/* ---- the fit ---- */

enum { POINTS = 40 };
static double term[POINTS][DSF_FIT_TERMS], y[POINTS];

static void make_points(const double *c)
{
    for (int i = 0; i < POINTS; i++) {
        double length = 128.0 * (1 << (i % 10)), chunk = i < POINTS / 2 ? 512 : 8192;
        const double t[] = {1, length, fmin(chunk, length), fmin(chunk, length) * length};
        y[i] = 0;
        for (int k = 0; k < DSF_FIT_TERMS; k++) {
            term[i][k] = t[k];
            y[i] += c[k] * t[k];
        }
    }
}

Test(soak, fit_finds_the_coefficients_that_made_the_points)
{
    const double c[] = {5e6, 149, 5300, 0.25};
    dsf_fit f;
    make_points(c);
    GOOD(dsf_fit_of(&f, (const double(*)[DSF_FIT_TERMS])term, y, POINTS, DSF_FIT_TERMS));
    for (int k = 0; k < DSF_FIT_TERMS; k++) {
        cr_expect(f.told[k], "term %d", k);
        cr_expect_float_eq(f.coefficient[k], c[k], 1e-6 * c[k], "%d: %g", k, f.coefficient[k]);
    }
    cr_expect_lt(f.residual_percent, 1e-6);
}

Test(soak, fit_shows_a_planted_residual)
{
    const double c[] = {5e6, 149, 5300, 0};
    dsf_fit f;
    make_points(c);
    y[17] *= 1.03;
    GOOD(dsf_fit_of(&f, (const double(*)[DSF_FIT_TERMS])term, y, POINTS, DSF_FIT_TERMS));
    cr_expect(f.residual_percent > 1 && f.residual_percent < 3, "%g", f.residual_percent);
    cr_expect_lt(f.rms_percent, f.residual_percent);
}

Test(soak, a_term_that_others_make_up_for_is_not_told)
{
    dsf_fit f;
    const double c[] = {1e6, 100, 0, 0};
    make_points(c);
    for (int i = 0; i < POINTS; i++) term[i][3] = 512 * term[i][1];
    GOOD(dsf_fit_of(&f, (const double(*)[DSF_FIT_TERMS])term, y, POINTS, DSF_FIT_TERMS));
    cr_expect_not(f.told[3]);
    cr_expect_lt(f.residual_percent, 1e-6);
    y[3] = 0;
    REFUSED(DSF_EINVAL,
            dsf_fit_of(&f, (const double(*)[DSF_FIT_TERMS])term, y, POINTS, DSF_FIT_TERMS));
    SAYS("point 3");
}

/* ---- the ladder ---- */

static bool has(const dsf_ladder *l, int64_t length)
{
    for (int i = 0; i < l->n; i++)
        if (l->length[i] == length) return true;
    return false;
}

Test(soak, ladder_has_every_boundary_its_neighbours_and_remainders)
{
    dsf_ladder l;
    GOOD(dsf_ladder_default(&l, 1048576, 128, 2));
    for (int64_t p = 128; p <= 1048576; p *= 2) {
        cr_expect(has(&l, p) && has(&l, p - 1), "%lld", (long long)p);
        cr_expect(p == 1048576 || has(&l, p + 1), "%lld", (long long)p);
    }
    for (int i = 1; i < l.n; i++) cr_expect_lt(l.length[i - 1], l.length[i]);
    cr_expect_eq(l.length[l.n - 1], 1048576);
    cr_expect_eq(l.length[0], 1);
    GOOD(dsf_ladder_default(&l, 3000, 8, 7));
    for (int r = 0; r < 7; r++) cr_expect(has(&l, 256 + r) && has(&l, 8 + r), "%d", r);
    cr_expect(has(&l, 2049) && !has(&l, 2050) && has(&l, 3000));
}

Test(soak, ladder_of_few_or_wrong_lengths)
{
    dsf_ladder l;
    const int64_t some[] = {9, 3, 9, 1}, wrong[] = {3, 11};
    GOOD(dsf_ladder_default(&l, 1, 128, 2));
    cr_expect(l.n == 1 && l.length[0] == 1);
    GOOD(dsf_ladder_default(&l, 5, 128, 2));
    cr_expect_eq(l.length[l.n - 1], 5);
    GOOD(dsf_ladder_of(&l, some, 4, 10));
    cr_expect(l.n == 3 && l.length[0] == 1 && l.length[2] == 9);
    REFUSED(DSF_EINVAL, dsf_ladder_of(&l, wrong, 2, 10));
    SAYS("11");
    REFUSED(DSF_EINVAL, dsf_ladder_default(&l, 0, 128, 2));
}

/* ---- the ledger ---- */

Test(soak, ledger_knows_who_holds_what)
{
    dsf_ledger *l = NULL;
    char *a = NULL, *b = NULL, *own = NULL;
    void *map = NULL;
    GOOD(dsf_ledger_open(&l));
    dsf_ledger_mark(l, "first");
    uint64_t serial = dsf_ledger_now(l).serial;
    GOOD(dsf_mem_new(&a, 100, 1));
    GOOD(dsf_mem_map(&map, 5000));
    dsf_mem_unmap(map, 5000);
    dsf_ledger_hush(l, true);
    GOOD(dsf_mem_new(&own, 999, 1));
    dsf_ledger_hush(l, false);
    dsf_ledger_mark(l, "second");
    GOOD(dsf_mem_new(&b, 7, 3));
    GOOD(dsf_mem_grow(&b, 40, 1));
    dsf_ledger_state s = dsf_ledger_now(l);
    cr_expect_eq(s.live, 140);
    cr_expect_eq(s.blocks, 2);
    cr_expect_eq(s.taken, 2, "the stretch: taken and grown");
    cr_expect_eq(s.peak, 140);
    cr_expect_eq(s.largest.bytes, 40);
    cr_expect_eq(strncmp(s.largest.where, "verify/unit/test_soak.c:", 24), 0, "%s",
                 s.largest.where);
    cr_expect_eq(dsf_ledger_at(l, a), 100);
    cr_expect_eq(dsf_ledger_at(l, own), 0);
    dsf_ledger_group g[4];
    cr_assert_eq(dsf_ledger_since(l, serial, g, 4), 2);
    cr_expect(g[0].bytes == 100 && strcmp(g[0].phase, "first") == 0);
    cr_expect(g[1].bytes == 40 && strcmp(g[1].phase, "second") == 0);
    dsf_mem_free(a);
    dsf_mem_free(b);
    dsf_mem_free(own);
    cr_expect_eq(dsf_ledger_now(l).live, 0);
    dsf_ledger_close(l);
    GOOD(dsf_mem_new(&a, 1, 1)); /* nobody watches any more */
    dsf_mem_free(a);
}

static void *churn(void *ud)
{
    uint64_t seed = (uint64_t)(uintptr_t)ud;
    char *held[16] = {NULL};
    for (int i = 0; i < 4000; i++) {
        char **h = &held[dsf_fill_below(&seed, 16)];
        if (dsf_mem_grow(h, (size_t)dsf_fill_below(&seed, 3000) + 1, 1) != DSF_OK) return ud;
        if (i % 3 == 0) {
            dsf_mem_free(*h);
            *h = NULL;
        }
    }
    for (int i = 0; i < 16; i++) dsf_mem_free(held[i]);
    return NULL;
}

Test(soak, ledger_of_many_threads_ends_at_nothing)
{
    dsf_ledger *l = NULL;
    pthread_t thread[4];
    GOOD(dsf_ledger_open(&l));
    for (uintptr_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        void *bad = NULL;
        cr_assert_eq(pthread_join(thread[i], &bad), 0);
        cr_expect_null(bad);
    }
    dsf_ledger_state s = dsf_ledger_now(l);
    cr_expect(s.live == 0 && s.blocks == 0 && s.taken == 16000 && !s.lost, "%lld bytes",
              (long long)s.live);
    dsf_ledger_close(l);
}

/* ---- the guard ---- */

static const char *guard(dsf_soak_guard g)
{
    static char words[640];
    g.line = "pass: values";
    g.formula = "chunk 512 rows";
    g.line_bytes = 3000;
    dsf_soak_guard_words(&g, words, sizeof words);
    return words;
}

Test(soak, guard_is_silent_while_enough_is_left)
{
    cr_expect_str_eq(guard((dsf_soak_guard){.guard = 100, .available = 100}), "");
    cr_expect_str_eq(guard((dsf_soak_guard){.guard = 100, .available = 150, .planned = 50}), "");
    cr_expect_str_eq(guard((dsf_soak_guard){.guard = 0, .available = 1}), "", "off");
    cr_expect_str_eq(guard((dsf_soak_guard){.guard = 100, .available = -1}), "", "not known");
}

Test(soak, guard_names_the_line_the_block_or_the_others)
{
    const char *w = guard((dsf_soak_guard){.guard = 100, .available = 149, .planned = 50});
    cr_expect(strstr(w, "not started") && strstr(w, "\"pass: values\", 3000"), "%s", w);
    w = guard((dsf_soak_guard){.guard = 100, .available = 99, .own = 4000, .lost = 4100});
    cr_expect(strstr(w, "grew by 4000") && strstr(w, "pass: values"), "%s", w);
    w = guard((dsf_soak_guard){.guard = 100,
                               .available = 99,
                               .own = 9000,
                               .lost = 9100,
                               .beside = "engine/x.c:7",
                               .beside_bytes = 6000});
    cr_expect(strstr(w, "engine/x.c:7 holds 6000"), "%s", w);
    w = guard((dsf_soak_guard){.guard = 100, .available = 99, .own = 4000, .lost = 9000});
    cr_expect(strstr(w, "other processes took it"), "%s", w);
    w = guard((dsf_soak_guard){.guard = 9000, .available = 99, .own = 40, .lost = 9500});
    cr_expect(strstr(w, "other processes took it"), "%s", w);
    w = guard((dsf_soak_guard){.guard = 9000, .available = 99, .own = 40, .lost = 0});
    cr_expect(strstr(w, "the machine had 99 before the run"), "nobody took it: %s", w);
}

Test(soak, the_system_tells_of_this_process)
{
    enum { BYTES = 8 << 20 };
    void *p = NULL;
    dsf_proc_memory before = dsf_proc_own();
    if (before.anon < 0) cr_skip_test("/proc/self/status does not tell");
    GOOD(dsf_mem_map(&p, BYTES));
    memset(p, 1, BYTES);
    int64_t grown = dsf_proc_own().anon - before.anon;
    dsf_mem_unmap(p, BYTES);
    cr_expect(grown >= BYTES && (DSF_SANITIZED || grown < BYTES + (1 << 20)), "%lld",
              (long long)grown);
    dsf_proc_machine_memory m = dsf_proc_machine();
    cr_expect(m.total > 0 && m.available > 0 && m.available <= m.total);
    int64_t files = dsf_proc_files();
    FILE *f = fopen("/dev/null", "r");
    cr_expect_eq(dsf_proc_files(), files + 1);
    (void)fclose(f);
}

/* ---- the whole on the mini model ---- */

static char last[65536], verdict[65536];
static int lines;

static void take_line(void *ud, const char *json, const char *text)
{
    (void)ud, (void)text;
    if (!json) return;
    lines++;
    (void)snprintf(last, sizeof last, "%s", json);
    if (strstr(json, "{\"soak\": \"verdict\"")) (void)snprintf(verdict, sizeof verdict, "%s", json);
}

static void no_progress(void *ud, const char *name, int64_t done, int64_t total)
{
    (void)ud, (void)name, (void)done, (void)total;
}

static dsf_soak_answer soak(dsf_soak_options o)
{
    static const int64_t chunk[] = {32, 16};
    dsf_bench b = {.repeat = 1};
    dsf_soak_answer answer = DSF_SOAK_STOPPED;
    GOOD(dsf_bench_open(&b, 2, 0));
    b.out = (dsf_bench_out){take_line, no_progress, NULL};
    o.engine = (dsf_options){.model = mini(), .threads = 2};
    o.chunk = chunk;
    o.n_chunks = 2;
    o.to = 129;
    o.at = 96;
    GOOD(dsf_soak_run(&b, &o, &answer));
    dsf_bench_close(&b);
    return answer;
}

/* From the culprit on: Criterion cuts long messages. */
static const char *culprit(void)
{
    const char *at = strstr(verdict, "\"culprit\": ");
    return at ? at : "no verdict";
}

Test(soak, a_good_engine_passes, .timeout = 120)
{
    cr_expect_eq(soak((dsf_soak_options){.cycles = 4}), DSF_SOAK_PASSED, "%s", culprit());
    cr_expect_gt(lines, 50);
    cr_expect_not_null(strstr(culprit(), ": null"), "%s", culprit());
    for (const char *name = "plan\0arenas\0temporaries\0total\0margin\0fit\0chunk x length\0leak\0"
                            "live_bytes\0fds\0output of chunks\0output of cycles\0";
         *name; name += strlen(name) + 1) {
        char want[64];
        (void)snprintf(want, sizeof want, "{\"name\": \"%s\", \"passed\": true", name);
        cr_expect_not_null(strstr(verdict, want), "%s", want);
    }
}

/* The culprit's words hold all of these. */
static void finds(const char *plant, const char *a, const char *b)
{
    cr_expect_eq(soak((dsf_soak_options){.cycles = 4, .plant = plant}), DSF_SOAK_FAILED);
    cr_expect(strstr(culprit(), a) && strstr(culprit(), b), "%s", culprit());
}

/* [B-58] */
Test(soak, a_planted_temporary_is_named, .timeout = 120)
{
    finds("temporary", "plant.c:", "1 bytes x chunk 32 x length 129");
}

/* [B-73] */
Test(soak, a_planted_leak_is_named, .timeout = 120)
{
    finds("leak", "plant.c:", "65536 bytes a cycle in 1 block (phase fork)");
}

Test(soak, a_planted_plan_error_is_named, .timeout = 120)
{
    finds("plan", "cache: index keys", "planned are");
}

static bool at_once(void) { return true; }

Test(soak, a_stopped_run_reports_and_is_no_pass, .timeout = 120)
{
    cr_expect_eq(soak((dsf_soak_options){.cycles = 4, .stop = at_once}), DSF_SOAK_STOPPED);
    cr_expect_not_null(strstr(verdict, "stopped on request"));
    cr_expect_not_null(strstr(verdict, "\"passed\": false"));
}

Test(soak, the_guard_stops_before_anything_is_opened, .timeout = 120)
{
    int64_t total = dsf_proc_machine().total;
    if (total < 0) cr_skip_test("/proc/meminfo does not tell");
    cr_expect_eq(soak((dsf_soak_options){.guard = total}), DSF_SOAK_FAILED);
    cr_expect_not_null(strstr(culprit(), "\"guard: "));
}
