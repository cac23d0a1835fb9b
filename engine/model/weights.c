#include "model/weights.h"

#include <string.h>

#include "base/mem.h"

static bool same_shape(const dsf_name *want, const dsf_tensor *have)
{
    if (want->dtype != have->dtype || want->rank != have->rank) return false;
    for (int i = 0; i < want->rank; i++)
        if (want->dim[i] != have->dim[i]) return false;
    return true;
}

static int64_t *expert_row(const dsf_weights *w, int layer, dsf_expert_table t)
{
    return w->experts + ((int64_t)layer * DSF_N_EXPERT_TABLES + t) * w->most_experts;
}

static void put(dsf_weights *w, const dsf_name *n, const dsf_tensor *t)
{
    static const dsf_expert_table first[] = {DSF_EXPERT_W1, DSF_EXPERT_W2, DSF_EXPERT_W3};
    if (n->expert >= 0) {
        int which = n->role == DSF_ROLE_EXPERT_W1 ? 0 : n->role == DSF_ROLE_EXPERT_W2 ? 1 : 2;
        expert_row(w, n->layer, (dsf_expert_table)(first[which] + n->scale))[n->expert] =
            (int64_t)(intptr_t)t->data;
        return;
    }
    bool in_layer = n->layer >= 0 && n->part != DSF_PART_VISION;
    int row = in_layer ? n->layer : w->n_layers;
    w->view[((int64_t)row * DSF_N_ROLES + n->role) * 2 + n->scale] = *t;
}

static dsf_status fill(dsf_weights *w, const dsf_ckpt *k)
{
    dsf_names it = dsf_names_begin(w->config);
    dsf_name n;
    while (dsf_names_next(&it, &n)) {
        dsf_tensor t;
        DSF_TRY(dsf_ckpt_get(k, n.name, &t));
        if (!same_shape(&n, &t))
            return DSF_FAIL(
                DSF_ECORRUPT,
                "%s: %s is not of the contract's shape and type: dsf info lists all faults",
                dsf_ckpt_folder(k), n.name);
        put(w, &n, &t);
        w->mapped_bytes += n.bytes;
    }
    return DSF_OK;
}

dsf_status dsf_weights_open(dsf_weights *w, const dsf_config *c, const dsf_ckpt *k)
{
    *w = (dsf_weights){.config = c, .n_layers = c->n_layers + c->n_mtp_layers};
    w->most_experts = c->n_routed_experts > c->dspark_n_routed_experts ? c->n_routed_experts
                                                                       : c->dspark_n_routed_experts;
    size_t views = (size_t)(w->n_layers + 1) * DSF_N_ROLES * 2;
    size_t pointers = (size_t)w->n_layers * DSF_N_EXPERT_TABLES * (size_t)w->most_experts;
    w->table_bytes = (int64_t)(views * sizeof(dsf_tensor) + pointers * sizeof(int64_t));
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&w->view, views, sizeof(dsf_tensor)));
    DSF_TRY_OUT(dsf_mem_new(&w->experts, pointers, sizeof(int64_t)));
    DSF_TRY_OUT(fill(w, k));
    return DSF_OK;
out:
    dsf_weights_close(w);
    return st;
}

void dsf_weights_close(dsf_weights *w)
{
    dsf_mem_free(w->view);
    dsf_mem_free(w->experts);
    w->view = NULL;
    w->experts = NULL;
}

int dsf_weights_n_experts(const dsf_weights *w, int layer)
{
    return layer < w->config->n_layers ? w->config->n_routed_experts
                                       : w->config->dspark_n_routed_experts;
}

dsf_tensor dsf_weights_experts(const dsf_weights *w, int layer, dsf_expert_table t)
{
    return (dsf_tensor){.data = expert_row(w, layer, t),
                        .dtype = DSF_I64,
                        .rank = 1,
                        .dim = {dsf_weights_n_experts(w, layer)}};
}
