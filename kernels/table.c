#include "op.h"

#include <string.h>

#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/draft.h"
#include "ops/engram.h"
#include "ops/fused.h"
#include "ops/hc.h"
#include "ops/index.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/quant.h"
#include "ops/rope.h"
#include "ops/sample.h"

/* The explicit list: link order and static archives cannot lose a kernel. */
#define OP_MAP(X)                                                                                  \
    X(quant_q8)                                                                                    \
    X(quant_q4x)                                                                                   \
    X(quant_q4n)                                                                                   \
    X(rms_norm)                                                                                    \
    X(rope_table)                                                                                  \
    X(rope)                                                                                        \
    X(linear_g8)                                                                                   \
    X(linear_g8_pair)                                                                              \
    X(linear_gb)                                                                                   \
    X(linear_gf)                                                                                   \
    X(linear_group)                                                                                \
    X(hc_start)                                                                                    \
    X(hc_mix)                                                                                      \
    X(hc_collapse)                                                                                 \
    X(hc_expand)                                                                                   \
    X(hc_mean)                                                                                     \
    X(cache_store_q8)                                                                              \
    X(cache_store_q4x)                                                                             \
    X(cache_store_q4n)                                                                             \
    X(pair_pool)                                                                                   \
    X(pair_store)                                                                                  \
    X(row_gather)                                                                                  \
    X(attn)                                                                                        \
    X(index_weight)                                                                                \
    X(index_scores)                                                                                \
    X(index_select)                                                                                \
    X(index_topk)                                                                                  \
    X(route)                                                                                       \
    X(swiglu)                                                                                      \
    X(experts_up)                                                                                  \
    X(experts_down)                                                                                \
    X(moe_sum)                                                                                     \
    X(embed)                                                                                       \
    X(engram_gather)                                                                               \
    X(engram_gate)                                                                                 \
    X(markov_chain)                                                                                \
    X(confidence)                                                                                  \
    X(sample)                                                                                      \
    X(hc_boundary)                                                                                 \
    X(row_q8)                                                                                      \
    X(row_q4x)                                                                                     \
    X(swiglu_q8)                                                                                   \
    X(row_pair)                                                                                    \
    X(attn_close)

const dsf_op *const dsf_ops[] = {
#define X(name) &dsf_op_##name,
    OP_MAP(X)
#undef X
};
const int dsf_n_ops = (int)(sizeof dsf_ops / sizeof dsf_ops[0]);

const dsf_op *dsf_op_find(const char *name)
{
    for (int i = 0; i < dsf_n_ops; i++)
        if (strcmp(dsf_ops[i]->name, name) == 0) return dsf_ops[i];
    return NULL;
}
