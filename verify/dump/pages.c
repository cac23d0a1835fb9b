#include "verify/dump/pages.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "verify/dump/stats.h"

/* A record: head, extents, addresses of the pages, pages. Integers as this machine has them: a log
 * is read where it was written. */
typedef struct {
    char magic[8];
    uint64_t hash; /* of what follows, seeded with the hash of the record before */
    uint64_t length, n_pages, n_extents;
    uint64_t sealed; /* the file was synced: extents so far need no check */
} head;

static const char magic[8] = "dsfpage1";
enum { HASHED_FROM = offsetof(head, length) };
/* Extents are hashed in pieces, the hash of one the seed of the next. */
enum { READ_BYTES = 1 << 20 };

size_t dsf_pages_first(const dsf_pages *p, uint64_t at)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (p->page[mid].at + DSF_PAGE <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

dsf_status dsf_pages_insert(dsf_pages *p, size_t index, uint64_t at, uint8_t *data)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        DSF_TRY(dsf_mem_grow(&p->page, cap, sizeof *p->page));
        p->cap = cap;
    }
    memmove(p->page + index + 1, p->page + index, (p->n - index) * sizeof *p->page);
    p->page[index] = (dsf_page){.at = at, .data = data};
    p->n++;
    return DSF_OK;
}

dsf_status dsf_pages_extent(dsf_pages *p, uint64_t at, uint64_t n, const void *data)
{
    if (p->n_extents == p->extent_cap) {
        size_t cap = p->extent_cap ? 2 * p->extent_cap : 64;
        DSF_TRY(dsf_mem_grow(&p->extent, cap, sizeof *p->extent));
        p->extent_cap = cap;
    }
    uint64_t hash = 0;
    const uint8_t *from = data;
    for (uint64_t left = n, k; left; left -= k, from += k) {
        k = left < READ_BYTES ? left : READ_BYTES;
        hash = dsf_stats_hash(from, (size_t)k, hash);
    }
    p->extent[p->n_extents++] = (dsf_extent){at, n, hash};
    return DSF_OK;
}

static uint64_t hash_of(const uint8_t *record, size_t n, uint64_t chain)
{
    return dsf_stats_hash(record + HASHED_FROM, n - HASHED_FROM, chain);
}

/* A page behind the end (the file got shorter) waits: it may become part of it again. */
static bool goes(const dsf_page *page, uint64_t length) { return page->dirty && page->at < length; }

dsf_status dsf_pages_record(dsf_pages *p, uint64_t length, bool sealed, uint8_t **record, size_t *n)
{
    head h = {.length = length, .n_extents = p->n_extents, .sealed = sealed};
    for (size_t i = 0; i < p->n; i++) h.n_pages += goes(&p->page[i], length);
    size_t extents = p->n_extents * sizeof *p->extent;
    *n = sizeof h + extents + (size_t)h.n_pages * (sizeof(uint64_t) + DSF_PAGE);
    DSF_TRY(dsf_mem_new(record, *n, 1));
    uint8_t *address = *record + sizeof h + extents, *data = address + 8 * h.n_pages;
    if (extents) memcpy(*record + sizeof h, p->extent, extents);
    for (size_t i = 0; i < p->n; i++) {
        if (!goes(&p->page[i], length)) continue;
        memcpy(address, &p->page[i].at, 8);
        memcpy(data, p->page[i].data, DSF_PAGE);
        address += 8;
        data += DSF_PAGE;
    }
    memcpy(h.magic, magic, sizeof magic);
    memcpy(*record, &h, sizeof h);
    h.hash = hash_of(*record, *n, p->chain);
    memcpy(*record, &h, sizeof h);
    return DSF_OK;
}

void dsf_pages_committed(dsf_pages *p, const uint8_t *record, size_t n)
{
    head h;
    memcpy(&h, record, sizeof h);
    for (size_t i = 0; i < p->n; i++)
        if (p->page[i].at < h.length) p->page[i].dirty = false;
    p->n_extents = 0;
    p->length = h.length;
    p->chain = h.hash;
    p->log_size += n;
    p->records++;
}

/* Bytes of the record that begins here, 0 when none does. */
static size_t record_size(const uint8_t *log, size_t left, uint64_t chain, head *h)
{
    if (left < sizeof *h) return 0;
    memcpy(h, log, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->length > INT64_MAX) return 0;
    left -= sizeof *h;
    if (h->n_extents > left / sizeof(dsf_extent)) return 0;
    left -= (size_t)h->n_extents * sizeof(dsf_extent);
    if (h->n_pages > left / (8 + DSF_PAGE)) return 0;
    size_t n =
        sizeof *h + (size_t)h->n_extents * sizeof(dsf_extent) + (size_t)h->n_pages * (8 + DSF_PAGE);
    return hash_of(log, n, chain) == h->hash ? n : 0;
}

/* Fills want bytes; false at an error or the end of the file. */
static bool read_all(int fd, uint8_t *to, size_t want, uint64_t at)
{
    while (want) {
        ssize_t got = pread(fd, to, want, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        at += (uint64_t)got;
        want -= (size_t)got;
    }
    return true;
}

static bool extent_is_there(const dsf_extent *e, uint64_t length, int fd, uint8_t *buffer)
{
    uint64_t at = e->at, left = e->n, hash = 0;
    if (at > length || left > length - at) return false;
    for (uint64_t k; left; left -= k, at += k) {
        k = left < READ_BYTES ? left : READ_BYTES;
        if (!read_all(fd, buffer, (size_t)k, at)) return false;
        hash = dsf_stats_hash(buffer, (size_t)k, hash);
    }
    return hash == e->hash;
}

static dsf_status take_page(dsf_pages *p, uint64_t at, const uint8_t *from)
{
    size_t i = dsf_pages_first(p, at);
    if (i < p->n && p->page[i].at == at) {
        memcpy(p->page[i].data, from, DSF_PAGE);
        return DSF_OK;
    }
    uint8_t *data = NULL;
    DSF_TRY(dsf_mem_new(&data, DSF_PAGE, 1));
    memcpy(data, from, DSF_PAGE);
    dsf_status st = dsf_pages_insert(p, i, at, data);
    if (st != DSF_OK) dsf_mem_free(data);
    return st;
}

/* *good false: the record names what the file does not hold, or pages outside it. fd -1: extents
 * are not looked at. */
static dsf_status take_record(dsf_pages *p, const uint8_t *log, const head *h, int fd, bool *good)
{
    const uint8_t *extent = log + sizeof *h;
    const uint8_t *address = extent + h->n_extents * sizeof(dsf_extent);
    const uint8_t *data = address + 8 * h->n_pages;
    uint8_t *buffer = NULL;
    dsf_status st = DSF_OK;
    *good = true;
    if (h->n_extents) DSF_TRY_OUT(dsf_mem_new(&buffer, READ_BYTES, 1));
    for (uint64_t i = 0; i < h->n_extents && *good && fd >= 0; i++) {
        dsf_extent e;
        memcpy(&e, extent + i * sizeof e, sizeof e);
        *good = extent_is_there(&e, h->length, fd, buffer);
    }
    for (uint64_t i = 0; i < h->n_pages && *good; i++) {
        uint64_t at;
        memcpy(&at, address + 8 * i, 8);
        *good = at % DSF_PAGE == 0 && at < h->length;
    }
    for (uint64_t i = 0; i < h->n_pages && *good; i++) {
        uint64_t at;
        memcpy(&at, address + 8 * i, 8);
        DSF_TRY_OUT(take_page(p, at, data + i * DSF_PAGE));
    }
out:
    dsf_mem_free(buffer);
    return st;
}

/* A sealed log ends with its seal. The copying of pages behind it may have changed extents. */
static bool is_sealed(const uint8_t *log, size_t n)
{
    head h = {.sealed = 0};
    uint64_t chain = 0, sealed = 0;
    size_t size;
    for (; (size = record_size(log, n, chain, &h)) != 0; log += size, n -= size) {
        chain = h.hash;
        sealed = h.sealed;
    }
    return sealed != 0;
}

dsf_status dsf_pages_load(dsf_pages *p, const uint8_t *log, size_t n, int fd)
{
    head h;
    size_t size;
    bool good;
    if (is_sealed(log, n)) fd = -1;
    while ((size = record_size(log + p->log_size, n - p->log_size, p->chain, &h)) != 0) {
        DSF_TRY(take_record(p, log + p->log_size, &h, fd, &good));
        if (!good) break;
        p->length = h.length;
        p->chain = h.hash;
        p->log_size += size;
        p->records++;
    }
    return DSF_OK;
}

void dsf_pages_clear(dsf_pages *p)
{
    for (size_t i = 0; i < p->n; i++) dsf_mem_free(p->page[i].data);
    p->n = 0;
    p->chain = p->log_size = 0;
    p->records = 0;
}

void dsf_pages_free(dsf_pages *p)
{
    dsf_pages_clear(p);
    dsf_mem_free(p->page);
    dsf_mem_free(p->extent);
    *p = (dsf_pages){0};
}
