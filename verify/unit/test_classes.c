#include "textdata.h"

#include "base/mem.h"
#include "text/classes.h"

/* [B-40] */
Test(classes, equal_the_published_map_entry_for_entry)
{
    dsf_buf want = data_read_gz(data_path("reference/tokenizer/engram_token_map.i32le.gz"));
    dsf_bpe *b = data_tokenizer();
    int32_t n = dsf_bpe_n_vocab(b), *map = NULL, wrong = 0;
    int n_classes = 0;
    cr_assert_eq(want.len, 4 * (size_t)n);
    cr_assert_eq(dsf_mem_new(&map, (size_t)n, sizeof *map), DSF_OK);
    cr_assert_eq(dsf_classes_build(b, map, &n_classes), DSF_OK, "%s", dsf_error_text());
    cr_expect_eq(n_classes, 99092, "%d classes", n_classes);
    for (int32_t id = 0; id < n; id++) {
        int32_t class;
        memcpy(&class, want.data + 4 * (size_t)id, 4);
        if (class != map[id] && wrong++ < 5)
            cr_expect_fail("id %d: %d, expected %d", id, map[id], class);
    }
    cr_expect_eq(wrong, 0, "%d wrong", wrong);
    cr_expect(map[0] == 0 && map[1] == 1 && map[2] == 2 && map[129264] == 99076 &&
              map[128799] == 98611);
    dsf_mem_free(map);
    dsf_buf_free(&want);
    dsf_bpe_close(b);
}

/* In the small official models each word has an upper-case twin with a space: id / 2. */
Test(classes, pair_the_twins_of_the_small_official_tokenizers)
{
    static const char *const sets[] = {"tiny-a", "tiny-b", "long-c", "vision-d"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        char name[80];
        dsf_bpe *b = NULL;
        int32_t map[4096];
        int n_classes = 0;
        (void)snprintf(name, sizeof name, "golden-official/%s/tokenizer.json", sets[i]);
        cr_assert_eq(dsf_bpe_open(&b, data_path(name)), DSF_OK, "%s", dsf_error_text());
        cr_assert_leq(dsf_bpe_n_vocab(b), 4096);
        cr_assert_eq(dsf_classes_build(b, map, &n_classes), DSF_OK, "%s", dsf_error_text());
        cr_expect_eq(n_classes, dsf_bpe_n_vocab(b) / 2, "%s: %d classes", sets[i], n_classes);
        for (int32_t id = 0; id < dsf_bpe_n_vocab(b); id++)
            cr_expect_eq(map[id], id / 2, "%s: id %d: %d", sets[i], id, map[id]);
        dsf_bpe_close(b);
    }
}

typedef struct {
    const char *json;
    int32_t want[8];
    int n;
} law;

#define TOKENIZER(vocab, added)                                                                    \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab                                           \
    "}, \"merges\": []}, \"added_tokens\": [" added                                                \
    "], \"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "      \
    "\"pretokenizers\": [{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "   \
    "false}]}}"

/* [B-40] */
Test(classes, follow_the_steps_of_the_normal_form)
{
    static const law laws[] = {
        /* case, accents, compatibility forms (fi ligature), outer white space */
        {TOKENIZER("\"a\": 0, \"A\": 1, \"ĠA\": 2, \"Ã¡\": 3, \"aÌģ\": 4, \"ï¬ģ\": 5, \"FI\": 6",
                   ""),
         {0, 0, 0, 0, 0, 1, 1},
         7},
        /* blanks are one class, and are not the empty text; U+3000 alone strips to nothing: itself
         */
        {TOKENIZER("\"Ġ\": 0, \"ĠĠ\": 1, \"ĉ\": 2, \"Ċčĉ\": 3, \"ãĢĢ\": 4, \"Âł\": 5", ""),
         {0, 0, 0, 0, 0, 0},
         6},
        /* a mark alone becomes empty: its own text; part of a character: its letters */
        {TOKENIZER("\"Ìģ\": 0, \"Ì\": 1, \"ģ\": 2, \"Ì\\u0301\": 3", ""), {0, 1, 2, 3}, 4},
        /* U+E000 stands for that one space on the way, so its own kind joins the blanks */
        {TOKENIZER("\"Ġ\": 0, \"îĢĢ\": 1, \"aîĢĢb\": 2, \"aĠb\": 3", ""), {0, 0, 1, 1}, 4},
        /* final sigma has no rule of its own; dotted capital I loses its dot */
        {TOKENIZER("\"Î£\": 0, \"Ïĥ\": 1, \"Ïĩ\": 2, \"Ä°\": 3, \"i\": 4", ""), {0, 0, 1, 2, 2}, 5},
    };
    for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
        dsf_bpe *b = NULL;
        int32_t map[8];
        int n_classes = 0;
        cr_assert_eq(dsf_bpe_parse(&b, "t", laws[i].json, strlen(laws[i].json)), DSF_OK, "%s",
                     dsf_error_text());
        cr_assert_eq(dsf_bpe_n_vocab(b), laws[i].n);
        cr_assert_eq(dsf_classes_build(b, map, &n_classes), DSF_OK);
        for (int id = 0; id < laws[i].n; id++)
            cr_expect_eq(map[id], laws[i].want[id], "law %zu: id %d: %d", i, id, map[id]);
        dsf_bpe_close(b);
    }
}

Test(classes, a_hole_in_the_ids_is_refused)
{
    static const char json[] = TOKENIZER("\"a\": 0, \"b\": 2", "");
    dsf_bpe *b = NULL;
    int32_t map[3];
    int n_classes = 0;
    cr_assert_eq(dsf_bpe_parse(&b, "t", json, strlen(json)), DSF_OK);
    cr_expect_eq(dsf_classes_build(b, map, &n_classes), DSF_ECORRUPT);
    cr_expect_str_eq(dsf_error_message(), "tokenizer: id 1 has no token, so no Engram class");
    dsf_bpe_close(b);
}
