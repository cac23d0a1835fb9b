/* How the indexer's work is cut for the device: every cut covers its rows and candidates, stays in
 * its memory, and a last group of rows needs no more than the first. */
#include <criterion/criterion.h>

#include "sm90/tune_index.h"

static dsf_tensor shape(dsf_dtype type, int64_t a, int64_t b, int64_t c)
{
    return (dsf_tensor){.dtype = type, .rank = c ? 3 : 2, .dim = {a, b, c}};
}

/* The model's sizes: 32 heads of 128 channels, 512 kept, pools of 2,048 blocks of 8. */
static dsf_index_topk_args topk(int64_t n, int64_t entries, int pool_in, int pool_out)
{
    dsf_index_topk_args a = {.ratio = 1, .block = 8};
    a.topk = shape(DSF_I32, n, 512, 0);
    a.q = shape(DSF_Q4X, n, 32, 128);
    a.keys = shape(DSF_Q4X, 1, entries, 128);
    if (pool_in) a.pool_in = shape(DSF_I32, n, 2048, 0);
    if (pool_out) a.pool_out = shape(DSF_I32, n, 2048, 0);
    return a;
}

static const int64_t rows[] = {1, 2, 3, 4, 5, 31, 33, 264, 265, 1025, 8192, 16384};
static const int64_t entries[] = {1, 7, 8, 63, 65, 16384, 32768, 131073, 524288, 1048576};
enum { N_ROWS = sizeof rows / sizeof rows[0], N_ENTRIES = sizeof entries / sizeof entries[0] };

Test(tune_index, parts_fill_the_device_and_no_part_is_small)
{
    for (int i = 0; i < N_ROWS; i++)
        for (int j = 0; j < N_ENTRIES; j++) {
            dsf_index_cut cut = dsf_index_cut_of(rows[i], entries[j], 512);
            cr_assert_geq(cut.parts, 1);
            cr_assert_leq(cut.parts, DSF_INDEX_MOST_PARTS);
            if (cut.parts == 1) cr_assert_eq(cut.bytes, 0);
            if (cut.parts == 1) continue;
            cr_assert_leq(rows[i] * cut.parts, DSF_INDEX_BLOCKS);
            cr_assert_geq(entries[j] / cut.parts, DSF_INDEX_PART);
            cr_assert_geq(cut.bytes, (size_t)(rows[i] * cut.parts * 512 * 6));
        }
}

Test(tune_index, long_lists_are_not_cut)
{
    cr_expect_eq(dsf_index_cut_of(1, 1048576, DSF_INDEX_MOST_KEPT + 1).parts, 1);
    cr_expect_gt(dsf_index_cut_of(1, 1048576, DSF_INDEX_MOST_KEPT).parts, 1);
}

Test(tune_index, kept_lists_start_at_16_bytes)
{
    for (int64_t k = 1; k < 100; k++) {
        int64_t kept = dsf_index_cut_of(1, 1048576, k).kept;
        cr_assert(kept >= k && kept < k + 8 && kept % 8 == 0, "%d", (int)k);
    }
}

/* [B-58] [B-59] */
Test(tune_index, workspace_stays_within_its_budget)
{
    for (int i = 0; i < N_ROWS; i++)
        for (int j = 0; j < N_ENTRIES; j++)
            for (int pools = 0; pools < 3; pools++) {
                dsf_index_topk_args a = topk(rows[i], entries[j], pools == 1, pools == 2);
                for (int tensor = 0; tensor < 2; tensor++) {
                    dsf_index_layout l = dsf_index_topk_layout(&a, tensor);
                    cr_assert_leq((int64_t)l.bytes, DSF_INDEX_BUDGET(rows[i]), "%d rows",
                                  (int)rows[i]);
                    cr_assert(l.rows >= 4 && l.rows % 4 == 0);
                    cr_assert_geq(l.stride, l.packed ? 16384 : entries[j]);
                    cr_assert_eq(l.stride % 8, 0);
                    cr_assert_geq(l.scores, (size_t)(l.rows * l.stride * 2));
                    cr_assert_geq(l.lists, l.topk.bytes + l.pool.bytes);
                }
            }
}

Test(tune_index, a_chunk_of_8192_rows_goes_in_few_groups)
{
    dsf_index_topk_args a = topk(8192, 524288, 0, 0);
    cr_expect_eq(dsf_index_topk_layout(&a, 1).rows, 1024);
    a = topk(8192, 65536, 0, 0);
    cr_expect_eq(dsf_index_topk_layout(&a, 1).rows, 8192);
}

Test(tune_index, a_pool_is_gathered_where_that_saves_time)
{
    dsf_index_topk_args few = topk(1, 16384, 1, 0), many = topk(256, 65535, 1, 0);
    cr_expect(dsf_index_topk_layout(&few, 1).packed);
    cr_expect_not(dsf_index_topk_layout(&many, 1).packed);
    many = topk(256, 65536, 1, 0);
    cr_expect(dsf_index_topk_layout(&many, 1).packed);
    many = topk(256, 65536, 1, 1); /* a new pool needs all scores */
    cr_expect_not(dsf_index_topk_layout(&many, 1).packed);
}

Test(tune_index, tensor_cores_take_the_model_and_fewer_heads)
{
    dsf_index_topk_args a = topk(1, 100, 0, 0);
    cr_expect(dsf_index_topk_accepts_sm90tc(&a));
    a.q.dim[1] = 3;
    cr_expect(dsf_index_topk_accepts_sm90tc(&a));
    a.q.dim[1] = 33;
    cr_expect_not(dsf_index_topk_accepts_sm90tc(&a));
    a.q.dim[1] = 32;
    a.q.dim[2] = 96;
    cr_expect_not(dsf_index_topk_accepts_sm90tc(&a));
}
