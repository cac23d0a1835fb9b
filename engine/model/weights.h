/* The checkpoint's tensors by (layer, role), checked against the contract: views of the read-only
 * map, and tables of pointers to the routed experts. */
#ifndef DSF_MODEL_WEIGHTS_H
#define DSF_MODEL_WEIGHTS_H

#include "base/pool.h"
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
    uint8_t *reserved;    /* synthetic: addresses that stand for tensors, never read */
    size_t reserved_bytes;
    void *table[DSF_MAX_ENGRAMS]; /* synthetic: Engram tables, the only tensors that are there */
    size_t table_size[DSF_MAX_ENGRAMS];
    int n_tables;
} dsf_weights;

/* ckpt and config must outlive it. ECORRUPT names what is missing or misshapen. */
DSF_MUST dsf_status dsf_weights_open(dsf_weights *w, const dsf_config *c, const dsf_ckpt *k);
/* Weights of a config without a checkpoint, for benchmarks on a device: every tensor has an address
 * of its own that only names it (dsf_weights_reserved); what the device holds there is made by its
 * reader. Engram tables, which stay on the host, have zeroed memory (`tables`; else they have names
 * only), untouched until they are filled from the seed. */
DSF_MUST dsf_status dsf_weights_open_synthetic(dsf_weights *w, const dsf_config *c, bool tables);
int64_t dsf_weights_synthetic_tables(const dsf_weights *w); /* bytes of the Engram tables */
void dsf_weights_fill_synthetic(dsf_weights *w, uint64_t seed, dsf_pool *pool);
/* Offset of a named-only tensor, which is its identity; -1 for memory that is there. */
int64_t dsf_weights_reserved(const dsf_weights *w, const void *p);
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
