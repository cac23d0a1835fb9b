/* Every key of tokenizer.json is either used, or checked to be off, or refused. */
#include "text/bpe_file.h"

#include <string.h>

/* null, false, 0, "" or an empty list: a feature that is not used. */
static bool is_off(const dsf_json *v)
{
    switch (dsf_json_kind_of(v)) {
    case DSF_JSON_NULL:
        return true;
    case DSF_JSON_BOOL:
        return !dsf_json_true(v);
    case DSF_JSON_STRING:
        return *dsf_json_text(v, NULL) == 0;
    default:
        return false;
    }
}

static bool is_one_of(const char *key, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(key, *list) == 0) return true;
    return false;
}

static bool has_type(const dsf_json *v, const char *want)
{
    const dsf_json *type = dsf_json_get(v, "type");
    return type && strcmp(dsf_json_text(type, NULL), want) == 0;
}

static dsf_status check_keys(const char *name, const char *where, const dsf_json *obj,
                             const char *const *used, const char *const *off)
{
    const char *twice = dsf_json_duplicate(obj);
    if (twice) return DSF_FAIL(DSF_ECORRUPT, "%s: %s%s occurs twice", name, where, twice);
    for (const dsf_json *m = dsf_json_first(obj); m; m = dsf_json_next(m)) {
        const char *key = dsf_json_key(m);
        if (is_one_of(key, used)) continue;
        if (!is_one_of(key, off))
            return DSF_FAIL(DSF_ENOTSUP, "%s: %s%s: unknown key", name, where, key);
        if (!is_off(m))
            return DSF_FAIL(DSF_ENOTSUP, "%s: %s%s is set, which is not supported", name, where,
                            key);
    }
    return DSF_OK;
}

static dsf_status check_model(dsf_bpe *b, const char *name, const dsf_json *model)
{
    static const char *const used[] = {"type", "ignore_merges", "vocab", "merges", NULL};
    static const char *const off[] = {
        "dropout",       "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
        "byte_fallback", NULL};
    if (!has_type(model, "BPE"))
        return DSF_FAIL(DSF_ENOTSUP, "%s: model.type: only BPE is supported", name);
    DSF_TRY(check_keys(name, "model.", model, used, off));
    const dsf_json *vocab = dsf_json_get(model, "vocab"), *merges = dsf_json_get(model, "merges");
    if (!vocab || dsf_json_kind_of(vocab) != DSF_JSON_OBJECT)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.vocab: no object", name);
    if (!merges || dsf_json_kind_of(merges) != DSF_JSON_ARRAY)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.merges: no array", name);
    const dsf_json *whole = dsf_json_get(model, "ignore_merges");
    b->whole_first = whole && dsf_json_true(whole);
    return DSF_OK;
}

/* The parts around the model: none of them may change ids or bytes. */
static dsf_status check_surroundings(const char *name, const dsf_json *root)
{
    static const char *const used[] = {
        "version",        "added_tokens", "normalizer", "pre_tokenizer",
        "post_processor", "decoder",      "model",      NULL};
    static const char *const off[] = {"truncation", "padding", NULL};
    if (dsf_json_kind_of(root) != DSF_JSON_OBJECT)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s, expected an object", name,
                        dsf_json_kind_name(dsf_json_kind_of(root)));
    DSF_TRY(check_keys(name, "", root, used, off));
    const dsf_json *v = dsf_json_get(root, "normalizer");
    const dsf_json *parts = dsf_json_get(v, "normalizers");
    if (v && !is_off(v) && !(has_type(v, "Sequence") && parts && dsf_json_count(parts) == 0))
        return DSF_FAIL(DSF_ENOTSUP, "%s: normalizer: only null or an empty Sequence is supported",
                        name);
    v = dsf_json_get(root, "post_processor");
    if (v && !is_off(v) && !has_type(v, "ByteLevel"))
        return DSF_FAIL(DSF_ENOTSUP, "%s: post_processor: only null or ByteLevel is supported",
                        name);
    v = dsf_json_get(root, "decoder");
    if (!v || !has_type(v, "ByteLevel"))
        return DSF_FAIL(DSF_ENOTSUP, "%s: decoder: only ByteLevel is supported", name);
    v = dsf_json_get(root, "added_tokens");
    if (v && !is_off(v) && dsf_json_kind_of(v) != DSF_JSON_ARRAY)
        return DSF_FAIL(DSF_ECORRUPT, "%s: added_tokens: no array", name);
    return DSF_OK;
}

dsf_status dsf_bpe_file_read(dsf_bpe *b, const char *name, const dsf_json *root)
{
    DSF_TRY(check_surroundings(name, root));
    const dsf_json *model = dsf_json_get(root, "model");
    if (!model) return DSF_FAIL(DSF_ECORRUPT, "%s: no model", name);
    DSF_TRY(check_model(b, name, model));
    const dsf_json *added = dsf_json_get(root, "added_tokens");
    DSF_TRY(dsf_vocab_load(&b->vocab, name, dsf_json_get(model, "vocab"), added));
    DSF_TRY(dsf_merges_load(&b->merges, name, &b->vocab, dsf_json_get(model, "merges")));
    return dsf_pretok_load(&b->pretok, name, dsf_json_get(root, "pre_tokenizer"));
}
