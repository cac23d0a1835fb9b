/* A small HDF5 file in memory: a case is built as an image, weighed, and written by the ordinary
 * door; read, it is an image too, in a process of its own first (probe.h). */
#ifndef DSF_REDUCE_PACK_H
#define DSF_REDUCE_PACK_H

#include "base/buf.h"
#include "verify/dump/h5.h"
#include "verify/dump/types.h"

typedef struct {
    hid_t file;
    const char *name; /* opens messages; lent */
} dsf_pack;

typedef struct {
    dsf_dump_kind kind;
    int rank;
    int64_t dim[4];
    const void *data;
} dsf_pack_array;

DSF_MUST dsf_status dsf_pack_create(dsf_pack *p, const char *name);
/* Opens n bytes (copied), to add to them with `write`. ECORRUPT: no HDF5. */
DSF_MUST dsf_status dsf_pack_open(dsf_pack *p, const char *name, const void *data, size_t n,
                                  bool write);
void dsf_pack_close(dsf_pack *p);

/* A dataset, shuffled, deflated, with checksums; its groups are made. */
DSF_MUST dsf_status dsf_pack_put(dsf_pack *p, const char *path, const dsf_pack_array *a);
DSF_MUST dsf_status dsf_pack_put_str(dsf_pack *p, const char *path, const char *name,
                                     const char *text);
DSF_MUST dsf_status dsf_pack_put_int(dsf_pack *p, const char *path, const char *name, int64_t v);
/* The file's bytes. Free with dsf_mem_free. */
DSF_MUST dsf_status dsf_pack_image(dsf_pack *p, void **data, size_t *n);

bool dsf_pack_has(const dsf_pack *p, const char *path);
/* The elements of a dataset of this kind; ECORRUPT when it is another, or has more than `most`
 * bytes. Free with dsf_mem_free. */
DSF_MUST dsf_status dsf_pack_get(const dsf_pack *p, const char *path, dsf_dump_kind kind,
                                 int64_t most, void **data, int64_t *n);
/* ECORRUPT when it is not there. */
DSF_MUST dsf_status dsf_pack_get_str(const dsf_pack *p, const char *path, const char *name,
                                     dsf_buf *out);
DSF_MUST dsf_status dsf_pack_get_int(const dsf_pack *p, const char *path, const char *name,
                                     int64_t *v);

#endif
