/* tokenizer.json as a byte-level BPE tokenizer: text to ids and back (encoding.md 4). */
#ifndef DSF_TEXT_BPE_H
#define DSF_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct dsf_bpe dsf_bpe; /* immutable after open; any number of threads may use it */

/* A growing list of ids. Zero-initialise; max 0 = 2^28. Free with dsf_ids_free. */
typedef struct {
    int32_t *id;
    size_t n, cap, max;
} dsf_ids;

DSF_MUST dsf_status dsf_ids_add(dsf_ids *ids, const int32_t *id, size_t n);
void dsf_ids_free(dsf_ids *ids);

/* Reads tokenizer.json; a folder stands for the file of that name in it. What the file asks for
 * beyond what is implemented is refused by name: ENOTSUP (a feature), ECORRUPT (contradiction). */
DSF_MUST dsf_status dsf_bpe_open(dsf_bpe **out, const char *path);
/* The same from n bytes; `name` opens messages. */
DSF_MUST dsf_status dsf_bpe_parse(dsf_bpe **out, const char *name, const char *json, size_t n);
void dsf_bpe_close(dsf_bpe *b); /* NULL is fine */

int32_t dsf_bpe_n_vocab(const dsf_bpe *b); /* highest id + 1 */
/* Bytes of a token (not NUL-terminated, owned by b), or NULL when the id has none. */
const char *dsf_bpe_token_bytes(const dsf_bpe *b, int32_t id, size_t *n);
/* Appends the token as tokenizer.json spells it (ordinary ones in the byte alphabet). */
void dsf_bpe_token_string(const dsf_bpe *b, int32_t id, dsf_buf *out);
bool dsf_bpe_is_special(const dsf_bpe *b, int32_t id);
bool dsf_bpe_is_added(const dsf_bpe *b, int32_t id);
/* Id of the added token with exactly this content, or -1. */
int32_t dsf_bpe_find_added(const dsf_bpe *b, const char *content, size_t n);

typedef enum {
    DSF_BPE_PLAIN, /* added tokens in the text are text: inert, but not what the reference does */
    DSF_BPE_ADDED  /* added tokens are matched, leftmost, then longest */
} dsf_bpe_mode;

/* Appends the ids of n bytes. ECORRUPT: not UTF-8 (with the offset), or an expression gave up;
 * EINVAL: over 2^31 - 1 bytes, a byte without token, or over ids->max. Time: n log n. */
DSF_MUST dsf_status dsf_bpe_encode(const dsf_bpe *b, const char *text, size_t n, dsf_bpe_mode mode,
                                   dsf_ids *ids);

/* Appends the bytes of all ids; may be cut inside a character. EINVAL: an id without token. */
DSF_MUST dsf_status dsf_bpe_decode(const dsf_bpe *b, const int32_t *id, size_t n, bool skip_special,
                                   dsf_buf *out);
/* Appends bytes as UTF-8, U+FFFD for each longest beginning of a character that is not one. */
void dsf_bpe_lossy(dsf_buf *out, const char *bytes, size_t n);

/* Decoding id by id: bytes of an incomplete character wait for the next id. Zero-initialise. */
typedef struct {
    char held[4];
    size_t n;
} dsf_bpe_tail;

DSF_MUST dsf_status dsf_bpe_stream(const dsf_bpe *b, dsf_bpe_tail *tail, int32_t id,
                                   bool skip_special, dsf_buf *out);
/* What still waits at the end becomes U+FFFD. */
void dsf_bpe_stream_end(dsf_bpe_tail *tail, dsf_buf *out);

#endif
