#include "sm90/tune_linear_g8.h"

#include <criterion/criterion.h>

#include "ops/linear.h"
#include "sm90/chip.h"

/* wq_a, wq_b, wkv, wo_b, w1, w2, Engram's wkv, an index projection; tiny and odd ones. */
static const struct {
    int64_t o, k;
} shapes[] = {{1280, 5120},  {32768, 1280}, {512, 5120}, {5120, 8192}, {2304, 5120}, {5120, 2304},
              {25600, 6144}, {4096, 1280},  {1, 128},    {31, 384},    {130, 640},   {200000, 256}};
static const int64_t rows[] = {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 300, 8192, 65536};
enum { SHAPES = sizeof shapes / sizeof shapes[0], ROWS = sizeof rows / sizeof rows[0] };

Test(tune_linear_g8, takes_whole_pipeline_steps_of_k_and_any_other_size)
{
    for (int64_t k = 32; k < 1024; k += 32) {
        dsf_linear_g8_args a = {.w = {.rank = 2, .dim = {33, k}}};
        cr_expect_eq(dsf_linear_g8_sm90fp8_accepts(&a), k % 128 == 0);
    }
}

Test(tune_linear_g8, tiles_cover_all_tokens_and_outputs_once)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < ROWS; j++) {
            dsf_g8_tile t = dsf_linear_g8_sm90fp8_tile(rows[j], shapes[i].k, shapes[i].o, 0);
            cr_expect_geq(t.token_tiles * t.tokens, rows[j]);
            cr_expect_lt((t.token_tiles - t.cluster) * t.tokens, rows[j]);
            cr_expect_geq(t.output_tiles * t.outputs, shapes[i].o);
            cr_expect_lt((t.output_tiles - 1) * t.outputs, shapes[i].o);
            cr_expect_eq(t.steps * DSF_G8_STEP, shapes[i].k);
        }
}

/* Blocks of a cluster meet at barriers: each has a tile as often as the others. */
Test(tune_linear_g8, every_block_has_work_and_clusters_are_whole)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < ROWS; j++) {
            dsf_g8_tile t = dsf_linear_g8_sm90fp8_tile(rows[j], shapes[i].k, shapes[i].o, 0);
            cr_expect_geq(t.blocks, 1);
            cr_expect_leq(t.blocks, t.token_tiles * t.output_tiles);
            cr_expect_eq(t.blocks % t.cluster, 0);
            cr_expect_eq(t.token_tiles % t.cluster, 0);
            if (t.slices) cr_expect_eq(t.token_tiles, 1);
            if (t.slices > 1) cr_expect_leq(rows[j], 16);
        }
}

Test(tune_linear_g8, asks_for_workspace_where_many_records_are_not_16_bytes_apart)
{
    for (int64_t k = 128; k <= 16384; k += 128)
        for (int64_t n = 64; n <= 65; n++) {
            dsf_linear_g8_args a = {.out = {.rank = 2, .dim = {n, 40}},
                                    .w = {.rank = 2, .dim = {40, k}}};
            int aligned = (k + k / 32) % 16 == 0;
            cr_expect_eq(dsf_linear_g8_sm90fp8_tile(n, k, 40, 0).direct, aligned);
            cr_expect(dsf_linear_g8_sm90fp8_tile(1, k, 40, 0).direct);
            int many = dsf_linear_g8_sm90fp8_tile(n, k, 40, 0).slices == 0;
            cr_expect_eq(many, n > 64);
            cr_expect_eq(dsf_linear_g8_sm90fp8_scratch(&a), many && !aligned ? (size_t)(n * k) : 0);
        }
}

/* A tile of fewer than 32 outputs must not cross a scale group. */
Test(tune_linear_g8, small_matrices_spread_over_the_multiprocessors)
{
    for (int i = 0; i < SHAPES; i++) {
        dsf_g8_tile t = dsf_linear_g8_sm90fp8_tile(1, shapes[i].k, shapes[i].o, 0);
        cr_expect_eq(t.outputs * t.slices, 64);
        if (t.outputs < 32) cr_expect_eq(32 % t.outputs, 0);
        if (shapes[i].o >= 64 * DSF_SM90_SMS) cr_expect_eq(t.slices, 1);
        if (shapes[i].o >= 1280) cr_expect_geq(t.output_tiles, 128);
    }
    cr_expect_eq(dsf_linear_g8_sm90fp8_tile(1, 5120, 512, 0).output_tiles, 64);
}
