#include "sm90/tune_experts.h"

#include "ops/moe.h"

static size_t take(size_t *bytes, size_t n)
{
    size_t at = *bytes;
    *bytes += (n + 255) & ~(size_t)255;
    return at;
}

/* An expert has at most one pair of a row, so that 4 or 8 rows never need a second tile. With 64
 * rows and 384 experts of which 6 are chosen, 1 in 50 experts in use has more than 4 pairs; with
 * 256 rows, 1 in 50 has more than 8: their weights are read twice. */
static int32_t tile_rows(int64_t rows, int64_t pairs)
{
    if (rows > DSF_EXPERTS_DECODE) return DSF_EXPERTS_TILE_ROWS;
    if (pairs <= DSF_EXPERTS_UNLISTED && rows <= 8) return rows <= 4 ? 4 : 8;
    return rows <= 64 ? 4 : 8;
}

dsf_experts_lists dsf_experts_tune_lists(int64_t rows, int64_t slots, int64_t experts)
{
    dsf_experts_lists l = {.pairs = (int32_t)(rows * slots), .experts = (int32_t)experts};
    size_t pairs = (size_t)l.pairs;
    l.tile_rows = tile_rows(rows, l.pairs);
    l.listed = l.pairs > DSF_EXPERTS_UNLISTED || rows > 8;
    if (!l.listed) return l;
    l.blocks = (l.pairs + DSF_EXPERTS_COUNTED - 1) / DSF_EXPERTS_COUNTED;
    /* Each expert in use has at most one tile that is not full; counted with the smallest tiles, so
     * that fewer rows never need more bytes. */
    l.most_tiles = (l.pairs < l.experts ? l.pairs : l.experts) + l.pairs / 4;
    l.order = take(&l.bytes, pairs * sizeof(int32_t));
    l.rank = take(&l.bytes, pairs * sizeof(int32_t));
    l.counts = take(&l.bytes, (size_t)l.blocks * (size_t)l.experts * sizeof(int32_t));
    l.tiles = take(&l.bytes, (size_t)l.most_tiles * sizeof(dsf_experts_tile));
    l.n_tiles = take(&l.bytes, sizeof(int32_t));
    return l;
}

/* k channels of the records; `width` channels for each pair: at least a prefill tile's, in whole
 * decode tiles. Stages come in pairs; offsets of records are 32-bit. */
static int accepts(int64_t rows, int64_t slots, int64_t experts, int64_t k, int64_t width,
                   int64_t tile, int64_t decode_tile)
{
    return k % (2 * DSF_EXPERTS_STAGE_K) == 0 && width >= tile && width % decode_tile == 0 &&
           experts <= DSF_EXPERTS_MOST && rows * slots * (k + k / 32) <= INT32_MAX;
}

int dsf_experts_up_sm90fp8_accepts(const void *args)
{
    const dsf_experts_up_args *a = args;
    return accepts(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0], a->x.dim[1], a->out.dim[2],
                   DSF_EXPERTS_TILE_COLS / 2, DSF_EXPERTS_DECODE_COLS / 2);
}

int dsf_experts_down_sm90fp8_accepts(const void *args)
{
    const dsf_experts_down_args *a = args;
    return accepts(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0], a->h.dim[2], a->out.dim[2],
                   DSF_EXPERTS_TILE_COLS, DSF_EXPERTS_DECODE_COLS);
}

size_t dsf_experts_up_sm90fp8_scratch(const void *args)
{
    const dsf_experts_up_args *a = args;
    return dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0]).bytes;
}

size_t dsf_experts_down_sm90fp8_scratch(const void *args)
{
    const dsf_experts_down_args *a = args;
    return dsf_experts_tune_lists(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0]).bytes;
}
