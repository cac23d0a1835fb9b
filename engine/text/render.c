#include "text/render.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/check.h"
#include "text/protocol.h"
#include "text/pyjson.h"
#include "text/tools.h"

enum { PLACE_BYTES = 96 };

static bool is_kind(const dsf_json *v, dsf_json_kind k) { return v && dsf_json_kind_of(v) == k; }
static bool role_is(const dsf_turn *t, const char *role) { return strcmp(t->role, role) == 0; }

static const char *place_of(const dsf_chat *c, const dsf_turn *t, const char *field, char *out)
{
    if (t->tools == c->tools && strcmp(field, ".tools") == 0)
        (void)snprintf(out, PLACE_BYTES, "tools");
    else
        (void)snprintf(out, PLACE_BYTES, "%s[%d]%s", t->in_context ? "context" : "messages",
                       t->index, field);
    return out;
}

/* --- content --- */

/* Text, or for the types that only an accident brings here their JSON form; null is nothing. */
static dsf_status add_loose(dsf_buf *out, const dsf_json *v)
{
    if (!v || is_kind(v, DSF_JSON_NULL)) return DSF_OK;
    if (!is_kind(v, DSF_JSON_STRING)) return dsf_pyjson_add(out, v);
    dsf_json_add_text(out, v);
    return dsf_buf_status(out);
}

static dsf_status add_image(dsf_chat *c, const dsf_turn *t, const dsf_json *block)
{
    dsf_chat_prompt *p = c->out;
    dsf_chat_image image;
    (void)dsf_check_image(block, &image); /* was checked */
    dsf_buf_str(&p->prompt, DSF_IMAGE);
    if (t->in_context) return DSF_OK;
    if (p->n_images == p->image_cap) {
        size_t cap = p->image_cap ? 2 * p->image_cap : 4;
        DSF_TRY(dsf_mem_grow(&p->image, cap, sizeof *p->image));
        p->image_cap = cap;
    }
    p->image[p->n_images++] = image;
    return DSF_OK;
}

static bool is_text_block(const dsf_json *b) { return strcmp(dsf_turns_type(b), "text") == 0; }

/* A block as text; what it cannot be is named. */
static dsf_status add_block(dsf_chat *c, const dsf_turn *t, const dsf_json *b)
{
    if (dsf_turns_is_image(b)) return add_image(c, t, b);
    if (is_text_block(b)) return add_loose(&c->out->prompt, dsf_turns_get(b, "text"));
    dsf_buf_fmt(&c->out->prompt, "[Unsupported %s]", dsf_turns_type(b));
    return DSF_OK;
}

/* Blocks joined by blank lines. only_text: the others vanish, as outside user turns (2.2). */
static dsf_status add_blocks(dsf_chat *c, const dsf_turn *t, const dsf_json *list, bool only_text)
{
    bool first = true;
    for (const dsf_json *b = dsf_json_first(list); b; b = dsf_json_next(b)) {
        if (only_text && !is_text_block(b) && !dsf_turns_is_image(b)) continue;
        if (!first) dsf_buf_str(&c->out->prompt, "\n\n");
        first = false;
        DSF_TRY(add_block(c, t, b));
    }
    return DSF_OK;
}

/* Content of any message but a user's. */
static dsf_status add_content(dsf_chat *c, const dsf_turn *t, const dsf_json *message)
{
    const dsf_json *content = dsf_turns_get(message, "content");
    const dsf_json *blocks = dsf_turns_blocks(message);
    if (blocks && !is_kind(content, DSF_JSON_STRING)) return add_blocks(c, t, blocks, true);
    return add_loose(&c->out->prompt, content);
}

static dsf_status add_part(dsf_chat *c, const dsf_turn *t, const dsf_part *p)
{
    dsf_buf *out = &c->out->prompt;
    if (p->kind == DSF_PART_TEXT) return add_loose(out, p->value);
    bool tool = p->kind == DSF_PART_TOOL;
    if (!tool && strcmp(dsf_turns_type(p->value), "tool_result") != 0)
        return add_block(c, t, p->value);
    dsf_buf_str(out, "<tool_result>");
    const dsf_json *content = dsf_turns_get(p->value, "content");
    if (tool)
        DSF_TRY(add_content(c, t, p->value));
    else if (is_kind(content, DSF_JSON_ARRAY))
        DSF_TRY(add_blocks(c, t, content, false));
    else
        DSF_TRY(add_loose(out, content));
    dsf_buf_str(out, "</tool_result>");
    return DSF_OK;
}

/* --- roles --- */

static dsf_status add_system(dsf_chat *c, const dsf_turn *t, bool head)
{
    char place[PLACE_BYTES];
    dsf_buf *out = &c->out->prompt;
    if (!head) dsf_buf_str(out, DSF_SYSTEM);
    DSF_TRY(add_content(c, t, t->message));
    if (dsf_turns_truth(t->tools)) {
        dsf_buf_str(out, "\n\n");
        DSF_TRY(dsf_tools_schemas(c, place_of(c, t, ".tools", place), t->tools));
    }
    const dsf_json *format = dsf_turns_get(t->message, "response_format");
    if (!dsf_turns_truth(format)) return DSF_OK;
    dsf_buf_str(out, "\n\n" DSF_FORMAT_HEADING);
    return dsf_pyjson_add(out, format);
}

static dsf_status add_user(dsf_chat *c, const dsf_turn *t)
{
    dsf_buf_str(&c->out->prompt, DSF_USER);
    for (size_t i = 0; i < t->n; i++) {
        if (i) dsf_buf_str(&c->out->prompt, "\n\n");
        DSF_TRY(add_part(c, t, &c->part[t->first + i]));
    }
    return DSF_OK;
}

static dsf_status add_assistant(dsf_chat *c, size_t i, int64_t last_user)
{
    char place[PLACE_BYTES];
    dsf_buf *out = &c->out->prompt;
    const dsf_turn *t = &c->turn[i];
    bool after_task = i > 0 && dsf_turns_truth(dsf_turns_get(t[-1].message, "task"));
    if (c->thinking && !after_task && (!c->drop || (int64_t)i > last_user)) {
        DSF_TRY(add_loose(out, dsf_turns_get(t->message, "reasoning_content")));
        dsf_buf_str(out, DSF_THINK_END);
    }
    DSF_TRY(add_content(c, t, t->message));
    DSF_TRY(dsf_tools_calls(c, place_of(c, t, ".tool_calls", place),
                            dsf_turns_get(t->message, "tool_calls")));
    if (!dsf_turns_truth(dsf_turns_get(t->message, "wo_eos"))) dsf_buf_str(out, DSF_EOS);
    return DSF_OK;
}

/* What follows the turn: the head of the answer, or the token of a task. */
static dsf_status add_transition(dsf_chat *c, size_t i, int64_t last_user)
{
    static const char *const tasks[] = {"action", "query", "authority",
                                        "domain", "title", "read_url"};
    dsf_buf *out = &c->out->prompt;
    const dsf_turn *t = &c->turn[i];
    if (i + 1 < c->n_turns && !role_is(&t[1], "assistant") && !role_is(&t[1], "latest_reminder"))
        return DSF_OK;
    const dsf_json *task = dsf_turns_get(t->message, "task");
    if (dsf_turns_truth(task)) {
        const char *name = is_kind(task, DSF_JSON_STRING) ? dsf_json_text(task, NULL) : "",
                   *known = NULL;
        char place[PLACE_BYTES];
        for (size_t k = 0; k < sizeof tasks / sizeof *tasks; k++)
            if (strcmp(name, tasks[k]) == 0) known = tasks[k];
        if (!known)
            return DSF_CHAT_FAIL(c, BAD_TASK,
                                 "%s: \"%.100s\" is none of action, query, authority, domain, "
                                 "title, read_url",
                                 place_of(c, t, ".task", place), dsf_json_text(task, NULL));
        if (known == tasks[0]) {
            dsf_buf_str(out, DSF_ASSISTANT);
            dsf_buf_str(out, c->thinking ? DSF_THINK : DSF_THINK_END);
        }
        dsf_buf_fmt(out, "<｜%s｜>", known);
    } else if (role_is(t, "user") || (role_is(t, "system") && i > 0)) {
        bool think = c->thinking && (!c->drop || (int64_t)i >= last_user);
        dsf_buf_str(out, DSF_ASSISTANT);
        dsf_buf_str(out, think ? DSF_THINK : DSF_THINK_END);
    }
    return DSF_OK;
}

dsf_status dsf_render_turn(dsf_chat *c, size_t i, int effort, int64_t last_user)
{
    dsf_buf *out = &c->out->prompt;
    const dsf_turn *t = &c->turn[i];
    bool system = role_is(t, "system"), head = i == 0 && (c->thinking || system);
    if (head) dsf_buf_str(out, DSF_SYSTEM);
    if (head && c->thinking) dsf_buf_fmt(out, DSF_EFFORT_LINE, effort);
    if (system) {
        DSF_TRY(add_system(c, t, head));
    } else if (role_is(t, "user")) {
        DSF_TRY(add_user(c, t));
    } else if (role_is(t, "latest_reminder")) {
        dsf_buf_str(out, DSF_REMINDER);
        DSF_TRY(add_content(c, t, t->message));
    } else if (role_is(t, "assistant")) {
        DSF_TRY(add_assistant(c, i, last_user));
    } else {
        char place[PLACE_BYTES];
        return DSF_CHAT_FAIL(c, BAD_ROLE,
                             "%s: \"%.100s\" is none of system, user, assistant, tool, "
                             "latest_reminder",
                             place_of(c, t, ".role", place), t->role);
    }
    DSF_TRY(add_transition(c, i, last_user));
    return dsf_buf_status(out);
}
