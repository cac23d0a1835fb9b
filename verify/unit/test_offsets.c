/* Offsets beyond 2^32 bytes: the released Engram tables and long caches pass it. The memory is only
 * reserved, and the few rows in use are touched. */
#include <sys/mman.h>

#include "op_variants.h"
#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/engram.h"
#include "ops/index.h"
#include "records.h"

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

/* ---- every other operation that indexes a cache or a table ----
 * The same records near the start of a small cache and in the last slot of one whose bytes pass
 * 2^32: outputs must be equal. Between the two the far cache is zero. */

/* Slots of `bytes` each, so that the last begins beyond far_row. */
static int64_t far_slots(int64_t bytes) { return far_row / bytes + 2; }

enum { IH = 4, ID = 64, IC = 24, IK = 6, IB = 3 };

typedef struct {
    uint8_t q[IH * (ID / 2 + ID / 32)];
    uint16_t a[IH], scores[IC];
    int32_t topk[IK], pool[IB], pos, slot;
} index_row;

static void run_index(const dsf_variant *scores, const dsf_variant *topk, index_row *r,
                      uint8_t *keys, int64_t slots)
{
    dsf_tensor k = tensor_of(keys, DSF_Q4X, slots, IC, ID),
               pos = tensor_of(&r->pos, DSF_I32, 1, 0, 0);
    dsf_tensor q = tensor_of(r->q, DSF_Q4X, 1, IH, ID), a = tensor_of(r->a, DSF_BF16, 1, IH, 0);
    dsf_tensor slot = tensor_of(&r->slot, DSF_I32, 1, 0, 0);
    dsf_index_scores_args s = {tensor_of(r->scores, DSF_BF16, 1, IC, 0), q, a, k, pos, slot, 1};
    dsf_index_topk_args t = {.topk = tensor_of(r->topk, DSF_I32, 1, IK, 0),
                             .pool_out = tensor_of(r->pool, DSF_I32, 1, IB, 0),
                             .q = q,
                             .a = a,
                             .keys = k,
                             .pos = pos,
                             .slot = slot,
                             .ratio = 1,
                             .block = 4};
    if (scores) variant_run(scores, &s);
    if (topk) variant_run(topk, &t);
}

/* [B-55] */
Test(offsets, index_keys)
{
    const int64_t bytes = IC * (ID / 2 + ID / 32), slots = far_slots(bytes);
    uint8_t *far = reserve(slots * bytes), near[2 * IC * (ID / 2 + ID / 32)];
    index_row r = {.pos = IC - 2}, f;
    fill_records(r.q, IH, ID, DSF_Q4X, 1);
    fill_records(near + bytes, IC, ID, DSF_Q4X, 2);
    memcpy(far + (slots - 1) * bytes, near + bytes, (size_t)bytes);
    for (int h = 0; h < IH; h++) r.a[h] = dsf_f32_to_bf16(0.5f + (float)h);
    for (int op = 0; op < 2; op++) {
        const dsf_op *o = op ? &dsf_op_index_topk : &dsf_op_index_scores;
        for (const dsf_variant *v = NULL; (v = variant_next(o, v));) {
            f = r;
            r.slot = 1;
            run_index(op ? NULL : v, op ? v : NULL, &r, near, 2);
            f.slot = (int32_t)slots - 1;
            run_index(op ? NULL : v, op ? v : NULL, &f, far, slots);
            cr_expect_arr_eq(f.scores, r.scores, sizeof r.scores, "%s %s", o->name, v->name);
            cr_expect_arr_eq(f.topk, r.topk, sizeof r.topk, "%s %s", o->name, v->name);
            cr_expect_arr_eq(f.pool, r.pool, sizeof r.pool, "%s %s", o->name, v->name);
        }
    }
    cr_expect_neq(r.scores[0], r.scores[1]);
    munmap(far, (size_t)(slots * bytes));
}

enum { AD = 64, AH = 2, ARING = 12, AMAIN = 16, AK = 5 };

typedef struct {
    uint16_t q[AH * AD], out[AH * AD];
    uint8_t kv_new[AD + AD / 32];
    float sink[AH];
    int32_t topk[AK], row, pos, start, lo, slot[1];
} attn_row;

static void run_attn(const dsf_variant *v, attn_row *r, uint8_t *ring, uint8_t *main, int64_t slots)
{
    dsf_attn_args a = {.out = tensor_of(r->out, DSF_BF16, 1, AH, AD),
                       .q = tensor_of(r->q, DSF_BF16, 1, AH, AD),
                       .kv_new = tensor_of(r->kv_new, DSF_Q8, 1, AD, 0),
                       .ring = tensor_of(ring, DSF_Q8, slots, ARING, AD),
                       .main = tensor_of(main, DSF_Q4N, slots, AMAIN, AD),
                       .topk = tensor_of(r->topk, DSF_I32, 1, AK, 0),
                       .sink = tensor_of(r->sink, DSF_F32, AH, 0, 0),
                       .row = tensor_of(&r->row, DSF_I32, 1, 0, 0),
                       .pos = tensor_of(&r->pos, DSF_I32, 1, 0, 0),
                       .start = tensor_of(&r->start, DSF_I32, 1, 0, 0),
                       .lo = tensor_of(&r->lo, DSF_I32, 1, 0, 0),
                       .slot = tensor_of(r->slot, DSF_I32, 1, 0, 0),
                       .window = 8};
    variant_run(v, &a);
}

/* Window keys from the ring and chosen keys from the main cache, of a far slot. [B-55] */
Test(offsets, attention_of_a_far_slot)
{
    enum { RING = ARING * (AD + AD / 32), MAIN = AMAIN * (AD / 2 + AD / 16) };
    const int64_t slots = far_slots(MAIN);
    static uint8_t ring[2 * RING], main[2 * MAIN];
    uint8_t *far_ring = reserve(slots * RING), *far_main = reserve(slots * MAIN);
    attn_row r = {.topk = {0, 3, 7, 9, 15}, .pos = 100, .start = 100, .lo = 93, .slot = {1}}, f;
    for (int i = 0; i < AH * AD; i++) r.q[i] = dsf_f32_to_bf16((float)(i % 7) - 3.0f);
    fill_records(r.kv_new, 1, AD, DSF_Q8, 3);
    fill_records(ring + RING, ARING, AD, DSF_Q8, 4);
    fill_records(main + MAIN, AMAIN, AD, DSF_Q4N, 5);
    memcpy(far_ring + (slots - 1) * RING, ring + RING, RING);
    memcpy(far_main + (slots - 1) * MAIN, main + MAIN, MAIN);
    for (const dsf_variant *v = NULL; (v = variant_next(&dsf_op_attn, v));) {
        f = r;
        f.slot[0] = (int32_t)slots - 1;
        run_attn(v, &r, ring, main, 2);
        run_attn(v, &f, far_ring, far_main, slots);
        cr_expect_arr_eq(f.out, r.out, sizeof r.out, "%s", v->name);
        cr_expect_neq(r.out[0], 0);
    }
    munmap(far_ring, (size_t)(slots * RING));
    munmap(far_main, (size_t)(slots * MAIN));
}

/* [B-55] */
Test(offsets, caches_of_every_record)
{
    enum { D = 128 };
    static const struct {
        const dsf_op *op;
        dsf_dtype t;
    } kind[] = {{&dsf_op_cache_store_q8, DSF_Q8},
                {&dsf_op_cache_store_q4x, DSF_Q4X},
                {&dsf_op_cache_store_q4n, DSF_Q4N}};
    for (int k = 0; k < 3; k++) {
        const int64_t record = dsf_dtype_bytes(kind[k].t, D), c = 4, slots = far_slots(c * record);
        uint8_t *cache = reserve(slots * c * record), x[D + D / 16];
        int32_t slot = (int32_t)slots - 1, index = 6, end = 7; /* wraps: 6 mod 4 */
        fill_bytes(x, record, (uint64_t)k);
        dsf_cache_store_args a = {
            tensor_of(cache, kind[k].t, slots, c, D), tensor_of(x, kind[k].t, 1, D, 0),
            tensor_of(&slot, DSF_I32, 1, 0, 0), tensor_of(&index, DSF_I32, 1, 0, 0),
            tensor_of(&end, DSF_I32, 1, 0, 0)};
        for (const dsf_variant *v = NULL; (v = variant_next(kind[k].op, v));) {
            uint8_t *at = cache + (slots - 1) * c * record + 2 * record;
            memset(at, 0, (size_t)record);
            variant_run(v, &a);
            cr_expect_arr_eq(at, x, (size_t)record, "%s %s", kind[k].op->name, v->name);
        }
        munmap(cache, (size_t)(slots * c * record));
    }
}

/* The half group that waits for its other token. [B-55] */
Test(offsets, pending_groups)
{
    enum { D = 64, P = 3 };
    const int64_t bytes = (int64_t)P * 2 * D * 4, slots = far_slots(bytes / 4); /* elements too */
    float *far = (float *)(void *)reserve(slots * bytes), v[D], g[D];
    static float near[2 * P * 2 * D];
    uint16_t out[2][D];
    int32_t pos[2] = {8, 9}, end[2] = {9, 10}, row = 0, slot[2] = {1, (int32_t)slots - 1};
    for (int i = 0; i < D; i++) v[i] = (float)i, g[i] = (float)(i % 5);
    for (const dsf_variant *s = NULL; (s = variant_next(&dsf_op_pair_store, s));)
        for (const dsf_variant *p = NULL; (p = variant_next(&dsf_op_pair_pool, p));)
            for (int i = 0; i < 2; i++) {
                float *pend = i ? far : near;
                dsf_tensor t = {pend, DSF_F32, 4, {i ? slots : 2, P, 2, D}};
                memset(pend + (int64_t)slot[i] * P * 2 * D, 0, (size_t)bytes);
                dsf_pair_store_args st = {t,
                                          tensor_of(v, DSF_F32, 1, D, 0),
                                          tensor_of(g, DSF_F32, 1, D, 0),
                                          tensor_of(&pos[0], DSF_I32, 1, 0, 0),
                                          tensor_of(&end[0], DSF_I32, 1, 0, 0),
                                          tensor_of(&slot[i], DSF_I32, 1, 0, 0)};
                dsf_pair_pool_args po = {
                    tensor_of(out[i], DSF_BF16, 1, D, 0), tensor_of(g, DSF_F32, 1, D, 0),
                    tensor_of(v, DSF_F32, 1, D, 0),       t,
                    tensor_of(&row, DSF_I32, 1, 0, 0),    tensor_of(&pos[1], DSF_I32, 1, 0, 0),
                    tensor_of(&pos[1], DSF_I32, 1, 0, 0), tensor_of(&slot[i], DSF_I32, 1, 0, 0)};
                variant_run(s, &st);
                variant_run(p, &po);
                if (i) cr_expect_arr_eq(out[1], out[0], sizeof out[0], "%s %s", s->name, p->name);
            }
    cr_expect_neq(out[0][3], 0);
    munmap(far, (size_t)(slots * bytes));
}

/* [B-55] */
Test(offsets, embedding_and_gathered_rows)
{
    enum { D = 64 };
    const int64_t rows = far_row / D + 2; /* elements pass 2^32, not only bytes */
    uint16_t *table = (uint16_t *)(void *)reserve(rows * D * 2), out[D], want[D];
    int32_t id = (int32_t)rows - 1;
    fill_bytes((uint8_t *)want, sizeof want, 9);
    memcpy(table + (int64_t)id * D, want, sizeof want);
    dsf_embed_args e = {tensor_of(out, DSF_BF16, 1, D, 0), tensor_of(&id, DSF_I32, 1, 0, 0),
                        tensor_of(table, DSF_BF16, rows, D, 0)};
    dsf_row_gather_args r = {tensor_of(out, DSF_BF16, 1, D, 0),
                             tensor_of(table, DSF_BF16, rows, D, 0),
                             tensor_of(&id, DSF_I32, 1, 0, 0)};
    for (int op = 0; op < 2; op++)
        for (const dsf_variant *v = NULL;
             (v = variant_next(op ? &dsf_op_row_gather : &dsf_op_embed, v));) {
            memset(out, 0, sizeof out);
            variant_run(v, op ? (const void *)&r : &e);
            cr_expect_arr_eq(out, want, sizeof want, "%d %s", op, v->name);
        }
    munmap(table, (size_t)(rows * D * 2));
}
