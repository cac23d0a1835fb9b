/* Byte-pair merging of one piece: the lowest rank first, then the leftmost place. */
#ifndef DSF_TEXT_MERGES_H
#define DSF_TEXT_MERGES_H

#include "text/vocab.h"

typedef struct {
    uint64_t pair; /* left id << 32 | right id; all ones: free */
    uint32_t rank;
    int32_t id;
} dsf_merge;

typedef struct {
    dsf_merge *slot;
    uint32_t slot_mask;
    int32_t byte_id[256]; /* -1: the vocabulary lacks this byte */
} dsf_merges;

/* Memory of one caller, reused from piece to piece. */
typedef struct {
    struct dsf_symbol *symbol;
    uint64_t *heap;
    size_t symbol_cap, heap_cap, heap_n;
} dsf_merge_scratch;

/* `list`: the array model.merges, of "a b" strings or of pairs. */
DSF_MUST dsf_status dsf_merges_load(dsf_merges *m, const char *name, const dsf_vocab *v,
                                    const dsf_json *list);
void dsf_merges_free(dsf_merges *m);

/* Ids of the n bytes at s (n < 2^31) to out[n]; *n_out of them. EINVAL: the vocabulary lacks a
 * byte. n log n for any input. */
DSF_MUST dsf_status dsf_merges_apply(const dsf_merges *m, dsf_merge_scratch *w, const char *s,
                                     size_t n, int32_t *out, size_t *n_out);
void dsf_merge_scratch_free(dsf_merge_scratch *w);

#endif
