#include "bench/soak/ladder.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add(dsf_ladder *l, int64_t length, int64_t to)
{
    if (length < 1 || length > to) return;
    for (int i = 0; i < l->n; i++)
        if (l->length[i] == length) return;
    if (l->n < DSF_LADDER_RUNGS) l->length[l->n++] = length;
}

/* The length and its neighbours; of a small one all remainders modulo the ratio. */
static void add_around(dsf_ladder *l, int64_t length, int64_t to, int64_t ratio)
{
    for (int64_t d = -1; d <= 1; d++) add(l, length + d, to);
    for (int64_t r = 0; r < ratio && length <= DSF_LADDER_SMALL; r++) add(l, length + r, to);
}

dsf_status dsf_ladder_default(dsf_ladder *l, int64_t to, int64_t window, int64_t ratio)
{
    if (to < 1) return DSF_FAIL(DSF_EINVAL, "a ladder to %lld: at least 1", (long long)to);
    l->n = 0;
    /* What must not be lost if there are very many. */
    add(l, to, to);
    add(l, 1, to);
    add_around(l, window, to, ratio);
    for (int64_t p = 128; p <= to + 1 && p < INT64_MAX / 2; p *= 2) add_around(l, p, to, ratio);
    qsort(l->length, (size_t)l->n, sizeof *l->length, ascending);
    return DSF_OK;
}

dsf_status dsf_ladder_of(dsf_ladder *l, const int64_t *length, int n, int64_t to)
{
    l->n = 0;
    if (n < 1 || n > DSF_LADDER_RUNGS)
        return DSF_FAIL(DSF_EINVAL, "a ladder of %d lengths: 1 to %d", n, (int)DSF_LADDER_RUNGS);
    for (int i = 0; i < n; i++) {
        if (length[i] < 1 || length[i] > to)
            return DSF_FAIL(DSF_EINVAL, "a ladder to %lld has no length %lld", (long long)to,
                            (long long)length[i]);
        add(l, length[i], to);
    }
    qsort(l->length, (size_t)l->n, sizeof *l->length, ascending);
    return DSF_OK;
}
