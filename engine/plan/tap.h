/* Tap names, one list in execution order, and the sink that a run shows them to. The names are
 * those of the dump format (dump-schema.md) and are stable: golden files use them. */
#ifndef DSF_PLAN_TAP_H
#define DSF_PLAN_TAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"

typedef enum { DSF_SCOPE_GLOBAL, DSF_SCOPE_LAYER, DSF_SCOPE_DRAFT } dsf_tap_scope;
/* What labels the first axis. DRAFT: rows of the draft block. */
typedef enum { DSF_ROWS_TOKEN, DSF_ROWS_ENTRY, DSF_ROWS_LOGITS, DSF_ROWS_DRAFT } dsf_tap_rows_kind;
/* The schema's source_dtype. */
typedef enum {
    DSF_SRC_BF16,
    DSF_SRC_F32,
    DSF_SRC_E4M3,
    DSF_SRC_E2M1,
    DSF_SRC_INT,
    DSF_SRC_BOOL
} dsf_tap_source;

/* X(id, path below its scope, scope, rows, source dtype). Layers also serve as draft stages: the
 * path of stage S is dspark/stages/S/<path>, with attn/kv_window written as attn/kv there. */
#define DSF_TAP_MAP(X)                                                                             \
    X(EMBED, "embed", GLOBAL, TOKEN, BF16)                                                         \
    X(IN, "in", LAYER, TOKEN, BF16)                                                                \
    X(PREMIX, "premix", LAYER, TOKEN, F32)                                                         \
    X(ENGRAM_ROWS, "engram/rows", LAYER, TOKEN, INT)                                               \
    X(ENGRAM_EMB, "engram/emb", LAYER, TOKEN, BF16)                                                \
    X(ENGRAM_KV, "engram/kv", LAYER, TOKEN, BF16)                                                  \
    X(ENGRAM_GATE, "engram/gate", LAYER, TOKEN, F32)                                               \
    X(ENGRAM_OUT, "engram/out", LAYER, TOKEN, BF16)                                                \
    X(ATTN_PRE, "attn/pre", LAYER, TOKEN, F32)                                                     \
    X(ATTN_POST, "attn/post", LAYER, TOKEN, F32)                                                   \
    X(ATTN_COMB, "attn/comb", LAYER, TOKEN, F32)                                                   \
    X(ATTN_U, "attn/u", LAYER, TOKEN, BF16)                                                        \
    X(ATTN_Q_LATENT, "attn/q_latent", LAYER, TOKEN, BF16)                                          \
    X(ATTN_Q, "attn/q", LAYER, TOKEN, BF16)                                                        \
    X(ATTN_KV_WINDOW, "attn/kv_window", LAYER, TOKEN, E4M3)                                        \
    X(ATTN_LATENT, "attn/latent", LAYER, ENTRY, BF16)                                              \
    X(ATTN_KV_MAIN, "attn/kv_main", LAYER, ENTRY, E2M1)                                            \
    X(ATTN_INDEX_K, "attn/index_k", LAYER, ENTRY, E2M1)                                            \
    X(ATTN_INDEX_Q, "attn/index_q", LAYER, TOKEN, E2M1)                                            \
    X(ATTN_INDEX_W, "attn/index_w", LAYER, TOKEN, BF16)                                            \
    X(ATTN_INDEX_SCORES, "attn/index_scores", LAYER, TOKEN, BF16)                                  \
    X(ATTN_POOL, "attn/pool", LAYER, TOKEN, BOOL)                                                  \
    X(ATTN_TOPK, "attn/topk", LAYER, TOKEN, INT)                                                   \
    X(ATTN_O, "attn/o", LAYER, TOKEN, BF16)                                                        \
    X(ATTN_Y, "attn/y", LAYER, TOKEN, BF16)                                                        \
    X(MID, "mid", LAYER, TOKEN, BF16)                                                              \
    X(FFN_PRE, "ffn/pre", LAYER, TOKEN, F32)                                                       \
    X(FFN_POST, "ffn/post", LAYER, TOKEN, F32)                                                     \
    X(FFN_COMB, "ffn/comb", LAYER, TOKEN, F32)                                                     \
    X(FFN_U, "ffn/u", LAYER, TOKEN, BF16)                                                          \
    X(FFN_ROUTER_SCORES, "ffn/router_scores", LAYER, TOKEN, F32)                                   \
    X(FFN_EXPERT_IDS, "ffn/expert_ids", LAYER, TOKEN, INT)                                         \
    X(FFN_EXPERT_WEIGHTS, "ffn/expert_weights", LAYER, TOKEN, F32)                                 \
    X(FFN_Y, "ffn/y", LAYER, TOKEN, BF16)                                                          \
    X(OUT, "out", LAYER, TOKEN, BF16)                                                              \
    X(FINAL_H, "final/h", GLOBAL, TOKEN, BF16)                                                     \
    X(FINAL_NORM, "final/norm", GLOBAL, LOGITS, BF16)                                              \
    X(LOGITS, "logits", GLOBAL, LOGITS, F32)                                                       \
    X(DSPARK_TAP, "dspark/tap", GLOBAL, TOKEN, BF16)                                               \
    X(DSPARK_MAIN, "dspark/main", GLOBAL, TOKEN, BF16)                                             \
    X(DSPARK_CTX_KV, "dspark/ctx_kv", DRAFT, TOKEN, E4M3)                                          \
    X(DSPARK_H, "dspark/h", GLOBAL, DRAFT, BF16)                                                   \
    X(DSPARK_BASE_LOGITS, "dspark/base_logits", GLOBAL, DRAFT, F32)                                \
    X(DSPARK_DRAFT_LOGITS, "dspark/draft_logits", GLOBAL, DRAFT, F32)                              \
    X(DSPARK_MARKOV_EMBED, "dspark/markov_embed", GLOBAL, DRAFT, BF16)                             \
    X(DSPARK_DRAFT_IDS, "dspark/draft_ids", GLOBAL, DRAFT, INT)                                    \
    X(DSPARK_CONFIDENCE, "dspark/confidence", GLOBAL, DRAFT, F32)

typedef enum {
    DSF_TAP_NONE = -1,
#define X(id, path, scope, rows, source) DSF_TAP_##id,
    DSF_TAP_MAP(X)
#undef X
        DSF_N_TAPS
} dsf_tap_id;

typedef struct {
    const char *path;
    dsf_tap_scope scope;
    dsf_tap_rows_kind rows;
    dsf_tap_source source;
} dsf_tap_info;
extern const dsf_tap_info dsf_taps[DSF_N_TAPS];

/* A tap at one place. layer: backbone layer, or n_layers + stage for draft stages; -1 for global
 * taps. */
typedef struct {
    dsf_tap_id id;
    int layer;
} dsf_tap;

/* The dataset path, "layers/07/attn/q" or "dspark/stages/1/ffn/u". n_layers tells stages from
 * layers. */
void dsf_tap_path(char out[64], dsf_tap tap, int n_layers);
/* The inverse; false when the path is no tap of this list. */
bool dsf_tap_parse(dsf_tap *out, const char *path, int n_layers);
/* Position in execution order: sorts a whole dump. */
int64_t dsf_tap_order(dsf_tap tap, int n_layers);

/* One value as shown to a sink; everything is valid during the call only. */
typedef struct {
    dsf_tap tap;
    const dsf_tensor *value; /* [rows, ...]; record types as they are (verify/dump widens them);
                                attn/pool: ascending kept block ids [n, b] i32, -1 padded */
    int64_t n;               /* rows: value->dim[0] */
    const int32_t *label;    /* [n] position of the token / entry id / position of the draft row */
    const int32_t *slot;     /* [n] sequence slot of the row */
} dsf_tap_value;

typedef struct {
    dsf_status (*on_value)(void *ud, const dsf_tap_value *v);
    void *ud;
    /* Which taps to show; NULL: all that the plan has. */
    bool (*wants)(void *ud, dsf_tap tap);
} dsf_tap_sink;

#endif
