#include "plan/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const dsf_tap_info dsf_taps[DSF_N_TAPS] = {
#define X(id, path, scope, rows, source)                                                           \
    {path, DSF_SCOPE_##scope, DSF_ROWS_##rows, DSF_SRC_##source},
    DSF_TAP_MAP(X)
#undef X
};

/* Inside a draft stage the row KV is called attn/kv: it is no window entry (dump-schema.md 5). */
static const char *stage_path(dsf_tap_id id)
{
    return id == DSF_TAP_ATTN_KV_WINDOW ? "attn/kv" : dsf_taps[id].path;
}

void dsf_tap_path(char out[64], dsf_tap tap, int n_layers)
{
    const dsf_tap_info *info = &dsf_taps[tap.id];
    if (info->scope == DSF_SCOPE_GLOBAL)
        (void)snprintf(out, 64, "%s", info->path);
    else if (info->scope == DSF_SCOPE_DRAFT)
        (void)snprintf(out, 64, "%s/%d", info->path, tap.layer - n_layers);
    else if (tap.layer >= n_layers)
        (void)snprintf(out, 64, "dspark/stages/%d/%s", tap.layer - n_layers, stage_path(tap.id));
    else
        (void)snprintf(out, 64, "layers/%02d/%s", tap.layer, info->path);
}

static bool find(dsf_tap *out, dsf_tap_scope scope, const char *path, int layer, bool stage)
{
    for (int i = 0; i < DSF_N_TAPS; i++) {
        if (dsf_taps[i].scope != scope) continue;
        const char *p = stage ? stage_path((dsf_tap_id)i) : dsf_taps[i].path;
        if (strcmp(p, path) != 0) continue;
        *out = (dsf_tap){(dsf_tap_id)i, layer};
        return true;
    }
    return false;
}

bool dsf_tap_parse(dsf_tap *out, const char *path, int n_layers)
{
    if (*path == '/') path++;
    char *end;
    if (strncmp(path, "layers/", 7) == 0) {
        long l = strtol(path + 7, &end, 10);
        return end > path + 7 && *end == '/' && l >= 0 && l < n_layers &&
               find(out, DSF_SCOPE_LAYER, end + 1, (int)l, false);
    }
    if (strncmp(path, "dspark/stages/", 14) == 0) {
        long s = strtol(path + 14, &end, 10);
        return end > path + 14 && *end == '/' && s >= 0 && s < 64 &&
               find(out, DSF_SCOPE_LAYER, end + 1, n_layers + (int)s, true);
    }
    const char *ctx = "dspark/ctx_kv/";
    if (strncmp(path, ctx, strlen(ctx)) == 0) {
        long s = strtol(path + strlen(ctx), &end, 10);
        *out = (dsf_tap){DSF_TAP_DSPARK_CTX_KV, n_layers + (int)s};
        return end > path + strlen(ctx) && *end == 0 && s >= 0 && s < 64;
    }
    return find(out, DSF_SCOPE_GLOBAL, path, -1, false);
}

int64_t dsf_tap_order(dsf_tap tap, int n_layers)
{
    /* embed, layers, final, logits, dspark context, draft stages, draft head */
    int64_t group;
    if (tap.id == DSF_TAP_EMBED)
        group = 0;
    else if (tap.layer >= 0 && tap.layer < n_layers)
        group = 1 + tap.layer;
    else if (tap.id < DSF_TAP_DSPARK_TAP && tap.layer < 0)
        group = 1 + n_layers;
    else if (tap.id <= DSF_TAP_DSPARK_CTX_KV && tap.id >= DSF_TAP_DSPARK_TAP)
        group = 2 + n_layers;
    else if (tap.layer >= n_layers)
        group = 3 + tap.layer;
    else
        group = 1000;
    int64_t stage = tap.id == DSF_TAP_DSPARK_CTX_KV ? tap.layer - n_layers : 0;
    return (group * 128 + tap.id) * 64 + stage;
}
