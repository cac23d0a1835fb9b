/* Which checks there are: decided from the suites and the glob that were asked for, the model, the
 * golden sets and what their files hold, before anything runs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "plan/plan.h"
#include "verify/dump/types.h"
#include "verify/suite/unit.h"

typedef struct {
    const dsf_verify_options *o;
    dsf_suite_plan *p;
    dsf_results *r;
    bool models; /* several: their names are part of the checks' */
    char no_golden[512];
} planner;

const dsf_suite_info dsf_suites[DSF_N_SUITES] = {
#define X(name, question) {#name, question},
    DSF_SUITE_MAP(X)
#undef X
};

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
        bool known = false;
        for (int i = 0; i < DSF_N_SUITES; i++)
            known |= strlen(dsf_suites[i].name) == k && memcmp(dsf_suites[i].name, s, k) == 0;
        if (!known)
            return DSF_FAIL(DSF_EINVAL, "no suite is called \"%.*s\": dsf verify --list", (int)k,
                            s);
        s += k + (s[k] == ',');
    }
    if (o->suites && !*o->suites) return DSF_FAIL(DSF_EINVAL, "--suite: no name");
    return DSF_OK;
}

/* Also what no check of this run would look at: an option that is wrong is not ignored. */
static dsf_status check_options(const dsf_verify_options *o)
{
    dsf_plan empty = {.n_steps = 0};
    DSF_TRY(check_names(o));
    DSF_TRY(dsf_plan_choose(&empty, 0, o->variants));
    if (o->floor && !dsf_file_exists(o->floor))
        return DSF_FAIL(DSF_EIO, "%s: no such floor (--floor FLOOR.json)", o->floor);
    return DSF_OK;
}

const char *dsf_suite_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Sets, and why there are none. */
static dsf_status list_sets(planner *q)
{
    const char *golden = q->o->golden;
    (void)snprintf(q->no_golden, sizeof q->no_golden, "no golden folder given (--golden DIR)");
    if (!golden) return DSF_OK;
    (void)snprintf(q->no_golden, sizeof q->no_golden,
                   dsf_file_is_folder(golden)
                       ? "%.400s: neither a set (dump-pN.h5) nor a folder of sets"
                       : "%.400s: no such golden folder",
                   golden);
    return dsf_golden_sets_find(golden, &q->p->golden);
}

/* ---- checks and units ---- */

static dsf_suite_check *add_asked(planner *q, const char *suite, const char *name)
{
    dsf_results *r = q->r;
    if (r->status != DSF_OK) return NULL;
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 64;
        r->status = dsf_mem_grow(&r->check, (size_t)cap, sizeof *r->check);
        if (r->status != DSF_OK) return NULL;
        r->cap = cap;
    }
    dsf_suite_check *c = &r->check[r->n++];
    dsf_suite_begin(c, suite, name);
    return c;
}

static dsf_suite_check *add_check(planner *q, const char *suite, const char *name)
{
    bool wanted = asked(q->o, suite) && (!q->o->only || dsf_dump_glob(q->o->only, name));
    return wanted ? add_asked(q, suite, name) : NULL;
}

/* A glob asks for a suite as a whole: by its name, or for checks of it: "layers/...". */
static bool names_suite(const char *glob, const char *suite)
{
    size_t n = strlen(suite);
    return dsf_dump_glob(glob, suite) || (strncmp(glob, suite, n) == 0 && glob[n] == '/');
}

/* A skip is named with what is missing. */
static void leave_out(planner *q, const char *suite, const char *why)
{
    if (!asked(q->o, suite) || (q->o->only && !names_suite(q->o->only, suite))) return;
    dsf_suite_check *c = add_asked(q, suite, suite);
    if (!c) return;
    c->verdict = DSF_SKIPPED;
    dsf_suite_say(c, "%s", why);
}

static void add_unit(planner *q, const dsf_suite_unit *like, int first)
{
    dsf_suite_plan *p = q->p;
    int n = 0; /* a skip stands behind those that run */
    while (first + n < q->r->n && q->r->check[first + n].verdict != DSF_SKIPPED) n++;
    if (q->r->status != DSF_OK || n == 0) return;
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 64;
        q->r->status = dsf_mem_grow(&p->unit, (size_t)cap, sizeof *p->unit);
        if (q->r->status != DSF_OK) return;
        p->cap = cap;
    }
    p->unit[p->n] = *like;
    p->unit[p->n].o = q->o;
    p->unit[p->n].first = first;
    p->unit[p->n++].n = n;
}

/* One unit with one check "suite[/model][/part]". */
static void add_one(planner *q, const dsf_suite_unit *like, const char *suite, const char *part)
{
    char name[640];
    int first = q->r->n;
    (void)snprintf(name, sizeof name, "%s%s%.255s%s%s", suite, q->models && like->model ? "/" : "",
                   q->models && like->model ? dsf_suite_base(like->model) : "", part ? "/" : "",
                   part ? part : "");
    (void)add_check(q, suite, name);
    add_unit(q, like, first);
}

static void add_static_suites(planner *q, const char *model)
{
    dsf_suite_unit u = {.model = model};
    u.run = dsf_suite_config_values;
    add_one(q, &u, "config", "values");
    u.run = dsf_suite_config_leaves;
    add_one(q, &u, "config", "leaves");
    u.run = dsf_suite_config_unknown;
    add_one(q, &u, "config", "unknown");
    u.run = dsf_suite_contract;
    add_one(q, &u, "contract", NULL);
}

/* Ids are compared where the model's tokenizer is the released one; the rest is the same for all.
 */
static void add_prompts(planner *q, const char *model)
{
    const dsf_suite_unit u = {.model = model, .run = dsf_suite_prompts};
    add_one(q, &u, "template", "prompts");
}

static void add_model_suites(planner *q, const char *model)
{
    dsf_suite_unit u = {.model = model, .run = dsf_suite_tokenizer};
    add_one(q, &u, "tokenizer", NULL);
    u.run = dsf_suite_engram_hash;
    add_one(q, &u, "engram", "hash");
    u.run = dsf_suite_engram_values;
    add_one(q, &u, "engram", "values");
    u.run = dsf_suite_engram_history;
    add_one(q, &u, "engram", "history");
}

static void add_ops(planner *q)
{
    for (int i = 0; i < dsf_suite_n_ops(); i++) {
        dsf_suite_unit u = {.run = dsf_suite_op, .number = i};
        add_one(q, &u, "ops", dsf_suite_op_name(i));
    }
}

/* A check of suite choices where the dump holds what it needs; else a skip that says what it does
 * not hold: the suite itself has other prompts to run on, so it is no failure. */
static void add_choices(planner *q, const dsf_suite_unit *u, bool scored)
{
    char name[640];
    if (!asked(q->o, "choices")) return;
    (void)snprintf(name, sizeof name, "choices/%.255s/p%d/%s", dsf_suite_base(u->set), u->number,
                   scored ? "golden" : "own");
    dsf_suite_check *c = add_check(q, "choices", name);
    if (!c || dsf_suite_has_choices(u->set, u->number, scored)) return;
    c->verdict = DSF_SKIPPED;
    dsf_suite_say(c, "the dump holds no %s",
                  scored ? "scores of its choices" : "inputs of all rows to make choices from");
}

/* The dump of one prompt: injected (layers and the choices it makes on its own scores), operation
 * by operation (choices on golden scores), free-running. */
static void add_prompt(planner *q, const char *model, const char *set, int prompt)
{
    dsf_suite_unit u = {.model = model, .set = set, .number = prompt, .run = dsf_suite_graft};
    char name[640];
    int first = q->r->n;
    (void)snprintf(name, sizeof name, "layers/%.255s/p%d", dsf_suite_base(set), prompt);
    (void)add_check(q, "layers", name);
    add_choices(q, &u, false);
    add_unit(q, &u, first);
    first = q->r->n;
    add_choices(q, &u, true);
    u.run = dsf_suite_golden_choices;
    add_unit(q, &u, first);
    first = q->r->n;
    (void)snprintf(name, sizeof name, "logits/%.255s/p%d", dsf_suite_base(set), prompt);
    (void)add_check(q, "logits", name);
    u.run = dsf_suite_free_run;
    add_unit(q, &u, first);
}

/* Data that no check reads: named under the first golden suite that was asked for. */
static void add_odd(planner *q)
{
    static const char *const suite[] = {"layers", "choices", "logits"};
    int s = 0;
    while (s < 3 && !asked(q->o, suite[s])) s++;
    for (int i = 0; s < 3 && i < q->p->golden.n_odd; i++) {
        char name[640];
        (void)snprintf(name, sizeof name, "%s/%s", suite[s], q->p->golden.odd[i].name);
        dsf_suite_check *c = add_check(q, suite[s], name);
        if (c) dsf_suite_say(c, "%s", q->p->golden.odd[i].why);
    }
}

/* What the asked backend computes against the best kernels of the host. */
static void add_parity(planner *q)
{
    const char *backend = q->o->backend ? q->o->backend : "cpu";
    if (q->p->golden.n == 0) return; /* left out already */
    if (strcmp(backend, "cpu") == 0) {
        leave_out(q, "parity", "the CPU's kernels are what it compares with (--backend cuda, ref)");
        return;
    }
    for (int i = 0; i < q->p->golden.n; i++) {
        const char *set = q->p->golden.set[i].path, *model = q->o->model ? q->o->model : set;
        const dsf_suite_unit u = {.model = model, .set = set, .run = dsf_suite_parity};
        char name[640];
        int first = q->r->n;
        (void)snprintf(name, sizeof name, "parity/%.255s", dsf_suite_base(set));
        (void)add_check(q, "parity", name);
        add_unit(q, &u, first);
    }
}

static void add_sets(planner *q)
{
    for (int i = 0; i < q->p->golden.n; i++) {
        const dsf_golden_set *g = &q->p->golden.set[i];
        const char *set = g->path, *model = q->o->model ? q->o->model : set;
        char name[640];
        for (int p = 0; p < g->n_prompts; p++) add_prompt(q, model, set, g->prompt[p]);
        if (!asked(q->o, "logits") || !dsf_suite_has_replay(set)) continue;
        dsf_suite_unit u = {.model = model, .set = set, .run = dsf_suite_replay};
        int first = q->r->n;
        (void)snprintf(name, sizeof name, "logits/%.255s/p0 replay", dsf_suite_base(set));
        (void)add_check(q, "logits", name);
        add_unit(q, &u, first);
    }
    add_odd(q);
}

static void add_running_suites(planner *q, const char *model)
{
    dsf_suite_unit u = {.model = model, .run = dsf_suite_states};
    add_one(q, &u, "states", NULL);
    u.run = dsf_suite_chunks;
    add_one(q, &u, "chunks", NULL);
    u.run = dsf_suite_tokens;
    add_one(q, &u, "memory", "tokens");
    u.run = dsf_suite_resident;
    add_one(q, &u, "memory", "resident");
    u.run = dsf_suite_speed;
    u.alone = true; /* the rates are of a quiet machine */
    add_one(q, &u, "speed", NULL);
}

typedef void each_model_fn(planner *q, const char *model);

/* The given model; else every golden set is one. */
static void over_models(planner *q, each_model_fn *add)
{
    if (q->o->model) add(q, q->o->model);
    for (int i = 0; i < q->p->golden.n && !q->o->model; i++) add(q, q->p->golden.set[i].path);
}

static void add_template(planner *q, bool model)
{
    const dsf_suite_unit u = {.run = dsf_suite_stream};
    if (!q->o->cases) {
        leave_out(q, "template", "no cases of the reference encoder here (--cases DIR)");
        return;
    }
    if (model)
        over_models(q, add_prompts);
    else
        add_prompts(q, NULL);
    add_one(q, &u, "template", "stream");
}

static bool needs_model(const dsf_verify_options *o)
{
    for (int i = 0; i < DSF_N_SUITES; i++)
        if (asked(o, dsf_suites[i].name) && strcmp(dsf_suites[i].name, "ops") != 0 &&
            strcmp(dsf_suites[i].name, "template") != 0)
            return true;
    return false;
}

/* A suite that was asked for and would compare nothing at all could not run. */
static void refuse_skips(dsf_results *r, const char *suite)
{
    bool compares = false;
    for (int i = 0; i < r->n; i++)
        compares |= strcmp(r->check[i].suite, suite) == 0 && r->check[i].verdict != DSF_SKIPPED;
    for (int i = 0; i < r->n && !compares; i++)
        if (strcmp(r->check[i].suite, suite) == 0) r->check[i].verdict = DSF_COULD_NOT;
}

dsf_status dsf_suite_plan_make(const dsf_verify_options *o, dsf_suite_plan *p, dsf_results *r)
{
    planner q = {.o = o, .p = p, .r = r};
    DSF_TRY(check_options(o));
    DSF_TRY(list_sets(&q));
    bool model = o->model || p->golden.n > 0;
    if (!model && o->golden && needs_model(o)) return DSF_FAIL(DSF_EIO, "%s", q.no_golden);
    if (!model && needs_model(o))
        return DSF_FAIL(DSF_EINVAL, "give a MODEL, or --golden DIR whose sets are models");
    q.models = !o->model && p->golden.n > 1;
    over_models(&q, add_static_suites);
    add_template(&q, model);
    over_models(&q, add_model_suites);
    add_ops(&q);
    if (p->golden.n == 0)
        for (int i = 0; i < 4; i++)
            leave_out(&q, (const char *[]){"layers", "choices", "logits", "parity"}[i],
                      q.no_golden);
    add_sets(&q);
    add_parity(&q);
    over_models(&q, add_running_suites);
    for (int i = 0; o->suites && i < DSF_N_SUITES; i++) refuse_skips(r, dsf_suites[i].name);
    DSF_TRY(r->status);
    if (r->n > 0) return DSF_OK;
    if (o->only)
        return DSF_FAIL(DSF_EINVAL, "no check is called \"%s\" here: dsf verify --list", o->only);
    return DSF_FAIL(DSF_EINVAL, "no check to run: nothing compared is not a pass");
}

void dsf_suite_plan_free(dsf_suite_plan *p)
{
    dsf_mem_free(p->unit);
    dsf_golden_sets_free(&p->golden);
    *p = (dsf_suite_plan){.n = 0};
}

dsf_status dsf_suite_floor(const dsf_verify_options *o, const char *set, char path[4096])
{
    static const char *const where[] = {"noise_floor.json", "../noise_floor.json"};
    path[0] = 0;
    if (o->floor) {
        if (snprintf(path, 4096, "%s", o->floor) < 4096) return DSF_OK;
        return DSF_FAIL(DSF_EINVAL, "--floor: the path is too long");
    }
    for (int i = 0; i < 2; i++) {
        DSF_TRY(dsf_file_join(path, set, where[i]));
        if (dsf_file_exists(path)) return DSF_OK;
    }
    path[0] = 0;
    return DSF_OK;
}
