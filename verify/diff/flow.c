#include "verify/diff/flow.h"

/* Which layer an input is taken from. */
typedef enum {
    NOT_USED,
    HERE,    /* the same layer or stage */
    STREAM,  /* the stream this layer works on: engram/out where it writes one, else in */
    BEFORE,  /* the layer or stage before */
    KV,      /* the layer whose main KV and index keys this one reads */
    INDEX,   /* the layer whose list this one reads */
    POOL,    /* the candidate source, where it lies before this layer */
    LAST,    /* the last layer */
    STAGE,   /* the last draft stage */
    TARGETS, /* the streams of all draft target layers */
    GLOBAL
} place;

typedef struct {
    dsf_tap_id id;
    place where;
} source;

enum { MOST_SOURCES = 4 };

/* An input that the layer's role excludes (a list in a window-only layer) is left out below. */
static const source flow[DSF_N_TAPS][MOST_SOURCES] = {
    [DSF_TAP_IN] = {{DSF_TAP_OUT, BEFORE}, {DSF_TAP_EMBED, GLOBAL}},
    [DSF_TAP_PREMIX] = {{DSF_TAP_FFN_PRE, BEFORE}},
    [DSF_TAP_ENGRAM_EMB] = {{DSF_TAP_ENGRAM_ROWS, HERE}},
    [DSF_TAP_ENGRAM_KV] = {{DSF_TAP_ENGRAM_EMB, HERE}},
    [DSF_TAP_ENGRAM_GATE] = {{DSF_TAP_IN, HERE}, {DSF_TAP_ENGRAM_KV, HERE}},
    [DSF_TAP_ENGRAM_OUT] = {{DSF_TAP_IN, HERE},
                            {DSF_TAP_ENGRAM_KV, HERE},
                            {DSF_TAP_ENGRAM_GATE, HERE}},
    [DSF_TAP_ATTN_PRE] = {{DSF_TAP_IN, STREAM}},
    [DSF_TAP_ATTN_POST] = {{DSF_TAP_IN, STREAM}},
    [DSF_TAP_ATTN_COMB] = {{DSF_TAP_IN, STREAM}},
    [DSF_TAP_ATTN_U] = {{DSF_TAP_IN, STREAM}, {DSF_TAP_PREMIX, HERE}},
    [DSF_TAP_ATTN_Q_LATENT] = {{DSF_TAP_ATTN_U, HERE}},
    [DSF_TAP_ATTN_Q] = {{DSF_TAP_ATTN_Q_LATENT, HERE}},
    [DSF_TAP_ATTN_KV_WINDOW] = {{DSF_TAP_ATTN_U, HERE}},
    [DSF_TAP_ATTN_LATENT] = {{DSF_TAP_ATTN_U, HERE}},
    [DSF_TAP_ATTN_KV_MAIN] = {{DSF_TAP_ATTN_LATENT, HERE}},
    [DSF_TAP_ATTN_INDEX_K] = {{DSF_TAP_ATTN_LATENT, HERE}},
    [DSF_TAP_ATTN_INDEX_Q] = {{DSF_TAP_ATTN_Q_LATENT, HERE}},
    [DSF_TAP_ATTN_INDEX_W] = {{DSF_TAP_ATTN_U, HERE}},
    [DSF_TAP_ATTN_INDEX_SCORES] = {{DSF_TAP_ATTN_INDEX_K, KV},
                                   {DSF_TAP_ATTN_INDEX_Q, HERE},
                                   {DSF_TAP_ATTN_INDEX_W, HERE}},
    [DSF_TAP_ATTN_POOL] = {{DSF_TAP_ATTN_INDEX_SCORES, HERE}},
    [DSF_TAP_ATTN_TOPK] = {{DSF_TAP_ATTN_POOL, POOL}, {DSF_TAP_ATTN_INDEX_SCORES, HERE}},
    [DSF_TAP_ATTN_O] = {{DSF_TAP_ATTN_KV_MAIN, KV},
                        {DSF_TAP_ATTN_TOPK, INDEX},
                        {DSF_TAP_ATTN_Q, HERE},
                        {DSF_TAP_ATTN_KV_WINDOW, HERE}},
    [DSF_TAP_ATTN_Y] = {{DSF_TAP_ATTN_O, HERE}},
    [DSF_TAP_MID] = {{DSF_TAP_IN, STREAM},
                     {DSF_TAP_ATTN_POST, HERE},
                     {DSF_TAP_ATTN_COMB, HERE},
                     {DSF_TAP_ATTN_Y, HERE}},
    [DSF_TAP_FFN_PRE] = {{DSF_TAP_MID, HERE}},
    [DSF_TAP_FFN_POST] = {{DSF_TAP_MID, HERE}},
    [DSF_TAP_FFN_COMB] = {{DSF_TAP_MID, HERE}},
    [DSF_TAP_FFN_U] = {{DSF_TAP_ATTN_PRE, HERE}, {DSF_TAP_MID, HERE}},
    [DSF_TAP_FFN_ROUTER_SCORES] = {{DSF_TAP_FFN_U, HERE}},
    [DSF_TAP_FFN_EXPERT_IDS] = {{DSF_TAP_FFN_ROUTER_SCORES, HERE}},
    [DSF_TAP_FFN_EXPERT_WEIGHTS] = {{DSF_TAP_FFN_ROUTER_SCORES, HERE},
                                    {DSF_TAP_FFN_EXPERT_IDS, HERE}},
    [DSF_TAP_FFN_Y] = {{DSF_TAP_FFN_U, HERE},
                       {DSF_TAP_FFN_EXPERT_IDS, HERE},
                       {DSF_TAP_FFN_EXPERT_WEIGHTS, HERE}},
    [DSF_TAP_OUT] = {{DSF_TAP_MID, HERE},
                     {DSF_TAP_FFN_POST, HERE},
                     {DSF_TAP_FFN_COMB, HERE},
                     {DSF_TAP_FFN_Y, HERE}},
    [DSF_TAP_FINAL_H] = {{DSF_TAP_FFN_PRE, LAST}, {DSF_TAP_OUT, LAST}},
    [DSF_TAP_FINAL_NORM] = {{DSF_TAP_FINAL_H, GLOBAL}},
    [DSF_TAP_LOGITS] = {{DSF_TAP_FINAL_NORM, GLOBAL}},
    [DSF_TAP_DSPARK_TAP] = {{DSF_TAP_IN, TARGETS}},
    [DSF_TAP_DSPARK_MAIN] = {{DSF_TAP_DSPARK_TAP, GLOBAL}},
    [DSF_TAP_DSPARK_CTX_KV] = {{DSF_TAP_DSPARK_MAIN, GLOBAL}},
    [DSF_TAP_DSPARK_H] = {{DSF_TAP_FFN_PRE, STAGE}, {DSF_TAP_OUT, STAGE}},
    [DSF_TAP_DSPARK_BASE_LOGITS] = {{DSF_TAP_DSPARK_H, GLOBAL}},
    [DSF_TAP_DSPARK_DRAFT_LOGITS] = {{DSF_TAP_DSPARK_BASE_LOGITS, GLOBAL},
                                     {DSF_TAP_DSPARK_MARKOV_EMBED, GLOBAL}},
    [DSF_TAP_DSPARK_DRAFT_IDS] = {{DSF_TAP_DSPARK_DRAFT_LOGITS, GLOBAL}},
    [DSF_TAP_DSPARK_CONFIDENCE] = {{DSF_TAP_DSPARK_H, GLOBAL},
                                   {DSF_TAP_DSPARK_MARKOV_EMBED, GLOBAL}},
};

static void add(dsf_tap out[DSF_FLOW_MAX], int *n, dsf_tap_id id, int layer)
{
    if (*n < DSF_FLOW_MAX) out[(*n)++] = (dsf_tap){id, layer};
}

static void add_stream(const dsf_dump_geometry *g, dsf_tap out[DSF_FLOW_MAX], int *n, int layer)
{
    bool written = layer < g->n_layers && g->engram[layer];
    add(out, n, written ? DSF_TAP_ENGRAM_OUT : DSF_TAP_IN, layer);
}

/* Layers and stages begin anew: the first has nothing before it. */
static bool has_before(const dsf_dump_geometry *g, int layer)
{
    return layer > 0 && layer != g->n_layers;
}

static void add_source(const dsf_dump_geometry *g, dsf_tap tap, source s, dsf_tap out[DSF_FLOW_MAX],
                       int *n)
{
    bool backbone = tap.layer >= 0 && tap.layer < g->n_layers;
    bool indexed = backbone && g->ratio[tap.layer] > 0;
    int last = g->n_layers - 1;
    switch (s.where) {
    case HERE:
        add(out, n, s.id, tap.layer);
        break;
    case STREAM:
        add_stream(g, out, n, tap.layer);
        break;
    case BEFORE:
        if (has_before(g, tap.layer)) add(out, n, s.id, tap.layer - 1);
        break;
    case KV:
    case INDEX: {
        const bool *flag = s.where == KV ? g->kv_source : g->index_source;
        int from = indexed ? dsf_dump_geometry_source(flag, tap.layer) : -1;
        if (from >= 0) add(out, n, s.id, from);
        break;
    }
    case POOL:
        if (backbone && g->pool_layer >= 0 && tap.layer > g->pool_layer)
            add(out, n, s.id, g->pool_layer);
        break;
    case LAST:
        add(out, n, s.id, last);
        break;
    case STAGE:
        add(out, n, s.id, last + g->n_stages);
        break;
    case TARGETS:
        for (int l = 0; l < g->n_layers; l++)
            if (g->target[l]) add_stream(g, out, n, l);
        break;
    case GLOBAL:
        if (tap.id != DSF_TAP_IN || tap.layer == 0) add(out, n, s.id, -1);
        break;
    case NOT_USED:
        break;
    }
}

int dsf_flow_inputs(const dsf_dump_geometry *g, dsf_tap tap, dsf_tap out[DSF_FLOW_MAX])
{
    int n = 0;
    if (tap.id < 0 || tap.id >= DSF_N_TAPS) return 0;
    /* a draft stage attends to the context rows and to its own block */
    if (tap.id == DSF_TAP_ATTN_O && tap.layer >= g->n_layers)
        add(out, &n, DSF_TAP_DSPARK_CTX_KV, tap.layer);
    /* the draft block starts from the best token of the last row */
    if (tap.id == DSF_TAP_IN && tap.layer == g->n_layers && g->n_stages > 0)
        add(out, &n, DSF_TAP_LOGITS, -1);
    for (int i = 0; i < MOST_SOURCES; i++) add_source(g, tap, flow[tap.id][i], out, &n);
    return n;
}
