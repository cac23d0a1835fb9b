#include "verify/suite/suite.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "verify/dump/types.h"

const char *dsf_verdict_name(dsf_verdict v)
{
    static const char *const name[] = {"pass", "FAIL", "skip", "could not"};
    return name[v];
}

dsf_check_result *dsf_results_add(dsf_results *r, const char *suite, const char *name)
{
    if (r->status != DSF_OK) return NULL;
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 32;
        r->status = dsf_mem_grow(&r->check, (size_t)cap, sizeof *r->check);
        if (r->status != DSF_OK) return NULL;
        r->cap = cap;
    }
    dsf_check_result *c = &r->check[r->n++];
    *c = (dsf_check_result){.verdict = DSF_COULD_NOT};
    (void)snprintf(c->suite, sizeof c->suite, "%s", suite);
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

void dsf_results_free(dsf_results *r)
{
    for (int i = 0; i < r->n; i++) dsf_buf_free(&r->check[i].detail);
    dsf_mem_free(r->check);
    *r = (dsf_results){.n = 0};
}

bool dsf_results_good(const dsf_results *r)
{
    return dsf_results_count(r, DSF_PASS) > 0 &&
           dsf_results_count(r, DSF_FAILED) + dsf_results_count(r, DSF_COULD_NOT) == 0;
}

int dsf_results_count(const dsf_results *r, dsf_verdict v)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) n += r->check[i].verdict == v;
    return n;
}

/* ---- which suites, which sets ---- */

typedef struct {
    const char *name, *question;
    bool built;
} suite_info;

static const suite_info suites[] = {
#define X(name, built, question) {#name, question, built},
    DSF_SUITE_MAP(X)
#undef X
};
enum { N_SUITES = sizeof suites / sizeof suites[0], MOST_SETS = 64 };

static bool asked(const dsf_verify_options *o, const char *name)
{
    if (!o->suites) return true;
    size_t n = strlen(name);
    for (const char *s = o->suites; *s;) {
        size_t k = strcspn(s, ",");
        if (k == n && memcmp(s, name, n) == 0) return true;
        s += k + (s[k] == ',');
    }
    return false;
}

static dsf_status check_names(const dsf_verify_options *o)
{
    for (const char *s = o->suites; s && *s;) {
        size_t k = strcspn(s, ",");
        const suite_info *found = NULL;
        for (int i = 0; i < N_SUITES; i++)
            if (strlen(suites[i].name) == k && memcmp(suites[i].name, s, k) == 0)
                found = &suites[i];
        if (!found)
            return DSF_FAIL(DSF_EINVAL, "no suite is called %.*s: dsf verify --list", (int)k, s);
        if (!found->built)
            return DSF_FAIL(DSF_ENOTSUP, "suite %s: %s", found->name, found->question);
        s += k + (s[k] == ',');
    }
    return DSF_OK;
}

static bool has_dumps(const char *folder)
{
    char path[4096];
    return dsf_file_join(path, folder, "dump-p0.h5") == DSF_OK && dsf_file_exists(path);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* The golden folder itself, or its subfolders that hold dumps, in name order. */
static dsf_status list_sets(const char *golden, char set[][4096], int *n)
{
    *n = 0;
    if (!golden) return DSF_OK;
    if (has_dumps(golden)) {
        size_t k = strlen(golden);
        while (k > 1 && golden[k - 1] == '/') k--;
        (void)snprintf(set[(*n)++], 4096, "%.*s", (int)k, golden);
        return DSF_OK;
    }
    DIR *d = opendir(golden);
    if (!d) return DSF_FAIL(DSF_EIO, "%s: no such golden folder", golden);
    struct dirent *e;
    while ((e = readdir(d)) != NULL && *n < MOST_SETS) {
        if (e->d_name[0] == '.' || dsf_file_join(set[*n], golden, e->d_name) != DSF_OK) continue;
        *n += has_dumps(set[*n]);
    }
    (void)closedir(d);
    if (*n == 0)
        return DSF_FAIL(DSF_EINVAL, "%s: neither a set (dump-p0.h5) nor a folder of sets", golden);
    qsort(set, (size_t)*n, sizeof set[0], by_name);
    return DSF_OK;
}

static void skip(const dsf_verify_options *o, dsf_results *r, const char *suite, const char *why)
{
    if (!asked(o, suite)) return;
    dsf_check_result *c = dsf_results_add(r, suite, suite);
    if (!c) return;
    c->verdict = o->suites ? DSF_COULD_NOT : DSF_SKIPPED;
    (void)snprintf(c->words, sizeof c->words, "%s", why);
}

static dsf_status run_model_suites(const dsf_verify_options *o, const char *model, dsf_results *r)
{
    if (asked(o, "contract")) DSF_TRY(dsf_suite_contract(o, model, r));
    if (asked(o, "tokenizer")) DSF_TRY(dsf_suite_tokenizer(o, model, r));
    if (asked(o, "states")) DSF_TRY(dsf_suite_states(o, model, r));
    if (asked(o, "memory")) DSF_TRY(dsf_suite_memory(o, model, r));
    return DSF_OK;
}

static dsf_status run_sets(const dsf_verify_options *o, char (*set)[4096], int n, dsf_results *r)
{
    if (o->model) DSF_TRY(run_model_suites(o, o->model, r));
    for (int i = 0; i < n; i++) {
        const char *model = o->model ? o->model : set[i];
        if (!o->model) DSF_TRY(run_model_suites(o, model, r));
        if (asked(o, "layers")) DSF_TRY(dsf_suite_layers(o, model, set[i], r));
        if (asked(o, "logits")) DSF_TRY(dsf_suite_logits(o, model, set[i], r));
    }
    if (n == 0) {
        skip(o, r, "layers", "no golden folder given (--golden)");
        skip(o, r, "logits", "no golden folder given (--golden)");
    }
    return r->status;
}

dsf_status dsf_verify_run(const dsf_verify_options *o, dsf_results *r)
{
    char(*set)[4096] = NULL;
    int n = 0;
    *r = (dsf_results){.n = 0};
    DSF_TRY(check_names(o));
    if (!o->model && !o->golden)
        return DSF_FAIL(DSF_EINVAL, "give a MODEL, or --golden DIR whose sets are models");
    DSF_TRY(dsf_mem_new(&set, MOST_SETS + 1, sizeof *set));
    dsf_status st = list_sets(o->golden, set, &n);
    if (st == DSF_OK) st = run_sets(o, set, n, r);
    dsf_mem_free(set);
    if (st != DSF_OK) return dsf_error_pass(st, DSF_HERE);
    int kept = 0;
    for (int i = 0; i < r->n;
         i++) { /* --only asks about results: checks of a set share their work */
        if (!o->only || dsf_dump_glob(o->only, r->check[i].name))
            r->check[kept++] = r->check[i];
        else
            dsf_buf_free(&r->check[i].detail);
    }
    r->n = kept;
    if (kept == 0) return DSF_FAIL(DSF_EINVAL, "no check was run: nothing compared is not a pass");
    return DSF_OK;
}

/* ---- output ---- */

void dsf_results_json(const dsf_results *r, const dsf_verify_options *o, dsf_buf *b)
{
    dsf_json_begin(b, NULL, '{');
    dsf_json_add_bool(b, "pass", dsf_results_good(r));
    dsf_json_add_cstr(b, "model", o->model ? o->model : "");
    dsf_json_add_cstr(b, "golden", o->golden ? o->golden : "");
    dsf_json_add_cstr(b, "backend", o->backend ? o->backend : "");
    dsf_json_add_cstr(b, "variants", o->variants ? o->variants : "");
    dsf_json_begin(b, "checks", '[');
    for (int i = 0; i < r->n; i++) {
        const dsf_check_result *c = &r->check[i];
        dsf_json_begin(b, NULL, '{');
        dsf_json_add_cstr(b, "suite", c->suite);
        dsf_json_add_cstr(b, "check", c->name);
        dsf_json_add_cstr(b, "verdict", dsf_verdict_name(c->verdict));
        dsf_json_add_int(b, "compared", c->compared);
        dsf_json_add_num(b, "seconds", c->seconds);
        dsf_json_add_cstr(b, "words", c->words);
        dsf_json_end(b, '}');
    }
    dsf_json_end(b, ']');
    dsf_json_end(b, '}');
    dsf_buf_char(b, '\n');
}

static void add_xml(dsf_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '<')
            dsf_buf_str(b, "&lt;");
        else if (*s == '&')
            dsf_buf_str(b, "&amp;");
        else if (*s == '"')
            dsf_buf_str(b, "&quot;");
        else if ((unsigned char)*s >= 0x20)
            dsf_buf_char(b, *s);
    }
}

void dsf_results_junit(const dsf_results *r, dsf_buf *b)
{
    dsf_buf_fmt(
        b,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dsf\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\">\n",
        r->n, dsf_results_count(r, DSF_FAILED), dsf_results_count(r, DSF_COULD_NOT),
        dsf_results_count(r, DSF_SKIPPED));
    for (int i = 0; i < r->n; i++) {
        const dsf_check_result *c = &r->check[i];
        static const char *const tag[] = {"", "failure", "skipped", "error"};
        dsf_buf_fmt(b, "  <testcase classname=\"%s\" time=\"%.3f\" name=\"", c->suite, c->seconds);
        add_xml(b, c->name);
        dsf_buf_str(b, "\">");
        if (c->verdict != DSF_PASS) {
            dsf_buf_fmt(b, "<%s message=\"", tag[c->verdict]);
            add_xml(b, c->words);
            dsf_buf_str(b, "\"/>");
        }
        dsf_buf_str(b, "</testcase>\n");
    }
    dsf_buf_str(b, "</testsuite>\n");
}
