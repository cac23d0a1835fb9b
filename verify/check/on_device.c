#include "on_device.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device.h"

/* Guards are as wide as the alignment that the plan gives values, so operands keep theirs. */
enum { GUARD = 256 };
static const uint8_t workspace_guard = 0xC3;

/* The one device of the process, and a block on both sides that grows to the largest frame. */
static struct {
    dsf_device *device;
    bool apart;
    uint8_t *there, *here, *sent;
    size_t bytes;
} side;

dsf_status dsf_on_device_open(int index, bool apart)
{
    side.apart = apart;
    return dsf_device_open(&side.device, index);
}

bool dsf_on_device(void) { return side.device != NULL; }

void dsf_on_device_close(void)
{
    dsf_device_unpin(side.device, side.here);
    dsf_mem_free(side.sent);
    dsf_device_close(side.device);
    memset(&side, 0, sizeof side);
}

static dsf_status grow(size_t bytes)
{
    if (bytes <= side.bytes) return DSF_OK;
    bytes += bytes / 2;
    dsf_device_free(side.device, side.there);
    dsf_device_unpin(side.device, side.here);
    side.there = side.here = NULL;
    side.bytes = 0;
    void *p = NULL;
    DSF_TRY(dsf_device_new(side.device, &p, bytes));
    side.there = p;
    DSF_TRY(dsf_device_pin(side.device, &p, bytes));
    side.here = p;
    DSF_TRY(dsf_mem_grow(&side.sent, bytes, 1));
    side.bytes = bytes;
    return DSF_OK;
}

/* Where the operands lie in the block; the workspace is the last. */
typedef struct {
    size_t at[DSF_FRAME_OPERANDS + 1], bytes, workspace;
    uint8_t *alone[DSF_FRAME_OPERANDS]; /* apart: the operand's own allocation */
} layout;

static layout lay_out(const dsf_variant *v, const dsf_frame *f)
{
    layout l = {.bytes = GUARD};
    for (int i = 0; i < f->op->n_operands; i++) {
        l.at[i] = l.bytes;
        if (f->region[i].map) l.bytes += (f->region[i].bytes + 2 * GUARD - 1) / GUARD * GUARD;
    }
    l.workspace = v->scratch ? v->scratch(f->args) : 0;
    l.at[DSF_FRAME_OPERANDS] = l.bytes;
    l.bytes += (l.workspace + 2 * GUARD - 1) / GUARD * GUARD;
    return l;
}

static uint8_t guard_byte(size_t i) { return (uint8_t)(i * 37 + 11); }

static uint8_t *address(const layout *l, int operand)
{
    return l->alone[operand] ? l->alone[operand] : side.there + l->at[operand];
}

/* A table entry that leads into an operand of the host leads to the same place over there. */
static void translate(const dsf_frame *f, const layout *l, int operand)
{
    int64_t *p = (int64_t *)(void *)(side.here + l->at[operand]);
    for (size_t i = 0; i < f->region[operand].bytes / sizeof *p; i++)
        for (int o = 0; o < f->op->n_operands; o++) {
            uintptr_t base = (uintptr_t)f->region[o].data, at = (uintptr_t)p[i];
            if (!(f->op->operand[o].flags & DSF_OPERAND_AUX)) continue;
            if (at < base || at >= base + f->region[o].bytes) continue;
            p[i] = (int64_t)((uintptr_t)address(l, o) + (at - base));
            break;
        }
}

static dsf_status send(const dsf_frame *f, layout *l)
{
    for (size_t i = 0; i < l->bytes; i++) side.here[i] = guard_byte(i);
    for (int i = 0; i < f->op->n_operands; i++) {
        if (!f->region[i].map) continue;
        memcpy(side.here + l->at[i], f->region[i].data, f->region[i].bytes);
        void *p = NULL;
        if (side.apart) DSF_TRY(dsf_device_new(side.device, &p, f->region[i].bytes));
        l->alone[i] = p;
    }
    for (int i = 0; i < f->op->n_operands; i++)
        if (f->region[i].map && f->op->operand[i].dtype == DSF_I64) translate(f, l, i);
    memset(side.here + l->at[DSF_FRAME_OPERANDS], 0xFF, l->workspace);
    memset(side.here + l->at[DSF_FRAME_OPERANDS] + l->workspace, workspace_guard,
           l->bytes - l->at[DSF_FRAME_OPERANDS] - l->workspace);
    memcpy(side.sent, side.here, l->bytes);
    DSF_TRY(dsf_device_put(side.device, side.there, side.here, l->bytes));
    for (int i = 0; i < f->op->n_operands && side.apart; i++)
        if (l->alone[i])
            DSF_TRY(dsf_device_copy(side.device, l->alone[i], side.there + l->at[i],
                                    f->region[i].bytes));
    return DSF_OK;
}

static dsf_status fetch(const dsf_frame *f, const layout *l)
{
    for (int i = 0; i < f->op->n_operands && side.apart; i++)
        if (l->alone[i])
            DSF_TRY(dsf_device_copy(side.device, side.there + l->at[i], l->alone[i],
                                    f->region[i].bytes));
    DSF_TRY(dsf_device_get(side.device, side.here, side.there, l->bytes));
    return dsf_device_wait(side.device);
}

/* Results into the frame. */
static void unpack(dsf_frame *f, const layout *l)
{
    for (int i = 0; i < f->op->n_operands; i++) {
        const dsf_region *r = &f->region[i];
        const uint8_t *back = side.here + l->at[i], *sent = side.sent + l->at[i];
        if (!r->map) continue;
        bool table = f->op->operand[i].dtype == DSF_I64; /* holds addresses of over there */
        if (!table || memcmp(back, sent, r->bytes) != 0) memcpy(r->data, back, r->bytes);
    }
}

/* Every byte that belongs to no operand and not to the workspace must be as it was sent. */
static void check_guards(const dsf_frame *frame, const layout *l, dsf_finding *f)
{
    size_t at = 0;
    for (int i = 0; i <= DSF_FRAME_OPERANDS; i++) {
        bool last = i == DSF_FRAME_OPERANDS;
        if (!last && (i >= frame->op->n_operands || !frame->region[i].map)) continue;
        for (; at < l->at[i]; at++)
            if (side.here[at] != side.sent[at]) goto breached;
        at += last ? l->workspace : frame->region[i].bytes;
    }
    while (at < l->bytes && side.here[at] == side.sent[at]) at++;
    if (at == l->bytes) return;
breached:
    f->rule = DSF_RULE_GUARD;
    f->operand = -1;
    const char *name = "the workspace";
    size_t start = l->at[DSF_FRAME_OPERANDS], bytes = l->workspace;
    for (int i = frame->op->n_operands - 1; i >= 0 && at < start; i--) {
        if (!frame->region[i].map) continue;
        f->operand = i;
        name = frame->op->operand[i].name;
        start = l->at[i], bytes = frame->region[i].bytes;
    }
    (void)snprintf(f->note, sizeof f->note, "byte %lld of %s, which has %zu",
                   (long long)at - (long long)start, name, bytes);
}

/* The operands' own pointers are put back afterwards. An output that is written over an input has
 * the input's. */
static dsf_status launch(const dsf_variant *v, const dsf_frame *f, const layout *l)
{
    void *host[DSF_FRAME_OPERANDS];
    const dsf_launch lc = {.scratch = side.there + l->at[DSF_FRAME_OPERANDS],
                           .scratch_bytes = l->workspace,
                           .stream = dsf_device_stream(side.device)};
    for (int i = 0; i < f->op->n_operands; i++) host[i] = dsf_frame_tensor(f, i)->data;
    for (int i = 0; i < f->op->n_operands; i++)
        for (int o = 0; o < f->op->n_operands; o++)
            if (host[i] && f->region[o].map && host[i] == f->region[o].data)
                dsf_frame_tensor(f, i)->data = address(l, o);
    dsf_status st = v->run(&lc, f->args);
    for (int i = 0; i < f->op->n_operands; i++) dsf_frame_tensor(f, i)->data = host[i];
    return st;
}

dsf_status dsf_on_device_run(const dsf_variant *v, dsf_frame *frame, dsf_status *ran,
                             dsf_finding *f)
{
    layout l = lay_out(v, frame);
    DSF_TRY(grow(l.bytes));
    DSF_TRY(send(frame, &l));
    *ran = launch(v, frame, &l);
    if (*ran == DSF_OK) *ran = fetch(frame, &l);
    for (int i = 0; i < DSF_FRAME_OPERANDS; i++) dsf_device_free(side.device, l.alone[i]);
    if (*ran != DSF_OK) return DSF_OK;
    unpack(frame, &l);
    check_guards(frame, &l, f);
    return DSF_OK;
}
