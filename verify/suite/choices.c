#include "verify/suite/choices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/suite/unit.h"

/* X(last part of the tap, its scores, what it is called) */
#define CHOICE_MAP(X)                                                                              \
    X("attn/pool", "attn/index_scores", "candidate pool")                                          \
    X("attn/topk", "attn/index_scores", "top-k")                                                   \
    X("ffn/expert_ids", "ffn/router_scores", "experts")

typedef struct {
    const char *tap, *scores, *name;
} choice_kind;
static const choice_kind kinds[] = {
#define X(tap, scores, name) {tap, scores, name},
    CHOICE_MAP(X)
#undef X
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const choice_kind *kind_of(const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < N_KINDS; i++) {
        size_t k = strlen(kinds[i].tap);
        if (n > k && path[n - k - 1] == '/' && strcmp(path + n - k, kinds[i].tap) == 0)
            return &kinds[i];
    }
    return NULL;
}

static bool has_scores(const dsf_dump_file *f, const char *path, const choice_kind *k)
{
    char scores[160];
    size_t stem = strlen(path) - strlen(k->tap);
    (void)snprintf(scores, sizeof scores, "%.*s%s", (int)stem, path, k->scores);
    const dsf_dump_entry *e = dsf_dump_find(f, scores);
    return e && e->readable;
}

bool dsf_choices_scored(const dsf_dump_file *f, int64_t i)
{
    const dsf_dump_entry *e = dsf_dump_at(f, i);
    const choice_kind *k = kind_of(e->path);
    return k && e->readable && has_scores(f, e->path, k);
}

static bool has_all_rows(const dsf_dump_file *f, const char *path)
{
    const dsf_dump_entry *e = dsf_dump_find(f, path);
    return e && e->readable && e->dim[0] == dsf_dump_info_of(f)->n_tokens;
}

bool dsf_choices_makeable(const dsf_dump_file *f, int64_t i)
{
    char in[160], before[160];
    const char *path = dsf_dump_at(f, i)->path;
    int layer = -1;
    if (dsf_choices_scored(f, i)) return true;
    if (!kind_of(path) || sscanf(path, "layers/%d/", &layer) != 1) return false; // NOLINT
    (void)snprintf(in, sizeof in, "layers/%02d/in", layer);
    (void)snprintf(before, sizeof before, "layers/%02d/out", layer - 1);
    return has_all_rows(f, in) || has_all_rows(f, layer ? before : "embed");
}

typedef struct {
    int64_t taps, rows, chosen, flips, ties, wrong, lost;
    double margin; /* largest of a flip */
    const dsf_diff_tap *worst;
} count;

static void add(count *n, const dsf_diff_tap *t)
{
    n->taps++;
    n->rows += t->rows;
    n->chosen += t->rows * t->width;
    n->flips += t->flips;
    n->ties += t->ties;
    n->wrong += t->wrong;
    n->lost += (t->changed + 1) / 2; /* a lost id and a gained one */
    if (t->wrong && !n->worst) n->worst = t;
    for (int64_t i = 0; i < t->n_flips; i++)
        if (!isnan(t->flip[i].margin)) n->margin = fmax(n->margin, t->flip[i].margin);
}

static void print(const count *n, const char *name, dsf_buf *b)
{
    if (n->taps == 0) return;
    dsf_buf_fmt(b, "  %-14s %3lld taps %7lld rows  recall %.6f  %lld flips: %lld ties, %lld wrong",
                name, (long long)n->taps, (long long)n->rows,
                n->chosen ? 1.0 - (double)n->lost / (double)n->chosen : 1.0, (long long)n->flips,
                (long long)n->ties, (long long)n->wrong);
    if (n->flips) dsf_buf_fmt(b, ", largest margin %.3g", n->margin);
    dsf_buf_char(b, '\n');
}

/* The first row with another choice: an id that was lost, and one that came in its place. */
static void mark_choice(const dsf_diff_tap *t, dsf_suite_check *c)
{
    const dsf_diff_flip *f = NULL;
    for (int64_t i = 0; i < t->n_flips; i++)
        if (!f || (f->tie && !t->flip[i].tie)) f = &t->flip[i];
    if (f)
        dsf_suite_mark(c, t->path, f->label, -1, f->lost[0] < 0 ? NAN : (double)f->lost[0],
                       f->gained[0] < 0 ? NAN : (double)f->gained[0]);
    else
        dsf_suite_mark(c, t->path, t->at_row, -1, NAN, NAN);
}

void dsf_choices_own(const dsf_diff_report *r, dsf_suite_check *c)
{
    count n[N_KINDS] = {{0}}, all = {0};
    for (int64_t i = 0; i < r->n_taps; i++) {
        const choice_kind *k = kind_of(r->tap[i].path);
        if (!k) continue;
        add(&n[k - kinds], &r->tap[i]);
        add(&all, &r->tap[i]);
    }
    for (int i = 0; i < N_KINDS; i++) print(&n[i], kinds[i].name, &c->detail);
    c->compared = all.rows;
    (void)snprintf(c->figure, sizeof c->figure, "rows with a choice that no tie explains");
    c->value = (double)all.wrong;
    c->limit = 0;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "a flip needs a reference margin within the noise of its scores; %.120s",
                   r->floor[0] ? r->floor : "no floor: one rounding step");
    if (all.worst) mark_choice(all.worst, c);
    dsf_suite_judge(c, all.wrong);
    dsf_suite_say(
        c,
        "%s: %lld rows in %lld taps, recall %.6f; %lld flips, %lld of them ties, largest "
        "margin %.3g%s%.200s",
        r->injected ? "injected" : "free-running", (long long)all.rows, (long long)all.taps,
        all.chosen ? 1.0 - (double)all.lost / (double)all.chosen : 1.0, (long long)all.flips,
        (long long)all.ties, all.margin, all.worst ? "; " : "", all.worst ? all.worst->why : "");
}

void dsf_choices_golden(const dsf_diff_report *r, const dsf_dump_file *f, dsf_suite_check *c)
{
    int64_t taps = 0, unequal = 0;
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        const choice_kind *k = kind_of(t->path);
        if (!k || !has_scores(f, t->path, k)) continue;
        taps++;
        c->compared += t->rows;
        unequal += t->unequal;
        if (!t->unequal) continue;
        mark_choice(t, c);
        dsf_buf_fmt(&c->detail, "  %-32s %lld of %lld rows differ\n", t->path,
                    (long long)t->unequal, (long long)t->rows);
    }
    (void)snprintf(c->figure, sizeof c->figure, "rows with another choice");
    c->value = (double)unequal;
    c->limit = 0;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "exact: same scores, same choice; ties go to the smaller id");
    dsf_suite_judge(c, unequal);
    dsf_suite_say(c, "%lld rows in %lld taps chosen from golden scores: %lld differ",
                  (long long)c->compared, (long long)taps, (long long)unequal);
}
