#include "device_shapes.h"

#include <string.h>

#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/engram.h"
#include "ops/fill.h"
#include "ops/fused.h"
#include "ops/index.h"
#include "ops/moe.h"
#include "ops/rope.h"

const double dsf_device_peak[DSF_N_PEAKS] = {1979e12, 989e12, 67e12};
const double dsf_device_memory_peak = 4.8e12;
const int64_t dsf_device_rows[DSF_N_AT] = {1, 8, 64, 256, 8192, 16384};

#define N   DSF_ROWS
#define ALL DSF_AT_ALL
#define DEC DSF_AT_DECODE
#define BIG (DSF_AT_DECODE | DSF_AT_8192)
#define FEW (DSF_AT_1 | DSF_AT_64 | DSF_AT_8192)

/* Flags of the index operations' cases. */
enum { POOL_OUT = 1, POOL_IN = 2 };
enum { ONE_SEQUENCE = 1 };

const dsf_device_shape dsf_device_shapes[] = {
    {"linear_g8", "wq_a", DSF_PEAK_FP8, ALL, {{N, 5120, 1280}}},
    {"linear_g8", "wq_b", DSF_PEAK_FP8, ALL, {{N, 1280, 32768}}},
    {"linear_g8", "wkv", DSF_PEAK_FP8, ALL, {{N, 5120, 512}}},
    {"linear_g8", "wo_b", DSF_PEAK_FP8, ALL, {{N, 8192, 5120}}},
    {"linear_g8", "shared w1 | w3", DSF_PEAK_FP8, ALL, {{N, 5120, 2304}}},
    {"linear_g8", "shared w2", DSF_PEAK_FP8, ALL, {{N, 2304, 5120}}},
    {"linear_g8", "indexer wq_b", DSF_PEAK_FP8, BIG, {{N, 1280, 4096}}},
    {"linear_g8", "engram wkv", DSF_PEAK_FP8, BIG, {{N, 6144, 25600}}},
    {"linear_g8_pair",
     "wq_a | wkv",
     DSF_PEAK_FP8,
     DSF_AT_1 | DSF_AT_8 | DSF_AT_64,
     {{N, 5120, 1280, 512}}},
    {"linear_g8_pair",
     "shared w1 | w3",
     DSF_PEAK_FP8,
     DSF_AT_1 | DSF_AT_8 | DSF_AT_64,
     {{N, 5120, 2304, 2304}}},
    {"linear_gb", "index weights", DSF_PEAK_BF16, BIG, {{N, 5120, 32}}},
    {"linear_gf", "compressor", DSF_PEAK_BF16, BIG, {{N, 5120, 512}}},
    {"linear_gf", "router", DSF_PEAK_BF16, ALL, {{N, 5120, 384}}},
    {"linear_gf", "head", DSF_PEAK_BF16, DEC, {{N, 5120, 129280}}},
    {"linear_group", "wo_a", DSF_PEAK_BF16, ALL, {{N, 8, 1024, 4096}}},
    {"experts_up", "384 experts", DSF_PEAK_FP8, ALL, {{N, 6, 2304, 384, 5120, 2560}}},
    {"experts_down", "384 experts", DSF_PEAK_FP8, ALL, {{N, 6, 2304, 384, 5120, 1152}}},
    {"attn", "pool 131072", DSF_PEAK_BF16, DEC, {{N, 64, 512, N, N, 144, 131072, 512, 128, 0, 0}}},
    {"attn",
     "prefill, pool 8192",
     DSF_PEAK_BF16,
     DSF_AT_8192,
     {{N, 64, 512, N, ONE_SEQUENCE, 144, 8192, 512, 128, 0, 0}}},
    {"attn",
     "prefill, pool 131072",
     DSF_PEAK_BF16,
     DSF_AT_8192,
     {{N, 64, 512, N, ONE_SEQUENCE, 144, 131072, 512, 128, 0, 0}}},
    {"attn",
     "prefill, pool 524288",
     DSF_PEAK_BF16,
     DSF_AT_8192,
     {{N, 64, 512, N, ONE_SEQUENCE, 144, 524288, 512, 128, 0, 0}}},
    {"attn", "window only", DSF_PEAK_BF16, DEC, {{N, 64, 512, N, N, 144, 0, 0, 128, 0, 0}}},
    {"attn",
     "prefill, window only",
     DSF_PEAK_BF16,
     DSF_AT_8192,
     {{N, 64, 512, N, ONE_SEQUENCE, 144, 0, 0, 128, 0, 0}}},
    {"index_topk", "65536 keys", DSF_PEAK_FP8, DEC, {{N, 512, 1, 32, 128, N, 65536, 2, 8, 0}}},
    {"index_topk",
     "262144 keys, makes the pool",
     DSF_PEAK_FP8,
     DEC,
     {{N, 512, 2048, 32, 128, N, 262144, 2, 8, POOL_OUT}}},
    {"index_topk",
     "262144 keys, in the pool",
     DSF_PEAK_FP8,
     DEC,
     {{N, 512, 2048, 32, 128, N, 262144, 2, 8, POOL_IN}}},
    {"index_topk", "524288 keys", DSF_PEAK_FP8, DEC, {{N, 512, 1, 32, 128, N, 524288, 2, 8, 0}}},
    {"index_topk",
     "prefill, 65536 keys",
     DSF_PEAK_FP8,
     DSF_AT_8192,
     {{N, 512, 1, 32, 128, ONE_SEQUENCE, 65536, 2, 8, 0}}},
    {"index_topk",
     "prefill, 262144 keys",
     DSF_PEAK_FP8,
     DSF_AT_8192,
     {{N, 512, 1, 32, 128, ONE_SEQUENCE, 262144, 2, 8, 0}}},
    {"index_topk",
     "prefill, 524288 keys",
     DSF_PEAK_FP8,
     DSF_AT_8192,
     {{N, 512, 1, 32, 128, ONE_SEQUENCE, 524288, 2, 8, 0}}},
    {"index_scores",
     "262144 keys",
     DSF_PEAK_FP8,
     DSF_AT_256,
     {{N, 262144, 32, 128, ONE_SEQUENCE, 262144, 2, 0}}},
    {"index_scores",
     "65536 keys",
     DSF_PEAK_FP8,
     DSF_AT_256,
     {{N, 65536, 32, 128, ONE_SEQUENCE, 65536, 2, 0}}},
    {"index_scores",
     "524288 keys",
     DSF_PEAK_FP8,
     DSF_AT_256,
     {{N, 524288, 32, 128, ONE_SEQUENCE, 524288, 2, 0}}},
    {"index_select", "65536 keys", DSF_PEAK_F32, DSF_AT_256, {{N, 65536, 512, 1, 2, 8, 0}}},
    {"index_select", "262144 keys", DSF_PEAK_F32, DEC, {{N, 262144, 512, 1, 2, 8, 0}}},
    {"index_select", "524288 keys", DSF_PEAK_F32, DSF_AT_256, {{N, 524288, 512, 1, 2, 8, 0}}},
    {"index_select",
     "262144 keys, makes the pool",
     DSF_PEAK_F32,
     DSF_AT_256,
     {{N, 262144, 512, 2048, 2, 8, POOL_OUT}}},
    {"index_weight", "index weights", DSF_PEAK_F32, FEW, {{N, 32, 0}}},
    {"hc_start", "first layer", DSF_PEAK_F32, FEW, {{N, 5120}}},
    {"hc_mix", "mixing", DSF_PEAK_F32, FEW, {{N, 5120, 24, 20480, 3}}},
    {"hc_collapse", "mixing", DSF_PEAK_F32, FEW, {{N, 5120}}},
    {"hc_expand", "mixing", DSF_PEAK_F32, FEW, {{N, 5120}}},
    {"hc_mean", "taps", DSF_PEAK_F32, FEW, {{N, 5120, 3, 0}}},
    {"hc_boundary", "after attention", DSF_PEAK_F32, BIG, {{N, 5120, 24, 20480, 3, 0, 1}}},
    {"hc_boundary", "after the experts", DSF_PEAK_F32, BIG, {{N, 5120, 24, 20480, 3, 6, 0}}},
    {"row_q8", "query latent", DSF_PEAK_F32, FEW, {{N, 1, 1280, 0, 1}}},
    {"row_q8", "window key", DSF_PEAK_F32, FEW, {{N, 1, 512, 32, 1}}},
    {"row_q4x", "index query", DSF_PEAK_F32, FEW, {{N, 32, 128, 32, 0}}},
    {"swiglu_q8", "shared", DSF_PEAK_F32, FEW, {{N, 2304}}},
    {"row_pair", "query latent, window key", DSF_PEAK_F32, FEW, {{N, 512, 1280, 32}}},
    {"attn_close", "after attention", DSF_PEAK_F32, DEC, {{N, 64, 512, 32, N, 144, 512}}},
    {"attn_close",
     "after attention, prefill",
     DSF_PEAK_F32,
     DSF_AT_8192,
     {{N, 64, 512, 32, ONE_SEQUENCE, 144, 512}}},
    {"rms_norm", "stream", DSF_PEAK_F32, FEW, {{N, 5120}}},
    {"rms_norm", "query", DSF_PEAK_F32, FEW, {{N, 1280}}},
    {"quant_q8", "stream", DSF_PEAK_F32, FEW, {{N, 1, 5120}}},
    {"quant_q8", "expert rows", DSF_PEAK_F32, FEW, {{N, 6, 2304}}},
    {"quant_q4n", "compressed key", DSF_PEAK_F32, FEW, {{N, 1, 512}}},
    {"quant_q4x", "index query", DSF_PEAK_F32, FEW, {{N, 32, 128}}},
    {"rope_table", "angles", DSF_PEAK_F32, FEW, {{N, 32}}},
    {"rope", "query", DSF_PEAK_F32, FEW, {{N, 64, 512, 32, 0}}},
    {"route", "384 experts", DSF_PEAK_F32, FEW, {{N, 384, 6, 1}}},
    {"swiglu", "shared", DSF_PEAK_F32, FEW, {{N, 2304}}},
    {"moe_sum", "6 experts", DSF_PEAK_F32, FEW, {{N, 6, 5120}}},
    {"embed", "tokens", DSF_PEAK_F32, FEW, {{N, 5120, 129280}}},
    {"engram_gather", "16 Mi rows", DSF_PEAK_F32, FEW, {{N, 24, 256, 1 << 24}}},
    {"engram_gate", "write", DSF_PEAK_F32, FEW, {{N, 5120, 25600}}},
    {"cache_store_q8", "window", DSF_PEAK_F32, DEC, {{N, N, 144, 512}}},
    {"cache_store_q4n", "compressed", DSF_PEAK_F32, DSF_AT_8192, {{N, ONE_SEQUENCE, 131072, 512}}},
    {"pair_pool", "compressor", DSF_PEAK_F32, DSF_AT_8192, {{DSF_HALF_ROWS, N, 1, 4, 512}}},
    {"pair_store", "compressor", DSF_PEAK_F32, DEC, {{N, N, 4, 512}}},
};
const int dsf_n_device_shapes = (int)(sizeof dsf_device_shapes / sizeof *dsf_device_shapes);

dsf_case dsf_device_sizes(const dsf_device_shape *s, int64_t n)
{
    dsf_case c = s->sizes;
    for (size_t i = 0; i < sizeof c.v / sizeof *c.v; i++)
        c.v[i] = c.v[i] == DSF_ROWS ? n : c.v[i] == DSF_HALF_ROWS ? n / 2 : c.v[i];
    return c;
}

static void set_all(dsf_tensor *t, int32_t v)
{
    int32_t *p = t->data;
    for (int64_t i = 0; i < dsf_tensor_count(t); i++) p[i] = v;
}

/* Row i of n over `slots` sequences: each its own, or all of one. */
static int32_t slot_of(int64_t i, int64_t slots) { return (int32_t)(slots > 1 ? i % slots : 0); }

/* k of `of` in each row, each once, ascending: one at random in each of k equal parts, so that
 * every part of the range is met as often. */
static void fill_choice(dsf_tensor *t, int64_t of, uint64_t *seed)
{
    int64_t k = t->dim[1];
    int32_t *p = t->data;
    for (int64_t i = 0; i < t->dim[0]; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t from = j * of / k, to = (j + 1) * of / k;
            *p++ = to > from ? (int32_t)(from + dsf_fill_below(seed, to - from)) : -1;
        }
}

static void settle_attn(dsf_attn_args *a, uint64_t *seed)
{
    int64_t n = a->q.dim[0], slots = a->ring.dim[0];
    int32_t start = a->main.rank ? (int32_t)(2 * a->main.dim[1]) : 4096;
    set_all(&a->lo, 0);
    set_all(&a->start, start);
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)a->row.data)[i] = (int32_t)i;
        ((int32_t *)a->pos.data)[i] = start + (slots > 1 ? 0 : (int32_t)i);
        ((int32_t *)a->slot.data)[i] = slot_of(i, slots);
    }
    if (a->topk.rank) fill_choice(&a->topk, a->main.dim[1], seed);
}

/* The last rows of the sequence: the last one sees every entry. */
static void settle_positions(dsf_tensor *pos, int64_t entries, int ratio, int64_t slots)
{
    int64_t n = pos->dim[0];
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)pos->data)[i] =
            (int32_t)(entries * ratio - 1 - (slots > 1 || n > entries ? 0 : n - 1 - i));
}

static void settle_index(dsf_tensor *pos, dsf_tensor *slot, const dsf_tensor *keys, int ratio)
{
    settle_positions(pos, keys->dim[1], ratio, keys->dim[0]);
    for (int64_t i = 0; i < slot->dim[0]; i++)
        ((int32_t *)slot->data)[i] = slot_of(i, keys->dim[0]);
}

/* k different experts of e, all choices alike likely, ascending. */
static void fill_routing(dsf_tensor *ids, int64_t e, uint64_t *seed)
{
    int64_t k = ids->dim[1];
    for (int64_t i = 0; i < ids->dim[0]; i++) {
        int32_t *row = (int32_t *)ids->data + i * k;
        for (int64_t j = 0; j < k; j++) { /* insertion; a repeated draw is drawn again */
            int64_t at = j;
            int32_t id = (int32_t)dsf_fill_below(seed, e);
            while (at > 0 && row[at - 1] > id) at--;
            if (at > 0 && row[at - 1] == id) {
                j--;
                continue;
            }
            memmove(row + at + 1, row + at, (size_t)(j - at) * sizeof *row);
            row[at] = id;
        }
    }
}

static void settle_store(dsf_tensor *slot, dsf_tensor *pos, dsf_tensor *end, int64_t slots)
{
    int64_t n = pos->dim[0], per = slots > 1 ? 1 : n, start = 4096;
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)slot->data)[i] = slot_of(i, slots);
        ((int32_t *)pos->data)[i] = (int32_t)(start + (slots > 1 ? 0 : i));
        ((int32_t *)end->data)[i] = (int32_t)(start + per);
    }
}

static void settle_pool(dsf_pair_pool_args *a)
{
    set_all(&a->slot, 0);
    set_all(&a->start, 4096);
    for (int64_t i = 0; i < a->pos.dim[0]; i++) ((int32_t *)a->pos.data)[i] = (int32_t)(4096 + i);
    for (int64_t i = 0; i < a->row.dim[0]; i++) ((int32_t *)a->row.data)[i] = (int32_t)(2 * i + 1);
}

static void settle_rows(dsf_tensor *rows, int64_t of, uint64_t *seed)
{
    for (int64_t i = 0; i < dsf_tensor_count(rows); i++) {
        int64_t r = dsf_fill_below(seed, of);
        if (rows->dtype == DSF_I64)
            ((int64_t *)rows->data)[i] = r;
        else
            ((int32_t *)rows->data)[i] = (int32_t)r;
    }
}

void dsf_device_settle(const dsf_op *op, void *args, uint64_t seed)
{
    if (op == &dsf_op_attn) settle_attn(args, &seed);
    if (op == &dsf_op_index_topk) {
        dsf_index_topk_args *a = args;
        settle_index(&a->pos, &a->slot, &a->keys, a->ratio);
        if (a->pool_in.rank) fill_choice(&a->pool_in, a->keys.dim[1] / a->block, &seed);
    } else if (op == &dsf_op_index_scores) {
        dsf_index_scores_args *a = args;
        settle_index(&a->pos, &a->slot, &a->keys, a->ratio);
    } else if (op == &dsf_op_index_select) {
        dsf_index_select_args *a = args;
        settle_positions(&a->pos, a->scores.dim[1], a->ratio, a->pos.dim[0]);
        if (a->pool_in.rank) fill_choice(&a->pool_in, a->scores.dim[1] / a->block, &seed);
    } else if (op == &dsf_op_experts_up) {
        fill_routing(&((dsf_experts_up_args *)args)->ids, ((dsf_experts_up_args *)args)->w1.dim[0],
                     &seed);
    } else if (op == &dsf_op_experts_down) {
        fill_routing(&((dsf_experts_down_args *)args)->ids,
                     ((dsf_experts_down_args *)args)->w2.dim[0], &seed);
    } else if (op == &dsf_op_cache_store_q8 || op == &dsf_op_cache_store_q4n ||
               op == &dsf_op_cache_store_q4x) {
        dsf_cache_store_args *a = args;
        settle_store(&a->slot, &a->index, &a->end, a->cache.dim[0]);
    } else if (op == &dsf_op_attn_close) {
        dsf_attn_close_args *a = args;
        settle_store(&a->slot, &a->index, &a->end, a->ring.dim[0]);
    } else if (op == &dsf_op_pair_store) {
        dsf_pair_store_args *a = args;
        settle_store(&a->slot, &a->pos, &a->end, a->pend.dim[0]);
    } else if (op == &dsf_op_pair_pool) {
        settle_pool(args);
    } else if (op == &dsf_op_embed) {
        settle_rows(&((dsf_embed_args *)args)->ids, ((dsf_embed_args *)args)->table.dim[0], &seed);
    } else if (op == &dsf_op_engram_gather) {
        dsf_engram_gather_args *a = args;
        settle_rows(&a->rows, a->table.dim[0], &seed);
    } else if (op == &dsf_op_rope_table) {
        settle_rows(&((dsf_rope_table_args *)args)->pos, 1 << 20, &seed);
    }
}
