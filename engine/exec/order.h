/* Which steps of a plan must end before a step may start: those that write what it reads or writes,
 * and those that read what it writes, byte for byte of the arenas. A captured pass then is a graph
 * whose independent branches (the shared expert beside the routed ones, window keys beside queries)
 * run side by side; what each step computes does not change. */
#ifndef DSF_EXEC_ORDER_H
#define DSF_EXEC_ORDER_H

#include "plan/plan.h"

typedef struct {
    int *first; /* [n_steps + 1]: where a step's list starts */
    int *after; /* earlier steps, ascending; none that another of the list waits for anyway */
    int n_steps;
    size_t bytes; /* of both arrays */
} dsf_order;

/* p: placed. Free in either case. */
DSF_MUST dsf_status dsf_order_open(dsf_order *o, const dsf_plan *p);
void dsf_order_close(dsf_order *o);
/* Steps that ran of those that `step` waits for; a step that did not run (captured false) stands
 * for what it would have waited for. out: room for n_steps. Returns the count. */
int dsf_order_after(const dsf_order *o, int step, const bool *captured, int *out);

#endif
