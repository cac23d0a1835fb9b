/* DSpark: context of the draft rings and one draft pass, architecture.md 10.2 and 10.3. */
#include "model/model.h"

/* main_t from the taps of the target layers, then every stage's context KV into its ring. */
void dsf_build_context(dsf_build *b)
{
    dsf_plan *p = b->p;
    const dsf_config *c = b->c;
    const int64_t flat[1] = {(int64_t)c->n_dspark_targets * c->dim};
    p->rows_now = DSF_ROWS_CONTEXT;
    dsf_val tap = dsf_plan_tap(p, DSF_TAP_DSPARK_TAP, -1, dsf_plan_view(p, b->context, 2, flat));
    dsf_val main = dsf_rec_linear_g8(p, dsf_rec_quant(p, tap, DSF_Q8),
                                     dsf_build_weight8(b, c->n_layers, DSF_ROLE_MAIN_PROJ));
    main = dsf_rec_rms_norm(p, main, dsf_build_weight(b, c->n_layers, DSF_ROLE_MAIN_NORM),
                            b->m->eps[0]);
    main = dsf_plan_tap(p, DSF_TAP_DSPARK_MAIN, -1, main);
    dsf_val mq = dsf_rec_quant(p, main, DSF_Q8);
    for (int s = c->n_layers; s < c->n_layers + c->n_mtp_layers; s++) {
        dsf_val w = dsf_rec_linear_g8(p, mq, dsf_build_weight8(b, s, DSF_ROLE_WKV));
        w = dsf_rec_rms_norm(p, w, dsf_build_weight(b, s, DSF_ROLE_KV_NORM), b->m->eps[0]);
        dsf_val kv = dsf_rec_quant(p, dsf_rec_rope(p, w, b->cs_plain, 0), DSF_Q8);
        kv = dsf_plan_tap(p, DSF_TAP_DSPARK_CTX_KV, s, kv);
        dsf_rec_cache_store(p, b->cache.ring[s], kv, b->rows.slot, b->rows.pos, b->end);
    }
}

dsf_status dsf_model_build_draft(dsf_plan *p, const dsf_model *m)
{
    const dsf_config *c = m->config;
    int last = c->n_layers + c->n_mtp_layers - 1;
    if (c->n_mtp_layers == 0)
        return DSF_FAIL(DSF_EINVAL, "this model has no draft stages (num_nextn_predict_layers 0)");
    dsf_build b;
    dsf_build_begin(&b, p, m);
    b.block = c->dspark_block_size;
    p->rows_now = DSF_ROWS_ALL;
    dsf_val ids = dsf_plan_input(p, DSF_INPUT_IDS, 0, 1, NULL), x, premix;
    dsf_rec_hc_start(p, dsf_rec_embed(p, ids, dsf_build_weight(&b, -1, DSF_ROLE_EMBED)), &x,
                     &premix);
    for (int s = c->n_layers; s <= last; s++) dsf_build_layer(&b, s, &x, &premix);

    p->rows_now = DSF_ROWS_ALL;
    dsf_val h = dsf_plan_tap(p, DSF_TAP_DSPARK_H, -1, dsf_rec_hc_collapse(p, x, premix));
    dsf_val n = dsf_rec_rms_norm(p, h, dsf_build_weight(&b, last, DSF_ROLE_DRAFT_NORM), m->eps[0]);
    dsf_val base = dsf_rec_linear_gf(p, n, dsf_build_weight(&b, -1, DSF_ROLE_HEAD));
    base = dsf_plan_tap(p, DSF_TAP_DSPARK_BASE_LOGITS, -1, base);
    dsf_chain chain =
        dsf_rec_markov_chain(p, base, dsf_build_weight(&b, last, DSF_ROLE_MARKOV_EMBED),
                             dsf_build_weight(&b, last, DSF_ROLE_MARKOV_HEAD),
                             dsf_plan_input(p, DSF_INPUT_ANCHOR, 0, 1, NULL));
    dsf_plan_show(p, DSF_TAP_DSPARK_DRAFT_LOGITS, -1, chain.logits);
    dsf_plan_show(p, DSF_TAP_DSPARK_DRAFT_IDS, -1, chain.ids);
    dsf_plan_result(p, DSF_RESULT_DRAFT_IDS, chain.ids);
    dsf_val mu = dsf_plan_tap(p, DSF_TAP_DSPARK_MARKOV_EMBED, -1, chain.mu);
    dsf_tensor w = *dsf_weights_at(m->weights, last, DSF_ROLE_CONFIDENCE, false);
    w.rank = 1;
    w.dim[0] = w.dim[1];
    dsf_val conf = dsf_rec_confidence(p, h, mu, dsf_plan_const(p, "confidence", &w));
    dsf_plan_show(p, DSF_TAP_DSPARK_CONFIDENCE, -1, conf);
    dsf_plan_result(p, DSF_RESULT_CONFIDENCE, conf);
    return p->status == DSF_OK ? DSF_OK : dsf_error_pass(p->status, DSF_HERE);
}
