#include "exec/space.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static dsf_status take(dsf_device *d, dsf_at at, void **p, size_t bytes)
{
    if (at == DSF_AT_HEAP) return dsf_mem_new(p, bytes, 1);
    if (!d) return dsf_mem_map(p, bytes);
    return at == DSF_AT_SPACE ? dsf_device_new(d, p, bytes) : dsf_device_pin(d, p, bytes);
}

static int kind_of(const dsf_source *s, dsf_at at)
{
    if (!s->there || at == DSF_AT_HEAP) return DSF_BUDGET_HOST;
    return at == DSF_AT_SPACE ? DSF_BUDGET_DEVICE : DSF_BUDGET_PINNED;
}

dsf_status dsf_source_take(const dsf_source *s, dsf_at at, void *out, size_t bytes,
                           const char *name, const char *fmt, ...)
{
    void *p = NULL;
    if (s->count && bytes > 0) {
        char line[48], formula[160];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(formula, sizeof formula, fmt, ap);
        va_end(ap);
        (void)snprintf(line, sizeof line, "%s: %s", s->owner, name);
        dsf_budget_add_kind(s->count, kind_of(s, at), line, (int64_t)bytes, "%s", formula);
    }
    if (!s->count) DSF_TRY(take(s->device, at, &p, bytes));
    memcpy(out, &p, sizeof p); /* out is a T ** */
    return DSF_OK;
}

void dsf_space_drop(dsf_device *d, uint8_t *p, size_t bytes)
{
    if (d)
        dsf_device_free(d, p);
    else
        dsf_mem_unmap(p, bytes);
}

void dsf_space_drop_near(dsf_device *d, uint8_t *p, size_t bytes)
{
    if (d)
        dsf_device_unpin(d, p);
    else
        dsf_mem_unmap(p, bytes);
}

dsf_status dsf_space_write(dsf_device *d, void *dst, const void *host, size_t bytes)
{
    if (d) return dsf_device_put(d, dst, host, bytes);
    if (bytes) memcpy(dst, host, bytes);
    return DSF_OK;
}

dsf_status dsf_space_read(dsf_device *d, void *host, const void *src, size_t bytes)
{
    if (d) {
        DSF_TRY(dsf_device_get(d, host, src, bytes));
        return dsf_device_wait(d);
    }
    if (bytes) memcpy(host, src, bytes);
    return DSF_OK;
}

dsf_status dsf_space_copy(dsf_device *d, void *dst, const void *src, size_t bytes)
{
    if (d) return dsf_device_copy(d, dst, src, bytes);
    if (bytes) memcpy(dst, src, bytes);
    return DSF_OK;
}

dsf_status dsf_space_fill(dsf_device *d, void *dst, int byte, size_t bytes)
{
    if (d) return dsf_device_set(d, dst, byte, bytes);
    if (bytes) memset(dst, byte, bytes);
    return DSF_OK;
}
