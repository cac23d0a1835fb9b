/* Makes a finished dump of what a killed run left: PATH.part and its log. */
#ifndef DSF_DUMP_RECOVER_H
#define DSF_DUMP_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t taps, rows; /* labelled datasets kept, and their rows in all */
    bool copied;        /* `out` is on another disk: PATH.part is as it was */
    int64_t short_taps; /* of them: fewer rows than the tap with the most labels of its kind has */
} dsf_dump_recovery;

/* Puts the committed pages in place, gives taps that lack rows labels of their own, notes in the
 * file that it was recovered, and renames it to `out`. Where `out` is on another file system, that
 * is done to a copy there (out.part, which must not be there yet), and nothing is written to
 * PATH.part. A kill on the way leaves PATH.part as recoverable as before. ECORRUPT: nothing was
 * committed. */
DSF_MUST dsf_status dsf_dump_recover(const char *part, const char *out, dsf_dump_recovery *r);

#endif
