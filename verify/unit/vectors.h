/* The publisher's primitive vectors, read from the shared data; skipped by name where it is not. */
#ifndef DSF_UNIT_VECTORS_H
#define DSF_UNIT_VECTORS_H

#include "textdata.h"

static inline dsf_json_doc *vectors_open(void)
{
    dsf_buf text = data_read(data_path("reference/primitive_vectors.json"));
    dsf_json_doc *doc = data_json(text.data, text.len);
    dsf_buf_free(&text);
    return doc;
}

static inline const dsf_json *vector(const dsf_json_doc *doc, const char *name)
{
    const dsf_json *v = dsf_json_get(dsf_json_root(doc), name);
    cr_assert_not_null(v, "no vector %s", name);
    return v;
}

static inline double number(const dsf_json *v)
{
    double d = 0;
    cr_assert_eq(dsf_json_double(v, &d), DSF_OK, "%s", dsf_error_text());
    return d;
}

/* Numbers of an array, arrays within it laid out one after the other; returns how many. */
static inline int floats(const dsf_json *v, float *out, int room)
{
    int n = 0;
    cr_assert_not_null(v);
    for (const dsf_json *e = dsf_json_first(v); e; e = dsf_json_next(e)) {
        if (dsf_json_kind_of(e) == DSF_JSON_ARRAY) {
            n += floats(e, out + n, room - n);
        } else {
            cr_assert_lt(n, room);
            out[n++] = (float)number(e);
        }
    }
    return n;
}

static inline int bytes_of_numbers(const dsf_json *v, uint8_t *out, int room)
{
    int n = 0;
    cr_assert_not_null(v);
    for (const dsf_json *e = dsf_json_first(v); e; e = dsf_json_next(e)) {
        cr_assert_lt(n, room);
        out[n++] = (uint8_t)number(e);
    }
    return n;
}

/* An array of four hex digits each. */
static inline int halves(const dsf_json *v, uint16_t *out, int room)
{
    int n = 0;
    cr_assert_not_null(v);
    for (const dsf_json *e = dsf_json_first(v); e; e = dsf_json_next(e)) {
        cr_assert_lt(n, room);
        out[n++] = (uint16_t)strtoul(dsf_json_text(e, NULL), NULL, 16);
    }
    return n;
}

/* One string of hex digits, two a byte. */
static inline int bytes_of_hex(const dsf_json *v, uint8_t *out, int room)
{
    size_t digits = 0;
    const char *text = dsf_json_text(v, &digits);
    cr_assert_leq(digits / 2, (size_t)room);
    for (size_t i = 0; i < digits / 2; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return (int)(digits / 2);
}

#endif
