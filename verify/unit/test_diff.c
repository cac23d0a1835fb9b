/* The comparison is tested by breaking things: each fault below must be seen, with its words. */
#include "dump_fixture.h"

#include <math.h>

#include "base/json.h"
#include "base/num.h"
#include "verify/diff/chance.h"
#include "verify/diff/diff.h"

TestSuite(diff, .fini = temp_clean);

typedef struct {
    const char *reference, *mode;
    edit_fn edit;
    bool floor;
    const char *only;
    bool whole; /* else layers 1 to 5, or `layer` alone, which is quicker */
    int layer;
    bool all; /* compare all of the reference, whatever the copy holds */
} trial;

static const char *const layers_only[] = {"layers/**"};
static const dsf_dump_filter some = {
    .glob = layers_only, .n_globs = 1, .by_layer = true, .layer_from = 1, .layer_to = 5};

static dsf_status compare(const trial *t, dsf_diff_report *r)
{
    const char *reference = golden_path(t->reference ? t->reference : "tiny-b/dump-p0.h5");
    const char *ours = temp_path("ours.h5");
    dsf_dump_filter filter = some;
    if (t->layer) filter.layer_from = filter.layer_to = t->layer;
    copy_dump(reference, ours, t->mode ? t->mode : "injected", t->edit, t->whole ? NULL : &filter);
    const dsf_diff_options o = {.reference = reference,
                                .ours = ours,
                                .floor = t->floor ? golden_path("noise_floor.json") : NULL,
                                .only = &t->only,
                                .n_only = t->only ? 1 : 0,
                                .by_layer = !t->whole && !t->all,
                                .layer_from = filter.layer_from,
                                .layer_to = filter.layer_to};
    return dsf_diff_run(&o, r);
}

/* The fault is seen, and the verdict says these words. */
static void expect_caught(const trial *t, const char *words)
{
    dsf_diff_report r;
    GOOD(compare(t, &r));
    cr_expect(!r.good, "%s", r.verdict);
    cr_expect_not_null(strstr(r.verdict, words), "said \"%s\", wanted \"%s\"", r.verdict, words);
    dsf_diff_report_free(&r);
}

static float ulp_up(float x) { return dsf_bf16_to_f32((uint16_t)(dsf_f32_to_bf16(x) + 1)); }

static bool is(const char *path, const char *wanted) { return strcmp(path, wanted) == 0; }

Test(diff, every_official_dump_equals_itself)
{
    static const char *const set[] = {"tiny-a", "tiny-b", "long-c", "vision-d"};
    for (int i = 0; i < 12; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s/dump-p%d.h5", set[i / 3], i % 3);
        const char *path = golden_path(name);
        for (int floor = 0; floor < 2; floor++) {
            const dsf_diff_options o = {.reference = path,
                                        .ours = path,
                                        .floor = floor ? golden_path("noise_floor.json") : NULL,
                                        .mode = floor ? "injected" : NULL};
            dsf_diff_report r;
            GOOD(dsf_diff_run(&o, &r));
            cr_expect(r.good, "%s: %s", name, r.verdict);
            cr_expect_eq(strncmp(r.verdict, "same: ", 6), 0, "%s", r.verdict);
            cr_expect_gt(r.values, 100000);
            dsf_diff_report_free(&r);
        }
    }
}

Test(diff, a_copy_through_the_writer_is_bit_equal)
{
    dsf_diff_report r;
    GOOD(compare(&(trial){.mode = "exact", .whole = true}, &r));
    cr_expect(r.good, "%s", r.verdict);
    cr_expect_gt(r.n_taps, 250);
    for (int64_t i = 0; i < r.n_taps; i++)
        cr_expect(r.tap[i].verdict == DSF_DIFF_EXACT && r.tap[i].zeros == 0, "%s", r.tap[i].path);
    dsf_diff_report_free(&r);
}

static bool one_ulp(const char *path, dsf_dump_array *a)
{
    float *x = a->f + 17 * a->width + 168;
    if (is(path, "layers/03/attn/q")) *x = ulp_up(*x);
    return true;
}

Test(diff, one_rounding_is_seen_exactly_and_counted_elsewhere)
{
    expect_caught(&(trial){.edit = one_ulp, .layer = 3},
                  "layers/03/attn/q: 1 of 96 rows unequal, inputs agree (bit-equal)");
    expect_caught(&(trial){.edit = one_ulp, .layer = 3}, "row 17 column 168: reference -0.55");
    dsf_diff_report r;
    GOOD(compare(&(trial){.edit = one_ulp, .floor = true, .layer = 3}, &r));
    cr_expect(r.good, "%s", r.verdict);
    int64_t changed = 0;
    for (int64_t i = 0; i < r.n_taps; i++) changed += r.tap[i].changed;
    cr_expect_eq(changed, 1);
    dsf_diff_report_free(&r);
}

static bool zeroed(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/attn/o")) memset(a->f + 50 * a->width, 0, (size_t)a->width * 4);
    return true;
}

static bool gain(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/05/attn/y"))
        for (int64_t i = 0; i < a->n * a->width; i++)
            a->f[i] = dsf_bf16_to_f32(dsf_f32_to_bf16(a->f[i] * 1.01f));
    return true;
}

static bool f32_gain(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/05/ffn/comb"))
        for (int64_t i = 0; i < a->n * a->width; i++) a->f[i] *= 1.00002f;
    return true;
}

static bool swapped(const char *path, dsf_dump_array *a)
{
    if (!is(path, "layers/03/ffn/y")) return true;
    for (int64_t c = 0; c < a->width; c++) {
        float x = a->f[4 * a->width + c];
        a->f[4 * a->width + c] = a->f[5 * a->width + c];
        a->f[5 * a->width + c] = x;
    }
    return true;
}

static bool nan_here(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/ffn/u")) a->f[3 * a->width + 7] = NAN;
    return true;
}

/* One rounding in one element of every row inside the window: far below any limit on a row. */
static bool window_edge(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/attn/o"))
        for (int64_t r = 0; r < 8; r++) a->f[r * a->width] = ulp_up(a->f[r * a->width]);
    return true;
}

static bool odd_rows(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/02/attn/o"))
        for (int64_t r = 1; r < a->n; r += 2) a->f[r * a->width] = ulp_up(a->f[r * a->width]);
    return true;
}

static bool quantiser(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/02/attn/kv_main")) a->f[3 * a->width + 1] *= 1.5f;
    return true;
}

static bool hash_row(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/01/engram/rows")) a->i[5 * a->width + 2]++;
    return true;
}

static bool weights_by_place(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/ffn/expert_weights"))
        for (int64_t r = 0; r < a->n; r++) {
            float x = a->f[r * a->width];
            a->f[r * a->width] = a->f[r * a->width + 1];
            a->f[r * a->width + 1] = x;
        }
    return true;
}

static bool narrower(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/attn/u")) {
        a->width /= 2;
        a->dim[1] /= 2;
    }
    return true;
}

Test(diff, faults_are_named_where_they_are)
{
    static const struct {
        edit_fn edit;
        int layer;
        const char *words;
    } fault[] = {
        {zeroed, 3, "layers/03/attn/o: 1 of 96 rows wrong (row 50), inputs agree"},
        {gain, 5, "layers/05/attn/y: 96 of 96 rows wrong"},
        {gain, 5, "median row is not bit-equal"},
        {f32_gain, 5, "layers/05/ffn/comb: "},
        {swapped, 3, "2 of 96 rows over"},
        {nan_here, 3, "row 3 column 7"},
        {nan_here, 3, "0 NaN in the reference, 1 here"},
        {window_edge, 3, "8 of 8 rows with t < 8 (the window) differ, 0 of the other 88"},
        {odd_rows, 2, "rows t mod 2 = 1, head 0"},
        {quantiser, 2, "must be bit-equal: row 3"},
        {hash_row, 1, "row 5 column 2: reference 224, here 225"},
        {weights_by_place, 3, "layers/03/ffn/expert_weights"},
        {narrower, 3, "shape: rows of rank 1 with 128 elements, here 1 with 64"},
    };
    for (unsigned i = 0; i < sizeof fault / sizeof *fault; i++)
        expect_caught(&(trial){.edit = fault[i].edit, .floor = true, .layer = fault[i].layer},
                      fault[i].words);
}

/* One expert's rows, one rounding each. */
static int64_t expert_ids[96 * 3];
static bool expert_rows(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/ffn/expert_ids")) memcpy(expert_ids, a->i, sizeof expert_ids);
    if (!is(path, "layers/03/ffn/y")) return true;
    for (int64_t r = 0; r < a->n; r++)
        for (int k = 0; k < 3; k++)
            if (expert_ids[3 * r + k] == 5) a->f[r * a->width] = ulp_up(a->f[r * a->width]);
    return true;
}

Test(diff, a_faulty_expert_is_named)
{
    expect_caught(&(trial){.edit = expert_rows, .floor = true, .layer = 3},
                  "rows with expert 5 differ, 0 of");
}

static bool nan_both(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/03/ffn/u")) a->f[7] = NAN;
    return true;
}

/* [B-44] */
Test(diff, nan_on_both_sides_is_no_agreement)
{
    const char *a = temp_path("dump-p0.h5"), *b = temp_path("b.h5");
    copy_dump(golden_path("tiny-b/dump-p0.h5"), a, "exact", nan_both, &some);
    copy_dump(golden_path("tiny-b/dump-p0.h5"), b, "injected", nan_both, &some);
    dsf_diff_report r;
    GOOD(dsf_diff_run(&(dsf_diff_options){.reference = a, .ours = b}, &r));
    cr_expect(!r.good);
    cr_expect_not_null(strstr(r.verdict, "1 NaN in the reference, 1 here"), "%s", r.verdict);
    dsf_diff_report_free(&r);
}

static bool absent(const char *path, dsf_dump_array *a)
{
    (void)a;
    return !is(path, "layers/03/attn/q");
}

static bool whole_kind_absent(const char *path, dsf_dump_array *a)
{
    (void)a;
    return strstr(path, "/attn/q") == NULL;
}

static bool nothing(const char *path, dsf_dump_array *a)
{
    (void)path;
    (void)a;
    return false;
}

Test(diff, what_is_missing_is_named_and_holes_fail)
{
    expect_caught(&(trial){.edit = absent, .floor = true}, "layers/03/attn/q is missing");
    expect_caught(&(trial){.edit = absent, .floor = true, .only = "attn/q"},
                  "asked for and absent");
    expect_caught(&(trial){.floor = true, .only = "attn/quux"}, "no tap that matches attn/quux");
    expect_caught(&(trial){.edit = nothing, .floor = true}, "nothing compared");
    dsf_diff_report r;
    GOOD(compare(&(trial){.edit = whole_kind_absent, .floor = true}, &r));
    cr_expect(!r.good, "%s", r.verdict);
    cr_expect_not_null(strstr(r.verdict, "10 taps of the reference are not here, first layers/01/"),
                       "%s", r.verdict);
    cr_expect_not_null(strstr(r.absent.data, "layers/03/attn/q\n"));
    dsf_diff_report_free(&r);
    expect_caught(&(trial){.floor = true, .layer = 3, .all = true},
                  "not judged: 26 taps, 443520 values compared, none wrong; ");
}

/* The same length, so that the name can be changed in the file's bytes. */
Test(diff, a_renamed_tap_is_recognised)
{
    const char *ours = temp_path("ours.h5");
    copy_dump(golden_path("tiny-b/dump-p2.h5"), ours, "injected", NULL, NULL);
    FILE *f = fopen(ours, "r+b");
    cr_assert_not_null(f);
    char *data = malloc(8 << 20);
    size_t n = fread(data, 1, 8 << 20, f), renamed = 0;
    for (char *at = data; (at = memmem(at, n - (size_t)(at - data), "\0q_latent\0", 10)); at += 9) {
        memcpy(at + 1, "q_latin_", 8);
        renamed++;
    }
    rewind(f);
    cr_assert_eq(fwrite(data, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
    free(data);
    cr_assert_gt(renamed, 0);
    dsf_diff_report r;
    GOOD(dsf_diff_run(
        &(dsf_diff_options){.reference = golden_path("tiny-b/dump-p2.h5"), .ours = ours}, &r));
    cr_expect(!r.good);
    cr_expect_not_null(strstr(r.verdict, "is no tap: renamed?"), "%s", r.verdict);
    dsf_diff_report_free(&r);
}

/* Replaces entry `from` of a row's list by `to`, keeping it ascending. */
static void exchange(int64_t *list, int64_t n, int64_t from, int64_t to)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i] == from) list[i] = to;
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = i; k > 0 && list[k] >= 0 && list[k - 1] > list[k]; k--) {
            int64_t x = list[k];
            list[k] = list[k - 1];
            list[k - 1] = x;
        }
}

/* Row 55 of layer 2 is an exact tie of the reference; row 19 has a wide margin. */
static int64_t tie_lost, tie_won;
static bool by_scores;
static void find_tie(int32_t row)
{
    dsf_dump_file *f;
    dsf_dump_array topk, score;
    GOOD(dsf_dump_open(&f, golden_path("tiny-b/dump-p0.h5")));
    GOOD(dsf_dump_read(f, "layers/02/attn/topk", &topk));
    GOOD(dsf_dump_read(f, "layers/02/attn/index_scores", &score));
    const int64_t *list = topk.i + row * topk.width;
    const float *s = score.f + row * score.width;
    float least = INFINITY;
    for (int64_t i = 0; i < topk.width; i++)
        if (s[list[i]] <= least) {
            least = s[list[i]];
            tie_lost = list[i];
        }
    tie_won = -1;
    for (int64_t j = 0; j < (row + 1) / 2; j++) {
        bool in = false;
        for (int64_t i = 0; i < topk.width; i++) in = in || list[i] == j;
        if (!in && (tie_won < 0 || s[j] > s[tie_won])) tie_won = j;
    }
    dsf_dump_array_free(&topk);
    dsf_dump_array_free(&score);
    dsf_dump_close(f);
}

static int32_t flip_row;
static bool other_entry(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/02/attn/topk"))
        exchange(a->i + flip_row * a->width, a->width, tie_lost, tie_won);
    if (by_scores && is(path, "layers/02/attn/index_scores")) {
        float *s = a->f + flip_row * a->width + tie_won;
        *s = ulp_up(*s);
    }
    return true;
}

Test(diff, choices_are_excused_at_ties_only)
{
    flip_row = 55;
    find_tie(flip_row);
    by_scores = true;
    dsf_diff_report r;
    GOOD(compare(&(trial){.edit = other_entry, .floor = true, .layer = 2}, &r));
    cr_expect(r.good, "%s", r.verdict);
    for (int64_t i = 0; i < r.n_taps; i++) {
        if (!is(r.tap[i].path, "layers/02/attn/topk")) continue;
        cr_expect_eq(r.tap[i].verdict, DSF_DIFF_TIES);
        cr_expect_not_null(strstr(r.tap[i].why, "tie-flip (explained) in 1 of 96"));
    }
    dsf_diff_report_free(&r);
    by_scores = false; /* equal scores: the tie has an order, smaller id first */
    expect_caught(&(trial){.edit = other_entry, .floor = true, .layer = 2},
                  "wrong choice at row 55: its scores equal the reference's");
    flip_row = 19;
    find_tie(flip_row);
    by_scores = true;
    expect_caught(&(trial){.edit = other_entry, .floor = true, .layer = 2},
                  "wrong choice at row 19: margin 0.00739");
}

static bool unsorted(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/02/attn/topk")) {
        int64_t x = a->i[60 * a->width];
        a->i[60 * a->width] = a->i[60 * a->width + 1];
        a->i[60 * a->width + 1] = x;
    }
    return true;
}

static bool unseen(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/02/attn/topk")) a->i[40 * a->width + a->width - 1] = 21;
    return true;
}

static bool wrong_expert(const char *path, dsf_dump_array *a)
{
    int64_t *list = a->i + 10 * a->width;
    int64_t free_id = 0;
    if (!is(path, "layers/03/ffn/expert_ids")) return true;
    while (list[0] == free_id || list[1] == free_id || list[2] == free_id) free_id++;
    exchange(list, a->width, list[0], free_id);
    return true;
}

static bool wrong_pool(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/04/attn/pool"))
        for (int64_t c = 0; c < 88; c++) a->i[90 * a->width + c] ^= 1;
    return true;
}

Test(diff, wrong_choices_are_wrong)
{
    expect_caught(&(trial){.edit = unsorted, .floor = true, .layer = 2}, "ids that do not ascend");
    expect_caught(&(trial){.edit = unseen, .floor = true, .layer = 2}, "an id that is not visible");
    expect_caught(&(trial){.edit = wrong_expert, .floor = true, .layer = 3},
                  "margin 9.92x the noise: a single row; row 10: wrong choice at row 10: margin");
    expect_caught(&(trial){.edit = wrong_pool, .floor = true, .layer = 4},
                  "layers/04/attn/pool: 1 of 96 rows wrong (row 90)");
}

static bool rolled_logits(const char *path, dsf_dump_array *a)
{
    if (is(path, "logits"))
        memmove(a->f, a->f + a->width, (size_t)((a->n - 1) * a->width) * sizeof *a->f);
    return true;
}

static bool stream_noise(const char *path, dsf_dump_array *a)
{
    if (is(path, "layers/00/attn/u")) a->f[0] = ulp_up(a->f[0]); /* from here on its own way */
    return true;
}

static bool late_logits(const char *path, dsf_dump_array *a)
{
    return stream_noise(path, a) && rolled_logits(path, a);
}

static bool carried(const char *path, dsf_dump_array *a)
{
    (void)stream_noise(path, a);
    if (is(path, "layers/04/out"))
        for (int64_t i = 0; i < a->n * a->width; i++) a->f[i] *= 1.0f + 0.002f * (float)(i % 3 - 1);
    return true;
}

Test(diff, free_runs_are_gated_by_what_they_can_show)
{
    trial t = {.mode = "exact", .floor = true, .edit = zeroed, .whole = true};
    expect_caught(&t,
                  "layers/03/attn/o: 1 of 96 rows wrong (row 50)"); /* nothing before it differs */
    t.edit = late_logits;
    expect_caught(&t, "logits differ: mean KL");
    t.edit = carried;
    dsf_diff_report r;
    GOOD(compare(&t, &r));
    cr_expect(r.good && r.selects, "%s", r.verdict);
    cr_expect_not_null(strstr(r.verdict, "not gated: graft tells"), "%s", r.verdict);
    dsf_diff_report_free(&r);
    t.reference = "tiny-b/dump-p2.h5"; /* six tokens: nothing is selected */
    expect_caught(&t, "layers/04/out: 5 of 6 rows wrong (rows 1-5)");
}

/* Of a free run one layer alone: whether its error is its own cannot be told, and is no pass. */
Test(diff, a_part_of_a_free_run_is_neither_blamed_nor_passed)
{
    const trial t = {
        .mode = "exact", .edit = zeroed, .floor = true, .only = "layers/03/attn/o", .whole = true};
    dsf_diff_report r;
    GOOD(compare(&t, &r));
    cr_expect(!r.good);
    cr_expect_eq(strncmp(r.verdict, "not judged: layers/03/attn/o: ", 30), 0, "%s", r.verdict);
    dsf_diff_report_free(&r);
}

Test(diff, rows_that_the_reference_cuts_elsewhere_are_reported)
{
    dsf_diff_report r;
    GOOD(compare(&(trial){.reference = "long-c/dump-p2.h5", .floor = true, .whole = true}, &r));
    cr_expect(r.good, "%s", r.verdict);
    for (int64_t i = 0; i < r.n_taps; i++) {
        /* 63 window slots fit one block of 64; with 31 or 63 entries behind them they do not */
        bool head = is(r.tap[i].kind, "final/h") || is(r.tap[i].kind, "final/norm") ||
                    is(r.tap[i].kind, "logits_oneshot");
        bool open = r.tap[i].layer >= 2 && r.tap[i].layer < 8 && is(r.tap[i].kind, "out");
        cr_expect_eq(r.tap[i].ungated, open || head ? 63 : 0, "%s", r.tap[i].path);
    }
    dsf_diff_report_free(&r);
}

Test(diff, other_prompts_and_other_models_are_refused)
{
    dsf_diff_report r;
    const char *a = golden_path("tiny-b/dump-p0.h5"), *b = golden_path("tiny-b/dump-p1.h5");
    cr_expect_eq(dsf_diff_run(&(dsf_diff_options){.reference = a, .ours = b}, &r), DSF_EINVAL);
    SAYS("different prompts: token 1 is 15");
    dsf_diff_report_free(&r);
}

Test(diff, reports_read_as_json_and_as_a_table)
{
    dsf_diff_report r;
    dsf_buf text = {0}, json = {0};
    GOOD(compare(&(trial){.edit = zeroed, .floor = true, .layer = 3}, &r));
    dsf_diff_print(&r, false, &text);
    dsf_diff_json(&r, &json);
    cr_expect_eq(strncmp(text.data, "first divergence: layers/03/attn/o: 1 of", 40), 0);
    cr_expect_not_null(strstr(text.data, "official limits, tiny-b/p0"));
    dsf_json_doc *doc;
    GOOD(dsf_json_parse(&doc, "report", json.data, json.len));
    const dsf_json *root = dsf_json_root(doc);
    cr_expect_str_eq(dsf_json_text(dsf_json_get(dsf_json_get(root, "first"), "path"), NULL),
                     "layers/03/attn/o");
    cr_expect_eq((int64_t)dsf_json_count(dsf_json_get(root, "taps")), r.n_taps);
    cr_expect(!dsf_json_true(dsf_json_get(root, "good")));
    dsf_json_free(doc);
    dsf_buf_free(&text);
    dsf_buf_free(&json);
    dsf_diff_report_free(&r);
}

Test(diff, chances_are_those_of_the_tables)
{
    /* P(X > 2) = 0.0803, P(X > 3) = 0.0190, P(X > 4) = 0.00366 for a mean of 1 */
    cr_expect_eq(dsf_chance_poisson(1.0, 0.05), 3);
    cr_expect_eq(dsf_chance_poisson(1.0, 0.01), 4);
    cr_expect_eq(dsf_chance_poisson(0.0, 0.01), 0);
    cr_expect_eq(dsf_chance_poisson(0.001, 0.01), 0);
    int64_t small = dsf_chance_poisson(9999.0, 1e-6), large = dsf_chance_poisson(10001.0, 1e-6);
    cr_expect(large - small >= 0 && large - small <= 4, "%lld %lld", (long long)small,
              (long long)large);
    cr_expect_float_eq(dsf_chance_binomial(10, 8, 0.5), 56.0 / 1024.0, 1e-12);
    cr_expect_float_eq(dsf_chance_binomial(8, 8, 0.1), 1e-8, 1e-15);
    cr_expect_eq(dsf_chance_binomial(8, 0, 0.1), 1.0);
    cr_expect_eq(dsf_chance_binomial(8, 9, 0.1), 0.0);
}
