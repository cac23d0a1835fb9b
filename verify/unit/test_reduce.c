/* The search for the smallest failing case: what it must promise whatever the check is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "verify/reduce/reduce.h"

#define GOOD(call) cr_assert_eq((call), DSF_OK, "%s", dsf_error_text())
#define SAYS(words)                                                                                \
    cr_expect_not_null(strstr(dsf_error_message(), words), "said \"%s\", wanted \"%s\"",           \
                       dsf_error_message(), words)

static char folder[4096];
static void open_folder(void) { make_temp(folder); }
static void close_folder(void) { remove_temp(folder); }
TestSuite(reduce, .init = open_folder, .fini = close_folder);

/* A check made of a function; it remembers what it said, as the real one does. */
typedef dsf_reduce_outcome check_fn(const dsf_candidate *c, unsigned seed);
typedef struct {
    check_fn *check;
    unsigned axes, seed;
    int64_t runs, cancel_at;
    dsf_tries *tries;
} checker;

static dsf_status test_one(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out)
{
    checker *k = ud;
    if (k->cancel_at && k->runs == k->cancel_at) return DSF_FAIL(DSF_ECANCELED, "stopped");
    k->runs++;
    *out = k->check(c, k->seed);
    const dsf_try t = {.outcome = *out, .exit = (int)*out, .runs = 1};
    return dsf_tries_add(k->tries, c, &t);
}

static bool known_one(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out)
{
    checker *k = ud;
    dsf_try t;
    if (!dsf_tries_find(k->tries, c, false, &t)) return false;
    *out = t.outcome;
    return true;
}

static const char *const word[] = {"check"};

static void search(checker *k, const dsf_candidate *start, int64_t most, dsf_search_result *r)
{
    const dsf_tries_bind bind = {.command = word, .n_command = 1, .axes = k->axes, .start = start};
    const dsf_search s = {.axes = k->axes,
                          .start = *start,
                          .filler = 0,
                          .most_tests = most,
                          .test = test_one,
                          .known = known_one,
                          .ud = k};
    if (!k->tries) GOOD(dsf_tries_open(&k->tries, NULL, false, &bind));
    GOOD(dsf_search_run(&s, r));
    dsf_tries_close(k->tries);
    k->tries = NULL;
}

static int32_t ids[64];
static dsf_candidate list_of(int n)
{
    for (int i = 0; i < n; i++) ids[i] = i + 1;
    return (dsf_candidate){.ids = ids, .n_ids = n};
}

static bool has(const dsf_candidate *c, int32_t id)
{
    for (int64_t i = 0; i < c->n_ids; i++)
        if (c->ids[i] == id) return true;
    return false;
}

/* ---- tokens ---- */

static dsf_reduce_outcome needs_7_and_40(const dsf_candidate *c, unsigned seed)
{
    (void)seed;
    return has(c, 7) && has(c, 40) ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

Test(reduce, a_pair_of_tokens_is_found_with_few_runs)
{
    checker k = {.check = needs_7_and_40, .axes = DSF_AXIS_IDS};
    const dsf_candidate start = list_of(64);
    dsf_search_result r;
    search(&k, &start, 0, &r);
    cr_expect_eq(r.end, DSF_SEARCH_MINIMAL);
    cr_assert_eq(r.best.n_ids, 2);
    cr_expect_eq(r.best.ids[0], 7);
    cr_expect_eq(r.best.ids[1], 40);
    cr_expect_lt(k.runs, 64, "%lld runs for 64 tokens", (long long)k.runs);
    cr_expect_eq(r.tests, k.runs);
    dsf_search_result_free(&r);
}

static dsf_reduce_outcome long_with_7(const dsf_candidate *c, unsigned seed)
{
    (void)seed;
    return c->n_ids > 12 && has(c, 7) ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

Test(reduce, tokens_that_only_take_up_room_become_the_filler)
{
    checker k = {.check = long_with_7, .axes = DSF_AXIS_IDS};
    const dsf_candidate start = list_of(64);
    dsf_search_result r;
    search(&k, &start, 0, &r);
    cr_expect_eq(r.end, DSF_SEARCH_MINIMAL);
    cr_assert_eq(r.best.n_ids, 13);
    for (int i = 0; i < 13; i++) cr_expect(r.best.ids[i] == 0 || r.best.ids[i] == 7);
    cr_expect(has(&r.best, 7));
    dsf_search_result_free(&r);
}

/* No order at all: each candidate fails or not by its own digest. */
static dsf_reduce_outcome by_chance(const dsf_candidate *c, unsigned seed)
{
    uint32_t h = seed * 2654435761u + 1;
    for (int64_t i = 0; i < c->n_ids; i++) h = (h ^ (uint32_t)c->ids[i]) * 16777619u;
    h ^= h >> 15;
    if (c->n_ids == 14) return DSF_REDUCE_FAILS; /* the start */
    return h % 5 == 0 ? DSF_REDUCE_COULD_NOT : h % 5 < 3 ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

static void expect_minimal(const dsf_candidate *best, unsigned seed)
{
    int32_t other[64];
    dsf_candidate c = {.ids = other};
    cr_expect_eq(by_chance(best, seed), DSF_REDUCE_FAILS, "seed %u: it does not fail", seed);
    for (int64_t at = 0; at < best->n_ids; at++) {
        c.n_ids = 0;
        for (int64_t i = 0; i < best->n_ids; i++)
            if (i != at) other[c.n_ids++] = best->ids[i];
        if (c.n_ids)
            cr_expect_neq(by_chance(&c, seed), DSF_REDUCE_FAILS, "seed %u: without token %d", seed,
                          (int)at);
        memcpy(other, best->ids, (size_t)best->n_ids * sizeof *other);
        c.n_ids = best->n_ids;
        other[at] = 0;
        if (best->ids[at])
            cr_expect_neq(by_chance(&c, seed), DSF_REDUCE_FAILS, "seed %u: token %d filled", seed,
                          (int)at);
    }
}

Test(reduce, the_end_is_minimal_where_nothing_is_monotone)
{
    for (unsigned seed = 0; seed < 300; seed++) {
        checker k = {.check = by_chance, .axes = DSF_AXIS_IDS, .seed = seed};
        const dsf_candidate start = list_of(14);
        dsf_search_result r;
        search(&k, &start, 0, &r);
        cr_expect_eq(r.end, DSF_SEARCH_MINIMAL);
        cr_expect_lt(k.runs, 200);
        expect_minimal(&r.best, seed);
        dsf_search_result_free(&r);
    }
}

static dsf_reduce_outcome short_cannot(const dsf_candidate *c, unsigned seed)
{
    (void)seed;
    if (c->n_ids < 5) return DSF_REDUCE_COULD_NOT;
    return has(c, 7) ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

Test(reduce, no_answer_is_never_a_failure)
{
    checker k = {.check = short_cannot, .axes = DSF_AXIS_IDS};
    const dsf_candidate start = list_of(40);
    dsf_search_result r;
    search(&k, &start, 0, &r);
    cr_expect_eq(r.best.n_ids, 5);
    cr_expect(has(&r.best, 7));
    cr_expect_gt(r.could_not, 0);
    dsf_search_result_free(&r);
}

/* ---- other axes ---- */

static dsf_reduce_outcome layer_3_row_9(const dsf_candidate *c, unsigned seed)
{
    (void)seed;
    bool in = c->layers[0] <= 3 && c->layers[1] >= 3 && c->rows[0] <= 9 && c->rows[1] >= 9;
    return in ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

Test(reduce, ranges_close_on_the_layer_and_the_row)
{
    checker k = {.check = layer_3_row_9, .axes = DSF_AXIS_LAYERS | DSF_AXIS_ROWS};
    const dsf_candidate start = {.layers = {0, 39}, .rows = {0, 4095}};
    dsf_search_result r;
    search(&k, &start, 0, &r);
    cr_expect(r.best.layers[0] == 3 && r.best.layers[1] == 3);
    cr_expect(r.best.rows[0] == 9 && r.best.rows[1] == 9);
    cr_expect_lt(k.runs, 50);
    dsf_search_result_free(&r);
}

static dsf_reduce_outcome two_layers_apart(const dsf_candidate *c, unsigned seed)
{
    (void)seed;
    return c->layers[0] <= 4 && c->layers[1] >= 11 ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

Test(reduce, a_range_keeps_both_ends_that_it_needs)
{
    checker k = {.check = two_layers_apart, .axes = DSF_AXIS_LAYERS};
    const dsf_candidate start = {.layers = {0, 39}};
    dsf_search_result r;
    search(&k, &start, 0, &r);
    cr_expect(r.best.layers[0] == 4 && r.best.layers[1] == 11);
    dsf_search_result_free(&r);
}

static dsf_reduce_outcome by_size(const dsf_candidate *c, unsigned seed)
{
    bool chunk = c->chunk != DSF_CHUNK_WHOLE && c->chunk % 4 == 3;
    bool size = c->length >= 9 && c->batch >= 2;
    if (seed == 1) chunk = true;
    return chunk && size ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

Test(reduce, numbers_go_down_and_the_chunk_to_the_whole_prompt_where_that_fails)
{
    for (unsigned seed = 0; seed < 2; seed++) {
        checker k = {.check = by_size,
                     .axes = DSF_AXIS_LENGTH | DSF_AXIS_BATCH | DSF_AXIS_CHUNK,
                     .seed = seed};
        const dsf_candidate start = {.length = 300, .batch = 8, .chunk = 127};
        dsf_search_result r;
        search(&k, &start, 0, &r);
        cr_expect_eq(r.end, DSF_SEARCH_MINIMAL);
        cr_expect_eq(r.best.length, 9);
        cr_expect_eq(r.best.batch, 2);
        cr_expect_eq(r.best.chunk, seed == 1 ? DSF_CHUNK_WHOLE : 3);
        dsf_search_result_free(&r);
    }
}

static dsf_reduce_outcome two_kernels(const dsf_candidate *c, unsigned seed)
{
    const uint64_t two = (uint64_t)1 << 1 | (uint64_t)1 << 13;
    (void)seed;
    return (c->fast & two) == two ? DSF_REDUCE_FAILS : DSF_REDUCE_GOOD;
}

static dsf_reduce_outcome always(const dsf_candidate *c, unsigned seed)
{
    (void)c;
    (void)seed;
    return DSF_REDUCE_FAILS;
}

Test(reduce, the_kernels_in_question_are_named_and_none_when_all_is_reference)
{
    const dsf_candidate start = {.fast = ((uint64_t)1 << 36) - 1};
    checker k = {.check = two_kernels, .axes = DSF_AXIS_VARIANTS};
    dsf_search_result r;
    search(&k, &start, 0, &r);
    cr_expect_eq(r.best.fast, (uint64_t)1 << 1 | (uint64_t)1 << 13);
    dsf_search_result_free(&r);
    k = (checker){.check = always, .axes = DSF_AXIS_VARIANTS};
    search(&k, &start, 0, &r);
    cr_expect_eq(r.best.fast, 0);
    dsf_search_result_free(&r);
}

Test(reduce, a_mask_names_what_it_was_made_from)
{
    const char *name[64];
    int n = dsf_variant_names(name);
    uint64_t all = n ? ((uint64_t)1 << n) - 1 : 0, fast;
    for (uint64_t x = 0; x < 200; x++) {
        uint64_t want = x * 0x9E3779B97F4A7C15u & all;
        dsf_buf b = {.max = 0};
        dsf_variant_mask(want, &b);
        GOOD(dsf_variant_parse(b.data, &fast));
        cr_expect_eq(fast, want, "mask %s", b.data);
        dsf_buf_free(&b);
    }
    cr_expect_eq(dsf_variant_parse("avx512", &fast), n ? DSF_EINVAL : DSF_OK);
}

/* ---- ends ---- */

static dsf_reduce_outcome never(const dsf_candidate *c, unsigned seed)
{
    (void)c;
    return (dsf_reduce_outcome)seed;
}

Test(reduce, a_start_that_does_not_fail_is_not_reduced)
{
    for (unsigned o = 0; o < 3; o += 2) {
        checker k = {.check = never, .axes = DSF_AXIS_IDS, .seed = o};
        const dsf_candidate start = list_of(20);
        dsf_search_result r;
        search(&k, &start, 0, &r);
        cr_expect_eq(r.end, o == DSF_REDUCE_GOOD ? DSF_SEARCH_GOOD : DSF_SEARCH_COULD_NOT);
        cr_expect_eq(k.runs, 1);
        cr_expect_eq(r.best.n_ids, 20);
        dsf_search_result_free(&r);
    }
}

static dsf_status stop_at_once(void *ud, const dsf_candidate *c, dsf_reduce_outcome *out)
{
    (void)ud;
    (void)c;
    *out = DSF_REDUCE_GOOD;
    return DSF_FAIL(DSF_ECANCELED, "stopped");
}

Test(reduce, a_stop_before_any_answer_is_no_answer_of_the_command)
{
    dsf_search_result r;
    const dsf_search s = {.axes = DSF_AXIS_IDS, .start = list_of(4), .test = stop_at_once};
    GOOD(dsf_search_run(&s, &r));
    cr_expect_eq(r.end, DSF_SEARCH_UNBEGUN);
    cr_expect_eq(r.asked, 0);
    dsf_search_result_free(&r);
}

Test(reduce, a_stop_or_a_bound_keeps_the_best_so_far)
{
    for (int by_bound = 0; by_bound < 2; by_bound++)
        for (int at = 2; at < 20; at++) {
            checker k = {
                .check = needs_7_and_40, .axes = DSF_AXIS_IDS, .cancel_at = by_bound ? 0 : at};
            const dsf_candidate start = list_of(64);
            dsf_search_result r;
            search(&k, &start, by_bound ? at : 0, &r);
            cr_expect_eq(r.end, DSF_SEARCH_STOPPED);
            cr_expect_eq(k.runs, at);
            cr_expect_eq(needs_7_and_40(&r.best, 0), DSF_REDUCE_FAILS);
            dsf_search_result_free(&r);
        }
}

/* ---- the record ---- */

static const dsf_tries_bind *bind_of(const dsf_candidate *start)
{
    static dsf_tries_bind bind;
    bind = (dsf_tries_bind){.command = word, .n_command = 1, .axes = DSF_AXIS_IDS, .start = start};
    return &bind;
}

static void run_recorded(const char *path, bool resume, checker *k, dsf_search_result *r)
{
    const dsf_candidate start = list_of(40);
    *k = (checker){.check = long_with_7, .axes = DSF_AXIS_IDS};
    GOOD(dsf_tries_open(&k->tries, path, resume, bind_of(&start)));
    search(k, &start, 0, r);
}

/* Leaves the first `lines` lines and `extra` bytes of the next. */
static void truncate_lines(const char *path, int lines, size_t extra)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    size_t n = fread(text, 1, sizeof text, f), at = 0;
    (void)fclose(f);
    for (int i = 0; i < lines && at < n; i++)
        at = (size_t)((char *)memchr(text + at, '\n', n - at) - text) + 1;
    f = fopen(path, "wb");
    (void)fwrite(text, 1, at + extra < n ? at + extra : n, f);
    (void)fclose(f);
}

Test(reduce, a_killed_search_goes_on_where_it_was_and_ends_the_same)
{
    char path[5000];
    checker k;
    dsf_search_result whole, r;
    (void)snprintf(path, sizeof path, "%s/tries", folder);
    run_recorded(path, false, &k, &whole);
    int64_t all = k.runs;
    for (int lines = 0; lines <= all; lines += 7) {
        truncate_lines(path, lines, 11); /* a line that was being written */
        run_recorded(path, true, &k, &r);
        cr_expect_eq(k.runs, lines ? all - (lines - 1) : all, "%d lines: %lld runs", lines,
                     (long long)k.runs);
        cr_expect_eq(r.asked, whole.asked);
        cr_assert_eq(r.best.n_ids, whole.best.n_ids);
        cr_expect_eq(memcmp(r.best.ids, whole.best.ids, (size_t)r.best.n_ids * sizeof *ids), 0);
        dsf_search_result_free(&r);
    }
    dsf_search_result_free(&whole);
}

Test(reduce, a_record_is_not_written_over_and_not_mixed_up)
{
    char path[5000];
    checker k;
    dsf_search_result r;
    dsf_tries *t;
    (void)snprintf(path, sizeof path, "%s/tries", folder);
    run_recorded(path, false, &k, &r);
    dsf_search_result_free(&r);
    const dsf_candidate start = list_of(40), other = list_of(39);
    cr_expect_eq(dsf_tries_open(&t, path, false, bind_of(&start)), DSF_EINVAL);
    SAYS("--resume");
    cr_expect_eq(dsf_tries_open(&t, path, true, bind_of(&other)), DSF_EINVAL);
    SAYS("another search");
    truncate_lines(path, 3, 0);
    FILE *f = fopen(path, "ab");
    (void)fputs("{\"key\": \"short\", \"outcome\": \"fails\"}\n", f);
    (void)fclose(f);
    cr_expect_eq(dsf_tries_open(&t, path, true, bind_of(&start)), DSF_ECORRUPT);
    SAYS("line 4");
}

/* ---- the command ---- */

static dsf_status run_command(char **argv, int n, double limit, dsf_command *c, dsf_try *t)
{
    const dsf_candidate at = list_of(5);
    *c = (dsf_command){
        .argv = argv, .n = n, .work = folder, .limit = limit, .fails = {1}, .n_fails = 1};
    return dsf_command_run(c, &at, t);
}

Test(reduce, exit_codes_are_classes)
{
    static const struct {
        const char *script;
        int exit;
        dsf_reduce_outcome outcome;
    } row[] = {{"exit 0", 0, DSF_REDUCE_GOOD},
               {"exit 1", 1, DSF_REDUCE_FAILS},
               {"exit 2", 2, DSF_REDUCE_COULD_NOT},
               {"exit 127", 127, DSF_REDUCE_COULD_NOT},
               {"kill -9 $$", 137, DSF_REDUCE_COULD_NOT}};
    dsf_command c;
    dsf_try t;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *argv[] = {"sh", "-c", (char *)row[i].script};
        GOOD(run_command(argv, 3, 60, &c, &t));
        cr_expect_eq(t.exit, row[i].exit, "%s: %d", row[i].script, t.exit);
        cr_expect_eq(t.outcome, row[i].outcome);
    }
    char *slow[] = {"sh", "-c", "sleep 60 & sleep 60"};
    GOOD(run_command(slow, 3, 0.1, &c, &t));
    cr_expect_eq(t.exit, -1);
    cr_expect_eq(t.outcome, DSF_REDUCE_COULD_NOT);
    char *none[] = {"/no/such/program"};
    cr_expect_eq(run_command(none, 1, 60, &c, &t), DSF_EIO);
    SAYS("/no/such/program");
    dsf_command_clean(&c);
}

Test(reduce, other_codes_can_be_made_failures)
{
    const char *const list[] = {"3", "139", "timeout"};
    int code[16], n = 0;
    GOOD(dsf_command_fails(list, 3, code, &n));
    cr_expect(n == 3 && code[0] == 3 && code[1] == 139 && code[2] == -1);
    static const char *const bad[] = {"0", "-1", "256", "3x", "", "late"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(dsf_command_fails(&bad[i], 1, code, &n), DSF_EINVAL, "%s", bad[i]);
        SAYS("--fails");
    }
    char *crash[] = {"sh", "-c", "test {length} -lt 5 || kill -SEGV $$"};
    const dsf_reduce_options o = {
        .argv = crash, .n = 3, .limit = 60, .start = {.length = 40}, .fails = {139}, .n_fails = 1};
    dsf_reduce_report r;
    GOOD(dsf_reduce_run(&o, &r));
    cr_expect_eq(r.found.end, DSF_SEARCH_MINIMAL);
    cr_expect_eq(r.found.best.length, 5);
    cr_expect_eq(r.last_exit, 139);
    dsf_reduce_report_free(&r);
}

Test(reduce, a_range_is_one_number_or_two)
{
    int64_t range[2];
    GOOD(dsf_candidate_range("--rows", "3-7", range));
    cr_expect(range[0] == 3 && range[1] == 7);
    GOOD(dsf_candidate_range("--rows", "9", range));
    cr_expect(range[0] == 9 && range[1] == 9);
    GOOD(dsf_candidate_range("--rows", NULL, range));
    cr_expect(range[1] < range[0]);
    static const char *const bad[] = {"",
                                      "7-3",
                                      "-1",
                                      "a",
                                      "3-",
                                      "3-7x",
                                      "3--7",
                                      "+3",
                                      " 3",
                                      "3- 7",
                                      "0-9223372036854775808",
                                      "18446744073709551617"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(dsf_candidate_range("--rows", bad[i], range), DSF_EINVAL, "%s", bad[i]);
}

Test(reduce, placeholders_are_filled_and_other_braces_stay)
{
    char script[] = "test \"$(tr '\\n' ' ' < {ids})\" = '1 2 3 4 5 ' && test {id_list} = 1,2,3,4,5 "
                    "&& echo '{none} last words'; exit 1";
    char *argv[] = {"sh", "-c", script};
    dsf_command c;
    dsf_try t;
    GOOD(run_command(argv, 3, 60, &c, &t));
    cr_expect_eq(t.exit, 1);
    cr_expect_str_eq(c.says, "{none} last words");
    cr_expect_eq(dsf_command_axes(argv, 3), (unsigned)DSF_AXIS_IDS);
    dsf_command_clean(&c);
}

Test(reduce, what_a_placeholder_needs_is_asked_for_by_name)
{
    static const struct {
        char *word;
        const char *says;
    } row[] = {{"true", "no placeholder"}, {"{ids}", "--ids-file"}, {"{length}", "--length"},
               {"{layers}", "--layers"},   {"{model}", "--model"},  {"{rows}", "--rows"},
               {"{chunk}", "--chunk"},     {"{batch}", "--batch"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *argv[] = {"true", row[i].word};
        const dsf_reduce_options o = {
            .argv = argv, .n = 2, .limit = 1, .start = {.layers = {0, -1}, .rows = {0, -1}}};
        dsf_reduce_report r;
        cr_expect_eq(dsf_reduce_run(&o, &r), DSF_EINVAL, "%s", row[i].word);
        SAYS(row[i].says);
        dsf_reduce_report_free(&r);
    }
}

Test(reduce, a_failure_that_does_not_come_back_is_flaky)
{
    char script[9000];
    /* fails the first time for each length, never again */
    (void)snprintf(script, sizeof script,
                   "test -e %s/seen{length} || { touch %s/seen{length}; exit 1; }", folder, folder);
    char *argv[] = {"sh", "-c", script};
    const dsf_reduce_options o = {.argv = argv, .n = 3, .limit = 60, .start = {.length = 4}};
    dsf_reduce_report r;
    GOOD(dsf_reduce_run(&o, &r));
    cr_expect(r.flaky);
    cr_expect_eq(r.found.best.length, 1);
    dsf_reduce_report_free(&r);
}
