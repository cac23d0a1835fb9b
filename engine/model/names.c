#include "model/names.h"

#include <stdio.h>
#include <string.h>

typedef enum { TOP, LAYER, EXPERT, FIRST, LAST, BLOCK } scope;
typedef enum { ALWAYS, KV, GATED, INDEX, ENGRAM, VISION } condition;

typedef struct {
    const char *name, *shape;
    scope scope;
    condition when;
    dsf_dtype dtype;
    dsf_part part;
} row;

static const row rows[] = {
#define X(id, in, if_, text, type, letters, of)                                                    \
    {.name = (text),                                                                               \
     .shape = (letters),                                                                           \
     .scope = (in),                                                                                \
     .when = (if_),                                                                                \
     .dtype = DSF_##type,                                                                          \
     .part = DSF_PART_##of},
    DSF_ROLE_MAP(X)
#undef X
};

const char *dsf_names_role(dsf_role role) { return rows[role].name; }

const char *dsf_names_part(dsf_part part)
{
    static const char *const text[] = {
#define X(id, words) words,
        DSF_PART_MAP(X)
#undef X
    };
    return text[part];
}

bool dsf_names_scaled(dsf_role role)
{
    return rows[role].dtype == DSF_E4M3 || rows[role].dtype == DSF_E2M1X2;
}

static int64_t vision_size(const dsf_vision_config *v, char letter)
{
    switch (letter) {
    case 'v':
        return v->dim;
    case 'x':
        return 3 * (int64_t)v->dim;
    case 'p':
        return 3 * (int64_t)v->patch_size * v->patch_size;
    case 'z':
        return v->inter_dim;
    case 'y':
        return 2 * (int64_t)v->inter_dim;
    default: /* A */
        return (int64_t)v->dim * v->downsample_ratio * v->downsample_ratio;
    }
}

static int64_t attention_size(const dsf_config *c, char letter)
{
    switch (letter) {
    case 'q':
        return c->q_lora_rank;
    case 'Q':
        return (int64_t)c->n_heads * c->head_dim;
    case 'h':
        return c->head_dim;
    case 'H':
        return c->n_heads;
    case 'o':
        return (int64_t)c->o_groups * c->o_lora_rank;
    case 'i':
        return (int64_t)c->n_heads * c->head_dim / c->o_groups;
    case 'N':
        return c->index_n_heads;
    case 'k':
        return c->index_head_dim;
    default: /* K */
        return (int64_t)c->index_n_heads * c->index_head_dim;
    }
}

static int64_t other_size(const dsf_config *c, int layer, char letter)
{
    int e;
    switch (letter) {
    case 'V':
        return c->vocab_size;
    case 'D':
        return c->dim;
    case 'M':
        return (2 + DSF_HC) * DSF_HC;
    case 'S':
        return (int64_t)DSF_HC * c->dim;
    case 'E':
        return layer < c->n_layers ? c->n_routed_experts : c->dspark_n_routed_experts;
    case 'I':
        return c->moe_inter_dim;
    case 'c':
        return c->dim / 2;
    case 'j':
        return c->moe_inter_dim / 2;
    case 'R':
        e = dsf_config_engram_at(c, layer);
        return e < 0 ? 0 : c->engram[e].rows;
    case 'e':
        return c->engram_head_dim;
    case 'W':
        return (int64_t)dsf_config_engram_columns(c) * c->engram_head_dim;
    case 'G':
        return (int64_t)(DSF_HC + 1) * c->dim;
    case 'T':
        return (int64_t)c->n_dspark_targets * c->dim;
    case 'm':
        return c->dspark_markov_rank;
    default: /* C */
        return (int64_t)c->dim + c->dspark_markov_rank;
    }
}

static int64_t size_of(const dsf_config *c, int layer, char letter)
{
    if (letter >= '0' && letter <= '9') return letter - '0';
    if (strchr("vxpzyA", letter)) return vision_size(&c->vision, letter);
    if (strchr("qQhHoiNkK", letter)) return attention_size(c, letter);
    return other_size(c, layer, letter);
}

static bool is_in(const int *list, int n, int layer)
{
    for (int i = 0; i < n; i++)
        if (list[i] == layer) return true;
    return false;
}

static bool holds(const dsf_config *c, int layer, condition when)
{
    switch (when) {
    case KV:
        return is_in(c->kv_source, c->n_kv_source, layer);
    case GATED:
        return is_in(c->kv_source, c->n_kv_source, layer) && c->ratio[layer] > 1;
    case INDEX:
        return is_in(c->index_source, c->n_index_source, layer);
    case ENGRAM:
        return dsf_config_engram_at(c, layer) >= 0;
    case VISION:
        return c->vision.present;
    default:
        return true;
    }
}

bool dsf_names_has(const dsf_config *c, int layer, dsf_role role)
{
    const row *r = &rows[role];
    int all = c->n_layers + c->n_mtp_layers;
    switch (r->scope) {
    case TOP:
        return holds(c, -1, r->when);
    case LAYER:
    case EXPERT:
        return layer >= 0 && layer < all && holds(c, layer, r->when);
    case FIRST:
        return c->n_mtp_layers > 0 && layer == c->n_layers;
    case LAST:
        return c->n_mtp_layers > 0 && layer == all - 1;
    default: /* BLOCK */
        return c->vision.present && layer >= 0 && layer < c->vision.n_layers;
    }
}

static void format(dsf_name *n, const dsf_config *c, const row *r)
{
    char prefix[64] = "";
    const char *kind = n->scale ? ".scale" : dsf_names_scaled(n->role) ? ".weight" : "";
    if (r->scope == BLOCK)
        (void)snprintf(prefix, sizeof prefix, "vision.blocks.%d.", n->layer);
    else if (r->scope != TOP && n->layer < c->n_layers)
        (void)snprintf(prefix, sizeof prefix, "layers.%d.", n->layer);
    else if (r->scope != TOP)
        (void)snprintf(prefix, sizeof prefix, "mtp.%d.", n->layer - c->n_layers);
    if (r->scope == EXPERT)
        (void)snprintf(n->name, sizeof n->name, "%sffn.experts.%d.%s%s", prefix, n->expert,
                       strrchr(r->name, '.') + 1, kind);
    else
        (void)snprintf(n->name, sizeof n->name, "%s%s%s", prefix, r->name, kind);
}

/* Dense fp8: one scale per 32 x 32 block; Engram tables and fp4: one per row and 32 columns. */
static void make_scale(dsf_name *n)
{
    bool by_row = n->dtype == DSF_E2M1X2 || n->role == DSF_ROLE_ENGRAM_EMBED;
    int64_t columns = n->dtype == DSF_E2M1X2 ? 2 * n->dim[1] : n->dim[1];
    n->dim[0] = by_row ? n->dim[0] : (n->dim[0] + 31) / 32;
    n->dim[1] = (columns + 31) / 32;
    n->dtype = DSF_E8M0;
}

static dsf_part part_of(const dsf_config *c, const row *r, int layer)
{
    if (r->scope != LAYER && r->scope != EXPERT) return r->part;
    if (layer < c->n_layers) return r->part;
    return r->scope == EXPERT ? DSF_PART_DRAFT_EXPERTS : DSF_PART_DRAFT;
}

void dsf_names_describe(const dsf_config *c, int layer, dsf_role role, int expert, bool scale,
                        dsf_name *out)
{
    const row *r = &rows[role];
    *out = (dsf_name){.role = role,
                      .layer = r->scope == TOP ? -1 : layer,
                      .expert = r->scope == EXPERT ? expert : -1,
                      .scale = scale,
                      .part = part_of(c, r, layer),
                      .dtype = r->dtype};
    for (const char *s = r->shape; *s; s++) out->dim[out->rank++] = size_of(c, layer, *s);
    if (scale) make_scale(out);
    out->bytes = dsf_dtype_bytes(out->dtype, 1);
    for (int i = 0; i < out->rank; i++) out->bytes *= out->dim[i];
    format(out, c, r);
}

void dsf_names_format(char out[128], const dsf_config *c, int layer, dsf_role role, int expert,
                      bool scale)
{
    dsf_name n;
    dsf_names_describe(c, layer, role, expert, scale, &n);
    memcpy(out, n.name, sizeof n.name);
}

dsf_names dsf_names_begin(const dsf_config *c) { return (dsf_names){.c = c}; }

static bool belongs(const dsf_names *it, int n_layers)
{
    bool top = rows[it->role].scope == TOP, block = rows[it->role].scope == BLOCK;
    if (it->group == 0) return top && dsf_names_has(it->c, -1, (dsf_role)it->role);
    if (top || block != (it->group > n_layers)) return false;
    int layer = it->group - 1 - (block ? n_layers : 0);
    return dsf_names_has(it->c, layer, (dsf_role)it->role);
}

/* One step: scale of the same weight, next tensor of this expert, next expert, next role, group. */
static void step(dsf_names *it, int n_layers)
{
    if (!it->scale && dsf_names_scaled((dsf_role)it->role)) {
        it->scale = true;
        return;
    }
    it->scale = false;
    it->role++;
    if (it->role == DSF_ROLE_EXPERT_W3 + 1 && it->group > 0 && it->group <= n_layers) {
        if (++it->expert < size_of(it->c, it->group - 1, 'E'))
            it->role = DSF_ROLE_EXPERT_W1;
        else
            it->expert = 0;
    }
    if (it->role < DSF_N_ROLES) return;
    it->role = 0;
    it->group++;
}

bool dsf_names_next(dsf_names *it, dsf_name *out)
{
    int n_layers = it->c->n_layers + it->c->n_mtp_layers;
    int groups = 1 + n_layers + (it->c->vision.present ? it->c->vision.n_layers : 0);
    if (it->started) step(it, n_layers);
    it->started = true;
    while (it->group < groups && !belongs(it, n_layers)) {
        it->scale = true; /* nothing of this role */
        step(it, n_layers);
    }
    if (it->group >= groups) return false;
    int block = it->group > n_layers ? n_layers : 0;
    dsf_names_describe(it->c, it->group - 1 - block, (dsf_role)it->role, it->expert, it->scale,
                       out);
    return true;
}
