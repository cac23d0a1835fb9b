/* The checker is tested by breaking things: an operation whose variants are wrong in one way each,
 * and the rule by which each must be rejected. */
#include <criterion/criterion.h>

#include "base/num.h"
#include "check/check.h"
#include "check/frame.h"

/* out[n, d] = bf16(x * w), within one ulp. */
typedef struct {
    dsf_tensor out, x, w;
} scale_args;

/* The result of row i, channel c, moved by `steps` representable numbers away from zero. */
static void scale_at(const scale_args *a, int64_t i, int64_t c, int steps)
{
    int64_t at = i * a->x.dim[1] + c;
    float x = dsf_bf16_to_f32(((const uint16_t *)a->x.data)[at]);
    uint16_t y = dsf_f32_to_bf16(x * dsf_bf16_to_f32(((const uint16_t *)a->w.data)[c]));
    bool finite = (y & 0x7FFF) < 0x7F00 && (y & 0x7FFF) > 0x0100;
    ((uint16_t *)a->out.data)[at] = finite ? (uint16_t)(y + steps) : y;
}

/* Every element by steps(a, i, c). */
typedef int step_fn(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c);

static dsf_status scale_all(const dsf_launch *lc, const void *args, step_fn *steps)
{
    const scale_args *a = args;
    for (int64_t i = 0; i < a->x.dim[0]; i++)
        for (int64_t c = 0; c < a->x.dim[1]; c++) scale_at(a, i, c, steps ? steps(lc, a, i, c) : 0);
    return DSF_OK;
}

static dsf_status right(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, NULL);
}

static int one_step(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c)
{
    (void)lc;
    (void)a;
    return (int)(i + c) % 2 ? 1 : -1;
}
static dsf_status within(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, one_step);
}

static int two_steps(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c)
{
    (void)lc;
    return i == a->x.dim[0] - 1 && c == a->x.dim[1] - 1 ? 2 : 0;
}
static dsf_status too_far(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, two_steps);
}

static dsf_status past_the_end(const dsf_launch *lc, const void *args)
{
    const scale_args *a = args;
    ((uint16_t *)a->out.data)[dsf_tensor_count(&a->out)] = 0;
    return right(lc, args);
}

static dsf_status before_the_start(const dsf_launch *lc, const void *args)
{
    const scale_args *a = args;
    ((uint16_t *)a->out.data)[-1] = 0;
    return right(lc, args);
}

static int by_neighbour(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c)
{
    (void)lc;
    int64_t n = a->x.dim[0], other = (i + 1) % n;
    return (int)(((const uint16_t *)a->x.data)[other * a->x.dim[1] + c] & 1);
}
static dsf_status reads_neighbour(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, by_neighbour);
}

static int by_rows(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c)
{
    (void)lc;
    return i >= a->x.dim[0] / 4 * 4 ? (int)(c & 1) : 0; /* a tile of four and its remainder */
}
static dsf_status depends_on_tile(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, by_rows);
}

static int by_threads(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c)
{
    (void)a;
    (void)i;
    return dsf_pool_threads(lc->pool) > 2 && c % 2 ? 1 : 0;
}
static dsf_status depends_on_threads(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, by_threads);
}

static int by_old_output(const dsf_launch *lc, const scale_args *a, int64_t i, int64_t c)
{
    (void)lc;
    return ((const uint16_t *)a->out.data)[i * a->x.dim[1] + c] == 0x5A5A ? 1 : 0;
}
static dsf_status reads_old_output(const dsf_launch *lc, const void *args)
{
    return scale_all(lc, args, by_old_output);
}

static dsf_status leaves_last(const dsf_launch *lc, const void *args)
{
    scale_args a = *(const scale_args *)args;
    a.x.dim[0]--;
    return right(lc, &a);
}

static dsf_status changes_input(const dsf_launch *lc, const void *args)
{
    dsf_status st = right(lc, args);
    ((uint16_t *)((const scale_args *)args)->w.data)[0] ^= 1;
    return st;
}

static dsf_status reads_past_input(const dsf_launch *lc, const void *args)
{
    const scale_args *a = args;
    volatile uint16_t beyond = ((const volatile uint16_t *)a->w.data)[a->w.dim[0]];
    (void)beyond;
    return right(lc, args);
}

static dsf_status drops_nan(const dsf_launch *lc, const void *args)
{
    const scale_args *a = args;
    dsf_status st = right(lc, args);
    uint16_t *out = a->out.data;
    for (int64_t i = 0; i < dsf_tensor_count(&a->out); i++)
        if ((out[i] & 0x7FFF) > 0x7F80) out[i] = 0;
    return st;
}

static dsf_status truncates(const dsf_launch *lc, const void *args)
{
    (void)lc;
    const scale_args *a = args;
    int64_t d = a->x.dim[1];
    for (int64_t i = 0; i < dsf_tensor_count(&a->x); i++) {
        float y = dsf_bf16_to_f32(((const uint16_t *)a->x.data)[i]) *
                  dsf_bf16_to_f32(((const uint16_t *)a->w.data)[i % d]);
        ((uint16_t *)a->out.data)[i] =
            isfinite(y) ? (uint16_t)(dsf_f32_bits(y) >> 16) : dsf_f32_to_bf16(y);
    }
    return DSF_OK;
}

/* Writes row 0 first and reads its input again for row 0's last channel. */
static dsf_status not_in_place(const dsf_launch *lc, const void *args)
{
    const scale_args *a = args;
    dsf_status st = right(lc, args);
    scale_at(a, 0, 0, 0);
    return st;
}

static dsf_status fails(const dsf_launch *lc, const void *args)
{
    (void)lc;
    (void)args;
    return DSF_FAIL(DSF_ENOTSUP, "not today");
}

static size_t ten_bytes(const void *args)
{
    (void)args;
    return 10;
}
static dsf_status uses_eleven(const dsf_launch *lc, const void *args)
{
    lc->scratch[10] = 1;
    return right(lc, args);
}
static dsf_status uses_ten(const dsf_launch *lc, const void *args)
{
    memset(lc->scratch, 7, 10);
    return right(lc, args);
}

static int takes_none(const void *args)
{
    (void)args;
    return 0;
}

static const dsf_operand operands[] = {DSF_ARG(scale_args, out, DSF_OUT, DSF_BF16, "nd", 0),
                                       DSF_ARG(scale_args, x, DSF_IN, DSF_BF16, "nd", 0),
                                       DSF_ARG(scale_args, w, DSF_IN, DSF_BF16, "d", 0)};
static const dsf_case cases[] = {{{1, 1}}, {{5, 33}}, {{32, 400}}};
static const dsf_tol one_ulp[] = {{DSF_TOL_ULP, 1, "one product, one rounding"}};
static const dsf_tol exact[] = {{DSF_TOL_EXACT, 0, "one product, one rounding"}};

static double bound(const void *args, int operand, int64_t index)
{
    (void)operand;
    const scale_args *a = args;
    double x = dsf_bf16_to_f32(((const uint16_t *)a->x.data)[index]);
    return fabs(x * (double)dsf_bf16_to_f32(((const uint16_t *)a->w.data)[index % a->w.dim[0]]));
}
static const dsf_tol sum[] = {{DSF_TOL_SUM, 1, "one product, one rounding"}};

/* The verdict on `run` beside `ref`. */
static dsf_check_result verdict(dsf_kernel_fn *ref, dsf_variant v, const dsf_tol *tol)
{
    const dsf_variant variants[] = {{"ref", 0, ref, NULL, NULL}, v};
    dsf_op op = {.name = "scale",
                 .dims = "nd",
                 .args_size = sizeof(scale_args),
                 .operand = operands,
                 .n_operands = 3,
                 .variant = variants,
                 .n_variants = 2,
                 .cases = cases,
                 .n_cases = 3,
                 .tol = tol,
                 .props = DSF_PROP_ROWS | DSF_PROP_ALIAS | DSF_PROP_NAN,
                 .bound = bound};
    const dsf_check_options opt = {.seed = 1, .threads = 3, .only = -1};
    dsf_check_result r;
    cr_assert_eq(dsf_check(&op, &variants[1], &opt, &r), DSF_OK, "%s", dsf_error_text());
    return r;
}

static dsf_rule rule_of(dsf_kernel_fn *run)
{
    return verdict(right, (dsf_variant){.name = "v", .run = run}, one_ulp).finding.rule;
}

static void expect_rule(dsf_rule got, dsf_rule want)
{
    cr_expect_eq(got, want, "%s, expected %s", dsf_rule_name(got), dsf_rule_name(want));
}

Test(check, accepts_what_is_right)
{
    dsf_check_result r = verdict(right, (dsf_variant){.name = "v", .run = right}, exact);
    expect_rule(r.finding.rule, DSF_RULE_NONE);
    cr_expect_eq(r.cases, 3);
    expect_rule(verdict(right, (dsf_variant){.name = "v", .run = right}, sum).finding.rule,
                DSF_RULE_NONE);
}

Test(check, accepts_an_unbiased_error_within_the_allowance)
{
    dsf_check_result r = verdict(right, (dsf_variant){.name = "v", .run = within}, one_ulp);
    cr_expect_neq(r.finding.rule, DSF_RULE_ULP);
    cr_expect_eq(r.worst, 1.0);
}

Test(check, rejects_one_ulp_too_far)
{
    expect_rule(rule_of(too_far), DSF_RULE_ULP);
    expect_rule(verdict(right, (dsf_variant){.name = "v", .run = too_far}, sum).finding.rule,
                DSF_RULE_SUM);
    dsf_check_result r = verdict(right, (dsf_variant){.name = "v", .run = too_far}, exact);
    expect_rule(r.finding.rule, DSF_RULE_EXACT);
}

Test(check, tells_where_it_went_wrong)
{
    dsf_finding f = verdict(right, (dsf_variant){.name = "v", .run = too_far}, one_ulp).finding;
    cr_expect_eq(f.operand, 0);
    cr_expect_eq(f.index, f.case_index == 0 ? 0 : f.case_index == 1 ? 5 * 33 - 1 : 32 * 400 - 1);
    cr_expect_gt(f.error, f.allowance);
    cr_expect_str_eq(f.pattern, "normal");
}

/* [B-88] */
Test(check, rejects_a_write_past_the_end) { expect_rule(rule_of(past_the_end), DSF_RULE_GUARD); }

Test(check, rejects_a_write_before_the_start)
{
    dsf_rule r = rule_of(before_the_start);
    cr_expect(r == DSF_RULE_GUARD || r == DSF_RULE_FAULT, "%s", dsf_rule_name(r));
}

Test(check, rejects_a_read_of_a_neighbours_row)
{
    expect_rule(rule_of(reads_neighbour), DSF_RULE_ROWS);
}

Test(check, rejects_a_result_that_depends_on_the_row_tile)
{
    expect_rule(rule_of(depends_on_tile), DSF_RULE_ROWS);
}

Test(check, rejects_a_result_that_depends_on_threads)
{
    expect_rule(rule_of(depends_on_threads), DSF_RULE_THREADS);
}

Test(check, rejects_a_read_of_the_old_output)
{
    expect_rule(rule_of(reads_old_output), DSF_RULE_REPEAT);
}

Test(check, rejects_an_unwritten_element)
{
    expect_rule(rule_of(leaves_last), DSF_RULE_CLASS); /* the poison is NaN */
    dsf_variant lazy = {.name = "v", .run = leaves_last};
    expect_rule(verdict(leaves_last, lazy, one_ulp).finding.rule, DSF_RULE_UNWRITTEN);
}

Test(check, rejects_a_changed_input) { expect_rule(rule_of(changes_input), DSF_RULE_INPUT); }

Test(check, rejects_a_read_past_an_operand)
{
    dsf_variant v = {.name = "v", .run = reads_past_input};
    dsf_finding f = verdict(right, v, one_ulp).finding;
    expect_rule(f.rule, DSF_RULE_FAULT);
    cr_expect_eq(f.operand, 2, "it was w that was left");
}

Test(check, rejects_a_lost_nan) { expect_rule(rule_of(drops_nan), DSF_RULE_CLASS); }

Test(check, rejects_truncation_that_every_tolerance_lets_through)
{
    expect_rule(rule_of(truncates), DSF_RULE_BIAS);
}

Test(check, rejects_an_input_read_again_after_the_output_in_its_place)
{
    expect_rule(rule_of(not_in_place), DSF_RULE_ALIAS);
}

Test(check, rejects_an_error_status) { expect_rule(rule_of(fails), DSF_RULE_STATUS); }

Test(check, holds_scratch_to_what_was_asked)
{
    dsf_variant v = {.name = "v", .run = uses_ten, .scratch = ten_bytes};
    expect_rule(verdict(right, v, one_ulp).finding.rule, DSF_RULE_NONE);
    v.run = uses_eleven;
    expect_rule(verdict(right, v, one_ulp).finding.rule, DSF_RULE_GUARD);
}

/* [B-71] */
Test(check, counts_what_a_variant_does_not_take)
{
    dsf_variant v = {.name = "v", .run = fails, .accepts = takes_none};
    dsf_check_result r = verdict(right, v, one_ulp);
    expect_rule(r.finding.rule, DSF_RULE_NONE);
    cr_expect_eq(r.cases, 0);
    cr_expect_eq(r.refused, 3);
}

/* Inputs of every format, as the checker makes them. */
typedef struct {
    dsf_tensor f, h, c, s, q8, q4x, q4n;
} formats_args;

static const dsf_operand formats[] = {DSF_ARG(formats_args, f, DSF_IN, DSF_F32, "nd", 0),
                                      DSF_ARG(formats_args, h, DSF_IN, DSF_BF16, "nd", 0),
                                      DSF_ARG(formats_args, c, DSF_IN, DSF_E4M3, "nd", 0),
                                      DSF_ARG(formats_args, s, DSF_IN, DSF_E8M0, "nD", 0),
                                      DSF_ARG(formats_args, q8, DSF_IN, DSF_Q8, "nd", 0),
                                      DSF_ARG(formats_args, q4x, DSF_IN, DSF_Q4X, "nd", 0),
                                      DSF_ARG(formats_args, q4n, DSF_IN, DSF_Q4N, "nd", 0)};
enum { N = 64, D = 128 };
static const dsf_op formats_op = {.name = "formats",
                                  .dims = "nd",
                                  .args_size = sizeof(formats_args),
                                  .operand = formats,
                                  .n_operands = 7,
                                  .props = DSF_PROP_NAN};

static void expect_codes(const uint8_t *p, int n, int least, int most, const char *what)
{
    for (int i = 0; i < n; i++)
        cr_assert(p[i] >= least && p[i] <= most, "%s: byte %#x", what, p[i]);
}

static void expect_e4m3(const uint8_t *p, int n, const char *what)
{
    for (int i = 0; i < n; i++) cr_assert_neq(p[i] & 0x7F, 0x7F, "%s: NaN code", what);
}

static void expect_valid(const formats_args *a, const char *pattern)
{
    expect_e4m3(a->c.data, N * D, pattern);
    expect_codes(a->s.data, N * D / 32, 80, 170, pattern);
    for (int i = 0; i < N; i++) {
        const uint8_t *q8 = (const uint8_t *)a->q8.data + i * (D + D / 32);
        const uint8_t *q4x = (const uint8_t *)a->q4x.data + i * (D / 2 + D / 32);
        const uint8_t *q4n = (const uint8_t *)a->q4n.data + i * (D / 2 + D / 16);
        expect_e4m3(q8, D, pattern);
        expect_codes(q8 + D, D / 32, 105, 170, pattern); /* 105: the floor of 1e-4 */
        expect_codes(q4x + D / 2, D / 32, 1, 170, pattern);
        expect_codes(q4n + D / 2, D / 16, 1, 0x7E, pattern);
    }
}

static int count_not(const formats_args *a, bool nan)
{
    int n = 0;
    const float *f = a->f.data;
    const uint16_t *h = a->h.data;
    for (int i = 0; i < N * D; i++) {
        float v = dsf_bf16_to_f32(h[i]);
        n += nan ? isnan(f[i]) + isnan(v) : isinf(f[i]) + isinf(v);
    }
    return n;
}

Test(check, generated_inputs_are_valid_and_repeatable)
{
    dsf_case c = {{N, D}};
    dsf_frame a, b;
    cr_assert_eq(dsf_frame_open(&a, &formats_op, &c, false), DSF_OK);
    cr_assert_eq(dsf_frame_open(&b, &formats_op, &c, false), DSF_OK);
    for (int p = 0; p < DSF_N_PATTERNS; p++) {
        const char *name = dsf_pattern_name((dsf_pattern)p);
        cr_assert_eq(dsf_frame_generate(&a, (dsf_pattern)p, 5), DSF_OK);
        cr_assert_eq(dsf_frame_generate(&b, (dsf_pattern)p, 5), DSF_OK);
        for (int i = 0; i < formats_op.n_operands; i++)
            cr_expect_arr_eq(a.region[i].data, b.region[i].data, a.region[i].bytes, "%s", name);
        expect_valid(a.args, name);
        cr_expect_eq(count_not(a.args, true), p == DSF_PATTERN_NAN, "%s", name);
        cr_expect_eq(count_not(a.args, false), p == DSF_PATTERN_INFINITY, "%s", name);
    }
    dsf_frame_close(&a);
    dsf_frame_close(&b);
}
