/* Indexer, candidate pool, top-k: architecture.md 6. */
#include <math.h>

#include "model/model.h"

/* 6.1, on the entry rows that compress() is on. */
void dsf_build_index_keys(dsf_build *b, int layer, dsf_val latent)
{
    dsf_plan *p = b->p;
    bool pairs = b->c->ratio[layer] == 2;
    dsf_val k = dsf_rec_linear_gb(p, latent, dsf_build_weight(b, layer, DSF_ROLE_INDEXER_WK));
    k = dsf_rec_rms_norm(p, k, dsf_build_weight(b, layer, DSF_ROLE_INDEXER_K_NORM), b->m->eps[0]);
    k = dsf_rec_quant(p, dsf_rec_rope(p, k, pairs ? b->cs_pairs : b->cs_singles, 0), DSF_Q4X);
    dsf_plan_show(p, DSF_TAP_ATTN_INDEX_K, layer, k);
    dsf_rec_cache_store(p, b->cache.index_k[layer], k, pairs ? b->pair_slot : b->single_slot,
                        pairs ? b->pair_index : b->single_pos, pairs ? b->pair_end : b->single_end);
}

/* 6.2 to 6.4. rq: the q latent as Q8. */
void dsf_build_indexer(dsf_build *b, int layer, dsf_val u, dsf_val rq)
{
    dsf_plan *p = b->p;
    const dsf_config *c = b->c;
    const int64_t heads[2] = {c->index_n_heads, c->index_head_dim};
    dsf_val q = dsf_rec_linear_g8(p, rq, dsf_build_weight8(b, layer, DSF_ROLE_INDEXER_WQ_B));
    q = dsf_rec_quant(p, dsf_rec_rope(p, dsf_plan_view(p, q, 3, heads), b->cs_yarn, 0), DSF_Q4X);
    q = dsf_plan_tap(p, DSF_TAP_ATTN_INDEX_Q, layer, q);
    float factor = (float)(pow(c->index_head_dim, -0.5) * pow(c->index_n_heads, -0.5));
    dsf_val w = dsf_rec_linear_gb(p, u, dsf_build_weight(b, layer, DSF_ROLE_INDEXER_WEIGHTS));
    w = dsf_plan_tap(p, DSF_TAP_ATTN_INDEX_W, layer, dsf_rec_index_weight(p, w, factor));
    bool publishes = layer == c->candidate_source_layer;
    bool restricted = c->candidate_source_layer >= 0 && layer > c->candidate_source_layer;
    const dsf_index_in in = {.q = q,
                             .a = w,
                             .keys = b->index_k,
                             .pool_in = restricted ? b->pool : DSF_NO_VAL,
                             .ratio = c->ratio[layer],
                             .block = c->candidate_block_size,
                             .topk = c->index_topk,
                             .pool_blocks = publishes ? c->candidate_topk_blocks : 0,
                             .entries = dsf_build_entries(b, layer),
                             .unfused = b->m->unfused};
    dsf_index_out o = dsf_rec_index(p, &in, &b->rows);
    if (in.unfused) dsf_plan_show(p, DSF_TAP_ATTN_INDEX_SCORES, layer, o.scores);
    if (publishes) b->pool = dsf_plan_tap(p, DSF_TAP_ATTN_POOL, layer, o.pool);
    b->topk = dsf_plan_tap(p, DSF_TAP_ATTN_TOPK, layer, o.topk);
}
