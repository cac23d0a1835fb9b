#include "sm90/tune_linear.h"

#include "ops/linear.h"
#include "sm90/chip.h"

enum {
    FEW = 64,          /* rows up to which weights stream past one tile of tokens */
    ENOUGH = 96,       /* tiles that keep the kernel for many rows busy */
    MOST_CLUSTER = 16, /* above 8 the kernel asks for it; a GPC of an H100 has 16 SMs or more */
    MOST_PARTS = 64 * 1024, /* bytes of shared memory for segments that wait for their turn */
    ROW = 128,              /* bytes of a stage's row: one swizzled row of the copy engine */
    /* Before the stages, with what their alignment may cost. */
    HEAD = DSF_LINEAR_HEAD + DSF_LINEAR_ALIGN,
    GROUP_HEAD = DSF_LINEAR_GROUP_HEAD + DSF_LINEAR_ALIGN,
};

static int64_t tiles_of(int64_t total, int64_t tile) { return (total + tile - 1) / tile; }

static int tokens_for(int64_t n)
{
    int tokens = 8;
    while (tokens < n && tokens < FEW) tokens *= 2;
    return tokens;
}

/* Rounds of the device times what one costs: its products, and 16 tokens' worth of edges. */
static int64_t cost_of(int64_t n, int64_t columns, int tokens)
{
    return tiles_of(columns * tiles_of(n, tokens), DSF_SM90_SMS) * (tokens + 16);
}

/* Two column tiles share the tokens where they come in pairs: of 192 they take 28 KiB a stage and
 * block from the L2 instead of 40. */
static dsf_linear_tile many_rows(int64_t n, int64_t columns, int64_t groups)
{
    int tokens = cost_of(n, columns * groups, DSF_LINEAR_MANY_LEAST) <
                         cost_of(n, columns * groups, DSF_LINEAR_MANY)
                     ? DSF_LINEAR_MANY_LEAST
                     : DSF_LINEAR_MANY;
    int stage = (DSF_LINEAR_COLUMNS + tokens) * ROW, stages = DSF_LINEAR_MANY_STAGES(tokens);
    return (dsf_linear_tile){1, tokens, columns % 2 ? 1 : 2, 0, stages, HEAD + stages * stage};
}

/* Bytes of the segments that meet in one block of the cluster: its share of the accumulators. */
static int64_t parts_of(int tokens, int64_t cluster, int64_t segments)
{
    return cluster > 1 ? tiles_of(tokens / 2, cluster) * segments * 2 * DSF_LINEAR_COLUMNS * 4 : 0;
}

static dsf_linear_tile few_rows(int tokens, int64_t cluster, int64_t segments)
{
    int stage = (DSF_LINEAR_COLUMNS + tokens) * ROW;
    int parts = (int)parts_of(tokens, cluster, segments);
    int stages = (DSF_SM90_BLOCK_SHARED - HEAD - parts) / stage;
    if (stages > DSF_LINEAR_FEW_STAGES) stages = DSF_LINEAR_FEW_STAGES;
    return (dsf_linear_tile){0,
                             tokens,
                             (int)cluster,
                             (int)tiles_of(segments, cluster),
                             stages,
                             HEAD + stages * stage + parts};
}

dsf_linear_tile dsf_tune_linear(int64_t n, int64_t k, int64_t o)
{
    int64_t columns = tiles_of(o, DSF_LINEAR_COLUMNS), segments = tiles_of(k, DSF_LINEAR_SEGMENT);
    int tokens = tokens_for(n);
    if (n > FEW && columns * tiles_of(n, DSF_LINEAR_MANY) >= ENOUGH)
        return many_rows(n, columns, 1);
    int64_t most = DSF_SM90_SMS / (columns * tiles_of(n, tokens));
    if (most > MOST_CLUSTER) most = MOST_CLUSTER;
    if (most > segments) most = segments;
    if (most < 2) return few_rows(tokens, 1, segments);
    int64_t each = tiles_of(segments, most), cluster = tiles_of(segments, each);
    if (parts_of(tokens, cluster, segments) > MOST_PARTS) cluster = 1;
    return few_rows(tokens, cluster, segments);
}

/* The expansion moves 3 bytes a weight, 25 us for wo_a; a pass of the streaming kernel takes 64
 * rows in about 10. */
dsf_linear_tile dsf_tune_linear_group(int64_t n, int64_t o, int64_t groups)
{
    if (n > 2 * FEW) return many_rows(n, tiles_of(o, DSF_LINEAR_COLUMNS), groups);
    int tokens = tokens_for(n);
    int stage = DSF_LINEAR_GROUP_COLUMNS * DSF_LINEAR_GROUP_CHANNELS + 2 * tokens * ROW;
    int sum = DSF_LINEAR_GROUP_COLUMNS * tokens * 4;
    int stages = (DSF_SM90_BLOCK_SHARED - GROUP_HEAD - sum) / (DSF_LINEAR_GROUP_RINGS * stage);
    if (stages > DSF_LINEAR_GROUP_STAGES) stages = DSF_LINEAR_GROUP_STAGES;
    return (dsf_linear_tile){0, tokens, 1,
                             0, stages, GROUP_HEAD + DSF_LINEAR_GROUP_RINGS * stages * stage + sum};
}

/* The copy engine wants rows at multiples of 16 bytes, and coordinates are 32 bits. */
static int fits(int64_t rows, int64_t row_bytes)
{
    return row_bytes % 16 == 0 && row_bytes <= INT32_MAX && rows <= INT32_MAX;
}

int dsf_linear_bf16_sm90tc_accepts(const void *args)
{
    const dsf_linear_args *a = args;
    int64_t k = a->w.dim[1];
    return fits(a->w.dim[0], 2 * k) && fits(a->x.dim[0], 2 * k);
}

int dsf_linear_group_sm90tc_accepts(const void *args)
{
    const dsf_linear_group_args *a = args;
    int64_t groups = a->w.dim[0], k = a->w.dim[2];
    return k % DSF_LINEAR_GROUP_CHANNELS == 0 && k <= DSF_LINEAR_GROUP_MOST_K &&
           fits(groups * a->w.dim[1], 2 * k) && fits(a->x.dim[0], 2 * groups * k);
}

size_t dsf_linear_group_sm90tc_scratch(const void *args)
{
    const dsf_linear_group_args *a = args;
    dsf_linear_tile t = dsf_tune_linear_group(a->out.dim[0], a->w.dim[1], a->w.dim[0]);
    return t.many ? 2 * (size_t)dsf_tensor_count(&a->w) : 0;
}
