/* Digests: xxh3-128 of bytes fed in pieces, as 32 hexadecimal digits. */
#ifndef DSF_CKPT_DIGEST_H
#define DSF_CKPT_DIGEST_H

#include <stddef.h>

#include "base/status.h"

typedef struct dsf_digest dsf_digest;

DSF_MUST dsf_status dsf_digest_open(dsf_digest **out);
void dsf_digest_add(dsf_digest *d, const void *data, size_t n);
void dsf_digest_hex(const dsf_digest *d, char out[33]);
void dsf_digest_close(dsf_digest *d); /* NULL is fine */
/* The digest of one block. */
void dsf_digest_bytes(const void *data, size_t n, char out[33]);

#endif
