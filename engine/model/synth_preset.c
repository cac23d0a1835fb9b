#include <string.h>

#include "model/engram_hash.h"
#include "model/synth.h"

/* What all presets share: the released values of everything that is not a size. */
static const dsf_config common = {
    .norm_eps = 1e-20,
    .rope_theta = 10000,
    .compress_rope_theta = 160000,
    .rope_factor = 4,
    .beta_fast = 32,
    .beta_slow = 1,
    .original_seq_len = 32,
    .route_scale = 1.5,
    .n_shared_experts = 1,
    .norm_topk_prob = true,
    .hc_sinkhorn_iters = 20,
    .hc_eps = 1e-6,
    .engram_max_ngram_size = 4,
    .bos_id = 0,
    .eos_id = 1,
    .pad_id = 2,
};

static void set_list(int *list, int *n, const int *from, int count)
{
    memcpy(list, from, (size_t)count * sizeof *list);
    *n = count;
}

#define SET_LIST(list, n, ...)                                                                     \
    set_list(list, n, (const int[]){__VA_ARGS__},                                                  \
             (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

/* The sizes of section 14, which mini and tiny share. */
static void set_small(dsf_config *c)
{
    c->dim = 128;
    c->moe_inter_dim = 96;
    c->n_heads = 8;
    c->head_dim = 64;
    c->rope_head_dim = 32;
    c->q_lora_rank = 64;
    c->o_lora_rank = 32;
    c->o_groups = 4;
    c->swiglu_limit = 0.5;
    c->n_routed_experts = 8;
    c->n_activated_experts = 3;
    c->window_size = 8;
    c->index_n_heads = 4;
    c->index_head_dim = 64;
    c->index_topk = 6;
    c->candidate_topk_blocks = 3;
    c->candidate_block_size = 4;
    c->engram_n_heads = 2;
    c->engram_head_dim = 32;
    c->engram_vocab_size = 101;
    c->dspark_block_size = 3;
    c->dspark_markov_rank = 32;
    c->dspark_n_routed_experts = 4;
    c->dspark_n_activated_experts = 2;
}

static void set_tiny(dsf_config *c)
{
    int n;
    set_small(c);
    c->vocab_size = 256;
    c->n_layers = 8;
    c->n_mtp_layers = 2;
    c->max_seq_len = 4096;
    SET_LIST(c->ratio, &n, 0, 0, 2, 2, 1, 1, 1, 1, 0, 0);
    SET_LIST(c->kv_source, &c->n_kv_source, 2, 4);
    SET_LIST(c->index_source, &c->n_index_source, 2, 4, 6);
    c->candidate_source_layer = 4;
    c->n_engram = 2;
    c->engram[0].layer = 1;
    c->engram[1].layer = 3;
    c->engram_pad_id = 4;
    c->engram_compressed_vocab_size = 128; /* class = id div 2 */
    c->dspark_noise_token_id = 255;
    SET_LIST(c->dspark_target, &c->n_dspark_targets, 5, 6, 7);
    c->image_id = 254;
}

static void set_mini(dsf_config *c)
{
    int n;
    set_small(c);
    c->vocab_size = 512;
    c->n_layers = 10;
    c->n_mtp_layers = 3;
    c->max_seq_len = 524288;
    SET_LIST(c->ratio, &n, 0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0);
    SET_LIST(c->kv_source, &c->n_kv_source, 2, 4, 5);
    SET_LIST(c->index_source, &c->n_index_source, 2, 4, 5, 7);
    c->candidate_source_layer = 5;
    c->n_engram = 2;
    c->engram[0].layer = 1;
    c->engram[1].layer = 4;
    c->engram_pad_id = 2;
    c->engram_compressed_vocab_size = 430; /* of the mini tokenizer */
    c->dspark_noise_token_id = 480;        /* the System token */
    SET_LIST(c->dspark_target, &c->n_dspark_targets, 7, 8, 9);
    c->image_id = 493;
    c->vision = (dsf_vision_config){.present = true,
                                    .n_layers = 2,
                                    .dim = 64,
                                    .n_heads = 2,
                                    .inter_dim = 96,
                                    .patch_size = 14,
                                    .downsample_ratio = 3,
                                    .max_n_token = 32,
                                    .min_pixels = 7056,
                                    .rope_theta = 10000};
}

static void set_full_sizes(dsf_config *c)
{
    c->vocab_size = 129280;
    c->dim = 5120;
    c->moe_inter_dim = 2304;
    c->n_heads = 64;
    c->head_dim = 512;
    c->rope_head_dim = 64;
    c->q_lora_rank = 1280;
    c->o_lora_rank = 1024;
    c->o_groups = 8;
    c->swiglu_limit = 10;
    c->rope_factor = 16;
    c->original_seq_len = 65536;
    c->max_seq_len = 1048576;
    c->n_routed_experts = 384;
    c->n_activated_experts = 6;
    c->window_size = 128;
    c->index_n_heads = 32;
    c->index_head_dim = 128;
    c->index_topk = 512;
    c->candidate_topk_blocks = 2048;
    c->candidate_block_size = 8;
    c->engram_n_heads = 8;
    c->engram_head_dim = 256;
    c->engram_vocab_size = 16000000;
    c->engram_pad_id = 2;
    c->engram_compressed_vocab_size = 99092;
    c->dspark_block_size = 5;
    c->dspark_noise_token_id = 128799;
    c->dspark_markov_rank = 256;
    c->dspark_n_routed_experts = 128;
    c->dspark_n_activated_experts = 3;
    c->image_id = 129264;
}

static void set_full(dsf_config *c)
{
    set_full_sizes(c);
    c->n_layers = 40;
    c->n_mtp_layers = 3;
    for (int l = 2; l < 40; l++) c->ratio[l] = l < 20 ? 2 : 1;
    SET_LIST(c->kv_source, &c->n_kv_source, 2, 8, 14, 20);
    SET_LIST(c->index_source, &c->n_index_source, 2, 8, 14, 20, 24, 28, 32, 36);
    c->candidate_source_layer = 20;
    c->n_engram = 2;
    c->engram[0].layer = 1;
    c->engram[1].layer = 14;
    SET_LIST(c->dspark_target, &c->n_dspark_targets, 37, 38, 39);
    c->vision = (dsf_vision_config){.present = true,
                                    .n_layers = 32,
                                    .dim = 1024,
                                    .n_heads = 16,
                                    .inter_dim = 2816,
                                    .patch_size = 14,
                                    .downsample_ratio = 3,
                                    .max_n_token = 1024,
                                    .min_pixels = 295936,
                                    .rope_theta = 10000};
}

dsf_status dsf_synth_preset(dsf_config *c, const char *preset)
{
    static const struct {
        const char *name;
        void (*set)(dsf_config *c);
    } presets[] = {{"mini", set_mini}, {"tiny", set_tiny}, {"full", set_full}};
    for (int i = 0; i < 3; i++) {
        if (strcmp(preset, presets[i].name) != 0) continue;
        *c = common;
        presets[i].set(c);
        return DSF_OK;
    }
    return DSF_FAIL(DSF_EINVAL, "preset \"%s\"; there are mini, tiny and full", preset);
}

static void trim_list(const int *list, int *n, int layers)
{
    while (*n && list[*n - 1] >= layers) --*n;
}

static void trim_layers(dsf_config *c, int layers)
{
    int cut = c->n_layers - layers;
    for (int l = layers; l < DSF_MAX_LAYERS; l++) c->ratio[l] = 0;
    c->n_layers = layers;
    trim_list(c->kv_source, &c->n_kv_source, layers);
    trim_list(c->index_source, &c->n_index_source, layers);
    if (c->candidate_source_layer >= layers) c->candidate_source_layer = -1;
    while (c->n_engram && c->engram[c->n_engram - 1].layer >= layers) c->n_engram--;
    if (!cut) return;
    if (c->n_dspark_targets > layers) c->n_dspark_targets = layers;
    for (int i = 0; i < c->n_dspark_targets; i++) /* the last layers, as released */
        c->dspark_target[i] = layers - c->n_dspark_targets + i;
}

dsf_status dsf_synth_trim(dsf_config *c, int layers, int mtp)
{
    if (layers == -1) layers = c->n_layers;
    if (mtp == -1) mtp = c->n_mtp_layers;
    if (layers < 1 || layers > c->n_layers)
        return DSF_FAIL(DSF_EINVAL, "%d layers, allowed are 1 to %d", layers, c->n_layers);
    if (mtp < 0 || mtp > c->n_mtp_layers)
        return DSF_FAIL(DSF_EINVAL, "%d draft stages, allowed are 0 to %d", mtp, c->n_mtp_layers);
    c->n_mtp_layers = mtp;
    trim_layers(c, layers);
    return DSF_OK;
}

dsf_status dsf_synth_finish(dsf_config *c, dsf_buf *json)
{
    DSF_TRY(dsf_engram_constants_make(c));
    dsf_config_write(c, json);
    DSF_TRY(dsf_buf_status(json));
    return dsf_config_parse(c, "config.json", json->data, json->len, NULL);
}
