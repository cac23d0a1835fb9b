#include "sm90/tune_experts.h"

#include "ops/moe.h"

static size_t take(size_t *bytes, size_t n)
{
    size_t at = *bytes;
    *bytes += (n + 255) & ~(size_t)255;
    return at;
}

dsf_experts_lists dsf_experts_tune_lists(int64_t rows, int64_t slots, int64_t experts)
{
    dsf_experts_lists l = {.pairs = (int32_t)(rows * slots), .experts = (int32_t)experts};
    size_t pairs = (size_t)l.pairs;
    l.blocks = (l.pairs + DSF_EXPERTS_COUNTED - 1) / DSF_EXPERTS_COUNTED;
    /* each expert in use has at most one tile that is not full */
    l.most_tiles = (l.pairs < l.experts ? l.pairs : l.experts) + l.pairs / DSF_EXPERTS_TILE_ROWS;
    l.order = take(&l.bytes, pairs * sizeof(int32_t));
    l.rank = take(&l.bytes, pairs * sizeof(int32_t));
    l.counts = take(&l.bytes, (size_t)l.blocks * (size_t)l.experts * sizeof(int32_t));
    l.tiles = take(&l.bytes, (size_t)l.most_tiles * sizeof(dsf_experts_tile));
    l.n_tiles = take(&l.bytes, sizeof(int32_t));
    return l;
}

/* k channels of the records, `width` weight rows for each pair, `step` of them in a tile. Offsets
 * of records are 32-bit; a record and its stages are copied by 8 bytes (16 where k allows it). */
static int accepts(int64_t rows, int64_t slots, int64_t experts, int64_t k, int64_t width,
                   int64_t step)
{
    return k % (2 * DSF_EXPERTS_STAGE_K) == 0 && width % step == 0 && experts <= DSF_EXPERTS_MOST &&
           rows * slots * (k + k / 32) <= INT32_MAX;
}

int dsf_experts_up_sm90fp8_accepts(const void *args)
{
    const dsf_experts_up_args *a = args;
    return accepts(a->ids.dim[0], a->ids.dim[1], a->w1.dim[0], a->x.dim[1], a->out.dim[2],
                   DSF_EXPERTS_TILE_COLS / 2);
}

int dsf_experts_down_sm90fp8_accepts(const void *args)
{
    const dsf_experts_down_args *a = args;
    return accepts(a->ids.dim[0], a->ids.dim[1], a->w2.dim[0], a->h.dim[2], a->out.dim[2],
                   DSF_EXPERTS_TILE_COLS);
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
