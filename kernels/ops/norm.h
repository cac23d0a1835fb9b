/* RMSNorm (architecture.md 3.5). */
#ifndef DSF_OPS_NORM_H
#define DSF_OPS_NORM_H

#include "op.h"

/* out = bf16( w * ( x * rsqrt(mean(x^2) + eps) ) ), f32 inside. */
typedef struct {
    dsf_tensor out; /* [n, d] bf16; may be x */
    dsf_tensor x;   /* [n, d] bf16 */
    dsf_tensor w;   /* [d] bf16 */
    float eps;
} dsf_rms_norm_args;

extern const dsf_op dsf_op_rms_norm;

dsf_kernel_fn dsf_rms_norm_ref, dsf_rms_norm_avx512, dsf_rms_norm_sm90;

#endif
