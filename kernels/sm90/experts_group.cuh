/* Lists of the (row, slot) pairs by expert, made on the device (experts_group.cu). */
#ifndef DSF_SM90_EXPERTS_GROUP_CUH
#define DSF_SM90_EXPERTS_GROUP_CUH

#include "sm90/sm90.cuh"
#include "sm90/tune_experts.h"

/* The lists' parts as device pointers. */
struct expert_lists {
    int32_t pairs, experts, tile_rows, blocks;
    int32_t *order, *rank, *counts, *n_tiles;
    dsf_experts_tile *tiles;
};

static inline expert_lists lists_in(uint8_t *workspace, const dsf_experts_lists &l)
{
    return {l.pairs,
            l.experts,
            l.tile_rows,
            l.blocks,
            reinterpret_cast<int32_t *>(workspace + l.order),
            reinterpret_cast<int32_t *>(workspace + l.rank),
            reinterpret_cast<int32_t *>(workspace + l.counts),
            reinterpret_cast<int32_t *>(workspace + l.n_tiles),
            reinterpret_cast<dsf_experts_tile *>(workspace + l.tiles)};
}

/* Queues the kernels that fill `lists` from ids [pairs]. The order of pairs, tiles and everything
 * else depends on ids alone. */
dsf_status dsf_experts_group(cudaStream_t stream, const int32_t *ids, const expert_lists &lists);

#endif
