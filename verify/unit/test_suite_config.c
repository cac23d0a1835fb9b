/* The config suite can fail: its edits are what they say, and it sees a file that the engine reads
 * in another way than it is written. */
#include "engine_fixture.h"
#include "verify/suite/edit.h"
#include "verify/suite/unit.h"

TestSuite(suite_config, .fini = mini_clean);

static const char text[] =
    "{\"a\": 1, \"b\": {\"c\": [1.5, \"x\\n\"], \"d\": null, \"e\": true}, \"f\": []}";

static dsf_json_doc *parse(const char *json)
{
    dsf_json_doc *doc = NULL;
    GOOD(dsf_json_parse(&doc, "text", json, strlen(json)));
    return doc;
}

static void expect_edit(dsf_edit_kind kind, const char *path, const char *want)
{
    dsf_json_doc *doc = parse(text);
    dsf_buf b = {.max = 0};
    const dsf_edit e = {.kind = kind, .at = dsf_edit_find(dsf_json_root(doc), path), .raw = "[7]"};
    cr_assert_not_null(e.at, "%s", path);
    dsf_edit_write(dsf_json_root(doc), &e, &b);
    cr_expect_str_eq(b.data, want, "%s: %s", path, b.data);
    dsf_buf_free(&b);
    dsf_json_free(doc);
}

Test(suite_config, an_edit_changes_one_place)
{
    expect_edit(DSF_EDIT_NONE, "a", text);
    expect_edit(DSF_EDIT_CHANGE, "a",
                "{\"a\": 2, \"b\": {\"c\": [1.5, \"x\\n\"], \"d\": null, \"e\": true}, \"f\": []}");
    expect_edit(
        DSF_EDIT_CHANGE, "b.c.0",
        "{\"a\": 1, \"b\": {\"c\": [2.25, \"x\\n\"], \"d\": null, \"e\": true}, \"f\": []}");
    expect_edit(
        DSF_EDIT_CHANGE, "b.c.1",
        "{\"a\": 1, \"b\": {\"c\": [1.5, \"x\\nx\"], \"d\": null, \"e\": true}, \"f\": []}");
    expect_edit(DSF_EDIT_CHANGE, "b.d",
                "{\"a\": 1, \"b\": {\"c\": [1.5, \"x\\n\"], \"d\": 1, \"e\": true}, \"f\": []}");
    expect_edit(
        DSF_EDIT_CHANGE, "b.e",
        "{\"a\": 1, \"b\": {\"c\": [1.5, \"x\\n\"], \"d\": null, \"e\": false}, \"f\": []}");
    expect_edit(DSF_EDIT_RETYPE, "b", "{\"a\": 1, \"b\": [{}], \"f\": []}");
    expect_edit(DSF_EDIT_REMOVE, "b", "{\"a\": 1, \"f\": []}");
    expect_edit(DSF_EDIT_REMOVE, "b.c.0",
                "{\"a\": 1, \"b\": {\"c\": [\"x\\n\"], \"d\": null, \"e\": true}, \"f\": []}");
    expect_edit(DSF_EDIT_TWICE, "a",
                "{\"a\": 1, \"a\": 1, \"b\": {\"c\": [1.5, \"x\\n\"], \"d\": null, \"e\": true}, "
                "\"f\": []}");
    expect_edit(DSF_EDIT_REPLACE, "b", "{\"a\": 1, \"b\": [7], \"f\": []}");
    expect_edit(DSF_EDIT_UNKNOWN, "b",
                "{\"a\": 1, \"b\": {\"c\": [1.5, \"x\\n\"], \"d\": null, \"e\": true, "
                "\"dsf_unknown_key\": 1}, \"f\": []}");
}

Test(suite_config, values_are_the_same_by_value)
{
    static const struct {
        const char *a, *b;
        bool same;
    } pair[] = {
        {"1", "1.0", true},
        {"1", "2", false},
        {"1", "\"1\"", false},
        {"[1, 2]", "[1, 2]", true},
        {"[1, 2]", "[1]", false},
        {"[1]", "[1, 2]", false},
        {"{\"a\": 1, \"b\": 2}", "{\"b\": 2, \"a\": 1}", true},
        {"{\"a\": 1}", "{\"b\": 1}", false},
        {"9007199254740993", "9007199254740992", false},
        {"null", "null", true},
        {"true", "false", false},
    };
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        dsf_json_doc *a = parse(pair[i].a), *b = parse(pair[i].b);
        cr_expect_eq(dsf_edit_same(dsf_json_root(a), dsf_json_root(b)), pair[i].same, "%s %s",
                     pair[i].a, pair[i].b);
        dsf_json_free(a);
        dsf_json_free(b);
    }
}

static void check(dsf_suite_fn *run, const char *model, dsf_suite_check *c)
{
    const dsf_verify_options o = {.model = model};
    const dsf_suite_unit u = {.o = &o, .model = model, .n = 1, .threads = 1};
    dsf_suite_begin(c, "config", "config");
    run(&u, c);
    dsf_suite_seal(c);
}

Test(suite_config, the_mini_model_has_nothing_to_hide)
{
    static dsf_suite_fn *const run[] = {dsf_suite_config_values, dsf_suite_config_leaves,
                                        dsf_suite_config_unknown};
    for (int i = 0; i < 3; i++) {
        dsf_suite_check c;
        check(run[i], mini(), &c);
        cr_expect_eq(c.verdict, DSF_PASS, "%s", c.words);
        cr_expect_gt(c.compared, 50);
        dsf_buf_free(&c.detail);
    }
}

/* The flat file beside a config stands for what another engine understood. */
Test(suite_config, another_understanding_is_named)
{
    dsf_suite_check c;
    put_text(mini(), "inference_config.json", "{\"dim\": 128, \"rope_theta\": 10001}");
    check(dsf_suite_config_values, mini(), &c);
    cr_expect_eq(c.verdict, DSF_FAILED);
    cr_expect_str_eq(c.at.path, "rope_theta");
    cr_expect_eq(c.at.reference, 10001.0);
    cr_expect_eq(c.at.ours, 10000.0);
    cr_expect_eq(c.value, 1.0);
    dsf_buf_free(&c.detail);
}
