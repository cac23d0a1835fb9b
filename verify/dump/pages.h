/* The log beside a dump that is being written: what makes PATH.part whole again whatever ended its
 * writer, and when.
 *
 * Of a file being written only bytes that no commit names are written in place: large runs at its
 * end ("extents"). Everything else is held in memory as pages and goes, at a commit, to
 * PATH.part.log as one record: the pages that changed, the extents that came since the last record
 * with their hashes, the file's length. A checkpoint syncs both files, copies the pages to their
 * places, syncs, and empties the log; a writer that dies within it leaves the log, from which the
 * copy is made again. A record counts if its hash and those of its extents are right; the first
 * that does not ends the log. So a killed process loses nothing that was committed, and a machine
 * that loses power nothing that had reached the disk. */
#ifndef DSF_DUMP_PAGES_H
#define DSF_DUMP_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DSF_PAGE = 4096 };

typedef struct {
    uint64_t at;   /* in the file, a multiple of DSF_PAGE */
    uint8_t *data; /* [DSF_PAGE] */
    bool dirty;    /* changed since the last commit */
} dsf_page;

typedef struct {
    uint64_t at, n, hash; /* bytes of the file and their hash */
} dsf_extent;

typedef struct {
    dsf_page *page; /* ascending */
    size_t n, cap;
    dsf_extent *extent; /* since the last commit */
    size_t n_extents, extent_cap;
    uint64_t length;   /* of the file, by the last record */
    uint64_t chain;    /* hash of the last record */
    uint64_t log_size; /* bytes of the log that count */
    int64_t records;   /* in the log */
} dsf_pages;

/* Index of the first page that ends behind `at`. */
size_t dsf_pages_first(const dsf_pages *p, uint64_t at);
/* Puts a page in; its data (DSF_PAGE bytes, dsf_mem) becomes the set's unless it fails. */
DSF_MUST dsf_status dsf_pages_insert(dsf_pages *p, size_t index, uint64_t at, uint8_t *data);
DSF_MUST dsf_status dsf_pages_extent(dsf_pages *p, uint64_t at, uint64_t n, const void *data);
/* The next record of the log, for a file of `length` bytes: dirty pages and extents. *record
 * (dsf_mem, *n bytes) is to be written at log_size; then call dsf_pages_committed. sealed: the file
 * has been synced and its pages will be copied next. */
DSF_MUST dsf_status dsf_pages_record(dsf_pages *p, uint64_t length, bool sealed, uint8_t **record,
                                     size_t *n);
void dsf_pages_committed(dsf_pages *p, const uint8_t *record, size_t n);
/* Reads the records of a log of n bytes that count. fd: the file, whose extents are checked. Bytes
 * that are no record are no error: a write that was cut. */
DSF_MUST dsf_status dsf_pages_load(dsf_pages *p, const uint8_t *log, size_t n, int fd);
/* Forgets pages and log (they are in the file). */
void dsf_pages_clear(dsf_pages *p);
void dsf_pages_free(dsf_pages *p);

#endif
