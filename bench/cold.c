#include "cold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

dsf_status dsf_cold_drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return DSF_FAIL(DSF_EIO, "%s: %s", path, strerror(errno));
    (void)fdatasync(fd); /* of a read-only file it may refuse: then the pages are clean, or stay */
    int code = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(fd);
    return code == 0 ? DSF_OK : DSF_FAIL(DSF_EIO, "%s: %s", path, strerror(code));
}

/* The whole pages around n bytes. */
static size_t pages_of(const void *data, size_t n, void **start, size_t *count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)data / page * page;
    *start = (void *)from; // NOLINT(performance-no-int-to-ptr)
    *count = ((uintptr_t)data + n - from + page - 1) / page;
    return *count * page;
}

void dsf_cold_unmap(const void *data, size_t n)
{
    void *start = NULL;
    size_t count = 0, bytes = pages_of(data, n, &start, &count);
    (void)madvise(start, bytes, MADV_DONTNEED);
}

double dsf_cold_resident(const void *data, size_t n)
{
    void *start = NULL;
    unsigned char *in = NULL;
    size_t count = 0, held = 0, bytes = pages_of(data, n, &start, &count);
    if (n == 0 || dsf_mem_new(&in, count, 1) != DSF_OK) return 1;
    double share = 1;
    if (mincore(start, bytes, in) == 0) {
        for (size_t i = 0; i < count; i++) held += in[i] & 1;
        share = (double)held / (double)count;
    }
    dsf_mem_free(in);
    return share;
}
