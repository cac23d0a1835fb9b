/* A checkpoint folder: model.safetensors.index.json and its shards (or one model.safetensors) as
 * one table from names to views (architecture.md 12). */
#ifndef DSF_CKPT_INDEX_H
#define DSF_CKPT_INDEX_H

#include "base/tensor.h"
#include "ckpt/safetensors.h"

typedef struct dsf_ckpt dsf_ckpt;

typedef struct {
    const char *name;
    dsf_tensor view; /* read-only bytes of the map (aligned to their element, see below) */
    int shard;
    uint64_t offset, bytes; /* in the shard's file */
} dsf_ckpt_entry;

/* Opens and checks: shard headers (safetensors.h), index against shards in both directions, all
 * faults listed. EIO: folder or a shard cannot be read. ECORRUPT: what is inside is wrong.
 * Data are mapped, not read. The format does not promise alignment: a tensor whose data are not
 * aligned to their element is copied (ENOTSUP when such copies pass 256 MiB). */
DSF_MUST dsf_status dsf_ckpt_open(dsf_ckpt **out, const char *folder);
void dsf_ckpt_close(dsf_ckpt *c); /* NULL is fine; views end here */

const char *dsf_ckpt_folder(const dsf_ckpt *c);
int64_t dsf_ckpt_count(const dsf_ckpt *c);
/* i-th entry, names ascending (strcmp). */
const dsf_ckpt_entry *dsf_ckpt_at(const dsf_ckpt *c, int64_t i);
/* NULL when there is no such name. */
const dsf_ckpt_entry *dsf_ckpt_find(const dsf_ckpt *c, const char *name);
/* The view of a tensor; ECORRUPT names folder and tensor when it is not there. */
DSF_MUST dsf_status dsf_ckpt_get(const dsf_ckpt *c, const char *name, dsf_tensor *out);

int dsf_ckpt_shards(const dsf_ckpt *c);
const char *dsf_ckpt_shard_path(const dsf_ckpt *c, int shard);
/* Bytes of all tensors, and what the index says they are (-1: it does not say). */
int64_t dsf_ckpt_bytes(const dsf_ckpt *c);
int64_t dsf_ckpt_total_size(const dsf_ckpt *c);

/* xxh3-128 over name, dtype, shape and size of every tensor in name order: identifies the layout,
 * costs nothing. The content digest reads every byte too. Neither depends on the shards. */
DSF_MUST dsf_status dsf_ckpt_digest(const dsf_ckpt *c, char out[33]);
DSF_MUST dsf_status dsf_ckpt_digest_content(const dsf_ckpt *c, char out[33]);

#endif
