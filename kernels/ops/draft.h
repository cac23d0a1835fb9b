/* The draft head's own operations (architecture.md 10.3), temperature 0. */
#ifndef DSF_OPS_DRAFT_H
#define DSF_OPS_DRAFT_H

#include "op.h"

/* Sequentially i = 0..b-1 with y_0 = anchor: mu_i = embed[y_i]; logits_i = base_i + head mu_i
 * (f32); y_{i+1} = argmax, smallest id on ties. */
typedef struct {
    dsf_tensor logits; /* [b, v] f32 */
    dsf_tensor mu;     /* [b, r] bf16 */
    dsf_tensor ids;    /* [b] i32: y_1..y_b */
    dsf_tensor base;   /* [b, v] f32 */
    dsf_tensor embed;  /* [v, r] bf16 */
    dsf_tensor head;   /* [v, r] bf16 */
    dsf_tensor anchor; /* [1] i32; letter o */
} dsf_markov_chain_args;

/* conf_i = f32 dot(w, [h_i, mu_i]): a logit. */
typedef struct {
    dsf_tensor out; /* [b] f32 */
    dsf_tensor h;   /* [b, d] bf16 */
    dsf_tensor mu;  /* [b, r] bf16 */
    dsf_tensor w;   /* [q = d + r] bf16 */
} dsf_confidence_args;

extern const dsf_op dsf_op_markov_chain, dsf_op_confidence;

dsf_kernel_fn dsf_markov_chain_ref, dsf_confidence_ref;
dsf_kernel_fn dsf_markov_chain_avx512, dsf_confidence_avx512;
size_t dsf_draft_avx512_scratch(const void *args);
dsf_kernel_fn dsf_markov_chain_sm90, dsf_confidence_sm90;
size_t dsf_markov_chain_sm90_scratch(const void *args); /* sm90/tune_draft.c */

#endif
