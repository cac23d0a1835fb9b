#include "serve/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "synth.h"

static void fill_defaults(dsf_options *o, const dsf_config *c)
{
    if (o->context == 0) o->context = c->max_seq_len < 4096 ? c->max_seq_len : 4096;
    if (o->slots == 0) o->slots = 1;
    if (o->chunk == 0) o->chunk = 256;
    if (o->chunk > o->context && o->slots == 1) o->chunk = o->context;
    if (o->rewind == 0) o->rewind = 16;
    if (o->threads == 0) o->threads = dsf_pool_processors();
    if (o->ranks == 0) o->ranks = 1;
}

static dsf_status check_options(const dsf_options *o, const dsf_config *c)
{
    if (o->context < 1 || o->context > c->max_seq_len)
        return DSF_FAIL(DSF_EINVAL, "context %lld: the model allows 1 to %lld positions",
                        (long long)o->context, (long long)c->max_seq_len);
    if (o->slots < 1 || o->slots > 65536 || o->chunk < 1 || o->chunk > 1 << 20 || o->rewind < 0 ||
        o->rewind > 65536)
        return DSF_FAIL(DSF_EINVAL,
                        "slots %lld (1..65536), chunk %lld (1..1048576), rewind %lld (0..65536)",
                        (long long)o->slots, (long long)o->chunk, (long long)o->rewind);
    if (o->threads < 1 || o->threads > 1024)
        return DSF_FAIL(DSF_EINVAL, "%d threads: 1 to 1024", o->threads);
    if (o->ranks < 1 || o->ranks > 4096 || (o->ranks > 1 && !dsf_plan_on_device(o->variants)))
        return DSF_FAIL(DSF_EINVAL, "%d ranks: 1 to 4096 devices, with backend cuda", o->ranks);
    if (o->ranks > 1 && !o->plan_only)
        return DSF_FAIL(DSF_ENOTSUP, "running on %d devices is not built: 1", o->ranks);
    if (o->all_logits && o->prefill != DSF_PREFILL_EXACT)
        return DSF_FAIL(
            DSF_EINVAL,
            "logits of every row need prefill `exact`: cone and replay do not compute them");
    return DSF_OK;
}

_Static_assert(DSF_EXEC_SETS == DSF_ROWS_Q(DSF_MAX_LAYERS), "two row sets a layer");

static bool give_embed(void *ud, dsf_tap tap)
{
    (void)ud;
    return tap.id == DSF_TAP_EMBED;
}

static dsf_status make_plan(dsf_engine *e, dsf_plan **out, bool draft)
{
    const dsf_options *o = &e->opt;
    const dsf_plan_size size = {.rows = draft ? e->load.config.dspark_block_size : o->chunk,
                                .heads = o->all_logits ? o->chunk : o->slots,
                                .slots = o->slots,
                                .context = o->context,
                                .rewind = o->rewind};
    unsigned machine = dsf_machine() | (o->plan_only ? (unsigned)DSF_PLAN_ONLY : 0);
    bool device = dsf_plan_on_device(o->variants);
    DSF_TRY(dsf_plan_open(out, &size, e->load.config.n_layers));
    if (o->given_embed && !draft) (*out)->given = give_embed;
    DSF_TRY(draft ? dsf_model_build_draft(*out, &e->load.model)
                  : dsf_model_build(*out, &e->load.model));
    DSF_TRY(dsf_plan_prune(*out, o->sink, NULL, NULL));
    if (device && !o->separate)
        DSF_TRY(dsf_plan_fuse(*out, dsf_plan_target(machine, o->variants), o->variants));
    DSF_TRY(dsf_plan_choose(*out, machine, o->variants));
    return dsf_plan_place(*out);
}

/* The weights that both plans read, by name and size: nothing is allocated yet. */
static dsf_status plan_weights(dsf_engine *e)
{
    if (!(e->plan->target & DSF_NEEDS_SM90)) return DSF_OK;
    DSF_TRY(dsf_place_open(&e->place, e->device, e->opt.ranks));
    DSF_TRY(dsf_place_add(e->place, e->plan));
    return e->draft_plan ? dsf_place_add(e->place, e->draft_plan) : DSF_OK;
}

dsf_status dsf_engine_plans(dsf_engine *e)
{
    DSF_TRY(make_plan(e, &e->plan, false));
    return e->load.config.n_mtp_layers > 0 ? make_plan(e, &e->draft_plan, true) : DSF_OK;
}

static dsf_status make_plans(dsf_engine *e)
{
    e->load.model.unfused = e->opt.unfused;
    e->load.model.sampled = e->opt.sampled;
    DSF_TRY(dsf_engine_plans(e));
    DSF_TRY(plan_weights(e));
    DSF_TRY(dsf_memory_plan(e, &e->budget));
    return e->opt.plan_only ? DSF_OK : dsf_memory_check(e, &e->budget);
}

dsf_status dsf_engine_execs(const dsf_engine *e, dsf_exec *exec, dsf_exec *draft, dsf_budget *count)
{
    dsf_exec_setup setup = {.pool = e->pool,
                            .timed = e->opt.timed,
                            .device = e->device,
                            .place = e->place,
                            .graphs = !e->opt.eager,
                            .count = count,
                            .workers = e->opt.threads};
    DSF_TRY(dsf_exec_open(exec, e->plan, &setup));
    setup.cache_from = exec;
    setup.owner = "draft";
    return e->draft_plan ? dsf_exec_open(draft, e->draft_plan, &setup) : DSF_OK;
}

/* A tensor that only has a name is made on the device; constants of the model itself are copied. */
static dsf_status make_weight(void *ud, dsf_device *d, void *there, const dsf_placed *t)
{
    const dsf_engine *e = ud;
    int64_t name = dsf_weights_reserved(&e->load.weights, t->host);
    if (name < 0) return dsf_device_put(d, there, t->host, t->bytes);
    return dsf_synth_there(d, there, t->bytes, t->dtype, t->width,
                           e->opt.synthetic->seed + (uint64_t)name);
}

static dsf_status take_memory(dsf_engine *e)
{
    DSF_TRY(dsf_pool_open(&e->pool, e->opt.threads));
    if (e->opt.synthetic)
        dsf_weights_fill_synthetic(&e->load.weights, e->opt.synthetic->seed, e->pool);
    if (e->place) DSF_TRY(dsf_place_load(e->place, e->opt.synthetic ? make_weight : NULL, e));
    DSF_TRY(dsf_engine_execs(e, &e->exec, &e->draft, NULL));
    DSF_TRY(dsf_mem_new(&e->slot_taken, (size_t)e->opt.slots, sizeof *e->slot_taken));
    for (int i = 0; i < DSF_N_INPUTS; i++) e->in[i] = dsf_exec_input(&e->exec, (dsf_input)i, 0);
    for (int i = 0; i < e->load.config.n_engram; i++)
        e->engram[i] = dsf_exec_input(&e->exec, DSF_INPUT_ENGRAM, i);
    if (!e->opt.given_embed) return DSF_OK;
    DSF_TRY(dsf_mem_new(&e->embed, (size_t)e->opt.chunk * (size_t)e->load.config.dim,
                        sizeof *e->embed));
    return dsf_exec_give(&e->exec, (dsf_tap){DSF_TAP_EMBED, -1}, e->embed, e->opt.chunk);
}

static dsf_status open_all(dsf_engine *e)
{
    int n = 0;
    while (e->opt.accept_config && e->opt.accept_config[n]) n++;
    const dsf_config_accept accept = {e->opt.accept_config, n};
    bool device = dsf_plan_on_device(e->opt.variants);
    if (e->opt.synthetic && !device && !e->opt.plan_only)
        return DSF_FAIL(DSF_ENOTSUP, "synthetic weights are made on a CUDA device");
    if (e->opt.synthetic && e->opt.synthetic->planned && !e->opt.plan_only)
        return DSF_FAIL(DSF_EINVAL, "a config without a checkpoint: only for a plan");
    if (device && !e->opt.plan_only) DSF_TRY(dsf_device_open(&e->device, e->opt.device));
    if (e->opt.synthetic)
        DSF_TRY(dsf_load_synthetic(&e->load, e->opt.synthetic));
    else
        DSF_TRY(dsf_load_open(&e->load, e->opt.model, &accept));
    fill_defaults(&e->opt, &e->load.config);
    DSF_TRY(check_options(&e->opt, &e->load.config));
    DSF_TRY(make_plans(e));
    return e->opt.plan_only ? DSF_OK : take_memory(e);
}

dsf_status dsf_engine_open(dsf_engine **out, const dsf_options *opt)
{
    dsf_engine *e = NULL;
    if (!opt->model && !opt->synthetic) return DSF_FAIL(DSF_EINVAL, "no model folder given");
    DSF_TRY(dsf_mem_new(&e, 1, sizeof *e));
    e->opt = *opt;
    dsf_status st = open_all(e);
    if (st != DSF_OK) {
        dsf_engine_close(e);
        return dsf_error_pass(st, DSF_HERE);
    }
    dsf_log_line(&e->opt.log, DSF_LOG_INFO, "open model=%s steps=%d scratch=%zu caches=%zu",
                 opt->model ? opt->model : "(synthetic)", e->plan->n_steps, e->plan->scratch_bytes,
                 e->plan->cache_bytes);
    *out = e;
    return DSF_OK;
}

void dsf_engine_close(dsf_engine *e)
{
    if (!e) return;
    dsf_exec_close(&e->draft);
    dsf_exec_close(&e->exec);
    dsf_plan_close(e->draft_plan);
    dsf_plan_close(e->plan);
    dsf_place_close(e->place);
    dsf_device_close(e->device);
    dsf_pool_close(e->pool);
    dsf_load_close(&e->load);
    dsf_mem_free(e->slot_taken);
    dsf_mem_free(e->embed);
    dsf_mem_free(e);
}

int64_t dsf_engine_vocab(const dsf_engine *e) { return e->load.config.vocab_size; }
int64_t dsf_engine_context(const dsf_engine *e) { return e->opt.context; }
int32_t dsf_engine_eos(const dsf_engine *e) { return e->load.config.eos_id; }

dsf_status dsf_engine_describe(const dsf_engine *e, bool steps, bool json, char **text)
{
    dsf_buf b = {.max = 0};
    if (json)
        dsf_budget_json(&e->budget, &b);
    else
        dsf_budget_print(&e->budget, &b);
    if (steps && !json) dsf_plan_print(e->plan, &b);
    dsf_status st = dsf_buf_status(&b);
    if (st != DSF_OK) {
        dsf_buf_free(&b);
        return dsf_error_pass(st, DSF_HERE);
    }
    *text = b.data;
    return DSF_OK;
}

void dsf_text_free(char *text) { dsf_mem_free(text); }

dsf_status dsf_engine_step(dsf_engine *e, dsf_session *const *batch, size_t n,
                           const dsf_tap_sink *sink)
{
    return dsf_batch_run(e, batch, n, sink);
}
