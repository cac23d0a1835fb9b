/* From a dump to the wrong operation, on the project's golden files: faults are put into copies of
 * a golden dump and must be found by what the engine makes of the same inputs. */
#include <math.h>

#include "base/json.h"
#include "dump_fixture.h"
#include "model/synth.h"
#include "verify/graft/locate.h"

TestSuite(locate, .fini = temp_clean, .timeout = 240);

#define GOLDEN DSF_SOURCE_ROOT "/golden/mini/dump-p2.h5"
#define FLOOR  DSF_SOURCE_ROOT "/golden/mini/noise_floor.json"

static char model[512];

static void write_file(const char *name, const dsf_buf *b)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", model, name);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(b->data, 1, b->len, f), b->len);
    cr_assert_eq(fclose(f), 0);
}

/* The model that golden/mini was made from. */
static void make_model(void)
{
    dsf_config c;
    dsf_buf json = {.max = 1 << 20}, tokenizer = {.max = 1 << 24}, config = {.max = 1 << 16};
    (void)snprintf(model, sizeof model, "%s", temp_path("mini"));
    GOOD(dsf_synth_preset(&c, "mini"));
    GOOD(dsf_synth_finish(&c, &json));
    GOOD(dsf_synth_tokenizer("mini", c.vocab_size, &tokenizer, &config));
    const dsf_synth_job job = {.folder = model, .config = &c, .config_json = &json, .seed = 1};
    GOOD(dsf_synth_write(&job));
    write_file("tokenizer.json", &tokenizer);
    dsf_buf_free(&json);
    dsf_buf_free(&tokenizer);
    dsf_buf_free(&config);
}

static dsf_located locate(const char *ours, const char *floor)
{
    char out[512], temp[512];
    dsf_located r;
    (void)snprintf(out, sizeof out, "%s", temp_path("local.h5"));
    (void)snprintf(temp, sizeof temp, "%s", temp_path("second.h5"));
    const dsf_locate_options o = {
        .graft = {.model = model, .golden = GOLDEN, .out = out, .backend = "cpu", .threads = 2},
        .ours = ours,
        .temp = temp,
        .floor = floor};
    GOOD(dsf_locate(&o, &r));
    return r;
}

static dsf_located locate_edited(edit_fn edit)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s", temp_path("theirs.h5"));
    copy_dump(GOLDEN, path, "exact", edit, NULL);
    return locate(path, FLOOR);
}

static bool head_gain(const char *path, dsf_dump_array *a)
{
    if (strcmp(path, "layers/03/attn/o") == 0)
        for (int64_t i = 0; i < a->n * a->width; i++)
            if (i % a->width / a->dim[2] == 1) a->f[i] *= 2.0F;
    return true;
}

static bool exchanged(const char *path, dsf_dump_array *a)
{
    if (strcmp(path, "layers/04/in") == 0) a->f[3] += 1.0F;
    return true;
}

/* The copy holds every tensor of the golden run, and one of them is not what its inputs make. */
Test(locate, a_wrong_operation_is_proven_on_the_inputs_it_had)
{
    make_model();
    dsf_located r = locate_edited(head_gain);
    cr_expect(!r.good && r.proven, "%s", r.sentence);
    cr_expect_str_eq(r.first.path, "layers/03/attn/o");
    cr_expect_not_null(strstr(r.sentence, "inputs agree (bit-equal)"), "%s", r.sentence);
    cr_expect_not_null(strstr(r.sentence, "head 1"), "%s", r.sentence);
    cr_expect_gt(r.local_ratio, 100.0);
    /* what follows was computed from the right value in that copy, and is right on the wrong one no
     * more */
    dsf_buf text = {0}, json = {0};
    dsf_located_print(&r, false, &text);
    dsf_located_json(&r, &json);
    cr_expect_not_null(strstr(text.data, "wrong on the inputs it had: row "), "%s", text.data);
    cr_expect_not_null(strstr(text.data, "also wrong on the inputs they had: layers/03/attn/y"));
    dsf_json_doc *doc;
    GOOD(dsf_json_parse(&doc, "graft", json.data, json.len));
    const dsf_json *root = dsf_json_root(doc), *first = dsf_json_get(root, "first");
    cr_expect_str_eq(dsf_json_text(dsf_json_get(root, "schema"), NULL), "dsf-graft-1");
    cr_expect_str_eq(dsf_json_text(dsf_json_get(first, "path"), NULL), "layers/03/attn/o");
    cr_expect_geq(dsf_json_count(dsf_json_get(first, "causes")), 1);
    cr_expect_str_eq(dsf_json_text(dsf_json_get(dsf_json_get(root, "diff"), "schema"), NULL),
                     "dsf-diff-1");
    cr_expect_gt(dsf_json_count(dsf_json_get(dsf_json_get(root, "carried"), "taps")), 300);
    cr_expect_eq(dsf_json_count(dsf_json_get(dsf_json_get(root, "carried"), "budget")), 10);
    dsf_json_free(doc);
    dsf_buf_free(&text);
    dsf_buf_free(&json);
    dsf_located_free(&r);
}

Test(locate, a_copy_of_the_golden_run_is_good)
{
    make_model();
    dsf_located r = locate_edited(NULL);
    cr_expect(r.good && !r.proven && !r.first.path[0], "%s", r.sentence);
    dsf_located_free(&r);
}

Test(locate, a_layer_must_receive_what_the_one_before_left)
{
    make_model();
    dsf_located r = locate_edited(exchanged);
    cr_expect(!r.good && r.proven, "%s", r.sentence);
    cr_expect_str_eq(r.first.path, "layers/04/in");
    cr_expect_not_null(strstr(r.sentence, "not those of layers/03/out"), "%s", r.sentence);
    dsf_located_free(&r);
}

Test(locate, our_own_engine_is_good_on_golden_inputs_and_without_a_floor_no_pass)
{
    make_model();
    dsf_located r = locate(NULL, FLOOR);
    cr_expect(r.good, "%s", r.sentence);
    dsf_located_free(&r);
    r = locate(NULL, NULL);
    cr_expect(!r.good && !r.proven, "%s", r.sentence);
    cr_expect_not_null(strstr(r.sentence, "not a pass: no floor was given"), "%s", r.sentence);
    dsf_located_free(&r);
}

static dsf_status try_graft(const char *of_model, const char *no_gate, int from, int to,
                            char out[512])
{
    dsf_located r;
    (void)snprintf(out, 512, "%s", temp_path("local.h5"));
    const dsf_locate_options o = {.graft = {.model = of_model,
                                            .golden = GOLDEN,
                                            .out = out,
                                            .backend = "cpu",
                                            .threads = 1,
                                            .by_layer_range = to >= 0,
                                            .layer_from = from,
                                            .layer_to = to},
                                  .temp = temp_path("second.h5"),
                                  .floor = FLOOR,
                                  .no_gate = no_gate};
    dsf_status st = dsf_locate(&o, &r);
    dsf_located_free(&r);
    return st;
}

Test(locate, layers_that_the_model_has_not_are_refused)
{
    char out[512];
    make_model();
    cr_expect_eq(try_graft(model, NULL, 50, 60, out), DSF_EINVAL);
    SAYS("--layers 50-60: the model has layers 0-9 (draft stages 10-12)");
    cr_expect_eq(try_graft(model, NULL, 3, 50, out), DSF_EINVAL);
    SAYS("--layers 3-50: the model has layers 0-9");
    GOOD(try_graft(model, NULL, 9, 12, out));
}

/* Fields that change no number of this run are the model's all the same. */
Test(locate, a_model_of_another_config_is_refused_before_it_runs)
{
    char path[600], out[512], text[16384];
    make_model();
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = 0;
    char *at = strstr(text, "\"eos_token_id\": 1");
    cr_assert_not_null(at);
    at[strlen("\"eos_token_id\": ")] = '7';
    f = fopen(path, "wb");
    cr_assert_eq(fwrite(text, 1, n, f), n);
    (void)fclose(f);
    cr_expect_eq(try_graft(model, NULL, 0, -1, out), DSF_EINVAL);
    SAYS("different models: config eos_token_id is 1 in ");
    cr_expect_neq(access(out, F_OK), 0, "nothing was run");
}

static bool no_y(const char *path, dsf_dump_array *a)
{
    (void)a;
    return strstr(path, "attn/y") == NULL;
}

/* Their dump lacks a kind of tap: what is there is right, and that is no pass for the whole. */
Test(locate, a_dump_of_theirs_that_lacks_taps_is_not_judged)
{
    make_model();
    dsf_located r = locate_edited(no_y);
    cr_expect(!r.good && !r.proven, "%s", r.sentence);
    cr_expect_not_null(strstr(r.sentence, "free run: not judged: "), "%s", r.sentence);
    cr_expect_not_null(strstr(r.sentence, "first layers/00/attn/y"), "%s", r.sentence);
    dsf_located_free(&r);
}
