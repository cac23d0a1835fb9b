/* Tile choices of the tensor-core products: they cover every shape and fit a block of the device.
 */
#include <criterion/criterion.h>

#include "ops/linear.h"
#include "sm90/tune_linear.h"

enum { SHARED_MOST = 227 * 1024, ROW = 128, SMS = 132 };

static const int64_t ns[] = {1, 7, 8, 9, 33, 64, 65, 128, 129, 500, 4096, 8192, 16384};
static const int64_t ks[] = {8, 64, 512, 520, 2304, 4096, 5120, 8192, 16384, 65536};
static const int64_t os[] = {1, 31, 128, 129, 384, 512, 1024, 5120, 16384, 129280};
#define EACH(v, list)                                                                              \
    for (const int64_t *(v) = (list); (v) < (list) + sizeof(list) / sizeof((list)[0]); (v)++)

static int64_t tiles_of(int64_t total, int64_t tile) { return (total + tile - 1) / tile; }

static void expect_few(dsf_linear_tile t, int64_t n, int64_t k)
{
    int64_t segments = tiles_of(k, DSF_LINEAR_SEGMENT);
    int64_t stage = (DSF_LINEAR_COLUMNS + t.tokens) * ROW;
    int64_t mine = tiles_of(t.tokens / 2, t.cluster); /* accumulators of a thread */
    int64_t parts = t.cluster > 1 ? mine * segments * 256 * 4 : 0;
    cr_assert(t.tokens == 8 || t.tokens == 16 || t.tokens == 32 || t.tokens == 64);
    cr_assert(t.tokens >= n || t.tokens == 64, "%lld rows, tiles of %d", (long long)n, t.tokens);
    cr_assert_geq((int64_t)t.cluster * t.each, segments);
    cr_assert_lt((int64_t)(t.cluster - 1) * t.each, segments, "a block of the cluster is idle");
    cr_assert_geq(t.stages, 4);
    cr_assert_geq((int64_t)t.shared, t.stages * stage + parts);
}

Test(tune_linear, every_shape_is_covered_and_fits_a_block)
{
    EACH(n, ns) EACH(k, ks) EACH(o, os)
    {
        dsf_linear_tile t = dsf_tune_linear(*n, *k, *o);
        cr_assert_leq(t.shared, SHARED_MOST, "n %lld k %lld o %lld: %d bytes", (long long)*n,
                      (long long)*k, (long long)*o, t.shared);
        if (!t.many) expect_few(t, *n, *k);
    }
}

Test(tune_linear, few_rows_stream_the_weights_once)
{
    EACH(n, ns) EACH(k, ks) EACH(o, os) if (*n <= 64)
    {
        dsf_linear_tile t = dsf_tune_linear(*n, *k, *o);
        cr_assert_not(t.many);
        cr_assert_geq((int64_t)t.tokens, *n);
    }
}

Test(tune_linear, small_outputs_spread_k_over_the_device)
{
    dsf_linear_tile router = dsf_tune_linear(1, 5120, 384), head = dsf_tune_linear(1, 5120, 129280);
    cr_assert_eq(router.cluster, 10, "the router has 10 segments, not %d blocks", router.cluster);
    cr_assert_eq(router.each, 1);
    cr_assert_eq(head.cluster, 1, "the head has columns enough");
    EACH(n, ns) EACH(o, os)
    {
        dsf_linear_tile t = dsf_tune_linear(*n, 5120, *o);
        int64_t tiles = tiles_of(*o, DSF_LINEAR_COLUMNS) * tiles_of(*n, t.tokens);
        if (!t.many && t.cluster > 1) cr_assert_leq(tiles * t.cluster, SMS);
    }
}

Test(tune_linear, blocks_share_tokens_only_where_columns_come_in_pairs)
{
    cr_assert_eq(dsf_tune_linear(8192, 5120, 384).cluster, 1);
    cr_assert_eq(dsf_tune_linear(8192, 5120, 512).cluster, 2);
    cr_assert(dsf_tune_linear(8192, 5120, 512).many);
}

Test(tune_linear, wo_a_fits_a_block)
{
    EACH(n, ns) EACH(o, os)
    {
        dsf_linear_tile t = dsf_tune_linear_group(*n, *o, 8);
        int64_t stage = DSF_LINEAR_GROUP_COLUMNS * DSF_LINEAR_GROUP_CHANNELS + 2 * t.tokens * ROW;
        int64_t sum = DSF_LINEAR_GROUP_COLUMNS * t.tokens * 4;
        cr_assert_leq(t.shared, SHARED_MOST);
        if (t.many) continue;
        cr_assert_geq(t.stages, 2);
        cr_assert_geq((int64_t)t.shared, DSF_LINEAR_GROUP_RINGS * t.stages * stage + sum);
    }
}

Test(tune_linear, many_rows_take_the_tile_that_fills_the_device)
{
    cr_assert_eq(dsf_tune_linear(8192, 5120, 384).tokens, DSF_LINEAR_MANY);
    cr_assert_eq(dsf_tune_linear(8192, 5120, 512).tokens, DSF_LINEAR_MANY_LEAST);
    cr_assert_eq(dsf_tune_linear(128, 5120, 129280).tokens, DSF_LINEAR_MANY_LEAST);
    cr_assert_eq(dsf_tune_linear_group(8192, 1024, 8).tokens, DSF_LINEAR_MANY);
}

Test(tune_linear, rows_at_odd_addresses_stay_with_the_plain_kernel)
{
    dsf_linear_args a = {.x = {.dim = {3, 588}}, .w = {.dim = {97, 588}}};
    cr_assert_not(dsf_linear_bf16_sm90tc_accepts(&a));
    a.x.dim[1] = a.w.dim[1] = 584;
    cr_assert(dsf_linear_bf16_sm90tc_accepts(&a));
    dsf_linear_group_args g = {.x = {.dim = {3, 8, 4096}}, .w = {.dim = {8, 1024, 4096}}};
    cr_assert(dsf_linear_group_sm90tc_accepts(&g));
    g.x.dim[2] = g.w.dim[2] = 160;
    cr_assert_not(dsf_linear_group_sm90tc_accepts(&g));
}

Test(tune_linear, wo_a_asks_for_a_workspace_only_where_it_expands)
{
    dsf_linear_group_args g = {.out = {.dim = {64, 8, 1024}, .rank = 3},
                               .w = {.dim = {8, 1024, 4096}, .rank = 3}};
    cr_assert_eq(dsf_linear_group_sm90tc_scratch(&g), 0);
    g.out.dim[0] = 8192;
    cr_assert_eq(dsf_linear_group_sm90tc_scratch(&g), (size_t)2 * 8 * 1024 * 4096);
}
