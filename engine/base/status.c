#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1536, RECORD_BYTES = 4096 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char record[RECORD_BYTES];

const char *dsf_status_text(dsf_status st)
{
    static const char *const text[] = {
#define X(name, words) words,
        DSF_STATUS_MAP(X)
#undef X
    };
    return (unsigned)st < sizeof text / sizeof text[0] ? text[st] : "unknown status";
}

static const char *base_name(const char *where)
{
    const char *slash = strrchr(where, '/');
    return slash ? slash + 1 : where;
}

dsf_status dsf_error_raise(dsf_status st, const char *where, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    (void)snprintf(record, sizeof record, "%s: %s: %s", base_name(where), dsf_status_text(st),
                   message);
    return st;
}

dsf_status dsf_error_pass(dsf_status st, const char *where)
{
    size_t used = strlen(record);
    (void)snprintf(record + used, sizeof record - used, "\n  from %s", base_name(where));
    return st;
}

const char *dsf_error_text(void) { return record; }
const char *dsf_error_message(void) { return message; }
