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
