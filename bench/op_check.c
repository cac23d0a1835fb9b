/* Parity of one device run at the model's shapes: rows of the output, recomputed another way. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "device_bench.h"
#include "run.h"

enum { FEW = 3 };
/* The reference is scalar code in double: no more than a second of it. */
static const double most_ref_flops = 3e7, most_ref_bytes = 96e6;

/* Between two variants: both round the same sum, computed in f32 in another order or in the fp8
 * units' precision, to bf16. Elements next to a rounding boundary land one step apart, which is
 * 2^-8 of the element; if all did, the relative L2 would be 2^-8. One element may not stand out. */
static const double most_l2 = 0x1p-8, most_of_rms = 0x1p-4, most_of_element = 0x1p-5;

typedef struct {
    dsf_bench_device *d;
    const dsf_variant *v;
    dsf_device_frame *f;
    dsf_device_check *c;
    int64_t n, few, row[FEW];
    const int64_t *rows; /* NULL: all */
    dsf_frame got, want; /* of `few` rows, host */
} job;

const dsf_variant *dsf_bench_device_variant(const dsf_op *op, const void *args, bool simplest)
{
    const dsf_variant *best = NULL;
    for (int i = 1; i < op->n_variants && !(best && simplest); i++) {
        const dsf_variant *v = &op->variant[i];
        if (dsf_variant_runs(v, DSF_NEEDS_SM90) && (!v->accepts || v->accepts(args))) best = v;
    }
    return best;
}

dsf_status dsf_bench_device_launch(dsf_bench_device *d, const dsf_variant *v,
                                   const dsf_device_frame *f, void *scratch)
{
    const dsf_launch lc = {.scratch = scratch,
                           .scratch_bytes = v->scratch ? v->scratch(f->args) : 0,
                           .stream = dsf_device_stream(d->device)};
    return v->run(&lc, f->args);
}

/* One run on poisoned outputs, rows of which come back into `to`. */
static dsf_status run(job *j, const dsf_variant *v, dsf_device_frame *f, const int64_t *rows,
                      dsf_frame *to)
{
    void *scratch = NULL;
    size_t bytes = v->scratch ? v->scratch(f->args) : 0;
    DSF_TRY(dsf_device_new(j->d->device, &scratch, bytes));
    dsf_status st = dsf_device_frame_poison(f, 0xFF);
    if (st == DSF_OK) st = dsf_bench_device_launch(j->d, v, f, scratch);
    if (st == DSF_OK) st = dsf_device_wait(j->d->device);
    dsf_device_free(j->d->device, scratch);
    return st == DSF_OK ? dsf_device_frame_get(f, to, rows, false) : st;
}

static void blame(job *j, int operand, int64_t index, const char *what, const char *against)
{
    const dsf_tensor *g = dsf_frame_tensor(&j->got, operand);
    const dsf_tensor *w = dsf_frame_tensor(&j->want, operand);
    (void)snprintf(j->c->why, sizeof j->c->why, "%s: %s[%lld] of rows %lld.. is %.9g, %s has %.9g",
                   what, j->got.op->operand[operand].name, (long long)index, (long long)j->row[0],
                   dsf_compare_element(g, index), against, dsf_compare_element(w, index));
}

/* The rows alone: the same bits, or the row depends on its neighbours. */
static dsf_status check_law(job *j, dsf_device_frame *few)
{
    const dsf_op *op = j->got.op;
    DSF_TRY(run(j, j->v, few, NULL, &j->want));
    for (int i = 0; i < op->n_operands && !j->c->why[0]; i++) {
        const dsf_tensor *g = dsf_frame_tensor(&j->got, i);
        if (op->operand[i].dir == DSF_IN || g->rank == 0) continue;
        int64_t at = dsf_compare_bits(g, 0, dsf_frame_tensor(&j->want, i), 0, g->dim[0]);
        if (at >= 0) blame(j, i, at, "a row depends on its neighbours or their number", "alone it");
    }
    j->c->law = !j->c->why[0];
    return DSF_OK;
}

typedef struct {
    double error, power, worst;
    int64_t unequal, n, at; /* at: the worst element, or one that is no number */
} sums;

static sums add_up(const dsf_tensor *g, const dsf_tensor *w)
{
    sums s = {.n = dsf_compare_width(g) * g->dim[0]};
    for (int64_t i = 0; i < s.n; i++) {
        double x = dsf_compare_element(g, i), y = dsf_compare_element(w, i);
        s.unequal += !(x == y || (isnan(x) && isnan(y)));
        s.power += isnan(y) ? 0 : y * y;
        s.error += (x - y) * (x - y);
    }
    double rms = sqrt(s.power / (double)(s.n ? s.n : 1));
    for (int64_t i = 0; i < s.n; i++) {
        double x = dsf_compare_element(g, i), y = dsf_compare_element(w, i);
        double part = fabs(x - y) / (most_of_rms * rms + most_of_element * fabs(y) + 0x1p-126);
        if (part <= s.worst) continue;
        s.worst = isnan(part) ? INFINITY : part;
        s.at = i;
    }
    return s;
}

static void compare_loosely(job *j, int operand)
{
    const dsf_tensor *g = dsf_frame_tensor(&j->got, operand);
    const dsf_tensor *w = dsf_frame_tensor(&j->want, operand);
    if (dsf_compare_tol(j->got.op, operand)->rule == DSF_TOL_EXACT) {
        int64_t at = dsf_compare_bits(g, 0, w, 0, g->dim[0]);
        if (at >= 0) blame(j, operand, at, "not the same bits", j->c->against);
        return;
    }
    sums s = add_up(g, w);
    double l2 = sqrt(s.error / (s.power > 0 ? s.power : 1));
    j->c->l2 = fmax(j->c->l2, isnan(l2) ? INFINITY : l2);
    j->c->unequal = fmax(j->c->unequal, (double)s.unequal / (double)(s.n ? s.n : 1));
    if (s.worst > 1) blame(j, operand, s.at, "an element is far off", j->c->against);
    if (!(l2 <= most_l2) && !j->c->why[0])
        (void)snprintf(j->c->why, sizeof j->c->why, "%s: relative L2 to %s is %.3g, allowed %.3g",
                       j->got.op->operand[operand].name, j->c->against, l2, most_l2);
}

/* few: the frame of the rows, or the whole one. */
static dsf_status check_variant(job *j, dsf_device_frame *few)
{
    const dsf_op *op = j->got.op;
    const dsf_variant *simple = dsf_bench_device_variant(op, few->args, true);
    if (!simple || simple == j->v) return DSF_OK;
    j->c->against = simple->name;
    DSF_TRY(run(j, simple, few, NULL, &j->want));
    for (int i = 0; i < op->n_operands && !j->c->why[0]; i++)
        if (op->operand[i].dir != DSF_IN && dsf_frame_tensor(&j->got, i)->rank > 0)
            compare_loosely(j, i);
    return DSF_OK;
}

static dsf_status check_ref(job *j, dsf_frame *inputs)
{
    const dsf_op *op = j->got.op;
    dsf_finding finding = {.operand = -1, .index = -1};
    j->c->against = "ref";
    dsf_frame_copy(&j->want, inputs, NULL);
    dsf_frame_allow(&j->want, j->v);
    DSF_TRY(dsf_run_frame(&op->variant[0], &j->want, 0xFF, j->d->b->pool, &finding));
    for (int i = 0; i < op->n_operands && finding.rule == DSF_RULE_NONE; i++)
        if (op->operand[i].dir != DSF_IN && dsf_frame_tensor(&j->got, i)->rank > 0)
            (void)dsf_compare_values(&j->got, &j->want, i, &j->c->worst, &finding);
    if (finding.rule == DSF_RULE_NONE) return DSF_OK;
    if (finding.operand >= 0 && finding.index >= 0)
        blame(j, finding.operand, finding.index, dsf_rule_text(finding.rule), "ref");
    else
        (void)snprintf(j->c->why, sizeof j->c->why, "%s", dsf_rule_text(finding.rule));
    return DSF_OK;
}

/* Some rows can stand for all: every output has rows, and each is its own. */
static bool rows_stand_alone(const dsf_device_frame *f)
{
    const dsf_op *op = f->host.op;
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i].dir != DSF_IN && !dsf_frame_has_rows(&f->host, i) &&
            dsf_frame_tensor(&f->host, i)->rank > 0)
            return false;
    return (op->props & DSF_PROP_ROWS) != 0;
}

/* Inputs of the rows on the host, before an output overwrites one. */
static dsf_status open_inputs(job *j, dsf_frame *inputs)
{
    DSF_TRY(dsf_frame_open(inputs, j->f->host.op, &j->got.sizes, false));
    return dsf_device_frame_get(j->f, inputs, j->rows, true);
}

static bool ref_is_cheap(const job *j)
{
    const dsf_op *op = j->f->host.op;
    double bytes = 0, flops = op->cost(j->f->host.args).flops;
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i].dtype == DSF_I64) return false; /* tables of addresses over there */
    for (int i = 0; i < op->n_operands; i++) bytes += (double)j->want.region[i].bytes;
    return bytes <= most_ref_bytes && flops * (double)j->few / (double)j->n <= most_ref_flops;
}

static dsf_status check_all(job *j, dsf_frame *inputs, dsf_device_frame *few)
{
    bool ref = ref_is_cheap(j);
    if (ref) DSF_TRY(open_inputs(j, inputs));
    if (j->rows) DSF_TRY(dsf_device_frame_rows(few, j->f, j->rows, j->few));
    DSF_TRY(run(j, j->v, j->f, j->rows, &j->got));
    DSF_TRY(dsf_bench_device_model(j->d, j->v, j->f, &j->got, j->rows, j->c));
    if (j->rows) DSF_TRY(check_law(j, few));
    if (j->c->why[0]) return DSF_OK;
    if (ref) return check_ref(j, inputs);
    return check_variant(j, j->rows ? few : j->f);
}

dsf_status dsf_bench_device_check(dsf_bench_device *d, const dsf_variant *v, dsf_device_frame *f,
                                  dsf_device_check *c)
{
    job j = {.d = d, .v = v, .f = f, .c = c, .n = f->host.sizes.v[0]};
    dsf_frame inputs = {.op = NULL};
    dsf_device_frame few = {.device = NULL};
    dsf_case sizes = f->host.sizes;
    bool some = rows_stand_alone(f) && j.n > FEW;
    j.few = some ? FEW : j.n;
    for (int64_t i = 0; some && i < FEW; i++) j.row[i] = i * (j.n - 1) / (FEW - 1);
    j.rows = some ? j.row : NULL;
    sizes.v[0] = j.few;
    *c = (dsf_device_check){.rows = j.few};
    dsf_status st = dsf_frame_open(&j.got, f->host.op, &sizes, false);
    if (st == DSF_OK) st = dsf_frame_open(&j.want, f->host.op, &sizes, false);
    if (st == DSF_OK) st = check_all(&j, &inputs, &few);
    dsf_device_frame_close(&few);
    if (inputs.op) dsf_frame_close(&inputs);
    if (j.got.op) dsf_frame_close(&j.got);
    if (j.want.op) dsf_frame_close(&j.want);
    return st;
}
