/* The compact <image>path</image> notation (encoding.md 2.9). */
#include <string.h>

#include "text/chat.h"

#define OPEN  "<image>"
#define CLOSE "</image>"

static const char *find(const char *s, const char *end, const char *what)
{
    return memmem(s, (size_t)(end - s), what, strlen(what));
}

static dsf_status fail(dsf_chat_error *error, dsf_chat_error kind, size_t at, const char *what)
{
    *error = kind;
    return DSF_FAIL(DSF_ECORRUPT, "text: byte %zu: %s", at, what);
}

static void add_text(dsf_buf *out, const char *s, const char *end)
{
    if (s == end) return;
    dsf_json_begin(out, NULL, '{');
    dsf_json_add_cstr(out, "type", "text");
    dsf_json_add_str(out, "text", s, (size_t)(end - s));
    dsf_json_end(out, '}');
}

static void add_image(dsf_buf *out, const char *path, const char *end)
{
    dsf_json_begin(out, NULL, '{');
    dsf_json_add_cstr(out, "type", "image_url");
    dsf_json_begin(out, "image_url", '{');
    dsf_json_add_str(out, "url", path, (size_t)(end - path));
    dsf_json_end(out, '}');
    dsf_json_end(out, '}');
}

dsf_status dsf_chat_tagged_text(const char *text, size_t n, dsf_buf *out, dsf_chat_error *error)
{
    const char *s = text, *end = text + n, *open = find(s, end, OPEN), *close = find(s, end, CLOSE);
    *error = DSF_CHAT_NONE;
    if (!open && !close) {
        dsf_json_quote(out, text, n);
        return dsf_buf_status(out);
    }
    dsf_json_begin(out, NULL, '[');
    for (; open || close; open = find(s, end, OPEN), close = find(s, end, CLOSE)) {
        if (!open || (close && close < open))
            return fail(error, DSF_CHAT_BAD_IMAGE_TAG, (size_t)(close - text),
                        CLOSE " without " OPEN);
        const char *path = open + strlen(OPEN), *next = find(path, end, OPEN);
        if (!close || (next && next < close))
            return fail(error, DSF_CHAT_BAD_IMAGE_TAG, (size_t)(open - text),
                        OPEN " is not closed");
        if (path == close)
            return fail(error, DSF_CHAT_EMPTY_IMAGE_PATH, (size_t)(open - text), "no path");
        add_text(out, s, open);
        add_image(out, path, close);
        s = close + strlen(CLOSE);
    }
    add_text(out, s, end);
    dsf_json_end(out, ']');
    return dsf_buf_status(out);
}
