#include "verify/suite/coverage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/config.h"
#include "verify/dump/reader.h"

enum { MOST_LAYERS = DSF_DUMP_MAX_LAYERS };

typedef struct {
    bool out[MOST_LAYERS], attn[MOST_LAYERS], ffn[MOST_LAYERS], trimmed[MOST_LAYERS];
    int n_layers, n_covered, n_trimmed, n_kinds;
} coverage;

static bool covered(const coverage *k, int l) { return k->out[l] || (k->attn[l] && k->ffn[l]); }

static void look_at_taps(coverage *k, const dsf_diff_report *r)
{
    bool kind[DSF_N_TAPS] = {false};
    for (int64_t i = 0; i < r->n_taps; i++) {
        const dsf_diff_tap *t = &r->tap[i];
        if (t->tap.id == DSF_TAP_NONE || t->rows <= 0 || t->width <= 0) continue;
        if (t->layer < 0 || t->layer >= k->n_layers || strncmp(t->path, "layers/", 7) != 0)
            continue;
        k->out[t->layer] |= t->tap.id == DSF_TAP_OUT;
        k->attn[t->layer] |= t->tap.id == DSF_TAP_ATTN_Y;
        k->ffn[t->layer] |= t->tap.id == DSF_TAP_FFN_Y;
        k->n_kinds += !kind[t->tap.id];
        kind[t->tap.id] = true;
    }
}

/* Layers whose stream the file holds on its kept rows alone. */
static dsf_status look_at_file(coverage *k, const char *golden)
{
    dsf_dump_file *f = NULL;
    DSF_TRY(dsf_dump_open(&f, golden));
    int64_t n_tokens = dsf_dump_info_of(f)->n_tokens;
    for (int l = 0; l < k->n_layers; l++) {
        char path[64];
        dsf_tap_path(path, (dsf_tap){DSF_TAP_OUT, l}, k->n_layers);
        const dsf_dump_entry *e = dsf_dump_find(f, path);
        k->trimmed[l] = e && e->readable && e->dim[0] > 0 && e->dim[0] < n_tokens &&
                        strcmp(e->rows, "/rows_sub") == 0;
        k->n_covered += covered(k, l);
        k->n_trimmed += !covered(k, l) && k->trimmed[l];
    }
    dsf_dump_close(f);
    return DSF_OK;
}

/* "0, 2, 4-7": the layers that neither were compared nor are trimmed. */
static void list_missing(const coverage *k, char *out, size_t n)
{
    size_t at = 0;
    for (int l = 0; l < k->n_layers; l++) {
        int from = l;
        while (l < k->n_layers && !covered(k, l) && !k->trimmed[l]) l++;
        if (l == from || at >= n) continue;
        at += (size_t)snprintf(out + at, n - at, l - 1 > from ? "%s%d-%d" : "%s%d", at ? ", " : "",
                               from, l - 1);
    }
}

static dsf_status read_layers(const char *model, int *n)
{
    char path[4096];
    dsf_config c;
    DSF_TRY(dsf_file_join(path, model, "config.json"));
    DSF_TRY(dsf_config_load(&c, path, NULL));
    *n = c.n_layers < MOST_LAYERS ? c.n_layers : MOST_LAYERS;
    return DSF_OK;
}

/* More words, as long as there is room for all of them. */
static void also(dsf_suite_check *c, const char *words)
{
    size_t n = strlen(c->words);
    if (n + strlen(words) < sizeof c->words)
        (void)snprintf(c->words + n, sizeof c->words - n, "%s", words);
}

dsf_status dsf_coverage_layers(const dsf_suite_unit *u, const char *golden,
                               const dsf_diff_report *r, dsf_suite_check *c)
{
    coverage k = {.n_layers = 0};
    char words[256], missing[128] = "";
    DSF_TRY(read_layers(u->model, &k.n_layers));
    look_at_taps(&k, r);
    DSF_TRY(look_at_file(&k, golden));
    list_missing(&k, missing, sizeof missing);
    if (c->verdict == DSF_PASS && k.n_covered + k.n_trimmed < k.n_layers) {
        c->verdict = DSF_COULD_NOT;
        dsf_suite_say(c,
                      "%d of %d layers compared, %d kinds of taps: of layers %s the golden file "
                      "holds neither out nor attn/y and ffn/y with what they are computed from",
                      k.n_covered, k.n_layers, k.n_kinds, missing);
        return DSF_OK;
    }
    (void)snprintf(words, sizeof words, "; layers %d of %d, %d kinds of taps", k.n_covered,
                   k.n_layers, k.n_kinds);
    also(c, words);
    if (k.n_trimmed)
        also(c, " (the other layers are there on /rows_sub alone: suite logits compares them)");
    return DSF_OK;
}

/* ---- free runs ---- */

/* Margins are the reference's own. */
static bool is_margin(const char *path)
{
    size_t n = strlen(path);
    return n > 7 && strcmp(path + n - 7, "_margin") == 0;
}

static bool compared(const dsf_diff_report *r, const char *path)
{
    for (int64_t i = 0; i < r->n_taps; i++)
        if (strcmp(r->tap[i].path, path) == 0) return r->tap[i].rows > 0;
    return false;
}

dsf_status dsf_coverage_run(const char *golden, const dsf_diff_report *r, dsf_suite_check *c)
{
    dsf_dump_file *f = NULL;
    const char *first = NULL;
    int64_t missing = 0;
    if (c->verdict != DSF_PASS) return DSF_OK;
    DSF_TRY(dsf_dump_open(&f, golden));
    int n_layers = dsf_dump_info_of(f)->geometry.n_layers;
    for (int64_t i = 0; i < dsf_dump_count(f); i++) {
        const dsf_dump_entry *e = dsf_dump_at(f, i);
        dsf_tap tap;
        if (!dsf_tap_parse(&tap, e->path, n_layers) || is_margin(e->path)) continue;
        if (compared(r, e->path)) continue;
        missing++;
        if (!first) first = e->path;
    }
    if (missing) {
        c->verdict = DSF_FAILED;
        dsf_suite_say(c, "%lld taps of the golden file were not compared with a free run, first %s",
                      (long long)missing, first);
        dsf_suite_mark(c, first, -1, -1, NAN, NAN);
    } else if (!compared(r, "logits") && !compared(r, "logits_oneshot")) {
        c->verdict = DSF_COULD_NOT;
        dsf_suite_say(c,
                      "the golden file holds no logits: %lld taps of the free run agree, and "
                      "what comes out of it was not compared",
                      (long long)r->n_taps);
    }
    dsf_dump_close(f);
    return DSF_OK;
}
