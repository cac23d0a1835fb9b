/* Figures of one tap: what two sets of rows with the same labels differ by (verification.md 10). */
#ifndef DSF_DIFF_METRICS_H
#define DSF_DIFF_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "verify/diff/diff.h"
#include "verify/dump/reader.h"

/* Rows without a gate, and why. */
typedef enum {
    DSF_ROW_JUDGED = 0,
    DSF_ROW_REPORTED, /* the definition leaves the row open (architecture.md 5.4) */
    DSF_ROW_EXCUSED   /* follows a choice that fell the other way at a tie */
} dsf_row_status;

typedef struct {
    int32_t label;
    dsf_row_status status;
    bool disturbed;      /* something that it is computed from already differs */
    bool over;           /* wrong: beyond its limit; set by the gate */
    int64_t changed;     /* elements with another value */
    int64_t worst;       /* column of the largest difference */
    double diff2, size2; /* squared norms of difference and reference */
    double rel;          /* relative L2; infinite when the reference is zero and ours is not */
    double max_abs;
    double step; /* one rounding step of the source format at the row's largest element, relative to
                    the row's norm: what a single flipped rounding can cost at most */
    double ratio; /* rel over the limit of this row; set by the gate */
} dsf_row;

typedef struct {
    const dsf_dump_array *a, *b; /* reference, ours: float arrays */
    const int64_t *pair;         /* [2 n] row indices */
    int64_t n, width;            /* common rows; common columns */
    bool inf_known;              /* the reference may hold -inf (masked scores) */
} dsf_joined;

/* Elements in which only one side, or both, hold NaN or infinities that must not be there. */
typedef struct {
    int64_t nan_reference, nan_ours, inf;
    int32_t label; /* of the first one, with its joined row and column */
    int64_t row, column;
} dsf_unfinite;

/* Fills row[n] (status and disturbed are left as they are). b is rounded to bf16 first where only
 * the reference is defined on bf16 points. */
void dsf_metrics_rows(const dsf_joined *j, dsf_row *row, dsf_unfinite *bad);
/* Summary of rows into t: rows, unequal, changed, rel L2, median, maximum, gain, bias, coordinate.
 * Judged rows only, unless there are none. */
DSF_MUST dsf_status dsf_metrics_sum(const dsf_joined *j, const dsf_row *row, dsf_diff_tap *t);
/* Median with the middle pair averaged; sorts v. 0 for n = 0. */
double dsf_metrics_median(double *v, int64_t n);
/* The value of ours at an element, rounded as dsf_metrics_rows does. */
float dsf_metrics_ours(const dsf_joined *j, int64_t row, int64_t column);

#endif
