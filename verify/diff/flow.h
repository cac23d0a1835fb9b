/* The dataflow of one layer, in one place: which taps each tap is computed from (dump-schema.md 3
 * and 5, architecture.md appendix A). With golden inputs these are what an operation is given, so a
 * tap that differs while these agree is the fault. */
#ifndef DSF_DIFF_FLOW_H
#define DSF_DIFF_FLOW_H

#include "verify/dump/types.h"

enum { DSF_FLOW_MAX = 40 };

/* The inputs of a tap in a model of this geometry, in execution order; returns how many. 0: token
 * ids and weights alone. Other layers' results (main KV, list, pool) come with that layer. */
int dsf_flow_inputs(const dsf_dump_geometry *g, dsf_tap tap, dsf_tap out[DSF_FLOW_MAX]);

#endif
