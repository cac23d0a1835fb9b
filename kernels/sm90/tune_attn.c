#include "sm90/tune_attn.h"

enum {
    /* Rows times groups of heads: measured, ATTN.md. A cluster takes 8 of 132 multiprocessors, so
     * at most 16 are at work at once; a block a row takes the same time whatever their number up to
     * 132, which is that of three or four waves of clusters. */
    MOST_SPREAD = 32
};

int dsf_attn_accepts_sm90(const void *args)
{
    const dsf_attn_args *a = args;
    return a->q.dim[2] <= DSF_ATTN_MOST_D;
}

int dsf_attn_accepts_sm90tc(const void *args)
{
    const dsf_attn_args *a = args;
    return a->q.dim[2] == DSF_ATTN_TILE_D;
}

static int64_t groups_of(const dsf_attn_args *a)
{
    return (a->q.dim[1] + DSF_ATTN_HEADS - 1) / DSF_ATTN_HEADS;
}

/* List slots of a cluster. */
static int64_t room_of(const dsf_attn_tile *t)
{
    return DSF_ATTN_CLUSTER * t->quarters * (DSF_ATTN_BLOCK / 4);
}

dsf_attn_tile dsf_attn_tune(const dsf_attn_args *a)
{
    int64_t keys = dsf_attn_list_max(a);
    dsf_attn_tile t = {.quarters = 2};
    if (keys > room_of(&t)) t.quarters = 5;
    t.slots = (int)((keys + DSF_ATTN_BLOCK - 1) / DSF_ATTN_BLOCK) * DSF_ATTN_BLOCK;
    t.spread = a->q.dim[0] * groups_of(a) <= MOST_SPREAD && keys <= room_of(&t);
    return t;
}

/* A block a row: the rows' lists, and how many tiles each has. Spread: the probabilities of all
 * heads, bf16. What fits more rows fits fewer, though these may be spread. */
size_t dsf_attn_scratch_sm90tc(const void *args)
{
    const dsf_attn_args *a = args;
    int64_t rows = a->q.dim[0], items = rows * groups_of(a);
    dsf_attn_tile t = dsf_attn_tune(a);
    int64_t spread = items < MOST_SPREAD ? items : MOST_SPREAD;
    size_t lists = (size_t)(rows * (t.slots + 1)) * sizeof(int32_t);
    size_t p = (size_t)(spread * room_of(&t) * DSF_ATTN_HEADS) * sizeof(uint16_t);
    return p > lists ? p : lists;
}
