/* One of the two programs of a comparison: a child that runs a round when it is told to. */
#ifndef DSF_BENCH_AB_PROCESS_H
#define DSF_BENCH_AB_PROCESS_H

#include <stdio.h>
#include <sys/types.h>

#include "base/json.h"

typedef struct {
    const char *name; /* for messages */
    pid_t pid;
    FILE *to, *from;
    char *text; /* of the last line; getline's */
    size_t room;
    dsf_json_doc *line; /* parsed; NULL: the program ended */
} dsf_ab_process;

/* Starts program with these arguments (argv[0] is program). EIO with the system's words. */
DSF_MUST dsf_status dsf_ab_start(dsf_ab_process *p, const char *name, const char *program,
                                 char *const *argv);
/* Next line of its output into p->line. ECORRUPT: no JSON. */
DSF_MUST dsf_status dsf_ab_read(dsf_ab_process *p);
/* Sends a command of pace.h. EIO: the program is gone. */
DSF_MUST dsf_status dsf_ab_tell(dsf_ab_process *p, char command);
/* Waits for the end, which a closed pipe brings; its exit code, or 128 + the signal. */
int dsf_ab_end(dsf_ab_process *p);

#endif
