/* Inside of an engine and its sessions: who owns what. */
#ifndef DSF_SERVE_ENGINE_H
#define DSF_SERVE_ENGINE_H

#include "base/budget.h"
#include "dsf.h"
#include "exec/exec.h"
#include "ops/sample.h"
#include "serve/load.h"

struct dsf_engine {
    dsf_options opt; /* with the defaults filled in */
    dsf_loaded load;
    dsf_pool *pool;
    dsf_device *device; /* NULL: the host */
    dsf_place *place;   /* weights on it */
    dsf_plan *plan, *draft_plan;
    dsf_exec exec, draft;
    dsf_budget budget;
    bool *slot_taken;
    uint16_t *embed; /* [chunk, dim] bf16: given rows of the pass */
    void *in[DSF_N_INPUTS];
    int64_t *engram[DSF_MAX_ENGRAMS]; /* input buffers for table rows */
    dsf_row_range range[DSF_EXEC_SETS];
    int64_t serial; /* of the last step: logits are valid while it stands */
};

struct dsf_session {
    dsf_engine *engine;
    int slot;
    int64_t n;            /* positions computed */
    int64_t fed;          /* positions known; [n, fed) are queued */
    int64_t prompt_from;  /* where the current feed started */
    int64_t furthest;     /* most positions ever computed in this slot: ring slots beyond n are
                             overwritten */
    int64_t floor;        /* cone and replay left gaps below: no immediate rewind to before it;
                             more than n while such a prompt runs */
    int64_t take;         /* rows in the pass being made */
    int64_t serial, head; /* step and head row of the last logits; head -1: none */
    dsf_sample_how how;   /* the next tokens are drawn; its position is set with each row */
    int32_t *ids;         /* [context] */
    uint8_t *vl;          /* [context] */
    uint16_t *embed;      /* [context, dim] when the engine takes given rows */
};

/* batch.c: lays the sessions' queued tokens out as one pass and runs it. */
DSF_MUST dsf_status dsf_batch_run(dsf_engine *e, dsf_session *const *batch, size_t n,
                                  const dsf_tap_sink *sink);
DSF_MUST dsf_status dsf_batch_draft(dsf_session *s, int32_t anchor, const dsf_tap_sink *sink);
/* Query rows of layer `layer` that survive a prompt (product.md 4): everything below the split. */
int64_t dsf_batch_cone_rows(const dsf_config *c, int layer);
/* session.c: a result of the last step, in which the session's row is s->head. EINVAL: the step was
 * another's, or tokens are queued. */
DSF_MUST dsf_status dsf_session_result(const dsf_session *s, dsf_result which, dsf_tensor *t);
/* engine.c: both plans for the sizes of e->opt; then the arenas of both, or with `count` the lines
 * of what they would take. */
DSF_MUST dsf_status dsf_engine_plans(dsf_engine *e);
DSF_MUST dsf_status dsf_engine_execs(const dsf_engine *e, dsf_exec *exec, dsf_exec *draft,
                                     dsf_budget *count);
/* memory.c: the named byte totals of e's plans. */
DSF_MUST dsf_status dsf_memory_plan(const dsf_engine *e, dsf_budget *b);
static inline bool dsf_memory_on_device(const dsf_engine *e)
{
    return (e->plan->target & DSF_NEEDS_SM90) != 0;
}
/* Bytes that a limit is held against: the device's, or those of this process that no file backs. */
int64_t dsf_memory_total(const dsf_engine *e, const dsf_budget *b);
int64_t dsf_memory_machine(void); /* bytes of this machine */
/* fit.c: the budget of the same engine at other sizes, by the same planning. */
DSF_MUST dsf_status dsf_memory_at(const dsf_engine *e, int64_t context, int64_t chunk,
                                  dsf_budget *b);
/* The largest context (chunk) that stays within `limit` bytes with the engine's own chunk
 * (context), by asking dsf_memory_at; 0: none does. */
DSF_MUST dsf_status dsf_memory_most_context(const dsf_engine *e, int64_t limit, int64_t *out);
int64_t dsf_memory_chunk_cap(const dsf_engine *e); /* rows that no pass of this context exceeds */
DSF_MUST dsf_status dsf_memory_most_chunk(const dsf_engine *e, int64_t limit, int64_t *out);
/* Refuses a plan that the machine cannot hold, with the table. */
DSF_MUST dsf_status dsf_memory_check(const dsf_engine *e, const dsf_budget *b);

#endif
