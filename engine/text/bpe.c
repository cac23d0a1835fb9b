#include "text/bpe.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/bpe_file.h"

enum { IDS_MAX = 1 << 28, CACHED_BYTES = 32, CACHE_SLOTS = 1 << 14 };

dsf_status dsf_ids_add(dsf_ids *ids, const int32_t *id, size_t n)
{
    size_t max = ids->max ? ids->max : IDS_MAX;
    if (n > max - ids->n)
        return DSF_FAIL(DSF_EINVAL, "ids: %zu + %zu, at most %zu", ids->n, n, max);
    if (ids->n + n > ids->cap) {
        size_t cap = ids->cap ? ids->cap : 64;
        while (cap < ids->n + n) cap *= 2;
        DSF_TRY(dsf_mem_grow(&ids->id, cap, sizeof *ids->id));
        ids->cap = cap;
    }
    if (n) memcpy(ids->id + ids->n, id, n * sizeof *id);
    ids->n += n;
    return DSF_OK;
}

void dsf_ids_free(dsf_ids *ids)
{
    dsf_mem_free(ids->id);
    *ids = (dsf_ids){.max = ids->max};
}

/* --- open and ask --- */

dsf_status dsf_bpe_parse(dsf_bpe **out, const char *name, const char *json, size_t n)
{
    dsf_json_doc *doc = NULL;
    dsf_bpe *b = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_json_parse(&doc, name, json, n));
    DSF_TRY_OUT(dsf_mem_new(&b, 1, sizeof *b));
    DSF_TRY_OUT(dsf_bpe_file_read(b, name, dsf_json_root(doc)));
    *out = b;
    b = NULL;
out:
    dsf_bpe_close(b);
    dsf_json_free(doc);
    return st;
}

dsf_status dsf_bpe_open(dsf_bpe **out, const char *path)
{
    char joined[4096];
    dsf_file file;
    if (dsf_file_is_folder(path)) {
        DSF_TRY(dsf_file_join(joined, path, "tokenizer.json"));
        path = joined;
    }
    DSF_TRY(dsf_file_open(&file, path));
    dsf_status st = dsf_bpe_parse(out, path, file.data ? (const char *)file.data : "", file.size);
    dsf_file_close(&file);
    return st == DSF_OK ? st : dsf_error_pass(st, DSF_HERE);
}

void dsf_bpe_close(dsf_bpe *b)
{
    if (!b) return;
    dsf_vocab_free(&b->vocab);
    dsf_merges_free(&b->merges);
    dsf_pretok_free(b->pretok);
    dsf_mem_free(b);
}

static uint32_t flags_of(const dsf_bpe *b, int32_t id)
{
    return id >= 0 && id < b->vocab.n ? b->vocab.token[id].flags : 0;
}

int32_t dsf_bpe_n_vocab(const dsf_bpe *b) { return b->vocab.n; }
bool dsf_bpe_is_special(const dsf_bpe *b, int32_t id)
{
    return flags_of(b, id) & DSF_TOKEN_SPECIAL;
}
bool dsf_bpe_is_added(const dsf_bpe *b, int32_t id) { return flags_of(b, id) & DSF_TOKEN_ADDED; }

const char *dsf_bpe_token_bytes(const dsf_bpe *b, int32_t id, size_t *n)
{
    if (!flags_of(b, id)) return NULL;
    *n = b->vocab.token[id].n;
    return dsf_vocab_bytes(&b->vocab, id);
}

void dsf_bpe_token_string(const dsf_bpe *b, int32_t id, dsf_buf *out)
{
    if (flags_of(b, id)) dsf_vocab_add_string(&b->vocab, id, out);
}

int32_t dsf_bpe_find_added(const dsf_bpe *b, const char *content, size_t n)
{
    return dsf_vocab_find_added(&b->vocab, content, n);
}

/* --- encode --- */

/* A short piece met before in this text, and where its ids stand in the output: most words of a
 * text repeat, and then nothing is merged again. */
typedef struct {
    uint32_t at, n, ids_at, n_ids;
} cached;

typedef struct {
    const dsf_bpe *b;
    const char *text;
    dsf_ids *ids;
    dsf_pretok_run *pretok;
    dsf_merge_scratch scratch;
    int32_t *fresh; /* ids of one piece */
    size_t fresh_cap;
    cached *cache;
    uint32_t cache_mask;
} encoding;

static dsf_status merge_piece(encoding *e, const char *piece, size_t n)
{
    if (e->b->whole_first) {
        int32_t id = dsf_vocab_find(&e->b->vocab, piece, n, true);
        if (id >= 0) return dsf_ids_add(e->ids, &id, 1);
    }
    if (n > e->fresh_cap) {
        DSF_TRY(dsf_mem_grow(&e->fresh, n + n / 2, sizeof *e->fresh));
        e->fresh_cap = n + n / 2;
    }
    size_t n_ids = 0;
    DSF_TRY(dsf_merges_apply(&e->b->merges, &e->scratch, piece, n, e->fresh, &n_ids));
    return dsf_ids_add(e->ids, e->fresh, n_ids);
}

static dsf_status take_piece(void *ud, const char *piece, size_t n)
{
    encoding *e = ud;
    if (n > CACHED_BYTES) return merge_piece(e, piece, n);
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)piece[i]) * 0x100000001B3u;
    cached *c = &e->cache[(h ^ h >> 32) & e->cache_mask];
    if (c->n == n && memcmp(e->text + c->at, piece, n) == 0) {
        int32_t ids[CACHED_BYTES]; /* a copy: the list may move as it grows */
        memcpy(ids, e->ids->id + c->ids_at, c->n_ids * sizeof *ids);
        return dsf_ids_add(e->ids, ids, c->n_ids);
    }
    size_t before = e->ids->n;
    DSF_TRY(merge_piece(e, piece, n));
    *c = (cached){(uint32_t)(piece - e->text), (uint32_t)n, (uint32_t)before,
                  (uint32_t)(e->ids->n - before)};
    return DSF_OK;
}

static dsf_status encode(encoding *e, size_t n, dsf_bpe_mode mode)
{
    for (size_t from = 0; from < n;) {
        size_t at = n, len = 0;
        int32_t id = -1;
        if (mode == DSF_BPE_ADDED)
            id = dsf_vocab_next_added(&e->b->vocab, e->text, n, from, &at, &len);
        if (at > from) DSF_TRY(dsf_pretok_cut(e->pretok, e->text + from, at - from, take_piece, e));
        if (id >= 0) DSF_TRY(dsf_ids_add(e->ids, &id, 1));
        from = at + len;
    }
    return DSF_OK;
}

dsf_status dsf_bpe_encode(const dsf_bpe *b, const char *text, size_t n, dsf_bpe_mode mode,
                          dsf_ids *ids)
{
    if (n > INT32_MAX) return DSF_FAIL(DSF_EINVAL, "text: %zu bytes, at most %d", n, INT32_MAX);
    size_t good = dsf_utf8_valid(text, n), slots = 64;
    if (good != n) return DSF_FAIL(DSF_ECORRUPT, "text: byte %zu of %zu: not UTF-8", good, n);
    while (slots < CACHE_SLOTS && slots < n / 4) slots *= 2;
    encoding e = {.b = b, .text = text, .ids = ids, .cache_mask = (uint32_t)slots - 1};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&e.cache, slots, sizeof *e.cache));
    DSF_TRY_OUT(dsf_pretok_open(&e.pretok, b->pretok));
    DSF_TRY_OUT(encode(&e, n, mode));
out:
    dsf_pretok_close(e.pretok);
    dsf_merge_scratch_free(&e.scratch);
    dsf_mem_free(e.fresh);
    dsf_mem_free(e.cache);
    return st;
}
