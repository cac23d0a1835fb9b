#include "text/turns.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/check.h"

/* --- values --- */

const dsf_json *dsf_turns_get(const dsf_json *obj, const char *key)
{
    const dsf_json *found = NULL;
    if (!obj || dsf_json_kind_of(obj) != DSF_JSON_OBJECT) return NULL;
    for (const dsf_json *m = dsf_json_first(obj); m; m = dsf_json_next(m))
        if (strcmp(dsf_json_key(m), key) == 0) found = m;
    return found;
}

bool dsf_turns_truth(const dsf_json *v)
{
    double x;
    if (!v) return false;
    switch (dsf_json_kind_of(v)) {
    case DSF_JSON_BOOL:
        return dsf_json_true(v);
    case DSF_JSON_NUMBER:
        return dsf_json_double(v, &x) != DSF_OK || x != 0;
    case DSF_JSON_STRING:
        return *dsf_json_text(v, NULL) != 0;
    case DSF_JSON_ARRAY:
    case DSF_JSON_OBJECT:
        return dsf_json_first(v) != NULL;
    default:
        return false;
    }
}

const dsf_json *dsf_turns_blocks(const dsf_json *message)
{
    const dsf_json *blocks = dsf_turns_get(message, "content_blocks");
    if (dsf_turns_truth(blocks)) return blocks;
    const dsf_json *content = dsf_turns_get(message, "content");
    return content && dsf_json_kind_of(content) == DSF_JSON_ARRAY ? content : NULL;
}

const char *dsf_turns_type(const dsf_json *block)
{
    const dsf_json *type = dsf_turns_get(block, "type");
    return type && dsf_json_kind_of(type) == DSF_JSON_STRING ? dsf_json_text(type, NULL) : "";
}

bool dsf_turns_is_image(const dsf_json *block)
{
    const char *type = dsf_turns_type(block);
    return strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0;
}

static bool role_is(const dsf_turn *t, const char *role) { return strcmp(t->role, role) == 0; }

/* --- merging (2.3) --- */

static dsf_status add_part(dsf_chat *c, dsf_turn *t, dsf_part_kind kind, const dsf_json *value)
{
    if (c->n_parts == c->part_cap) {
        size_t cap = c->part_cap ? 2 * c->part_cap : 16;
        DSF_TRY(dsf_mem_grow(&c->part, cap, sizeof *c->part));
        c->part_cap = cap;
    }
    c->part[c->n_parts++] = (dsf_part){kind, value};
    t->n++;
    return DSF_OK;
}

static dsf_status add_turn(dsf_chat *c, const dsf_turn *t)
{
    if (c->n_turns == c->turn_cap) {
        size_t cap = c->turn_cap ? 2 * c->turn_cap : 16;
        DSF_TRY(dsf_mem_grow(&c->turn, cap, sizeof *c->turn));
        c->turn_cap = cap;
    }
    c->turn[c->n_turns] = *t;
    c->turn[c->n_turns++].first = c->n_parts;
    return DSF_OK;
}

static dsf_status add_user_parts(dsf_chat *c, dsf_turn *t, const dsf_json *m)
{
    const dsf_json *blocks = dsf_turns_blocks(m);
    if (!blocks) return add_part(c, t, DSF_PART_TEXT, dsf_turns_get(m, "content"));
    for (const dsf_json *b = dsf_json_first(blocks); b; b = dsf_json_next(b))
        DSF_TRY(add_part(c, t, DSF_PART_BLOCK, b));
    return DSF_OK;
}

/* Merging stays inside one list: a turn never reaches from context into messages. */
static dsf_status merge(dsf_chat *c, const dsf_message_list *list, bool in_context)
{
    size_t start = c->n_turns;
    int index = 0;
    for (const dsf_json *m = list->list ? dsf_json_first(list->list) : NULL; m;
         m = dsf_json_next(m), index++) {
        dsf_turn t = {.message = m, .in_context = in_context, .index = index};
        t.role = dsf_json_text(dsf_turns_get(m, "role"), NULL);
        t.tools = dsf_turns_get(m, "tools");
        bool tool = role_is(&t, "tool"), user = role_is(&t, "user");
        dsf_turn *last = c->n_turns > start ? &c->turn[c->n_turns - 1] : NULL;
        bool joins = last && role_is(last, "user") &&
                     (tool || (user && !dsf_turns_truth(dsf_turns_get(last->message, "task"))));
        if (tool) t.role = "user";
        if (!joins) {
            if (tool)
                t.message = t.tools = NULL; /* its fields are those of a result, not of a turn */
            DSF_TRY(add_turn(c, &t));
            last = &c->turn[c->n_turns - 1];
        }
        if (tool) DSF_TRY(add_part(c, last, DSF_PART_TOOL, m));
        if (user) DSF_TRY(add_user_parts(c, last, m));
    }
    return DSF_OK;
}

/* --- results in call order (2.3) --- */

typedef struct {
    const char *id;
    size_t position;
} call_id;

typedef struct {
    call_id *id; /* [n] sorted by id; of equal ones the last counts */
    size_t n, cap;
} call_order;

typedef struct {
    dsf_part part;
    size_t position, slot;
} result;

static int by_id(const void *a, const void *b)
{
    const call_id *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    return order ? order : (x->position > y->position) - (x->position < y->position);
}

static int by_position(const void *a, const void *b)
{
    const result *x = a, *y = b;
    if (x->position != y->position) return x->position > y->position ? 1 : -1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

static dsf_status read_order(call_order *o, const dsf_json *calls)
{
    size_t count = dsf_json_count(calls), position = 0;
    o->n = 0;
    if (count > o->cap) {
        DSF_TRY(dsf_mem_grow(&o->id, count, sizeof *o->id));
        o->cap = count;
    }
    for (const dsf_json *call = dsf_json_first(calls); call && o->id; call = dsf_json_next(call)) {
        const dsf_json *id = dsf_turns_get(call, "id");
        if (!dsf_turns_truth(id)) id = dsf_turns_get(dsf_turns_get(call, "function"), "id");
        if (dsf_turns_truth(id) && dsf_json_kind_of(id) == DSF_JSON_STRING)
            o->id[o->n++] = (call_id){dsf_json_text(id, NULL), position};
        position++;
    }
    if (o->n && o->id) qsort(o->id, o->n, sizeof *o->id, by_id);
    return DSF_OK;
}

/* Position of the last call with this id; unknown ids count as the first call. */
static size_t position_of(const call_order *o, const char *id)
{
    size_t lo = 0, hi = o->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(o->id[mid].id, id) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo && strcmp(o->id[lo - 1].id, id) == 0 ? o->id[lo - 1].position : 0;
}

static bool is_result(const dsf_part *p)
{
    return p->kind == DSF_PART_TOOL ||
           (p->kind == DSF_PART_BLOCK && strcmp(dsf_turns_type(p->value), "tool_result") == 0);
}

static dsf_status sort_results(dsf_chat *c, const dsf_turn *t, const call_order *o)
{
    result *r = NULL;
    size_t n = 0;
    dsf_part *part = c->part + t->first;
    DSF_TRY(dsf_mem_new(&r, t->n, sizeof *r));
    for (size_t i = 0; i < t->n; i++) {
        if (!is_result(&part[i])) continue;
        const char *key = part[i].kind == DSF_PART_TOOL ? "tool_call_id" : "tool_use_id";
        const dsf_json *id = dsf_turns_get(part[i].value, key);
        r[n++] = (result){part[i], position_of(o, id ? dsf_json_text(id, NULL) : ""), i};
    }
    if (n > 1) qsort(r, n, sizeof *r, by_position);
    for (size_t i = 0, k = 0; i < t->n; i++)
        if (is_result(&part[i])) part[i] = r[k++].part;
    dsf_mem_free(r);
    return DSF_OK;
}

static dsf_status order_results(dsf_chat *c)
{
    call_order o = {0};
    dsf_status st = DSF_OK;
    for (size_t i = 0; i < c->n_turns && st == DSF_OK; i++) {
        const dsf_turn *t = &c->turn[i];
        const dsf_json *calls =
            role_is(t, "assistant") ? dsf_turns_get(t->message, "tool_calls") : NULL;
        if (dsf_turns_truth(calls)) st = read_order(&o, calls);
        if (role_is(t, "user") && t->n > 1 && o.n) st = sort_results(c, t, &o);
    }
    dsf_mem_free(o.id);
    return st;
}

/* --- all of it --- */

/* Tools of the request go on the first system message; without one an empty one is put first. */
static dsf_status place_tools(dsf_chat *c)
{
    if (!c->tools) return DSF_OK;
    for (size_t i = 0; i < c->n_turns; i++)
        if (role_is(&c->turn[i], "system")) {
            c->turn[i].tools = c->tools;
            return DSF_OK;
        }
    dsf_turn t = {.role = "system", .tools = c->tools, .in_context = c->n_context > 0, .index = -1};
    DSF_TRY(add_turn(c, &t));
    memmove(c->turn + 1, c->turn, (c->n_turns - 1) * sizeof *c->turn);
    c->turn[0] = t;
    if (t.in_context) c->n_context++;
    return DSF_OK;
}

dsf_status dsf_turns_build(dsf_chat *c)
{
    DSF_TRY(dsf_check_messages(c, &c->context));
    DSF_TRY(dsf_check_messages(c, &c->messages));
    DSF_TRY(merge(c, &c->context, true));
    c->n_context = c->n_turns;
    DSF_TRY(merge(c, &c->messages, false));
    DSF_TRY(order_results(c));
    return place_tools(c);
}

int64_t dsf_turns_last_user(const dsf_chat *c, size_t n)
{
    int64_t i = (int64_t)n - 1;
    while (i >= 0 && !role_is(&c->turn[i], "user") && !(i > 0 && role_is(&c->turn[i], "system")))
        i--;
    return i;
}

static bool is_kept(const dsf_turn *t)
{
    static const char *const kept[] = {"user",      "system",          "tool",
                                       "assistant", "latest_reminder", "direct_search_results"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (role_is(t, kept[i])) return true;
    return false;
}

void dsf_turns_drop(dsf_chat *c)
{
    int64_t last = dsf_turns_last_user(c, c->n_turns);
    int64_t last_of_context = dsf_turns_last_user(c, c->n_context);
    size_t n = 0, n_context = 0;
    for (size_t i = 0; i < c->n_turns; i++) {
        bool kept = is_kept(&c->turn[i]);
        if (i < c->n_context && (kept || (int64_t)i >= last_of_context)) n_context++;
        if (kept || (int64_t)i >= last) c->turn[n++] = c->turn[i];
    }
    c->n_turns = n;
    c->n_context = n_context < n ? n_context : n;
}

void dsf_turns_free(dsf_chat *c)
{
    dsf_mem_free(c->turn);
    dsf_mem_free(c->part);
}
