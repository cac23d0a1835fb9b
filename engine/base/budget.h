/* Named byte totals with the formula that gives them: the table that the memory plan prints. */
#ifndef DSF_BASE_BUDGET_H
#define DSF_BASE_BUDGET_H

#include <stdint.h>

#include "base/buf.h"

typedef struct {
    char name[48];
    char formula[96]; /* in the spec's letters, with the numbers put in */
    int64_t bytes;
    int kind; /* DSF_BUDGET_* */
} dsf_budget_line;

enum {
    DSF_BUDGET_HOST,   /* anonymous memory */
    DSF_BUDGET_FILE,   /* mapped from the checkpoint */
    DSF_BUDGET_DEVICE, /* memory of the CUDA device */
    DSF_BUDGET_KINDS
};

enum { DSF_BUDGET_LINES = 64 };

typedef struct {
    dsf_budget_line line[DSF_BUDGET_LINES];
    int n;
} dsf_budget;

/* Adds a line; when the table is full to "more" lines: totals stay right. */
void dsf_budget_add(dsf_budget *b, const char *name, int64_t bytes, const char *fmt, ...)
    DSF_PRINTF(4, 5);
void dsf_budget_add_file(dsf_budget *b, const char *name, int64_t bytes);
/* The same as dsf_budget_add, of a kind. */
void dsf_budget_add_kind(dsf_budget *b, int kind, const char *name, int64_t bytes, const char *fmt,
                         ...) DSF_PRINTF(5, 6);
int64_t dsf_budget_total(const dsf_budget *b, int kind);
void dsf_budget_print(const dsf_budget *b, dsf_buf *out);
void dsf_budget_json(const dsf_budget *b, dsf_buf *out);

#endif
