/* The multipliers come from NumPy's default_rng(10007 * layer): a SeedSequence fills the state of
 * PCG64 (128-bit LCG, XSL-RR output; M. O'Neill, "PCG", 2014), bounded integers are drawn by
 * D. Lemire's multiplication method ("Fast Random Integer Generation in an Interval", 2019). */
#include "model/engram_hash.h"

#include <string.h>

typedef unsigned __int128 u128;

/* ---- SeedSequence: hash the entropy words into a pool of four, then spread the pool ---- */

enum { POOL = 4 };

typedef struct {
    uint32_t word[POOL];
    uint32_t key; /* multiplier of the next hash */
} seed_pool;

static uint32_t hash_word(seed_pool *p, uint32_t v)
{
    v ^= p->key;
    p->key *= 0x931e8875u;
    v *= p->key;
    return v ^ v >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
    uint32_t r = x * 0xca01f9ddu - y * 0x4973f715u;
    return r ^ r >> 16;
}

static void fill_pool(seed_pool *p, uint64_t seed)
{
    const uint32_t entropy[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0};
    p->key = 0x43b0d7e5u;
    for (int i = 0; i < POOL; i++) p->word[i] = hash_word(p, entropy[i]);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to) p->word[to] = mix_words(p->word[to], hash_word(p, p->word[from]));
}

/* Eight 32-bit words, two to a 64-bit value, low word first. */
static void spread_pool(const seed_pool *p, uint64_t out[4])
{
    uint32_t key = 0x8b51f9ddu;
    uint32_t word[8];
    for (int i = 0; i < 8; i++) {
        uint32_t v = p->word[i % POOL] ^ key;
        key *= 0x58f38dedu;
        v *= key;
        word[i] = v ^ v >> 16;
    }
    for (int i = 0; i < 4; i++) out[i] = word[2 * i] | (uint64_t)word[2 * i + 1] << 32;
}

/* ---- PCG64 ---- */

typedef struct {
    u128 state, increment;
} pcg;

static u128 make_u128(uint64_t high, uint64_t low) { return (u128)high << 64 | low; }

static void advance(pcg *g)
{
    g->state = g->state * make_u128(0x2360ed051fc65da4u, 0x4385df649fccf645u) + g->increment;
}

static void start(pcg *g, uint64_t seed)
{
    seed_pool p;
    uint64_t s[4];
    fill_pool(&p, seed);
    spread_pool(&p, s);
    g->increment = make_u128(s[2], s[3]) << 1 | 1;
    g->state = 0;
    advance(g);
    g->state += make_u128(s[0], s[1]);
    advance(g);
}

static uint64_t draw(pcg *g)
{
    advance(g);
    uint64_t x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    unsigned turn = (unsigned)(g->state >> 122);
    return x >> turn | x << (-turn & 63);
}

/* Uniform in [0, bound), bound > 2^32 (below it the generator draws 32 bits at a time). */
static uint64_t draw_below(pcg *g, uint64_t bound)
{
    u128 m = (u128)draw(g) * bound;
    if ((uint64_t)m < bound) {
        uint64_t reject = -bound % bound;
        while ((uint64_t)m < reject) m = (u128)draw(g) * bound;
    }
    return (uint64_t)(m >> 64);
}

/* ---- constants ---- */

static bool is_prime(int64_t n)
{
    if (n < 2) return false;
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return true;
}

/* Primes are handed out ascending from engram_vocab_size, each once in the whole model. As every
 * order starts over from the same number and skips what is used, they simply go on. */
static void make_primes(const dsf_config *c, dsf_engram_constants *e, int64_t *last)
{
    int columns = dsf_config_engram_columns(c);
    e->rows = 0;
    for (int i = 0; i < columns; i++) {
        do ++*last;
        while (!is_prime(*last));
        e->prime[i] = *last;
        e->offset[i] = e->rows;
        e->rows += *last;
    }
}

static void make_multipliers(const dsf_config *c, dsf_engram_constants *e)
{
    uint64_t bound = (uint64_t)INT64_MAX / (uint64_t)c->engram_compressed_vocab_size / 2;
    pcg g;
    start(&g, 10007u * (uint64_t)e->layer);
    for (int k = 0; k < c->engram_max_ngram_size; k++)
        e->multiplier[k] = (int64_t)(2 * draw_below(&g, bound) + 1);
}

dsf_status dsf_engram_constants_make(dsf_config *c)
{
    int64_t last = c->engram_vocab_size - 1;
    int columns = dsf_config_engram_columns(c);
    if (columns < 1 || columns > DSF_MAX_ENGRAM_COLUMNS ||
        c->engram_max_ngram_size > DSF_MAX_NGRAM || c->engram_vocab_size < 1 ||
        c->engram_vocab_size > INT32_MAX || c->engram_compressed_vocab_size < 1 ||
        c->engram_compressed_vocab_size > 1 << 30)
        return DSF_FAIL(DSF_EINVAL,
                        "engram: %d columns, n-grams of %d, vocabulary %lld, %d classes; allowed "
                        "are %d, %d, 2^31 and 2^30",
                        columns, c->engram_max_ngram_size, (long long)c->engram_vocab_size,
                        c->engram_compressed_vocab_size, DSF_MAX_ENGRAM_COLUMNS, DSF_MAX_NGRAM);
    for (int i = 0; i < c->n_engram; i++) {
        make_primes(c, &c->engram[i], &last);
        make_multipliers(c, &c->engram[i]);
    }
    return DSF_OK;
}

/* ---- hash ---- */

void dsf_engram_rows(const dsf_config *c, int e, const int32_t *window, int32_t pad_class,
                     int64_t *row)
{
    const dsf_engram_constants *g = &c->engram[e];
    int heads = c->engram_n_heads;
    bool blocked = false;
    int64_t r = 0;
    for (int k = 0; k < c->engram_max_ngram_size; k++) {
        blocked = blocked || window[k] < 0;
        /* class < classes and multiplier < 2^63 / classes: the product cannot overflow */
        r ^= (blocked ? pad_class : window[k]) * g->multiplier[k];
        if (k == 0) continue;
        for (int h = 0; h < heads; h++) {
            int column = (k - 1) * heads + h;
            row[column] = r % g->prime[column] + g->offset[column];
        }
    }
}
