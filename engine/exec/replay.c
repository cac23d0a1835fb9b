/* Captured passes of a device. The launches of a pass depend on its row ranges alone, so a pass
 * whose ranges came before is replayed as one graph. The second time that ranges come they are
 * captured: prompts of ever new lengths leave nothing behind. */
#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"

enum { PLACES = 64, MOST_ROWS = 1024 }; /* larger passes are long beside their launches */

typedef struct {
    dsf_row_range range[DSF_EXEC_SETS];
    int64_t used; /* pass number of the last use; 0: free */
    bool captured;
    dsf_device_graph *graph;
} slot;

struct dsf_replay {
    slot slot[PLACES];
    slot *capturing;
};

dsf_status dsf_replay_open(dsf_exec *e)
{
    DSF_TRY(dsf_mem_new(&e->replay, 1, sizeof *e->replay));
    for (int i = 0; i < PLACES; i++) DSF_TRY(dsf_device_graph_new(&e->replay->slot[i].graph));
    return DSF_OK;
}

void dsf_replay_close(dsf_exec *e)
{
    if (!e->replay) return;
    for (int i = 0; i < PLACES; i++) dsf_device_graph_free(e->replay->slot[i].graph);
    dsf_mem_free(e->replay);
    e->replay = NULL;
}

/* The slot of these ranges: theirs, or the one that was not used for longest. */
static slot *find(dsf_exec *e, const dsf_row_range *range)
{
    slot *oldest = &e->replay->slot[0];
    for (int i = 0; i < PLACES; i++) {
        slot *s = &e->replay->slot[i];
        if (s->used && memcmp(s->range, range, sizeof s->range) == 0) return s;
        if (s->used < oldest->used) oldest = s;
    }
    oldest->used = 0;
    oldest->captured = false;
    memcpy(oldest->range, range, sizeof oldest->range);
    return oldest;
}

dsf_status dsf_replay_begin(dsf_exec *e, const dsf_row_range *range, bool *done)
{
    if (range[DSF_ROWS_ALL].count > MOST_ROWS) return DSF_OK;
    slot *s = find(e, range);
    bool seen = s->used > 0;
    s->used = e->passes;
    *done = s->captured;
    if (s->captured) return dsf_device_graph_run(e->setup.device, s->graph);
    if (!seen) return DSF_OK;
    DSF_TRY(dsf_device_capture_begin(e->setup.device));
    e->replay->capturing = s;
    return DSF_OK;
}

dsf_status dsf_replay_end(dsf_exec *e, dsf_status st)
{
    slot *s = e->replay->capturing;
    if (!s) return st;
    e->replay->capturing = NULL;
    dsf_status ended = dsf_device_capture_end(e->setup.device, s->graph);
    if (st != DSF_OK) return st;
    DSF_TRY(ended);
    s->captured = true;
    return dsf_device_graph_run(e->setup.device, s->graph);
}
