/* Named byte totals with the formula that gives them: the table that the memory plan prints. */
#ifndef DSF_BASE_BUDGET_H
#define DSF_BASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct {
    char name[48];
    char formula[160]; /* in the spec's letters, with the numbers put in */
    int64_t bytes;
    int kind;          /* DSF_BUDGET_* */
    const char *phase; /* who owns it: a word of DSF_PHASE_*; never NULL */
    bool absent;       /* not planned: no code decides its bytes; the formula says why */
} dsf_budget_line;

enum {
    DSF_BUDGET_HOST,   /* anonymous memory */
    DSF_BUDGET_FILE,   /* mapped from the checkpoint */
    DSF_BUDGET_DEVICE, /* memory of the CUDA device */
    DSF_BUDGET_PINNED, /* host memory that the device reads and writes */
    DSF_BUDGET_KINDS
};

/* Owner phases. */
#define DSF_PHASE_OPEN          "open"    /* from opening to closing */
#define DSF_PHASE_PREFILL       "prefill" /* the largest pass; a decode batch's rows lie in it too */
#define DSF_PHASE_DRAFT         "draft"
#define DSF_PHASE_GRAPHS        "graphs"
#define DSF_PHASE_STAGING       "staging" /* what travels to the device and back */
#define DSF_PHASE_COMMUNICATION "communication"

enum { DSF_BUDGET_LINES = 64 };

typedef struct {
    dsf_budget_line line[DSF_BUDGET_LINES];
    int n;
    const char *phase; /* of the lines that are added next; NULL: open */
} dsf_budget;

/* Adds a line; when the table is full to "more" lines: totals stay right. */
void dsf_budget_add(dsf_budget *b, const char *name, int64_t bytes, const char *fmt, ...)
    DSF_PRINTF(4, 5);
void dsf_budget_add_file(dsf_budget *b, const char *name, int64_t bytes);
/* The same as dsf_budget_add, of a kind. */
void dsf_budget_add_kind(dsf_budget *b, int kind, const char *name, int64_t bytes, const char *fmt,
                         ...) DSF_PRINTF(5, 6);
/* A line without bytes for what is not planned; the words say why. */
void dsf_budget_add_absent(dsf_budget *b, int kind, const char *name, const char *why);
/* "host", "file", "device", "pinned". */
const char *dsf_budget_kind_name(int kind);
/* NULL when no line has this name. */
const dsf_budget_line *dsf_budget_find(const dsf_budget *b, const char *name);
int64_t dsf_budget_total(const dsf_budget *b, int kind);
void dsf_budget_print(const dsf_budget *b, dsf_buf *out);
void dsf_budget_json(const dsf_budget *b, dsf_buf *out);
/* The lines as an array under this key of an object that is open. */
void dsf_budget_json_lines(const dsf_budget *b, const char *key, dsf_buf *out);
/* The same as "lines", and the totals. */
void dsf_budget_json_members(const dsf_budget *b, dsf_buf *out);

#endif
