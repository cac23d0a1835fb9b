#include "textdata.h"

#include "base/mem.h"
#include "text/parse.h"
#include "text/pyjson.h"
#include "verify/suite/answer.h"

typedef struct {
    int accepted, refused;
} tally;

static void check_row(const dsf_json *row, void *ud)
{
    tally *t = ud;
    if (strcmp(dsf_json_text(dsf_json_get(row, "kind"), NULL), "parse") != 0) return;
    const dsf_json *args = dsf_json_get(row, "args"), *error = dsf_json_get(row, "error");
    dsf_buf text = data_text(dsf_json_get(args, "text")), got = {0}, want = {0};
    bool thinking =
        strcmp(dsf_json_text(dsf_json_get(args, "thinking_mode"), NULL), "thinking") == 0;
    dsf_completion c = {0};
    dsf_status st = dsf_parse_completion(text.data, text.len, thinking, &c);
    if (error) {
        const char *class = dsf_json_text(dsf_json_get(error, "class"), NULL);
        cr_expect_eq(st, DSF_ECORRUPT, "%s: accepted, expected %s", row_name(row), class);
        cr_expect_str_eq(dsf_parse_error_name(c.error), class, "%s: %s, expected %s", row_name(row),
                         dsf_error_text(), class);
        t->refused++;
    } else {
        dsf_answer_add_message(&c, &got);
        const dsf_json *message = dsf_json_get(dsf_json_get(row, "expect"), "message");
        cr_assert_eq(dsf_pyjson_add(&want, message), DSF_OK);
        cr_expect_eq(st, DSF_OK, "%s: %s", row_name(row), dsf_error_text());
        cr_expect(same_text(&got, &want), "%s: %s\nexpected %s", row_name(row), got.data,
                  want.data);
        t->accepted++;
    }
    dsf_parse_free(&c);
    dsf_buf_free(&text);
    dsf_buf_free(&got);
    dsf_buf_free(&want);
}

Test(parse, equals_the_reference_parser_on_every_case)
{
    tally t = {0};
    (void)data_rows(data_path("reference/encoding-cases/cases.jsonl"), check_row, &t);
    cr_expect_eq(t.accepted, 21, "%d accepted", t.accepted);
    cr_expect_eq(t.refused, 21, "%d refused", t.refused);
}

#define BEGIN  "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
#define P(key) "<｜DSML｜ parameter name=\"" key "\" string=\"true\">v</｜DSML｜ parameter>\n"
#define END    "</｜DSML｜ invoke>\n</｜DSML｜ calls>"

typedef struct {
    const char *text;
    dsf_parse_error error;
} refusal;

Test(parse, refuses_by_class_with_the_byte)
{
    static const refusal refusals[] = {
        {BEGIN P("a") P("b") P("a") END, DSF_PARSE_TWICE},
        {BEGIN P("a") "</｜DSML｜ invoke>\n", DSF_PARSE_BAD_CALLS},
        {BEGIN P("a") "x" END, DSF_PARSE_BAD_PARAM},
        {BEGIN, DSF_PARSE_BAD_INVOKE},
        {"\n\n<｜DSML｜ calls>\n<｜DSML｜ call", DSF_PARSE_BAD_CALLS},
        {BEGIN "\n" P("a") END, DSF_PARSE_BAD_INVOKE},
        {BEGIN END "<｜end▁of▁sentence｜>\n", DSF_PARSE_TRAILING},
        {"", DSF_PARSE_NO_EOS},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        dsf_completion c = {0};
        const char *text = refusals[i].text;
        cr_expect_eq(dsf_parse_completion(text, strlen(text), false, &c), DSF_ECORRUPT, "%s", text);
        cr_expect_eq(c.error, refusals[i].error, "%s: %s", text, dsf_error_message());
        cr_expect_not_null(strstr(dsf_error_message(), "completion: byte "));
        dsf_parse_free(&c);
    }
}

/* 20,000 parameters: looking for doubles must not compare them all with each other. */
Test(parse, is_not_quadratic_in_parameters, .timeout = 60)
{
    dsf_buf text = {0};
    dsf_completion c = {0};
    dsf_buf_str(&text, BEGIN);
    for (int i = 0; i < 20000; i++)
        dsf_buf_fmt(&text,
                    "<｜DSML｜ parameter name=\"k%d\" string=\"false\">%d</｜DSML｜ parameter>\n",
                    i, i);
    dsf_buf_str(&text, END);
    cr_expect_eq(dsf_parse_completion(text.data, text.len, false, &c), DSF_OK, "%s",
                 dsf_error_text());
    cr_expect_eq(c.n_calls, 1);
    dsf_parse_free(&c);
    dsf_buf_free(&text);
}

Test(parse, survives_every_failing_allocation)
{
    static const char text[] = "r</think>c" BEGIN P("a") P("b") END;
    for (uint64_t nth = 1;; nth++) {
        dsf_completion c = {0};
        dsf_mem_fail_at(nth);
        dsf_status st = dsf_parse_completion(text, strlen(text), true, &c);
        dsf_mem_fail_at(0);
        dsf_parse_free(&c);
        if (st == DSF_OK) break;
        cr_expect_eq(st, DSF_ENOMEM, "allocation %llu: %s", (unsigned long long)nth,
                     dsf_error_text());
        cr_assert_lt(nth, 1000);
    }
}
