/* Which variant runs a step, and what recording refuses. */
#include "ops/norm.h"
#include "plan_fixture.h"

/* ---- choose ---- */

static int steps_with(const dsf_plan *p, const char *variant, const char *op)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += strcmp(p->step[i].variant->name, variant) == 0 &&
             (!op || strcmp(p->step[i].op->name, op) == 0);
    return n;
}

/* [B-31] [B-71] */
Test(plan, a_variant_needs_the_machine_and_the_mask)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = record(&s, small, false);
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    GOOD(dsf_plan_choose(p, 0, NULL));
    cr_expect_eq(steps_with(p, "ref", NULL), p->n_steps, "a machine with nothing");
    GOOD(dsf_plan_choose(p, DSF_NEEDS_AVX512, "ref"));
    cr_expect_eq(steps_with(p, "ref", NULL), p->n_steps, "ref");
    GOOD(dsf_plan_choose(p, DSF_NEEDS_AVX512, "-avx512"));
    cr_expect_eq(steps_with(p, "avx512", NULL), 0, "-avx512");
    GOOD(dsf_plan_choose(p, DSF_NEEDS_AVX512, ""));
    int fast = steps_with(p, "avx512", NULL), attn = steps_with(p, "avx512", "attn");
    if (dsf_op_find("attn")->variant[1].run) {
        cr_expect_eq(attn, 10);
        cr_expect_gt(fast, attn);
    }
    GOOD(dsf_plan_choose(p, DSF_NEEDS_AVX512, "-avx512:attn"));
    cr_expect_eq(steps_with(p, "avx512", NULL), fast - attn, "-avx512:attn");
    cr_expect_eq(steps_with(p, "avx512", "attn"), 0);
    GOOD(dsf_plan_choose(p, DSF_NEEDS_AVX512, "-avx512:attn,-avx512:rope"));
    cr_expect_eq(steps_with(p, "avx512", "rope"), 0, "two words");
    cr_expect_eq(steps_with(p, "avx512", "attn"), 0, "two words");
    for (int i = 0; i < p->n_steps; i++)
        cr_expect_eq(p->step[i].variant->needs & ~(unsigned)DSF_NEEDS_AVX512, 0);
    dsf_plan_close(p);
    close_shapes(&s);
}

Test(plan, a_mask_that_names_nothing_is_refused)
{
    static const char *const bad[] = {"avx512", "-ref",           "-avx512:",    "-avx512:atn",
                                      "-",      "-avx512,,",      "ref,-avx512", "-avx512 ",
                                      ",",      "-avx512:attn:x", "-avx"};
    dsf_plan *p;
    GOOD(dsf_plan_open(&p, &small, 1));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(dsf_plan_choose(p, DSF_NEEDS_AVX512, bad[i]), DSF_EINVAL, "\"%s\"", bad[i]);
        SAYS("kernel mask");
    }
    dsf_plan_close(p);
}

/* The scratch of a worker is the most that a chosen variant asks for. */
Test(plan, worker_scratch_is_that_of_the_hungriest_step)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = placed(&s, small, false, NULL);
    size_t most = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_variant *v = p->step[i].variant;
        size_t n = v->scratch ? v->scratch(p->args + p->step[i].args) : 0;
        if (n > most) most = n;
    }
    cr_expect_geq(p->worker_bytes, most);
    cr_expect_lt(p->worker_bytes, most + 64);
    cr_expect_eq(p->worker_bytes % 64, 0);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- recording refuses what the contract does not allow ---- */

typedef struct {
    dsf_plan *p;
    dsf_val x, w, out;
} norm;

static norm norm_plan(dsf_dtype x, int64_t d_x, int64_t d_w)
{
    norm n;
    const dsf_tensor w = {.dtype = DSF_BF16, .rank = 1, .dim = {d_w}};
    GOOD(dsf_plan_open(&n.p, &small, 1));
    n.x = dsf_plan_scratch(n.p, "x", x, 2, &d_x);
    n.w = dsf_plan_const(n.p, "w", &w);
    n.out = dsf_plan_scratch(n.p, "out", DSF_BF16, 2, &d_x);
    return n;
}

static dsf_status record_norm(norm *n, dsf_val x, dsf_val w, dsf_val out)
{
    const dsf_rms_norm_args a = {.eps = 1e-6f};
    const dsf_bind bind[] = {{offsetof(dsf_rms_norm_args, x), x},
                             {offsetof(dsf_rms_norm_args, w), w},
                             {offsetof(dsf_rms_norm_args, out), out}};
    dsf_plan_step(n->p, &dsf_op_rms_norm, &a, bind, 3);
    return n->p->status;
}

/* [B-12] [B-31] */
Test(plan, shapes_and_types_are_held_to_the_contract)
{
    norm n = norm_plan(DSF_BF16, 32, 32);
    GOOD(record_norm(&n, n.x, n.w, n.out));
    dsf_plan_close(n.p);
    n = norm_plan(DSF_BF16, 32, 64);
    REFUSED(DSF_EINVAL, record_norm(&n, n.x, n.w, n.out));
    SAYS("rms_norm.w");
    SAYS("64");
    int steps = n.p->n_steps; /* the first failure stays, and nothing is recorded any more */
    dsf_plan_step(n.p, &dsf_op_rms_norm, &n, NULL, 0);
    cr_expect_eq(n.p->n_steps, steps);
    cr_expect_eq(dsf_plan_scratch(n.p, "y", DSF_F32, 1, NULL), DSF_NO_VAL);
    cr_expect_eq(dsf_plan_prune(n.p, NULL, NULL, NULL), DSF_EINVAL);
    dsf_plan_close(n.p);
    n = norm_plan(DSF_F32, 32, 32);
    REFUSED(DSF_EINVAL, record_norm(&n, n.x, n.w, n.out));
    SAYS("f32");
    dsf_plan_close(n.p);
    n = norm_plan(DSF_BF16, 32, 32);
    REFUSED(DSF_EINVAL, record_norm(&n, n.w, n.w, n.out));
    SAYS("rank");
    dsf_plan_close(n.p);
    n = norm_plan(DSF_BF16, 32, 32);
    REFUSED(DSF_EINVAL, record_norm(&n, n.x, DSF_NO_VAL, n.out));
    SAYS("no value");
    dsf_plan_close(n.p);
}

Test(plan, a_view_keeps_the_elements_of_a_row)
{
    norm n = norm_plan(DSF_BF16, 32, 32);
    const int64_t fits[2] = {4, 8}, less[1] = {31};
    dsf_val v = dsf_plan_view(n.p, n.x, 3, fits);
    cr_assert_neq(v, DSF_NO_VAL);
    cr_expect_eq(dsf_plan_base(n.p, v), n.x);
    cr_expect_eq(dsf_plan_base(n.p, dsf_plan_view(n.p, v, 2, (int64_t[]){32})), n.x);
    cr_expect_eq(dsf_plan_view(n.p, n.x, 2, less), DSF_NO_VAL);
    cr_expect_eq(n.p->status, DSF_EINVAL);
    dsf_plan_close(n.p);
}

Test(plan, a_step_has_room_for_its_taps_and_says_when_not)
{
    norm n = norm_plan(DSF_BF16, 32, 32);
    GOOD(record_norm(&n, n.x, n.w, n.out));
    for (int i = 0; i < DSF_STEP_TAPS; i++) dsf_plan_show(n.p, DSF_TAP_OUT, i, n.out);
    GOOD(n.p->status);
    dsf_plan_show(n.p, DSF_TAP_OUT, DSF_STEP_TAPS, n.out);
    cr_expect_eq(n.p->status, DSF_EINVAL);
    dsf_plan_close(n.p);
}
