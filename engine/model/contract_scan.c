#include "model/contract_scan.h"

#include <stdbool.h>
#include <string.h>

/* Each loop counts without branches, so that it runs at the speed of memory; the place of a fault
 * is looked for only when there is one. */
enum { PIECE = 1 << 16 };

static int64_t count_bytes(const uint8_t *p, int64_t n, uint8_t mask, uint8_t bad)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += (p[i] & mask) == bad;
    return count;
}

static int64_t count_bf16(const uint16_t *p, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += (p[i] & 0x7F80) == 0x7F80;
    return count;
}

static int64_t count_f32(const uint32_t *p, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += (p[i] & 0x7F800000u) == 0x7F800000u;
    return count;
}

static int64_t count_bad(const dsf_tensor *t, int64_t from, int64_t n)
{
    const uint8_t *p = (const uint8_t *)t->data + from * dsf_dtype_bytes(t->dtype, 1);
    switch (t->dtype) {
    case DSF_E8M0:
        return count_bytes(p, n, 0xFF, 0xFF);
    case DSF_E4M3:
        return count_bytes(p, n, 0x7F, 0x7F);
    case DSF_BF16:
        return count_bf16((const uint16_t *)(const void *)p, n);
    case DSF_F32:
        return count_f32((const uint32_t *)(const void *)p, n);
    default:
        return 0;
    }
}

static void widen(dsf_scan_result *r, const uint8_t *p, int64_t n)
{
    uint8_t low = 255, high = 0; /* 255 counts as nothing: x + 1 wraps it to 0 */
    for (int64_t i = 0; i < n; i++) {
        uint8_t next = (uint8_t)(p[i] + 1);
        low = p[i] < low ? p[i] : low;
        high = next > high ? next : high;
    }
    if (high == 0) return;
    if (r->high < 0 || low < r->low) r->low = low;
    if (high - 1 > r->high) r->high = high - 1;
}

dsf_scan_result dsf_scan_tensor(const dsf_tensor *t)
{
    dsf_scan_result r = {.first = -1, .high = -1};
    if (t->dtype == DSF_E2M1X2) return r;
    int64_t n = dsf_tensor_count(t);
    for (int64_t from = 0; from < n; from += PIECE) {
        int64_t m = n - from < PIECE ? n - from : PIECE;
        int64_t bad = count_bad(t, from, m);
        for (int64_t i = 0; bad && r.first < 0; i++)
            if (count_bad(t, from + i, 1)) r.first = from + i;
        r.bad += bad;
        if (t->dtype == DSF_E8M0) widen(&r, (const uint8_t *)t->data + from, m);
    }
    return r;
}
