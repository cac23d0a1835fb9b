#include "base/budget.h"

#include <stdarg.h>
#include <stdio.h>

static dsf_budget_line *next_line(dsf_budget *b, const char *name, int file_backed)
{
    /* The last two lines gather what a full table has no room for, one of each kind. */
    if (b->n >= DSF_BUDGET_LINES - 2) {
        dsf_budget_line *more = &b->line[DSF_BUDGET_LINES - 2 + (file_backed != 0)];
        b->n = DSF_BUDGET_LINES;
        for (int kind = 0; kind < 2; kind++) {
            dsf_budget_line *l = &b->line[DSF_BUDGET_LINES - 2 + kind];
            (void)snprintf(l->name, sizeof l->name, "more");
            l->file_backed = kind;
        }
        return more;
    }
    dsf_budget_line *l = &b->line[b->n++];
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    l->bytes = 0;
    l->formula[0] = 0;
    l->file_backed = file_backed;
    return l;
}

void dsf_budget_add(dsf_budget *b, const char *name, int64_t bytes, const char *fmt, ...)
{
    dsf_budget_line *l = next_line(b, name, 0);
    l->bytes += bytes;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(l->formula, sizeof l->formula, fmt, ap);
    va_end(ap);
}

void dsf_budget_add_file(dsf_budget *b, const char *name, int64_t bytes)
{
    dsf_budget_line *l = next_line(b, name, 1);
    l->bytes += bytes;
    (void)snprintf(l->formula, sizeof l->formula, "mapped read-only from the checkpoint");
}

int64_t dsf_budget_total(const dsf_budget *b, int file_backed)
{
    int64_t sum = 0;
    for (int i = 0; i < b->n; i++)
        if (b->line[i].file_backed == file_backed) sum += b->line[i].bytes;
    return sum;
}

void dsf_budget_print(const dsf_budget *b, dsf_buf *out)
{
    for (int i = 0; i < b->n; i++)
        dsf_buf_fmt(out, "%-24s %18lld  %s\n", b->line[i].name, (long long)b->line[i].bytes,
                    b->line[i].formula);
    dsf_buf_fmt(out, "%-24s %18lld\n%-24s %18lld\n", "total anonymous",
                (long long)dsf_budget_total(b, 0), "total file-backed",
                (long long)dsf_budget_total(b, 1));
}

void dsf_budget_json(const dsf_budget *b, dsf_buf *out)
{
    dsf_json_begin(out, NULL, '{');
    dsf_json_begin(out, "lines", '[');
    for (int i = 0; i < b->n; i++) {
        dsf_json_begin(out, NULL, '{');
        dsf_json_add_cstr(out, "name", b->line[i].name);
        dsf_json_add_int(out, "bytes", b->line[i].bytes);
        dsf_json_add_cstr(out, "formula", b->line[i].formula);
        dsf_json_add_bool(out, "file_backed", b->line[i].file_backed);
        dsf_json_end(out, '}');
    }
    dsf_json_end(out, ']');
    dsf_json_add_int(out, "anonymous_bytes", dsf_budget_total(b, 0));
    dsf_json_add_int(out, "file_backed_bytes", dsf_budget_total(b, 1));
    dsf_json_end(out, '}');
}
