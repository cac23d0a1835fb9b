#include "verify/diff/state.h"

#include <string.h>

#include "base/mem.h"

/* Slots of the attention list that are summed as one block (architecture.md 5.4). */
enum { BLOCK_SLOTS = 64 };

static bool any_selects(const dsf_dump_geometry *g, int64_t n)
{
    for (int l = 0; l < g->n_layers; l++) {
        int64_t entries = g->ratio[l] ? n / g->ratio[l] : 0;
        if (entries > g->index_topk) return true;
        if (g->pool_layer >= 0 && l > g->pool_layer &&
            entries > (int64_t)g->pool_blocks * g->pool_block)
            return true;
    }
    return false;
}

dsf_status dsf_state_open(dsf_diff_state *s, dsf_dump_file *a, dsf_dump_file *b)
{
    *s = (dsf_diff_state){.a = a, .b = b, .g = &dsf_dump_info_of(a)->geometry, .layer = -1};
    s->n = dsf_dump_info_of(a)->n_tokens;
    s->first_flip = s->decode_from = -1;
    int64_t n_image = 0, prompt = dsf_dump_info_of(b)->prompt_length;
    if (prompt > 0 && prompt < s->n) s->decode_from = (int32_t)prompt;
    DSF_TRY(dsf_dump_read_axis(a, "image_mask", &s->image, &n_image));
    if (n_image != s->n) dsf_mem_free(s->image);
    if (n_image != s->n) s->image = NULL;
    s->selects = any_selects(s->g, s->n);
    s->one_block = s->g->window + s->g->index_topk <= BLOCK_SLOTS;
    DSF_TRY(dsf_mem_new(&s->dirty, (size_t)s->n, 1));
    DSF_TRY(dsf_mem_new(&s->dirty_entry, (size_t)s->n, 1));
    DSF_TRY(dsf_mem_new(&s->expert_flip, (size_t)s->n, 1));
    return dsf_mem_new(&s->pool_flip, (size_t)s->n, 1);
}

void dsf_state_close(dsf_diff_state *s)
{
    dsf_mem_free(s->dirty);
    dsf_mem_free(s->dirty_entry);
    dsf_mem_free(s->expert_flip);
    dsf_mem_free(s->pool_flip);
    dsf_mem_free(s->image);
    for (int i = 0; i < DSF_DUMP_MAX_LAYERS; i++) dsf_mem_free(s->flip[i]);
    *s = (dsf_diff_state){0};
}

static bool is_entry(dsf_tap tap) { return dsf_taps[tap.id].rows == DSF_ROWS_ENTRY; }

static bool in_layer(dsf_tap tap) { return dsf_taps[tap.id].scope == DSF_SCOPE_LAYER; }

void dsf_state_enter(dsf_diff_state *s, dsf_tap tap)
{
    if (tap.layer == s->layer) return;
    s->layer = tap.layer;
    if (s->n) memset(s->expert_flip, 0, (size_t)s->n);
    /* Without injection a difference stays in the streams and in the caches. */
    if (!s->injected || !in_layer(tap)) return;
    s->all_dirty = false;
    if (s->n) memset(s->dirty, 0, (size_t)s->n);
    if (s->n) memset(s->dirty_entry, 0, (size_t)s->n);
}

/* Rows whose list of window slots depends on the length of the prefill that computed them, in lists
 * longer than one block: their probabilities round in other places. */
static bool cut_elsewhere(const dsf_diff_state *s, dsf_tap tap, int32_t label)
{
    const dsf_dump_geometry *g = s->g;
    int64_t slots = s->n < g->window ? s->n : g->window;
    int ratio = tap.layer >= 0 && tap.layer < g->n_layers ? g->ratio[tap.layer] : 0;
    if (ratio) slots += s->n / ratio < g->index_topk ? s->n / ratio : g->index_topk;
    return slots > BLOCK_SLOTS && label < g->window - 1;
}

static dsf_row_status status_of(const dsf_diff_state *s, dsf_tap tap, int32_t label)
{
    bool behind = in_layer(tap) && tap.id >= DSF_TAP_ATTN_O && tap.layer < s->g->n_layers;
    if (!in_layer(tap) && tap.id >= DSF_TAP_FINAL_H && tap.id <= DSF_TAP_LOGITS) {
        /* the head reads what the last layer left */
        behind = true;
        tap.layer = s->g->n_layers - 1;
    }
    if (!behind || label < 0 || label >= s->n) return DSF_ROW_JUDGED;
    if (cut_elsewhere(s, tap, label)) return DSF_ROW_REPORTED;
    int source = dsf_dump_geometry_source(s->g->index_source, tap.layer);
    if (source >= 0 && s->g->ratio[tap.layer] && s->flip[source] && s->flip[source][label])
        return DSF_ROW_EXCUSED;
    if (tap.id >= DSF_TAP_FFN_EXPERT_WEIGHTS && s->expert_flip[label]) return DSF_ROW_EXCUSED;
    return DSF_ROW_JUDGED;
}

void dsf_state_mark(const dsf_diff_state *s, dsf_tap tap, dsf_row *row, int64_t n)
{
    bool entry = is_entry(tap);
    const uint8_t *dirty = entry ? s->dirty_entry : s->dirty;
    for (int64_t i = 0; i < n; i++) {
        int32_t label = row[i].label;
        bool known = label >= 0 && label < s->n;
        row[i].status = entry ? DSF_ROW_JUDGED : status_of(s, tap, label);
        row[i].disturbed = s->all_dirty || (known && dirty[label]);
    }
}

void dsf_state_learn(dsf_diff_state *s, dsf_tap tap, const dsf_row *row, int64_t n)
{
    /* float32 figures of a correct run differ everywhere in the last bits: they disturb nothing
     * until they show in a rounded tap. */
    if (dsf_taps[tap.id].source == DSF_SRC_F32) return;
    bool entry = is_entry(tap);
    for (int64_t i = 0; i < n; i++) {
        int32_t label = row[i].label;
        if (row[i].changed == 0) continue;
        s->touched = true;
        if (label >= 0 && label < s->n) (entry ? s->dirty_entry : s->dirty)[label] = 1;
        /* every later row reads these keys; entries are made from these rows */
        if (entry || tap.id == DSF_TAP_ATTN_KV_WINDOW) s->all_dirty = true;
        if (tap.id == DSF_TAP_ATTN_U && label >= 0 && label < s->n)
            s->dirty_entry[label] = s->dirty_entry[label / 2] = 1;
    }
}

dsf_status dsf_state_flip(dsf_diff_state *s, dsf_tap tap, int32_t label)
{
    s->touched = true;
    if (label < 0 || label >= s->n) return DSF_OK;
    if (s->first_flip < 0 || label < s->first_flip) s->first_flip = label;
    if (tap.id == DSF_TAP_ATTN_POOL) {
        s->pool_flip[label] = 1;
    } else if (tap.id == DSF_TAP_FFN_EXPERT_IDS) {
        s->expert_flip[label] = 1;
    } else if (tap.id == DSF_TAP_ATTN_TOPK && tap.layer >= 0 && tap.layer < DSF_DUMP_MAX_LAYERS) {
        if (!s->flip[tap.layer]) DSF_TRY(dsf_mem_new(&s->flip[tap.layer], (size_t)s->n, 1));
        s->flip[tap.layer][label] = 1;
    }
    return DSF_OK;
}

bool dsf_state_pool_flipped(const dsf_diff_state *s, dsf_tap tap, int32_t label)
{
    return label >= 0 && label < s->n && tap.layer > s->g->pool_layer && s->pool_flip[label];
}
