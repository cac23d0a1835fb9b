#include "base/budget.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static dsf_budget_line *next_line(dsf_budget *b, const char *name, int kind)
{
    /* The last lines gather what a full table has no room for, one of each kind. */
    if (b->n >= DSF_BUDGET_LINES - DSF_BUDGET_KINDS) {
        b->n = DSF_BUDGET_LINES;
        for (int k = 0; k < DSF_BUDGET_KINDS; k++) {
            dsf_budget_line *l = &b->line[DSF_BUDGET_LINES - DSF_BUDGET_KINDS + k];
            (void)snprintf(l->name, sizeof l->name, "more");
            l->kind = k;
            if (!l->phase) l->phase = DSF_PHASE_OPEN;
        }
        return &b->line[DSF_BUDGET_LINES - DSF_BUDGET_KINDS + kind];
    }
    dsf_budget_line *l = &b->line[b->n++];
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    l->bytes = 0;
    l->formula[0] = 0;
    l->kind = kind;
    l->phase = b->phase ? b->phase : DSF_PHASE_OPEN;
    l->absent = false;
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

void dsf_budget_add_absent(dsf_budget *b, int kind, const char *name, const char *why)
{
    dsf_budget_line *l = next_line(b, name, kind);
    (void)snprintf(l->formula, sizeof l->formula, "%s", why);
    l->absent = true;
}

const char *dsf_budget_kind_name(int kind)
{
    static const char *const name[] = {"host", "file", "device", "pinned"};
    return name[kind];
}

const dsf_budget_line *dsf_budget_find(const dsf_budget *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->line[i].name, name) == 0) return &b->line[i];
    return NULL;
}

static bool has(const dsf_budget *b, int kind)
{
    for (int i = 0; i < b->n; i++)
        if (b->line[i].kind == kind) return true;
    return false;
}

void dsf_budget_print(const dsf_budget *b, dsf_buf *out)
{
    static const char *const total[] = {"total anonymous", "total file-backed", "total device",
                                        "total pinned"};
    for (int i = 0; i < b->n; i++) {
        const dsf_budget_line *l = &b->line[i];
        dsf_buf_fmt(out, "%-28s ", l->name);
        if (l->absent)
            dsf_buf_fmt(out, "%18s", "-");
        else
            dsf_buf_fmt(out, "%18lld", (long long)l->bytes);
        dsf_buf_fmt(out, "  %-6s %-13s %s\n", dsf_budget_kind_name(l->kind), l->phase, l->formula);
    }
    for (int k = 0; k < DSF_BUDGET_KINDS; k++)
        if (k <= DSF_BUDGET_FILE || has(b, k)) /* a host's table does not speak of devices */
            dsf_buf_fmt(out, "%-28s %18lld\n", total[k], (long long)dsf_budget_total(b, k));
}

void dsf_budget_json_lines(const dsf_budget *b, const char *key, dsf_buf *out)
{
    dsf_json_begin(out, key, '[');
    for (int i = 0; i < b->n; i++) {
        const dsf_budget_line *l = &b->line[i];
        dsf_json_begin(out, NULL, '{');
        dsf_json_add_cstr(out, "name", l->name);
        dsf_json_add_cstr(out, "kind", dsf_budget_kind_name(l->kind));
        dsf_json_add_int(out, "bytes", l->bytes);
        dsf_json_add_cstr(out, "formula", l->formula);
        dsf_json_add_cstr(out, "phase", l->phase);
        dsf_json_add_bool(out, "absent", l->absent);
        dsf_json_end(out, '}');
    }
    dsf_json_end(out, ']');
}

void dsf_budget_json_members(const dsf_budget *b, dsf_buf *out)
{
    dsf_budget_json_lines(b, "lines", out);
    dsf_json_add_int(out, "anonymous_bytes", dsf_budget_total(b, DSF_BUDGET_HOST));
    dsf_json_add_int(out, "file_backed_bytes", dsf_budget_total(b, DSF_BUDGET_FILE));
    dsf_json_add_int(out, "device_bytes", dsf_budget_total(b, DSF_BUDGET_DEVICE));
    dsf_json_add_int(out, "pinned_bytes", dsf_budget_total(b, DSF_BUDGET_PINNED));
}

void dsf_budget_json(const dsf_budget *b, dsf_buf *out)
{
    dsf_json_begin(out, NULL, '{');
    dsf_budget_json_members(b, out);
    dsf_json_end(out, '}');
}
