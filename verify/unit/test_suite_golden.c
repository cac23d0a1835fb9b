/* The golden suites can fail: a golden file with one planted difference, and the check that names
 * it. */
#include <hdf5.h>

#include "engine_fixture.h"
#include "verify/suite/coverage.h"
#include "verify/suite/unit.h"

TestSuite(suite_golden, .fini = mini_clean);

static void copy_file(const char *to_folder, const char *name)
{
    char path[4096];
    dsf_file f;
    (void)snprintf(path, sizeof path, "%s/golden/mini/%s", DSF_SOURCE_ROOT, name);
    GOOD(dsf_file_open(&f, path));
    put_bytes(to_folder, name, f.data, f.size);
    dsf_file_close(&f);
}

/* A set of the shortest golden prompt, which holds every tap, and the measured noise. */
static void make_set(char set[4096])
{
    make_temp(set);
    copy_file(set, "dump-p2.h5");
    copy_file(set, "noise_floor.json");
}

static hid_t open_dump(const char *set)
{
    char path[8192];
    (void)snprintf(path, sizeof path, "%s/dump-p2.h5", set);
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    cr_assert(f >= 0, "%s", path);
    return f;
}

/* Adds `more` to elements from..from+n of a dataset. */
static void spoil(const char *set, const char *dataset, hsize_t from, hsize_t n, double more)
{
    hid_t f = open_dump(set), d = H5Dopen2(f, dataset, H5P_DEFAULT);
    hid_t s = H5Dget_space(d);
    hssize_t count = H5Sget_simple_extent_npoints(s);
    cr_assert(f >= 0 && d >= 0 && count > 0 && from + n <= (hsize_t)count, "%s", dataset);
    double *x = NULL;
    GOOD(dsf_mem_new(&x, (size_t)count, sizeof *x));
    cr_assert(H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    for (hsize_t i = from; i < from + n; i++) x[i] += more;
    cr_assert(H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    dsf_mem_free(x);
    (void)H5Sclose(s);
    (void)H5Dclose(d);
    (void)H5Fclose(f);
}

static dsf_results verify(const char *set, const char *only)
{
    const dsf_verify_options o = {.model = mini(), .golden = set, .only = only, .threads = 2};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    return r;
}

#define IS(c, v)                                                                                   \
    cr_expect_eq((c).verdict, (v), "%s: %s: %s", (c).name, dsf_verdict_name((c).verdict), (c).words)

Test(suite_golden, another_choice_on_golden_scores_is_named, .timeout = 120)
{
    char set[4096];
    make_set(set);
    dsf_results r = verify(set, "choices/**");
    cr_assert_eq(r.n, 2);
    for (int i = 0; i < 2; i++) IS(r.check[i], DSF_PASS);
    cr_expect_eq(r.check[0].compared, r.check[1].compared);
    dsf_results_free(&r);
    /* the last row's experts: one that was not chosen in the place of the last */
    spoil(set, "layers/03/ffn/expert_ids", 5 * 3 + 2, 1, 1);
    r = verify(set, "choices/**");
    for (int i = 0; i < 2; i++) {
        IS(r.check[i], DSF_FAILED);
        cr_expect_str_eq(r.check[i].at.path, "layers/03/ffn/expert_ids");
        cr_expect_eq(r.check[i].at.row, 5);
        cr_expect_eq(r.check[i].value, 1.0);
        cr_expect_eq(r.check[i].at.reference, r.check[i].at.ours + 1);
    }
    dsf_results_free(&r);
    remove_temp(set);
}

Test(suite_golden, the_first_wrong_operation_is_named, .timeout = 120)
{
    char set[4096];
    make_set(set);
    spoil(set, "layers/06/attn/q", 0, 64, 0.5);
    dsf_results r = verify(set, "layers/**");
    cr_assert_eq(r.n, 1);
    IS(r.check[0], DSF_FAILED);
    cr_expect_str_eq(r.check[0].at.path, "layers/06/attn/q");
    cr_expect_not_null(strstr(r.check[0].divergence, "layers/06/attn/q"), "%s",
                       r.check[0].divergence);
    cr_expect_str_eq(dsf_results_divergence(&r), r.check[0].divergence);
    cr_expect_gt(r.check[0].value, r.check[0].limit);
    dsf_results_free(&r);
    remove_temp(set);
}

Test(suite_golden, logits_that_moved_fail_the_free_run, .timeout = 120)
{
    char set[4096];
    make_set(set);
    spoil(set, "logits", 5 * 512, 1, 40);
    dsf_results r = verify(set, "logits/**");
    cr_assert_eq(r.n, 1);
    IS(r.check[0], DSF_FAILED);
    cr_expect_str_eq(r.check[0].at.path, "logits");
    dsf_results_free(&r);
    remove_temp(set);
}

/* ---- what a golden file leaves out ---- */

static void drop(const char *set, const char *link)
{
    hid_t f = open_dump(set);
    cr_assert(H5Ldelete(f, link, H5P_DEFAULT) >= 0, "%s", link);
    (void)H5Fclose(f);
}

static void put_attribute(const char *set, const char *name, const char *value)
{
    hid_t f = open_dump(set), text = H5Tcopy(H5T_C_S1), one = H5Screate(H5S_SCALAR);
    cr_assert(H5Tset_size(text, strlen(value) + 1) >= 0);
    if (H5Aexists(f, name) > 0) (void)H5Adelete(f, name);
    hid_t a = H5Acreate2(f, name, text, one, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Awrite(a, text, value) >= 0);
    (void)H5Aclose(a);
    (void)H5Sclose(one);
    (void)H5Tclose(text);
    (void)H5Fclose(f);
}

#define SPEAKS(c, part)                                                                            \
    cr_expect_not_null(strstr((c).words, part), "\"%s\" in \"%s\"", part, (c).words)

Test(suite_golden, a_pass_says_how_many_layers, .timeout = 120)
{
    char set[4096];
    make_set(set);
    dsf_results r = verify(set, "l*/**");
    cr_assert_eq(r.n, 2);
    IS(r.check[0], DSF_PASS);
    SPEAKS(r.check[0], "layers 10 of 10, 32 kinds of taps");
    IS(r.check[1], DSF_PASS);
    dsf_results_free(&r);
    remove_temp(set);
}

Test(suite_golden, a_layer_that_nothing_shows_is_no_pass, .timeout = 120)
{
    char set[4096];
    make_set(set);
    /* of layer 9 the input and one tap behind it alone: neither out nor what is added to it */
    static const char *const gone[] = {"layers/09/out", "layers/09/ffn/y"};
    for (int i = 0; i < 2; i++) drop(set, gone[i]);
    dsf_results r = verify(set, "layers/**");
    cr_assert_eq(r.n, 1);
    cr_expect_neq(r.check[0].verdict, DSF_PASS);
    SPEAKS(r.check[0], "9 of 10 layers");
    SPEAKS(r.check[0], "of layers 9 ");
    cr_expect(!dsf_results_good(&r));
    dsf_results_free(&r);
    remove_temp(set);
}

Test(suite_golden, without_logits_suite_logits_could_not_run, .timeout = 120)
{
    char set[4096];
    make_set(set);
    drop(set, "logits");
    dsf_results r = verify(set, "logits/**");
    cr_assert_eq(r.n, 1);
    IS(r.check[0], DSF_COULD_NOT);
    SPEAKS(r.check[0], "holds no logits");
    dsf_results_free(&r);
    remove_temp(set);
}

/* A model whose config has no draft stages, against a golden file that holds their taps. */
Test(suite_golden, a_tap_that_the_free_run_did_not_make_fails, .timeout = 120)
{
    char set[4096], model[4096];
    make_set(set);
    make_temp(model);
    write_model(model, "mini", -1, 0);
    const dsf_verify_options o = {.model = model, .golden = set, .only = "logits/**", .threads = 2};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_assert_eq(r.n, 1);
    cr_expect_neq(r.check[0].verdict, DSF_PASS, "%s", r.check[0].words);
    dsf_results_free(&r);
    remove_temp(model);
    remove_temp(set);
}

Test(suite_golden, our_own_file_is_known_whatever_it_calls_itself, .timeout = 120)
{
    static const char *const mark[][2] = {
        {"producer", "DSF 0.2"},
        {"producer", "my libdsf-build"},
        {"variants", "attn:avx512 route:ref"},
        {"plan_digest", "5a22fe2bfe90422cf91faad8995670d7"},
        {"checkpoint_digest", "710155bae78bdd01f7c79f40cd86e33d"}};
    for (size_t i = 0; i < sizeof mark / sizeof *mark; i++) {
        char set[4096];
        make_set(set);
        put_attribute(set, mark[i][0], mark[i][1]);
        dsf_results r = verify(set, "logits/**");
        cr_assert_eq(r.n, 1);
        IS(r.check[0], DSF_FAILED);
        SPEAKS(r.check[0], "written by this engine itself");
        SPEAKS(r.check[0], mark[i][0]);
        dsf_results_free(&r);
        remove_temp(set);
    }
}

Test(suite_golden, another_engine_may_have_any_other_name, .timeout = 120)
{
    char set[4096], path[8192];
    make_set(set);
    put_attribute(set, "producer", "dsfoo 1");
    put_attribute(set, "variants", "sm90 fp8");
    put_attribute(set, "backend", "cpu");
    (void)snprintf(path, sizeof path, "%s/noise_floor.json", set);
    cr_assert_eq(unlink(path), 0); /* it is bound to the producer */
    dsf_results r = verify(set, "logits/**");
    cr_assert_eq(r.n, 1);
    cr_expect_gt(r.check[0].compared, 0, "%s", r.check[0].words);
    dsf_results_free(&r);
    remove_temp(set);
}

/* The suite looks for itself, however the comparison judged. */
Test(suite_golden, every_tap_of_the_golden_file_must_have_been_compared)
{
    char set[4096], path[8192];
    dsf_suite_check c;
    dsf_diff_tap tap = {.path = "logits", .rows = 3};
    const dsf_diff_report r = {.tap = &tap, .n_taps = 1};
    make_set(set);
    (void)snprintf(path, sizeof path, "%s/dump-p2.h5", set);
    dsf_suite_begin(&c, "logits", "logits/x/p2");
    c.verdict = DSF_PASS;
    GOOD(dsf_coverage_run(path, &r, &c));
    IS(c, DSF_FAILED);
    SPEAKS(c, "were not compared with a free run, first dspark/");
    remove_temp(set);
}
