#include "device_frame.h"

#include <string.h>

#include "base/mem.h"
#include "device_shapes.h"

enum { SHARED_FROM = 1 << 30, ALIGN = 256 };

static dsf_tensor *there(const dsf_device_frame *f, int operand)
{
    return dsf_op_operand(f->host.op, f->args, operand);
}

/* init() takes optional operands away by rank 0. */
static bool present(const dsf_device_frame *f, int i)
{
    return f->host.region[i].map && dsf_frame_tensor(&f->host, i)->rank > 0;
}

static bool written_here(dsf_dtype t) { return t == DSF_I32 || t == DSF_I64 || t == DSF_U8; }

dsf_fill_layout dsf_device_layout(const dsf_tensor *t)
{
    static const dsf_fill_values
        any = {DSF_FILL_BYTES, 0, 255, 0},
        e8m0 = {DSF_FILL_BYTES, 119, 123, 0},
        /* groups of a normalised vector: the largest of 32 varies little */
        near = {DSF_FILL_BYTES, 120, 122, 0},
        e4m3_scale = {DSF_FILL_BYTES, 0x28, 0x38, 0}, /* 1/4 .. 1 */
        e4m3 = {DSF_FILL_E4M3, 0, 0, 120}, bf16 = {DSF_FILL_BF16, 0, 0, 1},
        f32 = {DSF_FILL_F32, 0, 0, 0.02f};
    int64_t d = t->dim[t->rank - 1], record = dsf_dtype_bytes(t->dtype, d);
    switch (t->dtype) {
    case DSF_F32:
        return (dsf_fill_layout){f32, f32, record, record};
    case DSF_BF16:
        return (dsf_fill_layout){bf16, bf16, record, record};
    case DSF_E4M3:
        return (dsf_fill_layout){e4m3, e4m3, record, record};
    case DSF_E8M0:
        return (dsf_fill_layout){e8m0, e8m0, record, record};
    case DSF_Q8:
        return (dsf_fill_layout){e4m3, e8m0, d, record};
    case DSF_Q4X:
        return (dsf_fill_layout){any, near, d / 2, record};
    case DSF_Q4N:
        return (dsf_fill_layout){any, e4m3_scale, d / 2, record};
    default:
        return (dsf_fill_layout){any, any, record, record};
    }
}

/* Operand i gets room in the block, which take_block() makes. */
static void own_memory(dsf_device_frame *f, int i, bool own[DSF_FRAME_OPERANDS])
{
    own[i] = true;
    f->bytes += (f->host.region[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static dsf_status take_block(dsf_device_frame *f, const bool own[DSF_FRAME_OPERANDS])
{
    size_t at = 0;
    DSF_TRY(dsf_device_new(f->device, &f->block, f->bytes));
    for (int i = 0; i < f->host.op->n_operands; i++) {
        if (!own[i]) continue;
        f->own[i] = (uint8_t *)f->block + at;
        there(f, i)->data = f->own[i];
        at += (f->host.region[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return DSF_OK;
}

/* Host frame and the copy of its arguments, without addresses. */
static dsf_status open_sizes(dsf_device_frame *f, dsf_device *device, const dsf_op *op,
                             const dsf_case *c)
{
    *f = (dsf_device_frame){.device = device};
    DSF_TRY(dsf_frame_open(&f->host, op, c, false));
    DSF_TRY(dsf_mem_new(&f->args, 1, op->args_size));
    memcpy(f->args, f->host.args, op->args_size);
    for (int i = 0; i < op->n_operands; i++) there(f, i)->data = NULL;
    return DSF_OK;
}

/* Entries of table operand i: the consecutive tensors of the operand called NAME_data. */
static void fill_table(dsf_device_frame *f, int i)
{
    const dsf_op *op = f->host.op;
    size_t n = strlen(op->operand[i].name);
    for (int o = 0; o < op->n_operands; o++) {
        const char *name = op->operand[o].name;
        if (strncmp(name, op->operand[i].name, n) != 0 || strcmp(name + n, "_data") != 0) continue;
        const dsf_tensor *data = there(f, o);
        int64_t *p = dsf_frame_tensor(&f->host, i)->data, stride = dsf_tensor_stride(data);
        for (int64_t e = 0; e < data->dim[0]; e++)
            p[e] = (int64_t)((uintptr_t)data->data + (uintptr_t)(e * stride));
    }
}

static dsf_status fill_all(dsf_device_frame *f, uint64_t seed)
{
    const dsf_op *op = f->host.op;
    void *stream = dsf_device_stream(f->device);
    dsf_device_settle(op, f->host.args, seed);
    for (int i = 0; i < op->n_operands; i++) {
        const dsf_tensor *t = dsf_frame_tensor(&f->host, i);
        if (!f->own[i]) continue;
        if (op->operand[i].dir == DSF_OUT) continue;
        if (t->dtype == DSF_I64) fill_table(f, i);
        if (written_here(t->dtype)) {
            DSF_TRY(dsf_device_put(f->device, f->own[i], t->data, f->host.region[i].bytes));
            continue;
        }
        dsf_fill_layout l = dsf_device_layout(t);
        DSF_TRY(dsf_device_fill(stream, f->own[i], f->host.region[i].bytes, &l,
                                seed * DSF_FRAME_OPERANDS + (uint64_t)i + 1));
    }
    return dsf_device_wait(f->device);
}

static dsf_status open_frame(dsf_device_frame *f, const dsf_device_frame *like)
{
    const dsf_op *op = f->host.op;
    bool own[DSF_FRAME_OPERANDS] = {false};
    for (int i = 0; i < op->n_operands; i++) {
        if (!present(f, i)) continue;
        bool large = f->host.region[i].bytes > SHARED_FROM;
        if (like && (large || op->operand[i].flags & DSF_OPERAND_AUX))
            there(f, i)->data = there(like, i)->data;
        else
            own_memory(f, i, own);
    }
    return take_block(f, own);
}

dsf_status dsf_device_frame_open(dsf_device_frame *f, dsf_device *device, const dsf_op *op,
                                 const dsf_case *c, const dsf_device_frame *like, uint64_t seed)
{
    dsf_status st = open_sizes(f, device, op, c);
    if (st == DSF_OK) st = open_frame(f, like);
    if (st == DSF_OK) st = fill_all(f, seed);
    if (st != DSF_OK) dsf_device_frame_close(f);
    return st;
}

/* rows NULL: the whole operand. */
static dsf_status copy_rows(dsf_device_frame *f, const dsf_device_frame *of, int i,
                            const int64_t *rows)
{
    uint8_t *to = there(f, i)->data;
    const uint8_t *from = there(of, i)->data;
    size_t stride = (size_t)dsf_tensor_stride(there(f, i));
    if (!rows) return dsf_device_copy(f->device, to, from, f->host.region[i].bytes);
    for (int64_t r = 0; r < there(f, i)->dim[0]; r++)
        DSF_TRY(dsf_device_copy(f->device, to + (size_t)r * stride, from + (size_t)rows[r] * stride,
                                stride));
    return DSF_OK;
}

static dsf_status take_rows(dsf_device_frame *f, const dsf_device_frame *of, const int64_t *rows)
{
    const dsf_op *op = f->host.op;
    bool own[DSF_FRAME_OPERANDS] = {false};
    for (int i = 0; i < op->n_operands; i++) {
        if (!present(f, i)) continue;
        if (!dsf_frame_has_rows(&f->host, i) && op->operand[i].dir == DSF_IN)
            *there(f, i) = *there(of, i);
        else
            own_memory(f, i, own);
    }
    DSF_TRY(take_block(f, own));
    for (int i = 0; i < op->n_operands; i++)
        if (own[i] && op->operand[i].dir != DSF_OUT)
            DSF_TRY(copy_rows(f, of, i, dsf_frame_has_rows(&f->host, i) ? rows : NULL));
    return dsf_device_wait(f->device);
}

dsf_status dsf_device_frame_rows(dsf_device_frame *f, const dsf_device_frame *of,
                                 const int64_t *rows, int64_t n)
{
    dsf_case few = of->host.sizes;
    few.v[0] = n;
    dsf_status st = open_sizes(f, of->device, of->host.op, &few);
    if (st == DSF_OK) st = take_rows(f, of, rows);
    if (st != DSF_OK) dsf_device_frame_close(f);
    return st;
}

void dsf_device_frame_close(dsf_device_frame *f)
{
    dsf_device_free(f->device, f->block);
    if (f->device) dsf_frame_close(&f->host);
    dsf_mem_free(f->args);
    *f = (dsf_device_frame){.device = NULL};
}

dsf_status dsf_device_frame_poison(dsf_device_frame *f, int byte)
{
    for (int i = 0; i < f->host.op->n_operands; i++)
        if (f->own[i] && f->host.op->operand[i].dir == DSF_OUT)
            DSF_TRY(dsf_device_set(f->device, f->own[i], byte, f->host.region[i].bytes));
    return DSF_OK;
}

dsf_status dsf_device_frame_get(const dsf_device_frame *f, dsf_frame *to, const int64_t *rows,
                                bool in)
{
    for (int i = 0; i < to->op->n_operands; i++) {
        const dsf_tensor *t = dsf_frame_tensor(to, i);
        if (to->op->operand[i].dir == (in ? DSF_OUT : DSF_IN) || t->rank == 0) continue;
        const uint8_t *from = there(f, i)->data;
        size_t stride = (size_t)dsf_tensor_stride(t);
        if (rows && dsf_frame_has_rows(to, i)) {
            for (int64_t r = 0; r < t->dim[0]; r++)
                DSF_TRY(dsf_device_get(f->device, (uint8_t *)t->data + (size_t)r * stride,
                                       from + (size_t)rows[r] * stride, stride));
        } else {
            DSF_TRY(dsf_device_get(f->device, t->data, from, (size_t)dsf_tensor_bytes(t)));
        }
    }
    return dsf_device_wait(f->device);
}
