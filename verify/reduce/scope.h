/* What one layer, or one operation, of a model reads and gives: found in the plan itself, by
 * recording the forward pass with every stored tap given and walking back from the taps in
 * question. */
#ifndef DSF_REDUCE_SCOPE_H
#define DSF_REDUCE_SCOPE_H

#include "serve/load.h"
#include "verify/graft/golden.h"

/* One tensor of the checkpoint. */
typedef struct {
    const dsf_ckpt_entry *entry;
    bool by_row;  /* only these rows of it are read */
    int64_t *row; /* [n_rows] ascending; owned */
    int64_t n_rows;
} dsf_scope_tensor;

typedef struct {
    dsf_tap *input, *output; /* given to it; compared */
    int n_inputs, n_outputs;
    dsf_scope_tensor *tensor;
    int64_t n_tensors;
    int32_t *label; /* [n] ascending positions */
    int64_t n;
    bool all_rows;
} dsf_scope;

typedef struct {
    int layer; /* -1: by op alone */
    const char
        *op; /* path of one tap, with its layer or below it ("ffn/y"); NULL: the whole layer */
    bool by_row;
    int64_t row_from, row_to; /* inclusive */
} dsf_scope_choice;

/* EINVAL: no such layer or operation, or the file does not hold it and its inputs for these rows;
 * the words say what is missing. Free in either case. */
DSF_MUST dsf_status dsf_scope_open(dsf_scope *s, const dsf_loaded *load, dsf_golden *g,
                                   const dsf_scope_choice *choice);
void dsf_scope_close(dsf_scope *s);
/* Rows that a tap must have whole, whatever the rows of the case: window keys and entries. */
bool dsf_scope_whole(dsf_tap tap);

#endif
