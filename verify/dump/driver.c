/* The file driver of dumps being written, and of those that a killed run left: plain pwrite, no
 * locks, the bytes of HDF5's own POSIX driver. Its calls never fail towards HDF5 (h5.h says why).
 *
 * HDF5 reuses freed places and rewrites its index in no order that a reader could live with. So it
 * writes in place only what no commit names: large runs at the end of the file. The rest is held in
 * memory and committed to a log beside the file (pages.h). H5Fflush commits; closing copies the
 * pages to their places, and removes the log. */
#include <H5public.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "verify/dump/h5.h"
#include "verify/dump/pages.h"

/* DRIVER_NUMBER: only headers 1.13 and later ask for one; 512.. are free. DIRECT_BYTES: shorter
 * writes are held, so that index blocks, which HDF5 writes again and again, stay in few pages. The
 * log is emptied when it, or what the file got since, is this large. The kernel is told to begin
 * writing after every WRITEBACK_BYTES, so that a sync has little left to wait for. */
enum {
    DRIVER_NUMBER = 513,
    DIRECT_BYTES = 4 * DSF_PAGE,
    META_BYTES = 64 << 10,
    LOG_BYTES = 64 << 20,
    SYNC_BYTES = 1 << 30,
    WRITEBACK_BYTES = 8 << 20
};

typedef struct {
    H5FD_t pub; /* must be first */
    dsf_h5_out *out, own;
    char log_name[4200];
    int fd, log; /* log -1: only read */
    haddr_t eoa, eof;
    haddr_t top;   /* nothing at or above it was ever written to the file */
    haddr_t begun; /* the kernel has been told to write up to here */
    haddr_t fresh; /* what top was at the last checkpoint */
    dsf_pages pages;
} part;

typedef struct {
    dsf_h5_out *out; /* NULL: nobody asks for errors */
} info;

static part *of(H5FD_t *f) { return (part *)(void *)f; }
static const part *view(const H5FD_t *f) { return (const part *)(const void *)f; }

static void note(part *p, int error)
{
    if (!p->out->error) p->out->error = error ? error : EIO;
}

static void note_status(part *p, dsf_status st)
{
    if (st != DSF_OK) note(p, st == DSF_ENOMEM ? ENOMEM : EIO);
}

static haddr_t page_up(haddr_t at) { return (at + DSF_PAGE - 1) / DSF_PAGE * DSF_PAGE; }

/* What a killed run committed: pages, and the length they speak of. */
static dsf_status load_log(part *p)
{
    struct stat s;
    dsf_file log;
    if (fstat(p->fd, &s) != 0) return DSF_FAIL(DSF_EIO, "%s", strerror(errno));
    p->eof = (haddr_t)s.st_size;
    if (dsf_file_exists(p->log_name)) {
        DSF_TRY(dsf_file_open(&log, p->log_name));
        dsf_status st = dsf_pages_load(&p->pages, log.data, log.size, p->fd);
        dsf_file_close(&log);
        if (st != DSF_OK) return st;
        if (p->pages.records) p->eof = p->pages.length;
    }
    p->top = p->begun = p->fresh = page_up(p->eof);
    return DSF_OK;
}

static dsf_status open_files(part *p, const char *name, unsigned flags)
{
    bool writes = (flags & H5F_ACC_RDWR) != 0, fresh = (flags & H5F_ACC_TRUNC) != 0;
    p->fd = p->log = -1;
    if (snprintf(p->log_name, sizeof p->log_name, "%s.log", name) >= (int)sizeof p->log_name)
        return DSF_FAIL(DSF_EINVAL, "%s: a path too long", name);
    /* the log first: it is of the file that was there */
    if (fresh && unlink(p->log_name) != 0 && errno != ENOENT)
        return DSF_FAIL(DSF_EIO, "%s: %s", p->log_name, strerror(errno));
    int mode = writes ? O_RDWR : O_RDONLY;
    if (fresh) mode |= O_CREAT | O_TRUNC;
    p->fd = open(name, mode | O_CLOEXEC, 0666);
    if (p->fd < 0) return DSF_FAIL(DSF_EIO, "%s: %s", name, strerror(errno));
    DSF_TRY(load_log(p));
    if (!writes) return DSF_OK;
    p->log = open(p->log_name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return p->log >= 0 ? DSF_OK : DSF_FAIL(DSF_EIO, "%s: %s", p->log_name, strerror(errno));
}

static H5FD_t *open_part(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr)
{
    (void)maxaddr;
    const info *i = H5Pget_driver_info(fapl);
    part *p = NULL;
    if (!i || dsf_mem_new(&p, 1, sizeof *p) != DSF_OK) return NULL;
    p->out = i->out ? i->out : &p->own;
    errno = 0;
    if (open_files(p, name, flags) == DSF_OK) return &p->pub;
    note(p, errno);
    if (p->fd >= 0) (void)close(p->fd);
    dsf_pages_free(&p->pages);
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

static void write_file(part *p, int fd, haddr_t addr, size_t size, const void *buffer)
{
    const char *from = buffer;
    while (size && !p->out->error) {
        ssize_t n = pwrite(fd, from, size, (off_t)addr);
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

/* EINVAL, EROFS: a file of a kind that cannot be synced. */
static void sync_file(part *p, int fd)
{
    if (!p->out->error && fdatasync(fd) != 0 && errno != EINVAL && errno != EROFS) note(p, errno);
}

static void set_length(part *p, int fd, haddr_t n)
{
    if (!p->out->error && ftruncate(fd, (off_t)n) != 0) note(p, errno);
}

/* The held copy of the page of addr, made from the file the first time. NULL: no memory, noted. */
static uint8_t *hold(part *p, haddr_t addr)
{
    haddr_t at = addr - addr % DSF_PAGE;
    size_t i = dsf_pages_first(&p->pages, addr);
    uint8_t *data = NULL;
    if (i == p->pages.n || p->pages.page[i].at != at) {
        dsf_status st = dsf_mem_new(&data, DSF_PAGE, 1);
        if (st == DSF_OK) st = dsf_pages_insert(&p->pages, i, at, data);
        note_status(p, st);
        if (st != DSF_OK) {
            dsf_mem_free(data);
            return NULL;
        }
        if (at < p->top) read_file(p, at, DSF_PAGE, data);
    }
    p->pages.page[i].dirty = true;
    return p->pages.page[i].data;
}

static herr_t read_part(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
                        void *buffer)
{
    (void)type;
    (void)dxpl;
    part *p = of(f);
    haddr_t end = addr + size;
    read_file(p, addr, size, buffer);
    for (size_t i = dsf_pages_first(&p->pages, addr); i < p->pages.n && p->pages.page[i].at < end;
         i++) {
        const dsf_page *h = &p->pages.page[i];
        haddr_t from = h->at > addr ? h->at : addr;
        haddr_t to = h->at + DSF_PAGE < end ? h->at + DSF_PAGE : end;
        memcpy((char *)buffer + (from - addr), h->data + (from - h->at), (size_t)(to - from));
    }
    return 0;
}

/* How much of a write may go to the file at once: whole pages that were never written nor held. */
static size_t direct_run(const part *p, haddr_t addr, size_t size)
{
    if (addr % DSF_PAGE || addr < p->top || size < DIRECT_BYTES) return 0;
    size_t i = dsf_pages_first(&p->pages, addr), n = size - size % DSF_PAGE;
    if (i < p->pages.n && p->pages.page[i].at < addr + n) n = (size_t)(p->pages.page[i].at - addr);
    return n;
}

static void write_direct(part *p, haddr_t addr, size_t n, const void *data)
{
    write_file(p, p->fd, addr, n, data);
    if (p->out->error) return;
    note_status(p, dsf_pages_extent(&p->pages, addr, n, data));
    p->top = addr + n;
    if (p->top - p->begun < WRITEBACK_BYTES) return;
    (void)sync_file_range(p->fd, (off_t)p->begun, (off_t)(p->top - p->begun),
                          SYNC_FILE_RANGE_WRITE); /* advice only */
    p->begun = p->top;
}

static herr_t write_part(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
                         const void *buffer)
{
    (void)type;
    (void)dxpl;
    part *p = of(f);
    const char *from = buffer;
    if (addr + size > p->eof) p->eof = addr + size;
    while (size && !p->out->error) {
        size_t n = direct_run(p, addr, size);
        if (n) {
            write_direct(p, addr, n, from);
        } else {
            n = DSF_PAGE - (size_t)(addr % DSF_PAGE);
            if (n > size) n = size;
            uint8_t *page = hold(p, addr);
            if (page) memcpy(page + addr % DSF_PAGE, from, n);
        }
        from += n;
        addr += n;
        size -= n;
    }
    return 0;
}

/* The file ends where HDF5's allocations end, as its superblock says; the one on disk with the next
 * checkpoint. */
static herr_t truncate_part(H5FD_t *f, hid_t dxpl, hbool_t closing)
{
    (void)dxpl;
    (void)closing;
    of(f)->eof = of(f)->eoa;
    return 0;
}

/* One record to the log. */
static void commit(part *p, bool sealed)
{
    uint8_t *record = NULL;
    size_t n = 0;
    if (p->out->error) return;
    dsf_status st = dsf_pages_record(&p->pages, p->eof, sealed, &record, &n);
    note_status(p, st);
    if (st == DSF_OK) write_file(p, p->log, p->pages.log_size, n, record);
    if (!p->out->error) dsf_pages_committed(&p->pages, record, n);
    dsf_mem_free(record);
}

/* The file by itself is what was committed; the log is empty. */
static void checkpoint(part *p)
{
    if (p->top > p->fresh) sync_file(p, p->fd); /* else it got nothing since it was synced */
    commit(p, true);
    sync_file(p, p->log);
    for (size_t i = 0; i < p->pages.n && !p->out->error; i++) {
        const dsf_page *h = &p->pages.page[i];
        if (h->at < p->eof) write_file(p, p->fd, h->at, DSF_PAGE, h->data);
    }
    set_length(p, p->fd, p->eof);
    sync_file(p, p->fd);
    set_length(p, p->log, 0);
    if (p->out->error) return;
    dsf_pages_clear(&p->pages);
    if (p->top < page_up(p->eof)) p->top = page_up(p->eof);
    p->begun = p->fresh = p->top;
}

/* HDF5 calls this when everything has been written and the length set. */
static herr_t flush_part(H5FD_t *f, hid_t dxpl, hbool_t closing)
{
    (void)dxpl;
    part *p = of(f);
    if (p->log < 0) return 0;
    commit(p, false);
    haddr_t most = p->out->sync_bytes > 0 ? (haddr_t)p->out->sync_bytes : SYNC_BYTES;
    haddr_t most_log = most < LOG_BYTES ? most : LOG_BYTES;
    if (!closing && (p->pages.log_size > most_log || p->top - p->fresh > most)) checkpoint(p);
    return 0;
}

static herr_t close_part(H5FD_t *f)
{
    part *p = of(f);
    if (p->log >= 0) {
        checkpoint(p);
        if (close(p->log) != 0) note(p, errno);
    }
    if (close(p->fd) != 0) note(p, errno);
    if (p->log >= 0 && !p->out->error && unlink(p->log_name) != 0) note(p, errno);
    dsf_pages_free(&p->pages);
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

/* Creation: no object times; equal content gives equal bytes. */
static hid_t creation_list(void)
{
    hid_t list = H5Pcreate(H5P_FILE_CREATE);
    if (list < 0 || H5Pset_sym_k(list, 32, 80) < 0 || H5Pset_obj_track_times(list, 0) < 0) {
        if (list >= 0) (void)H5Pclose(list);
        return -1;
    }
    return list;
}

/* Registered once and never given back: H5FD_close of HDF5 1.10 reads the class after it let go of
 * the driver, so the last file must not be the last to hold it. */
static hid_t driver = -1;

static void register_driver(void)
{
    H5FD_class_t class = make_class();
    driver = H5FDregister(&class);
}

dsf_status dsf_h5_use_driver(hid_t fapl, dsf_h5_out *state)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    info i = {state};
    (void)pthread_once(&once, register_driver);
    bool good = driver >= 0 && H5Pset_driver(fapl, driver, &i) >= 0 &&
                H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) >= 0 &&
                H5Pset_alignment(fapl, DIRECT_BYTES, DSF_PAGE) >= 0 &&
                H5Pset_meta_block_size(fapl, META_BYTES) >= 0;
    return good ? DSF_OK : dsf_h5_fail(DSF_EIO, "HDF5", "file driver");
}

static dsf_status open_with_driver(hid_t *out, const char *path, bool create, dsf_h5_out *state)
{
    dsf_h5_quiet();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = creation_list(), file = -1;
    if (fapl >= 0 && fcpl >= 0 && dsf_h5_use_driver(fapl, state) == DSF_OK)
        file =
            create ? H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl) : H5Fopen(path, H5F_ACC_RDWR, fapl);
    if (fcpl >= 0) (void)H5Pclose(fcpl);
    if (fapl >= 0) (void)H5Pclose(fapl);
    *out = file;
    if (file >= 0) return DSF_OK;
    const char *what = create ? "cannot be created" : "cannot be opened";
    if (state->error) return DSF_FAIL(DSF_EIO, "%s: %s: %s", path, what, strerror(state->error));
    return dsf_h5_fail(DSF_EIO, path, what);
}

dsf_status dsf_h5_create(hid_t *out, const char *path, dsf_h5_out *state)
{
    return open_with_driver(out, path, true, state);
}

dsf_status dsf_h5_resume(hid_t *out, const char *path, dsf_h5_out *state)
{
    return open_with_driver(out, path, false, state);
}
