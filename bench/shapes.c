#include "shapes.h"

#include <string.h>

#include "ops/attn.h"
#include "ops/index.h"

#define ROWS2(op, use, ...)                                                                        \
    {op, use, {{1, __VA_ARGS__}}},                                                                 \
    {                                                                                              \
        op, use,                                                                                   \
        {                                                                                          \
            {                                                                                      \
                256, __VA_ARGS__                                                                   \
            }                                                                                      \
        }                                                                                          \
    }

/* Sizes in the order of each op's letters. Experts: enough of them that neighbouring tokens share
 * few; with 256 rows, as many rows an expert as a prompt of 4096 tokens gives 384 experts. */
const dsf_shape dsf_shapes[] = {
    ROWS2("linear_g8", "wq_a", 5120, 1280),
    ROWS2("linear_g8", "wq_b", 1280, 32768),
    ROWS2("linear_g8", "wkv", 5120, 512),
    ROWS2("linear_g8", "wo_b", 8192, 5120),
    ROWS2("linear_g8", "shared w1 w3", 5120, 2304),
    ROWS2("linear_g8", "shared w2", 2304, 5120),
    ROWS2("linear_g8", "indexer wq_b", 1280, 4096),
    ROWS2("linear_gb", "compressor", 5120, 512),
    ROWS2("linear_gf", "compressor", 5120, 512),
    ROWS2("linear_gf", "router", 5120, 384),
    {"linear_gf", "head, a part", {{1, 5120, 16384}}},
    ROWS2("linear_group", "wo_a", 8, 1024, 4096),
    {"experts_up", "decode", {{1, 6, 2304, 12, 5120, 2560}}},
    {"experts_up", "4 rows each", {{64, 6, 2304, 96, 5120, 2560}}},
    {"experts_up", "64 rows each", {{256, 6, 2304, 24, 5120, 2560}}},
    {"experts_down", "decode", {{1, 6, 2304, 12, 5120, 1152}}},
    {"experts_down", "4 rows each", {{64, 6, 2304, 96, 5120, 1152}}},
    {"experts_down", "64 rows each", {{256, 6, 2304, 24, 5120, 1152}}},
    {"attn", "decode", {{1, 64, 512, 1, 1, 144, 65536, 512, 128, 0, 0}}},
    {"attn", "prefill", {{256, 64, 512, 256, 1, 144, 65536, 512, 128, 0, 0}}},
    {"index_topk", "decode, 32768 entries", {{1, 512, 2048, 32, 128, 1, 32768, 1, 8, 1}}},
    {"index_topk", "prefill, 8192 entries", {{256, 512, 1024, 32, 128, 1, 8192, 1, 8, 1}}},
    ROWS2("hc_mix", "mixing", 5120, 24, 20480, 3),
};
const int dsf_n_shapes = (int)(sizeof dsf_shapes / sizeof *dsf_shapes);

static void settle_attn(dsf_attn_args *a)
{
    int64_t n = a->q.dim[0], pass = a->kv_new.dim[0];
    int32_t start = (int32_t)(2 * a->main.dim[1]);
    for (int64_t i = 0; i < n; i++) {
        int32_t row = (int32_t)((i + 1) * pass / n - 1);
        ((int32_t *)a->row.data)[i] = row;
        ((int32_t *)a->pos.data)[i] = start + row;
        ((int32_t *)a->start.data)[i] = start;
        ((int32_t *)a->lo.data)[i] = 0;
        ((int32_t *)a->slot.data)[i] = 0;
    }
    if (a->topk.rank == 0) return;
    int64_t k = a->topk.dim[1], step = a->main.dim[1] / k;
    if (step == 0) return; /* a list longer than the entries stays as it was filled */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            ((int32_t *)a->topk.data)[i * k + j] = (int32_t)(j * step + (i * 7 + j * 13) % step);
}

static void settle_index(dsf_index_topk_args *a)
{
    int32_t last = (int32_t)(a->keys.dim[1] * a->ratio - 1);
    for (int64_t i = 0; i < a->pos.dim[0]; i++) {
        ((int32_t *)a->pos.data)[i] = last;
        ((int32_t *)a->slot.data)[i] = 0;
    }
}

void dsf_shape_settle(const dsf_op *op, void *args)
{
    if (op == &dsf_op_attn) settle_attn(args);
    if (op == &dsf_op_index_topk) settle_index(args);
}

/* What the contracts ask of sizes beyond their being positive. */
bool dsf_shape_sound(const dsf_shape *s)
{
    const int64_t *v = s->sizes.v;
    if (strcmp(s->op, "linear_g8") == 0) return v[1] % 32 == 0;
    if (strcmp(s->op, "linear_group") == 0) return v[2] % 32 == 0 && v[3] % 32 == 0;
    if (strcmp(s->op, "linear_gb") == 0 || strcmp(s->op, "linear_gf") == 0) return true;
    if (strcmp(s->op, "experts_up") == 0) return v[4] % 32 == 0 && v[5] * 2 == v[4] && v[1] <= v[3];
    if (strcmp(s->op, "experts_down") == 0)
        return v[2] % 32 == 0 && v[5] * 2 == v[2] && v[1] <= v[3];
    if (strcmp(s->op, "attn") == 0)
        return v[2] % 32 == 0 && v[3] == v[0] && v[4] == 1 && v[8] >= 1 && v[8] <= v[5] &&
               v[6] >= v[7] && v[6] < 1 << 29 && v[9] == 0 && v[10] == 0;
    if (strcmp(s->op, "index_topk") == 0)
        return v[4] % 32 == 0 && v[5] == 1 && (v[7] == 1 || v[7] == 2) && v[8] >= 1 && v[9] == 1 &&
               v[2] <= (v[6] + v[8] - 1) / v[8];
    if (strcmp(s->op, "hc_mix") == 0) return v[2] == 24 && v[3] == 4 * v[1] && v[4] == 3;
    return false; /* not measured */
}
