/* The tables behind a verdict: what feeds what, what usually is wrong there, what noise may add up
 * to. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "verify/diff/budget.h"
#include "verify/diff/causes.h"
#include "verify/diff/flow.h"
#include "verify/diff/provisional.h"

TestSuite(diff_causes);

/* Ten layers as in the mini model, one draft stage. */
static dsf_dump_geometry model(void)
{
    dsf_dump_geometry g = {.n_layers = 10, .n_stages = 1, .pool_layer = 5};
    for (int l = 2; l < 10; l++) g.ratio[l] = l < 5 ? 2 : 1;
    g.kv_source[2] = g.kv_source[4] = g.kv_source[5] = true;
    g.index_source[2] = g.index_source[4] = g.index_source[5] = g.index_source[7] = true;
    g.engram[1] = g.target[8] = g.target[9] = true;
    return g;
}

static bool feeds(const dsf_dump_geometry *g, dsf_tap to, dsf_tap_id id, int layer)
{
    dsf_tap in[DSF_FLOW_MAX];
    int n = dsf_flow_inputs(g, to, in);
    for (int i = 0; i < n; i++)
        if (in[i].id == id && in[i].layer == layer) return true;
    return false;
}

Test(diff_causes, inputs_come_from_the_layer_that_makes_them)
{
    dsf_dump_geometry g = model();
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_IN, 3}, DSF_TAP_OUT, 2));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_IN, 0}, DSF_TAP_EMBED, -1));
    cr_expect(!feeds(&g, (dsf_tap){DSF_TAP_IN, 3}, DSF_TAP_EMBED, -1));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_PREMIX, 3}, DSF_TAP_FFN_PRE, 2));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_MID, 1}, DSF_TAP_ENGRAM_OUT, 1), "the written stream");
    cr_expect(!feeds(&g, (dsf_tap){DSF_TAP_MID, 1}, DSF_TAP_IN, 1));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_MID, 2}, DSF_TAP_IN, 2));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_FFN_U, 2}, DSF_TAP_ATTN_PRE, 2), "lagged by one");
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_ATTN_O, 6}, DSF_TAP_ATTN_KV_MAIN, 5));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_ATTN_O, 8}, DSF_TAP_ATTN_TOPK, 7));
    cr_expect(!feeds(&g, (dsf_tap){DSF_TAP_ATTN_O, 1}, DSF_TAP_ATTN_TOPK, 1), "window only");
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_ATTN_TOPK, 7}, DSF_TAP_ATTN_POOL, 5));
    cr_expect(!feeds(&g, (dsf_tap){DSF_TAP_ATTN_TOPK, 5}, DSF_TAP_ATTN_POOL, 5), "not its own");
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_ATTN_INDEX_SCORES, 7}, DSF_TAP_ATTN_INDEX_K, 5));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_FINAL_H, -1}, DSF_TAP_FFN_PRE, 9));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_DSPARK_TAP, -1}, DSF_TAP_IN, 8));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_ATTN_O, 10}, DSF_TAP_DSPARK_CTX_KV, 10));
    cr_expect(feeds(&g, (dsf_tap){DSF_TAP_DSPARK_H, -1}, DSF_TAP_OUT, 10));
}

/* No input runs after the tap: a verdict that waits for later taps would be none. */
Test(diff_causes, inputs_run_before_what_they_feed)
{
    dsf_dump_geometry g = model();
    for (int id = 0; id < DSF_N_TAPS; id++)
        for (int l = -1; l < 11; l++) {
            dsf_tap in[DSF_FLOW_MAX], tap = {(dsf_tap_id)id, l};
            if ((dsf_taps[id].scope == DSF_SCOPE_GLOBAL) != (l < 0)) continue;
            if (dsf_taps[id].scope == DSF_SCOPE_DRAFT && l < 10) continue;
            int n = dsf_flow_inputs(&g, tap, in);
            for (int i = 0; i < n;
                 i++) /* the embedding is listed behind the logits it is added to */
                if (in[i].id != DSF_TAP_DSPARK_MARKOV_EMBED)
                    cr_expect_lt(dsf_tap_order(in[i], 10), dsf_tap_order(tap, 10), "%s of %s at %d",
                                 dsf_taps[in[i].id].path, dsf_taps[id].path, l);
        }
}

Test(diff_causes, every_kind_of_tap_has_a_cause)
{
    for (int id = 0; id < DSF_N_TAPS; id++) {
        const char *text[DSF_CAUSES_MAX];
        const dsf_diff_pattern none = {.rows = DSF_PATTERN_NONE};
        int n = dsf_causes_find((dsf_tap_id)id, &none, text);
        cr_expect_geq(n, 1, "%s", dsf_taps[id].path);
        for (int i = 0; i < n; i++) cr_expect_not_null(strchr(text[i], '['), "%s", text[i]);
    }
}

Test(diff_causes, causes_that_fit_the_pattern_come_first)
{
    const char *text[DSF_CAUSES_MAX];
    const dsf_diff_pattern window = {.rows = DSF_PATTERN_WINDOW};
    const dsf_diff_pattern rotated = {.rows = DSF_PATTERN_ALL, .channels = DSF_PATTERN_ROTATED};
    const dsf_diff_pattern expert = {.rows = DSF_PATTERN_ONE_EXPERT};
    cr_assert_geq(dsf_causes_find(DSF_TAP_ATTN_O, &window, text), 2);
    cr_expect_not_null(strstr(text[0], "window off by one"));
    cr_assert_geq(dsf_causes_find(DSF_TAP_ATTN_Q, &rotated, text), 2);
    cr_expect_not_null(strstr(text[0], "RoPE"));
    cr_assert_geq(dsf_causes_find(DSF_TAP_FFN_Y, &expert, text), 2);
    cr_expect_not_null(strstr(text[0], "one expert"));
    for (int i = 0; i < dsf_causes_find(DSF_TAP_ATTN_O, &expert, text); i++)
        cr_expect_null(strstr(text[i], "window off"), "of another pattern");
}

Test(diff_causes, budgets_add_in_squares_and_grow)
{
    const double local[] = {3e-3, 4e-3, 0.0}, flat[] = {1, 1, 1}, grown[] = {2, 0.5, 9};
    cr_expect_float_eq(dsf_budget_combine(local, flat, 3), 5e-3, 1e-12);
    cr_expect_float_eq(dsf_budget_combine(local, grown, 2), sqrt(36e-6 + 4e-6), 1e-12);
    cr_expect_eq(dsf_budget_combine(local, flat, 0), 0.0);
}

Test(diff_causes, provisional_limits_grow_with_the_root_of_the_layer_and_end_at_5_percent)
{
    cr_expect_float_eq(dsf_provisional_carried(0, 40), 0.01, 1e-12);
    cr_expect_float_eq(dsf_provisional_carried(3, 40), 0.02, 1e-12);
    cr_expect_float_eq(dsf_provisional_carried(39, 40), 0.05, 1e-12);
    cr_expect_float_eq(dsf_provisional_carried(-1, 4), 0.02, 1e-12, "behind the last layer");
}
