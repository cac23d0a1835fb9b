/* Bump allocation by offset: the same code measures (cap = SIZE_MAX) and allocates. */
#ifndef DSF_BASE_ARENA_H
#define DSF_BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

typedef struct {
    const char *name; /* shown in budget tables: "weights", "kv", "scratch" */
    size_t cap;       /* SIZE_MAX while measuring */
    size_t used, peak;
} dsf_arena;

/* Offset of `bytes` bytes aligned to `align` (a power of two). ENOMEM with all the numbers. */
DSF_MUST dsf_status dsf_arena_take(dsf_arena *a, size_t bytes, size_t align, size_t *offset);
/* Lifetimes nest: take a mark, work, release the mark. */
static inline size_t dsf_arena_mark(const dsf_arena *a) { return a->used; }
static inline void dsf_arena_release(dsf_arena *a, size_t mark) { a->used = mark; }

#endif
