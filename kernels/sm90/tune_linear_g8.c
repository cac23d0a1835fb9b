#include "tune_linear_g8.h"

#include "ops/linear.h"
#include "sm90/chip.h"

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
    t->token_tiles = 1;
    t->output_tiles = tiles(t, o, o_b);
    int64_t resident = (int64_t)DSF_G8_RESIDENT * DSF_SM90_SMS;
    t->blocks = (int)(t->output_tiles < resident ? t->output_tiles : resident);
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

dsf_g8_tile dsf_linear_g8_sm90fp8_tile(int64_t n, int64_t k, int64_t o, int64_t o_b)
{
    dsf_g8_tile t = {.steps = (int)(k / DSF_G8_STEP), .direct = n == 1 || (k + k / 32) % 16 == 0};
    if (n <= DSF_G8_DECODE_MOST)
        decode_tile(&t, n, o, o_b);
    else
        prefill_tile(&t, n, o);
    t.first_tiles = ceil_div(o, t.outputs);
    return t;
}

size_t dsf_linear_g8_sm90fp8_scratch(const void *args)
{
    const dsf_linear_g8_args *a = args;
    int64_t n = a->out.dim[0], k = a->w.dim[1];
    dsf_g8_tile t = dsf_linear_g8_sm90fp8_tile(n, k, a->out.dim[1], 0);
    return t.slices || t.direct ? 0 : (size_t)(n * k);
}
