/* Labels of rows: taps with the same labels share one int32 dataset. A tap starts on a list that
 * its first labels fit, and moves to another one as soon as a label disagrees. */
#ifndef DSF_DUMP_LABELS_H
#define DSF_DUMP_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* What a list counts. Only lists of one class are shared. */
typedef enum {
    DSF_LABEL_POSITION,
    DSF_LABEL_ENTRY_R1,
    DSF_LABEL_ENTRY_R2,
    DSF_LABEL_LOGIT,
    DSF_LABEL_DRAFT,
    DSF_N_LABEL_CLASSES
} dsf_label_class;

typedef struct {
    dsf_label_class class;
    bool axis;     /* 0, 1, 2, ... by definition: /positions, /entries_r* */
    char path[40]; /* dataset, absolute */
    int32_t *label;
    int64_t n, cap;
    int64_t written; /* by the writer: labels already in the file */
} dsf_label_list;

typedef struct {
    dsf_label_list *list;
    int n, cap;
    int named; /* /rows_sub, /rows_01, ... given out */
} dsf_labels;

/* Appends `n` labels for a tap that has `have` rows on list `at` (-1: none yet) and tells the list
 * it is on now. */
DSF_MUST dsf_status dsf_labels_append(dsf_labels *set, dsf_label_class class, int *at, int64_t have,
                                      const int32_t *label, int64_t n);
/* A list of exactly the first `have` labels of list *at (used when the file is finished). */
DSF_MUST dsf_status dsf_labels_trim(dsf_labels *set, int *at, int64_t have);
void dsf_labels_free(dsf_labels *set);

#endif
