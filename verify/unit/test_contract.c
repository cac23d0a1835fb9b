#include <criterion/criterion.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt_fixture.h"
#include "model/contract.h"

typedef struct {
    char folder[4096];
    dsf_config config;
} model;

static void make_mini(model *m)
{
    make_temp(m->folder);
    cr_assert_eq(put_preset(m->folder, "mini", 1, &m->config), DSF_OK, "%s", dsf_error_text());
}

static void check(const model *m, dsf_scan scan, dsf_contract *r)
{
    dsf_ckpt *k;
    cr_assert_eq(dsf_ckpt_open(&k, m->folder), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(dsf_contract_check(&m->config, k, scan, r), DSF_OK, "%s", dsf_error_text());
    dsf_ckpt_close(k);
}

/* Overwrites n bytes of a tensor at an offset inside it. */
static void poke(const model *m, const char *name, int64_t at, const void *bytes, size_t n)
{
    dsf_ckpt *k;
    cr_assert_eq(dsf_ckpt_open(&k, m->folder), DSF_OK, "%s", dsf_error_text());
    const dsf_ckpt_entry *e = dsf_ckpt_find(k, name);
    cr_assert_not_null(e, "%s", name);
    FILE *f = fopen(dsf_ckpt_shard_path(k, e->shard), "r+b");
    cr_assert_not_null(f);
    cr_assert_eq(fseek(f, (long)e->offset + (long)at, SEEK_SET), 0);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
    dsf_ckpt_close(k);
}

/* [B-08] */
Test(contract, a_synthetic_model_keeps_it)
{
    model m;
    dsf_contract r;
    make_mini(&m);
    check(&m, DSF_SCAN_ALL, &r);
    cr_expect_eq(r.faults.n, 0, "%s", r.faults.text.data);
    cr_expect_eq(r.expected, 1016);
    cr_expect_eq(r.matched, 1016);
    cr_expect_eq(dsf_contract_status(&r, m.folder), DSF_OK);
    cr_expect_gt(r.scale_max[DSF_ROLE_WQ_A], r.scale_min[DSF_ROLE_WQ_A],
                 "scales are spread, so that layout faults show");
    cr_expect_eq(r.scale_max[DSF_ROLE_EMBED], -1);
    dsf_contract_free(&r);
    remove_temp(m.folder);
}

/* The config changes, the files stay: every fault is told, each with both values. [B-06] */
Test(contract, every_fault_is_listed_with_both_values)
{
    model m;
    dsf_contract r;
    make_mini(&m);
    m.config.q_lora_rank = 96;     /* wq_a, q_norm, wq_b, indexer.wq_b misshapen */
    m.config.n_routed_experts = 9; /* one expert a layer missing, the router misshapen */
    m.config.n_mtp_layers = 2;     /* stage 2 extra; the last stage's tensors missing */
    m.config.engram[1].layer = 3;  /* names differ: missing there, extra here */
    check(&m, DSF_SCAN_SCALES, &r);
    static const char *const lines[] = {
        ("misshapen layers.0.attn.wq_a.weight: F8_E4M3 [64, 128], the config needs F8_E4M3 "
         "[96, 128], in model-00002-of-00005.safetensors\n"),
        "misshapen layers.9.ffn.gate.bias: F32 [8], the config needs F32 [9]",
        "missing layers.0.ffn.experts.8.w1.weight: I8 [96, 64]\n",
        "extra mtp.2.attn.wkv.weight: F8_E4M3 [64, 128], in model-00003-of-00005.safetensors\n",
        "missing mtp.1.norm.weight: BF16 [128]\n",
        "missing layers.3.engram.embed.scale: F8_E8M0 [864, 1]\n",
        "extra layers.4.engram.embed.scale: F8_E8M0 [864, 1]",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        cr_expect_not_null(strstr(r.faults.text.data, lines[i]), "%s", lines[i]);
    cr_expect_eq(r.count[DSF_FAULT_MISSING], 10 * 6 + 4 + 6);
    cr_expect_eq(r.count[DSF_FAULT_MISTYPED], 0);
    int64_t lines_told = 0, sum = 0;
    for (const char *s = r.faults.text.data; *s; s++) lines_told += *s == '\n';
    for (int i = 0; i < DSF_N_FAULTS; i++) sum += r.count[i];
    cr_expect_eq(lines_told, r.faults.n);
    cr_expect_eq(sum, r.faults.n);
    cr_expect_eq(dsf_contract_status(&r, m.folder), DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "more"), "a long list is cut in the record");
    dsf_contract_free(&r);
    remove_temp(m.folder);
}

/* [B-07] */
Test(contract, values_that_no_checkpoint_may_hold_are_found)
{
    model m;
    dsf_contract r;
    make_mini(&m);
    poke(&m, "layers.3.attn.wo_b.scale", 5, "\xff", 1);
    poke(&m, "layers.4.engram.embed.scale", 863, "\xff", 1);
    poke(&m, "layers.0.attn.wq_a.weight", 17, "\x7f\xff", 2);
    poke(&m, "norm.weight", 2, "\x80\x7f", 2);
    poke(&m, "mtp.0.ffn.gate.bias", 4, "\x01\x00\x80\xff", 4);
    check(&m, DSF_SCAN_NONE, &r);
    cr_expect_eq(r.faults.n, 0);
    cr_expect_eq(r.scale_max[DSF_ROLE_WO_B], -1, "not read");
    dsf_contract_free(&r);
    check(&m, DSF_SCAN_SCALES, &r);
    cr_expect_eq(r.count[DSF_FAULT_VALUE], 2);
    cr_expect_not_null(strstr(r.faults.text.data,
                              "bad value layers.3.attn.wo_b.scale: 1 of 16 scale bytes are 255 "
                              "(NaN), the first at 5"));
    cr_expect_lt(r.scale_max[DSF_ROLE_WO_B], 255, "255 is not a scale");
    dsf_contract_free(&r);
    check(&m, DSF_SCAN_ALL, &r);
    cr_expect_eq(r.count[DSF_FAULT_VALUE], 5);
    cr_expect_not_null(strstr(r.faults.text.data,
                              "layers.0.attn.wq_a.weight: 2 of 8192 codes are NaN, the first at "
                              "17"));
    cr_expect_not_null(strstr(r.faults.text.data, "norm.weight: 1 of 128 values are not finite"));
    cr_expect_not_null(
        strstr(r.faults.text.data, "mtp.0.ffn.gate.bias: 1 of 4 values are not finite"));
    dsf_contract_free(&r);
    remove_temp(m.folder);
}

/* One more shard for the index of a mini model: entry names are given with their shard. */
static void add_to_index(const model *m, const char *entries, const char *find, const char *put)
{
    char path[8192];
    dsf_file f;
    dsf_buf b = {.max = 1 << 22};
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", m->folder);
    cr_assert_eq(dsf_file_open(&f, path), DSF_OK);
    dsf_buf text = {.max = 1 << 22};
    dsf_buf_add(&text, f.data, f.size);
    dsf_file_close(&f);
    const char *at = strstr(text.data, find);
    cr_assert_not_null(at);
    dsf_buf_add(&b, text.data, (size_t)(at - text.data));
    dsf_buf_str(&b, put);
    dsf_buf_str(&b, entries);
    dsf_buf_str(&b, at + strlen(find));
    put_bytes(m->folder, "model.safetensors.index.json", b.data, b.len);
    dsf_buf_free(&b);
    dsf_buf_free(&text);
}

Test(contract, copies_of_embedding_and_head_in_the_draft_are_ignored)
{
    model m;
    dsf_contract r;
    make_mini(&m);
    put_shard(m.folder, "x.safetensors",
              "{\"mtp.0.embed.weight\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
              "\"mtp.2.head.weight\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]},"
              "\"mtp.x.head.weight\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
              3);
    add_to_index(&m,
                 "\"mtp.0.embed.weight\": \"x.safetensors\", \"mtp.2.head.weight\": "
                 "\"x.safetensors\", \"mtp.x.head.weight\": \"x.safetensors\",",
                 "\"weight_map\": {", "\"weight_map\": {");
    check(&m, DSF_SCAN_NONE, &r);
    cr_expect_eq(r.ignored, 2);
    cr_expect_eq(r.count[DSF_FAULT_EXTRA], 1, "%s", r.faults.text.data);
    cr_expect_eq(r.count[DSF_FAULT_TOTAL], 1);
    cr_expect_not_null(strstr(r.faults.text.data,
                              "total_size metadata: the index says 5916016, the shards hold "
                              "5916019"));
    dsf_contract_free(&r);
    remove_temp(m.folder);
}

/* [B-04] [B-12] */
Test(contract, another_type_of_the_same_size_is_mistyped)
{
    model m;
    dsf_contract r;
    make_mini(&m);
    /* the header is text: swap the type of one tensor where it stands */
    dsf_ckpt *k;
    cr_assert_eq(dsf_ckpt_open(&k, m.folder), DSF_OK);
    const dsf_ckpt_entry *e = dsf_ckpt_find(k, "layers.0.attn.wq_a.weight");
    FILE *f = fopen(dsf_ckpt_shard_path(k, e->shard), "r+b");
    static char text[1 << 17];
    size_t n = fread(text, 1, sizeof text - 1, f);
    const char *find = "\"layers.0.attn.wq_a.weight\":{\"dtype\":\"F8_E4M3\"";
    char *at = strstr(text + 8, find); /* past the length, which has zero bytes */
    cr_assert(at && at < text + n);
    memcpy(strstr(at, "F8_E4M3"), "F8_E8M0", 7);
    cr_assert_eq(fseek(f, at - text, SEEK_SET), 0);
    cr_assert_eq(fwrite(at, 1, strlen(find), f), strlen(find));
    cr_assert_eq(fclose(f), 0);
    dsf_ckpt_close(k);
    check(&m, DSF_SCAN_NONE, &r);
    cr_expect_eq(r.count[DSF_FAULT_MISTYPED], 1);
    cr_expect_not_null(strstr(r.faults.text.data,
                              "mistyped layers.0.attn.wq_a.weight: F8_E8M0 [64, 128], the config "
                              "needs F8_E4M3 [64, 128]"));
    dsf_contract_free(&r);
    remove_temp(m.folder);
}

Test(contract, the_published_models_keep_it)
{
    static const struct {
        const char *name;
        int tensors;
        int64_t bytes;
    } set[] = {{"tiny-a", 418, 5685436},
               {"tiny-b", 772, 4244092},
               {"long-c", 772, 7741368},
               {"vision-d", 798, 4641916}};
    for (int i = 0; i < 4; i++) {
        char name[64], path[8192];
        model m;
        dsf_contract r;
        dsf_ckpt *k;
        (void)snprintf(name, sizeof name, "golden-official/%s", set[i].name);
        if (!find_shared(m.folder, name)) cr_skip_test("no golden-official");
        (void)snprintf(path, sizeof path, "%s/config.json", m.folder);
        cr_assert_eq(dsf_config_load(&m.config, path, NULL), DSF_OK, "%s", dsf_error_text());
        check(&m, DSF_SCAN_ALL, &r);
        cr_expect_eq(r.faults.n, 0, "%s: %s", name, r.faults.text.data);
        cr_expect_eq(r.matched, set[i].tensors);
        dsf_contract_free(&r);
        cr_assert_eq(dsf_ckpt_open(&k, m.folder), DSF_OK);
        cr_expect_eq(dsf_ckpt_bytes(k), set[i].bytes);
        cr_expect_eq(dsf_ckpt_total_size(k), set[i].bytes);
        dsf_ckpt_close(k);
    }
}

/* Headers and an index of the released size over files that are one hole each. */
static void put_release(const model *m)
{
    dsf_buf index = {.max = 1 << 28}, header = {.max = 1 << 28};
    dsf_names it = dsf_names_begin(&m->config);
    dsf_name n;
    int64_t at = 0;
    int shard = 0, before = -2;
    bool more = true;
    dsf_buf_str(&index, "{\"metadata\":{\"total_size\":510286023000},\"weight_map\":{");
    while (more) {
        more = dsf_names_next(&it, &n);
        if (!more || (n.layer != before && before != -2)) { /* one shard a layer */
            char name[64], path[8192];
            dsf_buf_char(&header, '}');
            while (header.len % 8) dsf_buf_char(&header, ' ');
            (void)snprintf(name, sizeof name, "%d.safetensors", shard++);
            (void)snprintf(path, sizeof path, "%s/%s", m->folder, name);
            put_shard(m->folder, name, header.data, 0);
            cr_assert_eq(truncate(path, (off_t)(8 + header.len) + at), 0);
            header.len = 0;
            at = 0;
        }
        if (!more) break;
        dsf_buf_str(&header, at ? "," : "{");
        dsf_buf_fmt(&header, "\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", n.name,
                    dsf_safetensors_dtype(n.dtype), (long long)n.dim[0]);
        if (n.rank > 1) dsf_buf_fmt(&header, ",%lld", (long long)n.dim[1]);
        long long end = at + n.bytes;
        dsf_buf_fmt(&header, "],\"data_offsets\":[%lld,%lld]}", (long long)at, end);
        dsf_buf_fmt(&index, "%s\"%s\":\"%d.safetensors\"", before == -2 ? "" : ",", n.name, shard);
        at += n.bytes;
        before = n.layer;
    }
    dsf_buf_str(&index, "}}");
    put_bytes(m->folder, "model.safetensors.index.json", index.data, index.len);
    dsf_buf_free(&index);
    dsf_buf_free(&header);
}

Test(contract, the_released_size_opens_in_seconds)
{
    model m;
    dsf_contract r;
    dsf_ckpt *k;
    dsf_buf json = {.max = 1 << 20};
    make_temp(m.folder);
    cr_assert_eq(dsf_synth_preset(&m.config, "full"), DSF_OK);
    cr_assert_eq(dsf_synth_finish(&m.config, &json), DSF_OK);
    put_release(&m);
    int64_t start = dsf_clock_ns();
    cr_assert_eq(dsf_ckpt_open(&k, m.folder), DSF_OK, "%s", dsf_error_text());
    double seconds = (double)(dsf_clock_ns() - start) / 1e9;
    cr_expect_eq(dsf_ckpt_count(k), 96085);
    cr_expect_eq(dsf_ckpt_bytes(k), 510286023000);
    cr_expect_lt(seconds, 60, "%.2f s",
                 seconds); /* under one here; a quadratic table takes minutes */
    cr_assert_eq(dsf_contract_check(&m.config, k, DSF_SCAN_NONE, &r), DSF_OK);
    cr_expect_eq(r.faults.n, 0, "%s", r.faults.text.data);
    cr_expect_eq(r.matched, 96085);
    dsf_contract_free(&r);
    dsf_ckpt_close(k);
    dsf_buf_free(&json);
    remove_temp(m.folder);
}

/* The nth allocation fails, for every n: a status each time, no leak, and the next run is whole. */
Test(contract, every_allocation_may_fail)
{
    model m;
    make_mini(&m);
    char path[8192];
    (void)snprintf(path, sizeof path, "%s/config.json", m.folder);
    dsf_status st = DSF_ENOMEM;
    int n = 0;
    while (st != DSF_OK) {
        dsf_ckpt *k = NULL;
        dsf_contract r = {.expected = 0};
        dsf_config c;
        dsf_mem_fail_at((uint64_t)++n);
        st = dsf_config_load(&c, path, NULL);
        if (st == DSF_OK) st = dsf_ckpt_open(&k, m.folder);
        if (st == DSF_OK) st = dsf_contract_check(&m.config, k, DSF_SCAN_NONE, &r);
        cr_expect(st == DSF_OK || st == DSF_ENOMEM, "allocation %d: %s", n, dsf_error_text());
        dsf_contract_free(&r);
        dsf_ckpt_close(k);
        cr_assert_lt(n, 1000);
    }
    dsf_mem_fail_at(0);
    cr_expect_gt(n, 10);
    remove_temp(m.folder);
}
