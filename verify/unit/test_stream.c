#include "textdata.h"

#include "base/mem.h"
#include "text/pyjson.h"
#include "text/stream.h"
#include "verify/suite/answer.h"

/* Two rows where the data itself calls its answer unhelpful. Ours: a held piece of the closing tag
 * is no part of the argument; a value without string="..." is a string and its call completes. */
typedef struct {
    const char *name, *arguments;
    bool complete;
} improved;
static const improved better[] = {
    {"truncated_close_tag", "{\"a\": \"x", false},
    {"missing_string_attr", "{\"a\": \"x\"}", true},
};

/* What the events add up to, and whether those of a call come in order. */
typedef struct {
    dsf_answer said;
    dsf_buf arguments;
    int open, valid;
    bool bad_order;
} sum;

static dsf_status collect(void *ud, const dsf_stream_event *e)
{
    sum *s = ud;
    if (e->kind == DSF_STREAM_CALL) {
        s->bad_order |= s->open++ != 0;
        s->arguments.len = 0;
    } else if (e->kind == DSF_STREAM_ARGUMENTS) {
        s->bad_order |= s->open != 1 || e->n == 0;
        dsf_buf_add(&s->arguments, e->text, e->n);
    } else if (e->kind == DSF_STREAM_CALL_END) {
        s->bad_order |= s->open-- != 1 || s->arguments.len != e->n ||
                        (e->n && memcmp(s->arguments.data, e->text, e->n) != 0);
        s->valid += e->valid;
    }
    return dsf_answer_collect(&s->said, e);
}

static void free_sum(sum *s)
{
    dsf_answer_free(&s->said);
    dsf_buf_free(&s->arguments);
}

/* Feeds text cut at the n places; the result as JSON. */
static dsf_buf run(dsf_stream_options o, const dsf_buf *text, const size_t *cut, size_t n)
{
    sum s = {0};
    dsf_buf out = {0};
    dsf_stream *st = NULL;
    size_t at = 0;
    o.on = collect;
    o.ud = &s;
    cr_assert_eq(dsf_stream_open(&st, &o), DSF_OK);
    for (size_t i = 0; i <= n; i++) {
        size_t to = i < n ? cut[i] : text->len;
        cr_assert_eq(dsf_stream_feed(st, text->data + at, to - at), DSF_OK);
        at = to;
    }
    cr_assert_eq(dsf_stream_end(st), DSF_OK);
    cr_expect(!s.bad_order && s.open == 0, "call events out of order");
    dsf_stream_close(st);
    dsf_answer_add(&s.said, &out);
    free_sum(&s);
    return out;
}

static dsf_stream_options options_of(const char *start)
{
    dsf_stream_options o = {0};
    if (strcmp(start, "thinking") == 0) o.start = DSF_STREAM_FROM_REASONING;
    if (strcmp(start, "continue-thinking") == 0) o.start = DSF_STREAM_GO_ON_REASONING;
    if (strcmp(start, "continue-content") == 0) o.start = DSF_STREAM_GO_ON_CONTENT;
    return o;
}

static dsf_buf expected(const dsf_json *row)
{
    dsf_buf want = {0};
    for (size_t i = 0; i < sizeof better / sizeof *better; i++)
        if (strcmp(better[i].name, row_name(row)) == 0) {
            dsf_buf_str(&want, "{\"reasoning_content\": \"\", \"content\": \"\", \"tool_calls\": "
                               "[{\"name\": \"f\", \"arguments\": ");
            dsf_json_quote(&want, better[i].arguments, strlen(better[i].arguments));
            dsf_buf_fmt(&want, ", \"complete\": %s}], \"stray_think_end\": 0, ",
                        better[i].complete ? "true" : "false");
            dsf_buf_str(&want, "\"discarded_after_calls\": \"\"}");
            return want;
        }
    cr_assert_eq(dsf_pyjson_add(&want, dsf_json_get(row, "expect")), DSF_OK);
    return want;
}

static void check_split(const dsf_json *row, const dsf_buf *text, const size_t *cut, size_t n)
{
    const char *start = dsf_json_text(dsf_json_get(row, "start"), NULL);
    dsf_buf want = expected(row), got = run(options_of(start), text, cut, n);
    cr_expect(same_text(&got, &want), "%s in %zu chunks (cut at %zu, ...):\n%s\nexpected\n%s",
              row_name(row), n + 1, n ? cut[0] : 0, got.data, want.data);
    dsf_buf_free(&got);
    dsf_buf_free(&want);
}

static void check_row(const dsf_json *row, void *ud)
{
    size_t cut[4096];
    uint64_t *random = ud;
    dsf_buf text = data_text(dsf_json_get(row, "text"));
    cr_assert_lt(text.len, 4096);
    check_split(row, &text, NULL, 0);
    for (size_t at = 0; at <= text.len; at++) check_split(row, &text, &at, 1);
    for (size_t i = 0; i < text.len; i++) cut[i] = i;
    check_split(row, &text, cut, text.len);
    for (int times = 0; times < 50; times++) {
        size_t n = 0;
        for (size_t i = 0; i < text.len; i++) {
            *random = *random * 6364136223846793005u + 1442695040888963407u;
            if ((*random >> 33) % 7 == 0) cut[n++] = i;
        }
        check_split(row, &text, cut, n);
    }
    dsf_buf_free(&text);
}

Test(stream, the_cut_into_chunks_does_not_matter)
{
    uint64_t random = 1;
    int rows =
        data_rows(data_path("reference/encoding-cases/stream-cases.jsonl"), check_row, &random);
    cr_expect_eq(rows, 40, "%d rows", rows);
}

typedef struct {
    const char *start, *text, *want;
    bool no_tools;
} law;

#define RESULT(reasoning, content, calls)                                                          \
    "{\"reasoning_content\": \"" reasoning "\", \"content\": \"" content                           \
    "\", \"tool_calls\": [" calls "], \"stray_think_end\": 0, \"discarded_after_calls\": \"\"}"
#define VALUE "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\">"

Test(stream, does_better_where_the_rules_are_unhelpful)
{
    static const law laws[] = {
        /* (c): no tools in the request: markup stays text, nothing is invented */
        {"chat", "a\n\n<｜DSML｜ calls>", RESULT("", "a\\n\\n<｜DSML｜ calls>", ""), true},
        {"thinking", "r<｜DSML｜ x</think>c", RESULT("r<｜DSML｜ x", "c", ""), true},
        /* (f): reasoning that never closed is reasoning */
        {"thinking", "r\n\n", RESULT("r\\n\\n", "", ""), false},
        /* (a): any held piece of the tag goes, not only the whole bar */
        {"chat", VALUE "x</",
         RESULT("", "",
                "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"x\", "
                "\"complete\": false}"),
         false},
        {"chat", VALUE "x< y</｜DSML｜ parameter></｜DSML｜ invoke>",
         RESULT("", "",
                "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"x< y\\\"}\", "
                "\"complete\": true}"),
         false},
        /* a tag cut short inside the parameter's head: an empty string, and the call goes on */
        {"chat",
         "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\"</｜DSML｜ parameter>"
         "</｜DSML｜ invoke>",
         RESULT("", "",
                "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\\"}\", \"complete\": "
                "true}"),
         false},
    };
    for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
        dsf_stream_options o = options_of(laws[i].start);
        o.no_tools = laws[i].no_tools;
        dsf_buf text = {0};
        dsf_buf_str(&text, laws[i].text);
        for (size_t at = 0; at <= text.len; at++) {
            dsf_buf got = run(o, &text, &at, 1);
            cr_expect_str_eq(got.data, laws[i].want, "%s: %s", laws[i].text, got.data);
            dsf_buf_free(&got);
        }
        dsf_buf_free(&text);
    }
}

static sum feed_whole(const char *text, dsf_stream **st)
{
    static sum s;
    s = (sum){0};
    dsf_stream_options o = {.on = collect, .ud = &s};
    cr_assert_eq(dsf_stream_open(st, &o), DSF_OK);
    cr_assert_eq(dsf_stream_feed(*st, text, strlen(text)), DSF_OK);
    cr_assert_eq(dsf_stream_end(*st), DSF_OK);
    return s;
}

Test(stream, arguments_that_do_not_parse_are_kept_but_marked)
{
    dsf_stream *st = NULL;
    sum s =
        feed_whole("<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"false\">{no"
                   "</｜DSML｜ parameter></｜DSML｜ invoke>",
                   &st);
    cr_expect_eq(s.valid, 0);
    cr_expect_eq(dsf_stream_complete_calls(st), 1);
    cr_expect(!dsf_stream_in_call(st));
    cr_expect_str_eq(s.arguments.data, "{\"a\": {no}");
    free_sum(&s);
    dsf_stream_close(st);
    s = feed_whole(VALUE "x</｜DSML｜ parameter></｜DSML｜ invoke>" VALUE "y", &st);
    cr_expect_eq(s.valid, 1);
    cr_expect_eq(dsf_stream_complete_calls(st), 1);
    cr_expect(dsf_stream_in_call(st));
    free_sum(&s);
    dsf_stream_close(st);
}

/* Hostile runs: newlines, beginnings of markers, quotes; byte by byte. */
Test(stream, is_linear, .timeout = 120)
{
    static const char *const unit[] = {"\n", "</think", "<｜DSML", "\n<", "\""};
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
        sum s = {0};
        dsf_stream_options o = {.start = DSF_STREAM_GO_ON_CONTENT, .on = collect, .ud = &s};
        dsf_stream *st = NULL;
        cr_assert_eq(dsf_stream_open(&st, &o), DSF_OK);
        size_t n = strlen(unit[i]), total = 0;
        for (; total < 2000000; total += n)
            for (size_t k = 0; k < n; k++)
                cr_assert_eq(dsf_stream_feed(st, unit[i] + k, 1), DSF_OK);
        cr_assert_eq(dsf_stream_end(st), DSF_OK);
        cr_expect_eq(s.said.content.len, total, "%s: %zu of %zu", unit[i], s.said.content.len,
                     total);
        dsf_stream_close(st);
        free_sum(&s);
    }
}

static dsf_status stop_at_content(void *ud, const dsf_stream_event *e)
{
    (void)ud;
    return e->kind == DSF_STREAM_CONTENT ? DSF_ECANCELED : DSF_OK;
}

Test(stream, a_status_of_the_listener_comes_back)
{
    dsf_stream_options o = {.start = DSF_STREAM_FROM_REASONING, .on = stop_at_content};
    dsf_stream *st = NULL;
    cr_assert_eq(dsf_stream_open(&st, &o), DSF_OK);
    cr_expect_eq(dsf_stream_feed(st, "r</think>", 9), DSF_OK);
    cr_expect_eq(dsf_stream_feed(st, "c", 1), DSF_ECANCELED);
    dsf_stream_close(st);
}

Test(stream, survives_every_failing_allocation)
{
    static const char text[] =
        "c" VALUE "x</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>tail";
    for (uint64_t nth = 1;; nth++) {
        dsf_stream_options o = {.start = DSF_STREAM_FROM_CONTENT};
        dsf_stream *st = NULL;
        dsf_mem_fail_at(nth);
        dsf_status got = dsf_stream_open(&st, &o);
        if (got == DSF_OK) got = dsf_stream_feed(st, text, strlen(text));
        if (got == DSF_OK) got = dsf_stream_end(st);
        dsf_mem_fail_at(0);
        dsf_stream_close(st);
        if (got == DSF_OK) break;
        cr_expect_eq(got, DSF_ENOMEM, "allocation %llu: %s", (unsigned long long)nth,
                     dsf_error_text());
        cr_assert_lt(nth, 1000);
    }
}
