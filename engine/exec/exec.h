/* Runs a placed plan: binds memory once, then for each pass patches the row views and walks the
 * steps. The only code that knows taps and timers exist. No allocation after open. */
#ifndef DSF_EXEC_EXEC_H
#define DSF_EXEC_EXEC_H

#include "plan/plan.h"

typedef struct {
    int64_t first, count; /* rows [first, first + count) of the pass */
} dsf_row_range;

typedef struct {
    dsf_plan *plan;
    dsf_pool *pool;
    uint8_t *scratch, *cache, *input,
        *worker;         /* cache may belong to another exec of the same model */
    size_t worker_bytes; /* all workers */
    bool owns_cache;
    struct {
        const void *data;
        int64_t rows;
    } * given;        /* by value index */
    int64_t *step_ns; /* time spent in each step since the last reset; NULL: not measured */
    int64_t passes, rows_run[DSF_ROWS_LAYER + 2 * 128]; /* rows computed so far, by row set */
} dsf_exec;

/* plan: chosen and placed; outlives the exec, which patches its arguments. cache_from: share the
 * caches of that exec (same cache layout), NULL: own ones. */
DSF_MUST dsf_status dsf_exec_open(dsf_exec *e, dsf_plan *plan, dsf_pool *pool,
                                  const dsf_exec *cache_from, bool timed);
void dsf_exec_close(dsf_exec *e);

/* Where the caller writes this input before a pass; NULL when the plan does not use it. */
void *dsf_exec_input(const dsf_exec *e, dsf_input input, int index);
/* The caller's rows for a given tap; data outlives the runs. EINVAL when the plan asks for no such
 * tap. */
DSF_MUST dsf_status dsf_exec_give(dsf_exec *e, dsf_tap tap, const void *data, int64_t rows);
/* One pass over the row ranges, indexed by row set. sink may be NULL. */
DSF_MUST dsf_status dsf_exec_run(dsf_exec *e, const dsf_row_range *range, const dsf_tap_sink *sink);
/* View of a tapped value after a run (logits, draft ids); EINVAL when the plan has none. */
DSF_MUST dsf_status dsf_exec_result(const dsf_exec *e, dsf_tap tap, dsf_tensor *out);
/* View of a cache value by name ("ring3"); false when there is none. */
bool dsf_exec_cache(const dsf_exec *e, const char *name, dsf_tensor *out);

#endif
