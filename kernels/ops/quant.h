/* Activation and cache quantisers (architecture.md 3.2, 3.3): bf16 rows to row records. */
#ifndef DSF_OPS_QUANT_H
#define DSF_OPS_QUANT_H

#include "op.h"

/* out record dtype decides the format: quant_q8 Q8 (groups of 32, ue8m0), quant_q4x Q4X (32,
 * ue8m0), quant_q4n Q4N (groups of 16, e4m3 scale). */
typedef struct {
    dsf_tensor out; /* [n, h, d] Q8 | Q4X | Q4N: h records a row */
    dsf_tensor x;   /* [n, h, d] bf16, finite */
} dsf_quant_args;

extern const dsf_op dsf_op_quant_q8, dsf_op_quant_q4x, dsf_op_quant_q4n;

dsf_kernel_fn dsf_quant_q8_ref, dsf_quant_q4x_ref, dsf_quant_q4n_ref;
dsf_kernel_fn dsf_quant_q8_avx512, dsf_quant_q4x_avx512, dsf_quant_q4n_avx512;
dsf_kernel_fn dsf_quant_q8_sm90, dsf_quant_q4x_sm90, dsf_quant_q4n_sm90;

/* One row, for references and tests: d channels to a record and back (round-trip values in bf16).
 */
void dsf_q8_row(uint8_t *out, const uint16_t *x, int64_t d);
void dsf_q4x_row(uint8_t *out, const uint16_t *x, int64_t d);
void dsf_q4n_row(uint8_t *out, const uint16_t *x, int64_t d);
void dsf_q8_unpack(uint16_t *out, const uint8_t *rec, int64_t d);
void dsf_q4x_unpack(uint16_t *out, const uint8_t *rec, int64_t d);
void dsf_q4n_unpack(uint16_t *out, const uint8_t *rec, int64_t d);

#endif
