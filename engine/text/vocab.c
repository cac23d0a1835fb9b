/* The byte alphabet (GPT-2's): the 188 printable bytes stand for themselves, the other 68 for
 * U+0100.. in byte order. */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

static uint32_t letter_of(uint8_t byte)
{
    if (byte <= 32) return 0x100u + byte;
    if (byte >= 127 && byte <= 160) return 0x121u + (byte - 127u);
    return byte == 173 ? 0x143u : byte;
}

static int byte_of(uint32_t letter)
{
    if (letter >= 0x100 && letter <= 0x120) return (int)(letter - 0x100);
    if (letter >= 0x121 && letter <= 0x142) return (int)(letter - 0x121) + 127;
    if (letter == 0x143) return 173;
    return letter < 256 && letter_of((uint8_t)letter) == letter ? (int)letter : -1;
}

bool dsf_vocab_add_bytes(dsf_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t k = dsf_utf8_get(s + i, n - i, &c);
        int byte = k ? byte_of(c) : -1;
        if (byte < 0) return false;
        dsf_buf_char(out, (char)byte);
        i += k;
    }
    return true;
}

const char *dsf_vocab_bytes(const dsf_vocab *v, int32_t id)
{
    return v->pool.data + v->token[id].at;
}

void dsf_vocab_add_string(const dsf_vocab *v, int32_t id, dsf_buf *out)
{
    const char *s = dsf_vocab_bytes(v, id);
    const dsf_token *t = &v->token[id];
    if (!(t->flags & DSF_TOKEN_LETTERS)) {
        dsf_buf_add(out, s, t->n);
        return;
    }
    for (uint32_t i = 0; i < t->n; i++) {
        char utf8[4];
        dsf_buf_add(out, utf8, dsf_utf8_put(utf8, letter_of((uint8_t)s[i])));
    }
}

/* FNV-1a: the keys are a few bytes long. */
static uint32_t hash(const char *s, size_t n, bool letters)
{
    uint64_t h = letters ? 0xCBF29CE484222325u : 0x84222325CBF29CE4u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t place_of(const dsf_vocab *v, const char *bytes, size_t n, bool letters)
{
    uint32_t i = hash(bytes, n, letters) & v->slot_mask;
    for (; v->slot[i] >= 0; i = (i + 1) & v->slot_mask) {
        const dsf_token *t = &v->token[v->slot[i]];
        if (t->n == n && letters == !!(t->flags & DSF_TOKEN_LETTERS) &&
            memcmp(v->pool.data + t->at, bytes, n) == 0)
            break;
    }
    return i;
}

int32_t dsf_vocab_find(const dsf_vocab *v, const char *bytes, size_t n, bool letters)
{
    return v->slot[place_of(v, bytes, n, letters)];
}

/* --- loading --- */

static dsf_status read_id(const char *name, const char *what, const dsf_json *value, int64_t *id)
{
    dsf_status st = dsf_json_int(value, id);
    if (st != DSF_OK || *id < 0 || *id >= DSF_VOCAB_IDS)
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s: id %s, not an integer in 0..%d", name, what,
                        dsf_json_text(value, NULL), DSF_VOCAB_IDS - 1);
    return DSF_OK;
}

static dsf_status count_ids(dsf_vocab *v, const char *name, const dsf_json *vocab,
                            const dsf_json *added, size_t *n_entries)
{
    int64_t id, last = -1;
    for (const dsf_json *e = dsf_json_first(vocab); e; e = dsf_json_next(e)) {
        DSF_TRY(read_id(name, "model.vocab", e, &id));
        if (id > last) last = id;
        ++*n_entries;
    }
    for (const dsf_json *e = added ? dsf_json_first(added) : NULL; e; e = dsf_json_next(e)) {
        const dsf_json *value = dsf_json_get(e, "id");
        if (!value) return DSF_FAIL(DSF_ECORRUPT, "%s: added_tokens: entry without id", name);
        DSF_TRY(read_id(name, "added_tokens", value, &id));
        if (id > last) last = id;
        v->n_added++;
    }
    if (*n_entries == 0) return DSF_FAIL(DSF_ECORRUPT, "%s: model.vocab: empty", name);
    v->n = (int32_t)(last + 1);
    return DSF_OK;
}

/* Appends bytes to the pool as the token `id`. */
static dsf_status set_token(dsf_vocab *v, int32_t id, size_t from, uint32_t flags)
{
    DSF_TRY(dsf_buf_status(&v->pool));
    v->token[id] =
        (dsf_token){.at = (uint32_t)from, .n = (uint32_t)(v->pool.len - from), .flags = flags};
    return DSF_OK;
}

static dsf_status add_entry(dsf_vocab *v, const char *name, const dsf_json *e, dsf_buf *key)
{
    int64_t id;
    DSF_TRY(dsf_json_int(e, &id));
    key->len = 0;
    dsf_json_add_key(key, e);
    DSF_TRY(dsf_buf_status(key));
    if (key->len == 0) return DSF_FAIL(DSF_ECORRUPT, "%s: model.vocab: empty entry", name);
    if (v->token[id].flags)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.vocab: id %d is given to two entries, one is %s",
                        name, (int)id, key->data);
    size_t from = v->pool.len;
    bool letters = dsf_vocab_add_bytes(&v->pool, key->data, key->len);
    if (!letters) {
        v->pool.len = from;
        dsf_buf_add(&v->pool, key->data, key->len);
    }
    DSF_TRY(dsf_buf_status(&v->pool));
    uint32_t i = place_of(v, v->pool.data + from, v->pool.len - from, letters);
    if (v->slot[i] >= 0)
        return DSF_FAIL(DSF_ECORRUPT, "%s: model.vocab: %s has the ids %d and %d", name, key->data,
                        v->slot[i], (int)id);
    v->slot[i] = (int32_t)id;
    return set_token(v, (int32_t)id, from, DSF_TOKEN_PRESENT | (letters ? DSF_TOKEN_LETTERS : 0u));
}

static dsf_status add_entries(dsf_vocab *v, const char *name, const dsf_json *vocab)
{
    dsf_buf key = {.max = 1 << 20};
    dsf_status st = DSF_OK;
    for (const dsf_json *e = dsf_json_first(vocab); e && st == DSF_OK; e = dsf_json_next(e))
        st = add_entry(v, name, e, &key);
    dsf_buf_free(&key);
    return st == DSF_OK ? st : dsf_error_pass(st, DSF_HERE);
}

/* Flags of one entry of added_tokens; what is not implemented is refused by name. */
static dsf_status read_flags(const char *name, int64_t id, const dsf_json *e, uint32_t *flags)
{
    *flags = DSF_TOKEN_PRESENT | DSF_TOKEN_ADDED;
    for (const dsf_json *m = dsf_json_first(e); m; m = dsf_json_next(m)) {
        const char *key = dsf_json_key(m);
        if (strcmp(key, "id") == 0 || strcmp(key, "content") == 0) continue;
        if (dsf_json_kind_of(m) != DSF_JSON_BOOL)
            return DSF_FAIL(DSF_ECORRUPT, "%s: added token %d: %s is %s, expected a boolean", name,
                            (int)id, key, dsf_json_kind_name(dsf_json_kind_of(m)));
        bool on = dsf_json_true(m);
        if (strcmp(key, "special") == 0)
            *flags |= on ? DSF_TOKEN_SPECIAL : 0;
        else if (strcmp(key, "single_word") == 0)
            *flags |= on ? DSF_TOKEN_SINGLE_WORD : 0;
        else if (on && strcmp(key, "normalized") != 0) /* no normalizer: nothing to do */
            return DSF_FAIL(DSF_ENOTSUP, "%s: added token %d: %s is not supported", name, (int)id,
                            key);
    }
    return DSF_OK;
}

/* The vocabulary and added_tokens may both hold a token; then they must agree. */
static dsf_status check_agreement(const dsf_vocab *v, const char *name, int64_t id, const char *s,
                                  size_t n)
{
    const dsf_token *t = &v->token[id];
    int32_t other = dsf_vocab_find(v, s, n, true);
    if (other < 0) other = dsf_vocab_find(v, s, n, false);
    if (t->flags & DSF_TOKEN_ADDED)
        return DSF_FAIL(DSF_ECORRUPT, "%s: added_tokens: id %d occurs twice", name, (int)id);
    if (t->flags && (t->n != n || memcmp(v->pool.data + t->at, s, n) != 0))
        return DSF_FAIL(DSF_ECORRUPT, "%s: added token %d: %s, but model.vocab has other bytes",
                        name, (int)id, s);
    if (!t->flags && other >= 0)
        return DSF_FAIL(DSF_ECORRUPT, "%s: added token %d: %s is id %d in model.vocab", name,
                        (int)id, s, other);
    return DSF_OK;
}

static dsf_status add_added(dsf_vocab *v, const char *name, const dsf_json *e, dsf_buf *text)
{
    int64_t id;
    uint32_t flags;
    DSF_TRY(dsf_json_int(dsf_json_get(e, "id"), &id));
    const dsf_json *content = dsf_json_get(e, "content");
    if (!content || dsf_json_kind_of(content) != DSF_JSON_STRING)
        return DSF_FAIL(DSF_ECORRUPT, "%s: added token %d: no content", name, (int)id);
    text->len = 0;
    dsf_json_add_text(text, content);
    DSF_TRY(dsf_buf_status(text));
    if (text->len == 0 || text->len > DSF_VOCAB_ADDED_BYTES)
        return DSF_FAIL(DSF_ENOTSUP,
                        "%s: added token %d: content of %zu bytes, 1..%d are supported", name,
                        (int)id, text->len, DSF_VOCAB_ADDED_BYTES);
    DSF_TRY(read_flags(name, id, e, &flags));
    DSF_TRY(check_agreement(v, name, id, text->data, text->len));
    if (v->token[id].flags) {
        v->token[id].flags |= flags;
        return DSF_OK;
    }
    size_t from = v->pool.len;
    dsf_buf_add(&v->pool, text->data, text->len);
    return set_token(v, (int32_t)id, from, flags);
}

typedef struct {
    const char *s;
    uint32_t n;
    int32_t id;
} content;

static int compare(const void *a, const void *b)
{
    const content *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static dsf_status sort_added(dsf_vocab *v, const char *name)
{
    content *c = NULL;
    int32_t n = 0;
    DSF_TRY(dsf_mem_new(&c, (size_t)v->n_added + 1, sizeof *c));
    for (int32_t id = 0; id < v->n; id++)
        if (v->token[id].flags & DSF_TOKEN_ADDED)
            c[n++] = (content){dsf_vocab_bytes(v, id), v->token[id].n, id};
    qsort(c, (size_t)n, sizeof *c, compare);
    dsf_status st = DSF_OK;
    int32_t k = 0;
    for (int b = 0; b < 256; b++) {
        v->first[b] = k;
        while (k < n && (uint8_t)c[k].s[0] == b) k++;
    }
    v->first[256] = n;
    for (int32_t i = 0; i < n && st == DSF_OK; i++) {
        v->added[i] = c[i].id;
        if (i > 0 && compare(&c[i - 1], &c[i]) == 0)
            st = DSF_FAIL(DSF_ECORRUPT, "%s: added tokens %d and %d have the same content", name,
                          c[i - 1].id, c[i].id);
    }
    dsf_mem_free(c);
    return st;
}

static dsf_status add_all_added(dsf_vocab *v, const char *name, const dsf_json *added)
{
    dsf_buf text = {.max = 1 << 20};
    dsf_status st = DSF_OK;
    for (const dsf_json *e = dsf_json_first(added); e && st == DSF_OK; e = dsf_json_next(e))
        st = add_added(v, name, e, &text);
    dsf_buf_free(&text);
    return st == DSF_OK ? st : dsf_error_pass(st, DSF_HERE);
}

dsf_status dsf_vocab_load(dsf_vocab *v, const char *name, const dsf_json *vocab,
                          const dsf_json *added)
{
    size_t n_entries = 0, slots = 16;
    DSF_TRY(count_ids(v, name, vocab, added, &n_entries));
    while (slots < 2 * n_entries) slots *= 2;
    v->pool.max = (size_t)1 << 31;
    v->slot_mask = (uint32_t)slots - 1;
    DSF_TRY(dsf_mem_new(&v->token, (size_t)v->n, sizeof *v->token));
    DSF_TRY(dsf_mem_new(&v->slot, slots, sizeof *v->slot));
    DSF_TRY(dsf_mem_new(&v->added, (size_t)v->n_added + 1, sizeof *v->added));
    memset(v->slot, 0xFF, slots * sizeof *v->slot);
    DSF_TRY(add_entries(v, name, vocab));
    if (added) DSF_TRY(add_all_added(v, name, added));
    return sort_added(v, name);
}

void dsf_vocab_free(dsf_vocab *v)
{
    dsf_mem_free(v->token);
    dsf_mem_free(v->slot);
    dsf_mem_free(v->added);
    dsf_buf_free(&v->pool);
    *v = (dsf_vocab){0};
}

/* --- matching added tokens --- */

/* Byte `depth` of the added token at place k; -1 past its end, so that it sorts first. */
static int byte_at(const dsf_vocab *v, int32_t k, uint32_t depth)
{
    const dsf_token *t = &v->token[v->added[k]];
    return depth < t->n ? (uint8_t)v->pool.data[t->at + depth] : -1;
}

/* First place in [lo, hi) whose byte at `depth` is at least b. */
static int32_t lower(const dsf_vocab *v, int32_t lo, int32_t hi, uint32_t depth, int b)
{
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (byte_at(v, mid, depth) < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Longest added token that text begins with: the range of candidates narrows byte by byte. */
static int32_t match(const dsf_vocab *v, const char *text, size_t n, size_t *len)
{
    int32_t lo = v->first[(uint8_t)text[0]], hi = v->first[(uint8_t)text[0] + 1], best = -1;
    for (uint32_t depth = 1; lo < hi; depth++) {
        if (v->token[v->added[lo]].n == depth) {
            best = v->added[lo];
            *len = depth;
        }
        if (depth >= n) break;
        int b = (uint8_t)text[depth];
        lo = lower(v, lo, hi, depth, b);
        hi = lower(v, lo, hi, depth, b + 1);
    }
    return best;
}

int32_t dsf_vocab_find_added(const dsf_vocab *v, const char *s, size_t n)
{
    size_t len = 0;
    int32_t id = n && v->n_added ? match(v, s, n, &len) : -1;
    return len == n ? id : -1;
}

static bool word_before(const char *text, size_t at)
{
    uint32_t c = 0;
    size_t from = at;
    if (at == 0) return false;
    do from--;
    while (from > 0 && at - from < 4 && ((uint8_t)text[from] & 0xC0) == 0x80);
    return dsf_utf8_get(text + from, at - from, &c) != 0 && dsf_unicode_word(c);
}

static bool word_after(const char *text, size_t n)
{
    uint32_t c = 0;
    return dsf_utf8_get(text, n, &c) != 0 && dsf_unicode_word(c);
}

int32_t dsf_vocab_next_added(const dsf_vocab *v, const char *text, size_t n, size_t from,
                             size_t *at, size_t *len)
{
    for (size_t i = from; i < n;) {
        uint8_t b = (uint8_t)text[i];
        int32_t id = v->first[b] < v->first[b + 1] ? match(v, text + i, n - i, len) : -1;
        if (id < 0) {
            i++;
            continue;
        }
        bool apart = v->token[id].flags & DSF_TOKEN_SINGLE_WORD;
        if (!apart || !(word_before(text, i) || word_after(text + i + *len, n - i - *len))) {
            *at = i;
            return id;
        }
        i += *len;
    }
    *at = n;
    return -1;
}
