#include "sm90/tune_index.h"

/* Scores between the two halves of index_topk: 1 GiB is 1,024 rows of 524,288 entries, enough rows
 * to reuse expanded keys; the lists and tiles beside them are below 64 MiB. */
static const int64_t most_score_bytes = (int64_t)1 << 30;

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }
static int64_t whole(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

dsf_index_cut dsf_index_cut_of(int64_t n, int64_t candidates, int64_t k)
{
    dsf_index_cut cut = {.parts = 1, .kept = whole(k, 8)};
    if (k > DSF_INDEX_MOST_KEPT) return cut;
    int64_t parts = least(DSF_INDEX_MOST_PARTS, DSF_INDEX_BLOCKS / n);
    parts = most(1, least(parts, candidates / DSF_INDEX_PART));
    if (parts < 4) parts = 1; /* a second launch costs more */
    cut.parts = (int)parts;
    /* a 16-bit number and a position for each place */
    if (parts > 1) cut.bytes = aligned((size_t)(n * parts * cut.kept) * 6);
    return cut;
}

/* Lists of both selections are there at once. */
static dsf_index_cut pool_cut(int64_t n, int64_t e, int64_t block, const dsf_tensor *pool_out)
{
    if (!pool_out->rank) return (dsf_index_cut){.parts = 1};
    return dsf_index_cut_of(n, (e + block - 1) / block, pool_out->dim[1]);
}

dsf_index_cut dsf_index_select_topk_cut(const dsf_index_select_args *a)
{
    int64_t candidates = a->scores.dim[1];
    if (a->pool_in.rank) candidates = a->pool_in.dim[1] * a->block;
    return dsf_index_cut_of(a->scores.dim[0], candidates, a->topk.dim[1]);
}

dsf_index_cut dsf_index_select_pool_cut(const dsf_index_select_args *a)
{
    return pool_cut(a->scores.dim[0], a->scores.dim[1], a->block, &a->pool_out);
}

size_t dsf_index_select_scratch_sm90(const void *args)
{
    return dsf_index_select_topk_cut(args).bytes + dsf_index_select_pool_cut(args).bytes;
}

dsf_index_layout dsf_index_topk_layout(const dsf_index_topk_args *a, int tensor)
{
    dsf_index_layout l = {0};
    int64_t n = a->q.dim[0], c = a->keys.dim[1], candidates = c, width = c;
    if (a->pool_in.rank) {
        candidates = a->pool_in.dim[1] * a->block;
        /* On the tensor cores many rows share expanded keys, a pool's entries are gathered and
         * expanded for each row: about three times the time an entry. */
        int64_t gain = tensor && n > DSF_INDEX_FEW_ROWS ? 4 : 1;
        l.packed = !a->pool_out.rank && (!tensor || candidates * gain <= c);
        if (l.packed) width = candidates;
    }
    l.stride = whole(width, 64);
    l.rows = most(DSF_INDEX_TILE_ROWS, most_score_bytes / (2 * l.stride));
    l.rows =
        least(l.rows / DSF_INDEX_TILE_ROWS * DSF_INDEX_TILE_ROWS, whole(n, DSF_INDEX_TILE_ROWS));
    l.scores = aligned((size_t)(l.rows * l.stride) * 2);
    l.topk = dsf_index_cut_of(least(l.rows, n), candidates, a->topk.dim[1]);
    l.pool = pool_cut(least(l.rows, n), c, a->block, &a->pool_out);
    l.lists = l.topk.bytes + l.pool.bytes;
    if (tensor) l.tiles = (size_t)(l.rows / DSF_INDEX_TILE_ROWS) * DSF_INDEX_TILE_BYTES;
    l.bytes = l.scores + l.lists + l.tiles;
    return l;
}

size_t dsf_index_topk_scratch_sm90(const void *args)
{
    return dsf_index_topk_layout(args, 0).bytes;
}

size_t dsf_index_topk_scratch_sm90tc(const void *args)
{
    return dsf_index_topk_layout(args, 1).bytes;
}

size_t dsf_index_scores_scratch_sm90tc(const void *args)
{
    const dsf_index_scores_args *a = args;
    return (size_t)(whole(a->q.dim[0], DSF_INDEX_TILE_ROWS) / DSF_INDEX_TILE_ROWS) *
           DSF_INDEX_TILE_BYTES;
}

static int takes(const dsf_tensor *q)
{
    return q->dim[1] <= DSF_INDEX_HEADS && q->dim[2] == DSF_INDEX_CHANNELS;
}

int dsf_index_scores_accepts_sm90tc(const void *args)
{
    return takes(&((const dsf_index_scores_args *)args)->q);
}

int dsf_index_topk_accepts_sm90tc(const void *args)
{
    const dsf_index_topk_args *a = args;
    return takes(&a->q);
}
