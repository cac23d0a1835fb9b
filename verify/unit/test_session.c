#include "engine_fixture.h"

TestSuite(session, .fini = mini_clean);

/* ---- what is refused, and that nothing is lost by it ---- */

/* [B-66] */
Test(session, more_than_the_context_holds_is_refused_and_nothing_is_queued)
{
    dsf_engine *e = open_engine((dsf_options){.context = 10});
    dsf_session *s = open_session(e);
    int32_t ids[12] = {0};
    REFUSED(DSF_EINVAL, dsf_session_feed(s, ids, 11));
    SAYS("the context holds 10");
    cr_expect_eq(dsf_session_queued(s), 0);
    GOOD(dsf_session_feed(s, ids, 10));
    run_all(s);
    REFUSED(DSF_EINVAL, dsf_session_feed(s, ids, 1));
    SAYS("1 tokens after 10");
    REFUSED(DSF_EINVAL, dsf_session_feed(s, ids, SIZE_MAX));
    cr_expect_eq(dsf_session_position(s), 10);
    const float *row;
    GOOD(dsf_session_logits(s, &row)); /* the refusals did not touch the last step */
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* [B-41] */
Test(session, an_id_outside_the_vocabulary_is_refused_and_nothing_is_queued)
{
    dsf_engine *e = open_engine((dsf_options){.context = 10});
    dsf_session *s = open_session(e);
    const int32_t bad[] = {-1, MINI_VOCAB, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t ids[3] = {1, 2, bad[i]};
        REFUSED(DSF_EINVAL, dsf_session_feed(s, ids, 3));
        SAYS("vocabulary of 512");
        cr_expect_eq(dsf_session_queued(s), 0);
    }
    int32_t last = MINI_VOCAB - 1;
    GOOD(dsf_session_feed(s, &last, 1));
    run_all(s);
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* [B-63] */
Test(session, feeding_nothing_changes_nothing)
{
    dsf_engine *e = open_engine((dsf_options){.context = 16});
    dsf_session *s = open_session(e);
    const float *row;
    float before[MINI_VOCAB], after[MINI_VOCAB];
    GOOD(dsf_session_feed(s, NULL, 0));
    REFUSED(DSF_EINVAL, dsf_engine_step(e, &s, 1, NULL));
    SAYS("queued");
    REFUSED(DSF_EINVAL, dsf_session_logits(s, &row));
    feed_run(s, 1, 0, 5);
    take_logits(s, before);
    GOOD(dsf_session_feed(s, NULL, 0));
    take_logits(s, after);
    SAME_LOGITS(before, after, "an empty feed");
    feed_run(s, 1, 5, 9);
    take_logits(s, after);
    want_logits(1, 9, before);
    SAME_LOGITS(before, after, "tokens after an empty feed");
    dsf_session_close(s);
    dsf_engine_close(e);
}

Test(session, logits_wait_for_the_queue_and_end_with_the_next_step)
{
    dsf_engine *e = open_engine((dsf_options){.context = 32, .slots = 2, .chunk = 4});
    dsf_session *a = open_session(e), *b = open_session(e);
    const float *row;
    feed(a, 1, 0, 6);
    REFUSED(DSF_EINVAL, dsf_session_logits(a, &row));
    GOOD(dsf_engine_step(e, &a, 1, NULL));
    REFUSED(DSF_EINVAL, dsf_session_logits(a, &row)); /* 4 of 6 */
    SAYS("4 computed, 6 fed");
    run_all(a);
    GOOD(dsf_session_logits(a, &row));
    feed(a, 1, 6, 7);
    REFUSED(DSF_EINVAL, dsf_session_logits(a, &row));
    run_all(a);
    GOOD(dsf_session_logits(a, &row));
    feed_run(b, 2, 0, 1); /* another step: a's row is gone, b's is there */
    REFUSED(DSF_EINVAL, dsf_session_logits(a, &row));
    GOOD(dsf_session_logits(b, &row));
    GOOD(dsf_session_rewind(b, 0));
    REFUSED(DSF_EINVAL, dsf_session_logits(b, &row));
    dsf_session_close(a);
    dsf_session_close(b);
    dsf_engine_close(e);
}

Test(session, slots_run_out_by_number_and_come_back)
{
    dsf_engine *e = open_engine((dsf_options){.context = 8, .slots = 2});
    dsf_session *a = open_session(e), *b = open_session(e), *c = NULL;
    REFUSED(DSF_ENOMEM, dsf_session_open(&c, e));
    SAYS("all 2 slots");
    cr_expect_null(c);
    REFUSED(DSF_ENOMEM, dsf_session_fork(&c, a));
    cr_expect_null(c);
    dsf_session_close(a);
    c = open_session(e);
    dsf_session_close(b);
    dsf_session_close(c);
    dsf_session_close(NULL);
    dsf_engine_close(e);
    dsf_engine_close(NULL);
}

Test(session, options_outside_their_range_are_refused_with_the_range)
{
    static const struct {
        dsf_options o;
        const char *says;
    } bad[] = {
        {{.context = -1}, "context -1"},
        {{.context = 524289}, "1 to 524288"},
        {{.slots = -1}, "slots -1"},
        {{.slots = 65537}, "1..65536"},
        {{.chunk = -5}, "chunk -5"},
        {{.chunk = (1 << 20) + 1, .slots = 2}, "1..1048576"},
        {{.rewind = -1}, "rewind -1"},
        {{.rewind = 65537}, "0..65536"},
        {{.threads = -2}, "threads"},
        {{.threads = 100000}, "threads"},
        {{.all_logits = true}, "exact"},
        {{.prefill = DSF_PREFILL_REPLAY, .all_logits = true}, "exact"},
        {{.variants = "-avx512:none"}, "none"},
        {{.variants = "fast"}, "fast"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dsf_options o = bad[i].o;
        dsf_engine *e = NULL;
        o.model = mini();
        if (o.threads == 0) o.threads = 1;
        REFUSED(DSF_EINVAL, dsf_engine_open(&e, &o));
        SAYS(bad[i].says);
        cr_expect_null(e);
    }
    dsf_engine *e = NULL;
    const dsf_options none = {.model = NULL};
    REFUSED(DSF_EINVAL, dsf_engine_open(&e, &none));
}

/* [B-54] [B-67] */
Test(session, a_plan_that_the_machine_cannot_hold_is_refused_with_the_table)
{
    dsf_engine *e = NULL;
    const dsf_options o = {.model = mini(), .threads = 1, .context = 524288, .slots = 65536};
    REFUSED(DSF_ENOMEM, dsf_engine_open(&e, &o));
    SAYS("the machine has");
    SAYS("cache: main KV");
}

/* ---- batches ---- */

/* [B-47] [B-62] */
Test(session, a_batch_takes_none_one_or_many)
{
    dsf_engine *e = open_engine((dsf_options){.context = 40, .slots = 4, .chunk = 6});
    dsf_session *s[4];
    float want[MINI_VOCAB], have[MINI_VOCAB];
    for (int i = 0; i < 4; i++) s[i] = open_session(e);
    REFUSED(DSF_EINVAL, dsf_engine_step(e, s, 0, NULL));
    REFUSED(DSF_EINVAL, dsf_engine_step(e, s, 4, NULL)); /* nothing queued anywhere */
    for (int i = 0; i < 4; i++) feed(s[i], i, 0, 5 * i); /* 0, 5, 10, 15 */
    int passes = 0;
    for (; dsf_session_queued(s[1]) + dsf_session_queued(s[2]) + dsf_session_queued(s[3]) > 0;
         passes++)
        GOOD(dsf_engine_step(e, s, 4, NULL));
    cr_expect_eq(passes, 5); /* 30 rows in passes of 6 */
    cr_expect_eq(dsf_session_position(s[0]), 0);
    take_logits(s[3], have);
    want_logits(3, 15, want);
    SAME_LOGITS(want, have, "the last of a batch");
    for (int i = 0; i < 4; i++) dsf_session_close(s[i]);
    dsf_engine_close(e);
}

Test(session, a_session_counts_once_in_a_batch_and_only_in_its_own_engine)
{
    dsf_engine *e = open_engine((dsf_options){.context = 16, .chunk = 8});
    dsf_engine *other = open_engine((dsf_options){.context = 16, .chunk = 8});
    dsf_session *s = open_session(e), *t = open_session(other);
    dsf_session *twice[2] = {s, s}, *mixed[2] = {s, t};
    feed(s, 1, 0, 3);
    feed(t, 1, 0, 3);
    REFUSED(DSF_EINVAL, dsf_engine_step(e, twice, 2, NULL));
    SAYS("twice");
    REFUSED(DSF_EINVAL, dsf_engine_step(e, mixed, 2, NULL));
    SAYS("another engine");
    cr_expect_eq(dsf_session_queued(s), 3);
    run_all(s);
    dsf_session_close(s);
    dsf_session_close(t);
    dsf_engine_close(e);
    dsf_engine_close(other);
}

/* [B-32] [B-81] */
Test(session, interleaved_sessions_are_equal_to_sessions_alone)
{
    enum { N = 30, K = 3 };
    dsf_engine *e = open_engine((dsf_options){.context = N, .slots = K, .chunk = 4});
    dsf_session *s[K];
    float want[MINI_VOCAB], have[MINI_VOCAB];
    for (int i = 0; i < K; i++) s[i] = open_session(e);
    for (int64_t t = 0; t < N; t += 2)
        for (int i = 0; i < K; i++) feed_run(s[i], i + 1, t, t + 2);
    for (int i = K - 1; i >= 0; i--) {
        GOOD(dsf_session_rewind(s[i], N - 1));
        feed_run(s[i], i + 1, N - 1, N);
        take_logits(s[i], have);
        want_logits(i + 1, N, want);
        SAME_LOGITS(want, have, "session %d", i);
    }
    for (int i = 0; i < K; i++) dsf_session_close(s[i]);
    dsf_engine_close(e);
}

/* [B-32] */
Test(session, decoding_together_is_equal_to_decoding_alone)
{
    enum { N = 21, K = 3 };
    dsf_engine *e = open_engine((dsf_options){.context = N, .slots = K, .chunk = 16});
    dsf_session *s[K];
    float want[K][MINI_VOCAB], have[MINI_VOCAB];
    for (int i = 0; i < K; i++) {
        s[i] = open_session(e);
        feed_run(s[i], i + 1, 0, 10 + i); /* cone prompts of different lengths */
        want_logits(i + 1, 16 + i, want[i]);
    }
    for (int t = 0; t < 6; t++) {
        for (int i = 0; i < K; i++) feed(s[i], i + 1, 10 + i + t, 11 + i + t);
        GOOD(dsf_engine_step(e, s, K, NULL));
    }
    for (int i = 0; i < K; i++) {
        take_logits(s[i], have);
        SAME_LOGITS(want[i], have, "session %d", i);
    }
    for (int i = 0; i < K; i++) dsf_session_close(s[i]);
    dsf_engine_close(e);
}

/* [B-70] [B-75] [B-76] */
Test(session, every_chunk_gives_the_same_bits)
{
    enum { N = 27 };
    float want[MINI_VOCAB], have[MINI_VOCAB];
    want_logits(1, N, want);
    for (int64_t chunk = 1; chunk <= N; chunk++)
        for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_EXACT; mode++) {
            dsf_engine *e = open_engine(
                (dsf_options){.context = N, .chunk = chunk, .prefill = (dsf_prefill)mode});
            dsf_session *s = open_session(e);
            feed_run(s, 1, 0, N);
            take_logits(s, have);
            SAME_LOGITS(want, have, "chunk %lld, mode %d", (long long)chunk, mode);
            dsf_session_close(s);
            dsf_engine_close(e);
        }
}

/* [B-36] */
Test(session, the_smallest_contexts_work)
{
    float want[MINI_VOCAB], have[MINI_VOCAB];
    for (int64_t n = 1; n <= 3; n++) {
        dsf_engine *e = open_engine((dsf_options){.context = n, .slots = 2});
        dsf_session *s = open_session(e), *f;
        feed_run(s, 1, 0, n);
        take_logits(s, have);
        want_logits(1, n, want);
        SAME_LOGITS(want, have, "context %lld", (long long)n);
        GOOD(dsf_session_fork(&f, s));
        cr_expect_eq(dsf_session_position(f), n);
        dsf_session_close(f);
        dsf_session_close(s);
        dsf_engine_close(e);
    }
}

/* ---- replay ---- */

static void by_mode(dsf_prefill mode, int64_t chunk, int64_t prompt, int64_t n, float *out)
{
    dsf_engine *e = open_engine((dsf_options){.context = n, .chunk = chunk, .prefill = mode});
    dsf_session *s = open_session(e);
    feed_run(s, 1, 0, prompt);
    for (int64_t t = prompt; t < n; t++) feed_run(s, 1, t, t + 1);
    take_logits(s, out);
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* [B-34] */
Test(session, replay_is_exact_up_to_a_window_and_an_approximation_beyond)
{
    float want[MINI_VOCAB], have[MINI_VOCAB], cut[MINI_VOCAB];
    int differ = 0;
    for (int64_t n = 1; n <= 3 * MINI_WINDOW; n++) {
        want_logits(1, n, want);
        by_mode(DSF_PREFILL_REPLAY, n, n, n, have);
        if (n <= MINI_WINDOW)
            SAME_LOGITS(want, have, "replay of %lld tokens", (long long)n);
        else
            differ += memcmp(want, have, sizeof want) != 0;
        by_mode(DSF_PREFILL_REPLAY, 3, n, n, cut);
        SAME_LOGITS(have, cut, "replay of %lld tokens in chunks of 3", (long long)n);
        for (int i = 0; i < MINI_VOCAB; i++) cr_assert(have[i] == have[i]);
    }
    cr_expect_gt(differ, 0, "replay cuts windows: beyond one window it is not exact");
}

/* Tokens that come one by one see their whole window whatever the mode. */
Test(session, decode_is_never_truncated)
{
    float want[MINI_VOCAB], have[MINI_VOCAB];
    want_logits(1, 30, want);
    by_mode(DSF_PREFILL_REPLAY, 5, 1, 30, have);
    SAME_LOGITS(want, have, "29 tokens decoded");
    by_mode(DSF_PREFILL_REPLAY, 16, MINI_WINDOW, 30, have);
    SAME_LOGITS(want, have, "one window replayed, the rest decoded");
}

/* A prompt that began alone and goes on beside a neighbour: the same bits as if it had stayed
 * alone. */
Test(session, replay_does_not_depend_on_neighbours)
{
    enum { N = 14 };
    float want[MINI_VOCAB], have[MINI_VOCAB];
    by_mode(DSF_PREFILL_REPLAY, 4, N, N, want);
    for (int salt = 7; salt < 9; salt++) { /* what was in the slot before must not matter either */
        dsf_engine *e = open_engine(
            (dsf_options){.context = 40, .slots = 2, .chunk = 4, .prefill = DSF_PREFILL_REPLAY});
        dsf_session *old = open_session(e);
        feed_run(old, salt, 0, 30);
        dsf_session_close(old);
        dsf_session *s = open_session(e), *t = open_session(e);
        feed(s, 1, 0, N);
        GOOD(dsf_engine_step(e, &s, 1, NULL));
        feed(t, 2, 0, 12);
        dsf_session *both[2] = {s, t};
        while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(e, both, 2, NULL));
        take_logits(s, have);
        SAME_LOGITS(want, have, "replay that goes on beside a neighbour, slot used by %d", salt);
        dsf_session_close(s);
        dsf_session_close(t);
        dsf_engine_close(e);
    }
}
