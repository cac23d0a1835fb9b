/* Labels of rows: those that a file may have, and rows of two files by label. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "verify/dump/reader.h"

/* One above the largest label of a tap's axis; -1: the file does not tell. A killed run may have
 * rows whose token it did not write any more. */
static int64_t label_end(const dsf_dump_info *in, dsf_tap tap)
{
    const dsf_dump_geometry *g = &in->geometry;
    dsf_tap_rows_kind rows = dsf_taps[tap.id].rows;
    bool stage = dsf_taps[tap.id].scope == DSF_SCOPE_LAYER && tap.layer >= g->n_layers;
    if (in->n_tokens == 0 || in->partial) return -1;
    /* the rows of a draft block lie behind the token that it starts from */
    if (rows == DSF_ROWS_DRAFT || stage) return g->draft_rows ? in->n_tokens + g->draft_rows : -1;
    int ratio = rows == DSF_ROWS_ENTRY && tap.layer >= 0 && tap.layer < DSF_DUMP_MAX_LAYERS
                    ? g->ratio[tap.layer]
                    : 1;
    return in->n_tokens / (ratio ? ratio : 1);
}

dsf_status dsf_dump_check_labels(const dsf_dump_file *f, const dsf_dump_entry *e,
                                 const int32_t *label, int64_t n)
{
    const dsf_dump_info *in = dsf_dump_info_of(f);
    const char *path = strncmp(e->path, "stats/", 6) == 0 ? e->path + 6 : e->path;
    dsf_tap tap;
    bool oneshot = strcmp(path, "logits_oneshot") == 0;
    if (!dsf_tap_parse(&tap, oneshot ? "logits" : path, in->geometry.n_layers)) return DSF_OK;
    int64_t end = label_end(in, tap);
    for (int64_t i = 0; i < n; i++) {
        if (label[i] < 0 || (end >= 0 && label[i] >= end))
            return DSF_FAIL(DSF_ECORRUPT,
                            "%s: /%s: row %lld is labelled %d in %s, allowed are 0 to %lld",
                            in->path, e->path, (long long)i, (int)label[i], e->rows,
                            end >= 0 ? (long long)end - 1 : (long long)INT32_MAX);
        if (i && label[i] <= label[i - 1])
            return DSF_FAIL(
                DSF_ECORRUPT,
                "%s: /%s: row %lld is labelled %d in %s and the row before it %d: labels "
                "must ascend",
                in->path, e->path, (long long)i, (int)label[i], e->rows, (int)label[i - 1]);
    }
    return DSF_OK;
}

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
