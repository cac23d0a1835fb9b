#include "verify/suite/suite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "verify/suite/unit.h"

const char *dsf_verdict_name(dsf_verdict v)
{
    static const char *const name[] = {"pass", "FAIL", "skip", "could not"};
    return name[v];
}

void dsf_suite_begin(dsf_suite_check *c, const char *suite, const char *name)
{
    *c = (dsf_suite_check){.verdict = DSF_COULD_NOT,
                           .value = NAN,
                           .limit = NAN,
                           .at = {.row = -1, .column = -1},
                           .words = "not run"};
    (void)snprintf(c->suite, sizeof c->suite, "%s", suite);
    (void)snprintf(c->name, sizeof c->name, "%s", name);
}

void dsf_suite_could_not(dsf_suite_check *c)
{
    c->verdict = DSF_COULD_NOT;
    (void)snprintf(c->words, sizeof c->words, "%s", dsf_error_message());
}

void dsf_suite_judge(dsf_suite_check *c, int64_t wrong)
{
    c->verdict = wrong == 0 && c->compared > 0 ? DSF_PASS : DSF_FAILED;
    if (c->figure[0]) return;
    (void)snprintf(c->figure, sizeof c->figure, "differences");
    c->value = (double)wrong;
    c->limit = 0;
    if (!c->derivation[0]) (void)snprintf(c->derivation, sizeof c->derivation, "exact");
}

void dsf_suite_say(dsf_suite_check *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->words, sizeof c->words, fmt, ap);
    va_end(ap);
}

void dsf_suite_mark(dsf_suite_check *c, const char *path, int64_t row, int64_t column,
                    double reference, double ours)
{
    if (c->at.path[0]) return;
    c->at = (dsf_suite_at){
        .row = row, .column = column, .reference = reference, .ours = ours, .path = ""};
    (void)snprintf(c->at.path, sizeof c->at.path, "%s", path);
}

/* Words come from files too, and may be cut inside a character: what is written is UTF-8 without
 * control characters. */
static void clean(char *s)
{
    for (size_t n = strlen(s); n;) {
        size_t good = dsf_utf8_valid(s, n);
        for (size_t i = 0; i < good; i++)
            if ((unsigned char)s[i] < 0x20 && s[i] != '\n') s[i] = '?';
        s += good;
        n -= good;
        if (!n) return;
        *s++ = '?';
        n--;
    }
}

void dsf_suite_seal(dsf_suite_check *c)
{
    clean(c->name);
    clean(c->words);
    clean(c->at.path);
    clean(c->divergence);
    if (c->verdict == DSF_PASS && c->compared <= 0) {
        c->verdict = DSF_FAILED;
        dsf_suite_say(c, "nothing was compared: that is no pass");
    }
    if ((c->verdict == DSF_SKIPPED || c->verdict == DSF_COULD_NOT) && !c->words[0]) {
        c->verdict = DSF_FAILED;
        dsf_suite_say(c, "left out without a reason");
    }
}

void dsf_results_free(dsf_results *r)
{
    for (int i = 0; i < r->n; i++) dsf_buf_free(&r->check[i].detail);
    dsf_mem_free(r->check);
    dsf_mem_free(r->model);
    *r = (dsf_results){.n = 0};
}

int dsf_results_count(const dsf_results *r, dsf_verdict v)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) n += r->check[i].verdict == v;
    return n;
}

bool dsf_results_good(const dsf_results *r)
{
    return dsf_results_count(r, DSF_PASS) > 0 &&
           dsf_results_count(r, DSF_FAILED) + dsf_results_count(r, DSF_COULD_NOT) == 0;
}

const char *dsf_results_divergence(const dsf_results *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->check[i].divergence[0]) return r->check[i].divergence;
    return "";
}

void dsf_results_reasons(const dsf_results *r, dsf_buf *b)
{
    for (int i = 0; i < r->n; i++) {
        bool told = r->check[i].verdict != DSF_SKIPPED;
        for (int k = 0; k < i && !told; k++)
            told = r->check[k].verdict == DSF_SKIPPED &&
                   strcmp(r->check[k].words, r->check[i].words) == 0;
        if (!told) dsf_buf_fmt(b, "%s%s", b->len ? "; " : "", r->check[i].words);
    }
}

dsf_status dsf_verify_list(const dsf_verify_options *o, dsf_results *r)
{
    dsf_suite_plan p = {.n = 0};
    *r = (dsf_results){.n = 0};
    dsf_status st = dsf_suite_plan_make(o, &p, r);
    dsf_suite_plan_free(&p);
    return st;
}

/* Checks without a unit have their verdict already. */
static void tell_left_out(const dsf_verify_options *o, const dsf_suite_plan *p, dsf_results *r)
{
    for (int i = 0; i < r->n; i++) {
        bool has_unit = false;
        for (int k = 0; k < p->n; k++)
            has_unit |= i >= p->unit[k].first && i < p->unit[k].first + p->unit[k].n;
        if (has_unit) continue;
        dsf_suite_seal(&r->check[i]);
        if (o->finished) o->finished(o->ud, &r->check[i]);
    }
}

dsf_status dsf_verify_run(const dsf_verify_options *o, dsf_results *r)
{
    dsf_suite_plan p = {.n = 0};
    dsf_status st;
    *r = (dsf_results){.n = 0};
    DSF_TRY_OUT(dsf_suite_plan_make(o, &p, r));
    DSF_TRY_OUT(dsf_suite_digest(o, &p, r));
    tell_left_out(o, &p, r);
    DSF_TRY_OUT(dsf_suite_work(o, &p, r));
out:
    dsf_suite_plan_free(&p);
    return st;
}
