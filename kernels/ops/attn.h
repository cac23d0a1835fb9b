/* Sparse attention with sink over window keys and selected compressed entries
 * (architecture.md 5.3, 5.4), and the draft block's attention (10.3). One shared K = V per key for
 * all heads.
 *
 * Key list of row i (position t, sequence slot b):
 *   block = 0: window positions max(lo, t-w+1)..t ascending, then topk[i] (ids >= 0, ascending).
 *     Position p >= start[i] is pass row row[i] - (t - p) of kv_new; an earlier one is ring slot p
 * mod c. block = B > 0 (draft): the filled slots of the ring as the reference stores it: for s =
 * 0..w-1 the largest position p < start[i] with p mod w = s (p >= 0), then all B pass rows of the
 * sequence: row[i] - (t - start[i]) + 0..B-1. The list is cut into blocks of 64; online softmax
 * over blocks: running max from -1e30, logits f32
 * ((q.k) d^-1/2), probabilities e^(l - max) rounded to bf16 before the product with V, the
 * denominator sums the unrounded f32 ones; sink e^(sigma - max) joins the denominator at the end;
 * one division, bf16. */
#ifndef DSF_OPS_ATTN_H
#define DSF_OPS_ATTN_H

#include "op.h"

typedef struct {
    dsf_tensor out;    /* [n, h, d] bf16 */
    dsf_tensor q;      /* [n, h, d] bf16 */
    dsf_tensor kv_new; /* [a, d] Q8: window keys of all a rows of the pass, addressed by row[] */
    dsf_tensor ring;   /* [s, c, d] Q8 */
    dsf_tensor main;   /* [s, e, d] Q4N; rank 0: window only */
    dsf_tensor topk;   /* [n, k] i32, -1 padded; rank 0: window only */
    dsf_tensor sink;   /* [h] f32 */
    dsf_tensor row;    /* [n] i32: index of this row in kv_new */
    dsf_tensor pos;    /* [n] i32: t */
    dsf_tensor start;  /* [n] i32: first position of the sequence in this pass */
    dsf_tensor lo;     /* [n] i32: lowest visible window position (0; the replay cut in `replay`) */
    dsf_tensor slot;   /* [n] i32 */
    int window;        /* w */
    int block;         /* 0, or B */
} dsf_attn_args;

extern const dsf_op dsf_op_attn;

/* The key list, shared by all CPU variants. */
typedef struct {
    const uint8_t *record; /* in kv_new, ring or main */
    int is_main;           /* Q4N record, else Q8 */
} dsf_attn_key;

enum { DSF_ATTN_BLOCK = 64 }; /* list slots that share one running maximum */

/* The most keys a row can have: w + k + B. */
int64_t dsf_attn_list_max(const dsf_attn_args *a);
/* Fills key[] (room for dsf_attn_list_max) for row i; returns the count. */
int dsf_attn_list(const dsf_attn_args *a, int64_t i, dsf_attn_key *key);

dsf_kernel_fn dsf_attn_ref, dsf_attn_avx512, dsf_attn_sm90, dsf_attn_sm90tc;
size_t dsf_attn_scratch_ref(const void *args), dsf_attn_scratch_avx512(const void *args);
int dsf_attn_accepts_sm90(const void *args), dsf_attn_accepts_sm90tc(const void *args);
size_t dsf_attn_scratch_sm90tc(const void *args);

#endif
