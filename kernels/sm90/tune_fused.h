/* Which shapes the tensor-core variant of hc_boundary takes, and with which kernel (FUSION.md).
 * Both kernels take the sums of a row in the same order. */
#ifndef DSF_SM90_TUNE_FUSED_H
#define DSF_SM90_TUNE_FUSED_H

#include <stddef.h>
#include <stdint.h>

enum {
    DSF_BOUNDARY_PARTS = 16, /* parts of a row whose sums are taken one by one, then added */
    DSF_BOUNDARY_TILE = 32,  /* channels of a warp's step */
    DSF_BOUNDARY_FEW = 16,   /* rows of a cluster: few in all, */
    DSF_BOUNDARY_MANY = 64   /* or many */
};

/* Blocks of a cluster that share the channels of their rows, where rows are few. */
int dsf_tune_boundary_cluster(int64_t n);
/* True: the kernel for many rows. */
int dsf_tune_boundary_many(int64_t n);
/* Bytes of fn cut into three bf16 matrices, for the kernel for many rows. */
size_t dsf_tune_boundary_parts_bytes(int64_t d);

int dsf_hc_boundary_sm90tc_accepts(const void *args);
size_t dsf_hc_boundary_sm90tc_scratch(const void *args);

#endif
