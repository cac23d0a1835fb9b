/* Engram: row lookup and gated write (architecture.md 8.4, 8.5), and plain embedding rows. */
#ifndef DSF_OPS_ENGRAM_H
#define DSF_OPS_ENGRAM_H

#include "op.h"

/* out = table rows. ids outside 0..v-1 are a caller's fault (checked before the pass). */
typedef struct {
    dsf_tensor out;   /* [n, d] bf16 */
    dsf_tensor ids;   /* [n] i32 */
    dsf_tensor table; /* [v, d] bf16 */
} dsf_embed_args;

/* value = bf16(code * scale) of row rows[i][c]. 64-bit offsets: tables pass 2^31 bytes. */
typedef struct {
    dsf_tensor out;   /* [n, c, d] bf16 */
    dsf_tensor rows;  /* [n, c] i64, offset included */
    dsf_tensor table; /* [r, d] e4m3 */
    dsf_tensor s;     /* [r, d/32] e8m0; letter D */
} dsf_engram_gather_args;

/* Per stream k: d_k, gamma_k as 8.5; out_k = bf16( x_k + gamma_k * value ). kv = 4 keys (k major),
 * then the value. */
typedef struct {
    dsf_tensor out;    /* [n, 4, d] bf16; may be x */
    dsf_tensor gate;   /* [n, 4] f32; 0 where vl */
    dsf_tensor x;      /* [n, 4, d] bf16 */
    dsf_tensor kv;     /* [n, q = 5 d] bf16 */
    dsf_tensor qw, kw; /* [4, d] bf16 */
    dsf_tensor vl;     /* [n] u8 */
    float eps;
} dsf_engram_gate_args;

extern const dsf_op dsf_op_embed, dsf_op_engram_gather, dsf_op_engram_gate;

dsf_kernel_fn dsf_embed_ref, dsf_engram_gather_ref, dsf_engram_gate_ref;
dsf_kernel_fn dsf_engram_gather_avx512, dsf_engram_gate_avx512;
dsf_kernel_fn dsf_embed_sm90, dsf_engram_gather_sm90, dsf_engram_gate_sm90;

#endif
