/* Which arithmetic reproduces the tensor cores bit for bit (model.cu). */
#ifndef DSF_PROBE_MODEL_CUH
#define DSF_PROBE_MODEL_CUH

#include "product.cuh"

/* Prints, for each kind of values, from zero and onto an accumulator, the models that reproduce the
 * largest share of outputs. */
void fit_models(enum format format);

#endif
