/* Completion text as it comes, to events: forgiving, linear, and the same for every way of cutting
 * the text into chunks (encoding.md 3.3). */
#ifndef DSF_TEXT_STREAM_H
#define DSF_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef enum {
    DSF_STREAM_REASONING, /* text */
    DSF_STREAM_CONTENT,   /* text */
    DSF_STREAM_CALL,      /* a call begins; text: its name */
    DSF_STREAM_ARGUMENTS, /* a piece of its arguments' JSON text */
    DSF_STREAM_CALL_END,  /* text: all of its arguments */
    DSF_STREAM_STRAY,     /* a </think> inside the content was left out; no text */
    DSF_STREAM_DROPPED    /* text behind the calls block, not part of the answer */
} dsf_stream_kind;

typedef struct {
    dsf_stream_kind kind;
    const char *text; /* valid during the call; whole characters if the chunks were */
    size_t n;
    int call;      /* index of the call, for the call events */
    bool complete; /* CALL_END: the model wrote its end */
    bool valid;    /* CALL_END: complete, and the arguments parse as JSON */
} dsf_stream_event;

/* A status other than DSF_OK stops the feeding and is returned from it. */
typedef dsf_status dsf_stream_fn(void *ud, const dsf_stream_event *e);

typedef struct {
    enum {
        DSF_STREAM_FROM_CONTENT, /* the prompt ends with </think> */
        DSF_STREAM_FROM_REASONING,
        DSF_STREAM_GO_ON_CONTENT, /* the prompt ends inside: leading newlines count */
        DSF_STREAM_GO_ON_REASONING
    } start;
    bool no_tools; /* the request had no tools: markup stays text, calls are not invented */
    dsf_stream_fn *on;
    void *ud;
} dsf_stream_options;

typedef struct dsf_stream dsf_stream;

DSF_MUST dsf_status dsf_stream_open(dsf_stream **out, const dsf_stream_options *options);
void dsf_stream_close(dsf_stream *s); /* NULL is fine */
DSF_MUST dsf_status dsf_stream_feed(dsf_stream *s, const char *text, size_t n);
/* No more text. Held text goes out; a call that is open ends with complete = false. */
DSF_MUST dsf_status dsf_stream_end(dsf_stream *s);

int dsf_stream_complete_calls(const dsf_stream *s); /* > 0: the finish reason is tool_calls */
bool dsf_stream_in_reasoning(const dsf_stream *s);  /* it never closed */
bool dsf_stream_in_call(const dsf_stream *s); /* cut off inside: the finish reason is length */

#endif
