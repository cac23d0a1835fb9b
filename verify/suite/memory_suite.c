/* Suite memory: nothing is allocated between tokens and looking changes nothing; what is resident
 * stays within the plan, by a gauge that is shown to notice a planted block. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/proc.h"
#include "model/config.h"
#include "serve/engine.h"
#include "verify/suite/unit.h"

enum { TOKENS = 24, FED = TOKENS + 12 };

static dsf_status see(void *ud, const dsf_tap_value *v)
{
    int64_t *seen = ud;
    *seen += v->n;
    return DSF_OK;
}

static uint64_t device_allocations(const dsf_engine *e)
{
    return e->device ? dsf_device_used(e->device).allocations : 0;
}

/* Prefill and decode; the last logits go to out[vocab]. allocations: made after the session was
 * opened. */
static dsf_status run_tokens(const dsf_suite_unit *u, const dsf_tap_sink *sink, float *out,
                             uint64_t *allocations)
{
    dsf_options eo = {.model = u->model,
                      .context = 2 * TOKENS,
                      .chunk = 7,
                      .threads = 1,
                      .variants = u->o->variants,
                      .sink = sink};
    dsf_engine *e = NULL;
    dsf_session *s = NULL;
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_engine_open(&e, &eo));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    uint64_t before = dsf_mem_count() + device_allocations(e);
    for (int32_t i = 0; i < TOKENS; i++) {
        int32_t ids[2] = {(i * 37 + 5) % (int32_t)dsf_engine_vocab(e),
                          (i * 11 + 3) % (int32_t)dsf_engine_vocab(e)};
        DSF_TRY_OUT(dsf_session_feed(s, ids, i < FED - TOKENS ? 2 : 1));
        while (dsf_session_queued(s) > 0) DSF_TRY_OUT(dsf_engine_step(e, &s, 1, sink));
    }
    *allocations = dsf_mem_count() + device_allocations(e) - before;
    const float *row;
    DSF_TRY_OUT(dsf_session_logits(s, &row));
    memcpy(out, row, (size_t)dsf_engine_vocab(e) * sizeof *row);
out:
    dsf_session_close(s);
    dsf_engine_close(e);
    return st;
}

static dsf_status check_tokens(const dsf_suite_unit *u, dsf_suite_check *c)
{
    char path[4096];
    int64_t seen = 0, wrong = 0;
    uint64_t plain = 0, tapped = 0;
    float *a = NULL, *b = NULL;
    dsf_config config;
    const dsf_tap_sink sink = {.on_value = see, .ud = &seen};
    dsf_status st;
    DSF_TRY_OUT(dsf_file_join(path, u->model, "config.json"));
    DSF_TRY_OUT(dsf_config_load(&config, path, NULL));
    DSF_TRY_OUT(dsf_mem_new(&a, (size_t)config.vocab_size, sizeof *a));
    DSF_TRY_OUT(dsf_mem_new(&b, (size_t)config.vocab_size, sizeof *b));
    DSF_TRY_OUT(run_tokens(u, NULL, a, &plain));
    DSF_TRY_OUT(run_tokens(u, &sink, b, &tapped));
    for (int64_t i = 0; i < config.vocab_size; i++) {
        if (memcmp(a + i, b + i, sizeof *a) == 0) continue;
        wrong++;
        dsf_suite_mark(c, "logits", FED - 1, i, (double)a[i], (double)b[i]);
    }
    c->compared = config.vocab_size;
    (void)snprintf(c->figure, sizeof c->figure, "allocations of %d tokens, without and with taps",
                   FED);
    c->value = (double)(plain + tapped);
    c->limit = 0;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "exact: memory is decided once, before the first token");
    c->verdict = plain + tapped == 0 && wrong == 0 && seen > 0 ? DSF_PASS : DSF_FAILED;
    dsf_suite_say(c,
                  "%llu allocations over %d tokens, %llu with all taps on (%lld rows shown); "
                  "logits with and without taps %s",
                  (unsigned long long)plain, FED, (unsigned long long)tapped, (long long)seen,
                  wrong ? "DIFFER" : "equal");
out:
    dsf_mem_free(a);
    dsf_mem_free(b);
    return st;
}

void dsf_suite_tokens(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (check_tokens(u, check) != DSF_OK) dsf_suite_could_not(check);
}

/* ---- resident memory against the plan ---- */

enum { CHUNK = 64, ASK = 160 };
static const int64_t margin = 1 << 20; /* by so much the planted block passes the limit */

static int64_t resident(void) { return dsf_proc_own().anon; }

static dsf_status feed_all(dsf_engine *e, dsf_session *s)
{
    for (int32_t i = 0; i < ASK; i++) {
        int32_t id = (i * 37 + 5) % (int32_t)dsf_engine_vocab(e);
        DSF_TRY(dsf_session_feed(s, &id, 1));
    }
    while (dsf_session_queued(s) > 0) DSF_TRY(dsf_engine_step(e, &s, 1, NULL));
    return DSF_OK;
}

/* A block that no plan knows, in pages that are touched: the gauge must see it. */
static dsf_status plant(int64_t bytes, int64_t *seen)
{
    void *block;
    int64_t before = resident();
    DSF_TRY(dsf_mem_map(&block, (size_t)bytes));
    memset(block, 1, (size_t)bytes);
    *seen = resident() - before;
    dsf_mem_unmap(block, (size_t)bytes);
    return DSF_OK;
}

/* The most device memory held, against the plan's device lines: no page of it is half used. */
static void judge_device(const dsf_engine *e, dsf_suite_check *c)
{
    int64_t plan = dsf_budget_total(&e->budget, DSF_BUDGET_DEVICE);
    int64_t took = dsf_device_used(e->device).peak, allowed = plan + plan / 100;
    c->compared = plan;
    (void)snprintf(c->figure, sizeof c->figure, "most device bytes held, context %lld",
                   (long long)dsf_engine_context(e));
    c->value = (double)took;
    c->limit = (double)allowed;
    (void)snprintf(c->derivation, sizeof c->derivation, "the plan's %lld device bytes and 1 %%",
                   (long long)plan);
    c->verdict = took > 0 && took <= allowed ? DSF_PASS : DSF_FAILED;
    dsf_suite_say(c, "%lld device bytes held at most, %lld planned", (long long)took,
                  (long long)plan);
}

static dsf_status check_resident(const dsf_suite_unit *u, dsf_suite_check *c)
{
    const dsf_options eo = {
        .model = u->model, .chunk = CHUNK, .threads = u->threads, .variants = u->o->variants};
    dsf_engine *e = NULL;
    dsf_session *s = NULL;
    int64_t seen = 0, idle = resident();
    dsf_status st;
    DSF_TRY_OUT(dsf_engine_open(&e, &eo));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    DSF_TRY_OUT(feed_all(e, s));
    if (e->device) {
        judge_device(e, c);
        goto out;
    }
    int64_t plan = dsf_budget_total(&e->budget, 0), took = resident() - idle;
    int64_t allowed = dsf_proc_resident_limit(plan);
    int64_t planted = (allowed > took ? allowed - took : 0) + margin;
    DSF_TRY_OUT(plant(planted, &seen));
    bool found = took + seen > allowed;
    c->compared = plan;
    (void)snprintf(c->figure, sizeof c->figure, "resident anonymous bytes, context %lld",
                   (long long)dsf_engine_context(e));
    c->value = (double)took;
    c->limit = (double)allowed;
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "the plan's %lld bytes, 5 %% for pages half used, 16 MiB for stacks and heap",
                   (long long)plan);
    c->verdict = idle >= 0 && took <= allowed && found ? DSF_PASS : DSF_FAILED;
    dsf_suite_say(c, "%lld bytes resident, %lld planned, %lld allowed; a planted block of %lld %s",
                  (long long)took, (long long)plan, (long long)allowed, (long long)planted,
                  found ? "is noticed" : "is NOT noticed");
out:
    dsf_session_close(s);
    dsf_engine_close(e);
    return st;
}

void dsf_suite_resident(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (DSF_SANITIZED || resident() < 0) {
        check->verdict = u->o->suites ? DSF_COULD_NOT : DSF_SKIPPED;
        dsf_suite_say(check, "%s",
                      DSF_SANITIZED ? "a sanitizer's memory is not the engine's"
                                    : "/proc/self/status does not tell RssAnon");
        return;
    }
    if (check_resident(u, check) != DSF_OK) dsf_suite_could_not(check);
}
