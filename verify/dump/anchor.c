#include "verify/dump/reader.h"

/* Index of the largest value of the row with this label; -1: no such row. */
static int64_t best_of(const dsf_dump_array *a, int64_t label)
{
    for (int64_t i = 0; i < a->n && a->f; i++) {
        const float *row = a->f + i * a->width;
        int64_t best = 0;
        if (a->label[i] != label) continue;
        for (int64_t v = 1; v < a->width; v++)
            if (row[v] > row[best]) best = v;
        return best;
    }
    return -1;
}

dsf_status dsf_dump_anchor(dsf_dump_file *f, const char *path, int64_t n, int64_t vocab,
                           int64_t *anchor)
{
    static const char *const tap[] = {"logits", "logits_oneshot"};
    *anchor = -1;
    for (int k = 0; k < 2 && *anchor < 0; k++) {
        dsf_dump_array a = {.n = 0};
        if (!dsf_dump_find(f, tap[k])) continue;
        DSF_TRY(dsf_dump_read(f, tap[k], &a));
        bool fits = a.width == vocab;
        long long width = a.width;
        if (fits) *anchor = best_of(&a, n - 1);
        dsf_dump_array_free(&a);
        if (!fits)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: %lld columns, the vocabulary has %lld", path,
                            tap[k], width, (long long)vocab);
    }
    return DSF_OK;
}
