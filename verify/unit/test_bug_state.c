/* Faults that other engines had with state: what a sequence keeps between passes, slots used again,
 * limits met exactly, memory that grows. The rows of groups A to D of verify/BUGLOG.md that want a
 * whole model and that no other test shows; window 8, so "long" is a few dozen tokens. */
#include <limits.h>
#include <malloc.h>

#include "engine_fixture.h"
#include "model/contract.h"
#include "ops/fill.h"
#include "plan_fixture.h"

TestSuite(bug, .fini = mini_clean);

/* One by one under `exact` to n tokens of sequence 1, or the same by another road. */
#define SAME_AS_DEFINED(session, n, ...)                                                           \
    do {                                                                                           \
        float have_[MINI_VOCAB], want_[MINI_VOCAB];                                                \
        take_logits(session, have_);                                                               \
        want_logits(1, n, want_);                                                                  \
        SAME_LOGITS(want_, have_, __VA_ARGS__);                                                    \
    } while (0)

static dsf_engine *engine_of(int64_t context, int64_t chunk, int64_t slots)
{
    return open_engine((dsf_options){.context = context, .chunk = chunk, .slots = slots});
}

/* ---- what the checkpoint says ---- */

/* Every `find` of a file becomes `put`, of the same length. */
static void rename_in(const char *path, const char *find, const char *put)
{
    dsf_file f;
    dsf_buf b = {.max = 1 << 26};
    size_t n = strlen(find);
    int found = 0;
    GOOD(dsf_file_open(&f, path));
    dsf_buf_add(&b, f.data, f.size);
    dsf_file_close(&f);
    GOOD(dsf_buf_status(&b));
    for (char *at = b.data; (at = memmem(at, b.len - (size_t)(at - b.data), find, n)); at += n) {
        memcpy(at, put, n);
        found++;
    }
    cr_assert_gt(found, 0, "%s is not in %s", find, path);
    FILE *out = fopen(path, "wb");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(b.data, 1, b.len, out), b.len);
    cr_assert_eq(fclose(out), 0);
    dsf_buf_free(&b);
}

/* [B-06] Weights whose scale has another suffix are not cast as they are: both the scale that is
 * missing and the tensor that pairs with nothing are named. */
Test(bug, b06_a_scale_under_another_name_is_refused)
{
    static const char *const find = "layers.3.attn.wq_a.scale", *const put =
                                                                    "layers.3.attn.wq_a.skale";
    char folder[4096], path[8192];
    make_temp(folder);
    write_model(folder, "mini", -1, -1);
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    rename_in(path, find, put);
    dsf_ckpt *k;
    REFUSED(DSF_ECORRUPT, dsf_ckpt_open(&k, folder)); /* the index names what no shard has */
    SAYS("layers.3.attn.wq_a.s");
    for (int i = 1; i <= 5; i++) {
        (void)snprintf(path, sizeof path, "%s/model-%05d-of-00005.safetensors", folder, i);
        dsf_file f;
        GOOD(dsf_file_open(&f, path));
        bool here = memmem(f.data, f.size, find, strlen(find)) != NULL;
        dsf_file_close(&f);
        if (here) rename_in(path, find, put);
    }
    dsf_engine *e = NULL;
    REFUSED(DSF_ECORRUPT, dsf_engine_open(&e, &(dsf_options){.model = folder, .threads = 1}));
    SAYS("no tensor layers.3.attn.wq_a.scale");
    dsf_config c;
    dsf_contract r;
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    GOOD(dsf_config_load(&c, path, NULL));
    GOOD(dsf_ckpt_open(&k, folder));
    GOOD(dsf_contract_check(&c, k, DSF_SCAN_NONE, &r));
    cr_expect_eq(r.faults.n, 2, "%s", r.faults.text.data);
    cr_expect_not_null(strstr(r.faults.text.data, "missing layers.3.attn.wq_a.scale"));
    cr_expect_not_null(strstr(r.faults.text.data, "extra layers.3.attn.wq_a.skale"));
    dsf_contract_free(&r);
    dsf_ckpt_close(k);
    remove_temp(folder);
}

/* ---- what runs ---- */

enum { PROMPT = 17 };

typedef struct {
    int64_t rows[DSF_N_TAPS][DSF_MAX_LAYERS + 1]; /* layer -1 last */
} tally;

static dsf_status count_tap(void *ud, const dsf_tap_value *v)
{
    tally *t = ud;
    t->rows[v->tap.id][v->tap.layer < 0 ? DSF_MAX_LAYERS : v->tap.layer] += v->n;
    return DSF_OK;
}

static void run_counted(tally *t, dsf_prefill mode, int64_t chunk, int64_t n, dsf_config *config)
{
    memset(t, 0, sizeof *t);
    const dsf_tap_sink sink = {.on_value = count_tap, .ud = t};
    dsf_engine *e = open_engine((dsf_options){
        .context = n, .chunk = chunk, .prefill = mode, .sink = &sink, .unfused = true});
    dsf_session *s = open_session(e);
    feed(s, 1, 0, n);
    while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(e, &s, 1, &sink));
    *config = e->load.config;
    dsf_session_close(s);
    dsf_engine_close(e);
}

static bool is_one_of(int layer, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == layer) return true;
    return false;
}

/* [B-42] A module that the config declares runs in every layer that declares it, once a token, and
 * nowhere else. */
Test(bug, b42_every_declared_module_runs_once_a_token)
{
    static tally t;
    dsf_config c;
    run_counted(&t, DSF_PREFILL_EXACT, 5, PROMPT, &c);
    cr_assert_eq(c.n_engram, 2);
    for (int l = 0; l < c.n_layers; l++) {
        bool engram = dsf_config_engram_at(&c, l) >= 0;
        bool kv = is_one_of(l, c.kv_source, c.n_kv_source);
        bool index = is_one_of(l, c.index_source, c.n_index_source);
        cr_expect_eq(t.rows[DSF_TAP_ENGRAM_ROWS][l], engram ? PROMPT : 0, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_ENGRAM_OUT][l], engram ? PROMPT : 0, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_ATTN_KV_MAIN][l], kv ? PROMPT / c.ratio[l] : 0, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_ATTN_INDEX_Q][l], index ? PROMPT : 0, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_ATTN_TOPK][l], index ? PROMPT : 0, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_ATTN_Y][l], PROMPT, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_FFN_Y][l], PROMPT, "layer %d", l);
        cr_expect_eq(t.rows[DSF_TAP_OUT][l], PROMPT, "layer %d", l);
    }
}

/* [B-33] floor(length / ratio) compressed rows are written whatever the mode and the chunk. */
Test(bug, b33_as_many_compressed_rows_are_written_as_groups_are_whole)
{
    static tally t;
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_REPLAY; mode++)
        for (int64_t chunk = 1; chunk <= 8; chunk += 3)
            for (int64_t n = 1; n <= 9; n++) {
                dsf_config c;
                run_counted(&t, (dsf_prefill)mode, chunk, n, &c);
                for (int i = 0; i < c.n_kv_source; i++) {
                    int l = c.kv_source[i];
                    cr_expect_eq(t.rows[DSF_TAP_ATTN_KV_MAIN][l], n / c.ratio[l],
                                 "mode %d, chunk %lld, %lld tokens, layer %d", mode,
                                 (long long)chunk, (long long)n, l);
                }
            }
}

/* [B-36] Three tokens in a room for 128: lengths are the sequence's, not the room's. */
Test(bug, b36_a_short_prompt_does_not_depend_on_the_room_it_is_in)
{
    for (int64_t n = 1; n <= 3; n++) {
        dsf_engine *e = engine_of(128, 128, 1);
        dsf_session *s = open_session(e);
        feed_run(s, 1, 0, n);
        SAME_AS_DEFINED(s, n, "%lld tokens of 128", (long long)n);
        dsf_session_close(s);
        dsf_engine_close(e);
    }
}

/* ---- memory by plan ---- */

/* [B-58] [B-59] Index scores of a chunk over a whole context are not held: what a pass needs does
 * not grow with chunk x context. Held for a dump, they are a value of the plan, so counted. */
Test(bug, b58_no_temporary_grows_with_chunk_times_context)
{
    shapes s;
    open_preset(&s, "full");
    dsf_plan_size near = {.rows = 4096, .heads = 1, .slots = 1, .context = 1 << 13, .rewind = 16};
    dsf_plan_size far = near;
    far.context = 1 << 20;
    dsf_plan *p = placed(&s, near, false, NULL), *q = placed(&s, far, false, NULL);
    cr_expect_eq(p->scratch_bytes, q->scratch_bytes);
    cr_expect_eq(p->input_bytes, q->input_bytes);
    /* one row of scores for each worker, not one for each row of the chunk */
    cr_expect_leq(q->worker_bytes, p->worker_bytes + (size_t)16 * (1 << 20));
    dsf_plan_close(p);
    dsf_plan_close(q);
    close_shapes(&s);
}

/* [B-43] Tables of the released size stay as stored: the plan has no byte of its own for them, and
 * a pass holds the gathered rows only. */
Test(bug, b43_engram_tables_are_never_expanded)
{
    shapes s;
    open_preset(&s, "full");
    const dsf_plan_size size = {.rows = 256, .heads = 1, .slots = 1, .context = 4096, .rewind = 16};
    dsf_plan *p = placed(&s, size, false, NULL);
    int tables = 0;
    for (int i = 0; i < p->n_values; i++) {
        const dsf_value *v = &p->value[i];
        int64_t rows = s.config.engram[0].rows;
        if (v->kind == DSF_VALUE_CONST && v->rank == 2 && v->dim[0] >= rows) {
            cr_expect(v->dtype == DSF_E4M3 || v->dtype == DSF_E8M0, "%s", v->name);
            tables += v->dtype == DSF_E4M3;
        } else if (v->kind != DSF_VALUE_CONST) {
            cr_expect_lt(v->bytes, (size_t)1 << 30, "%s", v->name);
        }
    }
    cr_expect_eq(tables, s.config.n_engram);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- limits met exactly ---- */

/* [B-66] One less than the context, the context, one more; also where the last tokens are computed
 * again. */
Test(bug, b66_a_sequence_may_end_exactly_at_the_limit)
{
    enum { LIMIT = 64 };
    dsf_engine *e = engine_of(LIMIT, 16, 1);
    dsf_session *s = open_session(e);
    feed_run(s, 1, 0, LIMIT - 1);
    SAME_AS_DEFINED(s, LIMIT - 1, "one less");
    feed_run(s, 1, LIMIT - 1, LIMIT);
    SAME_AS_DEFINED(s, LIMIT, "the limit");
    int32_t id = 1;
    REFUSED(DSF_EINVAL, dsf_session_feed(s, &id, 1));
    SAYS("the context holds 64");
    GOOD(dsf_session_rewind(s, 20)); /* beyond the ring: 20 tokens wait again */
    feed_run(s, 1, 20, LIMIT);
    SAME_AS_DEFINED(s, LIMIT, "computed again up to the limit");
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* [B-70] Lengths of prompt and answer around window and chunk. */
Test(bug, b70_every_prompt_length_goes_with_every_answer_length)
{
    static const int64_t prompt[] = {1, 7, 8, 9, 15, 16, 17, 33}, answer[] = {1, 8, 9};
    for (size_t p = 0; p < sizeof prompt / sizeof *prompt; p++)
        for (size_t a = 0; a < sizeof answer / sizeof *answer; a++) {
            int64_t n = prompt[p] + answer[a];
            dsf_engine *e = engine_of(n, 16, 1);
            dsf_session *s = open_session(e);
            feed_run(s, 1, 0, prompt[p]);
            for (int64_t t = prompt[p]; t < n; t++) feed_run(s, 1, t, t + 1);
            SAME_AS_DEFINED(s, n, "%lld in, %lld out", (long long)prompt[p], (long long)answer[a]);
            dsf_session_close(s);
            dsf_engine_close(e);
        }
}

/* [B-74] Fine when short and wrong when long: the same bits at every depth, to twenty windows. */
Test(bug, b74_depth_does_not_matter)
{
    static const int64_t depth[] = {16, 40, 80, 121, 160};
    for (size_t i = 0; i < sizeof depth / sizeof *depth; i++) {
        dsf_engine *e = engine_of(160, 160, 1);
        dsf_session *s = open_session(e);
        feed_run(s, 1, 0, depth[i]);
        SAME_AS_DEFINED(s, depth[i], "%lld tokens at once", (long long)depth[i]);
        dsf_session_close(s);
        dsf_engine_close(e);
    }
}

/* [B-86] A window of 8 is enough for 1,000 tokens: places are free again by position. */
Test(bug, b86_the_window_never_runs_out_of_places)
{
    enum { N = 1000 };
    float by_7[MINI_VOCAB], by_256[MINI_VOCAB];
    for (int64_t chunk = 7; chunk <= 256; chunk += 249) {
        dsf_engine *e = engine_of(N, chunk, 1);
        dsf_session *s = open_session(e);
        feed_run(s, 1, 0, N - 5);
        for (int64_t t = N - 5; t < N; t++) feed_run(s, 1, t, t + 1);
        take_logits(s, chunk == 7 ? by_7 : by_256);
        dsf_session_close(s);
        dsf_engine_close(e);
    }
    SAME_LOGITS(by_7, by_256, "1,000 tokens");
}

/* ---- state that is taken along ---- */

/* [B-65] [B-91] A copy of the state taken at any token of a prompt, in the middle of a chunk of the
 * original or on a wrap of the ring (8, 16, 17), goes on as a fresh run does. [B-82] */
Test(bug, b65_a_copy_taken_at_any_token_goes_on_unchanged)
{
    enum { N = 36 };
    float want[MINI_VOCAB], have[MINI_VOCAB];
    want_logits(1, N, want);
    for (int64_t at = 1; at < N; at++) {
        dsf_engine *e = engine_of(N, 5, 2);
        dsf_session *s = open_session(e), *f;
        feed_run(s, 1, 0, at);
        GOOD(dsf_session_fork(&f, s));
        feed_run(s, 2, at, N); /* the original goes elsewhere */
        feed_run(f, 1, at, N);
        take_logits(f, have);
        SAME_LOGITS(want, have, "copied at %lld", (long long)at);
        dsf_session_close(s);
        dsf_session_close(f);
        dsf_engine_close(e);
    }
}

/* [B-78] [B-81] The same prompt again, in a slot that it and another one have used. */
Test(bug, b78_a_prompt_asked_again_is_answered_the_same)
{
    enum { N = 30 };
    float first[MINI_VOCAB], again[MINI_VOCAB];
    dsf_engine *e = engine_of(2 * N, 8, 1);
    for (int i = 0; i < 3; i++) { /* A, B, A */
        dsf_session *s = open_session(e);
        feed_run(s, i == 1 ? 2 : 1, 0, i == 1 ? 2 * N : N);
        if (i != 1) take_logits(s, i ? again : first);
        dsf_session_close(s);
    }
    SAME_LOGITS(first, again, "asked again");
    dsf_engine_close(e);
}

/* [B-84] A hundred copies of copies are the original. */
Test(bug, b84_a_hundred_copies_lose_nothing)
{
    dsf_engine *e = engine_of(40, 8, 2);
    dsf_session *s = open_session(e), *f;
    feed_run(s, 1, 0, 21);
    for (int i = 0; i < 100; i++) {
        GOOD(dsf_session_fork(&f, s));
        cr_assert_eq(dsf_session_position(f), 21);
        dsf_session_close(s);
        s = f;
    }
    SAME_AS_DEFINED(s, 21, "the hundredth copy");
    feed_run(s, 1, 21, 34);
    SAME_AS_DEFINED(s, 34, "the hundredth copy goes on");
    dsf_session_close(s);
    dsf_engine_close(e);
}

static dsf_status count_embedded(void *ud, const dsf_tap_value *v)
{
    if (v->tap.id == DSF_TAP_EMBED) *(int64_t *)ud += v->n;
    return DSF_OK;
}

/* [B-94] The second turn computes its own tokens only, also after a stop token is taken back. */
Test(bug, b94_a_second_turn_computes_new_tokens_only)
{
    int64_t rows = 0;
    const dsf_tap_sink sink = {.on_value = count_embedded, .ud = &rows};
    dsf_engine *e = open_engine((dsf_options){.context = 80, .chunk = 8, .sink = &sink});
    dsf_session *s = open_session(e);
    feed_run(s, 1, 0, 20);
    for (int64_t t = 20; t < 30; t++) feed_run(s, t < 29 ? 1 : 7, t, t + 1);
    GOOD(dsf_session_rewind(s, 29)); /* the stop token */
    feed(s, 1, 29, 41);
    while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(e, &s, 1, &sink));
    cr_expect_eq(rows, 12, "%lld rows", (long long)rows);
    SAME_AS_DEFINED(s, 41, "two turns");
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* ---- a long life ---- */

typedef struct {
    dsf_session *s;
    int salt;
} guest;

/* [B-72] Sequences that come, go, are copied and taken back at random, many times over: each one's
 * logits are those of a fresh run. [B-89] */
Test(bug, b72_any_order_of_events_leaves_every_sequence_right, .timeout = 120)
{
    enum { SLOTS = 3, CONTEXT = 48, EVENTS = 160 };
    uint64_t seed = 72;
    dsf_engine *e = engine_of(CONTEXT, 6, SLOTS);
    guest g[SLOTS] = {{NULL, 0}};
    int checked = 0;
    for (int event = 0; event < EVENTS; event++) {
        guest *a = &g[dsf_fill_below(&seed, SLOTS)], *b = &g[dsf_fill_below(&seed, SLOTS)];
        int64_t what = dsf_fill_below(&seed, 8), at = a->s ? dsf_session_position(a->s) : 0;
        if (!a->s) {
            *a = (guest){open_session(e), 1 + (int)dsf_fill_below(&seed, 3)};
        } else if (what == 0) {
            dsf_session_close(a->s);
            a->s = NULL;
        } else if (what == 1 && !b->s) {
            GOOD(dsf_session_fork(&b->s, a->s));
            b->salt = a->salt;
        } else if (what == 2 && at > 1) {
            GOOD(dsf_session_rewind(a->s, 1 + dsf_fill_below(&seed, at)));
            run_all(a->s);
        } else if (at < CONTEXT) {
            float have[MINI_VOCAB], want[MINI_VOCAB];
            int64_t to = at + 1 + dsf_fill_below(&seed, CONTEXT - at < 9 ? CONTEXT - at : 9);
            feed_run(a->s, a->salt, at, to);
            take_logits(a->s, have);
            want_logits(a->salt, to, want);
            SAME_LOGITS(want, have, "event %d: %lld tokens of %d", event, (long long)to, a->salt);
            checked++;
        }
    }
    cr_expect_gt(checked, EVENTS / 4, "%d", checked);
    for (int i = 0; i < SLOTS; i++) dsf_session_close(g[i].s);
    dsf_engine_close(e);
}

static void live_once(dsf_engine *e)
{
    int32_t ids[8];
    float confidence[8];
    int n;
    dsf_session *s = open_session(e), *f;
    feed_run(s, 1, 0, 30);
    GOOD(dsf_session_draft(s, 5, ids, confidence, &n, NULL));
    GOOD(dsf_session_fork(&f, s));
    GOOD(dsf_session_rewind(s, 3));
    feed_run(s, 2, 3, 25);
    dsf_session_close(f);
    dsf_session_close(s);
}

enum { CYCLES = 24, WARM = 4, SOME = 5 };

/* What this process holds after each cycle: heap bytes, and pages of its own that are in memory. */
typedef struct {
    size_t heap[CYCLES];
    long pages[CYCLES];
} diary;

/* The kernel's running counters are approximate; the walk over the page tables is not. */
static void note(diary *d, int cycle)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "Anonymous: %ld kB", &kb) != 1)
        continue;
    if (f) (void)fclose(f);
    d->pages[cycle] = kb / 4;
    d->heap[cycle] = mallinfo2().uordblks;
}

/* The least of the first cycles after the warm-up against the least of the last: the test's own
 * messages come and go in between. */
static void expect_flat(const diary *d, size_t bytes_a_cycle, long pages_a_cycle, const char *what)
{
    size_t heap[2] = {SIZE_MAX, SIZE_MAX};
    long pages[2] = {LONG_MAX, LONG_MAX};
    for (int i = 0; i < 2 * SOME; i++) {
        int end = i / SOME, c = end ? CYCLES - 1 - i % SOME : WARM + i;
        if (d->heap[c] < heap[end]) heap[end] = d->heap[c];
        if (d->pages[c] < pages[end]) pages[end] = d->pages[c];
    }
    const int between = CYCLES - WARM - SOME;
    cr_expect_leq(heap[1], heap[0] + (size_t)between * bytes_a_cycle, "%s: %zu bytes, before %zu",
                  what, heap[1], heap[0]);
    cr_expect_lt(pages[1], pages[0] + between * pages_a_cycle, "%s: %ld pages, before %ld", what,
                 pages[1], pages[0]);
}

/* [B-73] Equal lives of sequences, and of whole engines: each allocates the same, and none leaves
 * anything behind. (The C library keeps some of what an engine frees at hand, in pieces.) */
Test(bug, b73_equal_cycles_hold_equal_memory)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test(
        "the address sanitizer's own heap is measured too, and leaks are looked for there");
#endif
    static diary sessions, engines;
    uint64_t made[CYCLES];
    dsf_engine *e = engine_of(64, 8, 2);
    for (int i = 0; i < CYCLES; i++) {
        uint64_t before = dsf_mem_count();
        live_once(e);
        made[i] = dsf_mem_count() - before;
        note(&sessions, i);
    }
    dsf_engine_close(e);
    for (int i = 1; i < CYCLES; i++) cr_expect_eq(made[i], made[0], "cycle %d", i);
    expect_flat(&sessions, 32, 1, "sessions");
    for (int i = 0; i < CYCLES; i++) {
        e = engine_of(64, 8, 2);
        live_once(e);
        dsf_engine_close(e);
        note(&engines, i);
    }
    expect_flat(&engines, 1000, 8, "engines");
}
