/* Plans of the model for the plan tests, from shapes alone. */
#ifndef DSF_UNIT_PLAN_FIXTURE_H
#define DSF_UNIT_PLAN_FIXTURE_H

#include "engine_fixture.h"
#include "plan/record.h"

/* The configuration's weights without a byte of data: planning looks at shapes only. */
static inline void shape_weights(dsf_weights *w, const dsf_config *c)
{
    *w = (dsf_weights){.config = c, .n_layers = c->n_layers + c->n_mtp_layers};
    w->most_experts = c->n_routed_experts > c->dspark_n_routed_experts ? c->n_routed_experts
                                                                       : c->dspark_n_routed_experts;
    GOOD(dsf_mem_new(&w->view, (size_t)(w->n_layers + 1) * DSF_N_ROLES * 2, sizeof *w->view));
    GOOD(dsf_mem_new(&w->experts,
                     (size_t)w->n_layers * DSF_N_EXPERT_TABLES * (size_t)w->most_experts,
                     sizeof *w->experts));
    dsf_names it = dsf_names_begin(c);
    dsf_name n;
    while (dsf_names_next(&it, &n)) {
        if (n.expert >= 0) continue;
        int row = n.layer >= 0 && n.part != DSF_PART_VISION ? n.layer : w->n_layers;
        dsf_tensor t = {.dtype = n.dtype, .rank = n.rank};
        memcpy(t.dim, n.dim, sizeof t.dim);
        w->view[((int64_t)row * DSF_N_ROLES + n.role) * 2 + n.scale] = t;
    }
}

typedef struct {
    dsf_config config;
    dsf_weights weights;
    dsf_model model;
} shapes;

static inline void open_shapes(shapes *s, const dsf_config *c)
{
    s->config = *c;
    shape_weights(&s->weights, &s->config);
    GOOD(dsf_model_open(&s->model, &s->config, &s->weights));
}

static inline void open_preset(shapes *s, const char *preset)
{
    dsf_config c;
    dsf_buf json = {.max = 1 << 20};
    GOOD(dsf_synth_preset(&c, preset));
    GOOD(dsf_synth_finish(&c, &json));
    dsf_buf_free(&json);
    open_shapes(s, &c);
}

static inline void close_shapes(shapes *s)
{
    dsf_model_close(&s->model);
    dsf_weights_close(&s->weights);
}

static const dsf_plan_size small = {
    .rows = 16, .heads = 2, .slots = 2, .context = 256, .rewind = 16};

static inline dsf_plan *record(const shapes *s, dsf_plan_size size, bool draft)
{
    dsf_plan *p;
    if (draft) size.rows = s->config.dspark_block_size;
    GOOD(dsf_plan_open(&p, &size, s->config.n_layers));
    GOOD(draft ? dsf_model_build_draft(p, &s->model) : dsf_model_build(p, &s->model));
    return p;
}

static inline dsf_plan *placed(const shapes *s, dsf_plan_size size, bool draft,
                               const dsf_tap_sink *sink)
{
    dsf_plan *p = record(s, size, draft);
    GOOD(dsf_plan_prune(p, sink, NULL, NULL));
    GOOD(dsf_plan_choose(p, 0, NULL));
    GOOD(dsf_plan_place(p));
    return p;
}

#endif
