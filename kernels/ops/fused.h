/* Sequences of operations in one pass over the data. Each is defined as the composition of its
 * parts, roundings between them included, so a plan gives the same bits with or without them:
 * engine/plan/fuse.c puts them in place of their parts. */
#ifndef DSF_OPS_FUSED_H
#define DSF_OPS_FUSED_H

#include "op.h"

/* Between two sublayers (architecture.md 4):
 *   y' = moe_sum(parts, y), or y when parts is absent
 *   out = hc_expand(y', x, post, comb); u = rms_norm(hc_collapse(out, pre), w); uq = quant_q8(u)
 *   next = hc_mix(out, fn, base, scale)
 * The last line's six operands are absent together: then hc_mix runs beside what follows, which
 * does not wait for it. */
typedef struct {
    dsf_tensor out;                            /* [n, 4, d] bf16 */
    dsf_tensor u;                              /* [n, d] bf16, optional */
    dsf_tensor uq;                             /* [n, d] Q8 */
    dsf_tensor next_pre, next_post, next_comb; /* [n, 4], [n, 4], [n, 4, 4] f32 */
    dsf_tensor x;                              /* [n, 4, d] bf16 */
    dsf_tensor y;                              /* [n, d] bf16 */
    dsf_tensor parts;                          /* [n, e, d] bf16, optional */
    dsf_tensor post, comb, pre;                /* [n, 4], [n, 4, 4], [n, 4] f32: what weighs now */
    dsf_tensor w;                              /* [d] bf16 */
    dsf_tensor fn, base, scale;                /* [m = 24, q = 4 d], [m], [3] f32 */
    float eps;                                 /* of rms_norm */
    float mix_eps, hc_eps;                     /* of hc_mix: norm_eps, hc_eps */
    int iters;
} dsf_hc_boundary_args;

/* quant(rope(rms_norm(x, w), cs)) of h records a row; w absent: x is not normalised; cs absent: it
 * is not rotated. With w there is one record a row. */
typedef struct {
    dsf_tensor out; /* [n, h, d] Q8 | Q4X */
    dsf_tensor x;   /* [n, h, d] bf16 */
    dsf_tensor w;   /* [d] bf16, optional: h = 1 */
    dsf_tensor cs;  /* [n, f, 2] f32, optional */
    float eps;
} dsf_row_record_args;

/* quant_q8(swiglu(g, v)) */
typedef struct {
    dsf_tensor out;  /* [n, i] Q8 */
    dsf_tensor g, v; /* [n, i] bf16 */
    float limit;
} dsf_swiglu_q8_args;

/* Two records a row in one launch: the window key and the q latent of one layer (5.1, 5.3).
 *   key = row_q8(x, w, cs), latent = row_q8(r, wr) */
typedef struct {
    dsf_tensor key, latent; /* [n, d], [n, l] Q8 */
    dsf_tensor x, w, cs;    /* [n, d] bf16, [d] bf16, [n, f, 2] f32 */
    dsf_tensor r, wr;       /* [n, l], [l] bf16 */
    float eps;              /* of both norms */
} dsf_row_pair_args;

/* After an attention: out = rope(o, cs, inverse), and cache_store of the window keys that it read.
 */
typedef struct {
    dsf_tensor out;              /* [n, h, d] bf16 */
    dsf_tensor ring;             /* [s, c, k] Q8; other rows untouched */
    dsf_tensor o;                /* [n, h, d] bf16 */
    dsf_tensor cs;               /* [n, f, 2] f32 */
    dsf_tensor key;              /* [n, k] Q8 */
    dsf_tensor slot, index, end; /* [n] i32, as in cache_store */
} dsf_attn_close_args;

extern const dsf_op dsf_op_hc_boundary, dsf_op_row_q8, dsf_op_row_q4x, dsf_op_swiglu_q8,
    dsf_op_row_pair, dsf_op_attn_close;

dsf_kernel_fn dsf_hc_boundary_ref, dsf_row_q8_ref, dsf_row_q4x_ref, dsf_swiglu_q8_ref,
    dsf_row_pair_ref, dsf_attn_close_ref;
dsf_kernel_fn dsf_hc_boundary_sm90;
size_t dsf_hc_boundary_sm90_scratch(const void *args); /* sm90/tune_hc.c */
dsf_kernel_fn dsf_row_q8_sm90, dsf_row_q4x_sm90, dsf_swiglu_q8_sm90, dsf_row_pair_sm90,
    dsf_attn_close_sm90;

/* Bytes of scratch per worker of the references: the values between the parts. */
size_t dsf_hc_boundary_ref_scratch(const void *args);
size_t dsf_row_record_ref_scratch(const void *args);
size_t dsf_swiglu_q8_ref_scratch(const void *args);
size_t dsf_row_pair_ref_scratch(const void *args);

#endif
