/* Which shapes the attention kernels of sm90 take, and how they are cut. */
#ifndef DSF_SM90_TUNE_ATTN_H
#define DSF_SM90_TUNE_ATTN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "ops/attn.h"

enum {
    DSF_ATTN_CLUSTER = 8,
    DSF_ATTN_HEADS = 64
}; /* blocks a row is spread over; heads of a tile */

typedef struct {
    int spread;   /* a row over a cluster (attn_decode.cu), else a block a row (attn_prefill.cu) */
    int quarters; /* spread: 16-key groups that a block of the cluster scores: 2 or 5 */
    int slots;    /* of the longest list, in whole tiles */
} dsf_attn_tile;

/* For arguments that dsf_attn_accepts_sm90tc takes. Rows have the same bits either way. */
dsf_attn_tile dsf_attn_tune(const dsf_attn_args *a);

dsf_kernel_fn dsf_attn_prefill_sm90, dsf_attn_decode_sm90;

#ifdef __cplusplus
}
#endif

#endif
