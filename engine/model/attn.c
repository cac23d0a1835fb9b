/* Attention with window and compressed keys, architecture.md 5 and A.2. */
#include "model/model.h"

/* 5.2: what the current rows add to the source's cache. The latent is tapped before rotation: the
 * index key comes from it as it is. */
static dsf_val latent_rows(dsf_build *b, int layer, dsf_val u)
{
    dsf_plan *p = b->p;
    dsf_val wkv = dsf_build_weight(b, layer, DSF_ROLE_COMPRESSOR_WKV), raw;
    if (b->c->ratio[layer] == 1) {
        raw = dsf_rec_linear_gb(p, u, wkv);
    } else {
        dsf_val v = dsf_rec_linear_gf(p, u, wkv);
        dsf_val g = dsf_rec_linear_gf(p, u, dsf_build_weight(b, layer, DSF_ROLE_COMPRESSOR_WGATE));
        p->rows_now = DSF_ROWS_POOLED;
        raw = dsf_rec_pair_pool(p, v, g, b->cache.pend[layer], b->pair_row, &b->rows);
        p->rows_now = DSF_ROWS_ALL;
        dsf_rec_pair_store(p, b->cache.pend[layer], v, g, &b->rows, b->end);
        p->rows_now = DSF_ROWS_POOLED;
    }
    return dsf_rec_rms_norm(p, raw, dsf_build_weight(b, layer, DSF_ROLE_COMPRESSOR_NORM),
                            b->m->eps[0]);
}

static void compress(dsf_build *b, int layer, dsf_val u)
{
    dsf_plan *p = b->p;
    bool pairs = b->c->ratio[layer] == 2;
    p->rows_now = DSF_ROWS_ALL;
    dsf_val latent = latent_rows(b, layer, u);
    p->rows_now = pairs ? DSF_ROWS_PAIRS : DSF_ROWS_SINGLES;
    latent = dsf_plan_tap(p, DSF_TAP_ATTN_LATENT, layer, latent);
    dsf_val cs = pairs ? b->cs_pairs : b->cs_singles;
    dsf_val entry = dsf_rec_quant(p, dsf_rec_rope(p, latent, cs, 0), DSF_Q4N);
    dsf_plan_show(p, DSF_TAP_ATTN_KV_MAIN, layer, entry);
    dsf_rec_cache_store(p, b->cache.kv_main[layer], entry, pairs ? b->pair_slot : b->single_slot,
                        pairs ? b->pair_index : b->single_pos, pairs ? b->pair_end : b->single_end);
    dsf_build_index_keys(b, layer, latent);
    b->kv_main = b->cache.kv_main[layer];
    b->index_k = b->cache.index_k[layer];
}

/* 5.1: window key = value, rounded to fp8 over all channels. */
static dsf_val window_keys(dsf_build *b, int layer, dsf_val uq, dsf_val cs)
{
    dsf_plan *p = b->p;
    dsf_val w = dsf_rec_linear_g8(p, uq, dsf_build_weight8(b, layer, DSF_ROLE_WKV));
    w = dsf_rec_rms_norm(p, w, dsf_build_weight(b, layer, DSF_ROLE_KV_NORM), b->m->eps[0]);
    dsf_val kv = dsf_rec_quant(p, dsf_rec_rope(p, w, cs, 0), DSF_Q8);
    return dsf_plan_tap(p, DSF_TAP_ATTN_KV_WINDOW, layer, kv);
}

/* 5.5: inverse rotation, grouped projection on the unquantised output, then G8. */
static dsf_val project_out(dsf_build *b, int layer, dsf_val o)
{
    dsf_plan *p = b->p;
    const dsf_config *c = b->c;
    const int64_t in[2] = {c->o_groups, (int64_t)c->n_heads * c->head_dim / c->o_groups};
    const int64_t out[1] = {(int64_t)c->o_groups * c->o_lora_rank};
    dsf_tensor w = *dsf_weights_at(b->m->weights, layer, DSF_ROLE_WO_A, false);
    dsf_tensor s = *dsf_weights_at(b->m->weights, layer, DSF_ROLE_WO_A, true);
    w.rank = s.rank = 3; /* [groups x rank, k] seen as [groups, rank, k]: rank % 32 == 0, so blocks
                            do not straddle */
    w.dim[2] = w.dim[1], w.dim[1] = c->o_lora_rank, w.dim[0] = c->o_groups;
    s.dim[2] = s.dim[1], s.dim[1] = c->o_lora_rank / 32, s.dim[0] = c->o_groups;
    dsf_weight8 wo_a = {dsf_plan_const(p, "attn.wo_a", &w), dsf_plan_const(p, "scale", &s)};
    dsf_val z = dsf_rec_linear_group(p, dsf_plan_view(p, o, 3, in), wo_a);
    z = dsf_rec_quant(p, dsf_plan_view(p, z, 2, out), DSF_Q8);
    return dsf_plan_tap(p, DSF_TAP_ATTN_Y, layer,
                        dsf_rec_linear_g8(p, z, dsf_build_weight8(b, layer, DSF_ROLE_WO_B)));
}

dsf_val dsf_build_attention(dsf_build *b, int layer, dsf_val u)
{
    dsf_plan *p = b->p;
    const dsf_config *c = b->c;
    bool draft = layer >= c->n_layers, sparse = !draft && c->ratio[layer] > 0;
    dsf_val cs = sparse ? b->cs_yarn : b->cs_plain;
    if (sparse && dsf_config_kv_source(c, layer) == layer) compress(b, layer, u);
    p->rows_now = DSF_ROWS_KV(layer);
    dsf_val uq = dsf_rec_quant(p, u, DSF_Q8);
    dsf_val kv = window_keys(b, layer, uq, cs);

    p->rows_now = DSF_ROWS_Q(layer);
    dsf_val r = dsf_rec_linear_g8(p, uq, dsf_build_weight8(b, layer, DSF_ROLE_WQ_A));
    r = dsf_rec_rms_norm(p, r, dsf_build_weight(b, layer, DSF_ROLE_Q_NORM), b->m->eps[0]);
    r = dsf_plan_tap(p, DSF_TAP_ATTN_Q_LATENT, layer, r);
    dsf_val rq = dsf_rec_quant(p, r, DSF_Q8);
    const int64_t heads[2] = {c->n_heads, c->head_dim};
    dsf_val q = dsf_plan_view(
        p, dsf_rec_linear_g8(p, rq, dsf_build_weight8(b, layer, DSF_ROLE_WQ_B)), 3, heads);
    q = dsf_plan_tap(p, DSF_TAP_ATTN_Q, layer, dsf_rec_rope(p, q, cs, 0));
    if (sparse && dsf_config_index_source(c, layer) == layer) dsf_build_indexer(b, layer, u, rq);

    dsf_row_info rows = b->rows;
    if (!draft && layer >= dsf_config_split(c)) rows.lo = b->lo_decoder;
    const dsf_attn_in in = {.q = q,
                            .kv_new = kv,
                            .ring = b->cache.ring[layer],
                            .main = sparse ? b->kv_main : DSF_NO_VAL,
                            .topk = sparse ? b->topk : DSF_NO_VAL,
                            .sink = dsf_build_weight(b, layer, DSF_ROLE_ATTN_SINK),
                            .window = c->window_size,
                            .block = b->block};
    dsf_val o = dsf_rec_rope(p, dsf_rec_attn(p, &in, &rows), cs, 1);
    o = dsf_plan_tap(p, DSF_TAP_ATTN_O, layer, o);
    if (!draft) { /* after the attention: earlier rows still needed the slots that these overwrite
                   */
        p->rows_now = DSF_ROWS_KV(layer);
        dsf_rec_cache_store(p, b->cache.ring[layer], kv, b->rows.slot, b->rows.pos, b->end);
        p->rows_now = DSF_ROWS_Q(layer);
    }
    return project_out(b, layer, o);
}
