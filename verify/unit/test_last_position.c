/* Positions 1,048,574 and 1,048,575, the last of the released context: rope, what is written where,
 * selection and pool against a statement of their own, passes of every size, and the token after.
 */
#include <math.h>

#include "engine_fixture.h"
#include "op_variants.h"
#include "ops/rope.h"
#include "records.h"

enum { LAST = 1048575, CONTEXT = LAST + 1, FROM = CONTEXT - 6, RATIO1 = 5, RATIO2 = 2 };

/* The mini model with the released number of positions. */
static const char *model(void)
{
    static char folder[4096];
    dsf_config c;
    if (folder[0]) return folder;
    GOOD(dsf_synth_preset(&c, "mini"));
    c.max_seq_len = CONTEXT;
    make_temp(folder);
    write_config(folder, "mini", &c);
    return folder;
}

static void clean(void) { remove_temp(model()); }
TestSuite(last_position, .fini = clean);

/* f32(position) times frequency is one f32 number, and its cosine is that number's own: no
 * reduction that a large angle would break. */
Test(last_position, rope_turns_by_the_angle_of_the_definition)
{
    enum { F = 32 };
    float freq[F], cs[4][F][2];
    int32_t pos[4] = {0, LAST - 1, LAST, 65536};
    for (int i = 0; i < F; i++)
        freq[i] = 1.0f / (float)pow(10000, (double)((float)(2 * i) / 64.0f));
    dsf_rope_table_args a = {{cs, DSF_F32, 3, {4, F, 2}},
                             tensor_of(pos, DSF_I32, 4, 0, 0),
                             tensor_of(freq, DSF_F32, F, 0, 0)};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_rope_table, v));) {
        variant_run(v, &a);
        for (int n = 0; n < 4; n++)
            for (int i = 0; i < F; i++) {
                volatile float angle = (float)pos[n] * freq[i];
                cr_assert_float_eq(cs[n][i][0], cosl((long double)angle), 6e-8, "%s", v->name);
                cr_assert_float_eq(cs[n][i][1], sinl((long double)angle), 6e-8, "%s", v->name);
            }
        cr_expect_neq(cs[1][0][0], cs[2][0][0], "neighbours differ");
    }
}

/* ---- an engine that stands before the end ---- */

static uint8_t *filled; /* the first engine's caches: the layout is the same in all */

/* Every cache full of records, the same in every engine. */
static void fill_caches(const dsf_engine *e)
{
    size_t bytes = e->plan->cache_bytes;
    if (filled) {
        memcpy(e->exec.cache, filled, bytes);
        return;
    }
    for (int i = 0; i < e->plan->n_values; i++) {
        const dsf_value *v = &e->plan->value[i];
        if (v->kind != DSF_VALUE_CACHE || v->base != DSF_NO_VAL) continue;
        uint8_t *at = e->exec.cache + v->offset;
        dsf_tensor t = dsf_plan_tensor(v);
        int64_t d = v->dim[v->rank - 1], n = dsf_tensor_count(&t) / d;
        if (v->dtype == DSF_F32)
            for (int64_t k = 0; k < n * d; k++) ((float *)(void *)at)[k] = (float)(k % 9) - 4;
        else
            fill_records(at, n, d, v->dtype, (uint64_t)i);
    }
    filled = malloc(bytes);
    cr_assert_not_null(filled);
    memcpy(filled, e->exec.cache, bytes);
}

static dsf_session *open_at_the_end(dsf_options o)
{
    o.model = model();
    o.context = CONTEXT;
    o.prefill = DSF_PREFILL_EXACT;
    dsf_session *s = open_session(open_engine(o));
    fill_caches(s->engine);
    for (int64_t t = 0; t < FROM; t++) s->ids[t] = token(t, 1);
    s->n = s->fed = s->furthest = s->prompt_from = FROM;
    return s;
}

static void close_both(dsf_session *s)
{
    dsf_engine *e = s->engine;
    dsf_session_close(s);
    dsf_engine_close(e);
}

static uint8_t *record(const dsf_engine *e, const char *cache, int64_t index, int64_t *bytes)
{
    dsf_tensor t;
    cr_assert(dsf_exec_cache(&e->exec, cache, &t));
    *bytes = dsf_tensor_stride(&t) / t.dim[1];
    return (uint8_t *)t.data + index % t.dim[1] * *bytes;
}

/* What the last token writes, kept to be compared. */
typedef struct {
    float logits[MINI_VOCAB];
    uint8_t written[5][128];
} ending;

static void take_ending(const dsf_session *s, ending *out)
{
    static const struct {
        const char *cache;
        int64_t index;
    } place[] = {{"kv_main5", LAST},
                 {"index_k5", LAST},
                 {"kv_main2", LAST / 2},
                 {"index_k2", LAST / 2},
                 {"ring9", LAST}};
    memset(out, 0, sizeof *out);
    take_logits(s, out->logits);
    for (int i = 0; i < 5; i++) {
        int64_t bytes;
        const uint8_t *at = record(s->engine, place[i].cache, place[i].index, &bytes);
        cr_assert_leq(bytes, 128);
        memcpy(out->written[i], at, (size_t)bytes);
    }
}

/* Sums of kernels differ in their last bits, not in what they say. */
static void expect_near(const float *a, const float *b)
{
    double apart = 0, size = 0;
    for (int i = 0; i < MINI_VOCAB; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    cr_expect_leq(sqrt(apart / size), 0.02, "relative distance %.3g", sqrt(apart / size));
}

/* Passes of one, of some, of all: the same bits, in the last places; the reference's kernels write
 * the same entries. [B-55] [B-75] */
Test(last_position, every_pass_and_kernel_ends_alike)
{
    static ending want, have;
    static const struct {
        int64_t chunk;
        const char *variants;
    } way[] = {{1, NULL}, {4, NULL}, {6, NULL}, {6, "ref"}};
    for (int w = 0; w < 4; w++) {
        dsf_session *s = open_at_the_end(
            (dsf_options){.chunk = way[w].chunk, .variants = way[w].variants, .threads = 2});
        int64_t bytes;
        uint8_t before[128];
        const uint8_t *at = record(s->engine, "kv_main5", LAST, &bytes);
        memcpy(before, at, (size_t)bytes);
        feed_run(s, 1, FROM, CONTEXT);
        cr_assert_eq(dsf_session_position(s), CONTEXT);
        cr_expect(memcmp(before, at, (size_t)bytes) != 0, "entry 1,048,575 is written");
        take_ending(s, w ? &have : &want);
        if (w && !way[w].variants) {
            SAME_LOGITS(want.logits, have.logits, "chunk %d", (int)way[w].chunk);
            cr_expect_arr_eq(have.written, want.written, sizeof want.written, "chunk %d",
                             (int)way[w].chunk);
        }
        if (way[w].variants) expect_near(want.logits, have.logits);
        close_both(s);
    }
}

/* ---- selection against its definition ---- */

enum { MOST = 64 };

typedef struct {
    uint16_t *scores; /* of the last row: [entries] */
    int32_t topk[MOST], pool[MOST];
    int64_t k, b;
} seen;

/* The last row of what the pool's layer shows, and of its restricted successor's list. */
typedef struct {
    seen source, next;
} watch;

static dsf_status look(void *ud, const dsf_tap_value *v)
{
    watch *w = ud;
    seen *s = v->tap.layer == RATIO1 ? &w->source : v->tap.layer == 7 ? &w->next : NULL;
    if (!s || v->label[v->n - 1] != LAST) return DSF_OK;
    int64_t n = v->value->dim[1];
    const uint8_t *row = (const uint8_t *)v->value->data + (v->n - 1) * dsf_tensor_stride(v->value);
    if (v->tap.id == DSF_TAP_ATTN_INDEX_SCORES) memcpy(s->scores, row, (size_t)n * 2);
    if (v->tap.id == DSF_TAP_ATTN_TOPK) memcpy(s->topk, row, (size_t)(s->k = n) * 4);
    if (v->tap.id == DSF_TAP_ATTN_POOL) memcpy(s->pool, row, (size_t)(s->b = n) * 4);
    return DSF_OK;
}

static float score_of(const seen *s, int64_t j) { return dsf_bf16_to_f32(s->scores[j]); }

/* Better entries than j among those allowed: larger score, or as large and before. */
static int64_t better(const seen *s, int64_t j, const bool *allowed)
{
    int64_t n = 0;
    for (int64_t i = 0; i < CONTEXT; i++)
        n += (!allowed || allowed[i / 4]) &&
             (score_of(s, i) > score_of(s, j) || (score_of(s, i) == score_of(s, j) && i < j));
    return n;
}

static void expect_best(const seen *s, const bool *allowed)
{
    for (int64_t i = 0; i < s->k; i++) {
        int32_t j = s->topk[i];
        cr_assert(j >= 0 && j <= LAST && (i == 0 || j > s->topk[i - 1]), "%d", (int)j);
        cr_assert(!allowed || allowed[j / 4], "%d is in the pool", (int)j);
        cr_expect_lt(better(s, j, allowed), s->k, "%d is among the best", (int)j);
    }
}

static float best_of_block(const seen *s, int64_t b)
{
    float most = -INFINITY;
    for (int64_t j = 4 * b; j < 4 * b + 4; j++) most = fmaxf(most, score_of(s, j));
    return most;
}

/* The newest block and the best of the others. */
static void expect_pool(const seen *s, bool *allowed)
{
    const int64_t newest = LAST / 4;
    for (int64_t i = 0; i < s->b; i++) {
        cr_assert(s->pool[i] >= 0 && s->pool[i] <= newest);
        allowed[s->pool[i]] = true;
    }
    cr_expect(allowed[newest], "the newest block is there");
    for (int64_t i = 0; i < s->b; i++) {
        int64_t n = 0, at = s->pool[i];
        if (at == newest) continue;
        float mine = best_of_block(s, at);
        for (int64_t b = 0; b < newest; b++) {
            float other = best_of_block(s, b);
            n += other > mine || (other == mine && b < at);
        }
        cr_expect_lt(n, s->b - 1, "block %lld is among the best", (long long)at);
    }
}

/* [B-56] [B-59] */
Test(last_position, list_and_pool_are_the_best_of_a_million_entries)
{
    static bool allowed[CONTEXT / 4];
    static watch w;
    const dsf_tap_sink sink = {.on_value = look, .ud = &w};
    w.source.scores = calloc(CONTEXT, 2);
    w.next.scores = calloc(CONTEXT, 2);
    dsf_session *s =
        open_at_the_end((dsf_options){.chunk = 6, .unfused = true, .sink = &sink, .threads = 2});
    feed(s, 1, FROM, CONTEXT);
    GOOD(dsf_engine_step(s->engine, &s, 1, &sink));
    cr_assert(w.source.k == 6 && w.source.b == 3 && w.next.k == 6);
    expect_best(&w.source, NULL);
    expect_pool(&w.source, allowed);
    expect_best(&w.next, allowed);
    close_both(s);
    free(w.source.scores);
    free(w.next.scores);
}

/* [B-66] [B-67] */
Test(last_position, the_token_after_the_last_is_refused_with_words)
{
    dsf_engine *e = NULL;
    int32_t id = 1;
    dsf_session *s = open_at_the_end((dsf_options){.chunk = 6});
    feed_run(s, 1, FROM, CONTEXT);
    REFUSED(DSF_EINVAL, dsf_session_feed(s, &id, 1));
    SAYS("the context holds 1048576");
    cr_expect_eq(dsf_session_position(s), CONTEXT);
    GOOD(dsf_session_rewind(s, LAST));
    feed_run(s, 1, LAST, CONTEXT); /* and the last one can be taken back and come again */
    close_both(s);
    REFUSED(DSF_EINVAL,
            dsf_engine_open(&e, &(dsf_options){.model = model(), .context = CONTEXT + 1}));
    SAYS("1 to 1048576 positions");
}
