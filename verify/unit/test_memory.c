/* Memory is decided before the first token: nothing is allocated between tokens, what is used is
 * what was planned, and looking changes no bit. */
#include "base/proc.h"
#include "engine_fixture.h"
#include "verify/suite/suite.h"

TestSuite(memory, .fini = mini_clean);

static dsf_status count_rows(void *ud, const dsf_tap_value *v)
{
    *(int64_t *)ud += v->n;
    return DSF_OK;
}

/* Prompts, decoding, a batch, a draft, sampling, rewinds: everything that serves tokens. */
static void serve_tokens(dsf_engine *e, dsf_session *const *s, const dsf_tap_sink *sink, float *out)
{
    static const dsf_sampling sampling = {.temperature = 1, .top_p = 0.9, .top_k = 50, .seed = 3};
    static float work[MINI_VOCAB];
    int32_t ids[64], id, draft[8];
    float confidence[8];
    int n;
    for (int i = 0; i < 64; i++) ids[i] = token(i, 1);
    GOOD(dsf_session_feed(s[0], ids, 30));
    while (dsf_session_queued(s[0]) > 0) GOOD(dsf_engine_step(e, s, 1, sink));
    GOOD(dsf_session_feed(s[1], ids, 11));
    for (int t = 30; t < 40; t++) {
        GOOD(dsf_session_feed(s[0], ids + t, 1));
        GOOD(dsf_engine_step(e, s, 2, sink));
        const float *row;
        GOOD(dsf_session_logits(s[0], &row));
        GOOD(dsf_sample(row, MINI_VOCAB, &sampling, t, work, &id, NULL));
        GOOD(dsf_session_draft(s[0], id, draft, confidence, &n, sink));
    }
    GOOD(dsf_session_rewind(s[0], 35));
    GOOD(dsf_session_rewind(s[0], 3)); /* beyond the ring: computed again */
    while (dsf_session_queued(s[0]) > 0) GOOD(dsf_engine_step(e, s, 1, sink));
    GOOD(dsf_session_feed(s[0], ids + 3, 5));
    while (dsf_session_queued(s[0]) > 0) GOOD(dsf_engine_step(e, s, 1, sink));
    take_logits(s[0], out);
}

static void serve(dsf_options o, bool look, float *out, uint64_t *allocations, int64_t *seen)
{
    const dsf_tap_sink sink = {.on_value = count_rows, .ud = seen};
    o.context = 64;
    o.slots = 2;
    o.chunk = 12;
    if (look) o.sink = &sink;
    dsf_engine *e = open_engine(o);
    dsf_session *const s[2] = {open_session(e), open_session(e)};
    uint64_t before = dsf_mem_count();
    serve_tokens(e, s, look ? &sink : NULL, out);
    *allocations = dsf_mem_count() - before;
    dsf_session_close(s[0]);
    dsf_session_close(s[1]);
    dsf_engine_close(e);
}

/* [B-73] */
Test(memory, nothing_is_allocated_between_tokens)
{
    float out[MINI_VOCAB];
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_REPLAY; mode++)
        for (int threads = 1; threads <= 3; threads += 2) {
            uint64_t n;
            int64_t seen = 0;
            serve((dsf_options){.prefill = (dsf_prefill)mode, .threads = threads}, false, out, &n,
                  &seen);
            cr_expect_eq(n, 0, "mode %d, %d threads: %llu allocations", mode, threads,
                         (unsigned long long)n);
        }
}

Test(memory, looking_changes_no_bit_and_allocates_nothing)
{
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_REPLAY; mode++) {
        float blind[MINI_VOCAB], looked[MINI_VOCAB];
        uint64_t n;
        int64_t seen = 0;
        dsf_options o = {.prefill = (dsf_prefill)mode};
        serve(o, false, blind, &n, &seen);
        cr_expect_eq(seen, 0);
        serve(o, true, looked, &n, &seen);
        SAME_LOGITS(blind, looked, "mode %d, all taps on", mode);
        cr_expect_eq(n, 0);
        cr_expect_gt(seen, 10000);
        o.unfused = true; /* index scores as values, as a dump wants them */
        serve(o, true, looked, &n, &seen);
        SAME_LOGITS(blind, looked, "mode %d, unfused", mode);
        cr_expect_eq(n, 0);
    }
}

/* An allocation in the token path would be seen: one is planted in the sink. */
static dsf_status allocate(void *ud, const dsf_tap_value *v)
{
    void *p;
    (void)ud;
    if (v->tap.id != DSF_TAP_LOGITS) return DSF_OK;
    DSF_TRY(dsf_mem_new(&p, 1, 1));
    dsf_mem_free(p);
    return DSF_OK;
}

Test(memory, a_planted_allocation_is_counted)
{
    const dsf_tap_sink sink = {.on_value = allocate};
    dsf_engine *e = open_engine((dsf_options){.context = 8, .sink = &sink});
    dsf_session *s = open_session(e);
    uint64_t before = dsf_mem_count();
    for (int t = 0; t < 5; t++) {
        feed(s, 1, t, t + 1);
        GOOD(dsf_engine_step(e, &s, 1, &sink));
    }
    cr_expect_eq(dsf_mem_count() - before, 5);
    dsf_session_close(s);
    dsf_engine_close(e);
}

static int64_t anonymous(void) { return dsf_proc_own().anon; }

/* [B-43] [B-58] */
Test(memory, what_is_used_is_what_was_planned)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the address sanitizer's own memory is counted too");
#endif
    const char *model = mini();
    int64_t idle = anonymous();
    if (idle < 0) cr_skip_test("no RssAnon in /proc/self/status");
    dsf_engine *e = open_engine((dsf_options){.model = model, .context = 8192, .chunk = 4096});
    dsf_session *s = open_session(e);
    int64_t planned = dsf_budget_total(&e->budget, 0);
    for (int64_t t = 0; t < 4096; t += 1024) feed(s, 1, t, t + 1024);
    run_all(s);
    int64_t used = anonymous() - idle;
    cr_expect_leq(used, planned + planned / 20 + (16 << 20), "%lld used, %lld planned",
                  (long long)used, (long long)planned);
    cr_expect_geq(used, (int64_t)e->plan->scratch_bytes / 2,
                  "%lld used: the measure sees the arena", (long long)used);
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* The arenas are mapped with exactly the planned bytes, and all of scratch is written to. [B-54] */
Test(memory, the_budget_holds_the_plan)
{
    dsf_engine *e =
        open_engine((dsf_options){.context = 64, .slots = 3, .chunk = 16, .threads = 2});
    int64_t caches = 0, values = 0, inputs = 0, worker = 0;
    for (int i = 0; i < e->budget.n; i++) {
        const dsf_budget_line *l = &e->budget.line[i];
        if (strncmp(l->name, "cache:", 6) == 0) caches += l->bytes;
        if (strstr(l->name, ": values")) values += l->bytes;
        if (strstr(l->name, ": inputs")) inputs += l->bytes;
        if (strstr(l->name, ": kernel scratch")) worker += l->bytes;
    }
    cr_expect_eq(caches, (int64_t)e->plan->cache_bytes);
    cr_expect_eq(values, (int64_t)(e->plan->scratch_bytes + e->draft_plan->scratch_bytes));
    cr_expect_eq(inputs, (int64_t)(e->plan->input_bytes + e->draft_plan->input_bytes));
    cr_expect_eq(worker, (int64_t)(e->exec.worker_bytes + e->draft.worker_bytes));
    cr_expect_eq(e->draft.cache, e->exec.cache);
    dsf_engine_close(e);
}

Test(memory, the_suite_says_pass_with_a_count)
{
    const dsf_verify_options o = {.model = mini(), .only = "memory/tokens", .threads = 1};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_assert_eq(r.n, 1);
    cr_expect_eq(r.check[0].verdict, DSF_PASS, "%s", r.check[0].words);
    cr_expect_eq(r.check[0].compared, MINI_VOCAB);
    dsf_results_free(&r);
}
