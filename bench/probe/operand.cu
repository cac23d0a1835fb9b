#include "operand.cuh"

#include <cuda_fp8.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int step_products(enum format format) { return format == E4M3 ? 32 : 16; }

static float e4m3_value(uint8_t c)
{
    int e = c >> 3 & 15, m = c & 7;
    float v = e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10);
    if ((c & 0x7F) == 0x7F) v = NAN;
    return c & 0x80 ? -v : v;
}

float decode(enum format format, const uint8_t *operands, size_t i)
{
    if (format == E4M3) {
        static float table[256];
        if (table[0x08] == 0)
            for (int c = 0; c < 256; c++) table[c] = e4m3_value((uint8_t)c);
        return table[operands[i]];
    }
    uint16_t h;
    memcpy(&h, operands + 2 * i, 2);
    uint32_t u = (uint32_t)h << 16;
    float v;
    memcpy(&v, &u, 4);
    return v;
}

void encode(enum format format, float x, uint8_t *operands, size_t i)
{
    if (format == E4M3) {
        operands[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
        return;
    }
    uint32_t u;
    memcpy(&u, &x, 4);
    u += 0x7FFF + (u >> 16 & 1);
    uint16_t h = (uint16_t)(u >> 16);
    memcpy(operands + 2 * i, &h, 2);
}

uint32_t random_word(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(z >> 32);
}

double random_normal(uint64_t *state)
{
    double u = (random_word(state) + 1.0) * 0x1p-32, v = random_word(state) * 0x1p-32;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static float random_value(enum format format, enum spread spread, uint64_t *state)
{
    uint32_t r = random_word(state);
    float sign = r & 1 ? -1.0f : 1.0f, mantissa = 1.0f + (float)(r >> 8 & 127) / 128;
    if (spread == GAUSSIAN) return (float)random_normal(state) * (format == E4M3 ? 160.0f : 1.0f);
    if (format == E4M3) {
        uint8_t c = spread == TINY ? (uint8_t)(r >> 16 & 0x9F) : (uint8_t)(r >> 16);
        return (c & 0x7F) == 0x7F ? 0.0f : e4m3_value(c);
    }
    return sign *
           ldexpf(mantissa, spread == TINY ? -70 + (int)(r >> 16) % 15 : -20 + (int)(r >> 16) % 41);
}

void fill(enum format format, enum spread spread, uint8_t *operands, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) encode(format, random_value(format, spread, state), operands, i);
}

struct batch make_batch(enum format format, int tiles, int n, int steps)
{
    struct batch b = {};
    b.format = format;
    b.tiles = tiles;
    b.n = n;
    b.steps = steps;
    b.a = (uint8_t *)calloc((size_t)tiles * TILE_ROWS * steps, 32);
    b.b = (uint8_t *)calloc((size_t)tiles * n * steps, 32);
    b.d = (float *)calloc((size_t)tiles * TILE_ROWS * n, sizeof(float));
    if (!b.a || !b.b || !b.d) {
        fprintf(stderr, "no memory for a batch\n");
        exit(1);
    }
    return b;
}

void free_batch(struct batch *batch)
{
    free(batch->a);
    free(batch->b);
    free(batch->d);
}
