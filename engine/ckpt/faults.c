#include "ckpt/faults.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 512, SHOWN_BYTES = 1200 }; /* the error record holds 1536 bytes */

void dsf_faults_add(dsf_faults *f, const char *fmt, ...)
{
    char line[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    f->n++;
    dsf_buf_str(&f->text, line);
    dsf_buf_char(&f->text, '\n');
}

dsf_status dsf_faults_status(const dsf_faults *f, dsf_status st, const char *name)
{
    if (!f->n) return DSF_OK;
    DSF_TRY(dsf_buf_status(&f->text));
    const char *s = f->text.data;
    size_t n = f->text.len - 1; /* without the last newline */
    if (f->n == 1) return DSF_FAIL(st, "%s: %.*s", name, (int)n, s);
    if (n <= SHOWN_BYTES)
        return DSF_FAIL(st, "%s: %lld faults:\n%.*s", name, (long long)f->n, (int)n, s);
    int64_t shown = 0;
    for (size_t i = 0; i < SHOWN_BYTES; i++) {
        if (s[i] != '\n') continue;
        n = i;
        shown++;
    }
    return DSF_FAIL(st, "%s: %lld faults:\n%.*s\nand %lld more", name, (long long)f->n, (int)n, s,
                    (long long)(f->n - shown));
}

void dsf_faults_free(dsf_faults *f)
{
    dsf_buf_free(&f->text);
    f->n = 0;
}
