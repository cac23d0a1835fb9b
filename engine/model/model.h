/* The text model as plan steps: each file of this folder records one section of architecture.md. */
#ifndef DSF_MODEL_MODEL_H
#define DSF_MODEL_MODEL_H

#include "model/weights.h"
#include "plan/record.h"

typedef struct {
    const dsf_config *config;
    const dsf_weights *weights;
    float *freq_plain, *freq_yarn; /* [rope_head_dim / 2] (3.6) */
    float eps[2];                  /* rms_norm_eps, hc_eps */
    bool unfused;                  /* index scores as a value: for dumps and grafts */
    bool draft_context;            /* seed the draft rings (10.2) */
    bool sampled;                  /* the pass draws the next tokens; logits stay where they are */
} dsf_model;

DSF_MUST dsf_status dsf_model_open(dsf_model *m, const dsf_config *c, const dsf_weights *w);
void dsf_model_close(dsf_model *m);

/* Records the forward pass over a plan: embedding, all layers, head on the HEAD rows, draft
 * context. */
DSF_MUST dsf_status dsf_model_build(dsf_plan *p, const dsf_model *m);
/* Records one draft pass (10.3): the pass's rows are the draft block of one sequence; IDS holds the
 * anchor and the noise tokens. EINVAL when the model has no draft stages. */
DSF_MUST dsf_status dsf_model_build_draft(dsf_plan *p, const dsf_model *m);

/* Caches of one engine, declared by both plans in the same order, so that they share one arena. */
typedef struct {
    dsf_val ring[DSF_MAX_LAYERS];    /* [slots, window + rewind, head_dim] Q8, draft stages too */
    dsf_val kv_main[DSF_MAX_LAYERS]; /* sources: [slots, entries, head_dim] Q4N */
    dsf_val index_k[DSF_MAX_LAYERS]; /* sources: [slots, entries, index_head_dim] Q4X */
    dsf_val pend[DSF_MAX_LAYERS];    /* ratio-2 sources: [slots, rewind/2 + 1, 2, head_dim] f32 */
} dsf_caches;

/* Recording state shared by the section files. */
typedef struct {
    dsf_plan *p;
    const dsf_model *m;
    const dsf_config *c;
    dsf_caches cache;
    dsf_row_info rows; /* lo: of the encoder half */
    dsf_val lo_decoder, end, vl;
    dsf_val cs_plain, cs_yarn; /* rope tables of all rows */
    dsf_val cs_pairs, cs_singles;
    dsf_val pair_row, pair_index, pair_slot, pair_end, single_pos, single_slot, single_end;
    dsf_val kv_main, index_k; /* of the current source */
    dsf_val topk, pool;       /* of the current index source */
    dsf_val context;          /* [rows, targets, dim] stream means for the draft head */
    int block;                /* 0, or the draft block's length */
} dsf_build;

/* engine/model/build.c */
void dsf_build_begin(dsf_build *b, dsf_plan *p, const dsf_model *m);
dsf_val dsf_build_weight(const dsf_build *b, int layer, dsf_role role);
dsf_weight8 dsf_build_weight8(const dsf_build *b, int layer, dsf_role role);
/* Rows on which layer l reads its input: all for a kv source, else where window keys are needed. */
int dsf_build_input_rows(const dsf_build *b, int layer);
/* Compressed entries of a sequence in that layer's cache; at least one, so that no dimension is 0.
 */
int64_t dsf_build_entries(const dsf_build *b, int layer);
/* attn.c (5): u on the layer's input rows -> y on its query rows. */
dsf_val dsf_build_attention(dsf_build *b, int layer, dsf_val u);
/* indexer.c (6): sets b->topk and b->pool. u, rq (q latent as Q8) on query rows. */
void dsf_build_index_keys(dsf_build *b, int layer, dsf_val latent);
void dsf_build_indexer(dsf_build *b, int layer, dsf_val u, dsf_val rq);
/* moe.c (7) */
dsf_val dsf_build_moe(dsf_build *b, int layer, dsf_val u);
/* engram.c (8): the stream after the gated write. */
dsf_val dsf_build_engram(dsf_build *b, int layer, dsf_val x);
/* layer.c (4): one layer over (stream, premix). */
void dsf_build_layer(dsf_build *b, int layer, dsf_val *stream, dsf_val *premix);
/* draft.c (10.2) */
void dsf_build_context(dsf_build *b);

#endif
