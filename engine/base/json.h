/* JSON input: cJSON's structure behind exact accessors. What cJSON would lose is kept: numbers stay
 * as their text, strings keep "\u0000", duplicate keys stay visible, trailing text is refused. */
#ifndef DSF_BASE_JSON_H
#define DSF_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct dsf_json_doc dsf_json_doc; /* owns every value of one document */
typedef struct dsf_json dsf_json;         /* one value; lives as long as its document */

typedef enum {
    DSF_JSON_NULL,
    DSF_JSON_BOOL,
    DSF_JSON_NUMBER,
    DSF_JSON_STRING,
    DSF_JSON_ARRAY,
    DSF_JSON_OBJECT
} dsf_json_kind;

/* Parses n bytes of UTF-8. `name` (a path, say) opens every message, with the byte offset.
 * ECORRUPT: not UTF-8, not JSON, trailing text, deeper than 512. Lone surrogates become U+FFFD. */
DSF_MUST dsf_status dsf_json_parse(dsf_json_doc **out, const char *name, const char *text,
                                   size_t n);
void dsf_json_free(dsf_json_doc *doc); /* NULL is fine */
const dsf_json *dsf_json_root(const dsf_json_doc *doc);

dsf_json_kind dsf_json_kind_of(const dsf_json *v);
const char *dsf_json_kind_name(dsf_json_kind k);
/* Children in order; NULL at the end. Fine on scalars (no children). */
const dsf_json *dsf_json_first(const dsf_json *v);
const dsf_json *dsf_json_next(const dsf_json *v);
size_t dsf_json_count(const dsf_json *v);
/* Key of an object's member (NUL-terminated; a NUL inside the key is kept as C0 80). */
const char *dsf_json_key(const dsf_json *v);
/* First member with that key, or NULL. Linear. */
const dsf_json *dsf_json_get(const dsf_json *obj, const char *key);
/* A key that occurs twice in this object, or NULL. */
const char *dsf_json_duplicate(const dsf_json *obj);

/* Text of a string, or the literal of a number as written; "" else. NUL-terminated; n may be NULL.
 * The characters U+0000 and U+0001 read as C0 80 and C0 81: where they may occur use add_text. */
const char *dsf_json_text(const dsf_json *v, size_t *n);
/* Appends the exact text of a string, whatever characters it holds. */
void dsf_json_add_text(dsf_buf *b, const dsf_json *v);
/* The same for the key of an object's member. */
void dsf_json_add_key(dsf_buf *b, const dsf_json *v);
bool dsf_json_true(const dsf_json *v);
/* Exact: EINVAL unless the literal is an integer (no fraction, no exponent) that fits. */
DSF_MUST dsf_status dsf_json_int(const dsf_json *v, int64_t *out);
/* EINVAL unless a finite number. */
DSF_MUST dsf_status dsf_json_double(const dsf_json *v, double *out);

#endif
