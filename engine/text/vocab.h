/* The token table of a byte-level tokenizer: bytes, flags and look-ups (encoding.md 4). */
#ifndef DSF_TEXT_VOCAB_H
#define DSF_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

enum { DSF_VOCAB_IDS = 1 << 21, DSF_VOCAB_ADDED_BYTES = 256 };

typedef enum {
    DSF_TOKEN_PRESENT = 1,
    DSF_TOKEN_LETTERS = 2, /* from the vocabulary, spelled in the byte alphabet */
    DSF_TOKEN_ADDED = 4,
    DSF_TOKEN_SPECIAL = 8,
    DSF_TOKEN_SINGLE_WORD = 16 /* matches only where no word character touches it */
} dsf_token_flag;

typedef struct {
    uint32_t at, n; /* bytes, in the pool */
    uint32_t flags;
} dsf_token;

typedef struct {
    dsf_token *token; /* [n] by id; flags 0 where there is none */
    int32_t n;
    dsf_buf pool;
    int32_t *slot; /* hash table of vocabulary entries; -1 free */
    uint32_t slot_mask;
    int32_t *added; /* [n_added] ids, in byte order of their contents */
    int32_t n_added;
    int32_t first[257]; /* added tokens that begin with byte b: added[first[b] .. first[b + 1]) */
} dsf_vocab;

/* `vocab` is the object model.vocab, `added` the array added_tokens. `name` opens messages. */
DSF_MUST dsf_status dsf_vocab_load(dsf_vocab *v, const char *name, const dsf_json *vocab,
                                   const dsf_json *added);
void dsf_vocab_free(dsf_vocab *v);

const char *dsf_vocab_bytes(const dsf_vocab *v, int32_t id);
/* Vocabulary entry with these bytes, or -1. letters: spelled in the byte alphabet or not. */
int32_t dsf_vocab_find(const dsf_vocab *v, const char *bytes, size_t n, bool letters);
/* Added token with exactly this content, or -1. */
int32_t dsf_vocab_find_added(const dsf_vocab *v, const char *s, size_t n);
/* The first added token at or after `from`, leftmost, then longest; -1: none. Its place in *at,
 * its length in *len. At most DSF_VOCAB_ADDED_BYTES looks per byte of text. */
int32_t dsf_vocab_next_added(const dsf_vocab *v, const char *text, size_t n, size_t from,
                             size_t *at, size_t *len);
/* Appends the entry as tokenizer.json spells it. */
void dsf_vocab_add_string(const dsf_vocab *v, int32_t id, dsf_buf *out);
/* Appends the bytes that a string of the byte alphabet stands for; false: it has other letters. */
bool dsf_vocab_add_bytes(dsf_buf *out, const char *s, size_t n);

#endif
