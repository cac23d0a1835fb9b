/* Fused operations: their parts' references, one after the other, a row at a time. What lies
 * between the parts lies in the worker's scratch. */
#include "ops/fused.h"

#include "ops/cache.h"
#include "ops/hc.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/quant.h"
#include "ops/rope.h"
#include "sm90/tune_hc.h"

typedef struct {
    const void *args;
    const dsf_launch *lc;
} job;

static uint8_t *scratch_of(const job *j, int worker)
{
    return j->lc->scratch + (size_t)worker * j->lc->scratch_bytes;
}

static const dsf_launch alone; /* a part runs in the worker's own thread */

/* Row i of t as a tensor of one row; an absent operand stays absent. */
static dsf_tensor row_of(const dsf_tensor *t, int64_t i)
{
    dsf_tensor r = *t;
    if (t->rank == 0) return r;
    r.data = (uint8_t *)t->data + i * dsf_tensor_stride(t);
    r.dim[0] = 1;
    return r;
}

static dsf_tensor make(void *data, dsf_dtype t, int64_t d1, int64_t d2)
{
    return (dsf_tensor){
        .data = data, .dtype = t, .rank = 1 + (d1 > 0) + (d2 > 0), .dim = {1, d1, d2}};
}

/* ---- hc_boundary: y', h and u of one row ---- */

size_t dsf_hc_boundary_ref_scratch(const void *args)
{
    const dsf_hc_boundary_args *a = args;
    return 3 * (size_t)a->x.dim[2] * sizeof(uint16_t);
}

static dsf_tensor sublayer_output(const dsf_hc_boundary_args *a, int64_t i, uint16_t *room)
{
    dsf_tensor y = row_of(&a->y, i);
    if (a->parts.rank == 0) return y;
    dsf_moe_sum_args sum = {
        .out = make(room, DSF_BF16, a->x.dim[2], 0), .y = row_of(&a->parts, i), .shared = y};
    (void)dsf_moe_sum_ref(&alone, &sum);
    return sum.out;
}

static void normalise(const dsf_hc_boundary_args *a, int64_t i, const dsf_tensor *out,
                      uint16_t *room)
{
    int64_t d = a->x.dim[2];
    dsf_hc_collapse_args collapse = {
        .out = make(room, DSF_BF16, d, 0), .x = *out, .w = row_of(&a->pre, i)};
    (void)dsf_hc_collapse_ref(&alone, &collapse);
    dsf_rms_norm_args norm = {.out = a->u.rank ? row_of(&a->u, i) : make(room + d, DSF_BF16, d, 0),
                              .x = collapse.out,
                              .w = a->w,
                              .eps = a->eps};
    (void)dsf_rms_norm_ref(&alone, &norm);
    dsf_quant_args quant = {.out = row_of(&a->uq, i), .x = make(norm.out.data, DSF_BF16, 1, d)};
    (void)dsf_quant_q8_ref(&alone, &quant);
}

static void boundary_row(void *arg, int64_t i, int worker)
{
    const job *j = arg;
    const dsf_hc_boundary_args *a = j->args;
    uint16_t *room = (uint16_t *)(void *)scratch_of(j, worker);
    dsf_hc_expand_args expand = {.out = row_of(&a->out, i),
                                 .x = row_of(&a->x, i),
                                 .y = sublayer_output(a, i, room),
                                 .post = row_of(&a->post, i),
                                 .comb = row_of(&a->comb, i)};
    (void)dsf_hc_expand_ref(&alone, &expand);
    normalise(a, i, &expand.out, room + a->x.dim[2]);
    if (!a->fn.rank) return;
    dsf_hc_mix_args mix = dsf_boundary_mix(a);
    mix.pre = row_of(&a->next_pre, i);
    mix.post = row_of(&a->next_post, i);
    mix.comb = row_of(&a->next_comb, i);
    mix.x = expand.out;
    (void)dsf_hc_mix_ref(&alone, &mix);
}

dsf_status dsf_hc_boundary_ref(const dsf_launch *lc, const void *args)
{
    job j = {args, lc};
    dsf_pool_run(lc->pool, ((const dsf_hc_boundary_args *)args)->x.dim[0], boundary_row, &j);
    return DSF_OK;
}

/* ---- row records ---- */

size_t dsf_row_record_ref_scratch(const void *args)
{
    const dsf_row_record_args *a = args;
    return 2 * (size_t)(a->x.dim[1] * a->x.dim[2]) * sizeof(uint16_t);
}

static void record_row(void *arg, int64_t i, int worker)
{
    const job *j = arg;
    const dsf_row_record_args *a = j->args;
    int64_t h = a->x.dim[1], d = a->x.dim[2];
    uint16_t *room = (uint16_t *)(void *)scratch_of(j, worker);
    dsf_quant_args quant = {.out = row_of(&a->out, i), .x = row_of(&a->x, i)};
    if (a->w.rank) {
        dsf_rms_norm_args norm = {.out = make(room, DSF_BF16, d, 0),
                                  .x = make(quant.x.data, DSF_BF16, d, 0),
                                  .w = a->w,
                                  .eps = a->eps};
        (void)dsf_rms_norm_ref(&alone, &norm);
        quant.x.data = room;
    }
    if (a->cs.rank) {
        dsf_rope_args rope = {
            .out = make(room + h * d, DSF_BF16, h, d), .x = quant.x, .cs = row_of(&a->cs, i)};
        (void)dsf_rope_ref(&alone, &rope);
        quant.x = rope.out;
    }
    if (a->out.dtype == DSF_Q8)
        (void)dsf_quant_q8_ref(&alone, &quant);
    else
        (void)dsf_quant_q4x_ref(&alone, &quant);
}

dsf_status dsf_row_q8_ref(const dsf_launch *lc, const void *args)
{
    job j = {args, lc};
    dsf_pool_run(lc->pool, ((const dsf_row_record_args *)args)->x.dim[0], record_row, &j);
    return DSF_OK;
}

dsf_status dsf_row_q4x_ref(const dsf_launch *lc, const void *args)
{
    return dsf_row_q8_ref(lc, args); /* the output's type decides */
}

/* ---- swiglu ---- */

size_t dsf_swiglu_q8_ref_scratch(const void *args)
{
    const dsf_swiglu_q8_args *a = args;
    return (size_t)a->g.dim[1] * sizeof(uint16_t);
}

static void swiglu_row(void *arg, int64_t i, int worker)
{
    const job *j = arg;
    const dsf_swiglu_q8_args *a = j->args;
    int64_t d = a->g.dim[1];
    dsf_swiglu_args up = {.out = make(scratch_of(j, worker), DSF_BF16, d, 0),
                          .g = row_of(&a->g, i),
                          .v = row_of(&a->v, i),
                          .limit = a->limit};
    (void)dsf_swiglu_ref(&alone, &up);
    dsf_quant_args quant = {.out = row_of(&a->out, i), .x = make(up.out.data, DSF_BF16, 1, d)};
    (void)dsf_quant_q8_ref(&alone, &quant);
}

dsf_status dsf_swiglu_q8_ref(const dsf_launch *lc, const void *args)
{
    job j = {args, lc};
    dsf_pool_run(lc->pool, ((const dsf_swiglu_q8_args *)args)->g.dim[0], swiglu_row, &j);
    return DSF_OK;
}

/* ---- pairs ---- */

size_t dsf_row_pair_ref_scratch(const void *args)
{
    const dsf_row_pair_args *a = args;
    int64_t d = a->x.dim[1], l = a->r.dim[1];
    return 2 * (size_t)(d > l ? d : l) * sizeof(uint16_t);
}

/* A record of one row as row_q8 sees it. */
static dsf_tensor record_of(const dsf_tensor *t, int64_t i)
{
    dsf_tensor r = row_of(t, i);
    return make(r.data, r.dtype, 1, r.dim[1]);
}

static void pair_row(void *arg, int64_t i, int worker)
{
    const job *j = arg;
    const dsf_row_pair_args *a = j->args;
    const dsf_launch here = {.scratch = scratch_of(j, worker),
                             .scratch_bytes = j->lc->scratch_bytes};
    dsf_row_record_args key = {.out = record_of(&a->key, i),
                               .x = record_of(&a->x, i),
                               .w = a->w,
                               .cs = row_of(&a->cs, i),
                               .eps = a->eps};
    dsf_row_record_args latent = {
        .out = record_of(&a->latent, i), .x = record_of(&a->r, i), .w = a->wr, .eps = a->eps};
    (void)dsf_row_q8_ref(&here, &key);
    (void)dsf_row_q8_ref(&here, &latent);
}

dsf_status dsf_row_pair_ref(const dsf_launch *lc, const void *args)
{
    job j = {args, lc};
    dsf_pool_run(lc->pool, ((const dsf_row_pair_args *)args)->x.dim[0], pair_row, &j);
    return DSF_OK;
}

dsf_status dsf_attn_close_ref(const dsf_launch *lc, const void *args)
{
    const dsf_attn_close_args *a = args;
    dsf_rope_args rope = {.out = a->out, .x = a->o, .cs = a->cs, .inverse = 1};
    dsf_cache_store_args store = {
        .cache = a->ring, .x = a->key, .slot = a->slot, .index = a->index, .end = a->end};
    (void)dsf_rope_ref(lc, &rope);
    return dsf_cache_store_ref(lc, &store);
}
