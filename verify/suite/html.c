/* Results as one self-contained page: no script, no request, light and dark by the reader's
 * choice, readable at phone width. Everything that comes from outside goes through add_text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "config.h"
#include "verify/suite/suite.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n";
static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1c1f24;--paper:#fff;--line:#d7dbe0;--soft:#5c6570;"
    "--good:#156b35;--bad:#b3201d;--off:#8a5a00;--tint:#f4f6f8}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#14171a;--line:#353b42;"
    "--soft:#9aa4af;--good:#5fcf86;--bad:#ff8079;--off:#e6b450;--tint:#1d2126}}\n"
    "body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--paper);color:var(--ink);"
    "font:16px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}\n"
    ".pass{color:var(--good)}.fail,.could{color:var(--bad)}.skip{color:var(--off)}\n"
    ".soft{color:var(--soft);margin:0 0 .5rem}code,pre{font:13px/1.4 ui-monospace,monospace}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem;margin:.6rem 0}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    "details{border-top:1px solid var(--line);padding:.45rem 0}\n"
    "summary{cursor:pointer;display:grid;grid-template-columns:5.5rem minmax(9rem,17rem) 1fr;"
    "gap:0 .8rem}\n"
    "summary b{font-weight:600}summary b::before{content:\"\\25b8  \";color:var(--soft)}"
    "details[open] summary b::before{content:\"\\25be  \"}summary span{overflow-wrap:anywhere}\n"
    "pre{background:var(--tint);padding:.6rem;overflow-x:auto;margin:.5rem 0}\n"
    "@media(max-width:40rem){summary{grid-template-columns:5.5rem 1fr}"
    "summary span:last-child{grid-column:1/-1}}\n"
    "</style>\n";

/* Text of any origin: five characters escaped, bytes that are no UTF-8 shown as such. */
static void add_text(dsf_buf *b, const char *s)
{
    size_t n = strlen(s);
    while (n) {
        size_t good = dsf_utf8_valid(s, n);
        for (size_t i = 0; i < good; i++) {
            if (s[i] == '<')
                dsf_buf_str(b, "&lt;");
            else if (s[i] == '>')
                dsf_buf_str(b, "&gt;");
            else if (s[i] == '&')
                dsf_buf_str(b, "&amp;");
            else if (s[i] == '"')
                dsf_buf_str(b, "&quot;");
            else if (s[i] == '\'')
                dsf_buf_str(b, "&#39;");
            else if ((unsigned char)s[i] >= 0x20 || s[i] == '\n' || s[i] == '\t')
                dsf_buf_char(b, s[i]);
        }
        if (good < n) dsf_buf_str(b, "\xEF\xBF\xBD");
        s += good + (good < n);
        n -= good + (good < n);
    }
}

static void add_term(dsf_buf *b, const char *name, const char *value)
{
    if (!value || !*value) return;
    dsf_buf_str(b, "<dt>");
    add_text(b, name);
    dsf_buf_str(b, "</dt><dd>");
    add_text(b, value);
    dsf_buf_str(b, "</dd>");
}

static void add_figures(const dsf_suite_check *c, dsf_buf *b)
{
    char text[512];
    dsf_buf_str(b, "<dl>");
    (void)snprintf(text, sizeof text, "%lld, in %.2f s", (long long)c->compared, c->seconds);
    add_term(b, "compared", text);
    if (c->figure[0] && !isnan(c->value)) {
        (void)snprintf(text, sizeof text, "%.6g", c->value);
        if (!isnan(c->limit)) {
            size_t n = strlen(text);
            (void)snprintf(text + n, sizeof text - n, " (limit %.6g)", c->limit);
        }
        add_term(b, c->figure, text);
        add_term(b, "limit from", c->derivation);
    }
    if (c->at.path[0]) {
        size_t n = (size_t)snprintf(text, sizeof text, "%s", c->at.path);
        if (c->at.row >= 0)
            n += (size_t)snprintf(text + n, sizeof text - n, " row %lld", (long long)c->at.row);
        if (c->at.column >= 0)
            n += (size_t)snprintf(text + n, sizeof text - n, " column %lld",
                                  (long long)c->at.column);
        if (!isnan(c->at.reference) || !isnan(c->at.ours))
            (void)snprintf(text + n, sizeof text - n, ": expected %.9g, is %.9g", c->at.reference,
                           c->at.ours);
        add_term(b, "worst at", text);
    }
    add_term(b, "first divergence", c->divergence);
    dsf_buf_str(b, "</dl>");
}

static void add_row(const dsf_suite_check *c, dsf_buf *b)
{
    static const char *const class[] = {"pass", "fail", "skip", "could"};
    dsf_buf_fmt(b, "<details%s><summary><b class=\"%s\">%s</b><span>",
                c->verdict == DSF_FAILED ? " open" : "", class[c->verdict],
                dsf_verdict_name(c->verdict));
    add_text(b, c->name);
    dsf_buf_str(b, "</span><span>");
    add_text(b, c->words);
    dsf_buf_str(b, "</span></summary>");
    add_figures(c, b);
    if (c->detail.len) {
        dsf_buf_str(b, "<pre>");
        add_text(b, c->detail.data);
        dsf_buf_str(b, "</pre>");
    }
    dsf_buf_str(b, "</details>\n");
}

static void add_suite(const dsf_results *r, const dsf_suite_info *s, dsf_buf *b)
{
    bool any = false;
    for (int i = 0; i < r->n; i++) {
        if (strcmp(r->check[i].suite, s->name) != 0) continue;
        if (!any) dsf_buf_fmt(b, "<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", s->name, s->question);
        any = true;
        add_row(&r->check[i], b);
    }
}

static void add_verdict(const dsf_results *r, dsf_buf *b)
{
    int failed = dsf_results_count(r, DSF_FAILED), could = dsf_results_count(r, DSF_COULD_NOT);
    bool good = dsf_results_good(r);
    dsf_buf_fmt(b, "<h1 class=\"%s\">%s</h1>\n", good ? "pass" : "fail",
                good     ? "verified"
                : failed ? "NOT verified: a check failed"
                         : "not verified: a check could not run");
    dsf_buf_fmt(b, "<p>%d passed, %d failed, %d could not run, %d skipped</p>\n",
                dsf_results_count(r, DSF_PASS), failed, could, dsf_results_count(r, DSF_SKIPPED));
    if (!*dsf_results_divergence(r)) return;
    dsf_buf_str(b, "<p><b>First divergence:</b> ");
    add_text(b, dsf_results_divergence(r));
    dsf_buf_str(b, "</p>\n");
}

static void add_model(const dsf_suite_model *m, dsf_buf *b)
{
    char name[300];
    (void)snprintf(name, sizeof name, "weights of %s", m->name);
    add_term(b, name, m->weights);
    (void)snprintf(name, sizeof name, "kernels of %s", m->name);
    add_term(b, name, m->variants);
}

void dsf_results_html(const dsf_results *r, const dsf_verify_options *o, dsf_buf *b)
{
    dsf_buf_str(b, head);
    dsf_buf_fmt(b, "<title>dsf verify: %s</title>\n", dsf_results_good(r) ? "pass" : "FAIL");
    dsf_buf_str(b, style);
    dsf_buf_str(b, "</head>\n<body>\n");
    add_verdict(r, b);
    dsf_buf_str(b, "<dl>");
    add_term(b, "model", o->model);
    add_term(b, "golden", o->golden);
    add_term(b, "limits", r->floor);
    add_term(b, "backend", o->backend);
    add_term(b, "variants", o->variants);
    for (int i = 0; i < r->n_models; i++) add_model(&r->model[i], b);
    add_term(b, "digest", r->digest);
    add_term(b, "dsf", DSF_VERSION);
    dsf_buf_str(b, "</dl>\n");
    for (int s = 0; s < DSF_N_SUITES; s++) add_suite(r, &dsf_suites[s], b);
    dsf_buf_str(b, "</body>\n</html>\n");
}
