#include <criterion/criterion.h>

#include "ckpt_fixture.h"
#include "model/config.h"

/* The text of the mini preset's config.json, the base of all edits. */
static dsf_buf mini_text(void)
{
    dsf_config c;
    dsf_buf json = {.max = 1 << 20};
    cr_assert_eq(dsf_synth_preset(&c, "mini"), DSF_OK);
    cr_assert_eq(dsf_synth_finish(&c, &json), DSF_OK, "%s", dsf_error_text());
    return json;
}

/* base with the first `find` replaced; fails the test when it is not there. */
static dsf_buf edited(const dsf_buf *base, const char *find, const char *put)
{
    dsf_buf b = {.max = 1 << 20};
    const char *at = strstr(base->data, find);
    cr_assert_not_null(at, "the base has no %s", find);
    dsf_buf_add(&b, base->data, (size_t)(at - base->data));
    dsf_buf_str(&b, put);
    dsf_buf_str(&b, at + strlen(find));
    return b;
}

static dsf_status parse(const dsf_buf *b, dsf_config *c)
{
    return dsf_config_parse(c, "config.json", b->data, b->len, NULL);
}

static const struct {
    const char *find, *put, *words;
} wrong[] = {
    /* missing, unknown, mistyped */
    {"\"hidden_size\": 128,", "", "text_config.hidden_size: missing"},
    {"\"rms_norm_eps\": 1e-20,", "", "text_config.rms_norm_eps: missing"},
    {"\"scale_fmt\": \"ue8m0\",", "", "quantization_config.scale_fmt: missing"},
    {"\"rope_type\": \"yarn\",", "", "text_config.rope_scaling.rope_type: missing"},
    {"\"bos_token_id\": 0,", "", "bos_token_id: missing"},
    {"\"hc_mult\": 4,", "\"hc_mult\": 4, \"n_group\": 8,", "text_config.n_group: unknown key"},
    {"\"quant_method\"", "\"kv_bits\": 4, \"quant_method\"",
     "quantization_config.kv_bits: unknown key"},
    {"\"factor\"", "\"mscale\": 1, \"factor\"", "text_config.rope_scaling.mscale: unknown key"},
    {"\"min_pixels\"", "\"max_pixels\": 1, \"min_pixels\"",
     "vision_config.max_pixels: unknown key"},
    {"\"dtype\"", "\"auto_map\": {}, \"dtype\"", "auto_map: unknown key"},
    {"\"hc_mult\": 4,", "\"hc_mult\": 4, \"hc_mult\": 4,", "text_config.hc_mult: occurs twice"},
    {"\"hidden_size\": 128", "\"hidden_size\": \"128\"", "hidden_size: 128; an integer is needed"},
    {"\"hidden_size\": 128", "\"hidden_size\": 128.0", "hidden_size: 128.0; an integer"},
    {"\"hidden_size\": 128", "\"hidden_size\": null", "hidden_size: null; an integer"},
    {"\"norm_topk_prob\": true", "\"norm_topk_prob\": 1", "true or false is needed"},
    {"\"engram_layer_ids\": [1, 4]", "\"engram_layer_ids\": 1", "a number of 0 entries; a list"},
    {"\"kv_source_layer_ids\": [2", "\"kv_source_layer_ids\": [true", "true; an integer"},
    {"\"text_config\": {", "\"text_config\": [{", "not JSON"},
    {"\"rope_theta\": 10000", "\"rope_theta\": 1e999", "a finite number is needed"},
    {"\"rope_theta\": 10000", "\"rope_theta\": NaN", "not JSON"},
    /* fixed values */
    {"\"DeepseekV41ForCausalLM\"", "\"DeepseekV4ForCausalLM\"", "architectures"},
    {"\"model_type\": \"deepseek_v41\"", "\"model_type\": \"deepseek_v4\"",
     "model_type: deepseek_v4; this engine knows \"deepseek_v41\" only"},
    {"[32, 32]", "[128, 128]", "weight_block_size"},
    {"\"expert_dtype\": \"fp4\"", "\"expert_dtype\": \"fp8\"", "expert_dtype: fp8"},
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "hidden_act: gelu"},
    {"\"attention_bias\": false", "\"attention_bias\": true", "attention_bias: true"},
    {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", "tie_word_embeddings"},
    {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 8", "num_key_value_heads: 8"},
    {"\"hc_mult\": 4", "\"hc_mult\": 2", "hc_mult: 2; this engine knows 4 only"},
    {"\"scoring_func\": \"sqrtsoftplus\"", "\"scoring_func\": \"sigmoid\"",
     "scoring_func: sigmoid"},
    {"\"topk_method\": \"noaux_tc\"", "\"topk_method\": \"greedy\"", "topk_method: greedy"},
    /* ranges */
    {"\"rms_norm_eps\": 1e-20", "\"rms_norm_eps\": 0", "rms_norm_eps: 0; allowed are more than 0"},
    {"\"rms_norm_eps\": 1e-20", "\"rms_norm_eps\": -1e-20", "rms_norm_eps: -1e-20"},
    {"\"sliding_window\": 8", "\"sliding_window\": 0", "sliding_window: 0; allowed are 1 to"},
    {"\"vocab_size\": 512", "\"vocab_size\": 99999999999", "vocab_size: 99999999999; allowed"},
    {"\"n_shared_experts\": 1", "\"n_shared_experts\": 2", "n_shared_experts: 2; allowed are 1 to"},
    {"[0, 0, 2, 2, 2,", "[0, 0, 4, 2, 2,", "compress_ratios: 4; allowed are 0 to 2"},
    /* contradictions */
    {"\"hidden_size\": 128", "\"hidden_size\": 136", "hidden_size: 136 is not a multiple of 32"},
    {"\"head_dim\": 64", "\"head_dim\": 72", "head_dim: 72 is not a multiple of 32"},
    {"\"qk_rope_head_dim\": 32", "\"qk_rope_head_dim\": 31", "31 is not a multiple of 2"},
    {"\"qk_rope_head_dim\": 32", "\"qk_rope_head_dim\": 96",
     "qk_rope_head_dim 96 is more than head_dim 64"},
    {"\"o_groups\": 4", "\"o_groups\": 3", "num_attention_heads 8 is not a multiple of o_groups 3"},
    {"\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9",
     "num_experts_per_tok 9 is more than n_routed_experts 8"},
    {"[0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0]", "[0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0]",
     "compress_ratios: 12 entries for num_hidden_layers 10 + num_nextn_predict_layers 3"},
    {"1, 1, 0, 0, 0]", "1, 1, 0, 1, 0]", "compress_ratios[11]: 1; draft stages are window only"},
    {"[0, 0, 2, 2,", "[0, 1, 2, 2,", "compress_ratios[1]: 1, but no kv_source_layer_ids"},
    {"[0, 0, 2, 2,", "[0, 0, 2, 1,", "compress_ratios[3]: 1, but its kv source 2 has 2"},
    {"[0, 0, 2, 2,", "[0, 0, 0, 2,", "kv_source_layer_ids: layer 2 has compress_ratio 0"},
    {"\"kv_source_layer_ids\": [2, 4, 5]", "\"kv_source_layer_ids\": [4, 2, 5]",
     "kv_source_layer_ids[1]: layer 2 after layer 4; it must ascend"},
    {"\"kv_source_layer_ids\": [2, 4, 5]", "\"kv_source_layer_ids\": [2, 2, 5]",
     "layer 2 after layer 2"},
    {"\"kv_source_layer_ids\": [2, 4, 5]", "\"kv_source_layer_ids\": [2, 4, 5, 6]",
     "kv_source_layer_ids: layer 6 is not one of index_source_layer_ids"},
    {"\"index_source_layer_ids\": [2, 4, 5, 7]", "\"index_source_layer_ids\": [2, 4, 5, 10]",
     "index_source_layer_ids[3]: layer 10, num_hidden_layers is 10"},
    {"\"index_source_layer_ids\": [2,", "\"index_source_layer_ids\": [0, 2,",
     "index_source_layer_ids: layer 0 has compress_ratio 0"},
    {"\"candidate_source_layer_id\": 5", "\"candidate_source_layer_id\": 6",
     "candidate_source_layer_id: layer 6 is not one of index_source_layer_ids"},
    {"\"candidate_source_layer_id\": 5", "\"candidate_source_layer_id\": 4",
     "layer 4 is before kv source 5"},
    {"\"candidate_topk_blocks\": 3", "\"candidate_topk_blocks\": 2",
     "candidate_topk_blocks 2 x candidate_block_size 4 may hold 5 entries, less than index_topk 6"},
    {"\"engram_layer_ids\": [1, 4]", "\"engram_layer_ids\": [4, 1]", "layer 1 after layer 4"},
    {"\"engram_layer_ids\": [1, 4]", "\"engram_layer_ids\": [1]",
     "engram_layer_ids has 1 entries, engram_num_embeddings 2"},
    {"\"engram_num_embeddings\": [660,", "\"engram_num_embeddings\": [661,",
     "engram_num_embeddings[0]: 661, but the primes from engram_vocab_size 101 sum to 660"},
    {"\"engram_n_heads\": 2", "\"engram_n_heads\": 50", "makes 150 columns, at most 128"},
    {"\"engram_compressed_vocab_size\": 430", "\"engram_compressed_vocab_size\": 600",
     "engram_compressed_vocab_size 600 is more than vocab_size 512"},
    {"\"dspark_target_layer_ids\": [7, 8, 9]", "\"dspark_target_layer_ids\": [7, 8, 10]",
     "dspark_target_layer_ids[2]: layer 10"},
    {"\"dspark_target_layer_ids\": [7, 8, 9]", "\"dspark_target_layer_ids\": []",
     "dspark_target_layer_ids is empty"},
    {"\"dspark_noise_token_id\": 480", "\"dspark_noise_token_id\": 512",
     "dspark_noise_token_id 512 is outside vocab_size 512"},
    {"\"image_token_id\": 493", "\"image_token_id\": 4930", "image_token_id 4930 is outside"},
    {"\"hidden_size\": 64", "\"hidden_size\": 66",
     "vision_config: hidden_size 66 is not a multiple of 4 x num_attention_heads 2"},
};

/* [B-10] [B-16] [B-39] [B-48] */
Test(config, every_wrong_value_is_refused_with_its_words)
{
    dsf_buf base = mini_text();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dsf_config c;
        dsf_buf b = edited(&base, wrong[i].find, wrong[i].put);
        cr_expect_eq(parse(&b, &c), DSF_ECORRUPT, "%s", wrong[i].put);
        cr_expect_not_null(strstr(dsf_error_message(), wrong[i].words), "%s: \"%s\" lacks \"%s\"",
                           wrong[i].put, dsf_error_message(), wrong[i].words);
        dsf_buf_free(&b);
    }
    dsf_buf_free(&base);
}

Test(config, the_edges_of_the_ranges_are_allowed)
{
    static const char *const edge[][2] = {
        {"\"index_head_dim\": 64", "\"index_head_dim\": 32"}, /* equal to the rope part */
        {"\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 8"},
        {"\"index_topk\": 6", "\"index_topk\": 9"}, /* (3 - 1) x 4 + 1 */
        {"\"max_position_embeddings\": 524288", "\"max_position_embeddings\": 16777216"},
        {"\"sliding_window\": 8", "\"sliding_window\": 1"},
        {"\"use_cache\": true", "\"use_cache\": false"}, /* means nothing here */
        {"\"max_wh_ratio\": null", "\"max_wh_ratio\": 4"},
    };
    dsf_buf base = mini_text();
    for (size_t i = 0; i < sizeof edge / sizeof edge[0]; i++) {
        dsf_config c;
        dsf_buf b = edited(&base, edge[i][0], edge[i][1]);
        cr_expect_eq(parse(&b, &c), DSF_OK, "%s: %s", edge[i][1], dsf_error_text());
        dsf_buf_free(&b);
    }
    dsf_buf_free(&base);
}

/* A section that is absent, or a wrong constant, must not silence the checks of other fields. */
Test(config, faults_of_fields_without_a_value_hide_no_other)
{
    dsf_config c;
    dsf_buf base = mini_text();
    dsf_buf outside = edited(&base, "\"bos_token_id\": 0", "\"bos_token_id\": 512");
    dsf_buf relu = edited(&outside, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"");
    dsf_buf text = {.max = 1 << 20};
    size_t vision = (size_t)(strstr(outside.data, "\"vision_config\"") - outside.data);
    size_t end = vision + strcspn(outside.data + vision, "}") + 1;
    while (outside.data[vision] != ',') vision--; /* it is the last section */
    dsf_buf_add(&text, outside.data, vision);
    dsf_buf_str(&text, outside.data + end);
    cr_expect_eq(parse(&relu, &c), DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "bos_token_id 512"), "%s", dsf_error_message());
    cr_expect_eq(parse(&text, &c), DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "bos_token_id 512"), "%s", dsf_error_message());
    dsf_buf_free(&base);
    dsf_buf_free(&outside);
    dsf_buf_free(&relu);
    dsf_buf_free(&text);
}

Test(config, all_faults_are_told_at_once)
{
    dsf_buf a = mini_text();
    dsf_buf b = edited(&a, "\"hidden_size\": 128", "\"hidden_size\": 100");
    dsf_buf c = edited(&b, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"");
    dsf_buf d = edited(&c, "\"index_topk\": 6", "\"index_topk\": 60");
    dsf_buf e = edited(&d, "\"swiglu_limit\"", "\"swiglu_limits\"");
    dsf_config out;
    cr_expect_eq(parse(&e, &out), DSF_ECORRUPT);
    const char *const words[] = {"5 faults",
                                 "hidden_size: 100",
                                 "hidden_act: relu",
                                 "less than index_topk 60",
                                 "swiglu_limit: missing",
                                 "swiglu_limits: unknown key"};
    for (int i = 0; i < 6; i++)
        cr_expect_not_null(strstr(dsf_error_message(), words[i]), "\"%s\" lacks \"%s\"",
                           dsf_error_message(), words[i]);
    dsf_buf *all[] = {&a, &b, &c, &d, &e};
    for (int i = 0; i < 5; i++) dsf_buf_free(all[i]);
}

Test(config, a_config_is_untouched_on_failure)
{
    dsf_config c = {.dim = 77};
    cr_expect_eq(dsf_config_parse(&c, "config.json", "{}", 2, NULL), DSF_ECORRUPT);
    cr_expect_eq(c.dim, 77);
    cr_expect_not_null(strstr(dsf_error_message(), "text_config: missing"));
    cr_expect_eq(dsf_config_parse(&c, "config.json", "7", 1, NULL), DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "a number, not an object"));
}

Test(config, unknown_keys_are_accepted_by_name_only)
{
    dsf_buf base = mini_text();
    dsf_buf b = edited(&base, "\"hc_mult\": 4,", "\"hc_mult\": 4, \"n_group\": 8, \"x\": [],");
    const char *const one[] = {"n_group"}, *const two[] = {"n_group", "x"};
    dsf_config c;
    cr_expect_eq(dsf_config_parse(&c, "f", b.data, b.len, &(dsf_config_accept){one, 1}),
                 DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "text_config.x: unknown key"));
    cr_expect_eq(dsf_config_parse(&c, "f", b.data, b.len, &(dsf_config_accept){two, 2}), DSF_OK);
    dsf_buf_free(&b);
    dsf_buf_free(&base);
}

Test(config, writing_and_parsing_give_the_same_config)
{
    static const char *const preset[] = {"mini", "tiny", "full"};
    for (int i = 0; i < 3; i++) {
        dsf_config c, again;
        dsf_buf a = {.max = 1 << 20}, b = {.max = 1 << 20};
        cr_assert_eq(dsf_synth_preset(&c, preset[i]), DSF_OK);
        cr_assert_eq(dsf_synth_finish(&c, &a), DSF_OK, "%s", dsf_error_text());
        cr_assert_eq(parse(&a, &again), DSF_OK, "%s", dsf_error_text());
        dsf_config_write(&again, &b);
        cr_expect_str_eq(a.data, b.data);
        cr_expect_str_eq(c.digest, again.digest);
        dsf_buf_free(&a);
        dsf_buf_free(&b);
    }
}

Test(config, text_only_models_have_no_vision)
{
    dsf_buf base = mini_text();
    const char *at = strstr(base.data, ",\n  \"vision_config\"");
    cr_assert_not_null(at);
    dsf_buf b = {.max = 1 << 20};
    dsf_buf_add(&b, base.data, (size_t)(at - base.data));
    dsf_buf_str(&b, "}");
    dsf_config c;
    cr_expect_eq(parse(&b, &c), DSF_OK, "%s", dsf_error_text());
    cr_expect_not(c.vision.present);
    dsf_buf_free(&b);
    dsf_buf_free(&base);
}

Test(config, the_released_config_is_understood)
{
    char path[4096];
    dsf_config c;
    if (!find_shared(path, "reference/config.json")) cr_skip_test("no reference data");
    cr_assert_eq(dsf_config_load(&c, path, NULL), DSF_OK, "%s", dsf_error_text());
    cr_expect_eq(c.vocab_size, 129280);
    cr_expect_eq(c.dim, 5120);
    cr_expect_eq(c.n_layers + c.n_mtp_layers, 43);
    cr_expect_eq(c.norm_eps, 1e-20);
    cr_expect_eq(c.rope_factor, 16);
    cr_expect_eq(c.original_seq_len, 65536);
    cr_expect_eq(c.ratio[19], 2);
    cr_expect_eq(c.ratio[20], 1);
    cr_expect_eq(c.ratio[40], 0);
    cr_expect_eq(dsf_config_kv_source(&c, 39), 20);
    cr_expect_eq(dsf_config_kv_source(&c, 1), -1);
    cr_expect_eq(dsf_config_index_source(&c, 27), 24);
    cr_expect_eq(dsf_config_split(&c), 20);
    cr_expect_eq(dsf_config_engram_at(&c, 14), 1);
    cr_expect_eq(c.engram[1].rows, 384016682);
    cr_expect_eq(c.vision.n_layers, 32);
    cr_expect_eq(c.vision.max_wh_ratio, 0, "null");
    cr_expect_eq(strlen(c.digest), 32);
    /* the preset says the same */
    dsf_config full;
    dsf_buf a = {.max = 1 << 20}, b = {.max = 1 << 20};
    cr_assert_eq(dsf_synth_preset(&full, "full"), DSF_OK);
    cr_assert_eq(dsf_synth_finish(&full, &a), DSF_OK, "%s", dsf_error_text());
    dsf_config_write(&c, &b);
    cr_expect_str_eq(a.data, b.data);
    dsf_buf_free(&a);
    dsf_buf_free(&b);
}

Test(config, the_published_configs_are_understood)
{
    static const char *const set[] = {"tiny-a", "tiny-b", "long-c", "vision-d"};
    for (int i = 0; i < 4; i++) {
        char name[64], path[4096];
        dsf_config c;
        (void)snprintf(name, sizeof name, "golden-official/%s/config.json", set[i]);
        if (!find_shared(path, name)) cr_skip_test("no golden-official");
        cr_expect_eq(dsf_config_load(&c, path, NULL), DSF_OK, "%s", dsf_error_text());
        cr_expect_eq(c.vision.present, i == 3);
    }
}

Test(config, print_and_json_show_every_size)
{
    dsf_config c;
    dsf_buf json = {.max = 1 << 20}, text = {.max = 1 << 20}, out = {.max = 1 << 20};
    cr_assert_eq(dsf_synth_preset(&c, "mini"), DSF_OK);
    cr_assert_eq(dsf_synth_finish(&c, &json), DSF_OK);
    dsf_config_print(&c, &text);
    dsf_config_json(&c, &out);
    cr_expect_not_null(strstr(text.data, "moe_inter_dim                  96\n"));
    cr_expect_not_null(strstr(text.data, "norm_eps                       1e-20\n"));
    cr_expect_not_null(strstr(out.data, "\"compress_ratios\": [0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0"));
    cr_expect_not_null(strstr(out.data, "\"vision_max_wh_ratio\": null"));
    cr_expect_not_null(strstr(out.data, "\"multipliers\": [\"17659599212592171\""));
    dsf_buf_free(&json);
    dsf_buf_free(&text);
    dsf_buf_free(&out);
}
