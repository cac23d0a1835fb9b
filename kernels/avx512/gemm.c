#include "avx512/gemm.h"

#include "avx512/expand.h"
#include "avx512/lane.h"

enum {
    LANES = 16,
    VECTORS = DSF_GROUP_VECTORS,
    GROUP_FLOATS = DSF_GROUP,
    TILE_ROWS = 4, /* 4 x 6 sums, 6 weights and 1 activation of 32 registers */
    TILE_OUTS = 6,
    TILE = TILE_ROWS * TILE_OUTS,
    PANEL = 2 * TILE_OUTS, /* outputs whose slab of weights fits the first cache: 24 KiB */
    SLAB = 4,              /* groups of a slab */
    FEW_SLAB = 48,         /* groups times rows of few rows: 24 KiB of activations */
    /* Weights come in two steps, since the first cache has too few miss buffers for the latency of
     * memory: to the second cache whole rows of at least AHEAD bytes before use, then NEAR bytes.
     */
    AHEAD = 4096,
    NEAR = 512
};

/* Scratch of many rows, and of few ones, which lies in the same place. */
typedef struct {
    float acc[DSF_GEMM_ROWS * DSF_GEMM_OUTS * LANES];
    float x[DSF_GEMM_ROWS * SLAB * GROUP_FLOATS];
    float w[PANEL * SLAB * GROUP_FLOATS];
    float s[PANEL * SLAB * LANES];
} many_space;

typedef struct {
    float acc[DSF_GEMM_FEW_ROWS * DSF_GEMM_OUTS * LANES];
    float x[FEW_SLAB * GROUP_FLOATS];
} few_space;

size_t dsf_gemm_scratch(void) { return sizeof(many_space); }

DSF_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes of `k` channels of the weights. */
DSF_INLINE int64_t width(dsf_gemm_format f, int64_t k)
{
    return f == DSF_GEMM_E2M1 ? k / 2 : f == DSF_GEMM_E4M3 ? k : 2 * k;
}

DSF_INLINE void expand_w(dsf_gemm_format f, const uint8_t *w, int64_t valid, __m512 *v)
{
    if (f == DSF_GEMM_E2M1)
        dsf_expand_e2m1(w, valid, v);
    else if (f == DSF_GEMM_E4M3)
        dsf_expand_e4m3(w, valid, v);
    else
        dsf_expand_bf16((const uint16_t *)w, valid, v);
}

/* Scales of one group, each for its four lanes. */
DSF_INLINE __m512 group_scales(const uint8_t *s, int64_t valid)
{
    return _mm512_permutexvar_ps(dsf_scale_lanes(), dsf_expand_scales(s, least(valid, 4)));
}

/* Group t of an activation row, in the order of the weights. */
DSF_INLINE void expand_x(const dsf_gemm *g, const uint8_t *row, int64_t t, __m512 *v)
{
    int64_t at = t * DSF_GROUP, valid = least(g->k - at, DSF_GROUP);
    if (!g->x_q8) {
        const uint16_t *x = (const uint16_t *)row + at;
        if (g->format == DSF_GEMM_BF16)
            dsf_expand_bf16(x, valid, v);
        else
            dsf_expand_bf16_as_e4m3(x, valid, v);
        return;
    }
    if (g->format == DSF_GEMM_E2M1)
        dsf_expand_e4m3_as_e2m1(row + at, valid, v);
    else
        dsf_expand_e4m3(row + at, valid, v);
    __m512 s = group_scales(row + g->k + at / 32, valid / 32);
    DSF_UNROLL for (int j = 0; j < VECTORS; j++) v[j] = _mm512_mul_ps(v[j], s);
}

/* The tree: lanes i and i + 8, then i and i + 4, i + 2, i + 1. */
DSF_INLINE float sum_lanes(__m512 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* The same tree over four vectors at once. */
DSF_INLINE __m128 sum_lanes4(const float *a)
{
    __m512 v0 = _mm512_load_ps(a), v1 = _mm512_load_ps(a + LANES);
    __m512 v2 = _mm512_load_ps(a + 2 * LANES), v3 = _mm512_load_ps(a + 3 * LANES);
    __m512 b01 =
        _mm512_add_ps(_mm512_shuffle_f32x4(v0, v1, 0x44), _mm512_shuffle_f32x4(v0, v1, 0xEE));
    __m512 b23 =
        _mm512_add_ps(_mm512_shuffle_f32x4(v2, v3, 0x44), _mm512_shuffle_f32x4(v2, v3, 0xEE));
    __m512 c =
        _mm512_add_ps(_mm512_shuffle_f32x4(b01, b23, 0x88), _mm512_shuffle_f32x4(b01, b23, 0xDD));
    c = _mm512_add_ps(c, _mm512_permute_ps(c, 0x4E));
    c = _mm512_add_ps(c, _mm512_permute_ps(c, 0xB1));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, c));
}

/* A range of groups, for which one side is held expanded while the other passes. */
typedef struct {
    const dsf_gemm *g;
    int64_t t0, t1;
} slab;

/* The slab's weights of output `out` times `rows` activation rows, added to the running sums.
 * x: [t1 - t0][rows][8][16]. */
DSF_INLINE void few_groups(const slab *p, dsf_gemm_format f, int rows, int64_t out, const float *x,
                           __m512 *acc)
{
    const dsf_gemm *g = p->g;
    int64_t w_row = width(f, g->k), ahead = (AHEAD / w_row + 1) * w_row;
    const uint8_t *w = g->w + out * w_row;
    const uint8_t *s = f == DSF_GEMM_BF16 ? NULL : g->s + (out >> g->s_shift) * (g->k / 32);
    __m512 scales = _mm512_set1_ps(1.0f), spread = scales, v[VECTORS];
    __m512i lanes = dsf_scale_lanes();
    for (int64_t t = p->t0; t < p->t1; t++) {
        int64_t valid = g->k - t * DSF_GROUP;
        const uint8_t *codes = w + width(f, t * DSF_GROUP);
        if (f != DSF_GEMM_BF16) {
            if ((t - p->t0) % 4 == 0) { /* sixteen scales at a time */
                scales = dsf_expand_scales(s + 4 * t, g->k / 32 - 4 * t);
                lanes = dsf_scale_lanes();
            }
            spread = _mm512_permutexvar_ps(lanes, scales);
            lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(4));
        }
        for (int64_t b = 0; b < width(f, DSF_GROUP); b += 64) {
            _mm_prefetch((const char *)codes + ahead + b, _MM_HINT_T1);
            _mm_prefetch((const char *)codes + NEAR + b, _MM_HINT_T0);
        }
        if (valid >= DSF_GROUP)
            expand_w(f, codes, DSF_GROUP, v);
        else
            expand_w(f, codes, valid, v);
        DSF_UNROLL for (int r = 0; r < rows; r++)
        {
            __m512 part = _mm512_setzero_ps();
            DSF_UNROLL for (int j = 0; j < VECTORS; j++) part =
                _mm512_fmadd_ps(v[j], _mm512_load_ps(x + (r * VECTORS + j) * LANES), part);
            acc[r] = _mm512_fmadd_ps(part, spread, acc[r]);
        }
        x += rows * GROUP_FLOATS;
    }
}

/* Activations of a slab to [group][row][8][16]; rows that do not exist repeat the first. */
static void fill_few(const slab *p, const dsf_gemm_block *b, int rows, float *x)
{
    for (int64_t t = p->t0; t < p->t1; t++)
        for (int r = 0; r < rows; r++, x += GROUP_FLOATS) {
            __m512 v[VECTORS];
            expand_x(p->g, b->row[r < b->n_rows ? r : 0], t, v);
            DSF_UNROLL for (int j = 0; j < VECTORS; j++) _mm512_store_ps(x + j * LANES, v[j]);
        }
}

/* Slabs of groups, so that the activations of a slab stay in the first cache while every output
 * passes; for one row a slab is nearly all of k, and the weights are read as they lie. */
DSF_INLINE void run_few(const dsf_gemm *g, const dsf_gemm_block *b, dsf_gemm_format f, int rows)
{
    few_space *space = (few_space *)b->scratch;
    int64_t groups = (g->k + DSF_GROUP - 1) / DSF_GROUP;
    for (int64_t t0 = 0; t0 < groups; t0 += FEW_SLAB / rows) {
        slab p = {g, t0, least(t0 + FEW_SLAB / rows, groups)};
        fill_few(&p, b, rows, space->x);
        for (int o = 0; o < b->n_outs; o++) {
            float *sums = space->acc + o * rows * LANES;
            __m512 acc[DSF_GEMM_FEW_ROWS];
            DSF_UNROLL for (int r = 0; r < rows; r++) acc[r] =
                t0 == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * LANES);
            few_groups(&p, f, rows, b->o0 + o, space->x, acc);
            DSF_UNROLL for (int r = 0; r < rows; r++) _mm512_store_ps(sums + r * LANES, acc[r]);
        }
    }
    for (int o = 0; o < b->n_outs; o++)
        for (int r = 0; r < b->n_rows; r++)
            b->sum[r * DSF_GEMM_OUTS + o] =
                sum_lanes(_mm512_load_ps(space->acc + (o * rows + r) * LANES));
}

DSF_INLINE void run_few_rows(const dsf_gemm *g, const dsf_gemm_block *b, dsf_gemm_format f)
{
    if (b->n_rows <= 1)
        run_few(g, b, f, 1);
    else if (b->n_rows <= 2)
        run_few(g, b, f, 2);
    else if (b->n_rows <= 4)
        run_few(g, b, f, 4);
    else if (b->n_rows <= 6)
        run_few(g, b, f, 6);
    else
        run_few(g, b, f, 8);
}

static void few_e2m1(const dsf_gemm *g, const dsf_gemm_block *b)
{
    run_few_rows(g, b, DSF_GEMM_E2M1);
}

static void few_e4m3(const dsf_gemm *g, const dsf_gemm_block *b)
{
    run_few_rows(g, b, DSF_GEMM_E4M3);
}

static void few_bf16(const dsf_gemm *g, const dsf_gemm_block *b)
{
    run_few_rows(g, b, DSF_GEMM_BF16);
}

/* Activations of a slab to [row tile][group][vector][row of the tile][16]; rows that do not exist
 * are zero. */
static void fill_x(const slab *p, const dsf_gemm_block *b, float *x)
{
    enum { VECTOR_STEP = TILE_ROWS * LANES, GROUP_STEP = VECTORS * VECTOR_STEP };
    for (int r = 0; r < (b->n_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; r++) {
        float *at = x + r / TILE_ROWS * (p->t1 - p->t0) * GROUP_STEP + r % TILE_ROWS * LANES;
        for (int64_t t = p->t0; t < p->t1; t++, at += GROUP_STEP) {
            __m512 v[VECTORS];
            if (r < b->n_rows)
                expand_x(p->g, b->row[r], t, v);
            else
                DSF_UNROLL for (int j = 0; j < VECTORS; j++) v[j] = _mm512_setzero_ps();
            DSF_UNROLL for (int j = 0; j < VECTORS; j++)
                _mm512_store_ps(at + j * VECTOR_STEP, v[j]);
        }
    }
}

/* A slab's weights and scales of one output to [group][vector][output of the tile][16]. */
DSF_INLINE void fill_w(const slab *p, dsf_gemm_format f, int64_t out, float *w, float *s)
{
    const dsf_gemm *g = p->g;
    const uint8_t *row = g->w + out * width(f, g->k);
    const uint8_t *scale = f == DSF_GEMM_BF16 ? NULL : g->s + (out >> g->s_shift) * (g->k / 32);
    for (int64_t t = p->t0; t < p->t1; t++) {
        __m512 v[VECTORS], spread = _mm512_set1_ps(1.0f);
        int64_t valid = g->k - t * DSF_GROUP;
        if (valid >= DSF_GROUP)
            expand_w(f, row + width(f, t * DSF_GROUP), DSF_GROUP, v);
        else
            expand_w(f, row + width(f, t * DSF_GROUP), valid, v);
        if (f != DSF_GEMM_BF16) spread = group_scales(scale + 4 * t, valid / 32);
        DSF_UNROLL for (int j = 0; j < VECTORS; j++)
            _mm512_store_ps(w + j * TILE_OUTS * LANES, v[j]);
        _mm512_store_ps(s, spread);
        w += VECTORS * TILE_OUTS * LANES;
        s += TILE_OUTS * LANES;
    }
}

static void fill_panel(const slab *p, int64_t out, int64_t n, many_space *space)
{
    for (int64_t c = 0; c < n; c++) {
        int64_t tile = c / TILE_OUTS, at = c % TILE_OUTS;
        float *w = space->w + (tile * SLAB * VECTORS * TILE_OUTS + at) * LANES;
        float *s = space->s + (tile * SLAB * TILE_OUTS + at) * LANES;
        if (p->g->format == DSF_GEMM_E2M1)
            fill_w(p, DSF_GEMM_E2M1, out + c, w, s);
        else if (p->g->format == DSF_GEMM_E4M3)
            fill_w(p, DSF_GEMM_E4M3, out + c, w, s);
        else
            fill_w(p, DSF_GEMM_BF16, out + c, w, s);
    }
}

/* What one register tile works on: `groups` groups of x [4][16] and w [6][16] vectors, scales s,
 * running sums acc [4][6][16], which begin at zero in the first slab. Outputs that do not exist
 * carry what the panel held before; nobody reads their sums. */
typedef struct {
    const float *x, *w, *s;
    float *acc;
    int64_t groups;
    int first;
} tile;

static void run_tile(const tile *p)
{
    const float *x = p->x, *w = p->w, *s = p->s;
    float *acc = p->acc;
    for (int64_t t = 0; t < p->groups; t++) {
        __m512 part[TILE];
        DSF_UNROLL for (int i = 0; i < TILE; i++) part[i] = _mm512_setzero_ps();
        for (int j = 0; j < VECTORS; j++) {
            __m512 v[TILE_OUTS];
            DSF_UNROLL for (int c = 0; c < TILE_OUTS; c++) v[c] = _mm512_load_ps(w + c * LANES);
            DSF_UNROLL for (int r = 0; r < TILE_ROWS; r++)
            {
                __m512 xr = _mm512_load_ps(x + r * LANES);
                DSF_UNROLL for (int c = 0; c < TILE_OUTS; c++) part[r * TILE_OUTS + c] =
                    _mm512_fmadd_ps(v[c], xr, part[r * TILE_OUTS + c]);
            }
            w += TILE_OUTS * LANES;
            x += TILE_ROWS * LANES;
        }
        DSF_UNROLL for (int i = 0; i < TILE; i++)
        {
            __m512 sum = p->first && t == 0 ? _mm512_setzero_ps() : _mm512_load_ps(acc + i * LANES);
            __m512 scale = _mm512_load_ps(s + i % TILE_OUTS * LANES);
            _mm512_store_ps(acc + i * LANES, _mm512_fmadd_ps(part[i], scale, sum));
        }
        s += TILE_OUTS * LANES;
    }
}

/* A panel of n outputs, from output o of the block, times all rows. */
static void run_panel(const slab *p, const dsf_gemm_block *b, int64_t o, int64_t n)
{
    many_space *space = (many_space *)b->scratch;
    int64_t groups = p->t1 - p->t0, row_tiles = (b->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t r = 0; r < row_tiles; r++)
        for (int64_t c = 0; c * TILE_OUTS < n; c++) {
            tile t = {space->x + r * groups * TILE_ROWS * GROUP_FLOATS,
                      space->w + c * SLAB * TILE_OUTS * GROUP_FLOATS,
                      space->s + c * SLAB * TILE_OUTS * LANES,
                      space->acc + ((o / TILE_OUTS + c) * row_tiles + r) * TILE * LANES,
                      groups,
                      p->t0 == 0};
            run_tile(&t);
        }
}

static void store_sums(const dsf_gemm_block *b)
{
    const float *acc = ((many_space *)b->scratch)->acc;
    for (int o = 0; o < b->n_outs; o += TILE_OUTS)
        for (int r = 0; r < b->n_rows; r += TILE_ROWS, acc += TILE * LANES) {
            float sums[TILE];
            for (int i = 0; i < TILE; i += 4) _mm_storeu_ps(sums + i, sum_lanes4(acc + i * LANES));
            for (int i = 0; i < TILE; i++)
                b->sum[(r + i / TILE_OUTS) * DSF_GEMM_OUTS + o + i % TILE_OUTS] = sums[i];
        }
}

static void run_many(const dsf_gemm *g, const dsf_gemm_block *b)
{
    many_space *space = (many_space *)b->scratch;
    int64_t groups = (g->k + DSF_GROUP - 1) / DSF_GROUP;
    for (int64_t t0 = 0; t0 < groups; t0 += SLAB) {
        slab p = {g, t0, least(t0 + SLAB, groups)};
        fill_x(&p, b, space->x);
        for (int64_t o = 0; o < b->n_outs; o += PANEL) {
            int64_t n = least(PANEL, b->n_outs - o);
            fill_panel(&p, b->o0 + o, n, space);
            run_panel(&p, b, o, n);
        }
    }
    store_sums(b);
}

void dsf_gemm_run(const dsf_gemm *g, const dsf_gemm_block *b)
{
    if (b->n_rows > DSF_GEMM_FEW_ROWS)
        run_many(g, b);
    else if (g->format == DSF_GEMM_E2M1)
        few_e2m1(g, b);
    else if (g->format == DSF_GEMM_E4M3)
        few_e4m3(g, b);
    else
        few_bf16(g, b);
}

void dsf_gemm_store_bf16(uint16_t *out, const float *sum, int n)
{
    for (int i = 0; i < n; i += LANES) {
        __mmask16 have = (__mmask16)dsf_mask_low(n - i);
        __m512 v = dsf_lane_round_bf16(_mm512_maskz_loadu_ps(have, sum + i));
        _mm256_mask_storeu_epi16(out + i, have, dsf_lane_to_bf16(v));
    }
}
