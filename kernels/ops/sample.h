/* Sampling (architecture.md 9): which token follows. */
#ifndef DSF_OPS_SAMPLE_H
#define DSF_OPS_SAMPLE_H

#include "op.h"

/* How one row is drawn; limits: dsf_sampling in dsf.h. Temperature 0: the largest logit, the
 * smallest id on ties. Else p = f32(softmax(logit / temperature)); those stay that the filters
 * leave, one after the other: the top_k largest (0: all), the largest until top_p of the rest's
 * mass (1: all), those of at least min_p of the largest (0: all); ties at a border stay. Drawn is
 * the first id at which the running mass reaches u times all of it; u in (0, 1) is a mix of seed
 * and position, so that a draw depends on nothing else. */
typedef struct {
    double temperature, top_p, min_p;
    int64_t top_k;
    uint64_t seed;
    int64_t position;
} dsf_sample_how;

/* The record as the operand carries it: I64 words. */
enum { DSF_SAMPLE_WORDS = sizeof(dsf_sample_how) / sizeof(int64_t) };

typedef struct {
    dsf_tensor ids;    /* [n] i32; -1: a logit is NaN or +inf, or none is finite */
    dsf_tensor logits; /* [n, v] f32; -inf is an id that must not be drawn */
    dsf_tensor how;    /* [n, h = DSF_SAMPLE_WORDS] i64: dsf_sample_how */
} dsf_sample_args;

extern const dsf_op dsf_op_sample;

/* One row: the definition. work: [n] f32, not used at temperature 0; holds what was drawn from. */
int32_t dsf_sample_row(const float *logits, int64_t n, const dsf_sample_how *how, float *work);

dsf_kernel_fn dsf_sample_ref, dsf_sample_sm90;
size_t dsf_sample_ref_scratch(const void *args);
size_t dsf_sample_sm90_scratch(const void *args); /* sm90/tune_sample.c */

#endif
