/* What a verdict may say: the rules of the suites themselves, on units made here. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "engine_fixture.h"
#include "verify/dump/run.h"
#include "verify/suite/unit.h"

TestSuite(suite, .fini = mini_clean);

/* ---- units made here ---- */

static void passes(const dsf_suite_unit *u, dsf_suite_check *c)
{
    for (int i = 0; i < u->n; i++) {
        c[i].compared = 5;
        dsf_suite_say(&c[i], "five, on %d threads", u->threads);
        c[i].verdict = DSF_PASS;
    }
}

static void compares_nothing(const dsf_suite_unit *u, dsf_suite_check *c)
{
    (void)u;
    c->verdict = DSF_PASS;
    dsf_suite_say(c, "all 0 values are equal");
}

static void skips_silently(const dsf_suite_unit *u, dsf_suite_check *c)
{
    (void)u;
    c->verdict = DSF_SKIPPED;
    c->words[0] = 0;
}

static void crashes(const dsf_suite_unit *u, dsf_suite_check *c)
{
    (void)u;
    c->verdict = DSF_PASS;
    c->compared = 1;
    (void)signal(SIGSEGV, SIG_DFL);
    (void)raise(SIGSEGV);
}

static void leaves(const dsf_suite_unit *u, dsf_suite_check *c)
{
    (void)u;
    (void)c;
    _exit(7);
}

static void fails(const dsf_suite_unit *u, dsf_suite_check *c)
{
    (void)u;
    (void)DSF_FAIL(DSF_ECORRUPT, "shard 3: 17 bytes, 18 wanted");
    dsf_suite_could_not(c);
}

static void says_much(const dsf_suite_unit *u, dsf_suite_check *c)
{
    passes(u, c);
    for (int i = 0; i < 20000; i++) dsf_buf_fmt(&c->detail, "line %d of a long table\n", i);
}

static void sleeps(const dsf_suite_unit *u, dsf_suite_check *c)
{
    (void)u;
    (void)c;
    for (;;) (void)sleep(60);
}

typedef struct {
    dsf_suite_plan plan;
    dsf_results results;
    dsf_suite_unit unit[8];
    dsf_suite_check check[16];
    dsf_verify_options o;
} work;

static void add(work *w, dsf_suite_fn *run, int n)
{
    dsf_suite_unit *u = &w->unit[w->plan.n++];
    *u = (dsf_suite_unit){.run = run, .first = w->results.n, .n = n, .o = &w->o};
    for (int i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "test/%d", w->results.n);
        dsf_suite_begin(&w->check[w->results.n++], "test", name);
    }
    w->plan.unit = w->unit;
    w->results.check = w->check;
}

static void run(work *w) { GOOD(dsf_suite_work(&w->o, &w->plan, &w->results)); }

static void done(work *w)
{
    for (int i = 0; i < w->results.n; i++) dsf_buf_free(&w->check[i].detail);
}

#define IS(c, v, part)                                                                             \
    do {                                                                                           \
        cr_expect_eq((c).verdict, (v), "%s: %s", dsf_verdict_name((c).verdict), (c).words);        \
        cr_expect_not_null(strstr((c).words, part), "\"%s\" in \"%s\"", part, (c).words);          \
    } while (0)

Test(suite, zero_compared_never_passes)
{
    work w = {.o.threads = 2};
    add(&w, compares_nothing, 1);
    run(&w);
    IS(w.check[0], DSF_FAILED, "nothing was compared");
    cr_expect(!dsf_results_good(&w.results));
    done(&w);
}

Test(suite, a_skip_without_a_reason_is_a_failure)
{
    work w = {.o.threads = 1};
    add(&w, skips_silently, 1);
    run(&w);
    IS(w.check[0], DSF_FAILED, "without a reason");
    done(&w);
}

Test(suite, a_crash_is_one_failed_check)
{
    work w = {.o.threads = 2};
    add(&w, passes, 1);
    add(&w, crashes, 2);
    add(&w, leaves, 1);
    add(&w, passes, 1);
    run(&w);
    IS(w.check[0], DSF_PASS, "five");
    IS(w.check[1], DSF_FAILED, "crashed: signal 11");
    IS(w.check[2], DSF_FAILED, "crashed: signal 11");
    IS(w.check[3], DSF_FAILED, "exit code 7");
    IS(w.check[4], DSF_PASS, "five");
    done(&w);
}

Test(suite, what_could_not_run_says_why_and_is_not_good)
{
    work w = {.o.threads = 1};
    add(&w, passes, 1);
    add(&w, fails, 1);
    run(&w);
    IS(w.check[1], DSF_COULD_NOT, "17 bytes, 18 wanted");
    cr_expect(!dsf_results_good(&w.results));
    done(&w);
}

Test(suite, only_skips_are_not_good)
{
    dsf_suite_check c[2];
    dsf_results r = {.check = c, .n = 1};
    dsf_suite_begin(&c[0], "a", "a");
    c[0].verdict = DSF_SKIPPED;
    cr_expect(!dsf_results_good(&r));
    r.n = 2;
    dsf_suite_begin(&c[1], "a", "b");
    c[1].verdict = DSF_PASS;
    cr_expect(dsf_results_good(&r));
}

Test(suite, a_long_table_arrives_whole)
{
    work w = {.o.threads = 2};
    add(&w, says_much, 1);
    add(&w, says_much, 1);
    run(&w);
    for (int i = 0; i < 2; i++) {
        IS(w.check[i], DSF_PASS, "five");
        cr_expect_gt(w.check[i].detail.len, 400000);
        cr_expect_not_null(strstr(w.check[i].detail.data, "line 19999 of"));
    }
    done(&w);
}

Test(suite, threads_are_shared_and_alone_means_all)
{
    work w = {.o.threads = 3};
    add(&w, passes, 1);
    add(&w, passes, 1);
    w.unit[0].alone = true;
    run(&w);
    IS(w.check[0], DSF_PASS, "on 3 threads");
    IS(w.check[1], DSF_PASS, "on 1 threads");
    done(&w);
}

/* ---- as they finish; stopping ---- */

static int told;
static void count(void *ud, const dsf_suite_check *c)
{
    cr_expect_eq(ud, &told);
    cr_expect_neq(c->verdict, DSF_COULD_NOT);
    told++;
}
static bool after_the_first(void) { return told > 0; }

Test(suite, a_stop_keeps_what_is_finished, .timeout = 60)
{
    work w = {.o = {.threads = 2, .finished = count, .ud = &told, .stop = after_the_first}};
    add(&w, sleeps, 1);
    add(&w, passes, 1);
    REFUSED(DSF_ECANCELED, dsf_suite_work(&w.o, &w.plan, &w.results));
    cr_expect_eq(told, 1);
    IS(w.check[1], DSF_PASS, "five");
    IS(w.check[0], DSF_COULD_NOT, "not run");
    done(&w);
}

/* ---- what there is to check ---- */

static int planned(dsf_verify_options o, const char *name)
{
    dsf_results r;
    int n = 0;
    dsf_status st = dsf_verify_list(&o, &r);
    for (int i = 0; st == DSF_OK && i < r.n; i++) n += !name || strcmp(r.check[i].name, name) == 0;
    dsf_results_free(&r);
    return st == DSF_OK ? n : -(int)st;
}

Test(suite, unknown_names_are_usage_errors)
{
    cr_expect_eq(planned((dsf_verify_options){.model = mini(), .suites = "config,nope"}, NULL),
                 -DSF_EINVAL);
    SAYS("no suite is called \"nope\"");
    cr_expect_eq(planned((dsf_verify_options){.model = mini(), .suites = ""}, NULL), -DSF_EINVAL);
    cr_expect_eq(planned((dsf_verify_options){.model = mini(), .only = "confg/*"}, NULL),
                 -DSF_EINVAL);
    SAYS("no check is called \"confg/*\"");
    cr_expect_eq(planned((dsf_verify_options){.suites = "contract"}, NULL), -DSF_EINVAL);
    SAYS("give a MODEL");
}

Test(suite, a_glob_decides_before_anything_runs)
{
    dsf_verify_options o = {.model = mini(), .only = "config/*"};
    cr_expect_eq(planned(o, NULL), 3);
    cr_expect_eq(planned(o, "config/values"), 1);
    o.only = "**";
    cr_expect_gt(planned(o, NULL), 20);
    o.suites = "memory,states";
    cr_expect_eq(planned(o, NULL), 3);
    o = (dsf_verify_options){.suites = "ops", .only = "ops/attn"};
    cr_expect_eq(planned(o, NULL), 1);
}

Test(suite, an_absent_folder_is_a_named_skip_or_could_not)
{
    dsf_verify_options o = {.model = mini(), .golden = "/nowhere/golden", .only = "layers"};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_assert_eq(r.n, 1);
    IS(r.check[0], DSF_SKIPPED, "/nowhere/golden: no such golden folder");
    dsf_results_free(&r);
    o.suites = "layers";
    GOOD(dsf_verify_run(&o, &r));
    IS(r.check[0], DSF_COULD_NOT, "/nowhere/golden: no such golden folder");
    dsf_results_free(&r);
    o = (dsf_verify_options){.suites = "template"};
    GOOD(dsf_verify_run(&o, &r));
    IS(r.check[0], DSF_COULD_NOT, "no cases");
    dsf_results_free(&r);
}

/* ---- golden files ---- */

/* A set whose one dump this engine wrote. */
static void write_set(char set[4096])
{
    char path[8192];
    const int32_t ids[5] = {5, 6, 7, 8, 9};
    make_temp(set);
    (void)snprintf(path, sizeof path, "%s/dump-p0.h5", set);
    const dsf_dump_run d = {.engine = {.model = mini(), .threads = 1, .prefill = DSF_PREFILL_EXACT},
                            .out = path,
                            .backend = "cpu",
                            .ids = ids,
                            .n = 5};
    dsf_dump_run_report r;
    GOOD(dsf_dump_run_model(&d, &r));
}

Test(suite, a_golden_file_of_our_own_proves_nothing)
{
    char set[4096];
    write_set(set);
    dsf_verify_options o = {
        .model = mini(), .golden = set, .suites = "layers,choices,logits", .threads = 2};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_expect_eq(r.n, 4);
    for (int i = 0; i < r.n; i++) IS(r.check[i], DSF_FAILED, "written by this engine itself");
    dsf_results_free(&r);
    remove_temp(set);
}

Test(suite, a_broken_golden_file_could_not_be_compared)
{
    char set[4096];
    make_temp(set);
    put_text(set, "dump-p0.h5", "this is no HDF5");
    dsf_verify_options o = {.model = mini(), .golden = set, .suites = "layers", .threads = 1};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_assert_eq(r.n, 1);
    IS(r.check[0], DSF_COULD_NOT, "dump-p0.h5");
    dsf_results_free(&r);
    remove_temp(set);
}

/* ---- the digest ---- */

static void digest_of(dsf_verify_options o, char out[33])
{
    dsf_results r = {.n = 0};
    dsf_suite_plan p = {.n = 0};
    GOOD(dsf_suite_plan_make(&o, &p, &r));
    GOOD(dsf_suite_digest(&o, &p, &r));
    cr_expect_eq(strlen(r.digest), 32);
    memcpy(out, r.digest, 33);
    dsf_suite_plan_free(&p);
    dsf_results_free(&r);
}

Test(suite, the_digest_is_of_the_question)
{
    char set[4096], a[33], b[33];
    write_set(set);
    const dsf_verify_options o = {.model = mini(), .golden = set, .suites = "layers,config"};
    digest_of(o, a);
    digest_of(o, b);
    cr_expect_str_eq(a, b);
    dsf_verify_options other = o;
    other.variants = "ref";
    digest_of(other, b);
    cr_expect_str_neq(a, b);
    other = o;
    other.only = "layers/**";
    digest_of(other, b);
    cr_expect_str_neq(a, b);
    other = o;
    put_text(set, "noise_floor.json", "{}");
    digest_of(other, b);
    cr_expect_str_neq(a, b);
    (void)snprintf(mini_folder + strlen(mini_folder), 2, "/");
    digest_of((dsf_verify_options){.model = mini(), .golden = set, .suites = "layers,config"}, a);
    mini_folder[strlen(mini_folder) - 1] = 0;
    cr_expect_str_eq(a, b, "the path is no part of it");
    put_text(set, "dump-p0.h5", "other bytes");
    digest_of(other, b);
    cr_expect_str_neq(a, b);
    remove_temp(set);
}

/* One bit of a weight is another question; so are other kernels. */
Test(suite, the_digest_is_of_every_weight_and_of_the_kernels)
{
    char model[4096], path[8192], a[33], b[33];
    make_temp(model);
    write_model(model, "mini", -1, -1);
    const dsf_verify_options o = {.model = model, .suites = "states", .threads = 2};
    digest_of(o, a);
    digest_of((dsf_verify_options){.model = model, .suites = "states", .threads = 1}, b);
    cr_expect_str_eq(a, b, "the number of threads is no part of it");
    dsf_verify_options ref = o;
    ref.variants = "ref";
    digest_of(ref, b);
    cr_expect_str_neq(a, b);
    (void)snprintf(path, sizeof path, "%s/model-00003-of-00005.safetensors", model);
    FILE *f = fopen(path, "r+b");
    cr_assert(f && fseek(f, -1, SEEK_END) == 0);
    int last = fgetc(f);
    cr_assert(last >= 0 && fseek(f, -1, SEEK_END) == 0);
    cr_assert(fputc(last ^ 1, f) >= 0 && fclose(f) == 0);
    digest_of(o, b);
    cr_expect_str_neq(a, b);
    remove_temp(model);
}

Test(suite, the_models_of_a_verdict_are_named_with_weights_and_kernels)
{
    const dsf_verify_options o = {.model = mini(), .suites = "states,config", .threads = 1};
    dsf_results r = {.n = 0};
    dsf_suite_plan p = {.n = 0};
    dsf_buf b = {.max = 0};
    GOOD(dsf_suite_plan_make(&o, &p, &r));
    GOOD(dsf_suite_digest(&o, &p, &r));
    cr_assert_eq(r.n_models, 1);
    cr_expect_eq(strlen(r.model[0].layout), 32);
    cr_expect_eq(strlen(r.model[0].weights), 32);
    cr_expect_str_neq(r.model[0].weights, r.model[0].layout);
    cr_expect_not_null(strstr(r.model[0].variants, "route:"));
    dsf_results_json(&r, &o, &b);
    cr_expect_not_null(strstr(b.data, r.model[0].weights));
    cr_expect_not_null(strstr(b.data, r.model[0].variants));
    dsf_buf_free(&b);
    dsf_suite_plan_free(&p);
    dsf_results_free(&r);
}

/* A checkpoint that cannot be read is the checks' business, and no end of the run. */
Test(suite, a_model_that_is_none_still_has_a_digest)
{
    char model[4096], a[33];
    make_temp(model);
    put_text(model, "model.safetensors", "nothing");
    digest_of((dsf_verify_options){.model = model, .suites = "contract"}, a);
    remove_temp(model);
}

Test(suite, options_are_checked_whatever_runs)
{
    dsf_verify_options o = {.model = mini(), .only = "config/values", .variants = "zz"};
    cr_expect_eq(planned(o, NULL), -DSF_EINVAL);
    SAYS("kernel mask: \"zz\"");
    o.variants = NULL;
    o.floor = "/nowhere/floor.json";
    cr_expect_eq(planned(o, NULL), -DSF_EIO);
    SAYS("/nowhere/floor.json");
}

Test(suite, a_glob_on_a_suite_that_is_left_out_says_why)
{
    dsf_verify_options o = {.model = mini(), .only = "layers/**"};
    dsf_results r;
    GOOD(dsf_verify_run(&o, &r));
    cr_assert_eq(r.n, 1);
    IS(r.check[0], DSF_SKIPPED, "no golden folder given");
    cr_expect(!dsf_results_good(&r));
    dsf_results_free(&r);
}

Test(suite, reasons_of_skips_are_told_once)
{
    dsf_suite_check c[4];
    dsf_results r = {.check = c, .n = 4};
    dsf_buf b = {.max = 0};
    for (int i = 0; i < 4; i++) {
        dsf_suite_begin(&c[i], "a", "a");
        c[i].verdict = i == 3 ? DSF_PASS : DSF_SKIPPED;
        dsf_suite_say(&c[i], i == 1 ? "no cases" : "no golden folder");
    }
    dsf_results_reasons(&r, &b);
    cr_expect_str_eq(b.data, "no golden folder; no cases");
    dsf_buf_free(&b);
}

/* ---- output ---- */

static const char hostile[] = "<script>alert('\"&\")</script>\xFF\n\x01]]>";

static void make_hostile(dsf_suite_check *c, dsf_verdict v)
{
    dsf_suite_begin(c, "test", hostile);
    c->verdict = v;
    c->compared = 1;
    (void)snprintf(c->figure, sizeof c->figure, "%s", hostile);
    c->value = 1;
    c->limit = INFINITY;
    dsf_suite_say(c, "%s", hostile);
    dsf_suite_mark(c, hostile, 3, 4, NAN, -INFINITY);
    dsf_buf_str(&c->detail, hostile);
    dsf_suite_seal(c);
}

static dsf_results hostile_results(dsf_suite_check c[4])
{
    static const dsf_verdict v[4] = {DSF_PASS, DSF_FAILED, DSF_SKIPPED, DSF_COULD_NOT};
    for (int i = 0; i < 4; i++) make_hostile(&c[i], v[i]);
    (void)snprintf(c[1].suite, sizeof c[1].suite, "layers");
    (void)snprintf(c[1].divergence, sizeof c[1].divergence, "%s", hostile);
    dsf_suite_seal(&c[1]);
    return (dsf_results){.check = c, .n = 4, .digest = "0123456789abcdef0123456789abcdef"};
}

Test(suite, json_survives_hostile_words)
{
    dsf_suite_check c[4];
    dsf_results r = hostile_results(c);
    dsf_verify_options o = {.model = hostile};
    dsf_buf b = {.max = 0};
    dsf_json_doc *doc = NULL;
    (void)snprintf(c[2].name, sizeof c[2].name, "plain");
    o.model = "a\"b\\c\n";
    dsf_results_json(&r, &o, &b);
    /* names are the plan's own: only what comes from files may hold bytes that are no UTF-8 */
    for (size_t i = 0; i < b.len; i++)
        if (b.data[i] == '\xFF') b.data[i] = '?';
    GOOD(dsf_json_parse(&doc, "results", b.data, b.len));
    const dsf_json *root = dsf_json_root(doc);
    cr_expect_str_eq(dsf_json_text(dsf_json_get(root, "schema"), NULL), "dsf-verify-1");
    cr_expect_str_eq(dsf_json_text(dsf_json_get(root, "model"), NULL), o.model);
    cr_expect(!dsf_json_true(dsf_json_get(root, "pass")));
    const dsf_json *check = dsf_json_next(dsf_json_first(dsf_json_get(root, "checks")));
    cr_expect_str_eq(dsf_json_text(dsf_json_get(check, "words"), NULL), c[1].words);
    cr_expect_str_eq(dsf_json_text(dsf_json_get(check, "limit"), NULL), "inf");
    const dsf_json *at = dsf_json_get(check, "at");
    cr_expect_eq(dsf_json_kind_of(dsf_json_get(at, "reference")), DSF_JSON_NULL);
    cr_expect_str_eq(dsf_json_text(dsf_json_get(at, "ours"), NULL), "-inf");
    dsf_json_free(doc);
    dsf_buf_free(&b);
    for (int i = 0; i < 4; i++) dsf_buf_free(&c[i].detail);
}

/* Counts "<" that open one of these tags; every other "<" is an injection. */
static void only_tags(const dsf_buf *b, const char *const *tag)
{
    for (const char *s = strchr(b->data, '<'); s; s = strchr(s + 1, '<')) {
        bool known = false;
        for (const char *const *t = tag; *t; t++) known |= strncmp(s + 1, *t, strlen(*t)) == 0;
        cr_expect(known, "injected: %.40s", s);
    }
    for (size_t i = 0; i < b->len; i++)
        cr_expect((unsigned char)b->data[i] >= 0x20 || b->data[i] == '\n', "byte %d", b->data[i]);
}

Test(suite, junit_survives_hostile_words)
{
    static const char *const tag[] = {
        "?xml",        "testsuite ",   "/testsuite>", "testcase ", "/testcase>",
        "properties>", "/properties>", "property ",   "failure ",  "/failure>",
        "skipped ",    "/skipped>",    "error ",      "/error>",   NULL};
    dsf_suite_check c[4];
    dsf_results r = hostile_results(c);
    dsf_buf b = {.max = 0};
    dsf_results_junit(&r, &b);
    only_tags(&b, tag);
    cr_expect_not_null(strstr(b.data, "tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""));
    cr_expect_null(strstr(b.data, "]]>"));
    dsf_buf_free(&b);
    for (int i = 0; i < 4; i++) dsf_buf_free(&c[i].detail);
}

Test(suite, html_is_one_page_without_scripts_or_requests)
{
    static const char *const tag[] = {
        "!doctype", "html",    "/html", "head>",  "/head>",  "meta ",    "title>",  "/title>",
        "style>",   "/style>", "body>", "/body>", "h1 ",     "/h1>",     "h2>",     "/h2>",
        "p>",       "p ",      "/p>",   "b>",     "b ",      "/b>",      "dl>",     "/dl>",
        "dt>",      "/dt>",    "dd>",   "/dd>",   "details", "/details", "summary", "/summary",
        "span>",    "/span>",  "pre>",  "/pre>",  NULL};
    dsf_suite_check c[4];
    dsf_results r = hostile_results(c);
    dsf_verify_options o = {.model = hostile, .golden = hostile};
    dsf_buf b = {.max = 0};
    for (int i = 0; i < 4; i++) (void)snprintf(c[i].suite, sizeof c[i].suite, "layers");
    dsf_results_html(&r, &o, &b);
    only_tags(&b, tag);
    cr_expect_null(strstr(b.data, "http:"));
    cr_expect_null(strstr(b.data, "https:"));
    cr_expect_null(strstr(b.data, "src="));
    cr_expect_null(strstr(b.data, "url("));
    cr_expect_not_null(strstr(b.data, "NOT verified"));
    cr_expect_eq(dsf_utf8_valid(b.data, b.len), b.len);
    dsf_buf_free(&b);
    for (int i = 0; i < 4; i++) dsf_buf_free(&c[i].detail);
}

Test(suite, text_shows_the_worst_coordinate_of_a_failure)
{
    dsf_suite_check c;
    dsf_buf b = {.max = 0};
    dsf_suite_begin(&c, "layers", "layers/mini/p0");
    c.compared = 10;
    dsf_suite_mark(&c, "layers/03/attn/q", 7, 71, 1.5, 1.25);
    dsf_suite_mark(&c, "layers/04/attn/q", 8, 72, 0, 0); /* the first stays */
    dsf_suite_judge(&c, 2);
    dsf_suite_say(&c, "two differ");
    dsf_suite_text(&c, false, &b);
    cr_expect_not_null(
        strstr(b.data, "worst at layers/03/attn/q row 7 column 71: expected 1.5, is 1.25"), "%s",
        b.data);
    cr_expect_not_null(strstr(b.data, "differences: 2, limit 0 (exact)"), "%s", b.data);
    dsf_buf_free(&b);
}
