#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "ops/index.h"

dsf_division_part *dsf_division_of(dsf_division *d, const dsf_step *s)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->part[i].op, s->op->name) == 0 &&
            strcmp(d->part[i].variant, s->variant->name) == 0)
            return &d->part[i];
    if (d->n == DSF_DIVISION_ROWS) return &d->part[d->n - 1];
    d->part[d->n] = (dsf_division_part){.op = s->op->name, .variant = s->variant->name};
    return &d->part[d->n++];
}

void dsf_division_reset(dsf_engine *e)
{
    memset(e->exec.step_ns, 0, (size_t)e->plan->n_steps * sizeof *e->exec.step_ns);
}

dsf_cost dsf_division_cost(const dsf_plan *p, const dsf_step *s, int64_t positions)
{
    union {
        uint8_t bytes[2048];
        dsf_index_topk_args index;
        dsf_tensor align;
    } args;
    if (!s->op->cost || s->op->args_size > sizeof args) return (dsf_cost){0, 0};
    memcpy(args.bytes, p->args + s->args, s->op->args_size);
    for (int k = 0; k < s->op->n_operands; k++) dsf_op_operand(s->op, &args, k)->data = NULL;
    if (positions > 0 && s->op == &dsf_op_index_topk) {
        int64_t visible = positions / args.index.ratio, *entries = &args.index.keys.dim[1];
        *entries = visible < *entries ? visible : *entries;
    }
    return s->op->cost(&args);
}

void dsf_division_add(dsf_division *d, dsf_engine *e, double wall_ns)
{
    for (int i = 0; i < e->plan->n_steps; i++) {
        const dsf_step *s = &e->plan->step[i];
        if (e->exec.step_ns[i] == 0) continue; /* no rows in this pass */
        dsf_division_part *p = dsf_division_of(d, s);
        dsf_cost c = dsf_division_cost(e->plan, s, 0);
        p->ns += (double)e->exec.step_ns[i];
        p->bytes += c.bytes;
        p->flops += c.flops;
        p->steps++;
        d->bytes += c.bytes;
        d->flops += c.flops;
    }
    d->passes++;
    d->wall_ns += wall_ns;
    dsf_division_reset(e);
}

static double sum_ns(const dsf_division *d)
{
    double sum = 0;
    for (int i = 0; i < d->n; i++) sum += d->part[i].ns;
    return sum;
}

double dsf_division_outside(const dsf_division *d)
{
    return d->wall_ns > 0 ? 100 * (d->wall_ns - sum_ns(d)) / d->wall_ns : 0;
}

bool dsf_division_lacks(const dsf_division *d, dsf_buf *text)
{
    static const double most_percent = 5, pass_ns = 1e5;
    double ns = d->passes ? (d->wall_ns - sum_ns(d)) / (double)d->passes : 0;
    if (dsf_division_outside(d) <= most_percent || ns <= pass_ns) return false;
    dsf_buf_fmt(
        text,
        "\n  MISSED: %.1f%% of a pass, %.2f ms, lies outside the operations; at most %.0f%% "
        "or %.1f ms",
        dsf_division_outside(d), 1e-6 * ns, most_percent, 1e-6 * pass_ns);
    return true;
}

static int longest_first(const void *a, const void *b)
{
    const dsf_division_part *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

void dsf_division_sort(dsf_division *d)
{
    qsort(d->part, (size_t)d->n, sizeof *d->part, longest_first);
}

static double percent_of_limit(const dsf_division_part *p, const dsf_limits *l)
{
    if (!l) return NAN;
    double read = dsf_samples_median(&l->read);
    double peak = fmax(dsf_samples_median(&l->bf16), dsf_samples_median(&l->f32));
    double least = fmax(read > 0 ? p->bytes / read : 0, peak > 0 ? p->flops / peak : 0);
    return p->ns > 0 ? 1e11 * least / p->ns : 0;
}

void dsf_division_json(const dsf_division *d, const dsf_limits *l, double tokens, dsf_buf *json)
{
    dsf_division sorted = *d;
    dsf_division_sort(&sorted);
    dsf_json_begin(json, "step", '[');
    for (int i = 0; i < sorted.n; i++) {
        const dsf_division_part *p = &sorted.part[i];
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_cstr(json, "op", p->op);
        dsf_json_add_cstr(json, "variant", p->variant);
        dsf_json_add_num(json, "runs", p->steps / (double)d->passes);
        dsf_json_add_num(json, "ns_per_token", p->ns / tokens);
        dsf_json_add_num(json, "percent_of_step", 100 * p->ns / d->wall_ns);
        dsf_json_add_num(json, "bytes_per_token", p->bytes / tokens);
        dsf_json_add_num(json, "flops_per_token", p->flops / tokens);
        dsf_json_add_num(json, "percent_of_limit", percent_of_limit(p, l));
        dsf_json_end(json, '}');
    }
    dsf_json_end(json, ']');
    dsf_json_add_num(json, "outside_steps_percent", dsf_division_outside(d));
}

void dsf_division_text(const dsf_division *d, const dsf_limits *l, double tokens, dsf_buf *text)
{
    dsf_division sorted = *d;
    dsf_division_sort(&sorted);
    dsf_buf_fmt(text, "\n  %-18s %-7s %6s %12s %7s%s", "operation", "variant", "runs", "us/token",
                "share", l ? "  of limit" : "");
    for (int i = 0; i < sorted.n; i++) {
        const dsf_division_part *p = &sorted.part[i];
        dsf_buf_fmt(text, "\n  %-18s %-7s %6.1f %12.2f %6.1f%%", p->op, p->variant,
                    p->steps / (double)d->passes, p->ns / tokens * 1e-3, 100 * p->ns / d->wall_ns);
        if (l) dsf_buf_fmt(text, " %8.1f%%", percent_of_limit(p, l));
    }
    dsf_buf_fmt(text, "\n  %-26s %6s %12.2f %6.1f%%", "outside the steps", "",
                (d->wall_ns - sum_ns(d)) / tokens * 1e-3, dsf_division_outside(d));
}
