#include "verify/diff/detail.h"

#include <math.h>

#include "base/mem.h"
#include "verify/diff/pattern.h"

static dsf_status name_rows(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                            const dsf_row *row, int64_t n, dsf_diff_tap *t)
{
    uint8_t *wrong;
    DSF_TRY(dsf_mem_new(&wrong, (size_t)n + 1, 1));
    for (int64_t i = 0; i < n; i++) {
        wrong[i] = row[i].over;
        t->wrong_rows += row[i].over;
    }
    dsf_pattern_rows(t->wrong_at, sizeof t->wrong_at, row, n, wrong);
    dsf_status st = dsf_pattern_find(s, tap, j, row, n, wrong, &t->pattern);
    dsf_mem_free(wrong);
    return st;
}

/* A tap may fail as a whole, or by its median, while few or no rows exceed their own limit: then
 * all rows that carry the error are the wrong ones. */
static void mark_carriers(dsf_row *row, int64_t n, const dsf_diff_tap *t)
{
    int64_t over = 0;
    for (int64_t i = 0; i < n; i++) over += row[i].over;
    bool by_median = t->row_median > 0.0 && t->row_median > t->limit_median;
    if (over && !by_median) return;
    double least = 0.1 * (by_median ? t->row_median : t->row_max);
    for (int64_t i = 0; i < n; i++)
        row[i].over |= row[i].changed > 0 && row[i].rel >= least &&
                       (row[i].status == DSF_ROW_JUDGED || t->ungated == t->rows);
}

dsf_status dsf_detail_values(const dsf_diff_state *s, dsf_tap tap, const dsf_joined *j,
                             dsf_row *row, bool keep, dsf_diff_tap *t)
{
    if (t->verdict == DSF_DIFF_FAILED || t->beyond) {
        mark_carriers(row, j->n, t);
        DSF_TRY(name_rows(s, tap, j, row, j->n, t));
    }
    if (!keep) return DSF_OK;
    DSF_TRY(dsf_mem_new(&t->row, (size_t)j->n + 1, sizeof *t->row));
    t->n_row = j->n;
    for (int64_t i = 0; i < j->n; i++)
        t->row[i] = (dsf_diff_rows){row[i].label, row[i].rel, row[i].ratio};
    return DSF_OK;
}

dsf_status dsf_detail_choice(const dsf_diff_state *s, dsf_tap tap, const dsf_row *row, int64_t n,
                             dsf_diff_tap *t)
{
    return t->wrong ? name_rows(s, tap, NULL, row, n, t) : DSF_OK;
}
