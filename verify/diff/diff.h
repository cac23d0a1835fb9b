/* Compares two dumps in execution order and judges the difference: the first divergence, then every
 * tap with its figures and limits (dump-schema.md 7, verification.md 10-14 and 17). */
#ifndef DSF_DIFF_H
#define DSF_DIFF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "verify/dump/stats.h"
#include "verify/dump/types.h"

typedef struct {
    const char *reference, *ours; /* dump files; `reference` is the truth */
    const char *floor;            /* measured noise (floor.h); NULL: everything must be bit-equal */
    const char *const *only;      /* globs on paths; what they ask for must be there */
    int n_only;
    const char *no_gate; /* label of a comparison that is reported and not judged, or NULL */
    const char *mode;    /* overrides the mode attribute of `ours`; NULL: as the file says */
    const char *bind;    /* the dump that the floor must be bound to; NULL: `reference` */
    bool by_layer;       /* only taps of layers layer_from..layer_to */
    int layer_from, layer_to;
    bool by_position; /* only rows of these positions, inclusive; entries with their tokens */
    int64_t position_from, position_to;
    bool rows; /* keep figures row by row */
} dsf_diff_options;

typedef enum {
    DSF_DIFF_EXACT,       /* bit-equal */
    DSF_DIFF_WITHIN,      /* differs within its limits */
    DSF_DIFF_TIES,        /* choices differ only where the reference's margin is noise */
    DSF_DIFF_PROVISIONAL, /* differs within limits that no one measured: never good */
    DSF_DIFF_REPORTED,    /* figures without a gate; `why` says why */
    DSF_DIFF_FAILED
} dsf_diff_verdict;
const char *dsf_diff_verdict_name(dsf_diff_verdict v);

/* One row of values; one row with another choice. Lists are ids, -1 behind the last. */
typedef struct {
    int32_t label;
    double rel_l2, ratio;
} dsf_diff_rows;
enum { DSF_FLIP_IDS = 16 };
typedef struct {
    int32_t label;
    double margin; /* NaN: none stored */
    bool tie;
    int64_t lost[DSF_FLIP_IDS], gained[DSF_FLIP_IDS];
} dsf_diff_flip;

/* Where wrong elements lie (pattern.h). The first group is of rows, the second of channels. */
typedef enum {
    DSF_PATTERN_NONE,
    DSF_PATTERN_ALL,     /* all rows: weights, scale, eps */
    DSF_PATTERN_WINDOW,  /* rows beyond the window */
    DSF_PATTERN_SELECT,  /* rows whose lists leave entries out */
    DSF_PATTERN_FROM,    /* all rows from one on */
    DSF_PATTERN_FIRST,   /* the first rows only */
    DSF_PATTERN_RESIDUE, /* t mod m = r */
    DSF_PATTERN_ONE_EXPERT,
    DSF_PATTERN_DECODE, /* behind the prompt only */
    DSF_PATTERN_FLIP,   /* behind a choice that fell the other way */
    DSF_PATTERN_IMAGE,
    DSF_PATTERN_ROW,       /* one row */
    DSF_PATTERN_SCATTERED, /* rows without a rule */
    DSF_PATTERN_STRIDE,    /* every k-th channel */
    DSF_PATTERN_GROUP,     /* one run of channels */
    DSF_PATTERN_HEAD,
    DSF_PATTERN_STREAM,
    DSF_PATTERN_ROTATED, /* the last channels of a head or row: RoPE */
    DSF_N_PATTERNS
} dsf_diff_pattern_kind;
const char *dsf_diff_pattern_name(dsf_diff_pattern_kind k);
typedef struct {
    dsf_diff_pattern_kind rows, channels;
    char text[120]; /* "rows beyond the window (t >= 128), head 3"; "" when nothing is wrong */
} dsf_diff_pattern;

/* A tap compared by the hashes of row blocks, because a side has statistics alone. */
typedef struct {
    int64_t n, differ, left;       /* compared, differing, without a block of the same rows */
    int32_t from, to;              /* labels of the rows of the first one that differs */
    dsf_dump_stat reference, ours; /* its records */
} dsf_diff_blocks;

/* One compared tap. Figures are ours against the reference; rows without a gate (see `ungated`)
 * count in rows and elements, not in the rest of the judged figures. */
typedef struct {
    char path[96], kind[40]; /* kind: the path without its layer, as floors name it */
    dsf_tap tap;             /* id DSF_TAP_NONE: a dataset that is no tap of the schema's list */
    int layer;               /* -1: none */
    bool discrete;
    dsf_tap_source source;
    int64_t rows, width, ungated; /* common rows; elements of one; rows reported only */
    int64_t missing;              /* rows of the reference that ours does not hold */
    int64_t changed, unequal;     /* elements and rows with another value; by hash, of the blocks
                                     that differ all */
    int64_t zeros;                /* elements that differ in the sign of zero only */
    double rel_l2, row_median, row_max, max_abs, gain, bias_z;
    int32_t row_max_label;
    /* discrete taps: rows whose set differs, and how they are explained */
    int64_t flips, ties, wrong;
    double choice_ratio; /* largest margin of a wrong choice over what noise reaches; 0: unknown */
    double limit_rel_l2, limit_median, limit_row; /* NaN: none */
    int64_t limit_changed, limit_unequal;         /* -1: none */
    double ratio;      /* the largest figure over its limit; 0 when nothing is limited */
    int32_t at_row;    /* label of the coordinate shown: the worst element of the worst row */
    int64_t at_column; /* -1: none */
    double reference, ours;
    dsf_diff_verdict verdict;
    bool beyond;         /* outside the limits for exact inputs, gated or not */
    bool local;          /* judged as computed from the reference's inputs; else carried */
    double floor_rel_l2; /* measured noise of this kind in this mode; NaN: none was measured */
    double inputs_ratio; /* largest ratio among the taps it is computed from; NaN: none compared */
    char inputs_at[96];  /* the input that has it */
    int n_inputs;        /* taps it is computed from, compared or not */
    int64_t wrong_rows;  /* beyond their limit; `wrong_at` lists them: "129-131, 140" */
    char wrong_at[64];
    dsf_diff_pattern pattern; /* of the wrong rows */
    dsf_diff_rows *row;       /* with options.rows: NULL for discrete taps */
    dsf_diff_flip *flip;      /* with options.rows: [n_flips] rows with another choice */
    int64_t n_row, n_flips;
    bool by_hash; /* exact or failed; the figures of values are NaN, `reference` and `ours` rms */
    dsf_diff_blocks blocks;
    char why[240];
} dsf_diff_tap;

typedef struct {
    int64_t rows;
    double kl_mean, kl_max, top1; /* KL(reference || ours) in nats; share of equal best tokens */
    int32_t kl_max_row;
    int64_t ties, warned, wrong; /* best token differs: gap <= 0.125, <= 0.5, above (nats) */
    bool present;
} dsf_diff_logits;

/* Error of one layer's output in a free run beside what the noise alone makes (verification.md 11):
 * `floor` measured in the reference's own free runs, `budget` the local floors of all layers up to
 * this one, each grown as measured, added in squares. NaN: not measured. */
typedef struct {
    int layer;
    double floor, budget, measured;
} dsf_diff_budget;

typedef struct {
    char mode[16];
    char floor[160];        /* which noise the limits come from; "" without */
    bool injected, selects; /* selects: some row leaves visible entries out */
    dsf_diff_tap *tap;      /* in execution order */
    int64_t n_taps, values; /* compared; elements compared */
    dsf_diff_logits logits;
    dsf_buf absent;  /* lines: taps of the reference that ours does not hold, unexplained */
    dsf_buf given;   /* lines: inputs that an injected run takes from the reference */
    dsf_buf no_way;  /* lines: what an injected run cannot make of a reference that lacks inputs */
    dsf_buf lacking; /* lines: "layers/03/attn/q: 60 of 64 rows", not compared and unexplained */
    int64_t n_absent, n_given, n_no_way, n_lacking, n_extra;
    int64_t n_cut;           /* taps of which the reference itself holds some rows only */
    dsf_diff_budget *budget; /* [n_budget] the streams, layers ascending; needs a project floor */
    int n_budget;
    bool provisional; /* no floor: limits of verification.md 13, never good unless bit-equal */
    int64_t prompt_tokens;
    char model[64], reference_path[256], ours_path[256];
    char sentence[512];   /* of the first divergence alone; "" without */
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
/* The same without the verdict. */
void dsf_diff_print_tables(const dsf_diff_report *r, bool all, dsf_buf *b);
void dsf_diff_json(const dsf_diff_report *r, dsf_buf *b);
/* The same without the braces around it: fields of an object that is open. */
void dsf_diff_json_fields(const dsf_diff_report *r, dsf_buf *b);
/* NaN is null, infinities are "inf" and "-inf": a ratio over a limit of zero is no missing one. */
void dsf_diff_json_num(dsf_buf *b, const char *key, double v);
/* The lines of a buffer as a list of strings; the first divergence as an object, null for no tap.
 */
void dsf_diff_json_lines(dsf_buf *b, const char *key, const dsf_buf *lines);
void dsf_diff_json_first(dsf_buf *b, const dsf_diff_tap *t, const char *sentence,
                         double local_ratio);

#endif
