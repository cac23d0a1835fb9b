/* Results as text, JSON (schema dsf-verify-1) and JUnit XML. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/suite/suite.h"

/* A figure, its limit and the place, where there is more to say than the words do. */
static void add_evidence(const dsf_suite_check *c, dsf_buf *b)
{
    if (c->figure[0] && !isnan(c->value)) {
        dsf_buf_fmt(b, "  %s: %.4g", c->figure, c->value);
        if (!isnan(c->limit)) dsf_buf_fmt(b, ", limit %.4g", c->limit);
        if (c->derivation[0]) dsf_buf_fmt(b, " (%s)", c->derivation);
        dsf_buf_char(b, '\n');
    }
    if (!c->at.path[0]) return;
    dsf_buf_fmt(b, "  worst at %s", c->at.path);
    if (c->at.row >= 0) dsf_buf_fmt(b, " row %lld", (long long)c->at.row);
    if (c->at.column >= 0) dsf_buf_fmt(b, " column %lld", (long long)c->at.column);
    if (!isnan(c->at.reference) || !isnan(c->at.ours))
        dsf_buf_fmt(b, ": expected %.9g, is %.9g", c->at.reference, c->at.ours);
    dsf_buf_char(b, '\n');
}

void dsf_suite_text(const dsf_suite_check *c, bool table, dsf_buf *b)
{
    dsf_buf_fmt(b, "%-9s %-28s %12lld compared %7.2f s  %s\n", dsf_verdict_name(c->verdict),
                c->name, (long long)c->compared, c->seconds, c->words);
    if (c->divergence[0] && !strstr(c->words, c->divergence))
        dsf_buf_fmt(b, "  first divergence: %s\n", c->divergence);
    if (!table && c->verdict != DSF_FAILED) return;
    add_evidence(c, b);
    if (c->detail.len) dsf_buf_str(b, c->detail.data);
}

/* Not finite: a string says which ("inf", "-inf"), NaN is null. */
static void add_number(dsf_buf *b, const char *name, double v)
{
    if (isinf(v))
        dsf_json_add_cstr(b, name, v > 0 ? "inf" : "-inf");
    else
        dsf_json_add_num(b, name, v);
}

static void add_at(const dsf_suite_at *at, dsf_buf *b)
{
    if (!at->path[0]) {
        dsf_json_add_raw(b, "at", "null");
        return;
    }
    dsf_json_begin(b, "at", '{');
    dsf_json_add_cstr(b, "path", at->path);
    dsf_json_add_int(b, "row", at->row);
    dsf_json_add_int(b, "column", at->column);
    add_number(b, "reference", at->reference);
    add_number(b, "ours", at->ours);
    dsf_json_end(b, '}');
}

static void add_check(const dsf_suite_check *c, dsf_buf *b)
{
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "suite", c->suite);
    dsf_json_add_cstr(b, "check", c->name);
    dsf_json_add_cstr(b, "verdict", dsf_verdict_name(c->verdict));
    dsf_json_add_int(b, "compared", c->compared);
    dsf_json_add_num(b, "seconds", c->seconds);
    dsf_json_add_cstr(b, "figure", c->figure);
    add_number(b, "value", c->value);
    add_number(b, "limit", c->limit);
    dsf_json_add_cstr(b, "derivation", c->derivation);
    add_at(&c->at, b);
    dsf_json_add_cstr(b, "words", c->words);
    dsf_json_end(b, '}');
}

static void add_model(const dsf_suite_model *m, dsf_buf *b)
{
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "name", m->name);
    dsf_json_add_cstr(b, "layout", m->layout);
    dsf_json_add_cstr(b, "weights", m->weights);
    dsf_json_add_cstr(b, "variants", m->variants);
    dsf_json_end(b, '}');
}

void dsf_results_json(const dsf_results *r, const dsf_verify_options *o, dsf_buf *b)
{
    const char *divergence = dsf_results_divergence(r);
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_cstr(b, "schema", "dsf-verify-1");
    dsf_json_add_bool(b, "pass", dsf_results_good(r));
    dsf_json_add_cstr(b, "digest", r->digest);
    dsf_json_add_cstr(b, "model", o->model ? o->model : "");
    dsf_json_add_cstr(b, "golden", o->golden ? o->golden : "");
    dsf_json_add_cstr(b, "backend", o->backend ? o->backend : "");
    dsf_json_add_cstr(b, "variants", o->variants ? o->variants : "");
    dsf_json_add_cstr(b, "floor", r->floor);
    dsf_json_begin(b, "models", '[');
    for (int i = 0; i < r->n_models; i++) add_model(&r->model[i], b);
    dsf_json_end(b, ']');
    if (*divergence)
        dsf_json_add_cstr(b, "first_divergence", divergence);
    else
        dsf_json_add_raw(b, "first_divergence", "null");
    dsf_json_begin(b, "checks", '[');
    for (int i = 0; i < r->n; i++) add_check(&r->check[i], b);
    dsf_json_end(b, ']');
    dsf_json_end(b, '}');
    dsf_buf_char(b, '\n');
}

/* Characters that XML 1.0 does not allow at all are left out. */
static void add_xml(dsf_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '<')
            dsf_buf_str(b, "&lt;");
        else if (*s == '>')
            dsf_buf_str(b, "&gt;");
        else if (*s == '&')
            dsf_buf_str(b, "&amp;");
        else if (*s == '"')
            dsf_buf_str(b, "&quot;");
        else if (*s == '\n' || *s == '\t')
            dsf_buf_fmt(b, "&#%d;", *s);
        else if ((unsigned char)*s >= 0x20)
            dsf_buf_char(b, *s);
    }
}

static double seconds_of(const dsf_results *r)
{
    double s = 0;
    for (int i = 0; i < r->n; i++) s += r->check[i].seconds;
    return s;
}

void dsf_results_junit(const dsf_results *r, dsf_buf *b)
{
    dsf_buf_fmt(b,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dsf\" tests=\"%d\" "
                "failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n",
                r->n, dsf_results_count(r, DSF_FAILED), dsf_results_count(r, DSF_COULD_NOT),
                dsf_results_count(r, DSF_SKIPPED), seconds_of(r));
    if (r->digest[0])
        dsf_buf_fmt(b, "  <properties><property name=\"digest\" value=\"%s\"/></properties>\n",
                    r->digest);
    for (int i = 0; i < r->n; i++) {
        const dsf_suite_check *c = &r->check[i];
        static const char *const tag[] = {"", "failure", "skipped", "error"};
        dsf_buf evidence = {.max = 0};
        add_evidence(c, &evidence);
        dsf_buf_fmt(b, "  <testcase classname=\"%s\" time=\"%.3f\" name=\"", c->suite, c->seconds);
        add_xml(b, c->name);
        dsf_buf_str(b, "\">");
        if (c->verdict != DSF_PASS) {
            dsf_buf_fmt(b, "<%s message=\"", tag[c->verdict]);
            add_xml(b, c->words);
            dsf_buf_str(b, "\">");
            if (evidence.len) add_xml(b, evidence.data);
            dsf_buf_fmt(b, "</%s>", tag[c->verdict]);
        }
        dsf_buf_str(b, "</testcase>\n");
        dsf_buf_free(&evidence);
    }
    dsf_buf_str(b, "</testsuite>\n");
}
