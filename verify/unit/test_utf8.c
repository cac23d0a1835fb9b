#include <criterion/criterion.h>
#include <string.h>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/unicode.h"

Test(utf8, every_scalar_value_round_trips)
{
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char s[4];
        uint32_t back = 0;
        if (c == 0xD800) c = 0xE000; /* surrogates are no scalar values */
        size_t n = dsf_utf8_put(s, c);
        if (dsf_utf8_get(s, n, &back) != n || back != c || dsf_utf8_valid(s, n) != n)
            cr_assert_fail("U+%04X", c);
        if (n > 1 && (dsf_utf8_get(s, n - 1, &back) != 0 || dsf_utf8_valid(s, n - 1) != 0))
            cr_assert_fail("U+%04X cut short", c);
    }
}

typedef struct {
    const char *bytes;
    size_t valid;
    const char *lossy;
} sample;

#define R "\xEF\xBF\xBD"

/* One U+FFFD for each longest beginning of a character that does not go on. */
Test(utf8, invalid_bytes_are_found_and_replaced)
{
    static const sample samples[] = {
        {"plain ascii, more than eight", 28, "plain ascii, more than eight"},
        {"a\x80z", 1, "a" R "z"},
        {"\xC0\x80", 0, R R},             /* overlong */
        {"\xE0\x9F\xBF", 0, R R R},       /* overlong */
        {"\xED\xA0\x80", 0, R R R},       /* surrogate */
        {"\xF4\x90\x80\x80", 0, R R R R}, /* past U+10FFFF */
        {"\xF5\x80", 0, R R},
        {"\xF0\x9F\x98", 0, R}, /* cut */
        {"\xF0\x9F\x98z", 0, R "z"},
        {"\xF0\x9F\xE4\xBD\xA0", 0, R "\xE4\xBD\xA0"},
        {"\xE4\xBD\xA0\xE4\xBD", 3, "\xE4\xBD\xA0" R},
        {"\xFF\xFE", 0, R R},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const sample *s = &samples[i];
        dsf_buf out = {0};
        cr_expect_eq(dsf_utf8_valid(s->bytes, strlen(s->bytes)), s->valid, "sample %zu", i);
        dsf_bpe_lossy(&out, s->bytes, strlen(s->bytes));
        cr_expect_str_eq(out.data, s->lossy, "sample %zu: %s", i, out.data);
        dsf_buf_free(&out);
    }
}

Test(unicode, white_space_is_the_property_of_that_name)
{
    static const uint32_t in[] = {9,      13,     32,     0x85,   0xA0,  0x1680,
                                  0x2000, 0x200A, 0x2028, 0x202F, 0x3000};
    static const uint32_t out[] = {8, 14, 33, 0x180E, 0x200B, 0x2060, 0xFEFF, 0x61};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        cr_expect(dsf_unicode_space(in[i]), "U+%04X", in[i]);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        cr_expect(!dsf_unicode_space(out[i]), "U+%04X", out[i]);
}
