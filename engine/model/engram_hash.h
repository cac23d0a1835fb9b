/* Engram's n-gram hash: its constants, computed as published, and the table rows of a token
 * (architecture.md 8.2, 8.3). All in exact 64-bit integers. */
#ifndef DSF_MODEL_ENGRAM_HASH_H
#define DSF_MODEL_ENGRAM_HASH_H

#include "model/config.h"

/* Class of a position that no hash may read: inside an image span, or before the sequence. */
enum { DSF_CLASS_DEAD = -1 };

/* Fills rows, multipliers, primes and offsets of every c->engram from its layer and the engram_*
 * sizes, which must be valid (config.h). EINVAL when a size is outside its bounds. */
DSF_MUST dsf_status dsf_engram_constants_make(dsf_config *c);

/* Table rows of token t in Engram e (index into c->engram): row[column], column as in
 * dsf_engram_constants. window[k] is the class of token t-k, k = 0 .. engram_max_ngram_size-1,
 * DSF_CLASS_DEAD where there is none; blocking is sticky for larger k. pad_class is the class of
 * engram_pad_id. */
void dsf_engram_rows(const dsf_config *c, int e, const int32_t *window, int32_t pad_class,
                     int64_t *row);

#endif
