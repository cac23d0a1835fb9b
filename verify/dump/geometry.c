/* The shape of a model from its config.json, and the schema's row shapes from that shape. */
#include <string.h>

#include "base/json.h"
#include "verify/dump/types.h"

typedef struct {
    const char *name;
    const dsf_json *text; /* text_config, or the root where the config is flat */
} source;

static dsf_status read_int(const source *s, const char *key, int64_t max, int64_t *out)
{
    const dsf_json *v = dsf_json_get(s->text, key);
    if (!v || dsf_json_kind_of(v) == DSF_JSON_NULL) return DSF_OK;
    int64_t i;
    DSF_TRY(dsf_json_int(v, &i));
    if (i < 0 || i > max)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s is %lld, allowed 0..%lld", s->name, key, (long long)i,
                        (long long)max);
    *out = i;
    return DSF_OK;
}

/* A layer that need not be: -1 as well as null or no key is none. */
static dsf_status read_layer(const source *s, const char *key, int *out)
{
    const dsf_json *v = dsf_json_get(s->text, key);
    int64_t i = -1;
    *out = -1;
    if (!v || dsf_json_kind_of(v) == DSF_JSON_NULL) return DSF_OK;
    DSF_TRY(dsf_json_int(v, &i));
    if (i < -1 || i >= DSF_DUMP_MAX_LAYERS)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s is %lld, allowed -1 (none) to %d", s->name, key,
                        (long long)i, DSF_DUMP_MAX_LAYERS - 1);
    *out = (int)i;
    return DSF_OK;
}

static dsf_status read_int32(const source *s, const char *key, int *out)
{
    int64_t v = *out;
    DSF_TRY(read_int(s, key, 1 << 24, &v));
    *out = (int)v;
    return DSF_OK;
}

/* The integers of a list, at most n of them. */
static dsf_status read_list(const source *s, const char *key, int64_t max, int *out, int *n)
{
    *n = 0;
    const dsf_json *list = dsf_json_get(s->text, key);
    if (!list || dsf_json_kind_of(list) != DSF_JSON_ARRAY) return DSF_OK;
    for (const dsf_json *v = dsf_json_first(list); v; v = dsf_json_next(v)) {
        int64_t i;
        DSF_TRY(dsf_json_int(v, &i));
        if (i < 0 || i > max || *n == DSF_DUMP_MAX_LAYERS)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s[%d] is %lld, allowed 0..%lld and %d entries",
                            s->name, key, *n, (long long)i, (long long)max, DSF_DUMP_MAX_LAYERS);
        out[(*n)++] = (int)i;
    }
    return DSF_OK;
}

static dsf_status read_flags(const source *s, const char *key, bool flag[DSF_DUMP_MAX_LAYERS])
{
    int list[DSF_DUMP_MAX_LAYERS], n;
    DSF_TRY(read_list(s, key, DSF_DUMP_MAX_LAYERS - 1, list, &n));
    for (int i = 0; i < n; i++) flag[list[i]] = true;
    return DSF_OK;
}

static dsf_status read_numbers(dsf_dump_geometry *g, const source *s)
{
    const struct {
        const char *key;
        int *out;
    } field[] = {
        {"num_hidden_layers", &g->n_layers},
        {"num_nextn_predict_layers", &g->n_stages},
        {"hidden_size", &g->dim},
        {"num_attention_heads", &g->n_heads},
        {"head_dim", &g->head_dim},
        {"q_lora_rank", &g->q_lora},
        {"index_n_heads", &g->index_heads},
        {"index_head_dim", &g->index_dim},
        {"sliding_window", &g->window},
        {"index_topk", &g->index_topk},
        {"n_routed_experts", &g->n_experts},
        {"num_experts_per_tok", &g->n_activated},
        {"dspark_n_routed_experts", &g->stage_experts},
        {"dspark_num_experts_per_tok", &g->stage_activated},
        {"candidate_topk_blocks", &g->pool_blocks},
        {"candidate_block_size", &g->pool_block},
        {"engram_head_dim", &g->engram_dim},
        {"dspark_block_size", &g->draft_rows},
        {"dspark_markov_rank", &g->markov_rank},
    };
    for (unsigned i = 0; i < sizeof field / sizeof *field; i++)
        DSF_TRY(read_int32(s, field[i].key, field[i].out));
    DSF_TRY(read_layer(s, "candidate_source_layer_id", &g->pool_layer));
    DSF_TRY(read_int(s, "vocab_size", INT64_C(1) << 31, &g->vocab));
    if (g->n_layers + g->n_stages > DSF_DUMP_MAX_LAYERS)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %d layers and %d draft stages, at most %d together",
                        s->name, g->n_layers, g->n_stages, DSF_DUMP_MAX_LAYERS);
    int order = 0, heads = 0, n;
    DSF_TRY(read_int32(s, "engram_max_ngram_size", &order));
    DSF_TRY(read_int32(s, "engram_n_heads", &heads));
    g->engram_columns = order > 1 && order < 64 && heads < 1024 ? (order - 1) * heads : 0;
    DSF_TRY(read_list(s, "compress_ratios", 64, g->ratio, &n));
    DSF_TRY(read_flags(s, "kv_source_layer_ids", g->kv_source));
    DSF_TRY(read_flags(s, "index_source_layer_ids", g->index_source));
    DSF_TRY(read_flags(s, "engram_layer_ids", g->engram));
    return read_flags(s, "dspark_target_layer_ids", g->target);
}

dsf_status dsf_dump_geometry_parse(dsf_dump_geometry *g, const char *name, const char *text,
                                   size_t n)
{
    dsf_dump_geometry got = {.pool_layer = -1};
    dsf_json_doc *doc = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY(dsf_json_parse(&doc, name, text, n));
    const dsf_json *root = dsf_json_root(doc), *inner = dsf_json_get(root, "text_config");
    source s = {name, inner ? inner : root};
    DSF_TRY_OUT(read_numbers(&got, &s));
    *g = got;
out:
    dsf_json_free(doc);
    return st;
}

int dsf_dump_geometry_source(const bool *flag, int layer)
{
    while (layer >= 0 && !flag[layer]) layer--;
    return layer;
}

static int one(int64_t dim[3], int64_t a)
{
    dim[0] = a;
    return a > 0 ? 1 : -1;
}

static int two(int64_t dim[3], int64_t a, int64_t b)
{
    dim[0] = a;
    dim[1] = b;
    return a > 0 && b > 0 ? 2 : -1;
}

static int stages_differ(const dsf_dump_geometry *g, dsf_tap tap, int backbone, int stage)
{
    return tap.layer >= g->n_layers ? stage : backbone;
}

static int targets(const dsf_dump_geometry *g)
{
    int n = 0;
    for (int i = 0; i < g->n_layers; i++) n += g->target[i];
    return n;
}

static int entry_row(const dsf_dump_geometry *g, dsf_tap tap, int64_t n_tokens, int64_t dim[3])
{
    int ratio = tap.layer >= 0 ? g->ratio[tap.layer] : 0;
    int64_t entries = ratio ? n_tokens / ratio : 0;
    if (tap.id == DSF_TAP_ATTN_TOPK && entries > g->index_topk) entries = g->index_topk;
    dim[0] = entries; /* no entry at all (N < ratio): a width of zero */
    return ratio ? 1 : -1;
}

static int wide_row(const dsf_dump_geometry *g, dsf_tap_id id, int64_t dim[3])
{
    switch (id) {
    case DSF_TAP_ENGRAM_ROWS:
        return one(dim, g->engram_columns);
    case DSF_TAP_ENGRAM_EMB:
        return one(dim, (int64_t)g->engram_columns * g->engram_dim);
    case DSF_TAP_ENGRAM_KV:
        return one(dim, 5 * (int64_t)g->dim);
    case DSF_TAP_LOGITS:
    case DSF_TAP_DSPARK_BASE_LOGITS:
    case DSF_TAP_DSPARK_DRAFT_LOGITS:
        return one(dim, g->vocab);
    case DSF_TAP_DSPARK_TAP:
        return one(dim, (int64_t)targets(g) * g->dim);
    case DSF_TAP_DSPARK_MARKOV_EMBED:
        return one(dim, g->markov_rank);
    case DSF_TAP_DSPARK_DRAFT_IDS:
    case DSF_TAP_DSPARK_CONFIDENCE:
        return 0;
    default: /* streams collapsed: embed, u, y, h, norm, main */
        return one(dim, g->dim);
    }
}

int dsf_dump_geometry_row(const dsf_dump_geometry *g, dsf_tap tap, int64_t n_tokens, int64_t dim[3])
{
    switch (tap.id) {
    case DSF_TAP_IN:
    case DSF_TAP_ENGRAM_OUT:
    case DSF_TAP_MID:
    case DSF_TAP_OUT:
        return two(dim, 4, g->dim);
    case DSF_TAP_PREMIX:
    case DSF_TAP_ENGRAM_GATE:
    case DSF_TAP_ATTN_PRE:
    case DSF_TAP_ATTN_POST:
    case DSF_TAP_FFN_PRE:
    case DSF_TAP_FFN_POST:
        return one(dim, 4);
    case DSF_TAP_ATTN_COMB:
    case DSF_TAP_FFN_COMB:
        return two(dim, 4, 4);
    case DSF_TAP_ATTN_Q_LATENT:
        return one(dim, g->q_lora);
    case DSF_TAP_ATTN_Q:
    case DSF_TAP_ATTN_O:
        return two(dim, g->n_heads, g->head_dim);
    case DSF_TAP_ATTN_KV_WINDOW:
    case DSF_TAP_ATTN_LATENT:
    case DSF_TAP_ATTN_KV_MAIN:
    case DSF_TAP_DSPARK_CTX_KV:
        return one(dim, g->head_dim);
    case DSF_TAP_ATTN_INDEX_K:
        return one(dim, g->index_dim);
    case DSF_TAP_ATTN_INDEX_Q:
        return two(dim, g->index_heads, g->index_dim);
    case DSF_TAP_ATTN_INDEX_W:
        return one(dim, g->index_heads);
    case DSF_TAP_ATTN_INDEX_SCORES:
    case DSF_TAP_ATTN_POOL:
    case DSF_TAP_ATTN_TOPK:
        return entry_row(g, tap, n_tokens, dim);
    case DSF_TAP_FFN_ROUTER_SCORES:
        return one(dim, stages_differ(g, tap, g->n_experts, g->stage_experts));
    case DSF_TAP_FFN_EXPERT_IDS:
    case DSF_TAP_FFN_EXPERT_WEIGHTS:
        return one(dim, stages_differ(g, tap, g->n_activated, g->stage_activated));
    default:
        return wide_row(g, tap.id, dim);
    }
}

bool dsf_dump_geometry_has(const dsf_dump_geometry *g, dsf_tap tap)
{
    if (dsf_taps[tap.id].scope != DSF_SCOPE_LAYER)
        return tap.id < DSF_TAP_DSPARK_TAP || g->n_stages > 0;
    bool stage = tap.layer >= g->n_layers;
    switch (tap.id) {
    case DSF_TAP_ENGRAM_ROWS:
    case DSF_TAP_ENGRAM_EMB:
    case DSF_TAP_ENGRAM_KV:
    case DSF_TAP_ENGRAM_GATE:
    case DSF_TAP_ENGRAM_OUT:
        return !stage && g->engram[tap.layer];
    case DSF_TAP_ATTN_LATENT:
    case DSF_TAP_ATTN_KV_MAIN:
    case DSF_TAP_ATTN_INDEX_K:
        return !stage && g->kv_source[tap.layer];
    case DSF_TAP_ATTN_INDEX_Q:
    case DSF_TAP_ATTN_INDEX_W:
    case DSF_TAP_ATTN_INDEX_SCORES:
    case DSF_TAP_ATTN_TOPK:
        return !stage && g->index_source[tap.layer];
    case DSF_TAP_ATTN_POOL:
        return tap.layer == g->pool_layer;
    default:
        return true;
    }
}
