/* Every state knows the markers it leaves on. Bytes that could still become a marker wait in `tail`
 * (newlines before it are counted apart, since there may be any number); the first byte that cannot
 * is released. A byte enters and leaves the tail once, and the tail is shorter than 32 bytes. */
#include "text/stream.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/protocol.h"

enum { TAIL_BYTES = 32, MARKERS = 4 };

typedef enum {
    REASONING,
    CONTENT,
    BLOCK, /* between calls */
    NAME,
    ARGUMENTS, /* between parameters */
    KEY,
    KEY_TYPE,
    TEXT_VALUE,
    RAW_VALUE,
    FINISHED,
    N_STATES
} state;

typedef enum {
    TO_CONTENT,
    STRAY,
    TO_BLOCK,
    TO_NAME,
    TO_FINISHED,
    TO_ARGUMENTS,
    TO_KEY,
    END_CALL,
    TO_KEY_TYPE,
    TO_TEXT,
    TO_RAW,
    EMPTY_VALUE,
    END_VALUE
} action;

typedef struct {
    const char *text;
    action act;
} marker;

/* In KEY_TYPE the model may have forgotten the attribute: then the tag's end begins a string. */
static const marker markers[N_STATES][MARKERS] = {
    [REASONING] = {{DSF_THINK_END, TO_CONTENT}, {"<" DSF_DSML, TO_BLOCK}},
    [CONTENT] = {{DSF_THINK_END, STRAY}, {"<" DSF_DSML, TO_BLOCK}},
    [BLOCK] = {{"invoke name=\"", TO_NAME},
               {DSF_CALLS_END, TO_FINISHED},
               {"</" DSF_DSML "tool_calls>", TO_FINISHED}},
    [NAME] = {{"\"", TO_ARGUMENTS}},
    [ARGUMENTS] = {{"parameter name=\"", TO_KEY}, {"</" DSF_DSML, END_CALL}},
    [KEY] = {{"\"", TO_KEY_TYPE}},
    [KEY_TYPE] = {{"true\">", TO_TEXT},
                  {"false\">", TO_RAW},
                  {">", TO_TEXT},
                  {"</" DSF_DSML, EMPTY_VALUE}},
    [TEXT_VALUE] = {{"</" DSF_DSML, END_VALUE}},
    [RAW_VALUE] = {{"</" DSF_DSML, END_VALUE}},
};

struct dsf_stream {
    dsf_stream_options o;
    state state;
    bool fresh;      /* nothing of this section was let out yet: newlines are dropped */
    size_t newlines; /* held before the tail */
    char tail[TAIL_BYTES];
    size_t n_tail;
    dsf_buf out; /* text of one kind that waits for the end of the chunk */
    dsf_stream_kind out_kind;
    dsf_buf name, arguments; /* of the open call */
    size_t told;             /* bytes of the arguments already sent */
    int n_calls, n_complete, n_parameters;
    bool in_call;
};

/* --- events --- */

static dsf_status tell(dsf_stream *s, dsf_stream_event e)
{
    e.call = s->n_calls - 1;
    if (!e.text) e.text = "";
    return s->o.on ? s->o.on(s->o.ud, &e) : DSF_OK;
}

static dsf_status flush(dsf_stream *s)
{
    DSF_TRY(dsf_buf_status(&s->out));
    DSF_TRY(dsf_buf_status(&s->arguments));
    if (s->out.len) {
        dsf_stream_event e = {.kind = s->out_kind, .text = s->out.data, .n = s->out.len};
        s->out.len = 0;
        DSF_TRY(tell(s, e));
    }
    if (s->arguments.len > s->told) {
        dsf_stream_event e = {.kind = DSF_STREAM_ARGUMENTS,
                              .text = s->arguments.data + s->told,
                              .n = s->arguments.len - s->told};
        s->told = s->arguments.len;
        DSF_TRY(tell(s, e));
    }
    return DSF_OK;
}

static void add_text(dsf_stream *s, dsf_stream_kind kind, const char *text, size_t n)
{
    s->out_kind = kind; /* states change only after a flush, so the kind stays */
    dsf_buf_add(&s->out, text, n);
}

static dsf_status begin_call(dsf_stream *s)
{
    DSF_TRY(dsf_buf_status(&s->name));
    s->n_calls++;
    s->in_call = true;
    s->n_parameters = 0;
    s->arguments.len = s->told = 0;
    return tell(
        s, (dsf_stream_event){.kind = DSF_STREAM_CALL, .text = s->name.data, .n = s->name.len});
}

static dsf_status check_arguments(const dsf_buf *b, bool *valid)
{
    dsf_json_doc *doc = NULL;
    dsf_status st = dsf_json_parse(&doc, "arguments", b->data, b->len);
    dsf_json_free(doc);
    *valid = st == DSF_OK;
    return st == DSF_ECORRUPT ? DSF_OK : st;
}

static dsf_status end_call(dsf_stream *s, bool complete)
{
    DSF_TRY(flush(s));
    bool valid = false;
    if (complete) DSF_TRY(check_arguments(&s->arguments, &valid)); /* at least {} by now */
    s->n_complete += complete;
    s->in_call = false;
    return tell(s, (dsf_stream_event){.kind = DSF_STREAM_CALL_END,
                                      .text = s->arguments.data,
                                      .n = s->arguments.len,
                                      .complete = complete,
                                      .valid = valid});
}

/* --- states --- */

/* Text that is no marker, by the state it is met in. */
static void release(dsf_stream *s, const char *text, size_t n)
{
    switch (s->state) {
    case REASONING:
        add_text(s, DSF_STREAM_REASONING, text, n);
        break;
    case CONTENT:
        add_text(s, DSF_STREAM_CONTENT, text, n);
        break;
    case NAME:
        dsf_buf_add(&s->name, text, n);
        break;
    case KEY:
    case TEXT_VALUE:
        dsf_json_escape(&s->arguments, text, n);
        break;
    case RAW_VALUE:
        dsf_buf_add(&s->arguments, text, n);
        break;
    case FINISHED:
        add_text(s, DSF_STREAM_DROPPED, text, n);
        break;
    default: /* spacing and tag names around the parts */
        break;
    }
}

static void release_newlines(dsf_stream *s)
{
    for (; s->newlines; s->newlines--)
        if (!s->fresh) release(s, "\n", 1);
}

static void enter(dsf_stream *s, state next)
{
    s->state = next;
    s->fresh = next == CONTENT;
    s->newlines = 0;
}

/* What a marker does in the argument text. */
static void act_on_arguments(dsf_stream *s, action act)
{
    switch (act) {
    case TO_KEY:
        dsf_buf_str(&s->arguments, s->n_parameters++ ? ", \"" : "{\"");
        enter(s, KEY);
        break;
    case TO_KEY_TYPE:
        dsf_buf_str(&s->arguments, "\": ");
        enter(s, KEY_TYPE);
        break;
    case TO_TEXT:
        dsf_buf_char(&s->arguments, '"');
        enter(s, TEXT_VALUE);
        break;
    case TO_RAW:
        enter(s, RAW_VALUE);
        break;
    case EMPTY_VALUE:
        dsf_buf_str(&s->arguments, "\"\"");
        enter(s, ARGUMENTS);
        break;
    default: /* END_VALUE */
        if (s->state == TEXT_VALUE) dsf_buf_char(&s->arguments, '"');
        enter(s, ARGUMENTS);
    }
}

static dsf_status act_on(dsf_stream *s, action act)
{
    if (act == STRAY) release_newlines(s);
    if (act <= TO_FINISHED) DSF_TRY(flush(s));
    switch (act) {
    case TO_CONTENT:
        enter(s, CONTENT);
        break;
    case STRAY:
        return tell(s, (dsf_stream_event){.kind = DSF_STREAM_STRAY});
    case TO_BLOCK:
        enter(s, BLOCK);
        break;
    case TO_NAME:
        s->name.len = 0;
        enter(s, NAME);
        break;
    case TO_FINISHED:
        enter(s, FINISHED);
        break;
    case TO_ARGUMENTS:
        enter(s, ARGUMENTS);
        return begin_call(s);
    case END_CALL:
        dsf_buf_str(&s->arguments, s->n_parameters ? "}" : "{}");
        enter(s, BLOCK);
        return end_call(s, true);
    default:
        act_on_arguments(s, act);
    }
    return DSF_OK;
}

/* --- matching --- */

/* A marker that the tail is, or only begins (*partial). */
static const marker *match(const dsf_stream *s, bool *partial)
{
    *partial = false;
    for (int i = 0; i < MARKERS; i++) {
        const marker *m = &markers[s->state][i];
        if (!m->text || (m->act == TO_BLOCK && s->o.no_tools)) continue;
        if (strncmp(m->text, s->tail, s->n_tail) != 0) continue;
        if (m->text[s->n_tail] == 0) return m;
        *partial = true;
    }
    return NULL;
}

static bool holds_newlines(const dsf_stream *s)
{
    return s->state == REASONING || s->state == CONTENT;
}

static dsf_status take_byte(dsf_stream *s, char byte)
{
    s->tail[s->n_tail++] = byte;
    while (s->n_tail) {
        bool partial;
        const marker *m = match(s, &partial);
        if (m) {
            s->n_tail = 0;
            return act_on(s, m->act);
        }
        if (partial) return DSF_OK;
        if (holds_newlines(s) && s->tail[0] == '\n') {
            s->newlines++;
        } else {
            release_newlines(s);
            s->fresh = false;
            release(s, s->tail, 1);
        }
        memmove(s->tail, s->tail + 1, --s->n_tail);
    }
    return DSF_OK;
}

/* Bytes from `text` on that no marker of this state begins with, and that are no held newline. */
static size_t plain_run(const dsf_stream *s, const char *text, size_t n)
{
    char stop[MARKERS + 2];
    size_t k = 0, i = 0;
    for (int m = 0; m < MARKERS; m++)
        if (markers[s->state][m].text) stop[k++] = markers[s->state][m].text[0];
    if (holds_newlines(s)) stop[k++] = '\n';
    while (i < n && !memchr(stop, text[i], k)) i++;
    return i;
}

dsf_status dsf_stream_feed(dsf_stream *s, const char *text, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t run = s->n_tail ? 0 : plain_run(s, text + i, n - i);
        if (run) {
            release_newlines(s);
            s->fresh = false;
            release(s, text + i, run);
            i += run;
        } else {
            DSF_TRY(take_byte(s, text[i++]));
        }
    }
    return flush(s);
}

dsf_status dsf_stream_end(dsf_stream *s)
{
    /* Inside a value the tail begins a closing tag: it is no part of the argument. */
    bool in_value = s->state == TEXT_VALUE || s->state == RAW_VALUE;
    release_newlines(s);
    if (!in_value) release(s, s->tail, s->n_tail);
    s->n_tail = 0;
    DSF_TRY(flush(s));
    if (s->state == NAME) DSF_TRY(begin_call(s));
    return s->in_call ? end_call(s, false) : DSF_OK;
}

/* --- open, close, ask --- */

dsf_status dsf_stream_open(dsf_stream **out, const dsf_stream_options *options)
{
    dsf_stream *s = NULL;
    DSF_TRY(dsf_mem_new(&s, 1, sizeof *s));
    s->o = *options;
    bool reasoning =
        options->start == DSF_STREAM_FROM_REASONING || options->start == DSF_STREAM_GO_ON_REASONING;
    s->state = reasoning ? REASONING : CONTENT;
    s->fresh =
        options->start == DSF_STREAM_FROM_CONTENT || options->start == DSF_STREAM_FROM_REASONING;
    *out = s;
    return DSF_OK;
}

void dsf_stream_close(dsf_stream *s)
{
    if (!s) return;
    dsf_buf_free(&s->out);
    dsf_buf_free(&s->name);
    dsf_buf_free(&s->arguments);
    dsf_mem_free(s);
}

int dsf_stream_complete_calls(const dsf_stream *s) { return s->n_complete; }
bool dsf_stream_in_reasoning(const dsf_stream *s) { return s->state == REASONING; }
bool dsf_stream_in_call(const dsf_stream *s)
{
    return s->state == NAME || (s->state >= ARGUMENTS && s->state <= RAW_VALUE);
}
