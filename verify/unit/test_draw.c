/* Tokens that a step draws itself are those that the caller would draw from its logits: alone,
 * in batches, forked, taken back, after every kind of prefill. */
#include "engine_fixture.h"

TestSuite(draw, .fini = mini_clean);

enum { SEQUENCES = 3, DRAWN = 12 };

static const dsf_sampling how[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 0.9, .seed = 5},
    {.temperature = 0.7, .top_p = 1, .min_p = 0.02, .top_k = 40, .seed = 6},
    {.temperature = 3, .top_p = 0.99, .top_k = 7, .seed = 7},
};
enum { WAYS = sizeof how / sizeof how[0] };

static dsf_engine *open_drawing(dsf_prefill prefill, bool sampled)
{
    return open_engine((dsf_options){
        .context = 64, .slots = SEQUENCES, .chunk = 7, .prefill = prefill, .sampled = sampled});
}

static int32_t next_of(const dsf_session *s, const dsf_sampling *p)
{
    static float work[MINI_VOCAB];
    int32_t id = -1;
    const float *row;
    if (s->engine->opt.sampled) {
        GOOD(dsf_session_next(s, &id));
        return id;
    }
    GOOD(dsf_session_logits(s, &row));
    GOOD(dsf_sample(row, MINI_VOCAB, p, dsf_session_position(s), work, &id, NULL));
    return id;
}

/* Sequences of different lengths and ways, in one batch. */
static void generate(dsf_engine *e, int first, int32_t out[SEQUENCES][DRAWN])
{
    dsf_session *s[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        s[i] = open_session(e);
        if (e->opt.sampled) GOOD(dsf_session_sampling(s[i], &how[(first + i) % WAYS]));
        feed_run(s[i], i, 0, 9 + 5 * i);
    }
    for (int t = 0; t < DRAWN; t++) {
        for (int i = 0; i < SEQUENCES; i++) {
            if (t == 0)
                feed(s[i], i + 20, 0, 1);
            else
                GOOD(dsf_session_feed(s[i], &out[i][t - 1], 1));
        }
        GOOD(dsf_engine_step(e, s, SEQUENCES, NULL));
        for (int i = 0; i < SEQUENCES; i++) out[i][t] = next_of(s[i], &how[(first + i) % WAYS]);
    }
    for (int i = 0; i < SEQUENCES; i++) dsf_session_close(s[i]);
}

Test(draw, a_step_draws_what_the_caller_would)
{
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_REPLAY; mode++) {
        dsf_engine *there = open_drawing((dsf_prefill)mode, true),
                   *here = open_drawing((dsf_prefill)mode, false);
        for (int first = 0; first < WAYS; first++) {
            int32_t a[SEQUENCES][DRAWN], b[SEQUENCES][DRAWN];
            generate(there, first, a);
            generate(here, first, b);
            cr_expect_arr_eq(a, b, sizeof a, "mode %d, ways from %d", mode, first);
        }
        dsf_engine_close(there);
        dsf_engine_close(here);
    }
}

Test(draw, a_fork_draws_as_its_origin_and_a_rewind_draws_again)
{
    dsf_engine *e = open_drawing(DSF_PREFILL_CONE, true);
    dsf_session *s = open_session(e), *f;
    GOOD(dsf_session_sampling(s, &how[1]));
    feed_run(s, 3, 0, 20);
    GOOD(dsf_session_fork(&f, s));
    int32_t drawn[4];
    for (int i = 0; i < 4; i++) {
        feed_run(s, 3, 20 + i, 21 + i);
        GOOD(dsf_session_next(s, &drawn[i]));
        feed_run(f, 3, 20 + i, 21 + i);
        cr_expect_eq(next_of(f, NULL), drawn[i], "token %d of the fork", i);
    }
    GOOD(dsf_session_rewind(s, 22));
    int32_t id;
    REFUSED(DSF_EINVAL, dsf_session_next(s, &id));
    feed_run(s, 3, 22, 23);
    cr_expect_eq(next_of(s, NULL), drawn[2]);
    dsf_session_close(f);
    dsf_session_close(s);
    dsf_engine_close(e);
}

Test(draw, allocates_nothing_and_takes_what_was_planned)
{
    dsf_engine *e = open_drawing(DSF_PREFILL_CONE, true);
    dsf_session *s = open_session(e);
    GOOD(dsf_session_sampling(s, &how[2]));
    feed_run(s, 1, 0, 10);
    uint64_t before = dsf_mem_count();
    for (int i = 10; i < 20; i++) {
        feed_run(s, 1, i, i + 1);
        (void)next_of(s, NULL);
    }
    cr_expect_eq(dsf_mem_count() - before, 0);
    dsf_session_close(s);
    dsf_engine_close(e);
}

Test(draw, each_engine_gives_what_it_was_opened_for)
{
    dsf_engine *there = open_drawing(DSF_PREFILL_CONE, true),
               *here = open_drawing(DSF_PREFILL_CONE, false);
    dsf_session *a = open_session(there), *b = open_session(here);
    const float *row;
    int32_t id;
    REFUSED(DSF_EINVAL, dsf_session_next(a, &id));
    feed_run(a, 1, 0, 5);
    feed_run(b, 1, 0, 5);
    REFUSED(DSF_EINVAL, dsf_session_logits(a, &row));
    SAYS("logits");
    REFUSED(DSF_EINVAL, dsf_session_next(b, &id));
    SAYS("next");
    REFUSED(DSF_EINVAL, dsf_session_sampling(b, &how[0]));
    REFUSED(DSF_EINVAL, dsf_session_sampling(a, &(dsf_sampling){.temperature = -1, .top_p = 1}));
    SAYS("temperature -1");
    REFUSED(DSF_EINVAL, dsf_session_sampling(a, &(dsf_sampling){.temperature = 1, .top_p = 0}));
    GOOD(dsf_session_next(a, &id));
    feed(a, 1, 5, 6);
    REFUSED(DSF_EINVAL, dsf_session_next(a, &id));
    dsf_session_close(a);
    dsf_session_close(b);
    dsf_engine_close(there);
    dsf_engine_close(here);
}
