/* The model of the fp8 tensor core against sums that an H200 gave (bench/probe, e4m3 ladders). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "ops/fill.h"
#include "ops/fp8_sum.h"

typedef struct {
    uint8_t x[32], w[32];
} operands;

static void set(operands *o, int at, float x, float w)
{
    o->x[at] = dsf_f32_to_e4m3(x);
    o->w[at] = dsf_f32_to_e4m3(w);
}

/* 2^e as a product, its factor in x. */
static void set_power(operands *o, int at, float factor, int e)
{
    int half = e >= 0 ? e / 2 : -((-e + 1) / 2);
    set(o, at, factor * ldexpf(1, half), ldexpf(1, e - half));
}

/* big + factor 2^-j big - big, in units of 2^-j big. */
static double ladder(float factor, int j)
{
    operands o = {.x = {0}};
    set_power(&o, 0, 1, 14);
    set_power(&o, 3, -1, 14);
    set_power(&o, 7, factor, 14 - j);
    return ldexp((double)dsf_fp8_sum(o.x, o.w, 32), j - 14);
}

Test(fp8_sum, small_products_are_cut_as_on_the_device)
{
    for (int j = 0; j < 20; j++) {
        cr_expect_eq(ladder(1, j), j <= 13 ? 1 : 0, "2^-%d", j);
        double left = j <= 11 ? 1.75 : j == 12 ? 1.5 : j == 13 ? 1 : 0;
        cr_expect_eq(ladder(1.75f, j), left, "1.75 2^-%d", j);
        cr_expect_eq(ladder(-1.75f, j), -left, "-1.75 2^-%d", j);
    }
}

Test(fp8_sum, the_result_keeps_13_fraction_bits)
{
    operands o = {.x = {0}};
    set_power(&o, 0, 1, 13);
    set_power(&o, 1, 1, 13);
    set_power(&o, 2, 1, 0); /* kept beside 2^13, lost beside their sum */
    cr_expect_eq(dsf_fp8_sum(o.x, o.w, 32), 16384.0f);
    set_power(&o, 3, 1, 0);
    cr_expect_eq(dsf_fp8_sum(o.x, o.w, 32), 16386.0f);
}

Test(fp8_sum, subnormal_codes_count)
{
    operands o = {.x = {0}};
    set(&o, 5, ldexpf(1, -9), ldexpf(3, -9));
    cr_expect_eq(dsf_fp8_sum(o.x, o.w, 32), ldexpf(3, -18));
    cr_expect_eq(dsf_fp8_sum(o.x, o.w, 5), 0);
}

/* highest: exponent field; 0 and 1 are around the subnormals. */
static uint8_t random_code(uint64_t *seed, unsigned highest)
{
    uint64_t r = dsf_fill_next(seed);
    uint8_t c = (uint8_t)((r & 0x87) | (r >> 8) % (highest + 1) << 3);
    return (c & 0x7F) == 0x7F ? c ^ 1 : c;
}

/* One sum of random codes against the exact one, and in the other order. */
static void check_random(uint64_t *seed, unsigned highest)
{
    operands o, back;
    double sum = 0;
    int top = -100;
    for (int i = 0; i < 32; i++) {
        o.x[i] = back.x[31 - i] = random_code(seed, highest);
        o.w[i] = back.w[31 - i] = random_code(seed, highest);
        sum += (double)dsf_e4m3_to_f32(o.x[i]) * (double)dsf_e4m3_to_f32(o.w[i]);
        int e = dsf_e4m3_exponent(o.x[i]) + dsf_e4m3_exponent(o.w[i]);
        top = e > top ? e : top;
    }
    float got = dsf_fp8_sum(o.x, o.w, 32);
    cr_assert_leq(fabs((double)got - sum), (32 * ldexp(1, top) + fabs(sum)) * 0x1p-13);
    cr_assert_eq(got, dsf_fp8_sum(back.x, back.w, 32));
}

Test(fp8_sum, the_error_stays_in_its_bound_and_order_does_not_matter)
{
    uint64_t seed = 3;
    for (int turn = 0; turn < 20000; turn++) check_random(&seed, turn % 3 ? 15 : 1);
}
