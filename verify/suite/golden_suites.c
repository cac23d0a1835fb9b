/* Suites against golden dumps: layers and choices (injected), logits (free-running, replay). */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/config.h"
#include "op.h"
#include "verify/diff/diff.h"
#include "verify/diff/logits.h"
#include "verify/dump/reader.h"
#include "verify/dump/run.h"
#include "verify/graft/locate.h"
#include "verify/suite/choices.h"
#include "verify/suite/coverage.h"
#include "verify/suite/unit.h"

static dsf_status golden_path(const dsf_suite_unit *u, char path[4096])
{
    char file[32];
    (void)snprintf(file, sizeof file, "dump-p%d.h5", u->number);
    return dsf_file_join(path, u->set, file);
}

/* ---- who wrote the golden file ---- */

/* The word "dsf" or "libdsf" in a producer's name, in any case: "DSF 0.2", "my-dsf". */
static bool says_dsf(const char *who)
{
    for (const char *s = who; (s = strcasestr(s, "dsf")) != NULL; s += 3) {
        bool lib = s - who >= 3 && strncasecmp(s - 3, "lib", 3) == 0;
        const char *before = lib ? s - 3 : s;
        if ((before == who || !isalnum((unsigned char)before[-1])) && !isalpha((unsigned char)s[3]))
            return true;
    }
    return false;
}

/* Kernel variants as our plan prints them: "OPERATION:VARIANT" with an operation of ours first. */
static bool names_our_op(const char *variants)
{
    char op[64];
    size_t n = strcspn(variants, ": ");
    if (variants[n] != ':' || n >= sizeof op) return false;
    (void)snprintf(op, sizeof op, "%.*s", (int)n, variants);
    return dsf_op_find(op) != NULL;
}

/* Digests as ours are: xxh3-128, 32 hexadecimal digits. */
static bool is_our_digest(const char *s)
{
    return strlen(s) == 32 && strspn(s, "0123456789abcdefABCDEF") == 32;
}

/* What tells that this engine wrote a file, whatever name it gives itself; NULL: nothing does. */
static const char *own_mark(const dsf_dump_info *info)
{
    if (says_dsf(info->producer)) return "producer";
    if (names_our_op(info->variants)) return "variants";
    if (is_our_digest(info->plan_digest)) return "plan_digest";
    if (is_our_digest(info->checkpoint_digest)) return "checkpoint_digest";
    return NULL;
}

/* What this engine wrote proves nothing about this engine. False: c has the verdict. */
static bool is_independent(const char *path, dsf_suite_check *c)
{
    dsf_dump_file *f = NULL;
    if (dsf_dump_open(&f, path) != DSF_OK) {
        dsf_suite_could_not(c);
        return false;
    }
    const dsf_dump_info *info = dsf_dump_info_of(f);
    const char *who = info->producer, *own = own_mark(info);
    bool good = !own && who[0];
    if (!good) c->verdict = DSF_FAILED;
    if (own)
        dsf_suite_say(c,
                      "%s was written by this engine itself, by its %s (producer \"%.60s\", "
                      "backend \"%.20s\"): a golden file must come from elsewhere",
                      path, own, who, info->backend);
    else if (!who[0])
        dsf_suite_say(c, "%s names no producer: it may be this engine's own", path);
    dsf_dump_close(f);
    return good;
}

/* ---- one comparison ---- */

/* The figure of a tap that comes nearest to its limit, or is farthest beyond it. */
static void show_tap(const dsf_diff_report *r, const dsf_diff_tap *t, dsf_suite_check *c)
{
    const struct {
        const char *name;
        double value, limit;
    } figure[] = {{"relative L2 of the worst row", t->row_max, t->limit_row},
                  {"relative L2 of the median row", t->row_median, t->limit_median},
                  {"relative L2 of the tap", t->rel_l2, t->limit_rel_l2}};
    double worst = -1;
    for (size_t i = 0; i < sizeof figure / sizeof *figure && !t->discrete; i++) {
        double limit = figure[i].limit, value = figure[i].value;
        double ratio = isnan(limit) || isnan(value) ? -1
                       : limit > 0                  ? value / limit
                       : value > 0                  ? INFINITY
                                                    : 0;
        if (ratio <= worst) continue;
        worst = ratio;
        (void)snprintf(c->figure, sizeof c->figure, "%s", figure[i].name);
        c->value = value;
        c->limit = limit;
    }
    if (worst < 0) {
        (void)snprintf(c->figure, sizeof c->figure, "rows that differ");
        c->value = (double)t->unequal;
        c->limit = t->limit_unequal >= 0 ? (double)t->limit_unequal : 0;
    }
    (void)snprintf(c->derivation, sizeof c->derivation, "%s%s",
                   r->floor[0] ? "4 x the measured noise of this kind of tap; " : "no floor: exact",
                   r->floor);
    dsf_suite_mark(c, t->path, t->at_row, t->at_column, t->reference, t->ours);
}

static void judge(const dsf_diff_report *r, dsf_suite_check *c)
{
    c->verdict = r->good && r->values > 0 ? DSF_PASS : DSF_FAILED;
    c->compared = r->values;
    dsf_suite_say(c, "%s", r->verdict);
    int64_t at = r->first >= 0 ? r->first : r->worst_at;
    if (at >= 0) show_tap(r, &r->tap[at], c);
    if (!r->good) dsf_diff_print(r, false, &c->detail);
    if (r->logits.present)
        dsf_buf_fmt(&c->detail, "  logits: %lld rows, mean KL %.2e, best token equal %.4f\n",
                    (long long)r->logits.rows, r->logits.kl_mean, r->logits.top1);
}

typedef struct {
    double worst;
    const dsf_diff_tap *tap, *out;
    int64_t taps, equal;
} layer_line;

/* One line a layer: its worst tap against its limit, and the stream that leaves it. */
static void add_layers(const dsf_diff_report *r, dsf_buf *b)
{
    layer_line line[256] = {{0}};
    int last = -1;
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        if (t->layer < 0 || t->layer >= 256 || strncmp(t->path, "layers/", 7) != 0) continue;
        layer_line *l = &line[t->layer];
        if (t->layer > last) last = t->layer;
        l->taps++;
        l->equal += t->verdict == DSF_DIFF_EXACT;
        if (!l->tap || t->ratio > l->worst) {
            l->worst = t->ratio;
            l->tap = t;
        }
        if (strcmp(t->kind, "out") == 0) l->out = t;
    }
    if (last < 0) return;
    dsf_buf_fmt(b, "  %-6s %5s %9s  %-26s %10s %10s %7s   %s\n", "layer", "taps", "bit-equal",
                "nearest to its limit", "row max", "limit", "ratio", "out: rel L2, unequal rows");
    for (int l = 0; l <= last; l++) {
        if (!line[l].tap) continue;
        const dsf_diff_tap *t = line[l].tap;
        dsf_buf_fmt(b, "  %-6d %5lld %9lld  %-26s %10.2e %10.2e %7.2f   ", l,
                    (long long)line[l].taps, (long long)line[l].equal, t->kind, t->row_max,
                    t->limit_row, line[l].worst);
        if (line[l].out)
            dsf_buf_fmt(b, "%.1e, %lld of %lld\n", line[l].out->rel_l2,
                        (long long)line[l].out->unequal, (long long)line[l].out->rows);
        else
            dsf_buf_str(b, "-\n");
    }
}

/* ---- injected: layers, and choices on own scores ---- */

static dsf_status make_graft(const dsf_suite_unit *u, const char *golden, bool by_op, int64_t *lost)
{
    const dsf_graft_options g = {.model = u->model,
                                 .golden = golden,
                                 .out = u->temp,
                                 .variants = u->o->variants,
                                 .backend = u->o->backend ? u->o->backend : "cpu",
                                 .threads = u->threads,
                                 .by_op = by_op};
    dsf_graft_report r;
    dsf_status st = dsf_graft_run(&g, &r);
    *lost = r.n_lost;
    dsf_graft_report_free(&r);
    return st;
}

/* Golden against what was just made; *r is to be freed in either case. */
/* bind: the dump that the floor is of; NULL: golden. */
static dsf_status compare(const dsf_suite_unit *u, const char *golden, const char *bind, bool rows,
                          dsf_diff_report *r)
{
    char floor[4096];
    *r = (dsf_diff_report){.n_taps = 0};
    DSF_TRY(dsf_suite_floor(u->o, u->set, floor));
    const dsf_diff_options d = {.reference = golden,
                                .ours = u->temp,
                                .floor = floor[0] ? floor : NULL,
                                .bind = bind,
                                .rows = rows};
    return dsf_diff_run(&d, r);
}

/* Every operation on the inputs that it had, down to the first wrong one (verification.md 17). */
static void name_first(const dsf_suite_unit *u, const char *golden, dsf_suite_check *c)
{
    char floor[4096], out[DSF_TEMP_BYTES + 64], temp[DSF_TEMP_BYTES + 64];
    dsf_located found;
    (void)snprintf(out, sizeof out, "%s.located", u->temp);
    (void)snprintf(temp, sizeof temp, "%s.second", u->temp);
    if (dsf_suite_floor(u->o, u->set, floor) != DSF_OK) return;
    const dsf_locate_options l = {.graft = {.model = u->model,
                                            .golden = golden,
                                            .out = out,
                                            .variants = u->o->variants,
                                            .backend = u->o->backend ? u->o->backend : "cpu",
                                            .threads = u->threads},
                                  .temp = temp,
                                  .floor = floor[0] ? floor : NULL};
    if (dsf_locate(&l, &found) != DSF_OK)
        dsf_buf_fmt(&c->detail, "  the first wrong operation was not found: %s\n",
                    dsf_error_message());
    else if (found.sentence[0] && !found.good) {
        (void)snprintf(c->divergence, sizeof c->divergence, "%s", found.sentence);
        dsf_suite_say(c, "%s", found.sentence);
    }
    dsf_located_free(&found);
    (void)unlink(out);
    (void)unlink(temp);
}

static void judge_layers(const dsf_suite_unit *u, const char *golden, const dsf_diff_report *r,
                         int64_t lost, dsf_suite_check *c)
{
    judge(r, c);
    add_layers(r, &c->detail);
    if (!r->good) name_first(u, golden, c);
    if (!lost) return;
    c->verdict = DSF_FAILED;
    dsf_suite_say(c,
                  "%lld taps are no longer shown, though their inputs are given: dsf graft names "
                  "them",
                  (long long)lost);
}

static dsf_status run_graft(const dsf_suite_unit *u, dsf_suite_check *check)
{
    char golden[4096];
    dsf_diff_report r = {.n_taps = 0};
    int64_t lost;
    dsf_status st;
    DSF_TRY_OUT(golden_path(u, golden));
    bool good = true;
    for (int i = 0; i < u->n; i++) good = is_independent(golden, &check[i]) && good;
    if (!good) goto out;
    DSF_TRY_OUT(make_graft(u, golden, false, &lost));
    DSF_TRY_OUT(compare(u, golden, NULL, true, &r));
    for (int i = 0; i < u->n; i++)
        if (strcmp(check[i].suite, "layers") == 0) {
            judge_layers(u, golden, &r, lost, &check[i]);
            DSF_TRY_OUT(dsf_coverage_layers(u, golden, &r, &check[i]));
        } else {
            dsf_choices_own(&r, &check[i]);
        }
out:
    dsf_diff_report_free(&r);
    return st;
}

void dsf_suite_graft(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (run_graft(u, check) == DSF_OK) return;
    for (int i = 0; i < u->n; i++) dsf_suite_could_not(&check[i]);
}

/* ---- parity: the host's own dump is the reference, of a prompt that passes every limit ---- */

enum { PARITY_TOKENS = 300 };

static dsf_status dump_host(const dsf_suite_unit *u, const char *out)
{
    int32_t ids[PARITY_TOKENS];
    char path[4096];
    dsf_config config;
    DSF_TRY(dsf_file_join(path, u->model, "config.json"));
    DSF_TRY(dsf_config_load(&config, path, NULL));
    for (int i = 0; i < PARITY_TOKENS; i++) /* no short period, n-grams now and then again */
        ids[i] = (int32_t)((uint64_t)(i % 97 * 7919 + i / 31 * 104729 + 11) %
                           (uint64_t)config.vocab_size);
    const dsf_dump_run d = {
        .engine = {.model = u->model, .prefill = DSF_PREFILL_EXACT, .threads = u->threads},
        .out = out,
        .backend = "cpu",
        .ids = ids,
        .n = config.max_seq_len < PARITY_TOKENS ? config.max_seq_len : PARITY_TOKENS,
        .draft = true};
    dsf_dump_run_report r;
    return dsf_dump_run_model(&d, &r);
}

/* A floor measured on some tens of rows does not know what one row in thousands does: a sum that
 * falls on the other side of a rounding of the quantiser moves a whole code. So medians must be
 * bit-equal and choices the same but for ties, and of the rows of values at most one in a thousand
 * may lie beyond the floor. */
static void judge_parity(const dsf_diff_report *r, int64_t lost, dsf_suite_check *c)
{
    int64_t rows = 0, over = 0, wrong = lost, worst = -1;
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        /* One key that rounds the other way shows in its column of every later row's scores: what
         * follows from them, the choices, is judged. */
        if (t->verdict == DSF_DIFF_REPORTED || t->tap.id == DSF_TAP_ATTN_INDEX_SCORES) continue;
        bool bad = t->discrete ? t->verdict == DSF_DIFF_FAILED : t->row_median > t->limit_median;
        wrong += bad;
        rows += t->discrete ? 0 : t->rows;
        over += t->discrete ? 0 : t->wrong_rows;
        if (bad && worst < 0) worst = i;
    }
    c->compared = r->values;
    (void)snprintf(c->figure, sizeof c->figure, "share of value rows beyond the floor");
    c->value = rows ? (double)over / (double)rows : NAN;
    c->limit = 1e-3;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "medians and choices as layers has them; a floor of n rows leaves about one row "
                   "in n beyond it");
    c->verdict = wrong == 0 && rows > 0 && c->value <= c->limit ? DSF_PASS : DSF_FAILED;
    dsf_suite_say(c,
                  "%lld value rows of %lld taps, %lld beyond the floor; %lld taps with another "
                  "median or choice",
                  (long long)rows, (long long)r->n_taps, (long long)over, (long long)wrong);
    int64_t at = worst >= 0 ? worst : r->first >= 0 ? r->first : r->worst_at;
    if (at >= 0)
        dsf_suite_mark(c, r->tap[at].path, r->tap[at].at_row, r->tap[at].at_column,
                       r->tap[at].reference, r->tap[at].ours);
    add_layers(r, &c->detail);
    if (c->verdict != DSF_PASS) dsf_diff_print(r, false, &c->detail);
}

static dsf_status run_parity(const dsf_suite_unit *u, dsf_suite_check *c)
{
    char host[DSF_TEMP_BYTES + 64], golden[4096];
    dsf_diff_report r = {.n_taps = 0};
    int64_t lost = 0;
    dsf_status st;
    (void)snprintf(host, sizeof host, "%s.host", u->temp);
    DSF_TRY_OUT(golden_path(u, golden)); /* the noise was measured on it, of the same model */
    DSF_TRY_OUT(dump_host(u, host));
    DSF_TRY_OUT(make_graft(u, host, false, &lost));
    DSF_TRY_OUT(compare(u, host, golden, true, &r));
    judge_parity(&r, lost, c);
out:
    (void)unlink(host);
    dsf_diff_report_free(&r);
    return st;
}

void dsf_suite_parity(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (run_parity(u, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- operation by operation: choices on golden scores ---- */

static dsf_status run_by_op(const dsf_suite_unit *u, dsf_suite_check *c)
{
    char golden[4096];
    dsf_diff_report r = {.n_taps = 0};
    dsf_dump_file *f = NULL;
    int64_t lost;
    dsf_status st;
    DSF_TRY_OUT(golden_path(u, golden));
    if (!is_independent(golden, c)) goto out;
    DSF_TRY_OUT(make_graft(u, golden, true, &lost));
    DSF_TRY_OUT(compare(u, golden, NULL, true, &r));
    DSF_TRY_OUT(dsf_dump_open(&f, golden));
    dsf_choices_golden(&r, f, c);
out:
    dsf_dump_close(f);
    dsf_diff_report_free(&r);
    return st;
}

void dsf_suite_golden_choices(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (run_by_op(u, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- free-running ---- */

static dsf_status make_run(const dsf_suite_unit *u, const char *golden, dsf_prefill prefill)
{
    static const char *const logits[] = {"logits"};
    bool exact = prefill == DSF_PREFILL_EXACT;
    const dsf_dump_run d = {.engine = {.model = u->model,
                                       .prefill = prefill,
                                       .variants = u->o->variants,
                                       .threads = u->threads},
                            .out = u->temp,
                            .backend = u->o->backend ? u->o->backend : "cpu",
                            .inputs_from = golden,
                            .filter = {.glob = exact ? NULL : logits, .n_globs = exact ? 0 : 1},
                            .draft = exact};
    dsf_dump_run_report r;
    return dsf_dump_run_model(&d, &r);
}

static dsf_status run_free(const dsf_suite_unit *u, dsf_suite_check *c)
{
    char golden[4096];
    dsf_diff_report r = {.n_taps = 0};
    dsf_status st;
    DSF_TRY_OUT(golden_path(u, golden));
    if (!is_independent(golden, c)) goto out;
    DSF_TRY_OUT(make_run(u, golden, DSF_PREFILL_EXACT));
    DSF_TRY_OUT(compare(u, golden, NULL, false, &r));
    judge(&r, c);
    DSF_TRY_OUT(dsf_coverage_run(golden, &r, c));
out:
    dsf_diff_report_free(&r);
    return st;
}

void dsf_suite_free_run(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (run_free(u, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- decoder replay (architecture.md 2.3) against ced/ of the dump ---- */

/* The last row's distribution; free-running, so the rule of prompts with selection (20 mnat, best
 * token). */
static dsf_status compare_replay(dsf_suite_check *c, dsf_dump_file *golden, dsf_dump_file *ours)
{
    dsf_dump_array a = {.n = 0}, b = {.n = 0};
    int64_t *pair = NULL, n = 0;
    dsf_row *row = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_dump_read(golden, "ced/logits", &a));
    DSF_TRY_OUT(dsf_dump_read(ours, "logits", &b));
    DSF_TRY_OUT(dsf_dump_join(&a, &b, &pair, &n));
    if (a.width != b.width || !a.f || !b.f)
        DSF_TRY_OUT(DSF_FAIL(DSF_ECORRUPT, "ced/logits: %lld values a row, ours %lld",
                             (long long)a.width, (long long)b.width));
    DSF_TRY_OUT(dsf_mem_new(&row, (size_t)n + 1, sizeof *row));
    const dsf_joined j = {.a = &a, .b = &b, .pair = pair, .n = n, .width = a.width};
    dsf_diff_logits l;
    dsf_logits_compare(&j, row, &l);
    int64_t near = l.ties + l.warned;
    c->compared = l.rows * a.width;
    c->verdict = l.rows > 0 && l.kl_mean <= 2e-2 && l.wrong == 0 ? DSF_PASS : DSF_FAILED;
    (void)snprintf(c->figure, sizeof c->figure, "mean KL, nats");
    c->value = l.kl_mean;
    c->limit = 2e-2;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "prompts with selection, free-running: 20 mnat (golden-official's published "
                   "limit)");
    dsf_suite_say(c,
                  "decoder replay: %lld rows against ced/logits, mean KL %.2e (limit 2e-2), best "
                  "token equal %.4f, near ties %lld",
                  (long long)l.rows, l.kl_mean, l.top1, (long long)near);
out:
    dsf_mem_free(row);
    dsf_mem_free(pair);
    dsf_dump_array_free(&a);
    dsf_dump_array_free(&b);
    return st;
}

static dsf_status run_replay(const dsf_suite_unit *u, dsf_suite_check *c)
{
    char path[4096];
    dsf_dump_file *golden = NULL, *ours = NULL;
    dsf_status st;
    DSF_TRY_OUT(golden_path(u, path));
    if (!is_independent(path, c)) goto out;
    DSF_TRY_OUT(dsf_dump_open(&golden, path));
    DSF_TRY_OUT(make_run(u, path, DSF_PREFILL_REPLAY));
    DSF_TRY_OUT(dsf_dump_open(&ours, u->temp));
    DSF_TRY_OUT(compare_replay(c, golden, ours));
out:
    dsf_dump_close(golden);
    dsf_dump_close(ours);
    return st;
}

void dsf_suite_replay(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (run_replay(u, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- what a set holds: asked by the plan ---- */

/* A file that cannot be opened: yes, so that its check says why. */
bool dsf_suite_has_replay(const char *set)
{
    char path[4096];
    dsf_dump_file *f = NULL;
    if (dsf_file_join(path, set, "dump-p0.h5") != DSF_OK || !dsf_file_exists(path)) return false;
    if (dsf_dump_open(&f, path) != DSF_OK) return true;
    bool has = dsf_dump_find(f, "ced/logits") != NULL;
    dsf_dump_close(f);
    return has;
}

bool dsf_suite_has_choices(const char *set, int prompt, bool scored)
{
    char path[4096], file[32];
    dsf_dump_file *f = NULL;
    (void)snprintf(file, sizeof file, "dump-p%d.h5", prompt);
    if (dsf_file_join(path, set, file) != DSF_OK) return false;
    if (dsf_dump_open(&f, path) != DSF_OK) return true;
    bool has = false;
    for (int64_t i = 0; i < dsf_dump_count(f) && !has; i++)
        has = scored ? dsf_choices_scored(f, i) : dsf_choices_makeable(f, i);
    dsf_dump_close(f);
    return has;
}
