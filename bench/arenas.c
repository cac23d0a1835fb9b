#include "arenas.h"

void dsf_arenas_of(dsf_arena_use arena[DSF_ARENAS], const dsf_engine *engine)
{
    const dsf_exec *e = &engine->exec, *d = &engine->draft;
    arena[0] = (dsf_arena_use){"pass: values", e->scratch, e->plan->scratch_bytes, 0, true};
    arena[1] = (dsf_arena_use){"pass: inputs", e->input_there, e->plan->input_bytes, 0, false};
    arena[2] = (dsf_arena_use){"caches", e->cache, e->plan->cache_bytes, 0, true};
    arena[3] = (dsf_arena_use){"pass: draft", NULL, 0, 0, true};
    if (!engine->draft_plan) return;
    arena[3].base = d->scratch;
    arena[3].planned = d->plan->scratch_bytes;
}

static void raise_one(dsf_arena_use *a, const uint8_t *data, size_t bytes)
{
    const uint8_t *end = data + bytes;
    if (!a->base || end <= a->base || data < a->base) return;
    size_t high = (size_t)(end - a->base);
    if (data < a->base + a->planned && high > a->high) a->high = high;
}

void dsf_arenas_raise(dsf_arena_use arena[DSF_ARENAS], const dsf_exec *e, size_t *cache_high)
{
    for (int i = 0; i < e->plan->n_steps; i++) {
        const dsf_step *s = &e->plan->step[i];
        for (int k = 0; k < s->op->n_operands; k++) {
            if (s->operand[k] == DSF_NO_VAL) continue;
            const dsf_tensor *t = dsf_op_operand(s->op, e->plan->args + s->args, k);
            size_t bytes = (size_t)dsf_tensor_bytes(t);
            for (int a = 0; a < DSF_ARENAS; a++) raise_one(&arena[a], t->data, bytes);
            dsf_val v = dsf_plan_base(e->plan, s->operand[k]);
            if (!cache_high || e->plan->value[v].kind != DSF_VALUE_CACHE || !t->data) continue;
            const uint8_t *from = e->cache + e->plan->value[v].offset;
            size_t high = (size_t)((const uint8_t *)t->data + bytes - from);
            if (high > cache_high[v]) cache_high[v] = high;
        }
    }
}

bool dsf_arena_met(const dsf_arena_use *a, double percent)
{
    if (a->high > a->planned) return false;
    size_t spare = a->planned - a->high;
    return !a->filled || spare < 64 || (double)spare <= percent / 100 * (double)a->planned;
}
