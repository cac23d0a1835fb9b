/* Ids to bytes and to UTF-8, whole or id by id. */
#include <string.h>

#include "base/utf8.h"
#include "text/bpe_file.h"

static dsf_status check_id(const dsf_bpe *b, int32_t id)
{
    if (id < 0 || id >= b->vocab.n || !b->vocab.token[id].flags)
        return DSF_FAIL(DSF_EINVAL, "id %d: no such token, the vocabulary has 0..%d", id,
                        b->vocab.n - 1);
    return DSF_OK;
}

dsf_status dsf_bpe_decode(const dsf_bpe *b, const int32_t *id, size_t n, bool skip_special,
                          dsf_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        DSF_TRY(check_id(b, id[i]));
        const dsf_token *t = &b->vocab.token[id[i]];
        if (skip_special && (t->flags & DSF_TOKEN_SPECIAL)) continue;
        dsf_buf_add(out, dsf_vocab_bytes(&b->vocab, id[i]), t->n);
    }
    return dsf_buf_status(out);
}

/* Bytes at s that could begin a character: 0 when not even the first; *whole tells whether they are
 * one. Unlike dsf_utf8_get this tells a cut-off character from a wrong one. */
static size_t begin_of(const char *s, size_t n, bool *whole)
{
    const unsigned char *u = (const unsigned char *)s;
    *whole = u[0] < 0x80;
    if (*whole) return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4) return 0;
    size_t want = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2, k = 1;
    unsigned char low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    while (k < want && k < n && u[k] >= low && u[k] <= high) {
        low = 0x80;
        high = 0xBF;
        k++;
    }
    *whole = k == want;
    return k;
}

/* Appends all but an unfinished character at the end; returns the bytes used. */
static size_t add_lossy(dsf_buf *out, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        bool whole;
        size_t good = dsf_utf8_valid(s + i, n - i);
        dsf_buf_add(out, s + i, good);
        i += good;
        if (i == n) break;
        size_t k = begin_of(s + i, n - i, &whole);
        if (k && i + k == n) break; /* the rest may still come */
        dsf_buf_str(out, "\xEF\xBF\xBD");
        i += k ? k : 1;
    }
    return i;
}

void dsf_bpe_lossy(dsf_buf *out, const char *bytes, size_t n)
{
    if (add_lossy(out, bytes, n) < n) dsf_buf_str(out, "\xEF\xBF\xBD");
}

dsf_status dsf_bpe_stream(const dsf_bpe *b, dsf_bpe_tail *tail, int32_t id, bool skip_special,
                          dsf_buf *out)
{
    DSF_TRY(check_id(b, id));
    const dsf_token *t = &b->vocab.token[id];
    if (skip_special && (t->flags & DSF_TOKEN_SPECIAL)) return DSF_OK;
    const char *s = dsf_vocab_bytes(&b->vocab, id);
    size_t n = t->n;
    while (n &&
           tail->n) { /* at most three more bytes finish what waits, or show that it is wrong */
        tail->held[tail->n++] = *s++;
        n--;
        size_t used = add_lossy(out, tail->held, tail->n);
        tail->n -= used;
        memmove(tail->held, tail->held + used, tail->n);
    }
    size_t used = n ? add_lossy(out, s, n) : 0;
    memcpy(tail->held + tail->n, s + used, n - used);
    tail->n += n - used;
    return dsf_buf_status(out);
}

void dsf_bpe_stream_end(dsf_bpe_tail *tail, dsf_buf *out)
{
    dsf_bpe_lossy(out, tail->held, tail->n);
    tail->n = 0;
}
