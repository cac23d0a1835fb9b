/* One prompt length at one chunk size, in an engine of exactly that size. */
#include <string.h>

#include "bench/soak/state.h"

enum { SAMPLES = 8 }; /* within a prefill */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- what an engine shows once it has done everything it does ---- */

static void judge_lines(dsf_soak *s, const dsf_soak_line *line, int n)
{
    for (int i = 0; i < n; i++)
        if (line[i].measured > line[i].planned)
            dsf_soak_find(
                &s->plan, line[i].plan->name, (double)line[i].measured, (double)line[i].planned,
                "\"%s\" takes %lld bytes, planned are %lld (%s), at length %lld, chunk "
                "%lld",
                line[i].plan->name, (long long)line[i].measured, (long long)line[i].planned,
                line[i].plan->formula, (long long)s->length, (long long)s->chunk);
}

static void judge_arenas(dsf_soak *s)
{
    for (int i = 0; i < DSF_ARENAS; i++) {
        const dsf_arena_use *a = &s->arena[i];
        if (!a->base || dsf_arena_met(a, 1)) continue;
        dsf_soak_find(&s->arenas, a->name, (double)a->high, (double)a->planned,
                      "arena \"%s\": kernels reach %zu of %zu bytes at length %lld, chunk %lld",
                      a->name, a->high, a->planned, (long long)s->length, (long long)s->chunk);
    }
}

static void judge_resident(dsf_soak *s)
{
    int64_t took = s->least.own.anon - s->idle.own.anon;
    int64_t limit = dsf_proc_resident_limit(dsf_budget_total(&s->engine->budget, DSF_BUDGET_HOST));
    /* On a device the driver's own memory is counted too. */
    if (DSF_SANITIZED || s->engine->device || s->idle.own.anon < 0 || took <= limit) return;
    dsf_soak_find(&s->resident, "resident memory", (double)took, (double)limit,
                  "%lld anonymous bytes are resident at length %lld, chunk %lld; the plan explains "
                  "%lld",
                  (long long)took, (long long)s->length, (long long)s->chunk, (long long)limit);
}

void dsf_soak_judge_engine(dsf_soak *s, const dsf_soak_line *line, int n)
{
    judge_lines(s, line, n);
    judge_arenas(s);
    judge_resident(s);
}

/* ---- a rung ---- */

static dsf_status prefill(dsf_soak *s, dsf_session **session, dsf_soak_rung *r)
{
    int64_t next = s->length / SAMPLES;
    s->phase = "prefill";
    DSF_TRY(dsf_session_feed(*session, s->prompt, (size_t)s->length));
    while (dsf_session_queued(*session) > 0 && !dsf_soak_over(s)) {
        int64_t before = dsf_session_position(*session);
        DSF_TRY(dsf_soak_pass(s, session, 1, false));
        int64_t at = dsf_session_position(*session);
        s->done += at - before;
        s->b->out.progress(s->b->out.ud, "soak", s->done, s->total);
        if (at < next && at < s->length) continue;
        DSF_TRY(dsf_soak_take(s, "prefill"));
        next += s->length / SAMPLES;
    }
    for (int i = 0; i < s->n_curve; i++) r->seconds += s->curve[i].seconds;
    return DSF_OK;
}

static dsf_status decode(dsf_soak *s, dsf_session **session, uint64_t *hash)
{
    int64_t n = least(DSF_SOAK_DECODED, s->engine->opt.context - s->length);
    s->phase = "decode";
    DSF_TRY(dsf_soak_hash(*session, hash));
    for (int64_t i = 0; i < n && !dsf_soak_over(s); i++) {
        DSF_TRY(dsf_soak_next(s, *session, hash));
        DSF_TRY(dsf_soak_pass(s, session, 1, false));
        DSF_TRY(dsf_soak_hash(*session, hash));
    }
    DSF_TRY(dsf_soak_take(s, "decode"));
    return dsf_soak_draft(s, *session);
}

/* What it took in all. On a device that is the device's memory, by its own door. */
static void total_up(dsf_soak *s, const dsf_soak_line *line, int n, int64_t open, dsf_soak_rung *r)
{
    const dsf_engine *e = s->engine;
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        if (line[i].plan->kind == DSF_BUDGET_HOST && line[i].measured > 0) sum += line[i].measured;
    for (int i = 0; i < n; i++)
        if (strstr(line[i].plan->name, ": kernel scratch")) r->scratch += line[i].planned;
    int64_t grown = s->high > open ? s->high - open : 0;
    r->planned = dsf_soak_planned(e);
    r->measured = e->device ? dsf_device_used(e->device).peak : sum + grown;
    r->high = e->device ? r->measured : s->high;
    r->beside = open - sum;
    r->available = s->least.machine.available;
    r->device_free = s->least.device_free;
    r->resident = s->least.own.anon - s->idle.own.anon;
}

static void compare(dsf_soak *s, dsf_soak_rung *r)
{
    r->same = true;
    for (int i = 0; i < s->n_rungs; i++) {
        const dsf_soak_rung *o = &s->rung[i];
        if (!o->done || o->length != r->length || o->hash == r->hash) continue;
        r->same = false;
        dsf_soak_find(&s->chunks, "chunk sizes", 1, 0,
                      "length %lld: chunk %lld gives other logits than chunk %lld",
                      (long long)r->length, (long long)r->chunk, (long long)o->chunk);
        return;
    }
}

static dsf_status run_rung(dsf_soak *s, dsf_soak_rung *r)
{
    dsf_session *session = NULL;
    dsf_soak_line line[DSF_BUDGET_LINES];
    dsf_soak_value largest[DSF_SOAK_NAMED];
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(dsf_session_open(&session, s->engine));
    int64_t open = dsf_ledger_now(s->ledger).live - s->live_before;
    DSF_TRY_OUT(prefill(s, &session, r));
    if (dsf_session_queued(session) > 0) goto out;
    DSF_TRY_OUT(decode(s, &session, &r->hash));
    if (*s->stopped) goto out;
    int n = dsf_soak_lines(s, &session, 1, line);
    total_up(s, line, n, open, r);
    dsf_soak_judge_engine(s, line, n);
    compare(s, r);
    r->done = true;
    n = dsf_soak_largest(s, s->engine->plan, largest);
    DSF_TRY_OUT(dsf_soak_tell_rung(s, r, largest, n));
out:
    dsf_session_close(session);
    return st;
}

dsf_status dsf_soak_climb(dsf_soak *s, int64_t length, int64_t chunk)
{
    dsf_soak_rung *r = &s->rung[s->n_rungs];
    bool opened = false;
    *r = (dsf_soak_rung){.length = length, .chunk = chunk};
    s->stage = "ladder";
    s->length = length;
    s->chunk = least(chunk, length); /* a plan for more rows than there are would not be met */
    s->cycle = 0;
    dsf_status st =
        dsf_soak_open(s, least(length + DSF_SOAK_DECODED, s->limit), s->chunk, 1, &opened);
    if (st == DSF_OK && opened) st = run_rung(s, r);
    dsf_soak_close(s);
    if (st == DSF_OK && r->done) s->n_rungs++;
    return st == DSF_OK && opened ? dsf_soak_take(s, "closed") : st;
}
