#include "ops/moe.h"

#include "op_variants.h"
#include "vectors.h"

enum { EXPERTS = 12 };

typedef struct {
    dsf_route_args a;
    float z[2 * EXPERTS], scores[2 * EXPERTS], bias[EXPERTS], bias_vl[EXPERTS],
        weights[2 * EXPERTS];
    int32_t ids[2 * EXPERTS];
    uint8_t vl[2];
} router;

static void make(router *r, int n, int e, int k)
{
    memset(r, 0, sizeof *r);
    r->a = (dsf_route_args){tensor_of(r->scores, DSF_F32, n, e, 0),
                            tensor_of(r->ids, DSF_I32, n, k, 0),
                            tensor_of(r->weights, DSF_F32, n, k, 0),
                            tensor_of(r->z, DSF_F32, n, e, 0),
                            tensor_of(r->bias, DSF_F32, e, 0, 0),
                            tensor_of(r->bias_vl, DSF_F32, e, 0, 0),
                            tensor_of(r->vl, DSF_U8, n, 0, 0),
                            1.5f,
                            1};
}

/* The vector lists the choice best first; ours is ascending, as the sum of outputs runs. [B-16] */
Test(moe, route_follows_the_published_vector)
{
    dsf_json_doc *doc = vectors_open();
    const dsf_json *v = vector(doc, "router");
    float chosen[3], weights[3];
    router r;
    make(&r, 1, EXPERTS, 3);
    cr_assert_eq(floats(dsf_json_get(v, "logits"), r.z, EXPERTS), EXPERTS);
    cr_assert_eq(floats(dsf_json_get(v, "bias"), r.bias, EXPERTS), EXPERTS);
    cr_assert_eq(floats(dsf_json_get(v, "selected"), chosen, 3), 3);
    cr_assert_eq(floats(dsf_json_get(v, "weights"), weights, 3), 3);
    cr_assert_eq(dsf_route_ref(&(dsf_launch){0}, &r.a), DSF_OK);
    for (int i = 0; i < 3; i++) {
        cr_expect(i == 0 || r.ids[i] > r.ids[i - 1], "ascending");
        int at = 0;
        while (at < 3 && (int32_t)chosen[at] != r.ids[i]) at++;
        cr_assert_lt(at, 3, "expert %d is not in the vector", r.ids[i]);
        cr_expect_float_eq(r.weights[i], weights[at], 1e-6);
    }
    dsf_json_free(doc);
}

Test(moe, route_takes_the_smaller_id_of_equals)
{
    router r;
    make(&r, 1, EXPERTS, 4);
    r.z[3] = r.z[9] = 1;
    cr_assert_eq(dsf_route_ref(&(dsf_launch){0}, &r.a), DSF_OK);
    const int32_t want[] = {0, 1, 3, 9};
    cr_expect_arr_eq(r.ids, want, sizeof want);
}

Test(moe, route_bias_chooses_but_does_not_weigh_and_images_have_their_own)
{
    router r;
    make(&r, 2, 4, 1);
    r.bias[2] = 1;
    r.bias_vl[3] = 1;
    r.vl[1] = 1;
    cr_assert_eq(dsf_route_ref(&(dsf_launch){0}, &r.a), DSF_OK);
    cr_expect_eq(r.ids[0], 2);
    cr_expect_eq(r.ids[1], 3);
    /* one expert: its score undivided, sqrt(ln 2) */
    cr_expect_float_eq(r.weights[0], 1.5 * sqrt(log(2)), 1e-6);
    r.a.bias_vl.rank = 0;
    cr_assert_eq(dsf_route_ref(&(dsf_launch){0}, &r.a), DSF_OK);
    cr_expect_eq(r.ids[1], 2, "without bias_vl the text bias serves all");
}

/* Scores that underflow to 0 together leave weights of 0, not 0/0: the 1e-20 of the sum. [B-15] */
Test(moe, route_of_scores_that_are_all_zero_weighs_nothing)
{
    router r;
    make(&r, 1, 2, 2);
    r.z[0] = r.z[1] = -400;
    cr_assert_eq(dsf_route_ref(&(dsf_launch){0}, &r.a), DSF_OK);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(r.scores[i], 0.0f);
        cr_expect_eq(r.weights[i], 0.0f);
    }
}

/* [B-14] */
Test(moe, route_softplus_is_linear_above_twenty)
{
    router r;
    make(&r, 1, 2, 2);
    r.z[0] = 400;
    r.z[1] = -200;
    cr_assert_eq(dsf_route_ref(&(dsf_launch){0}, &r.a), DSF_OK);
    cr_expect_eq(r.scores[0], 20.0f);
    cr_expect_float_eq(r.scores[1], exp(-100), 1e-45);
}

static uint16_t bf16(float x) { return dsf_f32_to_bf16(x); }

/* [B-18] */
Test(moe, swiglu_clamps_the_gate_above_only_and_the_value_on_both_sides)
{
    const float g[] = {50, 50, -20, -1000, 1}, v[] = {50, -50, -50, 50, 0.5f};
    const double silu10 = 10 / (1 + exp(-10)), silu20 = -20 / (1 + exp(20));
    const double want[] = {silu10 * 10, silu10 * -10, silu20 * -10, 0, 0.5 / (1 + exp(-1))};
    uint16_t gb[5], vb[5], out[5];
    for (int i = 0; i < 5; i++) {
        gb[i] = bf16(g[i]);
        vb[i] = bf16(v[i]);
    }
    dsf_swiglu_args a = {tensor_of(out, DSF_BF16, 1, 5, 0), tensor_of(gb, DSF_BF16, 1, 5, 0),
                         tensor_of(vb, DSF_BF16, 1, 5, 0), 10};
    for (const dsf_variant *s = NULL; (s = variant_next(&dsf_op_swiglu, s));) {
        variant_run(s, &a);
        for (int i = 0; i < 5; i++)
            cr_expect_eq(dsf_bf16_to_f32(out[i]), dsf_bf16_to_f32(bf16((float)want[i])), "%s: %d",
                         s->name, i);
    }
}

/* The product silu(g) v w is rounded once, after the weight; with a weight of 0.3 a rounding before
 * it, or the weight applied to a rounded h, gives another number for some of the values. */
Test(moe, expert_weight_enters_before_the_only_rounding)
{
    enum { D = 32, I = 15 };
    static uint8_t x[D + 1], w1[I * D / 2], w3[I * D / 2], s1[I], s3[I];
    uint16_t out[I];
    int32_t id = 0;
    float weight = 0.3f;
    x[0] = 0x38; /* 1 */
    x[D] = 127;
    for (int i = 0; i < I; i++) {
        w1[i * D / 2] = (uint8_t)(1 + i % 7); /* even channel: the low nibble */
        w3[i * D / 2] = (uint8_t)(1 + i / 2 % 7);
        s1[i] = s3[i] = 127;
    }
    int64_t p[4] = {(int64_t)(uintptr_t)w1, (int64_t)(uintptr_t)s1, (int64_t)(uintptr_t)w3,
                    (int64_t)(uintptr_t)s3};
    dsf_experts_up_args a = {.out = tensor_of(out, DSF_BF16, 1, 1, I),
                             .x = tensor_of(x, DSF_Q8, 1, D, 0),
                             .ids = tensor_of(&id, DSF_I32, 1, 1, 0),
                             .weights = tensor_of(&weight, DSF_F32, 1, 1, 0),
                             .w1 = tensor_of(p, DSF_I64, 1, 0, 0),
                             .s1 = tensor_of(p + 1, DSF_I64, 1, 0, 0),
                             .w3 = tensor_of(p + 2, DSF_I64, 1, 0, 0),
                             .s3 = tensor_of(p + 3, DSF_I64, 1, 0, 0),
                             .limit = 10};
    int telling = 0;
    for (const dsf_variant *s = NULL; (s = variant_next(&dsf_op_experts_up, s));) {
        variant_run(s, &a);
        for (int i = 0; i < I; i++) {
            double g = dsf_e2m1_to_f32(w1[i * D / 2]), v = dsf_e2m1_to_f32(w3[i * D / 2]);
            float h = (float)(g / (1 + exp(-g))) * (float)v;
            cr_expect_eq(out[i], bf16(h * weight), "%s: %d", s->name, i);
            telling += out[i] != bf16(dsf_bf16_to_f32(bf16(h)) * weight);
        }
    }
    cr_expect_gt(telling, 0, "no value tells the two orders apart");
}

/* f32, slot after slot, shared last: 2^25 swallows the 1 that precedes its negative. */
Test(moe, sum_runs_in_slot_order_and_ends_with_shared)
{
    uint16_t y[] = {bf16(0x1p25f), bf16(1), bf16(-0x1p25f)}, shared = bf16(3), out = 0;
    dsf_moe_sum_args a = {tensor_of(&out, DSF_BF16, 1, 1, 0), tensor_of(y, DSF_BF16, 1, 3, 1),
                          tensor_of(&shared, DSF_BF16, 1, 1, 0)};
    for (const dsf_variant *s = NULL; (s = variant_next(&dsf_op_moe_sum, s));) {
        variant_run(s, &a);
        cr_expect_eq(dsf_bf16_to_f32(out), 3.0f, "%s", s->name);
    }
}
