#include "verify/dump/widen.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "ops/quant.h"

int64_t dsf_widen_width(const dsf_tensor *t)
{
    int64_t n = 1;
    for (int i = 1; i < t->rank; i++) n *= t->dim[i];
    return n;
}

static void widen_records(float *out, const dsf_tensor *t, const uint8_t *row, uint16_t *scratch)
{
    int64_t d = t->dim[t->rank - 1], bytes = dsf_dtype_bytes(t->dtype, d);
    int64_t n = dsf_widen_width(t) / d;
    for (int64_t i = 0; i < n; i++, row += bytes, out += d) {
        if (t->dtype == DSF_Q8)
            dsf_q8_unpack(scratch, row, d);
        else if (t->dtype == DSF_Q4X)
            dsf_q4x_unpack(scratch, row, d);
        else
            dsf_q4n_unpack(scratch, row, d);
        for (int64_t c = 0; c < d; c++) out[c] = dsf_bf16_to_f32(scratch[c]);
    }
}

/* In groups of a fixed size, of which compilers make vectors. */
static void widen_bf16(float *out, const uint8_t *row, int64_t n)
{
    enum { GROUP = 32 };
    int64_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint16_t h[GROUP];
        uint32_t w[GROUP];
        memcpy(h, row + 2 * i, sizeof h);
        for (int k = 0; k < GROUP; k++) w[k] = (uint32_t)h[k] << 16;
        memcpy(out + i, w, sizeof w);
    }
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, row + 2 * i, 2);
        out[i] = dsf_bf16_to_f32(h);
    }
}

static dsf_status widen_values(float *out, const dsf_tensor *t, const uint8_t *row, int64_t n,
                               uint16_t *scratch)
{
    switch (t->dtype) {
    case DSF_F32:
        memcpy(out, row, (size_t)n * 4);
        return DSF_OK;
    case DSF_BF16:
        widen_bf16(out, row, n);
        return DSF_OK;
    case DSF_E4M3:
        for (int64_t i = 0; i < n; i++) out[i] = dsf_e4m3_to_f32(row[i]);
        return DSF_OK;
    case DSF_Q8:
    case DSF_Q4X:
    case DSF_Q4N:
        widen_records(out, t, row, scratch);
        return DSF_OK;
    default:
        return DSF_FAIL(DSF_EINVAL, "type %s holds no values to dump", dsf_dtype_name(t->dtype));
    }
}

static dsf_status get_int(const dsf_tensor *t, const uint8_t *row, int64_t i, int64_t *out)
{
    int32_t v32;
    switch (t->dtype) {
    case DSF_I32:
        memcpy(&v32, row + 4 * i, 4);
        *out = v32;
        return DSF_OK;
    case DSF_I64:
        memcpy(out, row + 8 * i, 8);
        return DSF_OK;
    case DSF_U8:
        *out = row[i];
        return DSF_OK;
    default:
        return DSF_FAIL(DSF_EINVAL, "type %s holds no integers to dump", dsf_dtype_name(t->dtype));
    }
}

static dsf_status put_int(void *out, dsf_dump_kind kind, int64_t i, int64_t v)
{
    if (kind == DSF_DUMP_I64) {
        ((int64_t *)out)[i] = v;
    } else if (kind == DSF_DUMP_I32) {
        if (v < INT32_MIN || v > INT32_MAX)
            return DSF_FAIL(DSF_EINVAL, "element %lld: %lld does not fit int32", (long long)i,
                            (long long)v);
        ((int32_t *)out)[i] = (int32_t)v;
    } else {
        ((uint8_t *)out)[i] = v != 0;
    }
    return DSF_OK;
}

static dsf_status widen_ints(void *out, const dsf_widen_plan *plan, const dsf_tensor *t,
                             const uint8_t *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t v = 0;
        DSF_TRY(get_int(t, row, i, &v));
        DSF_TRY(put_int(out, plan->kind, i, v));
    }
    for (int64_t i = n; i < plan->width; i++)
        DSF_TRY(put_int(out, plan->kind, i, (int64_t)plan->fill));
    return DSF_OK;
}

/* Kept block ids, ascending, -1 padded, to the 0/1 mask over entries. Not clipped to visible
 * entries: a kept block counts whole, as the schema says. */
static dsf_status widen_pool(uint8_t *out, const dsf_widen_plan *plan, const dsf_tensor *t,
                             const uint8_t *row)
{
    memset(out, 0, (size_t)plan->width);
    int64_t n = dsf_widen_width(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t b = -1;
        DSF_TRY(get_int(t, row, i, &b));
        if (b < 0 || b > plan->width / plan->block) continue;
        int64_t end = (b + 1) * plan->block;
        for (int64_t j = b * plan->block; j < end && j < plan->width; j++) out[j] = 1;
    }
    return DSF_OK;
}

const void *dsf_widen_as_is(const dsf_widen_plan *plan, const dsf_tensor *t, int64_t r)
{
    bool same = (plan->kind == DSF_DUMP_F32 && t->dtype == DSF_F32) ||
                (plan->kind == DSF_DUMP_I32 && t->dtype == DSF_I32) ||
                (plan->kind == DSF_DUMP_I64 && t->dtype == DSF_I64);
    if (!same || plan->block || dsf_widen_width(t) < plan->width) return NULL;
    return (const uint8_t *)t->data + r * dsf_tensor_stride(t);
}

dsf_status dsf_widen_row(void *out, const dsf_widen_plan *plan, const dsf_tensor *t, int64_t r,
                         uint16_t *scratch)
{
    const uint8_t *row = (const uint8_t *)t->data + r * dsf_tensor_stride(t);
    int64_t n = dsf_widen_width(t);
    if (plan->block) return widen_pool(out, plan, t, row);
    if (plan->trim && n > plan->width) n = plan->width;
    if (plan->kind != DSF_DUMP_F32) return widen_ints(out, plan, t, row, n);
    DSF_TRY(widen_values(out, t, row, n, scratch));
    for (int64_t i = n; i < plan->width; i++) ((float *)out)[i] = (float)plan->fill;
    return DSF_OK;
}
