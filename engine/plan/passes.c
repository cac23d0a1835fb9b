/* Passes over a recorded plan: prune, choose, place. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/plan.h"

static bool writes(const dsf_step *s, int k) { return s->op->operand[k].dir != DSF_IN; }

/* ---- prune ---- */

typedef struct {
    const dsf_tap_sink *wanted;
    bool *needed; /* value: something reads it */
    bool *absent; /* value: it cannot be computed */
} prune_state;

static bool step_wanted(const dsf_plan *p, dsf_step *s, const prune_state *st)
{
    bool wanted = false;
    int kept = 0;
    for (int i = 0; i < s->n_taps;
         i++) { /* taps nobody wants are dropped: nothing is shown in vain */
        const dsf_tap_sink *w = st->wanted;
        bool show = w && (!w->wants || w->wants(w->ud, s->tap[i].tap));
        if (!show) continue;
        s->tap[kept++] = s->tap[i];
        wanted = true;
    }
    s->n_taps = kept;
    for (int k = 0; k < s->op->n_operands && !wanted; k++) {
        dsf_val v = s->operand[k];
        if (v == DSF_NO_VAL || !writes(s, k)) continue;
        wanted = st->needed[dsf_plan_base(p, v)] || p->value[v].kind == DSF_VALUE_CACHE;
    }
    return wanted;
}

static void mark_absent(dsf_plan *p, prune_state *st)
{
    for (int i = 0; i < p->n_steps; i++) {
        dsf_step *s = &p->step[i];
        bool lost = false;
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL && s->op->operand[k].dir != DSF_OUT)
                lost |= st->absent[dsf_plan_base(p, s->operand[k])];
        for (int k = 0; lost && k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL && writes(s, k))
                st->absent[dsf_plan_base(p, s->operand[k])] = true;
        if (lost) s->op = NULL;
    }
}

static void mark_needed(dsf_plan *p, prune_state *st)
{
    for (int i = p->n_steps - 1; i >= 0; i--) {
        dsf_step *s = &p->step[i];
        if (!s->op) continue;
        if (!step_wanted(p, s, st)) {
            s->op = NULL;
            continue;
        }
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL && s->op->operand[k].dir != DSF_OUT)
                st->needed[dsf_plan_base(p, s->operand[k])] = true;
    }
}

dsf_status dsf_plan_prune(dsf_plan *p, const dsf_tap_sink *wanted,
                          bool (*missing)(void *ud, dsf_tap tap), void *ud)
{
    if (p->status != DSF_OK) return dsf_error_pass(p->status, DSF_HERE);
    prune_state s = {.wanted = wanted};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&s.needed, (size_t)p->n_values + 1, 1));
    DSF_TRY_OUT(dsf_mem_new(&s.absent, (size_t)p->n_values + 1, 1));
    for (int i = 0; i < p->n_values; i++)
        s.absent[i] =
            p->value[i].kind == DSF_VALUE_GIVEN && missing && missing(ud, p->value[i].tap);
    mark_absent(p, &s);
    for (int i = 0; i < DSF_N_RESULTS; i++)
        if (p->result[i] != DSF_NO_VAL) s.needed[dsf_plan_base(p, p->result[i])] = true;
    mark_needed(p, &s);
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        if (p->step[i].op) p->step[n++] = p->step[i];
    p->n_steps = n;
out:
    dsf_mem_free(s.needed);
    dsf_mem_free(s.absent);
    return st;
}

/* ---- choose ---- */

/* True when `mask` takes variant `v` of `op` away. */
static bool masked(const char *mask, const dsf_op *op, const dsf_variant *v)
{
    if (!mask || !*mask) return false;
    if (strcmp(mask, "ref") == 0) return strcmp(v->name, "ref") != 0;
    for (const char *m = mask; *m;) {
        size_t n = strcspn(m, ",");
        const char *at = memchr(m, ':', n);
        size_t nv = at ? (size_t)(at - m) : n;
        bool same = nv > 1 && m[0] == '-' && strlen(v->name) == nv - 1 &&
                    memcmp(m + 1, v->name, nv - 1) == 0;
        if (same && at) { /* -avx512:attn */
            size_t no = n - nv - 1;
            same = strlen(op->name) == no && memcmp(at + 1, op->name, no) == 0;
        }
        if (same && v != &op->variant[0]) return true;
        m += n + (m[n] == ',');
    }
    return false;
}

static bool known_variant(const char *name, size_t n, const char *op_name, size_t n_op)
{
    for (int i = 0; i < dsf_n_ops; i++) {
        const dsf_op *op = dsf_ops[i];
        if (op_name && (strlen(op->name) != n_op || memcmp(op->name, op_name, n_op) != 0)) continue;
        for (int k = 1; k < op->n_variants; k++)
            if (strlen(op->variant[k].name) == n && memcmp(op->variant[k].name, name, n) == 0)
                return true;
    }
    return false;
}

/* Length of the word that chooses a device, with its comma; 0: the host. */
static size_t device_word(const char *mask)
{
    static const char word[] = "cuda";
    size_t n = sizeof word - 1;
    if (!mask || strncmp(mask, word, n) != 0 || (mask[n] && mask[n] != ',')) return 0;
    return n + (mask[n] == ',');
}

unsigned dsf_plan_target(unsigned machine, const char *mask)
{
    unsigned only = machine & (unsigned)DSF_PLAN_ONLY; /* the device's sizes are in every build */
    return device_word(mask) ? (unsigned)DSF_NEEDS_SM90 | only : machine & ~only;
}

/* A word that takes nothing away is a mistake of the user's, not a wish fulfilled. */
static dsf_status check_mask(const char *mask)
{
    if (!mask || strcmp(mask, "ref") == 0) return DSF_OK;
    for (const char *m = mask + device_word(mask); *m;) {
        size_t n = strcspn(m, ",");
        const char *at = memchr(m, ':', n);
        size_t nv = at ? (size_t)(at - m) : n;
        if (m[0] != '-' || !known_variant(m + 1, nv - 1, at ? at + 1 : NULL, at ? n - nv - 1 : 0))
            return DSF_FAIL(DSF_EINVAL,
                            "kernel mask: \"%.*s\" is neither \"ref\" nor \"-VARIANT\" nor "
                            "\"-VARIANT:OPERATION\" (\"-avx512:attn\"), nor \"cuda\" in front",
                            (int)n, m);
        m += n + (m[n] == ',');
    }
    return DSF_OK;
}

/* Values start at what the copy engine of a device wants; a cache line is enough for a host. */
static size_t alignment(const dsf_plan *p) { return p->target & DSF_NEEDS_SM90 ? 256 : 64; }

const dsf_variant *dsf_plan_pick(const dsf_op *op, const void *args, unsigned target,
                                 const char *mask)
{
    mask = mask ? mask + device_word(mask) : NULL;
    for (int k = op->n_variants - 1; k >= 0; k--) {
        const dsf_variant *v = &op->variant[k];
        if (dsf_variant_runs(v, target) && !masked(mask, op, v) &&
            (!v->accepts || v->accepts(args)))
            return v;
    }
    return NULL;
}

dsf_status dsf_plan_choose(dsf_plan *p, unsigned machine, const char *mask)
{
    DSF_TRY(check_mask(mask));
    p->worker_bytes = 0;
    p->target = dsf_plan_target(machine, mask);
    for (int i = 0; i < p->n_steps; i++) {
        dsf_step *s = &p->step[i];
        const void *args = p->args + s->args;
        s->variant = dsf_plan_pick(s->op, args, p->target, mask);
        if (!s->variant)
            return DSF_FAIL(DSF_ENOTSUP, "%s: no %s variant is left for these shapes", s->op->name,
                            p->target & DSF_NEEDS_SM90 ? "CUDA" : "host");
        size_t scratch = s->variant->scratch ? s->variant->scratch(args) : 0;
        if (scratch > p->worker_bytes) p->worker_bytes = scratch;
    }
    p->worker_bytes = (p->worker_bytes + alignment(p) - 1) & ~(alignment(p) - 1);
    return DSF_OK;
}

/* ---- place ---- */

static size_t value_bytes(const dsf_plan *p, const dsf_value *v)
{
    size_t align = alignment(p);
    dsf_tensor t = dsf_plan_tensor(v);
    return ((size_t)dsf_tensor_bytes(&t) + align - 1) & ~(align - 1);
}

/* Lives to the end, and has a place among the results: but not what no step is left to compute. */
static void keep_result(dsf_plan *p, dsf_val v)
{
    if (v == DSF_NO_VAL) return;
    dsf_value *r = &p->value[dsf_plan_base(p, v)];
    if (r->first < 0) return;
    r->last = p->n_steps;
    r->result = p->result_bytes;
    p->result_bytes += value_bytes(p, r);
}

static void find_lifetimes(dsf_plan *p)
{
    for (int i = 0; i < p->n_values; i++) {
        p->value[i].first = p->value[i].last = -1;
        p->value[i].result = DSF_NO_RESULT;
    }
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].op->n_operands; k++) {
            dsf_val v = dsf_plan_base(p, p->step[i].operand[k]);
            if (v == DSF_NO_VAL) continue;
            if (p->value[v].first < 0) p->value[v].first = i;
            p->value[v].last = i;
        }
    for (int i = 0; i < DSF_N_RESULTS; i++) keep_result(p, p->result[i]);
}

/* Lowest offset at which v overlaps no placed value that lives at the same time. */
static size_t lowest_fit(const dsf_plan *p, const dsf_val *placed, int n, const dsf_value *v)
{
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const dsf_value *o = &p->value[placed[i]];
            if (o->last < v->first || v->last < o->first) continue;
            if (at + v->bytes <= o->offset || o->offset + o->bytes <= at) continue;
            at = o->offset + o->bytes;
            moved = true;
        }
    }
    return at;
}

/* Scratch values by first use. */
typedef struct {
    int first;
    dsf_val value;
} use;

static int by_first(const void *a, const void *b)
{
    const use *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->value > y->value) - (x->value < y->value);
}

static dsf_status place_scratch(dsf_plan *p)
{
    dsf_val *placed = NULL;
    use *order = NULL;
    int n = 0, n_uses = 0;
    dsf_status st = DSF_OK;
    p->scratch_bytes = 0;
    DSF_TRY_OUT(dsf_mem_new(&placed, (size_t)p->n_values + 1, sizeof *placed));
    DSF_TRY_OUT(dsf_mem_new(&order, (size_t)p->n_values + 1, sizeof *order));
    for (int i = 0; i < p->n_values; i++)
        if (p->value[i].kind == DSF_VALUE_SCRATCH && p->value[i].base == DSF_NO_VAL &&
            p->value[i].first >= 0)
            order[n_uses++] = (use){p->value[i].first, i};
    qsort(order, (size_t)n_uses, sizeof *order, by_first);
    for (int i = 0; i < n_uses; i++) {
        dsf_value *v = &p->value[order[i].value];
        int live = 0; /* what is dead before v stays dead for all that follow */
        for (int k = 0; k < n; k++)
            if (p->value[placed[k]].last >= v->first) placed[live++] = placed[k];
        n = live;
        v->bytes = value_bytes(p, v);
        v->offset = lowest_fit(p, placed, n, v);
        placed[n++] = order[i].value;
        if (v->offset + v->bytes > p->scratch_bytes) p->scratch_bytes = v->offset + v->bytes;
    }
out:
    dsf_mem_free(placed);
    dsf_mem_free(order);
    return st;
}

dsf_status dsf_plan_place(dsf_plan *p)
{
    p->result_bytes = 0;
    find_lifetimes(p);
    dsf_arena cache = {.name = "cache", .cap = SIZE_MAX},
              input = {.name = "inputs", .cap = SIZE_MAX};
    for (int i = 0; i < p->n_values; i++) {
        dsf_value *v = &p->value[i];
        if ((v->kind != DSF_VALUE_CACHE && v->kind != DSF_VALUE_INPUT) || v->base != DSF_NO_VAL)
            continue;
        v->bytes =
            value_bytes(p, v); /* caches keep their place whether or not this plan uses them */
        DSF_TRY(dsf_arena_take(v->kind == DSF_VALUE_CACHE ? &cache : &input, v->bytes, alignment(p),
                               &v->offset));
    }
    p->cache_bytes = cache.peak;
    p->input_bytes = input.peak;
    return place_scratch(p);
}
