/* A chat is refused with a class, or gives the same valid prompt every time, with a placeholder for
 * each image. The same bytes are read as tagged text too. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/chat.h"
#include "text/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(const dsf_buf *b, const char *what)
{
    size_t n = 0;
    for (const char *at = b->data, *end = at + b->len; at; n += at != NULL) {
        at = memmem(at, (size_t)(end - at), what, strlen(what));
        if (at) at += strlen(what);
    }
    return n;
}

static void check(const dsf_json *request)
{
    dsf_chat_prompt one = {0}, two = {0};
    dsf_status st = dsf_chat_encode(request, "thinking", &one);
    if (st != dsf_chat_encode(request, "thinking", &two)) abort();
    if ((st == DSF_OK) != (one.error == DSF_CHAT_NONE) || one.error != two.error) abort();
    if (st == DSF_OK && one.prompt.len) {
        if (one.prompt.len != two.prompt.len) abort();
        if (memcmp(one.prompt.data, two.prompt.data, one.prompt.len) != 0) abort();
        if (dsf_utf8_valid(one.prompt.data, one.prompt.len) != one.prompt.len) abort();
        if (count(&one.prompt, DSF_IMAGE) < one.n_images) abort();
    }
    dsf_chat_free(&one);
    dsf_chat_free(&two);
}

static void check_tagged(const char *text, size_t n)
{
    dsf_buf out = {0};
    dsf_chat_error error;
    dsf_json_doc *doc = NULL;
    if (dsf_utf8_valid(text, n) != n) return;
    dsf_status st = dsf_chat_tagged_text(text, n, &out, &error);
    if ((st == DSF_OK) != (error == DSF_CHAT_NONE)) abort();
    if (st == DSF_OK && dsf_json_parse(&doc, "tagged", out.data, out.len) != DSF_OK) abort();
    dsf_json_free(doc);
    dsf_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dsf_json_doc *doc = NULL;
    check_tagged((const char *)data, size);
    if (dsf_json_parse(&doc, "fuzz", (const char *)data, size) == DSF_OK) check(dsf_json_root(doc));
    dsf_json_free(doc);
    return 0;
}
