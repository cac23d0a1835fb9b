#include "text/parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/protocol.h"

#define BLOCK "\n\n" DSF_CALLS /* how a calls block begins */

typedef struct {
    const char *text, *at, *end;
    dsf_completion *out;
} reader;

const char *dsf_parse_error_name(dsf_parse_error e)
{
    static const char *const name[] = {
#define X(name, text) text,
        DSF_PARSE_ERROR_MAP(X)
#undef X
    };
    return (unsigned)e < sizeof name / sizeof *name ? name[e] : "unknown";
}

static dsf_status fail(reader *r, dsf_parse_error error, const char *what)
{
    r->out->error = error;
    return DSF_FAIL(DSF_ECORRUPT, "completion: byte %zu: %s", (size_t)(r->at - r->text), what);
}

static const char *find(const char *from, const char *end, const char *what)
{
    return memmem(from, (size_t)(end - from), what, strlen(what));
}

/* The first of two strings, or NULL. */
static const char *find_first(const char *from, const char *end, const char *a, const char *b)
{
    const char *x = find(from, end, a), *y = find(from, x ? x : end, b);
    return y ? y : x;
}

static bool accept(reader *r, const char *what)
{
    size_t n = strlen(what);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, what, n) != 0) return false;
    r->at += n;
    return true;
}

/* Visible text up to `to`; no special string may be in it. */
static dsf_status take_text(reader *r, const char *to, dsf_buf *out)
{
    static const char *const special[] = {DSF_BOS, DSF_EOS, DSF_THINK, DSF_THINK_END, DSF_DSML};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        const char *hit = find(r->at, to, special[i]);
        if (!hit) continue;
        r->at = hit;
        return fail(r, DSF_PARSE_SPECIAL, "a special token inside the text");
    }
    dsf_buf_add(out, r->at, (size_t)(to - r->at));
    r->at = to;
    return dsf_buf_status(out);
}

/* --- calls --- */

typedef struct {
    const char *s;
    size_t n;
} slice;

/* Keys of one call, for the search for doubles. */
typedef struct {
    slice *key;
    size_t n, cap;
} key_list;

static int by_bytes(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static dsf_status add_key(key_list *l, slice key)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        DSF_TRY(dsf_mem_grow(&l->key, cap, sizeof *l->key));
        l->cap = cap;
    }
    l->key[l->n++] = key;
    return DSF_OK;
}

static dsf_status check_keys(reader *r, key_list *l)
{
    if (l->n > 1) qsort(l->key, l->n, sizeof *l->key, by_bytes);
    for (size_t i = 1; i < l->n; i++)
        if (by_bytes(&l->key[i - 1], &l->key[i]) == 0) {
            r->at = l->key[i].s;
            return fail(r, DSF_PARSE_TWICE, "a parameter is given twice");
        }
    return DSF_OK;
}

/* Behind `<DSML parameter`: ` name="KEY" string="true">VALUE</DSML parameter>` and a newline. */
static dsf_status take_parameter(reader *r, dsf_call *call, key_list *keys)
{
    const char *close = find(r->at, r->end, DSF_PARAM_END);
    if (!close) return fail(r, DSF_PARSE_BAD_PARAM, "a parameter without end");
    if (!accept(r, " name=\"")) return fail(r, DSF_PARSE_BAD_PARAM, "expected name=\"");
    const char *flag = find_first(r->at, close, "\" string=\"true\">", "\" string=\"false\">");
    if (!flag) return fail(r, DSF_PARSE_BAD_PARAM, "expected string=\"true\" or \"false\"");
    slice key = {r->at, (size_t)(flag - r->at)};
    DSF_TRY(add_key(keys, key));
    dsf_buf_str(&call->arguments, keys->n > 1 ? ", " : "");
    dsf_json_quote(&call->arguments, key.s, key.n);
    dsf_buf_str(&call->arguments, ": ");
    r->at = flag;
    bool text = accept(r, "\" string=\"true\">");
    if (!text) (void)accept(r, "\" string=\"false\">");
    if (text)
        dsf_json_quote(&call->arguments, r->at, (size_t)(close - r->at));
    else
        dsf_buf_add(&call->arguments, r->at, (size_t)(close - r->at));
    r->at = close + strlen(DSF_PARAM_END);
    if (!accept(r, "\n")) return fail(r, DSF_PARSE_BAD_PARAM, "expected a newline");
    return dsf_buf_status(&call->arguments);
}

static dsf_status take_name(reader *r, dsf_call *call, const char *name, size_t n)
{
    const char *end = name + n, *gap = find(name, end, "::");
    if (gap && find(gap + 2, end, "::"))
        return fail(r, DSF_PARSE_BAD_NAMESPACE, "more than one :: in a name");
    if (gap) dsf_buf_add(&call->space, name, (size_t)(gap - name));
    if (gap) name = gap + 2;
    dsf_buf_add(&call->name, name, (size_t)(end - name));
    return dsf_buf_status(&call->name);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Behind `<DSML invoke`: ` name="NAME">` and a newline, then parameters up to `</DSML invoke>`. */
static dsf_status take_invoke(reader *r, dsf_call *call, key_list *keys)
{
    const char *stop = find_first(r->at, r->end, DSF_PARAM, DSF_INVOKE_END);
    if (!stop) return fail(r, DSF_PARSE_BAD_INVOKE, "a call without end");
    while (r->at < stop && is_space(*r->at)) r->at++;
    if (!accept(r, "name=\"")) return fail(r, DSF_PARSE_BAD_INVOKE, "expected name=\"");
    const char *name = r->at, *end = find(name, stop, "\">\n");
    const char *rest = end ? end + strlen("\">\n") : NULL;
    bool blank = rest && rest + 1 == stop && *rest == '\n' && *stop == '<' && stop[1] == '/';
    if (!rest || (rest != stop && !blank))
        return fail(r, DSF_PARSE_BAD_INVOKE, "expected \"> and a newline");
    DSF_TRY(take_name(r, call, name, (size_t)(end - name)));
    r->at = stop;
    dsf_buf_char(&call->arguments, '{');
    while (accept(r, DSF_PARAM)) DSF_TRY(take_parameter(r, call, keys));
    if (!accept(r, DSF_INVOKE_END))
        return fail(r, DSF_PARSE_BAD_PARAM, "expected a parameter or the end of the call");
    dsf_buf_char(&call->arguments, '}');
    DSF_TRY(check_keys(r, keys));
    return dsf_buf_status(&call->arguments);
}

static dsf_status add_call(dsf_completion *out)
{
    if (out->n_calls == out->call_cap) {
        size_t cap = out->call_cap ? 2 * out->call_cap : 4;
        DSF_TRY(dsf_mem_grow(&out->call, cap, sizeof *out->call));
        out->call_cap = cap;
    }
    out->call[out->n_calls++] = (dsf_call){0};
    return DSF_OK;
}

/* Behind `<DSML calls>`. */
static dsf_status take_calls(reader *r)
{
    key_list keys = {0};
    dsf_status st = DSF_OK;
    for (bool more = true; more && st == DSF_OK;) {
        if (!accept(r, "\n")) {
            st = fail(r, DSF_PARSE_BAD_CALLS, "expected a newline inside the calls block");
        } else if (accept(r, DSF_CALLS_END)) {
            more = false;
        } else if (!accept(r, DSF_INVOKE)) {
            st = fail(r, DSF_PARSE_BAD_CALLS, "expected a call or the end of the block");
        } else {
            keys.n = 0;
            st = add_call(r->out);
            if (st == DSF_OK) st = take_invoke(r, &r->out->call[r->out->n_calls - 1], &keys);
        }
    }
    dsf_mem_free(keys.key);
    return st;
}

/* --- the whole --- */

dsf_status dsf_parse_completion(const char *text, size_t n, bool thinking, dsf_completion *out)
{
    reader r = {.text = text, .at = text, .end = text + n, .out = out};
    out->error = DSF_PARSE_NONE;
    if (thinking) {
        const char *stop = find_first(r.at, r.end, DSF_THINK_END, BLOCK);
        if (!stop || *stop == '\n')
            return fail(&r, DSF_PARSE_NO_THINK_END, "the reasoning has no " DSF_THINK_END);
        DSF_TRY(take_text(&r, stop, &out->reasoning));
        (void)accept(&r, DSF_THINK_END);
    }
    const char *stop = find_first(r.at, r.end, DSF_EOS, BLOCK);
    if (!stop) return fail(&r, DSF_PARSE_NO_EOS, "the answer has no " DSF_EOS);
    DSF_TRY(take_text(&r, stop, &out->content));
    if (accept(&r, BLOCK)) DSF_TRY(take_calls(&r));
    (void)accept(&r, DSF_EOS); /* optional behind calls, else just found */
    if (r.at != r.end) return fail(&r, DSF_PARSE_TRAILING, "text behind the end");
    return DSF_OK;
}

void dsf_parse_free(dsf_completion *c)
{
    for (size_t i = 0; i < c->n_calls; i++) {
        dsf_buf_free(&c->call[i].space);
        dsf_buf_free(&c->call[i].name);
        dsf_buf_free(&c->call[i].arguments);
    }
    dsf_mem_free(c->call);
    dsf_buf_free(&c->reasoning);
    dsf_buf_free(&c->content);
    *c = (dsf_completion){0};
}
