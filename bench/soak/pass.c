/* Engines and their passes, under the eye of the ledger and the guard. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/soak/state.h"

/* ---- the guard ---- */

static void name_largest_line(const dsf_budget *b, dsf_soak_guard *g)
{
    g->line = "nothing";
    g->formula = "";
    for (int i = 0; i < b->n; i++) {
        if (b->line[i].kind != DSF_BUDGET_HOST || b->line[i].bytes <= g->line_bytes) continue;
        g->line = b->line[i].name;
        g->formula = b->line[i].formula;
        g->line_bytes = b->line[i].bytes;
    }
}

static int64_t host_bytes(const dsf_budget *b)
{
    return dsf_budget_total(b, DSF_BUDGET_HOST) + dsf_budget_total(b, DSF_BUDGET_PINNED);
}

/* planned: bytes that are still to be taken. */
static void ask_guard(dsf_soak *s, const dsf_engine *e, int64_t planned)
{
    dsf_proc_memory own = dsf_proc_own();
    dsf_soak_guard g = {.guard = s->o->guard,
                        .available = dsf_proc_machine().available,
                        .planned = planned,
                        .own = own.anon - s->start.own.anon};
    dsf_ledger_group beside[1];
    if (*s->stopped || g.available < 0 || g.available - planned >= g.guard) return;
    g.lost = s->start.machine.available - g.available;
    name_largest_line(&e->budget, &g);
    if (dsf_ledger_since(s->ledger, s->serial_open, beside, 1) == 1) {
        g.beside = beside[0].where;
        g.beside_bytes = beside[0].bytes;
    }
    dsf_soak_guard_words(&g, s->stopped, sizeof s->stopped);
    s->guarded = *s->stopped != 0;
}

bool dsf_soak_over(dsf_soak *s)
{
    if (!*s->stopped && s->o->stop && s->o->stop())
        (void)snprintf(s->stopped, sizeof s->stopped,
                       "stopped on request at length %lld, chunk %lld", (long long)s->length,
                       (long long)s->chunk);
    return *s->stopped != 0;
}

/* ---- an engine ---- */

/* What does not fit is an answer: the run ends with its report. */
static dsf_status answer_of(dsf_soak *s, dsf_status st)
{
    if (st != DSF_ENOMEM) return st;
    (void)snprintf(s->stopped, sizeof s->stopped, "does not fit at length %lld, chunk %lld: %s",
                   (long long)s->length, (long long)s->chunk, dsf_error_message());
    s->guarded = true;
    return DSF_OK;
}

static dsf_status let_in(dsf_soak *s, const dsf_options *eo, bool *may)
{
    dsf_options only = *eo;
    dsf_engine *plan = NULL;
    only.plan_only = true;
    dsf_ledger_hush(s->ledger, true);
    dsf_status st = answer_of(s, dsf_engine_open(&plan, &only));
    if (plan) ask_guard(s, plan, host_bytes(&plan->budget));
    dsf_engine_close(plan);
    dsf_ledger_hush(s->ledger, false);
    *may = st == DSF_OK && !*s->stopped;
    return st;
}

dsf_status dsf_soak_open(dsf_soak *s, int64_t context, int64_t chunk, int64_t slots, bool *opened)
{
    dsf_options eo = s->options;
    eo.context = context;
    eo.chunk = chunk;
    eo.slots = slots;
    *opened = false;
    DSF_TRY(let_in(s, &eo, opened));
    if (!*opened) return DSF_OK;
    dsf_soak_look(s, &s->idle);
    s->least = s->idle;
    s->high = s->curve_span = 0;
    s->n_curve = 0;
    dsf_proc_forget_peak();
    dsf_ledger_mark(s->ledger, "open");
    s->live_before = dsf_ledger_now(s->ledger).live;
    DSF_TRY(answer_of(s, dsf_engine_open(&s->engine, &eo)));
    *opened = s->engine != NULL;
    if (!*opened) return DSF_OK;
    dsf_soak_plant_plan(s, s->engine);
    dsf_arenas_of(s->arena, s->engine);
    dsf_ledger_hush(s->ledger, true);
    dsf_status st =
        dsf_mem_new(&s->cache_high, (size_t)s->engine->plan->n_values, sizeof *s->cache_high);
    dsf_ledger_hush(s->ledger, false);
    s->serial_open = dsf_ledger_now(s->ledger).serial;
    return st == DSF_OK ? dsf_soak_take(s, "open") : dsf_error_pass(st, DSF_HERE);
}

void dsf_soak_close(dsf_soak *s)
{
    dsf_engine_close(s->engine);
    dsf_mem_free(s->cache_high);
    s->engine = NULL;
    s->cache_high = NULL;
}

/* ---- a pass ---- */

static dsf_status give_up(void *ud, const dsf_tap_value *v)
{
    (void)ud, (void)v;
    return DSF_FAIL(DSF_ECANCELED, "given up on purpose");
}

static uint64_t device_allocations(const dsf_engine *e)
{
    return e->device ? dsf_device_used(e->device).allocations : 0;
}

static void judge_pass(dsf_soak *s, const dsf_ledger_state *seen, uint64_t on_device)
{
    double product = (double)s->chunk * (double)s->length;
    if (seen->taken > 0)
        dsf_soak_find(
            &s->temporary, seen->largest.where, (double)seen->largest.bytes, 0,
            "%s takes %lld bytes in a pass (%s), beside the plan: %.3g bytes x chunk %lld "
            "x length %lld",
            seen->largest.where, (long long)seen->largest.bytes, s->phase,
            (double)seen->largest.bytes / product, (long long)s->chunk, (long long)s->length);
    if (on_device > 0)
        dsf_soak_find(&s->temporary, "device memory", (double)on_device, 0,
                      "%llu blocks of device memory are taken in a pass (%s, chunk %lld, length "
                      "%lld)",
                      (unsigned long long)on_device, s->phase, (long long)s->chunk,
                      (long long)s->length);
}

/* Many passes share a point once the curve is full: two become one. */
static void add_to_curve(dsf_soak *s, int64_t depth, int64_t tokens, double seconds)
{
    if (s->n_curve == DSF_SOAK_CURVE) {
        for (int i = 0; i < DSF_SOAK_CURVE / 2; i++) {
            const dsf_soak_point *a = &s->curve[2 * i], *b = a + 1;
            s->curve[i] =
                (dsf_soak_point){a->depth, a->tokens + b->tokens, a->seconds + b->seconds};
        }
        s->n_curve /= 2;
        s->curve_span = s->curve[0].tokens;
    }
    dsf_soak_point *last = s->n_curve ? &s->curve[s->n_curve - 1] : NULL;
    if (last && last->tokens + tokens <= s->curve_span) {
        last->tokens += tokens;
        last->seconds += seconds;
    } else {
        s->curve[s->n_curve++] = (dsf_soak_point){depth, tokens, seconds};
    }
}

dsf_status dsf_soak_pass(dsf_soak *s, dsf_session *const *batch, int n, bool cancel)
{
    const dsf_tap_sink sink = {.on_value = give_up};
    void *planted = NULL;
    int64_t depth = dsf_session_position(batch[0]);
    uint64_t before = device_allocations(s->engine);
    dsf_ledger_mark(s->ledger, s->phase);
    DSF_TRY(dsf_soak_plant_pass(s, &planted));
    int64_t t0 = dsf_clock_ns();
    dsf_status st = dsf_engine_step(s->engine, batch, (size_t)n, cancel ? &sink : NULL);
    double seconds = 1e-9 * (double)(dsf_clock_ns() - t0);
    dsf_mem_free(planted);
    if (cancel && st == DSF_ECANCELED) st = DSF_OK;
    if (st != DSF_OK) return dsf_error_pass(st, DSF_HERE);
    dsf_ledger_state seen = dsf_ledger_now(s->ledger);
    judge_pass(s, &seen, device_allocations(s->engine) - before);
    if (seen.peak - s->live_before > s->high) s->high = seen.peak - s->live_before;
    dsf_arenas_raise(s->arena, &s->engine->exec, s->cache_high);
    int64_t tokens = dsf_session_position(batch[0]) - depth;
    if (strcmp(s->phase, "prefill") == 0) add_to_curve(s, depth, tokens, seconds);
    ask_guard(s, s->engine, 0);
    return DSF_OK;
}

dsf_status dsf_soak_hash(const dsf_session *s, uint64_t *hash)
{
    const float *row = NULL;
    int64_t vocab = dsf_engine_vocab(s->engine);
    DSF_TRY(dsf_session_logits(s, &row));
    for (int64_t i = 0; i < vocab; i++)
        if (isnan(row[i])) return DSF_FAIL(DSF_ECORRUPT, "logit %lld is NaN", (long long)i);
    *hash = dsf_parity_hash(*hash, row, (size_t)vocab * sizeof *row);
    return DSF_OK;
}

dsf_status dsf_soak_next(dsf_soak *s, dsf_session *session, uint64_t *hash)
{
    int32_t id = 0;
    DSF_TRY(dsf_bench_next(session, s->work, &id));
    *hash = dsf_parity_hash(*hash, &id, sizeof id);
    return dsf_session_feed(session, &id, 1);
}

dsf_status dsf_soak_draft(dsf_soak *s, dsf_session *session)
{
    int32_t ids[128], block = 0;
    float confidence[128];
    if (!s->engine->draft_plan) return DSF_OK;
    s->phase = "draft";
    dsf_ledger_mark(s->ledger, s->phase);
    DSF_TRY(dsf_session_draft(session, 4, ids, confidence, &block, NULL));
    dsf_ledger_state seen = dsf_ledger_now(s->ledger);
    judge_pass(s, &seen, 0);
    dsf_arenas_raise(s->arena, &s->engine->draft, NULL);
    return DSF_OK;
}
