#include "run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "on_device.h"

enum { SCRATCH_GAP = 64 }; /* guard between the scratch of two workers */
static const uint8_t scratch_guard = 0xC3;

/* The fault handler has no other way to reach the run that faulted. One check at a time. */
static sigjmp_buf fault_exit;
static volatile uintptr_t fault_address;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    fault_address = (uintptr_t)info->si_addr;
    siglongjmp(fault_exit, sig);
}

/* Runs and returns true, or false when a fault ended it. */
static bool run_guarded(const dsf_variant *v, const dsf_launch *lc, const void *args,
                        dsf_status *st)
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, segv, bus;
    (void)sigemptyset(&act.sa_mask);
    (void)sigaction(SIGSEGV, &act, &segv);
    (void)sigaction(SIGBUS, &act, &bus);
    bool whole = sigsetjmp(fault_exit, 1) == 0;
    if (whole) *st = v->run(lc, args);
    (void)sigaction(SIGSEGV, &segv, NULL);
    (void)sigaction(SIGBUS, &bus, NULL);
    return whole;
}

/* The operand nearest to the faulting address, and how far from it. */
static void name_fault(const dsf_frame *frame, const dsf_region *scratch, dsf_finding *f)
{
    const char *name = "the arguments";
    int64_t best = INT64_MAX, distance = 0, bytes = 0;
    for (int i = 0; i <= frame->op->n_operands; i++) {
        const dsf_region *r = i < frame->op->n_operands ? &frame->region[i] : scratch;
        if (!r->map) continue;
        int64_t at = (int64_t)(fault_address - (uintptr_t)r->data);
        int64_t off = at < 0 ? -at : at - (int64_t)r->bytes;
        if (off < 0 || off >= best) continue;
        best = off;
        distance = at;
        bytes = (int64_t)r->bytes;
        name = i < frame->op->n_operands ? frame->op->operand[i].name : "scratch";
        f->operand = i < frame->op->n_operands ? i : -1;
    }
    f->rule = DSF_RULE_FAULT;
    (void)snprintf(f->note, sizeof f->note, "address %lld of %s, which has %lld bytes",
                   (long long)distance, name, (long long)bytes);
}

typedef struct {
    dsf_region region;
    size_t per_worker, stride;
    int workers;
} scratch_space;

static dsf_status open_scratch(scratch_space *s, const dsf_variant *v, const void *args,
                               int workers)
{
    s->workers = workers;
    s->per_worker = v->scratch ? v->scratch(args) : 0;
    s->stride = (s->per_worker + 63) / 64 * 64 + SCRATCH_GAP;
    DSF_TRY(dsf_region_open(&s->region, s->stride * (size_t)workers));
    memset(s->region.data, scratch_guard, s->region.bytes);
    for (int w = 0; w < workers; w++)
        memset(s->region.data + s->stride * (size_t)w, 0xFF, s->per_worker);
    return DSF_OK;
}

/* Worker whose gap was written to, or -1. */
static int scratch_breached(const scratch_space *s)
{
    for (int w = 0; w < s->workers; w++)
        for (size_t i = s->per_worker; i < s->stride; i++)
            if (s->region.data[s->stride * (size_t)w + i] != scratch_guard) return w;
    return -1;
}

static void inspect(const dsf_frame *frame, const scratch_space *scratch, dsf_finding *f)
{
    int64_t distance = 0;
    int worker = scratch_breached(scratch);
    f->operand = dsf_frame_breached(frame, &distance);
    if (f->operand >= 0 || worker >= 0) {
        f->rule = DSF_RULE_GUARD;
        if (f->operand < 0)
            (void)snprintf(f->note, sizeof f->note, "behind the %zu bytes of scratch of worker %d",
                           scratch->per_worker, worker);
        else
            (void)snprintf(f->note, sizeof f->note, "byte %lld of %s, which has %zu",
                           (long long)distance, frame->op->operand[f->operand].name,
                           frame->region[f->operand].bytes);
        return;
    }
    f->operand = dsf_frame_input_changed(frame);
    if (f->operand >= 0) f->rule = DSF_RULE_INPUT;
}

static void tell_status(dsf_finding *f)
{
    f->rule = DSF_RULE_STATUS;
    (void)snprintf(f->note, sizeof f->note, "%s", dsf_error_message());
}

static dsf_status run_on_device(const dsf_variant *v, dsf_frame *frame, uint8_t poison,
                                dsf_finding *f)
{
    const scratch_space none = {0};
    dsf_status ran = DSF_OK;
    dsf_frame_seal(frame, poison);
    DSF_TRY(dsf_on_device_run(v, frame, &ran, f));
    if (ran != DSF_OK)
        tell_status(f);
    else if (f->rule == DSF_RULE_NONE)
        inspect(frame, &none, f);
    return DSF_OK;
}

dsf_status dsf_run_frame(const dsf_variant *v, dsf_frame *frame, uint8_t poison, dsf_pool *pool,
                         dsf_finding *f)
{
    scratch_space scratch = {0};
    dsf_status ran = DSF_OK;
    if (v->needs & DSF_NEEDS_SM90) return run_on_device(v, frame, poison, f);
    DSF_TRY(open_scratch(&scratch, v, frame->args, dsf_pool_threads(pool)));
    dsf_launch lc = {.pool = pool, .scratch = scratch.region.data, .scratch_bytes = scratch.stride};
    dsf_frame_seal(frame, poison);
    if (!run_guarded(v, &lc, frame->args, &ran)) {
        name_fault(frame, &scratch.region, f);
    } else if (ran != DSF_OK) {
        tell_status(f);
    } else {
        inspect(frame, &scratch, f);
    }
    dsf_region_close(&scratch.region);
    return DSF_OK;
}
