#include <criterion/criterion.h>

#include "ckpt/index.h"
#include "ckpt_fixture.h"

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to   \
    "]}"
#define INDEX(map) "{\"metadata\":{\"total_size\":12},\"weight_map\":{" map "}}"

static const char shard_1[] = "{" T("a", "F32", "[2]", 0, 8) "}";
static const char shard_2[] = "{" T("b", "I8", "[3]", 0, 3) "," T("c", "I8", "[1]", 3, 4) "}";
static const char index_good[] =
    INDEX("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"2.safetensors\"");

static void put_two(const char *folder)
{
    put_shard(folder, "1.safetensors", shard_1, 8);
    put_shard(folder, "2.safetensors", shard_2, 4);
}

Test(index, one_table_over_all_shards)
{
    char folder[4096];
    dsf_ckpt *c;
    dsf_tensor t;
    make_temp(folder);
    put_two(folder);
    put_text(folder, "model.safetensors.index.json", index_good);
    cr_assert_eq(dsf_ckpt_open(&c, folder), DSF_OK, "%s", dsf_error_text());
    cr_expect_eq(dsf_ckpt_count(c), 3);
    cr_expect_eq(dsf_ckpt_shards(c), 2);
    cr_expect_eq(dsf_ckpt_bytes(c), 12);
    cr_expect_eq(dsf_ckpt_total_size(c), 12);
    cr_expect_str_eq(dsf_ckpt_at(c, 1)->name, "b");
    cr_assert_eq(dsf_ckpt_get(c, "c", &t), DSF_OK);
    cr_expect_eq(*(const uint8_t *)t.data, 3);
    cr_expect_not_null(
        strstr(dsf_ckpt_shard_path(c, dsf_ckpt_find(c, "c")->shard), "2.safetensors"));
    cr_expect_eq(dsf_ckpt_get(c, "d", &t), DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "no tensor d"));
    dsf_ckpt_close(c);
    remove_temp(folder);
}

static const struct {
    const char *index, *words;
} malformed[] = {
    {"{", "not JSON"},
    {"[]", "weight_map is missing"},
    {"{\"weight_map\":[]}", "weight_map is missing or not an object"},
    {"{\"weight_map\":{}}", "index names 0 shards"},
    {"{\"weight_map\":{\"a\":1}}", "is not a file name"},
    {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "\"../1.safetensors\" is not a file name"},
    {"{\"weight_map\":{\"a\":\"\"}}", "is not a file name"},
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}}", "a occurs twice"},
    {"{\"metadata\":{\"total_size\":1.5},\"weight_map\":{}}", "total_size is 1.5, not a size"},
    {"{\"metadata\":{\"total_size\":-4},\"weight_map\":{}}", "total_size is -4"},
    {INDEX("\"a\":\"1.safetensors\",\"b\":\"3.safetensors\",\"c\":\"3.safetensors\""),
     "shard 3.safetensors is not there (the index puts 2 tensors into it)"},
    {INDEX("\"a\":\"1.safetensors\",\"x\":\"1.safetensors\",\"b\":\"2.safetensors\","
           "\"c\":\"2.safetensors\""),
     "the index puts x into 1.safetensors, which lacks it"},
    {INDEX("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\""),
     "2.safetensors holds c, which the index does not put there"},
    {INDEX("\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\""), "2 faults"},
};

Test(index, every_malformed_index_is_refused_with_its_words)
{
    char folder[4096];
    make_temp(folder);
    put_two(folder);
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        dsf_ckpt *c;
        put_text(folder, "model.safetensors.index.json", malformed[i].index);
        cr_expect_eq(dsf_ckpt_open(&c, folder), DSF_ECORRUPT, "%s", malformed[i].index);
        cr_expect_null(c);
        cr_expect_not_null(strstr(dsf_error_message(), malformed[i].words),
                           "%s: \"%s\" lacks \"%s\"", malformed[i].index, dsf_error_message(),
                           malformed[i].words);
    }
    remove_temp(folder);
}

Test(index, what_cannot_be_read_is_io)
{
    char folder[4096], path[8192];
    dsf_ckpt *c;
    make_temp(folder);
    cr_expect_eq(dsf_ckpt_open(&c, folder), DSF_EIO);
    cr_expect_not_null(strstr(dsf_error_message(), "neither model.safetensors.index.json"));
    (void)snprintf(path, sizeof path, "%s/nowhere", folder);
    cr_expect_eq(dsf_ckpt_open(&c, path), DSF_EIO);
    cr_expect_not_null(strstr(dsf_error_message(), "not a folder"));
    remove_temp(folder);
}

Test(index, the_digest_does_not_depend_on_the_shards)
{
    char folder[4096], a[33], b[33], content_a[33], content_b[33];
    dsf_ckpt *c;
    make_temp(folder);
    put_two(folder);
    put_text(folder, "model.safetensors.index.json", index_good);
    cr_assert_eq(dsf_ckpt_open(&c, folder), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(dsf_ckpt_digest(c, a), DSF_OK);
    cr_assert_eq(dsf_ckpt_digest_content(c, content_a), DSF_OK);
    dsf_ckpt_close(c);
    remove_temp(folder);
    make_temp(folder); /* one file, the same tensors in another order */
    put_shard(folder, "model.safetensors",
              "{" T("b", "I8", "[3]", 8, 11) "," T("a", "F32", "[2]", 0, 8) "," T("c", "I8", "[1]",
                                                                                  11, 12) "}",
              12);
    cr_assert_eq(dsf_ckpt_open(&c, folder), DSF_OK, "%s", dsf_error_text());
    cr_expect_eq(dsf_ckpt_total_size(c), -1);
    cr_assert_eq(dsf_ckpt_digest(c, b), DSF_OK);
    cr_assert_eq(dsf_ckpt_digest_content(c, content_b), DSF_OK);
    cr_expect_str_eq(a, b);
    cr_expect_str_neq(content_a, content_b, "b and c hold other bytes now");
    dsf_ckpt_close(c);
    remove_temp(folder);
}

Test(index, misaligned_tensors_are_copied_whole)
{
    char folder[4096];
    dsf_ckpt *c;
    dsf_tensor t;
    make_temp(folder);
    put_shard(folder, "model.safetensors",
              "{" T("x", "I8", "[1]", 0, 1) "," T("y", "F32", "[2]", 1, 9) "," T("z", "BF16", "[3]",
                                                                                 9, 15) "}",
              15);
    cr_assert_eq(dsf_ckpt_open(&c, folder), DSF_OK, "%s", dsf_error_text());
    const struct {
        const char *name;
        int first, bytes, align;
    } want[] = {{"x", 0, 1, 1}, {"y", 1, 8, 4}, {"z", 9, 6, 2}};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(dsf_ckpt_get(c, want[i].name, &t), DSF_OK);
        cr_expect_eq((uintptr_t)t.data % (uintptr_t)want[i].align, 0, "%s", want[i].name);
        for (int j = 0; j < want[i].bytes; j++)
            cr_expect_eq(((const uint8_t *)t.data)[j], want[i].first + j, "%s byte %d",
                         want[i].name, j);
    }
    dsf_ckpt_close(c);
    remove_temp(folder);
}
