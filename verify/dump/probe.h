/* A first reading in a process of its own. HDF5 1.10 can be crashed by a damaged file (about one in
 * five hundred with a few flipped bits, in the decoding of headers and chunks); what cannot be read
 * through there is refused here, with words. */
#ifndef DSF_DUMP_PROBE_H
#define DSF_DUMP_PROBE_H

#include <stddef.h>

#include "base/status.h"

/* Runs read(ud) in a child and waits. ECORRUPT when it crashed or took longer than two minutes; its
 * ordinary failures are left to the caller's own reading. */
DSF_MUST dsf_status dsf_probe(const char *name, void (*read)(void *ud), void *ud);

#endif
