/* Single-pass hyper-connections, 4 streams (architecture.md 4). */
#ifndef DSF_OPS_HC_H
#define DSF_OPS_HC_H

#include "op.h"

/* x_k = e for all k; premix = (1,0,0,0). */
typedef struct {
    dsf_tensor x;      /* [n, 4, d] bf16 */
    dsf_tensor premix; /* [n, 4] f32 */
    dsf_tensor e;      /* [n, d] bf16 */
} dsf_hc_start_args;

/* The coefficient predictor H(X): steps 1-5 of section 4. comb[j][k]: old stream j, new stream k.
 */
typedef struct {
    dsf_tensor pre, post; /* [n, 4] f32 */
    dsf_tensor comb;      /* [n, 4, 4] f32 */
    dsf_tensor x;         /* [n, 4, d] bf16 */
    dsf_tensor fn;        /* [m = 24, q = 4 d] f32 */
    dsf_tensor base;      /* [m = 24] f32 */
    dsf_tensor scale;     /* [3] f32; letter t */
    float norm_eps, hc_eps;
    int iters; /* column normalisations: 20 */
} dsf_hc_mix_args;

/* out = bf16( sum_k w_k x_k ). */
typedef struct {
    dsf_tensor out; /* [n, d] bf16 */
    dsf_tensor x;   /* [n, 4, d] bf16 */
    dsf_tensor w;   /* [n, 4] f32 */
} dsf_hc_collapse_args;

/* out_k = bf16( post_k y + sum_j comb[j][k] x_j ). */
typedef struct {
    dsf_tensor out;  /* [n, 4, d] bf16; may be x */
    dsf_tensor x;    /* [n, 4, d] bf16 */
    dsf_tensor y;    /* [n, d] bf16 */
    dsf_tensor post; /* [n, 4] f32 */
    dsf_tensor comb; /* [n, 4, 4] f32 */
} dsf_hc_expand_args;

/* out[:, column] = bf16( mean_k x_k ): taps of the draft head (10.2), one of t columns of width d.
 */
typedef struct {
    dsf_tensor out; /* [n, t, d] bf16: only column `column` is written */
    dsf_tensor x;   /* [n, 4, d] bf16 */
    int column;
} dsf_hc_mean_args;

extern const dsf_op dsf_op_hc_start, dsf_op_hc_mix, dsf_op_hc_collapse, dsf_op_hc_expand,
    dsf_op_hc_mean;

dsf_kernel_fn dsf_hc_start_ref, dsf_hc_mix_ref, dsf_hc_collapse_ref, dsf_hc_expand_ref,
    dsf_hc_mean_ref;
dsf_kernel_fn dsf_hc_mix_avx512, dsf_hc_collapse_avx512, dsf_hc_expand_avx512, dsf_hc_mean_avx512;
dsf_kernel_fn dsf_hc_start_sm90, dsf_hc_mix_sm90, dsf_hc_collapse_sm90, dsf_hc_expand_sm90,
    dsf_hc_mean_sm90;
size_t dsf_hc_mix_sm90_scratch(const void *args); /* sm90/tune_hc.c */

#endif
