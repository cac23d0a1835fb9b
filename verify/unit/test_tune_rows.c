/* What the row-wise kernels of the device ask for: paths and workspaces by shape alone. */
#include <criterion/criterion.h>

#include "ops/draft.h"
#include "ops/hc.h"
#include "ops/sample.h"
#include "sm90/tune_hc.h"
#include "sm90/tune_sample.h"

static size_t mix_scratch(int64_t n, int64_t d)
{
    dsf_hc_mix_args a = {.x = {.rank = 3, .dim = {n, 4, d}}, .fn = {.rank = 2, .dim = {24, 4 * d}}};
    return dsf_hc_mix_sm90_scratch(&a);
}

Test(tune_rows, hc_mix_takes_tiles_for_many_rows_of_whole_segments_only)
{
    cr_expect(dsf_hc_mix_tiled(8192, 20480));
    cr_expect(dsf_hc_mix_tiled(DSF_HC_MANY, DSF_HC_SEGMENT));
    cr_expect_not(dsf_hc_mix_tiled(DSF_HC_MANY - 1, 20480));
    cr_expect_not(dsf_hc_mix_tiled(8192, 20480 + 4));
}

Test(tune_rows, hc_mix_keeps_the_segment_sums_of_one_piece)
{
    const size_t row = 320 * DSF_HC_STRIDE * sizeof(float);
    cr_expect_eq(mix_scratch(1, 5120), row);
    cr_expect_eq(mix_scratch(7, 5120), 7 * row);
    cr_expect_eq(mix_scratch(DSF_HC_MANY - 1, 5120), DSF_HC_PIECE * row, "no more than a piece");
    cr_expect_eq(mix_scratch(DSF_HC_MANY, 5120), DSF_HC_PIECE * row,
                 "tiles need the coefficients as bf16 only, but fewer rows run there too");
    cr_expect_geq(mix_scratch(DSF_HC_MANY, 5120), (size_t)320 * 72 * 64 * 2);
    cr_expect_eq(mix_scratch(1, 1), DSF_HC_STRIDE * sizeof(float), "part of a segment is one");
    cr_expect_eq(mix_scratch(100000, 17), DSF_HC_PIECE * 2 * DSF_HC_STRIDE * sizeof(float),
                 "rows that do not end with a segment come in pieces whatever their number");
}

Test(tune_rows, a_row_of_the_boundary_has_a_warp_for_every_group_where_rows_are_few)
{
    for (int64_t d = 32; d <= 16384; d += 32)
        for (int64_t n = 1; n < 200; n += 63) {
            int64_t warps = dsf_boundary_warps(n, d), groups = (d + 255) / 256;
            bool few = dsf_boundary_few(n, d);
            int most = few ? DSF_BOUNDARY_FEW_WARPS : DSF_BOUNDARY_MANY_WARPS;
            cr_assert(warps >= 1 && warps <= most && warps <= groups, "n %ld d %ld", (long)n,
                      (long)d);
            if (few)
                cr_assert_geq(warps * DSF_BOUNDARY_CLUSTER, groups, "n %ld d %ld", (long)n,
                              (long)d);
        }
    cr_expect_eq(dsf_boundary_warps(1, 5120), 5, "20 groups in four blocks");
}

Test(tune_rows, the_boundary_hands_its_stream_to_hc_mix)
{
    float pre, fn;
    uint16_t out;
    dsf_hc_boundary_args b = {.out = {.data = &out, .rank = 3, .dim = {7, 4, 5120}},
                              .next_pre = {.data = &pre},
                              .fn = {.data = &fn, .rank = 2, .dim = {24, 20480}},
                              .eps = 1,
                              .mix_eps = 2,
                              .hc_eps = 3,
                              .iters = 20};
    dsf_hc_mix_args m = dsf_boundary_mix(&b);
    cr_expect(m.x.data == &out && m.pre.data == &pre && m.fn.data == &fn);
    cr_expect(m.norm_eps == 2 && m.hc_eps == 3 && m.iters == 20);
    cr_expect_eq(dsf_hc_boundary_sm90_scratch(&b), mix_scratch(7, 5120));
}

Test(tune_rows, a_step_of_the_draft_chain_has_its_own_word)
{
    dsf_markov_chain_args a = {.logits = {.rank = 2, .dim = {5, 1000}}};
    cr_expect_eq(dsf_markov_chain_sm90_scratch(&a), 5 * 16);
}

static size_t sample_scratch(int64_t n, int64_t v)
{
    dsf_sample_args a = {.logits = {.rank = 2, .dim = {n, v}}};
    return dsf_sample_sm90_scratch(&a);
}

Test(tune_rows, sampling_has_one_workspace_a_cluster_and_doubles_in_it_are_aligned)
{
    for (int64_t v = 1; v < 40; v++) {
        cr_expect_eq(sample_scratch(1, v) % sizeof(double), 0);
        cr_expect_geq(sample_scratch(1, v), (size_t)v * (sizeof(double) + sizeof(float)));
        cr_expect_eq(sample_scratch(3, v), 3 * sample_scratch(1, v));
    }
    cr_expect_eq(dsf_sample_clusters(5), 5);
    cr_expect_eq(sample_scratch(1000, 430), sample_scratch(DSF_SAMPLE_CLUSTERS, 430),
                 "clusters take several rows in turn");
}
