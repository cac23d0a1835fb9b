#include <criterion/criterion.h>

#include "ckpt/safetensors.h"
#include "ckpt_fixture.h"

#define GOOD                                                                                       \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                       \
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"                          \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"                              \
    "\"s\":{\"dtype\":\"F8_E8M0\",\"shape\":[],\"data_offsets\":[20,21]},"                         \
    "\"w\":{\"dtype\":\"I8\",\"shape\":[1,3],\"data_offsets\":[21,24]}}"

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

Test(safetensors, a_good_file_gives_views_in_name_order)
{
    char folder[4096], path[8192];
    dsf_shard s;
    make_temp(folder);
    put_shard(folder, "m", GOOD, 24);
    (void)snprintf(path, sizeof path, "%s/m", folder);
    cr_assert_eq(dsf_safetensors_open(&s, path), DSF_OK, "%s", dsf_error_text());
    cr_assert_eq(s.n, 4);
    cr_expect_str_eq(s.entry[0].name, "a");
    cr_expect_str_eq(s.entry[3].name, "w");
    const dsf_shard_entry *b = dsf_safetensors_find(&s, "b");
    cr_assert_not_null(b);
    cr_expect_eq(b->dtype, DSF_BF16);
    cr_expect_eq(b->rank, 2);
    cr_expect_eq(b->dim[1], 3);
    cr_expect_eq(b->bytes, 12);
    cr_expect_eq(s.file.data[b->offset], 8, "the ninth data byte");
    cr_expect_eq(dsf_safetensors_find(&s, "w")->dtype, DSF_E2M1X2);
    cr_expect_null(dsf_safetensors_find(&s, "c"));
    dsf_safetensors_close(&s);
    dsf_safetensors_close(&s); /* idempotent */
    remove_temp(folder);
}

/* Header, data bytes, and the words that the message must hold. */
static const struct {
    const char *header;
    size_t bytes;
    const char *words;
} malformed[] = {
    {"{", 0, "header length 1; allowed are 2"},
    {"[]", 0, "begins with byte 0x5b, not {"},
    {"{\"t\":}", 0, "not JSON"},
    {"{} x", 0, "not JSON"},
    {"{\"t\":1}", 0, "entry is a number, not an object"},
    {ENTRY("F16", "[1]", "[0,2]"), 2, "dtype \"F16\"; this format has BF16"},
    {ENTRY("I8", "3", "[0,3]"), 3, "shape is not an array"},
    {ENTRY("I8", "[1,1,1,1,1]", "[0,1]"), 1, "shape has 5 dimensions, at most 4"},
    {ENTRY("I8", "[-1]", "[0,1]"), 1, "shape[0] is -1"},
    {ENTRY("I8", "[1.5]", "[0,1]"), 1, "shape[0] is 1.5"},
    {ENTRY("F32", "[4611686018427387904,4]", "[0,0]"), 0, "more than 2^64 bytes"},
    {ENTRY("I8", "[9223372036854775808]", "[0,0]"), 0, "not a size"},
    {ENTRY("F32", "[2]", "[0,4]"), 4, "shape and dtype have 8 bytes, data_offsets 4"},
    {ENTRY("I8", "[4]", "[0,4]"), 3, "data_offsets [0, 4] outside the data of 3 bytes"},
    {ENTRY("I8", "[1]", "[2,1]"), 3, "data_offsets [2, 1] outside"},
    {ENTRY("I8", "[1]", "[-1,0]"), 3, "data_offsets [-1, 0] outside"},
    {ENTRY("I8", "[1]", "[0]"), 1, "not a pair of integers"},
    {ENTRY("I8", "[1]", "[0,1,2]"), 1, "not a pair of integers"},
    {ENTRY("I8", "[1]", "[0,1]"), 2, "1 unclaimed bytes after the last tensor"},
    {ENTRY("I8", "[1]", "[1,2]"), 2, "1 unclaimed bytes at"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[1]}}", 1, "data_offsets is not a pair"},
    {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype \"\""},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}", 0,
     "unknown member \"x\""},
    {"{\"t\":{\"dtype\":\"I8\",\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     "member \"dtype\" occurs twice"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "tensor t occurs twice"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"u\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, "u overlaps t"},
    {"{\"\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "name of 0 bytes"},
    {"{\"a\\u0000\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "printable ASCII"},
    {"{\"a b\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "byte 0x20"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "\"a\" is a number, not a string"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ occurs twice"},
};

Test(safetensors, every_malformed_file_is_refused_with_its_words)
{
    char folder[4096], path[8192];
    make_temp(folder);
    (void)snprintf(path, sizeof path, "%s/m", folder);
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        dsf_shard s;
        put_shard(folder, "m", malformed[i].header, malformed[i].bytes);
        cr_expect_eq(dsf_safetensors_open(&s, path), DSF_ECORRUPT, "%s", malformed[i].header);
        cr_expect_not_null(strstr(dsf_error_message(), malformed[i].words),
                           "%s: \"%s\" lacks \"%s\"", malformed[i].header, dsf_error_message(),
                           malformed[i].words);
        cr_expect_not_null(strstr(dsf_error_message(), path), "the file is named");
    }
    remove_temp(folder);
}

Test(safetensors, a_file_cut_anywhere_is_refused)
{
    char folder[4096], path[8192];
    dsf_buf b = {.max = 1 << 16};
    make_temp(folder);
    (void)snprintf(path, sizeof path, "%s/m", folder);
    add_shard(&b, GOOD, 24);
    for (size_t n = 0; n < b.len; n++) {
        dsf_shard s;
        put_bytes(folder, "m", b.data, n);
        cr_expect_eq(dsf_safetensors_open(&s, path), DSF_ECORRUPT, "%zu of %zu bytes", n, b.len);
    }
    dsf_buf_free(&b);
    remove_temp(folder);
}

Test(safetensors, an_oversized_header_length_is_refused)
{
    char folder[4096], path[8192];
    dsf_shard s;
    make_temp(folder);
    (void)snprintf(path, sizeof path, "%s/m", folder);
    put_bytes(folder, "m", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    cr_expect_eq(dsf_safetensors_open(&s, path), DSF_ECORRUPT);
    cr_expect_not_null(strstr(dsf_error_message(), "header length 18446744073709551615"));
    cr_expect_eq(dsf_safetensors_open(&s, folder), DSF_EIO, "a folder is no file");
    remove_temp(folder);
}

Test(safetensors, empty_tensors_are_fine)
{
    char folder[4096], path[8192];
    dsf_shard s;
    make_temp(folder);
    (void)snprintf(path, sizeof path, "%s/m", folder);
    put_shard(folder, "m",
              "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[1,1]},"
              "\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
              "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
              1);
    cr_expect_eq(dsf_safetensors_open(&s, path), DSF_OK, "%s", dsf_error_text());
    dsf_safetensors_close(&s);
    put_shard(folder, "m", "{}", 0);
    cr_expect_eq(dsf_safetensors_open(&s, path), DSF_OK, "no tensors at all");
    cr_expect_null(dsf_safetensors_find(&s, "t"));
    dsf_safetensors_close(&s);
    remove_temp(folder);
}
