/* The GPU benchmark's table: sizes that the contracts take, and inputs that mean something. */
#include <criterion/criterion.h>
#include <string.h>

#include "bench/device_shapes.h"
#include "frame.h"
#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/index.h"
#include "ops/moe.h"

/* The least number of rows that the shape is measured at. */
static int64_t least_rows(const dsf_device_shape *s)
{
    int k = 0;
    while (!(s->at & 1U << k)) k++;
    return dsf_device_rows[k];
}

/* Memory that is not written stays unused, so the largest shapes open too. */
static void open_settled(dsf_frame *f, const dsf_device_shape *s, int64_t rows, uint64_t seed)
{
    const dsf_case c = dsf_device_sizes(s, rows);
    cr_assert_eq(dsf_frame_open(f, dsf_op_find(s->op), &c, false), DSF_OK, "%s, %s", s->op, s->use);
    dsf_device_settle(f->op, f->args, seed);
}

static const dsf_device_shape *shape_of(const char *op, const char *use)
{
    for (int i = 0; i < dsf_n_device_shapes; i++)
        if (strcmp(dsf_device_shapes[i].op, op) == 0 && strcmp(dsf_device_shapes[i].use, use) == 0)
            return &dsf_device_shapes[i];
    cr_assert_fail("no shape %s, %s", op, use);
    return NULL;
}

static void assert_in(const dsf_tensor *t, int64_t limit, const char *what)
{
    for (int64_t i = 0; i < dsf_tensor_count(t); i++) {
        int32_t v = ((const int32_t *)t->data)[i];
        cr_assert(v >= 0 && v < limit, "%s[%lld] is %d of %lld", what, (long long)i, v,
                  (long long)limit);
    }
}

static void assert_ascending(const dsf_tensor *t, const char *what)
{
    int64_t k = t->dim[1];
    for (int64_t i = 0; i < t->dim[0]; i++)
        for (int64_t j = 1; j < k; j++) {
            const int32_t *row = (const int32_t *)t->data + i * k;
            cr_assert_lt(row[j - 1], row[j], "%s, row %lld", what, (long long)i);
        }
}

Test(device_shapes, every_shape_has_rows_and_opens_under_its_contract)
{
    for (int i = 0; i < dsf_n_device_shapes; i++) {
        const dsf_device_shape *s = &dsf_device_shapes[i];
        dsf_frame f;
        cr_assert_not_null(dsf_op_find(s->op), "%s", s->op);
        cr_assert(s->at && !(s->at & ~(unsigned)DSF_AT_ALL), "%s, %s", s->op, s->use);
        cr_assert(s->sizes.v[0] == DSF_ROWS || s->sizes.v[0] == DSF_HALF_ROWS, "%s", s->op);
        open_settled(&f, s, least_rows(s), 1);
        cr_assert_not_null(f.op->cost, "%s", s->op);
        dsf_cost cost = f.op->cost(f.args);
        cr_assert(cost.bytes > 0 && cost.flops >= 0, "%s, %s", s->op, s->use);
        dsf_frame_close(&f);
    }
}

Test(device_shapes, routing_is_six_different_experts_a_row)
{
    const dsf_device_shape *s = shape_of("experts_up", "384 experts");
    dsf_frame f, g;
    open_settled(&f, s, 256, 1);
    open_settled(&g, s, 256, 2);
    const dsf_tensor *ids = &((dsf_experts_up_args *)f.args)->ids;
    assert_in(ids, 384, "ids");
    assert_ascending(ids, "ids");
    cr_assert_neq(
        memcmp(ids->data, ((dsf_experts_up_args *)g.args)->ids.data, (size_t)dsf_tensor_bytes(ids)),
        0, "another seed must choose other experts");
    int used[384] = {0}, distinct = 0;
    for (int64_t i = 0; i < dsf_tensor_count(ids); i++)
        distinct += used[((const int32_t *)ids->data)[i]]++ == 0;
    cr_assert(distinct > 365 && distinct <= 384, "uniform routing meets 377, this one %d",
              distinct);
    dsf_frame_close(&f);
    dsf_frame_close(&g);
}

static void assert_attention(const dsf_attn_args *a)
{
    assert_in(&a->slot, a->ring.dim[0], "slot");
    assert_in(&a->row, a->kv_new.dim[0], "row");
    assert_in(&a->topk, a->main.dim[1], "topk");
    assert_ascending(&a->topk, "topk");
    for (int64_t i = 0; i < a->pos.dim[0]; i++) {
        int32_t pos = ((int32_t *)a->pos.data)[i], start = ((int32_t *)a->start.data)[i];
        int32_t row = ((int32_t *)a->row.data)[i];
        cr_assert_geq(pos, start);
        cr_assert_geq(row, pos - start, "its sequence begins before the pass");
        cr_assert_geq(pos / 2 + 1, a->main.dim[1], "not every entry is visible");
    }
}

Test(device_shapes, attention_reads_entries_that_exist)
{
    dsf_frame f;
    open_settled(&f, shape_of("attn", "pool 131072"), 8, 3);
    assert_attention(f.args);
    const dsf_attn_args *a = f.args;
    for (int i = 0; i < 8; i++) cr_assert_eq(((int32_t *)a->slot.data)[i], i, "a sequence a row");
    dsf_frame_close(&f);
    open_settled(&f, shape_of("attn", "prefill, pool 8192"), 8192, 3);
    assert_attention(f.args);
    dsf_frame_close(&f);
}

Test(device_shapes, the_last_index_row_sees_every_entry)
{
    dsf_frame f;
    open_settled(&f, shape_of("index_topk", "prefill, 65536 keys"), 8192, 1);
    const dsf_index_topk_args *a = f.args;
    const int32_t *pos = a->pos.data;
    cr_assert_eq(dsf_index_visible(pos[8191], a->ratio, 1 << 20), 65536);
    cr_assert_eq(pos[0], pos[8191] - 8191);
    assert_in(&a->slot, 1, "slot");
    dsf_frame_close(&f);
    open_settled(&f, shape_of("index_topk", "262144 keys, in the pool"), 8, 1);
    a = f.args;
    cr_assert_eq(a->pool_out.rank, 0);
    assert_in(&a->pool_in, 262144 / 8, "pool_in");
    assert_ascending(&a->pool_in, "pool_in");
    dsf_frame_close(&f);
}

Test(device_shapes, stores_write_each_row_once)
{
    dsf_frame f;
    open_settled(&f, shape_of("cache_store_q8", "window"), 64, 1);
    const dsf_cache_store_args *a = f.args;
    for (int i = 0; i < 64; i++) {
        cr_assert_eq(((int32_t *)a->slot.data)[i], i);
        cr_assert_eq(((int32_t *)a->end.data)[i], ((int32_t *)a->index.data)[i] + 1);
    }
    dsf_frame_close(&f);
    open_settled(&f, shape_of("pair_pool", "compressor"), 8192, 1);
    const dsf_pair_pool_args *p = f.args;
    for (int64_t e = 0; e < p->row.dim[0]; e++) {
        int32_t row = ((int32_t *)p->row.data)[e];
        cr_assert(row < p->pos.dim[0] && ((int32_t *)p->pos.data)[row] % 2 == 1,
                  "an entry closes at an odd position");
    }
    dsf_frame_close(&f);
}
