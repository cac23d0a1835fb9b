/* Reference data beside the checkout, for the tests of engine/text: found by DSF_SHARED, skipped by
 * name where it is absent. */
#ifndef DSF_VERIFY_UNIT_TEXTDATA_H
#define DSF_VERIFY_UNIT_TEXTDATA_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "config.h"
#include "text/bpe.h"

#ifndef DSF_SOURCE_ROOT
#define DSF_SOURCE_ROOT "."
#endif

/* Path of a file under the shared folder; the test is skipped when it is not there. */
static inline const char *data_path(const char *rest)
{
    static char path[4][4096];
    static int turn;
    char *out = path[turn++ & 3];
    const char *root = DSF_SHARED[0] == '/' ? "" : DSF_SOURCE_ROOT "/";
    (void)snprintf(out, sizeof path[0], "%s%s/%s", root, DSF_SHARED, rest);
    if (!dsf_file_exists(out)) cr_skip_test("%s: not here", rest);
    return out;
}

static inline dsf_buf data_read(const char *path)
{
    dsf_file f;
    dsf_buf b = {0};
    cr_assert_eq(dsf_file_open(&f, path), DSF_OK, "%s", dsf_error_text());
    dsf_buf_add(&b, f.data ? (const char *)f.data : "", f.size);
    dsf_file_close(&f);
    return b;
}

/* Content of a .gz file, by gzip. */
static inline dsf_buf data_read_gz(const char *path)
{
    char command[4200], chunk[65536];
    dsf_buf b = {0};
    size_t n;
    (void)snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    while ((n = fread(chunk, 1, sizeof chunk, pipe)) > 0) dsf_buf_add(&b, chunk, n);
    cr_assert_eq(pclose(pipe), 0, "%s", command);
    return b;
}

static inline dsf_json_doc *data_json(const char *text, size_t n)
{
    dsf_json_doc *doc = NULL;
    cr_assert_eq(dsf_json_parse(&doc, "data", text, n), DSF_OK, "%s", dsf_error_text());
    return doc;
}

/* The tokenizer that gives the released one's ids. */
static inline dsf_bpe *data_tokenizer(void)
{
    dsf_bpe *b = NULL;
    dsf_buf t = data_read_gz(data_path("reference/tokenizer/tokenizer.v41-equivalent.json.gz"));
    cr_assert_eq(dsf_bpe_parse(&b, "tokenizer.json", t.data, t.len), DSF_OK, "%s",
                 dsf_error_text());
    dsf_buf_free(&t);
    return b;
}

typedef void data_row_fn(const dsf_json *row, void *ud);

/* Every line of a JSON Lines file; returns their number. */
static inline int data_rows(const char *path, data_row_fn *fn, void *ud)
{
    int n = 0;
    dsf_buf all = data_read(path);
    for (char *at = all.data, *end = at + all.len; at < end; n++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        dsf_json_doc *doc = data_json(at, (size_t)(stop - at));
        fn(dsf_json_root(doc), ud);
        dsf_json_free(doc);
        at = stop + 1;
    }
    dsf_buf_free(&all);
    return n;
}

static inline dsf_buf data_text(const dsf_json *v)
{
    dsf_buf b = {0};
    dsf_buf_str(&b, "");
    if (v) dsf_json_add_text(&b, v);
    return b;
}

static inline dsf_ids data_ids(const dsf_json *list)
{
    dsf_ids ids = {0};
    for (const dsf_json *v = dsf_json_first(list); v; v = dsf_json_next(v)) {
        int64_t id = -1;
        cr_assert_eq(dsf_json_int(v, &id), DSF_OK);
        int32_t one = (int32_t)id;
        cr_assert_eq(dsf_ids_add(&ids, &one, 1), DSF_OK);
    }
    return ids;
}

static inline bool same_ids(const dsf_ids *a, const dsf_ids *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->id, b->id, a->n * sizeof *a->id) == 0);
}

static inline bool same_text(const dsf_buf *a, const dsf_buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static inline const char *row_name(const dsf_json *row)
{
    return dsf_json_text(dsf_json_get(row, "name"), NULL);
}

/* name is in a NULL-terminated list. */
static inline bool is_listed(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

#endif
