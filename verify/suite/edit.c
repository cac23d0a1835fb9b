#include "verify/suite/edit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_key(const dsf_json *v, bool member, dsf_buf *b)
{
    if (!member) return;
    const char *key = dsf_json_key(v);
    dsf_json_quote(b, key, strlen(key));
    dsf_buf_str(b, ": ");
}

static void add_changed(const dsf_json *v, dsf_buf *b)
{
    int64_t i = 0;
    double d = 0;
    size_t n;
    const char *text = dsf_json_text(v, &n);
    switch (dsf_json_kind_of(v)) {
    case DSF_JSON_BOOL:
        dsf_buf_str(b, dsf_json_true(v) ? "false" : "true");
        return;
    case DSF_JSON_NUMBER:
        if (dsf_json_int(v, &i) == DSF_OK)
            dsf_buf_fmt(b, "%" PRId64, i + 1);
        else if (dsf_json_double(v, &d) == DSF_OK)
            dsf_buf_fmt(b, "%.17g", d == 0 ? 0.5 : d * 1.5);
        return;
    case DSF_JSON_STRING:
        dsf_buf_char(b, '"');
        dsf_json_escape(b, text, n);
        dsf_buf_str(b, "x\"");
        return;
    default: /* null, or an empty list or object */
        dsf_buf_str(b, "1");
    }
}

static void add_value(const dsf_json *v, const dsf_edit *e, dsf_buf *b);

static void add_children(const dsf_json *v, const dsf_edit *e, dsf_buf *b)
{
    bool object = dsf_json_kind_of(v) == DSF_JSON_OBJECT, first = true;
    dsf_buf_char(b, object ? '{' : '[');
    for (const dsf_json *c = dsf_json_first(v); c; c = dsf_json_next(c)) {
        int times = c == e->at && e->kind == DSF_EDIT_REMOVE  ? 0
                    : c == e->at && e->kind == DSF_EDIT_TWICE ? 2
                                                              : 1;
        for (; times > 0; times--) {
            if (!first) dsf_buf_str(b, ", ");
            first = false;
            add_key(c, object, b);
            add_value(c, e, b);
        }
    }
    if (v == e->at && e->kind == DSF_EDIT_UNKNOWN)
        dsf_buf_fmt(b, "%s\"dsf_unknown_key\": 1", first ? "" : ", ");
    dsf_buf_char(b, object ? '}' : ']');
}

static void add_value(const dsf_json *v, const dsf_edit *e, dsf_buf *b)
{
    size_t n;
    const char *text = dsf_json_text(v, &n);
    if (v == e->at && e->kind == DSF_EDIT_CHANGE) {
        add_changed(v, b);
        return;
    }
    if (v == e->at && (e->kind == DSF_EDIT_RETYPE || e->kind == DSF_EDIT_REPLACE)) {
        dsf_buf_str(b, e->kind == DSF_EDIT_RETYPE ? "[{}]" : e->raw);
        return;
    }
    switch (dsf_json_kind_of(v)) {
    case DSF_JSON_NULL:
        dsf_buf_str(b, "null");
        break;
    case DSF_JSON_BOOL:
        dsf_buf_str(b, dsf_json_true(v) ? "true" : "false");
        break;
    case DSF_JSON_NUMBER:
        dsf_buf_add(b, text, n);
        break;
    case DSF_JSON_STRING:
        dsf_json_quote(b, text, n);
        break;
    default:
        add_children(v, e, b);
    }
}

void dsf_edit_write(const dsf_json *root, const dsf_edit *e, dsf_buf *out)
{
    add_value(root, e, out);
}

/* ---- walking ---- */

typedef struct {
    dsf_edit_visit *visit;
    void *ud;
    char path[256];
} walk;

static dsf_status step(walk *w, const dsf_json *v, size_t n)
{
    dsf_json_kind kind = dsf_json_kind_of(v);
    bool leaf = kind != DSF_JSON_OBJECT && kind != DSF_JSON_ARRAY;
    int i = 0;
    DSF_TRY(w->visit(w->ud, v, w->path, leaf));
    for (const dsf_json *c = dsf_json_first(v); c; c = dsf_json_next(c), i++) {
        int more =
            kind == DSF_JSON_OBJECT
                ? snprintf(w->path + n, sizeof w->path - n, "%s%s", n ? "." : "", dsf_json_key(c))
                : snprintf(w->path + n, sizeof w->path - n, "%s%d", n ? "." : "", i);
        if (more < 0 || (size_t)more >= sizeof w->path - n)
            return DSF_FAIL(DSF_ECORRUPT, "a key path of more than %zu bytes", sizeof w->path - 1);
        DSF_TRY(step(w, c, n + (size_t)more));
        w->path[n] = 0;
    }
    return DSF_OK;
}

dsf_status dsf_edit_walk(const dsf_json *root, dsf_edit_visit *visit, void *ud)
{
    walk w = {.visit = visit, .ud = ud, .path = ""};
    return step(&w, root, 0);
}

const dsf_json *dsf_edit_find(const dsf_json *root, const char *path)
{
    const dsf_json *v = root;
    while (v && *path) {
        char part[256];
        size_t n = strcspn(path, ".");
        if (n >= sizeof part) return NULL;
        memcpy(part, path, n);
        part[n] = 0;
        path += n + (path[n] == '.');
        if (dsf_json_kind_of(v) == DSF_JSON_OBJECT) {
            v = dsf_json_get(v, part);
        } else if (dsf_json_kind_of(v) == DSF_JSON_ARRAY) {
            long i = strtol(part, NULL, 10);
            for (v = dsf_json_first(v); v && i > 0; i--) v = dsf_json_next(v);
        } else {
            v = NULL;
        }
    }
    return v;
}

bool dsf_edit_same(const dsf_json *a, const dsf_json *b)
{
    if (!a || !b || dsf_json_kind_of(a) != dsf_json_kind_of(b)) return false;
    int64_t i, j;
    double x, y;
    switch (dsf_json_kind_of(a)) {
    case DSF_JSON_NULL:
        return true;
    case DSF_JSON_BOOL:
        return dsf_json_true(a) == dsf_json_true(b);
    case DSF_JSON_STRING:
        return strcmp(dsf_json_text(a, NULL), dsf_json_text(b, NULL)) == 0;
    case DSF_JSON_NUMBER:
        if (dsf_json_int(a, &i) == DSF_OK && dsf_json_int(b, &j) == DSF_OK) return i == j;
        return dsf_json_double(a, &x) == DSF_OK && dsf_json_double(b, &y) == DSF_OK && x == y;
    default:
        break;
    }
    if (dsf_json_count(a) != dsf_json_count(b)) return false;
    const dsf_json *c = dsf_json_first(a), *d = dsf_json_first(b);
    for (; c && d; c = dsf_json_next(c), d = dsf_json_next(d)) {
        const dsf_json *other =
            dsf_json_kind_of(a) == DSF_JSON_OBJECT ? dsf_json_get(b, dsf_json_key(c)) : d;
        if (!dsf_edit_same(c, other)) return false;
    }
    return true;
}
