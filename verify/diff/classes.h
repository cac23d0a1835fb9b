/* Classes of rows in which a fault may hide from a median over all: inside the window or beyond it,
 * t mod ratio, rows of one expert. */
#ifndef DSF_DIFF_CLASSES_H
#define DSF_DIFF_CLASSES_H

#include "verify/diff/state.h"

enum { DSF_CLASS_MAX = 1024 };

typedef struct {
    int n;
    char (*name)[40];
    /* bit i of a row's word set: [rows][words] */
    uint64_t *member;
    int words;
    int64_t rows;
} dsf_class_set;

typedef struct {
    int64_t rows, over;          /* of the class; of these above `least` */
    int64_t others, others_over; /* judged rows outside the class */
} dsf_class_count;

/* Classes that split these rows; none for taps whose rows are not tokens. */
DSF_MUST dsf_status dsf_classes_make(dsf_class_set *set, const dsf_diff_state *s, dsf_tap tap,
                                     const dsf_row *row, int64_t n);
/* Judged rows with a relative L2 above `least`. */
dsf_class_count dsf_classes_count(const dsf_class_set *set, int i, const dsf_row *row,
                                  double least);
void dsf_classes_free(dsf_class_set *set);

#endif
