#include "format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

typedef struct {
    const char *name;
    bool number;
    const char *key[3]; /* where lines have it: "a.b" is a member of an object; the first that is
                           there */
} column;

/* Times in nanoseconds, whatever unit a line has. */
static const column columns[] = {
    {"bench", false, {"bench"}},
    {"commit", false, {"commit"}},
    {"machine", false, {"machine"}},
    {"threads", true, {"threads"}},
    {"driver", false, {"driver", "device.driver"}},
    {"clock_mhz", true, {"clock_mhz", "device.sm_mhz"}},
    {"model", false, {"model", "layer_list"}},
    {"weights", false, {"weights"}},
    {"acceptance", true, {"acceptance"}},
    {"op", false, {"op"}},
    {"use", false, {"use"}},
    {"variant", false, {"variant"}},
    {"shape", false, {"shape"}},
    {"mode", false, {"prefill"}},
    {"graphs", false, {"graphs"}},
    {"chunk", true, {"chunk"}},
    {"batch", true, {"batch"}},
    {"context", true, {"context"}},
    {"tokens", true, {"tokens"}},
    {"median_ns", true, {"median_ns"}},
    {"low_ns", true, {"interval.0"}},
    {"high_ns", true, {"interval.1"}},
    {"sd_ns", true, {"sd"}},
    {"cv_percent", true, {"cv_percent"}},
    {"min_ns", true, {"min"}},
    {"max_ns", true, {"max"}},
    {"tokens_per_s", true, {"tokens_per_s"}},
    {"bytes_per_s", true, {"bytes_per_s"}},
    {"percent_of_measured", true, {"percent.median", "percent", "percent_at_copy_rate"}},
    {"percent_of_physical", true, {"percent_of_physical", "percent_of_speed_of_light"}},
    {"warmups", true, {"warmups"}},
    {"settled", false, {"settled"}},
    {"noisy", false, {"noisy"}},
    {"output_hash", false, {"output_hash"}},
    {"refused", false, {"refused"}},
};
enum { COLUMNS = sizeof columns / sizeof *columns, MOST_LINES = 4096 };

dsf_status dsf_format_parse(const char *word, dsf_format *out)
{
    static const char *const words[] = {"table", "json", "md", "csv", "sql", "ds4"};
    for (int i = 0; i < 6; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (dsf_format)i;
            return DSF_OK;
        }
    return DSF_FAIL(DSF_EINVAL, "--format %s: table, json, md, csv, sql or ds4", word);
}

/* The value at "a", "a.b" or "a.0"; NULL: not there, null, or an object. */
static const dsf_json *at(const dsf_json *line, const char *path)
{
    char first[64];
    const char *dot = strchr(path, '.');
    if (!dot) {
        const dsf_json *v = dsf_json_get(line, path);
        bool scalar = v && dsf_json_kind_of(v) != DSF_JSON_NULL &&
                      dsf_json_kind_of(v) != DSF_JSON_OBJECT &&
                      dsf_json_kind_of(v) != DSF_JSON_ARRAY;
        return scalar ? v : NULL;
    }
    (void)snprintf(first, sizeof first, "%.*s", (int)(dot - path), path);
    const dsf_json *v = dsf_json_get(line, first);
    if (!v) return NULL;
    if (dsf_json_kind_of(v) == DSF_JSON_OBJECT) return at(v, dot + 1);
    if (dsf_json_kind_of(v) != DSF_JSON_ARRAY) return NULL;
    v = dsf_json_first(v);
    for (int i = dot[1] - '0'; i > 0 && v; i--) v = dsf_json_next(v);
    return v && dsf_json_kind_of(v) == DSF_JSON_NUMBER ? v : NULL;
}

static const dsf_json *value(const dsf_json *line, const column *c)
{
    const dsf_json *v = NULL;
    for (int i = 0; i < 3 && c->key[i] && !v; i++) v = at(line, c->key[i]);
    return v;
}

static const char *text(const dsf_json *v)
{
    if (dsf_json_kind_of(v) == DSF_JSON_BOOL) return dsf_json_true(v) ? "true" : "false";
    return dsf_json_text(v, NULL);
}

/* --- one writer a format: a cell, and what stands around rows --- */

static void quote(dsf_buf *out, const char *s, char mark)
{
    dsf_buf_char(out, mark);
    for (; *s; s++) {
        if (*s == mark) dsf_buf_char(out, mark);
        dsf_buf_char(out, *s);
    }
    dsf_buf_char(out, mark);
}

static void csv_cell(dsf_buf *out, const dsf_json *v)
{
    if (v && strpbrk(text(v), ",\"\r\n"))
        quote(out, text(v), '"');
    else if (v)
        dsf_buf_str(out, text(v));
}

static void sql_cell(dsf_buf *out, const dsf_json *v, const column *c)
{
    if (!v)
        dsf_buf_str(out, "NULL");
    else if (c->number)
        dsf_buf_str(out, text(v));
    else
        quote(out, text(v), '\'');
}

static void md_cell(dsf_buf *out, const dsf_json *v)
{
    for (const char *s = v ? text(v) : ""; *s; s++) {
        if (*s == '|') dsf_buf_char(out, '\\');
        if (*s == '\n')
            dsf_buf_char(out, ' ');
        else
            dsf_buf_char(out, *s);
    }
}

static void write_csv(dsf_json_doc *const *doc, int n, dsf_buf *out)
{
    for (int k = 0; k < COLUMNS; k++) dsf_buf_fmt(out, k ? ",%s" : "%s", columns[k].name);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < COLUMNS; k++) {
            dsf_buf_char(out, k ? ',' : '\n');
            csv_cell(out, value(dsf_json_root(doc[i]), &columns[k]));
        }
    dsf_buf_char(out, '\n');
}

static void write_sql(dsf_json_doc *const *doc, int n, dsf_buf *out)
{
    dsf_buf_str(out, "CREATE TABLE IF NOT EXISTS dsf_bench (\n");
    for (int k = 0; k < COLUMNS; k++)
        dsf_buf_fmt(out, "  \"%s\" %s%s\n", columns[k].name, columns[k].number ? "REAL" : "TEXT",
                    k + 1 < COLUMNS ? "," : "");
    dsf_buf_str(out, ");\n");
    for (int i = 0; i < n; i++) {
        dsf_buf_str(out, "INSERT INTO dsf_bench (");
        for (int k = 0; k < COLUMNS; k++)
            dsf_buf_fmt(out, k ? ", \"%s\"" : "\"%s\"", columns[k].name);
        dsf_buf_str(out, ") VALUES (");
        for (int k = 0; k < COLUMNS; k++) {
            if (k) dsf_buf_str(out, ", ");
            sql_cell(out, value(dsf_json_root(doc[i]), &columns[k]), &columns[k]);
        }
        dsf_buf_str(out, ");\n");
    }
}

static bool has(dsf_json_doc *const *doc, int n, const column *c)
{
    for (int i = 0; i < n; i++)
        if (value(dsf_json_root(doc[i]), c)) return true;
    return false;
}

static void write_md(dsf_json_doc *const *doc, int n, dsf_buf *out)
{
    bool shown[COLUMNS];
    for (int k = 0; k < COLUMNS; k++) shown[k] = has(doc, n, &columns[k]);
    for (int i = -2; i < n; i++) { /* heading, its line, rows */
        for (int k = 0; k < COLUMNS; k++) {
            if (!shown[k]) continue;
            dsf_buf_str(out, "| ");
            if (i == -2) dsf_buf_str(out, columns[k].name);
            if (i == -1) dsf_buf_str(out, columns[k].number ? "---:" : "---");
            if (i >= 0) md_cell(out, value(dsf_json_root(doc[i]), &columns[k]));
            dsf_buf_char(out, ' ');
        }
        dsf_buf_str(out, "|\n");
    }
}

static double number(const dsf_json *line, const char *key)
{
    double x = NAN;
    const dsf_json *v = at(line, key);
    return v && dsf_json_double(v, &x) == DSF_OK ? x : NAN;
}

static dsf_status write_ds4(dsf_json_doc *const *doc, int n, dsf_buf *out)
{
    int rows = 0;
    dsf_buf_str(out, "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes\n");
    for (int i = 0; i < n; i++) {
        const dsf_json *line = dsf_json_root(doc[i]);
        if (isnan(number(line, "prefill_tokens_per_s"))) continue;
        dsf_buf_fmt(out, "%.0f,%.0f,%.2f,%.0f,%.2f,%.0f\n", number(line, "context"),
                    number(line, "prefill_tokens"), number(line, "prefill_tokens_per_s"),
                    number(line, "tokens"), number(line, "tokens_per_s"),
                    number(line, "cache_bytes"));
        rows++;
    }
    if (rows) return DSF_OK;
    return DSF_FAIL(DSF_EINVAL, "--format ds4: no row of `decode` with a batch of 1");
}

static dsf_status write_rows(dsf_json_doc *const *doc, int n, dsf_format format, dsf_buf *out)
{
    if (format == DSF_FORMAT_DS4) return write_ds4(doc, n, out);
    if (format == DSF_FORMAT_MD) write_md(doc, n, out);
    if (format == DSF_FORMAT_CSV) write_csv(doc, n, out);
    if (format == DSF_FORMAT_SQL) write_sql(doc, n, out);
    return DSF_OK;
}

static dsf_status parse(const dsf_buf *lines, dsf_json_doc **doc, int *n)
{
    const char *text_end = lines->data ? lines->data + lines->len : NULL;
    for (const char *p = lines->data; p && p < text_end;) {
        const char *end = memchr(p, '\n', (size_t)(text_end - p));
        size_t len = (size_t)((end ? end : text_end) - p);
        if (*n == MOST_LINES) return DSF_FAIL(DSF_EINVAL, "more than %d lines", MOST_LINES);
        if (len) DSF_TRY(dsf_json_parse(&doc[(*n)++], "measurement", p, len));
        p += len + 1;
    }
    return DSF_OK;
}

dsf_status dsf_format_rows(const dsf_buf *lines, dsf_format format, dsf_buf *out)
{
    dsf_json_doc **doc = NULL;
    int n = 0;
    DSF_TRY(dsf_mem_new(&doc, MOST_LINES, sizeof(dsf_json_doc *)));
    dsf_status st = parse(lines, doc, &n);
    if (st == DSF_OK) st = write_rows(doc, n, format, out);
    for (int i = 0; i < MOST_LINES; i++) dsf_json_free(doc[i]);
    dsf_mem_free(doc);
    return st == DSF_OK ? dsf_buf_status(out) : st;
}
