/* Tile choices of the device variants, in words for the printed plan (dsf_op.tiles). */
#ifndef DSF_SM90_TILES_H
#define DSF_SM90_TILES_H

#include "op.h"

typedef void dsf_tiles_fn(const dsf_variant *v, const void *args, char *text, size_t n);
dsf_tiles_fn dsf_tiles_linear_g8, dsf_tiles_linear_g8_pair, dsf_tiles_linear_bf16,
    dsf_tiles_linear_group, dsf_tiles_experts_up, dsf_tiles_experts_down;

#endif
