/* Which datasets of two dumps meet, and in what order. */
#ifndef DSF_DIFF_WALK_H
#define DSF_DIFF_WALK_H

#include "verify/diff/diff.h"
#include "verify/diff/state.h"

/* Why ours does not hold a tap of the reference. */
typedef enum {
    DSF_WALK_HERE,
    DSF_WALK_GIVEN,  /* injected: an input of the layer, taken from the reference */
    DSF_WALK_NO_WAY, /* injected: the reference lacks rows of it, or of what it is computed from */
    DSF_WALK_ABSENT  /* nothing explains it */
} dsf_walk_absence;

typedef struct {
    char a[96], b[96]; /* paths without "stats/"; b empty: ours does not hold it */
    char kind[40];
    dsf_tap tap;   /* id DSF_TAP_NONE: labelled, but no tap of the schema's list */
    bool stats;    /* at least one side has statistics alone */
    int64_t order; /* execution order */
    bool trimmed;  /* the reference holds some of its rows only */
    dsf_walk_absence absence;
} dsf_walk_item;

typedef struct {
    dsf_walk_item *item;
    int64_t n;
    int64_t n_extra;   /* taps that only ours holds */
    char unknown[96];  /* a dataset of ours that no schema path explains; "" */
    char odd[240];     /* why the sets of taps do not fit together; "" when they do */
    const char *vain;  /* a glob of `only` that matches nothing ours could hold; NULL */
    bool vain_matches; /* it matches taps that are given, or that no one could make */
} dsf_walk;

DSF_MUST dsf_status dsf_walk_make(dsf_walk *w, const dsf_diff_state *s, const dsf_diff_options *o);
/* Whether an injected run cannot make all of this tap: the reference lacks something, or rows of
 * it, that the tap is computed from. */
bool dsf_walk_lacks_inputs(dsf_dump_file *a, dsf_tap tap);
/* A row of the reference that was asked for (options by_position). */
bool dsf_walk_row_wanted(const dsf_diff_state *s, const dsf_diff_options *o, dsf_tap tap,
                         int32_t label);
void dsf_walk_free(dsf_walk *w);

#endif
