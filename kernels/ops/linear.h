/* Matrix products y = x W^T (architecture.md 3.4). K order: any fixed one that does not depend on
 * n. */
#ifndef DSF_OPS_LINEAR_H
#define DSF_OPS_LINEAR_H

#include "op.h"

/* G8: e4m3 weights in 32x32 blocks with ue8m0 scales; y = bf16(sum over k of x w). */
typedef struct {
    dsf_tensor out; /* [n, o] bf16 */
    dsf_tensor x;   /* [n, k] Q8 */
    dsf_tensor w;   /* [o, k] e4m3 */
    dsf_tensor s;   /* [ceil(o/32), k/32] e8m0 */
} dsf_linear_g8_args;

/* Two G8 products of the same x, bit for bit those of linear_g8: wq_a and wkv, w1 and w3. */
typedef struct {
    dsf_tensor out_a, out_b; /* [n, o_a], [n, o_b] bf16 */
    dsf_tensor x;            /* [n, k] Q8 */
    dsf_tensor w_a, s_a;     /* [o_a, k] e4m3, [ceil(o_a/32), k/32] e8m0 */
    dsf_tensor w_b, s_b;
} dsf_linear_g8_pair_args;

/* The product whose result is out_a (0) or out_b (1). */
static inline dsf_linear_g8_args dsf_linear_g8_half(const dsf_linear_g8_pair_args *p, int half)
{
    return half == 0 ? (dsf_linear_g8_args){p->out_a, p->x, p->w_a, p->s_a}
                     : (dsf_linear_g8_args){p->out_b, p->x, p->w_b, p->s_b};
}

/* GB: bf16 weights, bf16 result; linear_gf: f32 result. */
typedef struct {
    dsf_tensor out; /* [n, o] bf16 (linear_gb) | f32 (linear_gf) */
    dsf_tensor x;   /* [n, k] bf16 */
    dsf_tensor w;   /* [o, k] bf16 */
} dsf_linear_args;

/* wo_a (5.5): group g of x times its own block of fp8 weights, expanded to bf16 (exact); x is not
 * quantised. */
typedef struct {
    dsf_tensor out; /* [n, g, o] bf16 */
    dsf_tensor x;   /* [n, g, k] bf16 */
    dsf_tensor w;   /* [g, o, k] e4m3, o % 32 == 0 */
    dsf_tensor s;   /* [g, o/32, k/32] e8m0 */
} dsf_linear_group_args;

extern const dsf_op dsf_op_linear_g8, dsf_op_linear_g8_pair, dsf_op_linear_gb, dsf_op_linear_gf,
    dsf_op_linear_group;

dsf_kernel_fn dsf_linear_g8_pair_ref, dsf_linear_g8_pair_sm90, dsf_linear_g8_pair_sm90fp8;
int dsf_linear_g8_pair_sm90fp8_accepts(const void *args);
dsf_kernel_fn dsf_linear_g8_ref, dsf_linear_gb_ref, dsf_linear_gf_ref, dsf_linear_group_ref;
dsf_kernel_fn dsf_linear_g8_avx512, dsf_linear_gb_avx512, dsf_linear_gf_avx512,
    dsf_linear_group_avx512;
size_t dsf_linear_avx512_scratch(const void *args); /* of all four: the core's tiles */
dsf_kernel_fn dsf_linear_g8_sm90fp8;                /* tiles: sm90/tune_linear_g8.h */
int dsf_linear_g8_sm90fp8_accepts(const void *args);
size_t dsf_linear_g8_sm90fp8_scratch(const void *args);
dsf_kernel_fn dsf_linear_g8_sm90, dsf_linear_gb_sm90, dsf_linear_gf_sm90, dsf_linear_group_sm90;
dsf_kernel_fn dsf_linear_gb_sm90tc, dsf_linear_gf_sm90tc, dsf_linear_group_sm90tc;

#endif
