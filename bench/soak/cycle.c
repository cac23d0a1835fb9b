/* Equal cycles of all that a server does to a sequence: prefill, cancel, resume, decode, rewind,
 * fork, close. After each the process must hold what it held before. */
#include <stdio.h>

#include "base/clock.h"
#include "bench/soak/state.h"

enum {
    DECODED = 8, /* tokens drawn */
    BACK = 3     /* of these taken back and drawn again */
};
_Static_assert(DSF_SOAK_LEAST_AT >= 2 * DECODED + 2, "a prompt of two passes");

static dsf_status cancelled(dsf_soak *s, dsf_session **session, const char *after)
{
    s->phase = "cancel";
    DSF_TRY(dsf_soak_pass(s, session, 1, true));
    DSF_TRY(dsf_soak_take(s, "cancel"));
    s->phase = after;
    return DSF_OK;
}

static dsf_status run_queued(dsf_soak *s, dsf_session **session, int64_t leave)
{
    while (dsf_session_queued(*session) > leave && !dsf_soak_over(s))
        DSF_TRY(dsf_soak_pass(s, session, 1, false));
    return DSF_OK;
}

/* The client goes away between two passes, comes back, and the last pass is given up inside. */
static dsf_status prefill(dsf_soak *s, dsf_session **a, int64_t n)
{
    s->phase = "prefill";
    DSF_TRY(dsf_session_feed(*a, s->prompt, (size_t)n));
    DSF_TRY(run_queued(s, a, n / 2));
    DSF_TRY(dsf_soak_take(s, "prefill"));
    DSF_TRY(dsf_session_rewind(*a, dsf_session_position(*a)));
    DSF_TRY(dsf_soak_take(s, "cancel"));
    s->phase = "resume";
    int64_t fed = dsf_session_position(*a) + dsf_session_queued(*a);
    DSF_TRY(dsf_session_feed(*a, s->prompt + fed, (size_t)(n - fed)));
    DSF_TRY(run_queued(s, a, s->chunk));
    if (dsf_session_queued(*a) > 0) DSF_TRY(cancelled(s, a, "resume"));
    DSF_TRY(run_queued(s, a, 0));
    return dsf_soak_take(s, "resume");
}

static dsf_status draw(dsf_soak *s, dsf_session **session, int n, uint64_t *hash)
{
    for (int i = 0; i < n && !dsf_soak_over(s); i++) {
        DSF_TRY(dsf_soak_next(s, *session, hash));
        DSF_TRY(dsf_soak_pass(s, session, 1, false));
        DSF_TRY(dsf_soak_hash(*session, hash));
    }
    return DSF_OK;
}

static dsf_status decode(dsf_soak *s, dsf_session **a, uint64_t *hash)
{
    s->phase = "decode";
    DSF_TRY(dsf_soak_hash(*a, hash));
    DSF_TRY(draw(s, a, DECODED - BACK, hash));
    int64_t here = dsf_session_position(*a);
    DSF_TRY(dsf_soak_next(s, *a, hash));
    DSF_TRY(cancelled(s, a, "decode"));
    DSF_TRY(run_queued(s, a, 0));
    DSF_TRY(dsf_soak_hash(*a, hash));
    uint64_t first = *hash, again = *hash;
    int32_t id = (*a)->ids[here];
    DSF_TRY(draw(s, a, BACK, &first));
    DSF_TRY(dsf_soak_take(s, "decode"));
    DSF_TRY(dsf_session_rewind(*a, here));
    s->phase = "rewind";
    DSF_TRY(dsf_session_feed(*a, &id, 1));
    DSF_TRY(run_queued(s, a, 0));
    DSF_TRY(draw(s, a, BACK, &again));
    if (!*s->stopped && first != again)
        dsf_soak_find(&s->outputs, "rewind", 1, 0,
                      "tokens drawn again after a rewind to %lld are not the same (cycle %lld)",
                      (long long)here, (long long)s->cycle);
    *hash = again;
    return dsf_soak_take(s, "rewind");
}

/* Both go on in one pass, and give the same. */
static dsf_status fork_both(dsf_soak *s, dsf_session *const *pair, uint64_t *hash)
{
    uint64_t side[2] = {*hash, *hash};
    s->phase = "fork";
    for (int i = 0; i < 2; i++) DSF_TRY(dsf_session_feed(pair[i], s->prompt, 1));
    DSF_TRY(dsf_soak_pass(s, pair, 2, false));
    for (int i = 0; i < 2; i++) DSF_TRY(dsf_soak_hash(pair[i], &side[i]));
    if (side[0] != side[1])
        dsf_soak_find(&s->outputs, "fork", 1, 0,
                      "a fork gives other logits than its origin (cycle %lld)",
                      (long long)s->cycle);
    *hash = side[0];
    return dsf_soak_take(s, "fork");
}

static dsf_status one_cycle(dsf_soak *s, int64_t n, uint64_t *hash)
{
    dsf_session *pair[2] = {NULL, NULL};
    dsf_soak_line line[DSF_BUDGET_LINES];
    dsf_status st = DSF_OK;
    *hash = 0;
    dsf_ledger_mark(s->ledger, "open");
    DSF_TRY_OUT(dsf_session_open(&pair[0], s->engine));
    DSF_TRY_OUT(dsf_soak_take(s, "open"));
    DSF_TRY_OUT(prefill(s, pair, n));
    if (*s->stopped) goto out;
    DSF_TRY_OUT(decode(s, pair, hash));
    if (*s->stopped) goto out;
    dsf_ledger_mark(s->ledger, "fork");
    DSF_TRY_OUT(dsf_session_fork(&pair[1], pair[0]));
    DSF_TRY_OUT(dsf_soak_plant_cycle(s));
    DSF_TRY_OUT(fork_both(s, pair, hash));
    DSF_TRY_OUT(dsf_soak_draft(s, pair[0]));
    int lines = dsf_soak_lines(s, pair, 2, line);
    dsf_soak_judge_engine(s, line, lines);
out:
    dsf_session_close(pair[0]);
    dsf_session_close(pair[1]);
    return st;
}

/* Blocks of this cycle that are still held, now that all of it is closed. */
static void judge_left(dsf_soak *s, uint64_t serial)
{
    dsf_ledger_group g[1];
    if (dsf_ledger_since(s->ledger, serial, g, 1) == 0) return;
    dsf_soak_find(
        &s->leak, g[0].where, (double)g[0].bytes, 0,
        "%s takes %lld bytes a cycle in %lld block%s (phase %s) that are never given back",
        g[0].where, (long long)g[0].bytes, (long long)g[0].blocks, g[0].blocks == 1 ? "" : "s",
        g[0].phase);
}

static void keep(dsf_soak *s, uint64_t hash)
{
    dsf_soak_cycles *c = &s->cycles;
    dsf_soak_sample now;
    dsf_soak_look(s, &now);
    if (c->n == 0) c->hash = hash;
    if (hash == c->hash)
        c->same++;
    else
        dsf_soak_find(&s->outputs, "cycles", (double)s->cycle, 0,
                      "cycle %lld gives other logits or ids than the first", (long long)s->cycle);
    c->live[c->n] = now.live;
    c->anon[c->n] = now.own.anon;
    c->files[c->n] = now.files;
    c->device[c->n] = now.device_used;
    c->pinned[c->n] = now.pinned;
    c->n++;
}

static bool more(const dsf_soak *s)
{
    const dsf_soak_options *o = s->o;
    double minutes = 1e-9 / 60 * (double)(dsf_clock_ns() - s->began);
    if (s->cycles.n == DSF_SOAK_CYCLES) return false;
    return s->cycle < o->cycles + DSF_SOAK_WARM || (o->minutes > 0 && minutes < o->minutes);
}

static dsf_status run_cycles(dsf_soak *s)
{
    int64_t n = s->o->at - 2 * DECODED;
    for (s->cycle = 0; more(s) && !dsf_soak_over(s); s->cycle++) {
        uint64_t hash = 0, serial = dsf_ledger_now(s->ledger).serial;
        DSF_TRY(one_cycle(s, n, &hash));
        s->done += s->o->at;
        s->b->out.progress(s->b->out.ud, "soak", s->done, s->total);
        if (*s->stopped) return DSF_OK;
        DSF_TRY(dsf_soak_take(s, "closed"));
        if (s->cycle < DSF_SOAK_WARM) continue;
        judge_left(s, serial);
        keep(s, hash);
    }
    return DSF_OK;
}

dsf_status dsf_soak_cycle_all(dsf_soak *s)
{
    bool opened = false;
    int64_t chunk = s->o->chunk[0], half = (s->o->at - 2 * DECODED + 1) / 2;
    s->stage = "cycles";
    s->length = s->o->at;
    s->chunk = chunk < half ? chunk : half; /* a prompt that can be cancelled between two passes */
    dsf_status st = dsf_soak_open(s, s->o->at, s->chunk, 2, &opened);
    if (st == DSF_OK && opened) st = run_cycles(s);
    dsf_soak_close(s);
    return st;
}
