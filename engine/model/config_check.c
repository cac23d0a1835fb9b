#include "model/config_check.h"

typedef struct {
    const dsf_config_file *f;
    const dsf_config *c;
    dsf_config_faults *faults;
} checker;

void dsf_config_mark(dsf_config_faults *f, const void *field)
{
    if (f->n_bad < (int)(sizeof f->bad / sizeof f->bad[0])) f->bad[f->n_bad++] = field;
}

static bool sound(const checker *k, const void *a, const void *b)
{
    for (int i = 0; i < k->faults->n_bad; i++)
        if (k->faults->bad[i] == a || k->faults->bad[i] == b) return false;
    return true;
}

/* Adds a fault when cond holds and both fields could be read. */
#define REFUSE(k, a, b, cond, ...)                                                                 \
    do {                                                                                           \
        if (sound((k), (a), (b)) && (cond)) dsf_faults_add(&(k)->faults->list, __VA_ARGS__);       \
    } while (0)

static void need_multiple(const checker *k, const char *name, const int *v, int of)
{
    REFUSE(k, v, v, *v % of, "%s: %d is not a multiple of %d", name, *v, of);
}

/* Quantisation groups: 32 channels each (3.2, 12). */
static void check_sizes(const checker *k)
{
    const dsf_config *c = k->c;
    need_multiple(k, "hidden_size", &c->dim, 32);
    need_multiple(k, "moe_intermediate_size", &c->moe_inter_dim, 32);
    need_multiple(k, "head_dim", &c->head_dim, 32);
    need_multiple(k, "q_lora_rank", &c->q_lora_rank, 32);
    need_multiple(k, "index_head_dim", &c->index_head_dim, 32);
    need_multiple(k, "engram_head_dim", &c->engram_head_dim, 32);
    need_multiple(k, "qk_rope_head_dim", &c->rope_head_dim, 2);
    REFUSE(k, &c->o_groups, &c->o_lora_rank, (int64_t)c->o_groups * c->o_lora_rank % 32,
           "o_groups %d x o_lora_rank %d is not a multiple of 32", c->o_groups, c->o_lora_rank);
    REFUSE(k, &c->n_heads, &c->o_groups, c->n_heads % c->o_groups,
           "num_attention_heads %d is not a multiple of o_groups %d", c->n_heads, c->o_groups);
    REFUSE(k, &c->rope_head_dim, &c->head_dim, c->rope_head_dim > c->head_dim,
           "qk_rope_head_dim %d is more than head_dim %d", c->rope_head_dim, c->head_dim);
    REFUSE(k, &c->rope_head_dim, &c->index_head_dim, c->rope_head_dim > c->index_head_dim,
           "qk_rope_head_dim %d is more than index_head_dim %d", c->rope_head_dim,
           c->index_head_dim);
    REFUSE(k, &c->beta_fast, &c->beta_slow, c->beta_fast <= c->beta_slow,
           "rope_scaling.beta_fast %g is not more than beta_slow %g", c->beta_fast, c->beta_slow);
    REFUSE(k, &c->n_activated_experts, &c->n_routed_experts,
           c->n_activated_experts > c->n_routed_experts,
           "num_experts_per_tok %d is more than n_routed_experts %d", c->n_activated_experts,
           c->n_routed_experts);
    REFUSE(k, &c->dspark_n_activated_experts, &c->dspark_n_routed_experts,
           c->dspark_n_activated_experts > c->dspark_n_routed_experts,
           "dspark_num_experts_per_tok %d is more than dspark_n_routed_experts %d",
           c->dspark_n_activated_experts, c->dspark_n_routed_experts);
}

static void check_tokens(const checker *k)
{
    const dsf_config *c = k->c;
    const struct {
        const char *name;
        const int *id;
    } token[] = {{"bos_token_id", &c->bos_id},
                 {"eos_token_id", &c->eos_id},
                 {"pad_token_id", &c->pad_id},
                 {"image_token_id", &c->image_id},
                 {"engram_pad_token_id", &c->engram_pad_id},
                 {"dspark_noise_token_id", &c->dspark_noise_token_id}};
    for (int i = 0; i < (int)(sizeof token / sizeof token[0]); i++)
        REFUSE(k, token[i].id, &c->vocab_size, *token[i].id >= c->vocab_size,
               "%s %d is outside vocab_size %lld", token[i].name, *token[i].id,
               (long long)c->vocab_size);
    REFUSE(k, &c->engram_compressed_vocab_size, &c->vocab_size,
           c->engram_compressed_vocab_size > c->vocab_size,
           "engram_compressed_vocab_size %d is more than vocab_size %lld",
           c->engram_compressed_vocab_size, (long long)c->vocab_size);
}

/* Ascending, so unique, and inside the backbone. */
static bool check_list(const checker *k, const char *name, const int *list, int n)
{
    if (!sound(k, list, &k->c->n_layers)) return false;
    for (int i = 0; i < n; i++) {
        if (list[i] >= k->c->n_layers) {
            dsf_faults_add(&k->faults->list, "%s[%d]: layer %d, num_hidden_layers is %d", name, i,
                           list[i], k->c->n_layers);
            return false;
        }
        if (i && list[i] <= list[i - 1]) {
            dsf_faults_add(&k->faults->list, "%s[%d]: layer %d after layer %d; it must ascend",
                           name, i, list[i], list[i - 1]);
            return false;
        }
    }
    return true;
}

static bool check_ratios(const checker *k)
{
    const dsf_config *c = k->c;
    if (!sound(k, c->ratio, &c->n_layers) || !sound(k, &c->n_mtp_layers, NULL)) return false;
    int all = c->n_layers + c->n_mtp_layers;
    if (all > DSF_MAX_LAYERS || k->f->n_ratios != all) {
        dsf_faults_add(&k->faults->list,
                       "compress_ratios: %d entries for num_hidden_layers %d + "
                       "num_nextn_predict_layers %d (at most %d in all)",
                       k->f->n_ratios, c->n_layers, c->n_mtp_layers, DSF_MAX_LAYERS);
        return false;
    }
    for (int l = c->n_layers; l < all; l++)
        if (c->ratio[l])
            dsf_faults_add(&k->faults->list,
                           "compress_ratios[%d]: %d; draft stages are window only, 0", l,
                           c->ratio[l]);
    return true;
}

static bool contains(const int *list, int n, int layer)
{
    for (int i = 0; i < n; i++)
        if (list[i] == layer) return true;
    return false;
}

static void check_sources(const checker *k)
{
    const dsf_config *c = k->c;
    dsf_faults *list = &k->faults->list;
    for (int i = 0; i < c->n_kv_source; i++) {
        int l = c->kv_source[i];
        if (!c->ratio[l])
            dsf_faults_add(list, "kv_source_layer_ids: layer %d has compress_ratio 0", l);
        if (!contains(c->index_source, c->n_index_source, l))
            dsf_faults_add(list,
                           "kv_source_layer_ids: layer %d is not one of index_source_layer_ids", l);
    }
    for (int i = 0; i < c->n_index_source; i++)
        if (!c->ratio[c->index_source[i]])
            dsf_faults_add(list, "index_source_layer_ids: layer %d has compress_ratio 0",
                           c->index_source[i]);
    for (int l = 0; l < c->n_layers; l++) {
        if (!c->ratio[l]) continue;
        int s = dsf_config_kv_source(c, l);
        if (s < 0)
            dsf_faults_add(list,
                           "compress_ratios[%d]: %d, but no kv_source_layer_ids is at or before it",
                           l, c->ratio[l]);
        else if (c->ratio[s] && c->ratio[s] != c->ratio[l])
            dsf_faults_add(list, "compress_ratios[%d]: %d, but its kv source %d has %d", l,
                           c->ratio[l], s, c->ratio[s]);
        if (dsf_config_index_source(c, l) < 0)
            dsf_faults_add(list, "compress_ratios[%d]: %d, but no index source is at or before it",
                           l, c->ratio[l]);
    }
}

/* The pool holds entries of the candidate source's compressed cache (6.3): layers that are masked
 * by it must read the same cache, and it must hold at least index_topk visible entries. */
static void check_pool(const checker *k)
{
    const dsf_config *c = k->c;
    int s = c->candidate_source_layer;
    if (s < 0) return;
    if (!contains(c->index_source, c->n_index_source, s))
        dsf_faults_add(&k->faults->list,
                       "candidate_source_layer_id: layer %d is not one of index_source_layer_ids",
                       s);
    if (c->n_kv_source && c->kv_source[c->n_kv_source - 1] > s)
        dsf_faults_add(&k->faults->list,
                       "candidate_source_layer_id: layer %d is before kv source %d, whose entries "
                       "its pool does not hold",
                       s, c->kv_source[c->n_kv_source - 1]);
    int64_t least = (int64_t)(c->candidate_topk_blocks - 1) * c->candidate_block_size + 1;
    REFUSE(k, &c->candidate_topk_blocks, &c->candidate_block_size,
           sound(k, &c->index_topk, NULL) && least < c->index_topk,
           "a pool of candidate_topk_blocks %d x candidate_block_size %d may hold %lld entries, "
           "less than index_topk %d",
           c->candidate_topk_blocks, c->candidate_block_size, (long long)least, c->index_topk);
}

static void check_schedule(const checker *k)
{
    const dsf_config *c = k->c;
    bool ratios = check_ratios(k);
    bool kv = check_list(k, "kv_source_layer_ids", c->kv_source, c->n_kv_source);
    bool index = check_list(k, "index_source_layer_ids", c->index_source, c->n_index_source);
    if (!ratios || !kv || !index) return;
    check_sources(k);
    if (sound(k, &c->candidate_source_layer, NULL)) check_pool(k);
}

static void check_engram(const checker *k)
{
    const dsf_config_file *f = k->f;
    const dsf_config *c = k->c;
    (void)check_list(k, "engram_layer_ids", f->engram_layer, f->n_engram_layers);
    REFUSE(k, f->engram_layer, NULL, f->n_engram_layers > DSF_MAX_ENGRAMS,
           "engram_layer_ids: %d layers, at most %d", f->n_engram_layers, DSF_MAX_ENGRAMS);
    REFUSE(k, f->engram_layer, f->engram_rows, f->n_engram_layers != f->n_engram_rows,
           "engram_layer_ids has %d entries, engram_num_embeddings %d", f->n_engram_layers,
           f->n_engram_rows);
    REFUSE(k, &c->engram_max_ngram_size, &c->engram_n_heads,
           dsf_config_engram_columns(c) > DSF_MAX_ENGRAM_COLUMNS,
           "engram_max_ngram_size %d with engram_n_heads %d makes %d columns, at most %d",
           c->engram_max_ngram_size, c->engram_n_heads, dsf_config_engram_columns(c),
           DSF_MAX_ENGRAM_COLUMNS);
}

static void check_draft(const checker *k)
{
    const dsf_config *c = k->c;
    (void)check_list(k, "dspark_target_layer_ids", c->dspark_target, c->n_dspark_targets);
    REFUSE(k, c->dspark_target, &c->n_mtp_layers, c->n_mtp_layers && !c->n_dspark_targets,
           "dspark_target_layer_ids is empty with num_nextn_predict_layers %d", c->n_mtp_layers);
}

static void check_vision(const checker *k)
{
    const dsf_vision_config *v = &k->c->vision;
    if (!v->present) return;
    REFUSE(k, &v->dim, &v->n_heads, v->n_heads && v->dim % (4 * v->n_heads),
           "vision_config: hidden_size %d is not a multiple of 4 x num_attention_heads %d", v->dim,
           v->n_heads);
}

void dsf_config_check(const dsf_config_file *file, dsf_config_faults *faults)
{
    checker k = {.f = file, .c = &file->c, .faults = faults};
    check_sizes(&k);
    check_tokens(&k);
    check_schedule(&k);
    check_engram(&k);
    check_draft(&k);
    check_vision(&k);
}
