#include "base/budget.h"

#include <stdarg.h>
#include <stdio.h>

static dsf_budget_line *next_line(dsf_budget *b, const char *name, int kind)
{
    /* The last lines gather what a full table has no room for, one of each kind. */
    if (b->n >= DSF_BUDGET_LINES - DSF_BUDGET_KINDS) {
        b->n = DSF_BUDGET_LINES;
        for (int k = 0; k < DSF_BUDGET_KINDS; k++) {
            dsf_budget_line *l = &b->line[DSF_BUDGET_LINES - DSF_BUDGET_KINDS + k];
            (void)snprintf(l->name, sizeof l->name, "more");
            l->kind = k;
        }
        return &b->line[DSF_BUDGET_LINES - DSF_BUDGET_KINDS + kind];
    }
    dsf_budget_line *l = &b->line[b->n++];
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    l->bytes = 0;
    l->formula[0] = 0;
    l->kind = kind;
    return l;
}

static void add(dsf_budget *b, int kind, const char *name, int64_t bytes, const char *fmt,
                va_list ap)
{
    dsf_budget_line *l = next_line(b, name, kind);
    l->bytes += bytes;
    (void)vsnprintf(l->formula, sizeof l->formula, fmt, ap);
}

void dsf_budget_add(dsf_budget *b, const char *name, int64_t bytes, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(b, DSF_BUDGET_HOST, name, bytes, fmt, ap);
    va_end(ap);
}

void dsf_budget_add_kind(dsf_budget *b, int kind, const char *name, int64_t bytes, const char *fmt,
                         ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(b, kind, name, bytes, fmt, ap);
    va_end(ap);
}

void dsf_budget_add_file(dsf_budget *b, const char *name, int64_t bytes)
{
    dsf_budget_add_kind(b, DSF_BUDGET_FILE, name, bytes, "mapped read-only from the checkpoint");
}

int64_t dsf_budget_total(const dsf_budget *b, int kind)
{
    int64_t sum = 0;
    for (int i = 0; i < b->n; i++)
        if (b->line[i].kind == kind) sum += b->line[i].bytes;
    return sum;
}

/* A host's table does not speak of devices. */
static int has_device(const dsf_budget *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->line[i].kind == DSF_BUDGET_DEVICE) return 1;
    return 0;
}

void dsf_budget_print(const dsf_budget *b, dsf_buf *out)
{
    static const char *const total[] = {"total anonymous", "total file-backed", "total device"};
    int device = has_device(b);
    for (int i = 0; i < b->n; i++)
        dsf_buf_fmt(out, "%-24s %18lld  %s%s\n", b->line[i].name, (long long)b->line[i].bytes,
                    device && b->line[i].kind == DSF_BUDGET_DEVICE ? "device: " : "",
                    b->line[i].formula);
    for (int k = 0; k < (device ? 3 : 2); k++)
        dsf_buf_fmt(out, "%-24s %18lld\n", total[k], (long long)dsf_budget_total(b, k));
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
        dsf_json_add_bool(out, "file_backed", b->line[i].kind == DSF_BUDGET_FILE);
        dsf_json_add_bool(out, "device", b->line[i].kind == DSF_BUDGET_DEVICE);
        dsf_json_end(out, '}');
    }
    dsf_json_end(out, ']');
    dsf_json_add_int(out, "anonymous_bytes", dsf_budget_total(b, 0));
    dsf_json_add_int(out, "file_backed_bytes", dsf_budget_total(b, DSF_BUDGET_FILE));
    dsf_json_add_int(out, "device_bytes", dsf_budget_total(b, DSF_BUDGET_DEVICE));
    dsf_json_end(out, '}');
}
