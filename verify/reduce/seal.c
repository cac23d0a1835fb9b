#include "verify/reduce/seal.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "ckpt/digest.h"

#define MARK  "dsf-case-digest:"
#define ZEROS "00000000000000000000000000000000"
enum { DIGITS = sizeof ZEROS - 1, MARKED = sizeof MARK - 1 };

const char dsf_seal_blank[] = MARK ZEROS;

static bool are_digits(const char *text)
{
    for (int i = 0; i < DIGITS; i++)
        if (!memchr("0123456789abcdef", text[i], 16)) return false;
    return true;
}

/* Where the digits stand; NULL: nowhere. The last mark counts: others may be words of a command. */
static const char *find_digits(const void *data, size_t n)
{
    const char *at = data, *end = at + n, *found = NULL;
    while ((at = memmem(at, (size_t)(end - at), MARK, MARKED)) != NULL) {
        at += MARKED;
        if (end - at >= DIGITS && are_digits(at)) found = at;
    }
    return found;
}

/* Of the bytes before and behind the digits. */
static dsf_status digest_around(const void *data, size_t n, const char *digits, char out[33])
{
    char part[2][33];
    const char *from = data;
    size_t before = (size_t)(digits - from);
    dsf_digest_bytes(from, before, part[0]);
    dsf_digest_bytes(digits + DIGITS, n - before - DIGITS, part[1]);
    dsf_buf b = {.max = 0};
    dsf_buf_fmt(&b, "%s %s", part[0], part[1]);
    dsf_status st = dsf_buf_status(&b);
    if (st == DSF_OK) dsf_digest_bytes(b.data, b.len, out);
    dsf_buf_free(&b);
    return st;
}

dsf_status dsf_seal_put(void *data, size_t n)
{
    char digest[33];
    const char *digits = find_digits(data, n);
    if (!digits) return DSF_FAIL(DSF_EINVAL, "the case has no place for its digest");
    DSF_TRY(digest_around(data, n, digits, digest));
    memcpy((char *)data + (digits - (const char *)data), digest, DIGITS);
    return DSF_OK;
}

dsf_status dsf_seal_check(const char *name, const void *data, size_t n)
{
    char digest[33];
    const char *digits = find_digits(data, n);
    if (!digits) return DSF_FAIL(DSF_ECORRUPT, "%s: broken case: it holds no digest", name);
    DSF_TRY(digest_around(data, n, digits, digest));
    if (memcmp(digits, digest, DIGITS) == 0) return DSF_OK;
    return DSF_FAIL(DSF_ECORRUPT,
                    "%s: broken case: changed since it was written (its digest is %.32s, that of "
                    "its bytes %s)",
                    name, digits, digest);
}
