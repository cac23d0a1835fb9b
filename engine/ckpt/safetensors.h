/* One safetensors file: its header parsed and checked, its names in order, its data as views of the
 * map (architecture.md 12). */
#ifndef DSF_CKPT_SAFETENSORS_H
#define DSF_CKPT_SAFETENSORS_H

#include "base/file.h"
#include "base/tensor.h"

typedef struct {
    const char *name; /* NUL-terminated, 1 to 512 printable bytes */
    dsf_dtype dtype;  /* F32 BF16 E4M3 E8M0, and E2M1X2 for the format's I8 (packed fp4) */
    int rank;
    int64_t dim[DSF_MAX_RANK];
    uint64_t offset, bytes; /* in the file */
} dsf_shard_entry;

/* Zero-initialise. Owns the map and the table. */
typedef struct {
    dsf_file file;
    dsf_shard_entry *entry; /* names ascending (strcmp) */
    int64_t n;
    char *names;
} dsf_shard;

/* Checks everything that the format promises: header length and JSON, known dtypes, shapes that
 * equal their bytes, names that occur once, data that cover the file without gap or overlap.
 * EIO: cannot be read. ECORRUPT: names file, tensor, both numbers. *s is then closed. */
DSF_MUST dsf_status dsf_safetensors_open(dsf_shard *s, const char *path);
/* The same on a map that is already open; s takes it over, also on failure. */
DSF_MUST dsf_status dsf_safetensors_parse(dsf_shard *s, dsf_file *file);
void dsf_safetensors_close(dsf_shard *s);
/* NULL when there is no such name. */
const dsf_shard_entry *dsf_safetensors_find(const dsf_shard *s, const char *name);
/* The dtype as the format spells it. */
const char *dsf_safetensors_dtype(dsf_dtype t);

#endif
