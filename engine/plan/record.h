/* One function an operation: allocates the outputs, records the step, returns the result. They read
 * as formulas in model/. Shapes are those of kernels/ops; rows are the plan's current rows. */
#ifndef DSF_PLAN_RECORD_H
#define DSF_PLAN_RECORD_H

#include "plan/plan.h"

typedef struct {
    dsf_val w, s; /* codes and scales */
} dsf_weight8;

typedef struct {
    dsf_val pre, post, comb;
} dsf_mix;

typedef struct { /* rows of the pass, as the attention needs them */
    dsf_val row, pos, start, lo, slot;
} dsf_row_info;

dsf_val dsf_rec_embed(dsf_plan *p, dsf_val ids, dsf_val table);
void dsf_rec_hc_start(dsf_plan *p, dsf_val e, dsf_val *x, dsf_val *premix);
dsf_mix dsf_rec_hc_mix(dsf_plan *p, dsf_val x, dsf_val fn, dsf_val base, dsf_val scale,
                       const float eps[2], int iters);
dsf_val dsf_rec_hc_collapse(dsf_plan *p, dsf_val x, dsf_val w);
dsf_val dsf_rec_hc_expand(dsf_plan *p, dsf_val y, dsf_val x, dsf_mix m);
void dsf_rec_hc_mean(dsf_plan *p, dsf_val out, dsf_val x, int column);
dsf_val dsf_rec_rms_norm(dsf_plan *p, dsf_val x, dsf_val w, float eps);
dsf_val dsf_rec_rope_table(dsf_plan *p, dsf_val pos, dsf_val freq);
/* x [n, h, d]; a value of rank 2 is taken as [n, 1, d]. */
dsf_val dsf_rec_rope(dsf_plan *p, dsf_val x, dsf_val cs, int inverse);
/* To a row record: Q8, Q4X or Q4N. */
dsf_val dsf_rec_quant(dsf_plan *p, dsf_val x, dsf_dtype t);
dsf_val dsf_rec_linear_g8(dsf_plan *p, dsf_val x, dsf_weight8 w);
dsf_val dsf_rec_linear_gb(dsf_plan *p, dsf_val x, dsf_val w);
dsf_val dsf_rec_linear_gf(dsf_plan *p, dsf_val x, dsf_val w);
dsf_val dsf_rec_linear_group(dsf_plan *p, dsf_val x, dsf_weight8 w);
void dsf_rec_cache_store(dsf_plan *p, dsf_val cache, dsf_val x, dsf_val slot, dsf_val index,
                         dsf_val end);
dsf_val dsf_rec_pair_pool(dsf_plan *p, dsf_val v, dsf_val g, dsf_val pend, dsf_val pair_row,
                          const dsf_row_info *r);
void dsf_rec_pair_store(dsf_plan *p, dsf_val pend, dsf_val v, dsf_val g, const dsf_row_info *r,
                        dsf_val end);
dsf_val dsf_rec_row_gather(dsf_plan *p, dsf_val x, dsf_val row);

typedef struct {
    dsf_val q, kv_new, ring, main, topk, sink; /* main, topk: DSF_NO_VAL for window only */
    int window, block;
} dsf_attn_in;
dsf_val dsf_rec_attn(dsf_plan *p, const dsf_attn_in *in, const dsf_row_info *r);

typedef struct {
    dsf_val q, a, keys, pool_in; /* pool_in: DSF_NO_VAL: unrestricted */
    int ratio, block;
    int64_t topk, pool_blocks, entries; /* pool_blocks 0: no pool is published */
    bool unfused; /* scores as a value of their own, so that they can be shown */
} dsf_index_in;
typedef struct {
    dsf_val topk, pool, scores;
} dsf_index_out;
dsf_val dsf_rec_index_weight(dsf_plan *p, dsf_val x, float factor);
dsf_index_out dsf_rec_index(dsf_plan *p, const dsf_index_in *in, const dsf_row_info *r);

typedef struct {
    dsf_val scores, ids, weights;
} dsf_routing;
typedef struct {
    dsf_val bias, bias_vl, vl; /* bias_vl: DSF_NO_VAL: never used */
    int k;
    float scale;
    bool norm;
} dsf_route_in;
dsf_routing dsf_rec_route(dsf_plan *p, dsf_val z, const dsf_route_in *in);
dsf_val dsf_rec_swiglu(dsf_plan *p, dsf_val g, dsf_val v, float limit);
typedef struct {
    dsf_val w1, s1, w3, s3, w2, s2; /* pointer tables */
    int64_t inter, dim;
    float limit;
} dsf_expert_tables;
dsf_val dsf_rec_experts_up(dsf_plan *p, dsf_val x, dsf_val ids, dsf_val weights,
                           const dsf_expert_tables *t);
dsf_val dsf_rec_experts_down(dsf_plan *p, dsf_val h, dsf_val ids, const dsf_expert_tables *t);
dsf_val dsf_rec_moe_sum(dsf_plan *p, dsf_val y, dsf_val shared);

dsf_val dsf_rec_engram_gather(dsf_plan *p, dsf_val rows, dsf_weight8 table);
typedef struct {
    dsf_val out, gate;
} dsf_gated;
dsf_gated dsf_rec_engram_gate(dsf_plan *p, dsf_val x, dsf_val kv, const dsf_val qk[2], dsf_val vl,
                              float eps);

typedef struct {
    dsf_val logits, mu, ids;
} dsf_chain;
dsf_chain dsf_rec_markov_chain(dsf_plan *p, dsf_val base, dsf_val embed, dsf_val head,
                               dsf_val anchor);
/* ids [rows] i32 drawn from logits [rows, v] as the input HEAD_HOW says. */
dsf_val dsf_rec_sample(dsf_plan *p, dsf_val logits);
dsf_val dsf_rec_confidence(dsf_plan *p, dsf_val h, dsf_val mu, dsf_val w);

#endif
