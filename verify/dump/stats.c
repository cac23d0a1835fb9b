#include "verify/dump/stats.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "config.h"

/* Compiled several times, the best for the machine chosen at start. */
#if HAVE_AVX512
#define DSF_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DSF_WIDE
#endif

/* LANES partial sums: element i of what was added belongs to lane i % LANES, whatever the machine's
 * vectors. PIECE elements are hashed and counted while they are in the first cache. */
enum { LANES = 16, PIECE = 4096 };

typedef float floats __attribute__((vector_size(LANES * 4)));
typedef int32_t ints __attribute__((vector_size(LANES * 4)));
typedef double doubles __attribute__((vector_size(LANES * 8)));

struct dsf_dump_block {
    XXH3_state_t *hash;
    uint64_t count, nan, inf;
    double min, max;
    double sum[LANES], squares[LANES];
};

static void start(dsf_dump_block *b)
{
    *b = (dsf_dump_block){.hash = b->hash, .min = INFINITY, .max = -INFINITY};
    (void)XXH3_64bits_reset(b->hash);
}

dsf_status dsf_stats_open(dsf_dump_block **out)
{
    dsf_dump_block *b = NULL;
    DSF_TRY(dsf_mem_new(&b, 1, sizeof *b));
    b->hash = XXH3_createState();
    if (!b->hash) {
        dsf_mem_free(b);
        return DSF_FAIL(DSF_ENOMEM, "hash state");
    }
    start(b);
    *out = b;
    return DSF_OK;
}

void dsf_stats_close(dsf_dump_block *b)
{
    if (!b) return;
    (void)XXH3_freeState(b->hash);
    dsf_mem_free(b);
}

static void count_one(dsf_dump_block *b, double v, int64_t lane)
{
    if (isnan(v)) {
        b->nan++;
    } else if (isinf(v)) {
        b->inf++;
    } else {
        b->min = v < b->min ? v : b->min;
        b->max = v > b->max ? v : b->max;
        b->sum[lane] += v;
        b->squares[lane] += v * v;
    }
}

static void take_range(dsf_dump_block *b, const float *low, const float *high)
{
    for (int i = 0; i < LANES; i++) {
        b->min = (double)low[i] < b->min ? (double)low[i] : b->min;
        b->max = (double)high[i] > b->max ? (double)high[i] : b->max;
    }
}

/* Groups of LANES floats. What is not finite is 0 in the sums and leaves min and max. The same bits
 * whatever instructions it is compiled to: lanes do not meet. */
DSF_WIDE static void count_groups(dsf_dump_block *b, const float *x, int64_t groups)
{
    doubles sum, squares;
    ints nan = {0}, inf = {0};
    floats low = (floats){0} + INFINITY, high = (floats){0} - INFINITY;
    memcpy(&sum, b->sum, sizeof sum);
    memcpy(&squares, b->squares, sizeof squares);
    for (int64_t g = 0; g < groups; g++, x += LANES) {
        floats v;
        memcpy(&v, x, sizeof v);
        ints size = (ints)v & 0x7fffffff, finite = size < 0x7f800000;
        nan -= size > 0x7f800000;
        inf -= size == 0x7f800000;
        ints less = (v < low) & finite, more = (v > high) & finite;
        low = (floats)(((ints)v & less) | ((ints)low & ~less));
        high = (floats)(((ints)v & more) | ((ints)high & ~more));
        doubles w = __builtin_convertvector((floats)((ints)v & finite), doubles);
        sum += w;
        squares += w * w;
    }
    memcpy(b->sum, &sum, sizeof sum);
    memcpy(b->squares, &squares, sizeof squares);
    take_range(b, (const float *)&low, (const float *)&high);
    for (int i = 0; i < LANES; i++) {
        b->nan += (uint64_t)nan[i];
        b->inf += (uint64_t)inf[i];
    }
}

static double element(const void *data, dsf_dump_kind kind, int64_t i)
{
    switch (kind) {
    case DSF_DUMP_F32:
        return (double)((const float *)data)[i];
    case DSF_DUMP_I32:
        return (double)((const int32_t *)data)[i];
    case DSF_DUMP_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return (double)((const uint8_t *)data)[i];
    }
}

/* Sums of small integers are exact in any order. */
DSF_WIDE static void count_bytes(dsf_dump_block *b, const uint8_t *x, int64_t n)
{
    uint32_t sum = 0, squares = 0; /* n is at most PIECE */
    uint8_t low = 255, high = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += (uint32_t)x[i] * x[i];
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    b->sum[0] += (double)sum;
    b->squares[0] += (double)squares;
    b->min = low < b->min ? low : b->min;
    b->max = high > b->max ? high : b->max;
}

static void count(dsf_dump_block *b, dsf_dump_kind kind, const void *data, int64_t n)
{
    int64_t i = 0;
    if (kind == DSF_DUMP_U8) {
        count_bytes(b, data, n);
        i = n;
    }
    if (kind == DSF_DUMP_F32) {
        /* up to the next lane 0, then whole groups */
        while (i < n && (b->count + (uint64_t)i) % LANES) {
            count_one(b, element(data, kind, i), (int64_t)((b->count + (uint64_t)i) % LANES));
            i++;
        }
        count_groups(b, (const float *)data + i, (n - i) / LANES);
        i += (n - i) / LANES * LANES;
    }
    for (; i < n; i++)
        count_one(b, element(data, kind, i), (int64_t)((b->count + (uint64_t)i) % LANES));
    b->count += (uint64_t)n;
}

void dsf_stats_add(dsf_dump_block *b, dsf_dump_kind kind, const void *data, int64_t n)
{
    int64_t size = dsf_dump_kind_bytes(kind);
    const uint8_t *at = data;
    for (int64_t left = n, k; left > 0; left -= k, at += k * size) {
        k = left < PIECE ? left : PIECE;
        (void)XXH3_64bits_update(b->hash, at, (size_t)(k * size));
        count(b, kind, at, k);
    }
}

dsf_dump_stat dsf_stats_take(dsf_dump_block *b)
{
    uint64_t finite = b->count - b->nan - b->inf;
    double sum = 0, squares = 0;
    for (int i = 0; i < LANES; i++) {
        sum += b->sum[i];
        squares += b->squares[i];
    }
    dsf_dump_stat s = {.count = b->count,
                       .nan = b->nan,
                       .inf = b->inf,
                       .min = finite ? b->min + 0.0 : 0.0,
                       .max = finite ? b->max + 0.0 : 0.0,
                       .mean = finite ? sum / (double)finite : 0.0,
                       .rms = finite ? sqrt(squares / (double)finite) : 0.0,
                       .hash = XXH3_64bits_digest(b->hash)};
    start(b);
    return s;
}

uint64_t dsf_stats_hash(const void *data, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n, seed);
}
