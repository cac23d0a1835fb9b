/* What a run really takes, beside what the plan says. */
#include <stdio.h>
#include <string.h>

#include "arenas.h"
#include "base/mem.h"
#include "base/proc.h"
#include "model.h"

enum { DECODED = 4 };

typedef struct {
    dsf_bench *b;
    const dsf_bench_model_options *o;
    dsf_engine *engine;
    dsf_session *session;
    int32_t *prompt;
    float *work;
    dsf_proc_memory idle, most;
    dsf_arena_use arena[DSF_ARENAS];
} job;

static void look(job *j)
{
    dsf_proc_memory now = dsf_proc_own();
    if (now.anon > j->most.anon) j->most.anon = now.anon;
    if (now.file > j->most.file) j->most.file = now.file;
}

/* A prompt that fills the context, tokens after it, and a draft where there is a draft head. */
static dsf_status touch_everything(job *j)
{
    dsf_engine *e = j->engine;
    int64_t n = e->opt.context - DECODED;
    DSF_TRY(dsf_session_open(&j->session, e));
    DSF_TRY(dsf_bench_prompt(&j->prompt, n, dsf_engine_vocab(e), 7));
    DSF_TRY(dsf_session_feed(j->session, j->prompt, (size_t)n));
    while (dsf_session_queued(j->session) > 0) {
        DSF_TRY(dsf_engine_step(e, &j->session, 1, NULL));
        dsf_arenas_raise(j->arena, &e->exec, NULL);
        look(j);
        j->b->out.progress(j->b->out.ud, "memory", dsf_session_position(j->session), n);
    }
    for (int i = 0; i < DECODED; i++) {
        int32_t id = 0;
        DSF_TRY(dsf_bench_next(j->session, j->work, &id));
        DSF_TRY(dsf_bench_feed(j->session, &id, 1, NULL, NULL));
        look(j);
    }
    if (e->draft_plan) {
        int32_t ids[128], block = 0;
        float confidence[128];
        DSF_TRY(dsf_session_draft(j->session, 4, ids, confidence, &block, NULL));
        dsf_arenas_raise(j->arena, &e->draft, NULL);
    }
    look(j);
    return DSF_OK;
}

static dsf_status open_run(job *j)
{
    dsf_options eo = j->o->engine;
    j->idle = dsf_proc_own();
    DSF_TRY(dsf_engine_open(&j->engine, &eo));
    if (j->engine->opt.context <= DECODED)
        return DSF_FAIL(DSF_EINVAL, "context %lld: at least %d", (long long)j->engine->opt.context,
                        DECODED + 1);
    dsf_arenas_of(j->arena, j->engine);
    return DSF_OK;
}

static dsf_status report(job *j)
{
    dsf_buf json = {.max = 0}, text = {.max = 0};
    int64_t plan = dsf_budget_total(&j->engine->budget, 0), took = j->most.anon - j->idle.anon;
    int64_t allowed = dsf_proc_resident_limit(plan);
    bool within = took <= allowed, all_exact = true;
    dsf_bench_begin(j->b, &json, "memory");
    dsf_bench_describe(j->engine, &json);
    dsf_json_add_int(&json, "planned_bytes", plan);
    dsf_json_add_int(&json, "resident_anonymous_bytes", took);
    dsf_json_add_int(&json, "allowed_bytes", allowed);
    dsf_json_add_num(&json, "percent_of_plan", 100 * (double)took / (double)plan);
    dsf_json_add_int(&json, "resident_file_bytes", j->most.file - j->idle.file);
    dsf_json_add_bool(&json, "within", within);
    dsf_buf_fmt(&text,
                "memory at context %lld, chunk %lld: %lld bytes planned, %lld resident "
                "(anonymous, idle process taken off), %lld allowed: %s",
                (long long)j->engine->opt.context, (long long)j->engine->opt.chunk, (long long)plan,
                (long long)took, (long long)allowed, within ? "within" : "OVER");
    dsf_json_begin(&json, "arena", '[');
    for (int i = 0; i < DSF_ARENAS; i++) {
        const dsf_arena_use *a = &j->arena[i];
        if (!a->base) continue;
        all_exact = all_exact && dsf_arena_met(a, 0);
        dsf_json_begin(&json, NULL, '{');
        dsf_json_add_cstr(&json, "name", a->name);
        dsf_json_add_int(&json, "planned", (int64_t)a->planned);
        dsf_json_add_int(&json, "high_water", (int64_t)a->high);
        dsf_json_add_bool(&json, "exact", dsf_arena_met(a, 0));
        dsf_json_end(&json, '}');
        dsf_buf_fmt(&text, "\n  %-14s %12zu planned %12zu high water%s", a->name, a->planned,
                    a->high, dsf_arena_met(a, 0) ? "" : "  NOT EXACT");
    }
    dsf_json_end(&json, ']');
    if (!within || !all_exact) j->b->missed++;
    return dsf_bench_emit(j->b, &json, &text);
}

dsf_status dsf_bench_memory(dsf_bench *b, const dsf_bench_model_options *o)
{
    job j = {.b = b, .o = o};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(open_run(&j));
    DSF_TRY_OUT(dsf_mem_new(&j.work, (size_t)dsf_engine_vocab(j.engine), sizeof *j.work));
    DSF_TRY_OUT(touch_everything(&j));
    DSF_TRY_OUT(report(&j));
out:
    dsf_session_close(j.session);
    dsf_engine_close(j.engine);
    dsf_mem_free(j.prompt);
    dsf_mem_free(j.work);
    return st;
}
