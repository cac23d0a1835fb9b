#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void dsf_log_line(const dsf_log *log, dsf_log_level level, const char *fmt, ...)
{
    if (!log || !log->line || level > log->level) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log->line(log->ud, level, text);
}
