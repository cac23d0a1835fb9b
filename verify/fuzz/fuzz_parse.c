/* First byte: how the stream starts; the rest is a completion. The events do not depend on the cut
 * into chunks; text that is no markup is neither lost nor invented; what the strict parser accepts
 * is whole. */
#include <stdlib.h>
#include <string.h>

#include "text/parse.h"
#include "text/protocol.h"
#include "text/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    dsf_buf text[DSF_STREAM_DROPPED + 1]; /* by kind, what all events say */
    size_t strays;
} sum;

static dsf_status collect(void *ud, const dsf_stream_event *e)
{
    sum *s = ud;
    if (e->kind == DSF_STREAM_STRAY) s->strays++;
    if (e->kind == DSF_STREAM_CALL_END && e->valid && !e->complete) abort();
    dsf_buf_add(&s->text[e->kind], e->text, e->n);
    if (e->kind == DSF_STREAM_CALL || e->kind == DSF_STREAM_CALL_END)
        dsf_buf_fmt(&s->text[e->kind], "|%d%d|", e->complete, e->call);
    return DSF_OK;
}

static sum run(unsigned how, const char *text, size_t n, size_t chunk)
{
    sum s = {0};
    dsf_stream *st = NULL;
    dsf_stream_options o = {.start = how & 3, .no_tools = how & 4, .on = collect, .ud = &s};
    if (dsf_stream_open(&st, &o) != DSF_OK) abort();
    for (size_t at = 0; at < n; at += chunk)
        if (dsf_stream_feed(st, text + at, chunk < n - at ? chunk : n - at) != DSF_OK) abort();
    if (dsf_stream_end(st) != DSF_OK) abort();
    dsf_stream_close(st);
    return s;
}

static void free_sum(sum *s)
{
    for (size_t i = 0; i <= DSF_STREAM_DROPPED; i++) dsf_buf_free(&s->text[i]);
}

static void check_stream(unsigned how, const char *text, size_t n)
{
    static const size_t chunks[] = {1, 2, 3, 7};
    sum whole = run(how, text, n, n ? n : 1);
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
        sum s = run(how, text, n, chunks[k]);
        for (size_t i = 0; i <= DSF_STREAM_DROPPED; i++)
            if (s.text[i].len != whole.text[i].len ||
                (s.text[i].len && memcmp(s.text[i].data, whole.text[i].data, s.text[i].len) != 0))
                abort();
        if (s.strays != whole.strays) abort();
        free_sum(&s);
    }
    if ((how & 7) == (4 | DSF_STREAM_GO_ON_CONTENT) &&
        whole.text[DSF_STREAM_CONTENT].len + whole.strays * strlen(DSF_THINK_END) != n)
        abort();
    free_sum(&whole);
}

static void check_strict(bool thinking, const char *text, size_t n)
{
    dsf_completion c = {0};
    dsf_status st = dsf_parse_completion(text, n, thinking, &c);
    if ((st == DSF_OK) != (c.error == DSF_PARSE_NONE)) abort();
    for (size_t i = 0; st == DSF_OK && i < c.n_calls; i++) {
        const dsf_buf *a = &c.call[i].arguments;
        if (a->len < 2 || a->data[0] != '{' || a->data[a->len - 1] != '}') abort();
    }
    if (c.reasoning.len + c.content.len > n) abort();
    dsf_parse_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    check_stream(data[0], (const char *)data + 1, size - 1);
    check_strict(data[0] & 1, (const char *)data + 1, size - 1);
    return 0;
}
