/* Sparse attention with sink, as written in architecture.md 5.4: the list in blocks of 64, one
 * running maximum, logits and probabilities f32, probabilities rounded to bf16 for the product with
 * V only. */
#include "ops/attn.h"

#include <math.h>

#include "base/num.h"
#include "ops/quant.h"

/* Per worker: the list, its decoded keys [list, d], one head's accumulator [d]. */
typedef struct {
    double *acc;
    dsf_attn_key *key;
    uint16_t *kv; /* bf16 */
} workspace;

typedef struct {
    const dsf_launch *lc;
    const dsf_attn_args *a;
} job;

static size_t align64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

size_t dsf_attn_scratch_ref(const void *args)
{
    const dsf_attn_args *a = args;
    size_t list = (size_t)dsf_attn_list_max(a), d = (size_t)a->q.dim[2];
    return align64(d * sizeof(double)) + align64(list * sizeof(dsf_attn_key)) + list * d * 2;
}

static workspace cut(uint8_t *scratch, const dsf_attn_args *a)
{
    size_t list = (size_t)dsf_attn_list_max(a), d = (size_t)a->q.dim[2];
    workspace w;
    w.acc = (double *)scratch;
    scratch += align64(d * sizeof(double));
    w.key = (dsf_attn_key *)scratch;
    scratch += align64(list * sizeof(dsf_attn_key));
    w.kv = (uint16_t *)scratch;
    return w;
}

static float logit(const uint16_t *q, const uint16_t *k, int64_t d)
{
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += (double)dsf_bf16_to_f32(q[c]) * (double)dsf_bf16_to_f32(k[c]);
    return (float)sum * (float)(1.0 / sqrt((double)d));
}

static void attend_head(uint16_t *out, const uint16_t *q, float sink, const workspace *w,
                        int64_t count, int64_t d)
{
    float max = -1e30f;
    double sum = 0;
    for (int64_t c = 0; c < d; c++) w->acc[c] = 0;
    for (int64_t first = 0; first < count; first += DSF_ATTN_BLOCK) {
        int64_t end = first + DSF_ATTN_BLOCK < count ? first + DSF_ATTN_BLOCK : count;
        float l[DSF_ATTN_BLOCK], new_max = max;
        for (int64_t j = first; j < end; j++) {
            l[j - first] = logit(q, w->kv + j * d, d);
            if (!(l[j - first] <= new_max)) new_max = l[j - first];
        }
        double rescale = (float)exp((double)(max - new_max));
        max = new_max;
        sum *= rescale;
        for (int64_t c = 0; c < d; c++) w->acc[c] *= rescale;
        for (int64_t j = first; j < end; j++) {
            float p = (float)exp((double)(l[j - first] - max));
            double weight = (double)dsf_bf16_to_f32(dsf_f32_to_bf16(p));
            sum += (double)p;
            for (int64_t c = 0; c < d; c++)
                w->acc[c] += weight * (double)dsf_bf16_to_f32(w->kv[j * d + c]);
        }
    }
    sum += (double)(float)exp((double)(sink - max)); /* infinite for an empty list: 0 rows */
    for (int64_t c = 0; c < d; c++) out[c] = dsf_f64_to_bf16(w->acc[c] / sum);
}

static void attend_row(void *arg, int64_t i, int worker)
{
    const job *task = arg;
    const dsf_attn_args *a = task->a;
    int64_t h = a->q.dim[1], d = a->q.dim[2];
    workspace w = cut(task->lc->scratch + (size_t)worker * task->lc->scratch_bytes, a);
    int64_t count = dsf_attn_list(a, i, w.key);
    for (int64_t j = 0; j < count; j++) {
        if (w.key[j].is_main)
            dsf_q4n_unpack(w.kv + j * d, w.key[j].record, d);
        else
            dsf_q8_unpack(w.kv + j * d, w.key[j].record, d);
    }
    for (int64_t head = 0; head < h; head++) {
        int64_t at = (i * h + head) * d;
        attend_head((uint16_t *)a->out.data + at, (const uint16_t *)a->q.data + at,
                    ((const float *)a->sink.data)[head], &w, count, d);
    }
}

dsf_status dsf_attn_ref(const dsf_launch *lc, const void *args)
{
    job task = {lc, args};
    dsf_pool_run(lc->pool, task.a->q.dim[0], attend_row, &task);
    return DSF_OK;
}
