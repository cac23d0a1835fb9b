#include <criterion/criterion.h>

#include "ckpt_fixture.h"
#include "model/contract.h"

static void finish(dsf_config *c, const char *preset)
{
    dsf_buf json = {.max = 1 << 20};
    cr_assert_eq(dsf_synth_preset(c, preset), DSF_OK);
    cr_assert_eq(dsf_synth_finish(c, &json), DSF_OK, "%s", dsf_error_text());
    dsf_buf_free(&json);
}

/* [B-51] */
Test(names, the_release_has_these_tensors_and_bytes)
{
    dsf_config c;
    int64_t bytes[DSF_N_PARTS], tensors[DSF_N_PARTS], all_bytes = 0, all = 0;
    finish(&c, "full");
    dsf_contract_parts(&c, bytes, tensors);
    for (int i = 0; i < DSF_N_PARTS; i++) {
        all_bytes += bytes[i];
        all += tensors[i];
    }
    cr_expect_eq(all, 96085);
    cr_expect_eq(all_bytes, 510286023000);
    /* architecture.md 16; norm.weight, 10240 bytes, is in none of its rows */
    cr_expect_eq(bytes[DSF_PART_EXPERTS], 288777830400);
    cr_expect_eq(bytes[DSF_PART_TABLES] + bytes[DSF_PART_ENGRAM], 203073076240);
    cr_expect_eq(bytes[DSF_PART_ATTENTION] + bytes[DSF_PART_SHARED] + bytes[DSF_PART_ROUTER] +
                     bytes[DSF_PART_HC] + bytes[DSF_PART_NORMS] - 10240,
                 6802205120);
    cr_expect_eq(bytes[DSF_PART_INDEXER], 81835008);
    cr_expect_eq(bytes[DSF_PART_HEAD], 2647654400);
    cr_expect_eq(bytes[DSF_PART_DRAFT_EXPERTS], 7219445760);
    cr_expect_eq(bytes[DSF_PART_DRAFT], 713428872);
    cr_expect_eq(bytes[DSF_PART_VISION], 970536960);
    /* architecture.md 12 */
    cr_expect_eq(tensors[DSF_PART_EXPERTS] + tensors[DSF_PART_DRAFT_EXPERTS], 94464);
    cr_expect_eq(tensors[DSF_PART_INDEXER], 11 + 32);
    cr_expect_eq(tensors[DSF_PART_TABLES] + tensors[DSF_PART_ENGRAM], 12);
    cr_expect_eq(tensors[DSF_PART_VISION], 263 + 3);
}

Test(names, names_and_shapes_of_the_release)
{
    static const struct {
        int layer;
        dsf_role role;
        int expert;
        bool scale;
        const char *name;
        dsf_dtype dtype;
        int64_t dim[2];
    } want[] = {
        /* architecture.md 12 */
        {-1, DSF_ROLE_EMBED, 0, false, "embed.weight", DSF_BF16, {129280, 5120}},
        {7, DSF_ROLE_HC_ATTN_FN, 0, false, "layers.7.hc_attn_fn", DSF_F32, {24, 20480}},
        {0, DSF_ROLE_WQ_B, 0, true, "layers.0.attn.wq_b.scale", DSF_E8M0, {1024, 40}},
        {39, DSF_ROLE_WO_A, 0, false, "layers.39.attn.wo_a.weight", DSF_E4M3, {8192, 4096}},
        {2, DSF_ROLE_INDEXER_WK, 0, false, "layers.2.attn.indexer.wk.weight", DSF_BF16, {128, 512}},
        {24,
         DSF_ROLE_INDEXER_WQ_B,
         0,
         true,
         "layers.24.attn.indexer.wq_b.scale",
         DSF_E8M0,
         {128, 40}},
        {3,
         DSF_ROLE_EXPERT_W2,
         383,
         false,
         "layers.3.ffn.experts.383.w2.weight",
         DSF_E2M1X2,
         {5120, 1152}},
        {3,
         DSF_ROLE_EXPERT_W2,
         383,
         true,
         "layers.3.ffn.experts.383.w2.scale",
         DSF_E8M0,
         {5120, 72}},
        {40,
         DSF_ROLE_EXPERT_W1,
         127,
         false,
         "mtp.0.ffn.experts.127.w1.weight",
         DSF_E2M1X2,
         {2304, 2560}},
        {41, DSF_ROLE_GATE, 0, false, "mtp.1.ffn.gate.weight", DSF_BF16, {128, 5120}},
        {14,
         DSF_ROLE_ENGRAM_EMBED,
         0,
         false,
         "layers.14.engram.embed.weight",
         DSF_E4M3,
         {384016682, 256}},
        {14,
         DSF_ROLE_ENGRAM_EMBED,
         0,
         true,
         "layers.14.engram.embed.scale",
         DSF_E8M0,
         {384016682, 8}},
        {1, DSF_ROLE_ENGRAM_WKV, 0, true, "layers.1.engram.wkv.scale", DSF_E8M0, {800, 192}},
        {40, DSF_ROLE_MAIN_PROJ, 0, true, "mtp.0.main_proj.scale", DSF_E8M0, {160, 480}},
        {42,
         DSF_ROLE_CONFIDENCE,
         0,
         false,
         "mtp.2.confidence_head.proj.weight",
         DSF_BF16,
         {1, 5376}},
        {31, DSF_ROLE_BLOCK_W1, 0, false, "vision.blocks.31.mlp.w1.weight", DSF_BF16, {5632, 1024}},
        {-1, DSF_ROLE_ALIGNER_W1, 0, false, "aligner.w1.weight", DSF_BF16, {5120, 9216}},
    };
    dsf_config c;
    finish(&c, "full");
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        dsf_name n;
        char name[128];
        cr_expect(dsf_names_has(&c, want[i].layer, want[i].role), "%s", want[i].name);
        dsf_names_describe(&c, want[i].layer, want[i].role, want[i].expert, want[i].scale, &n);
        cr_expect_str_eq(n.name, want[i].name);
        cr_expect_eq(n.dtype, want[i].dtype, "%s", want[i].name);
        cr_expect_eq(n.dim[0], want[i].dim[0], "%s", want[i].name);
        cr_expect_eq(n.dim[1], want[i].dim[1], "%s", want[i].name);
        dsf_names_format(name, &c, want[i].layer, want[i].role, want[i].expert, want[i].scale);
        cr_expect_str_eq(name, want[i].name);
    }
}

Test(names, layers_have_what_their_role_asks_for)
{
    dsf_config c;
    finish(&c, "full");
    cr_expect(dsf_names_has(&c, 20, DSF_ROLE_COMPRESSOR_WKV));
    cr_expect_not(dsf_names_has(&c, 20, DSF_ROLE_COMPRESSOR_WGATE), "ratio 1 has no gate");
    cr_expect_not(dsf_names_has(&c, 24, DSF_ROLE_INDEXER_WK), "Reindex: no keys of its own");
    cr_expect(dsf_names_has(&c, 24, DSF_ROLE_INDEXER_WQ_B));
    cr_expect_not(dsf_names_has(&c, 40, DSF_ROLE_INDEXER_WQ_B));
    cr_expect_not(dsf_names_has(&c, 0, DSF_ROLE_ENGRAM_Q));
    cr_expect_not(dsf_names_has(&c, 41, DSF_ROLE_MAIN_PROJ));
    cr_expect_not(dsf_names_has(&c, 43, DSF_ROLE_WQ_A));
    cr_expect_not(dsf_names_has(&c, 32, DSF_ROLE_BLOCK_WO));
    c.vision.present = false;
    cr_expect_not(dsf_names_has(&c, -1, DSF_ROLE_IMAGE_END));
    c.n_mtp_layers = 0;
    cr_expect_not(dsf_names_has(&c, 40, DSF_ROLE_WQ_A));
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

Test(names, no_name_occurs_twice_and_experts_stay_together)
{
    static const char *const preset[] = {"mini", "tiny"};
    for (int p = 0; p < 2; p++) {
        static char seen[2048][128];
        dsf_config c;
        dsf_name name, before = {.expert = -1};
        int n = 0;
        finish(&c, preset[p]);
        dsf_names it = dsf_names_begin(&c);
        while (dsf_names_next(&it, &name)) {
            cr_assert_lt(n, 2048);
            memcpy(seen[n++], name.name, 128);
            if (name.expert >= 0 && before.expert >= 0 && name.layer == before.layer)
                cr_expect_leq(before.expert, name.expert, "%s", name.name);
            before = name;
        }
        qsort(seen, (size_t)n, sizeof seen[0], by_text);
        for (int i = 1; i < n; i++) cr_expect_str_neq(seen[i], seen[i - 1]);
    }
}
