/* A measurement against an earlier one of the same thing: faster, slower, or no difference. */
#include "baseline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

struct dsf_baseline {
    dsf_json_doc **line;
    int *at; /* the lines' numbers in the text, from 1 */
    int n;
};

enum { LINES_MOST = 4096 };
static const double least_change = 2; /* percent: less is no difference, however quiet the runs */

/* The number at key, or at key.median; NAN when there is none. */
static double number(const dsf_json *line, const char *key)
{
    const dsf_json *v = line ? dsf_json_get(line, key) : NULL;
    double x = NAN;
    if (v && dsf_json_kind_of(v) == DSF_JSON_OBJECT) v = dsf_json_get(v, "median");
    return v && dsf_json_double(v, &x) == DSF_OK ? x : NAN;
}

/* Where a line has its time: of the host's kinds, of a GPU's. */
static const char *time_key(const dsf_json *line)
{
    static const char *const keys[] = {"median_ns", "us", "graph_us", "device_us"};
    int k = 3;
    while (k > 0 && !(line && dsf_json_get(line, keys[k]))) k--;
    return keys[k];
}

/* An object of a kind that says so; where it has a time, one that something can take. */
static dsf_status check_line(const dsf_json *line, const char *where)
{
    bool object = dsf_json_kind_of(line) == DSF_JSON_OBJECT;
    const dsf_json *kind = object ? dsf_json_get(line, "bench") : NULL;
    if (!kind || dsf_json_kind_of(kind) != DSF_JSON_STRING)
        return DSF_FAIL(DSF_ECORRUPT, "%s: no measurement: it has no \"bench\"", where);
    const char *key = time_key(line);
    double ns = number(line, key);
    if (dsf_json_get(line, key) && !(ns > 0 && ns < (double)INFINITY))
        return DSF_FAIL(DSF_ECORRUPT, "%s: %s is no time above 0", where, key);
    return DSF_OK;
}

static dsf_status add_line(dsf_baseline *b, const char *name, int at, const char *text, size_t n)
{
    if (n == 0) return DSF_OK;
    if (b->n == LINES_MOST)
        return DSF_FAIL(DSF_ECORRUPT, "%s: more than %d lines", name, LINES_MOST);
    char where[4096 + 32];
    (void)snprintf(where, sizeof where, "%s: line %d", name, at);
    DSF_TRY(dsf_json_parse(&b->line[b->n], where, text, n));
    b->at[b->n++] = at;
    return check_line(dsf_json_root(b->line[b->n - 1]), where);
}

static dsf_status add_lines(dsf_baseline *b, const char *name, const char *text, size_t n)
{
    DSF_TRY(dsf_mem_new(&b->line, LINES_MOST, sizeof(dsf_json_doc *)));
    DSF_TRY(dsf_mem_new(&b->at, LINES_MOST, sizeof *b->at));
    int number = 1;
    for (size_t at = 0; at < n; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (text + at)) : n - at;
        DSF_TRY(add_line(b, name, number, text + at, len));
        at += len + 1;
    }
    return b->n ? DSF_OK : DSF_FAIL(DSF_ECORRUPT, "%s: no measurement in it", name);
}

dsf_status dsf_baseline_open(dsf_baseline **out, const char *name, const char *text, size_t n)
{
    dsf_baseline *b = NULL;
    DSF_TRY(dsf_mem_new(&b, 1, sizeof *b));
    dsf_status st = add_lines(b, name, text, n);
    if (st == DSF_OK)
        *out = b;
    else
        dsf_baseline_close(b);
    return st;
}

void dsf_baseline_close(dsf_baseline *b)
{
    if (!b) return;
    for (int i = 0; i < b->n; i++) dsf_json_free(b->line[i]);
    dsf_mem_free(b->line);
    dsf_mem_free(b->at);
    dsf_mem_free(b);
}

/* NULL: not there, or null. */
static const dsf_json *member(const dsf_json *line, const char *key)
{
    const dsf_json *v = dsf_json_get(line, key);
    return v && dsf_json_kind_of(v) == DSF_JSON_NULL ? NULL : v;
}

/* Both have the key with the same value, or neither has it. */
static bool same(const dsf_json *a, const dsf_json *b, const char *key)
{
    const dsf_json *x = member(a, key), *y = member(b, key);
    if (!x || !y) return x == y;
    return strcmp(dsf_json_text(x, NULL), dsf_json_text(y, NULL)) == 0;
}

/* The line of the same thing, and its number; NULL and 0: none. */
static const dsf_json *find(const dsf_baseline *b, const dsf_json *line, int *at)
{
    static const char *const keys[] = {"bench",   "op",      "use",    "variant", "shape",
                                       "model",   "context", "tokens", "chunk",   "prefill",
                                       "threads", "machine", "rows",   "batch",   "layer_list"};
    for (int i = 0; i < b->n; i++) {
        const dsf_json *old = dsf_json_root(b->line[i]);
        size_t k = 0;
        while (k < sizeof keys / sizeof *keys && same(old, line, keys[k])) k++;
        *at = b->at[i];
        if (k == sizeof keys / sizeof *keys) return old;
    }
    *at = 0;
    return NULL;
}

static double spread(const dsf_json *line, const char *key)
{
    const dsf_json *v = line ? dsf_json_get(line, key) : NULL;
    if (v && dsf_json_kind_of(v) == DSF_JSON_OBJECT) return number(v, "spread");
    return number(line, "spread");
}

/* Time in units of the machine's limit where the limit was measured between the runs, else the time
 * itself; with its spread. */
static double cost(const dsf_json *line, bool by_limit, double *width)
{
    const char *key = by_limit ? "percent" : time_key(line);
    *width = spread(line, key);
    return by_limit ? 100 / number(line, key) : number(line, key);
}

dsf_comparison dsf_baseline_judge(const dsf_baseline *b, const char *line, dsf_judgement *j)
{
    dsf_json_doc *doc = NULL;
    *j = (dsf_judgement){.verdict = DSF_CMP_ABSENT};
    if (dsf_json_parse(&doc, "measurement", line, strlen(line)) != DSF_OK) return j->verdict;
    const dsf_json *now = dsf_json_root(doc), *old = find(b, now, &j->line);
    bool by_limit = isfinite(number(old, "percent")) && isfinite(number(now, "percent"));
    double width[2], before = cost(old, by_limit, &width[0]),
                     after = cost(now, by_limit, &width[1]);
    j->change = 100 * (after / before - 1);
    j->noise = fmax(least_change, 200 * sqrt(width[0] * width[0] + width[1] * width[1]));
    j->control = 100 * (number(now, "ref_ns") / number(old, "ref_ns") - 1);
    if (isfinite(j->change) && isfinite(j->noise)) {
        j->verdict = DSF_CMP_SAME;
        if (j->change > j->noise) j->verdict = DSF_CMP_SLOWER;
        if (j->change < -j->noise) j->verdict = DSF_CMP_FASTER;
        /* A control that moved as far says that the machine did, not the code. */
        if (isfinite(j->control) && fabs(j->control) > j->noise && j->control * j->change > 0 &&
            fabs(j->control) > 0.5 * fabs(j->change))
            j->verdict = DSF_CMP_MACHINE;
    }
    dsf_json_free(doc);
    return j->verdict;
}

const char *dsf_comparison_words(dsf_comparison v)
{
    static const char *const words[] = {"not in the baseline", "no difference", "faster", "slower",
                                        "the control moved: the machine, not the code"};
    return words[v];
}
