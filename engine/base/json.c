/* A first pass checks the bytes and rewrites what cJSON cannot hold: a number becomes a string that
 * starts with the byte 0x01 (which JSON text cannot contain raw), "\u0000" and
 * "\u0001" become C0 80 and C0 81, which no UTF-8 text holds; dsf_json_add_text undoes that. */
#include "base/json.h"

#include <cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { DEPTH_MAX = 512, NUMBER_MARK = 1 };

struct dsf_json_doc {
    cJSON *root;
};

typedef struct {
    const char *name, *text;
    size_t n, at;
    dsf_buf out;
} pass;

static dsf_status bad(const pass *p, size_t at, const char *what)
{
    return DSF_FAIL(DSF_ECORRUPT, "%s: byte %zu: %s", p->name, at, what);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static dsf_status rewrite_number(pass *p)
{
    size_t from = p->at, i = from;
    const char *s = p->text;
    if (s[i] == '-') i++;
    if (i >= p->n || !is_digit(s[i])) return bad(p, from, "number without digits");
    if (s[i] == '0' && i + 1 < p->n && is_digit(s[i + 1]))
        return bad(p, from, "number starts with 0");
    while (i < p->n && is_digit(s[i])) i++;
    if (i < p->n && s[i] == '.') {
        if (++i >= p->n || !is_digit(s[i])) return bad(p, from, "no digit after the point");
        while (i < p->n && is_digit(s[i])) i++;
    }
    if (i < p->n && (s[i] == 'e' || s[i] == 'E')) {
        if (++i < p->n && (s[i] == '+' || s[i] == '-')) i++;
        if (i >= p->n || !is_digit(s[i])) return bad(p, from, "no digit in the exponent");
        while (i < p->n && is_digit(s[i])) i++;
    }
    size_t after = i; /* as a string below, a number would pass for a key */
    while (after < p->n && strchr(" \t\r\n", s[after])) after++;
    if (after < p->n && s[after] == ':') return bad(p, from, "a key must be a string");
    dsf_buf_str(&p->out, "\"\x01");
    dsf_buf_add(&p->out, s + from, i - from);
    dsf_buf_char(&p->out, '"');
    p->at = i;
    return DSF_OK;
}

static int hex4(const char *s)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int d = is_digit(c)            ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* One \uXXXX (or a surrogate pair) at p->at, written as UTF-8. */
static dsf_status rewrite_escape_u(pass *p)
{
    const char *s = p->text;
    int hi = p->at + 6 <= p->n ? hex4(s + p->at + 2) : -1;
    if (hi < 0) return bad(p, p->at, "\\u without four hex digits");
    uint32_t c = (uint32_t)hi;
    p->at += 6;
    if (c >= 0xD800 && c < 0xDC00 && p->at + 6 <= p->n && s[p->at] == '\\' && s[p->at + 1] == 'u') {
        int lo = hex4(s + p->at + 2);
        if (lo >= 0xDC00 && lo < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + ((uint32_t)lo - 0xDC00);
            p->at += 6;
        }
    }
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
    char u[4];
    size_t k = dsf_utf8_put(u, c);
    if (c <= 1)
        dsf_buf_add(&p->out, c ? "\xC0\x81" : "\xC0\x80", 2);
    else if (c < 0x20 || c == '"' || c == '\\')
        dsf_buf_add(&p->out, s + p->at - 6, 6); /* cJSON decodes these itself */
    else
        dsf_buf_add(&p->out, u, k);
    return DSF_OK;
}

static dsf_status rewrite_string(pass *p)
{
    const char *s = p->text;
    dsf_buf_char(&p->out, '"');
    size_t from = ++p->at;
    for (;;) {
        if (p->at >= p->n) return bad(p, from - 1, "string without end");
        unsigned char c = (unsigned char)s[p->at];
        if (c < 0x20) return bad(p, p->at, "control character inside a string");
        if (c != '"' && c != '\\') {
            p->at++;
            continue;
        }
        dsf_buf_add(&p->out, s + from, p->at - from);
        if (c == '"') break;
        if (p->at + 1 >= p->n) return bad(p, p->at, "string ends in a backslash");
        if (s[p->at + 1] == 'u') {
            DSF_TRY(rewrite_escape_u(p));
        } else {
            if (!strchr("\"\\/bfnrt", s[p->at + 1])) return bad(p, p->at, "unknown escape");
            dsf_buf_add(&p->out, s + p->at, 2);
            p->at += 2;
        }
        from = p->at;
    }
    p->at++;
    dsf_buf_char(&p->out, '"');
    return DSF_OK;
}

static dsf_status rewrite(pass *p)
{
    int depth = 0;
    while (p->at < p->n) {
        char c = p->text[p->at];
        if (c == '"') {
            DSF_TRY(rewrite_string(p));
        } else if (c == '-' || is_digit(c)) {
            DSF_TRY(rewrite_number(p));
        } else {
            if (c == '{' || c == '[') depth++;
            if (c == '}' || c == ']') depth--;
            if (depth > DEPTH_MAX) return bad(p, p->at, "nested deeper than 512");
            if ((unsigned char)c < 0x20 && c != '\n' && c != '\r' && c != '\t')
                return bad(p, p->at, "control character");
            dsf_buf_char(&p->out, c);
            p->at++;
        }
    }
    return dsf_buf_status(&p->out);
}

static dsf_status parse_rewritten(dsf_json_doc *d, pass *p)
{
    const char *end = NULL;
    d->root = cJSON_ParseWithLengthOpts(p->out.data ? p->out.data : "", p->out.len + 1, &end, 1);
    if (d->root) return DSF_OK;
    size_t at = end && p->out.data ? (size_t)(end - p->out.data) : 0;
    char near[24];
    size_t k = 0;
    while (p->out.data && k < sizeof near - 1 && at + k < p->out.len) {
        char c = p->out.data[at + k];
        near[k++] = (char)((unsigned char)c < 0x20 ? ' ' : c);
    }
    near[k] = 0;
    return DSF_FAIL(DSF_ECORRUPT, "%s: not JSON near \"%s\" (about byte %zu of %zu)", p->name, near,
                    at, p->n);
}

dsf_status dsf_json_parse(dsf_json_doc **out, const char *name, const char *text, size_t n)
{
    *out = NULL;
    size_t good = dsf_utf8_valid(text, n);
    if (good != n) return DSF_FAIL(DSF_ECORRUPT, "%s: byte %zu: not UTF-8", name, good);
    pass p = {.name = name, .text = text, .n = n, .out = {.max = (size_t)8 << 30}};
    dsf_json_doc *d = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&d, 1, sizeof *d));
    DSF_TRY_OUT(rewrite(&p));
    DSF_TRY_OUT(parse_rewritten(d, &p));
    *out = d;
    d = NULL;
out:
    dsf_buf_free(&p.out);
    dsf_json_free(d);
    return st;
}

void dsf_json_free(dsf_json_doc *doc)
{
    if (!doc) return;
    cJSON_Delete(doc->root);
    dsf_mem_free(doc);
}

static const cJSON *item(const dsf_json *v) { return (const cJSON *)v; }
const dsf_json *dsf_json_root(const dsf_json_doc *doc) { return (const dsf_json *)doc->root; }

dsf_json_kind dsf_json_kind_of(const dsf_json *v)
{
    const cJSON *j = item(v);
    if (cJSON_IsObject(j)) return DSF_JSON_OBJECT;
    if (cJSON_IsArray(j)) return DSF_JSON_ARRAY;
    if (cJSON_IsString(j))
        return j->valuestring[0] == NUMBER_MARK ? DSF_JSON_NUMBER : DSF_JSON_STRING;
    return cJSON_IsBool(j) ? DSF_JSON_BOOL : DSF_JSON_NULL;
}

const char *dsf_json_kind_name(dsf_json_kind k)
{
    static const char *const name[] = {"null",     "a boolean", "a number",
                                       "a string", "an array",  "an object"};
    return name[k];
}

const dsf_json *dsf_json_first(const dsf_json *v) { return (const dsf_json *)item(v)->child; }
const dsf_json *dsf_json_next(const dsf_json *v) { return (const dsf_json *)item(v)->next; }
size_t dsf_json_count(const dsf_json *v) { return (size_t)cJSON_GetArraySize(item(v)); }
const char *dsf_json_key(const dsf_json *v) { return item(v)->string ? item(v)->string : ""; }

const dsf_json *dsf_json_get(const dsf_json *obj, const char *key)
{
    if (!obj || dsf_json_kind_of(obj) != DSF_JSON_OBJECT) return NULL;
    for (const dsf_json *m = dsf_json_first(obj); m; m = dsf_json_next(m))
        if (strcmp(dsf_json_key(m), key) == 0) return m;
    return NULL;
}

const char *dsf_json_duplicate(const dsf_json *obj)
{
    for (const dsf_json *a = dsf_json_first(obj); a; a = dsf_json_next(a))
        if (dsf_json_get(obj, dsf_json_key(a)) != a) return dsf_json_key(a);
    return NULL;
}

const char *dsf_json_text(const dsf_json *v, size_t *n)
{
    dsf_json_kind k = dsf_json_kind_of(v);
    const char *s = k == DSF_JSON_STRING   ? item(v)->valuestring
                    : k == DSF_JSON_NUMBER ? item(v)->valuestring + 1
                                           : "";
    if (n) *n = strlen(s);
    return s;
}

static void add_marked(dsf_buf *b, const char *s)
{
    size_t n = strlen(s);
    const char *hit;
    while ((hit = memchr(s, 0xC0, n)) != NULL) {
        dsf_buf_add(b, s, (size_t)(hit - s));
        dsf_buf_char(b, (char)(hit[1] & 0x3F));
        n -= (size_t)(hit - s) + 2;
        s = hit + 2;
    }
    dsf_buf_add(b, s, n);
}

void dsf_json_add_text(dsf_buf *b, const dsf_json *v) { add_marked(b, dsf_json_text(v, NULL)); }
void dsf_json_add_key(dsf_buf *b, const dsf_json *v) { add_marked(b, dsf_json_key(v)); }

bool dsf_json_true(const dsf_json *v) { return cJSON_IsTrue(item(v)); }

dsf_status dsf_json_int(const dsf_json *v, int64_t *out)
{
    const char *s = dsf_json_text(v, NULL);
    if (dsf_json_kind_of(v) != DSF_JSON_NUMBER || strpbrk(s, ".eE"))
        return DSF_FAIL(DSF_EINVAL, "%s: not an integer: %s", dsf_json_key(v),
                        *s ? s : dsf_json_kind_name(dsf_json_kind_of(v)));
    errno = 0;
    long long i = strtoll(s, NULL, 10);
    if (errno) return DSF_FAIL(DSF_EINVAL, "%s: %s does not fit 64 bits", dsf_json_key(v), s);
    *out = i;
    return DSF_OK;
}

dsf_status dsf_json_double(const dsf_json *v, double *out)
{
    const char *s = dsf_json_text(v, NULL);
    if (dsf_json_kind_of(v) != DSF_JSON_NUMBER)
        return DSF_FAIL(DSF_EINVAL, "%s: not a number", dsf_json_key(v));
    double d = strtod(s, NULL);
    if (!isfinite(d)) return DSF_FAIL(DSF_EINVAL, "%s: %s is not finite", dsf_json_key(v), s);
    *out = d;
    return DSF_OK;
}
