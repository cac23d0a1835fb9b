#include <criterion/criterion.h>
#include <math.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "ckpt/index.h"
#include "ckpt_fixture.h"
#include "model/contract.h"
#include "model/synth_weights.h"

static void finish(dsf_config *c, const char *preset)
{
    dsf_buf json = {.max = 1 << 20};
    cr_assert_eq(dsf_synth_preset(c, preset), DSF_OK);
    cr_assert_eq(dsf_synth_finish(c, &json), DSF_OK, "%s", dsf_error_text());
    dsf_buf_free(&json);
}

static void digest_of(const char *preset, uint64_t seed, char out[33])
{
    char folder[4096];
    dsf_config c;
    dsf_ckpt *k;
    make_temp(folder);
    cr_assert_eq(put_preset(folder, preset, seed, &c), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(dsf_ckpt_open(&k, folder), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(dsf_ckpt_digest_content(k, out), DSF_OK);
    dsf_ckpt_close(k);
    remove_temp(folder);
}

/* The mini model is the default everywhere: golden data are computed from exactly these bytes. */
Test(synth, equal_seeds_give_equal_bytes_everywhere)
{
    char a[33], b[33], other[33];
    digest_of("mini", 1, a);
    digest_of("mini", 1, b);
    digest_of("mini", 2, other);
    cr_expect_str_eq(a, b);
    cr_expect_str_neq(a, other);
    cr_expect_str_eq(a, "207d4c91b43c790c31dee6946817420d");
    digest_of("tiny", 1, b);
    cr_expect_str_eq(b, "ac0fb1fc0f49365d08b1a6c6dd93b71f");
}

Test(synth, the_bytes_do_not_depend_on_how_they_are_cut)
{
    dsf_config c;
    dsf_synth_source *s;
    dsf_name n;
    static uint8_t whole[1 << 20], cut[1 << 20];
    finish(&c, "mini");
    cr_assert_eq(dsf_synth_source_open(&s, &c, 7), DSF_OK);
    dsf_names it = dsf_names_begin(&c);
    while (dsf_names_next(&it, &n)) {
        cr_assert_leq(n.bytes, (int64_t)sizeof whole);
        dsf_synth_fill(s, &n, 0, n.bytes, whole);
        for (int64_t at = 0; at < n.bytes; at += 192) { /* backwards */
            int64_t from = (n.bytes - 1 - at) / 192 * 192;
            dsf_synth_fill(s, &n, from, n.bytes - from < 192 ? n.bytes - from : 192, cut + from);
        }
        cr_expect_arr_eq(whole, cut, (size_t)n.bytes, "%s", n.name);
    }
    dsf_synth_source_close(s);
}

/* Root mean square of a weight tensor's values, dequantised (architecture.md 12). */
static double weight_rms(dsf_synth_source *s, const dsf_config *c, int layer, dsf_role role)
{
    dsf_name w, sc;
    uint8_t *code, *scale;
    double sum = 0;
    dsf_names_describe(c, layer, role, 0, false, &w);
    dsf_names_describe(c, layer, role, 0, true, &sc);
    cr_assert_eq(dsf_mem_new(&code, (size_t)w.bytes, 1), DSF_OK);
    cr_assert_eq(dsf_mem_new(&scale, (size_t)sc.bytes, 1), DSF_OK);
    dsf_synth_fill(s, &w, 0, w.bytes, code);
    dsf_synth_fill(s, &sc, 0, sc.bytes, scale);
    bool fp4 = w.dtype == DSF_E2M1X2;
    int64_t columns = fp4 ? 2 * w.dim[1] : w.dim[1];
    for (int64_t i = 0; i < w.dim[0]; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t row = sc.dim[0] == w.dim[0] ? i : i / 32;
            double v = fp4 ? dsf_e2m1_to_f32(code[i * w.dim[1] + j / 2] >> 4 * (j % 2))
                           : dsf_e4m3_to_f32(code[i * w.dim[1] + j]);
            v *= dsf_e8m0_to_f32(scale[row * sc.dim[1] + j / 32]);
            sum += v * v;
        }
    dsf_mem_free(code);
    dsf_mem_free(scale);
    return sqrt(sum / (double)(w.dim[0] * columns));
}

/* [B-38] */
Test(synth, quantised_weights_have_the_measured_deviation)
{
    static const struct {
        int layer;
        dsf_role role;
        double gain; /* x fan_in^-1/2 (architecture.md 14) */
        int fan;
    } want[] = {{2, DSF_ROLE_WQ_A, 1.6, 128},          {2, DSF_ROLE_WQ_B, 0.95, 64},
                {2, DSF_ROLE_WKV, 1.8, 128},           {2, DSF_ROLE_WO_A, 1.6, 128},
                {3, DSF_ROLE_WO_B, 1.9 / 32, 128},     {3, DSF_ROLE_SHARED_W1, 1.5, 128},
                {3, DSF_ROLE_SHARED_W2, 1.05 / 4, 96}, {3, DSF_ROLE_EXPERT_W1, 1.5, 128},
                {3, DSF_ROLE_EXPERT_W2, 1.05 / 4, 96}, {1, DSF_ROLE_ENGRAM_EMBED, 0.03, 1}};
    dsf_config c;
    dsf_synth_source *s;
    finish(&c, "mini");
    cr_assert_eq(dsf_synth_source_open(&s, &c, 1), DSF_OK);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        double rms = weight_rms(s, &c, want[i].layer, want[i].role) * sqrt(want[i].fan);
        cr_expect(fabs(rms / want[i].gain - 1) < 0.15, "%s: %g for %g",
                  dsf_names_role(want[i].role), rms, want[i].gain);
    }
    dsf_synth_source_close(s);
}

Test(synth, codes_cover_their_range)
{
    dsf_config c;
    dsf_synth_source *s;
    dsf_name n;
    static uint8_t bytes[1 << 16];
    int nibble[16] = {0}, nan = 0, large = 0;
    finish(&c, "mini");
    cr_assert_eq(dsf_synth_source_open(&s, &c, 1), DSF_OK);
    dsf_names_describe(&c, 0, DSF_ROLE_EXPERT_W1, 0, false, &n);
    dsf_synth_fill(s, &n, 0, n.bytes, bytes);
    for (int64_t i = 0; i < n.bytes; i++) {
        nibble[bytes[i] & 15]++;
        nibble[bytes[i] >> 4]++;
    }
    for (int i = 0; i < 16; i++) cr_expect_gt(nibble[i], 500, "code %d", i);
    dsf_names_describe(&c, 0, DSF_ROLE_WQ_B, 0, false, &n);
    dsf_synth_fill(s, &n, 0, n.bytes, bytes);
    for (int64_t i = 0; i < n.bytes; i++) {
        nan += (bytes[i] & 0x7F) == 0x7F;
        large += (bytes[i] & 0x7F) >= 0x70; /* 128 and more */
    }
    cr_expect_eq(nan, 0);
    cr_expect_gt(large, 100);
    dsf_synth_source_close(s);
}

/* What makes faults visible: outliers and a dead group in the norms, shifted residual mixes, biases
 * that differ, sinks away from zero (architecture.md 14). [B-38] */
Test(synth, norms_have_outliers_and_a_dead_group)
{
    dsf_config c;
    dsf_synth_source *s;
    finish(&c, "mini");
    cr_assert_eq(dsf_synth_source_open(&s, &c, 1), DSF_OK);
    for (int layer = 0; layer < c.n_layers + c.n_mtp_layers; layer++) {
        uint16_t w[128];
        dsf_name n;
        double sum = 0, most = 0;
        int dead = 0;
        dsf_names_describe(&c, layer, DSF_ROLE_ATTN_NORM, 0, false, &n);
        dsf_synth_fill(s, &n, 0, n.bytes, (uint8_t *)w);
        for (int i = 0; i < 128; i++) {
            double v = dsf_bf16_to_f32(w[i]);
            sum += v * v;
            most = v > most ? v : most;
            dead += v < 1e-5;
        }
        double rms = sqrt(sum / 128);
        cr_expect(fabs(rms / 0.025 - 1) < 0.02, "layer %d: %g", layer, rms);
        cr_expect_gt(most, 3 * rms, "layer %d", layer);
        cr_expect_eq(dead, 32, "layer %d", layer);
    }
    dsf_synth_source_close(s);
}

Test(synth, biases_differ_and_sinks_are_not_zero)
{
    dsf_config c;
    dsf_synth_source *s;
    dsf_name n;
    float a[8], b[8], sink[8];
    finish(&c, "mini");
    cr_assert_eq(dsf_synth_source_open(&s, &c, 1), DSF_OK);
    dsf_names_describe(&c, 3, DSF_ROLE_GATE_BIAS, 0, false, &n);
    dsf_synth_fill(s, &n, 0, n.bytes, (uint8_t *)a);
    dsf_names_describe(&c, 3, DSF_ROLE_GATE_BIAS_VL, 0, false, &n);
    dsf_synth_fill(s, &n, 0, n.bytes, (uint8_t *)b);
    dsf_names_describe(&c, 3, DSF_ROLE_ATTN_SINK, 0, false, &n);
    dsf_synth_fill(s, &n, 0, n.bytes, (uint8_t *)sink);
    for (int i = 0; i < 8; i++) {
        cr_expect_neq(a[i], b[i]);
        cr_expect_lt(fabsf(a[i]), 0.53f);
        cr_expect_gt(fabsf(sink[i]), 0.19f);
    }
    dsf_synth_source_close(s);
}

Test(synth, every_prefix_of_the_schedule_is_a_valid_config)
{
    for (int layers = 1; layers <= 40; layers++)
        for (int mtp = 0; mtp <= 3; mtp += 3) {
            dsf_config c;
            dsf_buf json = {.max = 1 << 20};
            cr_assert_eq(dsf_synth_preset(&c, "full"), DSF_OK);
            cr_assert_eq(dsf_synth_trim(&c, layers, mtp), DSF_OK);
            c.engram_vocab_size = 1009;
            cr_expect_eq(dsf_synth_finish(&c, &json), DSF_OK, "%d layers, %d stages: %s", layers,
                         mtp, dsf_error_text());
            cr_expect_eq(c.n_layers, layers);
            cr_expect_eq(c.n_mtp_layers, mtp);
            cr_expect_eq(c.dspark_target[c.n_dspark_targets - 1], layers - 1);
            cr_expect_eq(c.candidate_source_layer, layers > 20 ? 20 : -1);
            dsf_buf_free(&json);
        }
    dsf_config c;
    cr_assert_eq(dsf_synth_preset(&c, "mini"), DSF_OK);
    cr_expect_eq(dsf_synth_trim(&c, 11, -1), DSF_EINVAL);
    cr_expect_not_null(strstr(dsf_error_message(), "11 layers, allowed are 1 to 10"));
    cr_expect_eq(dsf_synth_trim(&c, -1, 4), DSF_EINVAL);
    cr_expect_eq(dsf_synth_preset(&c, "huge"), DSF_EINVAL);
    cr_expect_not_null(strstr(dsf_error_message(), "mini, tiny and full"));
}

/* An unfinished run leaves no folder that looks like a model: the index comes last. */
Test(synth, a_run_that_is_cut_leaves_no_index)
{
    char folder[4096], path[8192];
    dsf_config c;
    dsf_buf json = {.max = 1 << 20};
    make_temp(folder);
    (void)snprintf(path, sizeof path, "%s/model-00003-of-00005.safetensors.part", folder);
    cr_assert_eq(mkdir(path, 0777), 0); /* the third shard cannot be created */
    cr_assert_eq(put_preset(folder, "mini", 1, &c), DSF_EIO);
    cr_expect_not_null(strstr(dsf_error_message(), "model-00003-of-00005.safetensors.part"));
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    cr_expect_not(dsf_file_exists(path));
    (void)snprintf(path, sizeof path, "%s/model-00002-of-00005.safetensors", folder);
    cr_expect(dsf_file_exists(path));
    (void)snprintf(path, sizeof path, "%s/model-00003-of-00005.safetensors.part", folder);
    cr_assert_eq(rmdir(path), 0);
    dsf_buf_free(&json);
    remove_temp(folder);
}

static const dsf_json *member(const dsf_json *v, const char *a, const char *b)
{
    v = dsf_json_get(v, a);
    return b ? dsf_json_get(v, b) : v;
}

static dsf_json_doc *tokenizer(const char *preset, int64_t vocab)
{
    dsf_buf json = {.max = 1 << 24}, config = {.max = 1 << 16};
    dsf_json_doc *doc;
    cr_assert_eq(dsf_synth_tokenizer(preset, vocab, &json, &config), DSF_OK, "%s",
                 dsf_error_text());
    cr_assert_eq(dsf_json_parse(&doc, "tokenizer.json", json.data, json.len), DSF_OK, "%s",
                 dsf_error_text());
    dsf_buf_free(&json);
    dsf_buf_free(&config);
    return doc;
}

Test(synth, the_mini_tokenizer_has_every_id_once)
{
    dsf_json_doc *doc = tokenizer("mini", 512);
    bool seen[512] = {false};
    int64_t id;
    const dsf_json *vocab = member(dsf_json_root(doc), "model", "vocab");
    for (const dsf_json *v = dsf_json_first(vocab); v; v = dsf_json_next(v)) {
        cr_assert_eq(dsf_json_int(v, &id), DSF_OK);
        cr_expect_not(seen[id], "%lld", (long long)id);
        seen[id] = true;
    }
    const dsf_json *added = member(dsf_json_root(doc), "added_tokens", NULL);
    for (const dsf_json *v = dsf_json_first(added); v; v = dsf_json_next(v)) {
        cr_assert_eq(dsf_json_int(dsf_json_get(v, "id"), &id), DSF_OK);
        cr_expect(seen[id] == (id < 3), "%lld", (long long)id);
        seen[id] = true;
    }
    for (int i = 0; i < 512; i++) cr_expect(seen[i], "%d", i);
    cr_expect_eq(dsf_json_count(member(dsf_json_root(doc), "model", "merges")), 221);
    dsf_json_free(doc);
}

Test(synth, the_tiny_tokenizer_is_that_of_the_published_set)
{
    char path[4096];
    dsf_file f;
    dsf_json_doc *want, *doc = tokenizer("tiny", 256);
    if (!find_shared(path, "golden-official/tiny-b/tokenizer.json")) cr_skip_test("no golden");
    cr_assert_eq(dsf_file_open(&f, path), DSF_OK);
    cr_assert_eq(dsf_json_parse(&want, path, (const char *)f.data, f.size), DSF_OK);
    const dsf_json *a = dsf_json_first(member(dsf_json_root(doc), "model", "vocab"));
    const dsf_json *b = dsf_json_first(member(dsf_json_root(want), "model", "vocab"));
    for (; a && b; a = dsf_json_next(a), b = dsf_json_next(b)) {
        cr_expect_str_eq(dsf_json_key(a), dsf_json_key(b));
        cr_expect_str_eq(dsf_json_text(a, NULL), dsf_json_text(b, NULL));
    }
    cr_expect(!a && !b);
    dsf_json_free(doc);
    dsf_json_free(want);
    dsf_file_close(&f);
}
