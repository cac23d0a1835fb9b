/* Statistics, parity and comparison of the benchmarks. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "bench/baseline.h"
#include "bench/bench.h"
#include "bench/model.h"

Test(bench, median_and_spread_are_the_quartiles)
{
    dsf_samples s = {.n = 0};
    cr_assert_eq(dsf_samples_median(&s), 0);
    const double v[] = {5, 1, 4, 2, 3};
    for (int i = 0; i < 5; i++) dsf_samples_add(&s, v[i]);
    cr_assert_float_eq(dsf_samples_median(&s), 3, 1e-12);
    cr_assert_float_eq(dsf_samples_spread(&s), (4.0 - 2.0) / 2 / 3, 1e-12);
    dsf_samples_add(&s, 6);
    cr_assert_float_eq(dsf_samples_median(&s), 3.5, 1e-12);
}

Test(bench, more_samples_than_room_are_dropped)
{
    dsf_samples s = {.n = 0};
    for (int i = 0; i < DSF_BENCH_SAMPLES + 7; i++) dsf_samples_add(&s, 1);
    cr_assert_eq(s.n, DSF_BENCH_SAMPLES);
}

Test(bench, the_interval_holds_the_median_and_repeats)
{
    dsf_samples s = {.n = 0};
    double a[2], b[2], wide[2];
    for (int i = 0; i < 101; i++) dsf_samples_add(&s, 100 + i * 37 % 101);
    dsf_samples_interval(&s, 0.95, a);
    dsf_samples_interval(&s, 0.95, b);
    dsf_samples_interval(&s, 0.99, wide);
    cr_assert_arr_eq(a, b, sizeof a, "the draws have a fixed seed");
    cr_assert(a[0] < 150 && 150 < a[1] && a[1] - a[0] < 50);
    cr_assert(wide[0] <= a[0] && a[1] <= wide[1]);
    /* Of a uniform sample of 101 over 101 the median's deviation is about 101 / (2 sqrt 101). */
    cr_assert_float_eq(a[1] - a[0], 2 * 1.96 * 5.02, 6);
    s.n = 1;
    dsf_samples_interval(&s, 0.95, a);
    cr_assert(isnan(a[0]) && isnan(a[1]) && isnan(dsf_samples_sd(&s)));
}

Test(bench, deviation_is_of_a_sample)
{
    dsf_samples s = {.v = {2, 4, 4, 4, 5, 5, 7, 9}, .n = 8};
    cr_assert_float_eq(dsf_samples_mean(&s), 5, 1e-12);
    cr_assert_float_eq(dsf_samples_sd(&s), sqrt(32.0 / 7), 1e-12);
}

Test(bench, a_percentile_needs_ten_beyond_it)
{
    dsf_samples s = {.n = 19};
    cr_assert_not(dsf_samples_tell(&s, 0.5));
    s.n = 20;
    cr_assert(dsf_samples_tell(&s, 0.5));
    s.n = 99;
    cr_assert_not(dsf_samples_tell(&s, 0.9));
    s.n = 100;
    cr_assert(dsf_samples_tell(&s, 0.9));
    s.n = 999;
    cr_assert_not(dsf_samples_tell(&s, 0.99));
    s.n = 1000;
    cr_assert(dsf_samples_tell(&s, 0.99));
}

Test(bench, warm_up_ends_when_two_runs_agree_or_at_its_bound)
{
    dsf_warmup w = {.runs = 0}, never = {.runs = 0};
    const double ns[] = {900, 500, 480, 477};
    for (int i = 0; i < 4; i++) cr_assert_eq(dsf_warmup_more(&w, ns[i]), i < 3, "run %d", i);
    cr_assert(w.settled);
    cr_assert_eq(w.runs, 4);
    cr_assert_eq(w.first, 900);
    double t = 1;
    while (dsf_warmup_more(&never, t)) t *= 1.1;
    cr_assert_not(never.settled);
    cr_assert_eq(never.runs, DSF_WARMUPS_MOST);
}

static bool told(const dsf_samples *s, const char *words)
{
    dsf_buf json = {.max = 0};
    dsf_json_begin(&json, NULL, '{');
    dsf_bench_stats(&json, s, 2, NULL);
    dsf_json_end(&json, '}');
    bool found = strstr(json.data, words) != NULL;
    dsf_buf_free(&json);
    return found;
}

Test(bench, stats_flag_what_is_noisy_and_leave_out_what_samples_cannot_tell)
{
    dsf_samples quiet = {.v = {100, 100, 101, 99, 100}, .n = 5};
    dsf_samples loud = {.v = {100, 103, 97, 105, 95}, .n = 5};
    cr_assert(told(&quiet, "\"noisy\": false"));
    cr_assert(told(&quiet, "\"min\": 198"));
    cr_assert(told(&loud, "\"noisy\": true"));
    cr_assert_not(told(&loud, "p50"));
    for (int i = 0; i < 15; i++) dsf_samples_add(&loud, 100);
    cr_assert(told(&loud, "\"p50\": 200"));
    cr_assert_not(told(&loud, "p90"));
}

Test(bench, parity_takes_roundings_and_refuses_other_logits)
{
    enum { N = 300 };
    float ref[N], got[N];
    dsf_parity good = {.n = 0}, bad = {.n = 0};
    for (int i = 0; i < N; i++) {
        ref[i] = 3 * sinf((float)i);
        got[i] = ref[i] * (1 + 0x1p-8f);
    }
    dsf_parity_row(&good, ref, got, N);
    cr_assert(dsf_parity_good(&good));
    cr_assert_eq(good.agree, 1);
    for (int i = 0; i < N; i++) got[i] = ref[N - 1 - i];
    dsf_parity_row(&bad, ref, got, N);
    cr_assert_not(dsf_parity_good(&bad));
    got[7] = NAN;
    bad = (dsf_parity){.n = 0};
    dsf_parity_row(&bad, ref, got, N);
    cr_assert_not(dsf_parity_good(&bad), "a NaN is not the reference's");
}

Test(bench, hash_depends_on_every_byte)
{
    const char a[] = "0123456789", b[] = "0123456788";
    cr_assert_neq(dsf_parity_hash(0, a, sizeof a), dsf_parity_hash(0, b, sizeof b));
    uint64_t h = dsf_parity_hash(dsf_parity_hash(0, a, 4), a + 4, sizeof a - 4);
    cr_assert_eq(h, dsf_parity_hash(0, a, sizeof a));
}

#define LINE(shape, ns, spread, percent, ref)                                                      \
    "{\"bench\": \"op\", \"op\": \"x\", \"shape\": \"" shape "\", \"median_ns\": " #ns             \
    ", \"spread\": " #spread ", \"percent\": {\"median\": " #percent ", \"spread\": " #spread      \
    "}, \"ref_ns\": {\"median\": " #ref "}}"

static dsf_comparison judge_at(const char *line, int *at)
{
    static const char old[] = LINE("a", 1000, 0.01, 50, 9000) "\n\n" LINE("b", 10, 0, 80, 50) "\n";
    dsf_baseline *b = NULL;
    dsf_judgement j;
    cr_assert_eq(dsf_baseline_open(&b, "old", old, sizeof old - 1), DSF_OK);
    dsf_comparison c = dsf_baseline_judge(b, line, &j);
    dsf_baseline_close(b);
    *at = j.line;
    return c;
}

static dsf_comparison judge(const char *line)
{
    int at = 0;
    return judge_at(line, &at);
}

Test(bench, baseline_tells_a_change_from_noise)
{
    cr_assert_eq(judge(LINE("a", 1010, 0.01, 49.5, 9000)), DSF_CMP_SAME);
    cr_assert_eq(judge(LINE("a", 1200, 0.01, 41, 9000)), DSF_CMP_SLOWER);
    cr_assert_eq(judge(LINE("a", 800, 0.01, 62, 9000)), DSF_CMP_FASTER);
    cr_assert_eq(judge(LINE("a", 1200, 0.3, 41, 9000)), DSF_CMP_SAME, "within its own spread");
    cr_assert_eq(judge(LINE("a", 2000, 0.01, 50, 18000)), DSF_CMP_SAME, "the limit moved too");
    cr_assert_eq(judge(LINE("c", 1000, 0.01, 50, 9000)), DSF_CMP_ABSENT);
}

Test(bench, baseline_tells_the_line_it_compares_with)
{
    int at = -1;
    (void)judge_at(LINE("a", 1000, 0.01, 50, 9000), &at);
    cr_expect_eq(at, 1);
    (void)judge_at(LINE("b", 10, 0, 80, 50), &at);
    cr_expect_eq(at, 3, "empty lines count");
    (void)judge_at(LINE("c", 10, 0, 80, 50), &at);
    cr_expect_eq(at, 0);
}

Test(bench, baseline_knows_the_lines_of_a_gpu)
{
    static const char old[] = "{\"bench\": \"op_device\", \"op\": \"a\", \"rows\": 8, \"us\": "
                              "{\"median\": 10, \"spread\": 0.01, \"n\": 9}}\n"
                              "{\"bench\": \"decode_device\", \"batch\": 1, \"graph_us\": "
                              "{\"median\": 100, \"spread\": 0.01, \"n\": 9}}";
    static const struct {
        const char *line;
        dsf_comparison verdict;
    } now[] = {{"{\"bench\": \"op_device\", \"op\": \"a\", \"rows\": 8, \"us\": {\"median\": 12, "
                "\"spread\": 0.01}}",
                DSF_CMP_SLOWER},
               {"{\"bench\": \"op_device\", \"op\": \"a\", \"rows\": 64, \"us\": {\"median\": 12, "
                "\"spread\": 0.01}}",
                DSF_CMP_ABSENT},
               {"{\"bench\": \"decode_device\", \"batch\": 1, \"graph_us\": {\"median\": 80, "
                "\"spread\": 0.01}}",
                DSF_CMP_FASTER}};
    dsf_baseline *b = NULL;
    dsf_judgement j;
    cr_assert_eq(dsf_baseline_open(&b, "old", old, sizeof old - 1), DSF_OK);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(dsf_baseline_judge(b, now[i].line, &j), now[i].verdict, "%s", now[i].line);
    dsf_baseline_close(b);
}

Test(bench, baseline_refuses_what_is_no_measurement)
{
    dsf_baseline *b = NULL;
    cr_assert_eq(dsf_baseline_open(&b, "old", "", 0), DSF_ECORRUPT);
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"{\"bench\": \"op\"}\n{", "old: line 2"},
        {"[]", "old: line 1: no measurement"},
        {"{\"a\": 1}", "no \"bench\""},
        {"{\"bench\": 7}", "no \"bench\""},
        {"{\"bench\": \"op\", \"median_ns\": -5}", "median_ns is no time"},
        {"{\"bench\": \"op\", \"median_ns\": 0}", "median_ns is no time"},
        {"{\"bench\": \"op\", \"median_ns\": \"x\"}", "median_ns is no time"},
        {"{\"bench\": \"op\", \"median_ns\": 1e999}", "old: line 1"},
        {"{\"bench\": \"op\", \"us\": {\"median\": -1}}", "us is no time"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(dsf_baseline_open(&b, "old", bad[i].text, strlen(bad[i].text)), DSF_ECORRUPT,
                     "%s", bad[i].text);
        cr_expect_not_null(strstr(dsf_error_message(), bad[i].words), "%s: %s", bad[i].text,
                           dsf_error_message());
    }
    cr_assert_null(b);
}

static void keep_line(void *ud, const char *json, const char *text)
{
    (void)text;
    if (json) dsf_buf_str(ud, json);
}

static void no_progress(void *ud, const char *name, int64_t done, int64_t total)
{
    (void)ud;
    (void)name;
    (void)done;
    (void)total;
}

Test(bench, an_operation_is_checked_then_timed)
{
    dsf_bench b = {.repeat = 2};
    dsf_buf lines = {.max = 0};
    const dsf_bench_op_options o = {.glob = "linear_g8", .shape = "2,96,64"};
    if (!(dsf_machine() & DSF_NEEDS_AVX512)) cr_skip_test("one variant on this machine");
    b.out = (dsf_bench_out){keep_line, no_progress, &lines};
    cr_assert_eq(dsf_bench_open(&b, 1, 0), DSF_OK);
    cr_assert_eq(dsf_ceiling_open(&b.ceiling, b.pool, 16 << 20), DSF_OK);
    cr_assert_eq(dsf_bench_op(&b, &o), DSF_OK);
    dsf_bench_close(&b);
    cr_assert_eq(b.refused, 0);
    cr_assert_not_null(strstr(lines.data, "\"shape\": \"n=2 k=96 o=64\""));
    cr_assert_not_null(strstr(lines.data, "\"ref_ratio\""));
    dsf_buf_free(&lines);
}

Test(bench, shapes_that_are_none_are_refused)
{
    dsf_bench b = {.repeat = 1};
    static const char *const bad[] = {"",
                                      "1",
                                      "1,2",
                                      "1,2,x",
                                      "1,2,3,4,5,6,7,8,9,10,11,12,13",
                                      "-1,32,32",
                                      "0,32,32",
                                      "99999999999999999999,1,1"};
    b.out = (dsf_bench_out){keep_line, no_progress, NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const dsf_bench_op_options o = {.glob = "linear_g8", .shape = bad[i]};
        cr_assert_eq(dsf_bench_op(&b, &o), DSF_EINVAL, "\"%s\"", bad[i]);
    }
}
