/* Rounds that another process starts: two builds of this program are measured in alternation, each
 * round of one beside a round of the other (ab.h). Lines go out as JSON, commands come in on
 * standard input: 'r' runs a round, anything else ends the case. */
#ifndef DSF_BENCH_PACE_H
#define DSF_BENCH_PACE_H

#include "model.h"

/* Checked and warm: hands out json, an open object that identifies the case, as its first line. */
DSF_MUST dsf_status dsf_pace_case(dsf_bench *b, dsf_buf *json);
/* Waits for the command: another round? */
bool dsf_pace_more(void);
/* A round took ns; d (may be NULL): and these its operations, of this round alone. */
DSF_MUST dsf_status dsf_pace_round(dsf_bench *b, double ns, const dsf_division *d);
/* The case is over, and its last output was right. */
DSF_MUST dsf_status dsf_pace_done(dsf_bench *b);

#endif
