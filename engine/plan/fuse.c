/* Sequences of steps that one operation computes (ops/fused.h) become one step. A sequence is found
 * by what flows between its steps, wherever they stand. A value between two of its steps goes away:
 * it must have no other reader and no tap, and be no result. Values that stay keep their readers
 * and taps. */
#include <string.h>

#include "base/mem.h"
#include "ops/cache.h"
#include "ops/fused.h"
#include "ops/hc.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/quant.h"
#include "ops/rope.h"
#include "plan/bind.h"

enum { MOST_PARTS = 8 };

typedef struct {
    dsf_plan *p;
    unsigned target;
    const char *mask;
    int n_steps;  /* recorded ones; fused steps are appended behind them */
    int *instead; /* recorded step: itself, the fused step in its place, or GONE */
} fusion;

enum { GONE = -1 };

typedef struct {
    int step[MOST_PARTS], n; /* recorded steps */
} sequence;

#define ARGS(f, i) ((f)->p->args + (f)->p->step[i].args)
#define OPERAND(f, i, oper, field)                                                                 \
    dsf_plan_operand(&(f)->p->step[i], offsetof(dsf_##oper##_args, field))

static bool stands(const fusion *f, int i, const dsf_op *op)
{
    return i >= 0 && f->instead[i] == i && f->p->step[i].op == op;
}

/* How often step i reads (or else writes) the bytes of v. */
static int uses(const fusion *f, int i, dsf_val v, bool reads)
{
    const dsf_step *s = &f->p->step[i];
    dsf_direction other = reads ? DSF_OUT : DSF_IN;
    int n = 0;
    for (int k = 0; k < s->op->n_operands; k++)
        n += s->operand[k] != DSF_NO_VAL && s->op->operand[k].dir != other &&
             dsf_plan_base(f->p, s->operand[k]) == dsf_plan_base(f->p, v);
    return n;
}

/* The only step that computes v; GONE: none, or several. */
static int writer(const fusion *f, dsf_val v)
{
    int found = GONE;
    if (v == DSF_NO_VAL) return GONE;
    for (int i = 0; i < f->n_steps; i++) {
        if (!uses(f, i, v, false)) continue;
        if (found >= 0) return GONE;
        found = i;
    }
    return found;
}

static int readers(const fusion *f, dsf_val v)
{
    int n = 0;
    for (int i = 0; i < f->n_steps; i++)
        if (f->instead[i] == i) n += uses(f, i, v, true);
    return n;
}

/* The only step with this operation that reads v; GONE: none, or several. */
static int reader(const fusion *f, dsf_val v, const dsf_op *op)
{
    int found = GONE;
    for (int i = 0; i < f->n_steps; i++) {
        if (!stands(f, i, op) || !uses(f, i, v, true)) continue;
        if (found >= 0) return GONE;
        found = i;
    }
    return found;
}

/* v, computed by step i, is seen by its one reader only. */
static bool between(const fusion *f, int i, dsf_val v)
{
    const dsf_step *s = &f->p->step[i];
    for (int k = 0; k < s->n_taps; k++)
        if (dsf_plan_base(f->p, s->tap[k].value) == dsf_plan_base(f->p, v)) return false;
    return f->p->value[dsf_plan_base(f->p, v)].kind == DSF_VALUE_SCRATCH && readers(f, v) == 1 &&
           !dsf_plan_is_result(f->p, v);
}

/* v has its contents before step i. */
static bool known_before(const fusion *f, dsf_val v, int i)
{
    if (v == DSF_NO_VAL || f->p->value[dsf_plan_base(f->p, v)].kind != DSF_VALUE_SCRATCH)
        return true;
    int w = writer(f, v);
    return w >= 0 && w < i;
}

static dsf_val flat(const fusion *f, dsf_val v)
{
    const dsf_value *from = &f->p->value[v];
    const int64_t d = from->rank == 3 ? from->dim[1] * from->dim[2] : from->dim[1];
    return from->rank == 2 ? v : dsf_plan_view(f->p, v, 2, &d);
}

static dsf_val deep(const fusion *f, dsf_val v)
{
    const dsf_value *from = &f->p->value[v];
    const int64_t tail[2] = {1, from->dim[1]};
    return from->rank == 3 ? v : dsf_plan_view(f->p, v, 3, tail);
}

/* What the target would run s with. */
static const dsf_variant *pick(const fusion *f, const dsf_step *s)
{
    return dsf_plan_pick(s->op, f->p->args + s->args, f->target, f->mask);
}

/* A fused operation is worth a step where the target has a kernel for it; a target with nothing
 * (the references) takes every one. */
static bool target_has(const fusion *f, const dsf_step *s)
{
    const dsf_variant *v = pick(f, s);
    return v && (v != &s->op->variant[0] || f->target == 0);
}

/* The taps of the parts, which are on values that stay. */
static bool move_taps(const fusion *f, const sequence *q, dsf_step *to)
{
    for (int i = 0; i < q->n; i++) {
        const dsf_step *s = &f->p->step[q->step[i]];
        for (int k = 0; k < s->n_taps; k++) {
            if (s->rows != to->rows || to->n_taps == DSF_STEP_TAPS) return false;
            to->tap[to->n_taps++] = s->tap[k];
        }
    }
    return true;
}

/* The step just appended, at the place of step `at`, for those of q; or nothing at all. */
static void put(fusion *f, const sequence *q, int at)
{
    dsf_plan *p = f->p;
    if (p->status != DSF_OK) return;
    dsf_step *s = &p->step[p->n_steps - 1];
    if (!target_has(f, s) || !move_taps(f, q, s)) {
        p->n_steps--;
        return;
    }
    for (int i = 0; i < q->n; i++) f->instead[q->step[i]] = GONE;
    f->instead[at] = p->n_steps - 1;
}

static void step_like(const fusion *f, int i)
{
    f->p->rows_now = f->p->step[i].rows;
    f->p->layer_now = f->p->step[i].layer;
}

/* ---- hc_boundary ----
 * Without its mix: nothing that follows waits for hc_mix before the next boundary, so that it stays
 * a step of its own, which a device runs beside the sublayer. */

typedef struct {
    int sum, expand, collapse, norm, quant; /* sum: GONE when y is no sum */
} boundary;

static bool find_boundary(const fusion *f, int expand, boundary *b)
{
    const dsf_plan *p = f->p;
    dsf_val out = OPERAND(f, expand, hc_expand, out), y = OPERAND(f, expand, hc_expand, y);
    *b = (boundary){.expand = expand};
    b->collapse = reader(f, out, &dsf_op_hc_collapse);
    if (b->collapse < 0) return false;
    dsf_val h = OPERAND(f, b->collapse, hc_collapse, out);
    b->norm = reader(f, h, &dsf_op_rms_norm);
    if (b->norm < 0 || !between(f, b->collapse, h)) return false;
    b->quant = reader(f, OPERAND(f, b->norm, rms_norm, out), &dsf_op_quant_q8);
    if (b->quant < 0) return false;
    b->sum = writer(f, y);
    if (!stands(f, b->sum, &dsf_op_moe_sum) || !between(f, b->sum, y) ||
        p->step[b->sum].rows != p->step[expand].rows)
        b->sum = GONE;
    /* The rows of the expansion hold those of all that follow from it; what weighs the collapse
     * must be there for all of them. */
    dsf_val pre = OPERAND(f, b->collapse, hc_collapse, w);
    int rows = p->value[pre].rows;
    return (rows == p->step[expand].rows || rows == DSF_ROWS_ALL) && known_before(f, pre, expand) &&
           dsf_plan_capacity(p, p->step[b->quant].rows) ==
               dsf_plan_capacity(p, p->step[expand].rows);
}

static void fuse_boundary(fusion *f, int expand)
{
    boundary b;
    dsf_plan *p = f->p;
    if (!stands(f, expand, &dsf_op_hc_expand) || !find_boundary(f, expand, &b)) return;
    const dsf_rms_norm_args *norm = (const void *)ARGS(f, b.norm);
    const dsf_hc_boundary_args a = {.eps = norm->eps};
    dsf_val u = OPERAND(f, b.norm, rms_norm, out), y = OPERAND(f, expand, hc_expand, y);
    if (between(f, b.norm, u)) u = DSF_NO_VAL; /* the quantiser is its one reader */
    step_like(f, expand);
    STEP(p, &dsf_op_hc_boundary, &a, AT(hc_boundary, out, OPERAND(f, expand, hc_expand, out)),
         AT(hc_boundary, uq, flat(f, OPERAND(f, b.quant, quant, out))),
         AT(hc_boundary, x, OPERAND(f, expand, hc_expand, x)),
         AT(hc_boundary, post, OPERAND(f, expand, hc_expand, post)),
         AT(hc_boundary, comb, OPERAND(f, expand, hc_expand, comb)),
         AT(hc_boundary, pre, OPERAND(f, b.collapse, hc_collapse, w)),
         AT(hc_boundary, w, OPERAND(f, b.norm, rms_norm, w)), AT(hc_boundary, u, u),
         AT(hc_boundary, y, b.sum >= 0 ? OPERAND(f, b.sum, moe_sum, shared) : y),
         AT(hc_boundary, parts, b.sum >= 0 ? OPERAND(f, b.sum, moe_sum, y) : DSF_NO_VAL));
    sequence q = {{expand, b.collapse, b.norm, b.quant, b.sum}, b.sum >= 0 ? 5 : 4};
    put(f, &q, expand);
}

/* ---- row_q8, row_q4x ---- */

/* The step with this operation whose result only step i sees, on the same rows; GONE: none. */
static int source(const fusion *f, int i, dsf_val v, const dsf_op *op)
{
    int w = writer(f, v);
    return stands(f, w, op) && between(f, w, v) && f->p->step[w].rows == f->p->step[i].rows ? w
                                                                                            : GONE;
}

static void fuse_record(fusion *f, int quant, const dsf_op *op)
{
    dsf_row_record_args a = {.eps = 0};
    dsf_val out = OPERAND(f, quant, quant, out), x = OPERAND(f, quant, quant, x);
    dsf_val cs = DSF_NO_VAL, w = DSF_NO_VAL;
    sequence q = {{quant}, 1};
    int rope = source(f, quant, x, &dsf_op_rope);
    if (rope >= 0 && !((const dsf_rope_args *)(const void *)ARGS(f, rope))->inverse) {
        x = OPERAND(f, rope, rope, x);
        cs = OPERAND(f, rope, rope, cs);
        q.step[q.n++] = rope;
    }
    int norm = f->p->value[out].dim[1] == 1 ? source(f, quant, x, &dsf_op_rms_norm) : GONE;
    if (norm >= 0) {
        x = OPERAND(f, norm, rms_norm, x);
        w = OPERAND(f, norm, rms_norm, w);
        a.eps = ((const dsf_rms_norm_args *)(const void *)ARGS(f, norm))->eps;
        q.step[q.n++] = norm;
    }
    if (q.n == 1) return;
    step_like(f, quant);
    STEP(f->p, op, &a, AT(row_record, out, out), AT(row_record, x, deep(f, x)),
         AT(row_record, w, w), AT(row_record, cs, cs));
    put(f, &q, quant);
}

/* ---- swiglu_q8 ---- */

static bool fuse_swiglu(fusion *f, int quant)
{
    int up = source(f, quant, OPERAND(f, quant, quant, x), &dsf_op_swiglu);
    if (up < 0) return false;
    dsf_swiglu_q8_args a = {.limit = ((const dsf_swiglu_args *)(const void *)ARGS(f, up))->limit};
    sequence q = {{quant, up}, 2};
    step_like(f, quant);
    STEP(f->p, &dsf_op_swiglu_q8, &a, AT(swiglu_q8, out, flat(f, OPERAND(f, quant, quant, out))),
         AT(swiglu_q8, g, OPERAND(f, up, swiglu, g)), AT(swiglu_q8, v, OPERAND(f, up, swiglu, v)));
    put(f, &q, quant);
    return true;
}

static dsf_status close_ranks(fusion *f)
{
    dsf_plan *p = f->p;
    dsf_step *order = NULL;
    int n = 0;
    DSF_TRY(dsf_mem_new(&order, (size_t)f->n_steps + 1, sizeof *order));
    for (int i = 0; i < f->n_steps; i++)
        if (f->instead[i] != GONE) order[n++] = p->step[f->instead[i]];
    for (int i = 0; i < n; i++) p->step[i] = order[i];
    p->n_steps = n;
    dsf_mem_free(order);
    return DSF_OK;
}

/* ---- pairs: two steps of one layer with nothing in common but their place ---- */

/* The first step that reads v. */
static int first_reader(const fusion *f, dsf_val v)
{
    for (int i = 0; i < f->n_steps; i++)
        if (f->instead[i] == i && uses(f, i, v, true)) return i;
    return f->n_steps;
}

/* The rows of a layer's window keys hold those of its queries: what is computed for more queries
 * than the layer has is never read. */
static bool rows_hold(const fusion *f, int keys, int queries)
{
    const dsf_step *k = &f->p->step[keys], *q = &f->p->step[queries];
    return k->layer == q->layer && k->layer >= 0 && k->rows == DSF_ROWS_KV(k->layer) &&
           q->rows == DSF_ROWS_Q(q->layer);
}

static bool is_key(const fusion *f, int i)
{
    return stands(f, i, &dsf_op_row_q8) && OPERAND(f, i, row_record, w) != DSF_NO_VAL &&
           f->p->value[OPERAND(f, i, row_record, out)].dim[1] == 1;
}

/* Window key i and the q latent of its layer, computed after it. */
static void fuse_records(fusion *f, int i)
{
    if (!is_key(f, i) || OPERAND(f, i, row_record, cs) == DSF_NO_VAL) return;
    int k = i + 1;
    while (k < f->n_steps && !(is_key(f, k) && rows_hold(f, i, k))) k++;
    dsf_val key = OPERAND(f, i, row_record, out);
    if (k == f->n_steps || OPERAND(f, k, row_record, cs) != DSF_NO_VAL || first_reader(f, key) <= k)
        return;
    const dsf_row_record_args *a = (const void *)ARGS(f, i), *b = (const void *)ARGS(f, k);
    dsf_row_pair_args pair = {.eps = a->eps};
    if (a->eps != b->eps) return;
    sequence q = {{i, k}, 2};
    step_like(f, i);
    STEP(f->p, &dsf_op_row_pair, &pair, AT(row_pair, key, flat(f, key)),
         AT(row_pair, latent, flat(f, OPERAND(f, k, row_record, out))),
         AT(row_pair, x, flat(f, OPERAND(f, i, row_record, x))),
         AT(row_pair, w, OPERAND(f, i, row_record, w)),
         AT(row_pair, cs, OPERAND(f, i, row_record, cs)),
         AT(row_pair, r, flat(f, OPERAND(f, k, row_record, x))),
         AT(row_pair, wr, OPERAND(f, k, row_record, w)));
    put(f, &q, k);
}

/* The inverse rotation i of an attention's output and the store of the window keys, after it. */
static void fuse_close(fusion *f, int i)
{
    if (!stands(f, i, &dsf_op_rope)) return;
    dsf_val out = OPERAND(f, i, rope, out);
    int k = i + 1;
    while (k < f->n_steps && !(stands(f, k, &dsf_op_cache_store_q8) && rows_hold(f, k, i))) k++;
    if (k == f->n_steps || !((const dsf_rope_args *)(const void *)ARGS(f, i))->inverse ||
        first_reader(f, out) <= k || f->p->value[out].dim[2] % 8 != 0)
        return;
    dsf_attn_close_args a = {.out = {0}};
    sequence q = {{i, k}, 2};
    step_like(f, k);
    STEP(f->p, &dsf_op_attn_close, &a, AT(attn_close, out, out),
         AT(attn_close, ring, OPERAND(f, k, cache_store, cache)),
         AT(attn_close, o, OPERAND(f, i, rope, x)), AT(attn_close, cs, OPERAND(f, i, rope, cs)),
         AT(attn_close, key, OPERAND(f, k, cache_store, x)),
         AT(attn_close, slot, OPERAND(f, k, cache_store, slot)),
         AT(attn_close, index, OPERAND(f, k, cache_store, index)),
         AT(attn_close, end, OPERAND(f, k, cache_store, end)));
    put(f, &q, k);
}

/* Two products of one x, at the place of the first. A pair is worth it only with a kernel of the
 * kind that its halves have. */
static bool as_good(const fusion *f, const dsf_step *pair, int i)
{
    const dsf_variant *v = pick(f, pair), *old = pick(f, &f->p->step[i]);
    return v && old && strcmp(v->name, old->name) == 0;
}

static void fuse_linears(fusion *f, int i)
{
    if (!stands(f, i, &dsf_op_linear_g8)) return;
    dsf_val x = OPERAND(f, i, linear_g8, x);
    int k = i + 1, rows = f->p->step[i].rows;
    for (; k < f->n_steps; k++) {
        if (!stands(f, k, &dsf_op_linear_g8) || OPERAND(f, k, linear_g8, x) != x) continue;
        if (f->p->step[k].rows == rows || rows_hold(f, i, k)) break;
    }
    if (k == f->n_steps) return;
    const dsf_linear_g8_pair_args a = {.out_a = {0}};
    sequence q = {{i, k}, 2};
    step_like(f, i);
    STEP(f->p, &dsf_op_linear_g8_pair, &a, AT(linear_g8_pair, out_a, OPERAND(f, i, linear_g8, out)),
         AT(linear_g8_pair, out_b, OPERAND(f, k, linear_g8, out)), AT(linear_g8_pair, x, x),
         AT(linear_g8_pair, w_a, OPERAND(f, i, linear_g8, w)),
         AT(linear_g8_pair, s_a, OPERAND(f, i, linear_g8, s)),
         AT(linear_g8_pair, w_b, OPERAND(f, k, linear_g8, w)),
         AT(linear_g8_pair, s_b, OPERAND(f, k, linear_g8, s)));
    if (f->p->status != DSF_OK) return;
    const dsf_step *pair = &f->p->step[f->p->n_steps - 1];
    if (as_good(f, pair, i) && as_good(f, pair, k))
        put(f, &q, i);
    else
        f->p->n_steps--;
}

static void fuse_sequences(fusion *f)
{
    for (int i = 0; i < f->n_steps; i++) fuse_boundary(f, i);
    for (int i = 0; i < f->n_steps; i++) {
        if (stands(f, i, &dsf_op_quant_q8) && !fuse_swiglu(f, i))
            fuse_record(f, i, &dsf_op_row_q8);
        else if (stands(f, i, &dsf_op_quant_q4x))
            fuse_record(f, i, &dsf_op_row_q4x);
    }
}

static void fuse_pairs(fusion *f)
{
    for (int i = 0; i < f->n_steps; i++) {
        fuse_records(f, i);
        fuse_close(f, i);
        fuse_linears(f, i);
    }
}

static dsf_status run(dsf_plan *p, unsigned target, const char *mask, void (*pass)(fusion *f))
{
    fusion f = {.p = p, .target = target, .mask = mask, .n_steps = p->n_steps};
    DSF_TRY(dsf_mem_new(&f.instead, (size_t)f.n_steps + 1, sizeof *f.instead));
    for (int i = 0; i < f.n_steps; i++) f.instead[i] = i;
    pass(&f);
    dsf_status st = p->status == DSF_OK ? close_ranks(&f) : p->status;
    dsf_mem_free(f.instead);
    return st == DSF_OK ? DSF_OK : dsf_error_pass(st, DSF_HERE);
}

dsf_status dsf_plan_fuse(dsf_plan *p, unsigned target, const char *mask)
{
    if (p->status != DSF_OK) return dsf_error_pass(p->status, DSF_HERE);
    int rows = p->rows_now, layer = p->layer_now;
    DSF_TRY(run(p, target, mask, fuse_sequences));
    DSF_TRY(run(p, target, mask, fuse_pairs));
    p->rows_now = rows;
    p->layer_now = layer;
    return DSF_OK;
}
