/* Which shapes the fp8 expert kernels take, their tiles and where their lists lie in the workspace.
 * Plain C: looks at shapes only. */
#ifndef DSF_SM90_TUNE_EXPERTS_H
#define DSF_SM90_TUNE_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DSF_EXPERTS_TILE_ROWS = 128,  /* pairs of a tile: two warpgroups of 64 */
    DSF_EXPERTS_TILE_COLS = 192,  /* weight rows of a tile */
    DSF_EXPERTS_DECODE_COLS = 64, /* weight rows of a decode tile */
    DSF_EXPERTS_STAGE_K = 128,    /* channels of a stage: four scale blocks */
    DSF_EXPERTS_COUNTED = 1024,   /* pairs that one block counts and places */
    DSF_EXPERTS_UNLISTED = 64,    /* pairs up to which a block finds its own work in ids */
    DSF_EXPERTS_DECODE = 256,     /* rows up to which weights are streamed past 4 or 8 pairs */
    DSF_EXPERTS_MOST = 1024,      /* experts: the lists' counters in shared memory */
};

/* One tile of pairs: order[first .. first + rows) all go to `expert`. */
typedef struct {
    int32_t expert, first, rows, zero;
} dsf_experts_tile;

/* Byte offsets into the workspace. */
typedef struct {
    int32_t pairs, experts;
    int32_t tile_rows;  /* 4 or 8: decode; DSF_EXPERTS_TILE_ROWS: prefill */
    int32_t listed;     /* 0: there are no lists */
    int32_t blocks;     /* that count */
    int32_t most_tiles; /* whatever the ids are */
    size_t order;       /* i32 [pairs]: pair numbers, by expert, then ascending */
    size_t rank;        /* i32 [pairs]: of a pair among those of its block with its expert */
    size_t counts;      /* i32 [blocks][experts]; then: what lies before the block's own */
    size_t tiles;       /* dsf_experts_tile [most_tiles] */
    size_t n_tiles;     /* i32 */
    size_t bytes;
} dsf_experts_lists;

dsf_experts_lists dsf_experts_tune_lists(int64_t rows, int64_t slots, int64_t experts);

int dsf_experts_up_sm90fp8_accepts(const void *args);
int dsf_experts_down_sm90fp8_accepts(const void *args);
size_t dsf_experts_up_sm90fp8_scratch(const void *args);
size_t dsf_experts_down_sm90fp8_scratch(const void *args);

#ifdef __cplusplus
}
#endif
#endif
