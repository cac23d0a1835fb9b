/* The one door to the heap: sizes are checked, failure is a status, every block is zeroed.
 * A hook counts and can refuse (fault tests; the proof of zero allocations per token). */
#ifndef DSF_BASE_MEM_H
#define DSF_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* count * size bytes, zeroed, in *out. ENOMEM when it overflows or is refused. count 0 gives NULL.
 */
DSF_MUST dsf_status dsf_mem_new(void *out, size_t count, size_t size);
/* Resizes *block to count * size bytes; new bytes are not set. On failure *block is untouched. */
DSF_MUST dsf_status dsf_mem_grow(void *block, size_t count, size_t size);
/* Page-aligned anonymous memory, zero until touched, for arenas. Freed with dsf_mem_unmap. */
DSF_MUST dsf_status dsf_mem_map(void **out, size_t bytes);
void dsf_mem_unmap(void *p, size_t bytes);
void dsf_mem_free(void *p);
/* Gives freed heap back to the system: after loading, which parses far more than it keeps. */
void dsf_mem_trim(void);
/* a * b and a + b, or ENOMEM. */
DSF_MUST dsf_status dsf_mem_mul(size_t a, size_t b, size_t *out);

/* Allocations made so far by this process through this door. */
uint64_t dsf_mem_count(void);
/* The nth allocation from now fails (1 = the next); 0 switches off. For fault tests. */
void dsf_mem_fail_at(uint64_t nth);

#ifdef __cplusplus
}
#endif
#endif
