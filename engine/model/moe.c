/* Mixture of experts, architecture.md 7. */
#include "model/model.h"

static dsf_expert_tables tables(dsf_build *b, int layer)
{
    dsf_val v[DSF_N_EXPERT_TABLES];
    const int64_t each = (int64_t)b->c->moe_inter_dim * b->c->dim; /* weights of one matrix */
    static const char *const name[] = {"w1", "s1", "w3", "s3", "w2", "s2"};
    for (int i = 0; i < DSF_N_EXPERT_TABLES; i++) {
        dsf_tensor t = dsf_weights_experts(b->m->weights, layer, (dsf_expert_table)i);
        bool scale = i == DSF_EXPERT_S1 || i == DSF_EXPERT_S3 || i == DSF_EXPERT_S2;
        v[i] = dsf_plan_table(b->p, name[i], &t, (size_t)(scale ? each / 32 : each / 2),
                              scale ? DSF_E8M0 : DSF_E2M1X2);
    }
    return (dsf_expert_tables){.w1 = v[DSF_EXPERT_W1],
                               .s1 = v[DSF_EXPERT_S1],
                               .w3 = v[DSF_EXPERT_W3],
                               .s3 = v[DSF_EXPERT_S3],
                               .w2 = v[DSF_EXPERT_W2],
                               .s2 = v[DSF_EXPERT_S2],
                               .inter = b->c->moe_inter_dim,
                               .dim = b->c->dim,
                               .limit = (float)b->c->swiglu_limit};
}

dsf_val dsf_build_moe(dsf_build *b, int layer, dsf_val u)
{
    dsf_plan *p = b->p;
    const dsf_config *c = b->c;
    bool draft = layer >= c->n_layers;
    dsf_val z = dsf_rec_linear_gf(p, u, dsf_build_weight(b, layer, DSF_ROLE_GATE));
    const dsf_route_in in = {.bias = dsf_build_weight(b, layer, DSF_ROLE_GATE_BIAS),
                             .bias_vl = draft ? DSF_NO_VAL
                                              : dsf_build_weight(b, layer, DSF_ROLE_GATE_BIAS_VL),
                             .vl = b->vl,
                             .k = draft ? c->dspark_n_activated_experts : c->n_activated_experts,
                             .scale = (float)c->route_scale,
                             .norm = c->norm_topk_prob};
    dsf_routing r = dsf_rec_route(p, z, &in);
    r.scores = dsf_plan_tap(p, DSF_TAP_FFN_ROUTER_SCORES, layer, r.scores);
    r.ids = dsf_plan_tap(p, DSF_TAP_FFN_EXPERT_IDS, layer, r.ids);
    r.weights = dsf_plan_tap(p, DSF_TAP_FFN_EXPERT_WEIGHTS, layer, r.weights);

    dsf_val uq = dsf_rec_quant(p, u, DSF_Q8);
    dsf_expert_tables t = tables(b, layer);
    dsf_val h = dsf_rec_experts_up(p, uq, r.ids, r.weights, &t);
    dsf_val y = dsf_rec_experts_down(p, dsf_rec_quant(p, h, DSF_Q8), r.ids, &t);

    dsf_val g = dsf_rec_linear_g8(p, uq, dsf_build_weight8(b, layer, DSF_ROLE_SHARED_W1));
    dsf_val v = dsf_rec_linear_g8(p, uq, dsf_build_weight8(b, layer, DSF_ROLE_SHARED_W3));
    dsf_val sh = dsf_rec_quant(p, dsf_rec_swiglu(p, g, v, (float)c->swiglu_limit), DSF_Q8);
    dsf_val shared = dsf_rec_linear_g8(p, sh, dsf_build_weight8(b, layer, DSF_ROLE_SHARED_W2));
    return dsf_plan_tap(p, DSF_TAP_FFN_Y, layer, dsf_rec_moe_sum(p, y, shared));
}
