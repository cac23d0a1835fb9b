/* Moves between pass rows and the caches of a sequence slot (architecture.md 13). */
#ifndef DSF_OPS_CACHE_H
#define DSF_OPS_CACHE_H

#include "op.h"

/* cache[slot[i]][index[i] mod c] = row i, for rows with index[i] >= end[i] - c: when a pass holds
 * more rows of a sequence than the ring, the last ones win. Slot < 0: the row is padding and is
 * skipped. */
typedef struct {
    dsf_tensor cache; /* [s, c, d] record type; other rows untouched */
    dsf_tensor x;     /* [n, d] record type */
    dsf_tensor slot;  /* [n] i32 */
    dsf_tensor index; /* [n] i32 >= 0 */
    dsf_tensor end;   /* [n] i32: one past the last index of this sequence in this pass */
} dsf_cache_store_args;

/* Ratio-2 compressor (5.2). Entry e closes at pass row row[e] (an odd position); its even token is
 * the pass row before, or, when that position is before start[row] (the pass's first position of
 * the sequence), the pending half-group. out = bf16( sum over the two of softmax(g) v ), per
 * channel. */
typedef struct {
    dsf_tensor out;   /* [e, d] bf16 */
    dsf_tensor v, g;  /* [n, d] f32: all pass rows */
    dsf_tensor pend;  /* [s, p, 2, d] f32: v then g of even positions; slot (t/2) mod p */
    dsf_tensor row;   /* [e] i32 */
    dsf_tensor pos;   /* [n] i32 */
    dsf_tensor start; /* [n] i32 */
    dsf_tensor slot;  /* [n] i32 */
} dsf_pair_pool_args;

/* Keeps (v, g) of the even positions among the last 2 p of each sequence in the pass. */
typedef struct {
    dsf_tensor pend; /* [s, p, 2, d] f32 */
    dsf_tensor v, g; /* [n, d] f32 */
    dsf_tensor pos;  /* [n] i32 */
    dsf_tensor end;  /* [n] i32 */
    dsf_tensor slot; /* [n] i32 */
} dsf_pair_store_args;

/* out[i] = x[row[i]]: the rows whose logits are wanted. */
typedef struct {
    dsf_tensor out; /* [m, d] bf16 */
    dsf_tensor x;   /* [n, d] bf16 */
    dsf_tensor row; /* [m] i32 */
} dsf_row_gather_args;

extern const dsf_op dsf_op_cache_store_q8, dsf_op_cache_store_q4x, dsf_op_cache_store_q4n,
    dsf_op_pair_pool, dsf_op_pair_store, dsf_op_row_gather;

/* The two tokens (even, odd) of entry e, shared by all CPU variants: [d] each. */
typedef struct {
    const float *v[2], *g[2];
} dsf_pair_view;
dsf_pair_view dsf_pair_of(const dsf_pair_pool_args *a, int64_t e);

/* One for the three record types: it moves whole records. */
dsf_kernel_fn dsf_cache_store_ref, dsf_pair_pool_ref, dsf_pair_store_ref, dsf_row_gather_ref;
dsf_kernel_fn dsf_pair_pool_avx512;
dsf_kernel_fn dsf_cache_store_sm90, dsf_pair_pool_sm90, dsf_pair_store_sm90, dsf_row_gather_sm90;

#endif
