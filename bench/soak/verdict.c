/* The checks on what was measured, and the one answer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "bench/soak/state.h"

enum { CHECKS = 20 };

typedef struct {
    const char *name;
    bool passed;
    double measured, limit;
    char words[512];
} check;

typedef struct {
    dsf_soak *s;
    check check[CHECKS];
    int n;
} verdict;

static check *add(verdict *v, const char *name, bool passed, double measured, double limit)
{
    check *c = &v->check[v->n++];
    *c = (check){name, passed, measured, limit, ""};
    return c;
}

#define SAY(c, ...) ((void)snprintf((c)->words, sizeof(c)->words, __VA_ARGS__))

/* ---- what the engines showed ---- */

static void add_finding(verdict *v, const char *name, const dsf_soak_finding *f, const char *good)
{
    check *c = add(v, name, f->n == 0, f->measured, f->limit);
    SAY(c, "%s", f->n ? f->words : good);
}

static const dsf_soak_rung *highest(const dsf_soak *s)
{
    const dsf_soak_rung *r = &s->rung[0];
    for (int i = 1; i < s->n_rungs; i++)
        if (s->rung[i].measured > r->measured) r = &s->rung[i];
    return r;
}

static void check_total(verdict *v)
{
    const dsf_soak_rung *r = highest(v->s);
    double off = 100 * ((double)r->measured - (double)r->planned) / (double)r->planned;
    check *c = add(v, "total", r->measured <= r->planned && off > -1, (double)r->measured,
                   (double)r->planned);
    SAY(c, "%lld bytes measured of %lld planned (%+.2f %%) at length %lld, chunk %lld",
        (long long)r->measured, (long long)r->planned, off, (long long)r->length,
        (long long)r->chunk);
}

static void check_margin(verdict *v)
{
    const dsf_soak *s = v->s;
    int64_t least = INT64_MAX;
    double percent = 100;
    for (int i = 0; i < s->n_rungs; i++) {
        int64_t left = 0;
        double p = 0;
        dsf_soak_left(s, &s->rung[i], &left, &p);
        least = left < least ? left : least;
        percent = fmin(percent, p);
    }
    check *c = add(v, "margin", least >= s->o->margin && percent >= DSF_SOAK_MARGIN_PERCENT,
                   (double)least, (double)s->o->margin);
    SAY(c, "%lld bytes were left at the highest point (%.1f %%), asked are %lld and %d %%",
        (long long)least, percent, (long long)s->o->margin, DSF_SOAK_MARGIN_PERCENT);
}

/* ---- the fit ---- */

enum { CONST, LENGTH, CHUNK, PRODUCT };

/* At one chunk size the product is the length again, but for the shortest prompts: not told. */
static int terms_of(const dsf_soak *s)
{
    return s->o->n_chunks > 1 ? DSF_FIT_TERMS : DSF_FIT_TERMS - 1;
}

/* Without kernel scratch: that is the most that any one kernel asks for, a bent line; what is taken
 * for it is held to its own plan. */
static dsf_status fit_rungs(const dsf_soak *s, bool planned, dsf_fit *f)
{
    double(*term)[DSF_FIT_TERMS] = NULL, *y = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_mem_new(&term, (size_t)s->n_rungs, sizeof *term));
    DSF_TRY_OUT(dsf_mem_new(&y, (size_t)s->n_rungs, sizeof *y));
    for (int i = 0; i < s->n_rungs; i++) {
        const dsf_soak_rung *r = &s->rung[i];
        double length = (double)r->length, chunk = fmin((double)r->chunk, length);
        term[i][CONST] = 1;
        term[i][LENGTH] = length;
        term[i][PRODUCT] = chunk * length;
        term[i][CHUNK] = chunk;
        y[i] = (double)((planned ? r->planned : r->measured) - r->scratch);
    }
    DSF_TRY_OUT(dsf_fit_of(f, (const double(*)[DSF_FIT_TERMS])term, y, s->n_rungs, terms_of(s)));
out:
    dsf_mem_free(term);
    dsf_mem_free(y);
    return st;
}

static void add_coefficient(dsf_buf *json, const char *key, const dsf_fit *f, int k)
{
    if (f->told[k])
        dsf_json_add_num(json, key, f->coefficient[k]);
    else
        dsf_json_add_raw(json, key, "null");
}

/* more: bytes for each row and position beyond what the plan has. */
static void check_product(verdict *v, const dsf_soak_rung *r, double more)
{
    const dsf_soak *s = v->s;
    double bytes = more * fmin((double)r->chunk, (double)r->length) * (double)r->length;
    double limit = 0.01 * (double)r->planned;
    check *c = add(v, "chunk x length", bytes <= limit, bytes, limit);
    SAY(c,
        "%.0f bytes of chunk times length beyond the plan's at length %lld, chunk %lld; planned "
        "values that grow so: %d%s%s",
        bytes, (long long)r->length, (long long)r->chunk, s->n_products, s->n_products ? ", " : "",
        s->n_products ? s->product[0].name : "");
}

/* What no line of the plan is for is the engine's own tables: it depends on the model alone. */
static void check_beside(verdict *v)
{
    const dsf_soak *s = v->s;
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < s->n_rungs; i++) {
        least = s->rung[i].beside < least ? s->rung[i].beside : least;
        most = s->rung[i].beside > most ? s->rung[i].beside : most;
    }
    double limit = 0.01 * (double)highest(s)->planned;
    check *c =
        add(v, "beside the plan", (double)(most - least) <= limit, (double)(most - least), limit);
    SAY(c,
        "%lld bytes of tables before the first token, the same within %lld at every length and chunk",
        (long long)most, (long long)(most - least));
}

static dsf_status check_fit(verdict *v)
{
    dsf_soak *s = v->s;
    dsf_fit f, plan;
    dsf_buf json = {.max = 0};
    if (s->n_rungs <= terms_of(s)) return DSF_OK; /* any such points lie on such a curve */
    DSF_TRY(fit_rungs(s, false, &f));
    DSF_TRY(fit_rungs(s, true, &plan));
    dsf_soak_begin(&json, "fit");
    add_coefficient(&json, "a", &f, CONST);
    add_coefficient(&json, "b", &f, LENGTH);
    add_coefficient(&json, "c", &f, PRODUCT);
    add_coefficient(&json, "d", &f, CHUNK);
    dsf_json_add_num(&json, "residual_percent", f.residual_percent);
    dsf_json_add_num(&json, "rms_percent", f.rms_percent);
    dsf_json_add_num(&json, "plan_residual_percent", plan.residual_percent);
    dsf_json_add_cstr(&json, "without", "kernel scratch");
    dsf_json_add_int(&json, "points", s->n_rungs);
    DSF_TRY(dsf_soak_emit(s, &json, NULL));
    check *c = add(v, "fit", f.residual_percent < DSF_SOAK_RESIDUAL_PERCENT, f.residual_percent,
                   DSF_SOAK_RESIDUAL_PERCENT);
    SAY(c,
        "bytes without kernel scratch = %.0f + %.2f L + %.3g T L + %.1f T leaves %.3f %% at the "
        "worst of %d points",
        f.coefficient[CONST], f.coefficient[LENGTH], f.coefficient[PRODUCT], f.coefficient[CHUNK],
        f.residual_percent, f.n);
    if (f.told[PRODUCT])
        check_product(v, highest(s), f.coefficient[PRODUCT] - plan.coefficient[PRODUCT]);
    return DSF_OK;
}

/* ---- slopes ---- */

static dsf_status check_slope(verdict *v, const char *what, const int64_t *value, double limit)
{
    dsf_soak *s = v->s;
    int n = s->cycles.n;
    double *y = NULL;
    dsf_trend t;
    dsf_buf json = {.max = 0};
    for (int i = 0; i < n; i++)
        if (value[i] < 0) return DSF_OK; /* there is no such gauge here */
    DSF_TRY(dsf_mem_new(&y, (size_t)n, sizeof *y));
    for (int i = 0; i < n; i++) y[i] = (double)value[i];
    dsf_status st = dsf_trend_of(&t, y, n, s->o->seed);
    dsf_mem_free(y);
    DSF_TRY(st);
    bool passed = limit > 0 ? t.high < limit : value[n - 1] == value[0] && t.slope == 0;
    dsf_soak_begin(&json, "slope");
    dsf_json_add_cstr(&json, "what", what);
    dsf_json_add_int(&json, "cycles", n);
    dsf_json_add_num(&json, "per_cycle", t.slope);
    dsf_json_add_num(&json, "low", t.low);
    dsf_json_add_num(&json, "high", t.high);
    dsf_json_add_num(&json, "limit", limit);
    dsf_json_add_bool(&json, "passed", passed);
    DSF_TRY(dsf_soak_emit(s, &json, NULL));
    check *c = add(v, what, passed, limit > 0 ? t.high : t.slope, limit);
    const char *unit = strcmp(what, "fds") == 0 ? "descriptors" : "bytes";
    SAY(c, "%+.1f %s a cycle [%+.1f, %+.1f] over %d equal cycles, %s%.0f", t.slope, unit, t.low,
        t.high, n, limit > 0 ? "below " : "exactly ", limit);
    return DSF_OK;
}

static dsf_status check_cycles(verdict *v)
{
    dsf_soak_cycles *c = &v->s->cycles;
    if (c->n < 2) return DSF_OK;
    add_finding(v, "leak", &v->s->leak, "every block of a cycle is given back in it");
    DSF_TRY(check_slope(v, "live_bytes", c->live, 0));
    if (!DSF_SANITIZED) DSF_TRY(check_slope(v, "anon_bytes", c->anon, DSF_SOAK_SLOPE_BYTES));
    DSF_TRY(check_slope(v, "fds", c->files, 0));
    DSF_TRY(check_slope(v, "device_used_bytes", c->device, DSF_SOAK_SLOPE_BYTES));
    DSF_TRY(check_slope(v, "pinned_bytes", c->pinned, 0));
    check *x = add(v, "output of cycles", v->s->outputs.n == 0, c->n - c->same, 0);
    SAY(x, "%s",
        v->s->outputs.n ? v->s->outputs.words
                        : "logits and ids are the first cycle's in every cycle");
    return DSF_OK;
}

/* ---- the answer ---- */

/* By what explains most: a block, a line of the plan, then totals. */
static const char *find_culprit(const dsf_soak *s, const verdict *v)
{
    const dsf_soak_finding *const order[] = {&s->temporary, &s->leak,   &s->plan,    &s->arenas,
                                             &s->outputs,   &s->chunks, &s->resident};
    if (s->guarded) return s->stopped;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i]->n) return order[i]->words;
    for (int i = 0; i < v->n; i++)
        if (!v->check[i].passed) return v->check[i].words;
    return NULL;
}

static void write_checks(const verdict *v, dsf_buf *json, dsf_buf *text)
{
    dsf_json_begin(json, "checks", '[');
    for (int i = 0; i < v->n; i++) {
        const check *c = &v->check[i];
        dsf_json_begin(json, NULL, '{');
        dsf_json_add_cstr(json, "name", c->name);
        dsf_json_add_bool(json, "passed", c->passed);
        dsf_json_add_num(json, "measured", c->measured);
        dsf_json_add_num(json, "limit", c->limit);
        dsf_json_add_cstr(json, "words", c->words);
        dsf_json_end(json, '}');
        dsf_buf_fmt(text, "%-6s %-18s %s\n", c->passed ? "pass" : "FAIL", c->name, c->words);
    }
    dsf_json_end(json, ']');
}

static dsf_status tell(verdict *v, bool passed, const char *answer)
{
    dsf_soak *s = v->s;
    dsf_buf json = {.max = 0}, text = {.max = 0};
    const char *culprit = find_culprit(s, v);
    dsf_ledger_hush(s->ledger, true);
    dsf_soak_begin(&json, "verdict");
    dsf_bench_host(s->b, &json);
    dsf_json_add_bool(&json, "passed", passed);
    dsf_json_add_cstr(&json, "answer", answer);
    write_checks(v, &json, &text);
    if (*s->stopped) dsf_json_add_cstr(&json, "stopped", s->stopped);
    if (culprit)
        dsf_json_add_cstr(&json, "culprit", culprit);
    else
        dsf_json_add_raw(&json, "culprit", "null");
    if (*s->stopped) dsf_buf_fmt(&text, "%s\n", s->stopped);
    if (culprit && !s->guarded) dsf_buf_fmt(&text, "culprit: %s\n", culprit);
    dsf_buf_fmt(&text, "soak %s: %d lengths and chunks, %d cycles", answer, s->n_rungs,
                s->cycles.n);
    return dsf_soak_emit(s, &json, &text);
}

dsf_status dsf_soak_judge(dsf_soak *s, dsf_soak_answer *answer)
{
    verdict *v = NULL;
    dsf_status st = DSF_OK;
    bool passed = true;
    dsf_ledger_hush(s->ledger, true);
    DSF_TRY(dsf_mem_new(&v, 1, sizeof *v));
    v->s = s;
    add_finding(v, "plan", &s->plan, "every line of the plan holds what was taken for it");
    add_finding(v, "arenas", &s->arenas, "kernels reach the end of every arena, and no further");
    add_finding(v, "temporaries", &s->temporary, "no block is taken in any pass");
    bool device = dsf_plan_on_device(s->options.variants);
    add_finding(v, "resident", &s->resident,
                DSF_SANITIZED ? "not judged: a sanitizer's memory is counted too"
                : device      ? "not judged: the driver's own memory is counted too"
                              : "the plan explains what is resident");
    if (s->n_rungs > 0) {
        check_total(v);
        check_beside(v);
        check_margin(v);
        DSF_TRY_OUT(check_fit(v));
        add_finding(v, "output of chunks", &s->chunks,
                    "equal lengths give equal bits at each chunk");
    }
    DSF_TRY_OUT(check_cycles(v));
    for (int i = 0; i < v->n; i++) passed = passed && v->check[i].passed;
    bool stopped = *s->stopped != 0;
    *answer = !passed || s->guarded ? DSF_SOAK_FAILED
              : stopped             ? DSF_SOAK_STOPPED
                                    : DSF_SOAK_PASSED;
    static const char *const words[] = {"passed", "FAILED", "stopped before its end"};
    st = tell(v, *answer == DSF_SOAK_PASSED, words[*answer]);
out:
    dsf_mem_free(v);
    return st;
}
