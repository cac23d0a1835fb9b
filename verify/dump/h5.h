/* HDF5 behind a few calls: its errors in our record, string attributes of both kinds, and a file
 * driver that survives a full disk. Only verify/dump and verify/reduce include this. */
#ifndef DSF_DUMP_H5_H
#define DSF_DUMP_H5_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "verify/dump/types.h"

/* Stops HDF5 from printing its own traces. Once per open is enough; cheap. */
void dsf_h5_quiet(void);
/* How values of a kind lie in a file: little endian. Not to be closed. */
hid_t dsf_h5_stored_type(dsf_dump_kind k);
/* Raises EIO or ECORRUPT with HDF5's innermost words: "FILE: WHAT: WORDS". */
dsf_status dsf_h5_fail(dsf_status st, const char *file, const char *what);

/* Writes a fixed-length, NUL-padded ASCII string / an int32 as attribute (replacing one). */
DSF_MUST dsf_status dsf_h5_put_str(hid_t at, const char *file, const char *name, const char *text);
DSF_MUST dsf_status dsf_h5_put_int(hid_t at, const char *file, const char *name, int64_t value);
/* Appends the text of a string attribute, fixed or variable; at most `max` bytes. *found false and
 * OK when there is none. */
DSF_MUST dsf_status dsf_h5_get_str(hid_t at, const char *file, const char *name, size_t max,
                                   dsf_buf *out, bool *found);
/* A scalar integer attribute; *out untouched when absent. */
DSF_MUST dsf_status dsf_h5_get_int(hid_t at, const char *file, const char *name, int64_t *out);

/* A file being written. HDF5 1.10 crashes once a write has failed; this driver therefore never
 * fails: it keeps the first errno and drops what follows, and the writer looks at it after every
 * flush. H5Fflush commits: what was written so far survives the end of this process (pages.h). */
typedef struct {
    int error;          /* errno of the first failed call, 0 */
    int64_t sync_bytes; /* given: a checkpoint after so many; 0: 1 GiB */
} dsf_h5_out;

/* Creates `path` through the driver. `state` (error 0) lives until the file is closed. */
DSF_MUST dsf_status dsf_h5_create(hid_t *out, const char *path, dsf_h5_out *state);
/* Opens what a killed run left at `path`, to go on writing. */
DSF_MUST dsf_status dsf_h5_resume(hid_t *out, const char *path, dsf_h5_out *state);
/* Makes a list open files through the driver; state NULL: errors are only HDF5's. */
DSF_MUST dsf_status dsf_h5_use_driver(hid_t fapl, dsf_h5_out *state);

#endif
