/* The few Unicode facts that the text code needs, from utf8proc's tables. */
#ifndef DSF_TEXT_UNICODE_H
#define DSF_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Property White_Space. U+0085 and U+3000 are in it, U+180E and U+200B are not. */
bool dsf_unicode_space(uint32_t c);
/* Letter, mark, decimal digit or connector: what \w means around "single_word" tokens. */
bool dsf_unicode_word(uint32_t c);
/* Appends the search key of n bytes of valid UTF-8: NFKD without the code points of category M,
 * each lower-cased on its own (encoding.md 5, step 3). NFKD is NFKC followed by NFD. */
DSF_MUST dsf_status dsf_unicode_fold(dsf_buf *out, const char *s, size_t n);

#endif
