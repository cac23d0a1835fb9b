/* The expressions are written for another library than PCRE2. What both read alike is passed on;
 * \s is spelled out as White_Space (PCRE2's also has U+180E); anything that could mean something
 * else there is refused by name. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { STAGES = 8, PATTERN_BYTES = 8192 };
/* Steps that one match may take: a fixed part, and a part per byte of the piece, which a long run
 * of blanks needs (it is given back one by one). */
enum { STEPS_FIXED = 100000, STEPS_PER_BYTE = 64, HEAP_KIB = 65536 };

#define WHITE_SPACE                                                                                \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"    \
    "\\x{205F}\\x{3000}"

struct dsf_pretok {
    pcre2_general_context *memory;
    pcre2_code *code[STAGES];
    int n;
};

struct dsf_pretok_run {
    const dsf_pretok *p;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    dsf_pretok_fn *fn;
    void *ud;
};

static void *take(PCRE2_SIZE bytes, void *ud)
{
    void *p = NULL;
    (void)ud;
    return dsf_mem_new(&p, 1, bytes ? bytes : 1) == DSF_OK ? p : NULL;
}

static void give(void *p, void *ud)
{
    (void)ud;
    dsf_mem_free(p);
}

/* --- expressions --- */

typedef struct {
    const char *name, *s;
    int stage;
    size_t n, at;
    dsf_buf out;
} translation;

static dsf_status refuse(const translation *t, const char *what)
{
    return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: regex %d: byte %zu: %s is not supported",
                    t->name, t->stage + 1, t->at, what);
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* \p{Name} or \P{Name}, copied. */
static dsf_status copy_property(translation *t)
{
    size_t i = t->at + 2;
    if (i >= t->n || t->s[i] != '{') return refuse(t, "a property without braces");
    for (i++; i < t->n && (is_alnum(t->s[i]) || t->s[i] == '_'); i++) continue;
    if (i >= t->n || t->s[i] != '}' || i == t->at + 3) return refuse(t, "this property");
    dsf_buf_add(&t->out, t->s + t->at, i + 1 - t->at);
    t->at = i + 1;
    return DSF_OK;
}

static dsf_status copy_escape(translation *t, bool in_class)
{
    char e = (char)(t->at + 1 < t->n ? t->s[t->at + 1] : 0);
    if (e == 'p' || e == 'P') return copy_property(t);
    if (e == 's') {
        dsf_buf_str(&t->out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
    } else if (e == 'S' && !in_class) {
        dsf_buf_str(&t->out, "[^" WHITE_SPACE "]");
    } else if (e == 'r' || e == 'n' || e == 't' ||
               (e > 0x20 && e < 0x7F && !is_alnum(e))) { /* signs stand for themselves */
        dsf_buf_add(&t->out, t->s + t->at, 2);
    } else {
        char what[] = "the escape \\?";
        if (e > 0x20 && e < 0x7F) what[sizeof what - 2] = e;
        return refuse(t, what);
    }
    t->at += 2;
    return DSF_OK;
}

static dsf_status copy_class(translation *t)
{
    size_t open = t->at++;
    dsf_buf_char(&t->out, '[');
    if (t->at < t->n && t->s[t->at] == '^') {
        dsf_buf_char(&t->out, '^');
        t->at++;
    }
    size_t from = t->at;
    while (t->at < t->n && t->s[t->at] != ']') {
        char c = t->s[t->at];
        if (c == '[') return refuse(t, "a class inside a class");
        if (c == '&' && t->at + 1 < t->n && t->s[t->at + 1] == '&')
            return refuse(t, "an intersection of classes");
        if (c == '\\') {
            DSF_TRY(copy_escape(t, true));
        } else {
            dsf_buf_char(&t->out, c);
            t->at++;
        }
    }
    if (t->at >= t->n || t->at == from) {
        t->at = open;
        return refuse(t, "an empty or unclosed class");
    }
    dsf_buf_char(&t->out, ']');
    t->at++;
    return DSF_OK;
}

static dsf_status copy_group(translation *t)
{
    static const char *const allowed[] = {"(?:", "(?=", "(?!", "(?i:"};
    char next = (char)(t->at + 1 < t->n ? t->s[t->at + 1] : 0);
    size_t len = next == '?' || next == '*' ? 0 : 1;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed && len == 0; i++) {
        size_t k = strlen(allowed[i]);
        if (t->n - t->at >= k && memcmp(t->s + t->at, allowed[i], k) == 0) len = k;
    }
    if (len == 0) return refuse(t, "this kind of group");
    dsf_buf_add(&t->out, t->s + t->at, len);
    t->at += len;
    return DSF_OK;
}

static dsf_status translate(translation *t)
{
    if (t->n > PATTERN_BYTES) return refuse(t, "an expression over 8192 bytes");
    while (t->at < t->n) {
        char c = t->s[t->at];
        if (c == '\\') {
            DSF_TRY(copy_escape(t, false));
        } else if (c == '[') {
            DSF_TRY(copy_class(t));
        } else if (c == '(') {
            DSF_TRY(copy_group(t));
        } else if (c == '^' || c == '$') {
            return refuse(t, c == '^' ? "the anchor ^" : "the anchor $");
        } else if (c == '{' &&
                   !(t->at + 1 < t->n && t->s[t->at + 1] >= '0' && t->s[t->at + 1] <= '9')) {
            return refuse(t, "a brace without a number");
        } else {
            dsf_buf_char(&t->out, c);
            t->at++;
        }
    }
    return dsf_buf_status(&t->out);
}

static dsf_status compile(dsf_pretok *p, translation *t)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    DSF_TRY(translate(t));
    pcre2_compile_context *how = pcre2_compile_context_create(p->memory);
    if (!how) return DSF_FAIL(DSF_ENOMEM, "%s: regex %d: no memory", t->name, t->stage + 1);
    (void)pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    (void)pcre2_set_parens_nest_limit(how, 50);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)(t->out.data ? t->out.data : ""), t->out.len,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &error, &at, how);
    pcre2_compile_context_free(how);
    if (!code) {
        unsigned char words[160];
        (void)pcre2_get_error_message(error, words, sizeof words);
        return DSF_FAIL(error == PCRE2_ERROR_HEAP_FAILED ? DSF_ENOMEM : DSF_ECORRUPT,
                        "%s: pre_tokenizer: regex %d: about byte %zu: %s", t->name, t->stage + 1,
                        (size_t)at, (char *)words);
    }
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it the interpreter runs */
    p->code[p->n++] = code;
    return DSF_OK;
}

static bool is_text(const dsf_json *v, const char *want)
{
    return v && dsf_json_kind_of(v) == DSF_JSON_STRING && strcmp(dsf_json_text(v, NULL), want) == 0;
}

static bool is_false(const dsf_json *v)
{
    return v && dsf_json_kind_of(v) == DSF_JSON_BOOL && !dsf_json_true(v);
}

static dsf_status add_split(dsf_pretok *p, const char *name, const dsf_json *v)
{
    const dsf_json *pattern = dsf_json_get(dsf_json_get(v, "pattern"), "Regex");
    if (!pattern || dsf_json_kind_of(pattern) != DSF_JSON_STRING)
        return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: Split %d: only a Regex is supported", name,
                        p->n + 1);
    if (!is_text(dsf_json_get(v, "behavior"), "Isolated") || !is_false(dsf_json_get(v, "invert")))
        return DSF_FAIL(DSF_ENOTSUP,
                        "%s: pre_tokenizer: Split %d: behavior must be Isolated, invert false",
                        name, p->n + 1);
    if (p->n == STAGES)
        return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: over %d Splits", name, STAGES);
    dsf_buf text = {.max = 1 << 20};
    dsf_json_add_text(&text, pattern);
    translation t = {.name = name, .stage = p->n, .s = text.data, .n = text.len};
    t.out.max = 1 << 20;
    dsf_status st = dsf_buf_status(&text);
    if (st == DSF_OK) st = compile(p, &t);
    dsf_buf_free(&t.out);
    dsf_buf_free(&text);
    return st;
}

static dsf_status add_stages(dsf_pretok *p, const char *name, const dsf_json *value)
{
    bool closed = false;
    if (!is_text(dsf_json_get(value, "type"), "Sequence"))
        return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: only a Sequence is supported", name);
    const dsf_json *list = dsf_json_get(value, "pretokenizers");
    for (const dsf_json *v = list ? dsf_json_first(list) : NULL; v; v = dsf_json_next(v)) {
        const dsf_json *type = dsf_json_get(v, "type");
        if (closed)
            return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: a stage after ByteLevel", name);
        if (is_text(type, "Split")) {
            DSF_TRY(add_split(p, name, v));
        } else if (is_text(type, "ByteLevel")) {
            if (!is_false(dsf_json_get(v, "add_prefix_space")) ||
                !is_false(dsf_json_get(v, "use_regex")))
                return DSF_FAIL(DSF_ENOTSUP,
                                "%s: pre_tokenizer: ByteLevel: add_prefix_space and use_regex must "
                                "be false",
                                name);
            closed = true;
        } else {
            return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: stage %s is not supported", name,
                            type ? dsf_json_text(type, NULL) : "without type");
        }
    }
    if (!closed) return DSF_FAIL(DSF_ENOTSUP, "%s: pre_tokenizer: no ByteLevel at the end", name);
    return DSF_OK;
}

dsf_status dsf_pretok_load(dsf_pretok **out, const char *name, const dsf_json *value)
{
    dsf_pretok *p = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&p, 1, sizeof *p));
    p->memory = pcre2_general_context_create(take, give, NULL);
    if (!p->memory) DSF_TRY_OUT(DSF_FAIL(DSF_ENOMEM, "%s: pre_tokenizer: no memory", name));
    DSF_TRY_OUT(add_stages(p, name, value));
    *out = p;
    return DSF_OK;
out:
    dsf_pretok_free(p);
    return st;
}

void dsf_pretok_free(dsf_pretok *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++) pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->memory);
    dsf_mem_free(p);
}

/* --- cutting --- */

dsf_status dsf_pretok_open(dsf_pretok_run **out, const dsf_pretok *p)
{
    dsf_pretok_run *r = NULL;
    DSF_TRY(dsf_mem_new(&r, 1, sizeof *r));
    r->p = p;
    r->match = pcre2_match_data_create(1, p->memory);
    r->limits = pcre2_match_context_create(p->memory);
    if (!r->match || !r->limits) {
        dsf_pretok_close(r);
        return DSF_FAIL(DSF_ENOMEM, "pre-tokenizer: no memory for a match");
    }
    (void)pcre2_set_heap_limit(r->limits, HEAP_KIB);
    *out = r;
    return DSF_OK;
}

void dsf_pretok_close(dsf_pretok_run *r)
{
    if (!r) return;
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->limits);
    dsf_mem_free(r);
}

/* The next match of a stage at or after `from`: its ends in at[0], at[1]; both n when there is
 * none.
 */
static dsf_status find(dsf_pretok_run *r, int stage, const char *s, size_t n, size_t from,
                       size_t at[2])
{
    pcre2_code *code = r->p->code[stage];
    PCRE2_SPTR u = (PCRE2_SPTR)s;
    int rc = pcre2_match(code, u, n, from, PCRE2_NO_UTF_CHECK, r->match, r->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, u, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match, r->limits);
    at[0] = at[1] = n;
    if (rc == PCRE2_ERROR_NOMATCH) return DSF_OK;
    if (rc < 0) {
        unsigned char words[160];
        (void)pcre2_get_error_message(rc, words, sizeof words);
        return DSF_FAIL(rc == PCRE2_ERROR_NOMEMORY ? DSF_ENOMEM : DSF_ECORRUPT,
                        "pre_tokenizer: regex %d gives up after byte %zu of a piece of %zu: %s",
                        stage + 1, from, n, (char *)words);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(r->match);
    at[0] = ends[0];
    at[1] = ends[1];
    return DSF_OK;
}

/* Cuts s by the expressions from `stage` on. A piece is its own subject: what a look-ahead sees
 * ends with it. The depth is the number of stages. */
static dsf_status cut(dsf_pretok_run *r, int stage, const char *s, size_t n)
{
    if (n == 0) return DSF_OK;
    if (stage == r->p->n) return r->fn(r->ud, s, n);
    size_t limit = STEPS_FIXED + STEPS_PER_BYTE * n, done = 0, from = 0, at[2];
    while (from < n) {
        (void)pcre2_set_match_limit(r->limits, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
        DSF_TRY(find(r, stage, s, n, from, at));
        DSF_TRY(cut(r, stage + 1, s + done, at[0] - done));
        DSF_TRY(cut(r, stage + 1, s + at[0], at[1] - at[0]));
        done = from = at[1];
        uint32_t c;
        if (at[1] == at[0] && from < n) from += dsf_utf8_get(s + from, n - from, &c);
    }
    return cut(r, stage + 1, s + done, n - done);
}

dsf_status dsf_pretok_cut(dsf_pretok_run *r, const char *text, size_t n, dsf_pretok_fn *fn,
                          void *ud)
{
    r->fn = fn;
    r->ud = ud;
    return cut(r, 0, text, n);
}
