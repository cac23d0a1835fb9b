/* Lines of measurements as a table for other programs: Markdown, CSV, SQL as llama-bench prints it,
 * and the columns of ds4-bench. One row a line, one list of columns for all kinds. */
#ifndef DSF_BENCH_FORMAT_H
#define DSF_BENCH_FORMAT_H

#include "base/buf.h"

typedef enum {
    DSF_FORMAT_TABLE, /* text as it comes */
    DSF_FORMAT_JSON,
    DSF_FORMAT_MD,
    DSF_FORMAT_CSV,
    DSF_FORMAT_SQL,
    DSF_FORMAT_DS4
} dsf_format;

/* EINVAL: no such word. */
DSF_MUST dsf_status dsf_format_parse(const char *word, dsf_format *out);
/* lines: JSON lines as they were emitted. MD leaves out columns that no row has; DS4 takes decode
 * rows of one sequence only, and EINVAL says when there is none. */
DSF_MUST dsf_status dsf_format_rows(const dsf_buf *lines, dsf_format format, dsf_buf *out);

#endif
