/* The tries of a reduction as a file, one JSON object a line: what was asked, what came back, how
 * long it took. A search that was killed goes on from it without running anything again, and ends
 * as it would have. */
#ifndef DSF_REDUCE_TRIES_H
#define DSF_REDUCE_TRIES_H

#include "verify/reduce/candidate.h"

typedef struct dsf_tries dsf_tries;

typedef struct {
    dsf_reduce_outcome outcome;
    int exit;       /* exit code; 128 + number of a signal; -1: ran out of time */
    double seconds; /* of all its runs */
    int runs;
    bool again; /* an answer to a question that was answered before: is it flaky? */
} dsf_try;

/* What binds the file to its search: resumed for another one it is refused. */
typedef struct {
    const char *const *command; /* [n_command] */
    int n_command;
    unsigned axes;
    const dsf_candidate *start;
    int32_t filler;
    int repeat;
} dsf_tries_bind;

/* Starts `path` (EINVAL when it is there: it may be somebody's night), or with `resume` reads what
 * is there: EINVAL when it is of another search, ECORRUPT with the line's number. A last line that
 * a kill cut short is dropped. path NULL: kept in memory alone. */
DSF_MUST dsf_status dsf_tries_open(dsf_tries **out, const char *path, bool resume,
                                   const dsf_tries_bind *bind);
/* The answer to this candidate, if there is one. */
bool dsf_tries_find(const dsf_tries *t, const dsf_candidate *c, bool again, dsf_try *out);
/* Adds one and writes its line at once. */
DSF_MUST dsf_status dsf_tries_add(dsf_tries *t, const dsf_candidate *c, const dsf_try *what);
int64_t dsf_tries_count(const dsf_tries *t);
double dsf_tries_seconds(const dsf_tries *t); /* of all tries, those of the resumed file too */
void dsf_tries_close(dsf_tries *t);           /* NULL is fine */

#endif
