#include "limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/tensor.h"

static bool contains(const int *list, int n, int layer)
{
    for (int i = 0; i < n; i++)
        if (list[i] == layer) return true;
    return false;
}

int dsf_layer_kind(const dsf_config *c, int layer)
{
    int kind = c->ratio[layer] & DSF_KIND_RATIO;
    if (dsf_config_engram_at(c, layer) >= 0) kind |= DSF_KIND_ENGRAM;
    if (contains(c->kv_source, c->n_kv_source, layer)) kind |= DSF_KIND_KV;
    if (!contains(c->index_source, c->n_index_source, layer)) return kind;
    kind |= DSF_KIND_INDEX;
    int pool = c->candidate_source_layer;
    if (pool == layer) kind |= DSF_KIND_MAKES_POOL;
    if (pool >= 0 && layer > pool) kind |= DSF_KIND_USES_POOL;
    return kind;
}

void dsf_layer_kind_name(int kind, char *out)
{
    static const struct {
        int bit;
        const char *word;
    } word[] = {{DSF_KIND_KV, "stores"},
                {DSF_KIND_INDEX, "selects"},
                {DSF_KIND_MAKES_POOL, "makes pool"},
                {DSF_KIND_USES_POOL, "in pool"},
                {DSF_KIND_ENGRAM, "engram"}};
    size_t at = (size_t)snprintf(out, 64, kind & DSF_KIND_RATIO ? "ratio %d" : "window",
                                 kind & DSF_KIND_RATIO);
    for (int i = 0; i < (int)(sizeof word / sizeof *word); i++)
        if (kind & word[i].bit) at += (size_t)snprintf(out + at, 64 - at, ", %s", word[i].word);
}

/* Renumbers a list of layers, dropping those that are not kept; returns its new length. */
static int renumber(int *list, int n, const int *layer, int kept)
{
    int out = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < kept; k++)
            if (layer[k] == list[i]) list[out++] = k;
    return out;
}

static dsf_status check_sources(const dsf_config *c, const int *layer, int n)
{
    for (int k = 0; k < n; k++) {
        int l = layer[k];
        if (l < 0 || l >= c->n_layers || (k && l <= layer[k - 1]))
            return DSF_FAIL(DSF_EINVAL, "layer %d: 0 to %d, ascending", l, c->n_layers - 1);
        const int source[] = {dsf_config_kv_source(c, l), dsf_config_index_source(c, l)};
        for (int i = 0; i < 2; i++)
            if (source[i] >= 0 && !contains(layer, n, source[i]))
                return DSF_FAIL(DSF_EINVAL, "layer %d reads what layer %d keeps, which is left out",
                                l, source[i]);
        if (dsf_layer_kind(c, l) & DSF_KIND_USES_POOL &&
            !contains(layer, n, c->candidate_source_layer))
            return DSF_FAIL(DSF_EINVAL, "layer %d uses the pool of layer %d, which is left out", l,
                            c->candidate_source_layer);
    }
    return DSF_OK;
}

dsf_status dsf_layers_keep(dsf_config *c, const int *layer, int n)
{
    DSF_TRY(check_sources(c, layer, n));
    const dsf_config old = *c;
    memset(c->ratio, 0, sizeof c->ratio);
    for (int k = 0; k < n; k++) c->ratio[k] = old.ratio[layer[k]];
    c->n_layers = n;
    c->n_mtp_layers = 0;
    c->n_dspark_targets = 0;
    c->n_kv_source = renumber(c->kv_source, c->n_kv_source, layer, n);
    c->n_index_source = renumber(c->index_source, c->n_index_source, layer, n);
    if (renumber(&c->candidate_source_layer, 1, layer, n) == 0) c->candidate_source_layer = -1;
    int engrams = 0;
    for (int i = 0; i < old.n_engram; i++) {
        int at = old.engram[i].layer;
        if (renumber(&at, 1, layer, n) == 0) continue;
        c->engram[engrams] = old.engram[i];
        c->engram[engrams++].layer = at;
    }
    c->n_engram = engrams;
    return DSF_OK;
}

double dsf_layers_scale(const dsf_config *part, const double *time, const dsf_config *whole,
                        int from, int to, int *missing)
{
    double sum[DSF_N_KINDS] = {0}, all = 0;
    int count[DSF_N_KINDS] = {0};
    *missing = 0;
    for (int l = 0; l < part->n_layers; l++) {
        int kind = dsf_layer_kind(part, l);
        sum[kind] += time[l];
        count[kind]++;
    }
    for (int l = from; l < to; l++) {
        int kind = dsf_layer_kind(whole, l);
        if (count[kind])
            all += sum[kind] / count[kind];
        else
            ++*missing;
    }
    return all;
}

/* Parameters of one layer. */
typedef struct {
    double attention, expert, router, hc; /* fp8, fp4 or fp8, bf16, f32 */
    double index_query, compressor, index_key, engram;
} params;

static params params_of(const dsf_config *c)
{
    double h = c->dim, q = (double)c->n_heads * c->head_dim,
           o = (double)c->o_groups * c->o_lora_rank;
    double index = (double)c->index_n_heads * c->index_head_dim;
    double columns = (double)dsf_config_engram_columns(c) * c->engram_head_dim;
    return (params){.attention = c->q_lora_rank * h + q * c->q_lora_rank + c->head_dim * h +
                                 o * (q / c->o_groups) + h * o,
                    .expert = 3.0 * c->moe_inter_dim * h,
                    .router = c->n_routed_experts * h,
                    .hc = 2.0 * (2 + DSF_HC) * DSF_HC * DSF_HC * h,
                    .index_query = index * c->q_lora_rank,
                    .compressor = c->head_dim * h,
                    .index_key = (double)c->index_head_dim * c->head_dim,
                    .engram = (1 + DSF_HC) * h * columns};
}

/* Bytes as the calculator of the limits counts them: 1/1024 of scales on the fp8 matrices of every
 * layer; the few others without. */
static double dense_of(const dsf_config *c, const params *p, int layer)
{
    int kind = dsf_layer_kind(c, layer);
    double bytes = (p->attention + c->n_shared_experts * p->expert) * (1 + 1.0 / 1024) +
                   2 * p->router + 4 * p->hc;
    if (kind & DSF_KIND_ENGRAM) bytes += p->engram;
    if (kind & DSF_KIND_INDEX) bytes += p->index_query + 2.0 * c->index_n_heads * c->dim;
    if (kind & DSF_KIND_KV) bytes += 2 * p->compressor * (kind & DSF_KIND_RATIO) + p->index_key;
    return bytes;
}

/* Products of a prompt token in one layer of the first half, beside the routed experts. */
static double flops_of(const dsf_config *c, const params *p, int layer)
{
    int kind = dsf_layer_kind(c, layer);
    double macs = p->attention + c->n_shared_experts * p->expert + p->router + p->hc;
    if (kind & DSF_KIND_ENGRAM) macs += p->engram;
    if (kind & DSF_KIND_INDEX) macs += p->index_query + (double)c->index_n_heads * c->dim;
    if (kind & DSF_KIND_KV)
        macs += p->compressor * (kind & DSF_KIND_RATIO) + p->index_key / (kind & DSF_KIND_RATIO);
    return 2 * macs;
}

/* Bytes of index keys that a decode row reads in this layer, for each position of the context, or
 * for each entry of the pool. */
static void add_index(const dsf_config *c, int layer, dsf_inventory *inv)
{
    int kind = dsf_layer_kind(c, layer), ratio = kind & DSF_KIND_RATIO;
    double key = (double)dsf_dtype_bytes(DSF_Q4X, c->index_head_dim);
    if (!(kind & DSF_KIND_INDEX)) return;
    if (kind & DSF_KIND_USES_POOL)
        inv->index_pool += key;
    else
        inv->index_all += key / ratio;
    double score = 2.0 * c->index_n_heads * c->index_head_dim;
    if (layer < inv->first_decoder) inv->flops_index += score / ratio / 2;
}

void dsf_inventory_of(const dsf_config *c, dsf_inventory *inv)
{
    const params p = params_of(c);
    *inv = (dsf_inventory){.expert = p.expert * (0.5 + 1.0 / 32),
                           .head = 2.0 * (double)c->vocab_size * c->dim,
                           .experts = c->n_routed_experts,
                           .active = c->n_activated_experts,
                           .layers = c->n_layers,
                           .first_decoder = dsf_config_split(c),
                           .pool = (double)c->candidate_topk_blocks * c->candidate_block_size,
                           .hc_row = 2.0 * c->dim * (2 * DSF_HC + 2)};
    for (int l = 0; l < c->n_layers; l++) {
        inv->dense += dense_of(c, &p, l);
        add_index(c, l, inv);
        if (l >= inv->first_decoder) continue;
        double keys = c->window_size + (c->ratio[l] ? c->index_topk : 0);
        inv->flops_experts += 2.0 * c->n_activated_experts * p.expert;
        inv->flops_dense += flops_of(c, &p, l);
        inv->flops_attention += 4.0 * c->n_heads * c->head_dim * keys;
    }
    /* The first layer of the second half stores entries for every token. */
    if (inv->first_decoder < c->n_layers) inv->flops_dense += 2 * (p.compressor + p.index_key);
}

double dsf_limit_distinct(const dsf_inventory *inv, double rows)
{
    double e = inv->experts;
    return e * (1 - pow(1 - inv->active / e, rows));
}

double dsf_limit_decode(const dsf_inventory *inv, double rows, int64_t n, int g, double rate)
{
    double index = inv->index_all * (double)n + inv->index_pool * fmin((double)n, inv->pool);
    double bytes = inv->layers * dsf_limit_distinct(inv, rows) * inv->expert + inv->dense +
                   inv->head + rows * index;
    return bytes / (g * rate);
}

double dsf_limit_prefill(const dsf_inventory *inv, int64_t n, int g, double fp8, double bf16)
{
    double products = inv->flops_experts + inv->flops_dense + inv->flops_index * (double)n;
    return (products / fp8 + inv->flops_attention / bf16) / g;
}

double dsf_limit_stream(const dsf_inventory *inv, int64_t chunk, int g, double rate)
{
    return inv->first_decoder * dsf_limit_distinct(inv, (double)chunk) * inv->expert /
           (g * rate * (double)chunk);
}
