/* The model's costs on paper against the printed figures of the released one. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "bench/limits.h"
#include "model/synth.h"

static dsf_config full(void)
{
    dsf_config c;
    cr_assert_eq(dsf_synth_preset(&c, "full"), DSF_OK);
    return c;
}

static dsf_inventory released(void)
{
    dsf_config c = full();
    dsf_inventory inv;
    dsf_inventory_of(&c, &inv);
    return inv;
}

/* Equal in the digits that are printed. */
#define PRINTED(value, figure, half_a_digit) cr_assert_float_eq((value), (figure), (half_a_digit))

Test(limits, decode_limits_are_the_printed_ones)
{
    dsf_inventory inv = released();
    PRINTED(1e3 * dsf_limit_decode(&inv, 1, 0, 1, 4.3e12), 3.03, 0.005);
    PRINTED(1e3 * dsf_limit_decode(&inv, 8, 0, 8, 4.3e12), 1.24, 0.005);
    PRINTED(1e3 * dsf_limit_decode(&inv, 256, 0, 8, 4.3e12), 8.49, 0.005);
    PRINTED(1e-9 * (40 * 6 * inv.expert + inv.dense + inv.head), 13.03, 0.01);
}

Test(limits, prefill_limits_are_the_printed_ones)
{
    dsf_inventory inv = released();
    PRINTED(1e-9 * inv.flops_experts, 8.49, 0.005);
    PRINTED(1e-9 * inv.flops_dense, 7.30, 0.01);
    PRINTED(1e-9 * inv.flops_attention, 1.544, 0.001);
    cr_assert_float_eq(inv.flops_index, 6144, 1e-6);
    PRINTED(1e-3 / dsf_limit_prefill(&inv, 4096, 1, 1979e12, 989e12), 104.7, 0.1);
    PRINTED(1e6 * dsf_limit_prefill(&inv, 1 << 20, 1, 1979e12, 989e12), 12.8, 0.05);
    PRINTED(1e6 * dsf_limit_stream(&inv, 8192, 2, 4.3e12), 2.05, 0.005);
}

Test(limits, distinct_experts_are_the_printed_ones)
{
    dsf_inventory inv = released();
    cr_assert_float_eq(dsf_limit_distinct(&inv, 1), 6, 1e-9);
    PRINTED(dsf_limit_distinct(&inv, 8), 45.5, 0.05);
    PRINTED(dsf_limit_distinct(&inv, 64), 243.8, 0.05);
    PRINTED(dsf_limit_distinct(&inv, 256), 377.2, 0.05);
}

Test(limits, index_reads_follow_the_printed_formula)
{
    dsf_inventory inv = released();
    double n = 1 << 20, with = dsf_limit_decode(&inv, 1, 1 << 20, 1, 1);
    double without = dsf_limit_decode(&inv, 1, 0, 1, 1);
    cr_assert_float_eq(with - without, (2.5 * n + 4 * 16384) * 68, 1);
    cr_assert_float_eq(inv.hc_row, 102400, 1e-9);
}

Test(limits, forty_layers_are_of_eight_kinds)
{
    dsf_config c = full();
    int count[DSF_N_KINDS] = {0}, kinds = 0;
    for (int l = 0; l < c.n_layers; l++) kinds += count[dsf_layer_kind(&c, l)]++ == 0;
    cr_assert_eq(kinds, 8);
    cr_assert_eq(count[0], 1);
    cr_assert_eq(count[DSF_KIND_ENGRAM], 1);
    cr_assert_eq(count[2], 15);
    cr_assert_eq(count[1], 15);
    cr_assert_eq(count[1 | DSF_KIND_INDEX | DSF_KIND_USES_POOL], 4);
    char name[64];
    dsf_layer_kind_name(2 | DSF_KIND_KV | DSF_KIND_INDEX | DSF_KIND_ENGRAM, name);
    cr_assert_str_eq(name, "ratio 2, stores, selects, engram");
}

Test(limits, kept_layers_stay_in_their_roles)
{
    dsf_config c = full(), whole = c;
    const int keep[] = {0, 1, 2, 3, 8, 14, 20, 21, 24};
    const int n = (int)(sizeof keep / sizeof *keep);
    cr_assert_eq(dsf_layers_keep(&c, keep, n), DSF_OK);
    cr_assert_eq(c.n_layers, n);
    for (int k = 0; k < n; k++)
        cr_assert_eq(dsf_layer_kind(&c, k), dsf_layer_kind(&whole, keep[k]), "layer %d", keep[k]);
    cr_assert_eq(dsf_config_split(&c), 6);
}

Test(limits, a_layer_without_its_source_is_refused)
{
    const int no_entries[] = {0, 3}, no_pool[] = {0, 24}, backwards[] = {2, 1};
    dsf_config c = full();
    cr_assert_eq(dsf_layers_keep(&c, no_entries, 2), DSF_EINVAL);
    cr_assert_eq(dsf_layers_keep(&c, no_pool, 2), DSF_EINVAL);
    cr_assert_eq(dsf_layers_keep(&c, backwards, 2), DSF_EINVAL);
}

Test(limits, times_are_scaled_by_kind)
{
    dsf_config whole = full(), part = whole;
    const int keep[] = {0, 1, 2, 3, 8, 14, 20, 21, 24};
    double time[9], sum = 0;
    int missing = -1;
    cr_assert_eq(dsf_layers_keep(&part, keep, 9), DSF_OK);
    for (int k = 0; k < 9; k++) time[k] = 10 + dsf_layer_kind(&part, k);
    for (int l = 0; l < 40; l++) sum += 10 + dsf_layer_kind(&whole, l);
    cr_assert_float_eq(dsf_layers_scale(&part, time, &whole, 0, 40, &missing), sum, 1e-9);
    cr_assert_eq(missing, 0);
    time[2] += 3; /* layers 2 and 8 are one kind: their mean counts twice */
    cr_assert_float_eq(dsf_layers_scale(&part, time, &whole, 0, 40, &missing), sum + 3, 1e-9);
}

Test(limits, kinds_that_were_not_measured_are_counted)
{
    dsf_config whole = full(), part = whole;
    const int keep[] = {0, 1};
    const double time[] = {1, 2};
    int missing = 0;
    cr_assert_eq(dsf_layers_keep(&part, keep, 2), DSF_OK);
    cr_assert_float_eq(dsf_layers_scale(&part, time, &whole, 0, 40, &missing), 3, 1e-9);
    cr_assert_eq(missing, 38);
}

static double number(const dsf_json *doc, const char *object, const char *key)
{
    double v = NAN;
    const dsf_json *in = dsf_json_get(doc, object);
    cr_assert_not_null(in, "%s", object);
    cr_assert_eq(dsf_json_double(dsf_json_get(in, key), &v), DSF_OK, "%s.%s", object, key);
    return v;
}

/* The page of published figures sets them beside these limits. */
Test(limits, the_published_figures_stand_beside_the_same_costs)
{
    dsf_inventory inv = released();
    dsf_file f;
    dsf_json_doc *doc = NULL;
    cr_assert_eq(dsf_file_open(&f, DSF_SOURCE_ROOT "/bench/published.json"), DSF_OK);
    cr_assert_eq(dsf_json_parse(&doc, f.path, (const char *)f.data, f.size), DSF_OK);
    const dsf_json *root = dsf_json_root(doc);
    const struct {
        const char *object, *key;
        double value;
    } want[] = {{"prompt_flops", "experts", inv.flops_experts},
                {"prompt_flops", "dense", inv.flops_dense},
                {"prompt_flops", "attention", inv.flops_attention},
                {"prompt_flops", "index_per_token", inv.flops_index},
                {"step_bytes", "expert", inv.expert},
                {"step_bytes", "dense", inv.dense},
                {"step_bytes", "head", inv.head},
                {"step_bytes", "layers", inv.layers},
                {"step_bytes", "experts", inv.experts},
                {"step_bytes", "active", inv.active}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        cr_expect_float_eq(number(root, want[i].object, want[i].key), want[i].value, 0.5, "%s.%s",
                           want[i].object, want[i].key);
    dsf_json_free(doc);
    dsf_file_close(&f);
}
