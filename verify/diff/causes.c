#include "verify/diff/causes.h"

#include <string.h>

/* Patterns that a cause makes: a mask over dsf_diff_pattern_kind; ANY: told by the tap alone. */
#define ANY     0u
#define ALL     (1u << DSF_PATTERN_ALL)
#define WINDOW  (1u << DSF_PATTERN_WINDOW)
#define FIRST   (1u << DSF_PATTERN_FIRST)
#define RESIDUE (1u << DSF_PATTERN_RESIDUE)
#define EXPERT  (1u << DSF_PATTERN_ONE_EXPERT)
#define DECODE  (1u << DSF_PATTERN_DECODE)
#define FLIP    (1u << DSF_PATTERN_FLIP)
#define IMAGE   (1u << DSF_PATTERN_IMAGE)
#define STRIDE  (1u << DSF_PATTERN_STRIDE)
#define GROUP   (1u << DSF_PATTERN_GROUP)
#define HEAD    (1u << DSF_PATTERN_HEAD)
#define STREAM  (1u << DSF_PATTERN_STREAM)
#define ROTATED (1u << DSF_PATTERN_ROTATED)
#define LATE    (WINDOW | FLIP | DECODE)

typedef struct {
    dsf_tap_id id;
    unsigned pattern;
    const char *text; /* what went wrong, and where it is defined */
} cause;

/* Numbers in brackets: section, or trap P.., of architecture.md. */
static const cause table[] = {
    {DSF_TAP_EMBED, IMAGE,
     "image rows not overwritten by the aligner's, or the span shifted [11.4]"},
    {DSF_TAP_EMBED, STRIDE, "the embedding matrix read transposed or with a wrong row stride [12]"},
    {DSF_TAP_EMBED, ANY, "other token ids, or a row of another id: tokenizer or shard offset [12]"},
    {DSF_TAP_IN, STREAM, "streams exchanged, or not four equal copies at layer 0 [4]"},
    {DSF_TAP_IN, ANY, "not the stream that left the layer before: stale or overwritten buffer [4]"},
    {DSF_TAP_PREMIX, FIRST, "start value: layer 0 collapses with (1, 0, 0, 0) [4, P5]"},
    {DSF_TAP_PREMIX, ANY,
     "not the ffn/pre of the layer before: the mix lags by one sublayer [4, P5]"},
    {DSF_TAP_ENGRAM_ROWS, FIRST, "padding of the first n-grams: pad class of token 2 [8.3, P20]"},
    {DSF_TAP_ENGRAM_ROWS, DECODE | FLIP,
     "n-gram history lost across chunks or rejected drafts [P21]"},
    {DSF_TAP_ENGRAM_ROWS, IMAGE, "image rows hashed: they are dead [8.3]"},
    {DSF_TAP_ENGRAM_ROWS, ALL,
     "multipliers or primes of the other Engram layer, or class map [8.2, P20]"},
    {DSF_TAP_ENGRAM_ROWS, GROUP, "one order or head: offset of its table missing [8.3]"},
    {DSF_TAP_ENGRAM_ROWS, ANY,
     "32-bit or signed hash arithmetic; multipliers through doubles [P19]"},
    {DSF_TAP_ENGRAM_EMB, GROUP,
     "one scale a row and 32 columns, no 32x32 blocks on the table [8.4, P18]"},
    {DSF_TAP_ENGRAM_EMB, ANY,
     "rows read as integers, scale read as a number, or a 32-bit offset [P18, P30]"},
    {DSF_TAP_ENGRAM_KV, STREAM | GROUP,
     "keys and value in another order: four keys, then the value [8.5]"},
    {DSF_TAP_ENGRAM_KV, ANY,
     "wkv: weight scale in 32x32 blocks, activation groups of 32 [3.4, P4]"},
    {DSF_TAP_ENGRAM_GATE, IMAGE, "image rows take gate 0 [8.5]"},
    {DSF_TAP_ENGRAM_GATE, ANY,
     "norm joint over the streams, or square root and sign of the gate [8.5, P22]"},
    {DSF_TAP_ENGRAM_OUT, STREAM,
     "written into the collapsed input, not into every stream [8.5, P22]"},
    {DSF_TAP_ENGRAM_OUT, ANY,
     "gate times value added in bf16 twice, or value taken from the keys [8.5]"},
    {DSF_TAP_ATTN_PRE, ANY,
     "hc_attn: eps (1e-20 in the norm), tf32 or bf16 product, hc_eps only in pre [P3, P32]"},
    {DSF_TAP_ATTN_POST, ANY, "hc_attn: the factor 2 of post, or pre and post exchanged [4]"},
    {DSF_TAP_ATTN_COMB, ANY, "Sinkhorn: number of steps, columns last, eps [4, P3]"},
    {DSF_TAP_ATTN_U, ALL, "collapsed with this sublayer's own mix: it lags by one [4, P5]"},
    {DSF_TAP_ATTN_U, FIRST, "start value of the mix in layer 0 [4, P5]"},
    {DSF_TAP_ATTN_U, ANY,
     "attn_norm: eps 1e-20, two roundings, weight applied before the norm [3.5, P3]"},
    {DSF_TAP_ATTN_Q_LATENT, GROUP, "wq_a: weight scale of a neighbouring block [3.4, P4]"},
    {DSF_TAP_ATTN_Q_LATENT, ANY, "wq_a or q_norm: activation groups of 32, eps [3.4, P3, P4]"},
    {DSF_TAP_ATTN_Q, ROTATED,
     "RoPE: theta and YaRN by ratio >= 1, pairs of neighbours [3.6, P7, P8]"},
    {DSF_TAP_ATTN_Q, HEAD, "one head: rows of wq_b out of place, or a shard of it [5.1]"},
    {DSF_TAP_ATTN_Q, DECODE, "position of decoded rows [5.1]"},
    {DSF_TAP_ATTN_Q, ANY, "a norm per head that this model has not; scale applied to the tap [P2]"},
    {DSF_TAP_ATTN_KV_WINDOW, ROTATED,
     "RoPE of the window keys: the table of this layer's ratio [3.6, P8]"},
    {DSF_TAP_ATTN_KV_WINDOW, GROUP,
     "one group of 32: scale or amax floor of the FP8 trip [3.2, P15]"},
    {DSF_TAP_ATTN_KV_WINDOW, ALL, "FP8 round trip missing, or not over all channels [5.1]"},
    {DSF_TAP_ATTN_KV_WINDOW, ANY,
     "scale rounded down or to nearest: power of two upwards [3.1, P15]"},
    {DSF_TAP_ATTN_LATENT, RESIDUE | LATE,
     "group state of half-filled groups, not rolled back [5.2, P31]"},
    {DSF_TAP_ATTN_LATENT, ANY,
     "compressor: float32 sums, softmax over the group, groups aligned at 0 [5.2, P32]"},
    {DSF_TAP_ATTN_KV_MAIN, ROTATED,
     "position of an entry is j x ratio, its first token [5.2, P12]"},
    {DSF_TAP_ATTN_KV_MAIN, ANY,
     "FP4 grid: groups of 16 with an e4m3 scale, divided, not multiplied [3.3, P14]"},
    {DSF_TAP_ATTN_INDEX_K, ROTATED,
     "index keys rotated at another position, or twice [6.1, P11, P12]"},
    {DSF_TAP_ATTN_INDEX_K, ANY,
     "from the rotated or quantised latent, k_norm missing, grid 32/ue8m0 [6.1, P11, P14]"},
    {DSF_TAP_ATTN_INDEX_Q, ROTATED,
     "RoPE of the indexer: pairs of neighbours, this layer's table [6.2, P7]"},
    {DSF_TAP_ATTN_INDEX_Q, HEAD, "one index head out of place [6.2]"},
    {DSF_TAP_ATTN_INDEX_Q, ANY, "not from the normed q latent, or grid of the main KV [6.2, P14]"},
    {DSF_TAP_ATTN_INDEX_W, ANY,
     "weights_proj: both factors in one float32 product, rounded once [6.2]"},
    {DSF_TAP_ATTN_INDEX_SCORES, DECODE | RESIDUE,
     "keys of another source: the shared slot of open groups [P1]"},
    {DSF_TAP_ATTN_INDEX_SCORES, LATE, "visible entries are j < (t + 1) / ratio [5.3, P13]"},
    {DSF_TAP_ATTN_INDEX_SCORES, ANY,
     "ReLU missing, weights applied before it, or sums not rounded at bf16 [6.2]"},
    {DSF_TAP_ATTN_POOL, LATE, "newest block not kept, or blocks off by one [6.3, P16]"},
    {DSF_TAP_ATTN_POOL, ANY,
     "blocks off by one, their maximum over hidden entries, tie order [6.3, P16]"},
    {DSF_TAP_ATTN_TOPK, DECODE | FLIP, "list of another step or row kept [P17]"},
    {DSF_TAP_ATTN_TOPK, LATE | ALL, "visibility off by one: j < (t + 1) / ratio [5.3, P13]"},
    {DSF_TAP_ATTN_TOPK, ANY,
     "list of the source before (stale), pool of the wrong layer, tie order [6.4, P16, P17]"},
    {DSF_TAP_ATTN_O, WINDOW, "window off by one: t - W + 1 to t; or slots of the ring [5.3]"},
    {DSF_TAP_ATTN_O, FIRST, "padding of short lists not masked [5.3]"},
    {DSF_TAP_ATTN_O, ROTATED, "inverse RoPE missing or at another position [5.5, P10]"},
    {DSF_TAP_ATTN_O, HEAD, "sink of another head, or a shard of heads [5.4]"},
    {DSF_TAP_ATTN_O, FLIP | RESIDUE,
     "main KV of another source, or an entry still open [5.2, P9, P17]"},
    {DSF_TAP_ATTN_O, ANY,
     "sink missing, scaled or in the numerator; causal mask; blocks of 64 [5.4, P26]"},
    {DSF_TAP_ATTN_Y, GROUP, "one output group: rows of wo_a exchanged [5.5]"},
    {DSF_TAP_ATTN_Y, ANY, "wo_a takes o in bf16 without quantising; wo_b quantises [5.5]"},
    {DSF_TAP_MID, STREAM, "streams exchanged in the expansion [4]"},
    {DSF_TAP_MID, ALL, "comb transposed: the sum runs over its first index [4, P6]"},
    {DSF_TAP_MID, ANY, "expansion: rounded once, with the comb of this sublayer [4, P6]"},
    {DSF_TAP_FFN_PRE, ANY, "hc_ffn on the stream before the expansion, or its precision [4, P32]"},
    {DSF_TAP_FFN_POST, ANY, "hc_ffn: the factor 2 of post, or pre and post exchanged [4]"},
    {DSF_TAP_FFN_COMB, ANY, "Sinkhorn: number of steps, columns last, eps [4, P3]"},
    {DSF_TAP_FFN_U, ALL, "collapsed with ffn/pre: this sublayer takes attn/pre [4, P5]"},
    {DSF_TAP_FFN_U, ANY, "ffn_norm: eps 1e-20, two roundings [3.5, P3]"},
    {DSF_TAP_FFN_ROUTER_SCORES, IMAGE, "bias of images added to the scores [7]"},
    {DSF_TAP_FFN_ROUTER_SCORES, STRIDE | GROUP, "gate rows of some experts out of place [7]"},
    {DSF_TAP_FFN_ROUTER_SCORES, ANY,
     "softmax or sigmoid in place of sqrt(softplus), bf16 product [7, P24, P32]"},
    {DSF_TAP_FFN_EXPERT_IDS, IMAGE, "image rows take the image bias, text rows the other [7]"},
    {DSF_TAP_FFN_EXPERT_IDS, ANY, "bias missing where experts are chosen, tie order [7, P24]"},
    {DSF_TAP_FFN_EXPERT_WEIGHTS, ANY,
     "bias inside the weights, not renormalised, route scale missing [7, P24]"},
    {DSF_TAP_FFN_Y, EXPERT,
     "weights or scales of one expert: dropped, of its neighbour, another shard [7, P25]"},
    {DSF_TAP_FFN_Y, FLIP, "follows another choice of experts [7]"},
    {DSF_TAP_FFN_Y, STRIDE, "order of the nibbles: the low one is the even column [12, P25]"},
    {DSF_TAP_FFN_Y, ANY,
     "clamp on both sides of the gate or none, weight behind w2, shared expert missing [7, P23]"},
    {DSF_TAP_OUT, STREAM, "streams exchanged in the expansion [4]"},
    {DSF_TAP_OUT, ANY, "comb of the FFN transposed, or the attention's mixes used again [4, P6]"},
    {DSF_TAP_FINAL_H, ANY, "collapsed with another mix than the last ffn/pre [4, 9, P5]"},
    {DSF_TAP_FINAL_NORM, ANY, "final norm: eps, or the norm of a draft stage [9, P3]"},
    {DSF_TAP_LOGITS, GROUP, "one shard of the head missing or zero [9]"},
    {DSF_TAP_LOGITS, ANY, "head product not float32, or logits rounded to bf16 [9, P32]"},
    {DSF_TAP_DSPARK_TAP, ANY,
     "taken behind the target layers, not at their inputs after Engram [10.2, P27]"},
    {DSF_TAP_DSPARK_MAIN, ANY, "main_proj or main_norm: order of the concatenated layers [10.2]"},
    {DSF_TAP_DSPARK_CTX_KV, ROTATED,
     "RoPE of the context rows: plain table, position of the token [10.2]"},
    {DSF_TAP_DSPARK_CTX_KV, ANY, "wkv of another stage, FP8 trip missing [10.2]"},
    {DSF_TAP_DSPARK_H, ANY, "collapsed with another mix than the last stage's ffn/pre [10.3]"},
    {DSF_TAP_DSPARK_BASE_LOGITS, ANY,
     "norm of another stage, or the bigram bias already in [10.3]"},
    {DSF_TAP_DSPARK_DRAFT_LOGITS, ANY, "bigram bias of another token than the one before [10.3]"},
    {DSF_TAP_DSPARK_MARKOV_EMBED, ANY, "embedding of another token than the one before [10.3]"},
    {DSF_TAP_DSPARK_DRAFT_IDS, ANY, "another choice among equal logits: the lowest id [10.3]"},
    {DSF_TAP_DSPARK_CONFIDENCE, ANY,
     "sigmoid applied: the tap is the logit; or h and embedding exchanged [10.3]"},
};

/* Draft stages have rules of their own. */
static const char *const stage_causes[] = {
    "a draft block sees all ring slots and all its own rows: it is not causal [10.3, P28]",
    "ring of another stage, its slot order, or the position of row i: N + i [10.3, P28]",
};

static void add(const char *out[DSF_CAUSES_MAX], int *n, const char *text)
{
    if (*n < DSF_CAUSES_MAX) out[(*n)++] = text;
}

int dsf_causes_find(dsf_tap_id id, const dsf_diff_pattern *pattern, const char *out[DSF_CAUSES_MAX])
{
    unsigned seen = (1u << pattern->rows | 1u << pattern->channels) & ~(1u << DSF_PATTERN_NONE);
    int n = 0;
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].id == id && table[i].pattern & seen) add(out, &n, table[i].text);
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].id == id && table[i].pattern == ANY) add(out, &n, table[i].text);
    return n;
}

static int find(const dsf_diff_tap *t, const char *out[DSF_CAUSES_MAX])
{
    const char *own[DSF_CAUSES_MAX];
    bool stage = t->tap.id == DSF_TAP_ATTN_O && strncmp(t->path, "dspark/", 7) == 0;
    if (t->by_hash) return 0; /* it may be rounding alone */
    int n = 0, m = t->tap.id == DSF_TAP_NONE ? 0 : dsf_causes_find(t->tap.id, &t->pattern, own);
    for (int i = 0; stage && i < 2; i++) add(out, &n, stage_causes[i]);
    for (int i = 0; i < m; i++) add(out, &n, own[i]);
    return n;
}

void dsf_causes_print(const dsf_diff_tap *t, dsf_buf *b)
{
    const char *text[DSF_CAUSES_MAX];
    int n = find(t, text);
    for (int i = 0; i < n; i++) dsf_buf_fmt(b, "%s %s\n", i ? "       " : "likely:", text[i]);
}

void dsf_causes_json(const dsf_diff_tap *t, dsf_buf *b)
{
    const char *text[DSF_CAUSES_MAX];
    int n = find(t, text);
    dsf_json_begin(b, "causes", '[');
    for (int i = 0; i < n; i++) dsf_json_add_cstr(b, NULL, text[i]);
    dsf_json_end(b, ']');
}
