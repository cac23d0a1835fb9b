/* Suites that need a model and no golden data: contract, tokenizer, states, memory. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/contract.h"
#include "serve/engine.h"
#include "text/classes.h"
#include "verify/states/states.h"
#include "verify/suite/suite.h"

static dsf_status load_config(dsf_config *c, const char *model)
{
    char path[4096];
    DSF_TRY(dsf_file_join(path, model, "config.json"));
    return dsf_config_load(c, path, NULL);
}

/* A status that stops a check is the check's own verdict, not the run's end. */
static void could_not(dsf_check_result *c, int64_t t0)
{
    c->verdict = DSF_COULD_NOT;
    (void)snprintf(c->words, sizeof c->words, "%s", dsf_error_message());
    c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
}

dsf_status dsf_suite_contract(const dsf_verify_options *o, const char *model, dsf_results *r)
{
    (void)o;
    dsf_check_result *c = dsf_results_add(r, "contract", "contract");
    if (!c) return r->status;
    int64_t t0 = dsf_clock_ns();
    dsf_config config = {.vocab_size = 0};
    dsf_ckpt *k = NULL;
    dsf_contract t = {.expected = 0};
    dsf_status st = load_config(&config, model);
    if (st == DSF_OK) st = dsf_ckpt_open(&k, model);
    /* every value of a small checkpoint; of a large one the scale bytes (dsf info --scan reads all)
     */
    dsf_scan scan =
        st == DSF_OK && dsf_ckpt_bytes(k) <= (int64_t)1 << 30 ? DSF_SCAN_ALL : DSF_SCAN_SCALES;
    if (st == DSF_OK) st = dsf_contract_check(&config, k, scan, &t);
    if (st == DSF_OK) {
        st = dsf_contract_status(&t, model);
        c->verdict = st == DSF_OK ? DSF_PASS : DSF_FAILED;
        c->compared = t.matched;
        if (st == DSF_OK)
            (void)snprintf(c->words, sizeof c->words,
                           "%lld tensors as the config demands, %s finite", (long long)t.matched,
                           scan == DSF_SCAN_ALL ? "all values" : "scales");
        else
            (void)snprintf(c->words, sizeof c->words, "%s", dsf_error_message());
        c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
    } else {
        could_not(c, t0);
    }
    dsf_contract_free(&t);
    dsf_ckpt_close(k);
    return DSF_OK;
}

/* The token's text to ids and back; *text false: its bytes alone are no text. */
static dsf_status round_trip(const dsf_bpe *b, int32_t id, bool *text, bool *same)
{
    size_t n;
    const char *bytes = dsf_bpe_token_bytes(b, id, &n);
    dsf_ids ids = {.n = 0};
    dsf_buf back = {.max = 0};
    dsf_status st = DSF_OK;
    if (!bytes || n == 0 || dsf_utf8_valid(bytes, n) != n) return DSF_OK;
    *text = true;
    DSF_TRY_OUT(dsf_bpe_encode(b, bytes, n, DSF_BPE_ADDED, &ids));
    DSF_TRY_OUT(dsf_bpe_decode(b, ids.id, ids.n, false, &back));
    *same = back.len == n && memcmp(back.data, bytes, n) == 0;
out:
    dsf_ids_free(&ids);
    dsf_buf_free(&back);
    return st;
}

/* Every token's bytes decode; texts made of them come back; the class map has the size that the
 * config says. */
static dsf_status check_tokens(const dsf_config *config, const dsf_bpe *b, dsf_check_result *c)
{
    int32_t *map = NULL;
    int n = 0;
    dsf_status st = DSF_OK;
    if (dsf_bpe_n_vocab(b) != config->vocab_size) {
        c->verdict = DSF_FAILED;
        (void)snprintf(c->words, sizeof c->words,
                       "tokenizer.json has %d ids, config.json says %lld", (int)dsf_bpe_n_vocab(b),
                       (long long)config->vocab_size);
        return DSF_OK;
    }
    DSF_TRY_OUT(dsf_mem_new(&map, (size_t)config->vocab_size, sizeof *map));
    DSF_TRY_OUT(dsf_classes_build(b, map, &n));
    int64_t wrong = 0;
    for (int32_t id = 0; id < config->vocab_size; id++) {
        bool same = true, text = false;
        DSF_TRY_OUT(round_trip(b, id, &text, &same));
        c->compared += text;
        wrong += !same;
    }
    bool good = config->n_engram == 0 || n == config->engram_compressed_vocab_size;
    c->verdict = good && wrong == 0 && c->compared > 0 ? DSF_PASS : DSF_FAILED;
    (void)snprintf(c->words, sizeof c->words,
                   "%lld tokens are text and come back, %d Engram classes, the config says %d",
                   (long long)c->compared, n, config->engram_compressed_vocab_size);
out:
    dsf_mem_free(map);
    return st;
}

dsf_status dsf_suite_tokenizer(const dsf_verify_options *o, const char *model, dsf_results *r)
{
    (void)o;
    dsf_check_result *c = dsf_results_add(r, "tokenizer", "tokenizer");
    if (!c) return r->status;
    int64_t t0 = dsf_clock_ns();
    dsf_config config = {.vocab_size = 0};
    dsf_bpe *b = NULL;
    dsf_status st = load_config(&config, model);
    if (st == DSF_OK) st = dsf_bpe_open(&b, model);
    if (st == DSF_OK) st = check_tokens(&config, b, c);
    if (st != DSF_OK) could_not(c, t0);
    c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
    dsf_bpe_close(b);
    return DSF_OK;
}

dsf_status dsf_suite_states(const dsf_verify_options *o, const char *model, dsf_results *r)
{
    dsf_check_result *c = dsf_results_add(r, "states", "states");
    if (!c) return r->status;
    int64_t t0 = dsf_clock_ns();
    dsf_config config = {.vocab_size = 0};
    dsf_states_report s;
    dsf_status st = load_config(&config, model);
    /* Lengths around every limit of a small window; of a large one, its edge. */
    const dsf_states_options so = {.model = model,
                                   .variants = o->variants,
                                   .threads = o->threads ? o->threads : 1,
                                   .progress = o->progress,
                                   .longest = st == DSF_OK && config.window_size > 32 ? 12 : 0};
    if (st == DSF_OK) st = dsf_states_run(&so, &s);
    if (st != DSF_OK) {
        could_not(c, t0);
        return DSF_OK;
    }
    int64_t failed = s.cone_rows_wrong;
    for (int i = 0; i < DSF_N_ROADS; i++) {
        failed += s.failed[i];
        dsf_buf_fmt(&c->detail, "  %-38s %4lld of %lld lengths equal\n", dsf_road_name((dsf_road)i),
                    (long long)(s.ran[i] - s.failed[i]), (long long)s.ran[i]);
    }
    c->compared = s.compared;
    c->verdict = failed == 0 && s.compared > 0 ? DSF_PASS : DSF_FAILED;
    if (failed)
        (void)snprintf(c->words, sizeof c->words, "%lld of %lld roads differ; first: %s",
                       (long long)failed, (long long)s.compared, s.first);
    else
        (void)snprintf(
            c->words, sizeof c->words,
            "%lld roads over every prompt length, %lld bytes of logits and caches, all equal",
            (long long)s.compared, (long long)s.bytes);
    c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
    return DSF_OK;
}

/* ---- memory: nothing is allocated between tokens, and looking changes nothing ---- */

static dsf_status see(void *ud, const dsf_tap_value *v)
{
    int64_t *seen = ud;
    *seen += v->n;
    return DSF_OK;
}

enum { MEMORY_TOKENS = 24 };

/* Prefill and decode; the last logits go to out[vocab]. allocations: made after the session was
 * opened. */
static dsf_status run_tokens(const char *model, const dsf_verify_options *o,
                             const dsf_tap_sink *sink, float *out, uint64_t *allocations)
{
    dsf_options eo = {.model = model,
                      .context = 2 * MEMORY_TOKENS,
                      .chunk = 7,
                      .threads = 1,
                      .variants = o->variants,
                      .sink = sink};
    dsf_engine *e = NULL;
    dsf_session *s = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_engine_open(&e, &eo));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    uint64_t before = dsf_mem_count();
    for (int32_t i = 0; i < MEMORY_TOKENS; i++) {
        int32_t ids[2] = {(i * 37 + 5) % (int32_t)dsf_engine_vocab(e),
                          (i * 11 + 3) % (int32_t)dsf_engine_vocab(e)};
        DSF_TRY_OUT(dsf_session_feed(s, ids, i < 12 ? 2 : 1));
        while (dsf_session_queued(s) > 0) DSF_TRY_OUT(dsf_engine_step(e, &s, 1, sink));
    }
    *allocations = dsf_mem_count() - before;
    const float *row;
    DSF_TRY_OUT(dsf_session_logits(s, &row));
    memcpy(out, row, (size_t)dsf_engine_vocab(e) * sizeof *row);
out:
    dsf_session_close(s);
    dsf_engine_close(e);
    return st;
}

dsf_status dsf_suite_memory(const dsf_verify_options *o, const char *model, dsf_results *r)
{
    dsf_check_result *c = dsf_results_add(r, "memory", "memory");
    if (!c) return r->status;
    int64_t t0 = dsf_clock_ns(), seen = 0;
    uint64_t plain = 0, tapped = 0;
    float *a = NULL, *b = NULL;
    dsf_config config = {.vocab_size = 0};
    const dsf_tap_sink sink = {.on_value = see, .ud = &seen};
    dsf_status st = load_config(&config, model);
    if (st == DSF_OK) st = dsf_mem_new(&a, (size_t)config.vocab_size, sizeof *a);
    if (st == DSF_OK) st = dsf_mem_new(&b, (size_t)config.vocab_size, sizeof *b);
    if (st == DSF_OK) st = run_tokens(model, o, NULL, a, &plain);
    if (st == DSF_OK) st = run_tokens(model, o, &sink, b, &tapped);
    if (st == DSF_OK) {
        bool same = memcmp(a, b, (size_t)config.vocab_size * sizeof *a) == 0;
        c->compared = config.vocab_size;
        c->verdict = plain == 0 && tapped == 0 && same && seen > 0 ? DSF_PASS : DSF_FAILED;
        (void)snprintf(
            c->words, sizeof c->words,
            "%llu allocations over %d tokens, %llu with all taps on (%lld rows shown); logits with and without taps %s",
            (unsigned long long)plain, MEMORY_TOKENS + 12, (unsigned long long)tapped,
            (long long)seen, same ? "equal" : "DIFFER");
        c->seconds = (double)(dsf_clock_ns() - t0) * 1e-9;
    } else {
        could_not(c, t0);
    }
    dsf_mem_free(a);
    dsf_mem_free(b);
    return DSF_OK;
}
