#include "base/arena.h"

#include <assert.h>

dsf_status dsf_arena_take(dsf_arena *a, size_t bytes, size_t align, size_t *offset)
{
    assert(align && (align & (align - 1)) == 0);
    size_t pad = (size_t)-a->used & (align - 1);
    size_t left = a->cap - a->used;
    if (pad > left || bytes > left - pad)
        return DSF_FAIL(DSF_ENOMEM, "arena %s: %zu bytes wanted, %zu of %zu in use", a->name, bytes,
                        a->used, a->cap);
    *offset = a->used + pad;
    a->used = *offset + bytes;
    if (a->used > a->peak) a->peak = a->used;
    return DSF_OK;
}
