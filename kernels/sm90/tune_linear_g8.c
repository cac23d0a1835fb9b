#include "tune_linear_g8.h"

#include "ops/linear.h"

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int dsf_linear_g8_sm90fp8_accepts(const void *args)
{
    const dsf_linear_g8_args *a = args;
    int64_t k = a->w.dim[1];
    return k > 0 && k % DSF_G8_STEP == 0;
}

int dsf_linear_g8_pair_sm90fp8_accepts(const void *args)
{
    const dsf_linear_g8_pair_args *a = args;
    int64_t n = a->x.dim[0], k = a->x.dim[1];
    return n <= DSF_G8_DECODE_MOST && k > 0 && k % DSF_G8_STEP == 0;
}

/* Blocks that a tile can spread over before a finer one would only add work. */
enum { ENOUGH_TILES = DSF_SM90_SMS - 4 };

static int64_t tiles(const dsf_g8_tile *t, int64_t o, int64_t o_b)
{
    return ceil_div(o, t->outputs) + ceil_div(o_b, t->outputs);
}

/* Tokens are the N side: the next width of the instruction that holds them. A tile takes 64
 * outputs, or, with few tokens, fewer where that leaves multiprocessors without a tile. */
static void decode_tile(dsf_g8_tile *t, int64_t n, int64_t o, int64_t o_b)
{
    t->tokens = n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : 64;
    t->outputs = 64;
    int most = t->tokens == 8 ? 8 : t->tokens == 16 ? 4 : 1;
    for (t->slices = 1; t->slices < most && tiles(t, o, o_b) < ENOUGH_TILES; t->slices *= 2)
        t->outputs /= 2;
    t->cluster = 1;
    t->token_tiles = ceil_div(n, t->tokens);
    t->output_tiles = tiles(t, o, o_b);
    int64_t all = t->token_tiles * t->output_tiles, resident = DSF_G8_RESIDENT * DSF_SM90_SMS;
    t->blocks = (int)(all < resident ? all : resident);
}

static void prefill_tile(dsf_g8_tile *t, int64_t n, int64_t o)
{
    t->tokens = 128;
    t->outputs = 128;
    t->cluster = n > t->tokens ? 2 : 1;
    t->token_tiles = ceil_div(n, (int64_t)t->tokens * t->cluster) * t->cluster;
    t->output_tiles = ceil_div(o, t->outputs);
    int64_t all = t->token_tiles * t->output_tiles;
    t->blocks = (int)(all < DSF_SM90_SMS ? all : DSF_SM90_SMS / t->cluster * t->cluster);
}

/* Time of a step in each kernel with every multiprocessor at work, in hundredths of a microsecond
 * (LINEAR_G8.md). */
enum { DECODE_STEP = 40, PREFILL_STEP = 72, STEPS_THAT_MATTER = 8 };

static int64_t cost(const dsf_g8_tile *t, int step)
{
    return ceil_div(t->token_tiles * t->output_tiles, t->blocks) * step;
}

dsf_g8_tile dsf_linear_g8_sm90fp8_tile(int64_t n, int64_t k, int64_t o, int64_t o_b)
{
    dsf_g8_tile few = {.steps = (int)(k / DSF_G8_STEP), .direct = n == 1 || (k + k / 32) % 16 == 0};
    dsf_g8_tile many = few;
    decode_tile(&few, n, o, o_b);
    few.first_tiles = ceil_div(o, few.outputs);
    if (n <= DSF_G8_DECODE_MOST || o_b) return few;
    prefill_tile(&many, n, o);
    many.first_tiles = ceil_div(o, many.outputs);
    int sooner = cost(&few, DECODE_STEP) < cost(&many, PREFILL_STEP);
    return sooner && few.steps >= STEPS_THAT_MATTER ? few : many;
}

size_t dsf_linear_g8_sm90fp8_scratch(const void *args)
{
    const dsf_linear_g8_args *a = args;
    int64_t n = a->out.dim[0], k = a->w.dim[1];
    dsf_g8_tile t = dsf_linear_g8_sm90fp8_tile(n, k, a->out.dim[1], 0);
    return t.slices || t.direct ? 0 : (size_t)(n * k);
}
