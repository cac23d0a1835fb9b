#include "ops/draft.h"

#include "ref/dot.h"

typedef struct {
    float *logits;        /* [v] of this step */
    const float *base;    /* [v] */
    const uint16_t *head; /* [v, r] */
    const uint16_t *mu;   /* [r] */
    int64_t r;
} markov_step;

static void markov_logit(void *arg, int64_t o, int worker)
{
    (void)worker;
    const markov_step *m = arg;
    m->logits[o] = m->base[o] + (float)dsf_dot_bf16(m->mu, m->head + o * m->r, m->r);
}

dsf_status dsf_markov_chain_ref(const dsf_launch *lc, const void *args)
{
    const dsf_markov_chain_args *a = args;
    int64_t b = a->logits.dim[0], v = a->logits.dim[1], r = a->mu.dim[1];
    int64_t id = *(const int32_t *)a->anchor.data;
    for (int64_t i = 0; i < b; i++) {
        uint16_t *mu = (uint16_t *)a->mu.data + i * r;
        memcpy(mu, (const uint16_t *)a->embed.data + id * r, 2 * (size_t)r);
        markov_step m = {(float *)a->logits.data + i * v, (const float *)a->base.data + i * v,
                         a->head.data, mu, r};
        dsf_pool_run(lc->pool, v, markov_logit, &m);
        id = 0;
        for (int64_t o = 1; o < v; o++)
            if (m.logits[o] > m.logits[id]) id = o;
        ((int32_t *)a->ids.data)[i] = (int32_t)id;
    }
    return DSF_OK;
}

dsf_status dsf_confidence_ref(const dsf_launch *lc, const void *args)
{
    (void)lc;
    const dsf_confidence_args *a = args;
    int64_t b = a->out.dim[0], d = a->h.dim[1], r = a->mu.dim[1];
    const uint16_t *w = a->w.data;
    for (int64_t i = 0; i < b; i++)
        ((float *)a->out.data)[i] =
            (float)(dsf_dot_bf16((const uint16_t *)a->h.data + i * d, w, d) +
                    dsf_dot_bf16((const uint16_t *)a->mu.data + i * r, w + d, r));
    return DSF_OK;
}
