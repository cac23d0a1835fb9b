/* Suite ops: what `checkops --quick` asks, one check an operation. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "verify/check/check.h"
#include "verify/check/on_device.h"
#include "verify/suite/unit.h"

int dsf_suite_n_ops(void) { return dsf_n_ops; }
const char *dsf_suite_op_name(int i) { return dsf_ops[i]->name; }

/* A mask like "-avx512:attn" narrows what a model runs on, not what is checked here. */
static void add_line(const dsf_variant *v, const char *state, const dsf_check_result *r, dsf_buf *b)
{
    dsf_buf_fmt(b, "  %-8s %s", v->name, state);
    if (r->cases) dsf_buf_fmt(b, ", %d cases", r->cases);
    if (r->worst > 0) dsf_buf_fmt(b, ", worst %.2f of its allowance", r->worst);
    dsf_buf_char(b, '\n');
}

static void reject(const dsf_op *op, const dsf_variant *v, const dsf_finding *f, dsf_suite_check *c)
{
    char path[96];
    const char *operand = f->operand >= 0 ? op->operand[f->operand].name : "";
    (void)snprintf(path, sizeof path, "%.40s/%.12s/%.30s", op->name, v->name, operand);
    dsf_suite_mark(c, path, f->case_index, f->index, f->want, f->got);
    dsf_suite_say(c,
                  "%s: %s; case %d, pattern %s%s%.160s; repeat: checkops --op %s --variant %s "
                  "--case %d --quick",
                  v->name, dsf_rule_text(f->rule), f->case_index, f->pattern ? f->pattern : "-",
                  f->note[0] ? "; " : "", f->note, op->name, v->name, f->case_index);
}

static const dsf_tol *first_tolerance(const dsf_op *op)
{
    const dsf_tol *t = op->tol;
    int n = 0;
    for (int i = 0; i < op->n_operands; i++) n += op->operand[i].dir != DSF_IN;
    for (int i = 0; i < n; i++)
        if (op->tol[i].rule != DSF_TOL_EXACT) return &op->tol[i];
    return t;
}

static dsf_status check_op(const dsf_suite_unit *u, dsf_suite_check *c)
{
    const dsf_op *op = dsf_ops[u->number];
    const dsf_check_options o = {.seed = 1, .threads = 3, .only = -1, .quick = true};
    double worst = 0;
    int rejected = 0, variants = 0;
    bool device = dsf_plan_on_device(u->o->variants);
    if (device && !dsf_on_device()) DSF_TRY(dsf_on_device_open(0, false));
    for (int i = 0; i < op->n_variants; i++) {
        const dsf_variant *v = &op->variant[i];
        dsf_check_result r = {.cases = 0};
        const char *state = dsf_check_state(v);
        if (!state) {
            state = "ok";
            DSF_TRY(dsf_check(op, v, &o, &r));
        }
        bool bad = r.finding.rule != DSF_RULE_NONE;
        if (bad) state = "REJECTED";
        if (bad && rejected++ == 0) reject(op, v, &r.finding, c);
        variants += r.cases > 0;
        c->compared += r.cases;
        if (r.worst > worst) worst = r.worst;
        add_line(v, state, &r, &c->detail);
    }
    const dsf_tol *t = first_tolerance(op);
    (void)snprintf(c->figure, sizeof c->figure, "largest error in units of its allowance");
    c->value = worst;
    c->limit = t->rule == DSF_TOL_EXACT ? 0 : 1;
    (void)snprintf(c->derivation, sizeof c->derivation, "%s", t->why);
    c->verdict = rejected == 0 && c->compared > 0 ? DSF_PASS : DSF_FAILED;
    if (rejected == 0)
        dsf_suite_say(c, "%d variants on %lld cases against the reference", variants,
                      (long long)c->compared);
    return DSF_OK;
}

void dsf_suite_op(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (check_op(u, check) != DSF_OK) dsf_suite_could_not(check);
}
