/* An engine's memory plan in words, for those who have to decide whether a run will fit: the table,
 * what the arenas hold at their peak, the limit it is held against, and what would still fit. */
#ifndef DSF_SERVE_PLANNED_H
#define DSF_SERVE_PLANNED_H

#include "serve/engine.h"

typedef struct {
    int64_t memory;  /* bytes of each device, or of a host's plan; 0: this machine's (of a host),
                        not judged (of a device) */
    int64_t reserve; /* of them, bytes that must stay free */
    bool search;     /* the largest context and chunk that fit: dozens of plans */
} dsf_planned_options;

enum { DSF_PLANNED_SHOWN = 8, DSF_PLANNED_WORKSPACES = 16 };

typedef struct {
    int step, all; /* the step where most bytes live, and how many values live there */
    size_t live;
    dsf_inside value[DSF_PLANNED_SHOWN]; /* the biggest */
    int n;
} dsf_planned_peak;

typedef struct {
    const dsf_engine *e;
    dsf_planned_options o;
    int64_t total, limit; /* bytes held against the limit (memory - reserve); limit 0: not judged */
    int64_t most_context, most_chunk; /* -1: not asked */
    int64_t decode;                   /* pass values of a batch of all slots, alone */
    dsf_planned_peak peak[2];         /* of the pass and of the draft's */
    dsf_workspace work[DSF_PLANNED_WORKSPACES];
    int n_work;
} dsf_planned;

/* e: opened with plan_only, or running. EINVAL: a reserve that leaves nothing. */
DSF_MUST dsf_status dsf_planned_make(dsf_planned *p, const dsf_engine *e,
                                     const dsf_planned_options *o);
static inline bool dsf_planned_fits(const dsf_planned *p)
{
    return p->limit == 0 || p->total <= p->limit;
}
void dsf_planned_print(const dsf_planned *p, dsf_buf *out);
void dsf_planned_json(const dsf_planned *p, dsf_buf *out);
/* explain.c: one line of the table: formula, contents, who needs it, what makes it smaller. EINVAL
 * for a name that no line has, with the names there are. */
DSF_MUST dsf_status dsf_planned_explain(const dsf_planned *p, const char *name, dsf_buf *out);

/* ---- inside ---- */

void dsf_planned_peak_print(const dsf_plan *plan, const dsf_planned_peak *k, const char *name,
                            dsf_buf *out);
void dsf_planned_work_print(const dsf_planned *p, dsf_buf *out);

#endif
