/* Indexer. Scores: 32 entries at a time, their keys decoded once for a few rows. e2m1 values
 * doubled are integers of at most 12, so that a group of 32 channels is an exact integer dot
 * (vpdpbusd): keys as bytes 2k + 12 >= 0, queries as signed 2q, and -12 sum(2q) as the start of the
 * sum. Then one product with the key's scale (the 1/4 of the doubling is in it, exact) and one
 * multiply-add with the query's, in the order of the contract: the same roundings as the reference,
 * the same bits. Selection is in select.h. */
#include "ops/index.h"

#include <string.h>

#include "avx512/lane.h"
#include "avx512/select.h"
#include "base/num.h"

enum {
    LANES = 16,
    TILE = DSF_SELECT_LANES, /* entries */
    HEADS = 4,    /* of a register tile: 8 sums, 8 dots, 2 keys, 1 query of 32 registers */
    ROWS = 4,     /* that share a decoded tile; decoding costs a tenth of scoring one row */
    CHUNK = 1024, /* entries of a work item where rows are few */
    FEW_ROWS = 64
};

/* Scoring. */

typedef struct {
    int32_t *q;     /* [h][d/4]: four channels 2q a dword; per group of 32: even ones, odd ones */
    int32_t *start; /* [h][d/32] */
    float *scale;   /* [h][d/32] */
    float *a;       /* [h] */
} row_data;

typedef struct {
    row_data row[ROWS];
    uint8_t *key;    /* [d/4][32 entries][4 channels], channels in the order of row_data.q */
    float *scale;    /* [d/32][32 entries], a quarter of the key's */
    uint16_t *score; /* [ROWS][padded c], index_topk only */
    uint16_t *part;  /* [padded c]: scores of the pool's entries */
    uint16_t *best;  /* [padded c / block]: of each block */
} workspace;

typedef struct {
    const dsf_launch *lc;
    dsf_tensor q, a, keys, pos, slot;
    dsf_tensor topk, pool_in, pool_out; /* index_topk, index_select */
    dsf_tensor scores;                  /* index_scores: out; index_select: in */
    int ratio, block;
    int64_t n, h, d, entries, padded;
    int64_t first; /* row of the current group, where rows are few */
} job;

/* A number, not a pointer: the size is measured from 0. */
static void *take(uintptr_t *at, int64_t bytes)
{
    uintptr_t p = *at;
    *at += (uintptr_t)(bytes + 63) & ~(uintptr_t)63;
    return (void *)p; /* NOLINT(performance-no-int-to-ptr) */
}

/* Lays the workspace out from `base`; returns its size. */
static size_t cut(const job *j, void *base, workspace *w)
{
    uintptr_t at = (uintptr_t)base, begin = at;
    int64_t groups = j->d / 32;
    for (int i = 0; i < ROWS; i++) {
        w->row[i].q = take(&at, j->h * j->d);
        w->row[i].start = take(&at, j->h * groups * 4);
        w->row[i].scale = take(&at, j->h * groups * 4);
        w->row[i].a = take(&at, j->h * 4);
    }
    w->key = take(&at, j->d * TILE);
    w->scale = take(&at, groups * TILE * 4);
    if (!j->topk.rank) return (size_t)(at - begin);
    if (!j->scores.rank) w->score = take(&at, ROWS * j->padded * 2);
    w->part = take(&at, j->padded * 2);
    w->best = take(&at, j->padded / j->block * 2 + 64);
    return (size_t)(at - begin);
}

static workspace workspace_of(const job *j, int worker)
{
    workspace w = {0};
    (void)cut(j, j->lc->scratch + (size_t)worker * j->lc->scratch_bytes, &w);
    return w;
}

/* e2m1 codes as 2x + 12. */
static __m128i grid(void)
{
    return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
}

static void load_row(const job *j, row_data *r, int64_t i)
{
    int64_t groups = j->d / 32, bytes = dsf_dtype_bytes(DSF_Q4X, j->d);
    const __m128i low = _mm_set1_epi8(15), twelve = _mm_set1_epi8(12);
    for (int64_t head = 0; head < j->h; head++) {
        const uint8_t *rec = (const uint8_t *)j->q.data + (i * j->h + head) * bytes;
        r->a[head] = dsf_bf16_to_f32(((const uint16_t *)j->a.data)[i * j->h + head]);
        for (int64_t g = 0; g < groups; g++) {
            __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(rec + 16 * g));
            __m128i even = _mm_shuffle_epi8(grid(), _mm_and_si128(x, low));
            __m128i odd = _mm_shuffle_epi8(grid(), _mm_and_si128(_mm_srli_epi16(x, 4), low));
            __m128i sum = _mm_add_epi64(_mm_sad_epu8(even, _mm_setzero_si128()),
                                        _mm_sad_epu8(odd, _mm_setzero_si128()));
            __m128i *out = (__m128i *)(void *)(r->q + head * j->d / 4 + 8 * g);
            _mm_store_si128(out, _mm_sub_epi8(even, twelve));
            _mm_store_si128(out + 1, _mm_sub_epi8(odd, twelve));
            int total = _mm_extract_epi16(sum, 0) + _mm_extract_epi16(sum, 4) - 32 * 12;
            r->start[head * groups + g] = -12 * total;
            r->scale[head * groups + g] = dsf_e8m0_to_f32(rec[j->d / 2 + g]);
        }
    }
}

/* 16 x 16 dwords in registers. Two rounds inside the 128-bit lanes, two between them. */
static void transpose16(__m512i r[LANES])
{
    __m512i b[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        b[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        r[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        b[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        b[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xDD);
        b[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        b[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xDD);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        r[c] = _mm512_shuffle_i32x4(b[c], b[8 + c], 0x88);
        r[4 + c] = _mm512_shuffle_i32x4(b[4 + c], b[12 + c], 0x88);
        r[8 + c] = _mm512_shuffle_i32x4(b[c], b[8 + c], 0xDD);
        r[12 + c] = _mm512_shuffle_i32x4(b[4 + c], b[12 + c], 0xDD);
    }
}

/* A quarter of 16 ue8m0 scales. 2^-127 is an f32 subnormal, 255 is NaN. */
static __m512 quarter_scale(const uint8_t *u)
{
    __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)u));
    __m512i bits = _mm512_slli_epi32(x, 23);
    __mmask16 zero = _mm512_testn_epi32_mask(x, x);
    __mmask16 nan = _mm512_cmpeq_epi32_mask(x, _mm512_set1_epi32(255));
    bits = _mm512_mask_mov_epi32(bits, zero, _mm512_set1_epi32(0x00400000));
    bits = _mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7FC00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0.25f));
}

/* Half a tile: 16 records, channels as they lie in 64-byte pieces. */
static void load_keys(const job *j, const workspace *w, const uint8_t *const rec[LANES], int half)
{
    const __m512i table = _mm512_broadcast_i32x4(grid()), low = _mm512_set1_epi8(15);
    for (int64_t piece = 0; piece < j->d / 8; piece += LANES) { /* in dwords */
        int64_t left = j->d / 8 - piece < LANES ? j->d / 8 - piece : LANES;
        __mmask16 mask = (__mmask16)((1u << left) - 1);
        __m512i r[LANES];
        for (int i = 0; i < LANES; i++) r[i] = _mm512_maskz_loadu_epi32(mask, rec[i] + 4 * piece);
        transpose16(r);
        for (int64_t i = 0; i < left; i++) {
            int64_t quad = (piece + i) / 4 * 8 + i % 4; /* 4 of even channels, then 4 of odd */
            uint8_t *out = w->key + (quad * TILE + half * LANES) * 4;
            __m512i odd = _mm512_and_si512(_mm512_srli_epi16(r[i], 4), low);
            _mm512_store_si512(out, _mm512_shuffle_epi8(table, _mm512_and_si512(r[i], low)));
            _mm512_store_si512(out + 4 * TILE * 4, _mm512_shuffle_epi8(table, odd));
        }
    }
    for (int64_t g = 0; g < j->d / 32; g++) {
        uint8_t u[LANES];
        for (int i = 0; i < LANES; i++) u[i] = rec[i][j->d / 2 + g];
        _mm512_store_ps(w->scale + g * TILE + half * LANES, quarter_scale(u));
    }
}

/* total[2] += the contributions of `heads` heads to the scores of a tile, in ascending order. */
static inline __attribute__((always_inline)) void add_heads(const job *j, const workspace *w,
                                                            const row_data *r, int64_t head,
                                                            __m512 total[2], const int heads)
{
    int64_t groups = j->d / 32;
    __m512 dot[HEADS][2];
#pragma GCC unroll 4
    for (int i = 0; i < heads; i++) dot[i][0] = dot[i][1] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        const int32_t *q = r->q + head * j->d / 4 + 8 * g;
        const uint8_t *key = w->key + 8 * g * TILE * 4;
        __m512i sum[HEADS][2];
#pragma GCC unroll 4
        for (int i = 0; i < heads; i++)
            sum[i][0] = sum[i][1] = _mm512_set1_epi32(r->start[(head + i) * groups + g]);
#pragma GCC unroll 8
        for (int s = 0; s < 8; s++) {
            __m512i k0 = _mm512_load_si512(key + s * TILE * 4);
            __m512i k1 = _mm512_load_si512(key + s * TILE * 4 + 64);
#pragma GCC unroll 4
            for (int i = 0; i < heads; i++) {
                __m512i x = _mm512_set1_epi32(q[i * j->d / 4 + s]);
                sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], k0, x);
                sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], k1, x);
            }
        }
        __m512 s0 = _mm512_load_ps(w->scale + g * TILE);
        __m512 s1 = _mm512_load_ps(w->scale + g * TILE + LANES);
#pragma GCC unroll 4
        for (int i = 0; i < heads; i++) {
            __m512 scale = _mm512_set1_ps(r->scale[(head + i) * groups + g]);
            __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][0]), s0);
            __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][1]), s1);
            dot[i][0] = _mm512_fmadd_ps(x, scale, dot[i][0]);
            dot[i][1] = _mm512_fmadd_ps(y, scale, dot[i][1]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < heads; i++) {
        __m512 a = _mm512_set1_ps(r->a[head + i]);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) { /* max: the second operand if that is NaN */
            __m512 x = _mm512_max_ps(_mm512_setzero_ps(), dsf_lane_round_bf16(dot[i][half]));
            total[half] = _mm512_add_ps(total[half], dsf_lane_round_bf16(_mm512_mul_ps(a, x)));
        }
    }
}

/* bf16 scores of one row for the tile's 32 entries. */
static __m512i score_tile(const job *j, const workspace *w, const row_data *r)
{
    __m512 total[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    int64_t head = 0;
    for (; head + HEADS <= j->h; head += HEADS) add_heads(j, w, r, head, total, HEADS);
    for (; head < j->h; head++) add_heads(j, w, r, head, total, 1);
    __m256i low = dsf_lane_to_bf16(dsf_lane_round_bf16(total[0]));
    __m256i high = dsf_lane_to_bf16(dsf_lane_round_bf16(total[1]));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static int64_t row_slot(const job *j, int64_t i) { return ((const int32_t *)j->slot.data)[i]; }

/* Entries that one row looks at: the visible ones, or those of its pool. */
typedef struct {
    int64_t visible, count, block;
    const int32_t *pool; /* NULL: all visible */
} candidates;

static int64_t entry_at(const candidates *c, int64_t at)
{
    return c->pool ? c->pool[at / c->block] * c->block + at % c->block : at;
}

static candidates all_of(const job *j, int64_t i)
{
    candidates c = {.block = j->block};
    c.visible = dsf_index_visible(((const int32_t *)j->pos.data)[i], j->ratio, j->entries);
    c.count = c.visible;
    return c;
}

/* Blocks are ascending, so that only the last one with a visible entry can be cut. */
static candidates pool_of(const job *j, int64_t i)
{
    candidates c = all_of(j, i);
    if (!j->pool_in.rank) return c;
    int64_t b = j->pool_in.dim[1];
    c.pool = (const int32_t *)j->pool_in.data + i * b;
    c.count = 0;
    for (int64_t m = 0; m < b && c.pool[m] >= 0; m++) {
        int64_t left = c.visible - c.pool[m] * c.block;
        if (left <= 0) break;
        c.count += left < c.block ? left : c.block;
    }
    return c;
}

/* What index_topk scores: the pool alone, unless a new pool is wanted, which needs all. */
static candidates scored_of(const job *j, int64_t i)
{
    return j->pool_out.rank ? all_of(j, i) : pool_of(j, i);
}

/* Where the scores of row i go: scores of index_scores, or 16-bit numbers of a group's row. */
static void store_tile(const job *j, uint16_t *out, int64_t at, int64_t count, __m512i x)
{
    __mmask32 mask = dsf_select_mask(at, count);
    _mm512_mask_storeu_epi16(out + at, mask, j->topk.rank ? dsf_select_order(x) : x);
}

/* Candidates from..to of rows i..i+n-1; out: of row i, the next ones `padded` apart. */
typedef struct {
    int64_t i, n, from, to;
    uint16_t *out;
} span;

/* Rows of one sequence that have their candidates in common, up to each one's count. */
static void score_run(const job *j, workspace *w, span s)
{
    int64_t bytes = dsf_dtype_bytes(DSF_Q4X, j->d), count[ROWS], slot = row_slot(j, s.i);
    const uint8_t *keys = (const uint8_t *)j->keys.data + slot * j->keys.dim[1] * bytes;
    candidates most = {0};
    for (int64_t r = 0; r < s.n; r++) {
        candidates c = scored_of(j, s.i + r);
        count[r] = c.count < s.to ? c.count : s.to;
        if (c.count >= most.count) most = c;
        if (count[r] > s.from) load_row(j, &w->row[r], s.i + r);
    }
    if (s.to > most.count) s.to = most.count;
    for (int64_t at = s.from; at < s.to; at += TILE) {
        const uint8_t *rec[TILE];
        for (int64_t e = 0; e < TILE; e++) /* past the end: the last one again */
            rec[e] = keys + entry_at(&most, at + e < s.to ? at + e : s.to - 1) * bytes;
        load_keys(j, w, rec, 0);
        load_keys(j, w, rec + LANES, 1);
        for (int64_t r = 0; r < s.n; r++)
            if (at < count[r])
                store_tile(j, s.out + r * j->padded, at, count[r], score_tile(j, w, &w->row[r]));
    }
}

/* The same for rows of any sequences. */
static void score_rows(const job *j, workspace *w, span s)
{
    int alone = j->pool_in.rank && !j->pool_out.rank;
    for (int64_t end = s.i + s.n; s.i < end; s.i += s.n) {
        for (s.n = 1; !alone && s.i + s.n < end; s.n++)
            if (row_slot(j, s.i + s.n) != row_slot(j, s.i)) break;
        score_run(j, w, s);
        s.out += s.n * j->padded;
    }
}

/* Selection. */

static void select_topk(const job *j, const workspace *w, int64_t i, const uint16_t *x)
{
    int64_t k = j->topk.dim[1];
    int32_t *topk = (int32_t *)j->topk.data + i * k;
    candidates c = pool_of(j, i);
    /* x holds all scores where they are given or a pool is made of them: take the pool's. */
    if (c.pool && (j->pool_out.rank || j->scores.rank)) {
        for (int64_t e = 0; e < c.count; e++) w->part[e] = x[entry_at(&c, e)];
        x = w->part;
    }
    int64_t kept = dsf_select_best(topk, k, x, c.count, 0);
    for (int64_t m = 0; c.pool && m < kept; m++) topk[m] = (int32_t)entry_at(&c, topk[m]);
    for (int64_t m = kept; m < k; m++) topk[m] = -1;
}

/* The newest visible block, and the best of the others that have a score above -inf. */
static void select_pool(const job *j, const workspace *w, int64_t i, const uint16_t *x)
{
    int64_t b = j->pool_out.dim[1], kept = 0;
    int32_t *pool = (int32_t *)j->pool_out.data + i * b;
    candidates c = all_of(j, i);
    int64_t newest = (c.visible + c.block - 1) / c.block - 1;
    for (int64_t m = 0; m < newest; m++) {
        uint16_t max = 0;
        for (int64_t e = m * c.block; e < (m + 1) * c.block; e++) max = x[e] > max ? x[e] : max;
        w->best[m] = max;
    }
    if (newest >= 0 && b > 0) {
        kept = dsf_select_best(pool, b - 1, w->best, newest, DSF_SELECT_MINUS_INF + 1);
        pool[kept++] = (int32_t)newest;
    }
    for (int64_t m = kept; m < b; m++) pool[m] = -1;
}

static void select_row(const job *j, const workspace *w, int64_t i, const uint16_t *x)
{
    select_topk(j, w, i, x);
    if (j->pool_out.rank) select_pool(j, w, i, x);
}

/* index_topk. */

static job topk_job(const dsf_launch *lc, const dsf_index_topk_args *a)
{
    job j = {.lc = lc, .q = a->q, .a = a->a, .keys = a->keys, .pos = a->pos, .slot = a->slot};
    j.topk = a->topk;
    j.pool_in = a->pool_in;
    j.pool_out = a->pool_out;
    j.ratio = a->ratio;
    j.block = a->block;
    j.n = a->q.dim[0];
    j.h = a->q.dim[1];
    j.d = a->q.dim[2];
    j.entries = a->keys.dim[1];
    j.padded = (j.entries + TILE - 1) / TILE * TILE;
    return j;
}

size_t dsf_index_topk_scratch_avx512(const void *args)
{
    job j = topk_job(NULL, args);
    workspace w;
    return cut(&j, NULL, &w);
}

/* A group of rows from end to end. */
static void topk_group(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    workspace w = workspace_of(j, worker);
    int64_t i = item * ROWS, n = j->n - i < ROWS ? j->n - i : ROWS;
    score_rows(j, &w, (span){i, n, 0, j->padded, w.score});
    for (int64_t r = 0; r < n; r++) select_row(j, &w, i + r, w.score + r * j->padded);
}

static int64_t group_rows(const job *j) { return j->n - j->first < ROWS ? j->n - j->first : ROWS; }

/* Where rows are few, a group's scores lie in the first worker's space and all workers add to them.
 */
static void topk_chunk(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    workspace w = workspace_of(j, worker), shared = workspace_of(j, 0);
    score_rows(j, &w,
               (span){j->first, group_rows(j), item * CHUNK, (item + 1) * CHUNK, shared.score});
}

static void topk_row(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    workspace w = workspace_of(j, worker), shared = workspace_of(j, 0);
    select_row(j, &w, j->first + item, shared.score + item * j->padded);
}

static int64_t most_candidates(const job *j)
{
    int64_t most = 0;
    for (int64_t r = 0; r < group_rows(j); r++) {
        candidates c = scored_of(j, j->first + r);
        if (c.count > most) most = c.count;
    }
    return most;
}

dsf_status dsf_index_topk_avx512(const dsf_launch *lc, const void *args)
{
    job j = topk_job(lc, args);
    if (j.n >= FEW_ROWS) {
        dsf_pool_run(lc->pool, (j.n + ROWS - 1) / ROWS, topk_group, &j);
        return DSF_OK;
    }
    for (; j.first < j.n; j.first += ROWS) {
        dsf_pool_run(lc->pool, (most_candidates(&j) + CHUNK - 1) / CHUNK, topk_chunk, &j);
        dsf_pool_run(lc->pool, group_rows(&j), topk_row, &j);
    }
    return DSF_OK;
}

/* index_scores. */

static job scores_job(const dsf_launch *lc, const dsf_index_scores_args *a)
{
    job j = {.lc = lc, .q = a->q, .a = a->a, .keys = a->keys, .pos = a->pos, .slot = a->slot};
    j.scores = a->scores;
    j.ratio = a->ratio;
    j.n = a->q.dim[0];
    j.h = a->q.dim[1];
    j.d = a->q.dim[2];
    j.entries = j.padded = a->scores.dim[1];
    return j;
}

size_t dsf_index_scores_scratch_avx512(const void *args)
{
    job j = scores_job(NULL, args);
    workspace w;
    return cut(&j, NULL, &w);
}

static void scores_item(void *arg, int64_t item, int worker)
{
    const job *j = arg;
    workspace w = workspace_of(j, worker);
    int64_t chunks = (j->entries + CHUNK - 1) / CHUNK;
    int64_t i = item / chunks * ROWS, n = j->n - i < ROWS ? j->n - i : ROWS;
    int64_t from = item % chunks * CHUNK;
    int64_t to = from + CHUNK < j->entries ? from + CHUNK : j->entries;
    uint16_t *out = (uint16_t *)j->scores.data + i * j->entries;
    score_rows(j, &w, (span){i, n, from, to, out});
    for (int64_t r = 0; r < n; r++) {
        int64_t seen = all_of(j, i + r).count;
        for (int64_t e = seen > from ? seen : from; e < to; e++)
            out[r * j->entries + e] = 0xFF80; /* -inf */
    }
}

dsf_status dsf_index_scores_avx512(const dsf_launch *lc, const void *args)
{
    job j = scores_job(lc, args);
    int64_t chunks = (j.entries + CHUNK - 1) / CHUNK;
    dsf_pool_run(lc->pool, (j.n + ROWS - 1) / ROWS * chunks, scores_item, &j);
    return DSF_OK;
}

/* index_select. */

static job select_job(const dsf_launch *lc, const dsf_index_select_args *a)
{
    job j = {.lc = lc, .topk = a->topk, .pool_in = a->pool_in, .pool_out = a->pool_out};
    j.scores = a->scores;
    j.pos = a->pos;
    j.ratio = a->ratio;
    j.block = a->block;
    j.n = a->scores.dim[0];
    j.entries = a->scores.dim[1];
    j.padded = (j.entries + TILE - 1) / TILE * TILE;
    return j;
}

/* The row's scores as 16-bit numbers, then what cut() lays out. */
size_t dsf_index_select_scratch_avx512(const void *args)
{
    job j = select_job(NULL, args);
    workspace w;
    return cut(&j, NULL, &w) + (size_t)j.padded * 2;
}

static void select_item(void *arg, int64_t i, int worker)
{
    const job *j = arg;
    uint16_t *x = (uint16_t *)(void *)(j->lc->scratch + (size_t)worker * j->lc->scratch_bytes);
    const uint16_t *scores = (const uint16_t *)j->scores.data + i * j->entries;
    workspace w = {0};
    (void)cut(j, x + j->padded, &w);
    for (int64_t at = 0; at < j->entries; at += TILE) {
        __mmask32 mask = dsf_select_mask(at, j->entries);
        _mm512_store_si512(x + at, dsf_select_order(_mm512_maskz_loadu_epi16(mask, scores + at)));
    }
    select_row(j, &w, i, x);
}

dsf_status dsf_index_select_avx512(const dsf_launch *lc, const void *args)
{
    job j = select_job(lc, args);
    dsf_pool_run(lc->pool, j.n, select_item, &j);
    return DSF_OK;
}

/* index_weight. Too little work to share. */
dsf_status dsf_index_weight_avx512(const dsf_launch *lc, const void *args)
{
    (void)lc;
    const dsf_index_weight_args *a = args;
    const uint16_t *x = a->x.data;
    uint16_t *out = a->out.data;
    int64_t n = dsf_tensor_count(&a->x);
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 mask = n - i < LANES ? (__mmask16)((1u << (n - i)) - 1) : 0xFFFF;
        __m512 v = dsf_lane_from_bf16(_mm256_maskz_loadu_epi16(mask, x + i));
        v = dsf_lane_round_bf16(_mm512_mul_ps(v, _mm512_set1_ps(a->factor)));
        _mm256_mask_storeu_epi16(out + i, mask, dsf_lane_to_bf16(v));
    }
    return DSF_OK;
}
