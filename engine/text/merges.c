/* A linked list of symbols and a heap of (rank, place). An entry of the heap is stale when the pair
 * at its place has another rank by now; it is then skipped. */
#include "text/merges.h"

#include <string.h>

#include "base/mem.h"

#define FREE    UINT64_MAX /* no pair: ids are below 2^21 */
#define NO_RANK UINT32_MAX

typedef struct dsf_symbol {
    int32_t id;         /* -1: merged into the one before */
    int32_t prev, next; /* -1 at the ends */
    uint32_t rank;      /* of the merge with next */
    int32_t merged;     /* its result */
} symbol;

static uint32_t slot_of(const dsf_merges *m, uint64_t pair)
{
    uint64_t h = pair * 0x9E3779B97F4A7C15u;
    uint32_t i = (uint32_t)(h >> 32) & m->slot_mask;
    while (m->slot[i].pair != pair && m->slot[i].pair != FREE) i = (i + 1) & m->slot_mask;
    return i;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* --- loading --- */

/* The two halves of one merge, as spelled in the file. */
static dsf_status split(const char *name, size_t index, const dsf_json *e, dsf_buf half[2])
{
    half[0].len = half[1].len = 0;
    if (dsf_json_kind_of(e) == DSF_JSON_ARRAY && dsf_json_count(e) == 2) {
        const dsf_json *left = dsf_json_first(e), *right = dsf_json_next(left);
        if (dsf_json_kind_of(left) == DSF_JSON_STRING &&
            dsf_json_kind_of(right) == DSF_JSON_STRING) {
            dsf_json_add_text(&half[0], left);
            dsf_json_add_text(&half[1], right);
        }
    } else if (dsf_json_kind_of(e) == DSF_JSON_STRING) {
        size_t n;
        const char *s = dsf_json_text(e, &n), *gap = strchr(s, ' ');
        if (gap && !strchr(gap + 1, ' ')) {
            dsf_buf_add(&half[0], s, (size_t)(gap - s));
            dsf_buf_str(&half[1], gap + 1);
        }
    }
    DSF_TRY(dsf_buf_status(&half[0]));
    DSF_TRY(dsf_buf_status(&half[1]));
    if (half[0].len == 0 || half[1].len == 0)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.merges: entry %zu is no pair of tokens", name,
                        index);
    return DSF_OK;
}

static dsf_status find_token(const char *name, size_t index, const dsf_vocab *v, const char *s,
                             dsf_buf *bytes, int32_t *id)
{
    bool letters = dsf_vocab_add_bytes(bytes, s, strlen(s));
    DSF_TRY(dsf_buf_status(bytes));
    *id = letters ? dsf_vocab_find(v, bytes->data, bytes->len, true) : -1;
    if (*id < 0)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.merges: entry %zu: no token %.64s", name, index,
                        s);
    return DSF_OK;
}

static dsf_status add_merge(dsf_merges *m, const char *name, const dsf_vocab *v, size_t index,
                            dsf_buf work[4])
{
    int32_t left = -1, right = -1, id = -1;
    for (int i = 2; i < 4; i++) work[i].len = 0;
    DSF_TRY(find_token(name, index, v, work[0].data, &work[2], &left));
    DSF_TRY(find_token(name, index, v, work[1].data, &work[3], &right));
    dsf_buf_add(&work[2], work[3].data, work[3].len);
    dsf_buf_add(&work[0], work[1].data, work[1].len);
    DSF_TRY(dsf_buf_status(&work[0]));
    work[3].len = 0;
    DSF_TRY(find_token(name, index, v, work[0].data, &work[3], &id));
    dsf_merge *slot = &m->slot[slot_of(m, pair_of(left, right))];
    if (slot->pair != FREE)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.merges: entry %zu repeats entry %u", name, index,
                        slot->rank);
    *slot = (dsf_merge){.pair = pair_of(left, right), .rank = (uint32_t)index, .id = id};
    return DSF_OK;
}

dsf_status dsf_merges_load(dsf_merges *m, const char *name, const dsf_vocab *v,
                           const dsf_json *list)
{
    size_t n = dsf_json_count(list), slots = 16, index = 0;
    if (n >= NO_RANK / 4) return DSF_FAIL(DSF_ENOTSUP, "%s: model.merges: %zu entries", name, n);
    while (slots < 2 * n) slots *= 2;
    DSF_TRY(dsf_mem_new(&m->slot, slots, sizeof *m->slot));
    m->slot_mask = (uint32_t)slots - 1;
    for (size_t i = 0; i < slots; i++) m->slot[i].pair = FREE;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        m->byte_id[b] = dsf_vocab_find(v, &byte, 1, true);
    }
    dsf_buf work[4] = {{.max = 1 << 20}, {.max = 1 << 20}, {.max = 1 << 20}, {.max = 1 << 20}};
    dsf_status st = DSF_OK;
    for (const dsf_json *e = dsf_json_first(list); e && st == DSF_OK; e = dsf_json_next(e)) {
        st = split(name, index, e, work);
        if (st == DSF_OK) st = add_merge(m, name, v, index, work);
        index++;
    }
    for (int i = 0; i < 4; i++) dsf_buf_free(&work[i]);
    return st == DSF_OK ? st : dsf_error_pass(st, DSF_HERE);
}

void dsf_merges_free(dsf_merges *m)
{
    dsf_mem_free(m->slot);
    *m = (dsf_merges){0};
}

/* --- merging --- */

static dsf_status reserve(dsf_merge_scratch *w, size_t n)
{
    if (n > w->symbol_cap) {
        DSF_TRY(dsf_mem_grow(&w->symbol, n + n / 2, sizeof *w->symbol));
        w->symbol_cap = n + n / 2;
    }
    /* Every merge retires one symbol and adds at most two pairs: under 3 n entries ever. */
    if (3 * n > w->heap_cap) {
        DSF_TRY(dsf_mem_grow(&w->heap, 3 * (n + n / 2), sizeof *w->heap));
        w->heap_cap = 3 * (n + n / 2);
    }
    w->heap_n = 0;
    return DSF_OK;
}

static void push(dsf_merge_scratch *w, uint64_t key)
{
    size_t i = w->heap_n++;
    while (i > 0 && w->heap[(i - 1) / 2] > key) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = key;
}

static uint64_t pop(dsf_merge_scratch *w)
{
    uint64_t top = w->heap[0], key = w->heap[--w->heap_n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->heap_n) {
        if (child + 1 < w->heap_n && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= key) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = key;
    return top;
}

/* Looks up the pair that begins at symbol i and puts it on the heap. */
static void look(const dsf_merges *m, dsf_merge_scratch *w, int32_t i)
{
    symbol *s = &w->symbol[i];
    s->rank = NO_RANK;
    if (s->next < 0) return;
    const dsf_merge *slot = &m->slot[slot_of(m, pair_of(s->id, w->symbol[s->next].id))];
    if (slot->pair == FREE) return;
    s->rank = slot->rank;
    s->merged = slot->id;
    push(w, (uint64_t)slot->rank << 32 | (uint32_t)i);
}

static void merge_all(const dsf_merges *m, dsf_merge_scratch *w)
{
    while (w->heap_n) {
        uint64_t top = pop(w);
        int32_t i = (int32_t)(uint32_t)top;
        symbol *s = &w->symbol[i];
        if (s->id < 0 || s->rank != (uint32_t)(top >> 32)) continue;
        symbol *gone = &w->symbol[s->next];
        s->id = s->merged;
        s->next = gone->next;
        gone->id = -1;
        if (s->next >= 0) w->symbol[s->next].prev = i;
        look(m, w, i);
        if (s->prev >= 0) look(m, w, s->prev);
    }
}

dsf_status dsf_merges_apply(const dsf_merges *m, dsf_merge_scratch *w, const char *s, size_t n,
                            int32_t *out, size_t *n_out)
{
    DSF_TRY(reserve(w, n));
    int32_t last = (int32_t)n - 1;
    for (int32_t i = 0; i <= last; i++) {
        int32_t id = m->byte_id[(uint8_t)s[i]];
        if (id < 0)
            return DSF_FAIL(DSF_EINVAL, "text: the vocabulary has no token for byte 0x%02X",
                            (uint8_t)s[i]);
        w->symbol[i] = (symbol){.id = id, .prev = i - 1, .next = i < last ? i + 1 : -1};
    }
    for (int32_t i = 0; i < last; i++) look(m, w, i);
    if (n) w->symbol[last].rank = NO_RANK;
    merge_all(m, w);
    *n_out = 0;
    for (int32_t i = n ? 0 : -1; i >= 0; i = w->symbol[i].next) out[(*n_out)++] = w->symbol[i].id;
    return DSF_OK;
}

void dsf_merge_scratch_free(dsf_merge_scratch *w)
{
    dsf_mem_free(w->symbol);
    dsf_mem_free(w->heap);
    *w = (dsf_merge_scratch){0};
}
