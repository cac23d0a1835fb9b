#include "sm90/tune_attn.h"

#include <criterion/criterion.h>

/* Shapes only: n rows, h heads, d channels, k ids, B draft rows. */
static dsf_attn_args shape(int64_t n, int64_t h, int64_t d, int64_t k, int block)
{
    dsf_attn_args a = {.window = 128, .block = block};
    a.q = (dsf_tensor){.dtype = DSF_BF16, .rank = 3, .dim = {n, h, d}};
    if (k) a.topk = (dsf_tensor){.dtype = DSF_I32, .rank = 2, .dim = {n, k}};
    return a;
}

Test(tune_attn, takes_512_channels_on_the_tensor_cores_and_fewer_without)
{
    dsf_attn_args model = shape(1, 64, 512, 512, 0), small = shape(1, 64, 480, 512, 0);
    cr_expect(dsf_attn_accepts_sm90tc(&model));
    cr_expect(dsf_attn_accepts_sm90(&model));
    cr_expect_not(dsf_attn_accepts_sm90tc(&small));
    cr_expect(dsf_attn_accepts_sm90(&small));
    small.q.dim[2] = 544;
    cr_expect_not(dsf_attn_accepts_sm90(&small));
}

Test(tune_attn, spreads_few_rows_over_clusters)
{
    dsf_attn_args few = shape(32, 64, 512, 512, 0), many = shape(33, 64, 512, 512, 0);
    cr_expect(dsf_attn_tune(&few).spread);
    cr_expect_not(dsf_attn_tune(&many).spread);
    few.q.dim[1] = 65; /* two groups of heads a row */
    cr_expect_not(dsf_attn_tune(&few).spread);
}

/* 8 blocks of a cluster with `quarters` groups of 16 keys each hold the longest list. */
Test(tune_attn, gives_every_list_room)
{
    dsf_attn_args window = shape(1, 64, 512, 0, 0), draft = shape(6, 64, 512, 0, 6);
    cr_expect_eq(dsf_attn_tune(&window).quarters, 2);
    cr_expect(dsf_attn_tune(&draft).spread);
    for (int64_t k = 1; k < 1000; k++) {
        dsf_attn_args a = shape(1, 64, 512, k, 0);
        dsf_attn_tile t = dsf_attn_tune(&a);
        cr_assert(t.quarters == 2 || t.quarters == 5);
        cr_assert_eq(t.spread, dsf_attn_list_max(&a) <= 640, "%d ids", (int)k);
        if (t.spread) cr_assert_leq(dsf_attn_list_max(&a), 128 * t.quarters, "%d ids", (int)k);
    }
}

/* The plan asks once, for the most rows; fewer rows may go another way. */
Test(tune_attn, asks_for_scratch_that_fits_fewer_rows_too)
{
    for (int64_t k = 0; k < 2000; k += 100) {
        size_t before = 0;
        for (int64_t n = 1; n < 400; n++) {
            dsf_attn_args a = shape(n, 65, 512, k, 0);
            size_t bytes = dsf_attn_scratch_sm90tc(&a);
            cr_assert_geq(bytes, before, "%d rows, %d ids", (int)n, (int)k);
            before = bytes;
        }
    }
    dsf_attn_args one = shape(1, 64, 512, 512, 0);
    cr_expect_geq(dsf_attn_scratch_sm90tc(&one), (size_t)640 * 64 * 2);
    dsf_attn_args many = shape(8192, 64, 512, 512, 0);
    cr_expect_geq(dsf_attn_scratch_sm90tc(&many), (size_t)8192 * 641 * 4);
}
