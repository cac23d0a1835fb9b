/* The checkpoint's tensors by (layer, role), checked against the contract: views of the read-only
 * map, and tables of pointers to the routed experts. */
#ifndef DSF_MODEL_WEIGHTS_H
#define DSF_MODEL_WEIGHTS_H

#include "ckpt/index.h"
#include "model/config.h"
#include "model/names.h"

typedef enum {
    DSF_EXPERT_W1,
    DSF_EXPERT_S1,
    DSF_EXPERT_W3,
    DSF_EXPERT_S3,
    DSF_EXPERT_W2,
    DSF_EXPERT_S2,
    DSF_N_EXPERT_TABLES
} dsf_expert_table;

typedef struct {
    const dsf_config *config;
    int n_layers; /* backbone + draft stages */
    dsf_tensor
        *view; /* [n_layers + 1][role][weight, scale]; the last row holds roles outside layers */
    int64_t *experts; /* [n_layers][table][most experts] pointers */
    int most_experts;
    int64_t table_bytes;  /* heap bytes of both arrays: a line of the memory plan */
    int64_t mapped_bytes; /* of all views */
} dsf_weights;

/* ckpt and config must outlive it. ECORRUPT names what is missing or misshapen. */
DSF_MUST dsf_status dsf_weights_open(dsf_weights *w, const dsf_config *c, const dsf_ckpt *k);
void dsf_weights_close(dsf_weights *w);

/* Tensor of a role; layer -1 for roles outside layers. Must exist (dsf_names_has). */
static inline const dsf_tensor *dsf_weights_at(const dsf_weights *w, int layer, dsf_role role,
                                               bool scale)
{
    int row = layer < 0 ? w->n_layers : layer;
    return &w->view[((int64_t)row * DSF_N_ROLES + role) * 2 + scale];
}
/* [experts of the layer] I64 pointers. */
dsf_tensor dsf_weights_experts(const dsf_weights *w, int layer, dsf_expert_table t);
int dsf_weights_n_experts(const dsf_weights *w, int layer);

#endif
