#include "verify/diff/bind.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

typedef struct {
    char path[160];        /* of the field that differs; "" while all agree */
    const dsf_json *a, *b; /* its two values; NULL: absent */
} difference;

static bool scalars_equal(const dsf_json *a, const dsf_json *b)
{
    double x, y;
    size_t na = 0, nb = 0;
    switch (dsf_json_kind_of(a)) {
    case DSF_JSON_BOOL:
        return dsf_json_true(a) == dsf_json_true(b);
    case DSF_JSON_STRING:
        return dsf_json_text(a, &na) && dsf_json_text(b, &nb) && na == nb &&
               memcmp(dsf_json_text(a, NULL), dsf_json_text(b, NULL), na) == 0;
    case DSF_JSON_NUMBER:
        if (strcmp(dsf_json_text(a, NULL), dsf_json_text(b, NULL)) == 0) return true;
        return dsf_json_double(a, &x) == DSF_OK && dsf_json_double(b, &y) == DSF_OK && x == y;
    default:
        return true;
    }
}

static void found(difference *d, const char *path, const dsf_json *a, const dsf_json *b)
{
    (void)snprintf(d->path, sizeof d->path, "%s", *path ? path : "(all)");
    d->a = a;
    d->b = b;
}

static void compare(difference *d, const char *path, const dsf_json *a, const dsf_json *b);

static void compare_members(difference *d, const char *path, const dsf_json *a, const dsf_json *b)
{
    char below[160];
    const char *dot = *path ? "." : "";
    for (const dsf_json *v = dsf_json_first(a); v && !*d->path; v = dsf_json_next(v)) {
        (void)snprintf(below, sizeof below, "%.80s%s%.60s", path, dot, dsf_json_key(v));
        compare(d, below, v, dsf_json_get(b, dsf_json_key(v)));
    }
    for (const dsf_json *v = dsf_json_first(b); v && !*d->path; v = dsf_json_next(v)) {
        if (dsf_json_get(a, dsf_json_key(v))) continue;
        (void)snprintf(below, sizeof below, "%.80s%s%.60s", path, dot, dsf_json_key(v));
        found(d, below, NULL, v);
    }
}

static void compare_items(difference *d, const char *path, const dsf_json *a, const dsf_json *b)
{
    const dsf_json *x = dsf_json_first(a), *y = dsf_json_first(b);
    bool other = dsf_json_count(a) != dsf_json_count(b);
    for (; x && y && !other; x = dsf_json_next(x), y = dsf_json_next(y)) {
        difference inside = {.path = ""};
        compare(&inside, path, x, y);
        other = *inside.path != 0;
    }
    if (other) found(d, path, a, b); /* lists are short: shown whole */
}

static void compare(difference *d, const char *path, const dsf_json *a, const dsf_json *b)
{
    dsf_json_kind kind = dsf_json_kind_of(a);
    bool alike = b && dsf_json_kind_of(b) == kind;
    if (alike && kind == DSF_JSON_OBJECT)
        compare_members(d, path, a, b);
    else if (alike && kind == DSF_JSON_ARRAY)
        compare_items(d, path, a, b);
    else if (!alike || !scalars_equal(a, b))
        found(d, path, a, b);
}

static void add_value(dsf_buf *b, const dsf_json *v)
{
    if (!v) {
        dsf_buf_str(b, "absent");
    } else if (dsf_json_kind_of(v) == DSF_JSON_OBJECT) {
        dsf_buf_str(b, "an object");
    } else if (dsf_json_kind_of(v) == DSF_JSON_ARRAY) {
        const char *before = "[";
        for (const dsf_json *x = dsf_json_first(v); x; x = dsf_json_next(x), before = ", ") {
            dsf_buf_str(b, before);
            add_value(b, x);
        }
        dsf_buf_str(b, dsf_json_first(v) ? "]" : "[]");
    } else {
        dsf_json_add_text(b, v);
    }
}

static void show(char out[80], const dsf_json *v)
{
    dsf_buf b = {0};
    add_value(&b, v);
    (void)snprintf(out, 80, "%.60s%s", b.data ? b.data : "?", b.len > 60 ? "..." : "");
    dsf_buf_free(&b);
}

dsf_status dsf_bind_configs(const dsf_dump_info *reference, const dsf_dump_info *ours)
{
    dsf_json_doc *x = NULL, *y = NULL;
    difference d = {.path = ""};
    dsf_status st = DSF_OK;
    if (!*reference->config_json || !*ours->config_json) return DSF_OK;
    DSF_TRY_OUT(dsf_json_parse(&x, reference->path, reference->config_json,
                               strlen(reference->config_json)));
    DSF_TRY_OUT(dsf_json_parse(&y, ours->path, ours->config_json, strlen(ours->config_json)));
    compare(&d, "", dsf_json_root(x), dsf_json_root(y));
    if (*d.path) {
        char a[80], b[80];
        show(a, d.a);
        show(b, d.b);
        st = DSF_FAIL(DSF_EINVAL, "different models: config %s is %s in %s and %s in %s", d.path, a,
                      reference->path, b, ours->path);
    }
out:
    dsf_json_free(x);
    dsf_json_free(y);
    return st;
}
