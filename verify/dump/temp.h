/* Folders for temporaries: under TMPDIR or /tmp, of a name nobody can guess, for this user alone.
 * All of them can be removed from a signal handler. */
#ifndef DSF_DUMP_TEMP_H
#define DSF_DUMP_TEMP_H

#include "base/status.h"

enum { DSF_TEMP_BYTES = 256 };

/* Makes TMPDIR/stem-XXXXXX. EINVAL: the path is too long; EIO: with the system's words. On failure
 * path is "". */
DSF_MUST dsf_status dsf_temp_open(char path[DSF_TEMP_BYTES], const char *stem);
/* Removes it with all that is in it, and makes path "". */
void dsf_temp_close(char path[DSF_TEMP_BYTES]);
/* The same for every folder that this process opened; safe in a signal handler. */
void dsf_temp_close_all(void);

#endif
