#include "ops/linear.h"

#include <string.h>

#include "avx512/gemm.h"

/* One product, cut into items: group, then block of outputs, then block of rows, so that
 * neighbouring items share their weights. */
typedef struct {
    const dsf_launch *lc;
    dsf_gemm gemm;         /* of group 0 */
    const dsf_tensor *out; /* [n, groups * n_out] */
    const uint8_t *x;
    int64_t x_row, x_group; /* bytes from row to row, from group to group */
    int64_t w_group, s_group;
    int64_t n, n_out, groups;
    int64_t rows, outs, row_blocks, out_blocks;
} product;

size_t dsf_linear_avx512_scratch(const void *args)
{
    (void)args;
    return DSF_GEMM_SUM_BYTES + dsf_gemm_scratch();
}

static void store(const product *p, const dsf_gemm_block *b, int64_t row0, int64_t column)
{
    int64_t stride = p->groups * p->n_out;
    for (int r = 0; r < b->n_rows; r++) {
        const float *sum = b->sum + r * DSF_GEMM_OUTS;
        int64_t at = (row0 + r) * stride + column;
        if (p->out->dtype == DSF_F32)
            memcpy((float *)p->out->data + at, sum, sizeof(float) * (size_t)b->n_outs);
        else
            dsf_gemm_store_bf16((uint16_t *)p->out->data + at, sum, b->n_outs);
    }
}

static void run_item(void *arg, int64_t item, int worker)
{
    const product *p = arg;
    int64_t row0 = item % p->row_blocks * p->rows;
    int64_t o0 = item / p->row_blocks % p->out_blocks * p->outs;
    int64_t group = item / p->row_blocks / p->out_blocks;
    int64_t n_rows = p->n - row0 < p->rows ? p->n - row0 : p->rows;
    int64_t n_outs = p->n_out - o0 < p->outs ? p->n_out - o0 : p->outs;
    dsf_gemm gemm = p->gemm;
    gemm.w += group * p->w_group;
    if (gemm.s) gemm.s += group * p->s_group;
    uint8_t *scratch = p->lc->scratch + (size_t)worker * p->lc->scratch_bytes;
    dsf_gemm_block b = {.n_rows = (int)n_rows,
                        .n_outs = (int)n_outs,
                        .o0 = o0,
                        .sum = (float *)scratch,
                        .scratch = scratch + DSF_GEMM_SUM_BYTES};
    for (int64_t r = 0; r < n_rows; r++)
        b.row[r] = p->x + (row0 + r) * p->x_row + group * p->x_group;
    dsf_gemm_run(&gemm, &b);
    store(p, &b, row0, group * p->n_out + o0);
}

static void run_product(product *p)
{
    p->rows = dsf_gemm_rows(p->n);
    p->outs = dsf_gemm_outs(p->n);
    p->row_blocks = (p->n + p->rows - 1) / p->rows;
    p->out_blocks = (p->n_out + p->outs - 1) / p->outs;
    dsf_pool_run(p->lc->pool, p->groups * p->row_blocks * p->out_blocks, run_item, p);
}

dsf_status dsf_linear_g8_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_linear_g8_args *a = args;
    int64_t k = a->w.dim[1];
    product p = {.lc = lc,
                 .gemm = {DSF_GEMM_E4M3, 1, 5, k, a->w.data, a->s.data},
                 .out = &a->out,
                 .x = a->x.data,
                 .x_row = k + k / 32,
                 .n = a->out.dim[0],
                 .n_out = a->w.dim[0],
                 .groups = 1};
    run_product(&p);
    return DSF_OK;
}

dsf_status dsf_linear_gb_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_linear_args *a = args;
    int64_t k = a->w.dim[1];
    product p = {.lc = lc,
                 .gemm = {DSF_GEMM_BF16, 0, 0, k, a->w.data, NULL},
                 .out = &a->out,
                 .x = a->x.data,
                 .x_row = 2 * k,
                 .n = a->out.dim[0],
                 .n_out = a->w.dim[0],
                 .groups = 1};
    run_product(&p);
    return DSF_OK;
}

dsf_status dsf_linear_gf_avx512(const dsf_launch *lc, const void *args)
{
    return dsf_linear_gb_avx512(lc, args); /* the type of out tells */
}

dsf_status dsf_linear_group_avx512(const dsf_launch *lc, const void *args)
{
    const dsf_linear_group_args *a = args;
    int64_t groups = a->w.dim[0], n_out = a->w.dim[1], k = a->w.dim[2];
    product p = {.lc = lc,
                 .gemm = {DSF_GEMM_E4M3, 0, 5, k, a->w.data, a->s.data},
                 .out = &a->out,
                 .x = a->x.data,
                 .x_row = 2 * groups * k,
                 .x_group = 2 * k,
                 .w_group = n_out * k,
                 .s_group = n_out / 32 * (k / 32),
                 .n = a->out.dim[0],
                 .n_out = n_out,
                 .groups = groups};
    run_product(&p);
    return DSF_OK;
}
