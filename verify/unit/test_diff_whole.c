/* Nothing is passed over in silence: taps, rows and columns of the reference that meet nothing, and
 * files that are not of one prompt and one model, are said and are no pass. */
#include "dump_fixture.h"

#include "base/file.h"
#include "verify/diff/diff.h"
#include "verify/dump/h5.h"

TestSuite(diff_whole, .fini = temp_clean);

#define REFERENCE golden_path("tiny-b/dump-p0.h5")

static bool is(const char *path, const char *wanted) { return strcmp(path, wanted) == 0; }

/* A copy of one layer of the reference. */
static const char *copy_layer(int layer, const char *mode, edit_fn edit)
{
    static const char *const layers[] = {"layers/**"};
    const dsf_dump_filter one = {
        .glob = layers, .n_globs = 1, .by_layer = true, .layer_from = layer, .layer_to = layer};
    const char *ours = temp_path("ours.h5");
    copy_dump(REFERENCE, ours, mode, edit, &one);
    return ours;
}

static dsf_diff_options of_layer(const char *ours, int layer)
{
    return (dsf_diff_options){.reference = REFERENCE,
                              .ours = ours,
                              .floor = golden_path("noise_floor.json"),
                              .by_layer = true,
                              .layer_from = layer,
                              .layer_to = layer};
}

/* Compares, and the verdict says these words. */
static dsf_diff_report expect(const dsf_diff_options *o, bool good, const char *words)
{
    dsf_diff_report r;
    GOOD(dsf_diff_run(o, &r));
    cr_expect_eq(r.good, good, "%s", r.verdict);
    cr_expect_not_null(strstr(r.verdict, words), "said \"%s\", wanted \"%s\"", r.verdict, words);
    return r;
}

static void expect_and_free(const dsf_diff_options *o, bool good, const char *words)
{
    dsf_diff_report r = expect(o, good, words);
    dsf_diff_report_free(&r);
}

static void refused(const dsf_diff_options *o, dsf_status st, const char *words)
{
    dsf_diff_report r;
    cr_expect_eq(dsf_diff_run(o, &r), st, "%s", words);
    SAYS(words);
    dsf_diff_report_free(&r);
}

/* Removes a dataset and writes n rows of `width` int32 in its place, with its attributes. */
static void replace(const char *path, const char *set, const int32_t *data, hsize_t n,
                    hsize_t width)
{
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), old = H5Dopen2(f, set, H5P_DEFAULT);
    cr_assert(f >= 0 && old >= 0, "%s", set);
    const hsize_t dim[] = {n, width};
    hid_t space = H5Screate_simple(width ? 2 : 1, dim, NULL);
    cr_assert_geq(H5Ldelete(f, set, H5P_DEFAULT), 0);
    hid_t made = H5Dcreate2(f, set, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert_geq(H5Dwrite(made, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
    for (hsize_t i = 0; i < (hsize_t)H5Aget_num_attrs(old); i++) {
        hid_t a = H5Aopen_by_idx(old, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT);
        char name[64], value[128] = "";
        hid_t type = H5Aget_type(a), as = H5Aget_space(a);
        cr_assert_lt(H5Aget_name(a, sizeof name, name), (ssize_t)sizeof name);
        cr_assert_lt(H5Tget_size(type), sizeof value);
        cr_assert_geq(H5Aread(a, type, value), 0);
        hid_t b = H5Acreate2(made, name, type, as, H5P_DEFAULT, H5P_DEFAULT);
        cr_assert_geq(H5Awrite(b, type, value), 0);
        (void)H5Aclose(b);
        (void)H5Aclose(a);
        (void)H5Sclose(as);
        (void)H5Tclose(type);
    }
    (void)H5Sclose(space);
    (void)H5Dclose(made);
    (void)H5Dclose(old);
    (void)H5Fclose(f);
}

/* ---- globs ---- */

/* A glob that names nothing, or what only a reference holds, is an error of the asker; beside
 * others the latter does not count. */
Test(diff_whole, every_glob_must_name_something_that_a_run_makes)
{
    static const char *const typo[] = {"layers/03/attn/q", "nothing"};
    static const char *const margin[] = {"layers/03/ffn/expert_margin"};
    static const char *const layer[] = {"layers/03/**"};
    dsf_diff_options o = {.reference = REFERENCE, .ours = copy_layer(3, "injected", NULL)};
    o.only = typo;
    o.n_only = 2;
    expect_and_free(&o, false, "holds no tap that matches nothing");
    o.only = margin;
    o.n_only = 1;
    expect_and_free(&o, false, "holds no tap that matches layers/03/ffn/expert_margin");
    o.only = layer;
    expect_and_free(&o, true, "same: 26 taps");
}

/* ---- taps ---- */

static bool no_inputs(const char *path, dsf_dump_array *a)
{
    (void)a;
    return !strstr(path, "/in") && !strstr(path, "/premix");
}

Test(diff_whole, inputs_that_were_given_are_named_as_such)
{
    static const char *const in[] = {"layers/03/in"};
    dsf_diff_options o = of_layer(copy_layer(3, "injected", no_inputs), 3);
    dsf_diff_report r = expect(&o, true, "; 2 taps given as inputs");
    cr_expect(r.n_given == 2 && r.n_absent == 0);
    cr_expect_str_eq(r.given.data, "layers/03/in\nlayers/03/premix\n");
    dsf_diff_report_free(&r);
    o.only = in;
    o.n_only = 1;
    expect_and_free(&o, false, "nothing compared: what matches layers/03/in is given");
    o = of_layer(copy_layer(3, "exact", no_inputs), 3); /* a free run makes them itself */
    expect_and_free(&o, false, "2 taps of the reference are not here, first layers/03/in");
}

Test(diff_whole, a_part_of_the_reference_is_no_pass_unless_asked_for)
{
    dsf_diff_options o = of_layer(copy_layer(3, "injected", NULL), 3);
    o.by_layer = false;
    dsf_buf json = {0};
    dsf_diff_report r = expect(&o, false, "not judged: 26 taps, ");
    dsf_diff_json(&r, &json);
    cr_expect_not_null(strstr(json.data, "\"absent\": [\"embed\", \"layers/00/"));
    cr_expect_eq(r.first, -1, "no divergence");
    dsf_buf_free(&json);
    dsf_diff_report_free(&r);
    o.by_layer = true;
    expect_and_free(&o, true, "same: 26 taps");
}

/* ---- rows ---- */

static bool one_row(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/attn/q")) a->n = a->dim[0] = 1;
    return true;
}

Test(diff_whole, rows_of_the_reference_without_a_partner_are_no_pass)
{
    static const char *const q[] = {"layers/03/attn/q"};
    dsf_diff_options o = of_layer(copy_layer(3, "injected", one_row), 3);
    expect_and_free(&o, false,
                    "rows of 1 taps are not here, first layers/03/attn/q: 95 of 96 rows");
    o.only = q;
    o.n_only = 1;
    dsf_diff_report r = expect(&o, false, "95 of 96 rows");
    cr_expect(r.tap[0].missing == 95 && r.n_lacking == 1);
    dsf_diff_report_free(&r);
    o.by_position = true; /* row 0 alone is asked for */
    r = expect(&o, true, "same: 1 taps");
    cr_expect(r.n_lacking == 0 && r.tap[0].rows == 1);
    dsf_diff_report_free(&r);
    o.position_from = o.position_to = 1;
    expect_and_free(&o, false, "nothing compared");
}

static bool no_rows(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/attn/q")) a->n = a->dim[0] = 95;
    return true;
}

/* Also one that the reference holds empty: ours has rows of it that meet nothing. */
Test(diff_whole, an_empty_tap_of_the_reference_is_no_pass)
{
    const char *empty = copy_layer(3, "exact", no_rows);
    replace(empty, "/rows_sub", NULL, 0, 0);
    hid_t f = H5Fopen(empty, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "/layers/03/attn/q", H5P_DEFAULT);
    const hsize_t none[] = {0, 8, 32};
    hid_t space = H5Dget_space(d);
    hsize_t dim[3];
    cr_assert_eq(H5Sget_simple_extent_dims(space, dim, NULL), 3);
    const hsize_t to[] = {none[0], dim[1], dim[2]};
    cr_assert_geq(H5Dset_extent(d, to), 0, "a chunked dataset");
    (void)H5Sclose(space);
    (void)H5Dclose(d);
    (void)H5Fclose(f);
    char reference[512];
    (void)snprintf(reference, sizeof reference, "%s", temp_path("reference.h5"));
    cr_assert_eq(rename(empty, reference), 0);
    dsf_diff_options o = of_layer(copy_layer(3, "injected", NULL), 3);
    o.reference = reference;
    o.floor = NULL;
    expect_and_free(&o, false, "layers/03/attn/q: the reference holds no row");
}

/* Rows under labels that no row can have meet nothing, whatever they hold. */
Test(diff_whole, labels_ascend_within_their_axis)
{
    static const struct {
        int32_t at, label;
        const char *words;
    } bad[] = {{94, 10094,
                "/layers/03/attn/q: row 94 is labelled 10094 in /rows_sub, allowed are 0 to "
                "95"},
               {0, -1, "/layers/03/attn/q: row 0 is labelled -1 in /rows_sub"},
               {94, INT32_MAX, "row 94 is labelled 2147483647 in "},
               {7, 6, "row 7 is labelled 6 in /rows_sub and the row before it 6"},
               {7, 3, "row 7 is labelled 3 in /rows_sub and the row before it 6"}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t label[95];
        const char *ours = copy_layer(3, "injected", no_rows);
        for (int k = 0; k < 95; k++) label[k] = k;
        label[bad[i].at] = bad[i].label;
        replace(ours, "/rows_sub", label, 95, 0);
        const dsf_diff_options o = of_layer(ours, 3);
        refused(&o, DSF_ECORRUPT, bad[i].words);
    }
}

/* ---- columns ---- */

/* The width of a list is what the tokens of its file make: fewer columns are no shorter prompt. */
Test(diff_whole, lists_have_the_width_that_their_tokens_make)
{
    static const char *const mode[] = {"injected", "exact"};
    static int32_t list[96 * 3];
    for (int i = 0; i < 2; i++)
        for (hsize_t width = 1; width < 4; width += 2) {
            const char *ours = copy_layer(2, mode[i], NULL);
            replace(ours, "/layers/02/attn/topk", list, 96, width);
            const dsf_diff_options o = of_layer(ours, 2);
            dsf_diff_report r;
            GOOD(dsf_diff_run(&o, &r));
            bool seen = false;
            for (int64_t k = 0; k < r.n_taps; k++)
                if (is(r.tap[k].path, "layers/02/attn/topk"))
                    seen = strstr(r.tap[k].why, "whose 96 tokens make ") &&
                           r.tap[k].verdict == DSF_DIFF_FAILED;
            cr_expect(seen && !r.good, "%s", r.verdict);
            dsf_diff_report_free(&r);
        }
}

/* ---- files ---- */

Test(diff_whole, a_mode_that_is_none_is_refused)
{
    const char *a = golden_path("tiny-b/dump-p2.h5");
    refused(&(dsf_diff_options){.reference = a, .ours = a, .mode = "zzz"}, DSF_EINVAL,
            "--mode zzz: exact, cone, replay or injected");
}

static const char *write_empty(const char *name, const char *config, int64_t n)
{
    static const int32_t ids[] = {1, 2, 3};
    const dsf_dump_meta m = {
        .model = "mini", .config_json = config, .mode = "exact", .token_ids = ids, .n_tokens = n};
    const char *path = temp_path(name);
    dsf_dump *d;
    GOOD(dsf_dump_create(&d, path, &m));
    GOOD(dsf_dump_finish(d));
    return path;
}

/* A prompt that ends before the other's is another prompt; ours may go on behind it. */
Test(diff_whole, a_shorter_prompt_is_another)
{
    const char *a = write_empty("a.h5", mini_config, 3), *b = write_empty("b.h5", mini_config, 2);
    refused(&(dsf_diff_options){.reference = a, .ours = b}, DSF_EINVAL,
            "different prompts: 3 tokens in ");
    expect_and_free(&(dsf_diff_options){.reference = b, .ours = a}, false, "nothing compared");
    replace(a, "/token_ids", NULL, 0, 0);
    refused(&(dsf_diff_options){.reference = b, .ours = a}, DSF_EINVAL, "2 tokens in ");
    refused(&(dsf_diff_options){.reference = a, .ours = b}, DSF_EINVAL, "0 tokens in ");
}

Test(diff_whole, dumps_of_other_configs_are_refused_with_both_values)
{
    char config[2048];
    static const struct {
        const char *from, *to, *words;
    } edit[] = {
        {"\"vocab_size\": 16", "\"vocab_size\": 17", "text_config.vocab_size is 16 in "},
        {"\"vocab_size\": 16", "\"vocab_size\": 16, \"eos\": 7", "text_config.eos is absent in "},
        {", \"vocab_size\": 16}", "}", "text_config.vocab_size is 16 in "},
        {"[0, 2, 0]", "[0, 1, 0]", "text_config.compress_ratios is [0, 2, 0] in "},
        {"[0, 2, 0]", "[0, 2, 0, 0]", "and [0, 2, 0, 0] in "},
        {"16}}", "16}, \"vision_config\": {}}", "vision_config is absent in "},
    };
    for (unsigned i = 0; i < sizeof edit / sizeof *edit; i++) {
        const char *at = strstr(mini_config, edit[i].from);
        cr_assert_not_null(at);
        (void)snprintf(config, sizeof config, "%.*s%s%s", (int)(at - mini_config), mini_config,
                       edit[i].to, at + strlen(edit[i].from));
        const dsf_diff_options o = {.reference = write_empty("a.h5", mini_config, 3),
                                    .ours = write_empty("b.h5", config, 3)};
        refused(&o, DSF_EINVAL, edit[i].words);
        dsf_diff_options label = o; /* not meant to be equal */
        label.no_gate = "two configs";
        expect_and_free(&label, false, "nothing compared");
    }
    char spaced[2048] = "  ";
    (void)snprintf(spaced + 2, sizeof spaced - 2, "%s\n", mini_config);
    expect_and_free(&(dsf_diff_options){.reference = write_empty("a.h5", mini_config, 3),
                                        .ours = write_empty("b.h5", spaced, 3)},
                    false, "nothing compared");
}
