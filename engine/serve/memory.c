/* The memory plan: what the engine will take, by name and formula. Arenas and caches are counted by
 * the code that takes them (exec/space.h). */
#include <string.h>
#include <unistd.h>

#include "model/contract.h"
#include "serve/engine.h"

/* The checkpoint as it is mapped, or what stands for it. */
static void plan_checkpoint(const dsf_engine *e, dsf_budget *b)
{
    const dsf_options *o = &e->opt;
    const dsf_config *c = &e->load.config;
    int64_t bytes[DSF_N_PARTS], tensors[DSF_N_PARTS], sum = 0;
    dsf_contract_parts(c, bytes, tensors);
    if (o->synthetic && !o->synthetic->planned) {
        dsf_budget_add(b, "Engram tables", dsf_contract_share(c, bytes, DSF_PART_TABLES, o->ranks),
                       "made from a seed%s", o->ranks > 1 ? ", the largest share" : "");
        return;
    }
    if (o->ranks == 1) {
        dsf_budget_add_file(b, "checkpoint", e->load.weights.mapped_bytes);
        return;
    }
    for (int i = 0; i < DSF_N_PARTS; i++) sum += dsf_contract_share(c, bytes, i, o->ranks);
    dsf_budget_add_kind(b, DSF_BUDGET_FILE, "checkpoint", sum, "the largest of %d shares",
                        o->ranks);
}

static void plan_host(const dsf_engine *e, dsf_budget *b)
{
    const dsf_options *o = &e->opt;
    const dsf_config *c = &e->load.config;
    long long slots = o->slots, ctx = o->context, t = o->chunk;
    size_t heap = dsf_plan_heap(e->plan) + (e->draft_plan ? dsf_plan_heap(e->draft_plan) : 0);
    dsf_budget_add(b, "plans", (int64_t)heap, "steps, values and arguments of %d plans",
                   e->draft_plan ? 2 : 1);
    dsf_budget_add(b, "weight tables", e->load.weights.table_bytes, "views and expert pointers");
    dsf_budget_add(b, "token classes", e->load.classes ? 4 * c->vocab_size : 0, "vocab %lld x 4 B",
                   (long long)c->vocab_size);
    int64_t row = 4 + 1 + (o->given_embed ? 2LL * c->dim : 0);
    dsf_budget_add(b, "sessions", slots * ctx * row + (o->given_embed ? 2 * t * c->dim : 0),
                   "slots %lld x context %lld x %lld B", slots, ctx, (long long)row);
}

/* What no code of this version decides. */
static void plan_absent(const dsf_engine *e, dsf_budget *b)
{
    dsf_budget_add_absent(b, DSF_BUDGET_DEVICE, "driver",
                          "not planned: context and kernels, what the driver takes for itself");
    b->phase = DSF_PHASE_COMMUNICATION;
    dsf_budget_add_absent(
        b, DSF_BUDGET_DEVICE, "communication",
        e->opt.ranks > 1 ? "absent: no code moves bytes between devices, so none decides a size"
                         : "absent: one device sends nothing");
}

dsf_status dsf_memory_plan(const dsf_engine *e, dsf_budget *b)
{
    dsf_exec exec = {.plan = NULL}, draft = {.plan = NULL};
    *b = (dsf_budget){.n = 0};
    if (e->place)
        dsf_budget_add_kind(b, DSF_BUDGET_DEVICE, "weights", (int64_t)dsf_place_bytes(e->place),
                            "what the plans read, each tensor at 256 B%s",
                            e->opt.ranks > 1 ? "; experts of one rank, the largest share" : "");
    dsf_status st = dsf_engine_execs(e, &exec, &draft, b);
    dsf_exec_close(&draft);
    dsf_exec_close(&exec);
    b->phase = DSF_PHASE_OPEN;
    plan_host(e, b);
    plan_checkpoint(e, b);
    if (dsf_memory_on_device(e)) plan_absent(e, b);
    return st;
}

int64_t dsf_memory_total(const dsf_engine *e, const dsf_budget *b)
{
    if (dsf_memory_on_device(e)) return dsf_budget_total(b, DSF_BUDGET_DEVICE);
    return dsf_budget_total(b, DSF_BUDGET_HOST) + dsf_budget_total(b, DSF_BUDGET_PINNED);
}

int64_t dsf_memory_machine(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

static dsf_status too_much(const dsf_engine *e, const dsf_budget *b, const char *where,
                           int64_t want, int64_t have)
{
    dsf_buf t = {.max = 0};
    dsf_budget_print(b, &t);
    dsf_status st = DSF_FAIL(
        DSF_ENOMEM, "context %lld, %lld slots, chunk %lld: %lld bytes planned, the %s has %lld\n%s",
        (long long)e->opt.context, (long long)e->opt.slots, (long long)e->opt.chunk,
        (long long)want, where, (long long)have, t.data ? t.data : "");
    dsf_buf_free(&t);
    return st;
}

dsf_status dsf_memory_check(const dsf_engine *e, const dsf_budget *b)
{
    int64_t have = dsf_memory_machine();
    int64_t want = dsf_budget_total(b, DSF_BUDGET_HOST) + dsf_budget_total(b, DSF_BUDGET_PINNED);
    if (want > have) return too_much(e, b, "machine", want, have);
    if (!e->device) return DSF_OK;
    want = dsf_budget_total(b, DSF_BUDGET_DEVICE);
    DSF_TRY(dsf_device_memory(e->device, &have));
    return want > have ? too_much(e, b, "device", want, have) : DSF_OK;
}
