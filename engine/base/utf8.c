#include "base/utf8.h"

#include <string.h>

size_t dsf_utf8_get(const char *s, size_t n, uint32_t *c)
{
    if (n == 0) return 0;
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *c = u[0];
        return 1;
    }
    size_t k = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (u[0] < 0xC2 || u[0] > 0xF4 || n < k) return 0;
    uint32_t v = u[0] & (0xFFu >> (k + 1));
    for (size_t i = 1; i < k; i++) {
        if ((u[i] & 0xC0) != 0x80) return 0;
        v = v << 6 | (u[i] & 0x3F);
    }
    if (v < least[k] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return 0;
    *c = v;
    return k;
}

size_t dsf_utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        if (i + 8 <= n && (memcpy(&w, s + i, 8), (w & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        uint32_t c;
        size_t k = dsf_utf8_get(s + i, n - i, &c);
        if (k == 0) return i;
        i += k;
    }
    return n;
}

size_t dsf_utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t k = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char head[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = k - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)(head[k] | c);
    return k;
}
