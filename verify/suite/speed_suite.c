/* Suite speed: a timed run, which draws its tokens inside the steps, gives the tokens of the
 * checked one, which draws them here, runs with all taps on, in other chunks and on one thread; and
 * the logits of both are the same (product.md 5). The rates are printed, and no verdict depends on
 * them. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/digest.h"
#include "verify/suite/unit.h"

enum { PROMPT = 64, DECODED = 16 };
static const dsf_sampling how = {.temperature = 1, .top_p = 0.95, .seed = 11};

typedef struct {
    int64_t chunk;
    int threads;
    bool taps, sampled;
} way;

typedef struct {
    int32_t id[DECODED];
    char logits[DECODED][33]; /* digests of the logits that each was taken from */
    double prefill, decode;   /* seconds */
    int64_t shown;
} run;

static dsf_status see(void *ud, const dsf_tap_value *v)
{
    int64_t *shown = ud;
    *shown += v->n;
    return DSF_OK;
}

static dsf_status step_all(dsf_engine *e, dsf_session *s, const dsf_tap_sink *sink)
{
    while (dsf_session_queued(s) > 0) DSF_TRY(dsf_engine_step(e, &s, 1, sink));
    return DSF_OK;
}

/* The next token; where the logits are at hand, their digest too. */
static dsf_status choose(dsf_engine *e, dsf_session *s, float *work, run *r, int i)
{
    const float *row;
    int64_t n = dsf_engine_vocab(e);
    if (!work) return dsf_session_next(s, &r->id[i]);
    DSF_TRY(dsf_session_logits(s, &row));
    dsf_digest_bytes(row, (size_t)n * sizeof *row, r->logits[i]);
    return dsf_sample(row, n, &how, dsf_session_position(s), work, &r->id[i], NULL);
}

static dsf_status generate(dsf_engine *e, dsf_session *s, float *work, const dsf_tap_sink *sink,
                           run *r)
{
    int32_t ids[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)((i * 2654435761u >> 7) % (uint32_t)dsf_engine_vocab(e));
    int64_t t0 = dsf_clock_ns();
    DSF_TRY(dsf_session_feed(s, ids, PROMPT));
    DSF_TRY(step_all(e, s, sink));
    int64_t t1 = dsf_clock_ns();
    for (int i = 0; i < DECODED; i++) {
        DSF_TRY(choose(e, s, work, r, i));
        if (i + 1 == DECODED) break;
        DSF_TRY(dsf_session_feed(s, &r->id[i], 1));
        DSF_TRY(step_all(e, s, sink));
    }
    r->prefill = (double)(t1 - t0) * 1e-9;
    r->decode = (double)(dsf_clock_ns() - t1) * 1e-9;
    return DSF_OK;
}

static dsf_status run_way(const dsf_suite_unit *u, way w, run *r)
{
    const dsf_tap_sink taps = {.on_value = see, .ud = &r->shown}, *sink = w.taps ? &taps : NULL;
    const dsf_options o = {.model = u->model,
                           .context = PROMPT + DECODED,
                           .chunk = w.chunk,
                           .prefill = DSF_PREFILL_EXACT,
                           .threads = w.threads,
                           .variants = u->o->variants,
                           .sampled = w.sampled,
                           .sink = sink};
    dsf_engine *e = NULL;
    dsf_session *s = NULL;
    float *work = NULL;
    dsf_status st;
    *r = (run){.shown = 0};
    DSF_TRY_OUT(dsf_engine_open(&e, &o));
    DSF_TRY_OUT(dsf_session_open(&s, e));
    if (w.sampled)
        DSF_TRY_OUT(dsf_session_sampling(s, &how));
    else
        DSF_TRY_OUT(dsf_mem_new(&work, (size_t)dsf_engine_vocab(e), sizeof *work));
    DSF_TRY_OUT(generate(e, s, work, sink, r));
out:
    dsf_mem_free(work);
    dsf_session_close(s);
    dsf_engine_close(e);
    return st;
}

static dsf_status check_speed(const dsf_suite_unit *u, dsf_suite_check *c)
{
    run timed, seen, checked;
    int64_t wrong = 0;
    DSF_TRY(run_way(u, (way){.chunk = 32, .threads = u->threads, .sampled = true}, &timed));
    DSF_TRY(run_way(u, (way){.chunk = 32, .threads = u->threads}, &seen));
    DSF_TRY(run_way(u, (way){.chunk = 13, .threads = 1, .taps = true}, &checked));
    for (int i = 0; i < DECODED; i++, c->compared += 2) {
        bool tokens = timed.id[i] == checked.id[i];
        bool logits = strcmp(seen.logits[i], checked.logits[i]) == 0;
        wrong += !tokens + !logits;
        if (!tokens || !logits)
            dsf_suite_mark(c, tokens ? "logits" : "token", PROMPT + i, -1, checked.id[i],
                           timed.id[i]);
    }
    (void)snprintf(c->derivation, sizeof c->derivation,
                   "exact: same input, same bits, whatever chunk, threads and taps; no limit on "
                   "time");
    dsf_suite_judge(c, wrong);
    if (checked.shown == 0) c->verdict = DSF_FAILED;
    dsf_suite_say(c,
                  "%d drawn tokens and their logits, timed against checked (%lld rows tapped, "
                  "other chunks, one thread): %lld differ; prefill %.1f tok/s, decode %.1f tok/s "
                  "on %d threads",
                  DECODED, (long long)checked.shown, (long long)wrong, PROMPT / timed.prefill,
                  (DECODED - 1) / timed.decode, u->threads);
    return DSF_OK;
}

void dsf_suite_speed(const dsf_suite_unit *u, dsf_suite_check *check)
{
    if (check_speed(u, check) != DSF_OK) dsf_suite_could_not(check);
}
