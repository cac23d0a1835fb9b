/* What a walk over two dumps remembers: which rows already differ, which choices fell the other
 * way, and so how a row of the next tap is to be judged. */
#ifndef DSF_DIFF_STATE_H
#define DSF_DIFF_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "verify/diff/floor.h"
#include "verify/diff/metrics.h"
#include "verify/dump/reader.h"

typedef struct {
    dsf_dump_file *a, *b; /* reference, ours */
    const dsf_dump_geometry *g;
    int64_t n;        /* token positions of the reference */
    dsf_floor *floor; /* NULL: bit-equal or different */
    bool injected;    /* ours ran every layer on the reference's inputs */
    bool selects;     /* some row leaves visible entries out */
    bool one_block;   /* window and list fit one block of the sum (5.4) */
    double alpha;     /* chance that one count may exceed its limit by accident */
    int layer;        /* the layer that the next three are about, -1 */
    uint8_t *dirty, *dirty_entry, *expert_flip; /* [n] by label */
    bool all_dirty;
    bool touched; /* some rounded tap or choice differs: a free run is on its own from here */
    uint8_t *flip[DSF_DUMP_MAX_LAYERS]; /* [n] rows whose top-k fell the other way at a tie */
    uint8_t *pool_flip;                 /* [n] */
    int32_t first_flip;                 /* lowest label with a flipped choice so far, -1 */
    int32_t decode_from;                /* first decoded row, -1 when all were prefilled */
    int32_t *image;                     /* [n] nonzero in image spans, or NULL */
} dsf_diff_state;

DSF_MUST dsf_status dsf_state_open(dsf_diff_state *s, dsf_dump_file *a, dsf_dump_file *b);
void dsf_state_close(dsf_diff_state *s);
/* Called before each tap: a new layer starts clean where its inputs are the reference's. */
void dsf_state_enter(dsf_diff_state *s, dsf_tap tap);
/* Sets status and disturbed of each row (labels are filled). */
void dsf_state_mark(const dsf_diff_state *s, dsf_tap tap, dsf_row *row, int64_t n);
/* Remembers what the compared rows say for the taps behind. */
void dsf_state_learn(dsf_diff_state *s, dsf_tap tap, const dsf_row *row, int64_t n);
/* Remembers rows whose choice differs and is explained. */
DSF_MUST dsf_status dsf_state_flip(dsf_diff_state *s, dsf_tap tap, int32_t label);
bool dsf_state_pool_flipped(const dsf_diff_state *s, dsf_tap tap, int32_t label);

#endif
