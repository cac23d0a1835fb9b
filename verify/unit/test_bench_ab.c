/* A/B: what paired rounds are taken to say; the formats of rows; the page cache. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "bench/cold.h"
#include "bench/format.h"
#include "bench/paired.h"
#include "ops/fill.h"

/* Eight pairs of processes, each of which is off by up to `process` for its life, of eight rounds
 * that are off by up to `round`; the new program takes `ratio` times as long. */
static dsf_paired_judgement judge(double ratio, double process, double round, uint64_t seed)
{
    static dsf_paired p; /* large */
    memset(&p, 0, sizeof p);
    for (int k = 0; k < 8; k++) {
        double life = process * ((double)dsf_fill_below(&seed, 2001) / 1000 - 1);
        for (int r = 0; r < 8; r++) {
            double noise = round * ((double)dsf_fill_below(&seed, 2001) / 1000 - 1);
            double machine = 1 + (double)dsf_fill_below(&seed, 4); /* to both */
            dsf_paired_add(&p, 1e6 * machine, 1e6 * machine * ratio * exp(life + noise));
        }
        dsf_paired_close(&p);
    }
    cr_assert_eq(p.pair.n, 8);
    cr_assert_eq(p.rounds, 64);
    return dsf_paired_judge(&p, 0.1);
}

Test(bench_ab, the_same_program_shows_no_difference)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        cr_assert_eq(judge(1, 0.08, 0.3, seed).verdict, DSF_PAIRED_SAME, "seed %d", (int)seed);
}

Test(bench_ab, a_quarter_more_is_slower_and_a_quarter_less_faster)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        cr_assert_eq(judge(1.25, 0.04, 0.2, seed).verdict, DSF_PAIRED_SLOWER, "%d", (int)seed);
        cr_assert_eq(judge(0.75, 0.04, 0.2, seed).verdict, DSF_PAIRED_FASTER, "%d", (int)seed);
    }
}

Test(bench_ab, less_than_the_least_change_is_no_difference_however_sure)
{
    dsf_paired_judgement j = judge(1.08, 0, 0.001, 1);
    cr_assert_eq(j.verdict, DSF_PAIRED_SAME);
    cr_assert(j.resolved);
    cr_assert_not(j.open);
    cr_assert_float_eq(j.ratio, 1.08, 0.001);
    cr_assert(j.interval[0] > 1.07 && j.interval[1] < 1.09);
}

Test(bench_ab, noise_that_hides_the_least_change_is_unresolved)
{
    dsf_paired_judgement j = judge(1, 0.8, 0.8, 3);
    cr_assert_not(j.resolved);
    cr_assert_eq(j.verdict, DSF_PAIRED_SAME);
}

Test(bench_ab, one_pair_of_processes_proves_nothing)
{
    static dsf_paired p;
    for (int r = 0; r < 8; r++) dsf_paired_add(&p, 1, 2);
    dsf_paired_add(&p, 0, 2); /* a step that had no rows */
    dsf_paired_close(&p);
    cr_assert_eq(p.rounds, 8);
    cr_assert_eq(dsf_paired_judge(&p, 0.1).verdict, DSF_PAIRED_SAME);
}

static const char lines[] =
    "{\"bench\": \"decode\", \"machine\": \"A, \\\"B\\\" | 'C'\", \"model\": \"m\", \"context\": 128, "
    "\"batch\": 1, \"tokens\": 32, \"median_ns\": 1000.5, \"interval\": [990, 1010], \"graphs\": null, "
    "\"noisy\": false, \"percent\": {\"median\": 51.5}, \"tokens_per_s\": 999500, \"prefill_tokens\": 64, "
    "\"prefill_tokens_per_s\": 2000, \"cache_bytes\": 4096}\n"
    "{\"bench\": \"op\", \"op\": \"x\", \"refused\": \"wrong\"}\n";

static char *formatted(dsf_format f)
{
    dsf_buf in = {.max = 0}, out = {.max = 0};
    dsf_buf_str(&in, lines);
    cr_assert_eq(dsf_format_rows(&in, f, &out), DSF_OK);
    char *copy = strdup(out.data);
    dsf_buf_free(&in);
    dsf_buf_free(&out);
    return copy;
}

static void holds(dsf_format f, const char *words)
{
    char *s = formatted(f);
    cr_expect_not_null(strstr(s, words), "no %s in\n%s", words, s);
    free(s);
}

Test(bench_ab, formats_hold_the_rows_and_quote_as_their_readers_want)
{
    holds(DSF_FORMAT_CSV, "\ndecode,,\"A, \"\"B\"\" | 'C'\",");
    holds(DSF_FORMAT_CSV, ",1000.5,990,1010,");
    holds(DSF_FORMAT_CSV, ",wrong\n");
    holds(DSF_FORMAT_SQL, "CREATE TABLE IF NOT EXISTS dsf_bench (");
    holds(DSF_FORMAT_SQL, "VALUES ('decode', NULL, 'A, \"B\" | ''C''', NULL,");
    holds(DSF_FORMAT_SQL, "51.5");
    holds(DSF_FORMAT_MD, "| A, \"B\" \\| 'C' |");
    holds(DSF_FORMAT_DS4, "kvcache_bytes\n128,64,2000.00,32,999500.00,4096\n");
}

Test(bench_ab, markdown_leaves_out_what_no_row_has)
{
    char *s = formatted(DSF_FORMAT_MD);
    cr_expect_null(strstr(s, "graphs"));
    cr_expect_not_null(strstr(s, "noisy"));
    free(s);
}

Test(bench_ab, ds4_without_a_decode_row_is_refused)
{
    dsf_buf in = {.max = 0}, out = {.max = 0};
    dsf_buf_str(&in, "{\"bench\": \"op\"}\n");
    cr_assert_eq(dsf_format_rows(&in, DSF_FORMAT_DS4, &out), DSF_EINVAL);
    dsf_buf_free(&in);
    dsf_buf_free(&out);
}

Test(bench_ab, unknown_formats_are_refused)
{
    dsf_format f = DSF_FORMAT_TABLE;
    cr_assert_eq(dsf_format_parse("sql", &f), DSF_OK);
    cr_assert_eq(f, DSF_FORMAT_SQL);
    cr_assert_eq(dsf_format_parse("yaml", &f), DSF_EINVAL);
}

Test(bench_ab, a_mapped_file_leaves_the_cache_and_comes_back)
{
    char path[] = "dsf-test-cold-XXXXXX"; /* beside the build: /tmp may live in memory */
    static uint8_t data[1 << 20];
    dsf_file f;
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, data, sizeof data), (ssize_t)sizeof data);
    cr_assert_eq(fsync(fd), 0);
    cr_assert_eq(dsf_file_open(&f, path), DSF_OK);
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < f.size; i += 4096) sum = (uint8_t)(sum + f.data[i]);
    cr_expect(dsf_cold_resident(f.data, f.size) > 0.99);
    dsf_cold_unmap(f.data, f.size);
    cr_expect_eq(dsf_cold_drop(path), DSF_OK);
    double held = dsf_cold_resident(f.data, f.size);
    dsf_file_close(&f);
    (void)close(fd);
    (void)unlink(path);
    if (held > 0.5)
        cr_skip_test("this file system keeps the pages: figures of cold runs are refused");
    cr_expect(held <= dsf_cold_most, "%g of it is still there", held);
}
