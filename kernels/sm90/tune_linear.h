/* Which shapes the tensor-core products of bf16 operands take, and with which tiles. The choice
 * never changes a bit of the result: K is summed in the same segments everywhere (LINEAR_BF16.md).
 */
#ifndef DSF_SM90_TUNE_LINEAR_H
#define DSF_SM90_TUNE_LINEAR_H

#include <stddef.h>
#include <stdint.h>

enum {
    DSF_LINEAR_SEGMENT = 512,        /* channels that the tensor core sums from zero */
    DSF_LINEAR_COLUMNS = 128,        /* weights of a tile: the M side of the products */
    DSF_LINEAR_MANY = 192,           /* tokens of a tile of the kernel for many rows */
    DSF_LINEAR_MANY_LEAST = 128,     /* the same where it wastes less */
    DSF_LINEAR_GROUP_COLUMNS = 64,   /* weights of a tile of wo_a with few rows */
    DSF_LINEAR_GROUP_CHANNELS = 128, /* of a stage of it */
    DSF_LINEAR_GROUP_RINGS = 4,      /* of stages: warpgroups that take segments in turn */
    DSF_LINEAR_GROUP_STAGES = 8,     /* most of one ring */
    DSF_LINEAR_GROUP_HEAD = 2048,    /* bytes before the stages: barriers, scales */
    DSF_LINEAR_FEW_STAGES = 16,      /* most of the kernel for few rows */
    DSF_LINEAR_HEAD = 1024,          /* the same of the other kernels: barriers */
    DSF_LINEAR_ALIGN = 1024,         /* of the stages, for the copy engine's swizzle */
    DSF_LINEAR_GROUP_MOST_K = 16384
};

/* Stages of 64 channels of the kernel for many rows: as many as fit 227 KiB. */
#define DSF_LINEAR_MANY_STAGES(tokens) ((tokens) == DSF_LINEAR_MANY ? 5 : 6)

typedef struct {
    int many;    /* true: the kernel for many rows */
    int tokens;  /* of a tile: the N side */
    int cluster; /* few rows: blocks that share K of a tile; many: that share the tokens of one */
    int each;    /* few rows: segments of one block of the cluster */
    int stages;  /* in flight (wo_a with few rows: of each ring) */
    int shared;  /* bytes of shared memory of a block */
} dsf_linear_tile;

/* y[n, o] of k channels, bf16 weights. */
dsf_linear_tile dsf_tune_linear(int64_t n, int64_t k, int64_t o);
/* One group of wo_a. many: the weights are expanded to bf16 before. */
dsf_linear_tile dsf_tune_linear_group(int64_t n, int64_t o, int64_t groups);

int dsf_linear_bf16_sm90tc_accepts(const void *args);  /* linear_gb, linear_gf */
int dsf_linear_group_sm90tc_accepts(const void *args); /* linear_group */
size_t dsf_linear_group_sm90tc_scratch(const void *args);

#endif
