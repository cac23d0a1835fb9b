/* Which shapes the attention kernels of sm90 take, and how they are cut. */
#ifndef DSF_SM90_TUNE_ATTN_H
#define DSF_SM90_TUNE_ATTN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "ops/attn.h"

enum {
    DSF_ATTN_CLUSTER = 8,  /* blocks a row is spread over */
    DSF_ATTN_HEADS = 64,   /* of a tile */
    DSF_ATTN_TILE_D = 512, /* what the tensor-core kernels take */
    DSF_ATTN_MOST_D = 512  /* of the simple kernel: its shared memory and registers */
};

typedef struct {
    int spread;   /* a row over a cluster (attn_decode.cu), else a block a row (attn_prefill.cu) */
    int quarters; /* spread: 16-key groups that a block of the cluster scores: 2 or 5 */
    int slots;    /* of the longest list, in whole tiles */
} dsf_attn_tile;

/* For arguments that dsf_attn_accepts_sm90tc takes. Rows have the same bits either way. */
dsf_attn_tile dsf_attn_tune(const dsf_attn_args *a);

#ifdef __cplusplus
}
#endif

#endif
