/* The golden suites can fail: a golden file with one planted difference, and the check that names
 * it. */
#include <hdf5.h>

#include "engine_fixture.h"
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

/* Adds `more` to elements from..from+n of a dataset. */
static void spoil(const char *set, const char *dataset, hsize_t from, hsize_t n, double more)
{
    char path[8192];
    (void)snprintf(path, sizeof path, "%s/dump-p2.h5", set);
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, dataset, H5P_DEFAULT), s = H5Dget_space(d);
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
