/* Limits of the model and prompts across them: whole = in pieces = one by one on both sides of
 * each, the candidate pool = full scoring while all entries fit it. */
#include <math.h>

#include "engine_fixture.h"
#include "verify/states/states.h"
#include "verify/suite/suite.h"

TestSuite(chunks, .fini = mini_clean);

enum { LONGEST = 300 };

static int mini_limits(dsf_limit *list)
{
    dsf_config c;
    GOOD(dsf_synth_preset(&c, "mini"));
    return dsf_states_limits(&c, 16, list);
}

/* The list is complete: what the config has of limits, by name. */
Test(chunks, every_limit_of_the_mini_model_lies_within_300_tokens)
{
    static const struct {
        const char *name;
        int64_t at;
    } want[] = {{"window", 8},
                {"ring", 24},
                {"ratio 2: an entry", 2},
                {"ratio 2: index top-k", 12},
                {"ratio 1: an entry", 1},
                {"ratio 1: index top-k", 6},
                {"pool block", 4},
                {"candidate pool", 12},
                {"Engram n-gram", 4},
                {"rope's original length", 32}};
    dsf_limit list[DSF_LIMITS_MOST];
    int n = mini_limits(list);
    cr_assert_eq(n, sizeof want / sizeof *want);
    for (int i = 0; i < n; i++) {
        cr_expect_str_eq(list[i].name, want[i].name);
        cr_expect_eq(list[i].at, want[i].at, "%s", want[i].name);
        cr_expect_lt(list[i].at + 1, LONGEST);
    }
}

/* One less, the limit, one more, and the same around its double, in one pass and one by one. [B-66]
 * [B-74] [B-75] */
Test(chunks, whole_is_one_by_one_on_both_sides_of_every_limit)
{
    static float want[LONGEST + 1][MINI_VOCAB];
    float have[MINI_VOCAB];
    static bool wanted[LONGEST + 1];
    dsf_limit list[DSF_LIMITS_MOST];
    int n = mini_limits(list), crossed = 0;
    for (int i = 0; i < n; i++)
        for (int64_t d = -1; d <= 1; d++)
            for (int64_t k = 1; k <= 2; k++)
                if (k * list[i].at + d > 0) wanted[k * list[i].at + d] = true;
    dsf_engine *one =
        open_engine((dsf_options){.context = LONGEST, .chunk = 1, .prefill = DSF_PREFILL_EXACT});
    dsf_session *s = open_session(one);
    for (int64_t t = 0; t < LONGEST; t++) {
        feed_run(s, 1, t, t + 1);
        take_logits(s, want[t + 1]);
    }
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_EXACT; mode++) {
        dsf_engine *whole = open_engine(
            (dsf_options){.context = LONGEST, .chunk = LONGEST, .prefill = (dsf_prefill)mode});
        for (int64_t t = 1; t <= LONGEST; t++) {
            if (!wanted[t]) continue;
            dsf_session *w = open_session(whole);
            feed_run(w, 1, 0, t);
            take_logits(w, have);
            SAME_LOGITS(want[t], have, "%lld tokens, mode %d", (long long)t, mode);
            dsf_session_close(w);
            crossed++;
        }
        dsf_engine_close(whole);
    }
    cr_expect_geq(crossed, 40);
    dsf_session_close(s);
    dsf_engine_close(one);
}

/* [B-70] [B-75] */
Test(chunks, passes_of_three_sizes_leave_equal_hashes)
{
    static dsf_chunks_report r;
    const dsf_chunks_options o = {.model = mini(), .threads = 2};
    GOOD(dsf_chunks_run(&o, &r));
    cr_expect_eq(r.tokens, LONGEST);
    cr_expect_eq(r.rows, 2 * LONGEST);
    cr_expect_eq(r.failed, 0);
    cr_expect_eq(r.first, -1);
    cr_expect_gt(r.cache_bytes, 10000);
    for (int i = 0; i < r.n_limits; i++) cr_expect_lt(r.limit[i].at + 1, r.tokens);
    for (int i = 1; i < DSF_CHUNK_SIZES; i++) {
        cr_expect_neq(r.chunk[i], r.chunk[i - 1]);
        cr_expect_eq(r.logits[i], r.logits[0]);
        cr_expect_eq(r.caches[i], r.caches[0]);
    }
    cr_expect_neq(r.logits[0], r.caches[0]);
}

/* Another model has other hashes; more tokens than positions are refused. */
Test(chunks, hashes_are_of_what_was_computed)
{
    static dsf_chunks_report a, b;
    char other[4096];
    make_temp(other);
    write_model(other, "mini", 9, 0);
    const dsf_chunks_options first = {.model = mini(), .threads = 1, .tokens = 20};
    const dsf_chunks_options second = {.model = other, .threads = 1, .tokens = 20};
    GOOD(dsf_chunks_run(&first, &a));
    GOOD(dsf_chunks_run(&second, &b));
    cr_expect_neq(a.logits[0], b.logits[0]);
    cr_expect_neq(a.caches[0], b.caches[0]);
    const dsf_chunks_options many = {.model = mini(), .tokens = 524289};
    REFUSED(DSF_EINVAL, dsf_chunks_run(&many, &a));
    SAYS("524288 positions");
    remove_temp(other);
}

/* A mini model whose pool has so many blocks of four; 0: none restricts. */
static void pooled_logits(int blocks, float (*out)[MINI_VOCAB])
{
    char folder[4096];
    dsf_config c;
    make_temp(folder);
    GOOD(dsf_synth_preset(&c, "mini"));
    c.candidate_topk_blocks = blocks ? blocks : c.candidate_topk_blocks;
    if (!blocks) c.candidate_source_layer = -1;
    write_config(folder, "mini", &c);
    dsf_engine *e = open_engine(
        (dsf_options){.model = folder, .context = 64, .chunk = 1, .prefill = DSF_PREFILL_EXACT});
    dsf_session *s = open_session(e);
    for (int64_t t = 0; t < 64; t++) {
        feed_run(s, 1, t, t + 1);
        take_logits(s, out[t]);
    }
    dsf_session_close(s);
    dsf_engine_close(e);
    remove_temp(folder);
}

/* While every entry's block is in the pool, restricting to it changes nothing; after that it does.
 */
Test(chunks, a_pool_that_holds_all_entries_is_full_scoring)
{
    static float full[64][MINI_VOCAB], wide[64][MINI_VOCAB], narrow[64][MINI_VOCAB];
    pooled_logits(0, full);
    pooled_logits(16, wide);  /* 64 entries */
    pooled_logits(3, narrow); /* 12 entries, as preset */
    int differ = 0;
    for (int t = 0; t < 64; t++) {
        SAME_LOGITS(full[t], wide[t], "token %d of a pool of 16 blocks", t);
        bool same = memcmp(full[t], narrow[t], sizeof full[t]) == 0;
        if (t < 12) cr_expect(same, "token %d: 12 entries fit three blocks", t);
        differ += !same;
    }
    cr_expect_gt(differ, 10, "the pool restricts beyond");
}

Test(chunks, the_suite_says_pass_with_a_count)
{
    const dsf_verify_options o = {.model = mini(), .suites = "chunks", .threads = 1, .tokens = 40};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_assert_eq(r.n, 1);
    cr_expect_eq(r.check[0].verdict, DSF_PASS, "%s", r.check[0].words);
    cr_expect_eq(r.check[0].compared, 82);
    cr_expect(strstr(r.check[0].detail.data, "rope's original length"));
    dsf_results_free(&r);
}
