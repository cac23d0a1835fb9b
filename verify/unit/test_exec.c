/* The step loop, on operations made for it: what a step sees, and who is shown what. */
#include "engine_fixture.h"

TestSuite(exec, .fini = mini_clean);

/* out[i] = x[i] + the sum of all rows of keys; fails when told to. */
typedef struct {
    dsf_tensor out;  /* [n, d] f32 */
    dsf_tensor x;    /* [n, d] f32 */
    dsf_tensor keys; /* [m, d] f32; optional */
} mix_args;

static struct {
    int calls, fail_at;
    int64_t n, m;
    const void *x, *keys;
} seen;

static dsf_status mix(const dsf_launch *lc, const void *args)
{
    const mix_args *a = args;
    float *out = a->out.data;
    const float *x = a->x.data, *keys = a->keys.data;
    int64_t d = a->x.dim[1];
    (void)lc;
    if (++seen.calls == seen.fail_at) return DSF_FAIL(DSF_EDEVICE, "call %d", seen.calls);
    seen.n = a->out.dim[0];
    seen.m = a->keys.rank ? a->keys.dim[0] : 0;
    seen.x = x;
    seen.keys = keys;
    for (int64_t i = 0; i < a->out.dim[0]; i++)
        for (int64_t k = 0; k < d; k++) {
            float sum = 0;
            for (int64_t j = 0; j < seen.m; j++) sum += keys[j * d + k];
            out[i * d + k] = x[i * d + k] + sum;
        }
    return DSF_OK;
}

static const dsf_operand operands[] = {
    DSF_ARG(mix_args, out, DSF_OUT, DSF_F32, "nd", 0),
    DSF_ARG(mix_args, x, DSF_IN, DSF_F32, "nd", 0),
    DSF_ARG(mix_args, keys, DSF_IN, DSF_F32, "md", DSF_OPERAND_OPTIONAL)};
static const dsf_variant variants[] = {{"ref", 0, mix, NULL, NULL}};
static const dsf_op op = {.name = "mix",
                          .dims = "nmd",
                          .args_size = sizeof(mix_args),
                          DSF_TABLE(operands),
                          DSF_TABLE(variants)};
static const dsf_variant elsewhere[] = {{"ref", DSF_NEEDS_SM90, mix, NULL, NULL}};
static const dsf_op op_elsewhere = {.name = "elsewhere",
                                    .dims = "nmd",
                                    .args_size = sizeof(mix_args),
                                    DSF_TABLE(operands),
                                    DSF_TABLE(elsewhere)};

enum { ROWS = 6, D = 2 };

typedef struct {
    dsf_plan *p;
    dsf_exec e;
    dsf_val given, mid, keys, out;
    float data[ROWS][D];
    dsf_row_range range[DSF_EXEC_SETS];
} bench;

static dsf_val record(bench *b, const dsf_op *o, int rows, const char *name, dsf_val x,
                      dsf_val keys)
{
    const mix_args a = {.out = {0}};
    const int64_t d = D;
    b->p->rows_now = rows;
    dsf_val out = dsf_plan_scratch(b->p, name, DSF_F32, 2, &d);
    const dsf_bind bind[] = {{offsetof(mix_args, out), out},
                             {offsetof(mix_args, x), x},
                             {offsetof(mix_args, keys), keys}};
    dsf_plan_step(b->p, o, &a, bind, keys == DSF_NO_VAL ? 2 : 3);
    return out;
}

static const dsf_tap tap_in = {DSF_TAP_IN, 0};

/* given -> mid on the query rows, keys on the key rows, out = mid + all keys, shown as logits. */
static void open_bench(bench *b)
{
    const dsf_plan_size size = {ROWS, ROWS, 1, ROWS, 0};
    const int64_t d = D;
    *b = (bench){.p = NULL};
    memset(&seen, 0, sizeof seen);
    GOOD(dsf_plan_open(&b->p, &size, 1));
    b->p->rows_now = DSF_ROWS_ALL;
    (void)dsf_plan_input(b->p, DSF_INPUT_POS, 0, 1, NULL);
    (void)dsf_plan_input(b->p, DSF_INPUT_SLOT, 0, 1, NULL);
    (void)dsf_plan_input(b->p, DSF_INPUT_HEAD_POS, 0, 1, NULL);
    (void)dsf_plan_input(b->p, DSF_INPUT_HEAD_SLOT, 0, 1, NULL);
    b->given = dsf_plan_given_value(b->p, tap_in, DSF_F32, 2, &d);
    b->mid = record(b, &op, DSF_ROWS_Q(0), "mid", b->given, DSF_NO_VAL);
    dsf_plan_show(b->p, DSF_TAP_MID, 0, b->mid);
    b->keys = record(b, &op, DSF_ROWS_KV(0), "keys", b->given, DSF_NO_VAL);
    b->out = record(b, &op, DSF_ROWS_Q(0), "out", b->mid, b->keys);
    dsf_plan_show(b->p, DSF_TAP_LOGITS, -1, b->out);
    dsf_plan_result(b->p, DSF_RESULT_LOGITS, b->out);
    GOOD(dsf_plan_prune(b->p, &(dsf_tap_sink){.on_value = NULL}, NULL, NULL));
    GOOD(dsf_plan_choose(b->p, 0, NULL));
    GOOD(dsf_plan_place(b->p));
    GOOD(dsf_exec_open(&b->e, b->p, &(dsf_exec_setup){.timed = true}));
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < D; k++) b->data[i][k] = (float)(1 << i) + (float)k / 64;
    int32_t *pos = dsf_exec_input(&b->e, DSF_INPUT_POS, 0);
    for (int i = 0; i < ROWS; i++) pos[i] = 100 + i;
    for (size_t i = 0; i < sizeof b->range / sizeof *b->range; i++)
        b->range[i] = (dsf_row_range){0, ROWS};
}

static void close_bench(bench *b)
{
    dsf_exec_close(&b->e);
    dsf_plan_close(b->p);
}

static float *result(const bench *b)
{
    dsf_tensor t;
    GOOD(dsf_exec_result(&b->e, DSF_RESULT_LOGITS, &t));
    return t.data;
}

Test(exec, a_step_sees_the_rows_of_its_own_set)
{
    bench b;
    open_bench(&b);
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS));
    b.range[DSF_ROWS_Q(0)] = (dsf_row_range){4, 2};
    b.range[DSF_ROWS_KV(0)] = (dsf_row_range){1, 4}; /* keys 1..4 exist; seen whole: 0..4 */
    memset(b.e.scratch, 0, b.p->scratch_bytes);
    GOOD(dsf_exec_run(&b.e, b.range, NULL));
    cr_expect_eq(seen.calls, 3);
    cr_expect_eq(seen.n, 2);
    cr_expect_eq(seen.m, 5);
    cr_expect_eq((const float *)seen.x - (float *)(b.e.scratch + b.p->value[b.mid].offset), 4 * D);
    cr_expect_eq(seen.keys, b.e.scratch + b.p->value[b.keys].offset);
    for (int i = 4; i < ROWS; i++)
        cr_expect_eq(result(&b)[i * D], (float)(1 << i) + 2 + 4 + 8 + 16, "row %d", i);
    cr_expect_eq(b.e.rows_run[DSF_ROWS_Q(0)], 2);
    cr_expect_eq(b.e.passes, 1);
    close_bench(&b);
}

/* [B-63] */
Test(exec, a_step_without_rows_does_not_run)
{
    bench b;
    open_bench(&b);
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS));
    b.range[DSF_ROWS_Q(0)].count = 0;
    GOOD(dsf_exec_run(&b.e, b.range, NULL));
    cr_expect_eq(seen.calls, 1, "the keys alone");
    b.range[DSF_ROWS_KV(0)].count = 0;
    GOOD(dsf_exec_run(&b.e, b.range, NULL));
    cr_expect_eq(seen.calls, 1);
    close_bench(&b);
}

Test(exec, given_data_that_is_too_short_is_refused)
{
    bench b;
    open_bench(&b);
    REFUSED(DSF_EINVAL, dsf_exec_run(&b.e, b.range, NULL)); /* nothing given at all */
    SAYS("0 given rows, 6 wanted");
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS - 1));
    REFUSED(DSF_EINVAL, dsf_exec_run(&b.e, b.range, NULL));
    SAYS("5 given rows, 6 wanted");
    cr_expect_eq(seen.calls, 0);
    b.range[DSF_ROWS_Q(0)] = b.range[DSF_ROWS_KV(0)] = (dsf_row_range){0, ROWS - 1};
    GOOD(dsf_exec_run(&b.e, b.range, NULL));
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS)); /* given anew */
    b.range[DSF_ROWS_Q(0)] = b.range[DSF_ROWS_KV(0)] = (dsf_row_range){0, ROWS};
    GOOD(dsf_exec_run(&b.e, b.range, NULL));
    close_bench(&b);
}

Test(exec, only_what_the_plan_asks_for_can_be_given_or_read)
{
    bench b;
    dsf_tensor t;
    open_bench(&b);
    REFUSED(DSF_EINVAL, dsf_exec_give(&b.e, (dsf_tap){DSF_TAP_PREMIX, 0}, b.data, ROWS));
    SAYS("layers/00/premix");
    REFUSED(DSF_EINVAL, dsf_exec_give(&b.e, (dsf_tap){DSF_TAP_IN, 1}, b.data, ROWS));
    REFUSED(DSF_EINVAL, dsf_exec_result(&b.e, DSF_RESULT_DRAFT_IDS, &t));
    SAYS("draft_ids");
    cr_expect_null(dsf_exec_input(&b.e, DSF_INPUT_ANCHOR, 0));
    cr_expect_null(dsf_exec_input(&b.e, DSF_INPUT_POS, 1));
    cr_expect_not(dsf_exec_cache(&b.e, "ring0", &t));
    close_bench(&b);
}

/* [B-57] */
Test(exec, a_failing_kernel_ends_the_pass_with_its_own_words)
{
    bench b;
    open_bench(&b);
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS));
    seen.fail_at = 2;
    REFUSED(DSF_EDEVICE, dsf_exec_run(&b.e, b.range, NULL));
    SAYS("call 2");
    cr_expect_eq(seen.calls, 2);
    GOOD(dsf_exec_run(&b.e, b.range, NULL)); /* and the next one is whole */
    cr_expect_eq(seen.calls, 5);
    cr_expect_eq(result(&b)[0], 1 + 63);
    close_bench(&b);
}

/* ---- taps ---- */

typedef struct {
    int shown, fail_at;
    int64_t n;
    int32_t first_label;
    float first;
    dsf_tap_id only;
} watcher;

static dsf_status watch(void *ud, const dsf_tap_value *v)
{
    watcher *w = ud;
    w->n = v->n;
    w->first_label = v->label[0];
    w->first = *(const float *)v->value->data;
    cr_expect_eq(v->value->dim[0], v->n);
    if (++w->shown == w->fail_at) return DSF_FAIL(DSF_EIO, "no room");
    return DSF_OK;
}

static bool only(void *ud, dsf_tap t) { return t.id == ((watcher *)ud)->only; }

Test(exec, a_sink_is_shown_the_rows_of_the_step_with_their_labels)
{
    bench b;
    watcher w = {.only = DSF_TAP_MID};
    dsf_tap_sink sink = {.on_value = watch, .ud = &w, .wants = only};
    open_bench(&b);
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS));
    b.range[DSF_ROWS_Q(0)] = (dsf_row_range){2, 3};
    GOOD(dsf_exec_run(&b.e, b.range, &sink));
    cr_expect_eq(w.shown, 1, "what it does not want is not shown");
    cr_expect_eq(w.n, 3);
    cr_expect_eq(w.first_label, 102);
    cr_expect_eq(w.first, 4);
    sink.wants = NULL;
    GOOD(dsf_exec_run(&b.e, b.range, &sink));
    cr_expect_eq(w.shown, 3);
    close_bench(&b);
}

Test(exec, a_failing_sink_ends_the_pass)
{
    bench b;
    watcher w = {.fail_at = 1};
    const dsf_tap_sink sink = {.on_value = watch, .ud = &w};
    open_bench(&b);
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS));
    REFUSED(DSF_EIO, dsf_exec_run(&b.e, b.range, &sink));
    SAYS("no room");
    cr_expect_eq(seen.calls, 1);
    close_bench(&b);
}

Test(exec, every_step_is_timed_when_asked)
{
    bench b;
    open_bench(&b);
    GOOD(dsf_exec_give(&b.e, tap_in, b.data, ROWS));
    cr_assert_not_null(b.e.step_ns);
    for (int i = 0; i < 200; i++) GOOD(dsf_exec_run(&b.e, b.range, NULL));
    for (int i = 0; i < b.p->n_steps; i++) cr_expect_gt(b.e.step_ns[i], 0, "step %d", i);
    close_bench(&b);
}

/* ---- binding ---- */

/* [B-83] */
Test(exec, caches_are_shared_by_plans_of_one_layout_only)
{
    dsf_plan *p[2];
    dsf_exec first, second;
    for (int i = 0; i < 2; i++) {
        const dsf_plan_size size = {1, 1, 1, 1, 0};
        const int64_t dim[3] = {1, 4 + 64 * i, 32};
        GOOD(dsf_plan_open(&p[i], &size, 1));
        (void)dsf_plan_cache(p[i], "ring0", DSF_Q8, 3, dim);
        GOOD(dsf_plan_place(p[i]));
    }
    GOOD(dsf_exec_open(&first, p[0], &(dsf_exec_setup){.timed = false}));
    REFUSED(DSF_EINVAL, dsf_exec_open(&second, p[1], &(dsf_exec_setup){.cache_from = &first}));
    SAYS("shared caches");
    GOOD(dsf_exec_open(&second, p[0], &(dsf_exec_setup){.cache_from = &first}));
    dsf_tensor a, b;
    cr_assert(dsf_exec_cache(&first, "ring0", &a) && dsf_exec_cache(&second, "ring0", &b));
    cr_expect_eq(a.data, b.data);
    cr_expect_eq(a.dim[1], 4);
    dsf_exec_close(&second); /* the owner's caches stay */
    memset(a.data, 1, (size_t)dsf_tensor_bytes(&a));
    dsf_exec_close(&first);
    dsf_exec_close(&first); /* twice is fine */
    dsf_plan_close(p[0]);
    dsf_plan_close(p[1]);
}

/* [B-71] */
Test(exec, a_step_that_this_machine_cannot_run_is_refused_when_chosen)
{
    bench b = {.p = NULL};
    const dsf_plan_size size = {ROWS, ROWS, 1, ROWS, 0};
    const int64_t d = D;
    GOOD(dsf_plan_open(&b.p, &size, 1));
    b.given = dsf_plan_given_value(b.p, tap_in, DSF_F32, 2, &d);
    (void)record(&b, &op_elsewhere, DSF_ROWS_ALL, "out", b.given, DSF_NO_VAL);
    REFUSED(DSF_ENOTSUP, dsf_plan_choose(b.p, 0, NULL));
    SAYS("elsewhere");
    GOOD(dsf_plan_choose(b.p, DSF_NEEDS_SM90, NULL));
    dsf_plan_close(b.p);
}
