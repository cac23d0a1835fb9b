/* Byte-level BPE files for the presets. mini: the released pre-tokenizer and protocol tokens over a
 * small vocabulary; tiny: token 2k reads "w{k}", 2k+1 " W{k}", so that the Engram class is id/2. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "model/synth.h"

/* Merges in rank order, "left right|"; bytes in the byte-level alphabet, _ for its space symbol. */
static const char merges[] =
    "_ t|_ a|i n|h e|e r|o n|r e|e n|a t|_t he|_ o|_o f|_a n|_an d|_t o|_ in|_ i|_i s|_i t|"
    "_ _|__ __|\u010a \u010a|_ s|_ c|o r|e s|a n|i s|i t|a l|e d|a r|in g|n d|i on|i c|l e|"
    "a s|r o|en t|c t|_ m|_m o|_mo d|_mod e|_mode l|_ l|_l a|_la y|_lay er|_to k|_tok en|"
    "_t h|_th at|_th is|_ f|_f or|_ w|_w it|_wit h|_ y|_y o|_yo u|_a re|_ b|_b e|_ n|_n o|"
    "_no t|_ h|_h a|_ha v|_hav e|_f ro|_fro m|_w h|_wh at|_c an|_ T|_T he|_ A|_ I|_I t|_ W|"
    "_W e|_I n|_ H|_H e|_He l|_Hel l|_Hell o|_ he|_he l|_hel l|_hell o|_w or|_wor l|"
    "_worl d|H e|He l|Hel l|Hell o|T he|_an s|_ans w|_answ er|_ q|_q u|_qu es|_ques t|"
    "_quest ion|_ u|_u s|_us er|_ on|_on e|_t w|_tw o|_th re|_thre e|_s a|_sa y|1 0|0 0|"
    "2 0|1 9|. .|.. .|. \u010a\u010a|: \u010a|_ \"|\" .|( )|{ }|c a|ca f|caf \u00c3|"
    "caf\u00c3 \u00a9|\u00c3 \u00a9|_n a|_na \u00c3|_na\u00c3 \u00af|_na\u00c3\u00af v|"
    "_na\u00c3\u00afv e|\u00e4 \u00b8|\u00e4\u00b8 \u0143|\u00e6 \u0138|"
    "\u00e6\u0138 \u0129|\u00e4 \u00bd|\u00e4\u00bd \u0142|\u00e5 \u00a5|"
    "\u00e5\u00a5 \u00bd|\u00e3 \u0122|\u00e3\u0122 \u0124|\u00ef \u00bc|"
    "\u00ef\u00bc \u012e|\u00f0 \u0141|\u00f0\u0141 \u013b|\u00f0\u0141\u013b \u0124|"
    "\u00e2 \u0122|\u00e2\u0122 \u013b|\u00e2\u0122 \u013e|_na m|_nam e|_ v|_v al|_val u|"
    "_valu e|at ion|_n u|_nu m|_num b|_numb er|_l is|_lis t|_c o|_co d|_cod e|_the re|"
    "_the i|_thei r|_m a|_ma k|_mak e|_t i|_ti m|_tim e|_hel p|l y|m ent|a b|ab le|_ k|"
    "_k n|_kn o|_kno w|_h o|_ho w|_wh y|_w r|_wr it|_writ e|_ re|_re a|_rea d|_to o|_too l|"
    "_c al|_cal l|_re s|_res u|_resu l|_resul t|_i m|_im a|_ima g|_imag e|_I s|_T H|_TH E|"
    "_wor d";

/* The chain of encoding.md 4; as JSON strings. */
static const char pre_tokenizer[] =
    "{\"type\": \"Sequence\", \"pretokenizers\": ["
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, "
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, "
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|"
    "\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, "
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": false}]}";

static const char tiny_pre_tokenizer[] =
    "{\"type\": \"Sequence\", \"pretokenizers\": ["
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \" ?[wW][0-9]+|\\\\s+|[^\\\\s]\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, "
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": false}]}";

static const char after_model[] =
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
    "\"trim_offsets\": false, \"use_regex\": true},\n"
    "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
    "\"trim_offsets\": true, \"use_regex\": true},\n"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
    "\"fuse_unk\": false, \"byte_fallback\": false";

/* A released protocol token (FULLWIDTH VERTICAL LINE, LOWER ONE EIGHTH BLOCK) and its flags. */
typedef struct {
    const char *text;
    int id;
    bool special, normalized;
} added;

static const added mini_added[] = {
    {"<\uff5cbegin\u2581of\u2581sentence\uff5c>", 0, true, false},
    {"<\uff5cend\u2581of\u2581sentence\uff5c>", 1, true, false},
    {"<\uff5c\u2581pad\u2581\uff5c>", 2, true, false},
    {"<\uff5cSystem\uff5c>", 480, false, true},
    {"<\uff5cUser\uff5c>", 481, false, true},
    {"<\uff5cAssistant\uff5c>", 482, false, true},
    {"<think>", 483, false, true},
    {"</think>", 484, false, true},
    {"\uff5cDSML\uff5c", 485, false, true},
    {"<\uff5clatest_reminder\uff5c>", 486, false, true},
    {"<\uff5caction\uff5c>", 487, false, true},
    {"<\uff5cquery\uff5c>", 488, false, true},
    {"<\uff5cauthority\uff5c>", 489, false, true},
    {"<\uff5cdomain\uff5c>", 490, false, true},
    {"<\uff5ctitle\uff5c>", 491, false, true},
    {"<\uff5cread_url\uff5c>", 492, false, true},
    {"<\uff5cdeepseek_image\uff5c>", 493, false, false},
    {"<\uff5cfim\u2581hole\uff5c>", 494, false, true},
    {"<\uff5cfim\u2581begin\uff5c>", 495, false, true},
    {"<\uff5cfim\u2581end\uff5c>", 496, false, true},
    {"<|EOT|>", 497, false, true},
    {"<\uff5csearch\u2581begin\uff5c>", 498, false, true},
    {"<\uff5csearch\u2581end\uff5c>", 499, false, true},
    {"<\uff5cextracted_url\uff5c>", 500, false, true},
    {"<\uff5cend_of_query\uff5c>", 501, true, false},
    {"<\uff5crl_image_pad\uff5c>", 502, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25810\uff5c>", 503, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25811\uff5c>", 504, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25812\uff5c>", 505, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25813\uff5c>", 506, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25814\uff5c>", 507, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25815\uff5c>", 508, true, false},
    {"<\uff5cplace\u2581holder\u2581no\u25816\uff5c>", 509, true, false},
    {"<|place_holder_mm_span_0441|>", 510, false, false},
    {"<|place_holder_mm_span_0442|>", 511, true, false},
};

enum { FIRST_BYTE = 3, FIRST_MERGE = 259, SPACE_SYMBOL = 0x120 };

static void add_added(dsf_buf *b, const added *a, bool single_word, bool first)
{
    dsf_buf_fmt(b, "%s\n{\"id\": %d, \"content\": ", first ? "" : ",", a->id);
    dsf_json_quote(b, a->text, strlen(a->text));
    dsf_buf_fmt(b,
                ", \"single_word\": %s, \"lstrip\": false, \"rstrip\": false, "
                "\"normalized\": %s, \"special\": %s}",
                single_word ? "true" : "false", a->normalized ? "true" : "false",
                a->special ? "true" : "false");
}

static void open_file(dsf_buf *b)
{
    dsf_buf_str(b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
                   "\"added_tokens\": [");
}

/* The vocabulary's byte symbols in the order of the release: printable bytes stand for themselves,
 * the other 68 for U+0100 onwards. */
static void add_bytes(dsf_buf *b)
{
    int id = FIRST_BYTE;
    for (int c = 0x21; c < 0x144; c++) {
        char text[4];
        if ((c > 0x7E && c < 0xA1) || c == 0xAD) continue;
        size_t n = dsf_utf8_put(text, (uint32_t)c);
        dsf_buf_str(b, id > FIRST_BYTE ? ", " : "");
        dsf_json_quote(b, text, n);
        dsf_buf_fmt(b, ": %d", id++);
    }
}

/* One side of a merge up to the separator, with the space symbol in place; returns what follows. */
static const char *take_side(dsf_buf *out, const char *s, char until)
{
    for (; *s && *s != until; s++) {
        char text[4];
        if (*s == '_')
            dsf_buf_add(out, text, dsf_utf8_put(text, SPACE_SYMBOL));
        else
            dsf_buf_char(out, *s);
    }
    return *s ? s + 1 : s;
}

/* Every merge as a token ("left" + "right": id) or as a pair. */
static void add_merges(dsf_buf *b, bool as_tokens)
{
    int id = FIRST_MERGE;
    for (const char *s = merges; *s; id++) {
        dsf_buf text = {.max = 256};
        s = take_side(&text, s, ' ');
        if (!as_tokens) dsf_buf_char(&text, ' ');
        s = take_side(&text, s, '|');
        dsf_buf_str(b, as_tokens || id > FIRST_MERGE ? ", " : "");
        dsf_json_quote(b, text.data, text.len);
        if (as_tokens) dsf_buf_fmt(b, ": %d", id);
        dsf_buf_free(&text);
    }
}

static void add_mini(dsf_buf *b)
{
    open_file(b);
    for (int i = 0; i < (int)(sizeof mini_added / sizeof mini_added[0]); i++)
        add_added(b, &mini_added[i], false, i == 0);
    dsf_buf_fmt(b,
                "],\n\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []},\n"
                "\"pre_tokenizer\": %s,\n%s,\n\"vocab\": {",
                pre_tokenizer, after_model);
    for (int i = 0; i < 3; i++) {
        dsf_json_quote(b, mini_added[i].text, strlen(mini_added[i].text));
        dsf_buf_fmt(b, ": %d, ", i);
    }
    add_bytes(b);
    add_merges(b, true);
    dsf_buf_str(b, "},\n\"merges\": [");
    add_merges(b, false);
    dsf_buf_str(b, "]}}\n");
}

static void tiny_text(char out[24], int64_t id, const char *space)
{
    if (id % 2)
        (void)snprintf(out, 24, "%sW%d", space, (int)(id / 2));
    else
        (void)snprintf(out, 24, "w%d", (int)(id / 2));
}

static void add_tiny(dsf_buf *b, int64_t vocab)
{
    const int64_t special[] = {0, 1, 2, vocab - 2, vocab - 1};
    char text[24];
    open_file(b);
    for (int i = 0; i < 5; i++) {
        tiny_text(text, special[i], " ");
        add_added(b, &(added){text, (int)special[i], true, false}, true, i == 0);
    }
    dsf_buf_fmt(b,
                "],\n\"normalizer\": null,\n\"pre_tokenizer\": %s,\n%s, \"ignore_merges\": true,\n"
                "\"vocab\": {",
                tiny_pre_tokenizer, after_model);
    for (int64_t id = 0; id < vocab; id++) {
        bool is_added = id < 3 || id >= vocab - 2;
        tiny_text(text, id, is_added ? " " : "\u0120");
        dsf_buf_fmt(b, "%s\"%s\": %d", id ? ", " : "", text, (int)id);
    }
    dsf_buf_str(b, "},\n\"merges\": []}}\n");
}

static void add_config(dsf_buf *b, const char *const token[3], int64_t length)
{
    static const char *const key[] = {"bos_token", "eos_token", "pad_token"};
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "tokenizer_class", "PreTrainedTokenizerFast");
    for (int i = 0; i < 3; i++) dsf_json_add_cstr(b, key[i], token[i]);
    dsf_json_add_bool(b, "add_bos_token", false);
    dsf_json_add_bool(b, "add_eos_token", false);
    dsf_json_add_bool(b, "clean_up_tokenization_spaces", false);
    dsf_json_add_int(b, "model_max_length", length);
    dsf_json_end(b, '}');
    dsf_buf_char(b, '\n');
}

dsf_status dsf_synth_tokenizer(const char *preset, int64_t vocab, dsf_buf *json,
                               dsf_buf *config_json)
{
    if (strcmp(preset, "mini") == 0) {
        add_mini(json);
        add_config(
            config_json,
            (const char *const[]){mini_added[0].text, mini_added[1].text, mini_added[2].text},
            524288);
    } else if (strcmp(preset, "tiny") == 0 && vocab >= 8 && vocab <= 1 << 20) {
        add_tiny(json, vocab);
        add_config(config_json, (const char *const[]){"w0", " W0", "w1"}, 4096);
    } else {
        return DSF_FAIL(DSF_EINVAL, "no tokenizer for preset \"%s\" with %lld tokens", preset,
                        (long long)vocab);
    }
    DSF_TRY(dsf_buf_status(json));
    return dsf_buf_status(config_json);
}
