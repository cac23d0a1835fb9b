#include "sm90/tune_attn.h"

enum {
    MOST_D = 512, /* of the simple kernel: its shared memory and registers */
    TILE_D = 512, /* of the tensor-core kernels */
    /* Rows times groups of heads. A cluster takes 8 of 132 multiprocessors, so 16 are at work at
     * once for about 7 us; a block a row takes about 20 us whatever their number up to 132. */
    MOST_SPREAD = 32
};

int dsf_attn_accepts_sm90(const void *args)
{
    const dsf_attn_args *a = args;
    return a->q.dim[2] <= MOST_D;
}

int dsf_attn_accepts_sm90tc(const void *args)
{
    const dsf_attn_args *a = args;
    return a->q.dim[2] == TILE_D;
}

dsf_attn_tile dsf_attn_tune(const dsf_attn_args *a)
{
    int64_t groups = (a->q.dim[1] + DSF_ATTN_HEADS - 1) / DSF_ATTN_HEADS;
    int64_t keys = dsf_attn_list_max(a), quarter = DSF_ATTN_CLUSTER * DSF_ATTN_BLOCK / 4;
    dsf_attn_tile t = {.quarters = keys <= 2 * quarter ? 2 : 5};
    t.slots = (int)((keys + DSF_ATTN_BLOCK - 1) / DSF_ATTN_BLOCK) * DSF_ATTN_BLOCK;
    t.spread = a->q.dim[0] * groups <= MOST_SPREAD && keys <= t.quarters * quarter;
    return t;
}

/* Spread: the probabilities of all heads, bf16. Else the rows' lists, and how many tiles each has. */
size_t dsf_attn_scratch_sm90tc(const void *args)
{
    const dsf_attn_args *a = args;
    int64_t rows = a->q.dim[0], groups = (a->q.dim[1] + DSF_ATTN_HEADS - 1) / DSF_ATTN_HEADS;
    dsf_attn_tile t = dsf_attn_tune(a);
    int64_t keys = DSF_ATTN_CLUSTER * t.quarters * (DSF_ATTN_BLOCK / 4);
    if (!t.spread) return (size_t)(rows * (t.slots + 1)) * sizeof(int32_t);
    return (size_t)(rows * groups * keys * DSF_ATTN_HEADS) * sizeof(uint16_t);
}
