/* The memory plan as it is told: no item grows with chunk x context beyond its stated workspace,
 * what is said to fit fits, every line is explained, shares follow one rule. */
#include <criterion/criterion.h>
#include <string.h>

#include "engine_fixture.h"
#include "model/contract.h"
#include "ops/index.h"
#include "serve/planned.h"

TestSuite(planned, .fini = mini_clean);

/* The released config with layers up to 24: sources of both ratios, the pool, a restricted indexer.
 */
static dsf_engine *open_layers(const char *variants, bool unfused, int ranks)
{
    static struct dsf_synthetic s;
    dsf_engine *e = NULL;
    dsf_buf json = {.max = 0};
    s = (struct dsf_synthetic){.planned = true};
    GOOD(dsf_synth_preset(&s.config, "full"));
    GOOD(dsf_synth_trim(&s.config, 25, 1));
    GOOD(dsf_synth_finish(&s.config, &json));
    dsf_buf_free(&json);
    const dsf_options o = {.synthetic = &s,
                           .variants = variants,
                           .context = 1 << 17,
                           .chunk = 1024,
                           .threads = 4,
                           .unfused = unfused,
                           .ranks = ranks,
                           .plan_only = true};
    GOOD(dsf_engine_open(&e, &o));
    return e;
}

/* What a line has at (2T, 2N) beyond what T and N explain each alone. */
typedef struct {
    dsf_budget at[2][2]; /* [twice the chunk][twice the context] */
} grid;

static void fill_grid(const dsf_engine *e, grid *g)
{
    for (int t = 0; t < 2; t++)
        for (int n = 0; n < 2; n++)
            GOOD(dsf_memory_at(e, e->opt.context << n, e->opt.chunk << t, &g->at[t][n]));
}

static int64_t cross(const grid *g, const char *name)
{
    int64_t v[2][2];
    for (int t = 0; t < 2; t++)
        for (int n = 0; n < 2; n++) {
            const dsf_budget_line *l = dsf_budget_find(&g->at[t][n], name);
            v[t][n] = l ? l->bytes : 0;
        }
    return v[1][1] - v[1][0] - v[0][1] + v[0][0];
}

/* Lines that grow with chunk x context, and the name of the last. */
static int growing(const grid *g, const char **name)
{
    int n = 0;
    for (int i = 0; i < g->at[1][1].n; i++) {
        const char *line = g->at[1][1].line[i].name;
        if (strcmp(line, "pass: kernel scratch") == 0 || cross(g, line) == 0) continue;
        *name = line;
        n++;
    }
    return n;
}

/* [B-58] [B-59] */
Test(planned, nothing_grows_with_chunk_times_context)
{
    static grid g;
    const char *const variants[] = {"ref", "cuda"}, *name = NULL;
    for (int v = 0; v < 2; v++) {
        dsf_engine *e = open_layers(variants[v], false, 1);
        fill_grid(e, &g);
        cr_expect_eq(growing(&g, &name), 0, "%s: %s", variants[v], name ? name : "");
        for (int t = 0; t < 2; t++)
            for (int n = 0; n < 2; n++) {
                int64_t rows = e->opt.chunk << t, entries = e->opt.context << n;
                /* of a host: some rows of scores for each thread, as many at every chunk */
                int64_t budget =
                    v ? DSF_INDEX_BUDGET(rows) : e->opt.threads * (entries * 8 + (8 << 20));
                const dsf_budget_line *l = dsf_budget_find(&g.at[t][n], "pass: kernel scratch");
                cr_assert_not_null(l);
                cr_expect_leq(l->bytes, budget, "%s, %lld rows, %lld positions: %lld", variants[v],
                              (long long)rows, (long long)entries, (long long)l->bytes);
            }
        dsf_engine_close(e);
    }
}

/* Index scores held for a dump are such a term: it is found, by name. */
Test(planned, a_value_of_chunk_times_context_is_found)
{
    static grid g;
    const char *name = NULL;
    dsf_engine *e = open_layers("ref", true, 1);
    fill_grid(e, &g);
    cr_expect_eq(growing(&g, &name), 1);
    cr_expect_str_eq(name, "pass: values");
    dsf_planned p;
    dsf_buf text = {.max = 0};
    GOOD(dsf_planned_make(&p, e, &(dsf_planned_options){.memory = (int64_t)1 << 50}));
    GOOD(dsf_planned_explain(&p, "pass: values", &text));
    cr_expect(strstr(text.data, "scores: 1024 x 131072 bf16"), "%s", text.data);
    dsf_buf_free(&text);
    dsf_engine_close(e);
}

/* [B-67] The largest that fits fits, and one more does not. */
Test(planned, the_largest_that_fits_is_told)
{
    dsf_engine *e = open_layers("cuda", false, 1);
    dsf_budget b;
    int64_t most = 0, total = dsf_memory_total(e, &e->budget);
    GOOD(dsf_memory_most_context(e, total, &most));
    cr_expect_geq(most, e->opt.context);
    GOOD(dsf_memory_at(e, most, e->opt.chunk, &b));
    cr_expect_leq(dsf_memory_total(e, &b), total);
    GOOD(dsf_memory_at(e, most + 1, e->opt.chunk, &b));
    cr_expect_gt(dsf_memory_total(e, &b), total);
    GOOD(dsf_memory_most_chunk(e, total, &most));
    cr_expect_geq(most, e->opt.chunk);
    GOOD(dsf_memory_at(e, e->opt.context, most + 1, &b));
    cr_expect_gt(dsf_memory_total(e, &b), total);
    GOOD(dsf_memory_most_context(e, 1000, &most));
    cr_expect_eq(most, 0);
    dsf_engine_close(e);
}

Test(planned, more_rows_or_positions_never_take_less)
{
    dsf_engine *e = open_layers("cuda", false, 1);
    dsf_budget b;
    int64_t last = 0;
    for (int64_t chunk = 1; chunk <= 1 << 14; chunk += chunk < 5 ? 1 : chunk / 3 + 1) {
        GOOD(dsf_memory_at(e, e->opt.context, chunk, &b));
        cr_expect_geq(dsf_memory_total(e, &b), last, "chunk %lld", (long long)chunk);
        last = dsf_memory_total(e, &b);
    }
    last = 0;
    for (int64_t context = 1; context <= 1 << 20; context += context / 2 + 1) {
        GOOD(dsf_memory_at(e, context, 64, &b));
        cr_expect_geq(dsf_memory_total(e, &b), last, "context %lld", (long long)context);
        last = dsf_memory_total(e, &b);
    }
    dsf_engine_close(e);
}

static size_t scratch_of(const dsf_step *s, void *args, int64_t rows)
{
    for (int k = 0; k < s->op->n_operands; k++) {
        dsf_tensor *t = dsf_op_operand(s->op, args, k);
        if (t->rank && s->op->operand[k].dims[0] == s->row_letter) t->dim[0] = rows;
    }
    return s->variant->scratch(args);
}

/* A pass of few rows runs in the workspace that was planned for many. [B-64] */
Test(planned, fewer_rows_need_no_more_workspace)
{
    const char *const variants[] = {"ref", "cuda", NULL};
    for (int v = 0; v < 3; v++) {
        dsf_engine *e = open_layers(variants[v], false, 1);
        for (int i = 0; i < e->plan->n_steps; i++) {
            const dsf_step *s = &e->plan->step[i];
            uint8_t args[1024];
            size_t last = 0;
            cr_assert_leq(s->op->args_size, sizeof args);
            if (!s->variant->scratch || !s->row_letter) continue;
            memcpy(args, e->plan->args + s->args, s->op->args_size);
            for (int64_t n = 1; n <= 1 << 14; n += n < 300 ? 1 : n / 3) {
                size_t bytes = scratch_of(s, args, n);
                cr_assert_geq(bytes, last, "%s %s: %lld rows", s->op->name, s->variant->name,
                              (long long)n);
                last = bytes;
            }
        }
        dsf_engine_close(e);
    }
}

/* [B-67] */
Test(planned, what_does_not_fit_is_told_with_its_items)
{
    dsf_engine *e = open_layers("cuda", false, 1);
    dsf_planned p;
    dsf_buf text = {.max = 0};
    GOOD(dsf_planned_make(&p, e, &(dsf_planned_options){.memory = (int64_t)1 << 33, .reserve = 5}));
    cr_expect_not(dsf_planned_fits(&p));
    dsf_planned_print(&p, &text);
    cr_expect(strstr(text.data, "OVER by "));
    cr_expect(strstr(text.data, "the largest: weights "));
    cr_expect(strstr(text.data, "(alone over)"));
    REFUSED(DSF_EINVAL, dsf_planned_make(&p, e, &(dsf_planned_options){.memory = 5, .reserve = 5}));
    SAYS("leaves nothing");
    dsf_buf_free(&text);
    dsf_engine_close(e);
}

/* The draft has steps of its own, and given rows, taps and timers make lines that others lack. */
static dsf_engine *open_every_line(const char *variants)
{
    static const dsf_tap_sink sink = {.wants = NULL};
    dsf_engine *e = NULL;
    const dsf_options o = {.model = mini(),
                           .variants = variants,
                           .threads = 1,
                           .timed = true,
                           .given_embed = true,
                           .sink = &sink,
                           .plan_only = true};
    GOOD(dsf_engine_open(&e, &o));
    return e;
}

static void explain_all(dsf_engine *e)
{
    dsf_planned p;
    GOOD(dsf_planned_make(&p, e, &(dsf_planned_options){.memory = (int64_t)1 << 50}));
    for (int i = 0; i < e->budget.n; i++) {
        dsf_buf text = {.max = 0};
        const dsf_budget_line *l = &e->budget.line[i];
        cr_expect_eq(dsf_budget_find(&e->budget, l->name), l, "%s: twice", l->name);
        GOOD(dsf_planned_explain(&p, l->name, &text));
        cr_expect(strstr(text.data, l->formula), "%s", l->name);
        cr_expect(strstr(text.data, "smaller with: "));
        cr_expect(l->bytes > 0 || l->absent, "%s: no bytes", l->name);
        dsf_buf_free(&text);
    }
    dsf_buf text = {.max = 0};
    REFUSED(DSF_EINVAL, dsf_planned_explain(&p, "the rest", &text));
    SAYS("pass: values");
    dsf_engine_close(e);
}

Test(planned, every_line_is_explained)
{
    explain_all(open_every_line("ref"));
    explain_all(open_every_line("cuda"));
    explain_all(open_layers("cuda", true, 2));
}

/* What a value takes at the peak is part of what lives there, and of the arena. */
Test(planned, the_peak_is_inside_the_arena)
{
    dsf_engine *e = open_layers("cuda", false, 1);
    dsf_planned p;
    GOOD(dsf_planned_make(&p, e, &(dsf_planned_options){.search = false}));
    size_t sum = 0;
    for (int i = 0; i < p.peak[0].n; i++) {
        sum += p.peak[0].value[i].bytes;
        if (i) cr_expect_leq(p.peak[0].value[i].bytes, p.peak[0].value[i - 1].bytes);
    }
    cr_expect_leq(sum, p.peak[0].live);
    cr_expect_geq(sum, p.peak[0].live / 2, "the biggest are most of it");
    cr_expect_leq(p.peak[0].live, e->plan->scratch_bytes);
    cr_expect_geq(p.peak[0].live, e->plan->scratch_bytes / 2);
    cr_expect_eq(p.work[0].bytes <= e->plan->worker_bytes, 1);
    cr_expect_geq(p.work[0].bytes + 256, e->plan->worker_bytes);
    dsf_engine_close(e);
}

/* `dsf info --ranks` and the plan share by one rule. */
Test(planned, ranks_share_the_experts_and_nothing_else)
{
    dsf_engine *one = open_layers("cuda", false, 1);
    int64_t bytes[DSF_N_PARTS], tensors[DSF_N_PARTS];
    dsf_contract_parts(&one->load.config, bytes, tensors);
    for (int ranks = 2; ranks <= 8; ranks++) {
        dsf_engine *e = open_layers("cuda", false, ranks);
        int64_t less = 0;
        for (int i = 0; i < DSF_N_PARTS; i++)
            if (i != DSF_PART_TABLES)
                less += bytes[i] - dsf_contract_share(&e->load.config, bytes, i, ranks);
        cr_expect_eq(dsf_budget_total(&one->budget, DSF_BUDGET_DEVICE) -
                         dsf_budget_total(&e->budget, DSF_BUDGET_DEVICE),
                     less, "%d ranks", ranks);
        dsf_engine_close(e);
    }
    dsf_engine_close(one);
}

Test(planned, more_devices_than_one_are_planned_and_refused_to_run)
{
    dsf_engine *e = NULL;
    dsf_buf text = {.max = 0};
    dsf_planned p;
    REFUSED(DSF_ENOTSUP, dsf_engine_open(&e, &(dsf_options){.model = mini(),
                                                            .variants = "cuda",
                                                            .ranks = 2,
                                                            .plan_only = false}));
    REFUSED(DSF_EINVAL,
            dsf_engine_open(&e, &(dsf_options){.model = mini(), .ranks = 2, .plan_only = true}));
    SAYS("backend cuda");
    e = open_layers("cuda", false, 2);
    GOOD(dsf_planned_make(&p, e, &(dsf_planned_options){.search = false}));
    dsf_planned_print(&p, &text);
    cr_expect(strstr(text.data, "planned; running on 2 devices is not built"));
    cr_expect(strstr(text.data, "absent: no code moves bytes between devices"));
    dsf_buf_free(&text);
    dsf_planned_json(&p, &text);
    cr_expect(strstr(text.data, "\"runs\": false"), "%.200s", text.data);
    dsf_buf_free(&text);
    dsf_engine_close(e);
}
