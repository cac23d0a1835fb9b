/* The operations at the released model's sizes. */
#ifndef DSF_BENCH_SHAPES_H
#define DSF_BENCH_SHAPES_H

#include <stdbool.h>

#include "op.h"

typedef struct {
    const char *op, *use; /* what the model does with it */
    dsf_case sizes;
} dsf_shape;

extern const dsf_shape dsf_shapes[];
extern const int dsf_n_shapes;

/* Makes generated inputs those of the middle of a long sequence, with full lists: the checker's own
 * fills mix short and empty ones, whose cost is not the contract's. */
void dsf_shape_settle(const dsf_op *op, void *args);
/* Whether an operation of the table can take these sizes. */
bool dsf_shape_sound(const dsf_shape *s);

#endif
