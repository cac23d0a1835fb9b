#include "bench/soak/soak.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/soak/state.h"
#include "bench/synthetic_config.h"

/* What can never be met is said before anything runs. */
static dsf_status check_options(const dsf_soak *s)
{
    const dsf_soak_options *o = s->o;
    int64_t machine = s->start.machine.total;
    if (o->to < 1 || o->to > s->limit)
        return DSF_FAIL(DSF_EINVAL, "--to %lld: the model allows 1 to %lld positions",
                        (long long)o->to, (long long)s->limit);
    if (o->at < DSF_SOAK_LEAST_AT || o->at > s->limit)
        return DSF_FAIL(DSF_EINVAL, "--at %lld: a cycle takes %d to %lld positions (the model's)",
                        (long long)o->at, DSF_SOAK_LEAST_AT, (long long)s->limit);
    for (int i = 0; i < o->n_chunks; i++)
        if (o->chunk[i] < 1 || o->chunk[i] > 1 << 20)
            return DSF_FAIL(DSF_EINVAL, "--chunk %lld: 1 to 1048576", (long long)o->chunk[i]);
    if (o->cycles < 0 || o->cycles > DSF_SOAK_CYCLES - DSF_SOAK_WARM)
        return DSF_FAIL(DSF_EINVAL, "--cycles %lld: 0 to %d", (long long)o->cycles,
                        DSF_SOAK_CYCLES - DSF_SOAK_WARM);
    if (o->plant && !dsf_soak_plant_known(o->plant))
        return DSF_FAIL(DSF_EINVAL, "--plant %s: temporary, leak or plan", o->plant);
    if (o->plant && strcmp(o->plant, "leak") == 0 && o->cycles == 0)
        return DSF_FAIL(DSF_EINVAL, "--plant leak shows in cycles: --cycles 20");
    if (machine >= 0 && o->margin > machine && !dsf_plan_on_device(o->engine.variants))
        return DSF_FAIL(DSF_EINVAL, "--margin %lld: this machine has %lld bytes in all",
                        (long long)o->margin, (long long)machine);
    if (machine >= 0 && o->guard > machine)
        return DSF_FAIL(DSF_EINVAL, "--guard %lld: this machine has %lld bytes in all",
                        (long long)o->guard, (long long)machine);
    return DSF_OK;
}

/* A plan of the smallest size tells what the model is. */
static dsf_status ask_model(dsf_soak *s)
{
    dsf_options eo = s->options;
    dsf_engine *e = NULL;
    int64_t window = 0, ratio = 1;
    eo.context = eo.chunk = eo.slots = 1;
    eo.plan_only = true;
    DSF_TRY(dsf_engine_open(&e, &eo));
    const dsf_config *c = &e->load.config;
    s->limit = c->max_seq_len;
    window = c->window_size;
    for (int l = 0; l < c->n_layers; l++)
        if (c->ratio[l] > ratio) ratio = c->ratio[l];
    int64_t vocab = dsf_engine_vocab(e);
    dsf_engine_close(e);
    DSF_TRY(check_options(s));
    DSF_TRY(s->o->ladder ? dsf_ladder_of(&s->ladder, s->o->ladder, s->o->n_ladder, s->o->to)
                         : dsf_ladder_default(&s->ladder, s->o->to, window, ratio));
    int64_t longest = s->o->to > s->o->at ? s->o->to : s->o->at;
    DSF_TRY(dsf_mem_new(&s->work, (size_t)vocab, sizeof *s->work));
    return dsf_bench_prompt(&s->prompt, longest, vocab, s->o->seed);
}

/* The plan of the largest rung heads the report. */
static dsf_status tell_plan(dsf_soak *s)
{
    dsf_options eo = s->options;
    dsf_engine *e = NULL;
    int64_t chunk = s->o->chunk[0];
    eo.context = s->o->to + DSF_SOAK_DECODED < s->limit ? s->o->to + DSF_SOAK_DECODED : s->limit;
    eo.chunk = chunk < s->o->to ? chunk : s->o->to;
    eo.slots = 1;
    eo.plan_only = true;
    DSF_TRY(dsf_soak_products(s, eo.context, eo.chunk));
    DSF_TRY(dsf_engine_open(&e, &eo));
    dsf_status st = dsf_soak_tell_start(s, e);
    dsf_engine_close(e);
    return st;
}

static dsf_status climb_all(dsf_soak *s)
{
    for (int c = 0; c < s->o->n_chunks; c++)
        for (int i = 0; i < s->ladder.n && !dsf_soak_over(s); i++)
            DSF_TRY(dsf_soak_climb(s, s->ladder.length[i], s->o->chunk[c]));
    return DSF_OK;
}

static void count_work(dsf_soak *s)
{
    for (int i = 0; i < s->ladder.n; i++) s->total += s->ladder.length[i] * s->o->n_chunks;
    if (s->o->cycles) s->total += (s->o->cycles + DSF_SOAK_WARM) * s->o->at;
}

static dsf_status run(dsf_soak *s, dsf_soak_answer *answer)
{
    dsf_nvml_reading first;
    bool cuda = dsf_plan_on_device(s->options.variants);
    const char *why = NULL;
    if (cuda && dsf_device_count(&why) == 0)
        return DSF_FAIL(DSF_ENOTSUP, "--backend cuda: %s", why);
    if (cuda) s->nvml = dsf_nvml_open(s->options.device, &first);
    if (s->o->synthetic) {
        int layer[DSF_MAX_LAYERS];
        dsf_config whole;
        DSF_TRY(dsf_synthetic_config(&s->synthetic, s->o->synthetic, s->o->engram_vocab, &whole,
                                     layer));
        s->options.synthetic = &s->synthetic;
    }
    dsf_soak_look(s, &s->start);
    dsf_ledger_hush(s->ledger, true);
    DSF_TRY(ask_model(s));
    count_work(s);
    DSF_TRY(dsf_mem_new(&s->rung, DSF_SOAK_RUNGS, sizeof *s->rung));
    DSF_TRY(tell_plan(s));
    dsf_ledger_hush(s->ledger, false);
    DSF_TRY(climb_all(s));
    if ((s->o->cycles > 0 || s->o->minutes > 0) && !*s->stopped) DSF_TRY(dsf_soak_cycle_all(s));
    s->b->out.progress(s->b->out.ud, "soak", s->total, s->total);
    return dsf_soak_judge(s, answer);
}

dsf_status dsf_soak_run(dsf_bench *b, const dsf_soak_options *o, dsf_soak_answer *answer)
{
    dsf_soak *s = NULL;
    DSF_TRY(dsf_mem_new(&s, 1, sizeof *s));
    *s = (dsf_soak){
        .b = b, .o = o, .options = o->engine, .began = dsf_clock_ns(), .device_total = -1};
    s->stage = s->phase = "idle";
    dsf_status st = dsf_ledger_open(&s->ledger);
    if (st == DSF_OK) st = run(s, answer);
    dsf_ledger_close(s->ledger);
    dsf_nvml_close(s->nvml);
    for (int i = 0; i < s->n_planted; i++) dsf_mem_free(s->planted[i]);
    dsf_mem_free(s->rung);
    dsf_mem_free(s->prompt);
    dsf_mem_free(s->work);
    dsf_mem_free(s);
    return st;
}
