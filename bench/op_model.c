/* Elements of an fp8 product, recomputed as the tensor core adds (ops/fp8_sum.h): the same bits, if
 * the kernel takes blocks of 32 in ascending order, each from zero and added by an FMA. */
#include <math.h>

#include "base/mem.h"
#include "device_bench.h"
#include "ops/fp8_sum.h"
#include "ops/linear.h"
#include "ops/moe.h"

enum { COLUMNS = 64 };

/* One element's operands, on the host. */
typedef struct {
    uint8_t *x, *w, *s; /* Q8 record of k channels; k codes of e4m3; k / 32 scales */
    int64_t k;
} element;

static float chain(const element *e)
{
    float acc = 0;
    for (int64_t b = 0; b < e->k / 32; b++) {
        float scale = dsf_e8m0_to_f32(e->x[e->k + b]) * dsf_e8m0_to_f32(e->s[b]);
        acc = fmaf(dsf_fp8_sum(e->x + 32 * b, e->w + 32 * b, 32), scale, acc);
    }
    return acc;
}

/* e2m1 pairs in place of e4m3 codes: the last k / 2 bytes of w hold them. */
static void widen(element *e)
{
    const uint8_t *pair = e->w + e->k / 2;
    for (int64_t c = 0; c < e->k; c++)
        e->w[c] = dsf_f32_to_e4m3(dsf_e2m1_to_f32(pair[c / 2] >> 4 * (c & 1) & 15));
}

static dsf_status get(const dsf_bench_device *d, void *to, const dsf_tensor *from, int64_t at,
                      int64_t bytes)
{
    return dsf_device_get(d->device, to, (const uint8_t *)from->data + at, (size_t)bytes);
}

static dsf_status take_g8(const dsf_bench_device *d, const dsf_linear_g8_args *a, int64_t row,
                          int64_t column, element *e)
{
    DSF_TRY(get(d, e->x, &a->x, row * dsf_tensor_stride(&a->x), dsf_tensor_stride(&a->x)));
    DSF_TRY(get(d, e->w, &a->w, column * e->k, e->k));
    DSF_TRY(get(d, e->s, &a->s, column / 32 * (e->k / 32), e->k / 32));
    return dsf_device_wait(d->device);
}

/* column: slot of the row's experts and output channel together. */
static dsf_status take_down(const dsf_bench_device *d, const dsf_experts_down_args *a, int64_t row,
                            int64_t column, element *e)
{
    int64_t slots = a->out.dim[1], channels = a->out.dim[2], slot = column / channels;
    int64_t record = dsf_dtype_bytes(DSF_Q8, e->k), channel = column % channels;
    int32_t id = 0;
    DSF_TRY(get(d, &id, &a->ids, (row * slots + slot) * 4, 4));
    DSF_TRY(dsf_device_wait(d->device));
    DSF_TRY(get(d, e->x, &a->h, (row * slots + slot) * record, record));
    int64_t at = (int64_t)id * channels + channel;
    DSF_TRY(get(d, e->w + e->k / 2, &a->w2_data, at * (e->k / 2), e->k / 2));
    DSF_TRY(get(d, e->s, &a->s2_data, at * (e->k / 32), e->k / 32));
    DSF_TRY(dsf_device_wait(d->device));
    widen(e);
    return DSF_OK;
}

static dsf_status compare(const dsf_bench_device *d, const dsf_device_frame *f,
                          const dsf_frame *got, const int64_t *rows, element *e,
                          dsf_device_check *c)
{
    bool g8 = f->host.op == &dsf_op_linear_g8;
    const dsf_tensor *out = dsf_frame_tensor(got, 0);
    int64_t width = dsf_tensor_stride(out) / 2;
    for (int64_t r = 0; r < out->dim[0]; r++)
        for (int64_t i = 0; i < COLUMNS; i++) {
            int64_t column = i * (width - 1) / (COLUMNS - 1), row = rows ? rows[r] : r;
            DSF_TRY(g8 ? take_g8(d, f->args, row, column, e)
                       : take_down(d, f->args, row, column, e));
            uint16_t want = dsf_f32_to_bf16(chain(e));
            c->model_equal += want == ((const uint16_t *)out->data)[r * width + column];
            c->model_elements++;
        }
    return DSF_OK;
}

dsf_status dsf_bench_device_model(const dsf_bench_device *d, const dsf_variant *v,
                                  const dsf_device_frame *f, const dsf_frame *got,
                                  const int64_t *rows, dsf_device_check *c)
{
    const dsf_op *op = f->host.op;
    element e = {.x = NULL};
    if (!(v->needs & DSF_FP8_SUM)) return DSF_OK;
    if (op == &dsf_op_linear_g8)
        e.k = ((const dsf_linear_g8_args *)f->args)->x.dim[1];
    else if (op == &dsf_op_experts_down)
        e.k = ((const dsf_experts_down_args *)f->args)->h.dim[2];
    else
        return DSF_OK;
    dsf_status st = dsf_mem_new(&e.x, (size_t)e.k * 2, 1);
    if (st == DSF_OK) st = dsf_mem_new(&e.w, (size_t)e.k, 1);
    if (st == DSF_OK) st = dsf_mem_new(&e.s, (size_t)e.k, 1);
    if (st == DSF_OK) st = compare(d, f, got, rows, &e, c);
    dsf_mem_free(e.x);
    dsf_mem_free(e.w);
    dsf_mem_free(e.s);
    return st;
}
