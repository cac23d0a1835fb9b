#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_ullong n_allocations;
static atomic_ullong fail_countdown;
static _Atomic(const dsf_mem_watch *) watch;

static void tell_taken(const char *where, const void *block, size_t bytes)
{
    const dsf_mem_watch *w = atomic_load_explicit(&watch, memory_order_acquire);
    if (w && block) w->taken(w->ud, where, block, bytes);
}

static void tell_dropped(const void *block)
{
    const dsf_mem_watch *w = atomic_load_explicit(&watch, memory_order_acquire);
    if (w && block) w->dropped(w->ud, block);
}

/* True when this allocation is the one that a fault test wants to fail. */
static int refused(void)
{
    atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    unsigned long long left = atomic_load(&fail_countdown);
    if (left == 0) return 0;
    atomic_store(&fail_countdown, left - 1);
    return left == 1;
}

dsf_status dsf_mem_mul(size_t a, size_t b, size_t *out)
{
    if (__builtin_mul_overflow(a, b, out))
        return DSF_FAIL(DSF_ENOMEM, "%zu x %zu bytes overflow a size", a, b);
    return DSF_OK;
}

dsf_status dsf_mem_new_at(void *out, size_t count, size_t size, const char *where)
{
    void *p = NULL;
    if (count != 0 && size != 0) {
        p = refused() ? NULL : calloc(count, size);
        if (!p) return DSF_FAIL(DSF_ENOMEM, "heap: %zu x %zu bytes refused", count, size);
        tell_taken(where, p, count * size);
    }
    memcpy(out, &p, sizeof p); /* out is a T **: no type punning through void ** */
    return DSF_OK;
}

dsf_status dsf_mem_grow_at(void *block, size_t count, size_t size, const char *where)
{
    size_t bytes = 0;
    DSF_TRY(dsf_mem_mul(count, size, &bytes));
    void *old = NULL;
    memcpy(&old, block, sizeof old);
    if (refused()) return DSF_FAIL(DSF_ENOMEM, "heap: %zu bytes refused", bytes);
    tell_dropped(old);
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) {
        tell_taken(where, old, 0); /* it stays; nobody asks for its size once memory is out */
        return DSF_FAIL(DSF_ENOMEM, "heap: %zu bytes refused", bytes);
    }
    tell_taken(where, p, bytes);
    memcpy(block, &p, sizeof p);
    return DSF_OK;
}

dsf_status dsf_mem_map_at(void **out, size_t bytes, const char *where)
{
    *out = NULL;
    if (bytes == 0) return DSF_OK;
    void *p = refused() ? MAP_FAILED
                        : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return DSF_FAIL(DSF_ENOMEM, "anonymous map of %zu bytes refused", bytes);
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice: fewer TLB misses where the kernel agrees */
    tell_taken(where, p, bytes);
    *out = p;
    return DSF_OK;
}

void dsf_mem_unmap(void *p, size_t bytes)
{
    if (!p) return;
    tell_dropped(p);
    (void)munmap(p, bytes);
}

void dsf_mem_free(void *p)
{
    tell_dropped(p);
    free(p);
}

void dsf_mem_trim(void)
{
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}

uint64_t dsf_mem_count(void) { return atomic_load(&n_allocations); }
void dsf_mem_fail_at(uint64_t nth) { atomic_store(&fail_countdown, nth); }

void dsf_mem_watch_by(const dsf_mem_watch *w)
{
    atomic_store_explicit(&watch, w, memory_order_release);
}
