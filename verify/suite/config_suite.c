/* Suite config: one wrong number in a config costs days of tensor work, so every leaf of the file
 * is asked about, one by one. `values`: what the engine understood is what the file says, by the
 * names of the released form and by the flat names of architecture.md 1. `leaves`: change it, give
 * it another type, remove it: refused, or understood differently. `unknown`: strange, repeated and
 * contradictory keys are refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/config.h"
#include "verify/suite/edit.h"
#include "verify/suite/unit.h"

/* Flat names that are not the last part of the key (architecture.md 1): written here again, so that
 * a mistake in the engine's table is not repeated. */
typedef struct {
    const char *key, *flat;
} rename_row;
static const rename_row renames[] = {
    {"bos_token_id", "bos_id"},
    {"eos_token_id", "eos_id"},
    {"pad_token_id", "pad_id"},
    {"image_token_id", "image_id"},
    {"text_config.hidden_size", "dim"},
    {"text_config.moe_intermediate_size", "moe_inter_dim"},
    {"text_config.num_hidden_layers", "n_layers"},
    {"text_config.num_attention_heads", "n_heads"},
    {"text_config.qk_rope_head_dim", "rope_head_dim"},
    {"text_config.rms_norm_eps", "norm_eps"},
    {"text_config.max_position_embeddings", "max_seq_len"},
    {"text_config.rope_scaling.factor", "rope_factor"},
    {"text_config.rope_scaling.beta_fast", "beta_fast"},
    {"text_config.rope_scaling.beta_slow", "beta_slow"},
    {"text_config.rope_scaling.original_max_position_embeddings", "original_seq_len"},
    {"text_config.num_experts_per_tok", "n_activated_experts"},
    {"text_config.routed_scaling_factor", "route_scale"},
    {"text_config.sliding_window", "window_size"},
    {"text_config.kv_source_layer_ids", "kv_source_layers"},
    {"text_config.index_source_layer_ids", "index_source_layers"},
    {"text_config.candidate_source_layer_id", "candidate_source_layer"},
    {"text_config.engram_pad_token_id", "engram_pad_id"},
    {"text_config.num_nextn_predict_layers", "n_mtp_layers"},
    {"text_config.dspark_num_experts_per_tok", "dspark_n_activated_experts"},
    {"vision_config.num_hidden_layers", "vision_n_layers"},
    {"vision_config.hidden_size", "vision_dim"},
    {"vision_config.num_attention_heads", "vision_n_heads"},
    {"vision_config.intermediate_size", "vision_inter_dim"},
    {"vision_config.patch_size", "vision_patch_size"},
    {"vision_config.rope_theta", "vision_rope_theta"},
    {"vision_config.downsample_ratio", "vision_downsample_ratio"},
    {"vision_config.max_image_tokens", "vision_max_n_token"},
    {"vision_config.min_pixels", "vision_min_pixels"},
    {"vision_config.max_wh_ratio", "vision_max_wh_ratio"},
};

/* Carry no number that an inference needs: may be anything, and are taken as they are. */
static const char *const metadata[] = {"transformers_version", "text_config.initializer_range",
                                       "text_config.use_cache"};
/* One value only: the engine refuses any other (suite check `leaves`), so none need be stored. */
static const char *const fixed[] = {"architectures",
                                    "model_type",
                                    "dtype",
                                    "quantization_config.",
                                    "text_config.model_type",
                                    "text_config.num_key_value_heads",
                                    "text_config.hidden_act",
                                    "text_config.attention_bias",
                                    "text_config.attention_dropout",
                                    "text_config.tie_word_embeddings",
                                    "text_config.rope_scaling.rope_type",
                                    "text_config.scoring_func",
                                    "text_config.topk_method",
                                    "text_config.hc_mult",
                                    "vision_config.model_type"};

static bool is_metadata(const char *path)
{
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++)
        if (strcmp(path, metadata[i]) == 0) return true;
    return false;
}

/* Of a list. */
static bool is_element(const char *path)
{
    const char *last = strrchr(path, '.');
    return last && last[1] >= '0' && last[1] <= '9';
}

static bool is_fixed(const char *path)
{
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        size_t n = strlen(fixed[i]);
        bool below = fixed[i][n - 1] == '.' || path[n] == '.';
        if (strncmp(path, fixed[i], n) == 0 && (below || path[n] == 0)) return true;
    }
    return false;
}

/* ---- the file and what the engine makes of it ---- */

typedef struct {
    dsf_suite_check *c;
    dsf_file file;
    dsf_json_doc *doc, *written, *flat, *inference;
    dsf_buf original, text; /* the config as understood; the edited document */
    int64_t wrong, refused, understood;
} config;

/* The text with everything that the engine understood, without the digest of the bytes. */
static void describe(dsf_config *c, dsf_buf *b)
{
    memset(c->digest, 0, sizeof c->digest);
    dsf_config_json(c, b);
}

static dsf_status reparse(dsf_json_doc **out, const char *name, const dsf_buf *b)
{
    DSF_TRY(dsf_buf_status(b));
    return dsf_json_parse(out, name, b->data, b->len);
}

static dsf_status open_config(config *k, const char *model)
{
    char path[4096];
    dsf_config c;
    dsf_buf released = {.max = 0};
    dsf_status st;
    DSF_TRY_OUT(dsf_file_join(path, model, "config.json"));
    DSF_TRY_OUT(dsf_file_open(&k->file, path));
    const char *text = k->file.data ? (const char *)k->file.data : "";
    DSF_TRY_OUT(dsf_config_parse(&c, path, text, k->file.size, NULL));
    DSF_TRY_OUT(dsf_json_parse(&k->doc, path, text, k->file.size));
    dsf_config_write(&c, &released);
    DSF_TRY_OUT(reparse(&k->written, "the config as written again", &released));
    describe(&c, &k->original);
    DSF_TRY_OUT(reparse(&k->flat, "the config as understood", &k->original));
    DSF_TRY_OUT(dsf_file_join(path, model, "inference_config.json"));
    if (dsf_file_exists(path)) {
        dsf_file f;
        DSF_TRY_OUT(dsf_file_open(&f, path));
        st = dsf_json_parse(&k->inference, path, f.data ? (const char *)f.data : "", f.size);
        dsf_file_close(&f);
    }
out:
    dsf_buf_free(&released);
    return st;
}

static void close_config(config *k)
{
    dsf_json_free(k->doc);
    dsf_json_free(k->written);
    dsf_json_free(k->flat);
    dsf_json_free(k->inference);
    dsf_buf_free(&k->original);
    dsf_buf_free(&k->text);
    dsf_file_close(&k->file);
}

static double number_of(const dsf_json *v)
{
    double d;
    bool number = v && dsf_json_kind_of(v) == DSF_JSON_NUMBER;
    return number && dsf_json_double(v, &d) == DSF_OK ? d : NAN;
}

/* have: what the engine has in the place of want; both NULL where no value is the matter. */
static void wrong_at(config *k, const char *path, const dsf_json *want, const dsf_json *have,
                     const char *what)
{
    if (k->wrong++ == 0) dsf_suite_say(k->c, "%s: %s", path, what);
    dsf_suite_mark(k->c, path, -1, -1, number_of(want), number_of(have));
    dsf_buf_fmt(&k->c->detail, "  %s: %s\n", path, what);
}

/* ---- values ---- */

static const char *flat_name(const char *path)
{
    for (size_t i = 0; i < sizeof renames / sizeof *renames; i++)
        if (strcmp(renames[i].key, path) == 0) return renames[i].flat;
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* A value of the file, or a list of values: objects are walked into. */
static dsf_status compare_value(void *ud, const dsf_json *v, const char *path, bool leaf)
{
    config *k = ud;
    dsf_json_kind kind = dsf_json_kind_of(v);
    if (kind == DSF_JSON_OBJECT || is_element(path) || is_metadata(path)) return DSF_OK;
    (void)leaf;
    k->c->compared++;
    const dsf_json *again = dsf_edit_find(dsf_json_root(k->written), path);
    if (!dsf_edit_same(v, again))
        wrong_at(k, path, v, again, "written again from the struct it is another value");
    if (is_fixed(path)) return DSF_OK;
    const dsf_json *flat = dsf_json_get(dsf_json_root(k->flat), flat_name(path));
    if (!dsf_edit_same(v, flat)) wrong_at(k, path, v, flat, "the engine understood another value");
    return DSF_OK;
}

/* The other direction: what the engine would write and the file does not say. */
static dsf_status compare_written(void *ud, const dsf_json *v, const char *path, bool leaf)
{
    config *k = ud;
    if (!leaf || is_metadata(path)) return DSF_OK;
    k->c->compared++;
    if (!dsf_edit_find(dsf_json_root(k->doc), path))
        wrong_at(k, path, NULL, v, "the engine has a value that the file does not say");
    return DSF_OK;
}

/* The publisher's flat file beside it, where there is one. */
static dsf_status compare_inference(void *ud, const dsf_json *v, const char *path, bool leaf)
{
    config *k = ud;
    (void)leaf;
    if (!*path || strchr(path, '.')) return DSF_OK;
    const dsf_json *flat = dsf_json_get(dsf_json_root(k->flat), path);
    if (!flat) return DSF_OK;
    k->c->compared++;
    if (!dsf_edit_same(v, flat))
        wrong_at(k, path, v, flat, "inference_config.json says another value");
    return DSF_OK;
}

static dsf_status check_values(config *k, const char *model)
{
    DSF_TRY(open_config(k, model));
    DSF_TRY(dsf_edit_walk(dsf_json_root(k->doc), compare_value, k));
    DSF_TRY(dsf_edit_walk(dsf_json_root(k->written), compare_written, k));
    if (k->inference) DSF_TRY(dsf_edit_walk(dsf_json_root(k->inference), compare_inference, k));
    (void)snprintf(k->c->derivation, sizeof k->c->derivation,
                   "exact, in both directions (verification.md 13, tier 0)");
    dsf_suite_judge(k->c, k->wrong);
    if (!k->wrong)
        dsf_suite_say(k->c, "%lld values of config.json%s reach the engine and come back unchanged",
                      (long long)k->c->compared, k->inference ? " and inference_config.json" : "");
    return DSF_OK;
}

void dsf_suite_config_values(const dsf_suite_unit *u, dsf_suite_check *check)
{
    config k = {.c = check};
    if (check_values(&k, u->model) != DSF_OK) dsf_suite_could_not(check);
    close_config(&k);
}

/* ---- leaves ---- */

typedef enum { REFUSED, DIFFERENT, THE_SAME } outcome;

static dsf_status try_edit(config *k, const dsf_edit *e, outcome *out)
{
    dsf_config c;
    dsf_buf now = {.max = 0};
    k->text.len = 0;
    dsf_edit_write(dsf_json_root(k->doc), e, &k->text);
    DSF_TRY(dsf_buf_status(&k->text));
    k->c->compared++;
    dsf_status st = dsf_config_parse(&c, "config.json", k->text.data, k->text.len, NULL);
    *out = REFUSED;
    k->refused += st != DSF_OK;
    if (st != DSF_OK) return st == DSF_ENOMEM ? dsf_error_pass(st, DSF_HERE) : DSF_OK;
    describe(&c, &now);
    st = dsf_buf_status(&now);
    bool same = now.len == k->original.len && memcmp(now.data, k->original.data, now.len) == 0;
    *out = same ? THE_SAME : DIFFERENT;
    k->understood += !same;
    dsf_buf_free(&now);
    return st;
}

static dsf_status edit_leaf(void *ud, const dsf_json *v, const char *path, bool leaf)
{
    config *k = ud;
    outcome got = REFUSED;
    if (!leaf) return DSF_OK;
    bool meta = is_metadata(path), element = is_element(path);
    DSF_TRY(try_edit(k, &(dsf_edit){.kind = DSF_EDIT_CHANGE, .at = v}, &got));
    if (got == THE_SAME && !meta) wrong_at(k, path, NULL, NULL, "another value changes nothing");
    if (got == DIFFERENT && is_fixed(path))
        wrong_at(k, path, NULL, NULL, "another value is taken, though only one is known");
    if (got != THE_SAME && meta)
        wrong_at(k, path, NULL, NULL, "metadata, and yet it has an effect");
    DSF_TRY(try_edit(k, &(dsf_edit){.kind = DSF_EDIT_RETYPE, .at = v}, &got));
    if (got != REFUSED && !meta) wrong_at(k, path, NULL, NULL, "a list in its place is taken");
    DSF_TRY(try_edit(k, &(dsf_edit){.kind = DSF_EDIT_REMOVE, .at = v}, &got));
    /* a shorter list may be a config, but not the same one */
    if (!meta && got != REFUSED && !(element && got == DIFFERENT))
        wrong_at(k, path, NULL, NULL, "its absence is taken");
    return DSF_OK;
}

static dsf_status check_leaves(config *k, const char *model)
{
    outcome got = REFUSED;
    DSF_TRY(open_config(k, model));
    DSF_TRY(try_edit(k, &(dsf_edit){.kind = DSF_EDIT_NONE}, &got));
    if (got != THE_SAME) wrong_at(k, "config.json", NULL, NULL, "is not stable when written again");
    DSF_TRY(dsf_edit_walk(dsf_json_root(k->doc), edit_leaf, k));
    (void)snprintf(k->c->derivation, sizeof k->c->derivation,
                   "exact: each edit is refused or understood as another config");
    dsf_suite_judge(k->c, k->wrong);
    if (!k->wrong)
        dsf_suite_say(k->c,
                      "%lld edits of every leaf: %lld refused, %lld understood as another config; "
                      "metadata: transformers_version, initializer_range, use_cache",
                      (long long)k->c->compared, (long long)k->refused, (long long)k->understood);
    return DSF_OK;
}

void dsf_suite_config_leaves(const dsf_suite_unit *u, dsf_suite_check *check)
{
    config k = {.c = check};
    if (check_leaves(&k, u->model) != DSF_OK) dsf_suite_could_not(check);
    close_config(&k);
}

/* ---- unknown, repeated and contradictory ---- */

static dsf_status must_refuse(config *k, const dsf_edit *e, const char *path, const char *what)
{
    outcome got = REFUSED;
    DSF_TRY(try_edit(k, e, &got));
    if (got != REFUSED) wrong_at(k, path, NULL, NULL, what);
    return DSF_OK;
}

static dsf_status edit_object(void *ud, const dsf_json *v, const char *path, bool leaf)
{
    config *k = ud;
    (void)leaf;
    if (dsf_json_kind_of(v) == DSF_JSON_OBJECT)
        DSF_TRY(must_refuse(k, &(dsf_edit){.kind = DSF_EDIT_UNKNOWN, .at = v}, path,
                            "an unknown key is taken"));
    if (*path && !is_element(path))
        DSF_TRY(must_refuse(k, &(dsf_edit){.kind = DSF_EDIT_TWICE, .at = v}, path,
                            "the key is taken twice"));
    return DSF_OK;
}

/* A number of text_config; -1: not there. */
static int64_t text_number(const config *k, const char *key)
{
    int64_t n = -1;
    const dsf_json *v = dsf_json_get(dsf_json_get(dsf_json_root(k->doc), "text_config"), key);
    return v && dsf_json_int(v, &n) == DSF_OK ? n : -1;
}

static dsf_status contradict(config *k, const char *path, const char *raw, const char *what)
{
    const dsf_edit e = {
        .kind = DSF_EDIT_REPLACE, .at = dsf_edit_find(dsf_json_root(k->doc), path), .raw = raw};
    return e.at ? must_refuse(k, &e, path, what) : DSF_OK;
}

static dsf_status contradict_number(config *k, const char *path, int64_t v, const char *what)
{
    char raw[32];
    (void)snprintf(raw, sizeof raw, "%lld", (long long)v);
    return contradict(k, path, raw, what);
}

/* What architecture.md 1 says must hold between the numbers. */
static dsf_status contradictions(config *k)
{
    const dsf_json *root = dsf_json_root(k->doc);
    const dsf_json *ratio = dsf_edit_find(root, "text_config.compress_ratios.0");
    const dsf_json *index = dsf_edit_find(root, "text_config.index_source_layer_ids.0");
    const dsf_json *rows = dsf_edit_find(root, "text_config.engram_num_embeddings.0");
    DSF_TRY(contradict_number(k, "bos_token_id", text_number(k, "vocab_size"),
                              "a token outside the vocabulary is taken"));
    DSF_TRY(contradict_number(k, "text_config.qk_rope_head_dim", text_number(k, "head_dim") + 2,
                              "more rotated channels than there are is taken"));
    DSF_TRY(contradict_number(k, "text_config.num_experts_per_tok",
                              text_number(k, "n_routed_experts") + 1,
                              "more chosen experts than there are is taken"));
    DSF_TRY(contradict_number(k, "text_config.num_hidden_layers",
                              text_number(k, "num_hidden_layers") + 1,
                              "a layer without compress ratio is taken"));
    if (text_number(k, "candidate_source_layer_id") >= 0)
        DSF_TRY(contradict_number(k, "text_config.candidate_source_layer_id", 0,
                                  "a candidate source that is no index source is taken"));
    if (ratio)
        DSF_TRY(must_refuse(k, &(dsf_edit){.kind = DSF_EDIT_TWICE, .at = ratio},
                            "text_config.compress_ratios", "one ratio too many is taken"));
    if (index)
        DSF_TRY(must_refuse(k, &(dsf_edit){.kind = DSF_EDIT_REMOVE, .at = index},
                            "text_config.index_source_layer_ids",
                            "a KV source that is no index source is taken"));
    if (rows)
        DSF_TRY(must_refuse(k, &(dsf_edit){.kind = DSF_EDIT_CHANGE, .at = rows},
                            "text_config.engram_num_embeddings",
                            "table rows other than the sum of the primes are taken"));
    return DSF_OK;
}

static dsf_status check_unknown(config *k, const char *model)
{
    DSF_TRY(open_config(k, model));
    DSF_TRY(dsf_edit_walk(dsf_json_root(k->doc), edit_object, k));
    DSF_TRY(contradictions(k));
    (void)snprintf(k->c->derivation, sizeof k->c->derivation,
                   "exact: an unknown key is refused, unless --accept-config names it");
    dsf_suite_judge(k->c, k->wrong);
    if (!k->wrong)
        dsf_suite_say(k->c, "%lld unknown, repeated or contradictory keys, all refused",
                      (long long)k->c->compared);
    return DSF_OK;
}

void dsf_suite_config_unknown(const dsf_suite_unit *u, dsf_suite_check *check)
{
    config k = {.c = check};
    if (check_unknown(&k, u->model) != DSF_OK) dsf_suite_could_not(check);
    close_config(&k);
}
