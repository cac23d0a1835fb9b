#include "ops/moe.h"

#include "avx512/expand.h"
#include "avx512/gemm.h"
#include "avx512/lane.h"

enum { LANES = 16 };

/* ((silu(g) v) w) in f32 with both clamps. silu through e = exp(-|g|), so that nothing overflows:
 * g / (1 + e) above zero, g e / (1 + e) below. Errors: e 1 ulp, three more roundings. */
DSF_INLINE __m512 swiglu(__m512 g, __m512 v, __m512 limit, __m512 w)
{
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    __m512 low = _mm512_sub_ps(zero, limit);
    g = _mm512_min_ps(g, limit);
    v = _mm512_min_ps(_mm512_max_ps(v, low), limit);
    __mmask16 below = _mm512_cmp_ps_mask(g, zero, _CMP_LT_OQ);
    __m512 e = dsf_lane_exp(_mm512_mask_sub_ps(g, (__mmask16)~below, zero, g));
    __m512 silu = _mm512_div_ps(_mm512_mask_mul_ps(g, below, g, e), _mm512_add_ps(one, e));
    return _mm512_mul_ps(_mm512_mul_ps(silu, v), w);
}

DSF_INLINE __m512 load_bf16(__mmask16 have, const uint16_t *p)
{
    return dsf_lane_from_bf16(_mm256_maskz_loadu_epi16(have, p));
}

DSF_INLINE void store_bf16(uint16_t *p, __mmask16 have, __m512 v)
{
    _mm256_mask_storeu_epi16(p, have, dsf_lane_to_bf16(dsf_lane_round_bf16(v)));
}

static void swiglu_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_swiglu_args *a = arg;
    int64_t d = a->out.dim[1];
    const uint16_t *g = (const uint16_t *)a->g.data + i * d;
    const uint16_t *v = (const uint16_t *)a->v.data + i * d;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    for (int64_t c = 0; c < d; c += LANES) {
        __mmask16 have = (__mmask16)dsf_mask_low(d - c);
        store_bf16(out + c, have,
                   swiglu(load_bf16(have, g + c), load_bf16(have, v + c), _mm512_set1_ps(a->limit),
                          _mm512_set1_ps(1.0f)));
    }
}

dsf_status dsf_swiglu_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_swiglu_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0], swiglu_row, (void *)a);
    return DSF_OK;
}

static void moe_sum_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_moe_sum_args *a = arg;
    int64_t k = a->y.dim[1], d = a->out.dim[1];
    const uint16_t *y = (const uint16_t *)a->y.data + i * k * d;
    const uint16_t *shared = (const uint16_t *)a->shared.data + i * d;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    for (int64_t c = 0; c < d; c += LANES) {
        __mmask16 have = (__mmask16)dsf_mask_low(d - c);
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = 0; j < k; j++) sum = _mm512_add_ps(sum, load_bf16(have, y + j * d + c));
        store_bf16(out + c, have, _mm512_add_ps(sum, load_bf16(have, shared + c)));
    }
}

dsf_status dsf_moe_sum_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_moe_sum_args *a = args;
    dsf_pool_run(lc->pool, a->out.dim[0], moe_sum_row, (void *)a);
    return DSF_OK;
}

/* The (row, slot) pairs of a pass, ordered by expert, and cut into blocks of one expert each. Lives
 * at the start of worker 0's scratch; every worker's own space begins behind it. */
typedef struct {
    int32_t *pair;  /* [pairs] by expert, ascending inside one */
    int32_t *first; /* [experts + 1] where an expert's pairs begin */
    int64_t *item;  /* [experts + 1] where its items begin */
    int64_t n_items;
} grouping;

typedef struct {
    const dsf_launch *lc;
    grouping grouping;
    const dsf_experts_up_args *up;
    const dsf_experts_down_args *down;
    const int32_t *ids;
    int64_t pairs, experts, n_out;
    size_t shared; /* bytes of the grouping */
} pass;

static size_t round64(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t grouping_bytes(int64_t pairs, int64_t experts)
{
    return round64(4 * (size_t)pairs) + round64(4 * (size_t)experts + 4) +
           round64(8 * (size_t)experts + 8);
}

size_t dsf_experts_up_avx512_scratch(const void *args)
{
    const dsf_experts_up_args *a = args;
    return grouping_bytes(dsf_tensor_count(&a->ids), a->w1.dim[0]) + 2 * DSF_GEMM_SUM_BYTES +
           dsf_gemm_scratch();
}

size_t dsf_experts_down_avx512_scratch(const void *args)
{
    const dsf_experts_down_args *a = args;
    return grouping_bytes(dsf_tensor_count(&a->ids), a->w2.dim[0]) + DSF_GEMM_SUM_BYTES +
           dsf_gemm_scratch();
}

static int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Counting sort of the pairs; items of an expert: blocks of outputs, and in each blocks of rows. */
static void group_pairs(pass *p)
{
    grouping *g = &p->grouping;
    uint8_t *at = p->lc->scratch;
    g->pair = (int32_t *)at;
    at += round64(4 * (size_t)p->pairs);
    g->first = (int32_t *)at;
    at += round64(4 * (size_t)p->experts + 4);
    g->item = (int64_t *)at;
    for (int64_t e = 0; e <= p->experts; e++) g->first[e] = 0;
    for (int64_t i = 0; i < p->pairs; i++) g->first[p->ids[i] + 1]++;
    for (int64_t e = 0; e < p->experts; e++) g->first[e + 1] += g->first[e];
    for (int64_t i = 0; i < p->pairs; i++) g->pair[g->first[p->ids[i]]++] = (int32_t)i;
    for (int64_t e = p->experts; e > 0; e--) g->first[e] = g->first[e - 1];
    g->first[0] = 0;
    g->item[0] = 0;
    for (int64_t e = 0; e < p->experts; e++) {
        int64_t n = g->first[e + 1] - g->first[e];
        g->item[e + 1] =
            g->item[e] + blocks(n, dsf_gemm_rows(n)) * blocks(p->n_out, dsf_gemm_outs(n));
    }
    g->n_items = g->item[p->experts];
}

/* The expert of an item: the last one that begins at or before it and has items. */
static int64_t find_expert(const grouping *g, int64_t experts, int64_t item)
{
    int64_t low = 0, high = experts; /* item[low] <= item < item[high] */
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (g->item[mid] <= item)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The rows and outputs of an item; pair[r] is the pair of block row r. */
static void cut_item(const pass *p, int64_t item, dsf_gemm_block *b, const int32_t **pair,
                     int64_t *expert)
{
    const grouping *g = &p->grouping;
    int64_t e = find_expert(g, p->experts, item), n = g->first[e + 1] - g->first[e];
    int64_t rows = dsf_gemm_rows(n), outs = dsf_gemm_outs(n), row_blocks = blocks(n, rows);
    item -= g->item[e];
    int64_t row0 = item % row_blocks * rows, o0 = item / row_blocks * outs;
    *expert = e;
    *pair = g->pair + g->first[e] + row0;
    b->n_rows = (int)(n - row0 < rows ? n - row0 : rows);
    b->n_outs = (int)(p->n_out - o0 < outs ? p->n_out - o0 : outs);
    b->o0 = o0;
}

static dsf_gemm expert_gemm(const dsf_tensor *w, const dsf_tensor *s, int64_t e, int64_t k)
{
    const int64_t *codes = w->data, *scales = s->data;
    return (dsf_gemm){DSF_GEMM_E2M1,
                      1,
                      0,
                      k,
                      (const uint8_t *)(uintptr_t)codes[e],   // NOLINT
                      (const uint8_t *)(uintptr_t)scales[e]}; // NOLINT
}

/* Both products in f32 sums, each rounded to bf16 before the activation. */
static void up_item(void *arg, int64_t item, int worker)
{
    const pass *p = arg;
    const dsf_experts_up_args *a = p->up;
    int64_t k = a->out.dim[1], d = a->x.dim[1], e = 0;
    uint8_t *scratch = p->lc->scratch + (size_t)worker * p->lc->scratch_bytes + p->shared;
    dsf_gemm_block b = {.sum = (float *)scratch, .scratch = scratch + 2 * DSF_GEMM_SUM_BYTES};
    const int32_t *pair = NULL;
    cut_item(p, item, &b, &pair, &e);
    for (int r = 0; r < b.n_rows; r++)
        b.row[r] = (const uint8_t *)a->x.data + pair[r] / k * (d + d / 32);
    const float *g = b.sum, *v = (const float *)(scratch + DSF_GEMM_SUM_BYTES);
    dsf_gemm gemm = expert_gemm(&a->w1, &a->s1, e, d);
    dsf_gemm_run(&gemm, &b);
    gemm = expert_gemm(&a->w3, &a->s3, e, d);
    b.sum = (float *)(scratch + DSF_GEMM_SUM_BYTES);
    dsf_gemm_run(&gemm, &b);
    for (int r = 0; r < b.n_rows; r++) {
        uint16_t *out = (uint16_t *)a->out.data + pair[r] * p->n_out + b.o0;
        __m512 weight = _mm512_set1_ps(((const float *)a->weights.data)[pair[r]]);
        for (int c = 0; c < b.n_outs; c += LANES) {
            __mmask16 have = (__mmask16)dsf_mask_low(b.n_outs - c);
            int at = r * DSF_GEMM_OUTS + c;
            store_bf16(out + c, have,
                       swiglu(dsf_lane_round_bf16(_mm512_maskz_loadu_ps(have, g + at)),
                              dsf_lane_round_bf16(_mm512_maskz_loadu_ps(have, v + at)),
                              _mm512_set1_ps(a->limit), weight));
        }
    }
}

dsf_status dsf_experts_up_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_experts_up_args *a = args;
    pass p = {.lc = lc,
              .up = a,
              .ids = a->ids.data,
              .pairs = dsf_tensor_count(&a->ids),
              .experts = a->w1.dim[0],
              .n_out = a->out.dim[2]};
    p.shared = grouping_bytes(p.pairs, p.experts);
    group_pairs(&p);
    dsf_pool_run(lc->pool, p.grouping.n_items, up_item, &p);
    return DSF_OK;
}

static void down_item(void *arg, int64_t item, int worker)
{
    const pass *p = arg;
    const dsf_experts_down_args *a = p->down;
    int64_t width = a->h.dim[2], e = 0;
    uint8_t *scratch = p->lc->scratch + (size_t)worker * p->lc->scratch_bytes + p->shared;
    dsf_gemm_block b = {.sum = (float *)scratch, .scratch = scratch + DSF_GEMM_SUM_BYTES};
    const int32_t *pair = NULL;
    cut_item(p, item, &b, &pair, &e);
    for (int r = 0; r < b.n_rows; r++)
        b.row[r] = (const uint8_t *)a->h.data + pair[r] * (width + width / 32);
    dsf_gemm gemm = expert_gemm(&a->w2, &a->s2, e, width);
    dsf_gemm_run(&gemm, &b);
    for (int r = 0; r < b.n_rows; r++)
        dsf_gemm_store_bf16((uint16_t *)a->out.data + pair[r] * p->n_out + b.o0,
                            b.sum + r * DSF_GEMM_OUTS, b.n_outs);
}

dsf_status dsf_experts_down_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_experts_down_args *a = args;
    pass p = {.lc = lc,
              .down = a,
              .ids = a->ids.data,
              .pairs = dsf_tensor_count(&a->ids),
              .experts = a->w2.dim[0],
              .n_out = a->out.dim[2]};
    p.shared = grouping_bytes(p.pairs, p.experts);
    group_pairs(&p);
    dsf_pool_run(lc->pool, p.grouping.n_items, down_item, &p);
    return DSF_OK;
}
