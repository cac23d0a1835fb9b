/* What the fp8 expert kernels take, and their lists: every cut of the pairs into tiles fits. */
#include "sm90/tune_experts.h"

#include <criterion/criterion.h>

#include "ops/moe.h"

/* n rows, k of e experts, records of d channels, i channels out. */
static dsf_experts_up_args up(int64_t n, int64_t k, int64_t e, int64_t d, int64_t i)
{
    dsf_experts_up_args a = {.limit = 10.0f};
    a.x = (dsf_tensor){.dtype = DSF_Q8, .rank = 2, .dim = {n, d}};
    a.ids = (dsf_tensor){.dtype = DSF_I32, .rank = 2, .dim = {n, k}};
    a.out = (dsf_tensor){.dtype = DSF_BF16, .rank = 3, .dim = {n, k, i}};
    a.w1 = (dsf_tensor){.dtype = DSF_I64, .rank = 1, .dim = {e}};
    return a;
}

static dsf_experts_down_args down(int64_t n, int64_t k, int64_t e, int64_t i, int64_t d)
{
    dsf_experts_down_args a = {0};
    a.h = (dsf_tensor){.dtype = DSF_Q8, .rank = 3, .dim = {n, k, i}};
    a.ids = (dsf_tensor){.dtype = DSF_I32, .rank = 2, .dim = {n, k}};
    a.out = (dsf_tensor){.dtype = DSF_BF16, .rank = 3, .dim = {n, k, d}};
    a.w2 = (dsf_tensor){.dtype = DSF_I64, .rank = 1, .dim = {e}};
    return a;
}

Test(tune_experts, takes_the_models_shapes_at_every_number_of_rows)
{
    for (int64_t n = 1; n <= 65536; n *= 2) {
        dsf_experts_up_args u = up(n, 6, 384, 5120, 2304);
        dsf_experts_down_args d = down(n, 6, 384, 2304, 5120);
        cr_expect(dsf_experts_up_sm90fp8_accepts(&u), "%d rows", (int)n);
        cr_expect(dsf_experts_down_sm90fp8_accepts(&d), "%d rows", (int)n);
    }
}

Test(tune_experts, leaves_what_does_not_fill_its_tiles)
{
    dsf_experts_up_args odd_k = up(4, 2, 8, 384, 128), odd_width = up(4, 2, 8, 512, 144);
    dsf_experts_up_args crowd = up(4, 2, 1025, 512, 128);
    dsf_experts_down_args odd_down = down(4, 2, 8, 512, 128);
    cr_expect_not(dsf_experts_up_sm90fp8_accepts(&odd_k));
    cr_expect_not(dsf_experts_up_sm90fp8_accepts(&odd_width));
    cr_expect_not(dsf_experts_up_sm90fp8_accepts(&crowd));
    cr_expect_not(dsf_experts_down_sm90fp8_accepts(&odd_down));
}

Test(tune_experts, needs_no_lists_for_a_few_pairs)
{
    cr_expect_eq(dsf_experts_tune_lists(1, 6, 384).bytes, 0);
    cr_expect_eq(dsf_experts_tune_lists(8, 6, 384).bytes, 0);
    cr_expect_eq(dsf_experts_tune_lists(4, 6, 384).tile_rows, 4);
    cr_expect_eq(dsf_experts_tune_lists(5, 6, 384).tile_rows, 8);
    cr_expect(dsf_experts_tune_lists(9, 6, 384).listed);
    cr_expect(dsf_experts_tune_lists(9, 1, 384).listed, "an expert may have all nine rows");
}

/* A plan asks for the workspace of its largest number of rows. */
Test(tune_experts, fewer_rows_never_need_more_workspace)
{
    size_t before = 0;
    for (int64_t n = 1; n <= 2048; n++) {
        dsf_experts_lists l = dsf_experts_tune_lists(n, 6, 384);
        cr_assert_geq(l.bytes, before, "%d rows", (int)n);
        before = l.bytes;
    }
}

/* The most tiles: one full expert takes all pairs but one each of the others. */
Test(tune_experts, has_room_for_any_choice_of_experts)
{
    for (int64_t n = 1; n <= 4096; n = n * 3 / 2 + 1) {
        dsf_experts_lists l = dsf_experts_tune_lists(n, 6, 384);
        if (!l.listed) continue;
        int64_t pairs = n * 6, others = pairs < 384 ? pairs - 1 : 383;
        int64_t tiles = others + (pairs - others + l.tile_rows - 1) / l.tile_rows;
        cr_assert_geq(l.most_tiles, tiles, "%d rows", (int)n);
        cr_assert_geq((int64_t)l.blocks * DSF_EXPERTS_COUNTED, pairs);
    }
}
