/* The one door to the heap: sizes are checked, failure is a status, every block is zeroed.
 * Hooks count, refuse (fault tests; the proof of zero allocations per token) and watch (soak tests:
 * who holds what). */
#ifndef DSF_BASE_MEM_H
#define DSF_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Macros in the dress of functions: each call tells its place. */
// NOLINTBEGIN(readability-identifier-naming)
/* count * size bytes, zeroed, in *out. ENOMEM when it overflows or is refused. count 0 gives NULL.
 */
#define dsf_mem_new(out, count, size) dsf_mem_new_at((out), (count), (size), DSF_HERE)
/* Resizes *block to count * size bytes; new bytes are not set. On failure *block is untouched. */
#define dsf_mem_grow(block, count, size) dsf_mem_grow_at((block), (count), (size), DSF_HERE)
/* Page-aligned anonymous memory, zero until touched, for arenas. Freed with dsf_mem_unmap. */
#define dsf_mem_map(out, bytes) dsf_mem_map_at((out), (bytes), DSF_HERE)
// NOLINTEND(readability-identifier-naming)
DSF_MUST dsf_status dsf_mem_new_at(void *out, size_t count, size_t size, const char *where);
DSF_MUST dsf_status dsf_mem_grow_at(void *block, size_t count, size_t size, const char *where);
DSF_MUST dsf_status dsf_mem_map_at(void **out, size_t bytes, const char *where);
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

/* Is told of every block, by the thread that takes it or gives it back: before it is given back, so
 * that nobody can have the same address meanwhile. where: the call's file and line, static. A block
 * that grows is given back and taken. Neither function allocates through this door. */
typedef struct {
    void (*taken)(void *ud, const char *where, const void *block, size_t bytes);
    void (*dropped)(void *ud, const void *block);
    void *ud;
} dsf_mem_watch;
/* w outlives the watching; NULL: nobody watches. */
void dsf_mem_watch_by(const dsf_mem_watch *w);

#ifdef __cplusplus
}
#endif
#endif
