/* SHA-256 of a byte string, for bindings that other programs write. */
#ifndef DSF_DIFF_SHA256_H
#define DSF_DIFF_SHA256_H

#include <stddef.h>

/* 64 hexadecimal digits and NUL. */
void dsf_sha256_hex(const void *data, size_t n, char out[65]);

#endif
