#include "model/config_fields.h"

#include <stdio.h>
#include <stdlib.h>

#define AT(field) .at = offsetof(dsf_config_file, field)

#define INT(sec, name, flat_name, field, lo, hi)                                                   \
    {                                                                                              \
        .in = (sec), .key = (name), .flat = (flat_name), .kind = FIELD_INT, AT(field),             \
        .min = (lo), .max = (hi)                                                                   \
    }
#define LONG(sec, name, flat_name, field, lo, hi)                                                  \
    {                                                                                              \
        .in = (sec), .key = (name), .flat = (flat_name), .kind = FIELD_LONG, AT(field),            \
        .min = (lo), .max = (hi)                                                                   \
    }
#define NUM(sec, name, flat_name, field, lo, hi)                                                   \
    {                                                                                              \
        .in = (sec), .key = (name), .flat = (flat_name), .kind = FIELD_NUM, AT(field),             \
        .min = (lo), .max = (hi)                                                                   \
    }
#define LIST(name, flat_name, field, n, lo, hi)                                                    \
    {                                                                                              \
        .in = IN_TEXT, .key = (name), .flat = (flat_name), .kind = FIELD_LIST, AT(field),          \
        .count_at = offsetof(dsf_config_file, n), .min = (lo), .max = (hi)                         \
    }
#define FIXED(sec, name, json)                                                                     \
    {                                                                                              \
        .in = (sec), .key = (name), .kind = FIELD_FIXED, .fixed = (json)                           \
    }
#define META(sec, name, json)                                                                      \
    {                                                                                              \
        .in = (sec), .key = (name), .kind = FIELD_ANY, .fixed = (json), .optional = true           \
    }
#define OPEN(sec, name, section, maybe)                                                            \
    {                                                                                              \
        .in = (sec), .key = (name), .kind = FIELD_HEAD, .opens = (section), .optional = (maybe)    \
    }

/* Upper bounds: positions stay exact in f32 (2^24); widths keep every byte count far below 2^63. */
enum { POSITIONS = 1 << 24, TOKENS = 1 << 24, WIDTH = 1 << 16, HEADS = 1 << 10 };
#define TINY 1e-300 /* greater than zero */

const dsf_config_field dsf_config_fields[] = {
    FIXED(IN_TOP, "architectures", "[\"DeepseekV41ForCausalLM\"]"),
    FIXED(IN_TOP, "model_type", "\"deepseek_v41\""),
    FIXED(IN_TOP, "dtype", "\"bfloat16\""),
    META(IN_TOP, "transformers_version", "\"5.6.0\""),
    INT(IN_TOP, "bos_token_id", "bos_id", c.bos_id, 0, TOKENS - 1),
    INT(IN_TOP, "eos_token_id", "eos_id", c.eos_id, 0, TOKENS - 1),
    INT(IN_TOP, "pad_token_id", "pad_id", c.pad_id, 0, TOKENS - 1),
    INT(IN_TOP, "image_token_id", "image_id", c.image_id, 0, TOKENS - 1),
    OPEN(IN_TOP, "quantization_config", IN_QUANT, false),
    FIXED(IN_QUANT, "quant_method", "\"fp8\""),
    FIXED(IN_QUANT, "activation_scheme", "\"dynamic\""),
    FIXED(IN_QUANT, "weight_block_size", "[32, 32]"),
    FIXED(IN_QUANT, "scale_fmt", "\"ue8m0\""),
    FIXED(IN_QUANT, "expert_dtype", "\"fp4\""),
    OPEN(IN_TOP, "text_config", IN_TEXT, false),
    FIXED(IN_TEXT, "model_type", "\"deepseek_v41_text\""),
    LONG(IN_TEXT, "vocab_size", NULL, c.vocab_size, 4, TOKENS),
    INT(IN_TEXT, "hidden_size", "dim", c.dim, 32, WIDTH),
    INT(IN_TEXT, "moe_intermediate_size", "moe_inter_dim", c.moe_inter_dim, 32, WIDTH),
    INT(IN_TEXT, "num_hidden_layers", "n_layers", c.n_layers, 1, DSF_MAX_LAYERS),
    INT(IN_TEXT, "num_attention_heads", "n_heads", c.n_heads, 1, HEADS),
    FIXED(IN_TEXT, "num_key_value_heads", "1"),
    INT(IN_TEXT, "head_dim", NULL, c.head_dim, 32, 4096),
    INT(IN_TEXT, "qk_rope_head_dim", "rope_head_dim", c.rope_head_dim, 2, 4096),
    INT(IN_TEXT, "q_lora_rank", NULL, c.q_lora_rank, 32, WIDTH),
    INT(IN_TEXT, "o_lora_rank", NULL, c.o_lora_rank, 1, WIDTH),
    INT(IN_TEXT, "o_groups", NULL, c.o_groups, 1, HEADS),
    FIXED(IN_TEXT, "hidden_act", "\"silu\""),
    NUM(IN_TEXT, "swiglu_limit", NULL, c.swiglu_limit, TINY, 1e6),
    NUM(IN_TEXT, "rms_norm_eps", "norm_eps", c.norm_eps, TINY, 1),
    FIXED(IN_TEXT, "attention_bias", "false"),
    FIXED(IN_TEXT, "attention_dropout", "0.0"),
    {.in = IN_TEXT, .key = "initializer_range", .kind = FIELD_ANY, .fixed = "0.02"},
    {.in = IN_TEXT, .key = "use_cache", .kind = FIELD_ANY, .fixed = "true"},
    FIXED(IN_TEXT, "tie_word_embeddings", "false"),
    LONG(IN_TEXT, "max_position_embeddings", "max_seq_len", c.max_seq_len, 1, POSITIONS),
    NUM(IN_TEXT, "rope_theta", NULL, c.rope_theta, 1.0001, 1e12),
    OPEN(IN_TEXT, "rope_scaling", IN_ROPE, false),
    FIXED(IN_ROPE, "rope_type", "\"yarn\""),
    NUM(IN_ROPE, "factor", "rope_factor", c.rope_factor, 1, 1e6),
    NUM(IN_ROPE, "beta_fast", NULL, c.beta_fast, TINY, 1e6),
    NUM(IN_ROPE, "beta_slow", NULL, c.beta_slow, TINY, 1e6),
    LONG(IN_ROPE, "original_max_position_embeddings", "original_seq_len", c.original_seq_len, 1,
         POSITIONS),
    INT(IN_TEXT, "n_routed_experts", NULL, c.n_routed_experts, 1, WIDTH),
    INT(IN_TEXT, "n_shared_experts", NULL, c.n_shared_experts, 1, 1),
    INT(IN_TEXT, "num_experts_per_tok", "n_activated_experts", c.n_activated_experts, 1, WIDTH),
    FIXED(IN_TEXT, "scoring_func", "\"sqrtsoftplus\""),
    FIXED(IN_TEXT, "topk_method", "\"noaux_tc\""),
    {.in = IN_TEXT, .key = "norm_topk_prob", .kind = FIELD_FLAG, AT(c.norm_topk_prob)},
    NUM(IN_TEXT, "routed_scaling_factor", "route_scale", c.route_scale, TINY, 1e6),
    INT(IN_TEXT, "sliding_window", "window_size", c.window_size, 1, WIDTH),
    LIST("compress_ratios", NULL, c.ratio, n_ratios, 0, 2),
    NUM(IN_TEXT, "compress_rope_theta", NULL, c.compress_rope_theta, 1.0001, 1e12),
    LIST("kv_source_layer_ids", "kv_source_layers", c.kv_source, c.n_kv_source, 0, DSF_MAX_LAYERS),
    LIST("index_source_layer_ids", "index_source_layers", c.index_source, c.n_index_source, 0,
         DSF_MAX_LAYERS),
    INT(IN_TEXT, "index_n_heads", NULL, c.index_n_heads, 1, HEADS),
    INT(IN_TEXT, "index_head_dim", NULL, c.index_head_dim, 32, 4096),
    INT(IN_TEXT, "index_topk", NULL, c.index_topk, 1, WIDTH),
    INT(IN_TEXT, "candidate_source_layer_id", "candidate_source_layer", c.candidate_source_layer,
        -1, DSF_MAX_LAYERS),
    INT(IN_TEXT, "candidate_topk_blocks", NULL, c.candidate_topk_blocks, 1, POSITIONS),
    INT(IN_TEXT, "candidate_block_size", NULL, c.candidate_block_size, 1, WIDTH),
    FIXED(IN_TEXT, "hc_mult", "4"),
    INT(IN_TEXT, "hc_sinkhorn_iters", NULL, c.hc_sinkhorn_iters, 1, 1000),
    NUM(IN_TEXT, "hc_eps", NULL, c.hc_eps, TINY, 1),
    LIST("engram_layer_ids", NULL, engram_layer, n_engram_layers, 0, DSF_MAX_LAYERS),
    {.in = IN_TEXT,
     .key = "engram_num_embeddings",
     .kind = FIELD_ROWS,
     AT(engram_rows),
     .count_at = offsetof(dsf_config_file, n_engram_rows),
     .min = 1,
     .max = 1e15},
    INT(IN_TEXT, "engram_max_ngram_size", NULL, c.engram_max_ngram_size, 2, DSF_MAX_NGRAM),
    LONG(IN_TEXT, "engram_vocab_size", NULL, c.engram_vocab_size, 2, INT32_MAX),
    INT(IN_TEXT, "engram_n_heads", NULL, c.engram_n_heads, 1, DSF_MAX_ENGRAM_COLUMNS),
    INT(IN_TEXT, "engram_head_dim", NULL, c.engram_head_dim, 32, 4096),
    INT(IN_TEXT, "engram_pad_token_id", "engram_pad_id", c.engram_pad_id, 0, TOKENS - 1),
    INT(IN_TEXT, "engram_compressed_vocab_size", NULL, c.engram_compressed_vocab_size, 1, TOKENS),
    INT(IN_TEXT, "num_nextn_predict_layers", "n_mtp_layers", c.n_mtp_layers, 0, DSF_MAX_LAYERS),
    INT(IN_TEXT, "dspark_block_size", NULL, c.dspark_block_size, 1, 64),
    INT(IN_TEXT, "dspark_noise_token_id", NULL, c.dspark_noise_token_id, 0, TOKENS - 1),
    LIST("dspark_target_layer_ids", NULL, c.dspark_target, c.n_dspark_targets, 0, DSF_MAX_LAYERS),
    INT(IN_TEXT, "dspark_markov_rank", NULL, c.dspark_markov_rank, 1, WIDTH),
    INT(IN_TEXT, "dspark_n_routed_experts", NULL, c.dspark_n_routed_experts, 1, WIDTH),
    INT(IN_TEXT, "dspark_num_experts_per_tok", "dspark_n_activated_experts",
        c.dspark_n_activated_experts, 1, WIDTH),
    OPEN(IN_TOP, "vision_config", IN_VISION, true),
    FIXED(IN_VISION, "model_type", "\"deepseek_v41_vision\""),
    INT(IN_VISION, "num_hidden_layers", "vision_n_layers", c.vision.n_layers, 1, HEADS),
    INT(IN_VISION, "hidden_size", "vision_dim", c.vision.dim, 4, WIDTH),
    INT(IN_VISION, "num_attention_heads", "vision_n_heads", c.vision.n_heads, 1, HEADS),
    INT(IN_VISION, "intermediate_size", "vision_inter_dim", c.vision.inter_dim, 1, WIDTH),
    INT(IN_VISION, "patch_size", "vision_patch_size", c.vision.patch_size, 1, 256),
    NUM(IN_VISION, "rope_theta", "vision_rope_theta", c.vision.rope_theta, 1.0001, 1e12),
    INT(IN_VISION, "downsample_ratio", "vision_downsample_ratio", c.vision.downsample_ratio, 1, 16),
    INT(IN_VISION, "max_image_tokens", "vision_max_n_token", c.vision.max_n_token, 4, WIDTH),
    LONG(IN_VISION, "min_pixels", "vision_min_pixels", c.vision.min_pixels, 0, 1 << 30),
    {.in = IN_VISION,
     .key = "max_wh_ratio",
     .flat = "vision_max_wh_ratio",
     .kind = FIELD_NUM,
     AT(c.vision.max_wh_ratio),
     .null_is_zero = true,
     .min = 1,
     .max = 1e6},
};

const int dsf_config_n_fields = sizeof dsf_config_fields / sizeof dsf_config_fields[0];

void dsf_config_to_file(const dsf_config *c, dsf_config_file *f)
{
    *f = (dsf_config_file){.c = *c, .n_engram_layers = c->n_engram, .n_engram_rows = c->n_engram};
    f->n_ratios = c->n_layers + c->n_mtp_layers;
    for (int i = 0; i < c->n_engram; i++) {
        f->engram_layer[i] = c->engram[i].layer;
        f->engram_rows[i] = c->engram[i].rows;
    }
}

void dsf_config_add_double(dsf_buf *b, double v)
{
    char text[32];
    if (v > -1e15 && v < 1e15 && v == (double)(int64_t)v) {
        dsf_buf_fmt(b, "%lld", (long long)v);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    dsf_buf_str(b, text);
}
