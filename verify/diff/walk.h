/* Which datasets of two dumps meet, and in what order. */
#ifndef DSF_DIFF_WALK_H
#define DSF_DIFF_WALK_H

#include "verify/diff/diff.h"
#include "verify/dump/reader.h"

typedef struct {
    char a[96], b[96]; /* paths without "stats/"; b empty: ours does not hold it */
    char kind[40];
    dsf_tap tap;   /* id DSF_TAP_NONE: labelled, but no tap of the schema's list */
    bool stats;    /* at least one side has statistics alone */
    int64_t order; /* execution order */
    bool trimmed;  /* the reference holds some of its rows only */
} dsf_walk_item;

typedef struct {
    dsf_walk_item *item;
    int64_t n;
    int64_t n_extra;  /* taps that only ours holds */
    char unknown[96]; /* a dataset of ours that no schema path explains; "" */
    char odd[240];    /* why the sets of taps do not fit together; "" when they do */
    int64_t n_asked;  /* items that `only` asked for */
} dsf_walk;

DSF_MUST dsf_status dsf_walk_make(dsf_walk *w, dsf_dump_file *a, dsf_dump_file *b,
                                  const dsf_diff_options *o);
void dsf_walk_free(dsf_walk *w);

#endif
