#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *words(char *buf, size_t n)
{
    return strerror_r(errno, buf, n); /* the GNU form: thread-safe, returns the text */
}

#define IO_FAIL(path, doing)                                                                       \
    do {                                                                                           \
        char text[128];                                                                            \
        return DSF_FAIL(DSF_EIO, "%s: cannot %s: %s", (path), (doing), words(text, sizeof text));  \
    } while (0)

static dsf_status map_fd(dsf_file *f, int fd)
{
    struct stat s;
    if (fstat(fd, &s) != 0) IO_FAIL(f->path, "stat");
    if (!S_ISREG(s.st_mode)) return DSF_FAIL(DSF_EIO, "%s: not a regular file", f->path);
    f->size = (size_t)s.st_size;
    if (f->size == 0) return DSF_OK;
    void *p = mmap(NULL, f->size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) IO_FAIL(f->path, "map");
    f->data = p;
    return DSF_OK;
}

dsf_status dsf_file_open(dsf_file *f, const char *path)
{
    *f = (dsf_file){.data = NULL};
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return DSF_FAIL(DSF_EINVAL, "path of %zu bytes is too long", strlen(path));
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would block */
    if (fd < 0) IO_FAIL(path, "open");
    dsf_status st = map_fd(f, fd);
    (void)close(fd); /* the map keeps the file */
    return st;
}

void dsf_file_close(dsf_file *f)
{
    if (f->data) (void)munmap((void *)(uintptr_t)f->data, f->size);
    f->data = NULL;
    f->size = 0;
}

dsf_status dsf_file_at(const dsf_file *f, uint64_t offset, uint64_t n, const uint8_t **out)
{
    if (offset > f->size || n > f->size - offset)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %llu bytes at offset %llu, the file has %zu", f->path,
                        (unsigned long long)n, (unsigned long long)offset, f->size);
    *out = f->data + offset;
    return DSF_OK;
}

dsf_status dsf_file_join(char *out, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n && folder[n - 1] == '/' ? "" : "/";
    if (snprintf(out, 4096, "%s%s%s", folder, slash, name) >= 4096)
        return DSF_FAIL(DSF_EINVAL, "path %s/%s is too long", folder, name);
    return DSF_OK;
}

bool dsf_file_exists(const char *path) { return access(path, F_OK) == 0; }

bool dsf_file_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

dsf_status dsf_file_may_replace(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0 || S_ISREG(s.st_mode)) return DSF_OK;
    return DSF_FAIL(DSF_EIO, "%s: not a regular file; output would replace it", path);
}

bool dsf_file_is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

dsf_status dsf_file_make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && !(errno == EEXIST && dsf_file_is_folder(path)))
        IO_FAIL(path, "make folder");
    return DSF_OK;
}

static dsf_status part_name(const dsf_file_out *o, char *out)
{
    if (snprintf(out, 4096, "%s.part", o->path) >= 4096)
        return DSF_FAIL(DSF_EINVAL, "path %s is too long", o->path);
    return DSF_OK;
}

dsf_status dsf_file_create(dsf_file_out *o, const char *path)
{
    char part[4096];
    o->fd = -1;
    o->written = 0;
    if (snprintf(o->path, sizeof o->path, "%s", path) >= (int)sizeof o->path)
        return DSF_FAIL(DSF_EINVAL, "path of %zu bytes is too long", strlen(path));
    DSF_TRY(dsf_file_may_replace(path));
    DSF_TRY(part_name(o, part));
    o->fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd < 0) IO_FAIL(part, "create");
    return DSF_OK;
}

dsf_status dsf_file_write(dsf_file_out *o, const void *data, size_t n)
{
    const uint8_t *p = data;
    while (n) {
        ssize_t k = write(o->fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) IO_FAIL(o->path, "write");
        p += k;
        n -= (size_t)k;
        o->written += (uint64_t)k;
    }
    return DSF_OK;
}

dsf_status dsf_file_finish(dsf_file_out *o)
{
    char part[4096];
    DSF_TRY(part_name(o, part));
    if (fsync(o->fd) != 0) IO_FAIL(part, "sync");
    if (close(o->fd) != 0) IO_FAIL(part, "close");
    o->fd = -1;
    if (rename(part, o->path) != 0) IO_FAIL(part, "rename");
    return DSF_OK;
}

void dsf_file_abandon(dsf_file_out *o)
{
    char part[4096];
    if (o->fd < 0) return;
    (void)close(o->fd);
    o->fd = -1;
    if (part_name(o, part) == DSF_OK) (void)unlink(part);
}
