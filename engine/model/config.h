/* config.json as the engine understands it: every field range-checked, nothing defaulted silently.
 * Names are the flat names of architecture.md section 1. */
#ifndef DSF_MODEL_CONFIG_H
#define DSF_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    DSF_MAX_LAYERS = 128, /* backbone + draft stages */
    DSF_MAX_ENGRAMS = 8,
    DSF_MAX_NGRAM = 8,
    DSF_MAX_ENGRAM_COLUMNS = 128,
    DSF_HC = 4 /* hc_mult: the only width this engine has; another is refused */
};

typedef struct {
    int layer;
    int64_t rows;                           /* = sum of the primes */
    int64_t multiplier[DSF_MAX_NGRAM];      /* one per look-back 0..ngram-1 */
    int64_t prime[DSF_MAX_ENGRAM_COLUMNS];  /* column = (order - 2) * heads + head */
    int64_t offset[DSF_MAX_ENGRAM_COLUMNS]; /* exclusive prefix sum */
} dsf_engram_constants;

typedef struct {
    bool present;
    int n_layers, dim, n_heads, inter_dim, patch_size, downsample_ratio, max_n_token;
    int64_t min_pixels;
    double rope_theta, max_wh_ratio; /* max_wh_ratio 0: null */
} dsf_vision_config;

typedef struct {
    int64_t vocab_size;
    int dim, moe_inter_dim, n_layers, n_mtp_layers, n_heads;
    int head_dim, rope_head_dim, q_lora_rank, o_lora_rank, o_groups;
    double swiglu_limit, norm_eps, rope_theta, compress_rope_theta, rope_factor, beta_fast,
        beta_slow, route_scale;
    int64_t original_seq_len, max_seq_len;
    int n_routed_experts, n_activated_experts, n_shared_experts;
    bool norm_topk_prob;
    int window_size;
    int ratio[DSF_MAX_LAYERS]; /* compress_ratios: n_layers + n_mtp_layers entries of 0, 1 or 2 */
    int n_kv_source, kv_source[DSF_MAX_LAYERS];
    int n_index_source, index_source[DSF_MAX_LAYERS];
    int index_n_heads, index_head_dim, index_topk;
    int candidate_source_layer, candidate_topk_blocks,
        candidate_block_size; /* source -1: no pool */
    int hc_sinkhorn_iters;
    double hc_eps;
    int n_engram;
    dsf_engram_constants
        engram[DSF_MAX_ENGRAMS]; /* layer ascending; constants recomputed and checked (8.2) */
    int engram_max_ngram_size, engram_n_heads, engram_head_dim, engram_pad_id,
        engram_compressed_vocab_size;
    int64_t engram_vocab_size;
    int dspark_block_size, dspark_noise_token_id, dspark_markov_rank, dspark_n_routed_experts,
        dspark_n_activated_experts;
    int n_dspark_targets, dspark_target[DSF_MAX_LAYERS];
    int bos_id, eos_id, pad_id, image_id;
    dsf_vision_config vision;
    char digest[33]; /* xxh3-128 of the file's bytes, hex */
} dsf_config;

/* Keys that the caller accepts although this engine does not know them (--accept-config KEY). */
typedef struct {
    const char *const *key;
    int n;
} dsf_config_accept;

/* Parses the n bytes of a config.json called `name` in messages. ECORRUPT lists every fault found,
 * one a line: key, what was found, what is allowed. *c is written only on success. */
DSF_MUST dsf_status dsf_config_parse(dsf_config *c, const char *name, const char *text, size_t n,
                                     const dsf_config_accept *accept);
/* Reads and parses a file. */
DSF_MUST dsf_status dsf_config_load(dsf_config *c, const char *path,
                                    const dsf_config_accept *accept);
/* The config as understood, one "name value" line each (stable order), or as JSON. */
void dsf_config_print(const dsf_config *c, dsf_buf *out);
void dsf_config_json(const dsf_config *c, dsf_buf *out);
/* A config.json in the released form that parses to *c. */
void dsf_config_write(const dsf_config *c, dsf_buf *out);

/* Roles (architecture.md 2.1). Layers >= n_layers are the draft stages: window only. */
static inline int dsf_config_last_at(const int *list, int n, int layer)
{
    int found = -1;
    for (int i = 0; i < n; i++)
        if (list[i] <= layer) found = list[i];
    return found;
}
/* Layer whose compressed KV / top-k list this layer reads, -1 for ratio 0. */
static inline int dsf_config_kv_source(const dsf_config *c, int layer)
{
    return c->ratio[layer] ? dsf_config_last_at(c->kv_source, c->n_kv_source, layer) : -1;
}
static inline int dsf_config_index_source(const dsf_config *c, int layer)
{
    return c->ratio[layer] ? dsf_config_last_at(c->index_source, c->n_index_source, layer) : -1;
}
/* Index into c->engram, or -1. */
static inline int dsf_config_engram_at(const dsf_config *c, int layer)
{
    for (int i = 0; i < c->n_engram; i++)
        if (c->engram[i].layer == layer) return i;
    return -1;
}
static inline int dsf_config_engram_columns(const dsf_config *c)
{
    return (c->engram_max_ngram_size - 1) * c->engram_n_heads;
}
/* First layer of the decoder half: the last kv source (2.3); n_layers when there is none. */
static inline int dsf_config_split(const dsf_config *c)
{
    return c->n_kv_source ? c->kv_source[c->n_kv_source - 1] : c->n_layers;
}

#endif
