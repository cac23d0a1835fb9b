/* Engram lookup and gated write, architecture.md 8.4 and 8.5. The rows are hashed by the session,
 * from token ids alone, before the pass. */
#include "model/model.h"

dsf_val dsf_build_engram(dsf_build *b, int layer, dsf_val x)
{
    dsf_plan *p = b->p;
    const dsf_config *c = b->c;
    const int64_t columns[1] = {dsf_config_engram_columns(c)};
    const int64_t flat[1] = {columns[0] * c->engram_head_dim};
    dsf_val rows = dsf_plan_input(p, DSF_INPUT_ENGRAM, dsf_config_engram_at(c, layer), 2, columns);
    dsf_val e = dsf_rec_engram_gather(p, rows, dsf_build_weight8(b, layer, DSF_ROLE_ENGRAM_EMBED));
    dsf_plan_show(p, DSF_TAP_ENGRAM_ROWS, layer, rows);
    e = dsf_plan_tap(p, DSF_TAP_ENGRAM_EMB, layer, dsf_plan_view(p, e, 2, flat));
    dsf_val kv = dsf_rec_linear_g8(p, dsf_rec_quant(p, e, DSF_Q8),
                                   dsf_build_weight8(b, layer, DSF_ROLE_ENGRAM_WKV));
    kv = dsf_plan_tap(p, DSF_TAP_ENGRAM_KV, layer, kv);
    const dsf_val qk[2] = {dsf_build_weight(b, layer, DSF_ROLE_ENGRAM_Q),
                           dsf_build_weight(b, layer, DSF_ROLE_ENGRAM_K)};
    dsf_gated g = dsf_rec_engram_gate(p, x, kv, qk, b->vl, b->m->eps[0]);
    dsf_plan_show(p, DSF_TAP_ENGRAM_GATE, layer, g.gate);
    return dsf_plan_tap(p, DSF_TAP_ENGRAM_OUT, layer, g.out);
}
