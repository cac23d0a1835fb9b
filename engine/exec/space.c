#include "exec/space.h"

#include <string.h>

#include "base/mem.h"

dsf_status dsf_space_take(dsf_device *d, uint8_t **out, size_t bytes)
{
    void *p = NULL;
    DSF_TRY(d ? dsf_device_new(d, &p, bytes) : dsf_mem_map(&p, bytes));
    *out = p;
    return DSF_OK;
}

void dsf_space_drop(dsf_device *d, uint8_t *p, size_t bytes)
{
    if (d)
        dsf_device_free(d, p);
    else
        dsf_mem_unmap(p, bytes);
}

dsf_status dsf_space_take_near(dsf_device *d, uint8_t **out, size_t bytes)
{
    void *p = NULL;
    DSF_TRY(d ? dsf_device_pin(d, &p, bytes) : dsf_mem_map(&p, bytes));
    *out = p;
    return DSF_OK;
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
