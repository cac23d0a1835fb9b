#include "ab.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "ab_process.h"
#include "base/mem.h"
#include "paired.h"

enum {
    OLD,
    NEW,
    MOST_PARTS = 64,
    MOST_CASES = 128,
    ROUNDS = 16,
    MOST_ROUNDS = 256,
    MOST_TIMES = 3
};
/* Of the whole: a smaller operation tells of its place in memory. */
static const double least_share = 0.05;
/* Of one pair of processes: many time slices, or the pair tells of its neighbours. */
static const double pair_ns = 300e6;

typedef struct {
    char name[256];
    dsf_buf json;                       /* the open line */
    dsf_paired whole, part[MOST_PARTS]; /* part: operations in the order of their coming */
    int n_parts;
} ab_case;

typedef struct {
    dsf_bench *b;
    const dsf_ab_options *o;
    dsf_ab_process side[2];
    ab_case *list[MOST_CASES];
    int n, at;     /* cases; the one at hand */
    dsf_buf worst; /* names of what is slower, over all cases */
    int faster;
} job;

static const char *word(const dsf_ab_process *p, const char *key)
{
    const dsf_json *v = p->line ? dsf_json_get(dsf_json_root(p->line), key) : NULL;
    return v && dsf_json_kind_of(v) == DSF_JSON_STRING ? dsf_json_text(v, NULL) : "";
}

static double number(const dsf_json *line, const char *key)
{
    double x = NAN;
    const dsf_json *v = dsf_json_get(line, key);
    return v && dsf_json_double(v, &x) == DSF_OK ? x : NAN;
}

/* A line of one of them; *refused: it has a wrong output, which is told. */
static dsf_status read_line(job *j, dsf_ab_process *p, bool *refused)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    DSF_TRY(dsf_ab_read(p));
    if (!*word(p, "refused")) return DSF_OK;
    dsf_bench_begin(j->b, &json, "ab");
    dsf_json_add_cstr(&json, "program", p->name);
    dsf_json_add_cstr(&json, "measured", word(p, "bench"));
    dsf_json_add_cstr(&json, "op", word(p, "op"));
    dsf_json_add_cstr(&json, "refused", word(p, "refused"));
    dsf_buf_fmt(&text, "REFUSED, no figure: the %s program, %s %s: %s", p->name, word(p, "bench"),
                word(p, "op"), word(p, "refused"));
    j->b->refused++;
    *refused = true;
    return dsf_bench_emit(j->b, &json, &text);
}

/* Every command has one line for an answer. */
static dsf_status ask(job *j, dsf_ab_process *p, char command, bool *refused)
{
    DSF_TRY(dsf_ab_tell(p, command));
    return read_line(j, p, refused);
}

static bool says(const dsf_ab_process *p, const char *what)
{
    return strcmp(word(p, "pace"), what) == 0;
}

/* Both measure the same: their lines agree in everything that identifies a case. */
static dsf_status check_same(const job *j)
{
    static const char *const keys[] = {"pace",    "bench",   "op",      "use",    "variant",
                                       "shape",   "model",   "context", "tokens", "chunk",
                                       "prefill", "threads", "batch"};
    const dsf_json *a = dsf_json_root(j->side[OLD].line), *b = dsf_json_root(j->side[NEW].line);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const dsf_json *x = dsf_json_get(a, keys[i]), *y = dsf_json_get(b, keys[i]);
        const char *s = x ? dsf_json_text(x, NULL) : "", *t = y ? dsf_json_text(y, NULL) : "";
        if (strcmp(s, t) != 0)
            return DSF_FAIL(DSF_EINVAL,
                            "the programs measure different things: %s is \"%s\" in "
                            "the old one, \"%s\" in the new one",
                            keys[i], s, t);
    }
    return DSF_OK;
}

static dsf_paired *part_of(ab_case *j, const dsf_json *p)
{
    char name[sizeof j->part[0].name];
    const dsf_json *op = dsf_json_get(p, "op"), *variant = dsf_json_get(p, "variant");
    (void)snprintf(name, sizeof name, "%s:%s", op ? dsf_json_text(op, NULL) : "",
                   variant ? dsf_json_text(variant, NULL) : "");
    for (int i = 0; i < j->n_parts; i++)
        if (strcmp(j->part[i].name, name) == 0) return &j->part[i];
    if (j->n_parts == MOST_PARTS) return NULL;
    memcpy(j->part[j->n_parts].name, name, sizeof name);
    return &j->part[j->n_parts++];
}

/* The same operation of the other side's round; NULL: it ran another variant, or none. */
static const dsf_json *same_part(const dsf_json *round, const dsf_json *part)
{
    const dsf_json *list = dsf_json_get(round, "part");
    const char *op = dsf_json_text(dsf_json_get(part, "op"), NULL);
    for (const dsf_json *p = list ? dsf_json_first(list) : NULL; p; p = dsf_json_next(p))
        if (strcmp(dsf_json_text(dsf_json_get(p, "op"), NULL), op) == 0) return p;
    return NULL;
}

static void take_round(const job *j)
{
    ab_case *c = j->list[j->at];
    const dsf_json *old = dsf_json_root(j->side[OLD].line), *new = dsf_json_root(j->side[NEW].line);
    const dsf_json *list = dsf_json_get(new, "part");
    dsf_paired_add(&c->whole, number(old, "ns"), number(new, "ns"));
    for (const dsf_json *p = list ? dsf_json_first(list) : NULL; p; p = dsf_json_next(p)) {
        const dsf_json *before = same_part(old, p);
        dsf_paired *part = before ? part_of(c, p) : NULL;
        if (part) dsf_paired_add(part, number(before, "ns"), number(p, "ns"));
    }
}

/* One round of each, the old one first in every other pair. *more: both ran it. */
static dsf_status run_pair(job *j, int pair, bool *more, bool *refused)
{
    for (int k = 0; k < 2 && *more; k++) {
        dsf_ab_process *p = &j->side[k ^ (pair & 1)];
        DSF_TRY(ask(j, p, 'r', refused));
        *more = says(p, "round");
    }
    if (*more) take_round(j);
    return DSF_OK;
}

/* Ends the case in the programs that have not ended it themselves. */
static dsf_status end_case(job *j, bool *refused)
{
    for (int i = 0; i < 2 && !*refused; i++) {
        dsf_ab_process *p = &j->side[i];
        if (!says(p, "done")) DSF_TRY(ask(j, p, 's', refused));
        if (!*refused && !says(p, "done"))
            return DSF_FAIL(DSF_EINVAL, "the %s program ended before its case did", p->name);
    }
    return DSF_OK;
}

/* Large enough to be judged. */
static bool counts(const ab_case *c, const dsf_paired *p)
{
    return p->ns[OLD] >= least_share * c->whole.ns[OLD] ||
           p->ns[NEW] >= least_share * c->whole.ns[NEW];
}

static void add_row(dsf_buf *json, const char *key, const dsf_paired *p,
                    const dsf_paired_judgement *v)
{
    dsf_json_begin(json, key, '{');
    if (p->name[0]) dsf_json_add_cstr(json, "op", p->name);
    dsf_json_add_cstr(json, "verdict", dsf_paired_words(v->verdict));
    dsf_json_add_num(json, "ratio", v->ratio);
    dsf_json_begin(json, "interval", '[');
    for (int i = 0; i < 2; i++) dsf_json_add_num(json, NULL, v->interval[i]);
    dsf_json_end(json, ']');
    dsf_json_add_bool(json, "resolved", v->resolved);
    dsf_json_add_num(json, "old_ns", p->ns[OLD] / p->rounds);
    dsf_json_add_num(json, "new_ns", p->ns[NEW] / p->rounds);
    dsf_json_end(json, '}');
}

static void add_words(dsf_buf *text, const char *name, const dsf_paired_judgement *v)
{
    dsf_buf_fmt(text, "%s: %s, %+.1f%% (%+.1f to %+.1f)%s", name, dsf_paired_words(v->verdict),
                100 * (v->ratio - 1), 100 * (v->interval[0] - 1), 100 * (v->interval[1] - 1),
                v->resolved ? "" : ", unresolved");
}

/* The name of what is slower goes into the last line. */
static void blame(job *j, const char *name)
{
    if (j->worst.data && strstr(j->worst.data, name)) return;
    dsf_buf_fmt(&j->worst, "%s%s", j->worst.len ? ", " : "", name);
}

static dsf_status judge(job *j, ab_case *c)
{
    dsf_buf text = {.max = 0};
    dsf_paired_judgement v = dsf_paired_judge(&c->whole, j->o->least);
    int slower = v.verdict == DSF_PAIRED_SLOWER, named = 0;
    dsf_json_add_int(&c->json, "pairs", c->whole.pair.n);
    dsf_json_add_int(&c->json, "rounds", c->whole.rounds);
    add_row(&c->json, "whole", &c->whole, &v);
    add_words(&text, c->name, &v);
    j->faster += v.verdict == DSF_PAIRED_FASTER;
    dsf_json_begin(&c->json, "operations", '[');
    for (int i = 0; i < c->n_parts; i++) {
        dsf_paired *p = &c->part[i];
        if (!counts(c, p)) continue;
        v = dsf_paired_judge(p, j->o->least);
        add_row(&c->json, NULL, p, &v);
        dsf_buf_str(&text, "\n  ");
        add_words(&text, p->name, &v);
        if (v.verdict != DSF_PAIRED_SLOWER) continue;
        named++;
        blame(j, p->name);
    }
    dsf_json_end(&c->json, ']');
    if (slower && !named) blame(j, c->name);
    j->b->slower += slower || named;
    return dsf_bench_emit(j->b, &c->json, &text);
}

/* "op linear_g8 wq_b n=1 k=1280 o=32768", "prefill mini at 0". */
static void name_case(const job *j, char *out, size_t n)
{
    const dsf_ab_process *p = &j->side[NEW];
    double at = number(dsf_json_root(p->line), "context");
    if (*word(p, "op"))
        (void)snprintf(out, n, "%s:%s %s %s", word(p, "op"), word(p, "variant"), word(p, "use"),
                       word(p, "shape"));
    else
        (void)snprintf(out, n, "%s %s at %.0f", word(p, "bench"), word(p, "model"), at);
}

static void identify(const job *j, dsf_buf *json)
{
    static const char *const keys[] = {"op",    "use",     "variant", "shape", "model",
                                       "batch", "context", "tokens",  "chunk", "prefill"};
    const dsf_json *line = dsf_json_root(j->side[NEW].line), *v = NULL;
    const char *old = word(&j->side[OLD], "output_hash"), *new = word(&j->side[NEW], "output_hash");
    dsf_bench_begin(j->b, json, "ab");
    dsf_json_add_cstr(json, "measured", word(&j->side[NEW], "bench"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        v = dsf_json_get(line, keys[i]);
        if (!v || dsf_json_kind_of(v) == DSF_JSON_NULL) continue;
        if (dsf_json_kind_of(v) == DSF_JSON_STRING)
            dsf_json_add_cstr(json, keys[i], dsf_json_text(v, NULL));
        else
            dsf_json_add_num(json, keys[i], number(line, keys[i]));
    }
    if (*old && *new) dsf_json_add_bool(json, "same_output", strcmp(old, new) == 0);
    dsf_json_add_num(json, "least_change_percent", 100 * j->o->least);
}

/* The case that the programs stand at, as it was in the pairs before. */
static dsf_status find_case(job *j)
{
    char name[sizeof j->list[0]->name];
    DSF_TRY(check_same(j));
    name_case(j, name, sizeof name);
    if (j->at == MOST_CASES)
        return DSF_FAIL(DSF_EINVAL, "more than %d cases: narrow them", MOST_CASES);
    if (j->at < j->n) {
        if (strcmp(j->list[j->at]->name, name) == 0) return DSF_OK;
        return DSF_FAIL(DSF_EINVAL, "case %d is %s, was %s", j->at, name, j->list[j->at]->name);
    }
    DSF_TRY(dsf_mem_new(&j->list[j->n], 1, sizeof *j->list[0]));
    memcpy(j->list[j->n]->name, name, sizeof name);
    identify(j, &j->list[j->n]->json);
    j->n++;
    return DSF_OK;
}

static dsf_status run_case(job *j, bool *refused)
{
    bool more = true;
    DSF_TRY(find_case(j));
    ab_case *c = j->list[j->at];
    double before = c->whole.ns[NEW];
    for (int r = 0; r < MOST_ROUNDS && more; r++) {
        if (r >= ROUNDS && c->whole.ns[NEW] - before > pair_ns) break;
        DSF_TRY(run_pair(j, r, &more, refused));
    }
    if (!*refused) DSF_TRY(end_case(j, refused));
    dsf_paired_close(&c->whole);
    for (int i = 0; i < c->n_parts; i++) dsf_paired_close(&c->part[i]);
    if (!*refused && c->whole.pair.n == 0)
        return DSF_FAIL(DSF_EINVAL, "%s: no round was run", c->name);
    j->at++;
    return DSF_OK;
}

/* Cases until both programs have ended. */
static dsf_status run_cases(job *j, bool *refused)
{
    for (;;) {
        for (int i = 0; i < 2 && !*refused; i++) DSF_TRY(read_line(j, &j->side[i], refused));
        const bool there[2] = {j->side[OLD].line != NULL, j->side[NEW].line != NULL};
        if (*refused || (!there[OLD] && !there[NEW])) return DSF_OK;
        for (int i = 0; i < 2; i++)
            if (!there[i] || !says(&j->side[i], "case"))
                return DSF_FAIL(DSF_ENOTSUP,
                                "the %s program tells no case: can it --paced, and this?",
                                j->side[i].name);
        DSF_TRY(run_case(j, refused));
        if (*refused) return DSF_OK;
    }
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    if (j->n == 0) return DSF_FAIL(DSF_EINVAL, "the programs measured nothing");
    for (int i = 0; i < j->n; i++) DSF_TRY(judge(j, j->list[i]));
    const char *verdict = j->b->slower ? "slower" : j->faster ? "faster" : "no difference";
    dsf_bench_begin(j->b, &json, "ab_verdict");
    dsf_json_add_cstr(&json, "verdict", verdict);
    dsf_json_add_int(&json, "cases", j->n);
    dsf_json_add_int(&json, "slower_cases", j->b->slower);
    dsf_json_add_int(&json, "faster_cases", j->faster);
    dsf_json_add_cstr(&json, "slower", j->worst.data ? j->worst.data : "");
    dsf_json_add_num(&json, "least_change_percent", 100 * j->o->least);
    dsf_buf_fmt(&text, "%s%s%s (%d cases, least change %.0f%%)", verdict, j->b->slower ? ": " : "",
                j->worst.data ? j->worst.data : "", j->n, 100 * j->o->least);
    return dsf_bench_emit(j->b, &json, &text);
}

/* A change shows that these pairs cannot tell from none, or not surely. */
static bool any_open(const job *j)
{
    for (int i = 0; i < j->n; i++) {
        const ab_case *c = j->list[i];
        if (dsf_paired_judge(&c->whole, j->o->least).open) return true;
        for (int k = 0; k < c->n_parts; k++)
            if (counts(c, &c->part[k]) && dsf_paired_judge(&c->part[k], j->o->least).open)
                return true;
    }
    return false;
}

static dsf_status start(job *j, int pair, char *const *argv)
{
    static const char *const name[] = {"old", "new"};
    for (int k = 0; k < 2; k++) {
        int i = k ^ (pair & 1);
        const char *program = i == OLD ? j->o->program : "/proc/self/exe";
        DSF_TRY(dsf_ab_start(&j->side[i], name[i], program, argv));
    }
    return DSF_OK;
}

/* Says what it has seen of the ends: a program that failed has said why itself. */
static dsf_status end(job *j)
{
    int code[2];
    for (int i = 0; i < 2; i++) code[i] = dsf_ab_end(&j->side[i]);
    for (int i = 0; i < 2; i++)
        if (code[i] != 0 && code[i] != 1)
            return DSF_FAIL(DSF_ENOTSUP, "the %s program ended with %d", i ? "new" : "old",
                            code[i]);
    return DSF_OK;
}

static dsf_status run(job *j)
{
    enum { MOST = 96 };
    char *argv[MOST] = {"dsf", "bench", "--paced"};
    bool refused = false;
    int n = 3;
    for (char *const *a = j->o->argv; *a; a++) {
        if (n == MOST - 1) return DSF_FAIL(DSF_EINVAL, "more than %d arguments", MOST - 4);
        argv[n++] = *a;
    }
    for (int pair = 0; pair < MOST_TIMES * j->o->pairs && !refused; pair++) {
        if (pair > 0 && pair % j->o->pairs == 0 && !any_open(j)) break;
        j->at = 0;
        DSF_TRY(start(j, pair, argv));
        DSF_TRY(run_cases(j, &refused));
        DSF_TRY(end(j));
        j->b->out.progress(j->b->out.ud, "pairs of processes", pair + 1, j->o->pairs);
    }
    return refused ? DSF_OK : report(j);
}

dsf_status dsf_ab_run(dsf_bench *b, const dsf_ab_options *o)
{
    job *j = NULL;
    DSF_TRY(dsf_mem_new(&j, 1, sizeof *j));
    *j = (job){.b = b, .o = o};
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); /* a program that is gone is an answer */
    dsf_status st = run(j);
    for (int i = 0; i < 2; i++) (void)dsf_ab_end(&j->side[i]);
    (void)signal(SIGPIPE, before);
    for (int i = 0; i < j->n; i++) {
        dsf_buf_free(&j->list[i]->json);
        dsf_mem_free(j->list[i]);
    }
    dsf_buf_free(&j->worst);
    dsf_mem_free(j);
    return st;
}
