/* Suite template: the prompt is byte-equal to the reference encoder's on its cases, and id-equal
 * where the model's tokenizer is the released one; the strict parser gives its messages; the
 * streaming parser gives the same events wherever the text is cut (encoding.md 2 and 3). */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/bpe.h"
#include "text/chat.h"
#include "text/parse.h"
#include "text/pyjson.h"
#include "text/stream.h"
#include "verify/suite/answer.h"
#include "verify/suite/unit.h"

/* Rows that the files themselves spoil: their floats were lost when they were written. */
static const char *const floats_lost[] = {"err_effort_75.0", "tools_key_order_and_types"};
/* Rows of which the data says that its own answer is unhelpful (README of the cases). */
static const char *const unhelpful[] = {"truncated_close_tag", "missing_string_attr"};
enum { RELEASED_VOCAB = 129280 };

typedef struct {
    dsf_suite_check *c;
    dsf_bpe *bpe; /* NULL: ids are not compared */
    int64_t prompts, refused, parsed, tagged, ids, quirks, wrong, splits;
    const char *name;
} cases;

static bool is_listed(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

static void wrong(cases *k, const char *what)
{
    dsf_buf_fmt(&k->c->detail, "  %s: %s\n", k->name, what);
    if (k->wrong++ == 0) dsf_suite_say(k->c, "%s: %s", k->name, what);
    char path[96];
    (void)snprintf(path, sizeof path, "case %.80s", k->name);
    dsf_suite_mark(k->c, path, -1, -1, 0, 0);
}

static bool same(const dsf_buf *a, const dsf_buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

typedef dsf_status row_fn(cases *k, const dsf_json *row);

static dsf_status over_rows(cases *k, const char *folder, const char *file, row_fn *row)
{
    char path[4096];
    dsf_file f;
    DSF_TRY(dsf_file_join(path, folder, file));
    DSF_TRY(dsf_file_open(&f, path));
    dsf_status st = DSF_OK;
    const char *at = (const char *)f.data, *end = at + f.size;
    while (st == DSF_OK && at && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        dsf_json_doc *doc = NULL;
        if (n) st = dsf_json_parse(&doc, path, at, n);
        if (n && st == DSF_OK) {
            k->name = dsf_json_text(dsf_json_get(dsf_json_root(doc), "name"), NULL);
            st = row(k, dsf_json_root(doc));
        }
        dsf_json_free(doc);
        at += n + 1;
    }
    dsf_file_close(&f);
    return st;
}

/* ---- prompts ---- */

static dsf_status compare_ids(cases *k, const dsf_chat_prompt *p, const dsf_json *want)
{
    dsf_ids ids = {.n = 0};
    size_t i = 0;
    bool equal = true;
    dsf_status st = dsf_bpe_encode(k->bpe, p->prompt.data ? p->prompt.data : "", p->prompt.len,
                                   DSF_BPE_ADDED, &ids);
    for (const dsf_json *v = dsf_json_first(want); v && st == DSF_OK; v = dsf_json_next(v), i++) {
        int64_t id = -1;
        equal = equal && i < ids.n && dsf_json_int(v, &id) == DSF_OK && id == ids.id[i];
    }
    if (st == DSF_OK && (!equal || i != ids.n)) wrong(k, "the prompt's ids differ");
    k->ids++;
    dsf_ids_free(&ids);
    return st;
}

static dsf_status compare_prompt(cases *k, const dsf_json *expect, const dsf_chat_prompt *p)
{
    dsf_buf want = {.max = 0}, images = {.max = 0}, want_images = {.max = 0};
    dsf_status st = DSF_OK;
    dsf_json_add_text(&want, dsf_json_get(expect, "prompt"));
    if (!same(&want, &p->prompt)) wrong(k, "the prompt's bytes differ");
    DSF_TRY_OUT(dsf_chat_images_json(p, &images));
    DSF_TRY_OUT(dsf_pyjson_add(&want_images, dsf_json_get(expect, "images")));
    if (!same(&images, &want_images)) wrong(k, "the image records differ");
    if (k->bpe) DSF_TRY_OUT(compare_ids(k, p, dsf_json_get(expect, "ids")));
    k->prompts++;
out:
    dsf_buf_free(&want);
    dsf_buf_free(&images);
    dsf_buf_free(&want_images);
    return st;
}

static bool has_class(const dsf_json *error, const char *class)
{
    return strcmp(dsf_json_text(dsf_json_get(error, "class"), NULL), class) == 0;
}

static dsf_status check_encode(cases *k, const dsf_json *row)
{
    dsf_chat_prompt p = {.n_images = 0};
    const dsf_json *error = dsf_json_get(row, "error");
    dsf_status st = dsf_chat_encode(dsf_json_get(row, "args"), NULL, &p), out = DSF_OK;
    if (error && st == DSF_OK)
        wrong(k, "accepted, the reference refuses it");
    else if (error && !has_class(error, dsf_chat_error_name(p.error)))
        wrong(k, "refused for another reason than the reference's");
    else if (!error && st != DSF_OK)
        wrong(k, "refused, the reference accepts it");
    else if (!error)
        out = compare_prompt(k, dsf_json_get(row, "expect"), &p);
    k->refused += error != NULL;
    dsf_chat_free(&p);
    return out;
}

static dsf_status check_parse(cases *k, const dsf_json *row)
{
    const dsf_json *args = dsf_json_get(row, "args"), *error = dsf_json_get(row, "error");
    dsf_buf text = {.max = 0}, got = {.max = 0}, want = {.max = 0};
    dsf_completion m = {.n_calls = 0};
    dsf_json_add_text(&text, dsf_json_get(args, "text"));
    bool thinking =
        strcmp(dsf_json_text(dsf_json_get(args, "thinking_mode"), NULL), "thinking") == 0;
    dsf_status st = dsf_parse_completion(text.data ? text.data : "", text.len, thinking, &m),
               out = DSF_OK;
    if (error && (st == DSF_OK || !has_class(error, dsf_parse_error_name(m.error))))
        wrong(k, "the completion is not refused for the reference's reason");
    if (!error && st != DSF_OK) wrong(k, "the completion is refused, the reference reads it");
    if (!error && st == DSF_OK) {
        dsf_answer_add_message(&m, &got);
        out = dsf_pyjson_add(&want, dsf_json_get(dsf_json_get(row, "expect"), "message"));
        if (!same(&got, &want)) wrong(k, "the message differs");
    }
    k->parsed++;
    dsf_parse_free(&m);
    dsf_buf_free(&text);
    dsf_buf_free(&got);
    dsf_buf_free(&want);
    return out;
}

static dsf_status check_tagged(cases *k, const dsf_json *row)
{
    const dsf_json *refused = dsf_json_get(row, "error");
    dsf_buf text = {.max = 0}, got = {.max = 0}, want = {.max = 0};
    dsf_chat_error error = DSF_CHAT_NONE;
    dsf_json_add_text(&text, dsf_json_get(dsf_json_get(row, "args"), "text"));
    dsf_status st = dsf_chat_tagged_text(text.data ? text.data : "", text.len, &got, &error),
               out = DSF_OK;
    if (refused && (st == DSF_OK || !has_class(refused, dsf_chat_error_name(error))))
        wrong(k, "the tagged text is not refused for the reference's reason");
    if (!refused) {
        out = dsf_pyjson_add(&want, dsf_json_get(dsf_json_get(row, "expect"), "blocks"));
        if (st != DSF_OK || !same(&got, &want)) wrong(k, "the content blocks differ");
    }
    k->tagged++;
    dsf_buf_free(&text);
    dsf_buf_free(&got);
    dsf_buf_free(&want);
    return out;
}

static dsf_status prompt_row(cases *k, const dsf_json *row)
{
    const char *kind = dsf_json_text(dsf_json_get(row, "kind"), NULL);
    if (dsf_json_true(dsf_json_get(row, "quirk")) ||
        is_listed(k->name, floats_lost, sizeof floats_lost / sizeof *floats_lost)) {
        k->quirks++; /* the data's own doubt: what follows from how Python prints or fails */
        return DSF_OK;
    }
    if (strcmp(kind, "encode") == 0) return check_encode(k, row);
    if (strcmp(kind, "parse") == 0) return check_parse(k, row);
    if (strcmp(kind, "tagged_text") == 0) return check_tagged(k, row);
    return DSF_FAIL(DSF_ECORRUPT, "cases.jsonl: %s: no kind is called \"%s\"", k->name, kind);
}

static dsf_status run_prompts(cases *k, const dsf_suite_unit *u)
{
    char why[96] = "no MODEL given";
    if (u->model) {
        DSF_TRY(dsf_bpe_open(&k->bpe, u->model));
        (void)snprintf(why, sizeof why, "tokenizer.json has %d ids, the released one has %d",
                       (int)dsf_bpe_n_vocab(k->bpe), RELEASED_VOCAB);
        if (dsf_bpe_n_vocab(k->bpe) != RELEASED_VOCAB) {
            dsf_bpe_close(k->bpe);
            k->bpe = NULL;
        }
    }
    DSF_TRY(over_rows(k, u->o->cases, "cases.jsonl", prompt_row));
    k->c->compared = k->prompts + k->refused + k->parsed + k->tagged;
    (void)snprintf(k->c->derivation, sizeof k->c->derivation,
                   "exact: bytes of the reference encoder (encoding.md 2)");
    dsf_suite_judge(k->c, k->wrong);
    if (k->wrong) return DSF_OK;
    dsf_suite_say(k->c,
                  "%lld prompts byte-equal, %lld refused alike, %lld completions, %lld tagged "
                  "texts; %lld rows that the data itself doubts left out; ids %s%s",
                  (long long)k->prompts, (long long)k->refused, (long long)k->parsed,
                  (long long)k->tagged, (long long)k->quirks,
                  k->bpe ? "equal" : "not compared: ", k->bpe ? "" : why);
    return DSF_OK;
}

void dsf_suite_prompts(const dsf_suite_unit *u, dsf_suite_check *check)
{
    cases k = {.c = check};
    if (run_prompts(&k, u) != DSF_OK) dsf_suite_could_not(check);
    dsf_bpe_close(k.bpe);
}

/* ---- the streaming parser ---- */

static dsf_stream_options options_of(const char *start)
{
    dsf_stream_options o = {.start = DSF_STREAM_FROM_CONTENT};
    if (strcmp(start, "thinking") == 0) o.start = DSF_STREAM_FROM_REASONING;
    if (strcmp(start, "continue-thinking") == 0) o.start = DSF_STREAM_GO_ON_REASONING;
    if (strcmp(start, "continue-content") == 0) o.start = DSF_STREAM_GO_ON_CONTENT;
    return o;
}

/* Feeds the text in pieces of `step` bytes, the first of them `first` bytes long. */
static dsf_status feed(const dsf_json *row, const dsf_buf *text, size_t first, size_t step,
                       dsf_buf *out)
{
    dsf_stream_options o = options_of(dsf_json_text(dsf_json_get(row, "start"), NULL));
    dsf_answer s = {.stray = 0};
    dsf_stream *parser = NULL;
    dsf_status st;
    o.on = dsf_answer_collect;
    o.ud = &s;
    out->len = 0;
    out->comma = false;
    DSF_TRY_OUT(dsf_stream_open(&parser, &o));
    for (size_t at = 0, n = first; at < text->len; at += n, n = step) {
        if (n > text->len - at) n = text->len - at;
        DSF_TRY_OUT(dsf_stream_feed(parser, text->data + at, n));
    }
    DSF_TRY_OUT(dsf_stream_end(parser));
    dsf_answer_add(&s, out);
    st = dsf_buf_status(out);
out:
    dsf_stream_close(parser);
    dsf_answer_free(&s);
    return st;
}

/* Every single cut, and pieces of 1 to 16 bytes. */
static dsf_status all_splits(cases *k, const dsf_json *row, const dsf_buf *text,
                             const dsf_buf *whole)
{
    dsf_buf got = {.max = 0};
    dsf_status st = DSF_OK;
    for (size_t cut = 1; cut < text->len; cut++, k->splits++) {
        DSF_TRY_OUT(feed(row, text, cut, text->len, &got));
        if (!same(&got, whole)) wrong(k, "the cut into two pieces changes the events");
    }
    for (size_t n = 1; n <= 16; n++, k->splits++) {
        DSF_TRY_OUT(feed(row, text, n, n, &got));
        if (!same(&got, whole)) wrong(k, "small pieces change the events");
    }
out:
    dsf_buf_free(&got);
    return st;
}

static dsf_status stream_row(cases *k, const dsf_json *row)
{
    dsf_buf text = {.max = 0}, whole = {.max = 0}, want = {.max = 0};
    dsf_status st = DSF_OK;
    dsf_json_add_text(&text, dsf_json_get(row, "text"));
    DSF_TRY_OUT(feed(row, &text, text.len, 1, &whole));
    if (is_listed(k->name, unhelpful, sizeof unhelpful / sizeof *unhelpful)) {
        k->quirks++;
    } else {
        DSF_TRY_OUT(dsf_pyjson_add(&want, dsf_json_get(row, "expect")));
        if (!same(&whole, &want)) wrong(k, "the events are not the reference's");
        k->prompts++;
    }
    DSF_TRY_OUT(all_splits(k, row, &text, &whole));
out:
    dsf_buf_free(&text);
    dsf_buf_free(&whole);
    dsf_buf_free(&want);
    return st;
}

static dsf_status run_stream(cases *k, const char *folder)
{
    DSF_TRY(over_rows(k, folder, "stream-cases.jsonl", stream_row));
    k->c->compared = k->prompts + k->splits;
    (void)snprintf(k->c->derivation, sizeof k->c->derivation,
                   "exact: the same events wherever the text is cut (encoding.md 3.3)");
    dsf_suite_judge(k->c, k->wrong);
    if (!k->wrong)
        dsf_suite_say(k->c,
                      "%lld completions as the reference reads them, %lld ways of cutting all "
                      "alike; %lld rows with an unhelpful reference answer only cut",
                      (long long)k->prompts, (long long)k->splits, (long long)k->quirks);
    return DSF_OK;
}

void dsf_suite_stream(const dsf_suite_unit *u, dsf_suite_check *check)
{
    cases k = {.c = check};
    if (run_stream(&k, u->o->cases) != DSF_OK) dsf_suite_could_not(check);
}
