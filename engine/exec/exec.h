/* Runs a placed plan: binds memory once, then for each pass patches the row views and walks the
 * steps. The only code that knows taps and timers exist. No allocation after open (what the driver
 * keeps of a captured graph is its own). */
#ifndef DSF_EXEC_EXEC_H
#define DSF_EXEC_EXEC_H

#include "exec/place.h"
#include "exec/space.h"

typedef struct {
    int64_t first, count; /* rows [first, first + count) of the pass */
} dsf_row_range;

enum {
    DSF_EXEC_SETS = DSF_ROWS_LAYER + 2 * 128,
    DSF_REPLAY_ROWS = 1024 /* most rows of a pass that is replayed: larger ones are long beside
                              their launches */
};

typedef struct dsf_exec dsf_exec;

typedef struct {
    dsf_pool *pool;             /* host: worker threads; may be NULL */
    const dsf_exec *cache_from; /* share the caches of that exec (same layout); NULL: own ones */
    bool timed;                 /* keep the time of each step */
    dsf_device *device;         /* what the plan was chosen for; NULL: the host */
    const dsf_place *place;     /* device: where the constants are */
    bool graphs;                /* device: replay passes whose rows came before */
    dsf_budget *count;          /* not NULL: nothing is taken and nothing can run; every block that
                                   would be taken becomes a line. No pool and device are needed */
    int workers;                /* count: threads of the host's pool */
    const char *owner;          /* count: what the lines begin with; NULL: "pass" */
} dsf_exec_setup;

struct dsf_exec {
    dsf_plan *plan;
    dsf_exec_setup setup;
    dsf_source from;
    uint8_t *scratch, *cache, *worker; /* in the plan's space; cache may be another exec's */
    uint8_t *input, *input_there;      /* where the caller writes, where kernels read: the same on a
                                          host */
    size_t worker_bytes;               /* all workers */
    struct dsf_given {
        const void *data;
        int64_t rows;
        uint8_t *there; /* device: its copy */
        size_t bytes;
    } * given;               /* by value index */
    uint8_t *shown;          /* device: the tap being shown */
    uint8_t *result;         /* device: results of the last pass, at the values' own places */
    struct dsf_stage *stage; /* device: table rows on their way, one for each gathering step */
    int n_stages;
    struct dsf_replay *replay; /* device: captured passes */
    int64_t *step_ns; /* time spent in each step since the last reset; NULL: not measured */
    int64_t passes, rows_run[DSF_EXEC_SETS]; /* rows computed so far, by row set */
};

/* plan: chosen and placed; outlives the exec, which patches its arguments. */
DSF_MUST dsf_status dsf_exec_open(dsf_exec *e, dsf_plan *plan, const dsf_exec_setup *setup);
void dsf_exec_close(dsf_exec *e);

/* Where the caller writes this input before a pass; NULL when the plan does not use it. */
void *dsf_exec_input(const dsf_exec *e, dsf_input input, int index);
/* The caller's rows for a given tap; data outlives the runs. EINVAL when the plan asks for no such
 * tap. */
DSF_MUST dsf_status dsf_exec_give(dsf_exec *e, dsf_tap tap, const void *data, int64_t rows);
/* One pass over the row ranges, indexed by row set. sink may be NULL. */
DSF_MUST dsf_status dsf_exec_run(dsf_exec *e, const dsf_row_range *range, const dsf_tap_sink *sink);
/* View of a result after a run, in host memory; EINVAL when the plan has none of this kind. */
DSF_MUST dsf_status dsf_exec_result(const dsf_exec *e, dsf_result which, dsf_tensor *out);
/* View of a cache value by name ("ring3") in the exec's space (dsf_space_read and _write); false
 * when there is none. */
bool dsf_exec_cache(const dsf_exec *e, const char *name, dsf_tensor *out);

/* ---- inside ---- */

/* Where kernels find value v (run.c). */
uint8_t *dsf_exec_data(const dsf_exec *e, dsf_val v);
DSF_MUST dsf_status dsf_replay_open(dsf_exec *e);
/* replay.c: *done: the pass was queued from a graph. Else the steps are to be queued now, and
 * end() is to be called after them. */
DSF_MUST dsf_status dsf_replay_begin(dsf_exec *e, const dsf_row_range *range, bool *done);
DSF_MUST dsf_status dsf_replay_step(dsf_exec *e, int step);    /* before a step's launches */
DSF_MUST dsf_status dsf_replay_stepped(dsf_exec *e, int step); /* and after them */
DSF_MUST dsf_status dsf_replay_end(dsf_exec *e, dsf_status st);
void dsf_replay_close(dsf_exec *e);
/* Kernels and copies of the captured pass of these ranges; 0: not captured. */
int64_t dsf_replay_nodes(const dsf_exec *e, const dsf_row_range *range);

#endif
