#include <criterion/criterion.h>
#include <string.h>

#include "base/json.h"

typedef struct {
    const char *text, *words;
} refusal;

Test(json, refuses_what_is_no_json)
{
    static const refusal refusals[] = {
        {"", "not JSON"},
        {"{} x", "not JSON"},
        {"[1,]", "not JSON"},
        {"01", "starts with 0"},
        {"-", "without digits"},
        {"1.", "no digit after the point"},
        {"1e", "in the exponent"},
        {"\"a", "string without end"},
        {"\"\\q\"", "unknown escape"},
        {"\"\\u12\"", "four hex"},
        {"\"\t\"", "control character"},
        {"{1: 2}", "a key must be a string"},
        {"{-1.5e3 \n: 2}", "a key must be a string"},
        {"\xFF", "byte 0: not UTF-8"},
        {"[\"a\" \"b\"]", "not JSON"},
        {"nul", "not JSON"},
        {"NaN", "not JSON"},
        {"\"\\", "backslash"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        dsf_json_doc *doc = NULL;
        const char *text = refusals[i].text;
        cr_expect_eq(dsf_json_parse(&doc, "t", text, strlen(text)), DSF_ECORRUPT, "%s", text);
        cr_expect_not_null(strstr(dsf_error_message(), refusals[i].words), "%s: said \"%s\"", text,
                           dsf_error_message());
        cr_expect_eq(strncmp(dsf_error_message(), "t: ", 3), 0);
        dsf_json_free(doc);
    }
}

static dsf_json_doc *parse(const char *text)
{
    dsf_json_doc *doc = NULL;
    cr_assert_eq(dsf_json_parse(&doc, "t", text, strlen(text)), DSF_OK, "%s", dsf_error_text());
    return doc;
}

Test(json, nests_to_512_and_no_deeper)
{
    for (int depth = 512; depth <= 513; depth++) {
        dsf_buf b = {0};
        dsf_json_doc *doc = NULL;
        for (int i = 0; i < depth; i++) dsf_buf_char(&b, '[');
        for (int i = 0; i < depth; i++) dsf_buf_char(&b, ']');
        cr_expect_eq(dsf_json_parse(&doc, "t", b.data, b.len),
                     depth == 512 ? DSF_OK : DSF_ECORRUPT);
        dsf_json_free(doc);
        dsf_buf_free(&b);
    }
}

Test(json, numbers_keep_their_text_and_are_exact)
{
    dsf_json_doc *doc = parse("[9223372036854775807, 9223372036854775808, 1e3, -5, 1.0, 1e999]");
    const dsf_json *v = dsf_json_first(dsf_json_root(doc));
    int64_t i = 0;
    double d = 0;
    cr_expect(dsf_json_int(v, &i) == DSF_OK && i == INT64_MAX);
    v = dsf_json_next(v);
    cr_expect_eq(dsf_json_int(v, &i), DSF_EINVAL);
    cr_expect_str_eq(dsf_json_text(v, NULL), "9223372036854775808");
    v = dsf_json_next(v);
    cr_expect_eq(dsf_json_int(v, &i), DSF_EINVAL);
    cr_expect(dsf_json_double(v, &d) == DSF_OK && d == 1000);
    v = dsf_json_next(v);
    cr_expect(dsf_json_int(v, &i) == DSF_OK && i == -5);
    v = dsf_json_next(v);
    cr_expect_eq(dsf_json_int(v, &i), DSF_EINVAL);
    v = dsf_json_next(v);
    cr_expect_eq(dsf_json_double(v, &d), DSF_EINVAL);
    cr_expect_null(dsf_json_next(v));
    dsf_json_free(doc);
}

Test(json, strings_and_keys_keep_every_character)
{
    dsf_json_doc *doc =
        parse("{\"k\\u0000\\u0001\": \"a\\u0000b\\u0001\\ud83d\\ude00\\ud800\\u00e9\\\"\"}");
    const dsf_json *m = dsf_json_first(dsf_json_root(doc));
    dsf_buf text = {0}, key = {0};
    dsf_json_add_text(&text, m);
    dsf_json_add_key(&key, m);
    cr_expect_eq(text.len, 14);
    cr_expect_arr_eq(text.data, "a\0b\1\xF0\x9F\x98\x80\xEF\xBF\xBD\xC3\xA9\"", 14);
    cr_expect_eq(key.len, 3);
    cr_expect_arr_eq(key.data, "k\0\1", 3);
    dsf_buf_free(&text);
    dsf_buf_free(&key);
    dsf_json_free(doc);
}

Test(json, duplicates_stay_visible)
{
    dsf_json_doc *doc = parse("{\"a\": 1, \"b\": 2, \"a\": 3}");
    const dsf_json *root = dsf_json_root(doc);
    cr_expect_eq(dsf_json_count(root), 3);
    cr_expect_str_eq(dsf_json_duplicate(root), "a");
    cr_expect_str_eq(dsf_json_text(dsf_json_get(root, "a"), NULL), "1");
    cr_expect_null(dsf_json_get(root, "c"));
    dsf_json_free(doc);
}

Test(json, what_is_written_reads_back)
{
    dsf_buf b = {0};
    static const char nasty[] = "\x01\t\"\\/\x7F é\n";
    dsf_json_begin(&b, NULL, '{');
    dsf_json_add_str(&b, "s", nasty, strlen(nasty));
    dsf_json_begin(&b, "l", '[');
    dsf_json_add_int(&b, NULL, -7);
    dsf_json_add_num(&b, NULL, 0.5);
    dsf_json_add_num(&b, NULL, 0.0 / 0.0);
    dsf_json_add_bool(&b, NULL, true);
    dsf_json_end(&b, ']');
    dsf_json_end(&b, '}');
    dsf_json_doc *doc = parse(b.data);
    const dsf_json *root = dsf_json_root(doc), *l = dsf_json_get(root, "l");
    dsf_buf text = {0};
    dsf_json_add_text(&text, dsf_json_get(root, "s"));
    cr_expect_str_eq(text.data, nasty);
    dsf_buf_free(&text);
    cr_expect_eq(dsf_json_count(l), 4);
    cr_expect_eq(dsf_json_kind_of(dsf_json_next(dsf_json_next(dsf_json_first(l)))), DSF_JSON_NULL);
    dsf_json_free(doc);
    dsf_buf_free(&b);
}
