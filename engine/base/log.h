/* One log sink, given by the program: lines are `event key=value ...`. Libraries never print. */
#ifndef DSF_BASE_LOG_H
#define DSF_BASE_LOG_H

#include "base/attr.h"

typedef enum { DSF_LOG_ERROR, DSF_LOG_WARN, DSF_LOG_INFO, DSF_LOG_DEBUG } dsf_log_level;

typedef struct {
    void (*line)(void *ud, dsf_log_level level, const char *text); /* NULL: silent */
    void *ud;
    dsf_log_level level; /* lines above it are not made */
} dsf_log;

void dsf_log_line(const dsf_log *log, dsf_log_level level, const char *fmt, ...) DSF_PRINTF(3, 4);

#endif
