#include "textdata.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

static dsf_status encode(const dsf_bpe *b, const char *s, size_t n, dsf_ids *ids)
{
    return dsf_bpe_encode(b, s, n, DSF_BPE_ADDED, ids);
}

typedef struct {
    dsf_bpe *bpe;
    int encoded, decoded;
} tally;

static void check_encode(const dsf_json *row, tally *t)
{
    dsf_buf text = data_text(dsf_json_get(row, "text")), back = {0};
    dsf_ids ids = {0}, want = data_ids(dsf_json_get(row, "ids"));
    cr_assert_eq(encode(t->bpe, text.data, text.len, &ids), DSF_OK, "%s", dsf_error_text());
    cr_expect(same_ids(&ids, &want), "\"%s\": ids differ", text.data);
    cr_assert_eq(dsf_bpe_decode(t->bpe, ids.id, ids.n, false, &back), DSF_OK);
    cr_expect(same_text(&text, &back), "\"%s\": comes back as \"%s\"", text.data, back.data);
    dsf_ids_free(&ids);
    dsf_ids_free(&want);
    dsf_buf_free(&text);
    dsf_buf_free(&back);
    t->encoded++;
}

/* Whole and id by id must give the same text. */
static void check_lossy(const dsf_bpe *b, const dsf_ids *ids, bool skip, const dsf_buf *want)
{
    dsf_buf bytes = {0}, lossy = {0}, streamed = {0};
    dsf_bpe_tail tail = {0};
    cr_assert_eq(dsf_bpe_decode(b, ids->id, ids->n, skip, &bytes), DSF_OK);
    dsf_bpe_lossy(&lossy, bytes.data ? bytes.data : "", bytes.len);
    cr_expect(same_text(&lossy, want), "%s, expected %s", lossy.data, want->data);
    for (size_t i = 0; i < ids->n; i++) {
        cr_assert_eq(dsf_bpe_stream(b, &tail, ids->id[i], skip, &streamed), DSF_OK);
        cr_expect_eq(dsf_utf8_valid(streamed.data ? streamed.data : "", streamed.len),
                     streamed.len);
    }
    dsf_bpe_stream_end(&tail, &streamed);
    cr_expect(same_text(&streamed, want), "streamed: %s, expected %s", streamed.data, want->data);
    dsf_buf_free(&bytes);
    dsf_buf_free(&lossy);
    dsf_buf_free(&streamed);
}

static void check_decode(const dsf_json *row, tally *t)
{
    dsf_ids ids = data_ids(dsf_json_get(row, "ids"));
    dsf_buf bytes = {0}, hex = {0};
    cr_assert_eq(dsf_bpe_decode(t->bpe, ids.id, ids.n, false, &bytes), DSF_OK);
    for (size_t i = 0; i < bytes.len; i++) dsf_buf_fmt(&hex, "%02x", (unsigned char)bytes.data[i]);
    cr_expect_str_eq(hex.data, dsf_json_text(dsf_json_get(row, "bytes_hex"), NULL));
    dsf_buf all = data_text(dsf_json_get(row, "text_lossy"));
    dsf_buf some = data_text(dsf_json_get(row, "text_lossy_skip_special"));
    check_lossy(t->bpe, &ids, false, &all);
    check_lossy(t->bpe, &ids, true, &some);
    dsf_buf_free(&all);
    dsf_buf_free(&some);
    dsf_buf_free(&bytes);
    dsf_buf_free(&hex);
    dsf_ids_free(&ids);
    t->decoded++;
}

static void check_row(const dsf_json *row, void *ud)
{
    if (dsf_json_get(row, "text"))
        check_encode(row, ud);
    else
        check_decode(row, ud);
}

Test(bpe, equals_the_reference_on_every_case)
{
    const char *path = data_path("reference/tokenizer-cases.jsonl");
    tally t = {.bpe = data_tokenizer()};
    (void)data_rows(path, check_row, &t);
    cr_expect_eq(t.encoded, 257);
    cr_expect_eq(t.decoded, 26);
    dsf_bpe_close(t.bpe);
}

Test(bpe, knows_the_released_vocabulary)
{
    static const char think[] = "<think>";
    dsf_bpe *b = data_tokenizer();
    size_t n = 0;
    cr_expect_eq(dsf_bpe_n_vocab(b), 129280);
    cr_expect_eq(dsf_bpe_find_added(b, think, strlen(think)), 128821);
    cr_expect_eq(dsf_bpe_find_added(b, think, strlen(think) - 1), -1);
    cr_expect_eq(dsf_bpe_find_added(b, "<think>x", 8), -1);
    cr_expect(dsf_bpe_is_special(b, 0) && dsf_bpe_is_special(b, 1) &&
              !dsf_bpe_is_special(b, 128821));
    cr_expect(dsf_bpe_is_added(b, 128821) && !dsf_bpe_is_added(b, 3));
    cr_expect_arr_eq(dsf_bpe_token_bytes(b, 3, &n), "!", 1);
    cr_expect_null(dsf_bpe_token_bytes(b, 129280, &n));
    cr_expect_null(dsf_bpe_token_bytes(b, -1, &n));
    /* every id's bytes decode alone, and every ordinary token's bytes encode */
    dsf_buf all = {0};
    for (int32_t id = 0; id < 129280; id++) {
        cr_assert_not_null(dsf_bpe_token_bytes(b, id, &n), "id %d", id);
        cr_assert_gt(n, 0);
    }
    int32_t bad = 129280;
    cr_expect_eq(dsf_bpe_decode(b, &bad, 1, false, &all), DSF_EINVAL);
    cr_expect_str_eq(dsf_error_message(), "id 129280: no such token, the vocabulary has 0..129279");
    dsf_buf_free(&all);
    dsf_bpe_close(b);
}

/* Encoding a text in two modes differs exactly where an added token is spelled out. */
Test(bpe, plain_mode_leaves_added_tokens_inert)
{
    static const char text[] = "<think>";
    dsf_bpe *b = data_tokenizer();
    dsf_ids ids = {0};
    dsf_buf back = {0};
    cr_assert_eq(dsf_bpe_encode(b, text, strlen(text), DSF_BPE_PLAIN, &ids), DSF_OK);
    cr_expect_gt(ids.n, 1);
    for (size_t i = 0; i < ids.n; i++) cr_expect(!dsf_bpe_is_added(b, ids.id[i]));
    cr_assert_eq(dsf_bpe_decode(b, ids.id, ids.n, false, &back), DSF_OK);
    cr_expect_str_eq(back.data, text);
    dsf_buf_free(&back);
    dsf_ids_free(&ids);
    dsf_bpe_close(b);
}

typedef struct {
    const char *name, *unit;
} hostile;

Test(bpe, hostile_megabytes_take_linear_time, .timeout = 240)
{
    static const hostile texts[] = {
        {"one letter", "a"},
        {"blanks", " "},
        {"newlines", "\n"},
        {"blank and newline", " \n"},
        {"controls", "\x01"},
        {"digits", "1"},
        {"<", "<"},
        {"half a special", "<｜"},
        {"marks", "e\xCC\x81"},
        {"ideographs", "一"},
        {"signs", "!?"},
        {"tab blank", "\t "},
    };
    dsf_bpe *b = data_tokenizer();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dsf_buf text = {0};
        dsf_ids ids = {0};
        while (text.len < 1000000) dsf_buf_str(&text, texts[i].unit);
        dsf_buf_char(&text, 'x');
        int64_t start = dsf_clock_ns();
        cr_assert_eq(encode(b, text.data, text.len, &ids), DSF_OK, "%s: %s", texts[i].name,
                     dsf_error_text());
        double s = (double)(dsf_clock_ns() - start) * 1e-9;
        cr_expect_lt(s, 60.0, "%s: %.1f s", texts[i].name,
                     s); /* 0.3 s; a quadratic one takes an hour */
        dsf_ids_free(&ids);
        dsf_buf_free(&text);
    }
    dsf_bpe_close(b);
}

typedef struct {
    const dsf_bpe *b;
    const dsf_buf *text;
    dsf_ids ids;
    dsf_status st;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 20 && w->st == DSF_OK; i++) {
        w->ids.n = 0;
        w->st = encode(w->b, w->text->data, w->text->len, &w->ids);
    }
    return NULL;
}

Test(bpe, threads_share_one_tokenizer)
{
    dsf_bpe *b = data_tokenizer();
    dsf_buf text = {0};
    for (int i = 0; i < 500; i++)
        dsf_buf_fmt(&text, "line %d: the quick <think> 该助手 %c\n", i * 7919, 'a' + i % 26);
    dsf_ids want = {0};
    cr_assert_eq(encode(b, text.data, text.len, &want), DSF_OK);
    worker w[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){.b = b, .text = &text};
        cr_assert_eq(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        cr_expect(w[i].st == DSF_OK && same_ids(&w[i].ids, &want), "thread %d", i);
        dsf_ids_free(&w[i].ids);
    }
    dsf_ids_free(&want);
    dsf_buf_free(&text);
    dsf_bpe_close(b);
}

/* --- small tokenizers written here --- */

#define VOCAB  "{\"a\": 0, \"b\": 1, \"ab\": 2, \"Ġ\": 3, \"ba\": 4, \"aba\": 5}"
#define MERGES "[\"a b\", \"b a\", [\"ab\", \"a\"]]"
#define MODEL  "{\"type\": \"BPE\", \"vocab\": " VOCAB ", \"merges\": " MERGES "}"
#define LEVEL  "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define SPLIT(regex)                                                                               \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex                                      \
    "\"}, \"behavior\": \"Isolated\", \"invert\": false}, "
#define PRE(stages) "{\"type\": \"Sequence\", \"pretokenizers\": [" stages LEVEL "]}"
#define ADDED       "[{\"id\": 6, \"content\": \"<x>\", \"special\": true}]"
#define DECODER     ", \"decoder\": {\"type\": \"ByteLevel\"}"
#define FILE_OF(model, pre, added, rest)                                                           \
    "{\"model\": " model ", \"pre_tokenizer\": " pre ", \"added_tokens\": " added rest "}"
#define WITH_MODEL(model) FILE_OF(model, PRE(""), ADDED, DECODER)
#define WITH_PRE(pre)     FILE_OF(MODEL, pre, ADDED, DECODER)
#define WITH_REGEX(regex) WITH_PRE(PRE(SPLIT(regex)))
#define WITH_ADDED(added) FILE_OF(MODEL, PRE(""), "[" added "]", DECODER)
#define WITH_REST(rest)   FILE_OF(MODEL, PRE(""), ADDED, rest)
#define WITH_VOCAB(vocab) WITH_MODEL("{\"type\": \"BPE\", \"vocab\": " vocab ", \"merges\": []}")
#define WITH_MERGES(list)                                                                          \
    WITH_MODEL("{\"type\": \"BPE\", \"vocab\": " VOCAB ", \"merges\": " list "}")

typedef struct {
    const char *json, *words;
    dsf_status st;
} refusal;

static const refusal refusals[] = {
    {"[]", "t: an array, expected an object", DSF_ECORRUPT},
    {"{\"model\": ", "t: not JSON", DSF_ECORRUPT},
    {"{\"decoder\": {\"type\": \"ByteLevel\"}}", "t: no model", DSF_ECORRUPT},
    {WITH_REST(DECODER ", \"flavour\": 1"), "t: flavour: unknown key", DSF_ENOTSUP},
    {WITH_REST(DECODER ", \"truncation\": {\"max_length\": 5}"), "t: truncation is set",
     DSF_ENOTSUP},
    {WITH_REST(DECODER ", \"normalizer\": {\"type\": \"NFC\"}"), "t: normalizer: only null",
     DSF_ENOTSUP},
    {WITH_REST(DECODER ", \"post_processor\": {\"type\": \"TemplateProcessing\"}"),
     "t: post_processor: only null or ByteLevel", DSF_ENOTSUP},
    {WITH_REST(""), "t: decoder: only ByteLevel", DSF_ENOTSUP},
    {WITH_MODEL("{\"type\": \"Unigram\"}"), "t: model.type: only BPE", DSF_ENOTSUP},
    {WITH_MODEL("{\"type\": \"BPE\", \"dropout\": 0.1}"), "t: model.dropout is set", DSF_ENOTSUP},
    {WITH_MODEL("{\"type\": \"BPE\", \"byte_fallback\": true}"), "t: model.byte_fallback is set",
     DSF_ENOTSUP},
    {WITH_MODEL("{\"type\": \"BPE\", \"unk_token\": \"?\"}"), "t: model.unk_token is set",
     DSF_ENOTSUP},
    {WITH_MODEL("{\"type\": \"BPE\", \"type\": \"BPE\"}"), "t: model.type occurs twice",
     DSF_ECORRUPT},
    {WITH_MODEL("{\"type\": \"BPE\", \"vocab\": []}"), "t: model.vocab: no object", DSF_ECORRUPT},
    {WITH_VOCAB("{}"), "t: model.vocab: empty", DSF_ECORRUPT},
    {WITH_VOCAB("{\"a\": 0.5}"), "model.vocab: id 0.5, not an integer in 0..2097151", DSF_ECORRUPT},
    {WITH_VOCAB("{\"a\": -1}"), "id -1, not an integer", DSF_ECORRUPT},
    {WITH_VOCAB("{\"a\": 99999999}"), "id 99999999, not an integer", DSF_ECORRUPT},
    {WITH_VOCAB("{\"a\": 0, \"b\": 0}"), "id 0 is given to two entries, one is b", DSF_ECORRUPT},
    {WITH_VOCAB("{\"a\": 0, \"a\": 1}"), "a has the ids 0 and 1", DSF_ECORRUPT},
    {WITH_MERGES("[\"a\"]"), "model.merges: entry 0 is no pair", DSF_ECORRUPT},
    {WITH_MERGES("[\"a b\", \"a b c\"]"), "model.merges: entry 1 is no pair", DSF_ECORRUPT},
    {WITH_MERGES("[[\"a\", \"z\"]]"), "model.merges: entry 0: no token z", DSF_ECORRUPT},
    {WITH_MERGES("[\"b b\"]"), "model.merges: entry 0: no token bb", DSF_ECORRUPT},
    {WITH_MERGES("[\"a b\", \"a b\"]"), "entry 1 repeats entry 0", DSF_ECORRUPT},
    {WITH_ADDED("{\"content\": \"x\"}"), "added_tokens: entry without id", DSF_ECORRUPT},
    {WITH_ADDED("{\"id\": 6}"), "added token 6: no content", DSF_ECORRUPT},
    {WITH_ADDED("{\"id\": 6, \"content\": \"\"}"), "content of 0 bytes, 1..256", DSF_ENOTSUP},
    {WITH_ADDED("{\"id\": 6, \"content\": \"x\", \"lstrip\": true}"),
     "added token 6: lstrip is not", DSF_ENOTSUP},
    {WITH_ADDED("{\"id\": 0, \"content\": \"x\"}"), "but model.vocab has other bytes",
     DSF_ECORRUPT},
    {WITH_ADDED("{\"id\": 7, \"content\": \"ab\"}"), "added token 7: ab is id 2 in model.vocab",
     DSF_ECORRUPT},
    {WITH_ADDED("{\"id\": 6, \"content\": \"x\"}, {\"id\": 7, \"content\": \"x\"}"),
     "added tokens 6 and 7 have the same content", DSF_ECORRUPT},
    {WITH_PRE("null"), "pre_tokenizer: only a Sequence", DSF_ENOTSUP},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}]}"),
     "pre_tokenizer: stage Digits is not supported", DSF_ENOTSUP},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": []}"), "no ByteLevel at the end",
     DSF_ENOTSUP},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}]}"),
     "add_prefix_space and use_regex must be false", DSF_ENOTSUP},
    {WITH_REGEX("\\\\d"), "regex 1: byte 0: the escape \\d is not supported", DSF_ENOTSUP},
    {WITH_REGEX("a$"), "regex 1: byte 1: the anchor $ is not supported", DSF_ENOTSUP},
    {WITH_REGEX("(?<=a)b"), "regex 1: byte 0: this kind of group", DSF_ENOTSUP},
    {WITH_REGEX("[a[b]]"), "regex 1: byte 2: a class inside a class", DSF_ENOTSUP},
    {WITH_REGEX("a)"), "pre_tokenizer: regex 1: about byte 1:", DSF_ECORRUPT},
    {WITH_REGEX("\\\\p{Nonsense}"), "pre_tokenizer: regex 1: about byte", DSF_ECORRUPT},
};

Test(bpe, refuses_what_it_does_not_do_by_name)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        dsf_bpe *b = NULL;
        cr_expect_eq(dsf_bpe_parse(&b, "t", r->json, strlen(r->json)), r->st, "%s: %s", r->json,
                     dsf_error_text());
        cr_expect_not_null(strstr(dsf_error_message(), r->words), "%s: said \"%s\"", r->json,
                           dsf_error_message());
        cr_expect_null(b);
    }
}

static dsf_bpe *small(const char *json)
{
    dsf_bpe *b = NULL;
    cr_assert_eq(dsf_bpe_parse(&b, "t", json, strlen(json)), DSF_OK, "%s", dsf_error_text());
    return b;
}

/* Ids as text, or the message. */
static const char *ids_of(const dsf_bpe *b, const char *text)
{
    static dsf_buf out;
    dsf_ids ids = {0};
    out.len = 0;
    dsf_buf_str(&out, "");
    if (encode(b, text, strlen(text), &ids) != DSF_OK)
        dsf_buf_str(&out, dsf_error_message());
    else
        for (size_t i = 0; i < ids.n; i++) dsf_buf_fmt(&out, i ? " %d" : "%d", ids.id[i]);
    dsf_ids_free(&ids);
    return out.data;
}

Test(bpe, lowest_rank_first_then_leftmost)
{
    dsf_bpe *b = small(WITH_PRE(PRE("")));
    cr_expect_str_eq(ids_of(b, "ab"), "2");
    cr_expect_str_eq(ids_of(b, "bab"), "1 2");
    cr_expect_str_eq(ids_of(b, "aba"), "5");
    cr_expect_str_eq(ids_of(b, "abab"), "2 2");
    cr_expect_str_eq(ids_of(b, "ba"), "4");
    cr_expect_str_eq(ids_of(b, "a<x> b<x"), "text: the vocabulary has no token for byte 0x3C");
    cr_expect_str_eq(ids_of(b, "a<x> b"), "0 6 3 1");
    cr_expect_str_eq(ids_of(b, "a\xFF"), "text: byte 1 of 2: not UTF-8");
    dsf_bpe_close(b);
}

Test(bpe, added_tokens_leftmost_then_longest_and_single_words_apart)
{
    dsf_bpe *b =
        small(WITH_ADDED("{\"id\": 6, \"content\": \"aa\"}, {\"id\": 7, \"content\": \"aab\"}, "
                         "{\"id\": 8, \"content\": \"bb\", \"single_word\": true}"));
    cr_expect_str_eq(ids_of(b, "aab"), "7");
    cr_expect_str_eq(ids_of(b, "aaa"), "6 0");
    cr_expect_str_eq(ids_of(b, "aaaab"), "6 7");
    cr_expect_str_eq(ids_of(b, "bb"), "8");
    cr_expect_str_eq(ids_of(b, "bb bb"), "8 3 8");
    cr_expect_str_eq(ids_of(b, "abb"), "2 1");
    dsf_bpe_close(b);
}

/* A piece is the subject of the next expression: what a look-ahead sees ends with it. */
Test(bpe, splits_chain_and_gaps_stay_pieces)
{
    dsf_bpe *b = small(WITH_PRE(PRE(SPLIT("b") SPLIT("a(?!a)|a+"))));
    cr_expect_str_eq(ids_of(b, "ab"), "0 1");
    cr_expect_str_eq(ids_of(b, "ba"), "1 0");
    dsf_bpe_close(b);
    b = small(WITH_REGEX("a*")); /* empty matches cut */
    cr_expect_str_eq(ids_of(b, "ba"), "1 0");
    dsf_bpe_close(b);
    b = small(WITH_REGEX("(a|a)+bb")); /* exponential: stopped by the limit of steps */
    cr_expect_not_null(
        strstr(ids_of(b, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab b"), "match limit"));
    dsf_bpe_close(b);
}

Test(bpe, white_space_is_unicodes)
{
    dsf_bpe *b =
        small(FILE_OF("{\"type\": \"BPE\", \"vocab\": {\"Â\": 0, \"ħ\": 1, \"âĢĭ\": 2, \"á\": "
                      "3, \"ł\": 4, \"İ\": 5, \"Âħ\": 6, \"áł\": 7, \"áłİ\": 8}, \"merges\": "
                      "[\"Â ħ\", \"á ł\", \"áł İ\"]}",
                      PRE(SPLIT("\\\\s")), "[]", DECODER));
    cr_expect_str_eq(ids_of(b, "\xC2\x85"), "6");     /* U+0085: one piece of its own */
    cr_expect_str_eq(ids_of(b, "\xE1\xA0\x8E"), "8"); /* U+180E is none: still merges */
    dsf_bpe_close(b);
}

/* Every allocation of open, encode and the class map fails once: a clean status, no leak. */
Test(bpe, survives_every_failing_allocation)
{
    static const char json[] = WITH_REGEX("\\\\s+|a");
    for (uint64_t nth = 1;; nth++) {
        dsf_bpe *b = NULL;
        dsf_ids ids = {0};
        dsf_mem_fail_at(nth);
        dsf_status st = dsf_bpe_parse(&b, "t", json, strlen(json));
        if (st == DSF_OK) st = encode(b, "ab<x>ba b", 9, &ids);
        bool reached = st != DSF_OK;
        dsf_mem_fail_at(0);
        if (reached)
            cr_expect_eq(st, DSF_ENOMEM, "allocation %llu: %s", (unsigned long long)nth,
                         dsf_error_text());
        dsf_ids_free(&ids);
        dsf_bpe_close(b);
        if (!reached) break;
        cr_assert_lt(nth, 1000);
    }
}

Test(bpe, ids_stay_under_their_maximum)
{
    dsf_bpe *b = small(WITH_PRE(PRE("")));
    dsf_ids ids = {.max = 2};
    cr_expect_eq(encode(b, "aaa", 3, &ids), DSF_EINVAL);
    cr_expect_str_eq(dsf_error_message(), "ids: 0 + 3, at most 2");
    dsf_ids_free(&ids);
    dsf_bpe_close(b);
}
