/* Read-only map of a whole file, bounds-checked reads, and files that appear only when finished:
 * the only door to the disk for the engine. */
#ifndef DSF_BASE_FILE_H
#define DSF_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    char path[4096];
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
} dsf_file;

/* Maps `path`. EIO with the system's words when it cannot. Close with dsf_file_close (NULL-safe,
 * idempotent). */
DSF_MUST dsf_status dsf_file_open(dsf_file *f, const char *path);
void dsf_file_close(dsf_file *f);
/* Pointer to n bytes at offset, or ECORRUPT with path, both numbers and the file's size. */
DSF_MUST dsf_status dsf_file_at(const dsf_file *f, uint64_t offset, uint64_t n,
                                const uint8_t **out);
/* Joins folder and name into out[4096]; EINVAL when too long. */
DSF_MUST dsf_status dsf_file_join(char *out, const char *folder, const char *name);
bool dsf_file_exists(const char *path);
/* Do both paths name one file? False when either is not there. */
bool dsf_file_same(const char *a, const char *b);
/* EIO when something other than a regular file (a device, a folder) stands where output shall go: a
 * finished file replaces what it finds. */
DSF_MUST dsf_status dsf_file_may_replace(const char *path);
bool dsf_file_is_folder(const char *path);
/* Creates the folder if it is not there (its parent must be). */
DSF_MUST dsf_status dsf_file_make_folder(const char *path);

/* A file being written: bytes go to PATH.part; finish fsyncs and renames; abandon removes it. */
typedef struct {
    char path[4096];
    int fd;
    uint64_t written;
} dsf_file_out;

DSF_MUST dsf_status dsf_file_create(dsf_file_out *o, const char *path);
DSF_MUST dsf_status dsf_file_write(dsf_file_out *o, const void *data, size_t n);
DSF_MUST dsf_status dsf_file_finish(dsf_file_out *o);
void dsf_file_abandon(dsf_file_out *o);

#endif
