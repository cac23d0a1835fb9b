/* Rows of two files by label. */
#include <stdlib.h>

#include "base/mem.h"
#include "verify/dump/reader.h"

typedef struct {
    int32_t label;
    int64_t row;
} labelled;

static int compare(const void *a, const void *b)
{
    const labelled *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static dsf_status sorted(const dsf_dump_array *a, labelled **out)
{
    DSF_TRY(dsf_mem_new(out, (size_t)a->n, sizeof **out));
    for (int64_t i = 0; i < a->n; i++) (*out)[i] = (labelled){a->label[i], i};
    if (a->n) qsort(*out, (size_t)a->n, sizeof **out, compare);
    return DSF_OK;
}

dsf_status dsf_dump_join(const dsf_dump_array *a, const dsf_dump_array *b, int64_t **pair,
                         int64_t *n)
{
    labelled *x = NULL, *y = NULL;
    int64_t *got = NULL, count = 0, i = 0, j = 0;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(sorted(a, &x));
    DSF_TRY_OUT(sorted(b, &y));
    DSF_TRY_OUT(dsf_mem_new(&got, (size_t)(a->n < b->n ? a->n : b->n), 2 * sizeof *got));
    while (i < a->n && j < b->n) {
        if (x[i].label != y[j].label) {
            if (x[i].label < y[j].label)
                i++;
            else
                j++;
            continue;
        }
        if (x[i].label >= 0) {
            got[2 * count] = x[i].row;
            got[2 * count++ + 1] = y[j].row;
        }
        i++;
        j++;
    }
    *pair = got;
    *n = count;
    got = NULL;
out:
    dsf_mem_free(got);
    dsf_mem_free(x);
    dsf_mem_free(y);
    return st;
}
