#include "text/tools.h"

#include <string.h>

#include "base/mem.h"
#include "text/protocol.h"
#include "text/pyjson.h"

/* --- names (2.6) --- */

/* A tool or a call: its function, and its namespace where it has one. */
typedef struct {
    const char *place;
    int index;
    const dsf_json *function, *name, *space,
        *space_text; /* space_text: the namespace's description */
} tool;

static bool is_kind(const dsf_json *v, dsf_json_kind k) { return v && dsf_json_kind_of(v) == k; }
static const char *kind_name(const dsf_json *v) { return dsf_json_kind_name(dsf_json_kind_of(v)); }

static dsf_status read_namespace(dsf_chat *c, tool *t, const dsf_json *entry)
{
    const dsf_json *v = dsf_turns_get(entry, "namespace");
    if (!dsf_turns_truth(v)) v = dsf_turns_get(t->function, "namespace");
    if (!dsf_turns_truth(v)) return DSF_OK;
    t->space = v;
    if (is_kind(v, DSF_JSON_OBJECT)) {
        t->space = dsf_turns_get(v, "name");
        t->space_text = dsf_turns_get(v, "description");
        if (!t->space)
            return DSF_CHAT_FAIL(c, MISSING_KEY, "%s[%d].namespace.name: missing", t->place,
                                 t->index);
    }
    if (!is_kind(t->space, DSF_JSON_STRING))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d].namespace: %s, expected a string", t->place,
                             t->index, kind_name(t->space));
    if (!dsf_turns_truth(t->space_text)) t->space_text = NULL;
    if (t->space_text && !is_kind(t->space_text, DSF_JSON_STRING))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d].namespace.description: %s, expected a string",
                             t->place, t->index, kind_name(t->space_text));
    return DSF_OK;
}

static dsf_status read_tool(dsf_chat *c, tool *t, const dsf_json *entry)
{
    if (!is_kind(entry, DSF_JSON_OBJECT))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d]: %s, expected an object", t->place, t->index,
                             kind_name(entry));
    t->function = dsf_turns_get(entry, "function");
    if (!t->function)
        return DSF_CHAT_FAIL(c, MISSING_KEY, "%s[%d].function: missing", t->place, t->index);
    if (!is_kind(t->function, DSF_JSON_OBJECT))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d].function: %s, expected an object", t->place,
                             t->index, kind_name(t->function));
    t->name = dsf_turns_get(t->function, "name");
    if (!t->name)
        return DSF_CHAT_FAIL(c, MISSING_KEY, "%s[%d].function.name: missing", t->place, t->index);
    if (!is_kind(t->name, DSF_JSON_STRING))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d].function.name: %s, expected a string", t->place,
                             t->index, kind_name(t->name));
    return read_namespace(c, t, entry);
}

/* Appends namespace::name. A name may bring its namespace along; both must then agree. */
static dsf_status add_qualified(dsf_chat *c, const tool *t, dsf_buf *out)
{
    const char *name = dsf_json_text(t->name, NULL), *gap = strstr(name, "::");
    const char *space = t->space ? dsf_json_text(t->space, NULL) : NULL;
    if ((gap && strstr(gap + 2, "::")) || (space && strstr(space, "::")))
        return DSF_CHAT_FAIL(c, BAD_NAMESPACE,
                             "%s[%d]: more than one :: in %.100s, namespace %.100s", t->place,
                             t->index, name, space ? space : "none");
    if (gap && space &&
        (strlen(space) != (size_t)(gap - name) || memcmp(space, name, strlen(space)) != 0))
        return DSF_CHAT_FAIL(c, BAD_NAMESPACE, "%s[%d]: name %.100s, but namespace %.100s",
                             t->place, t->index, name, space);
    if (space && !gap) {
        dsf_json_add_text(out, t->space);
        dsf_buf_str(out, "::");
    }
    dsf_json_add_text(out, t->name);
    return dsf_buf_status(out);
}

/* --- schemas (2.6) --- */

/* The description with the namespace's before it. */
static dsf_status add_description(dsf_chat *c, const tool *t, const dsf_json *own)
{
    dsf_buf *out = &c->out->prompt, text = {.max = out->max};
    if (own && !is_kind(own, DSF_JSON_STRING) && dsf_turns_truth(own))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d].function.description: %s, expected a string",
                             t->place, t->index, kind_name(own));
    dsf_json_add_text(&text, t->space_text);
    dsf_buf_char(&text, '\n');
    if (own) dsf_json_add_text(&text, own);
    dsf_status st = dsf_buf_status(&text);
    if (st == DSF_OK) dsf_json_quote(out, text.data, text.len);
    dsf_buf_free(&text);
    return st;
}

static dsf_status add_member(dsf_chat *c, const tool *t, const dsf_json *m)
{
    dsf_buf *out = &c->out->prompt;
    dsf_pyjson_add_key(out, m);
    dsf_buf_str(out, ": ");
    if (strcmp(dsf_json_key(m), "description") == 0 && t->space_text)
        return add_description(c, t, m);
    if (strcmp(dsf_json_key(m), "name") != 0) return dsf_pyjson_add(out, m);
    dsf_buf name = {.max = out->max};
    dsf_status st = add_qualified(c, t, &name);
    if (st == DSF_OK) dsf_json_quote(out, name.data ? name.data : "", name.len);
    dsf_buf_free(&name);
    return st;
}

static dsf_status add_schema(dsf_chat *c, const tool *t)
{
    const dsf_json **m = NULL;
    size_t n = 0;
    bool comma = false, described = false;
    dsf_buf *out = &c->out->prompt;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_pyjson_members(t->function, &m, &n));
    dsf_buf_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (strcmp(dsf_json_key(m[i]), "namespace") == 0) continue;
        if (comma) dsf_buf_str(out, ", ");
        comma = true;
        described |= strcmp(dsf_json_key(m[i]), "description") == 0;
        DSF_TRY_OUT(add_member(c, t, m[i]));
    }
    if (t->space_text && !described) {
        dsf_buf_str(out, ", \"description\": "); /* never first: there is a name */
        DSF_TRY_OUT(add_description(c, t, NULL));
    }
    dsf_buf_char(out, '}');
out:
    dsf_mem_free(m);
    return st;
}

dsf_status dsf_tools_schemas(dsf_chat *c, const char *place, const dsf_json *tools)
{
    dsf_buf *out = &c->out->prompt;
    if (!is_kind(tools, DSF_JSON_ARRAY))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s: %s, expected a list", place, kind_name(tools));
    dsf_buf_str(out, DSF_TOOLS_PREFIX);
    int i = 0;
    for (const dsf_json *e = dsf_json_first(tools); e; e = dsf_json_next(e), i++) {
        tool t = {.place = place, .index = i};
        DSF_TRY(read_tool(c, &t, e));
        if (i) dsf_buf_char(out, '\n');
        DSF_TRY(add_schema(c, &t));
    }
    dsf_buf_str(out, DSF_TOOLS_SUFFIX);
    return dsf_buf_status(out);
}

/* --- calls (2.7) --- */

static dsf_status add_parameter(dsf_buf *out, const dsf_json *value)
{
    bool text = is_kind(value, DSF_JSON_STRING);
    dsf_buf_str(out, text ? "\" string=\"true\">" : "\" string=\"false\">");
    if (text)
        dsf_json_add_text(out, value);
    else
        DSF_TRY(dsf_pyjson_add(out, value));
    dsf_buf_str(out, DSF_PARAM_END);
    return dsf_buf_status(out);
}

static dsf_status add_parameters(dsf_buf *out, const dsf_json *object)
{
    const dsf_json **m = NULL;
    size_t n = 0;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_pyjson_members(object, &m, &n));
    for (size_t i = 0; i < n; i++) {
        if (i) dsf_buf_char(out, '\n');
        dsf_buf_str(out, DSF_PARAM " name=\"");
        dsf_json_add_key(out, m[i]);
        DSF_TRY_OUT(add_parameter(out, m[i]));
    }
out:
    dsf_mem_free(m);
    return st;
}

/* JSON text as a document; none when it is not JSON. Only a lack of memory is an error. */
static dsf_status read_json(const dsf_json *text, dsf_json_doc **doc)
{
    dsf_buf raw = {0};
    *doc = NULL;
    dsf_json_add_text(&raw, text);
    /* A byte order mark is no JSON, though cJSON skips it. */
    bool marked = raw.len >= 3 && memcmp(raw.data, "\xEF\xBB\xBF", 3) == 0;
    dsf_status st = dsf_buf_status(&raw);
    if (st == DSF_OK && !marked)
        st = dsf_json_parse(doc, "arguments", raw.data ? raw.data : "", raw.len);
    dsf_buf_free(&raw);
    return st == DSF_ECORRUPT ? DSF_OK : st;
}

/* The object inside a JSON text, or inside a JSON text that is a JSON string, or the value itself;
 * NULL: no object. The caller frees *doc, which owns it, in any case. */
static dsf_status decode(const dsf_json *value, dsf_json_doc **doc, const dsf_json **object)
{
    const dsf_json *v = value;
    for (int times = 0; times < 2 && is_kind(v, DSF_JSON_STRING); times++) {
        dsf_json_doc *next;
        DSF_TRY(read_json(v, &next));
        v = next ? dsf_json_root(next) : NULL;
        dsf_json_free(*doc);
        *doc = next;
    }
    *object = is_kind(v, DSF_JSON_OBJECT) ? v : NULL;
    return DSF_OK;
}

static dsf_status add_arguments(dsf_buf *out, const dsf_json *arguments)
{
    dsf_json_doc *doc = NULL;
    const dsf_json *object = NULL;
    dsf_status st = decode(arguments, &doc, &object);
    if (st == DSF_OK && object) {
        st = add_parameters(out, object);
    } else if (st == DSF_OK) {
        dsf_buf_str(out, DSF_PARAM " name=\"arguments");
        st = add_parameter(out, arguments);
    }
    dsf_json_free(doc);
    return st;
}

dsf_status dsf_tools_calls(dsf_chat *c, const char *place, const dsf_json *calls)
{
    dsf_buf *out = &c->out->prompt;
    if (!dsf_turns_truth(calls)) return DSF_OK;
    if (!is_kind(calls, DSF_JSON_ARRAY))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s: %s, expected a list", place, kind_name(calls));
    dsf_buf_str(out, "\n\n" DSF_CALLS "\n");
    int i = 0;
    for (const dsf_json *e = dsf_json_first(calls); e; e = dsf_json_next(e), i++) {
        tool t = {.place = place, .index = i};
        DSF_TRY(read_tool(c, &t, e));
        const dsf_json *arguments = dsf_turns_get(t.function, "arguments");
        if (!arguments)
            return DSF_CHAT_FAIL(c, MISSING_KEY, "%s[%d].function.arguments: missing", place, i);
        dsf_buf_str(out, DSF_INVOKE " name=\"");
        DSF_TRY(add_qualified(c, &t, out));
        dsf_buf_str(out, "\">\n");
        DSF_TRY(add_arguments(out, arguments));
        dsf_buf_str(out, "\n" DSF_INVOKE_END "\n");
    }
    dsf_buf_str(out, DSF_CALLS_END);
    return dsf_buf_status(out);
}
