/* What `dsf reduce` does with cases: writes and replays them, and says what came of it. */
#ifndef DSF_TOOLS_REDUCE_CASE_H
#define DSF_TOOLS_REDUCE_CASE_H

#include "verify/reduce/case.h"

/* Options as written. */
typedef struct {
    const char *model, *golden, *out, *op, *floor, *max_bytes, *rows, *variants, *backend;
    int64_t layer, threads; /* layer -1: not said */
    bool json;
} reduce_case;

/* Writes the case that is asked for, or that of the first wrong operation; *found false: every
 * operation is right, and none was written. command: the one whose search led here, or NULL. */
DSF_MUST dsf_status dsf_reduce_case_make(const reduce_case *o, const char *command,
                                         dsf_case_report *r, bool *found);
/* The words for that, and the exit code. */
int dsf_reduce_case_none(const reduce_case *o);
/* The command's two forms without a search: print their result; *code as the command ends. */
DSF_MUST dsf_status dsf_reduce_case_write(const reduce_case *o, int *code);
DSF_MUST dsf_status dsf_reduce_case_replay(const reduce_case *o, const char *path, int *code);

#endif
