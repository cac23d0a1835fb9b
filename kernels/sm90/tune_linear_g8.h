/* Which shapes `sm90fp8` of linear_g8 takes, and with which tiles (LINEAR_G8.md). */
#ifndef DSF_SM90_TUNE_LINEAR_G8_H
#define DSF_SM90_TUNE_LINEAR_G8_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DSF_G8_STEP = 128,       /* bytes of K a pipeline stage holds: one swizzled row */
    DSF_G8_DECODE_MOST = 64, /* rows that the decode kernels take */
    DSF_G8_RESIDENT = 2      /* of whose blocks so many live on a multiprocessor */
};

typedef struct {
    /* 0: many tokens, the M side of the tensor core. 1: few tokens, weights are the M side.
     * 2, 4, 8: so many pieces of K of fewer outputs share the M side. */
    int slices;
    int tokens;  /* of a tile */
    int outputs; /* of a tile */
    int steps;   /* of 128 along K */
    /* The copy engine wants rows a multiple of 16 bytes apart; records of k + k/32 bytes may be 4
     * or 8 off. Then few tokens (but one alone) are copied by a warp, many are first packed into
     * the workspace. */
    int direct;
    int cluster; /* blocks that share a weight tile (many tokens) */
    int64_t token_tiles;
    int64_t output_tiles, first_tiles; /* of both matrices, of the first */
    int blocks;                        /* of the grid */
} dsf_g8_tile;

int dsf_linear_g8_sm90fp8_accepts(const void *args);
size_t dsf_linear_g8_sm90fp8_scratch(const void *args); /* the packed codes of x */
/* o_b: outputs of a second matrix for the same x (n <= DSF_G8_DECODE_MOST), or 0. */
dsf_g8_tile dsf_linear_g8_sm90fp8_tile(int64_t n, int64_t k, int64_t o, int64_t o_b);
int dsf_linear_g8_pair_sm90fp8_accepts(const void *args);

#ifdef __cplusplus
}
#endif
#endif
