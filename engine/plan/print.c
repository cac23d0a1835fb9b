#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static void print_rows(dsf_buf *out, int rows)
{
    static const char *const name[] = {"all", "pooled", "pairs", "singles", "head", "context"};
    if (rows < 0)
        dsf_buf_fmt(out, "%-8s", "-");
    else if (rows < DSF_ROWS_LAYER)
        dsf_buf_fmt(out, "%-8s", name[rows]);
    else
        dsf_buf_fmt(out, "%s%-*d", (rows - DSF_ROWS_LAYER) & 1 ? "kv" : "q",
                    (rows - DSF_ROWS_LAYER) & 1 ? 6 : 7, (rows - DSF_ROWS_LAYER) / 2);
}

static void print_value(dsf_buf *out, const dsf_plan *p, dsf_val at)
{
    const dsf_value *v = &p->value[at];
    static const char mark[] = {'%', '<', '!', '#',
                                '@'}; /* scratch, input, given, weights, cache */
    dsf_buf_fmt(out, " %c%s[", mark[v->kind], v->name);
    for (int i = v->rows == DSF_ROWS_NONE ? 0 : 1; i < v->rank; i++)
        dsf_buf_fmt(out, "%s%lld", i > (v->rows == DSF_ROWS_NONE ? 0 : 1) ? "," : "",
                    (long long)v->dim[i]);
    dsf_buf_fmt(out, "]%s", dsf_dtype_name(v->dtype));
    if (v->kind == DSF_VALUE_SCRATCH || v->kind == DSF_VALUE_CACHE)
        dsf_buf_fmt(out, "+%zu",
                    p->value[dsf_plan_base(p, at)].offset); /* a view's are its base's */
}

static void print_tiles(dsf_buf *out, const dsf_plan *p, const dsf_step *s)
{
    char text[96] = "";
    if (s->op->tiles && s->variant) s->op->tiles(s->variant, p->args + s->args, text, sizeof text);
    if (text[0]) dsf_buf_fmt(out, " {%s}", text);
}

static void print_results(dsf_buf *out, const dsf_plan *p, const dsf_step *s)
{
    for (int i = 0; i < DSF_N_RESULTS; i++)
        for (int k = 0; p->result[i] != DSF_NO_VAL && k < s->op->n_operands; k++)
            if (s->operand[k] == p->result[i] && s->op->operand[k].dir != DSF_IN)
                dsf_buf_fmt(out, " =%s", dsf_plan_result_name((dsf_result)i));
}

void dsf_plan_print(const dsf_plan *p, dsf_buf *out)
{
    dsf_buf_fmt(out, "# rows %lld, heads %lld, slots %lld, context %lld, rewind %lld\n",
                (long long)p->size.rows, (long long)p->size.heads, (long long)p->size.slots,
                (long long)p->size.context, (long long)p->size.rewind);
    dsf_buf_fmt(out, "# scratch %zu, caches %zu, inputs %zu, kernel scratch %zu a worker\n",
                p->scratch_bytes, p->cache_bytes, p->input_bytes, p->worker_bytes);
    for (int i = 0; i < p->n_steps; i++) {
        const dsf_step *s = &p->step[i];
        dsf_buf_fmt(out, "%5d L%-3d ", i, s->layer);
        print_rows(out, s->rows);
        dsf_buf_fmt(out, " %-16s %-7s", s->op->name, s->variant ? s->variant->name : "-");
        print_tiles(out, p, s);
        for (int k = 0; k < s->op->n_operands; k++)
            if (s->operand[k] != DSF_NO_VAL) print_value(out, p, s->operand[k]);
        for (int k = 0; k < s->n_taps; k++) {
            char path[64];
            dsf_tap_path(path, s->tap[k].tap, p->n_layers);
            dsf_buf_fmt(out, " ~%s", path);
        }
        print_results(out, p, s);
        dsf_buf_char(out, '\n');
    }
}

void dsf_plan_variants(const dsf_plan *p, dsf_buf *out)
{
    /* Ops in table order, each with the variant of its steps; several when they differ. */
    for (int i = 0; i < dsf_n_ops; i++) {
        const dsf_op *op = dsf_ops[i];
        for (int k = 0; k < op->n_variants; k++) {
            int n = 0;
            for (int s = 0; s < p->n_steps; s++)
                n += p->step[s].op == op && p->step[s].variant == &op->variant[k];
            if (n) dsf_buf_fmt(out, "%s%s:%s", out->len ? " " : "", op->name, op->variant[k].name);
        }
    }
}
