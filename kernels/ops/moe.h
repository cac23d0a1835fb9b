/* Mixture of experts (architecture.md 7). */
#ifndef DSF_OPS_MOE_H
#define DSF_OPS_MOE_H

#include "op.h"

/* r = sqrt(softplus(z)), softplus linear above 20; the k best of r + bias (bias_vl where vl), ties
 * to the smaller id, written ascending; weight = r / (sum of chosen r + 1e-20) * scale (k = 1: r *
 * scale). */
typedef struct {
    dsf_tensor scores;  /* [n, e] f32: r */
    dsf_tensor ids;     /* [n, k] i32 */
    dsf_tensor weights; /* [n, k] f32 */
    dsf_tensor z;       /* [n, e] f32 */
    dsf_tensor bias;    /* [e] f32 */
    dsf_tensor bias_vl; /* [e] f32; optional: never used then */
    dsf_tensor vl;      /* [n] u8 */
    float scale;
    int norm_topk_prob;
} dsf_route_args;

/* h = bf16( w * silu(min(g, limit)) * clamp(v, +-limit) ), f32 inside, product order as written: w
 * last
 * ((silu(g) v) w). w absent: 1. */
typedef struct {
    dsf_tensor out;  /* [n, i] bf16 */
    dsf_tensor g, v; /* [n, i] bf16 */
    float limit;
} dsf_swiglu_args;

/* Expert tables: e pointers as I64, each to one expert's tensor in the checkpoint's own layout:
 * codes e2m1x2 [out, in/2] and scales e8m0 [out, in/32]. The *_data operands are the checker's
 * storage. */
typedef struct {
    dsf_tensor out; /* [n, k, i] bf16: swiglu of the two G4 products (each rounded to bf16), times
                       the weight */
    dsf_tensor x;   /* [n, d] Q8 */
    dsf_tensor ids; /* [n, k] i32 */
    dsf_tensor weights;                            /* [n, k] f32 */
    dsf_tensor w1, s1, w3, s3;                     /* [e] I64 */
    dsf_tensor w1_data, s1_data, w3_data, s3_data; /* aux [e, i, d/2] e2m1x2, [e, i, d/32] e8m0 */
    float limit;
} dsf_experts_up_args;

typedef struct {
    dsf_tensor out;              /* [n, k, d] bf16 */
    dsf_tensor h;                /* [n, k, i] Q8 */
    dsf_tensor ids;              /* [n, k] i32 */
    dsf_tensor w2, s2;           /* [e] I64 */
    dsf_tensor w2_data, s2_data; /* aux [e, d, i/2] e2m1x2, [e, d, i/32] e8m0 */
} dsf_experts_down_args;

/* out = bf16( ((0 + y_0) + y_1 ...) + shared ), f32 running sum in ascending expert id (= slot)
 * order. */
typedef struct {
    dsf_tensor out;    /* [n, d] bf16 */
    dsf_tensor y;      /* [n, k, d] bf16 */
    dsf_tensor shared; /* [n, d] bf16 */
} dsf_moe_sum_args;

extern const dsf_op dsf_op_route, dsf_op_swiglu, dsf_op_experts_up, dsf_op_experts_down,
    dsf_op_moe_sum;

dsf_kernel_fn dsf_route_ref, dsf_swiglu_ref, dsf_experts_up_ref, dsf_experts_down_ref,
    dsf_moe_sum_ref;
dsf_kernel_fn dsf_swiglu_avx512, dsf_experts_up_avx512, dsf_experts_down_avx512, dsf_moe_sum_avx512;
dsf_kernel_fn dsf_experts_up_sm90, dsf_experts_down_sm90, dsf_experts_up_sm90fp8,
    dsf_experts_down_sm90fp8;
dsf_kernel_fn dsf_route_sm90, dsf_swiglu_sm90, dsf_moe_sum_sm90;
size_t dsf_experts_up_avx512_scratch(const void *args);
size_t dsf_experts_down_avx512_scratch(const void *args);

#endif
