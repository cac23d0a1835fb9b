/* checkops: holds every kernel variant that this machine can run to its contract. Plain C, no
 * framework, so that it also runs under sanitizers and on hosts with nothing installed. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "check.h"
#include "device.h"
#include "on_device.h"

enum { GOOD = 0, REJECTED = 1, USAGE = 2, COULD_NOT = 3 };

typedef struct {
    const char *op, *variant;
    bool list, json, apart;
    int device;
    dsf_check_options check;
} options;

static const char help[] =
    "checkops [--list] [--op NAME] [--variant GLOB] [--case K] [--seed N] [--threads N] [--quick]\n"
    "         [--device N] [--apart] [--json]\n"
    "Checks every kernel variant that this machine can run against the reference: values, guards,\n"
    "untouched inputs, repeatability, thread counts, aliasing, row independence, bias of rounding.\n"
    "  --variant G  only variants that match the glob: 'sm90*'\n"
    "  --list       the contracts: cases, variants, tolerances and their derivation\n"
    "  --case K     only this case\n"
    "  --seed N     of the inputs (1)\n"
    "  --threads N  the most threads to try (3)\n"
    "  --quick      few patterns, small cases\n"
    "  --device N   the CUDA device of the sm90 variants (0)\n"
    "  --apart      device operands in allocations of exactly their size: for compute-sanitizer\n"
    "  --json       one JSON line per variant\n"
    "Exit code: 0 all hold, 1 one was rejected, 2 usage, 3 could not check.\n";

static bool parse_number(const char *text, long long least, long long *out)
{
    char *end = NULL;
    *out = text ? strtoll(text, &end, 10) : 0;
    return text && *text && *end == 0 && *out >= least;
}

/* Consumes argv[*i] and its value. */
static bool parse_one(options *o, char **argv, int *i)
{
    const char *name = argv[*i], *value = argv[*i + 1];
    long long n = 0;
    if (strcmp(name, "--list") == 0) return o->list = true;
    if (strcmp(name, "--json") == 0) return o->json = true;
    if (strcmp(name, "--quick") == 0) return o->check.quick = true;
    if (strcmp(name, "--apart") == 0) return o->apart = true;
    *i += 1;
    if (!value) return false;
    if (strcmp(name, "--op") == 0) return (o->op = value) != NULL;
    if (strcmp(name, "--variant") == 0) return (o->variant = value) != NULL;
    if (strcmp(name, "--seed") == 0 && parse_number(value, 0, &n)) {
        o->check.seed = (uint64_t)n;
        return true;
    }
    if (strcmp(name, "--device") == 0 && parse_number(value, 0, &n) && n < 64) {
        o->device = (int)n;
        return true;
    }
    if (strcmp(name, "--case") == 0 && parse_number(value, 0, &n) && n < 1000) {
        o->check.only = (int)n;
        return true;
    }
    if (strcmp(name, "--threads") == 0 && parse_number(value, 1, &n) && n <= 64) {
        o->check.threads = (int)n;
        return true;
    }
    return false;
}

static void print_tolerance(const dsf_op *op)
{
    static const char *const rule[] = {"exact", "ulp", "sum"};
    int n = 0;
    for (int i = 0; i < op->n_operands; i++) {
        if (op->operand[i].dir == DSF_IN) continue;
        const dsf_tol *t = &op->tol[n++];
        printf("    %s %s", op->operand[i].name, rule[t->rule]);
        if (t->rule != DSF_TOL_EXACT) printf("(%g)", t->k);
        printf(": %s\n", t->why);
    }
}

static void print_contract(const dsf_op *op)
{
    printf("%s\n    %d cases of (", op->name, op->n_cases);
    for (const char *c = op->dims; *c; c++) printf("%s%c", c == op->dims ? "" : " ", *c);
    printf("):");
    for (int i = 0; i < op->n_cases; i++) {
        for (size_t d = 0; d < strlen(op->dims); d++)
            printf("%s%lld", d ? "x" : " ", (long long)op->cases[i].v[d]);
    }
    printf("\n");
    print_tolerance(op);
    for (int i = 0; i < op->n_variants; i++)
        printf("    variant %s%s\n", op->variant[i].name,
               op->variant[i].run ? "" : " (not in this build)");
}

static void print_finding(const dsf_op *op, const dsf_variant *v, const dsf_check_options *opt,
                          const dsf_finding *f)
{
    printf("    rule %s: %s\n", dsf_rule_name(f->rule), dsf_rule_text(f->rule));
    if (f->case_index >= 0) {
        printf("    case %d (", f->case_index);
        for (size_t d = 0; d < strlen(op->dims); d++)
            printf("%s%c=%lld", d ? " " : "", op->dims[d],
                   (long long)op->cases[f->case_index].v[d]);
        printf("), pattern %s\n", f->pattern ? f->pattern : "-");
    }
    if (f->operand >= 0) printf("    operand %s", op->operand[f->operand].name);
    if (f->operand >= 0 && f->index >= 0)
        printf(" element %lld: %.9g, expected %.9g, error %.3g, allowed %.3g", (long long)f->index,
               f->got, f->want, f->error, f->allowance);
    if (f->operand >= 0) printf("\n");
    if (f->note[0]) printf("    %s\n", f->note);
    printf("    repeat: checkops --op %s --variant %s --seed %llu", op->name, v->name,
           (unsigned long long)opt->seed);
    if (f->case_index >= 0) printf(" --case %d", f->case_index);
    printf("%s\n", opt->quick ? " --quick" : "");
}

static void print_json(const dsf_op *op, const dsf_variant *v, const char *verdict,
                       const dsf_check_result *r)
{
    dsf_buf b = {0};
    dsf_json_begin(&b, NULL, '{');
    dsf_json_add_cstr(&b, "op", op->name);
    dsf_json_add_cstr(&b, "variant", v->name);
    dsf_json_add_cstr(&b, "verdict", verdict);
    dsf_json_add_int(&b, "cases", r->cases);
    dsf_json_add_num(&b, "worst", r->worst);
    if (r->finding.rule != DSF_RULE_NONE) {
        const dsf_finding *f = &r->finding;
        dsf_json_add_cstr(&b, "rule", dsf_rule_name(f->rule));
        dsf_json_add_int(&b, "case", f->case_index);
        dsf_json_add_cstr(&b, "pattern", f->pattern ? f->pattern : "");
        dsf_json_add_cstr(&b, "operand", f->operand >= 0 ? op->operand[f->operand].name : "");
        dsf_json_add_int(&b, "index", f->index);
        dsf_json_add_num(&b, "got", f->got);
        dsf_json_add_num(&b, "want", f->want);
        dsf_json_add_num(&b, "error", f->error);
        dsf_json_add_num(&b, "allowance", f->allowance);
        dsf_json_add_cstr(&b, "note", f->note);
    }
    dsf_json_end(&b, '}');
    if (dsf_buf_status(&b) == DSF_OK) printf("%s\n", b.data);
    dsf_buf_free(&b);
}

static void print_line(const dsf_op *op, const dsf_variant *v, const char *verdict,
                       const dsf_check_result *r)
{
    printf("%s %s %s", op->name, v->name, verdict);
    if (r->cases > 0) printf(" %d cases", r->cases);
    if (r->refused > 0) printf(" (%d outside its range)", r->refused);
    if (r->worst > 0) printf(" worst %.2f of allowance", r->worst);
    printf("\n");
}

static int check_one(const dsf_op *op, const dsf_variant *v, const options *o)
{
    dsf_check_result r = {0};
    const char *verdict = dsf_check_state(v);
    if (verdict) {
        if (o->json)
            print_json(op, v, verdict, &r);
        else
            print_line(op, v, verdict, &r);
        return GOOD;
    }
    verdict = "ok";
    if (dsf_check(op, v, &o->check, &r) != DSF_OK) {
        fprintf(stderr, "checkops: %s %s: %s\n", op->name, v->name, dsf_error_text());
        return COULD_NOT;
    } else if (r.cases == 0)
        verdict = "not checked: no case in range";
    if (r.finding.rule != DSF_RULE_NONE) verdict = "REJECTED";
    if (o->json) {
        print_json(op, v, verdict, &r);
    } else {
        print_line(op, v, verdict, &r);
        if (r.finding.rule != DSF_RULE_NONE) print_finding(op, v, &o->check, &r.finding);
    }
    (void)fflush(stdout);
    return r.finding.rule != DSF_RULE_NONE ? REJECTED : GOOD;
}

static int check_all(const options *o)
{
    int worst = GOOD, seen = 0;
    for (int i = 0; i < dsf_n_ops; i++) {
        const dsf_op *op = dsf_ops[i];
        if (o->op && strcmp(op->name, o->op) != 0) continue;
        if (o->check.only >= op->n_cases) continue;
        if (o->list) print_contract(op);
        for (int j = 0; j < op->n_variants; j++) {
            if (o->variant && fnmatch(o->variant, op->variant[j].name, 0) != 0) continue;
            seen++;
            int code = o->list ? GOOD : check_one(op, &op->variant[j], o);
            if (code > worst) worst = code;
        }
    }
    if (seen > 0) return worst;
    fprintf(stderr, "checkops: no op %s with variant %s and that case; --list shows them\n",
            o->op ? o->op : "(any)", o->variant ? o->variant : "(any)");
    return USAGE;
}

int main(int argc, char **argv)
{
    options o = {.check = {.seed = 1, .threads = 3, .only = -1}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            (void)fputs(help, stdout);
            return GOOD;
        }
        if (!parse_one(&o, argv, &i)) {
            (void)fputs(help, stderr);
            return USAGE;
        }
    }
    if (!o.list && dsf_device_count(NULL) > 0 && dsf_on_device_open(o.device, o.apart) != DSF_OK) {
        fprintf(stderr, "checkops: %s\n", dsf_error_message());
        return COULD_NOT;
    }
    int code = check_all(&o);
    dsf_on_device_close();
    return code;
}
