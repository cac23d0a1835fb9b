#include "ceiling.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench.h"
#include "config.h"
#include "op.h"

enum { ITEM = 1 << 20 };                         /* bytes of one read item */
enum { SPIN_ITEMS = 16, SPIN_ROUNDS = 1 << 12 }; /* per thread: about 1 ms */

/* The results go here, so that the loops are not dropped. */
typedef struct {
    dsf_ceiling *c;
    volatile uint64_t sink;
    volatile float spun;
} job;

#if HAVE_AVX512
#define READ_AVX512(p, n) dsf_read_avx512(p, n)
#else
#define READ_AVX512(p, n) read_words(p, n)
#endif

int64_t dsf_processor_ns(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0
               ? (int64_t)t.tv_sec * 1000000000 + t.tv_nsec
               : 0;
}

static double rate_since(double work, int64_t t0)
{
    return work / ((double)(dsf_clock_ns() - t0) * 1e-9);
}

static uint64_t read_words(const uint8_t *p, size_t n)
{
    uint64_t sum[8] = {0}, w[8];
    for (size_t at = 0; at < n; at += sizeof w) {
        memcpy(w, p + at, sizeof w);
        for (int i = 0; i < 8; i++) sum[i] += w[i];
    }
    for (int i = 1; i < 8; i++) sum[0] += sum[i];
    return sum[0];
}

/* Random bytes: zeros may come from one shared page, and cost less. */
static void fill_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    job *j = arg;
    uint64_t x = 0x9E3779B97F4A7C15u * (uint64_t)(item + 1);
    uint64_t *p = (uint64_t *)(void *)(j->c->buffer + item * ITEM);
    for (int i = 0; i < ITEM / 8; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = x;
    }
}

dsf_status dsf_ceiling_open(dsf_ceiling *c, dsf_pool *pool, size_t bytes)
{
    *c = (dsf_ceiling){.pool = pool, .bytes = bytes / ITEM * ITEM};
    c->threads = dsf_pool_threads(pool);
    c->avx512 = HAVE_AVX512 && (dsf_machine() & DSF_NEEDS_AVX512) == DSF_NEEDS_AVX512;
    void *p = NULL;
    DSF_TRY(dsf_mem_map(&p, c->bytes));
    c->buffer = p;
    (void)madvise(p, c->bytes, MADV_HUGEPAGE); /* a limit: no share of it for page tables */
    job j = {.c = c};
    dsf_pool_run(pool, (int64_t)(c->bytes / ITEM), fill_item, &j);
    return DSF_OK;
}

void dsf_ceiling_close(dsf_ceiling *c)
{
    if (c->buffer) dsf_mem_unmap(c->buffer, c->bytes);
    *c = (dsf_ceiling){.buffer = NULL};
}

static void read_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    job *j = arg;
    const uint8_t *p = j->c->buffer + (j->c->at + (size_t)item * ITEM) % j->c->bytes;
    j->sink += j->c->avx512 ? READ_AVX512(p, ITEM) : read_words(p, ITEM);
}

double dsf_ceiling_read(dsf_ceiling *c, size_t bytes)
{
    job j = {.c = c};
    int64_t items = (int64_t)(bytes / ITEM), t0 = dsf_clock_ns();
    dsf_pool_run(c->pool, items, read_item, &j);
    double r = rate_since((double)items * ITEM, t0);
    c->at = (c->at + (size_t)items * ITEM) % c->bytes;
    return r;
}

#if HAVE_AVX512
static void bf16_item(void *arg, int64_t item, int worker)
{
    (void)item;
    (void)worker;
    ((job *)arg)->spun += dsf_spin_bf16_avx512(SPIN_ROUNDS);
}

static void f32_item(void *arg, int64_t item, int worker)
{
    (void)item;
    (void)worker;
    ((job *)arg)->spun += dsf_spin_f32_avx512(SPIN_ROUNDS);
}

static double spin(dsf_ceiling *c, dsf_pool_fn *fn, int flops, int ms)
{
    job j = {.c = c};
    if (!c->avx512) return 0;
    int64_t items = (int64_t)c->threads * SPIN_ITEMS * ms, t0 = dsf_clock_ns();
    dsf_pool_run(c->pool, items, fn, &j);
    return rate_since((double)items * SPIN_ROUNDS * flops, t0);
}

double dsf_ceiling_bf16(dsf_ceiling *c, int ms)
{
    return spin(c, bf16_item, DSF_SPIN_BF16_FLOPS, ms);
}
double dsf_ceiling_f32(dsf_ceiling *c, int ms) { return spin(c, f32_item, DSF_SPIN_F32_FLOPS, ms); }
#else
double dsf_ceiling_bf16(dsf_ceiling *c, int ms)
{
    (void)c;
    (void)ms;
    return 0;
}
double dsf_ceiling_f32(dsf_ceiling *c, int ms)
{
    (void)c;
    (void)ms;
    return 0;
}
#endif
