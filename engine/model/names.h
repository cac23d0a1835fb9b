/* The tensor contract: (layer, role, expert) <-> tensor name, dtype, shape and scale partner, for
 * any configuration (architecture.md 12). */
#ifndef DSF_MODEL_NAMES_H
#define DSF_MODEL_NAMES_H

#include "base/tensor.h"
#include "model/config.h"

/* Where the bytes are (architecture.md 16). */
#define DSF_PART_MAP(X)                                                                            \
    X(HEAD, "embed + head")                                                                        \
    X(ATTENTION, "attention")                                                                      \
    X(EXPERTS, "routed experts")                                                                   \
    X(SHARED, "shared experts")                                                                    \
    X(ROUTER, "router")                                                                            \
    X(HC, "hyper-connections")                                                                     \
    X(NORMS, "norms")                                                                              \
    X(INDEXER, "compressors + indexers")                                                           \
    X(TABLES, "engram tables")                                                                     \
    X(ENGRAM, "engram other")                                                                      \
    X(DRAFT_EXPERTS, "draft experts")                                                              \
    X(DRAFT, "draft other")                                                                        \
    X(VISION, "vision")

typedef enum {
#define X(id, text) DSF_PART_##id,
    DSF_PART_MAP(X)
#undef X
        DSF_N_PARTS
} dsf_part;

/* X(role, scope, when, name, dtype, shape, part). Names of E4M3 and E2M1X2 tensors stand without
 * their ".weight": ".scale" accompanies it; the expert's number goes after "experts".
 * Scopes: TOP; LAYER: backbone layers and draft stages; EXPERT: the same, per expert; FIRST, LAST:
 * of the draft stages; BLOCK: vision blocks. Letters of a shape (digits are themselves):
 * - V vocab, D dim, M 24 mixes, S 4 D, G 5 D, c D / 2, T targets x D, m markov rank, C D + m
 * - q q_lora, Q heads x head_dim, h head_dim, H heads, o o_groups x o_lora
 * - i heads x head_dim / o_groups, N index heads, k index_head_dim, K N x k
 * - E experts of the layer, I inter, j I / 2
 * - R table rows, e engram head_dim, W columns x e
 * - v vision dim, x 3 v, p 3 patch^2, z vision inter, y 2 z, A v x downsample^2
 */
#define DSF_ROLE_MAP(X)                                                                            \
    X(EMBED, TOP, ALWAYS, "embed.weight", BF16, "VD", HEAD)                                        \
    X(HEAD, TOP, ALWAYS, "head.weight", BF16, "VD", HEAD)                                          \
    X(NORM, TOP, ALWAYS, "norm.weight", BF16, "D", NORMS)                                          \
    X(ATTN_NORM, LAYER, ALWAYS, "attn_norm.weight", BF16, "D", NORMS)                              \
    X(FFN_NORM, LAYER, ALWAYS, "ffn_norm.weight", BF16, "D", NORMS)                                \
    X(HC_ATTN_FN, LAYER, ALWAYS, "hc_attn_fn", F32, "MS", HC)                                      \
    X(HC_ATTN_BASE, LAYER, ALWAYS, "hc_attn_base", F32, "M", HC)                                   \
    X(HC_ATTN_SCALE, LAYER, ALWAYS, "hc_attn_scale", F32, "3", HC)                                 \
    X(HC_FFN_FN, LAYER, ALWAYS, "hc_ffn_fn", F32, "MS", HC)                                        \
    X(HC_FFN_BASE, LAYER, ALWAYS, "hc_ffn_base", F32, "M", HC)                                     \
    X(HC_FFN_SCALE, LAYER, ALWAYS, "hc_ffn_scale", F32, "3", HC)                                   \
    X(WQ_A, LAYER, ALWAYS, "attn.wq_a", E4M3, "qD", ATTENTION)                                     \
    X(Q_NORM, LAYER, ALWAYS, "attn.q_norm.weight", BF16, "q", NORMS)                               \
    X(WQ_B, LAYER, ALWAYS, "attn.wq_b", E4M3, "Qq", ATTENTION)                                     \
    X(WKV, LAYER, ALWAYS, "attn.wkv", E4M3, "hD", ATTENTION)                                       \
    X(KV_NORM, LAYER, ALWAYS, "attn.kv_norm.weight", BF16, "h", NORMS)                             \
    X(WO_A, LAYER, ALWAYS, "attn.wo_a", E4M3, "oi", ATTENTION)                                     \
    X(WO_B, LAYER, ALWAYS, "attn.wo_b", E4M3, "Do", ATTENTION)                                     \
    X(ATTN_SINK, LAYER, ALWAYS, "attn.attn_sink", F32, "H", ATTENTION)                             \
    X(COMPRESSOR_WKV, LAYER, KV, "attn.compressor.wkv.weight", BF16, "hD", INDEXER)                \
    X(COMPRESSOR_WGATE, LAYER, GATED, "attn.compressor.wgate.weight", BF16, "hD", INDEXER)         \
    X(COMPRESSOR_NORM, LAYER, KV, "attn.compressor.norm.weight", BF16, "h", INDEXER)               \
    X(INDEXER_WK, LAYER, KV, "attn.indexer.wk.weight", BF16, "kh", INDEXER)                        \
    X(INDEXER_K_NORM, LAYER, KV, "attn.indexer.k_norm.weight", BF16, "k", INDEXER)                 \
    X(INDEXER_WQ_B, LAYER, INDEX, "attn.indexer.wq_b", E4M3, "Kq", INDEXER)                        \
    X(INDEXER_WEIGHTS, LAYER, INDEX, "attn.indexer.weights_proj.weight", BF16, "ND", INDEXER)      \
    X(GATE, LAYER, ALWAYS, "ffn.gate.weight", BF16, "ED", ROUTER)                                  \
    X(GATE_BIAS, LAYER, ALWAYS, "ffn.gate.bias", F32, "E", ROUTER)                                 \
    X(GATE_BIAS_VL, LAYER, ALWAYS, "ffn.gate.bias_vl", F32, "E", ROUTER)                           \
    X(EXPERT_W1, EXPERT, ALWAYS, "ffn.experts.w1", E2M1X2, "Ic", EXPERTS)                          \
    X(EXPERT_W2, EXPERT, ALWAYS, "ffn.experts.w2", E2M1X2, "Dj", EXPERTS)                          \
    X(EXPERT_W3, EXPERT, ALWAYS, "ffn.experts.w3", E2M1X2, "Ic", EXPERTS)                          \
    X(SHARED_W1, LAYER, ALWAYS, "ffn.shared_experts.w1", E4M3, "ID", SHARED)                       \
    X(SHARED_W2, LAYER, ALWAYS, "ffn.shared_experts.w2", E4M3, "DI", SHARED)                       \
    X(SHARED_W3, LAYER, ALWAYS, "ffn.shared_experts.w3", E4M3, "ID", SHARED)                       \
    X(ENGRAM_EMBED, LAYER, ENGRAM, "engram.embed", E4M3, "Re", TABLES)                             \
    X(ENGRAM_WKV, LAYER, ENGRAM, "engram.wkv", E4M3, "GW", ENGRAM)                                 \
    X(ENGRAM_Q, LAYER, ENGRAM, "engram.q_weight", BF16, "4D", ENGRAM)                              \
    X(ENGRAM_K, LAYER, ENGRAM, "engram.k_weight", BF16, "4D", ENGRAM)                              \
    X(MAIN_PROJ, FIRST, ALWAYS, "main_proj", E4M3, "DT", DRAFT)                                    \
    X(MAIN_NORM, FIRST, ALWAYS, "main_norm.weight", BF16, "D", DRAFT)                              \
    X(DRAFT_NORM, LAST, ALWAYS, "norm.weight", BF16, "D", DRAFT)                                   \
    X(MARKOV_EMBED, LAST, ALWAYS, "markov_head.embed.weight", BF16, "Vm", DRAFT)                   \
    X(MARKOV_HEAD, LAST, ALWAYS, "markov_head.head.weight", BF16, "Vm", DRAFT)                     \
    X(CONFIDENCE, LAST, ALWAYS, "confidence_head.proj.weight", BF16, "1C", DRAFT)                  \
    X(PATCH_W, TOP, VISION, "vision.patch_embed.proj.weight", BF16, "vp", VISION)                  \
    X(PATCH_B, TOP, VISION, "vision.patch_embed.proj.bias", BF16, "v", VISION)                     \
    X(VISION_NORM, TOP, VISION, "vision.norm.weight", BF16, "v", VISION)                           \
    X(ALIGNER_W1, TOP, VISION, "aligner.w1.weight", BF16, "DA", VISION)                            \
    X(ALIGNER_B1, TOP, VISION, "aligner.w1.bias", BF16, "D", VISION)                               \
    X(ALIGNER_W2, TOP, VISION, "aligner.w2.weight", BF16, "DD", VISION)                            \
    X(ALIGNER_B2, TOP, VISION, "aligner.w2.bias", BF16, "D", VISION)                               \
    X(IMAGE_START, TOP, VISION, "image_start", BF16, "D", VISION)                                  \
    X(IMAGE_END, TOP, VISION, "image_end", BF16, "D", VISION)                                      \
    X(IMAGE_NEWLINE, TOP, VISION, "image_newline", BF16, "D", VISION)                              \
    X(BLOCK_NORM1, BLOCK, ALWAYS, "norm1.weight", BF16, "v", VISION)                               \
    X(BLOCK_NORM2, BLOCK, ALWAYS, "norm2.weight", BF16, "v", VISION)                               \
    X(BLOCK_WQKV, BLOCK, ALWAYS, "attn.wqkv.weight", BF16, "xv", VISION)                           \
    X(BLOCK_BQKV, BLOCK, ALWAYS, "attn.wqkv.bias", BF16, "x", VISION)                              \
    X(BLOCK_WO, BLOCK, ALWAYS, "attn.wo.weight", BF16, "vv", VISION)                               \
    X(BLOCK_BO, BLOCK, ALWAYS, "attn.wo.bias", BF16, "v", VISION)                                  \
    X(BLOCK_W1, BLOCK, ALWAYS, "mlp.w1.weight", BF16, "yv", VISION)                                \
    X(BLOCK_W2, BLOCK, ALWAYS, "mlp.w2.weight", BF16, "vz", VISION)

typedef enum {
#define X(id, scope, when, name, dtype, shape, part) DSF_ROLE_##id,
    DSF_ROLE_MAP(X)
#undef X
        DSF_N_ROLES
} dsf_role;

typedef struct {
    dsf_role role;
    int layer;  /* backbone 0..n_layers-1, draft stages from n_layers on, vision block; else -1 */
    int expert; /* -1 but for routed experts */
    bool scale; /* this is the scale of the weight of the same role */
    dsf_part part;
    dsf_dtype dtype;
    int rank;
    int64_t dim[DSF_MAX_RANK];
    int64_t bytes;
    char name[128];
} dsf_name;

const char *dsf_names_role(dsf_role role); /* as the table spells it: "attn.wq_a" */
const char *dsf_names_part(dsf_part part);
/* Has this weight a scale (E4M3 and E2M1X2 tensors)? */
bool dsf_names_scaled(dsf_role role);
/* Is (layer, role) part of this configuration? layer as in dsf_name. */
bool dsf_names_has(const dsf_config *c, int layer, dsf_role role);
/* Fills *out for one tensor that the configuration has; expert is ignored but for expert roles. */
void dsf_names_describe(const dsf_config *c, int layer, dsf_role role, int expert, bool scale,
                        dsf_name *out);
/* The name alone. */
void dsf_names_format(char out[128], const dsf_config *c, int layer, dsf_role role, int expert,
                      bool scale);

/* Walks every tensor of a configuration: TOP roles, layers ascending (an expert's tensors together,
 * a weight before its scale), draft stages, vision blocks.
 *     dsf_names it = dsf_names_begin(c);
 *     dsf_name name;
 *     while (dsf_names_next(&it, &name)) ... */
typedef struct {
    const dsf_config *c;
    int group, role, expert;
    bool scale, started;
} dsf_names;

dsf_names dsf_names_begin(const dsf_config *c);
bool dsf_names_next(dsf_names *it, dsf_name *out);

#endif
