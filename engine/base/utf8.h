/* UTF-8: validity, one code point out and in. */
#ifndef DSF_BASE_UTF8_H
#define DSF_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the longest valid prefix (no surrogates, no overlong forms, at most U+10FFFF). */
size_t dsf_utf8_valid(const char *s, size_t n);
/* Bytes of the code point at s (1..4), 0 when invalid or cut off. *c gets the code point. */
size_t dsf_utf8_get(const char *s, size_t n, uint32_t *c);
/* Writes c (a valid scalar value) to out[4]; returns the number of bytes. */
size_t dsf_utf8_put(char *out, uint32_t c);

#endif
