#include "dump_fixture.h"

#include "base/file.h"
#include "ckpt/digest.h"
#include "verify/diff/diff.h"
#include "verify/diff/floor.h"
#include "verify/diff/sha256.h"

TestSuite(floor, .fini = temp_clean);

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    (void)fputs(text, f);
    cr_assert_eq(fclose(f), 0);
}

Test(floor, sha256_of_known_texts)
{
    char hex[65];
    dsf_sha256_hex("", 0, hex);
    cr_expect_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    dsf_sha256_hex("abc", 3, hex);
    cr_expect_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    dsf_sha256_hex(two, strlen(two), hex);
    cr_expect_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

Test(floor, official_limits_know_their_sets)
{
    dsf_floor *f;
    dsf_dump_file *d;
    dsf_floor_kind k;
    GOOD(dsf_floor_open(&f, golden_path("noise_floor.json")));
    GOOD(dsf_dump_open(&d, golden_path("tiny-b/dump-p0.h5")));
    GOOD(dsf_floor_bind(f, d));
    cr_expect(dsf_floor_official(f));
    cr_expect_str_eq(dsf_floor_name(f), "official limits, tiny-b/p0");
    cr_assert(dsf_floor_get(f, "attn/u", false, &k));
    cr_expect_float_eq(k.own.row_max, 0.000723, 1e-9);
    cr_expect_float_eq(k.own.changed, 0.00057, 1e-9);
    cr_expect_float_eq(k.pooled.row_max, 0.000723, 1e-9);
    cr_expect_float_eq(k.limit_rel_l2, 2e-4, 1e-12);
    cr_assert(dsf_floor_get(f, "attn/kv_main", false, &k));
    cr_expect_eq(k.pooled.changed, 0.0, "a quantiser: bit-equal in every run");
    cr_assert(dsf_floor_get(f, "final/h", false, &k), "not among the published limits");
    cr_expect_gt(k.limit_row_median, 0.0);
    cr_expect(!dsf_floor_get(f, "no/such", false, &k));
    dsf_dump_close(d);
    dsf_floor_close(f);
}

static const char *const changed_config =
    "{\"text_config\": {\"num_hidden_layers\": 8, \"hidden_size\": 128, \"rms_norm_eps\": 1e-6}}";

static dsf_status bind_file(const char *floor, const char *model, const char *config,
                            const char *checkpoint)
{
    static const int32_t ids[] = {1, 2, 3};
    const dsf_dump_meta m = {.producer = "test",
                             .model = model,
                             .config_json = config,
                             .mode = "exact",
                             .checkpoint_digest = checkpoint,
                             .plan_digest = "reference",
                             .token_ids = ids,
                             .n_tokens = 3};
    dsf_dump *w;
    dsf_dump_file *d = NULL;
    dsf_floor *f = NULL;
    GOOD(dsf_dump_create(&w, temp_path("dump-p0.h5"), &m));
    GOOD(dsf_dump_finish(w));
    GOOD(dsf_dump_open(&d, temp_path("dump-p0.h5")));
    dsf_status st = dsf_floor_open(&f, floor);
    if (st == DSF_OK) st = dsf_floor_bind(f, d);
    dsf_floor_close(f);
    dsf_dump_close(d);
    return st;
}

Test(floor, another_models_floor_is_refused)
{
    const char *floor = golden_path("noise_floor.json");
    cr_expect_eq(bind_file(floor, "mini", mini_config, "c"), DSF_EINVAL);
    SAYS("holds no measurement of model mini");
    cr_expect_eq(bind_file(floor, "tiny-b", changed_config, "c"), DSF_EINVAL);
    SAYS("whose config is not the one in");
}

/* A project floor with this binding. */
static const char *project(const char *binding)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "{\"binding\": {%s}, \"recommended_limits_injected_mode\": {\"by_tap\": {}},"
                   " \"results\": {\"mini/p0\": {\"v\": {\"per_layer_from_exact_input\":"
                   " {\"by_tap\": {\"out\": {\"row_max\": 0.25, \"changed_fraction_max\": 0.5}},"
                   " \"flips\": {\"topk_flips\": 0}}, \"free_running\": {\"by_tap\": {\"out\":"
                   " {\"rel_l2_max\": 0.01, \"row_max\": 0.02, \"max_abs\": 0.5}}}}}}}",
                   binding);
    write_text(temp_path("floor.json"), text);
    return temp_path("floor.json");
}

Test(floor, every_part_of_a_binding_is_checked)
{
    char config[33], good[512];
    dsf_digest_bytes(mini_config, strlen(mini_config), config);
    static const int32_t ids[] = {1, 2, 3};
    char prompts[65];
    dsf_sha256_hex(ids, sizeof ids, prompts);
    (void)snprintf(good, sizeof good,
                   "\"model\": \"mini\", \"model_digest\": \"c\", \"reference_digest\":"
                   " \"reference\", \"producer\": \"test\", \"prompts\": [\"p0\"],"
                   " \"config_digest\": \"%s\", \"prompts_digest\": \"%s\"",
                   config, prompts);
    GOOD(bind_file(project(good), "mini", mini_config, "c"));
    cr_expect_eq(bind_file(project(good), "mini", mini_config, "d"), DSF_EINVAL);
    SAYS("bound to model_digest c; this reference has d");
    static const char *const bad[][2] = {
        {"\"model\": \"maxi\"", "bound to model maxi"},
        {"\"reference_digest\": \"other\"", "bound to reference_digest other"},
        {"\"producer\": \"other\"", "bound to producer other"},
        {"\"config_digest\": \"00\"", "bound to config_digest 00"},
        {"\"prompts\": [\"p1\", \"p2\"]", "other prompts than p0"},
        {"\"prompts\": [\"p0\"], \"prompts_digest\": \"00\"", "bound to prompts_digest 00"},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(bind_file(project(bad[i][0]), "mini", mini_config, "c"), DSF_EINVAL, "%s",
                     bad[i][0]);
        SAYS(bad[i][1]);
    }
}

Test(floor, files_that_are_no_floor_are_refused)
{
    dsf_floor *f;
    write_text(temp_path("x.json"), "{\"results\": {}}");
    cr_expect_eq(dsf_floor_open(&f, temp_path("x.json")), DSF_ECORRUPT);
    SAYS("not a noise floor");
    write_text(temp_path("x.json"), "[1, 2");
    cr_expect_eq(dsf_floor_open(&f, temp_path("x.json")), DSF_ECORRUPT);
    cr_expect_eq(dsf_floor_open(&f, temp_path("none.json")), DSF_EIO);
}

/* Free-running against the project's own carried floor: 1.5, 3 and 5 times what it measured. */
static double carried_error;
static dsf_status run_carried(dsf_diff_report *r)
{
    static const int32_t ids[] = {1, 2, 3}, label[] = {0, 1, 2};
    float x[3 * 128];
    const char *path[] = {temp_path("dump-p0.h5"), temp_path("ours.h5")};
    for (int side = 0; side < 2; side++) {
        const dsf_dump_meta m = {.model = "mini",
                                 .config_json = mini_config,
                                 .mode = "exact",
                                 .token_ids = ids,
                                 .n_tokens = 3};
        dsf_dump *d;
        GOOD(dsf_dump_create(&d, path[side], &m));
        dsf_tap_sink sink = dsf_dump_sink(d);
        for (int layer = 0; layer < 2; layer++) {
            for (int i = 0; i < 384; i++)
                x[i] = 1.0f +
                       (float)(side && (layer || i == 0) ? carried_error * (i % 2 ? 1 : -1) : 0);
            dsf_tensor t = {.data = x, .dtype = DSF_F32, .rank = 2, .dim = {3, 128}};
            dsf_tap_value v = {.tap = {DSF_TAP_OUT, layer}, .value = &t, .n = 3, .label = label};
            GOOD(sink.on_value(sink.ud, &v));
        }
        GOOD(dsf_dump_finish(d));
    }
    const dsf_diff_options o = {
        .reference = path[0], .ours = path[1], .floor = project("\"model\": \"mini\"")};
    return dsf_diff_run(&o, r);
}

Test(floor, carried_error_is_judged_by_its_ratio_to_the_floor)
{
    dsf_diff_report r;
    carried_error = 0.0137;
    GOOD(run_carried(&r));
    cr_expect(r.good, "%s", r.verdict);
    dsf_diff_report_free(&r);
    carried_error = 0.0176;
    GOOD(run_carried(&r));
    cr_expect(!r.good, "%s", r.verdict);
    cr_expect_not_null(strstr(r.verdict, "layers/01/out"), "%s", r.verdict);
    cr_expect_not_null(strstr(r.verdict, "carried: rel L2"), "%s", r.verdict);
    dsf_diff_report_free(&r);
}
