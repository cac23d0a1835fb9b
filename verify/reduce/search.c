#include "verify/reduce/search.h"

#include <string.h>

#include "base/mem.h"

typedef struct {
    const dsf_search *s;
    dsf_search_result *r;
    dsf_candidate trial;
    dsf_status status; /* sticky: OK while the search goes on */
    bool stopped;      /* by most_tests */
    bool first;        /* first round: blocks; later: single steps */
    int64_t taken;     /* trials that became the best */
} search;

static bool going(const search *s) { return s->status == DSF_OK && !s->stopped; }

static void copy(dsf_candidate *to, const dsf_candidate *from)
{
    int32_t *ids = to->ids;
    if (from->n_ids) memcpy(ids, from->ids, (size_t)from->n_ids * sizeof *ids);
    *to = *from;
    to->ids = ids;
}

static dsf_reduce_outcome ask(search *s, const dsf_candidate *c)
{
    const dsf_search *job = s->s;
    dsf_reduce_outcome o = DSF_REDUCE_COULD_NOT;
    if (!job->known || !job->known(job->ud, c, &o)) {
        if (job->most_tests && s->r->tests >= job->most_tests) {
            s->stopped = true;
            return DSF_REDUCE_COULD_NOT;
        }
        s->status = job->test(job->ud, c, &o);
        if (s->status != DSF_OK) return DSF_REDUCE_COULD_NOT;
        s->r->tests++;
    }
    s->r->asked++;
    s->r->good += o == DSF_REDUCE_GOOD;
    s->r->fails += o == DSF_REDUCE_FAILS;
    s->r->could_not += o == DSF_REDUCE_COULD_NOT;
    return o;
}

/* A copy of the best, to be changed and taken. */
static dsf_candidate *propose(search *s)
{
    copy(&s->trial, &s->r->best);
    return &s->trial;
}

/* Tries the proposal; it becomes the best when it fails. */
static bool take(search *s)
{
    if (!going(s) || ask(s, &s->trial) != DSF_REDUCE_FAILS) return false;
    copy(&s->r->best, &s->trial);
    s->taken++;
    if (s->s->progress) s->s->progress(s->s->ud, &s->r->best, s->r->tests);
    return true;
}

/* ---- tokens ---- */

static void cut_prefix(search *s)
{
    int64_t low = 0, high = s->r->best.n_ids;
    while (high - low > 1 && going(s)) {
        int64_t middle = low + (high - low) / 2;
        propose(s)->n_ids = middle;
        if (take(s))
            high = middle;
        else
            low = middle;
    }
}

/* Proposes the best without tokens [at, at + n). */
static void propose_drop(search *s, int64_t at, int64_t n)
{
    dsf_candidate *c = propose(s);
    int64_t after = c->n_ids - at - n;
    if (after > 0) memmove(c->ids + at, c->ids + at + n, (size_t)after * sizeof *c->ids);
    c->n_ids -= n;
}

/* Drops blocks of `size` tokens, one after the other; at least one token stays. */
static void drop_blocks(search *s, int64_t size)
{
    for (int64_t at = 0; at < s->r->best.n_ids && going(s);) {
        int64_t left = s->r->best.n_ids - at, n = left < size ? left : size;
        if (n < s->r->best.n_ids) propose_drop(s, at, n);
        if (n == s->r->best.n_ids || !take(s)) at += n;
    }
}

/* Replaces blocks of `size` tokens by the filler. */
static void fill_blocks(search *s, int64_t size)
{
    for (int64_t at = 0; at < s->r->best.n_ids && going(s); at += size) {
        dsf_candidate *c = propose(s);
        bool changes = false;
        for (int64_t i = at; i < at + size && i < c->n_ids; i++) {
            changes |= c->ids[i] != s->s->filler;
            c->ids[i] = s->s->filler;
        }
        if (changes) (void)take(s);
    }
}

/* Blocks of halving sizes, then single ones until a whole sweep takes nothing. */
static void refine(search *s, void (*sweep)(search *s, int64_t size), int64_t n)
{
    if (s->first)
        for (int64_t size = n / 2; size > 1 && going(s); size /= 2) sweep(s, size);
    int64_t before;
    do {
        before = s->taken;
        sweep(s, 1);
    } while (s->taken > before && going(s));
}

/* ---- numbers and ranges ---- */

/* The number of a candidate that an axis is about. */
typedef int64_t *field(dsf_candidate *c);
static int64_t *length_of(dsf_candidate *c) { return &c->length; }
static int64_t *batch_of(dsf_candidate *c) { return &c->batch; }
static int64_t *chunk_of(dsf_candidate *c) { return &c->chunk; }
static int64_t *layers_from(dsf_candidate *c) { return &c->layers[0]; }
static int64_t *layers_to(dsf_candidate *c) { return &c->layers[1]; }
static int64_t *rows_from(dsf_candidate *c) { return &c->rows[0]; }
static int64_t *rows_to(dsf_candidate *c) { return &c->rows[1]; }

static bool take_value(search *s, field *f, int64_t v)
{
    *f(propose(s)) = v;
    return take(s);
}

/* Moves the number towards `goal` as far as it fails: the goal itself, then by bisection. */
static void approach(search *s, field *f, int64_t goal)
{
    int64_t bad = *f(&s->r->best), good = goal;
    if (bad == goal || take_value(s, f, goal)) return;
    while (going(s) && (bad > good ? bad - good : good - bad) > 1) {
        int64_t middle = good + (bad - good) / 2;
        if (take_value(s, f, middle))
            bad = middle;
        else
            good = middle;
    }
}

static void narrow(search *s, field *from, field *to)
{
    approach(s, to, *from(&s->r->best));
    approach(s, from, *to(&s->r->best));
}

/* The plainest chunk is the whole prompt; else the smallest: powers of two and their neighbours,
 * since what fails is rarely monotone in it, then one by one. */
static void reduce_chunk(search *s)
{
    if (s->r->best.chunk == DSF_CHUNK_WHOLE) return;
    if (dsf_candidate_length(&s->r->best, s->s->axes) && take_value(s, chunk_of, DSF_CHUNK_WHOLE))
        return;
    for (int64_t v = 1; v < s->r->best.chunk && going(s); v = v < 8 ? v + 1 : v * 2)
        for (int64_t k = v < 8 ? 0 : -1; k <= (v < 8 ? 0 : 1); k++)
            if (v + k < s->r->best.chunk && take_value(s, chunk_of, v + k)) return;
    while (going(s) && s->r->best.chunk > 1 && take_value(s, chunk_of, s->r->best.chunk - 1)) {
    }
}

/* ---- kernels ---- */

/* Takes the fast kernels of `size` operations away at a time, among those that still have theirs.
 */
static void slow_blocks(search *s, int64_t size)
{
    for (int bit = 0; bit < 64 && going(s);) {
        dsf_candidate *c = propose(s);
        uint64_t before = c->fast;
        for (int64_t k = 0; k < size && bit < 64; bit++) {
            k += (int64_t)(c->fast >> bit & 1);
            c->fast &= ~((uint64_t)1 << bit);
        }
        if (c->fast != before) (void)take(s);
    }
}

static void reduce_variants(search *s)
{
    int64_t n = 0;
    propose(s)->fast = 0;
    if (s->r->best.fast == 0 || take(s)) return; /* not a matter of kernels */
    for (int i = 0; i < 64; i++) n += (int64_t)(s->r->best.fast >> i & 1);
    refine(s, slow_blocks, n);
}

/* ---- all ---- */

static void reduce_tokens(search *s)
{
    refine(s, drop_blocks, s->r->best.n_ids);
    refine(s, fill_blocks, s->r->best.n_ids);
}

static void round_of_axes(search *s)
{
    unsigned axes = s->s->axes;
    /* What makes runs short comes first. */
    if (axes & DSF_AXIS_LENGTH && !(axes & DSF_AXIS_IDS)) approach(s, length_of, 1);
    if (axes & DSF_AXIS_IDS && s->first) cut_prefix(s);
    if (axes & DSF_AXIS_LAYERS)
        narrow(s, layers_from, layers_to);
    else if (axes & DSF_AXIS_MODEL)
        approach(s, layers_to, 0);
    if (axes & DSF_AXIS_BATCH) approach(s, batch_of, 1);
    if (axes & DSF_AXIS_ROWS) narrow(s, rows_from, rows_to);
    if (axes & DSF_AXIS_CHUNK) reduce_chunk(s);
    if (axes & DSF_AXIS_VARIANTS) reduce_variants(s);
    if (axes & DSF_AXIS_IDS) reduce_tokens(s);
}

static dsf_status open_search(search *s)
{
    size_t n = (size_t)s->s->start.n_ids + 1;
    DSF_TRY(dsf_mem_new(&s->r->best.ids, n, sizeof *s->r->best.ids));
    DSF_TRY(dsf_mem_new(&s->trial.ids, n, sizeof *s->trial.ids));
    copy(&s->r->best, &s->s->start);
    return DSF_OK;
}

static void run_search(search *s)
{
    dsf_reduce_outcome o = ask(s, &s->r->best);
    s->r->end = o == DSF_REDUCE_GOOD ? DSF_SEARCH_GOOD : DSF_SEARCH_COULD_NOT;
    if (s->status == DSF_ECANCELED) s->r->end = DSF_SEARCH_UNBEGUN;
    if (!going(s) || o != DSF_REDUCE_FAILS) return;
    s->r->end = DSF_SEARCH_STOPPED;
    int64_t before;
    s->first = true;
    do {
        before = s->taken;
        round_of_axes(s);
        s->first = false;
    } while (going(s) && s->taken > before);
    if (going(s)) s->r->end = DSF_SEARCH_MINIMAL;
}

dsf_status dsf_search_run(const dsf_search *job, dsf_search_result *r)
{
    *r = (dsf_search_result){.end = DSF_SEARCH_COULD_NOT};
    search s = {.s = job, .r = r};
    s.status = open_search(&s);
    if (s.status == DSF_OK) run_search(&s);
    dsf_mem_free(s.trial.ids);
    return s.status == DSF_ECANCELED ? DSF_OK : s.status;
}

void dsf_search_result_free(dsf_search_result *r)
{
    dsf_mem_free(r->best.ids);
    r->best.ids = NULL;
}
