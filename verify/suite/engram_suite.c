/* Suite engram: what the engine looks up and gates, against formulas written here a second time
 * from architecture.md 8, on a sequence with repeats, pad tokens and (where the model has a vision
 * part) an image span. `hash`: constants and table rows. `values`: the bits of the dequantised rows
 * against the checkpoint's bytes, the gate. `history`: rows whatever the chunks, after rollback and
 * in a fork. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "serve/load.h"
#include "verify/suite/unit.h"

enum { TOKENS = 48, SPAN_FROM = 20, SPAN_TO = 26, JUNK = 5, KEPT = 17 };

/* What the taps showed, by position. */
typedef struct {
    int64_t *rows; /* [TOKENS, columns] */
    uint16_t *emb; /* [TOKENS, columns * head_dim] bf16 */
    uint16_t *kv;  /* [TOKENS, 5 D] bf16 */
    uint16_t *in;  /* [TOKENS, 4, D] bf16 */
    float *gate;   /* [TOKENS, 4] */
} shown;

typedef struct {
    const dsf_suite_unit *u;
    dsf_suite_check *c;
    dsf_loaded load;
    int32_t ids[TOKENS];
    uint8_t mask[TOKENS];
    uint16_t *embed; /* [TOKENS, D] when there is a span */
    bool spans;
    shown *of; /* one for each Engram */
    dsf_tap_sink sink;
    int64_t wrong, seen;
} engram;

static int columns(const engram *g) { return dsf_config_engram_columns(&g->load.config); }

/* ---- running ---- */

static bool wants(void *ud, dsf_tap t)
{
    const engram *g = ud;
    return (t.id == DSF_TAP_IN || (t.id >= DSF_TAP_ENGRAM_ROWS && t.id <= DSF_TAP_ENGRAM_GATE)) &&
           dsf_config_engram_at(&g->load.config, t.layer) >= 0;
}

static dsf_status on_value(void *ud, const dsf_tap_value *v)
{
    engram *g = ud;
    int e = dsf_config_engram_at(&g->load.config, v->tap.layer);
    if (e < 0) return DSF_OK;
    shown *s = &g->of[e];
    void *to = v->tap.id == DSF_TAP_ENGRAM_ROWS   ? (void *)s->rows
               : v->tap.id == DSF_TAP_ENGRAM_EMB  ? (void *)s->emb
               : v->tap.id == DSF_TAP_ENGRAM_KV   ? (void *)s->kv
               : v->tap.id == DSF_TAP_ENGRAM_GATE ? (void *)s->gate
               : v->tap.id == DSF_TAP_IN          ? (void *)s->in
                                                  : NULL;
    int64_t bytes = dsf_tensor_stride(v->value);
    for (int64_t i = 0; to && i < v->n; i++) {
        if (v->label[i] < 0 || v->label[i] >= TOKENS) continue;
        memcpy((char *)to + v->label[i] * bytes, (const char *)v->value->data + i * bytes,
               (size_t)bytes);
        g->seen++;
    }
    return DSF_OK;
}

static dsf_status open_engine(engram *g, int64_t chunk, dsf_engine **e)
{
    const dsf_options o = {.model = g->u->model,
                           .context = 2 * TOKENS,
                           .slots = 2,
                           .chunk = chunk,
                           .prefill = DSF_PREFILL_EXACT,
                           .threads = g->u->threads,
                           .variants = g->u->o->variants,
                           .given_embed = g->spans,
                           .sink = &g->sink};
    return dsf_engine_open(e, &o);
}

/* Positions from..to of the sequence, computed; `other` takes other tokens, outside any span. */
static dsf_status feed(engram *g, dsf_engine *e, dsf_session *s, int from, int to, bool other)
{
    int32_t ids[TOKENS];
    uint8_t mask[TOKENS];
    for (int i = from; i < to; i++) {
        ids[i] = other ? (g->ids[i] + 7) % (int32_t)g->load.config.vocab_size : g->ids[i];
        mask[i] = other ? 0 : g->mask[i];
    }
    if (g->spans)
        DSF_TRY(dsf_session_feed_embed(s, ids + from, mask + from,
                                       g->embed + (int64_t)from * g->load.config.dim,
                                       (size_t)(to - from)));
    else
        DSF_TRY(dsf_session_feed(s, ids + from, (size_t)(to - from)));
    while (dsf_session_queued(s) > 0) DSF_TRY(dsf_engine_step(e, &s, 1, &g->sink));
    return DSF_OK;
}

/* ---- the sequence ---- */

static dsf_status make_tokens(engram *g)
{
    const dsf_config *c = &g->load.config;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < TOKENS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        g->ids[i] = (int32_t)(x % (uint64_t)c->vocab_size);
    }
    for (int i = 0; i < 6; i++) g->ids[34 + i] = g->ids[4 + i]; /* n-grams come again */
    g->ids[10] = g->ids[11] = c->engram_pad_id;
    g->ids[12] = c->eos_id;
    g->spans = c->vision.present;
    if (!g->spans) return DSF_OK;
    dsf_tensor table;
    DSF_TRY(dsf_ckpt_get(g->load.ckpt, "embed.weight", &table));
    DSF_TRY(dsf_mem_new(&g->embed, (size_t)TOKENS * (size_t)c->dim, sizeof *g->embed));
    for (int i = 0; i < TOKENS; i++) {
        g->mask[i] = i >= SPAN_FROM && i < SPAN_TO;
        if (g->mask[i]) g->ids[i] = c->image_id;
        memcpy(g->embed + (int64_t)i * c->dim,
               (const uint16_t *)table.data + (int64_t)g->ids[i] * c->dim,
               (size_t)c->dim * sizeof *g->embed);
    }
    return DSF_OK;
}

static dsf_status open_engram(engram *g, bool *absent)
{
    DSF_TRY(dsf_load_open(&g->load, g->u->model, NULL));
    const dsf_config *c = &g->load.config;
    *absent = c->n_engram == 0;
    if (*absent) return DSF_OK;
    size_t t = TOKENS, d = (size_t)c->dim, n = (size_t)columns(g);
    DSF_TRY(dsf_mem_new(&g->of, (size_t)c->n_engram, sizeof *g->of));
    for (int e = 0; e < c->n_engram; e++) {
        DSF_TRY(dsf_mem_new(&g->of[e].rows, t * n, sizeof(int64_t)));
        DSF_TRY(dsf_mem_new(&g->of[e].emb, t * n * (size_t)c->engram_head_dim, 2));
        DSF_TRY(dsf_mem_new(&g->of[e].kv, t * 5 * d, 2));
        DSF_TRY(dsf_mem_new(&g->of[e].in, t * 4 * d, 2));
        DSF_TRY(dsf_mem_new(&g->of[e].gate, t * 4, sizeof(float)));
    }
    g->sink = (dsf_tap_sink){.on_value = on_value, .wants = wants, .ud = g};
    return make_tokens(g);
}

static void close_engram(engram *g)
{
    for (int e = 0; g->of && e < g->load.config.n_engram; e++) {
        dsf_mem_free(g->of[e].rows);
        dsf_mem_free(g->of[e].emb);
        dsf_mem_free(g->of[e].kv);
        dsf_mem_free(g->of[e].in);
        dsf_mem_free(g->of[e].gate);
    }
    dsf_mem_free(g->of);
    dsf_mem_free(g->embed);
    dsf_load_close(&g->load);
}

static dsf_status run_once(engram *g, int64_t chunk)
{
    dsf_engine *e = NULL;
    dsf_session *s = NULL;
    dsf_status st;
    DSF_TRY_OUT(open_engine(g, chunk, &e));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(feed(g, e, s, 0, TOKENS, false));
out:
    dsf_session_close(s);
    dsf_engine_close(e);
    return st;
}

/* ---- hash ---- */

/* Rows of position t: one running value over the look-backs, as 8.3 writes it. */
static void expect_rows(const engram *g, int e, int t, int64_t *row)
{
    const dsf_config *c = &g->load.config;
    const dsf_engram_constants *k = &c->engram[e];
    const int32_t pad = g->load.classes[c->engram_pad_id];
    uint64_t r = 0;
    bool blocked = false;
    for (int back = 0; back < c->engram_max_ngram_size; back++) {
        int p = t - back;
        blocked = blocked || p < 0 || g->mask[p];
        uint64_t x = (uint64_t)(blocked ? pad : g->load.classes[g->ids[p]]);
        r ^= x * (uint64_t)k->multiplier[back];
        for (int h = 0; back > 0 && h < c->engram_n_heads; h++) {
            int column = (back - 1) * c->engram_n_heads + h;
            row[column] = (int64_t)(r % (uint64_t)k->prime[column]) + k->offset[column];
        }
    }
}

static void wrong_at(engram *g, const char *what, int layer, int64_t row, int64_t column,
                     double reference, double ours)
{
    char path[96];
    (void)snprintf(path, sizeof path, "layers/%02d/engram/%s", layer, what);
    g->wrong++;
    dsf_suite_mark(g->c, path, row, column, reference, ours);
}

static void compare_rows(engram *g)
{
    int64_t want[DSF_MAX_ENGRAM_COLUMNS] = {0};
    int n = columns(g);
    for (int e = 0; e < g->load.config.n_engram; e++)
        for (int t = 0; t < TOKENS; t++) {
            expect_rows(g, e, t, want);
            for (int i = 0; i < n; i++, g->c->compared++) {
                int64_t have = g->of[e].rows[t * n + i];
                if (have != want[i])
                    wrong_at(g, "rows", g->load.config.engram[e].layer, t, i, (double)want[i],
                             (double)have);
            }
        }
}

static bool is_prime(int64_t n)
{
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return n > 1;
}

/* 8.2: the next primes that no column before had; offsets are their running sum. */
static void compare_constants(engram *g)
{
    const dsf_config *c = &g->load.config;
    int64_t used[DSF_MAX_ENGRAMS * DSF_MAX_ENGRAM_COLUMNS];
    int n_used = 0;
    for (int e = 0; e < c->n_engram; e++) {
        int64_t offset = 0;
        for (int i = 0; i < columns(g); i++, g->c->compared += 2) {
            int64_t p = c->engram_vocab_size - 1;
            bool taken = true;
            while (taken || !is_prime(p)) {
                p++;
                taken = false;
                for (int k = 0; k < n_used; k++) taken = taken || used[k] == p;
            }
            used[n_used++] = p;
            if (c->engram[e].prime[i] != p)
                wrong_at(g, "primes", c->engram[e].layer, -1, i, (double)p,
                         (double)c->engram[e].prime[i]);
            if (c->engram[e].offset[i] != offset)
                wrong_at(g, "offsets", c->engram[e].layer, -1, i, (double)offset,
                         (double)c->engram[e].offset[i]);
            offset += c->engram[e].prime[i];
        }
        if (c->engram[e].rows != offset)
            wrong_at(g, "table", c->engram[e].layer, -1, -1, (double)offset,
                     (double)c->engram[e].rows);
    }
}

/* Names of what went before; false when there is nothing to check. */
static bool begin(engram *g, dsf_suite_check *c, const dsf_suite_unit *u)
{
    bool absent = false;
    g->u = u;
    g->c = c;
    if (open_engram(g, &absent) != DSF_OK) {
        dsf_suite_could_not(c);
        return false;
    }
    if (absent) {
        c->verdict = u->o->suites ? DSF_COULD_NOT : DSF_SKIPPED;
        dsf_suite_say(c, "the config has no Engram layer");
    }
    return !absent;
}

void dsf_suite_engram_hash(const dsf_suite_unit *u, dsf_suite_check *check)
{
    engram g = {.seen = 0};
    if (begin(&g, check, u)) {
        if (run_once(&g, 16) != DSF_OK) {
            dsf_suite_could_not(check);
        } else {
            compare_constants(&g);
            compare_rows(&g);
            (void)snprintf(check->derivation, sizeof check->derivation,
                           "exact: integers, by a second formula (architecture.md 8.2, 8.3)");
            dsf_suite_judge(check, g.wrong);
            dsf_suite_say(check,
                          "%lld constants and table rows of %d tokens with pads%s: %lld differ",
                          (long long)check->compared, TOKENS,
                          g.spans ? " and a dead span" : "; no vision part, so no dead token",
                          (long long)g.wrong);
        }
    }
    close_engram(&g);
}

/* ---- values ---- */

/* A signed e4m3 code times 2^(scale-127), as bf16 bits: exact but below bf16's range. */
static uint16_t expect_bits(uint8_t code, uint8_t scale)
{
    int e = code >> 3 & 15, m = code & 7;
    double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return dsf_f32_to_bf16((float)ldexp(code & 0x80 ? -v : v, (int)scale - 127));
}

typedef struct {
    bool code[256], scale[256];
} used;

static dsf_status compare_bits(engram *g, int e, used *u)
{
    const dsf_config *c = &g->load.config;
    char name[128];
    dsf_tensor codes, scales;
    int layer = c->engram[e].layer, d = c->engram_head_dim, n = columns(g);
    (void)snprintf(name, sizeof name, "layers.%d.engram.embed.weight", layer);
    DSF_TRY(dsf_ckpt_get(g->load.ckpt, name, &codes));
    (void)snprintf(name, sizeof name, "layers.%d.engram.embed.scale", layer);
    DSF_TRY(dsf_ckpt_get(g->load.ckpt, name, &scales));
    for (int64_t at = 0; at < (int64_t)TOKENS * n; at++) {
        int64_t row = g->of[e].rows[at];
        if (row < 0 || row >= codes.dim[0]) {
            wrong_at(g, "rows", layer, at / n, at % n, (double)codes.dim[0], (double)row);
            continue;
        }
        for (int i = 0; i < d; i++, g->c->compared++) {
            uint8_t code = ((const uint8_t *)codes.data)[row * d + i];
            uint8_t scale = ((const uint8_t *)scales.data)[row * (d / 32) + i / 32];
            uint16_t want = expect_bits(code, scale), have = g->of[e].emb[at * d + i];
            u->code[code] = u->scale[scale] = true;
            if (want != have)
                wrong_at(g, "emb", layer, at / n, at % n * d + i, (double)dsf_bf16_to_f32(want),
                         (double)dsf_bf16_to_f32(have));
        }
    }
    return DSF_OK;
}

typedef struct {
    double xy, xx, yy, worst;
    int64_t n;
} agreement;

/* One gate by 8.5, in double. */
static double expect_gate(const engram *g, int e, int t, int k, const uint16_t *qw,
                          const uint16_t *kw)
{
    int64_t d = g->load.config.dim;
    const uint16_t *x = g->of[e].in + ((int64_t)t * 4 + k) * d;
    const uint16_t *key = g->of[e].kv + ((int64_t)t * 5 + k) * d;
    double dot = 0, xx = 0, kk = 0;
    for (int64_t i = 0; i < d; i++) {
        double xi = (double)dsf_bf16_to_f32(x[i]), ki = (double)dsf_bf16_to_f32(key[i]);
        dot += xi * ki * (double)dsf_bf16_to_f32(qw[k * d + i]) *
               (double)dsf_bf16_to_f32(kw[k * d + i]);
        xx += xi * xi;
        kk += ki * ki;
    }
    double v = dot / sqrt(xx / (double)d + 1e-20) / sqrt(kk / (double)d + 1e-20) / sqrt((double)d);
    double s = copysign(sqrt(fmax(fabs(v), 1e-6)), v);
    return 1.0 / (1.0 + exp(-s));
}

static dsf_status compare_gates(engram *g, int e, agreement *a)
{
    char name[128];
    dsf_tensor qw, kw;
    int layer = g->load.config.engram[e].layer;
    (void)snprintf(name, sizeof name, "layers.%d.engram.q_weight", layer);
    DSF_TRY(dsf_ckpt_get(g->load.ckpt, name, &qw));
    (void)snprintf(name, sizeof name, "layers.%d.engram.k_weight", layer);
    DSF_TRY(dsf_ckpt_get(g->load.ckpt, name, &kw));
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < 4; k++, g->c->compared++) {
            double have = (double)g->of[e].gate[t * 4 + k];
            if (g->mask[t]) {
                if (have != 0) wrong_at(g, "gate", layer, t, k, 0, have);
                continue;
            }
            double want = expect_gate(g, e, t, k, qw.data, kw.data);
            a->xy += want * have;
            a->xx += want * want;
            a->yy += have * have;
            a->n++;
            if (!(fabs(want - have) > a->worst) && isfinite(have)) continue;
            a->worst = fabs(want - have);
            g->c->at = (dsf_suite_at){.row = t, .column = k, .reference = want, .ours = have};
            (void)snprintf(g->c->at.path, sizeof g->c->at.path, "layers/%02d/engram/gate", layer);
        }
    return DSF_OK;
}

static int count_of(const bool *seen)
{
    int n = 0;
    for (int i = 0; i < 256; i++) n += seen[i];
    return n;
}

static dsf_status check_values(engram *g)
{
    used u = {.code = {false}};
    agreement a = {.n = 0};
    DSF_TRY(run_once(g, 16));
    for (int e = 0; e < g->load.config.n_engram; e++) DSF_TRY(compare_gates(g, e, &a));
    dsf_suite_at gate = g->c->at; /* an exact difference takes the place of the gate's worst */
    int64_t gates_wrong = g->wrong;
    if (!gates_wrong) g->c->at.path[0] = 0;
    for (int e = 0; e < g->load.config.n_engram; e++) DSF_TRY(compare_bits(g, e, &u));
    if (!g->wrong) g->c->at = gate;
    double diff = 1 - 2 * a.xy / (a.xx + a.yy);
    (void)snprintf(g->c->figure, sizeof g->c->figure, "gate: 1 - 2 xy / (xx + yy)");
    g->c->value = diff;
    g->c->limit = 2e-10;
    (void)snprintf(
        g->c->derivation, sizeof g->c->derivation,
        "f32 against double (verification.md 13); bits, and gates of dead tokens: exact");
    g->c->verdict = g->wrong == 0 && a.n > 0 && diff <= g->c->limit ? DSF_PASS : DSF_FAILED;
    dsf_suite_say(g->c,
                  "%lld values: bits of all looked-up rows (%d of 256 codes, %d scales) and %lld "
                  "gates, %s: %lld exact ones differ",
                  (long long)g->c->compared, count_of(u.code), count_of(u.scale), (long long)a.n,
                  g->spans ? "dead ones 0" : "none dead", (long long)g->wrong);
    return DSF_OK;
}

void dsf_suite_engram_values(const dsf_suite_unit *u, dsf_suite_check *check)
{
    engram g = {.seen = 0};
    if (begin(&g, check, u) && check_values(&g) != DSF_OK) dsf_suite_could_not(check);
    close_engram(&g);
}

/* ---- history ---- */

/* So that a row which is not shown again cannot pass. */
static void forget_rows(engram *g, int from)
{
    size_t n = (size_t)columns(g);
    for (int k = 0; k < g->load.config.n_engram; k++)
        memset(g->of[k].rows + (size_t)from * n, 0xFF,
               sizeof(int64_t) * (TOKENS - (size_t)from) * n);
}

/* Other tokens are computed, taken back by `back` more than they were, and the real ones fed: the
 * rows shown last must be those of the sequence. */
static dsf_status roll_back(engram *g, int64_t chunk, int back)
{
    dsf_engine *e = NULL;
    dsf_session *s = NULL, *fork = NULL;
    dsf_status st;
    forget_rows(g, 0);
    DSF_TRY_OUT(open_engine(g, chunk, &e));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(feed(g, e, s, 0, KEPT, false));
    DSF_TRY_OUT(dsf_session_fork(&fork, s));
    DSF_TRY_OUT(feed(g, e, s, KEPT, KEPT + JUNK, true));
    DSF_TRY_OUT(dsf_session_rewind(s, KEPT - back));
    while (dsf_session_queued(s) > 0) DSF_TRY_OUT(dsf_engine_step(e, &s, 1, &g->sink));
    DSF_TRY_OUT(feed(g, e, s, KEPT - back, TOKENS, false));
    compare_rows(g);
    forget_rows(g, KEPT);
    DSF_TRY_OUT(feed(g, e, fork, KEPT, TOKENS, false)); /* its own history, not its parent's */
    compare_rows(g);
out:
    dsf_session_close(fork);
    dsf_session_close(s);
    dsf_engine_close(e);
    return st;
}

static dsf_status check_history(engram *g)
{
    static const int64_t chunks[] = {1, 2, 3, 7};
    static const int backs[] = {0, 1, 2, KEPT}; /* KEPT: to the start, all computed again */
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        DSF_TRY(run_once(g, chunks[i]));
        compare_rows(g);
        DSF_TRY(roll_back(g, chunks[i], backs[i]));
    }
    (void)snprintf(g->c->derivation, sizeof g->c->derivation,
                   "exact: rows depend on token ids only (architecture.md 8.3)");
    dsf_suite_judge(g->c, g->wrong);
    dsf_suite_say(g->c,
                  "table rows of %d tokens in chunks of 1, 2, 3 and 7, rolled back from other "
                  "tokens, and forked: %lld differ",
                  TOKENS, (long long)g->wrong);
    return DSF_OK;
}

void dsf_suite_engram_history(const dsf_suite_unit *u, dsf_suite_check *check)
{
    engram g = {.seen = 0};
    if (begin(&g, check, u) && check_history(&g) != DSF_OK) dsf_suite_could_not(check);
    close_engram(&g);
}
