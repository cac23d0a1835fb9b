/* Compares two dumps in execution order and judges the difference: the first divergence, then every
 * tap with its figures and limits (dump-schema.md 7, verification.md 10-14 and 17). */
#ifndef DSF_DIFF_H
#define DSF_DIFF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "verify/dump/types.h"

typedef struct {
    const char *reference, *ours; /* dump files; `reference` is the truth */
    const char *floor;            /* measured noise (floor.h); NULL: everything must be bit-equal */
    const char *const *only;      /* globs on paths; what they ask for must be there */
    int n_only;
    const char *no_gate; /* label of a comparison that is reported and not judged, or NULL */
    const char *mode;    /* overrides the mode attribute of `ours`; NULL: as the file says */
} dsf_diff_options;

typedef enum {
    DSF_DIFF_EXACT,    /* bit-equal */
    DSF_DIFF_WITHIN,   /* differs within its limits */
    DSF_DIFF_TIES,     /* choices differ only where the reference's margin is noise */
    DSF_DIFF_REPORTED, /* figures without a gate; `why` says why */
    DSF_DIFF_FAILED
} dsf_diff_verdict;
const char *dsf_diff_verdict_name(dsf_diff_verdict v);

/* One compared tap. Figures are ours against the reference; rows without a gate (see `ungated`)
 * count in rows and elements, not in the rest of the judged figures. */
typedef struct {
    char path[96], kind[40]; /* kind: the path without its layer, as floors name it */
    int layer;               /* -1: none */
    bool discrete;
    dsf_tap_source source;
    int64_t rows, width, ungated; /* common rows; elements of one; rows reported only */
    int64_t changed, unequal;     /* elements and rows with another value */
    int64_t zeros;                /* elements that differ in the sign of zero only */
    double rel_l2, row_median, row_max, max_abs, gain, bias_z;
    int32_t row_max_label;
    /* discrete taps: rows whose set differs, and how they are explained */
    int64_t flips, ties, wrong;
    double limit_rel_l2, limit_median, limit_row; /* NaN: none */
    int64_t limit_changed, limit_unequal;         /* -1: none */
    double ratio;      /* the largest figure over its limit; 0 when nothing is limited */
    int32_t at_row;    /* label of the coordinate shown: the worst element of the worst row */
    int64_t at_column; /* -1: none */
    double reference, ours;
    dsf_diff_verdict verdict;
    bool beyond; /* outside the limits for exact inputs, gated or not */
    char why[240];
} dsf_diff_tap;

typedef struct {
    int64_t rows;
    double kl_mean, kl_max, top1; /* KL(reference || ours) in nats; share of equal best tokens */
    int32_t kl_max_row;
    int64_t ties, warned, wrong; /* best token differs: gap <= 0.125, <= 0.5, above (nats) */
    bool present;
} dsf_diff_logits;

typedef struct {
    char mode[16];
    char floor[160];        /* which noise the limits come from; "" without */
    bool injected, selects; /* selects: some row leaves visible entries out */
    dsf_diff_tap *tap;      /* in execution order */
    int64_t n_taps, values; /* compared; elements compared */
    dsf_diff_logits logits;
    dsf_buf absent; /* lines: taps of the reference that ours does not hold */
    int64_t n_absent, n_extra;
    int64_t first;        /* index of the first divergence, -1 */
    double worst;         /* largest ratio among gated taps */
    int64_t worst_at;     /* its index, -1 */
    bool good, gated;     /* gated false: no_gate */
    char verdict[512];    /* one line */
    char ours_notes[160]; /* partial file, label of no_gate */
} dsf_diff_report;

/* OK whenever a report could be made, good or not. EINVAL and ECORRUPT: files that cannot be
 * compared, a floor that is not this model's. Free the report in either case. */
DSF_MUST dsf_status dsf_diff_run(const dsf_diff_options *o, dsf_diff_report *r);
void dsf_diff_report_free(dsf_diff_report *r);

/* The verdict line and the table: failing taps and one line a kind, or with `all` every tap. */
void dsf_diff_print(const dsf_diff_report *r, bool all, dsf_buf *b);
void dsf_diff_json(const dsf_diff_report *r, dsf_buf *b);

#endif
