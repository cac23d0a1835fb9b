/* Captured passes of a device. The launches of a pass depend on its row ranges alone, so a pass
 * whose ranges came before is replayed as one graph. The second time that ranges come they are
 * captured: prompts of ever new lengths leave nothing behind. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"
#include "exec/order.h"

enum { PLACES = 64 };

typedef struct {
    dsf_row_range range[DSF_EXEC_SETS];
    int64_t used; /* pass number of the last use; 0: free */
    bool captured;
    dsf_device_graph *graph;
} slot;

struct dsf_replay {
    slot slot[PLACES];
    slot *capturing;
    dsf_order order;
    bool *captured; /* [n_steps] of the capture that runs */
    int *after;     /* [n_steps] room for a step's list */
};

/* The order is made, weighed and given back: only its making tells its size. */
static dsf_status count_order(dsf_exec *e)
{
    dsf_order order = {.first = NULL};
    void *none;
    dsf_status st = dsf_order_open(&order, e->plan);
    size_t bytes = order.bytes;
    dsf_order_close(&order);
    DSF_TRY(st);
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &none, bytes, "order of steps",
                            "%d steps, each with those it waits for", e->plan->n_steps));
    char name[48];
    (void)snprintf(name, sizeof name, "%s: captured passes, driver", e->from.owner);
    dsf_budget_add_absent(e->setup.count, DSF_BUDGET_DEVICE, name,
                          "not planned: what the driver keeps of a captured pass is its own");
    return DSF_OK;
}

dsf_status dsf_replay_open(dsf_exec *e)
{
    size_t n = (size_t)e->plan->n_steps + 1;
    struct dsf_replay counted, *r;
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &e->replay, sizeof *e->replay, "captured passes",
                            "%d places x %zu B", PLACES, sizeof(slot)));
    r = e->replay ? e->replay : &counted;
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &r->captured, n * sizeof *r->captured,
                            "captured steps", "%zu steps x 1 B", n));
    DSF_TRY(dsf_source_take(&e->from, DSF_AT_HEAP, &r->after, n * sizeof *r->after,
                            "steps waited for", "%zu steps x 4 B", n));
    if (e->setup.count) return count_order(e);
    for (int i = 0; i < PLACES; i++) DSF_TRY(dsf_device_graph_new(&r->slot[i].graph));
    return dsf_order_open(&r->order, e->plan);
}

void dsf_replay_close(dsf_exec *e)
{
    if (!e->replay) return;
    for (int i = 0; i < PLACES; i++) dsf_device_graph_free(e->replay->slot[i].graph);
    dsf_order_close(&e->replay->order);
    dsf_mem_free(e->replay->captured);
    dsf_mem_free(e->replay->after);
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
    slot *s = find(e, range);
    bool seen = s->used > 0;
    s->used = e->passes;
    *done = s->captured;
    if (s->captured) return dsf_device_graph_run(e->setup.device, s->graph);
    if (!seen) return DSF_OK;
    memset(e->replay->captured, 0, (size_t)e->plan->n_steps * sizeof(bool));
    DSF_TRY(dsf_device_capture_begin(e->setup.device));
    e->replay->capturing = s;
    return DSF_OK;
}

/* The first steps of a pass wait for nothing: they hang on the start of the graph. */
dsf_status dsf_replay_step(dsf_exec *e, int step)
{
    struct dsf_replay *r = e->replay;
    if (!r || !r->capturing) return DSF_OK;
    int n = dsf_order_after(&r->order, step, r->captured, r->after);
    return dsf_device_capture_after(e->setup.device, r->after, n);
}

dsf_status dsf_replay_stepped(dsf_exec *e, int step)
{
    struct dsf_replay *r = e->replay;
    if (!r || !r->capturing) return DSF_OK;
    r->captured[step] = true;
    return dsf_device_capture_name(e->setup.device, step);
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

int64_t dsf_replay_nodes(const dsf_exec *e, const dsf_row_range *range)
{
    for (int i = 0; i < PLACES; i++) {
        const slot *s = &e->replay->slot[i];
        if (s->captured && memcmp(s->range, range, sizeof s->range) == 0)
            return dsf_device_graph_nodes(s->graph);
    }
    return 0;
}
