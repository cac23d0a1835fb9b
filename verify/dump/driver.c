/* The file driver of written dumps: plain pwrite, no locks, same bytes as HDF5's own POSIX driver.
 * Its calls never fail towards HDF5 (h5.h says why). */
#include <H5public.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "verify/dump/h5.h"

enum { DRIVER_NUMBER = 513 }; /* only headers 1.13 and later ask for one; 512.. are free */

typedef struct {
    H5FD_t pub; /* must be first */
    dsf_h5_out *out;
    int fd;
    haddr_t eoa, eof;
} part;

typedef struct {
    dsf_h5_out *out;
} info;

static part *of(H5FD_t *f) { return (part *)(void *)f; }
static const part *view(const H5FD_t *f) { return (const part *)(const void *)f; }

static void note(part *p, int error)
{
    if (!p->out->error) p->out->error = error ? error : EIO;
}

static H5FD_t *open_part(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr)
{
    (void)flags;
    (void)maxaddr;
    const info *i = H5Pget_driver_info(fapl);
    part *p = NULL;
    if (!i || dsf_mem_new(&p, 1, sizeof *p) != DSF_OK) return NULL;
    p->out = i->out;
    p->fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (p->fd >= 0) return &p->pub;
    note(p, errno);
    dsf_mem_free(p);
    return NULL;
}

static herr_t close_part(H5FD_t *f)
{
    part *p = of(f);
    if (!p->out->error && fsync(p->fd) != 0 && errno != EINVAL && errno != EROFS) note(p, errno);
    if (close(p->fd) != 0) note(p, errno);
    dsf_mem_free(p);
    return 0;
}

static herr_t query_part(const H5FD_t *f, unsigned long *flags)
{
    (void)f;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t get_eoa(const H5FD_t *f, H5FD_mem_t type)
{
    (void)type;
    return view(f)->eoa;
}

static herr_t set_eoa(H5FD_t *f, H5FD_mem_t type, haddr_t addr)
{
    (void)type;
    of(f)->eoa = addr;
    return 0;
}

static haddr_t get_eof(const H5FD_t *f, H5FD_mem_t type)
{
    (void)type;
    return view(f)->eof;
}

static herr_t read_part(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
                        void *buffer)
{
    (void)type;
    (void)dxpl;
    part *p = of(f);
    char *to = buffer;
    while (size) {
        ssize_t n = pread(p->fd, to, size, (off_t)addr);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) note(p, errno);
        if (n <= 0) { /* beyond the end: zeros, as POSIX drivers give */
            memset(to, 0, size);
            break;
        }
        to += n;
        addr += (haddr_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static herr_t write_part(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
                         const void *buffer)
{
    (void)type;
    (void)dxpl;
    part *p = of(f);
    const char *from = buffer;
    haddr_t end = addr + size;
    while (size && !p->out->error) {
        ssize_t n = pwrite(p->fd, from, size, (off_t)addr);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            note(p, n < 0 ? errno : ENOSPC);
            break;
        }
        from += n;
        addr += (haddr_t)n;
        size -= (size_t)n;
    }
    if (end > p->eof) p->eof = end;
    return 0;
}

/* The file ends where HDF5's allocations end, as its superblock says. */
static herr_t truncate_part(H5FD_t *f, hid_t dxpl, hbool_t closing)
{
    (void)dxpl;
    (void)closing;
    part *p = of(f);
    if (p->eoa == p->eof) return 0;
    if (!p->out->error && ftruncate(p->fd, (off_t)p->eoa) != 0) note(p, errno);
    p->eof = p->eoa;
    return 0;
}

static H5FD_class_t make_class(void)
{
    H5FD_class_t c;
    memset(&c, 0, sizeof c);
#if H5_VERSION_GE(1, 13, 0)
    c.version = H5FD_CLASS_VERSION;
    c.value = (H5FD_class_value_t)DRIVER_NUMBER;
#endif
    c.name = "dsf_part";
    c.maxaddr = (haddr_t)INT64_MAX;
    c.fc_degree = H5F_CLOSE_STRONG;
    c.fapl_size = sizeof(info);
    c.open = open_part;
    c.close = close_part;
    c.query = query_part;
    c.get_eoa = get_eoa;
    c.set_eoa = set_eoa;
    c.get_eof = get_eof;
    c.read = read_part;
    c.write = write_part;
    c.truncate = truncate_part;
    const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY; /* the map of HDF5's own POSIX driver */
    memcpy(c.fl_map, map, sizeof c.fl_map);
    return c;
}

/* Creation: no object times, and symbol-table nodes wide enough that no group of the schema splits
 * one. So a flush only adds to a node, and what was readable stays readable if the flush is killed.
 */
static hid_t creation_list(void)
{
    hid_t list = H5Pcreate(H5P_FILE_CREATE);
    if (list < 0 || H5Pset_sym_k(list, 32, 80) < 0 || H5Pset_obj_track_times(list, 0) < 0) {
        if (list >= 0) (void)H5Pclose(list);
        return -1;
    }
    return list;
}

dsf_status dsf_h5_create(hid_t *out, const char *path, dsf_h5_out *state)
{
    dsf_h5_quiet();
    *state = (dsf_h5_out){0};
    H5FD_class_t class = make_class();
    info i = {state};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = creation_list(), file = -1;
    state->driver = H5FDregister(&class);
    if (fapl >= 0 && fcpl >= 0 && state->driver >= 0 &&
        H5Pset_driver(fapl, state->driver, &i) >= 0 &&
        H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) >= 0)
        file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
    if (fcpl >= 0) (void)H5Pclose(fcpl);
    if (fapl >= 0) (void)H5Pclose(fapl);
    if (file >= 0) {
        *out = file;
        return DSF_OK;
    }
    if (state->driver >= 0) (void)H5FDunregister(state->driver);
    if (state->error)
        return DSF_FAIL(DSF_EIO, "%s: cannot be created: %s", path, strerror(state->error));
    return dsf_h5_fail(DSF_EIO, path, "cannot be created");
}
