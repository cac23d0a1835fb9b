#include "text/chat.h"

#include <string.h>

#include "base/mem.h"
#include "text/protocol.h"
#include "text/pyjson.h"
#include "text/render.h"
#include "text/turns.h"

const char *dsf_chat_error_name(dsf_chat_error e)
{
    static const char *const name[] = {
#define X(name, text) text,
        DSF_CHAT_ERROR_MAP(X)
#undef X
    };
    return (unsigned)e < sizeof name / sizeof *name ? name[e] : "unknown";
}

static bool is_kind(const dsf_json *v, dsf_json_kind k) { return v && dsf_json_kind_of(v) == k; }
static const char *kind_name(const dsf_json *v) { return dsf_json_kind_name(dsf_json_kind_of(v)); }

/* --- arguments (2.1) --- */

static dsf_status read_flag(dsf_chat *c, const dsf_json *v, bool *flag)
{
    if (is_kind(v, DSF_JSON_NULL)) return DSF_OK;
    if (!is_kind(v, DSF_JSON_BOOL))
        return DSF_CHAT_FAIL(c, BAD_REQUEST, "%s: %s, expected a boolean", dsf_json_key(v),
                             kind_name(v));
    *flag = dsf_json_true(v);
    return DSF_OK;
}

static dsf_status read_list(dsf_chat *c, const dsf_json *v, const dsf_json **list)
{
    if (is_kind(v, DSF_JSON_NULL)) return DSF_OK;
    if (!is_kind(v, DSF_JSON_ARRAY))
        return DSF_CHAT_FAIL(c, BAD_REQUEST, "%s: %s, expected a list", dsf_json_key(v),
                             kind_name(v));
    *list = v;
    return DSF_OK;
}

static dsf_status read_argument(dsf_chat *c, const dsf_json *v, const char **mode)
{
    const char *key = dsf_json_key(v);
    if (strcmp(key, "messages") == 0) return read_list(c, v, &c->messages.list);
    if (strcmp(key, "context") == 0) return read_list(c, v, &c->context.list);
    if (strcmp(key, "tools") == 0) return read_list(c, v, &c->tools);
    if (strcmp(key, "drop_thinking") == 0) return read_flag(c, v, &c->drop);
    if (strcmp(key, "add_default_bos_token") == 0) return read_flag(c, v, &c->bos);
    if (strcmp(key, "reasoning_effort") == 0) {
        c->effort = is_kind(v, DSF_JSON_NULL) ? NULL : v;
    } else if (strcmp(key, "thinking_mode") == 0) {
        *mode = is_kind(v, DSF_JSON_STRING) ? dsf_json_text(v, NULL) : kind_name(v);
    } else {
        return DSF_CHAT_FAIL(c, BAD_REQUEST,
                             "%.100s: not one of messages, tools, thinking_mode, context, "
                             "drop_thinking, add_default_bos_token, reasoning_effort",
                             key);
    }
    return DSF_OK;
}

static dsf_status read_request(dsf_chat *c, const dsf_json *request, const char *mode)
{
    if (is_kind(request, DSF_JSON_ARRAY)) {
        c->messages.list = request;
    } else if (is_kind(request, DSF_JSON_OBJECT)) {
        for (const dsf_json *v = dsf_json_first(request); v; v = dsf_json_next(v))
            DSF_TRY(read_argument(c, v, &mode));
    } else {
        return DSF_CHAT_FAIL(c, BAD_REQUEST, "request: %s, expected an object or a list",
                             kind_name(request));
    }
    if (!c->messages.list) return DSF_CHAT_FAIL(c, BAD_REQUEST, "messages: missing");
    if (!dsf_turns_truth(c->tools)) c->tools = NULL;
    c->thinking = mode && strcmp(mode, "thinking") == 0;
    if (!c->thinking && !(mode && strcmp(mode, "chat") == 0))
        return DSF_CHAT_FAIL(c, BAD_MODE, "thinking_mode: %.100s, expected chat or thinking",
                             mode ? mode : "missing");
    return DSF_OK;
}

/* 50, 75, 100 by name, or an integer literal 1..100; nothing else, not even 75.0. */
static dsf_status read_effort(dsf_chat *c, int *effort)
{
    const dsf_json *v = c->effort;
    const char *s = v ? dsf_json_text(v, NULL) : "high";
    int64_t n = 0;
    *effort = 0;
    if (!v || is_kind(v, DSF_JSON_STRING))
        *effort = strcmp(s, "low") == 0    ? 50
                  : strcmp(s, "high") == 0 ? 75
                  : strcmp(s, "max") == 0  ? 100
                                           : 0;
    else if (is_kind(v, DSF_JSON_NUMBER) && dsf_json_int(v, &n) == DSF_OK && n >= 1 && n <= 100)
        *effort = (int)n;
    if (*effort == 0)
        return DSF_CHAT_FAIL(c, BAD_EFFORT,
                             "reasoning_effort: %s %.40s, expected low, high, max or an integer 1 "
                             "to 100",
                             kind_name(v), s);
    return DSF_OK;
}

/* --- encoding --- */

static dsf_status render(dsf_chat *c)
{
    int effort = 0;
    size_t had = c->n_context;
    for (size_t i = 0; i < c->n_turns; i++)
        if (dsf_turns_truth(c->turn[i].tools)) c->drop = false;
    if (c->bos && had == 0) dsf_buf_str(&c->out->prompt, DSF_BOS);
    if (c->thinking && c->drop) dsf_turns_drop(c);
    int64_t last_user = dsf_turns_last_user(c, c->n_turns);
    if (c->n_context < c->n_turns) DSF_TRY(read_effort(c, &effort));
    for (size_t i = c->n_context; i < c->n_turns; i++)
        DSF_TRY(dsf_render_turn(c, i, effort, last_user));
    return dsf_buf_status(&c->out->prompt);
}

dsf_status dsf_chat_encode(const dsf_json *request, const char *default_mode, dsf_chat_prompt *out)
{
    dsf_chat c = {.out = out,
                  .context = {.where = "context"},
                  .messages = {.where = "messages"},
                  .drop = true,
                  .bos = true};
    out->error = DSF_CHAT_NONE;
    dsf_status st = read_request(&c, request, default_mode);
    if (st == DSF_OK) st = dsf_turns_build(&c);
    if (st == DSF_OK) st = render(&c);
    dsf_turns_free(&c);
    return st;
}

void dsf_chat_free(dsf_chat_prompt *p)
{
    dsf_buf_free(&p->prompt);
    dsf_mem_free(p->image);
    p->image = NULL;
    p->n_images = p->image_cap = 0;
}

dsf_status dsf_chat_images_json(const dsf_chat_prompt *p, dsf_buf *out)
{
    dsf_buf_char(out, '[');
    for (size_t i = 0; i < p->n_images; i++) {
        const dsf_json *v[] = {p->image[i].source, p->image[i].url, p->image[i].data};
        static const char *const key[] = {"source", "url", "data"};
        dsf_buf_str(out, i ? ", {\"type\": \"image\"" : "{\"type\": \"image\"");
        for (int k = 0; k < 3; k++) {
            if (!v[k]) continue;
            dsf_buf_fmt(out, ", \"%s\": ", key[k]);
            DSF_TRY(dsf_pyjson_add(out, v[k]));
        }
        dsf_buf_char(out, '}');
    }
    dsf_buf_char(out, ']');
    return dsf_buf_status(out);
}
