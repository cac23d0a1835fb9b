#include "textdata.h"

#include "base/mem.h"
#include "text/chat.h"
#include "text/parse.h"
#include "text/pyjson.h"

/* Rows marked quirk in the data where the reference's answer follows from how Python prints or
 * fails. Ours: null is nothing, a value where text belongs is JSON, NaN is no JSON and stays text,
 * an effort that is a list is a bad effort. */
static const char *const better[] = {"tool_result_null_content", "tool_result_dict_content",
                                     "latest_reminder_null",     "args_nan_infinity",
                                     "err_effort_[75]",          NULL};

/* Two rows of the data lost the form of their floats, which is what they are about: put back. */
typedef struct {
    const char *name, *from, *to;
} repair;
static const repair repairs[] = {
    {"err_effort_75.0", "\"reasoning_effort\": 75}", "\"reasoning_effort\": 75.0}"},
    {"tools_key_order_and_types", "[1, 2.5, 100000000000000000000, 0,", "[1.0, 2.5, 1e20, -0.0,"},
};

typedef struct {
    dsf_bpe *bpe;
    int encoded, refused, listed, parsed, tagged;
} tally;

static void compare_prompt(const dsf_json *row, const dsf_chat_prompt *p, tally *t)
{
    const dsf_json *expect = dsf_json_get(row, "expect");
    dsf_buf want = data_text(dsf_json_get(expect, "prompt")), images = {0}, want_images = {0};
    cr_expect(same_text(&want, &p->prompt), "%s:\n%s\nexpected\n%s", row_name(row), p->prompt.data,
              want.data);
    cr_assert_eq(dsf_chat_images_json(p, &images), DSF_OK);
    cr_assert_eq(dsf_pyjson_add(&want_images, dsf_json_get(expect, "images")), DSF_OK);
    cr_expect(same_text(&want_images, &images), "%s: %s, expected %s", row_name(row), images.data,
              want_images.data);
    dsf_ids ids = {0}, want_ids = data_ids(dsf_json_get(expect, "ids"));
    cr_assert_eq(dsf_bpe_encode(t->bpe, p->prompt.data ? p->prompt.data : "", p->prompt.len,
                                DSF_BPE_ADDED, &ids),
                 DSF_OK);
    cr_expect(same_ids(&ids, &want_ids), "%s: ids differ", row_name(row));
    dsf_ids_free(&ids);
    dsf_ids_free(&want_ids);
    dsf_buf_free(&want);
    dsf_buf_free(&images);
    dsf_buf_free(&want_images);
    t->encoded++;
}

static void check_encode(const dsf_json *row, tally *t)
{
    dsf_chat_prompt p = {0};
    dsf_status st = dsf_chat_encode(dsf_json_get(row, "args"), NULL, &p);
    const dsf_json *error = dsf_json_get(row, "error");
    if (is_listed(row_name(row), better)) {
        cr_expect(dsf_json_true(dsf_json_get(row, "quirk")), "%s is no quirk", row_name(row));
        t->listed++;
    } else if (error) {
        const char *class = dsf_json_text(dsf_json_get(error, "class"), NULL);
        cr_expect_eq(st, DSF_ECORRUPT, "%s: accepted, expected %s", row_name(row), class);
        cr_expect_str_eq(dsf_chat_error_name(p.error), class, "%s: %s", row_name(row),
                         dsf_error_text());
        t->refused++;
    } else {
        cr_expect_eq(st, DSF_OK, "%s: %s", row_name(row), dsf_error_text());
        if (st == DSF_OK) compare_prompt(row, &p, t);
    }
    dsf_chat_free(&p);
}

static void check_tagged(const dsf_json *row, tally *t)
{
    dsf_buf text = data_text(dsf_json_get(dsf_json_get(row, "args"), "text")), out = {0},
            want = {0};
    dsf_chat_error error;
    dsf_status st = dsf_chat_tagged_text(text.data, text.len, &out, &error);
    const dsf_json *refused = dsf_json_get(row, "error");
    if (refused) {
        cr_expect_eq(st, DSF_ECORRUPT, "%s", row_name(row));
        cr_expect_str_eq(dsf_chat_error_name(error),
                         dsf_json_text(dsf_json_get(refused, "class"), NULL));
    } else {
        const dsf_json *blocks = dsf_json_get(dsf_json_get(row, "expect"), "blocks");
        cr_assert_eq(dsf_pyjson_add(&want, blocks), DSF_OK);
        cr_expect(st == DSF_OK && same_text(&out, &want), "%s: %s, expected %s", row_name(row),
                  out.data, want.data);
    }
    dsf_buf_free(&text);
    dsf_buf_free(&out);
    dsf_buf_free(&want);
    t->tagged++;
}

static void check_row(const dsf_json *row, void *ud)
{
    tally *t = ud;
    const char *kind = dsf_json_text(dsf_json_get(row, "kind"), NULL);
    for (size_t i = 0; i < sizeof repairs / sizeof *repairs; i++)
        if (strcmp(row_name(row), repairs[i].name) == 0) return; /* the test below */
    if (strcmp(kind, "encode") == 0) check_encode(row, t);
    if (strcmp(kind, "tagged_text") == 0) check_tagged(row, t);
}

/* [B-49] [B-50] */
Test(chat, equals_the_reference_encoder_on_every_case)
{
    const char *path = data_path("reference/encoding-cases/cases.jsonl");
    tally t = {.bpe = data_tokenizer()};
    int rows = data_rows(path, check_row, &t);
    cr_expect_eq(rows, 254, "%d rows", rows);
    cr_expect_eq(t.encoded + t.refused + t.listed, 203 - 2, "%d encoded, %d refused, %d listed",
                 t.encoded, t.refused, t.listed);
    cr_expect_eq(t.listed, 5);
    cr_expect_eq(t.tagged, 9);
    dsf_bpe_close(t.bpe);
}

Test(chat, equals_the_reference_encoder_on_the_two_rows_with_floats)
{
    dsf_buf all = data_read(data_path("reference/encoding-cases/cases.jsonl"));
    tally t = {.bpe = data_tokenizer()};
    for (size_t i = 0; i < sizeof repairs / sizeof *repairs; i++) {
        dsf_buf line = {0}, head = {0};
        dsf_buf_fmt(&head, "{\"name\": \"%s\"", repairs[i].name);
        char *at = strstr(all.data, head.data), *stop = at ? strchr(at, '\n') : NULL;
        cr_assert(at && stop, "%s: no such row", repairs[i].name);
        dsf_buf_add(&line, at, (size_t)(stop - at));
        char *hit = strstr(line.data, repairs[i].from);
        cr_assert_not_null(hit, "%s: repaired by now? then the row belongs to the others",
                           repairs[i].name);
        dsf_buf whole = {0};
        dsf_buf_add(&whole, line.data, (size_t)(hit - line.data));
        dsf_buf_str(&whole, repairs[i].to);
        dsf_buf_str(&whole, hit + strlen(repairs[i].from));
        dsf_json_doc *doc = data_json(whole.data, whole.len);
        check_encode(dsf_json_root(doc), &t);
        dsf_json_free(doc);
        dsf_buf_free(&whole);
        dsf_buf_free(&line);
        dsf_buf_free(&head);
    }
    cr_expect_eq(t.encoded, 1);
    cr_expect_eq(t.refused, 1);
    dsf_buf_free(&all);
    dsf_bpe_close(t.bpe);
}

/* [B-49] */
Test(chat, equals_the_five_official_outputs_and_their_ids)
{
    dsf_buf ids_text = data_read(data_path("reference/encoding-cases/official/token_ids.json"));
    dsf_json_doc *ids_doc = data_json(ids_text.data, ids_text.len);
    dsf_bpe *bpe = data_tokenizer();
    for (int i = 1; i <= 5; i++) {
        char name[80], key[2] = {(char)('0' + i), 0};
        (void)snprintf(name, sizeof name, "reference/encoding-cases/official/test_input_%d.json",
                       i);
        dsf_buf in = data_read(data_path(name));
        (void)snprintf(name, sizeof name, "reference/encoding-cases/official/test_output_%d.txt",
                       i);
        dsf_buf want = data_read(data_path(name));
        dsf_json_doc *doc = data_json(in.data, in.len);
        dsf_chat_prompt p = {0};
        cr_assert_eq(dsf_chat_encode(dsf_json_root(doc), "chat", &p), DSF_OK, "%s",
                     dsf_error_text());
        cr_expect(same_text(&p.prompt, &want), "case %d:\n%s", i, p.prompt.data);
        dsf_ids ids = {0}, want_ids = data_ids(dsf_json_get(dsf_json_root(ids_doc), key));
        cr_assert_eq(dsf_bpe_encode(bpe, p.prompt.data, p.prompt.len, DSF_BPE_ADDED, &ids), DSF_OK);
        cr_expect(want_ids.n > 0 && same_ids(&ids, &want_ids), "case %d: ids differ", i);
        dsf_ids_free(&ids);
        dsf_ids_free(&want_ids);
        dsf_chat_free(&p);
        dsf_json_free(doc);
        dsf_buf_free(&in);
        dsf_buf_free(&want);
    }
    dsf_json_free(ids_doc);
    dsf_buf_free(&ids_text);
    dsf_bpe_close(bpe);
}

static dsf_status encode(const char *json, dsf_chat_prompt *p)
{
    dsf_json_doc *doc = data_json(json, strlen(json));
    dsf_status st = dsf_chat_encode(dsf_json_root(doc), NULL, p);
    dsf_json_free(doc);
    return st;
}

typedef struct {
    const char *json;
    dsf_chat_error error;
    const char *words; /* found in the message: the place, and what is allowed */
} refusal;

#define CHAT(messages) "{\"thinking_mode\": \"chat\", \"messages\": [" messages "]}"
#define Q              "{\"role\": \"user\", \"content\": \"q\"}"
#define CALL(call)     CHAT("{\"role\": \"assistant\", \"tool_calls\": [" call "]}")

static const refusal refusals[] = {
    {"5", DSF_CHAT_BAD_REQUEST, "request: a number, expected an object or a list"},
    {"{\"thinking_mode\": \"chat\"}", DSF_CHAT_BAD_REQUEST, "messages: missing"},
    {"{\"messages\": {}}", DSF_CHAT_BAD_REQUEST, "messages: an object, expected a list"},
    {"{\"messages\": [], \"mesages\": 1}", DSF_CHAT_BAD_REQUEST, "mesages: not one of messages"},
    {"{\"messages\": [], \"drop_thinking\": 1}", DSF_CHAT_BAD_REQUEST,
     "drop_thinking: a number, expected a boolean"},
    {"{\"messages\": []}", DSF_CHAT_BAD_MODE, "thinking_mode: missing, expected chat or thinking"},
    {"{\"messages\": [], \"thinking_mode\": null}", DSF_CHAT_BAD_MODE, "thinking_mode: null"},
    {CHAT("7"), DSF_CHAT_BAD_TYPE, "messages[0]: a number, expected an object"},
    {CHAT(Q ", {}"), DSF_CHAT_MISSING_KEY, "messages[1].role: missing"},
    {CHAT(Q ", {\"role\": 3}"), DSF_CHAT_BAD_ROLE, "messages[1].role: a number"},
    {CHAT("{\"role\": \"usr\"}"), DSF_CHAT_BAD_ROLE, "messages[0].role: \"usr\" is none of system"},
    {CHAT("{\"role\": \"user\", \"content\": true}"), DSF_CHAT_BAD_TYPE,
     "messages[0].content: a boolean, expected a string or a list"},
    {CHAT("{\"role\": \"user\", \"content_blocks\": \"x\"}"), DSF_CHAT_BAD_TYPE,
     "messages[0].content_blocks: a string, expected a list"},
    {CHAT("{\"role\": \"user\", \"content\": [{\"type\": \"text\"}, 1]}"), DSF_CHAT_BAD_TYPE,
     "messages[0].content[1]: a number, expected an object"},
    {CHAT("{\"role\": \"user\", \"content\": [{}]}"), DSF_CHAT_MISSING_KEY,
     "messages[0].content[0].type: missing"},
    {CHAT("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": 1}]}"),
     DSF_CHAT_BAD_TYPE, "messages[0].content[0].text: a number, expected a string"},
    {CHAT("{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"content\": "
          "[{\"type\": \"image\"}]}]}"),
     DSF_CHAT_NO_IMAGE_SOURCE, "messages[0].content[0].content[0]: image without a source"},
    {CHAT("{\"role\": \"system\", \"content\": \"\", \"tools\": 5}"), DSF_CHAT_BAD_TYPE,
     "messages[0].tools: a number, expected a list"},
    {CHAT("{\"role\": \"system\", \"tools\": [{\"name\": \"f\"}]}"), DSF_CHAT_MISSING_KEY,
     "messages[0].tools[0].function: missing"},
    {CHAT("{\"role\": \"system\", \"tools\": [{\"function\": {}}]}"), DSF_CHAT_MISSING_KEY,
     "messages[0].tools[0].function.name: missing"},
    {CHAT("{\"role\": \"system\", \"tools\": [{\"function\": {\"name\": \"f\"}, \"namespace\": "
          "{\"description\": \"d\"}}]}"),
     DSF_CHAT_MISSING_KEY, "messages[0].tools[0].namespace.name: missing"},
    {CALL("1"), DSF_CHAT_BAD_TYPE, "messages[0].tool_calls[0]: a number, expected an object"},
    {CALL("{\"function\": {\"name\": \"f\"}}"), DSF_CHAT_MISSING_KEY,
     "messages[0].tool_calls[0].function.arguments: missing"},
    {CALL("{\"function\": {\"name\": \"a::b::c\", \"arguments\": {}}}"), DSF_CHAT_BAD_NAMESPACE,
     "messages[0].tool_calls[0]: more than one :: in a::b::c"},
    {"{\"thinking_mode\": \"chat\", \"messages\": [], \"context\": [{\"role\": \"user\", "
     "\"content\": [7]}]}",
     DSF_CHAT_BAD_TYPE, "context[0].content[0]: a number"},
    {"{\"thinking_mode\": \"chat\", \"messages\": [" Q "], \"tools\": [{}]}", DSF_CHAT_MISSING_KEY,
     "tools[0].function: missing"},
    {"{\"thinking_mode\": \"chat\", \"messages\": [" Q "], \"reasoning_effort\": 1e1}",
     DSF_CHAT_BAD_EFFORT, "reasoning_effort: a number 1e1, expected low, high, max or an integer"},
};

/* [B-50] */
Test(chat, refuses_with_place_and_class)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        dsf_chat_prompt p = {0};
        dsf_status st = encode(r->json, &p);
        cr_expect_eq(st, DSF_ECORRUPT, "%s: accepted", r->json);
        cr_expect_eq(p.error, r->error, "%s: %s", r->json, dsf_chat_error_name(p.error));
        cr_expect_not_null(strstr(dsf_error_message(), r->words), "%s: said \"%s\"", r->json,
                           dsf_error_message());
        dsf_chat_free(&p);
    }
}

Test(chat, request_tools_go_on_the_first_system_message)
{
    static const char tools[] = "\"tools\": [{\"function\": {\"name\": \"f\"}}], ";
    dsf_chat_prompt a = {0}, b = {0};
    dsf_buf one = {0}, two = {0};
    dsf_buf_fmt(&one, "{%s\"thinking_mode\": \"thinking\", \"messages\": [" Q "]}", tools);
    dsf_buf_fmt(&two,
                "{\"thinking_mode\": \"thinking\", \"messages\": [{%s\"role\": \"system\", "
                "\"content\": \"\"}, " Q "]}",
                tools);
    cr_assert_eq(encode(one.data, &a), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(encode(two.data, &b), DSF_OK);
    cr_expect(same_text(&a.prompt, &b.prompt), "%s", a.prompt.data);
    dsf_chat_free(&a);
    dsf_chat_free(&b);
    dsf_buf_free(&one);
    dsf_buf_free(&two);
}

/* What the encoder writes for calls, the strict parser reads back. */
Test(chat, calls_survive_encode_and_parse)
{
    static const char json[] =
        CHAT(Q ", {\"role\": \"assistant\", \"content\": \"c\", \"tool_calls\": [{\"function\": "
               "{\"name\": \"n::f\", \"arguments\": {\"a\": \"x \\\"y\\\" \\n\\u0000\", \"b\": [1, "
               "2.5, null], \"\": true}}}, {\"function\": {\"name\": \"g\", \"arguments\": {}}}]}");
    dsf_chat_prompt p = {0};
    cr_assert_eq(encode(json, &p), DSF_OK, "%s", dsf_error_text());
    const char *answer = strstr(p.prompt.data, "</think>") + strlen("</think>");
    size_t n = p.prompt.len - (size_t)(answer - p.prompt.data);
    dsf_completion c = {0};
    cr_assert_eq(dsf_parse_completion(answer, n, false, &c), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(c.n_calls, 2);
    cr_expect_str_eq(c.call[0].space.data, "n");
    cr_expect_str_eq(c.call[0].name.data, "f");
    cr_expect_str_eq(c.call[0].arguments.data,
                     "{\"a\": \"x \\\"y\\\" \\n\\u0000\", \"b\": [1, 2.5, null], \"\": true}");
    cr_expect_str_eq(c.call[1].arguments.data, "{}");
    dsf_parse_free(&c);
    dsf_chat_free(&p);
}

typedef struct {
    const char *in, *out;
} number;

Test(pyjson, numbers_print_as_python_prints_them)
{
    static const number numbers[] = {
        {"1.0", "1.0"},
        {"1e20", "1e+20"},
        {"-0.0", "-0.0"},
        {"-0", "0"},
        {"0.1", "0.1"},
        {"2.50", "2.5"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"123456789.125", "123456789.125"},
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"1e400", "Infinity"},
        {"9007199254740993", "9007199254740993"},
        {"9007199254740993.0", "9007199254740992.0"},
        /* 2^-44: the nearest 16 digits do not read back, the next ones do */
        {"5.6843418860808015e-14", "5.684341886080802e-14"},
        {"9.5e-7", "9.5e-07"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1e22", "1e+22"},
        {"1e23", "1e+23"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        dsf_buf out = {0};
        dsf_json_doc *doc = data_json(numbers[i].in, strlen(numbers[i].in));
        cr_assert_eq(dsf_pyjson_add(&out, dsf_json_root(doc)), DSF_OK);
        cr_expect_str_eq(out.data, numbers[i].out, "%s", numbers[i].in);
        dsf_json_free(doc);
        dsf_buf_free(&out);
    }
}

Test(pyjson, a_repeated_key_keeps_its_first_place_and_last_value)
{
    static const char in[] =
        "{\"a\": 1, \"b\": {\"c\": 1, \"c\": [\"\\u0000\\u007f/é\"]}, \"a\": 3}";
    dsf_buf out = {0};
    dsf_json_doc *doc = data_json(in, strlen(in));
    cr_assert_eq(dsf_pyjson_add(&out, dsf_json_root(doc)), DSF_OK);
    cr_expect_str_eq(out.data, "{\"a\": 3, \"b\": {\"c\": [\"\\u0000\x7F/é\"]}}");
    dsf_json_free(doc);
    dsf_buf_free(&out);
}

/* Every allocation of an encoding fails once: a clean status, no class, no leak. */
Test(chat, survives_every_failing_allocation)
{
    static const char json[] =
        "{\"thinking_mode\": \"thinking\", \"messages\": [{\"role\": \"system\", \"tools\": "
        "[{\"namespace\": {\"name\": \"n\", \"description\": \"d\"}, \"function\": {\"name\": "
        "\"f\"}}]}, {\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\", \"function\": "
        "{\"name\": \"f\", \"arguments\": \"{\\\"k\\\": [1]}\"}}]}, {\"role\": \"tool\"}, {\"role\": "
        "\"tool\", \"content\": [{\"type\": \"image\", \"data\": \"x\"}]}]}";
    dsf_json_doc *doc = data_json(json, strlen(json));
    dsf_buf want = {0};
    for (uint64_t nth = 0;; nth++) {
        dsf_chat_prompt p = {0};
        dsf_mem_fail_at(nth);
        dsf_status st = dsf_chat_encode(dsf_json_root(doc), NULL, &p);
        dsf_mem_fail_at(0);
        if (nth == 0) dsf_buf_add(&want, p.prompt.data, p.prompt.len);
        bool same = same_text(&want, &p.prompt);
        dsf_chat_free(&p);
        cr_expect(st == DSF_ENOMEM || (st == DSF_OK && same), "allocation %llu: %s",
                  (unsigned long long)nth, st ? dsf_error_text() : "another prompt");
        if (st == DSF_OK && nth) break;
        cr_assert_lt(nth, 1000);
    }
    dsf_buf_free(&want);
    dsf_json_free(doc);
}
