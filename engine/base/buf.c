#include "base/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool reserve(dsf_buf *b, size_t extra)
{
    if (b->status != DSF_OK) return false;
    size_t max = b->max ? b->max : (size_t)1 << 30;
    if (extra >= max || b->len > max - extra - 1) {
        b->status =
            DSF_FAIL(DSF_ENOMEM, "buffer: %zu + %zu bytes, at most %zu", b->len, extra, max);
        return false;
    }
    size_t need = b->len + extra + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need) cap *= 2;
    b->status = dsf_mem_grow(&b->data, cap, 1);
    if (b->status == DSF_OK) b->cap = cap;
    return b->status == DSF_OK;
}

void dsf_buf_add(dsf_buf *b, const void *data, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void dsf_buf_str(dsf_buf *b, const char *s) { dsf_buf_add(b, s, strlen(s)); }
void dsf_buf_char(dsf_buf *b, char c) { dsf_buf_add(b, &c, 1); }

void dsf_buf_fmt(dsf_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) return;
    va_start(ap, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void dsf_buf_free(dsf_buf *b)
{
    dsf_mem_free(b->data);
    *b = (dsf_buf){.max = b->max};
}

dsf_status dsf_buf_status(const dsf_buf *b) { return b->status; }

void dsf_json_escape(dsf_buf *b, const char *s, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        dsf_buf_add(b, s + from, i - from);
        from = i + 1;
        switch (c) {
        case '"':
            dsf_buf_str(b, "\\\"");
            break;
        case '\\':
            dsf_buf_str(b, "\\\\");
            break;
        case '\n':
            dsf_buf_str(b, "\\n");
            break;
        case '\r':
            dsf_buf_str(b, "\\r");
            break;
        case '\t':
            dsf_buf_str(b, "\\t");
            break;
        case '\b':
            dsf_buf_str(b, "\\b");
            break;
        case '\f':
            dsf_buf_str(b, "\\f");
            break;
        default:
            dsf_buf_fmt(b, "\\u%04x", c);
        }
    }
    dsf_buf_add(b, s + from, n - from);
}

void dsf_json_quote(dsf_buf *b, const char *s, size_t n)
{
    dsf_buf_char(b, '"');
    dsf_json_escape(b, s, n);
    dsf_buf_char(b, '"');
}

static void lead(dsf_buf *b, const char *key)
{
    if (b->comma) dsf_buf_str(b, ", ");
    b->comma = true;
    if (!key) return;
    dsf_json_quote(b, key, strlen(key));
    dsf_buf_str(b, ": ");
}

void dsf_json_begin(dsf_buf *b, const char *key, char open)
{
    lead(b, key);
    dsf_buf_char(b, open);
    b->comma = false;
}

void dsf_json_end(dsf_buf *b, char close)
{
    dsf_buf_char(b, close);
    b->comma = true;
}

void dsf_json_add_str(dsf_buf *b, const char *key, const char *s, size_t n)
{
    lead(b, key);
    dsf_json_quote(b, s, n);
}

void dsf_json_add_cstr(dsf_buf *b, const char *key, const char *s)
{
    dsf_json_add_str(b, key, s, strlen(s));
}

void dsf_json_add_int(dsf_buf *b, const char *key, int64_t v)
{
    lead(b, key);
    dsf_buf_fmt(b, "%lld", (long long)v);
}

void dsf_json_add_num(dsf_buf *b, const char *key, double v)
{
    lead(b, key);
    if (isfinite(v))
        dsf_buf_fmt(b, "%.9g", v);
    else
        dsf_buf_str(b, "null");
}

void dsf_json_add_bool(dsf_buf *b, const char *key, bool v)
{
    lead(b, key);
    dsf_buf_str(b, v ? "true" : "false");
}

void dsf_json_add_raw(dsf_buf *b, const char *key, const char *json)
{
    lead(b, key);
    dsf_buf_str(b, json);
}
