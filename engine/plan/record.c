#include "plan/record.h"

#include "ops/attn.h"
#include "ops/cache.h"
#include "ops/draft.h"
#include "ops/engram.h"
#include "ops/hc.h"
#include "ops/index.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/quant.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "plan/bind.h"

/* A new row value [rows, d1, d2], the trailing dimensions being absent when 0. */
static dsf_val make(dsf_plan *p, const char *name, dsf_dtype t, int64_t d1, int64_t d2)
{
    const int64_t tail[2] = {d1, d2};
    return dsf_plan_scratch(p, name, t, 1 + (d1 > 0) + (d2 > 0), tail);
}

/* Dimension i of v; 1 after a failure, so that recorders need no checks of their own. */
static int64_t dim(const dsf_plan *p, dsf_val v, int i)
{
    return p->status == DSF_OK && v != DSF_NO_VAL ? p->value[v].dim[i] : 1;
}

dsf_val dsf_rec_embed(dsf_plan *p, dsf_val ids, dsf_val table)
{
    dsf_val out = make(p, "embed", DSF_BF16, dim(p, table, 1), 0);
    dsf_embed_args a = {.out = {0}};
    STEP(p, &dsf_op_embed, &a, AT(embed, out, out), AT(embed, ids, ids), AT(embed, table, table));
    return out;
}

void dsf_rec_hc_start(dsf_plan *p, dsf_val e, dsf_val *x, dsf_val *premix)
{
    *x = make(p, "x", DSF_BF16, 4, dim(p, e, 1));
    *premix = make(p, "premix", DSF_F32, 4, 0);
    dsf_hc_start_args a = {.x = {0}};
    STEP(p, &dsf_op_hc_start, &a, AT(hc_start, x, *x), AT(hc_start, premix, *premix),
         AT(hc_start, e, e));
}

dsf_mix dsf_rec_hc_mix(dsf_plan *p, dsf_val x, dsf_val fn, dsf_val base, dsf_val scale,
                       const float eps[2], int iters)
{
    dsf_mix m = {make(p, "pre", DSF_F32, 4, 0), make(p, "post", DSF_F32, 4, 0),
                 make(p, "comb", DSF_F32, 4, 4)};
    dsf_hc_mix_args a = {.norm_eps = eps[0], .hc_eps = eps[1], .iters = iters};
    STEP(p, &dsf_op_hc_mix, &a, AT(hc_mix, pre, m.pre), AT(hc_mix, post, m.post),
         AT(hc_mix, comb, m.comb), AT(hc_mix, x, x), AT(hc_mix, fn, fn), AT(hc_mix, base, base),
         AT(hc_mix, scale, scale));
    return m;
}

dsf_val dsf_rec_hc_collapse(dsf_plan *p, dsf_val x, dsf_val w)
{
    dsf_val out = make(p, "h", DSF_BF16, dim(p, x, 2), 0);
    dsf_hc_collapse_args a = {.out = {0}};
    STEP(p, &dsf_op_hc_collapse, &a, AT(hc_collapse, out, out), AT(hc_collapse, x, x),
         AT(hc_collapse, w, w));
    return out;
}

dsf_val dsf_rec_hc_expand(dsf_plan *p, dsf_val y, dsf_val x, dsf_mix m)
{
    dsf_val out = make(p, "x", DSF_BF16, 4, dim(p, x, 2));
    dsf_hc_expand_args a = {.out = {0}};
    STEP(p, &dsf_op_hc_expand, &a, AT(hc_expand, out, out), AT(hc_expand, x, x),
         AT(hc_expand, y, y), AT(hc_expand, post, m.post), AT(hc_expand, comb, m.comb));
    return out;
}

void dsf_rec_hc_mean(dsf_plan *p, dsf_val out, dsf_val x, int column)
{
    dsf_hc_mean_args a = {.column = column};
    STEP(p, &dsf_op_hc_mean, &a, AT(hc_mean, out, out), AT(hc_mean, x, x));
}

dsf_val dsf_rec_rms_norm(dsf_plan *p, dsf_val x, dsf_val w, float eps)
{
    dsf_val out = make(p, "norm", DSF_BF16, dim(p, x, 1), 0);
    dsf_rms_norm_args a = {.eps = eps};
    STEP(p, &dsf_op_rms_norm, &a, AT(rms_norm, out, out), AT(rms_norm, x, x), AT(rms_norm, w, w));
    return out;
}

dsf_val dsf_rec_rope_table(dsf_plan *p, dsf_val pos, dsf_val freq)
{
    dsf_val cs = make(p, "cs", DSF_F32, dim(p, freq, 0), 2);
    dsf_rope_table_args a = {.cs = {0}};
    STEP(p, &dsf_op_rope_table, &a, AT(rope_table, cs, cs), AT(rope_table, pos, pos),
         AT(rope_table, freq, freq));
    return cs;
}

dsf_val dsf_rec_rope(dsf_plan *p, dsf_val x, dsf_val cs, int inverse)
{
    bool flat = p->status == DSF_OK && p->value[x].rank == 2;
    int64_t d = dim(p, x, flat ? 1 : 2), h = flat ? 1 : dim(p, x, 1);
    const int64_t tail3[2] = {h, d}, tail2[1] = {d};
    dsf_val in = flat ? dsf_plan_view(p, x, 3, tail3) : x;
    dsf_val out = make(p, "rope", DSF_BF16, h, d);
    dsf_rope_args a = {.inverse = inverse};
    STEP(p, &dsf_op_rope, &a, AT(rope, out, out), AT(rope, x, in), AT(rope, cs, cs));
    return flat ? dsf_plan_view(p, out, 2, tail2) : out;
}

dsf_val dsf_rec_quant(dsf_plan *p, dsf_val x, dsf_dtype t)
{
    const dsf_op *op = t == DSF_Q8    ? &dsf_op_quant_q8
                       : t == DSF_Q4X ? &dsf_op_quant_q4x
                                      : &dsf_op_quant_q4n;
    bool flat = p->status == DSF_OK && p->value[x].rank == 2;
    int64_t d = dim(p, x, flat ? 1 : 2), h = flat ? 1 : dim(p, x, 1);
    const int64_t tail3[2] = {h, d}, tail2[1] = {d};
    dsf_val in = flat ? dsf_plan_view(p, x, 3, tail3) : x;
    dsf_val out = make(p, dsf_dtype_name(t), t, h, d);
    dsf_quant_args a = {.out = {0}};
    STEP(p, op, &a, AT(quant, out, out), AT(quant, x, in));
    return flat ? dsf_plan_view(p, out, 2, tail2) : out;
}

dsf_val dsf_rec_linear_g8(dsf_plan *p, dsf_val x, dsf_weight8 w)
{
    dsf_val out = make(p, "g8", DSF_BF16, dim(p, w.w, 0), 0);
    dsf_linear_g8_args a = {.out = {0}};
    STEP(p, &dsf_op_linear_g8, &a, AT(linear_g8, out, out), AT(linear_g8, x, x),
         AT(linear_g8, w, w.w), AT(linear_g8, s, w.s));
    return out;
}

static dsf_val linear(dsf_plan *p, const dsf_op *op, dsf_dtype t, dsf_val x, dsf_val w)
{
    dsf_val out = make(p, t == DSF_F32 ? "gf" : "gb", t, dim(p, w, 0), 0);
    dsf_linear_args a = {.out = {0}};
    STEP(p, op, &a, AT(linear, out, out), AT(linear, x, x), AT(linear, w, w));
    return out;
}

dsf_val dsf_rec_linear_gb(dsf_plan *p, dsf_val x, dsf_val w)
{
    return linear(p, &dsf_op_linear_gb, DSF_BF16, x, w);
}
dsf_val dsf_rec_linear_gf(dsf_plan *p, dsf_val x, dsf_val w)
{
    return linear(p, &dsf_op_linear_gf, DSF_F32, x, w);
}

dsf_val dsf_rec_linear_group(dsf_plan *p, dsf_val x, dsf_weight8 w)
{
    dsf_val out = make(p, "z", DSF_BF16, dim(p, w.w, 0), dim(p, w.w, 1));
    dsf_linear_group_args a = {.out = {0}};
    STEP(p, &dsf_op_linear_group, &a, AT(linear_group, out, out), AT(linear_group, x, x),
         AT(linear_group, w, w.w), AT(linear_group, s, w.s));
    return out;
}

void dsf_rec_cache_store(dsf_plan *p, dsf_val cache, dsf_val x, dsf_val slot, dsf_val index,
                         dsf_val end)
{
    if (p->status != DSF_OK) return;
    dsf_dtype t = p->value[cache].dtype;
    const dsf_op *op = t == DSF_Q8    ? &dsf_op_cache_store_q8
                       : t == DSF_Q4X ? &dsf_op_cache_store_q4x
                                      : &dsf_op_cache_store_q4n;
    dsf_cache_store_args a = {.cache = {0}};
    STEP(p, op, &a, AT(cache_store, cache, cache), AT(cache_store, x, x),
         AT(cache_store, slot, slot), AT(cache_store, index, index), AT(cache_store, end, end));
}

dsf_val dsf_rec_pair_pool(dsf_plan *p, dsf_val v, dsf_val g, dsf_val pend, dsf_val pair_row,
                          const dsf_row_info *r)
{
    dsf_val out = make(p, "pooled", DSF_BF16, dim(p, v, 1), 0);
    dsf_pair_pool_args a = {.out = {0}};
    STEP(p, &dsf_op_pair_pool, &a, AT(pair_pool, out, out), AT(pair_pool, v, v),
         AT(pair_pool, g, g), AT(pair_pool, pend, pend), AT(pair_pool, row, pair_row),
         AT(pair_pool, pos, r->pos), AT(pair_pool, start, r->start), AT(pair_pool, slot, r->slot));
    return out;
}

void dsf_rec_pair_store(dsf_plan *p, dsf_val pend, dsf_val v, dsf_val g, const dsf_row_info *r,
                        dsf_val end)
{
    dsf_pair_store_args a = {.pend = {0}};
    STEP(p, &dsf_op_pair_store, &a, AT(pair_store, pend, pend), AT(pair_store, v, v),
         AT(pair_store, g, g), AT(pair_store, pos, r->pos), AT(pair_store, end, end),
         AT(pair_store, slot, r->slot));
}

dsf_val dsf_rec_row_gather(dsf_plan *p, dsf_val x, dsf_val row)
{
    dsf_val out = make(p, "rows", DSF_BF16, dim(p, x, 1), 0);
    dsf_row_gather_args a = {.out = {0}};
    STEP(p, &dsf_op_row_gather, &a, AT(row_gather, out, out), AT(row_gather, x, x),
         AT(row_gather, row, row));
    return out;
}

dsf_val dsf_rec_attn(dsf_plan *p, const dsf_attn_in *in, const dsf_row_info *r)
{
    dsf_val out = make(p, "o", DSF_BF16, dim(p, in->q, 1), dim(p, in->q, 2));
    dsf_attn_args a = {.window = in->window, .block = in->block};
    STEP(p, &dsf_op_attn, &a, AT(attn, out, out), AT(attn, q, in->q), AT(attn, kv_new, in->kv_new),
         AT(attn, ring, in->ring), AT(attn, main, in->main), AT(attn, topk, in->topk),
         AT(attn, sink, in->sink), AT(attn, row, r->row), AT(attn, pos, r->pos),
         AT(attn, start, r->start), AT(attn, lo, r->lo), AT(attn, slot, r->slot));
    return out;
}

dsf_val dsf_rec_index_weight(dsf_plan *p, dsf_val x, float factor)
{
    dsf_val out = make(p, "index_w", DSF_BF16, dim(p, x, 1), 0);
    dsf_index_weight_args a = {.factor = factor};
    STEP(p, &dsf_op_index_weight, &a, AT(index_weight, out, out), AT(index_weight, x, x));
    return out;
}

dsf_index_out dsf_rec_index(dsf_plan *p, const dsf_index_in *in, const dsf_row_info *r)
{
    dsf_index_out o = {
        .topk = make(p, "topk", DSF_I32, in->topk, 0), .pool = DSF_NO_VAL, .scores = DSF_NO_VAL};
    if (in->pool_blocks) o.pool = make(p, "pool", DSF_I32, in->pool_blocks, 0);
    if (!in->unfused) {
        dsf_index_topk_args a = {.ratio = in->ratio, .block = in->block};
        STEP(p, &dsf_op_index_topk, &a, AT(index_topk, topk, o.topk),
             AT(index_topk, pool_out, o.pool), AT(index_topk, pool_in, in->pool_in),
             AT(index_topk, q, in->q), AT(index_topk, a, in->a), AT(index_topk, keys, in->keys),
             AT(index_topk, pos, r->pos), AT(index_topk, slot, r->slot));
        return o;
    }
    o.scores = make(p, "index_scores", DSF_BF16, in->entries, 0);
    dsf_index_scores_args s = {.ratio = in->ratio};
    STEP(p, &dsf_op_index_scores, &s, AT(index_scores, scores, o.scores),
         AT(index_scores, q, in->q), AT(index_scores, a, in->a), AT(index_scores, keys, in->keys),
         AT(index_scores, pos, r->pos), AT(index_scores, slot, r->slot));
    dsf_index_select_args t = {.ratio = in->ratio, .block = in->block};
    STEP(p, &dsf_op_index_select, &t, AT(index_select, topk, o.topk),
         AT(index_select, pool_out, o.pool), AT(index_select, pool_in, in->pool_in),
         AT(index_select, scores, o.scores), AT(index_select, pos, r->pos));
    return o;
}

dsf_routing dsf_rec_route(dsf_plan *p, dsf_val z, const dsf_route_in *in)
{
    dsf_routing o = {make(p, "router_scores", DSF_F32, dim(p, z, 1), 0),
                     make(p, "expert_ids", DSF_I32, in->k, 0),
                     make(p, "expert_weights", DSF_F32, in->k, 0)};
    dsf_route_args a = {.scale = in->scale, .norm_topk_prob = in->norm};
    STEP(p, &dsf_op_route, &a, AT(route, scores, o.scores), AT(route, ids, o.ids),
         AT(route, weights, o.weights), AT(route, z, z), AT(route, bias, in->bias),
         AT(route, bias_vl, in->bias_vl), AT(route, vl, in->vl));
    return o;
}

dsf_val dsf_rec_swiglu(dsf_plan *p, dsf_val g, dsf_val v, float limit)
{
    dsf_val out = make(p, "swiglu", DSF_BF16, dim(p, g, 1), 0);
    dsf_swiglu_args a = {.limit = limit};
    STEP(p, &dsf_op_swiglu, &a, AT(swiglu, out, out), AT(swiglu, g, g), AT(swiglu, v, v));
    return out;
}

dsf_val dsf_rec_experts_up(dsf_plan *p, dsf_val x, dsf_val ids, dsf_val weights,
                           const dsf_expert_tables *t)
{
    dsf_val out = make(p, "expert_h", DSF_BF16, dim(p, ids, 1), t->inter);
    dsf_experts_up_args a = {.limit = t->limit};
    STEP(p, &dsf_op_experts_up, &a, AT(experts_up, out, out), AT(experts_up, x, x),
         AT(experts_up, ids, ids), AT(experts_up, weights, weights), AT(experts_up, w1, t->w1),
         AT(experts_up, s1, t->s1), AT(experts_up, w3, t->w3), AT(experts_up, s3, t->s3));
    return out;
}

dsf_val dsf_rec_experts_down(dsf_plan *p, dsf_val h, dsf_val ids, const dsf_expert_tables *t)
{
    dsf_val out = make(p, "expert_y", DSF_BF16, dim(p, ids, 1), t->dim);
    dsf_experts_down_args a = {.out = {0}};
    STEP(p, &dsf_op_experts_down, &a, AT(experts_down, out, out), AT(experts_down, h, h),
         AT(experts_down, ids, ids), AT(experts_down, w2, t->w2), AT(experts_down, s2, t->s2));
    return out;
}

dsf_val dsf_rec_moe_sum(dsf_plan *p, dsf_val y, dsf_val shared)
{
    dsf_val out = make(p, "ffn_y", DSF_BF16, dim(p, shared, 1), 0);
    dsf_moe_sum_args a = {.out = {0}};
    STEP(p, &dsf_op_moe_sum, &a, AT(moe_sum, out, out), AT(moe_sum, y, y),
         AT(moe_sum, shared, shared));
    return out;
}

dsf_val dsf_rec_engram_gather(dsf_plan *p, dsf_val rows, dsf_weight8 table)
{
    dsf_val out = make(p, "engram_emb", DSF_BF16, dim(p, rows, 1), dim(p, table.w, 1));
    dsf_engram_gather_args a = {.out = {0}};
    STEP(p, &dsf_op_engram_gather, &a, AT(engram_gather, out, out), AT(engram_gather, rows, rows),
         AT(engram_gather, table, table.w), AT(engram_gather, s, table.s));
    return out;
}

dsf_gated dsf_rec_engram_gate(dsf_plan *p, dsf_val x, dsf_val kv, const dsf_val qk[2], dsf_val vl,
                              float eps)
{
    dsf_gated o = {make(p, "x", DSF_BF16, 4, dim(p, x, 2)), make(p, "gate", DSF_F32, 4, 0)};
    dsf_engram_gate_args a = {.eps = eps};
    STEP(p, &dsf_op_engram_gate, &a, AT(engram_gate, out, o.out), AT(engram_gate, gate, o.gate),
         AT(engram_gate, x, x), AT(engram_gate, kv, kv), AT(engram_gate, qw, qk[0]),
         AT(engram_gate, kw, qk[1]), AT(engram_gate, vl, vl));
    return o;
}

dsf_chain dsf_rec_markov_chain(dsf_plan *p, dsf_val base, dsf_val embed, dsf_val head,
                               dsf_val anchor)
{
    dsf_chain o = {make(p, "draft_logits", DSF_F32, dim(p, base, 1), 0),
                   make(p, "markov_embed", DSF_BF16, dim(p, embed, 1), 0),
                   make(p, "draft_ids", DSF_I32, 0, 0)};
    dsf_markov_chain_args a = {.logits = {0}};
    STEP(p, &dsf_op_markov_chain, &a, AT(markov_chain, logits, o.logits),
         AT(markov_chain, mu, o.mu), AT(markov_chain, ids, o.ids), AT(markov_chain, base, base),
         AT(markov_chain, embed, embed), AT(markov_chain, head, head),
         AT(markov_chain, anchor, anchor));
    return o;
}

dsf_val dsf_rec_sample(dsf_plan *p, dsf_val logits)
{
    const int64_t words = DSF_SAMPLE_WORDS;
    dsf_val how = dsf_plan_input(p, DSF_INPUT_HEAD_HOW, 0, 2, &words);
    dsf_val ids = make(p, "next", DSF_I32, 0, 0);
    dsf_sample_args a = {.ids = {0}};
    STEP(p, &dsf_op_sample, &a, AT(sample, ids, ids), AT(sample, logits, logits),
         AT(sample, how, how));
    return ids;
}

dsf_val dsf_rec_confidence(dsf_plan *p, dsf_val h, dsf_val mu, dsf_val w)
{
    dsf_val out = make(p, "confidence", DSF_F32, 0, 0);
    dsf_confidence_args a = {.out = {0}};
    STEP(p, &dsf_op_confidence, &a, AT(confidence, out, out), AT(confidence, h, h),
         AT(confidence, mu, mu), AT(confidence, w, w));
    return out;
}
