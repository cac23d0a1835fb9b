/* Properties that need no reference: other addresses, threads, places and neighbours must give the
 * same bits. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "compare.h"
#include "ops/fill.h"
#include "run.h"

enum { POISON_A = 0xFF, POISON_B = 0x5A };

static bool is_output(const dsf_frame *f, int i)
{
    return f->op->operand[i].dir != DSF_IN && dsf_frame_tensor(f, i)->rank > 0;
}

/* Element ia of output a against element ib of output b. */
static void differ(dsf_finding *f, const dsf_tensor *a, int64_t ia, const dsf_tensor *b, int64_t ib)
{
    f->index = ia;
    f->got = dsf_compare_element(a, ia);
    f->want = dsf_compare_element(b, ib);
}

/* All outputs of a against those of b. */
static bool same_outputs(const dsf_frame *a, const dsf_frame *b, dsf_rule rule, dsf_finding *f)
{
    for (int i = 0; i < a->op->n_operands; i++) {
        const dsf_tensor *ta = dsf_frame_tensor(a, i), *tb = dsf_frame_tensor(b, i);
        if (!is_output(a, i)) continue;
        int64_t at = dsf_compare_bits(ta, 0, tb, 0, ta->dim[0]);
        if (at < 0) continue;
        f->rule = rule;
        f->operand = i;
        differ(f, ta, at, tb, at);
        return false;
    }
    return true;
}

/* The element that differs still holds both poisons. */
static bool is_unwritten(const dsf_frame *base, const dsf_frame *again, const dsf_finding *f)
{
    const dsf_region *a = &base->region[f->operand], *b = &again->region[f->operand];
    int64_t count = dsf_tensor_count(dsf_frame_tensor(base, f->operand));
    size_t width = a->bytes / (size_t)count;
    if (width == 0) width = 1; /* records: by byte */
    for (size_t i = (size_t)f->index * width; i < ((size_t)f->index + 1) * width; i++)
        if (a->data[i] != POISON_A || b->data[i] != POISON_B) return false;
    return true;
}

dsf_status dsf_props_repeat(const dsf_prop_input *in, dsf_finding *f)
{
    dsf_frame w;
    DSF_TRY(dsf_frame_open(&w, in->base->op, &in->base->sizes, in->absent));
    dsf_frame_place(&w, DSF_AT_END);
    dsf_frame_copy(&w, in->inputs, NULL);
    dsf_status st = dsf_run_frame(in->v, &w, POISON_B, NULL, f);
    if (st == DSF_OK && f->rule == DSF_RULE_NONE &&
        !same_outputs(&w, in->base, DSF_RULE_REPEAT, f)) {
        bool output = in->base->op->operand[f->operand].dir == DSF_OUT;
        if (output && is_unwritten(in->base, &w, f)) f->rule = DSF_RULE_UNWRITTEN;
    }
    dsf_frame_close(&w);
    return st;
}

static dsf_status run_threads(const dsf_prop_input *in, dsf_frame *w, int threads, dsf_finding *f)
{
    dsf_pool *pool = NULL;
    DSF_TRY(dsf_pool_open(&pool, threads));
    dsf_frame_copy(w, in->inputs, NULL);
    dsf_status st = dsf_run_frame(in->v, w, POISON_A, pool, f);
    dsf_pool_close(pool);
    if (st == DSF_OK && f->rule == DSF_RULE_NONE && !same_outputs(w, in->base, DSF_RULE_THREADS, f))
        (void)snprintf(f->note, sizeof f->note, "%d threads against 1", threads);
    return st;
}

dsf_status dsf_props_threads(const dsf_prop_input *in, dsf_finding *f)
{
    dsf_frame w;
    dsf_status st = DSF_OK;
    if (in->v->needs & DSF_NEEDS_SM90) return DSF_OK; /* a device has none */
    DSF_TRY(dsf_frame_open(&w, in->base->op, &in->base->sizes, in->absent));
    for (int t = 2; t <= in->threads && st == DSF_OK && f->rule == DSF_RULE_NONE; t++)
        st = run_threads(in, &w, t, f);
    dsf_frame_close(&w);
    return st;
}

/* The first operand of a direction. */
static int first_operand(const dsf_op *op, dsf_direction dir)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i].dir == dir) return i;
    return -1;
}

dsf_status dsf_props_alias(const dsf_prop_input *in, dsf_finding *f)
{
    const dsf_op *op = in->base->op;
    int out = first_operand(op, DSF_OUT), x = first_operand(op, DSF_IN);
    if (!(op->props & DSF_PROP_ALIAS) || out < 0 || x < 0) return DSF_OK;
    dsf_frame w;
    DSF_TRY(dsf_frame_open(&w, op, &in->base->sizes, in->absent));
    dsf_frame_copy(&w, in->inputs, NULL);
    dsf_tensor *tx = dsf_frame_tensor(&w, x), *to = dsf_frame_tensor(&w, out);
    if (w.region[x].bytes != w.region[out].bytes) {
        dsf_frame_close(&w);
        return DSF_FAIL(DSF_EINVAL, "%s: %s may be %s by its contract, but %zu and %zu bytes",
                        op->name, op->operand[out].name, op->operand[x].name, w.region[out].bytes,
                        w.region[x].bytes);
    }
    to->data = tx->data;
    w.replaced = x;
    dsf_status st = dsf_run_frame(in->v, &w, POISON_A, NULL, f);
    if (st == DSF_OK && f->rule == DSF_RULE_NONE)
        (void)same_outputs(&w, in->base, DSF_RULE_ALIAS, f);
    dsf_frame_close(&w);
    return st;
}

/* Runs m chosen rows of base as a batch of their own; each must come out as it did in base. */
static dsf_status try_rows(const dsf_prop_input *in, const int64_t *rows, int64_t m, dsf_finding *f)
{
    const dsf_op *op = in->base->op;
    dsf_case sizes = in->base->sizes;
    dsf_frame w;
    sizes.v[strchr(op->dims, 'n') - op->dims] = m;
    DSF_TRY(dsf_frame_open(&w, op, &sizes, in->absent));
    dsf_frame_place(&w, DSF_AT_END);
    dsf_frame_copy(&w, in->inputs, rows);
    dsf_status st = dsf_run_frame(in->v, &w, POISON_B, NULL, f);
    for (int i = 0; i < op->n_operands && st == DSF_OK && f->rule == DSF_RULE_NONE; i++) {
        const dsf_tensor *got = dsf_frame_tensor(&w, i), *want = dsf_frame_tensor(in->base, i);
        if (!is_output(&w, i) || !dsf_frame_has_rows(&w, i)) continue;
        for (int64_t r = 0; r < m && f->rule == DSF_RULE_NONE; r++) {
            int64_t at = dsf_compare_bits(want, rows[r], got, r, 1);
            if (at < 0) continue;
            int64_t width = dsf_compare_width(want);
            f->rule = DSF_RULE_ROWS;
            f->operand = i;
            differ(f, want, at, got, at + (r - rows[r]) * width);
            (void)snprintf(f->note, sizeof f->note,
                           "row %lld of %lld against the same row as %lld of %lld",
                           (long long)rows[r], (long long)want->dim[0], (long long)r, (long long)m);
        }
    }
    dsf_frame_close(&w);
    return st;
}

static void shuffle(int64_t *rows, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) rows[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = dsf_fill_below(&seed, i + 1), t = rows[i];
        rows[i] = rows[j];
        rows[j] = t;
    }
}

enum { ALONE = 3 };

/* All rows in another order; then fewer of them (other remainders of a register tile); then some
 * alone. */
dsf_status dsf_props_rows(const dsf_prop_input *in, dsf_finding *f)
{
    const dsf_op *op = in->base->op;
    const char *letter = strchr(op->dims, 'n');
    if (!(op->props & DSF_PROP_ROWS) || !letter) return DSF_OK;
    int64_t n = in->base->sizes.v[letter - op->dims], *rows = NULL;
    if (n < 2) return DSF_OK;
    DSF_TRY(dsf_mem_new(&rows, (size_t)n, sizeof *rows));
    shuffle(rows, n, in->seed);
    dsf_status st = try_rows(in, rows, n, f);
    for (int64_t m = n - 1; m > 1 && m > n - 4 && st == DSF_OK && f->rule == DSF_RULE_NONE; m--)
        st = try_rows(in, rows, m, f);
    for (int64_t i = 0; i < n && i < ALONE && st == DSF_OK && f->rule == DSF_RULE_NONE; i++)
        st = try_rows(in, rows + i, 1, f);
    dsf_mem_free(rows);
    return st;
}
