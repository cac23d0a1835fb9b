#include <criterion/criterion.h>

#include "base/json.h"
#include "ckpt_fixture.h"
#include "model/engram_hash.h"

static dsf_config sizes(int64_t vocab, int classes, int heads, int layer_0, int layer_1)
{
    return (dsf_config){.engram_max_ngram_size = 4,
                        .engram_n_heads = heads,
                        .engram_vocab_size = vocab,
                        .engram_compressed_vocab_size = classes,
                        .n_engram = 2,
                        .engram = {{.layer = layer_0}, {.layer = layer_1}}};
}

Test(engram_hash, constants_of_the_release)
{
    static const int64_t multiplier[2][4] = {
        /* architecture.md 8.2 */
        {76632096046245, 4839876093313, 35959672319349, 73987337458391},
        {67716810739261, 51510806800915, 30921347202721, 82619226485591}};
    static const int prime[2][24] = {{57,  79,  81,  97,  121, 129, 133, 183, 189, 207, 211, 253,
                                      277, 289, 307, 321, 339, 381, 393, 399, 403, 409, 447, 463},
                                     {477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697,
                                      711, 729, 759, 769, 781, 799, 813, 819, 841, 877, 879, 889}};
    dsf_config c = sizes(16000000, 99092, 8, 1, 14);
    cr_assert_eq(dsf_engram_constants_make(&c), DSF_OK);
    cr_expect_eq(c.engram[0].rows, 384006168);
    cr_expect_eq(c.engram[1].rows, 384016682);
    for (int e = 0; e < 2; e++) {
        for (int k = 0; k < 4; k++) cr_expect_eq(c.engram[e].multiplier[k], multiplier[e][k]);
        for (int i = 0; i < 24; i++) cr_expect_eq(c.engram[e].prime[i], 16000000 + prime[e][i]);
    }
    cr_expect_eq(c.engram[1].offset[23], 368015793);
}

Test(engram_hash, constants_of_the_tiny_configuration)
{
    static const int64_t multiplier[2][4] = {
        /* architecture.md 14 */
        {59325216104801821, 3746820326864245, 27838405073976279, 57277759714273633},
        {21310180551791875, 63217011972272793, 8421218418993439, 54420818409297609}};
    dsf_config c = sizes(101, 128, 2, 1, 3);
    cr_assert_eq(dsf_engram_constants_make(&c), DSF_OK);
    cr_expect_eq(c.engram[0].rows, 660);
    cr_expect_eq(c.engram[1].rows, 864);
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < 4; k++) cr_expect_eq(c.engram[e].multiplier[k], multiplier[e][k]);
}

Test(engram_hash, sizes_outside_the_bounds_are_refused)
{
    dsf_config c = sizes(101, 0, 2, 1, 3);
    cr_expect_eq(dsf_engram_constants_make(&c), DSF_EINVAL);
    c = sizes(101, 128, 64, 1, 3);
    cr_expect_eq(dsf_engram_constants_make(&c), DSF_EINVAL);
    c = sizes(0, 128, 2, 1, 3);
    cr_expect_eq(dsf_engram_constants_make(&c), DSF_EINVAL);
}

/* ---- the reference files ---- */

static dsf_json_doc *read_json(const char *path)
{
    dsf_file f;
    dsf_json_doc *doc;
    cr_assert_eq(dsf_file_open(&f, path), DSF_OK);
    cr_assert_eq(dsf_json_parse(&doc, path, (const char *)f.data, f.size), DSF_OK);
    dsf_file_close(&f);
    return doc;
}

static int64_t whole(const dsf_json *v)
{
    return strtoll(dsf_json_text(v, NULL), NULL, 10); /* a number or a decimal string */
}

/* The numbers of nested arrays in reading order. */
static int flatten(const dsf_json *v, int64_t *out, int n)
{
    if (dsf_json_kind_of(v) != DSF_JSON_ARRAY) {
        out[n] = whole(v);
        return n + 1;
    }
    for (const dsf_json *e = dsf_json_first(v); e; e = dsf_json_next(e)) n = flatten(e, out, n);
    return n;
}

static const dsf_json *item_at(const dsf_json *array, int i)
{
    const dsf_json *v = dsf_json_first(array);
    while (i-- && v) v = dsf_json_next(v);
    return v;
}

static void expect_constants(const dsf_config *c, const dsf_json *layers)
{
    for (int e = 0; e < c->n_engram; e++) {
        const dsf_json *l = item_at(layers, e);
        int64_t list[DSF_MAX_ENGRAM_COLUMNS];
        cr_assert_not_null(l);
        cr_expect_eq(whole(dsf_json_get(l, "layer_id")), c->engram[e].layer);
        cr_expect_eq(whole(dsf_json_get(l, "rows")), c->engram[e].rows);
        cr_assert_eq(flatten(dsf_json_get(l, "multipliers"), list, 0), 4);
        for (int k = 0; k < 4; k++) cr_expect_eq(list[k], c->engram[e].multiplier[k]);
        int n = dsf_config_engram_columns(c);
        cr_assert_eq(flatten(dsf_json_get(l, "primes"), list, 0), n);
        for (int i = 0; i < n; i++) cr_expect_eq(list[i], c->engram[e].prime[i]);
        cr_assert_eq(flatten(dsf_json_get(l, "offsets"), list, 0), n);
        for (int i = 0; i < n; i++) cr_expect_eq(list[i], c->engram[e].offset[i]);
    }
}

/* [B-39] */
Test(engram_hash, constants_of_every_published_set)
{
    static const char *const set[] = {"tiny-a", "tiny-b", "long-c", "vision-d"};
    for (int i = 0; i < 4; i++) {
        char name[80], path[4096];
        dsf_config c;
        (void)snprintf(name, sizeof name, "golden-official/%s/config.json", set[i]);
        if (!find_shared(path, name)) cr_skip_test("no golden-official");
        cr_assert_eq(dsf_config_load(&c, path, NULL), DSF_OK, "%s", dsf_error_text());
        (void)snprintf(name, sizeof name, "golden-official/%s/engram_constants.json", set[i]);
        cr_assert(find_shared(path, name));
        dsf_json_doc *doc = read_json(path);
        expect_constants(&c, dsf_json_get(dsf_json_root(doc), "layers"));
        dsf_json_free(doc);
    }
}

/* Rows of token t of a whole sequence of classes. */
static void rows_at(const dsf_config *c, int e, const int64_t *classes, int t, int64_t *row)
{
    int32_t window[DSF_MAX_NGRAM];
    for (int k = 0; k < c->engram_max_ngram_size; k++)
        window[k] = t - k < 0 ? DSF_CLASS_DEAD : (int32_t)classes[t - k];
    dsf_engram_rows(c, e, window, 2, row);
}

Test(engram_hash, rows_of_the_reference_vectors)
{
    char path[4096];
    if (!find_shared(path, "reference/engram_constants.json")) cr_skip_test("no reference data");
    dsf_config c = sizes(16000000, 99092, 8, 1, 14);
    cr_assert_eq(dsf_engram_constants_make(&c), DSF_OK);
    dsf_json_doc *doc = read_json(path);
    expect_constants(&c, dsf_json_get(dsf_json_root(doc), "layers"));
    const dsf_json *vectors = dsf_json_get(dsf_json_root(doc), "test_vectors");
    int compared = 0;
    for (const dsf_json *v = dsf_json_first(vectors); v; v = dsf_json_next(v)) {
        int64_t classes[64], want[24], row[24];
        int n = flatten(dsf_json_get(v, "compressed_ids"), classes, 0);
        int e = dsf_config_engram_at(&c, (int)whole(dsf_json_get(v, "layer_id")));
        for (int t = 0; t < n; t++) {
            cr_assert_eq(flatten(item_at(dsf_json_get(v, "row_ids"), t), want, 0), 24);
            rows_at(&c, e, classes, t, row);
            for (int i = 0; i < 24; i++, compared++)
                cr_expect_eq(row[i], want[i], "layer %d t %d column %d", c.engram[e].layer, t, i);
        }
    }
    cr_expect_eq(compared, 2 * 8 * 24);
    dsf_json_free(doc);
}

Test(engram_hash, rows_of_the_token_cases)
{
    char path[4096];
    if (!find_shared(path, "reference/tokenizer/engram-hash-cases.json"))
        cr_skip_test("no reference data");
    dsf_config c = sizes(16000000, 99092, 8, 1, 14);
    cr_assert_eq(dsf_engram_constants_make(&c), DSF_OK);
    dsf_json_doc *doc = read_json(path);
    int compared = 0;
    const dsf_json *cases = dsf_json_get(dsf_json_root(doc), "cases");
    for (const dsf_json *v = dsf_json_first(cases); v; v = dsf_json_next(v)) {
        int64_t classes[256], want[48], row[24];
        int n = flatten(dsf_json_get(v, "compressed"), classes, 0);
        const dsf_json *mask = dsf_json_get(v, "mask"); /* 1: text, 0: image span */
        if (mask && dsf_json_kind_of(mask) == DSF_JSON_ARRAY)
            for (int t = 0; t < n; t++) {
                const dsf_json *m = item_at(mask, t);
                if (whole(m) == 0) classes[t] = DSF_CLASS_DEAD;
            }
        for (int t = 0; t < n; t++) {
            cr_assert_eq(flatten(item_at(dsf_json_get(v, "rows"), t), want, 0), 48);
            for (int e = 0; e < 2; e++) {
                rows_at(&c, e, classes, t, row);
                for (int i = 0; i < 24; i++, compared++)
                    cr_expect_eq(row[i], want[24 * e + i], "%s t %d layer %d column %d",
                                 dsf_json_text(dsf_json_get(v, "name"), NULL), t, c.engram[e].layer,
                                 i);
            }
        }
    }
    cr_expect_gt(compared, 48);
    dsf_json_free(doc);
}

/* [B-41] */
Test(engram_hash, blocking_is_sticky)
{
    dsf_config c = sizes(101, 128, 2, 1, 3);
    cr_assert_eq(dsf_engram_constants_make(&c), DSF_OK);
    const int32_t hole[4] = {5, DSF_CLASS_DEAD, 7, 9};
    const int32_t rest[4] = {5, 2, 2, 2}; /* the pad class in every later place */
    const int32_t dead[4] = {DSF_CLASS_DEAD, 1, 2, 3}, pads[4] = {2, 2, 2, 2};
    int64_t a[6], b[6];
    dsf_engram_rows(&c, 0, hole, 2, a);
    dsf_engram_rows(&c, 0, rest, 2, b);
    cr_expect_arr_eq(a, b, sizeof a);
    dsf_engram_rows(&c, 0, dead, 2, a);
    dsf_engram_rows(&c, 0, pads, 2, b);
    cr_expect_arr_eq(a, b, sizeof a);
}

Test(engram_hash, every_row_is_in_its_column)
{
    dsf_config c = sizes(101, 128, 2, 1, 3);
    cr_assert_eq(dsf_engram_constants_make(&c), DSF_OK);
    for (int32_t i = 0; i < 4096; i++) {
        const int32_t window[4] = {i % 128, i * 7 % 128, i * 31 % 128, i % 5 - 1};
        int64_t row[6];
        for (int e = 0; e < 2; e++) {
            dsf_engram_rows(&c, e, window, 2, row);
            for (int k = 0; k < 6; k++)
                cr_assert(row[k] >= c.engram[e].offset[k] &&
                          row[k] < c.engram[e].offset[k] + c.engram[e].prime[k]);
        }
    }
}
