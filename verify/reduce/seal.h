/* The digest of a case over all of its bytes but the digest's own: what was edited is told from
 * what was written. It stands in the file as text behind a mark, so that a file is weighed before
 * any of it is understood. */
#ifndef DSF_REDUCE_SEAL_H
#define DSF_REDUCE_SEAL_H

#include <stddef.h>

#include "base/status.h"

/* What the attribute holds before dsf_seal_put. */
extern const char dsf_seal_blank[];

/* Puts the digest in the place of the blank. EINVAL: there is none. */
DSF_MUST dsf_status dsf_seal_put(void *data, size_t n);
/* ECORRUPT: no digest, or that of other bytes. */
DSF_MUST dsf_status dsf_seal_check(const char *name, const void *data, size_t n);

#endif
