/* Which golden files there are: all of them are taken or told, whatever they are called. */
#include <hdf5.h>
#include <sys/stat.h>

#include "engine_fixture.h"
#include "verify/suite/unit.h"

TestSuite(suite_sets, .fini = mini_clean);

static void make_folder(const char *in, const char *name, char out[4096])
{
    GOOD(dsf_file_join(out, in, name));
    cr_assert_eq(mkdir(out, 0777), 0);
}

static bool has(const dsf_golden_sets *s, const char *name, const char *why)
{
    for (int i = 0; i < s->n_odd; i++)
        if (strcmp(s->odd[i].name, name) == 0 && strstr(s->odd[i].why, why)) return true;
    return false;
}

Test(suite_sets, every_number_is_a_prompt_and_every_other_name_is_told)
{
    char set[4096], sub[4096], deep[4096];
    dsf_golden_sets s;
    make_temp(set);
    put_text(set, "dump-p100.h5", "x");
    put_text(set, "dump-p3.h5", "x");
    put_text(set, "dump-p01.h5", "x");
    put_text(set, "dump-q0.h5", "x");
    put_text(set, "dump-p-1.h5", "x");
    put_text(set, "dump-p99999999999.h5", "x");
    put_text(set, "DUMP.H5", "x");
    put_text(set, "dump-p4.h5.part", "x");
    put_text(set, "notes.txt", "x");
    put_text(set, ".hidden.h5", "x");
    GOOD(dsf_file_join(sub, set, "dump-p5.h5"));
    cr_assert_eq(symlink("/nowhere", sub), 0);
    make_folder(set, "dump-p6.h5", sub);
    make_folder(set, "more", sub);
    make_folder(sub, "deeper", deep);
    put_text(deep, "dump.h5", "x");
    make_folder(set, "pictures", sub);
    put_text(sub, "a.png", "x");
    GOOD(dsf_golden_sets_find(set, &s));
    cr_assert_eq(s.n, 1);
    cr_assert_eq(s.set[0].n_prompts, 2);
    cr_expect_eq(s.set[0].prompt[0], 3);
    cr_expect_eq(s.set[0].prompt[1], 100);
    cr_expect_eq(s.n_odd, 9);
    const char *base = dsf_suite_base(set);
    static const char *const odd[][2] = {
        {"dump-p01.h5", "without zeros"},  {"dump-q0.h5", "dump-pN.h5"},
        {"dump-p-1.h5", "dump-pN.h5"},     {"dump-p99999999999.h5", "dump-pN.h5"},
        {"DUMP.H5", "dump-pN.h5"},         {"dump-p4.h5.part", "dump-pN.h5"},
        {"dump-p5.h5", "link to nothing"}, {"dump-p6.h5", "a folder beside"},
        {"more", "a folder beside"}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char name[600];
        (void)snprintf(name, sizeof name, "%.255s/%s", base, odd[i][0]);
        cr_expect(has(&s, name, odd[i][1]), "%s", name);
    }
    dsf_golden_sets_free(&s);
    remove_temp(set);
}

Test(suite_sets, any_number_of_sets_and_what_is_none_is_told)
{
    char folder[4096], sub[4096], deep[4096];
    dsf_golden_sets s;
    make_temp(folder);
    for (int i = 0; i < 70; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "set-%02d", i);
        make_folder(folder, name, sub);
        put_text(sub, "dump-p0.h5", "x");
    }
    make_folder(folder, "odd", sub);
    put_text(sub, "dump-p01.h5", "x");
    make_folder(folder, "nested", sub);
    make_folder(sub, "set", deep);
    put_text(deep, "dump-p0.h5", "x");
    make_folder(folder, "words", sub);
    put_text(sub, "README.md", "x");
    put_text(folder, "stray.h5", "x");
    GOOD(dsf_file_join(sub, folder, "gone"));
    cr_assert_eq(symlink("/nowhere", sub), 0);
    GOOD(dsf_golden_sets_find(folder, &s));
    cr_expect_eq(s.n, 70);
    cr_expect_str_eq(dsf_suite_base(s.set[69].path), "set-69");
    cr_expect_eq(s.n_odd, 4);
    cr_expect(has(&s, "odd", "without a dump-pN.h5"));
    cr_expect(has(&s, "nested", "without a dump-pN.h5"));
    cr_expect(has(&s, "stray.h5", "dump-pN.h5"));
    cr_expect(has(&s, "gone", "a link to nothing"));
    dsf_golden_sets_free(&s);
    remove_temp(folder);
}

/* ---- in the plan ---- */

static int count_named(const dsf_results *r, const char *name)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) n += strcmp(r->check[i].name, name) == 0;
    return n;
}

Test(suite_sets, data_that_is_not_taken_could_not_be_checked)
{
    char set[4096], name[640];
    dsf_results r;
    make_temp(set);
    put_text(set, "dump-p0.h5", "x");
    put_text(set, "dump-p00.h5", "x");
    dsf_verify_options o = {.model = mini(), .golden = set, .suites = "logits,config"};
    GOOD(dsf_verify_list(&o, &r));
    (void)snprintf(name, sizeof name, "logits/%.255s/dump-p00.h5", dsf_suite_base(set));
    cr_assert_eq(count_named(&r, name), 1);
    for (int i = 0; i < r.n; i++)
        if (strcmp(r.check[i].name, name) == 0) {
            cr_expect_eq(r.check[i].verdict, DSF_COULD_NOT);
            cr_expect_not_null(strstr(r.check[i].words, "not taken"));
        }
    dsf_results_free(&r);
    o.suites = "config"; /* no golden suite was asked for */
    GOOD(dsf_verify_list(&o, &r));
    cr_expect_eq(r.n, 3);
    dsf_results_free(&r);
    remove_temp(set);
}

Test(suite_sets, long_names_stay_different)
{
    char folder[4096], sub[4096], name[256], expect[640];
    dsf_results r;
    make_temp(folder);
    memset(name, 'n', 250);
    name[250] = 0;
    for (int i = 0; i < 2; i++) {
        name[249] = (char)('a' + i);
        make_folder(folder, name, sub);
        put_text(sub, "dump-p0.h5", "x");
    }
    dsf_verify_options o = {.model = mini(), .golden = folder, .suites = "layers"};
    GOOD(dsf_verify_list(&o, &r));
    cr_expect_eq(r.n, 2);
    for (int i = 0; i < 2; i++) {
        name[249] = (char)('a' + i);
        (void)snprintf(expect, sizeof expect, "layers/%s/p0", name);
        cr_expect_eq(count_named(&r, expect), 1);
    }
    dsf_results_free(&r);
    remove_temp(folder);
}

/* ---- a set without choices ---- */

static void write_empty_dump(const char *set)
{
    char path[8192];
    (void)snprintf(path, sizeof path, "%s/dump-p0.h5", set);
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t text = H5Tcopy(H5T_C_S1), one = H5Screate(H5S_SCALAR);
    cr_assert(f >= 0 && H5Tset_size(text, 13) >= 0);
    hid_t a = H5Acreate2(f, "schema", text, one, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Awrite(a, text, "dsv41-dump-1") >= 0);
    (void)H5Aclose(a);
    (void)H5Sclose(one);
    (void)H5Tclose(text);
    (void)H5Fclose(f);
}

Test(suite_sets, a_suite_asked_for_that_would_only_skip_could_not_run)
{
    char set[4096];
    dsf_results r;
    make_temp(set);
    write_empty_dump(set);
    dsf_verify_options o = {.model = mini(), .golden = set, .suites = "config,choices"};
    GOOD(dsf_verify_list(&o, &r));
    int n = 0;
    for (int i = 0; i < r.n; i++) {
        if (strcmp(r.check[i].suite, "choices") != 0) continue;
        n++;
        cr_expect_eq(r.check[i].verdict, DSF_COULD_NOT, "%s", r.check[i].name);
        cr_expect_not_null(strstr(r.check[i].words, "the dump holds no"));
    }
    cr_expect_gt(n, 0);
    dsf_results_free(&r);
    o.suites = NULL; /* by default a named skip */
    GOOD(dsf_verify_list(&o, &r));
    for (int i = 0; i < r.n; i++)
        if (strcmp(r.check[i].suite, "choices") == 0) cr_expect_eq(r.check[i].verdict, DSF_SKIPPED);
    dsf_results_free(&r);
    remove_temp(set);
}
