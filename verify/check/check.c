/* One variant over all cases and patterns. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "on_device.h"
#include "run.h"

/* Work is measured by the contract's own count of operations. Above these a case runs fewer
 * patterns, because the reference is scalar code in double; quick runs leave it out. */
static const double heavy = 3e6, very_heavy = 3e7, quick_most = 1e6;

typedef struct {
    const dsf_op *op;
    const dsf_variant *v;
    const dsf_check_options *opt;
    dsf_check_result *result;
    dsf_balance balance;
    int index; /* of the case */
    bool absent;
} job;

static uint64_t seed_of(const job *j, dsf_pattern p)
{
    return j->opt->seed * 0x9E3779B97F4A7C15u + (uint64_t)j->index * 1000003u + (uint64_t)p;
}

static bool has_optional(const dsf_op *op)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i].flags & DSF_OPERAND_OPTIONAL) return true;
    return false;
}

/* Three frames of one case: pristine inputs, the reference's run, the variant's run. */
typedef struct {
    dsf_frame inputs, want, got;
} trio;

static void close_trio(trio *t)
{
    dsf_frame_close(&t->inputs);
    dsf_frame_close(&t->want);
    dsf_frame_close(&t->got);
}

static dsf_status open_trio(trio *t, const job *j)
{
    const dsf_case *c = &j->op->cases[j->index];
    DSF_TRY(dsf_frame_open(&t->inputs, j->op, c, j->absent));
    DSF_TRY(dsf_frame_open(&t->want, j->op, c, j->absent));
    dsf_frame_allow(&t->want, j->v);
    return dsf_frame_open(&t->got, j->op, c, j->absent);
}

static dsf_status try_props(job *j, const trio *t, dsf_pattern p, dsf_finding *f)
{
    dsf_prop_input in = {j->v, &t->inputs, &t->got, j->absent, j->opt->threads, seed_of(j, p)};
    DSF_TRY(dsf_props_repeat(&in, f));
    if (p > DSF_PATTERN_MIXED) return DSF_OK;
    if (f->rule == DSF_RULE_NONE) DSF_TRY(dsf_props_threads(&in, f));
    if (f->rule == DSF_RULE_NONE) DSF_TRY(dsf_props_rows(&in, f));
    if (f->rule == DSF_RULE_NONE) DSF_TRY(dsf_props_alias(&in, f));
    return DSF_OK;
}

static dsf_status try_pattern(job *j, trio *t, dsf_pattern p, dsf_finding *f)
{
    DSF_TRY(dsf_frame_generate(&t->inputs, p, seed_of(j, p)));
    dsf_frame_copy(&t->want, &t->inputs, NULL);
    dsf_frame_copy(&t->got, &t->inputs, NULL);
    DSF_TRY(dsf_run_frame(&j->op->variant[0], &t->want, 0xFF, NULL, f));
    if (f->rule == DSF_RULE_NONE) DSF_TRY(dsf_run_frame(j->v, &t->got, 0xFF, NULL, f));
    for (int i = 0; i < j->op->n_operands && f->rule == DSF_RULE_NONE; i++) {
        if (j->op->operand[i].dir == DSF_IN || dsf_frame_tensor(&t->want, i)->rank == 0) continue;
        if (!dsf_compare_values(&t->got, &t->want, i, &j->result->worst, f)) return DSF_OK;
        if (p <= DSF_PATTERN_UNIFORM) dsf_compare_balance(&t->got, &t->want, i, &j->balance);
    }
    return f->rule == DSF_RULE_NONE ? try_props(j, t, p, f) : DSF_OK;
}

/* Patterns of a case, by what it costs and what is legal. */
static bool wanted(const job *j, double work, dsf_pattern p)
{
    if (p >= DSF_PATTERN_NAN && !(j->op->props & DSF_PROP_NAN)) return false;
    if (p == DSF_PATTERN_NORMAL) return true;
    if (j->absent || work > very_heavy) return false;
    if (work > heavy || j->opt->quick) return p == DSF_PATTERN_MIXED || p >= DSF_PATTERN_EXTREME;
    return true;
}

static dsf_status try_patterns(job *j, trio *t, dsf_finding *f)
{
    double work = 0;
    if (j->op->cost) {
        dsf_cost c = j->op->cost(t->inputs.args);
        work = fmax(c.flops, c.bytes);
    }
    if (j->opt->quick && work > quick_most) return DSF_OK;
    if (j->v->accepts && !j->v->accepts(t->inputs.args)) {
        j->result->refused += !j->absent;
        return DSF_OK;
    }
    j->result->cases += !j->absent;
    for (int p = 0; p < DSF_N_PATTERNS && f->rule == DSF_RULE_NONE; p++) {
        if (!wanted(j, work, (dsf_pattern)p)) continue;
        f->pattern = dsf_pattern_name((dsf_pattern)p);
        DSF_TRY(try_pattern(j, t, (dsf_pattern)p, f));
        f->pattern = dsf_pattern_name((dsf_pattern)p);
    }
    return DSF_OK;
}

static dsf_status try_case(job *j, dsf_finding *f)
{
    trio t = {0};
    dsf_status st = open_trio(&t, j);
    if (st == DSF_OK) st = try_patterns(j, &t, f);
    close_trio(&t);
    f->case_index = j->index;
    return st;
}

static void judge_balance(const job *j, dsf_finding *f)
{
    double z = dsf_balance_z(&j->balance);
    if (fabs(z) <= 10) return;
    *f = (dsf_finding){.rule = DSF_RULE_BIAS, .case_index = -1, .operand = -1, .index = -1};
    f->pattern = "all";
    f->got = z;
    (void)snprintf(f->note, sizeof f->note,
                   "%lld results above the reference's magnitude, %lld below: z %.1f, allowed +-10",
                   (long long)j->balance.above, (long long)j->balance.below, z);
}

dsf_status dsf_check(const dsf_op *op, const dsf_variant *v, const dsf_check_options *opt,
                     dsf_check_result *result)
{
    *result = (dsf_check_result){.finding = {.operand = -1, .index = -1}};
    job j = {.op = op, .v = v, .opt = opt, .result = result};
    dsf_finding *f = &result->finding;
    for (int absent = 0; absent <= has_optional(op); absent++) {
        j.absent = absent != 0;
        for (j.index = 0; j.index < op->n_cases && f->rule == DSF_RULE_NONE; j.index++)
            if (opt->only < 0 || opt->only == j.index) DSF_TRY(try_case(&j, f));
    }
    /* The tensor core cuts its sums towards zero: that is in the bound, and no fault of a variant.
     */
    if (f->rule == DSF_RULE_NONE && !(v->needs & (DSF_FP8_SUM | DSF_BF16_SUM)))
        judge_balance(&j, f);
    return DSF_OK;
}

const char *dsf_check_state(const dsf_variant *v)
{
    if (!v->run) return "not in this build";
    if (v->needs & DSF_NEEDS_SM90) return dsf_on_device() ? NULL : "not on this machine";
    return dsf_variant_runs(v, dsf_machine()) ? NULL : "not on this machine";
}
