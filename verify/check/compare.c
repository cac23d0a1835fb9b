#include "compare.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

const char *dsf_rule_text(dsf_rule r)
{
    static const char *const text[] = {
#define X(id, words) words,
        DSF_RULE_MAP(X)
#undef X
    };
    return text[r];
}

const char *dsf_rule_name(dsf_rule r)
{
    static const char *const name[] = {
#define X(id, words) #id,
        DSF_RULE_MAP(X)
#undef X
    };
    return name[r];
}

const dsf_tol *dsf_compare_tol(const dsf_op *op, int operand)
{
    int n = 0;
    for (int i = 0; i < operand; i++) n += op->operand[i].dir != DSF_IN;
    return &op->tol[n];
}

/* Bytes of one comparable element: records and codes go byte by byte. */
static int element_bytes(dsf_dtype t)
{
    switch (t) {
    case DSF_F32:
    case DSF_I32:
        return 4;
    case DSF_I64:
        return 8;
    case DSF_BF16:
        return 2;
    default:
        return 1;
    }
}

double dsf_compare_element(const dsf_tensor *t, int64_t index)
{
    const uint8_t *p = (const uint8_t *)t->data + index * element_bytes(t->dtype);
    switch (t->dtype) {
    case DSF_F32:
        return (double)*(const float *)p;
    case DSF_BF16:
        return (double)dsf_bf16_to_f32(*(const uint16_t *)p);
    case DSF_I32:
        return *(const int32_t *)p;
    case DSF_I64:
        return (double)*(const int64_t *)p;
    default:
        return *p;
    }
}

static bool is_float(dsf_dtype t) { return t == DSF_F32 || t == DSF_BF16; }

static bool same_bits(const dsf_tensor *a, int64_t i, const dsf_tensor *b, int64_t j)
{
    int n = element_bytes(a->dtype);
    if (memcmp((const uint8_t *)a->data + i * n, (const uint8_t *)b->data + j * n, (size_t)n) == 0)
        return true;
    return is_float(a->dtype) && isnan(dsf_compare_element(a, i)) &&
           isnan(dsf_compare_element(b, j));
}

int64_t dsf_compare_width(const dsf_tensor *t)
{
    return dsf_tensor_stride(t) / element_bytes(t->dtype);
}

int64_t dsf_compare_bits(const dsf_tensor *a, int64_t from_a, const dsf_tensor *b, int64_t from_b,
                         int64_t n)
{
    int64_t stride = dsf_tensor_stride(a), width = dsf_compare_width(a);
    const uint8_t *pa = (const uint8_t *)a->data + from_a * stride;
    const uint8_t *pb = (const uint8_t *)b->data + from_b * stride;
    if (memcmp(pa, pb, (size_t)(n * stride)) == 0) return -1;
    for (int64_t i = 0; i < n * width; i++)
        if (!same_bits(a, from_a * width + i, b, from_b * width + i)) return from_a * width + i;
    return -1;
}

/* Distance between neighbours of the type at x. */
static double ulp_at(dsf_dtype t, double x)
{
    int exponent = -126;
    if (fabs(x) >= 0x1p-126) exponent = ilogb(x);
    return ldexp(1.0, exponent - (t == DSF_BF16 ? 7 : 23));
}

/* Place of x on the ladder of its type, the two zeros together. */
static int64_t rung(dsf_dtype t, double x)
{
    int64_t bits = dsf_f32_bits((float)fabs(x));
    if (t == DSF_BF16) bits >>= 16;
    return x < 0 ? -bits : bits;
}

static bool same_class(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return true;
}

/* Partial sums may pass through infinity in one order and not in another: nothing is asserted of a
 * finite sum whose terms together exceed f32. */
static bool beyond_f32(double bound) { return isfinite(bound) && bound >= 0x1p127; }

/* Elements within one ulp of an output that get their bound all the same, for the report. */
enum { NEAR_REPORTED = 100 };

/* Error in units of allowance by DSF_TOL_SUM; sets f's numbers. */
static double judge_sum(const dsf_frame *want, int operand, int64_t i, int *reported,
                        dsf_finding *f)
{
    const dsf_tol *tol = dsf_compare_tol(want->op, operand);
    double ulp = ulp_at(want->op->operand[operand].dtype, f->want);
    /* The bound only adds to the allowance, and may cost as much as the operation. */
    if (f->error <= ulp && ++*reported > NEAR_REPORTED) return 0;
    double bound = want->op->bound(want->args, operand, i);
    if (want->fp8_sum) bound += want->op->fp8_bound(want->args, operand, i);
    if (want->bf16_sum) bound += want->op->bf16_bound(want->args, operand, i);
    if (beyond_f32(bound)) return 0;
    f->allowance = tol->k * 0x1p-24 * bound + ulp;
    return isfinite(bound) ? f->error / f->allowance : 0;
}

typedef struct {
    double *worst;
    int reported;
} tally;

static dsf_rule judge(const dsf_frame *want, int operand, int64_t i, tally *t, dsf_finding *f)
{
    const dsf_tol *tol = dsf_compare_tol(want->op, operand);
    dsf_dtype type = want->op->operand[operand].dtype;
    if (!same_class(f->got, f->want)) {
        bool free = tol->rule == DSF_TOL_SUM && beyond_f32(want->op->bound(want->args, operand, i));
        return free ? DSF_RULE_NONE : DSF_RULE_CLASS;
    }
    f->error = fabs(f->got - f->want);
    f->allowance = 0;
    if (tol->rule == DSF_TOL_EXACT) return DSF_RULE_EXACT;
    if (!isfinite(f->want)) return DSF_RULE_NONE;
    double units;
    if (tol->rule == DSF_TOL_ULP) {
        f->allowance = tol->k * ulp_at(type, f->want);
        units = fabs((double)(rung(type, f->got) - rung(type, f->want))) / tol->k;
    } else {
        units = judge_sum(want, operand, i, &t->reported, f);
    }
    if (units > *t->worst) *t->worst = units;
    if (units <= 1) return DSF_RULE_NONE;
    return tol->rule == DSF_TOL_ULP ? DSF_RULE_ULP : DSF_RULE_SUM;
}

bool dsf_compare_values(const dsf_frame *got, const dsf_frame *want, int operand, double *worst,
                        dsf_finding *f)
{
    const dsf_tensor *g = dsf_frame_tensor(got, operand), *w = dsf_frame_tensor(want, operand);
    int64_t n = dsf_tensor_bytes(w) / element_bytes(w->dtype);
    tally t = {worst, 0};
    for (int64_t i = 0; i < n; i++) {
        if (same_bits(g, i, w, i)) continue;
        dsf_finding at = {.operand = operand, .index = i};
        at.got = dsf_compare_element(g, i);
        at.want = dsf_compare_element(w, i);
        at.rule = judge(want, operand, i, &t, &at);
        if (at.rule == DSF_RULE_NONE) continue;
        at.pattern = f->pattern;
        *f = at;
        return false;
    }
    return true;
}

void dsf_compare_balance(const dsf_frame *got, const dsf_frame *want, int operand, dsf_balance *b)
{
    const dsf_tensor *g = dsf_frame_tensor(got, operand), *w = dsf_frame_tensor(want, operand);
    if (w->dtype != DSF_BF16 || dsf_compare_tol(want->op, operand)->rule == DSF_TOL_EXACT) return;
    for (int64_t i = 0; i < dsf_tensor_count(w); i++) {
        double x = fabs(dsf_compare_element(g, i)), y = fabs(dsf_compare_element(w, i));
        if (!isfinite(x) || !isfinite(y) || y < 0x1p-120)
            continue; /* flushed numbers only shrink */
        b->above += x > y;
        b->below += x < y;
    }
}

double dsf_balance_z(const dsf_balance *b)
{
    double n = (double)(b->above + b->below);
    return n > 0 ? (double)(b->above - b->below) / sqrt(n) : 0;
}
