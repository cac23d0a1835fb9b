/* `dsf reduce -- COMMAND`: the smallest candidate under which a command still fails, every try on
 * record. */
#ifndef DSF_REDUCE_H
#define DSF_REDUCE_H

#include "verify/reduce/command.h"
#include "verify/reduce/search.h"

typedef struct {
    char *const *argv; /* [n] the command, with placeholders */
    int n;
    dsf_candidate start; /* lent */
    int32_t filler;
    const char *model;      /* what {model} is cut from */
    const char *record;     /* file of the tries; NULL: none */
    bool resume;            /* go on from it */
    int repeat;             /* runs of one candidate: it fails when any of them does; 0: 1 */
    int64_t most_tests;     /* 0: no bound */
    double limit;           /* seconds of one run */
    const char *ids_name;   /* what the command is shown with in place of {ids}; NULL: {ids} */
    int fails[16], n_fails; /* as dsf_command; none: 1 */
    bool (*stop)(void);
    void (*progress)(const dsf_candidate *best, unsigned axes, int64_t tests);
} dsf_reduce_options;

typedef struct {
    dsf_search_result found;
    dsf_candidate start; /* as the search began: all layers where none were said; ids lent */
    unsigned axes;
    bool flaky;       /* the result failed, and then did not */
    double seconds;   /* of all tries */
    int last_exit;    /* of the last run of the start or of the best */
    char says[256];   /* last line of the output of the last run that failed */
    char cannot[256]; /* the same of the last run that gave no answer */
    dsf_buf command;  /* filled with the result, quoted for a shell */
} dsf_reduce_report;

/* EINVAL: no placeholder, or one without its start value (named). Free the report in any case. */
DSF_MUST dsf_status dsf_reduce_run(const dsf_reduce_options *o, dsf_reduce_report *r);
void dsf_reduce_report_free(dsf_reduce_report *r);

/* Words and commands for people, or the members of a JSON object that is open. */
void dsf_reduce_print(const dsf_reduce_options *o, const dsf_reduce_report *r, dsf_buf *b);
void dsf_reduce_json(const dsf_reduce_options *o, const dsf_reduce_report *r, dsf_buf *b);

#endif
