#include "text/classes.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

typedef struct {
    dsf_buf keys;  /* all distinct keys, one after the other */
    uint32_t *end; /* [n] end of key i in there */
    int32_t *slot; /* hash table of keys; -1 free */
    uint32_t mask;
    int n;
} key_table;

static bool key_equals(const key_table *t, int32_t i, const char *s, size_t n)
{
    uint32_t from = i ? t->end[i - 1] : 0;
    return t->end[i] - from == n && s && t->keys.data && memcmp(t->keys.data + from, s, n) == 0;
}

/* Class of a key; a new one gets the next number. */
static int32_t class_of(key_table *t, const dsf_buf *key)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < key->len; i++) h = (h ^ (uint8_t)key->data[i]) * 0x100000001B3u;
    uint32_t i = (uint32_t)(h ^ h >> 32) & t->mask;
    for (; t->slot[i] >= 0; i = (i + 1) & t->mask)
        if (key_equals(t, t->slot[i], key->data, key->len)) return t->slot[i];
    dsf_buf_add(&t->keys, key->data, key->len);
    t->end[t->n] = (uint32_t)t->keys.len;
    t->slot[i] = t->n;
    return t->n++;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Runs of blanks become one space. In place. */
static void squeeze(dsf_buf *b)
{
    size_t n = 0;
    bool in_run = false;
    for (size_t i = 0; i < b->len; i++) {
        bool blank = is_blank(b->data[i]);
        if (!blank || !in_run) b->data[n++] = (char)(blank ? ' ' : b->data[i]);
        in_run = blank;
    }
    b->len = n;
}

/* White_Space goes from both ends, unless one space is all there is. That space passes the
 * stripping as U+E000, so a U+E000 of the text itself ends as a space too. In place. */
static void strip(dsf_buf *b)
{
    size_t n = b->len, from = 0, k;
    uint32_t c;
    if (n == 1 && b->data[0] == ' ') return;
    while (from < n && (k = dsf_utf8_get(b->data + from, n - from, &c)) && dsf_unicode_space(c))
        from += k;
    while (n > from) {
        size_t start = n - 1;
        while (start > from && ((uint8_t)b->data[start] & 0xC0) == 0x80) start--;
        if (!dsf_utf8_get(b->data + start, n - start, &c) || !dsf_unicode_space(c)) break;
        n = start;
    }
    b->len = 0;
    for (; from < n; from += k) {
        k = dsf_utf8_get(b->data + from, n - from, &c);
        memmove(b->data + b->len, c == 0xE000 ? " " : b->data + from, c == 0xE000 ? 1 : k);
        b->len += c == 0xE000 ? 1 : k;
    }
}

static bool has_replacement(const char *s, size_t n)
{
    return memmem(s, n, "\xEF\xBF\xBD", 3) != NULL;
}

/* The key of one token in *key. */
static dsf_status make_key(const dsf_bpe *b, int32_t id, dsf_buf *key)
{
    size_t n = 0;
    const char *text = dsf_bpe_token_bytes(b, id, &n);
    if (!text)
        return DSF_FAIL(DSF_ECORRUPT, "tokenizer: id %d has no token, so no Engram class", id);
    key->len = 0;
    if (dsf_utf8_valid(text, n) != n || has_replacement(text, n)) {
        dsf_bpe_token_string(b, id, key);
        return dsf_buf_status(key);
    }
    DSF_TRY(dsf_unicode_fold(key, text, n));
    if (key->len) {
        squeeze(key);
        strip(key);
    }
    if (key->len == 0) dsf_buf_add(key, text, n);
    return dsf_buf_status(key);
}

dsf_status dsf_classes_build(const dsf_bpe *b, int32_t *map, int *n_classes)
{
    int32_t n = dsf_bpe_n_vocab(b);
    size_t slots = 16;
    while (slots < 2 * (size_t)n) slots *= 2;
    key_table t = {.mask = (uint32_t)slots - 1, .keys = {.max = UINT32_MAX}};
    dsf_buf key = {.max = 1 << 24};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&t.end, (size_t)n + 1, sizeof *t.end));
    DSF_TRY_OUT(dsf_mem_new(&t.slot, slots, sizeof *t.slot));
    memset(t.slot, 0xFF, slots * sizeof *t.slot);
    for (int32_t id = 0; id < n; id++) {
        DSF_TRY_OUT(make_key(b, id, &key));
        map[id] = class_of(&t, &key);
    }
    DSF_TRY_OUT(dsf_buf_status(&t.keys));
    *n_classes = t.n;
out:
    dsf_buf_free(&key);
    dsf_buf_free(&t.keys);
    dsf_mem_free(t.end);
    dsf_mem_free(t.slot);
    return st;
}
