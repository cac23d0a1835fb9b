/* Hyper-connections, architecture.md 4. Sums, sigmoids and the Sinkhorn iterations in double, one
 * rounding at each output. */
#include "ops/hc.h"

#include "base/num.h"

enum { STREAMS = 4 };

static void start_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_start_args *a = arg;
    int64_t d = a->e.dim[1];
    const uint16_t *e = (const uint16_t *)a->e.data + i * d;
    float *premix = (float *)a->premix.data + i * STREAMS;
    for (int k = 0; k < STREAMS; k++) {
        memcpy((uint16_t *)a->x.data + (i * STREAMS + k) * d, e, (size_t)d * sizeof *e);
        premix[k] = k == 0 ? 1.0f : 0.0f;
    }
}

dsf_status dsf_hc_start_ref(const dsf_launch *lc, const void *args)
{
    dsf_hc_start_args a = *(const dsf_hc_start_args *)args;
    dsf_pool_run(lc->pool, a.e.dim[0], start_row, &a);
    return DSF_OK;
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/* Each row of c over its second index. */
static void softmax_rows(double c[STREAMS][STREAMS], double eps)
{
    for (int j = 0; j < STREAMS; j++) {
        double most = c[j][0], sum = 0;
        for (int k = 1; k < STREAMS; k++) most = fmax(most, c[j][k]);
        for (int k = 0; k < STREAMS; k++) sum += c[j][k] = exp(c[j][k] - most);
        for (int k = 0; k < STREAMS; k++) c[j][k] = c[j][k] / sum + eps;
    }
}

static void normalise_rows(double c[STREAMS][STREAMS], double eps)
{
    for (int j = 0; j < STREAMS; j++) {
        double sum = c[j][0] + c[j][1] + c[j][2] + c[j][3] + eps;
        for (int k = 0; k < STREAMS; k++) c[j][k] /= sum;
    }
}

static void normalise_columns(double c[STREAMS][STREAMS], double eps)
{
    for (int k = 0; k < STREAMS; k++) {
        double sum = c[0][k] + c[1][k] + c[2][k] + c[3][k] + eps;
        for (int j = 0; j < STREAMS; j++) c[j][k] /= sum;
    }
}

static void mix_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_mix_args *a = arg;
    int64_t q = a->fn.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * q;
    const float *fn = a->fn.data, *base = a->base.data, *scale = a->scale.data;
    double eps = (double)a->hc_eps, squares = 0, arg_of[24], c[STREAMS][STREAMS];
    for (int64_t t = 0; t < q; t++)
        squares += (double)dsf_bf16_to_f32(x[t]) * (double)dsf_bf16_to_f32(x[t]);
    double r = 1.0 / sqrt(squares / (double)q + (double)a->norm_eps);
    for (int m = 0; m < 24; m++) {
        double sum = 0;
        for (int64_t t = 0; t < q; t++)
            sum += (double)fn[m * q + t] * (double)dsf_bf16_to_f32(x[t]);
        arg_of[m] = sum * r * (double)scale[m < 4 ? 0 : m < 8 ? 1 : 2] + (double)base[m];
    }
    for (int k = 0; k < STREAMS; k++) {
        ((float *)a->pre.data)[i * STREAMS + k] = (float)(sigmoid(arg_of[k]) + eps);
        ((float *)a->post.data)[i * STREAMS + k] = (float)(2.0 * sigmoid(arg_of[4 + k]));
    }
    memcpy(c, arg_of + 8, sizeof c);
    softmax_rows(c, eps);
    normalise_columns(c, eps);
    for (int t = 1; t < a->iters; t++) {
        normalise_rows(c, eps);
        normalise_columns(c, eps);
    }
    for (int k = 0; k < 16; k++) ((float *)a->comb.data)[i * 16 + k] = (float)c[k / 4][k % 4];
}

dsf_status dsf_hc_mix_ref(const dsf_launch *lc, const void *args)
{
    dsf_hc_mix_args a = *(const dsf_hc_mix_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], mix_row, &a);
    return DSF_OK;
}

static void collapse_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_collapse_args *a = arg;
    int64_t d = a->out.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * STREAMS * d;
    const float *w = (const float *)a->w.data + i * STREAMS;
    uint16_t *out = (uint16_t *)a->out.data + i * d;
    for (int64_t c = 0; c < d; c++) {
        double sum = 0;
        for (int k = 0; k < STREAMS; k++)
            sum += (double)w[k] * (double)dsf_bf16_to_f32(x[k * d + c]);
        out[c] = dsf_f64_to_bf16(sum);
    }
}

dsf_status dsf_hc_collapse_ref(const dsf_launch *lc, const void *args)
{
    dsf_hc_collapse_args a = *(const dsf_hc_collapse_args *)args;
    dsf_pool_run(lc->pool, a.out.dim[0], collapse_row, &a);
    return DSF_OK;
}

/* A channel's four streams are read before any is written: out may be x. */
static void expand_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_expand_args *a = arg;
    int64_t d = a->x.dim[2];
    const uint16_t *x = (const uint16_t *)a->x.data + i * STREAMS * d;
    const uint16_t *y = (const uint16_t *)a->y.data + i * d;
    const float *post = (const float *)a->post.data + i * STREAMS;
    const float *comb = (const float *)a->comb.data + i * STREAMS * STREAMS;
    uint16_t *out = (uint16_t *)a->out.data + i * STREAMS * d;
    for (int64_t c = 0; c < d; c++) {
        double old[STREAMS];
        for (int j = 0; j < STREAMS; j++) old[j] = dsf_bf16_to_f32(x[j * d + c]);
        for (int k = 0; k < STREAMS; k++) {
            double sum = (double)post[k] * (double)dsf_bf16_to_f32(y[c]);
            for (int j = 0; j < STREAMS; j++) sum += (double)comb[STREAMS * j + k] * old[j];
            out[k * d + c] = dsf_f64_to_bf16(sum);
        }
    }
}

dsf_status dsf_hc_expand_ref(const dsf_launch *lc, const void *args)
{
    dsf_hc_expand_args a = *(const dsf_hc_expand_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], expand_row, &a);
    return DSF_OK;
}

static void mean_row(void *arg, int64_t i, int worker)
{
    (void)worker;
    const dsf_hc_mean_args *a = arg;
    int64_t d = a->x.dim[2], columns = a->out.dim[1];
    const uint16_t *x = (const uint16_t *)a->x.data + i * STREAMS * d;
    uint16_t *out = (uint16_t *)a->out.data + (i * columns + a->column) * d;
    for (int64_t c = 0; c < d; c++) {
        double sum = 0;
        for (int k = 0; k < STREAMS; k++) sum += (double)dsf_bf16_to_f32(x[k * d + c]);
        out[c] = dsf_f64_to_bf16(sum / STREAMS);
    }
}

dsf_status dsf_hc_mean_ref(const dsf_launch *lc, const void *args)
{
    dsf_hc_mean_args a = *(const dsf_hc_mean_args *)args;
    dsf_pool_run(lc->pool, a.x.dim[0], mean_row, &a);
    return DSF_OK;
}
