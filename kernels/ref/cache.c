/* Moves between pass rows and caches (architecture.md 13), and the ratio-2 compressor (5.2). */
#include "ops/cache.h"

#include "base/num.h"

/* Rows that a later row of the pass would overwrite are skipped, so no two rows share a place. */
static void store_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_cache_store_args *a = arg;
    int64_t c = a->cache.dim[1], d = a->x.dim[1];
    int64_t slot = ((const int32_t *)a->slot.data)[i], index = ((const int32_t *)a->index.data)[i];
    if (slot < 0 || index < ((const int32_t *)a->end.data)[i] - c) return;
    size_t bytes = (size_t)dsf_dtype_bytes(a->x.dtype, d);
    memcpy((uint8_t *)a->cache.data + (size_t)(slot * c + index % c) * bytes,
           (const uint8_t *)a->x.data + (size_t)i * bytes, bytes);
}

dsf_status dsf_cache_store_ref(const dsf_launch *lc, const void *args)
{
    dsf_cache_store_args a = *(const dsf_cache_store_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], store_row, &a);
    return DSF_OK;
}

dsf_pair_view dsf_pair_of(const dsf_pair_pool_args *a, int64_t e)
{
    int64_t d = a->out.dim[1], p = a->pend.dim[1], row = ((const int32_t *)a->row.data)[e];
    const float *v = (const float *)a->v.data + row * d, *g = (const float *)a->g.data + row * d;
    int64_t even = ((const int32_t *)a->pos.data)[row] - 1; /* its position */
    if (even >= ((const int32_t *)a->start.data)[row])
        return (dsf_pair_view){{v - d, v}, {g - d, g}};
    int64_t slot = ((const int32_t *)a->slot.data)[row];
    const float *pend = (const float *)a->pend.data + (slot * p + even / 2 % p) * 2 * d;
    return (dsf_pair_view){{pend, v}, {pend + d, g}};
}

static void pool_entry(void *arg, int64_t e, int worker)
{
    (void)worker;
    const dsf_pair_pool_args *a = arg;
    int64_t d = a->out.dim[1];
    dsf_pair_view at = dsf_pair_of(a, e);
    uint16_t *out = (uint16_t *)a->out.data + e * d;
    for (int64_t c = 0; c < d; c++) {
        double most = fmax((double)at.g[0][c], (double)at.g[1][c]);
        double p0 = exp((double)at.g[0][c] - most), p1 = exp((double)at.g[1][c] - most);
        out[c] = dsf_f64_to_bf16((p0 * (double)at.v[0][c] + p1 * (double)at.v[1][c]) / (p0 + p1));
    }
}

dsf_status dsf_pair_pool_ref(const dsf_launch *lc, const void *args)
{
    dsf_pair_pool_args a = *(const dsf_pair_pool_args *)args;
    dsf_pool_run(lc->pool, a.out.dim[0], pool_entry, &a);
    return DSF_OK;
}

static void keep_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_pair_store_args *a = arg;
    int64_t d = a->v.dim[1], p = a->pend.dim[1];
    int64_t slot = ((const int32_t *)a->slot.data)[i], pos = ((const int32_t *)a->pos.data)[i];
    if (slot < 0 || pos % 2 != 0 || pos < ((const int32_t *)a->end.data)[i] - 2 * p) return;
    float *pend = (float *)a->pend.data + (slot * p + pos / 2 % p) * 2 * d;
    memcpy(pend, (const float *)a->v.data + i * d, (size_t)d * sizeof *pend);
    memcpy(pend + d, (const float *)a->g.data + i * d, (size_t)d * sizeof *pend);
}

dsf_status dsf_pair_store_ref(const dsf_launch *lc, const void *args)
{
    dsf_pair_store_args a = *(const dsf_pair_store_args *)args;
    dsf_pool_run(lc->pool, a.v.dim[0], keep_row, &a);
    return DSF_OK;
}

static void gather_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_row_gather_args *a = arg;
    size_t bytes = (size_t)a->x.dim[1] * sizeof(uint16_t);
    memcpy((uint8_t *)a->out.data + (size_t)i * bytes,
           (const uint8_t *)a->x.data + (size_t)((const int32_t *)a->row.data)[i] * bytes, bytes);
}

dsf_status dsf_row_gather_ref(const dsf_launch *lc, const void *args)
{
    dsf_row_gather_args a = *(const dsf_row_gather_args *)args;
    dsf_pool_run(lc->pool, a.out.dim[0], gather_row, &a);
    return DSF_OK;
}
