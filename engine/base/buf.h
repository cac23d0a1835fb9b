/* A growing byte string with a stated maximum, and JSON output into it. */
#ifndef DSF_BASE_BUF_H
#define DSF_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Zero-initialise, set max (0 = 1 GiB). data is NUL-terminated once anything was added.
 * Errors stick: after the first failure every add is a no-op and dsf_buf_status tells it. */
typedef struct {
    char *data;
    size_t len, cap, max;
    dsf_status status;
    bool comma; /* JSON: a value was written at this level */
} dsf_buf;

void dsf_buf_add(dsf_buf *b, const void *data, size_t n);
void dsf_buf_str(dsf_buf *b, const char *s);
void dsf_buf_char(dsf_buf *b, char c);
void dsf_buf_fmt(dsf_buf *b, const char *fmt, ...) DSF_PRINTF(2, 3);
void dsf_buf_free(dsf_buf *b);
/* The sticky status; the caller of many adds checks it once. */
DSF_MUST dsf_status dsf_buf_status(const dsf_buf *b);

/* JSON. Keys are given with begin/value calls; NULL inside arrays. Commas are automatic.
 * Numbers that are not finite are written as null. */
void dsf_json_begin(dsf_buf *b, const char *key, char open); /* open: '{' or '[' */
void dsf_json_end(dsf_buf *b, char close);
void dsf_json_add_str(dsf_buf *b, const char *key, const char *s, size_t n);
void dsf_json_add_cstr(dsf_buf *b, const char *key, const char *s);
void dsf_json_add_int(dsf_buf *b, const char *key, int64_t v);
void dsf_json_add_num(dsf_buf *b, const char *key, double v);
void dsf_json_add_bool(dsf_buf *b, const char *key, bool v);
void dsf_json_add_raw(dsf_buf *b, const char *key, const char *json);
/* Only the quoted, escaped string: control characters escaped, everything else as it is. */
void dsf_json_quote(dsf_buf *b, const char *s, size_t n);
/* The same without the quotes, for strings written in pieces. */
void dsf_json_escape(dsf_buf *b, const char *s, size_t n);

#endif
