#include "verify/suite/answer.h"

void dsf_answer_add_message(const dsf_completion *m, dsf_buf *out)
{
    dsf_json_begin(out, NULL, '{');
    dsf_json_add_cstr(out, "role", "assistant");
    dsf_json_add_str(out, "content", m->content.data ? m->content.data : "", m->content.len);
    dsf_json_add_str(out, "reasoning_content", m->reasoning.data ? m->reasoning.data : "",
                     m->reasoning.len);
    dsf_json_begin(out, "tool_calls", '[');
    for (size_t i = 0; i < m->n_calls; i++) {
        const dsf_call *call = &m->call[i];
        dsf_json_begin(out, NULL, '{');
        dsf_json_add_cstr(out, "type", "function");
        dsf_json_begin(out, "function", '{');
        dsf_json_add_str(out, "name", call->name.data, call->name.len);
        dsf_json_add_str(out, "arguments", call->arguments.data, call->arguments.len);
        dsf_json_end(out, '}');
        if (call->space.len) dsf_json_add_str(out, "namespace", call->space.data, call->space.len);
        dsf_json_end(out, '}');
    }
    dsf_json_end(out, ']');
    dsf_json_end(out, '}');
}

dsf_status dsf_answer_collect(void *ud, const dsf_stream_event *e)
{
    dsf_answer *s = ud;
    switch (e->kind) {
    case DSF_STREAM_REASONING:
        dsf_buf_add(&s->reasoning, e->text, e->n);
        break;
    case DSF_STREAM_CONTENT:
        dsf_buf_add(&s->content, e->text, e->n);
        break;
    case DSF_STREAM_DROPPED:
        dsf_buf_add(&s->dropped, e->text, e->n);
        break;
    case DSF_STREAM_STRAY:
        s->stray++;
        break;
    case DSF_STREAM_CALL:
        dsf_json_begin(&s->calls, NULL, '{');
        dsf_json_add_str(&s->calls, "name", e->text, e->n);
        break;
    case DSF_STREAM_CALL_END:
        dsf_json_add_str(&s->calls, "arguments", e->text, e->n);
        dsf_json_add_bool(&s->calls, "complete", e->complete);
        dsf_json_end(&s->calls, '}');
        break;
    default: /* pieces of arguments: CALL_END holds them all */
        break;
    }
    return DSF_OK;
}

void dsf_answer_add(const dsf_answer *s, dsf_buf *out)
{
    dsf_json_begin(out, NULL, '{');
    dsf_json_add_str(out, "reasoning_content", s->reasoning.data ? s->reasoning.data : "",
                     s->reasoning.len);
    dsf_json_add_str(out, "content", s->content.data ? s->content.data : "", s->content.len);
    dsf_json_begin(out, "tool_calls", '[');
    if (s->calls.len) dsf_buf_add(out, s->calls.data, s->calls.len);
    dsf_json_end(out, ']');
    dsf_json_add_int(out, "stray_think_end", s->stray);
    dsf_json_add_str(out, "discarded_after_calls", s->dropped.data ? s->dropped.data : "",
                     s->dropped.len);
    dsf_json_end(out, '}');
}

void dsf_answer_free(dsf_answer *s)
{
    dsf_buf_free(&s->reasoning);
    dsf_buf_free(&s->content);
    dsf_buf_free(&s->dropped);
    dsf_buf_free(&s->calls);
}
