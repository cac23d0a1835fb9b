/* Block wiring and hyper-connections, architecture.md 4 and A.1. The pre-mix that collapses the
 * stream for a sublayer is the one of the sublayer before: attention uses the carried `premix`, the
 * FFN uses attn/pre, and ffn/pre is carried on. */
#include "model/model.h"

static dsf_mix mixes(dsf_build *b, int layer, dsf_val x, const dsf_role role[3])
{
    return dsf_rec_hc_mix(b->p, x, dsf_build_weight(b, layer, role[0]),
                          dsf_build_weight(b, layer, role[1]), dsf_build_weight(b, layer, role[2]),
                          b->m->eps, b->c->hc_sinkhorn_iters);
}

static dsf_mix tap_mix(dsf_build *b, int layer, dsf_mix m, dsf_tap_id first)
{
    m.pre = dsf_plan_tap(b->p, first, layer, m.pre);
    m.post = dsf_plan_tap(b->p, (dsf_tap_id)(first + 1), layer, m.post);
    m.comb = dsf_plan_tap(b->p, (dsf_tap_id)(first + 2), layer, m.comb);
    return m;
}

/* Input of a target layer, as the draft head wants it: the mean stream (10.2). */
static void tap_context(dsf_build *b, int layer, dsf_val x)
{
    const dsf_config *c = b->c;
    for (int i = 0; i < c->n_dspark_targets && b->m->draft_context && layer < c->n_layers; i++) {
        if (c->dspark_target[i] != layer) continue;
        b->p->rows_now = DSF_ROWS_CONTEXT;
        const int64_t tail[2] = {c->n_dspark_targets, c->dim};
        if (b->context == DSF_NO_VAL)
            b->context = dsf_plan_scratch(b->p, "context", DSF_BF16, 3, tail);
        dsf_rec_hc_mean(b->p, b->context, x, i);
    }
}

void dsf_build_layer(dsf_build *b, int layer, dsf_val *stream, dsf_val *premix)
{
    static const dsf_role attn_role[] = {DSF_ROLE_HC_ATTN_FN, DSF_ROLE_HC_ATTN_BASE,
                                         DSF_ROLE_HC_ATTN_SCALE};
    static const dsf_role ffn_role[] = {DSF_ROLE_HC_FFN_FN, DSF_ROLE_HC_FFN_BASE,
                                        DSF_ROLE_HC_FFN_SCALE};
    dsf_plan *p = b->p;
    float eps = b->m->eps[0];
    p->layer_now = layer;
    p->rows_now = dsf_build_input_rows(b, layer);
    dsf_val x = dsf_plan_tap(p, DSF_TAP_IN, layer, *stream);
    dsf_val pre = dsf_plan_tap(p, DSF_TAP_PREMIX, layer, *premix);
    if (layer < b->c->n_layers && dsf_config_engram_at(b->c, layer) >= 0)
        x = dsf_build_engram(b, layer, x);
    dsf_val u = dsf_rec_rms_norm(p, dsf_rec_hc_collapse(p, x, pre),
                                 dsf_build_weight(b, layer, DSF_ROLE_ATTN_NORM), eps);
    tap_context(b, layer, x);
    p->rows_now = DSF_ROWS_Q(layer);
    dsf_mix a = tap_mix(b, layer, mixes(b, layer, x, attn_role), DSF_TAP_ATTN_PRE);
    p->rows_now = dsf_build_input_rows(b, layer);
    u = dsf_plan_tap(p, DSF_TAP_ATTN_U, layer, u);
    dsf_val y = dsf_build_attention(b, layer, u);
    p->rows_now = DSF_ROWS_Q(layer);
    dsf_val mid = dsf_plan_tap(p, DSF_TAP_MID, layer, dsf_rec_hc_expand(p, y, x, a));

    dsf_mix f = tap_mix(b, layer, mixes(b, layer, mid, ffn_role), DSF_TAP_FFN_PRE);
    u = dsf_rec_rms_norm(p, dsf_rec_hc_collapse(p, mid, a.pre),
                         dsf_build_weight(b, layer, DSF_ROLE_FFN_NORM), eps);
    u = dsf_plan_tap(p, DSF_TAP_FFN_U, layer, u);
    y = dsf_build_moe(b, layer, u);
    *stream = dsf_plan_tap(p, DSF_TAP_OUT, layer, dsf_rec_hc_expand(p, y, mid, f));
    *premix = f.pre;
    p->layer_now = -1;
}
