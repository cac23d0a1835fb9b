#include "plan_fixture.h"

static const dsf_tap_sink all_taps = {.on_value = NULL};

/* ---- lifetimes and places, counted again from the steps ---- */

typedef struct {
    int *first, *last; /* by value; -1: never used */
} lives;

static lives count_lives(const dsf_plan *p)
{
    lives l = {malloc(sizeof(int) * (size_t)p->n_values),
               malloc(sizeof(int) * (size_t)p->n_values)};
    for (int i = 0; i < p->n_values; i++) l.first[i] = l.last[i] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *s = &p->step[i];
        for (int k = 0; k < s->op->n_operands + s->n_taps; k++) {
            dsf_val v = k < s->op->n_operands ? s->operand[k] : s->tap[k - s->op->n_operands].value;
            if (v == DSF_NO_VAL) continue;
            v = dsf_plan_base(p, v);
            if (l.first[v] < 0) l.first[v] = i;
            l.last[v] = i;
        }
    }
    for (int i = 0; i < DSF_N_RESULTS; i++)
        if (p->result[i] != DSF_NO_VAL) l.last[dsf_plan_base(p, p->result[i])] = p->n_steps;
    return l;
}

static bool own(const dsf_plan *p, int v, dsf_value_kind kind)
{
    return p->value[v].kind == kind && p->value[v].base == DSF_NO_VAL;
}

static size_t bytes_of(const dsf_value *v)
{
    size_t n = 1;
    for (int i = 0; i + 1 < v->rank; i++) n *= (size_t)v->dim[i];
    return n * (size_t)dsf_dtype_bytes(v->dtype, v->dim[v->rank - 1]);
}

static bool apart(const dsf_value *a, const dsf_value *b)
{
    return a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
}

/* Every pair of values that live at the same time; caches and inputs always do. */
static void check_places(const dsf_plan *p)
{
    lives l = count_lives(p);
    size_t end[3] = {0, 0, 0}, *const stated[3] = {(size_t *)&p->scratch_bytes,
                                                   (size_t *)&p->cache_bytes,
                                                   (size_t *)&p->input_bytes};
    static const dsf_value_kind kind[3] = {DSF_VALUE_SCRATCH, DSF_VALUE_CACHE, DSF_VALUE_INPUT};
    int pairs = 0;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < p->n_values; i++) {
            const dsf_value *a = &p->value[i];
            if (!own(p, i, kind[k]) || (k == 0 && l.first[i] < 0)) continue;
            cr_assert_geq(a->bytes, bytes_of(a), "%s", a->name);
            cr_assert_eq(a->offset % 64, 0, "%s", a->name);
            if (a->offset + a->bytes > end[k]) end[k] = a->offset + a->bytes;
            for (int j = 0; j < i; j++) {
                if (!own(p, j, kind[k]) || (k == 0 && l.first[j] < 0)) continue;
                if (k == 0 && (l.last[j] < l.first[i] || l.last[i] < l.first[j])) continue;
                cr_assert(apart(a, &p->value[j]), "%s and %s share bytes", a->name,
                          p->value[j].name);
                pairs++;
            }
        }
        cr_expect_eq(end[k], *stated[k], "arena %d: %zu used, %zu stated", k, end[k], *stated[k]);
    }
    cr_assert_gt(pairs, 100);
    free(l.first);
    free(l.last);
}

/* [B-28] */
Test(plan, no_two_live_values_share_a_byte_and_the_arena_ends_with_the_last_one)
{
    shapes s;
    static const dsf_plan_size sizes[] = {{1, 1, 1, 1, 0},
                                          {1, 1, 1, 64, 16},
                                          {16, 2, 2, 256, 16},
                                          {77, 77, 3, 1000, 5},
                                          {300, 1, 1, 300, 1}};
    open_preset(&s, "mini");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int mode = 0; mode < 6; mode++) {
            s.model.unfused = mode & 1;
            dsf_plan *p = placed(&s, sizes[i], mode >= 4, mode & 2 ? &all_taps : NULL);
            check_places(p);
            dsf_plan_close(p);
        }
    close_shapes(&s);
}

Test(plan, a_value_lives_from_its_first_writer_to_its_last_reader)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = placed(&s, small, false, &all_taps);
    lives l = count_lives(p);
    for (int i = 0; i < p->n_values; i++) {
        if (!own(p, i, DSF_VALUE_SCRATCH)) continue;
        cr_expect_eq(p->value[i].first, l.first[i], "%s first", p->value[i].name);
        cr_expect_eq(p->value[i].last, l.last[i], "%s last", p->value[i].name);
    }
    for (int i = 0; i < p->n_steps; i++) /* nothing is read before it is written */
        for (int k = 0; k < p->step[i].op->n_operands; k++) {
            dsf_val v = p->step[i].operand[k];
            if (v == DSF_NO_VAL || p->step[i].op->operand[k].dir != DSF_IN) continue;
            v = dsf_plan_base(p, v);
            if (p->value[v].kind == DSF_VALUE_SCRATCH) cr_expect_lt(l.first[v], i);
        }
    free(l.first);
    free(l.last);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* What was measured is what is used: taking the arenas' values anew with exactly the stated bytes
 * works, with one byte less it does not. */
Test(plan, measure_equals_use_and_one_byte_less_fails)
{
    shapes s;
    open_preset(&s, "mini");
    dsf_plan *p = placed(&s, small, false, NULL);
    static const dsf_value_kind kind[2] = {DSF_VALUE_CACHE, DSF_VALUE_INPUT};
    for (int k = 0; k < 2; k++)
        for (size_t less = 0; less < 2; less++) {
            dsf_arena a = {.name = "again", .cap = (k ? p->input_bytes : p->cache_bytes) - less};
            dsf_status st = DSF_OK;
            for (int i = 0; i < p->n_values && st == DSF_OK; i++) {
                size_t at = 0;
                if (!own(p, i, kind[k])) continue;
                st = dsf_arena_take(&a, p->value[i].bytes, 64, &at);
                if (st == DSF_OK) cr_expect_eq(at, p->value[i].offset);
            }
            cr_expect_eq(st, less ? DSF_ENOMEM : DSF_OK);
        }
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- prune ---- */

static int count_writers(const dsf_plan *p, dsf_value_kind kind)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].op->n_operands; k++) {
            dsf_val v = p->step[i].operand[k];
            n += v != DSF_NO_VAL && p->value[v].kind == kind &&
                 p->step[i].op->operand[k].dir != DSF_IN;
        }
    return n;
}

static int count_taps(const dsf_plan *p, dsf_tap_id id)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_taps; k++)
            n += id == DSF_TAP_NONE || p->step[i].tap[k].tap.id == id;
    return n;
}

/* Has the step an effect: a cache, a shown value, or a value that a later step reads? */
static bool has_effect(const dsf_plan *p, int at)
{
    const dsf_step *s = &p->step[at];
    if (s->n_taps) return true;
    for (int k = 0; k < s->op->n_operands; k++) {
        dsf_val v = s->operand[k];
        if (v == DSF_NO_VAL || s->op->operand[k].dir == DSF_IN) continue;
        if (p->value[v].kind == DSF_VALUE_CACHE || dsf_plan_is_result(p, v)) return true;
        for (int i = at + 1; i < p->n_steps; i++)
            for (int j = 0; j < p->step[i].op->n_operands; j++)
                if (p->step[i].operand[j] != DSF_NO_VAL &&
                    dsf_plan_base(p, p->step[i].operand[j]) == dsf_plan_base(p, v) &&
                    p->step[i].op->operand[j].dir != DSF_OUT)
                    return true;
    }
    return false;
}

/* A step is left that writes this result. */
static bool computed(const dsf_plan *p, dsf_result which)
{
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].op->n_operands; k++)
            if (p->step[i].operand[k] != DSF_NO_VAL && p->step[i].operand[k] == p->result[which] &&
                p->step[i].op->operand[k].dir != DSF_IN)
                return true;
    return false;
}

Test(plan, pruning_keeps_cache_writers_and_results_and_nothing_without_effect)
{
    shapes s;
    open_preset(&s, "mini");
    for (int draft = 0; draft < 2; draft++) {
        dsf_plan *p = record(&s, small, draft);
        int stores = count_writers(p, DSF_VALUE_CACHE), steps = p->n_steps;
        GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
        cr_expect_eq(count_writers(p, DSF_VALUE_CACHE), stores);
        cr_expect_eq(computed(p, DSF_RESULT_LOGITS), !draft);
        cr_expect_eq(computed(p, DSF_RESULT_DRAFT_IDS), draft);
        cr_expect_eq(computed(p, DSF_RESULT_CONFIDENCE), draft);
        cr_expect_not(computed(p, DSF_RESULT_NEXT));
        cr_expect_eq(count_taps(p, DSF_TAP_NONE), 0);
        cr_expect_leq(p->n_steps, steps);
        for (int i = 0; i < p->n_steps; i++)
            cr_expect(has_effect(p, i), "step %d, %s", i, p->step[i].op->name);
        int kept = p->n_steps;
        GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
        cr_expect_eq(p->n_steps, kept, "pruning twice");
        dsf_plan_close(p);
    }
    close_shapes(&s);
}

static bool wants_out_of_3(void *ud, dsf_tap t)
{
    (void)ud;
    return t.id == DSF_TAP_OUT && t.layer == 3;
}

Test(plan, wanted_taps_are_kept_and_the_others_dropped)
{
    shapes s;
    open_preset(&s, "mini");
    const dsf_tap_sink one = {.wants = wants_out_of_3};
    dsf_plan *p = record(&s, small, false);
    int recorded = count_taps(p, DSF_TAP_NONE);
    GOOD(dsf_plan_prune(p, &all_taps, NULL, NULL));
    cr_expect_eq(count_taps(p, DSF_TAP_NONE), recorded);
    cr_expect_eq(count_taps(p, DSF_TAP_OUT), 10);
    GOOD(dsf_plan_prune(p, &one, NULL, NULL));
    cr_expect_eq(count_taps(p, DSF_TAP_OUT), 1);
    cr_expect_eq(count_taps(p, DSF_TAP_NONE), 1);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- given values ---- */

static bool gives(void *ud, dsf_tap t)
{
    const dsf_tap *given = ud;
    for (; given->id != DSF_TAP_NONE; given++)
        if (given->id == t.id && given->layer == t.layer) return true;
    return false;
}

static dsf_plan *record_given(const shapes *s, dsf_tap *given)
{
    dsf_plan *p;
    GOOD(dsf_plan_open(&p, &small, s->config.n_layers));
    p->given = gives;
    p->given_ud = given;
    GOOD(dsf_model_build(p, &s->model));
    return p;
}

static int steps_of(const dsf_plan *p, const char *op, int layer)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += p->step[i].layer == layer && strcmp(p->step[i].op->name, op) == 0;
    return n;
}

static int readers_of_given(const dsf_plan *p, dsf_tap t)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].op->n_operands; k++) {
            dsf_val v = p->step[i].operand[k];
            if (v == DSF_NO_VAL) continue;
            const dsf_value *b = &p->value[dsf_plan_base(p, v)];
            n += b->kind == DSF_VALUE_GIVEN && b->tap.id == t.id && b->tap.layer == t.layer;
        }
    return n;
}

Test(plan, a_given_value_takes_the_place_of_the_computed_one)
{
    shapes s;
    dsf_tap given[] = {{DSF_TAP_EMBED, -1}, {DSF_TAP_ATTN_TOPK, 7}, {DSF_TAP_NONE, -1}};
    open_preset(&s, "mini");
    dsf_plan *p = record_given(&s, given);
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    cr_expect_eq(steps_of(p, "embed", -1), 0, "nobody reads the computed embedding");
    cr_expect_eq(steps_of(p, "index_topk", 7), 0, "nor the list that layer 7 would choose");
    cr_expect_eq(steps_of(p, "index_topk", 5), 1, "layer 5's is still read");
    cr_expect_eq(readers_of_given(p, given[0]), 1);
    cr_expect_eq(readers_of_given(p, given[1]), 3, "layers 7, 8, 9");
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    dsf_plan_close(p);
    p = record_given(&s, given); /* where it is shown it is computed all the same */
    GOOD(dsf_plan_prune(p, &all_taps, NULL, NULL));
    cr_expect_eq(steps_of(p, "embed", -1), 1);
    cr_expect_eq(steps_of(p, "index_topk", 7), 1);
    dsf_plan_close(p);
    close_shapes(&s);
}

static bool all_missing(void *ud, dsf_tap t)
{
    (void)ud;
    (void)t;
    return true;
}

Test(plan, what_depends_on_a_missing_value_goes_and_nothing_else)
{
    shapes s;
    dsf_tap given[] = {{DSF_TAP_FINAL_H, -1}, {DSF_TAP_NONE, -1}};
    open_preset(&s, "mini");
    dsf_plan *p = record_given(&s, given);
    int stores = count_writers(p, DSF_VALUE_CACHE);
    GOOD(dsf_plan_prune(p, NULL, all_missing, NULL));
    cr_expect_not(computed(p, DSF_RESULT_LOGITS));
    cr_expect_eq(count_writers(p, DSF_VALUE_CACHE), stores, "the layers do not need it");
    dsf_plan_close(p);
    dsf_tap first[] = {{DSF_TAP_EMBED, -1}, {DSF_TAP_NONE, -1}};
    p = record_given(&s, first);
    GOOD(dsf_plan_prune(p, NULL, all_missing, NULL));
    cr_expect_eq(p->n_steps, 0, "everything comes from the embedding");
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    cr_expect_eq(p->scratch_bytes, 0);
    cr_expect_eq(p->result_bytes, 0);
    dsf_plan_close(p);
    close_shapes(&s);
}

Test(plan, a_pass_that_draws_gives_ids_in_place_of_logits)
{
    shapes s;
    open_preset(&s, "mini");
    for (int sampled = 0; sampled < 2; sampled++) {
        s.model.sampled = sampled;
        dsf_plan *p = record(&s, small, false);
        GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
        GOOD(dsf_plan_fuse(p, 0, NULL));
        GOOD(dsf_plan_choose(p, 0, NULL));
        GOOD(dsf_plan_place(p));
        cr_expect_eq(computed(p, DSF_RESULT_NEXT), sampled);
        cr_expect_eq(computed(p, DSF_RESULT_LOGITS), !sampled);
        dsf_val v = p->result[sampled ? DSF_RESULT_NEXT : DSF_RESULT_LOGITS];
        cr_expect_eq(p->value[v].dim[0], small.heads);
        cr_expect_eq(p->result_bytes, p->value[v].bytes, "nothing else travels");
        dsf_plan_close(p);
    }
    close_shapes(&s);
}

/* ---- sizes ---- */

static double bytes_a_token(const shapes *s)
{
    dsf_plan_size a = {.rows = 1, .heads = 1, .slots = 1, .context = 1 << 18, .rewind = 16}, b = a;
    b.context = 1 << 20;
    dsf_plan *p = placed(s, a, false, NULL), *q = placed(s, b, false, NULL);
    double n = (double)(q->cache_bytes - p->cache_bytes) / (double)(b.context - a.context);
    dsf_plan_close(p);
    dsf_plan_close(q);
    return n;
}

Test(plan, a_token_costs_890_bytes)
{
    int64_t entry = dsf_dtype_bytes(DSF_Q4N, 512) + dsf_dtype_bytes(DSF_Q4X, 128);
    cr_expect_eq(entry, 288 + 68);
    cr_expect_eq(3 * entry / 2 + entry, 890); /* three sources of ratio 2, one of ratio 1 */
    cr_expect_eq(dsf_dtype_bytes(DSF_Q8, 512), 528);
    shapes s;
    open_preset(&s, "full");
    cr_expect_eq(bytes_a_token(&s), 890.0);
    close_shapes(&s);
}

Test(plan, a_token_of_the_released_config_costs_890_bytes)
{
    char path[4096];
    dsf_config c;
    shapes s;
    if (!find_shared(path, "reference/config.json"))
        cr_skip_test("no reference/config.json in the shared folder");
    GOOD(dsf_config_load(&c, path, NULL));
    open_shapes(&s, &c);
    cr_expect_eq(bytes_a_token(&s), 890.0);
    close_shapes(&s);
}

/* [B-55] [B-58] */
Test(plan, sizes_are_64_bit_at_real_shapes)
{
    shapes s;
    open_preset(&s, "full");
    s.model.unfused = true;
    const dsf_plan_size size = {
        .rows = 4096, .heads = 4096, .slots = 64, .context = 1 << 20, .rewind = 16};
    dsf_plan *p = placed(&s, size, false, &all_taps);
    check_places(p);
    __int128 caches = 0, scores = 0;
    for (int i = 0; i < p->n_values; i++) {
        const dsf_value *v = &p->value[i];
        if (v->base != DSF_NO_VAL) continue;
        __int128 bytes = dsf_dtype_bytes(v->dtype, v->dim[v->rank - 1]);
        for (int k = 0; k + 1 < v->rank; k++) bytes *= v->dim[k];
        if (v->kind == DSF_VALUE_CACHE) caches += (bytes + 63) / 64 * 64;
        if (bytes > scores && v->kind == DSF_VALUE_SCRATCH) scores = bytes;
    }
    cr_expect(caches == (__int128)p->cache_bytes);
    cr_expect(scores == (__int128)4096 * (1 << 20) * 2, "index scores of a million entries");
    cr_expect_gt(p->cache_bytes, (size_t)64 * 890 * (1 << 20));
    cr_expect_gt(p->scratch_bytes, (size_t)8 << 30);
    dsf_plan_close(p);
    close_shapes(&s);
}

/* ---- text ---- */

static char *print(const shapes *s, const char *mask)
{
    dsf_buf b = {.max = 0};
    dsf_plan *p = record(s, (dsf_plan_size){16, 1, 1, 256, 16}, false);
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    GOOD(dsf_plan_choose(p, dsf_machine(), mask));
    GOOD(dsf_plan_place(p));
    dsf_plan_print(p, &b);
    GOOD(dsf_buf_status(&b));
    dsf_plan_close(p);
    return b.data;
}

Test(plan, the_text_is_stable)
{
    shapes a, b;
    open_preset(&a, "mini");
    open_preset(&b, "mini"); /* other addresses, the same text */
    char *x = print(&a, NULL), *y = print(&b, NULL), *z = print(&a, "ref");
    cr_expect_str_eq(x, y);
    cr_expect_null(strstr(z, "avx512"));
    int lines = 0;
    for (const char *p = z; *p; p++) lines += *p == '\n';
    cr_expect_gt(lines, 300);
    dsf_mem_free(x);
    dsf_mem_free(y);
    dsf_mem_free(z);
    close_shapes(&a);
    close_shapes(&b);
}

/* A refactor leaves the printed plan unchanged; a change of the model shows here line by line.
 * [B-38] */
Test(plan, the_text_of_the_mini_model_is_the_golden_one)
{
    shapes s;
    dsf_file f;
    GOOD(dsf_file_open(&f, DSF_SOURCE_ROOT "/golden/plans/mini.txt"));
    open_preset(&s, "mini");
    char *have = print(&s, "ref");
    const char *want = (const char *)f.data, *at = strstr(want, "# rows");
    cr_assert_not_null(at);
    size_t n = f.size - (size_t)(at - want), line = 1;
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(have[i], at[i],
                     "line %zu of the steps differs:\n%.200s\nthe golden one is\n%.200s", line,
                     have + i, at + i);
        line += at[i] == '\n';
    }
    cr_expect_eq(strlen(have), n);
    dsf_mem_free(have);
    dsf_file_close(&f);
    close_shapes(&s);
}
