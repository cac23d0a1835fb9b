/* Statistics dumps: the hashes of row blocks decide, and what they cannot tell is said. */
#include "dump_fixture.h"

#include <math.h>

#include "base/buf.h"
#include "verify/diff/diff.h"
#include "verify/dump/h5.h"

TestSuite(diff_stats, .fini = temp_clean);

enum { TOKENS = 150, DIM = 32 };

typedef struct {
    int from, to;     /* rows, inclusive */
    bool stats, less; /* less: without ffn/y */
    int at_row;       /* of layers/01/ffn/u, one value of it changed; -1: none */
    float add;
} dump;

static float value(dsf_tap tap, int row, int c)
{
    return (float)((row * 7 + c * 3 + (int)tap.id + tap.layer) % 64 - 20) * 0.25f;
}

static void put(dsf_dump *d, dsf_tap tap, const dump *w, int ratio, int width)
{
    static float x[TOKENS * 4 * DIM];
    int32_t label[TOKENS], slot[TOKENS] = {0};
    int n = 0, from = ratio ? (w->from) / ratio : w->from, to = ratio ? w->to / ratio : w->to;
    for (int row = from; row <= to; row++, n++) {
        label[n] = row;
        for (int c = 0; c < width; c++) x[n * width + c] = value(tap, row, c);
        if (tap.id == DSF_TAP_FFN_U && tap.layer == 1 && row == w->at_row)
            x[n * width + 5] += w->add;
    }
    dsf_tensor t = {.data = x, .dtype = DSF_F32, .rank = 2, .dim = {n, width}};
    if (width == 4 * DIM)
        t = (dsf_tensor){.data = x, .dtype = DSF_F32, .rank = 3, .dim = {n, 4, DIM}};
    dsf_tap_value v = {.tap = tap, .value = &t, .n = n, .label = label, .slot = slot};
    dsf_tap_sink sink = dsf_dump_sink(d);
    GOOD(sink.on_value(sink.ud, &v));
}

static const char *write_dump(const char *name, const dump *w)
{
    const char *path = temp_path(name);
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 16;
    const dsf_dump_meta meta = {.producer = "test",
                                .model = "mini",
                                .config_json = mini_config,
                                .mode = "exact",
                                .token_ids = ids,
                                .n_tokens = TOKENS,
                                .stats = w->stats};
    dsf_dump *d;
    GOOD(dsf_dump_create(&d, path, &meta));
    put(d, (dsf_tap){DSF_TAP_EMBED, -1}, w, 0, DIM);
    for (int layer = 0; layer < 2; layer++) {
        put(d, (dsf_tap){DSF_TAP_IN, layer}, w, 0, 4 * DIM);
        if (layer == 1) put(d, (dsf_tap){DSF_TAP_ATTN_LATENT, layer}, w, 2, DIM);
        put(d, (dsf_tap){DSF_TAP_FFN_U, layer}, w, 0, DIM);
        if (!w->less) put(d, (dsf_tap){DSF_TAP_FFN_Y, layer}, w, 0, DIM);
        put(d, (dsf_tap){DSF_TAP_OUT, layer}, w, 0, 4 * DIM);
    }
    GOOD(dsf_dump_finish(d));
    return path;
}

static const dump full = {.to = TOKENS - 1, .at_row = -1};
static const dump stats = {.to = TOKENS - 1, .at_row = -1, .stats = true};
/* one value of one of three blocks, rows 64-127 */
static const dump odd = {.to = TOKENS - 1, .at_row = 70, .add = 0.125f};
static const dump odd_stats = {.to = TOKENS - 1, .at_row = 70, .add = 0.125f, .stats = true};

static void diff(const char *reference, const char *ours, const char *only, dsf_diff_report *r)
{
    const dsf_diff_options o = {
        .reference = reference, .ours = ours, .only = &only, .n_only = only ? 1 : 0};
    GOOD(dsf_diff_run(&o, r));
}

static void says(const dsf_diff_report *r, const char *words)
{
    cr_expect_not_null(strstr(r->verdict, words), "said \"%s\", wanted \"%s\"", r->verdict, words);
}

/* Statistics with statistics, and with values on either side. */
static const dump *const sides[3][2] = {{&stats, &stats}, {&full, &stats}, {&stats, &full}};

Test(diff_stats, equal_runs_are_the_same_whichever_side_has_values)
{
    for (int i = 0; i < 3; i++) {
        dsf_diff_report r;
        diff(write_dump("a.h5", sides[i][0]), write_dump("b.h5", sides[i][1]), NULL, &r);
        cr_expect(r.good, "%s", r.verdict);
        says(&r, "same: 10 taps");
        says(&r, "by the hashes of 29 blocks of rows"); /* 75 entries make 2, 150 rows 3 */
        cr_expect_eq(r.n_absent + r.n_extra, 0);
        for (int64_t t = 0; t < r.n_taps; t++) {
            cr_expect(r.tap[t].by_hash && r.tap[t].verdict == DSF_DIFF_EXACT, "%s", r.tap[t].path);
            cr_expect_eq(r.tap[t].rows, r.tap[t].tap.id == DSF_TAP_ATTN_LATENT ? 75 : TOKENS);
        }
        dsf_diff_report_free(&r);
    }
}

static const dump *const odd_sides[4][2] = {
    {&stats, &odd_stats}, {&full, &odd_stats}, {&stats, &odd}, {&odd_stats, &full}};

Test(diff_stats, one_changed_value_is_named_with_its_block_and_the_next_step)
{
    for (int i = 0; i < 4; i++) {
        dsf_diff_report r;
        dsf_buf b = {0};
        diff(write_dump("a.h5", odd_sides[i][0]), write_dump("b.h5", odd_sides[i][1]), NULL, &r);
        cr_expect(!r.good);
        says(&r, "not the same: layers/01/ffn/u: rows 64-127 (1 of 3 blocks differ)");
        cr_assert_geq(r.first, 0);
        const dsf_diff_tap *t = &r.tap[r.first];
        cr_expect_eq(t->blocks.from, 64);
        cr_expect_eq(t->blocks.to, 127);
        cr_expect_eq(t->blocks.reference.count, 64 * DIM);
        cr_expect_neq(t->blocks.reference.hash, t->blocks.ours.hash);
        cr_expect_eq(fabs(t->blocks.ours.mean - t->blocks.reference.mean), 0.125 / 64 / DIM);
        dsf_diff_print(&r, false, &b);
        cr_expect_not_null(strstr(b.data, "\nstatistics only: rounding differences cannot be "
                                          "judged, make full dumps of this tap: dsf dump --taps "
                                          "layers/01/ffn/u --positions 64-127\n"));
        cr_expect_null(strstr(b.data, "likely:"), "a rounding has no cause to guess at");
        for (int64_t k = 0; k < r.n_taps; k++)
            cr_expect_eq(r.tap[k].verdict == DSF_DIFF_FAILED, k == r.first, "%s", r.tap[k].path);
        dsf_buf_free(&b);
        dsf_diff_report_free(&r);
    }
}

Test(diff_stats, json_has_both_records_and_the_row)
{
    dsf_diff_report r;
    dsf_buf b = {0};
    diff(write_dump("a.h5", &stats), write_dump("b.h5", &odd_stats), NULL, &r);
    dsf_diff_json(&r, &b);
    const char *tap = strstr(b.data, "{\"path\": \"layers/01/ffn/u\", \"kind\": \"ffn/u\"");
    cr_assert_not_null(tap, "%s", b.data);
    cr_expect_not_null(
        strstr(tap, "\"blocks\": {\"compared\": 3, \"differ\": 1, \"alone\": 0, \"from\": 64, "
                    "\"to\": 127, \"rms_difference\": "));
    cr_expect_not_null(strstr(tap, "\"at_row\": 64"));
    cr_expect_not_null(strstr(tap, "\"why\": \"statistics only"));
    dsf_buf_free(&b);
    dsf_diff_report_free(&r);
}

Test(diff_stats, blocks_of_the_same_rows_meet_and_the_others_are_counted)
{
    dsf_diff_report r;
    dump some = stats;
    some.from = 64; /* one block, and 22 rows */
    diff(write_dump("a.h5", &full), write_dump("b.h5", &some), "ffn/u", &r);
    cr_expect(!r.good, "%s", r.verdict);
    says(&r, "rows of 2 taps are not here, first layers/00/ffn/u: 64 of 150 rows, by blocks");
    cr_expect_eq(r.tap[0].rows, TOKENS - 64);
    dsf_diff_report_free(&r);
    const char *only = "ffn/u";
    const dsf_diff_options o = {.reference = temp_path("a.h5"),
                                .ours = temp_path("b.h5"),
                                .only = &only,
                                .n_only = 1,
                                .by_position = true,
                                .position_from = 64,
                                .position_to = TOKENS};
    GOOD(dsf_diff_run(&o, &r));
    cr_expect(r.good, "%s", r.verdict);
    says(&r, "by the hashes of 4 blocks of rows; 2 blocks not compared");
    dsf_diff_report_free(&r);
    some.at_row = 140;
    some.add = 1.0f;
    diff(write_dump("a.h5", &full), write_dump("b.h5", &some), "ffn/u", &r);
    says(&r, "not the same: layers/01/ffn/u: rows 128-149 (1 of 2 blocks differ)");
    dsf_diff_report_free(&r);
}

Test(diff_stats, no_block_of_the_same_rows_is_a_failure)
{
    dsf_diff_report r;
    dump some = stats;
    some.from = 30;
    some.to = 90;
    diff(write_dump("a.h5", &stats), write_dump("b.h5", &some), "ffn/u", &r);
    cr_expect(!r.good, "%s", r.verdict);
    says(&r, "nothing compared");
    dsf_diff_report_free(&r);
    some.from = 64; /* entries 32 to 74 are no block of the other's */
    some.to = TOKENS - 1;
    diff(write_dump("a.h5", &stats), write_dump("b.h5", &some), NULL, &r);
    cr_expect(!r.good, "%s", r.verdict);
    says(&r, "not compared: layers/01/attn/latent: no block of the same rows: 75 rows (0-74) by "
             "64, here 43 rows (32-74) by 64; dump both with the same --positions");
    dsf_diff_report_free(&r);
    some.at_row = 80; /* what differs is named before what was not seen */
    some.add = 1.0f;
    diff(write_dump("a.h5", &stats), write_dump("b.h5", &some), NULL, &r);
    says(&r, "not the same: layers/01/ffn/u: rows 64-127 (1 of 2 blocks differ)");
    dsf_diff_report_free(&r);
}

Test(diff_stats, an_absent_tap_is_named)
{
    dsf_diff_report r;
    dump less = stats;
    less.less = true;
    diff(write_dump("a.h5", &full), write_dump("b.h5", &less), NULL, &r);
    cr_expect(!r.good, "%s", r.verdict);
    says(&r, "2 taps of the reference are not here, first layers/00/ffn/y");
    cr_expect_str_eq(r.absent.data, "layers/00/ffn/y\nlayers/01/ffn/y\n");
    dsf_diff_report_free(&r);
    diff(write_dump("a.h5", &stats), write_dump("b.h5", &less), "layers/01/ffn/y", &r);
    cr_expect(!r.good);
    says(&r, "asked for and absent: layers/01/ffn/y is not in ");
    dsf_diff_report_free(&r);
}

Test(diff_stats, a_nan_on_both_sides_is_no_pass)
{
    dsf_diff_report r;
    dump nan = odd_stats;
    nan.add = NAN;
    diff(write_dump("a.h5", &nan), write_dump("b.h5", &nan), NULL, &r);
    cr_expect(!r.good);
    says(&r, "not the same: layers/01/ffn/u: rows 64-127");
    says(&r, "NaN 1 here 1");
    cr_assert_geq(r.first, 0);
    cr_expect_eq(strncmp(r.tap[r.first].why, "NaN or infinity", 15), 0);
    dsf_diff_report_free(&r);
}

/* As int64, whatever it was. */
static void set_attribute(const char *path, const char *set, const char *name, long long v)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), one = H5Screate(H5S_SCALAR);
    cr_assert_geq(file, 0);
    hid_t d = H5Dopen2(file, set, H5P_DEFAULT);
    cr_assert_geq(H5Adelete(d, name), 0, "%s %s", set, name);
    hid_t a = H5Acreate2(d, name, H5T_STD_I64LE, one, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(d >= 0 && a >= 0, "%s %s", set, name);
    cr_assert_geq(H5Awrite(a, H5T_NATIVE_LLONG, &v), 0);
    (void)H5Aclose(a);
    (void)H5Sclose(one);
    (void)H5Dclose(d);
    (void)H5Fclose(file);
}

Test(diff_stats, other_block_sizes_and_widths_are_refused_with_words)
{
    dsf_diff_report r;
    const char *a = write_dump("a.h5", &stats), *b = write_dump("b.h5", &stats);
    set_attribute(b, "/stats/layers/01/ffn/u", "row_block", 72); /* three records still */
    const dsf_diff_options o = {.reference = a, .ours = b};
    cr_expect_eq(dsf_diff_run(&o, &r), DSF_ECORRUPT);
    SAYS("layers/01/ffn/u: record 0 counts 2048 values, not 72 by 32");
    dsf_diff_report_free(&r);
    b = write_dump("b.h5", &stats);
    set_attribute(b, "/stats/layers/01/ffn/u", "row_block", 72);
    set_attribute(b, "/stats/layers/01/ffn/u", "width", 0); /* not said */
    diff(a, b, NULL, &r);
    cr_expect(!r.good);
    says(&r, "not compared: layers/01/ffn/u: no block of the same rows: 150 rows (0-149) by 64, "
             "here 150 rows (0-149) by 72");
    dsf_diff_report_free(&r);
    b = write_dump("b.h5", &stats);
    set_attribute(b, "/stats/layers/01/ffn/u", "width", INT64_MAX);
    cr_expect_eq(dsf_diff_run(&o, &r), DSF_ECORRUPT);
    SAYS("layers/01/ffn/u: rows of 9223372036854775807 elements");
    dsf_diff_report_free(&r);
    b = write_dump("b.h5", &stats);
    set_attribute(b, "/stats/layers/01/ffn/u", "row_block", INT64_MAX);
    cr_expect_eq(dsf_diff_run(&o, &r), DSF_ECORRUPT);
    SAYS("row_block is 9223372036854775807");
    dsf_diff_report_free(&r);
}

Test(diff_stats, a_label_reports_and_does_not_judge)
{
    dsf_diff_report r;
    const dsf_diff_options o = {.reference = write_dump("a.h5", &stats),
                                .ours = write_dump("b.h5", &odd_stats),
                                .no_gate = "two backends"};
    GOOD(dsf_diff_run(&o, &r));
    cr_expect(!r.gated && !r.good);
    dsf_diff_report_free(&r);
}
