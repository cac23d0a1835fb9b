/* The indexer on the device: how rows, scores and selections are cut into launches, and the
 * workspace for it. Shapes only: the same numbers plan the memory and launch the kernels. */
#ifndef DSF_SM90_TUNE_INDEX_H
#define DSF_SM90_TUNE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "ops/index.h"
#include "sm90/chip.h"

enum {
    DSF_INDEX_MOST_KEPT = 4096, /* of the streaming selection; larger lists take the plain one */
    DSF_INDEX_PART = 8192,      /* least candidates of a part, where one row has several blocks */
    DSF_INDEX_MOST_PARTS = 64,
    DSF_INDEX_BLOCKS = 2 * DSF_SM90_SMS, /* two a multiprocessor */
    DSF_INDEX_FEW_ROWS = 32,             /* up to here a pool's entries are always gathered */
    DSF_INDEX_LONE_ROWS = 2,             /* up to here, or */
    DSF_INDEX_LONE_SCORES = 262144,      /* up to so many scores, no tiles of rows are made */
    DSF_INDEX_TILE_ROWS = 4,             /* rows (tokens) of a tensor-core tile */
    DSF_INDEX_HEADS = 32,                /* of a tile; fewer are padded with zeros */
    DSF_INDEX_CHANNELS = 128,            /* of a record that the tensor-core kernels take */
    DSF_INDEX_TILE_BYTES = 21632         /* of a prepared tile (index_scores.cu) */
};

/* One selection: `parts` blocks a row, each keeps k of its part; one more launch merges them. */
typedef struct {
    int parts;
    int64_t kept; /* k, to a multiple of 8 */
    size_t bytes; /* of the lists between the two launches, 0 when parts is 1 */
} dsf_index_cut;

dsf_index_cut dsf_index_cut_of(int64_t n, int64_t candidates, int64_t k);
/* Those of index_select: topk and, where pool_out is wanted, the pool. */
dsf_index_cut dsf_index_select_topk_cut(const dsf_index_select_args *a);
dsf_index_cut dsf_index_select_pool_cut(const dsf_index_select_args *a);

/* index_topk: `rows` rows at a time, their scores `stride` apart. */
typedef struct {
    int packed; /* scores of the pool's entries alone, in the pool's order */
    int64_t rows, stride;
    dsf_index_cut topk, pool;    /* the same for a last group of fewer rows */
    size_t scores, lists, tiles; /* bytes of each area, in this order, 256-aligned */
    size_t bytes;
} dsf_index_layout;

/* tensor: with prepared query tiles. */
dsf_index_layout dsf_index_topk_layout(const dsf_index_topk_args *a, int tensor);

size_t dsf_index_select_scratch_sm90(const void *args);
size_t dsf_index_topk_scratch_sm90(const void *args),
    dsf_index_topk_scratch_sm90tc(const void *args);
size_t dsf_index_scores_scratch_sm90tc(const void *args);
int dsf_index_scores_accepts_sm90tc(const void *args),
    dsf_index_topk_accepts_sm90tc(const void *args);

#endif
