#include "ops/engram.h"

#include "config.h"
#include "ops/fill.h"
#include "ops/scaled.h"

static const dsf_operand embed_operands[] = {
    DSF_ARG(dsf_embed_args, out, DSF_OUT, DSF_BF16, "nd", 0),
    DSF_ARG(dsf_embed_args, ids, DSF_IN, DSF_I32, "n", 0),
    DSF_ARG(dsf_embed_args, table, DSF_IN, DSF_BF16, "vd", 0)};

static const dsf_operand gather_operands[] = {
    DSF_ARG(dsf_engram_gather_args, out, DSF_OUT, DSF_BF16, "ncd", 0),
    DSF_ARG(dsf_engram_gather_args, rows, DSF_IN, DSF_I64, "nc", 0),
    DSF_ARG(dsf_engram_gather_args, table, DSF_IN, DSF_E4M3, "rd", 0),
    DSF_ARG(dsf_engram_gather_args, s, DSF_IN, DSF_E8M0, "rD", 0)};

/* q = 5 d */
static const dsf_operand gate_operands[] = {
    DSF_ARG(dsf_engram_gate_args, out, DSF_OUT, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_engram_gate_args, gate, DSF_OUT, DSF_F32, "n4", 0),
    DSF_ARG(dsf_engram_gate_args, x, DSF_IN, DSF_BF16, "n4d", 0),
    DSF_ARG(dsf_engram_gate_args, kv, DSF_IN, DSF_BF16, "nq", 0),
    DSF_ARG(dsf_engram_gate_args, qw, DSF_IN, DSF_BF16, "4d", 0),
    DSF_ARG(dsf_engram_gate_args, kw, DSF_IN, DSF_BF16, "4d", 0),
    DSF_ARG(dsf_engram_gate_args, vl, DSF_IN, DSF_U8, "n", 0)};

/* A copy: a vector version on the host would be the same memcpy. */
static const dsf_variant embed_variants[] = {
    {"ref", 0, dsf_embed_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_embed_sm90), NULL, NULL}};
static const dsf_variant gather_variants[] = {
    {"ref", 0, dsf_engram_gather_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_engram_gather_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_engram_gather_sm90), NULL, NULL}};
static const dsf_variant gate_variants[] = {
    {"ref", 0, dsf_engram_gate_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_engram_gate_avx512), NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_engram_gate_sm90), NULL, NULL}};

/* n, d, v */
static const dsf_case embed_cases[] = {{{1, 1, 1}}, {{5, 17, 3}}, {{3, 5120, 9}}, {{130, 64, 40}}};
/* n, c, d, r */
static const dsf_case gather_cases[] = {
    {{1, 1, 32, 1}}, {{2, 3, 96, 7}}, {{5, 24, 256, 1000}}, {{65, 24, 64, 99}}};
/* n, d, q */
static const dsf_case gate_cases[] = {{{1, 1, 5}},       {{2, 15, 75}},  {{3, 16, 80}},
                                      {{2, 17, 85}},     {{1, 33, 165}}, {{5, 130, 650}},
                                      {{2, 5120, 25600}}};

static const dsf_tol embed_tol[] = {{DSF_TOL_EXACT, 0, "a copy"}};
static const dsf_tol gather_tol[] = {
    {DSF_TOL_EXACT, 0, "a product with a power of two and one rounding"}};
static const dsf_tol gate_tol[] = {
    {DSF_TOL_SUM, 1, "the gate's error times |value|, and two f32 roundings"},
    {DSF_TOL_SUM, 1,
     "the range of gamma over d_k and its f32 error: a sum of d terms in any order, the two norms"}};

static void init_gate(void *args, const dsf_case *c)
{
    (void)c;
    ((dsf_engram_gate_args *)args)->eps = 1e-20f;
}

static void fill_embed(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_embed_args *a = args;
    int32_t *ids = a->ids.data;
    for (int64_t i = 0; i < a->ids.dim[0]; i++)
        ids[i] = (int32_t)dsf_fill_below(&seed, a->table.dim[0]);
}

static void fill_gather(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_engram_gather_args *a = args;
    int64_t *rows = a->rows.data;
    for (int64_t i = 0; i < dsf_tensor_count(&a->rows); i++)
        rows[i] = dsf_fill_below(&seed, a->table.dim[0]);
    dsf_limit_codes(a->table.data, dsf_tensor_count(&a->table));
    uint8_t *s = a->s.data;
    for (int64_t i = 0; i < dsf_tensor_count(&a->s); i++) s[i] = dsf_limit_byte(s[i], 0, 254);
}

/* The sum of four factors must be an f32 number: no bf16 operand passes 2^28. */
static void limit(const dsf_tensor *t)
{
    uint16_t *v = t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++)
        if ((v[i] & 0x7F80) >= (127 + 28) << 7)
            v[i] = (uint16_t)((v[i] & 0x807F) | (127 + 27) << 7);
}

static void fill_gate(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    dsf_engram_gate_args *a = args;
    uint8_t *vl = a->vl.data;
    for (int64_t i = 0; i < a->vl.dim[0]; i++) vl[i] = dsf_fill_below(&seed, 4) == 0;
    limit(&a->x);
    limit(&a->kv);
    limit(&a->qw);
    limit(&a->kw);
}

static double gamma_of(double t) { return 1 / (1 + exp(-copysign(sqrt(fmax(fabs(t), 1e-6)), t))); }

/* How far gamma of stream s of row i may move: it falls nowhere, so the ends of the range of d_k
 * tell. */
static double gamma_range(const dsf_engram_gate_args *a, int64_t i, int64_t s)
{
    int64_t d = a->x.dim[2];
    const uint16_t *x = (const uint16_t *)a->x.data + (4 * i + s) * d;
    const uint16_t *key = (const uint16_t *)a->kv.data + (5 * i + s) * d;
    const uint16_t *q = (const uint16_t *)a->qw.data + s * d;
    const uint16_t *k = (const uint16_t *)a->kw.data + s * d;
    double dot = 0, abs_dot = 0, xx = 0, kk = 0, n = (double)d;
    for (int64_t c = 0; c < d; c++) {
        double xc = dsf_bf16_to_f32(x[c]), kc = dsf_bf16_to_f32(key[c]);
        double t = xc * kc * (double)dsf_bf16_to_f32(q[c]) * (double)dsf_bf16_to_f32(k[c]);
        dot += t;
        abs_dot += fabs(t);
        xx += xc * xc;
        kk += kc * kc;
    }
    double scale = 1 / sqrt(xx / n + (double)a->eps) / sqrt(kk / n + (double)a->eps) / sqrt(n);
    /* 3 roundings a term and d sums, twice d for the norms and 8 for what follows: in f32 */
    double error = 0x1p-24 * (2 * n + 16) * abs_dot * scale;
    if (!(error < 1e30)) error = 1e30;
    double at = fmax(fmin(dot * scale, 1e30), -1e30);
    return gamma_of(at + error) - gamma_of(at - error) + 6 * 0x1p-24 * gamma_of(at);
}

static double bound_gate(const void *args, int operand, int64_t index)
{
    const dsf_engram_gate_args *a = args;
    int64_t d = a->x.dim[2];
    if (operand == 1) return 0x1p24 * gamma_range(a, index / 4, index % 4);
    int64_t i = index / d / 4, s = index / d % 4;
    double x = dsf_bf16_abs(((const uint16_t *)a->x.data)[index]);
    double value = dsf_bf16_abs(((const uint16_t *)a->kv.data)[(5 * i + 4) * d + index % d]);
    return 0x1p24 * gamma_range(a, i, s) * value + 2 * (x + value);
}

static double bytes(const dsf_tensor *t) { return (double)dsf_tensor_bytes(t); }

static dsf_cost cost_embed(const void *args)
{
    const dsf_embed_args *a = args;
    return (dsf_cost){0, 2 * bytes(&a->out) + bytes(&a->ids)};
}

static dsf_cost cost_gather(const void *args)
{
    const dsf_engram_gather_args *a = args;
    double n = (double)dsf_tensor_count(&a->out);
    return (dsf_cost){n, n * (1 + 1.0 / 32) + bytes(&a->rows) + bytes(&a->out)};
}

static dsf_cost cost_gate(const void *args)
{
    const dsf_engram_gate_args *a = args;
    return (dsf_cost){10 * (double)dsf_tensor_count(&a->x), bytes(&a->x) + bytes(&a->kv) +
                                                                bytes(&a->qw) + bytes(&a->kw) +
                                                                bytes(&a->out)};
}

#define TABLES(id)                                                                                 \
    .operand = id##_operands, .n_operands = sizeof id##_operands / sizeof id##_operands[0],        \
    .variant = id##_variants, .n_variants = sizeof id##_variants / sizeof id##_variants[0],        \
    .cases = id##_cases, .n_cases = sizeof id##_cases / sizeof id##_cases[0], .tol = id##_tol,     \
    .fill = fill_##id, .cost = cost_##id

const dsf_op dsf_op_embed = {.name = "embed",
                             .dims = "ndv",
                             .args_size = sizeof(dsf_embed_args),
                             TABLES(embed),
                             .props = DSF_PROP_ROWS};
const dsf_op dsf_op_engram_gather = {.name = "engram_gather",
                                     .dims = "ncdr",
                                     .args_size = sizeof(dsf_engram_gather_args),
                                     TABLES(gather),
                                     .props = DSF_PROP_ROWS};
const dsf_op dsf_op_engram_gate = {.name = "engram_gate",
                                   .dims = "ndq",
                                   .args_size = sizeof(dsf_engram_gate_args),
                                   TABLES(gate),
                                   .init = init_gate,
                                   .bound = bound_gate,
                                   .props = DSF_PROP_ROWS | DSF_PROP_ALIAS};
