#include "sm90/tune_index.h"

_Static_assert((int64_t)DSF_INDEX_ROW_BYTES *DSF_INDEX_TILE_ROWS == DSF_INDEX_TILE_BYTES,
               "a row's part of a tile");

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

/* What is planned for n rows serves passes of fewer, whose rows may be cut into parts: lists that n
 * rows do not have. */
size_t dsf_index_select_scratch_sm90(const void *args)
{
    dsf_index_select_args a = *(const dsf_index_select_args *)args;
    size_t most = 0;
    for (int64_t n = least(a.scores.dim[0], DSF_INDEX_BLOCKS); n > 0; n--) {
        a.scores.dim[0] = n;
        size_t bytes = dsf_index_select_topk_cut(&a).bytes + dsf_index_select_pool_cut(&a).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
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
    l.rows = most(DSF_INDEX_TILE_ROWS, DSF_INDEX_SCORE_BYTES / (2 * l.stride));
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

/* As with dsf_index_select_scratch_sm90: for fewer rows too. */
static size_t topk_scratch(const void *args, int tensor)
{
    dsf_index_topk_args a = *(const dsf_index_topk_args *)args;
    size_t most = dsf_index_topk_layout(&a, tensor).bytes;
    for (int64_t n = least(a.q.dim[0], DSF_INDEX_BLOCKS); n > 0; n--) {
        a.q.dim[0] = n;
        size_t bytes = dsf_index_topk_layout(&a, tensor).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

size_t dsf_index_topk_scratch_sm90(const void *args) { return topk_scratch(args, 0); }
size_t dsf_index_topk_scratch_sm90tc(const void *args) { return topk_scratch(args, 1); }

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
