/* Indexer: scores, candidate pool, top-k (architecture.md 6). V(t) = (t + 1) / ratio visible
 * entries. */
#ifndef DSF_OPS_INDEX_H
#define DSF_OPS_INDEX_H

#include "op.h"

/* Scratch of index_topk on a device: scores of as many rows as fit SCORE_BYTES (1,024 rows of
 * 524,288 entries, enough to reuse expanded keys), lists, and a prepared tile for the rows scored
 * together. Whatever the context is, n rows take no more than DSF_INDEX_BUDGET(n). */
#define DSF_INDEX_SCORE_BYTES ((int64_t)1 << 30)
#define DSF_INDEX_LIST_BYTES  ((int64_t)16 << 20)
#define DSF_INDEX_ROW_BYTES   ((int64_t)5408)
#define DSF_INDEX_BUDGET(n)                                                                        \
    (DSF_INDEX_SCORE_BYTES + DSF_INDEX_LIST_BYTES + DSF_INDEX_ROW_BYTES * ((n) + 3))

/* w = bf16( bf16 x * f32 factor ): weights_proj's result times d^-1/2 h^-1/2 (6.2). */
typedef struct {
    dsf_tensor out; /* [n, h] bf16; may be x */
    dsf_tensor x;   /* [n, h] bf16 */
    float factor;
} dsf_index_weight_args;

/* score(t, j) = bf16( sum_h bf16( a_h * relu( bf16( q_h . k_j ) ) ) ), j < V(t); -inf for j >=
 * V(t). Every order is fixed, so that all variants give the same bits and select the same entries:
 * the dot of each group of 32 is exact (an integer times a power of two), the groups are added in
 * ascending order, then the heads in ascending order, one f32 rounding each. V(t) is cut to the
 * entries there are. */
typedef struct {
    dsf_tensor scores; /* [n, e] bf16 */
    dsf_tensor q;      /* [n, h, d] Q4X */
    dsf_tensor a;      /* [n, h] bf16 */
    dsf_tensor keys;   /* [s, c, d] Q4X, e <= c */
    dsf_tensor pos;    /* [n] i32 */
    dsf_tensor slot;   /* [n] i32 */
    int ratio;
} dsf_index_scores_args;

/* Selection from scores (6.3, 6.4). Ties: larger score, then smaller id (smaller block). A NaN
 * score counts as -inf: it never displaces a number, and a row of V <= k entries stays whole.
 * pool_in: only entries of these blocks compete. pool_out: the min(b, blocks) best blocks by their
 * max, newest visible block first of all, blocks without a visible entry dropped; computed from
 * unrestricted scores. topk: ascending ids of the min(k, V) best, -1 padded. If fewer than that are
 * in the pool, the list is shorter: masked entries never enter. */
typedef struct {
    dsf_tensor topk;     /* [n, k] i32 */
    dsf_tensor pool_out; /* [n, b] i32 ascending block ids, -1 padded; optional */
    dsf_tensor pool_in;  /* [n, b] i32; optional */
    dsf_tensor scores;   /* [n, e] bf16 */
    dsf_tensor pos;      /* [n] i32 */
    int ratio, block;    /* entries per block */
} dsf_index_select_args;

/* Both in one, without the [n, e] matrix: bit-equal to index_scores followed by index_select. With
 * pool_in only the pool's entries are scored. */
typedef struct {
    dsf_tensor topk;     /* [n, k] i32 */
    dsf_tensor pool_out; /* [n, b] i32; optional */
    dsf_tensor pool_in;  /* [n, b] i32; optional */
    dsf_tensor q;        /* [n, h, d] Q4X */
    dsf_tensor a;        /* [n, h] bf16 */
    dsf_tensor keys;     /* [s, c, d] Q4X */
    dsf_tensor pos;      /* [n] i32 */
    dsf_tensor slot;     /* [n] i32 */
    int ratio, block;
} dsf_index_topk_args;

extern const dsf_op dsf_op_index_weight, dsf_op_index_scores, dsf_op_index_select,
    dsf_op_index_topk;

dsf_kernel_fn dsf_index_weight_ref, dsf_index_scores_ref, dsf_index_select_ref, dsf_index_topk_ref;
dsf_kernel_fn dsf_index_weight_avx512, dsf_index_scores_avx512, dsf_index_select_avx512,
    dsf_index_topk_avx512;
size_t dsf_index_select_scratch_ref(const void *args), dsf_index_topk_scratch_ref(const void *args);
size_t dsf_index_scores_scratch_avx512(const void *args),
    dsf_index_select_scratch_avx512(const void *args),
    dsf_index_topk_scratch_avx512(const void *args);

dsf_kernel_fn dsf_index_weight_sm90, dsf_index_scores_sm90, dsf_index_scores_sm90tc,
    dsf_index_select_sm90, dsf_index_topk_sm90, dsf_index_topk_sm90tc;

/* V(t), cut to the entries there are. */
static inline int64_t dsf_index_visible(int32_t pos, int ratio, int64_t entries)
{
    int64_t v = ((int64_t)pos + 1) / ratio;
    return v < entries ? v : entries;
}

#endif
