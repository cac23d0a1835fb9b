/* Offsets beyond 2^32 bytes: the released Engram tables and long caches pass it. The memory is only
 * reserved, and the few rows in use are touched. */
#include <sys/mman.h>

#include "op_variants.h"
#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/engram.h"

static const int64_t far_row = ((int64_t)1 << 32) + 4096;

static uint8_t *reserve(int64_t bytes)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) cr_skip_test("no address space for %lld bytes here", (long long)bytes);
    return p;
}

/* [B-55] */
Test(offsets, engram_table)
{
    enum { D = 64 };
    const int64_t last = far_row / D, rows = last + 1;
    uint8_t *table = reserve(rows * D), *scale = reserve(rows * D / 32);
    uint16_t out[2 * D];
    int64_t row[2] = {last, last % (((int64_t)1 << 32) / D)}; /* equal modulo 2^32 bytes */
    cr_assert_neq(row[0], row[1]);
    memset(table + row[0] * D, 0x38, D); /* 1.0 */
    memset(table + row[1] * D, 0x40, D); /* 2.0 */
    memset(scale + row[0] * 2, 128, 2);
    memset(scale + row[1] * 2, 127, 2);
    dsf_engram_gather_args a = {tensor_of(out, DSF_BF16, 1, 2, D), tensor_of(row, DSF_I64, 1, 2, 0),
                                tensor_of(table, DSF_E4M3, rows, D, 0),
                                tensor_of(scale, DSF_E8M0, rows, D / 32, 0)};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_engram_gather, v));) {
        memset(out, 0, sizeof out);
        variant_run(v, &a);
        for (int c = 0; c < 2 * D; c++) cr_assert_eq(out[c], 0x4000, "%s: %d", v->name, c);
    }
    munmap(table, (size_t)(rows * D));
    munmap(scale, (size_t)(rows * D / 32));
}

/* [B-26] [B-55] */
Test(offsets, cache)
{
    enum { D = 64, RECORD = D + D / 32 };
    const int64_t slots = 3, c = far_row / RECORD / 2 + 1; /* slot 2 begins beyond 2^32 */
    uint8_t *cache = reserve(slots * c * RECORD), x[RECORD];
    int32_t slot = 2, index = 7, end = 8;
    memset(x, 0x5A, sizeof x);
    dsf_cache_store_args a = {tensor_of(cache, DSF_Q8, slots, c, D), tensor_of(x, DSF_Q8, 1, D, 0),
                              tensor_of(&slot, DSF_I32, 1, 0, 0),
                              tensor_of(&index, DSF_I32, 1, 0, 0),
                              tensor_of(&end, DSF_I32, 1, 0, 0)};
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_cache_store_q8, v));) {
        uint8_t *at = cache + (2 * c + 7) * RECORD;
        memset(at, 0, RECORD);
        variant_run(v, &a);
        cr_expect_arr_eq(at, x, RECORD, "%s", v->name);
    }
    munmap(cache, (size_t)(slots * c * RECORD));
}

/* [B-55] */
Test(offsets, attention)
{
    enum { D = 64, RECORD = D / 2 + D / 16 };
    const int64_t entries = far_row / RECORD / 2 + 1;
    uint8_t *main = reserve(3 * entries * RECORD), near[D + D / 32] = {0};
    int32_t topk = 5, zero = 0, pos = 100, slot = 2;
    uint16_t q[D] = {0}, out[D] = {0};
    float sink = 0;
    dsf_attn_args a = {.out = tensor_of(out, DSF_BF16, 1, 1, D),
                       .q = tensor_of(q, DSF_BF16, 1, 1, D),
                       .kv_new = tensor_of(near, DSF_Q8, 1, D, 0),
                       .ring = tensor_of(near, DSF_Q8, 1, 1, D),
                       .main = tensor_of(main, DSF_Q4N, 3, entries, D),
                       .topk = tensor_of(&topk, DSF_I32, 1, 1, 0),
                       .sink = tensor_of(&sink, DSF_F32, 1, 0, 0),
                       .row = tensor_of(&zero, DSF_I32, 1, 0, 0),
                       .pos = tensor_of(&pos, DSF_I32, 1, 0, 0),
                       .start = tensor_of(&pos, DSF_I32, 1, 0, 0),
                       .lo = tensor_of(&pos, DSF_I32, 1, 0, 0),
                       .slot = tensor_of(&slot, DSF_I32, 1, 0, 0),
                       .window = 1};
    dsf_attn_key key[2];
    cr_assert_eq(dsf_attn_list(&a, 0, key), 2);
    cr_expect_eq(key[1].record - main, (2 * entries + 5) * RECORD);
    munmap(main, (size_t)(3 * entries * RECORD));
}
