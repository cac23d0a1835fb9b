/* Rotary embedding on the last r channels, adjacent pairs (architecture.md 3.6). */
#ifndef DSF_OPS_ROPE_H
#define DSF_OPS_ROPE_H

#include "op.h"

/* cs[i] = (cos, sin) pairs of the angle f32(pos) * freq: the product is rounded to f32, then cos
 * and sin of that f32 number rounded to f32. */
typedef struct {
    dsf_tensor cs;   /* [n, f, 2] f32 */
    dsf_tensor pos;  /* [n] i32 */
    dsf_tensor freq; /* [f] f32, f = r / 2 */
} dsf_rope_table_args;

/* (x, y) -> (x c - y s, x s + y c) in f32 with separate roundings of the products, then bf16; the
 * other d - 2 f channels are copied. inverse: s -> -s. */
typedef struct {
    dsf_tensor out; /* [n, h, d] bf16; may be x */
    dsf_tensor x;   /* [n, h, d] bf16 */
    dsf_tensor cs;  /* [n, f, 2] f32 */
    int inverse;
} dsf_rope_args;

extern const dsf_op dsf_op_rope_table, dsf_op_rope;

dsf_kernel_fn dsf_rope_table_ref, dsf_rope_ref;
dsf_kernel_fn dsf_rope_table_avx512, dsf_rope_avx512;
dsf_kernel_fn dsf_rope_table_sm90, dsf_rope_sm90;

#endif
