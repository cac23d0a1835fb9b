#include "text/unicode.h"

#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"

bool dsf_unicode_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool dsf_unicode_word(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) || k == UTF8PROC_CATEGORY_PC;
}

static bool is_mark(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

dsf_status dsf_unicode_fold(dsf_buf *out, const char *s, size_t n)
{
    const utf8proc_option_t how = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE;
    const utf8proc_uint8_t *u = (const utf8proc_uint8_t *)s;
    utf8proc_ssize_t need = utf8proc_decompose(u, (utf8proc_ssize_t)n, NULL, 0, how);
    if (need < 0)
        return DSF_FAIL(DSF_EINVAL, "normal form of %zu bytes: %s", n, utf8proc_errmsg(need));
    utf8proc_int32_t *c = NULL;
    DSF_TRY(dsf_mem_new(&c, (size_t)need + 1, sizeof *c));
    need = utf8proc_decompose(u, (utf8proc_ssize_t)n, c, need, how);
    for (utf8proc_ssize_t i = 0; i < need; i++) {
        char utf8[4];
        if (is_mark(c[i])) continue;
        dsf_buf_add(out, utf8, dsf_utf8_put(utf8, (uint32_t)utf8proc_tolower(c[i])));
    }
    dsf_mem_free(c);
    return dsf_buf_status(out);
}
