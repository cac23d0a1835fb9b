/* Answers of the model as the reference's cases write them down, in JSON (encoding.md 3): for suite
 * template and for the unit tests of the parsers. */
#ifndef DSF_SUITE_ANSWER_H
#define DSF_SUITE_ANSWER_H

#include "base/buf.h"
#include "text/parse.h"
#include "text/stream.h"

/* The message of the strict parser: role, content, reasoning_content, tool_calls. */
void dsf_answer_add_message(const dsf_completion *m, dsf_buf *out);

/* What the events of the streaming parser add up to. */
typedef struct {
    dsf_buf reasoning, content, dropped, calls;
    int stray;
} dsf_answer;

/* A listener of the parser; ud is a dsf_answer *. Pieces of arguments are left out: the end of the
 * call holds them all. */
dsf_status dsf_answer_collect(void *ud, const dsf_stream_event *e);
void dsf_answer_add(const dsf_answer *s, dsf_buf *out);
void dsf_answer_free(dsf_answer *s);

#endif
