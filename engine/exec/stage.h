/* Engram tables stay on the host (203 GB in the release). Before a pass the rows that it reads are
 * gathered, each once, into pinned memory and travel to the device; the gathering step then reads
 * that small table by the rows' places in it (architecture.md 8.4). */
#ifndef DSF_EXEC_STAGE_H
#define DSF_EXEC_STAGE_H

#include "exec/exec.h"

DSF_MUST dsf_status dsf_stage_open(dsf_exec *e);
void dsf_stage_close(dsf_exec *e);
/* Before the step of stage k: the rows of the pass are gathered, by all threads, and travel. The
 * device meanwhile computes what was queued before. */
DSF_MUST dsf_status dsf_stage_run(dsf_exec *e, int k, const dsf_row_range *range);
int dsf_stage_step(const dsf_exec *e, int k);
/* Points stage k's step to the staged table. */
void dsf_stage_bind(dsf_exec *e, int k);

#endif
