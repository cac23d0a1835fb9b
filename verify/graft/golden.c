#include "verify/graft/golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "ops/quant.h"

/* What the file says of its model, where it does, must be this model's. */
static dsf_status check_model(const dsf_golden *g)
{
    const dsf_config *c = g->config;
    const dsf_dump_geometry *m = &dsf_dump_info_of(g->file)->geometry;
    const struct {
        const char *name;
        int64_t theirs, ours;
    } pair[] = {{"num_hidden_layers", m->n_layers, c->n_layers},
                {"hidden_size", m->dim, c->dim},
                {"vocab_size", m->vocab, c->vocab_size},
                {"head_dim", m->head_dim, c->head_dim},
                {"sliding_window", m->window, c->window_size},
                {"n_routed_experts", m->n_experts, c->n_routed_experts}};
    if (!dsf_dump_info_of(g->file)->has_geometry) return DSF_OK;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        if (pair[i].theirs > 0 && pair[i].theirs != pair[i].ours)
            return DSF_FAIL(DSF_ECORRUPT, "%s: of another model: %s %lld, the model has %lld",
                            g->path, pair[i].name, (long long)pair[i].theirs,
                            (long long)pair[i].ours);
    return DSF_OK;
}

dsf_status dsf_golden_open(dsf_golden *g, const dsf_config *c, const char *path)
{
    int64_t n_mask = 0;
    *g = (dsf_golden){.config = c, .path = path};
    DSF_TRY(dsf_dump_open(&g->file, path));
    DSF_TRY(check_model(g));
    DSF_TRY(dsf_dump_read_axis(g->file, "token_ids", &g->ids, &g->n));
    DSF_TRY(dsf_dump_read_axis(g->file, "image_mask", &g->mask, &n_mask));
    if (!g->ids || g->n == 0) return DSF_FAIL(DSF_EINVAL, "%s: no token_ids", path);
    if (g->mask && n_mask != g->n)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %lld token ids, %lld mask entries", path,
                        (long long)g->n, (long long)n_mask);
    for (int64_t i = 0; i < g->n; i++)
        if (g->ids[i] < 0 || g->ids[i] >= c->vocab_size)
            return DSF_FAIL(DSF_EINVAL, "%s: token %lld: id %d is outside the vocabulary of %lld",
                            path, (long long)i, (int)g->ids[i], (long long)c->vocab_size);
    return DSF_OK;
}

void dsf_golden_close(dsf_golden *g)
{
    dsf_dump_close(g->file);
    dsf_mem_free(g->ids);
    dsf_mem_free(g->mask);
    *g = (dsf_golden){.file = NULL};
}

const dsf_dump_entry *dsf_golden_find(const dsf_golden *g, dsf_tap tap)
{
    char path[64];
    dsf_tap_path(path, tap, g->config->n_layers);
    const dsf_dump_entry *e = dsf_dump_find(g->file, path);
    bool backbone = tap.layer > 0 && tap.layer < g->config->n_layers;
    if (!e && backbone && (tap.id == DSF_TAP_IN || tap.id == DSF_TAP_PREMIX)) {
        dsf_tap before = {tap.id == DSF_TAP_IN ? DSF_TAP_OUT : DSF_TAP_FFN_PRE, tap.layer - 1};
        dsf_tap_path(path, before, g->config->n_layers);
        e = dsf_dump_find(g->file, path);
    }
    return e && e->readable && !e->stats ? e : NULL;
}

dsf_status dsf_golden_labels(const dsf_golden *g, const dsf_dump_entry *e, int32_t **label,
                             int64_t *n)
{
    DSF_TRY(dsf_dump_read_axis(g->file, e->rows, label, n));
    if (*label && *n == e->dim[0]) return DSF_OK;
    dsf_mem_free(*label);
    *label = NULL;
    return DSF_FAIL(DSF_ECORRUPT, "%s: %s: %lld rows, %lld labels in %s", g->path, e->path,
                    (long long)e->dim[0], (long long)*n, e->rows);
}

/* Read whole, whatever the rows of the pass: the attention addresses them by position, the caches
 * by entry. */
static bool whole(dsf_tap tap)
{
    return tap.id == DSF_TAP_ATTN_KV_WINDOW || dsf_taps[tap.id].rows == DSF_ROWS_ENTRY;
}

/* How many rows a whole tap must have: every position, or every entry. */
static int64_t whole_rows(const dsf_golden *g, dsf_tap tap, int64_t n_pass)
{
    if (tap.layer >= g->config->n_layers) return n_pass; /* row KV of a draft stage: its block */
    return dsf_taps[tap.id].rows == DSF_ROWS_ENTRY ? g->n / g->config->ratio[tap.layer] : g->n;
}

/* Index in have[0..n_have) of label x, searching from *from on (both ascending). */
static int64_t seek(const int32_t *have, int64_t n_have, int32_t x, int64_t *from)
{
    while (*from < n_have && have[*from] < x) (*from)++;
    return *from < n_have && have[*from] == x ? *from : -1;
}

/* Labels for a question of yes or no. Malformed ones are no; what could not be read is no answer.
 */
static bool find_labels(dsf_golden *g, const dsf_dump_entry *e, int32_t **have, int64_t *n)
{
    dsf_status st = dsf_golden_labels(g, e, have, n);
    if (st != DSF_OK && st != DSF_ECORRUPT && g->status == DSF_OK) g->status = st;
    return st == DSF_OK;
}

bool dsf_golden_gives(dsf_golden *g, dsf_tap tap, const int32_t *label, int64_t n)
{
    const dsf_dump_entry *e = dsf_golden_find(g, tap);
    int32_t *have = NULL;
    int64_t n_have = 0, at = 0;
    if (!e || !find_labels(g, e, &have, &n_have)) return false;
    bool ok = true;
    if (whole(tap) && tap.layer < g->config->n_layers) {
        ok = n_have == whole_rows(g, tap, n);
        for (int64_t i = 0; ok && i < n_have; i++) ok = have[i] == i;
    } else {
        for (int64_t i = 0; ok && i < n; i++) ok = seek(have, n_have, label[i], &at) >= 0;
    }
    dsf_mem_free(have);
    return ok;
}

/* Kept blocks of a 0/1 mask over entries (6.3): a block is kept whole. */
static void blocks_of_mask(int32_t *out, int64_t cap, const int64_t *mask, int64_t entries,
                           int block)
{
    int64_t k = 0;
    for (int64_t b = 0; b * block < entries && k < cap; b++) {
        bool kept = false;
        for (int64_t j = b * block; j < (b + 1) * block && j < entries; j++) kept |= mask[j] != 0;
        if (kept) out[k++] = (int32_t)b;
    }
    while (k < cap) out[k++] = -1;
}

static void put_ints(int32_t *out, int64_t cap, const int64_t *x, int64_t n)
{
    for (int64_t i = 0; i < cap; i++) out[i] = i < n ? (int32_t)x[i] : -1;
}

/* Ids lead to memory: rows of caches, pointers of experts. `pos`: the row's position. */
static dsf_status check_ids(const dsf_golden *g, const dsf_dump_entry *e, dsf_tap tap,
                            const int64_t *x, int64_t n, int64_t pos)
{
    const dsf_config *c = g->config;
    bool experts = tap.id == DSF_TAP_FFN_EXPERT_IDS, pool = tap.id == DSF_TAP_ATTN_POOL;
    if (!experts && !pool && tap.id != DSF_TAP_ATTN_TOPK) return DSF_OK;
    int64_t most = c->n_routed_experts, block = c->candidate_block_size;
    if (experts && tap.layer >= c->n_layers) most = c->dspark_n_routed_experts;
    if (!experts) most = (pos + 1) / c->ratio[tap.layer];
    if (pool) most = (most + block - 1) / block * block; /* blocks are kept whole */
    for (int64_t k = 0; k < n; k++) {
        bool bad = pool ? x[k] && k >= most : x[k] >= most || x[k] < (experts ? 0 : -1);
        if (bad)
            return DSF_FAIL(DSF_ECORRUPT, "%s: %s: position %lld: id %lld, there are %lld", g->path,
                            e->path, (long long)pos, (long long)(pool ? k : x[k]), (long long)most);
    }
    return DSF_OK;
}

/* One row of the file in the value's type. work: [width] bf16 for records. */
static void put_row(const dsf_golden *g, dsf_tap tap, const dsf_dump_array *a, int64_t i,
                    const dsf_value *v, uint8_t *out, uint16_t *work)
{
    const float *f = a->f ? a->f + i * a->width : NULL;
    if (tap.id == DSF_TAP_ATTN_POOL) {
        blocks_of_mask((int32_t *)out, v->dim[1], a->i + i * a->width, a->width,
                       g->config->candidate_block_size);
    } else if (v->dtype == DSF_I32) {
        put_ints((int32_t *)out, v->rank > 1 ? v->dim[1] : 1, a->i + i * a->width, a->width);
    } else if (v->dtype == DSF_F32) {
        memcpy(out, f, (size_t)a->width * sizeof *f);
    } else if (v->dtype == DSF_BF16) {
        for (int64_t k = 0; k < a->width; k++) ((uint16_t *)out)[k] = dsf_f32_to_bf16(f[k]);
    } else {
        int64_t d = v->dim[v->rank - 1], rec = dsf_dtype_bytes(v->dtype, d);
        for (int64_t k = 0; k < a->width; k++) work[k] = dsf_f32_to_bf16(f[k]);
        for (int64_t h = 0; h < a->width / d; h++) {
            /* Values on the grid come back unchanged: both formats' scales are powers of two, and a
             * smaller one than the original holds the same values exactly. (Q4N entries enter as
             * latents, never here.) */
            if (v->dtype == DSF_Q8)
                dsf_q8_row(out + h * rec, work + h * d, d);
            else
                dsf_q4x_row(out + h * rec, work + h * d, d);
        }
    }
}

static dsf_status check_width(const dsf_golden *g, dsf_tap tap, const dsf_dump_array *a,
                              const dsf_value *v)
{
    int64_t want = 1;
    for (int i = 1; i < v->rank; i++) want *= v->dim[i];
    bool list = tap.id == DSF_TAP_ATTN_POOL ||
                tap.id == DSF_TAP_ATTN_TOPK; /* as wide as the file's N allows */
    bool ints = v->dtype == DSF_I32;
    if ((list || a->width == want) && (ints ? a->i != NULL : a->f != NULL)) return DSF_OK;
    return DSF_FAIL(DSF_ECORRUPT, "%s: %s: %lld %s a row, the model has %lld", g->path, v->name,
                    (long long)a->width, a->f ? "floats" : "integers", (long long)want);
}

dsf_status dsf_golden_rows(const dsf_golden *g, dsf_tap tap, const int32_t *label, int64_t n,
                           const dsf_value *v, void **out, int64_t *rows)
{
    const dsf_dump_entry *e = dsf_golden_find(g, tap);
    dsf_dump_array a = {.n = 0};
    uint16_t *work = NULL;
    uint8_t *to = NULL;
    dsf_status st = DSF_OK;
    int64_t at = 0, row_bytes = 1;
    for (int i = 1; i < v->rank - 1; i++) row_bytes *= v->dim[i];
    row_bytes *= dsf_dtype_bytes(v->dtype, v->rank > 1 ? v->dim[v->rank - 1] : 1);
    DSF_TRY_OUT(dsf_dump_read(g->file, e->path, &a));
    DSF_TRY_OUT(check_width(g, tap, &a, v));
    *rows = whole(tap) ? whole_rows(g, tap, n) : n;
    DSF_TRY_OUT(dsf_mem_new(&work, (size_t)a.width + 1, sizeof *work));
    DSF_TRY_OUT(dsf_mem_new(&to, (size_t)*rows, (size_t)row_bytes));
    for (int64_t i = 0; i < *rows; i++) {
        int32_t want = whole(tap) && tap.layer < g->config->n_layers ? (int32_t)i : label[i];
        int64_t from = seek(a.label, a.n, want, &at);
        if (from < 0)
            DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT, "%s: %s: no row for position %d", g->path, e->path,
                                 (int)want));
        if (a.i) DSF_TRY_OUT(check_ids(g, e, tap, a.i + from * a.width, a.width, want));
        put_row(g, tap, &a, from, v, to + i * row_bytes, work);
    }
    *out = to;
    to = NULL;
out:
    dsf_dump_array_free(&a);
    dsf_mem_free(work);
    dsf_mem_free(to);
    return st;
}

/* The ring of a stage as stored, or the context rows that it is filled with (architecture.md 10.2).
 */
static const dsf_dump_entry *find_ring(const dsf_golden *g, int stage)
{
    static const char *const where[] = {"dspark/ring_kv", "dspark/ctx_kv"};
    for (int k = 0; k < 2; k++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s/%d", where[k], stage);
        const dsf_dump_entry *e = dsf_dump_find(g->file, path);
        if (e && e->readable && !e->stats) return e;
    }
    return NULL;
}

bool dsf_golden_has_ring(dsf_golden *g, int stage)
{
    const dsf_dump_entry *e = find_ring(g, stage);
    int64_t n = 0, last = g->n - g->config->window_size, found = 0;
    int32_t *label = NULL;
    if (last < 0) last = 0;
    if (!e || !find_labels(g, e, &label, &n)) return false;
    for (int64_t i = 0; i < n; i++) found += label[i] >= last && label[i] < g->n;
    dsf_mem_free(label);
    return found == g->n - last;
}

dsf_status dsf_golden_ring(const dsf_golden *g, int stage, uint8_t *ring, int64_t slots)
{
    const dsf_dump_entry *e = find_ring(g, stage);
    dsf_dump_array a = {.n = 0};
    int64_t d = g->config->head_dim;
    uint16_t *row = NULL;
    dsf_status st = DSF_OK;
    if (!e) return DSF_FAIL(DSF_EINVAL, "%s: no ring of draft stage %d", g->path, stage);
    DSF_TRY_OUT(dsf_dump_read(g->file, e->path, &a));
    if (a.width != d || !a.f)
        DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT, "%s: %s: %lld values a row, head_dim is %lld", g->path,
                             e->path, (long long)a.width, (long long)d));
    DSF_TRY_OUT(dsf_mem_new(&row, (size_t)d, sizeof *row));
    for (int64_t i = 0; i < a.n; i++) {
        /* A slot never written, or a row that the window has left. */
        if (a.label[i] < 0 || a.label[i] < g->n - slots || a.label[i] >= g->n) continue;
        for (int64_t k = 0; k < d; k++) row[k] = dsf_f32_to_bf16(a.f[i * d + k]);
        dsf_q8_row(ring + a.label[i] % slots * dsf_dtype_bytes(DSF_Q8, d), row, d);
    }
out:
    dsf_dump_array_free(&a);
    dsf_mem_free(row);
    return st;
}
