/* How Hopper's tensor cores add: measured, because no manual says it and the kernels' error bounds
 * and their equal bits across sizes rest on it. Prints one JSON object a line:
 *
 *   ladder   one product of 2^-j of the largest, which cancels: is it kept, how is it rounded
 *   model    the arithmetic (bits kept below the largest term, rounding, what the accumulator does)
 *            that reproduces random sums bit for bit
 *   law      equal bits: position within a step, row, column, N, A and B exchanged, mma.sync
 *   error    of a sum of 32, and of K = 5120 with a promotion each 32
 *   rate     memory, link, graph nodes (rates.cu)
 *
 * Build: nvcc -gencode=arch=compute_90a,code=sm_90a -cudart static -O2 -Ikernels -Iengine
 *        -o tensor_core bench/probe/{tensor_core,model,product,operand,rates}.cu */
#include "model.cuh"
#include "operand.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(enum format format) { return format == E4M3 ? "e4m3" : "bf16"; }

/* Sets element k of every row (of A) or column (of B) of tile t. */
static void set(struct batch *b, int t, int k, float x, float y)
{
    for (int row = 0; row < TILE_ROWS; row++) encode(b->format, x, b->a, a_at(b, t, row, k));
    for (int col = 0; col < b->n; col++) encode(b->format, y, b->b, b_at(b, t, col, k));
}

/* Product 2^e at k, split over the two operands. */
static void set_power(struct batch *b, int t, int k, float factor, int e)
{
    int half = e >= 0 ? e / 2 : -((-e + 1) / 2);
    set(b, t, k, factor * ldexpf(1, half), ldexpf(1, e - half));
}

/* Big + fraction 2^-j big - big, from zero or with big in the accumulator: what is left, in units
 * of 2^-j big, for j = 0 .. 31. */
static void ladder(enum format format, float factor, int onto, const char *what)
{
    const int top = format == E4M3 ? 14 : 20, last = 31;
    struct batch b = make_batch(format, last + 1, 8, 1);
    for (int j = 0; j <= last; j++) {
        set_power(&b, j, 0, onto ? 0.0f : 1.0f, top);
        set_power(&b, j, 3, -1.0f, top);
        set_power(&b, j, 7, factor, top - j);
        for (int i = 0; i < TILE_ROWS * 8; i++) b.d[d_at(&b, j, 0, 0) + i] = ldexpf(1, top);
    }
    b.combine = onto ? ONTO : CHAIN;
    run_wgmma(&b);
    printf("{\"probe\":\"ladder\",\"format\":\"%s\",\"what\":\"%s\",\"factor\":%g,\"left\":[",
           name_of(format), what, factor);
    int alike = 1;
    for (int j = 0; j <= last; j++) {
        float first = b.d[d_at(&b, j, 0, 0)];
        for (int i = 0; i < TILE_ROWS * 8; i++) alike &= b.d[d_at(&b, j, 0, 0) + i] == first;
        printf("%s%g", j ? "," : "", ldexp(first, j - top));
    }
    printf("],\"all_outputs_alike\":%s}\n", alike ? "true" : "false");
    free_batch(&b);
}

/* A single product of subnormal codes. */
static void subnormals(void)
{
    struct batch b = make_batch(E4M3, 1, 8, 1), h = make_batch(BF16, 1, 8, 1);
    set(&b, 0, 5, ldexpf(1, -9), ldexpf(3, -9));
    set(&h, 0, 5, ldexpf(3, -133), ldexpf(1, 100));
    run_wgmma(&b);
    run_wgmma(&h);
    printf("{\"probe\":\"law\",\"what\":\"subnormal operands\",\"e4m3\":%s,\"bf16\":%s}\n",
           b.d[0] == ldexpf(3, -18) ? "true" : "false",
           h.d[0] == ldexpf(3, -33) ? "true" : "false");
    set(&h, 0, 5, ldexpf(1, -70), ldexpf(3, -66));
    run_wgmma(&h);
    printf("{\"probe\":\"law\",\"what\":\"subnormal f32 result of bf16\",\"kept\":%s,\"got\":%g}\n",
           h.d[0] == ldexpf(3, -136) ? "true" : "false", h.d[0]);
    free_batch(&b);
    free_batch(&h);
}

/* f32 sums: 2^23 + 1 product of 1/2 or 3/4, and the accumulator alone with all its bits. */
static void accumulator_bits(enum format format)
{
    const int n = 24;
    struct batch b = make_batch(format, n + 3, 8, 1);
    for (int j = 0; j < n + 3; j++) {
        float c = j < n ? 1 + ldexpf(1, -j) : 0x1.fffffep0f;
        if (j > n) set_power(&b, j, 2, 1, j == n + 1 ? -18 : 0);
        for (int i = 0; i < TILE_ROWS * 8; i++) b.d[d_at(&b, j, 0, 0) + i] = c;
    }
    b.combine = ONTO;
    run_wgmma(&b);
    printf("{\"probe\":\"ladder\",\"format\":\"%s\",\"what\":\"accumulator 1 + 2^-j, products "
           "zero\",\"left\":[",
           name_of(format));
    for (int j = 0; j < n; j++)
        printf("%s%g", j ? "," : "", ldexp(b.d[d_at(&b, j, 0, 0)] - 1.0, j));
    printf("],\"all_ones\":\"%a\",\"all_ones_plus_2^-18\":\"%a\",\"all_ones_plus_1\":\"%a\"}\n",
           b.d[d_at(&b, n, 0, 0)], b.d[d_at(&b, n + 1, 0, 0)], b.d[d_at(&b, n + 2, 0, 0)]);
    free_batch(&b);
}

static double share_equal(const float *x, const float *y, size_t n)
{
    size_t equal = 0;
    for (size_t i = 0; i < n; i++)
        equal += memcmp(x + i, y + i, 4) == 0 || (x[i] == 0 && y[i] == 0);
    return (double)equal / (double)n;
}

static struct batch random_batch(enum format format, enum spread spread, int tiles, int n,
                                 int steps, uint64_t seed)
{
    struct batch b = make_batch(format, tiles, n, steps);
    fill(format, spread, b.a, (size_t)tiles * TILE_ROWS * row_length(&b), &seed);
    fill(format, spread, b.b, (size_t)tiles * n * row_length(&b), &seed);
    return b;
}

/* Products of every step in another order. */
static double law_position(enum format format, enum spread spread)
{
    struct batch b = random_batch(format, spread, 8, 64, 4, 11), p = make_batch(format, 8, 64, 4);
    int per = step_products(format), size = format == E4M3 ? 1 : 2;
    uint64_t seed = 5;
    for (int t = 0; t < b.tiles; t++)
        for (int step = 0; step < b.steps; step++) {
            int order[32];
            for (int k = 0; k < per; k++) order[k] = k;
            for (int k = per - 1; k > 0; k--) {
                int j = (int)(random_word(&seed) % (unsigned)(k + 1)), swap = order[k];
                order[k] = order[j];
                order[j] = swap;
            }
            for (int row = 0; row < 64; row++)
                for (int k = 0; k < per; k++) {
                    size_t to = a_at(&b, t, row, step * per + k);
                    size_t from = a_at(&b, t, row, step * per + order[k]);
                    memcpy(p.a + to * size, b.a + from * size, size);
                    memcpy(p.b + to * size, b.b + from * size, size);
                }
        }
    run_wgmma(&b);
    run_wgmma(&p);
    double share = share_equal(b.d, p.d, (size_t)b.tiles * 64 * 64);
    free_batch(&b);
    free_batch(&p);
    return share;
}

/* The operands exchanged: D must be transposed. */
static double law_exchange(enum format format, enum spread spread)
{
    struct batch b = random_batch(format, spread, 8, 64, 8, 13), x = b;
    x.a = b.b;
    x.b = b.a;
    x.d = (float *)calloc((size_t)b.tiles * 64 * 64, sizeof(float));
    run_wgmma(&b);
    run_wgmma(&x);
    size_t equal = 0;
    for (int t = 0; t < b.tiles; t++)
        for (int i = 0; i < 64; i++)
            for (int j = 0; j < 64; j++) equal += b.d[d_at(&b, t, i, j)] == x.d[d_at(&x, t, j, i)];
    double share = (double)equal / ((double)b.tiles * 64 * 64);
    free(x.d);
    free_batch(&b);
    return share;
}

/* The first 8 columns of N = 256, recomputed in narrower instructions. */
static double law_width(enum format format, enum spread spread, int narrow)
{
    struct batch b = random_batch(format, spread, 4, 256, 8, 17);
    struct batch s = make_batch(format, 4, narrow, 8);
    memcpy(s.a, b.a, (size_t)b.tiles * TILE_ROWS * b.steps * 32);
    for (int t = 0; t < b.tiles; t++)
        memcpy(s.b + (size_t)t * narrow * b.steps * 32, b.b + (size_t)t * 256 * b.steps * 32,
               (size_t)narrow * b.steps * 32);
    run_wgmma(&b);
    run_wgmma(&s);
    size_t equal = 0;
    for (int t = 0; t < b.tiles; t++)
        for (int i = 0; i < TILE_ROWS; i++)
            for (int j = 0; j < narrow; j++)
                equal += b.d[d_at(&b, t, i, j)] == s.d[d_at(&s, t, i, j)];
    free_batch(&b);
    free_batch(&s);
    return (double)equal / ((double)4 * TILE_ROWS * narrow);
}

/* mma.sync on the same operands: from zero one step, and `steps` accumulated. */
static double law_mma(enum format format, enum spread spread, int steps)
{
    struct batch b = random_batch(format, spread, 4, 64, steps, 19), m = b;
    m.d = (float *)calloc((size_t)b.tiles * 64 * 64, sizeof(float));
    run_wgmma(&b);
    run_mma(&m);
    double share = share_equal(b.d, m.d, (size_t)b.tiles * 64 * 64);
    free(m.d);
    free_batch(&b);
    return share;
}

static void laws(enum format format)
{
    static const char *const spreads[] = {"gaussian", "wide", "tiny"};
    for (int s = GAUSSIAN; s <= TINY; s++) {
        enum spread spread = (enum spread)s;
        printf(
            "{\"probe\":\"law\",\"format\":\"%s\",\"values\":\"%s\",\"equal_share\":{\"position\":%.6f,"
            "\"exchange\":%.6f,\"n8_in_n256\":%.6f,\"n64_in_n256\":%.6f,\"n128_in_n256\":%.6f,"
            "\"mma_1_step\":%.6f,\"mma_32_steps\":%.6f}}\n",
            name_of(format), spreads[s], law_position(format, spread), law_exchange(format, spread),
            law_width(format, spread, 8), law_width(format, spread, 64),
            law_width(format, spread, 128), law_mma(format, spread, 1),
            law_mma(format, spread, 32));
    }
}

/* Sums of 32 products: the error against the largest product. */
static void error_of_32(void)
{
    struct batch b = random_batch(E4M3, GAUSSIAN, 256, 64, 1, 23);
    double worst = 0, squares = 0, worst_sum = 0;
    size_t cases = (size_t)b.tiles * 64 * 64;
    run_wgmma(&b);
    for (int t = 0; t < b.tiles; t++)
        for (int i = 0; i < 64; i++)
            for (int j = 0; j < 64; j++) {
                double sum = 0, top = 0, total = 0;
                for (int k = 0; k < 32; k++) {
                    double p = (double)decode(E4M3, b.a, a_at(&b, t, i, k)) *
                               decode(E4M3, b.b, b_at(&b, t, j, k));
                    sum += p;
                    total += fabs(p);
                    top = fmax(top, fabs(p));
                }
                double error = fabs(b.d[d_at(&b, t, i, j)] - sum);
                worst = fmax(worst, error / top);
                worst_sum = fmax(worst_sum, error / total);
                squares += error * error / (top * top);
            }
    printf("{\"probe\":\"error\",\"what\":\"e4m3 sum of 32\",\"cases\":%zu,\"max_of_largest\":%.4e,"
           "\"rms_of_largest\":%.4e,\"max_of_abs_sum\":%.4e}\n",
           cases, worst, sqrt(squares / (double)cases), worst_sum);
    free_batch(&b);
}

static uint16_t to_bf16(float x)
{
    uint16_t h;
    encode(BF16, x, (uint8_t *)&h, 0);
    return h;
}

/* K = 5120 with the promotion each 32, as bf16, against the exact sum and the exact parts. */
static void error_of_5120(void)
{
    struct batch b = random_batch(E4M3, GAUSSIAN, 4, 64, 160, 29);
    float scales[160];
    uint64_t seed = 31;
    size_t differ = 0, chain_differ = 0, more = 0, cases = (size_t)b.tiles * 64 * 64;
    double squares = 0, power = 0;
    for (int i = 0; i < 160; i++) scales[i] = ldexpf(1, -(int)(random_word(&seed) % 3));
    b.scales = scales;
    b.combine = PROMOTE;
    run_wgmma(&b);
    for (int t = 0; t < b.tiles; t++)
        for (int i = 0; i < 64; i++)
            for (int j = 0; j < 64; j++) {
                double exact = 0;
                float chain = 0;
                for (int step = 0; step < 160; step++) {
                    double part = 0;
                    for (int k = step * 32; k < step * 32 + 32; k++)
                        part += (double)decode(E4M3, b.a, a_at(&b, t, i, k)) *
                                decode(E4M3, b.b, b_at(&b, t, j, k));
                    exact += part * scales[step];
                    chain = fmaf((float)part, scales[step], chain);
                }
                float got = b.d[d_at(&b, t, i, j)];
                int units = abs((int)to_bf16(got) - (int)to_bf16((float)exact));
                differ += units != 0;
                more += units > 1;
                chain_differ += to_bf16(chain) != to_bf16((float)exact);
                squares += (got - exact) * (got - exact);
                power += exact * exact;
            }
    printf("{\"probe\":\"error\",\"what\":\"e4m3 K=5120, promotion each 32\",\"cases\":%zu,"
           "\"bf16_differ_from_exact\":%.6f,\"by_more_than_one_unit\":%.6f,"
           "\"exact_parts_in_f32_differ\":%.6f,\"relative_l2\":%.4e}\n",
           cases, (double)differ / (double)cases, (double)more / (double)cases,
           (double)chain_differ / (double)cases, sqrt(squares / power));
    free_batch(&b);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int f = E4M3; f <= BF16; f++) {
        enum format format = (enum format)f;
        ladder(format, 1.0f, 0, "big + x - big, from zero");
        ladder(format, 1.75f, 0, "big + 1.75 x - big, from zero");
        ladder(format, -1.75f, 0, "big - 1.75 x - big, from zero");
        ladder(format, 1.0f, 1, "x - big onto big");
        ladder(format, 1.75f, 1, "1.75 x - big onto big");
        accumulator_bits(format);
        laws(format);
        fit_models(format);
    }
    subnormals();
    error_of_32();
    error_of_5120();
    measure_rates();
    return 0;
}
