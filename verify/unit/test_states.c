/* The same tokens by every road leave the same bits. */
#include "engine_fixture.h"
#include "verify/states/states.h"

TestSuite(states, .fini = mini_clean);

static void by_every_road(dsf_states_options o, int64_t lengths)
{
    dsf_states_report r;
    o.model = mini();
    GOOD(dsf_states_run(&o, &r));
    for (int i = 0; i < DSF_N_ROADS; i++) {
        cr_expect_eq(r.ran[i], lengths, "%s ran %lld times", dsf_road_name((dsf_road)i),
                     (long long)r.ran[i]);
        cr_expect_eq(r.failed[i], 0, "%s: %s", dsf_road_name((dsf_road)i), r.first);
    }
    cr_expect_eq(r.cone_rows_wrong, 0, "%s", r.first);
    cr_expect_eq(r.compared, lengths * DSF_N_ROADS);
    cr_expect_gt(r.bytes, r.compared * MINI_VOCAB * 4);
}

/* [B-76] */
Test(states, all_roads_are_equal_up_to_three_windows)
{
    by_every_road((dsf_states_options){.threads = 1}, 3 * MINI_WINDOW);
}

/* [B-27] */
Test(states, all_roads_are_equal_on_three_threads)
{
    by_every_road((dsf_states_options){.threads = 3, .longest = 11}, 11);
}

Test(states, all_roads_are_equal_on_the_reference_kernels)
{
    by_every_road((dsf_states_options){.threads = 2, .longest = 4, .variants = "ref"}, 4);
}

/* ---- rewind ---- */

static dsf_engine *engine_of(dsf_prefill mode, int64_t chunk, int64_t rewind)
{
    return open_engine((dsf_options){
        .context = 80, .slots = 2, .chunk = chunk, .rewind = rewind, .prefill = mode});
}

/* From here, tokens [position, n) of sequence 1 one by one must give the definition's bits. */
static void goes_on(dsf_session *s, int64_t n, const char *what)
{
    float want[MINI_VOCAB], have[MINI_VOCAB];
    run_all(s);
    for (int64_t t = dsf_session_position(s); t < n; t++) feed_run(s, 1, t, t + 1);
    take_logits(s, have);
    want_logits(1, n, want);
    SAME_LOGITS(want, have, "%s, then to %lld tokens", what, (long long)n);
}

/* [B-87] */
Test(states, rewind_takes_positions_that_exist)
{
    dsf_engine *e = engine_of(DSF_PREFILL_EXACT, 8, 4);
    dsf_session *s = open_session(e);
    REFUSED(DSF_EINVAL, dsf_session_rewind(s, 1));
    GOOD(dsf_session_rewind(s, 0));
    feed_run(s, 1, 0, 12);
    REFUSED(DSF_EINVAL, dsf_session_rewind(s, -1));
    REFUSED(DSF_EINVAL, dsf_session_rewind(s, 13));
    SAYS("12 positions");
    cr_expect_eq(dsf_session_position(s), 12);
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* [B-79] [B-87] [B-92] */
Test(states, rewind_is_immediate_within_its_reach_and_recomputes_beyond)
{
    for (int64_t back = 0; back <= 20; back++) {
        dsf_engine *e = engine_of(DSF_PREFILL_EXACT, 8, 4);
        dsf_session *s = open_session(e);
        char what[64];
        feed_run(s, 1, 0, 15);
        feed_run(s, 2, 15, 20);
        GOOD(dsf_session_rewind(s, 20 - back));
        bool immediate = back <= 4 || back == 20;
        cr_expect_eq(dsf_session_position(s), immediate ? 20 - back : 0, "back %lld",
                     (long long)back);
        cr_expect_eq(dsf_session_queued(s), immediate ? 0 : 20 - back);
        (void)snprintf(what, sizeof what, "rewound by %lld", (long long)back);
        if (back >= 5) goes_on(s, 24, what);
        dsf_session_close(s);
        dsf_engine_close(e);
    }
}

/* [B-87] */
Test(states, rewinds_add_up_from_the_furthest_point)
{
    dsf_engine *e = engine_of(DSF_PREFILL_EXACT, 8, 6);
    dsf_session *s = open_session(e);
    feed_run(s, 1, 0, 20);
    feed_run(s, 3, 20, 24);
    GOOD(dsf_session_rewind(s, 20)); /* 4 of 6 */
    cr_expect_eq(dsf_session_position(s), 20);
    feed_run(s, 4, 20, 21);
    GOOD(dsf_session_rewind(s, 18)); /* 6 from the furthest, 24 */
    cr_expect_eq(dsf_session_position(s), 18);
    GOOD(dsf_session_rewind(s, 17)); /* 7: the ring has lost what 17 needs */
    cr_expect_eq(dsf_session_position(s), 0);
    goes_on(s, 30, "two rewinds and one too far");
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* The cone leaves gaps in the decoder half: a rewind into its prompt computes again. */
Test(states, a_rewind_into_a_cone_prompt_recomputes)
{
    for (int64_t to = 18; to <= 22; to++) {
        dsf_engine *e = engine_of(DSF_PREFILL_CONE, 6, 16);
        dsf_session *s = open_session(e);
        feed_run(s, 1, 0, 20);
        feed_run(s, 1, 20, 21);
        feed_run(s, 2, 21, 22);
        GOOD(dsf_session_rewind(s, to));
        cr_expect_eq(dsf_session_position(s), to >= 20 ? to : 0, "to %lld", (long long)to);
        if (to <= 21) goes_on(s, 26, "rewound to a cone prompt");
        dsf_session_close(s);
        dsf_engine_close(e);
    }
}

/* A prompt given up half-way: what was computed so far served its end only. [B-89] */
Test(states, a_cone_prompt_given_up_half_way_recomputes)
{
    for (int64_t steps = 1; steps <= 5; steps++)
        for (int64_t less = 0; less <= 2; less++) {
            dsf_engine *e = engine_of(DSF_PREFILL_CONE, 5, 16);
            dsf_session *old = open_session(e);
            feed_run(old, 9, 0, 40); /* the slot is not clean */
            dsf_session_close(old);
            dsf_session *s = open_session(e);
            char what[64];
            feed(s, 1, 0, 60);
            for (int64_t i = 0; i < steps; i++) GOOD(dsf_engine_step(e, &s, 1, NULL));
            cr_assert_eq(dsf_session_position(s), 5 * steps);
            GOOD(dsf_session_rewind(s, 5 * steps - less));
            (void)snprintf(what, sizeof what, "60 fed, %lld computed, %lld less", 5LL * steps,
                           (long long)less);
            goes_on(s, 5 * steps + 9, what);
            dsf_session_close(s);
            dsf_engine_close(e);
        }
}

/* The same where the prompt went on beside a neighbour, in exact rows over what the cone left out.
 */
Test(states, a_cone_prompt_finished_beside_a_neighbour_recomputes)
{
    float want[MINI_VOCAB], have[MINI_VOCAB];
    want_logits(1, 17, want);
    for (int64_t to = 10; to <= 17; to++) {
        dsf_engine *e = engine_of(DSF_PREFILL_CONE, 6, 16);
        dsf_session *old = open_session(e);
        feed_run(old, 9, 0, 50);
        dsf_session_close(old);
        dsf_session *s = open_session(e), *t = open_session(e);
        feed(s, 1, 0, 17);
        GOOD(dsf_engine_step(e, &s, 1, NULL));
        feed(t, 2, 0, 30);
        dsf_session *both[2] = {s, t};
        while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(e, both, 2, NULL));
        take_logits(s, have);
        SAME_LOGITS(want, have, "cone, then beside a neighbour");
        GOOD(dsf_session_rewind(s, to));
        goes_on(s, to + 5, "rewound into it");
        dsf_session_close(s);
        dsf_session_close(t);
        dsf_engine_close(e);
    }
}

/* More is fed while a cone prompt is half computed: its end moves. [B-65] */
Test(states, a_prompt_that_grows_while_it_runs_gives_the_same_bits)
{
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_EXACT; mode++)
        for (int64_t first = 6; first <= 40; first += 7) {
            dsf_engine *e = engine_of((dsf_prefill)mode, 5, 16);
            dsf_session *s = open_session(e);
            feed(s, 1, 0, first);
            GOOD(dsf_engine_step(e, &s, 1, NULL));
            feed(s, 1, first, first + 11);
            goes_on(s, first + 14, "fed again while running");
            dsf_session_close(s);
            dsf_engine_close(e);
        }
}

/* ---- fork ---- */

/* [B-89] */
Test(states, a_fork_owns_its_state_in_every_order_of_closing)
{
    for (int order = 0; order < 4; order++) {
        dsf_engine *e = engine_of(DSF_PREFILL_CONE, 7, 4);
        dsf_session *a = open_session(e), *b;
        feed(a, 1, 0, 17);
        GOOD(dsf_engine_step(e, &a, 1, NULL));
        GOOD(dsf_session_fork(&b, a)); /* 7 computed, 10 queued in both */
        cr_expect_eq(dsf_session_position(b), 7);
        cr_expect_eq(dsf_session_queued(b), 10);
        if (order & 1) { /* the original goes on elsewhere, or goes away */
            run_all(a);
            feed_run(a, 5, 17, 40);
        }
        if (order & 2) {
            dsf_session_close(a);
            a = open_session(e);
            feed_run(a, 6, 0, 30);
        }
        goes_on(b, 20, "the fork");
        dsf_session_close(order & 1 ? a : b);
        dsf_session_close(order & 1 ? b : a);
        dsf_engine_close(e);
    }
}

Test(states, a_fork_has_the_logits_of_its_original)
{
    dsf_engine *e = engine_of(DSF_PREFILL_CONE, 16, 4);
    dsf_session *a = open_session(e), *b;
    float want[MINI_VOCAB], have[MINI_VOCAB];
    feed_run(a, 1, 0, 9);
    take_logits(a, want);
    GOOD(dsf_session_fork(&b, a));
    dsf_session_close(a);
    take_logits(b, have);
    SAME_LOGITS(want, have, "a fork's logits");
    dsf_session_close(b);
    dsf_engine_close(e);
}

/* ---- a pass that fails ---- */

static dsf_status fail_at_logits(void *ud, const dsf_tap_value *v)
{
    int *left = ud;
    if (v->tap.id != DSF_TAP_LOGITS || --*left > 0) return DSF_OK;
    return DSF_FAIL(DSF_EIO, "the disk is full");
}

/* The pass has written over ring rows that the session still needs; the next one must not use them.
 * [B-68] */
Test(states, a_step_after_a_failed_one_gives_the_same_bits)
{
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_EXACT; mode++)
        for (int64_t second = 1; second <= 30; second += 4) {
            int left = 1;
            const dsf_tap_sink sink = {.on_value = fail_at_logits, .ud = &left};
            dsf_engine *e = open_engine((dsf_options){.context = 80,
                                                      .chunk = 40,
                                                      .rewind = 4,
                                                      .prefill = (dsf_prefill)mode,
                                                      .sink = &sink});
            dsf_session *s = open_session(e);
            feed_run(s, 1, 0, 21);
            feed(s, 1, 21, 21 + second);
            REFUSED(DSF_EIO, dsf_engine_step(e, &s, 1, &sink));
            const float *row;
            REFUSED(DSF_EINVAL, dsf_session_logits(s, &row));
            goes_on(s, 21 + second, "after a failed pass");
            GOOD(dsf_session_rewind(s, 20 + second));
            goes_on(s, 22 + second, "and after a rewind");
            dsf_session_close(s);
            dsf_engine_close(e);
        }
}

/* ---- image rows ---- */

/* Rows given with the table's own embeddings are the tokens themselves. */
Test(states, given_embeddings_of_the_table_give_the_same_bits)
{
    enum { N = 13, DIM = 128 };
    dsf_engine *e =
        open_engine((dsf_options){.context = 20, .chunk = 4, .slots = 2, .given_embed = true});
    dsf_session *s = open_session(e), *f;
    const uint16_t *table = dsf_weights_at(&e->load.weights, -1, DSF_ROLE_EMBED, false)->data;
    uint16_t rows[N][DIM];
    int32_t ids[N];
    uint8_t mask[N] = {0};
    float want[MINI_VOCAB], have[MINI_VOCAB];
    for (int i = 0; i < N; i++) {
        ids[i] = token(i, 1);
        memcpy(rows[i], table + (int64_t)ids[i] * DIM, sizeof rows[i]);
    }
    REFUSED(DSF_EINVAL, dsf_session_feed(s, ids, 1));
    SAYS("dsf_session_feed_embed");
    GOOD(dsf_session_feed_embed(s, ids, mask, rows[0], 9));
    GOOD(dsf_session_fork(&f, s));
    run_all(f);
    GOOD(dsf_session_feed_embed(f, ids + 9, NULL, rows[9], N - 9));
    run_all(f);
    take_logits(f, have);
    want_logits(1, N, want);
    SAME_LOGITS(want, have, "given rows");
    mask[4] = mask[5] = 1; /* inside a span the router's other bias and dead classes act */
    dsf_session_close(s);
    s = open_session(e);
    GOOD(dsf_session_feed_embed(s, ids, mask, rows[0], N));
    run_all(s);
    take_logits(s, have);
    cr_expect(memcmp(want, have, sizeof want) != 0);
    dsf_session_close(s);
    dsf_session_close(f);
    dsf_engine_close(e);
    e = open_engine((dsf_options){.context = 20});
    s = open_session(e);
    REFUSED(DSF_EINVAL, dsf_session_feed_embed(s, ids, mask, rows[0], 1));
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* ---- draft ---- */

typedef struct {
    int32_t ids[8];
    float confidence[8];
    int n;
} drafted;

static drafted draft_of(dsf_session *s, int32_t anchor)
{
    drafted d = {.n = 0};
    GOOD(dsf_session_draft(s, anchor, d.ids, d.confidence, &d.n, NULL));
    return d;
}

#define SAME_DRAFT(a, b, what)                                                                     \
    do {                                                                                           \
        cr_expect_eq((a).n, (b).n);                                                                \
        cr_expect_arr_eq((a).ids, (b).ids, sizeof(a).ids, "%s: ids", what);                        \
        cr_expect_arr_eq((a).confidence, (b).confidence, sizeof(a).confidence, "%s: confidence",   \
                         what);                                                                    \
    } while (0)

/* [B-47] */
Test(states, a_draft_depends_on_the_tokens_alone)
{
    dsf_engine *e = engine_of(DSF_PREFILL_CONE, 40, 8);
    dsf_session *a = open_session(e), *b;
    feed_run(a, 1, 0, 21);
    float before[MINI_VOCAB], after[MINI_VOCAB];
    take_logits(a, before);
    drafted want = draft_of(a, 17);
    cr_expect_eq(want.n, 3);
    for (int i = 0; i < want.n; i++) cr_expect(want.ids[i] >= 0 && want.ids[i] < MINI_VOCAB);
    SAME_DRAFT(want, draft_of(a, 17), "again");
    take_logits(a, after);
    SAME_LOGITS(before, after, "a draft leaves the logits");
    GOOD(dsf_session_fork(&b, a));
    feed_run(a, 3, 21, 25);
    SAME_DRAFT(want, draft_of(b, 17), "after a fork");
    GOOD(dsf_session_rewind(a, 21));
    cr_expect_eq(dsf_session_position(a), 21);
    SAME_DRAFT(want, draft_of(a, 17), "after a rewind");
    dsf_session_close(b);
    b = open_session(e);
    for (int64_t t = 0; t < 21; t += 3) feed_run(b, 1, t, t + 3);
    SAME_DRAFT(want, draft_of(b, 17), "after chunks of 3");
    goes_on(b, 24, "a draft leaves the caches");
    dsf_session_close(a);
    dsf_session_close(b);
    dsf_engine_close(e);
}

Test(states, a_draft_is_refused_where_there_is_nothing_to_draft_from)
{
    dsf_engine *e = engine_of(DSF_PREFILL_CONE, 16, 8);
    dsf_session *s = open_session(e);
    drafted d;
    REFUSED(DSF_EINVAL, dsf_session_draft(s, 1, d.ids, d.confidence, &d.n, NULL));
    feed(s, 1, 0, 20);
    GOOD(dsf_engine_step(e, &s, 1, NULL));
    REFUSED(DSF_EINVAL, dsf_session_draft(s, 1, d.ids, d.confidence, &d.n, NULL));
    SAYS("16 of 20");
    run_all(s);
    REFUSED(DSF_EINVAL, dsf_session_draft(s, -1, d.ids, d.confidence, &d.n, NULL));
    REFUSED(DSF_EINVAL, dsf_session_draft(s, MINI_VOCAB, d.ids, d.confidence, &d.n, NULL));
    SAYS("vocabulary of 512");
    GOOD(dsf_session_draft(s, 1, d.ids, d.confidence, &d.n, NULL));
    dsf_session_close(s);
    dsf_engine_close(e);
}

Test(states, a_model_without_stages_runs_and_refuses_to_draft)
{
    char folder[4096];
    make_temp(folder);
    write_model(folder, "mini", -1, 0);
    dsf_engine *e = open_engine((dsf_options){.model = folder, .context = 16});
    dsf_session *s = open_session(e);
    float want[MINI_VOCAB], have[MINI_VOCAB];
    drafted d;
    feed_run(s, 1, 0, 9);
    take_logits(s, have);
    want_logits(1, 9, want);
    SAME_LOGITS(want, have, "the stages change no logit");
    REFUSED(DSF_ENOTSUP, dsf_session_draft(s, 1, d.ids, d.confidence, &d.n, NULL));
    SAYS("no draft stages");
    dsf_session_close(s);
    dsf_engine_close(e);
    remove_temp(folder);
}
