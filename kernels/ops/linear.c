#include "ops/linear.h"

#include "config.h"
#include "ops/cut.h"
#include "ops/scaled.h"
#include "sm90/tiles.h"
#include "sm90/tune_linear.h"

static const dsf_operand g8_operands[] = {
    DSF_ARG(dsf_linear_g8_args, out, DSF_OUT, DSF_BF16, "no", 0),
    DSF_ARG(dsf_linear_g8_args, x, DSF_IN, DSF_Q8, "nk", 0),
    DSF_ARG(dsf_linear_g8_args, w, DSF_IN, DSF_E4M3, "ok", 0),
    DSF_ARG(dsf_linear_g8_args, s, DSF_IN, DSF_E8M0, "OK", 0)};

static const dsf_operand g8_pair_operands[] = {
    DSF_ARG(dsf_linear_g8_pair_args, out_a, DSF_OUT, DSF_BF16, "no", 0),
    DSF_ARG(dsf_linear_g8_pair_args, out_b, DSF_OUT, DSF_BF16, "np", 0),
    DSF_ARG(dsf_linear_g8_pair_args, x, DSF_IN, DSF_Q8, "nk", 0),
    DSF_ARG(dsf_linear_g8_pair_args, w_a, DSF_IN, DSF_E4M3, "ok", 0),
    DSF_ARG(dsf_linear_g8_pair_args, s_a, DSF_IN, DSF_E8M0, "OK", 0),
    DSF_ARG(dsf_linear_g8_pair_args, w_b, DSF_IN, DSF_E4M3, "pk", 0),
    DSF_ARG(dsf_linear_g8_pair_args, s_b, DSF_IN, DSF_E8M0, "PK", 0)};

/* What differs between bf16 and f32 results is one dtype. */
#define OPERANDS(name, result)                                                                     \
    static const dsf_operand name[] = {DSF_ARG(dsf_linear_args, out, DSF_OUT, result, "no", 0),    \
                                       DSF_ARG(dsf_linear_args, x, DSF_IN, DSF_BF16, "nk", 0),     \
                                       DSF_ARG(dsf_linear_args, w, DSF_IN, DSF_BF16, "ok", 0)}
OPERANDS(gb_operands, DSF_BF16);
OPERANDS(gf_operands, DSF_F32);

static const dsf_operand group_operands[] = {
    DSF_ARG(dsf_linear_group_args, out, DSF_OUT, DSF_BF16, "ngo", 0),
    DSF_ARG(dsf_linear_group_args, x, DSF_IN, DSF_BF16, "ngk", 0),
    DSF_ARG(dsf_linear_group_args, w, DSF_IN, DSF_E4M3, "gok", 0),
    DSF_ARG(dsf_linear_group_args, s, DSF_IN, DSF_E8M0, "gOK", 0)};

static const dsf_variant g8_variants[] = {
    {"ref", 0, dsf_linear_g8_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_linear_g8_avx512), NULL,
     DSF_X86(dsf_linear_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_linear_g8_sm90), NULL, NULL},
    {"sm90fp8", DSF_NEEDS_SM90 | DSF_FP8_SUM, DSF_CUDA(dsf_linear_g8_sm90fp8),
     dsf_linear_g8_sm90fp8_accepts, dsf_linear_g8_sm90fp8_scratch}};
static const dsf_variant g8_pair_variants[] = {
    {"ref", 0, dsf_linear_g8_pair_ref, NULL, NULL},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_linear_g8_pair_sm90), NULL, NULL},
    {"sm90fp8", DSF_NEEDS_SM90 | DSF_FP8_SUM, DSF_CUDA(dsf_linear_g8_pair_sm90fp8),
     dsf_linear_g8_pair_sm90fp8_accepts, NULL}};
static const dsf_variant gb_variants[] = {
    {"ref", 0, dsf_linear_gb_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_linear_gb_avx512), NULL,
     DSF_X86(dsf_linear_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_linear_gb_sm90), NULL, NULL},
    {"sm90tc", DSF_NEEDS_SM90 | DSF_BF16_SUM, DSF_CUDA(dsf_linear_gb_sm90tc),
     dsf_linear_bf16_sm90tc_accepts, NULL}};
static const dsf_variant gf_variants[] = {
    {"ref", 0, dsf_linear_gf_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_linear_gf_avx512), NULL,
     DSF_X86(dsf_linear_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_linear_gf_sm90), NULL, NULL},
    {"sm90tc", DSF_NEEDS_SM90 | DSF_BF16_SUM, DSF_CUDA(dsf_linear_gf_sm90tc),
     dsf_linear_bf16_sm90tc_accepts, NULL}};
static const dsf_variant group_variants[] = {
    {"ref", 0, dsf_linear_group_ref, NULL, NULL},
    {"avx512", DSF_NEEDS_AVX512, DSF_X86(dsf_linear_group_avx512), NULL,
     DSF_X86(dsf_linear_avx512_scratch)},
    {"sm90", DSF_NEEDS_SM90, DSF_CUDA(dsf_linear_group_sm90), NULL, NULL},
    {"sm90tc", DSF_NEEDS_SM90 | DSF_BF16_SUM, DSF_CUDA(dsf_linear_group_sm90tc),
     dsf_linear_group_sm90tc_accepts, dsf_linear_group_sm90tc_scratch}};

/* n, k, o: one block; every tail of the 128-wide groups and of the row and output tiles; the
 * model's widths with one row and with few; more rows than a row block; the edges of the device's
 * tiles (8, 16, 32, 64, 128 rows, 64 and 128 outputs; records 4, 8, 16 bytes apart). */
static const dsf_case g8_cases[] = {
    {{1, 32, 1}},      {{2, 64, 33}},     {{3, 96, 31}},    {{4, 128, 7}},    {{5, 160, 64}},
    {{7, 672, 97}},    {{1, 2304, 130}},  {{6, 2304, 96}},  {{1, 5120, 40}},  {{2, 8192, 33}},
    {{5, 1280, 100}},  {{131, 544, 110}}, {{8, 128, 65}},   {{9, 256, 129}},  {{16, 384, 64}},
    {{17, 640, 130}},  {{33, 1280, 70}},  {{64, 256, 200}}, {{65, 384, 136}}, {{128, 128, 24}},
    {{300, 256, 300}}, {{200, 512, 140}}};
/* n, k, o, p: tiles of 8, 16, 32 and 64 outputs, two of them a block, tails in either matrix; many
 * rows. */
static const dsf_case g8_pair_cases[] = {
    {{1, 128, 40, 7}},     {{2, 64, 33, 65}},      {{5, 640, 130, 64}},
    {{8, 1280, 2050, 31}}, {{16, 256, 100, 90}},   {{64, 384, 136, 200}},
    {{70, 128, 24, 72}},   {{1, 256, 17000, 100}}, {{9, 128, 17000, 10}}};
/* k of bf16 products is free: patches of 588, odd widths. The last four: 64-wide stages, segments
 * of 512 and tiles of 128 x 64 and 128 x 192 of the device; more tiles than it has processors. */
static const dsf_case bf16_cases[] = {
    {{1, 1, 1}},      {{2, 15, 3}},     {{3, 33, 17}},     {{4, 128, 7}},
    {{5, 127, 64}},   {{7, 588, 97}},   {{1, 129, 5}},     {{6, 641, 96}},
    {{1, 5120, 384}}, {{5, 256, 130}},  {{2, 1024, 65}},   {{131, 529, 110}},
    {{3, 2056, 200}}, {{70, 520, 129}}, {{2, 136, 17000}}, {{65, 72, 12161}}};
/* n, g, o, k */
static const dsf_case group_cases[] = {{{1, 1, 32, 32}},    {{3, 2, 64, 96}},   {{5, 3, 96, 160}},
                                       {{1, 8, 32, 4096}},  {{6, 2, 32, 672}},  {{130, 2, 96, 128}},
                                       {{129, 1, 64, 640}}, {{9, 1, 96, 1152}}, {{2, 2, 32, 128}},
                                       {{5, 1, 32, 2176}}};

static const dsf_tol sum_tol[] = {{DSF_TOL_SUM, 1, DSF_SUM_WHY}, {DSF_TOL_SUM, 1, DSF_SUM_WHY}};

static void fill_g8(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_linear_g8_args *a = args;
    dsf_limit_q8(&a->x);
    dsf_limit_codes(a->w.data, dsf_tensor_count(&a->w));
    dsf_limit_scales(&a->s);
}

static void fill_g8_pair(void *args, const dsf_case *c, uint64_t seed)
{
    dsf_linear_g8_args a = dsf_linear_g8_half(args, 0), b = dsf_linear_g8_half(args, 1);
    fill_g8(&a, c, seed);
    fill_g8(&b, c, seed);
}

static void fill_bf16(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_linear_args *a = args;
    dsf_limit_bf16(&a->x);
    dsf_limit_bf16(&a->w);
}

static void fill_group(void *args, const dsf_case *c, uint64_t seed)
{
    (void)c;
    (void)seed;
    dsf_linear_group_args *a = args;
    dsf_limit_bf16(&a->x);
    dsf_limit_codes(a->w.data, dsf_tensor_count(&a->w));
    dsf_limit_scales(&a->s);
    /* The least scales, with which some codes have no bf16 number, are as legal as any. */
    int64_t block = a->s.dim[2], last = dsf_tensor_count(&a->s) - block;
    if (last > 0)
        for (int64_t i = 0; i < block; i++) ((uint8_t *)a->s.data)[last + i] = (uint8_t)(i % 3);
}

typedef struct { /* what one output of linear_g8 is made of */
    const uint8_t *x, *w, *s;
    int64_t k;
} g8_row;

static g8_row g8_row_of(const void *args, int64_t index)
{
    const dsf_linear_g8_args *a = args;
    int64_t n_out = a->out.dim[1], k = a->w.dim[1], o = index % n_out;
    return (g8_row){(const uint8_t *)a->x.data + index / n_out * (k + k / 32),
                    (const uint8_t *)a->w.data + o * k,
                    (const uint8_t *)a->s.data + o / 32 * (k / 32), k};
}

static double abs_sum_g8(const g8_row *r)
{
    double sum = 0;
    for (int64_t c = 0; c < r->k; c++)
        sum += dsf_q8_abs(r->x, r->k, c) *
               fabs((double)dsf_e4m3_to_f32(r->w[c]) * (double)dsf_e8m0_to_f32(r->s[c / 32]));
    return sum;
}

static double bound_g8(const void *args, int operand, int64_t index)
{
    (void)operand;
    g8_row r = g8_row_of(args, index);
    return dsf_sum_bound(abs_sum_g8(&r), r.k);
}

/* The blocks' own losses, and the rounding of each block's step in the chain of k / 32. */
static double fp8_bound_g8(const void *args, int operand, int64_t index)
{
    (void)operand;
    g8_row r = g8_row_of(args, index);
    int64_t blocks = r.k / 32;
    double lost = (double)blocks * abs_sum_g8(&r);
    for (int64_t b = 0; b < blocks; b++)
        lost += dsf_fp8_block_bound(r.x + 32 * b, r.w + 32 * b, r.x[r.k + b], r.s[b]);
    return lost;
}

static double bound_g8_pair(const void *args, int operand, int64_t index)
{
    dsf_linear_g8_args a = dsf_linear_g8_half(args, operand);
    return bound_g8(&a, 0, index);
}

static double fp8_bound_g8_pair(const void *args, int operand, int64_t index)
{
    dsf_linear_g8_args a = dsf_linear_g8_half(args, operand);
    return fp8_bound_g8(&a, 0, index);
}

static double bound_bf16(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_linear_args *a = args;
    int64_t n_out = a->out.dim[1], k = a->w.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + index / n_out * k;
    const uint16_t *w = (const uint16_t *)a->w.data + index % n_out * k;
    double sum = 0;
    for (int64_t c = 0; c < k; c++) sum += dsf_bf16_abs(x[c]) * dsf_bf16_abs(w[c]);
    return dsf_sum_bound(sum, k);
}

static double bound_group(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_linear_group_args *a = args;
    int64_t n_out = a->w.dim[1], k = a->w.dim[2], column = index % (a->w.dim[0] * n_out);
    const uint16_t *x = (const uint16_t *)a->x.data + index / n_out * k;
    const uint8_t *w = (const uint8_t *)a->w.data + column * k;
    const uint8_t *s = (const uint8_t *)a->s.data + column / 32 * (k / 32);
    double sum = 0;
    for (int64_t c = 0; c < k; c++)
        sum += dsf_bf16_abs(x[c]) *
               fabs((double)dsf_e4m3_to_f32(w[c]) * (double)dsf_e8m0_to_f32(s[c / 32]));
    return dsf_sum_bound(sum, k);
}

typedef struct {
    const uint16_t *x, *w; /* w: or codes and scales */
    const uint8_t *codes, *scales;
} bf16_row;

/* The products of one step, from channel c0. */
static int step_terms(const bf16_row *r, int64_t c0, int64_t k, dsf_cut_term *term)
{
    int n = (int)(k - c0 < DSF_CUT_STEP ? k - c0 : DSF_CUT_STEP);
    for (int i = 0; i < n; i++) {
        int64_t c = c0 + i;
        double w = r->w ? (double)dsf_bf16_to_f32(r->w[c])
                        : (double)dsf_e4m3_to_f32(r->codes[c]) *
                              (double)dsf_e8m0_to_f32(r->scales[c / 32]);
        term[i] = dsf_cut_product((double)dsf_bf16_to_f32(r->x[c]), w);
    }
    return n;
}

static double cut_of(const bf16_row *r, int64_t k)
{
    double lost = 0;
    dsf_cut_term term[DSF_CUT_STEP];
    for (int64_t s = 0; s < k; s += DSF_CUT_SEGMENT) {
        dsf_cut_chain chain = {0, 0};
        int64_t end = k - s < DSF_CUT_SEGMENT ? k : s + DSF_CUT_SEGMENT;
        for (int64_t c = s; c < end; c += DSF_CUT_STEP)
            dsf_cut_step(&chain, term, step_terms(r, c, k, term));
        lost += chain.lost;
    }
    return 0x1p24 * lost;
}

static double cut_bf16(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_linear_args *a = args;
    int64_t n_out = a->out.dim[1], k = a->w.dim[1];
    bf16_row r = {(const uint16_t *)a->x.data + index / n_out * k,
                  (const uint16_t *)a->w.data + index % n_out * k, NULL, NULL};
    return cut_of(&r, k);
}

static double cut_group(const void *args, int operand, int64_t index)
{
    (void)operand;
    const dsf_linear_group_args *a = args;
    int64_t n_out = a->w.dim[1], k = a->w.dim[2], column = index % (a->w.dim[0] * n_out);
    bf16_row r = {(const uint16_t *)a->x.data + index / n_out * k, NULL,
                  (const uint8_t *)a->w.data + column * k,
                  (const uint8_t *)a->s.data + column / 32 * (k / 32)};
    return cut_of(&r, k);
}

static double bytes(const dsf_tensor *t) { return (double)dsf_tensor_bytes(t); }

static dsf_cost cost_g8(const void *args)
{
    const dsf_linear_g8_args *a = args;
    return (dsf_cost){2.0 * (double)dsf_tensor_count(&a->w) * (double)a->out.dim[0],
                      bytes(&a->out) + bytes(&a->x) + bytes(&a->w) + bytes(&a->s)};
}

static dsf_cost cost_g8_pair(const void *args)
{
    dsf_linear_g8_args a = dsf_linear_g8_half(args, 0), b = dsf_linear_g8_half(args, 1);
    dsf_cost ca = cost_g8(&a), cb = cost_g8(&b);
    return (dsf_cost){ca.flops + cb.flops, ca.bytes + cb.bytes - bytes(&a.x)};
}

static dsf_cost cost_bf16(const void *args)
{
    const dsf_linear_args *a = args;
    return (dsf_cost){2.0 * (double)dsf_tensor_count(&a->w) * (double)a->out.dim[0],
                      bytes(&a->out) + bytes(&a->x) + bytes(&a->w)};
}

static dsf_cost cost_group(const void *args)
{
    const dsf_linear_group_args *a = args;
    return (dsf_cost){2.0 * (double)dsf_tensor_count(&a->w) * (double)a->out.dim[0],
                      bytes(&a->out) + bytes(&a->x) + bytes(&a->w) + bytes(&a->s)};
}

#define OP(id, letters, type, kind, case_list, fp8, bf16, words)                                   \
    {                                                                                              \
        .name = "linear_" #id, .dims = (letters), .args_size = sizeof(type),                       \
        .operand = id##_operands, .n_operands = sizeof id##_operands / sizeof id##_operands[0],    \
        .variant = id##_variants, .n_variants = sizeof id##_variants / sizeof id##_variants[0],    \
        .cases = (case_list), .n_cases = sizeof(case_list) / sizeof((case_list)[0]),               \
        .tol = sum_tol, .props = DSF_PROP_ROWS, .fill = fill_##kind, .bound = bound_##kind,        \
        .fp8_bound = (fp8), .bf16_bound = (bf16), .cost = cost_##kind, .tiles = (words)            \
    }

const dsf_op dsf_op_linear_g8 =
    OP(g8, "nko", dsf_linear_g8_args, g8, g8_cases, fp8_bound_g8, NULL, dsf_tiles_linear_g8);
const dsf_op dsf_op_linear_g8_pair =
    OP(g8_pair, "nkop", dsf_linear_g8_pair_args, g8_pair, g8_pair_cases, fp8_bound_g8_pair, NULL,
       dsf_tiles_linear_g8_pair);
const dsf_op dsf_op_linear_gb =
    OP(gb, "nko", dsf_linear_args, bf16, bf16_cases, NULL, cut_bf16, dsf_tiles_linear_bf16);
const dsf_op dsf_op_linear_gf =
    OP(gf, "nko", dsf_linear_args, bf16, bf16_cases, NULL, cut_bf16, dsf_tiles_linear_bf16);
const dsf_op dsf_op_linear_group = OP(group, "ngok", dsf_linear_group_args, group, group_cases,
                                      NULL, cut_group, dsf_tiles_linear_group);
