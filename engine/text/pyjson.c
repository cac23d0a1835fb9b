#include "text/pyjson.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* --- objects --- */

typedef struct {
    const dsf_json *member;
    size_t at;
} entry;

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = strcmp(dsf_json_key(x->member), dsf_json_key(y->member));
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Sorted by key, then by place: the last of each run gives the value, the first the place. */
dsf_status dsf_pyjson_members(const dsf_json *obj, const dsf_json ***list, size_t *n)
{
    size_t count = dsf_json_count(obj), i = 0, k = 0;
    entry *e = NULL;
    *list = NULL;
    *n = 0;
    if (count == 0) return DSF_OK;
    DSF_TRY(dsf_mem_new(&e, count, sizeof *e));
    const dsf_json **m = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&m, count, sizeof *m));
    for (const dsf_json *v = dsf_json_first(obj); v; v = dsf_json_next(v), i++)
        e[i] = (entry){v, i};
    qsort(e, count, sizeof *e, by_key);
    for (i = 0; i < count; i = k) {
        for (k = i + 1;
             k < count && strcmp(dsf_json_key(e[i].member), dsf_json_key(e[k].member)) == 0;)
            k++;
        m[e[i].at] = e[k - 1].member;
    }
    for (i = 0; i < count; i++)
        if (m[i]) m[(*n)++] = m[i];
    *list = m;
out:
    dsf_mem_free(e);
    return st;
}

/* --- numbers --- */

/* `digits` decimal digits of |x| as an integer, and the exponent of the first one. */
static unsigned long long round_to(double x, int digits, int *exponent)
{
    char text[40], plain[24];
    (void)snprintf(text, sizeof text, "%.*e", digits - 1, fabs(x));
    int n = 0;
    char *e = strchr(text, 'e');
    for (char *c = text; c < e; c++)
        if (*c != '.') plain[n++] = *c;
    plain[n] = 0;
    *exponent = (int)strtol(e + 1, NULL, 10);
    return strtoull(plain, NULL, 10);
}

static bool reads_back(double x, unsigned long long m, int digits, int exponent)
{
    char text[48];
    (void)snprintf(text, sizeof text, "%llue%d", m, exponent - digits + 1);
    return strtod(text, NULL) == fabs(x);
}

/* The digits of |x| in text[24]; returns the exponent of the first. Below a power of two the
 * doubles are denser than above: there the nearest number of some digits may fail to read back
 * while the next one does. */
static int shortest(double x, char *text)
{
    for (int digits = 1; digits <= 17; digits++) {
        int exponent;
        unsigned long long m = round_to(x, digits, &exponent);
        for (int up = 0; up < 2; up++, m++) {
            if (!reads_back(x, m, digits, exponent)) continue;
            int n = snprintf(text, 24, "%llu", m);
            exponent += n - digits; /* 9.9 rounded up to 10 */
            while (n > 1 && text[n - 1] == '0') text[--n] = 0;
            return exponent;
        }
    }
    text[0] = '0';
    text[1] = 0;
    return 0;
}

void dsf_pyjson_add_double(dsf_buf *out, double x)
{
    if (isnan(x) || isinf(x)) {
        dsf_buf_str(out, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
        return;
    }
    char d[24] = "0";
    int e = x == 0 ? 0 : shortest(x, d), n = (int)strlen(d);
    if (signbit(x)) dsf_buf_char(out, '-');
    if (e < -4 || e >= 16) {
        dsf_buf_char(out, d[0]);
        if (n > 1) dsf_buf_fmt(out, ".%s", d + 1);
        dsf_buf_fmt(out, "e%c%02d", e < 0 ? '-' : '+', abs(e));
    } else if (e < 0) {
        dsf_buf_fmt(out, "0.%.*s%s", -e - 1, "000", d);
    } else {
        for (int i = 0; i <= e; i++) dsf_buf_char(out, (char)(i < n ? d[i] : '0'));
        dsf_buf_fmt(out, ".%s", n > e + 1 ? d + e + 1 : "0");
    }
}

static void add_number(dsf_buf *out, const dsf_json *v)
{
    const char *s = dsf_json_text(v, NULL);
    if (strpbrk(s, ".eE"))
        dsf_pyjson_add_double(out, strtod(s, NULL));
    else
        dsf_buf_str(out, strcmp(s, "-0") == 0 ? "0" : s);
}

/* --- values --- */

static void add_string(dsf_buf *out, dsf_buf *work, bool key, const dsf_json *v)
{
    work->len = 0;
    if (key)
        dsf_json_add_key(work, v);
    else
        dsf_json_add_text(work, v);
    dsf_json_quote(out, work->data ? work->data : "", work->len);
}

static dsf_status add_value(dsf_buf *out, dsf_buf *work, const dsf_json *v);

static dsf_status add_object(dsf_buf *out, dsf_buf *work, const dsf_json *v)
{
    const dsf_json **list;
    size_t n;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_pyjson_members(v, &list, &n));
    dsf_buf_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i) dsf_buf_str(out, ", ");
        add_string(out, work, true, list[i]);
        dsf_buf_str(out, ": ");
        DSF_TRY_OUT(add_value(out, work, list[i]));
    }
    dsf_buf_char(out, '}');
out:
    dsf_mem_free(list);
    return st;
}

/* As deep as the parsed document, so at most 512. */
static dsf_status add_value(dsf_buf *out, dsf_buf *work, const dsf_json *v)
{
    switch (dsf_json_kind_of(v)) {
    case DSF_JSON_STRING:
        add_string(out, work, false, v);
        break;
    case DSF_JSON_NUMBER:
        add_number(out, v);
        break;
    case DSF_JSON_OBJECT:
        DSF_TRY(add_object(out, work, v));
        break;
    case DSF_JSON_ARRAY:
        dsf_buf_char(out, '[');
        for (const dsf_json *e = dsf_json_first(v); e; e = dsf_json_next(e)) {
            DSF_TRY(add_value(out, work, e));
            if (dsf_json_next(e)) dsf_buf_str(out, ", ");
        }
        dsf_buf_char(out, ']');
        break;
    case DSF_JSON_BOOL:
        dsf_buf_str(out, dsf_json_true(v) ? "true" : "false");
        break;
    default:
        dsf_buf_str(out, "null");
    }
    return dsf_buf_status(out);
}

dsf_status dsf_pyjson_add(dsf_buf *out, const dsf_json *v)
{
    dsf_buf work = {.max = out->max};
    dsf_status st = add_value(out, &work, v);
    if (st == DSF_OK) st = dsf_buf_status(&work);
    dsf_buf_free(&work);
    return st;
}

void dsf_pyjson_add_key(dsf_buf *out, const dsf_json *member)
{
    dsf_buf work = {.max = out->max};
    add_string(out, &work, true, member);
    if (out->status == DSF_OK) out->status = work.status;
    dsf_buf_free(&work);
}
