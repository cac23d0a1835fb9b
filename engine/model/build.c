#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/model.h"

/* Section 3.6, with the reference's order of f32 operations: smooth = 1 - ramp, then
 * f / factor * (1 - smooth) + f * smooth. */
static void fill_frequencies(float *f, const dsf_config *c, double base, bool yarn)
{
    int n = c->rope_head_dim / 2;
    double turns = log(base) * 2.0;
    double low = floor(c->rope_head_dim *
                       log((double)c->original_seq_len / (c->beta_fast * 2.0 * M_PI)) / turns);
    double high = ceil(c->rope_head_dim *
                       log((double)c->original_seq_len / (c->beta_slow * 2.0 * M_PI)) / turns);
    float lo = (float)fmax(low, 0.0), hi = (float)fmin(high, c->rope_head_dim - 1.0);
    if (lo == hi) hi += 0.001f;
    for (int i = 0; i < n; i++) {
        float exponent = (float)(2 * i) / (float)c->rope_head_dim;
        f[i] = 1.0f / (float)pow(base, (double)exponent);
        if (!yarn) continue;
        float ramp = fminf(fmaxf(((float)i - lo) / (hi - lo), 0.0f), 1.0f);
        float smooth = 1.0f - ramp;
        f[i] = f[i] / (float)c->rope_factor * (1.0f - smooth) + f[i] * smooth;
    }
}

dsf_status dsf_model_open(dsf_model *m, const dsf_config *c, const dsf_weights *w)
{
    *m = (dsf_model){.config = c, .weights = w, .eps = {(float)c->norm_eps, (float)c->hc_eps}};
    m->draft_context = c->n_mtp_layers > 0;
    size_t n = (size_t)c->rope_head_dim / 2;
    DSF_TRY(dsf_mem_new(&m->freq_plain, n, sizeof(float)));
    dsf_status st = dsf_mem_new(&m->freq_yarn, n, sizeof(float));
    if (st != DSF_OK) {
        dsf_model_close(m);
        return dsf_error_pass(st, DSF_HERE);
    }
    fill_frequencies(m->freq_plain, c, c->rope_theta, false);
    fill_frequencies(m->freq_yarn, c, c->compress_rope_theta, true);
    return DSF_OK;
}

void dsf_model_close(dsf_model *m)
{
    dsf_mem_free(m->freq_plain);
    dsf_mem_free(m->freq_yarn);
    m->freq_plain = m->freq_yarn = NULL;
}

dsf_val dsf_build_weight(const dsf_build *b, int layer, dsf_role role)
{
    return dsf_plan_const(b->p, dsf_names_role(role),
                          dsf_weights_at(b->m->weights, layer, role, false));
}

dsf_weight8 dsf_build_weight8(const dsf_build *b, int layer, dsf_role role)
{
    return (dsf_weight8){
        dsf_build_weight(b, layer, role),
        dsf_plan_const(b->p, "scale", dsf_weights_at(b->m->weights, layer, role, true))};
}

int dsf_build_input_rows(const dsf_build *b, int layer)
{
    bool source = layer < b->c->n_layers && dsf_config_kv_source(b->c, layer) == layer;
    return source ? DSF_ROWS_ALL : DSF_ROWS_KV(layer);
}

int64_t dsf_build_entries(const dsf_build *b, int layer)
{
    int64_t n = b->p->size.context / b->c->ratio[layer];
    return n > 0 ? n : 1;
}

/* Section 13. A ring keeps `rewind` rows more than the window, so that a sequence can be taken back
 * that far without recomputing. */
static void declare_caches(dsf_build *b)
{
    const dsf_plan_size *s = &b->p->size;
    const dsf_config *c = b->c;
    for (int l = 0; l < c->n_layers + c->n_mtp_layers; l++) {
        char name[32];
        const int64_t ring[3] = {s->slots, c->window_size + s->rewind, c->head_dim};
        (void)snprintf(name, sizeof name, "ring%d", l);
        b->cache.ring[l] = dsf_plan_cache(b->p, name, DSF_Q8, 3, ring);
        if (l >= c->n_layers || dsf_config_kv_source(c, l) != l) continue;
        int64_t entries = dsf_build_entries(b, l);
        const int64_t kv[3] = {s->slots, entries, c->head_dim},
                      ik[3] = {s->slots, entries, c->index_head_dim};
        (void)snprintf(name, sizeof name, "kv_main%d", l);
        b->cache.kv_main[l] = dsf_plan_cache(b->p, name, DSF_Q4N, 3, kv);
        (void)snprintf(name, sizeof name, "index_k%d", l);
        b->cache.index_k[l] = dsf_plan_cache(b->p, name, DSF_Q4X, 3, ik);
        const int64_t pend[4] = {s->slots, s->rewind / 2 + 1, 2, c->head_dim};
        (void)snprintf(name, sizeof name, "pend%d", l);
        if (c->ratio[l] == 2) b->cache.pend[l] = dsf_plan_cache(b->p, name, DSF_F32, 4, pend);
    }
}

static dsf_val input(dsf_build *b, dsf_input i) { return dsf_plan_input(b->p, i, 0, 1, NULL); }

void dsf_build_begin(dsf_build *b, dsf_plan *p, const dsf_model *m)
{
    *b = (dsf_build){.p = p,
                     .m = m,
                     .c = m->config,
                     .kv_main = DSF_NO_VAL,
                     .index_k = DSF_NO_VAL,
                     .topk = DSF_NO_VAL,
                     .pool = DSF_NO_VAL,
                     .context = DSF_NO_VAL};
    declare_caches(b);
    b->rows =
        (dsf_row_info){input(b, DSF_INPUT_ROW), input(b, DSF_INPUT_POS), input(b, DSF_INPUT_START),
                       input(b, DSF_INPUT_LO), input(b, DSF_INPUT_SLOT)};
    b->lo_decoder = input(b, DSF_INPUT_LO_DECODER);
    b->end = input(b, DSF_INPUT_END);
    b->vl = input(b, DSF_INPUT_VL);
    b->pair_row = input(b, DSF_INPUT_PAIR_ROW);
    b->pair_index = input(b, DSF_INPUT_PAIR_INDEX);
    b->pair_slot = input(b, DSF_INPUT_PAIR_SLOT);
    b->pair_end = input(b, DSF_INPUT_PAIR_END);
    b->single_pos = input(b, DSF_INPUT_SINGLE_POS);
    b->single_slot = input(b, DSF_INPUT_SINGLE_SLOT);
    b->single_end = input(b, DSF_INPUT_SINGLE_END);
    const dsf_tensor f = {.dtype = DSF_F32, .rank = 1, .dim = {b->c->rope_head_dim / 2}};
    dsf_tensor plain = f, yarn = f;
    plain.data = m->freq_plain;
    yarn.data = m->freq_yarn;
    dsf_val vp = dsf_plan_const(p, "freq_plain", &plain),
            vy = dsf_plan_const(p, "freq_yarn", &yarn);
    p->rows_now = DSF_ROWS_ALL;
    b->cs_plain = dsf_rec_rope_table(p, b->rows.pos, vp);
    b->cs_yarn = dsf_rec_rope_table(p, b->rows.pos, vy);
    p->rows_now = DSF_ROWS_PAIRS;
    b->cs_pairs = dsf_rec_rope_table(p, input(b, DSF_INPUT_PAIR_POS), vy);
    p->rows_now = DSF_ROWS_SINGLES;
    b->cs_singles = dsf_rec_rope_table(p, b->single_pos, vy);
}

/* Section 9 and Appendix A.3. */
dsf_status dsf_model_build(dsf_plan *p, const dsf_model *m)
{
    dsf_build b;
    const dsf_config *c = m->config;
    dsf_build_begin(&b, p, m);
    p->rows_now = DSF_ROWS_ALL;
    dsf_val ids = input(&b, DSF_INPUT_IDS);
    dsf_val e = dsf_plan_tap(p, DSF_TAP_EMBED, -1,
                             dsf_rec_embed(p, ids, dsf_build_weight(&b, -1, DSF_ROLE_EMBED)));
    dsf_val x, premix;
    dsf_rec_hc_start(p, e, &x, &premix);
    for (int l = 0; l < c->n_layers; l++) dsf_build_layer(&b, l, &x, &premix);
    p->layer_now = -1;
    p->rows_now = DSF_ROWS_Q(c->n_layers - 1);
    dsf_val h = dsf_plan_tap(p, DSF_TAP_FINAL_H, -1, dsf_rec_hc_collapse(p, x, premix));
    p->rows_now = DSF_ROWS_HEAD;
    dsf_val rows = dsf_rec_row_gather(p, h, input(&b, DSF_INPUT_HEAD_ROW));
    dsf_val norm = dsf_rec_rms_norm(p, rows, dsf_build_weight(&b, -1, DSF_ROLE_NORM), m->eps[0]);
    norm = dsf_plan_tap(p, DSF_TAP_FINAL_NORM, -1, norm);
    dsf_val logits = dsf_rec_linear_gf(p, norm, dsf_build_weight(&b, -1, DSF_ROLE_HEAD));
    dsf_plan_show(p, DSF_TAP_LOGITS, -1, logits);
    if (m->sampled)
        dsf_plan_result(p, DSF_RESULT_NEXT, dsf_rec_sample(p, logits));
    else
        dsf_plan_result(p, DSF_RESULT_LOGITS, logits);
    (void)dsf_plan_input(p, DSF_INPUT_HEAD_POS, 0, 1, NULL);
    (void)dsf_plan_input(p, DSF_INPUT_HEAD_SLOT, 0, 1, NULL);
    if (m->draft_context) dsf_build_context(&b);
    return p->status == DSF_OK ? DSF_OK : dsf_error_pass(p->status, DSF_HERE);
}
