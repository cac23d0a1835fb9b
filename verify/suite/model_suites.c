/* Suites that need a checkpoint and no golden data: contract, tokenizer, states, chunks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/contract.h"
#include "text/classes.h"
#include "verify/states/states.h"
#include "verify/suite/unit.h"

static dsf_status load_config(dsf_config *c, const char *model)
{
    char path[4096];
    DSF_TRY(dsf_file_join(path, model, "config.json"));
    return dsf_config_load(c, path, NULL);
}

/* ---- contract ---- */

static dsf_status check_contract(const char *model, dsf_suite_check *c)
{
    dsf_config config = {.vocab_size = 0};
    dsf_ckpt *k = NULL;
    dsf_contract t = {.expected = 0};
    dsf_status st;
    DSF_TRY_OUT(load_config(&config, model));
    DSF_TRY_OUT(dsf_ckpt_open(&k, model));
    /* Every value of a small checkpoint; of a large one the scale bytes (dsf info --scan). */
    dsf_scan scan = dsf_ckpt_bytes(k) <= (int64_t)1 << 30 ? DSF_SCAN_ALL : DSF_SCAN_SCALES;
    DSF_TRY_OUT(dsf_contract_check(&config, k, scan, &t));
    c->compared = t.matched;
    bool good = dsf_contract_status(&t, model) == DSF_OK;
    if (good)
        dsf_suite_say(c, "%lld tensors as the config demands, %s finite", (long long)t.matched,
                      scan == DSF_SCAN_ALL ? "all values" : "scales");
    else
        dsf_suite_say(c, "%s", dsf_error_message());
    (void)snprintf(c->figure, sizeof c->figure, "tensors not as the config demands");
    c->value = (double)(t.expected - t.matched);
    c->limit = 0;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "exact: names, shapes and types follow from config.json");
    c->verdict = good ? DSF_PASS : DSF_FAILED;
out:
    dsf_contract_free(&t);
    dsf_ckpt_close(k);
    return st;
}

void dsf_suite_contract(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (check_contract(u->model, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- tokenizer ---- */

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

static dsf_status count_tokens(const dsf_config *config, const dsf_bpe *b, dsf_suite_check *c,
                               int64_t *wrong)
{
    for (int32_t id = 0; id < config->vocab_size; id++) {
        bool same = true, text = false;
        DSF_TRY(round_trip(b, id, &text, &same));
        c->compared += text;
        *wrong += !same;
        if (!same) dsf_suite_mark(c, "token", id, -1, id, -1);
    }
    return DSF_OK;
}

/* Every token's bytes decode; texts made of them come back; the vocabulary and the class map have
 * the sizes that the config says. */
static dsf_status check_tokens(const char *model, dsf_suite_check *c)
{
    dsf_config config = {.vocab_size = 0};
    dsf_bpe *b = NULL;
    int32_t *map = NULL;
    int n = 0;
    int64_t wrong = 0;
    dsf_status st;
    DSF_TRY_OUT(load_config(&config, model));
    DSF_TRY_OUT(dsf_bpe_open(&b, model));
    if (dsf_bpe_n_vocab(b) != config.vocab_size) {
        c->compared = 1;
        dsf_suite_judge(c, 1);
        dsf_suite_say(c, "tokenizer.json has %d ids, config.json says %lld",
                      (int)dsf_bpe_n_vocab(b), (long long)config.vocab_size);
        goto out;
    }
    DSF_TRY_OUT(dsf_mem_new(&map, (size_t)config.vocab_size, sizeof *map));
    DSF_TRY_OUT(dsf_classes_build(b, map, &n));
    DSF_TRY_OUT(count_tokens(&config, b, c, &wrong));
    bool classes = config.n_engram == 0 || n == config.engram_compressed_vocab_size;
    if (!classes)
        dsf_suite_mark(c, "Engram classes", -1, -1, config.engram_compressed_vocab_size, n);
    dsf_suite_judge(c, wrong + !classes);
    dsf_suite_say(c,
                  "%lld tokens are text, %lld do not come back; %d Engram classes, the config "
                  "says %d",
                  (long long)c->compared, (long long)wrong, n, config.engram_compressed_vocab_size);
out:
    dsf_mem_free(map);
    dsf_bpe_close(b);
    return st;
}

void dsf_suite_tokenizer(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (check_tokens(u->model, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- states ---- */

void dsf_suite_states(const dsf_suite_unit *u, dsf_suite_check *c)
{
    dsf_config config = {.vocab_size = 0};
    dsf_states_report s;
    if (load_config(&config, u->model) != DSF_OK) {
        dsf_suite_could_not(c);
        return;
    }
    /* Lengths around every limit of a small window; of a large one, its edge. */
    const dsf_states_options so = {.model = u->model,
                                   .variants = u->o->variants,
                                   .threads = u->threads,
                                   .longest = config.window_size > 32 ? 12 : 0};
    if (dsf_states_run(&so, &s) != DSF_OK) {
        dsf_suite_could_not(c);
        return;
    }
    int64_t failed = s.cone_rows_wrong;
    for (int i = 0; i < DSF_N_ROADS; i++) {
        failed += s.failed[i];
        dsf_buf_fmt(&c->detail, "  %-38s %4lld of %lld lengths equal\n", dsf_road_name((dsf_road)i),
                    (long long)(s.ran[i] - s.failed[i]), (long long)s.ran[i]);
    }
    c->compared = s.compared;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "exact: row i depends on row i's inputs only (product.md 4)");
    (void)snprintf(c->figure, sizeof c->figure, "roads that differ");
    c->value = (double)failed;
    c->limit = 0;
    dsf_suite_judge(c, failed);
    if (failed)
        dsf_suite_say(c, "%lld of %lld roads differ; first: %s", (long long)failed,
                      (long long)s.compared, s.first);
    else
        dsf_suite_say(c,
                      "%lld roads over every prompt length, %lld bytes of logits and caches, all "
                      "equal",
                      (long long)s.compared, (long long)s.bytes);
}

/* ---- chunks ---- */

static void say_limits(const dsf_chunks_report *r, dsf_suite_check *c)
{
    for (int i = 0; i < r->n_limits; i++)
        dsf_buf_fmt(&c->detail, "  %-32s %8lld tokens%s\n", r->limit[i].name,
                    (long long)r->limit[i].at,
                    r->limit[i].at < r->tokens ? "" : ": not reached by this prompt");
    for (int i = 0; i < DSF_CHUNK_SIZES; i++)
        dsf_buf_fmt(&c->detail, "  passes of %-8lld logits %016llx  caches %016llx\n",
                    (long long)r->chunk[i], (unsigned long long)r->logits[i],
                    (unsigned long long)r->caches[i]);
}

void dsf_suite_chunks(const dsf_suite_unit *u, dsf_suite_check *c)
{
    dsf_chunks_report r;
    const dsf_chunks_options o = {.model = u->model,
                                  .variants = u->o->variants,
                                  .threads = u->threads,
                                  .tokens = u->o->tokens};
    if (dsf_chunks_run(&o, &r) != DSF_OK) {
        dsf_suite_could_not(c);
        return;
    }
    c->compared = r.rows + DSF_CHUNK_SIZES - 1;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "exact: a row depends on its own inputs, not on what shares its pass");
    (void)snprintf(c->figure, sizeof c->figure, "rows of logits and states that differ");
    c->value = (double)r.failed;
    c->limit = 0;
    say_limits(&r, c);
    if (r.first >= 0) dsf_suite_mark(c, "logits", r.first, -1, NAN, NAN);
    dsf_suite_judge(c, r.failed);
    dsf_suite_say(
        c,
        "%lld tokens in passes of %lld, %lld and %lld: %lld rows of logits, %lld bytes of "
        "caches, %lld differ; hashes %016llx, %016llx",
        (long long)r.tokens, (long long)r.chunk[0], (long long)r.chunk[1], (long long)r.chunk[2],
        (long long)r.rows, (long long)r.cache_bytes, (long long)r.failed,
        (unsigned long long)r.logits[0], (unsigned long long)r.caches[0]);
}
