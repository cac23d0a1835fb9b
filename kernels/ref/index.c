/* The indexer as written in architecture.md 6.2-6.4. */
#include "ops/index.h"

#include <math.h>

#include "base/num.h"

typedef struct {
    const dsf_launch *lc;
    const void *args;
} job;

static uint8_t *scratch_of(const job *j, int worker)
{
    return j->lc->scratch + (size_t)worker * j->lc->scratch_bytes;
}

dsf_status dsf_index_weight_ref(const dsf_launch *lc, const void *args)
{
    (void)lc;
    const dsf_index_weight_args *a = args;
    const uint16_t *x = a->x.data;
    uint16_t *out = a->out.data;
    for (int64_t i = 0; i < dsf_tensor_count(&a->x); i++)
        out[i] = dsf_f32_to_bf16(dsf_bf16_to_f32(x[i]) * a->factor);
    return DSF_OK;
}

/* q . k of two Q4X records of d channels. A group's sum is a multiple of 1/4 below 2^11, so it is
 * exact, and so is its product with one scale: what fmaf rounds is the addition. */
static float dot(const uint8_t *q, const uint8_t *k, int64_t d)
{
    float sum = 0;
    for (int64_t g = 0; g < d / 32; g++) {
        float group = 0;
        for (int64_t c = 32 * g; c < 32 * g + 32; c++) {
            int shift = c & 1 ? 4 : 0;
            group += dsf_e2m1_to_f32(q[c / 2] >> shift) * dsf_e2m1_to_f32(k[c / 2] >> shift);
        }
        sum = fmaf(group * dsf_e8m0_to_f32(k[d / 2 + g]), dsf_e8m0_to_f32(q[d / 2 + g]), sum);
    }
    return sum;
}

static float round_bf16(float x) { return dsf_bf16_to_f32(dsf_f32_to_bf16(x)); }

/* One row's queries and weights, and the keys of its sequence. */
typedef struct {
    const uint8_t *q;  /* [h] records */
    const uint16_t *a; /* [h] */
    const uint8_t *keys;
    int64_t h, d, bytes; /* bytes: of a record */
} scorer;

static scorer scorer_of(const dsf_tensor *q, const dsf_tensor *a, const dsf_tensor *keys,
                        int64_t row, int64_t slot)
{
    scorer s = {.h = q->dim[1], .d = q->dim[2], .bytes = dsf_dtype_bytes(DSF_Q4X, q->dim[2])};
    s.q = (const uint8_t *)q->data + row * s.h * s.bytes;
    s.a = (const uint16_t *)a->data + row * s.h;
    s.keys = (const uint8_t *)keys->data + slot * keys->dim[1] * s.bytes;
    return s;
}

static uint16_t score(const scorer *s, int64_t entry)
{
    float sum = 0;
    for (int64_t i = 0; i < s->h; i++) {
        float x = round_bf16(dot(s->q + i * s->bytes, s->keys + entry * s->bytes, s->d));
        x = x < 0 ? 0 : x;
        sum += round_bf16(dsf_bf16_to_f32(s->a[i]) * x);
    }
    return dsf_f32_to_bf16(sum);
}

static void scores_item(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_index_scores_args *a = ((const job *)arg)->args;
    int64_t e = a->scores.dim[1];
    int64_t visible = dsf_index_visible(((const int32_t *)a->pos.data)[i], a->ratio, e);
    uint16_t *out = (uint16_t *)a->scores.data + i * e;
    scorer s = scorer_of(&a->q, &a->a, &a->keys, i, ((const int32_t *)a->slot.data)[i]);
    for (int64_t j = 0; j < e; j++)
        out[j] = j < visible ? score(&s, j) : dsf_f32_to_bf16(-INFINITY);
}

dsf_status dsf_index_scores_ref(const dsf_launch *lc, const void *args)
{
    job task = {lc, args};
    dsf_pool_run(lc->pool, ((const dsf_index_scores_args *)args)->q.dim[0], scores_item, &task);
    return DSF_OK;
}

/* One row of a selection. */
typedef struct {
    const uint16_t *scores;
    int64_t visible;
    int64_t block;
    const int32_t *pool_in; /* NULL: no restriction */
    int32_t *pool_out;      /* NULL: not wanted */
    int64_t b;              /* entries of either pool */
    int32_t *topk;
    int64_t k;
    float *value; /* scratch: one for each entry */
} selection;

/* The `k` best of value[0..n): larger first, then smaller id. NaN: does not compete. Ids in
 * ascending order, then -1. */
static void keep_best(int32_t *best, int64_t k, const float *value, int64_t n)
{
    int64_t kept = 0;
    for (int64_t j = 0; j < n; j++) {
        if (isnan(value[j])) continue;
        int64_t at = kept;
        while (at > 0 && value[j] > value[best[at - 1]]) at--;
        if (at == k) continue;
        if (kept < k) kept++;
        for (int64_t m = kept - 1; m > at; m--) best[m] = best[m - 1];
        best[at] = (int32_t)j;
    }
    for (int64_t j = 1; j < kept; j++) {
        int32_t id = best[j];
        int64_t at = j;
        for (; at > 0 && best[at - 1] > id; at--) best[at] = best[at - 1];
        best[at] = id;
    }
    for (int64_t j = kept; j < k; j++) best[j] = -1;
}

/* A NaN score counts as -inf. */
static float score_value(uint16_t bits)
{
    float x = dsf_bf16_to_f32(bits);
    return isnan(x) ? -INFINITY : x;
}

static void select_pool(const selection *s)
{
    int64_t blocks = (s->visible + s->block - 1) / s->block;
    for (int64_t m = 0; m < blocks; m++) {
        float max = -INFINITY;
        for (int64_t j = m * s->block; j < (m + 1) * s->block && j < s->visible; j++)
            max = fmaxf(max, score_value(s->scores[j]));
        s->value[m] = max == -INFINITY ? NAN : max;
    }
    for (int64_t m = 0; m < s->b; m++) s->pool_out[m] = -1;
    if (blocks == 0 || s->b == 0) return;
    s->value[blocks - 1] = NAN; /* the newest visible one: in the pool before all others */
    keep_best(s->pool_out, s->b - 1, s->value, blocks - 1);
    int64_t kept = 0;
    while (kept < s->b - 1 && s->pool_out[kept] >= 0) kept++;
    s->pool_out[kept] = (int32_t)(blocks - 1);
}

static void select_topk(const selection *s)
{
    for (int64_t j = 0; j < s->visible; j++)
        s->value[j] = s->pool_in ? NAN : score_value(s->scores[j]);
    for (int64_t m = 0; s->pool_in && m < s->b && s->pool_in[m] >= 0; m++) {
        int64_t first = s->pool_in[m] * s->block;
        for (int64_t j = first; j < first + s->block && j < s->visible; j++)
            s->value[j] = score_value(s->scores[j]);
    }
    keep_best(s->topk, s->k, s->value, s->visible);
}

static void select_row(const selection *s, int64_t i, const dsf_tensor *topk,
                       const dsf_tensor *pool_in, const dsf_tensor *pool_out)
{
    selection row = *s;
    row.k = topk->dim[1];
    row.topk = (int32_t *)topk->data + i * row.k;
    if (pool_in->rank) {
        row.b = pool_in->dim[1];
        row.pool_in = (const int32_t *)pool_in->data + i * row.b;
    }
    select_topk(&row);
    if (pool_out->rank) {
        row.b = pool_out->dim[1];
        row.pool_out = (int32_t *)pool_out->data + i * row.b;
        select_pool(&row);
    }
}

static void select_item(void *arg, int64_t i, int worker)
{
    const job *task = arg;
    const dsf_index_select_args *a = task->args;
    int64_t e = a->scores.dim[1];
    selection s = {.scores = (const uint16_t *)a->scores.data + i * e,
                   .visible = dsf_index_visible(((const int32_t *)a->pos.data)[i], a->ratio, e),
                   .block = a->block,
                   .value = (float *)(void *)scratch_of(task, worker)};
    select_row(&s, i, &a->topk, &a->pool_in, &a->pool_out);
}

size_t dsf_index_select_scratch_ref(const void *args)
{
    const dsf_index_select_args *a = args;
    return (size_t)a->scores.dim[1] * sizeof(float);
}

dsf_status dsf_index_select_ref(const dsf_launch *lc, const void *args)
{
    job task = {lc, args};
    dsf_pool_run(lc->pool, ((const dsf_index_select_args *)args)->topk.dim[0], select_item, &task);
    return DSF_OK;
}

size_t dsf_index_topk_scratch_ref(const void *args)
{
    const dsf_index_topk_args *a = args;
    return (size_t)a->keys.dim[1] * (sizeof(float) + sizeof(uint16_t));
}

/* Scores everything visible: what is outside pool_in is dropped by the selection. */
static void topk_item(void *arg, int64_t i, int worker)
{
    const job *task = arg;
    const dsf_index_topk_args *a = task->args;
    int64_t c = a->keys.dim[1];
    uint8_t *scratch = scratch_of(task, worker);
    uint16_t *scores = (uint16_t *)(void *)(scratch + (size_t)c * sizeof(float));
    selection s = {.scores = scores,
                   .visible = dsf_index_visible(((const int32_t *)a->pos.data)[i], a->ratio, c),
                   .block = a->block,
                   .value = (float *)(void *)scratch};
    scorer from = scorer_of(&a->q, &a->a, &a->keys, i, ((const int32_t *)a->slot.data)[i]);
    for (int64_t e = 0; e < s.visible; e++) scores[e] = score(&from, e);
    select_row(&s, i, &a->topk, &a->pool_in, &a->pool_out);
}

dsf_status dsf_index_topk_ref(const dsf_launch *lc, const void *args)
{
    job task = {lc, args};
    dsf_pool_run(lc->pool, ((const dsf_index_topk_args *)args)->topk.dim[0], topk_item, &task);
    return DSF_OK;
}
