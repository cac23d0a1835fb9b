#include "dump_fixture.h"

#include <sys/stat.h>

#include "base/file.h"
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
    GOOD(dsf_floor_bind(f, d, NULL));
    cr_expect(dsf_floor_official(f));
    cr_expect_str_eq(dsf_floor_name(f), "official limits, tiny-b/p0");
    cr_assert(dsf_floor_get(f, "attn/u", -1, false, &k));
    cr_expect_float_eq(k.own.row_max, 0.000723, 1e-9);
    cr_expect_float_eq(k.own.changed, 0.00057, 1e-9);
    cr_expect_float_eq(k.pooled.row_max, 0.000723, 1e-9);
    cr_expect_float_eq(k.limit_rel_l2, 2e-4, 1e-12);
    cr_assert(dsf_floor_get(f, "attn/kv_main", -1, false, &k));
    cr_expect_eq(k.pooled.changed, 0.0, "a quantiser: bit-equal in every run");
    cr_assert(dsf_floor_get(f, "final/h", -1, false, &k), "not among the published limits");
    cr_expect_gt(k.limit_row_median, 0.0);
    cr_expect(!dsf_floor_get(f, "no/such", -1, false, &k));
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
                             .backend = "numpy",
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
    if (st == DSF_OK) st = dsf_floor_bind(f, d, NULL);
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

/* A binding that fits what bind_file writes, one member exchanged for `text` ("" leaves it out). */
static const char *binding_with(const char *member, const char *text)
{
    static char all[1024];
    static const int32_t ids[] = {1, 2, 3};
    char config[65], prompts[65], line[160];
    dsf_sha256_hex(mini_config, strlen(mini_config), config);
    dsf_sha256_hex(ids, sizeof ids, prompts);
    const char *const part[][2] = {
        {"model", "mini"},         {"model_digest", "c"},      {"reference_digest", "reference"},
        {"producer", "test"},      {"backend", "numpy"},       {"token_class", "prefill"},
        {"config_sha256", config}, {"prompts_digest", prompts}};
    (void)snprintf(all, sizeof all, "\"prompts\": [\"%s\"]",
                   strcmp(member, "prompts") == 0 ? text : "p0");
    for (unsigned i = 0; i < sizeof part / sizeof *part; i++) {
        bool other = strcmp(member, part[i][0]) == 0;
        if (other && !*text) continue;
        (void)snprintf(line, sizeof line, ", \"%s\": \"%s\"", part[i][0],
                       other ? text : part[i][1]);
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s", line);
    }
    return all;
}

Test(floor, every_part_of_a_binding_is_checked)
{
    GOOD(bind_file(project(binding_with("", "")), "mini", mini_config, "c"));
    cr_expect_eq(bind_file(project(binding_with("", "")), "mini", mini_config, "d"), DSF_EINVAL);
    SAYS("bound to model_digest c; this reference has d");
    static const char *const bad[][3] = {
        {"model", "maxi", "bound to model maxi; this reference has mini"},
        {"reference_digest", "other",
         "bound to reference_digest other; this reference has reference"},
        {"producer", "other", "bound to producer other; this reference has test"},
        {"backend", "h200", "bound to backend h200; this reference has numpy"},
        {"token_class", "prefill+decode", "token_class prefill+decode; this reference has prefill"},
        {"config_sha256", "00", "bound to config_sha256 00"},
        {"prompts", "p1", "other prompts than p0"},
        {"prompts_digest", "00", "bound to prompts_digest 00"},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *floor = project(binding_with(bad[i][0], bad[i][1]));
        cr_expect_eq(bind_file(floor, "mini", mini_config, "c"), DSF_EINVAL, "%s", bad[i][0]);
        SAYS(bad[i][2]);
    }
}

Test(floor, a_binding_that_leaves_something_open_is_refused)
{
    static const char *const member[] = {"model",   "model_digest", "reference_digest", "producer",
                                         "backend", "token_class",  "config_sha256"};
    for (unsigned i = 0; i < sizeof member / sizeof *member; i++) {
        char words[80];
        const char *floor = project(binding_with(member[i], ""));
        cr_expect_eq(bind_file(floor, "mini", mini_config, "c"), DSF_EINVAL, "%s", member[i]);
        (void)snprintf(words, sizeof words, "its binding names no %s", member[i]);
        SAYS(words);
    }
}

/* ---- floors that were edited ---- */

/* A floor of one tap: what its results hold, what its table says was measured, and the limits. */
static dsf_status open_edited(const char *tap, double run, double measured, double rel,
                              double median, bool official)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "{%s \"recommended_limits_injected_mode\": {\"by_tap\": {\"%s\": {\"measured\":"
                   " {\"rel_l2\": %g, \"row_median\": 0, \"row_max\": 0}, \"limit_rel_l2\": %g,"
                   " \"limit_row_median\": %g}}}, \"results\": {\"mini/p0\": {\"v\":"
                   " {\"per_layer_from_exact_input\": {\"by_tap\": {\"%s\": {\"rel_l2_max\": %g,"
                   " \"row_median_max\": 0, \"row_max\": 0}}, \"flips\": {\"topk_flips\": 0}}}}}}",
                   official ? "" : "\"binding\": {},", tap, measured, rel, median, tap, run);
    write_text(temp_path("edited.json"), text);
    dsf_floor *f = NULL;
    dsf_status st = dsf_floor_open(&f, temp_path("edited.json"));
    dsf_floor_close(f);
    return st;
}

Test(floor, limits_follow_from_what_was_measured)
{
    GOOD(open_edited("out", 1e-3, 1e-3, 4e-3, 1e-4, false));
    GOOD(open_edited("out", 0, 0, 2e-4, 1e-4, false));
    GOOD(open_edited("attn/pre", 0, 0, 2e-6, 1e-6, false));
    GOOD(open_edited("dspark/attn/pre", 1e-6, 1e-6, 4e-6, 1e-6, false));
    GOOD(open_edited("out", 1.1e-3, 1.1e-3, 5e-3, 1e-4, false)); /* up to one digit */
    static const struct {
        const char *tap;
        double run, measured, rel, median;
        const char *words;
    } bad[] = {
        {"out", 1e-3, 1e-3, 4e3, 1e-4,
         "out: limit_rel_l2 is 4000, which is not 4 x the measured 0.001"},
        {"out", 1e-3, 1e-3, 5e-3, 1e-4, "out: limit_rel_l2 is 0.005"},
        {"out", 1e-3, 1e-3, 3e-3, 1e-4, "out: limit_rel_l2 is 0.003"},
        {"out", 1e-3, 1e-3, 4e-3, 1e2, "out: limit_row_median is 100"},
        {"attn/pre", 0, 0, 2e-4, 1e-6, "attn/pre: limit_rel_l2 is 0.0002"},
        {"out", 1e-3, 1, 4, 1e-4, "out: rel_l2 measured is 1, its results hold 0.001"},
        {"out", 1, 1e-3, 4e-3, 1e-4, "out: rel_l2 measured is 0.001, its results hold 1"},
        /* every number a million times itself: no limit stands below the least any more */
        {"out", 0, 0, 200, 100, "out: limit_rel_l2 is 200"},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(
            open_edited(bad[i].tap, bad[i].run, bad[i].measured, bad[i].rel, bad[i].median, false),
            DSF_EINVAL, "%s", bad[i].words);
        SAYS(bad[i].words);
    }
    cr_expect_eq(open_edited("out", -1, 0, 2e-4, 1e-4, false), DSF_ECORRUPT);
    SAYS("out: rel_l2_max is -1, wanted is a number of 0 or more");
}

/* It was measured on more than its file holds, and rounded to the nearest digit. */
Test(floor, official_limits_are_held_to_their_rule)
{
    GOOD(open_edited("out", 5e-4, 4.4e-3, 0.02, 1e-4, true));
    cr_expect_eq(open_edited("out", 5e-4, 4.4e-3, 0.2, 1e-4, true), DSF_EINVAL);
    SAYS("limit_rel_l2 is 0.2");
    cr_expect_eq(open_edited("out", 5, 4.4e-3, 0.02, 1e-4, true), DSF_EINVAL);
    SAYS("its results hold 5");
}

/* Numbers that fit together, and are not those that were measured. */
Test(floor, a_manifest_beside_a_floor_knows_its_digest)
{
    static const char *const text = "{\"binding\": {}, \"results\": {},"
                                    " \"recommended_limits_injected_mode\": {}}";
    char manifest[512], folder[512], path[600], digest[65];
    dsf_floor *f = NULL;
    (void)snprintf(folder, sizeof folder, "%s", temp_path("set"));
    cr_assert_eq(mkdir(folder, 0777), 0);
    (void)snprintf(path, sizeof path, "%s/noise_floor.json", folder);
    write_text(path, text);
    dsf_sha256_hex(text, strlen(text), digest);
    static const char *const place[][2] = {{"MANIFEST.json", "set/noise_floor.json"},
                                           {"set/MANIFEST.json", "noise_floor.json"}};
    for (int i = 0; i < 2; i++) {
        for (int wrong = 0; wrong < 2; wrong++) {
            if (wrong) digest[0] = (char)(digest[0] == 'a' ? 'b' : 'a');
            (void)snprintf(manifest, sizeof manifest, "{\"files\": {\"%s\": {\"sha256\": \"%s\"}}}",
                           place[i][1], digest);
            write_text(temp_path(place[i][0]), manifest);
            dsf_status st = dsf_floor_open(&f, path);
            cr_expect_eq(st, wrong ? DSF_EINVAL : DSF_OK, "%s", place[i][0]);
            if (wrong) SAYS("MANIFEST.json lists as ");
            dsf_floor_close(f);
            f = NULL;
        }
        dsf_sha256_hex(text, strlen(text), digest);
        cr_assert_eq(remove(temp_path(place[i][0])), 0);
    }
    write_text(temp_path("MANIFEST.json"), "of something else"); /* is none of ours */
    GOOD(dsf_floor_open(&f, path));
    dsf_floor_close(f);
}

/* The project's own floor, edited in place or far from its manifest. */
Test(floor, the_projects_floor_is_what_its_manifest_lists)
{
    dsf_floor *f = NULL;
    GOOD(dsf_floor_open(&f, DSF_SOURCE_ROOT "/golden/mini/noise_floor.json"));
    dsf_floor_close(f);
}

/* The official floor knows its folders by their weights: an engine's dump says which it ran on. */
Test(floor, official_limits_refuse_other_weights)
{
    dsf_floor *f;
    dsf_dump_file *d, *ours;
    static const int32_t ids[] = {1};
    const dsf_dump_meta m = {.producer = "test",
                             .model = "tiny-b",
                             .config_json = mini_config,
                             .mode = "exact",
                             .checkpoint_digest = "00112233445566778899aabbccddeeff",
                             .token_ids = ids,
                             .n_tokens = 1};
    dsf_dump *w;
    GOOD(dsf_dump_create(&w, temp_path("ours.h5"), &m));
    GOOD(dsf_dump_finish(w));
    GOOD(dsf_floor_open(&f, golden_path("noise_floor.json")));
    GOOD(dsf_dump_open(&d, golden_path("tiny-b/dump-p0.h5")));
    GOOD(dsf_dump_open(&ours, temp_path("ours.h5")));
    cr_expect_eq(dsf_floor_bind(f, d, ours), DSF_EINVAL);
    SAYS("was made with 00112233445566778899aabbccddeeff");
    dsf_dump_close(ours);
    dsf_dump_close(d);
    dsf_floor_close(f);
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
                                 .producer = "test",
                                 .backend = "numpy",
                                 .checkpoint_digest = "c",
                                 .plan_digest = "reference",
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
    const dsf_diff_options o = {.reference = path[0],
                                .ours = path[1],
                                .floor = project(binding_with("prompts_digest", ""))};
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
