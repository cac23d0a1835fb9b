#include "ops/draft.h"

/* 16 bytes a step: the largest logit with its id, and how many blocks have arrived. */
size_t dsf_markov_chain_sm90_scratch(const void *args)
{
    const dsf_markov_chain_args *a = args;
    return 16 * (size_t)a->logits.dim[0];
}
