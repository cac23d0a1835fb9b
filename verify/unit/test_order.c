/* The order of a plan's steps: whatever touches the same bytes keeps its order, and nothing else
 * has to. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine_fixture.h"
#include "exec/order.h"
#include "model/synth.h"
#include "serve/load.h"

static dsf_plan *plan_of_mini(dsf_loaded *l, struct dsf_synthetic *s)
{
    dsf_plan *p = NULL;
    const dsf_plan_size size = {8, 1, 1, 64, 0};
    *l = (dsf_loaded){.ckpt = NULL};
    *s = (struct dsf_synthetic){.seed = 7};
    GOOD(dsf_synth_preset(&s->config, "mini"));
    GOOD(dsf_load_synthetic(l, s));
    GOOD(dsf_plan_open(&p, &size, l->config.n_layers));
    GOOD(dsf_model_build(p, &l->model));
    GOOD(dsf_plan_prune(p, NULL, NULL, NULL));
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    return p;
}

static bool touches(const dsf_plan *p, const dsf_step *a, const dsf_step *b)
{
    for (int i = 0; i < a->op->n_operands; i++)
        for (int k = 0; k < b->op->n_operands; k++) {
            dsf_val v = dsf_plan_base(p, a->operand[i]), w = dsf_plan_base(p, b->operand[k]);
            if (v == DSF_NO_VAL || w == DSF_NO_VAL) continue;
            const dsf_value *x = &p->value[v], *y = &p->value[w];
            bool memory = x->kind == DSF_VALUE_SCRATCH || x->kind == DSF_VALUE_CACHE;
            bool writes = a->op->operand[i].dir != DSF_IN || b->op->operand[k].dir != DSF_IN;
            if (memory && writes && x->kind == y->kind && x->offset < y->offset + y->bytes &&
                y->offset < x->offset + x->bytes)
                return true;
        }
    return false;
}

/* reach[i * n + j]: step i ends after step j, over the steps that ran. */
static bool *reach_of(const dsf_order *o, const bool *ran)
{
    int n = o->n_steps, *after = calloc((size_t)n + 1, sizeof *after);
    bool *reach = calloc((size_t)n * (size_t)n, 1);
    for (int i = 0; i < n; i++) {
        if (!ran[i]) continue;
        int m = dsf_order_after(o, i, ran, after);
        for (int k = 0; k < m; k++) {
            cr_assert_lt(after[k], i);
            cr_assert(ran[after[k]]);
            reach[i * n + after[k]] = true;
            for (int j = 0; j < n; j++) reach[i * n + j] |= reach[after[k] * n + j];
        }
    }
    free(after);
    return reach;
}

static void check(const dsf_plan *p, const bool *ran, int64_t *free_pairs)
{
    dsf_order o;
    GOOD(dsf_order_open(&o, p));
    bool *reach = reach_of(&o, ran);
    for (int i = 0; i < p->n_steps; i++)
        for (int j = 0; j < i; j++) {
            if (!ran[i] || !ran[j]) continue;
            bool ordered = reach[i * p->n_steps + j];
            *free_pairs += !ordered;
            cr_assert(ordered || !touches(p, &p->step[i], &p->step[j]),
                      "step %d (%s) may run beside step %d (%s)", i, p->step[i].op->name, j,
                      p->step[j].op->name);
        }
    free(reach);
    dsf_order_close(&o);
}

Test(order, steps_that_share_bytes_keep_their_order_and_others_need_not)
{
    dsf_loaded l;
    struct dsf_synthetic s;
    dsf_plan *p = plan_of_mini(&l, &s);
    bool *ran = calloc((size_t)p->n_steps, 1);
    int64_t free_pairs = 0;
    for (int i = 0; i < p->n_steps; i++) ran[i] = true;
    check(p, ran, &free_pairs);
    cr_expect_gt(free_pairs, 100, "branches run side by side");
    for (int i = 0; i < p->n_steps; i++)
        ran[i] = p->step[i].rows != DSF_ROWS_PAIRS && p->step[i].rows != DSF_ROWS_POOLED;
    check(p, ran, &free_pairs); /* an even position: no entry is pooled */
    free(ran);
    dsf_plan_close(p);
    dsf_load_close(&l);
}
