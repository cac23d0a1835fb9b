/* Fused plans: which steps become one, which must not, and that no bit of a pass changes. */
#include "plan_fixture.h"

TestSuite(fuse, .fini = mini_clean);

static const dsf_tap_sink all_taps = {.on_value = NULL};

static int count(const dsf_plan *p, const char *op)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) n += strcmp(p->step[i].op->name, op) == 0;
    return n;
}

static dsf_plan *fused(const shapes *s, bool draft, const dsf_tap_sink *sink)
{
    dsf_plan *p = record(s, small, draft);
    GOOD(dsf_plan_prune(p, sink, NULL, NULL));
    GOOD(dsf_plan_fuse(p, 0, NULL));
    return p;
}

/* Values are written before they are read, by one step each. */
static void check_order(const dsf_plan *p)
{
    bool *written = calloc((size_t)p->n_values, sizeof *written);
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *s = &p->step[i];
        for (int k = 0; k < s->op->n_operands; k++) {
            dsf_val v = dsf_plan_base(p, s->operand[k]);
            if (v == DSF_NO_VAL || p->value[v].kind != DSF_VALUE_SCRATCH) continue;
            if (s->op->operand[k].dir == DSF_IN)
                cr_expect(written[v], "step %d, %s.%s", i, s->op->name, s->op->operand[k].name);
            if (s->op->operand[k].dir == DSF_OUT)
                cr_expect_not(written[v], "step %d writes %s again", i, p->value[v].name);
        }
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL && s->op->operand[k].dir != DSF_IN)
                written[dsf_plan_base(p, s->operand[k])] = true;
    }
    free(written);
}

/* 10 layers, of which 2 start from an Engram write: every expansion but those before them and the
 * last one is followed by a collapse, a norm and a quantiser. */
Test(fuse, every_boundary_and_every_record_becomes_one_step)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *plain = record(&s, small, false), *p = fused(&s, false, NULL);
    GOOD(dsf_plan_prune(plain, NULL, NULL, NULL));
    int engrams = count(plain, "engram_gate"), boundaries = 2 * s.config.n_layers - 1 - engrams;
    cr_expect_gt(engrams, 0);
    cr_expect_eq(count(p, "hc_boundary"), boundaries);
    cr_expect_eq(count(p, "hc_expand"), 1 + engrams);
    cr_expect_eq(count(p, "hc_mix"), 2 * s.config.n_layers, "beside the sublayers");
    cr_expect_eq(count(p, "swiglu"), 0);
    cr_expect_eq(count(p, "swiglu_q8"), count(plain, "swiglu"));
    cr_expect_eq(count(p, "row_q4x"), count(plain, "quant_q4x"));
    cr_expect_eq(count(p, "moe_sum"), 1 + engrams);
    cr_expect_eq(count(p, "row_pair"), s.config.n_layers, "window key and q latent");
    cr_expect_eq(count(p, "attn_close"), s.config.n_layers);
    int indexes = count(plain, "index_weight"); /* wq_b and the indexer's read one q latent */
    int contexts = s.config.n_mtp_layers / 2;   /* the draft stages' wkv read one value */
    cr_expect_eq(count(p, "linear_g8_pair"), 2 * s.config.n_layers + indexes + contexts);
    check_order(p);
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    dsf_plan_close(p);
    dsf_plan_close(plain);
    close_shapes(&s);
}

Test(fuse, a_draft_plan_too)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = fused(&s, true, NULL);
    cr_expect_eq(count(p, "hc_boundary"), 2 * s.config.n_mtp_layers - 1);
    check_order(p);
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    dsf_plan_close(p);
    close_shapes(&s);
}

Test(fuse, fusing_twice_changes_nothing_more)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = fused(&s, false, NULL);
    int steps = p->n_steps;
    GOOD(dsf_plan_fuse(p, 0, NULL));
    cr_expect_eq(p->n_steps, steps);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- what must stay ---- */

enum { LAYER = 6 }; /* plain: no Engram before or after it */

static bool wants(void *ud, dsf_tap t)
{
    return t.id == *(const dsf_tap_id *)ud && t.layer == LAYER;
}

/* Steps of LAYER with this operation when this tap of it is wanted; the tap is there. */
static int left(const shapes *s, dsf_tap_id id, const char *op)
{
    const dsf_tap_sink sink = {.wants = wants, .ud = &id};
    dsf_plan *p = fused(s, false, &sink);
    int n = 0, taps = 0;
    for (int i = 0; i < p->n_steps; i++) {
        n += p->step[i].layer == LAYER && strcmp(p->step[i].op->name, op) == 0;
        for (int k = 0; k < p->step[i].n_taps; k++) taps += p->step[i].tap[k].tap.id == id;
    }
    cr_expect_eq(taps, 1, "tap %s", dsf_taps[id].path);
    check_order(p);
    dsf_plan_close(p);
    return n;
}

Test(fuse, a_wanted_intermediate_keeps_its_sequence)
{
    shapes s;
    open_preset(&s, "mini");
    cr_expect_eq(left(&s, DSF_TAP_FFN_Y, "moe_sum"), 1, "the sum is shown");
    cr_expect_eq(left(&s, DSF_TAP_FFN_Y, "hc_boundary"), 2, "and the rest goes on");
    cr_expect_eq(left(&s, DSF_TAP_ATTN_Q_LATENT, "rms_norm"), 1);
    cr_expect_eq(left(&s, DSF_TAP_ATTN_U, "rms_norm"), 1, "shown on other rows than the stream's");
    cr_expect_eq(left(&s, DSF_TAP_MID, "hc_boundary"), 2, "results of the fused step are shown");
    cr_expect_eq(left(&s, DSF_TAP_FFN_U, "hc_boundary"), 2);
    cr_expect_eq(left(&s, DSF_TAP_OUT, "hc_boundary"), 2);
    close_shapes(&s);
}

static bool gives_mid(void *ud, dsf_tap t)
{
    (void)ud;
    return t.id == DSF_TAP_MID && t.layer == LAYER;
}

static bool gives_ffn_y(void *ud, dsf_tap t)
{
    (void)ud;
    return t.id == DSF_TAP_FFN_Y && t.layer == LAYER;
}

static dsf_plan *fused_given(const shapes *s, bool (*given)(void *ud, dsf_tap t))
{
    dsf_plan *p;
    GOOD(dsf_plan_open(&p, &small, s->config.n_layers));
    p->given = given;
    GOOD(dsf_model_build(p, &s->model));
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    GOOD(dsf_plan_fuse(p, 0, NULL));
    check_order(p);
    return p;
}

Test(fuse, a_given_value_is_read_as_it_is_given)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *whole = fused(&s, false, NULL);
    dsf_plan *p = fused_given(&s, gives_mid);
    cr_expect_eq(count(p, "hc_boundary"), count(whole, "hc_boundary") - 1);
    dsf_plan_close(p);
    p = fused_given(&s, gives_ffn_y); /* nobody computes the layer's experts, nor what they read */
    cr_expect_eq(count(p, "hc_boundary"), count(whole, "hc_boundary") - 1);
    for (int i = 0; i < p->n_steps; i++) {
        if (strcmp(p->step[i].op->name, "hc_boundary") != 0) continue;
        for (int k = 0; k < p->step[i].op->n_operands; k++)
            if (p->step[i].operand[k] != DSF_NO_VAL &&
                p->value[p->step[i].operand[k]].kind == DSF_VALUE_GIVEN)
                cr_expect_str_eq(p->step[i].op->operand[k].name, "y");
    }
    dsf_plan_close(p);
    dsf_plan_close(whole);
    close_shapes(&s);
}

/* No fused operation has a vector version: that target keeps the parts, which have. */
Test(fuse, a_target_without_a_kernel_keeps_the_parts)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = record(&s, small, false);
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    int steps = p->n_steps;
    GOOD(dsf_plan_fuse(p, DSF_NEEDS_AVX512, NULL));
    cr_expect_eq(p->n_steps, steps);
    bool cuda = dsf_op_find("hc_boundary")->variant[1].run != NULL;
    GOOD(dsf_plan_fuse(p, DSF_NEEDS_SM90, "cuda,-sm90:hc_boundary,-sm90:row_q8"));
    for (int i = 0; i < p->n_steps; i++)
        cr_expect(p->step[i].op != dsf_op_find("hc_boundary") &&
                      p->step[i].op != dsf_op_find("row_q8"),
                  "%d: a kernel that the mask takes away is not fused in", i);
    GOOD(dsf_plan_fuse(p, DSF_NEEDS_SM90, NULL));
    cr_expect_eq(p->n_steps < steps, cuda);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- the same bits ---- */

/* The engine's plans again, fused, and the engine on them. */
static void fuse_engine(dsf_engine *e)
{
    const dsf_exec_setup own = {.pool = e->pool};
    const dsf_exec_setup shared = {.pool = e->pool, .cache_from = &e->exec};
    dsf_plan **plan[2] = {&e->plan, &e->draft_plan};
    dsf_exec_close(&e->draft);
    dsf_exec_close(&e->exec);
    for (int draft = 0; draft < 2; draft++) {
        const dsf_plan_size size = (*plan[draft])->size;
        dsf_plan_close(*plan[draft]);
        GOOD(dsf_plan_open(plan[draft], &size, e->load.config.n_layers));
        GOOD(draft ? dsf_model_build_draft(*plan[draft], &e->load.model)
                   : dsf_model_build(*plan[draft], &e->load.model));
        GOOD(dsf_plan_prune(*plan[draft], e->opt.sink, NULL, NULL));
        GOOD(dsf_plan_fuse(*plan[draft], 0, NULL));
        cr_assert_gt(count(*plan[draft], "swiglu_q8"), 0);
        GOOD(dsf_plan_choose(*plan[draft], 0, "ref"));
        GOOD(dsf_plan_place(*plan[draft]));
    }
    GOOD(dsf_exec_open(&e->exec, e->plan, &own));
    GOOD(dsf_exec_open(&e->draft, e->draft_plan, &shared));
    for (int i = 0; i < DSF_N_INPUTS; i++) e->in[i] = dsf_exec_input(&e->exec, (dsf_input)i, 0);
    for (int i = 0; i < e->load.config.n_engram; i++)
        e->engram[i] = dsf_exec_input(&e->exec, DSF_INPUT_ENGRAM, i);
}

/* Logits after a prompt in chunks and after each of a few steps, then of two sequences together. */
static void hold_together(dsf_prefill prefill)
{
    enum { PROMPT = 45, STEPS = 3 };
    const dsf_options o = {
        .variants = "ref", .chunk = 16, .context = 128, .slots = 2, .prefill = prefill};
    dsf_engine *e[2] = {open_engine(o), open_engine(o)};
    dsf_session *s[2][2];
    float logits[2][2][MINI_VOCAB];
    fuse_engine(e[1]);
    for (int k = 0; k < 2; k++)
        for (int q = 0; q < 2; q++) {
            s[k][q] = open_session(e[k]);
            feed_run(s[k][q], 7 + q, 0, PROMPT + q);
            take_logits(s[k][q], logits[k][q]);
        }
    for (int q = 0; q < 2; q++) SAME_LOGITS(logits[0][q], logits[1][q], "prompt %d", q);
    for (int t = 0; t < STEPS; t++) {
        for (int k = 0; k < 2; k++) {
            for (int q = 0; q < 2; q++) feed(s[k][q], 7 + q, PROMPT + q + t, PROMPT + q + t + 1);
            GOOD(dsf_engine_step(e[k], s[k], 2, NULL));
            for (int q = 0; q < 2; q++) take_logits(s[k][q], logits[k][q]);
        }
        for (int q = 0; q < 2; q++) SAME_LOGITS(logits[0][q], logits[1][q], "step %d of %d", t, q);
    }
    for (int k = 0; k < 2; k++) {
        for (int q = 0; q < 2; q++) dsf_session_close(s[k][q]);
        dsf_engine_close(e[k]);
    }
}

Test(fuse, exact_prefill_and_decode_keep_every_bit) { hold_together(DSF_PREFILL_EXACT); }
Test(fuse, cone_prefill_keeps_every_bit) { hold_together(DSF_PREFILL_CONE); }
Test(fuse, replay_prefill_keeps_every_bit) { hold_together(DSF_PREFILL_REPLAY); }

/* Every tap of a pass, as one sum over all of its bytes. */
typedef struct {
    uint64_t hash;
    int shown;
} tap_sum;

static dsf_status add_tap(void *ud, const dsf_tap_value *v)
{
    tap_sum *sum = ud;
    const uint8_t *bytes = v->value->data;
    uint64_t h = (uint64_t)v->tap.id * 1000003u + (uint64_t)(v->tap.layer + 1);
    for (int64_t i = 0; i < dsf_tensor_bytes(v->value); i++) h = (h ^ bytes[i]) * 0x100000001B3u;
    sum->hash += h; /* the order of taps is the plan's own */
    sum->shown++;
    return DSF_OK;
}

Test(fuse, all_taps_of_a_fused_plan_are_those_of_the_plain_one)
{
    tap_sum sum[2] = {{0, 0}, {0, 0}};
    for (int k = 0; k < 2; k++) {
        const dsf_tap_sink sink = {.on_value = add_tap, .ud = &sum[k]};
        dsf_engine *e =
            open_engine((dsf_options){.variants = "ref", .context = 64, .sink = &all_taps});
        if (k) fuse_engine(e);
        dsf_session *s = open_session(e);
        feed(s, 3, 0, 21);
        while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(e, &s, 1, &sink));
        dsf_session_close(s);
        dsf_engine_close(e);
    }
    cr_expect_gt(sum[0].shown, 100);
    cr_expect_eq(sum[0].shown, sum[1].shown);
    cr_expect_eq(sum[0].hash, sum[1].hash);
}
