/* The file driver of written dumps: plain pwrite, no locks, same bytes as HDF5's own POSIX driver.
 * Its calls never fail towards HDF5 (h5.h says why).
 *
 * Between two flushes HDF5 reuses freed places and rewrites its index in no order that a reader
 * could live with. So bytes that the last flush left in the file are not touched before the next
 * one is complete: what HDF5 writes over them is held in memory, page by page, while bytes beyond
 * them go out at once. The end of a flush then puts the held pages in place. */
#include <H5public.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "verify/dump/h5.h"

enum { DRIVER_NUMBER = 513 }; /* only headers 1.13 and later ask for one; 512.. are free */

enum { PAGE = 4096 };

typedef struct {
    haddr_t at;    /* in the file, a multiple of PAGE */
    uint8_t *data; /* [PAGE]; those from `kept` on mean nothing */
} held_page;

typedef struct {
    H5FD_t pub; /* must be first */
    dsf_h5_out *out;
    int fd;
    haddr_t eoa, eof;
    haddr_t kept;    /* length of the file that the last flush left readable */
    held_page *held; /* ascending; all of them start below `kept` */
    size_t n_held, held_cap;
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

static void read_file(part *p, haddr_t addr, size_t size, void *buffer)
{
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
}

static void write_file(part *p, haddr_t addr, size_t size, const void *buffer)
{
    const char *from = buffer;
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
}

/* Index of the first held page that ends behind addr. */
static size_t first_held(const part *p, haddr_t addr)
{
    size_t low = 0, high = p->n_held;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (p->held[mid].at + PAGE <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The held copy of the page of addr, made from the file the first time. NULL: no memory, noted. */
static uint8_t *hold(part *p, haddr_t addr)
{
    haddr_t at = addr - addr % PAGE;
    size_t i = first_held(p, addr);
    if (i < p->n_held && p->held[i].at == at) return p->held[i].data;
    uint8_t *data = NULL;
    dsf_status st = dsf_mem_new(&data, PAGE, 1);
    if (st == DSF_OK && p->n_held == p->held_cap) {
        size_t cap = p->held_cap ? 2 * p->held_cap : 64;
        st = dsf_mem_grow(&p->held, cap, sizeof *p->held);
        if (st == DSF_OK) p->held_cap = cap;
    }
    if (st != DSF_OK) {
        dsf_mem_free(data);
        note(p, ENOMEM);
        return NULL;
    }
    read_file(p, at, PAGE, data);
    memmove(p->held + i + 1, p->held + i, (p->n_held - i) * sizeof *p->held);
    p->held[i] = (held_page){at, data};
    p->n_held++;
    return data;
}

static herr_t read_part(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
                        void *buffer)
{
    (void)type;
    (void)dxpl;
    part *p = of(f);
    haddr_t end = addr + size < p->kept ? addr + size : p->kept;
    read_file(p, addr, size, buffer);
    for (size_t i = first_held(p, addr); i < p->n_held && p->held[i].at < end; i++) {
        const held_page *h = &p->held[i];
        haddr_t from = h->at > addr ? h->at : addr;
        haddr_t to = h->at + PAGE < end ? h->at + PAGE : end;
        memcpy((char *)buffer + (from - addr), h->data + (from - h->at), (size_t)(to - from));
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
    if (addr + size > p->eof) p->eof = addr + size;
    while (size && addr < p->kept && !p->out->error) {
        size_t n = PAGE - (size_t)(addr % PAGE);
        if (n > size) n = size;
        if (n > p->kept - addr) n = (size_t)(p->kept - addr);
        uint8_t *page = hold(p, addr);
        if (page) memcpy(page + addr % PAGE, from, n);
        from += n;
        addr += n;
        size -= n;
    }
    write_file(p, addr, size, from);
    return 0;
}

static void set_length(part *p, haddr_t n)
{
    if (!p->out->error && ftruncate(p->fd, (off_t)n) != 0) note(p, errno);
}

/* The file ends where HDF5's allocations end, as its superblock says. One that gets shorter keeps
 * its length until the superblock in the file says so, too. */
static herr_t truncate_part(H5FD_t *f, hid_t dxpl, hbool_t closing)
{
    (void)dxpl;
    (void)closing;
    part *p = of(f);
    if (p->eoa == p->eof) return 0;
    set_length(p, p->eoa > p->kept ? p->eoa : p->kept);
    p->eof = p->eoa;
    return 0;
}

/* Puts the held pages in place: the only moment at which a killed run leaves a file between two
 * states. */
static void settle(part *p)
{
    for (size_t i = 0; i < p->n_held; i++) {
        const held_page *h = &p->held[i];
        write_file(p, h->at, p->kept - h->at < PAGE ? (size_t)(p->kept - h->at) : PAGE, h->data);
    }
    for (size_t i = 0; i < p->n_held; i++) dsf_mem_free(p->held[i].data);
    p->n_held = 0;
    if (p->eof < p->kept) set_length(p, p->eof);
    p->kept = p->eof;
}

/* HDF5 calls this when everything has been written and the length set. */
static herr_t flush_part(H5FD_t *f, hid_t dxpl, hbool_t closing)
{
    (void)dxpl;
    (void)closing;
    settle(of(f));
    return 0;
}

static herr_t close_part(H5FD_t *f)
{
    part *p = of(f);
    settle(p);
    if (!p->out->error && fsync(p->fd) != 0 && errno != EINVAL && errno != EROFS) note(p, errno);
    if (close(p->fd) != 0) note(p, errno);
    dsf_mem_free(p->held);
    dsf_mem_free(p);
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
    c.flush = flush_part;
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
