/* Which path hc_mix takes on sm90, and what it needs. */
#ifndef DSF_SM90_TUNE_HC_H
#define DSF_SM90_TUNE_HC_H

#include <stdint.h>

#include "ops/fused.h"
#include "ops/hc.h"

enum {
    DSF_BOUNDARY_CLUSTER = 4,    /* blocks that share a row of hc_boundary where rows are few, */
    DSF_BOUNDARY_FEW_WARPS = 8,  /* of at most so many warps */
    DSF_BOUNDARY_MANY_WARPS = 4, /* five blocks a multiprocessor: one loads, another reduces */
    DSF_HC_SEGMENT = 64,         /* channels of a sum in the tensor core */
    DSF_HC_STRIDE = 32,          /* floats of a segment's 25 sums: whole sectors */
    DSF_HC_SPLIT_BYTES = 3 * 24 * DSF_HC_SEGMENT * 2, /* a segment's coefficients as bf16 parts */
    DSF_HC_TILE = 64,                                 /* rows of a block that sees all channels */
    DSF_HC_PIECE = 512, /* rows whose segment sums are kept at a time */
    DSF_HC_MANY =
        2048 /* rows from which tiles are faster: a round of them takes as long as four pieces */
};

/* n rows of q channels: one block a tile of 64 rows, instead of the two launches that spread every
 * row over all multiprocessors. */
int dsf_hc_mix_tiled(int64_t n, int64_t q); /* the workspace: ops/hc.h */

/* hc_boundary takes a row in groups of 256 channels. True: a cluster a row, a warp a group. */
int dsf_boundary_few(int64_t n, int64_t d);
/* Warps of a block. */
int64_t dsf_boundary_warps(int64_t n, int64_t d);
/* hc_mix's operands. */
dsf_hc_mix_args dsf_boundary_mix(const dsf_hc_boundary_args *a);

#endif
