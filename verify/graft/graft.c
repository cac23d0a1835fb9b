#include "verify/graft/graft.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/digest.h"
#include "exec/exec.h"
#include "model/engram_hash.h"
#include "serve/load.h"
#include "verify/dump/writer.h"
#include "verify/graft/golden.h"

enum { MOST_TAPS = (DSF_MAX_LAYERS + 64 + 2) * DSF_N_TAPS }; /* dsf_tap_parse: 64 stages */

typedef struct {
    const dsf_graft_options *o;
    dsf_graft_report *r;
    dsf_loaded load;
    dsf_pool *pool;
    dsf_device *device; /* NULL: the host */
    dsf_golden golden;
    dsf_dump *dump;
    dsf_tap_sink out;
    dsf_file config_file;
    char *config_text;
    bool *done; /* by layer and tap: written by an earlier pass */
    /* The pass being run. */
    const int32_t *label; /* ascending positions */
    int64_t n;
    bool all_rows, draft; /* all_rows: every position */
} graft;

static int64_t tap_index(dsf_tap t) { return (int64_t)(t.layer + 1) * DSF_N_TAPS + t.id; }

/* ---- which values come from the file ---- */

/* Layer by layer: what enters a layer, and what selects; everything inside is computed. */
static bool layer_input(const graft *g, dsf_tap t)
{
    int last = g->load.config.n_layers - 1;
    switch (t.id) {
    case DSF_TAP_EMBED:
        return g->golden.mask != NULL;
    case DSF_TAP_IN:
    case DSF_TAP_PREMIX:
    case DSF_TAP_ATTN_TOPK:
    case DSF_TAP_ATTN_POOL:
    case DSF_TAP_FINAL_H:
    case DSF_TAP_FINAL_NORM:
    case DSF_TAP_DSPARK_TAP:
    case DSF_TAP_DSPARK_MAIN:
    case DSF_TAP_DSPARK_H:
    case DSF_TAP_DSPARK_BASE_LOGITS:
        return true;
    case DSF_TAP_OUT:
    case DSF_TAP_FFN_PRE:
        return t.layer == last || t.layer == last + g->load.config.n_mtp_layers;
    default:
        return false;
    }
}

/* In `by op` a tap that the file holds at all is given: where it lacks rows, what depends on it
 * goes. */
static bool given(void *ud, dsf_tap t)
{
    graft *g = ud;
    /* Some rows alone cannot make all window keys, nor the entries: those are given, or missing. */
    bool of_all = t.layer < g->load.config.n_layers &&
                  (t.id == DSF_TAP_ATTN_KV_WINDOW || t.id == DSF_TAP_ATTN_LATENT);
    if (of_all && !g->all_rows) return true;
    if (dsf_golden_find(&g->golden, t) == NULL) return false;
    if (g->r->by_op) return true;
    return layer_input(g, t) && dsf_golden_gives(&g->golden, t, g->label, g->n);
}

static bool missing(void *ud, dsf_tap t)
{
    graft *g = ud;
    return !dsf_golden_gives(&g->golden, t, g->label, g->n);
}

static bool asked(const graft *g, dsf_tap t)
{
    const dsf_graft_options *o = g->o;
    char path[64];
    if (o->by_layer_range && (t.layer < o->layer_from || t.layer > o->layer_to)) return false;
    dsf_tap_path(path, t, g->load.config.n_layers);
    for (int i = 0; i < o->n_only; i++)
        if (dsf_dump_glob(o->only[i], path) || dsf_dump_glob(o->only[i], dsf_taps[t.id].path))
            return true;
    return o->n_only == 0;
}

static bool wants(void *ud, dsf_tap t)
{
    const graft *g = ud;
    if (!asked(g, t)) return false;
    /* What enters a layer is given; the value computed here is the previous layer's own result. */
    bool entry =
        t.id == DSF_TAP_IN || t.id == DSF_TAP_PREMIX || (t.id == DSF_TAP_EMBED && g->golden.mask);
    return !entry && !g->done[tap_index(t)];
}

static dsf_status on_value(void *ud, const dsf_tap_value *v)
{
    graft *g = ud;
    if (!wants(g, v->tap)) return DSF_OK;
    return g->out.on_value(g->out.ud, v);
}

/* ---- one pass ---- */

static int32_t class_at(const graft *g, int64_t t)
{
    return t < 0 || (g->golden.mask && g->golden.mask[t]) ? DSF_CLASS_DEAD
                                                          : g->load.classes[g->golden.ids[t]];
}

static void put_engram_rows(const graft *g, const dsf_exec *e)
{
    const dsf_config *c = &g->load.config;
    int columns = dsf_config_engram_columns(c);
    for (int k = 0; k < c->n_engram; k++) {
        int64_t *rows = dsf_exec_input(e, DSF_INPUT_ENGRAM, k);
        for (int64_t i = 0; rows && i < g->n; i++) {
            int32_t window[DSF_MAX_NGRAM];
            for (int j = 0; j < c->engram_max_ngram_size; j++)
                window[j] = class_at(g, g->label[i] - j);
            dsf_engram_rows(c, k, window, g->load.classes[c->engram_pad_id], rows + i * columns);
        }
    }
}

static void put(const dsf_exec *e, dsf_input input, int64_t i, int64_t v)
{
    int32_t *x = dsf_exec_input(e, input, 0);
    if (x) x[i] = (int32_t)v;
}

/* Backbone rows: positions are labels, window keys are addressed by position, entries are all
 * stored. */
static void put_inputs(const graft *g, const dsf_exec *e)
{
    uint8_t *vl = dsf_exec_input(e, DSF_INPUT_VL, 0);
    for (int64_t i = 0; i < g->n; i++) {
        int64_t t = g->label[i];
        put(e, DSF_INPUT_IDS, i, g->golden.ids[t]);
        put(e, DSF_INPUT_POS, i, t);
        put(e, DSF_INPUT_ROW, i, t);
        put(e, DSF_INPUT_END, i, g->golden.n);
        put(e, DSF_INPUT_HEAD_ROW, i, i);
        put(e, DSF_INPUT_HEAD_POS, i, t);
        if (vl) vl[i] = g->golden.mask && g->golden.mask[t];
    }
    for (int64_t j = 0; j < g->golden.n; j++) {
        put(e, DSF_INPUT_SINGLE_POS, j, j);
        put(e, DSF_INPUT_SINGLE_END, j, g->golden.n);
    }
    for (int64_t j = 0; j < g->golden.n / 2; j++) {
        put(e, DSF_INPUT_PAIR_ROW, j, 2 * j + 1);
        put(e, DSF_INPUT_PAIR_POS, j, 2 * j);
        put(e, DSF_INPUT_PAIR_INDEX, j, j);
        put(e, DSF_INPUT_PAIR_END, j, g->golden.n / 2);
    }
    if (g->load.classes) put_engram_rows(g, e);
}

static void put_draft_inputs(const graft *g, const dsf_exec *e, int64_t anchor)
{
    for (int64_t i = 0; i < g->n; i++) {
        put(e, DSF_INPUT_IDS, i, i == 0 ? anchor : g->load.config.dspark_noise_token_id);
        put(e, DSF_INPUT_POS, i, g->golden.n + i);
        put(e, DSF_INPUT_ROW, i, i);
        put(e, DSF_INPUT_START, i, g->golden.n);
        put(e, DSF_INPUT_END, i, g->golden.n + g->n);
    }
    put(e, DSF_INPUT_ANCHOR, 0, anchor);
}

static void set_ranges(const graft *g, dsf_row_range *range, int n_sets)
{
    for (int i = 0; i < n_sets; i++) range[i] = (dsf_row_range){0, g->n};
    range[DSF_ROWS_PAIRS].count = g->golden.n / 2;
    range[DSF_ROWS_SINGLES].count = g->golden.n;
    range[DSF_ROWS_POOLED].count =
        g->all_rows ? g->golden.n / 2 : 0; /* pairs need both their rows */
}

static dsf_status make_plan(graft *g, dsf_plan **out)
{
    /* The draft pass reads rings, not a chunk: the same cache layout in both. */
    int64_t rows = g->golden.n > g->load.config.dspark_block_size
                       ? g->golden.n
                       : g->load.config.dspark_block_size;
    const dsf_plan_size size = {.rows = rows,
                                .heads = rows,
                                .slots = 1,
                                .context = rows + g->load.config.dspark_block_size,
                                .rewind = 0};
    dsf_tap_sink sink = {.wants = wants, .ud = g};
    DSF_TRY(dsf_plan_open(out, &size, g->load.config.n_layers));
    (*out)->given = given;
    (*out)->given_ud = g;
    DSF_TRY(g->draft ? dsf_model_build_draft(*out, &g->load.model)
                     : dsf_model_build(*out, &g->load.model));
    DSF_TRY(dsf_plan_prune(*out, &sink, missing, g));
    if (g->golden.status != DSF_OK) return dsf_error_pass(g->golden.status, DSF_HERE);
    DSF_TRY(dsf_plan_choose(*out, dsf_machine(), g->o->variants));
    return dsf_plan_place(*out);
}

/* Hands the file's rows to every given value that a step still reads. */
static dsf_status give_all(graft *g, dsf_exec *e, void **held, int *n_held)
{
    const dsf_plan *p = e->plan;
    for (int i = 0; i < p->n_values; i++) {
        const dsf_value *v = &p->value[i];
        if (v->kind != DSF_VALUE_GIVEN || v->base != DSF_NO_VAL || v->first < 0) continue;
        void *data;
        int64_t rows;
        DSF_TRY(dsf_golden_rows(&g->golden, v->tap, g->label, g->n, v, &data, &rows));
        held[(*n_held)++] = data;
        DSF_TRY(dsf_exec_give(e, v->tap, data, rows));
        if (!strstr(g->r->given.data ? g->r->given.data : "", dsf_taps[v->tap.id].path))
            dsf_buf_fmt(&g->r->given, "%s%s", g->r->given.len ? " " : "", dsf_taps[v->tap.id].path);
    }
    return DSF_OK;
}

static dsf_status load_ring(graft *g, const dsf_exec *e, int stage, const dsf_tensor *ring)
{
    size_t bytes = (size_t)dsf_tensor_bytes(ring);
    uint8_t *rows = NULL;
    DSF_TRY(dsf_mem_new(&rows, bytes, 1));
    dsf_status st = dsf_golden_ring(&g->golden, stage, rows, ring->dim[1]);
    if (st == DSF_OK) st = dsf_space_write(e->setup.device, ring->data, rows, bytes);
    dsf_mem_free(rows);
    return st;
}

static dsf_status load_rings(graft *g, const dsf_exec *e)
{
    for (int s = 0; s < g->load.config.n_mtp_layers; s++) {
        char name[32];
        dsf_tensor ring;
        (void)snprintf(name, sizeof name, "ring%d", g->load.config.n_layers + s);
        if (dsf_exec_cache(e, name, &ring)) DSF_TRY(load_ring(g, e, s, &ring));
    }
    return DSF_OK;
}

static void mark_done(graft *g, const dsf_plan *p, const dsf_row_range *range)
{
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_taps; k++) {
            if (range[p->step[i].rows].count == 0 || g->done[tap_index(p->step[i].tap[k].tap)])
                continue;
            g->done[tap_index(p->step[i].tap[k].tap)] = true;
            g->r->taps++;
        }
}

/* The plan's weights, where it runs on a device. */
static dsf_status place_weights(const graft *g, const dsf_plan *plan, dsf_place **out)
{
    if (!g->device) return DSF_OK;
    DSF_TRY(dsf_place_open(out, g->device, 1));
    DSF_TRY(dsf_place_add(*out, plan));
    return dsf_place_load(*out, NULL, NULL);
}

static dsf_status run_pass(graft *g, int64_t anchor)
{
    dsf_plan *plan = NULL;
    dsf_place *place = NULL;
    dsf_exec e = {.plan = NULL};
    void **held = NULL;
    int n_held = 0;
    dsf_row_range range[DSF_EXEC_SETS];
    dsf_tap_sink sink = {.on_value = on_value, .wants = wants, .ud = g};
    dsf_status st = DSF_OK;
    DSF_TRY_OUT(make_plan(g, &plan));
    DSF_TRY_OUT(place_weights(g, plan, &place));
    const dsf_exec_setup setup = {.pool = g->pool, .device = g->device, .place = place};
    DSF_TRY_OUT(dsf_exec_open(&e, plan, &setup));
    DSF_TRY_OUT(dsf_mem_new(&held, (size_t)plan->n_values + 1, sizeof *held));
    DSF_TRY_OUT(give_all(g, &e, held, &n_held));
    if (g->draft) {
        DSF_TRY_OUT(load_rings(g, &e));
        put_draft_inputs(g, &e, anchor);
    } else {
        put_inputs(g, &e);
    }
    set_ranges(g, range, (int)(sizeof range / sizeof *range));
    DSF_TRY_OUT(dsf_exec_run(&e, range, &sink));
    mark_done(g, plan, range);
    g->r->passes++;
out:
    for (int i = 0; i < n_held; i++) dsf_mem_free(held[i]);
    dsf_mem_free(held);
    dsf_exec_close(&e);
    dsf_place_close(place);
    dsf_plan_close(plan);
    return st;
}

/* ---- all passes ---- */

static bool layers_have_inputs(graft *g)
{
    for (int l = 0; l < g->load.config.n_layers; l++) {
        if (l == 0 && !dsf_golden_find(&g->golden, (dsf_tap){DSF_TAP_IN, 0}))
            continue; /* 4 x embed, exact */
        if (!dsf_golden_gives(&g->golden, (dsf_tap){DSF_TAP_IN, l}, g->label, g->n)) return false;
        if (l > 0 && !dsf_golden_gives(&g->golden, (dsf_tap){DSF_TAP_PREMIX, l}, g->label, g->n))
            return false;
    }
    return true;
}

static dsf_status pass_over(graft *g, const int32_t *label, int64_t n)
{
    g->label = label;
    g->n = n;
    g->all_rows = n == g->golden.n;
    DSF_TRY(run_pass(g, 0));
    if (g->o->progress) g->o->progress("graft", g->r->passes, g->r->passes + 1);
    return DSF_OK;
}

/* Every other set of rows that token taps of the file share. */
static dsf_status subset_passes(graft *g)
{
    char seen[16][96];
    int n_seen = 0;
    for (int64_t i = 0; i < dsf_dump_count(g->golden.file); i++) {
        const dsf_dump_entry *e = dsf_dump_at(g->golden.file, i);
        dsf_tap t;
        bool known = !e->readable || e->stats ||
                     !dsf_tap_parse(&t, e->path, g->load.config.n_layers) ||
                     dsf_taps[t.id].rows != DSF_ROWS_TOKEN || t.layer >= g->load.config.n_layers;
        for (int k = 0; k < n_seen; k++) known |= strcmp(seen[k], e->rows) == 0;
        if (known || n_seen == 16) continue;
        (void)snprintf(seen[n_seen++], sizeof seen[0], "%s", e->rows);
        int32_t *label = NULL;
        int64_t n = 0;
        DSF_TRY(dsf_golden_labels(&g->golden, e, &label, &n));
        dsf_status st = DSF_OK;
        for (int64_t k = 0; k < n && st == DSF_OK; k++)
            if (label[k] < 0 || label[k] >= g->golden.n || (k && label[k] <= label[k - 1]))
                st = DSF_FAIL(DSF_ECORRUPT, "%s: %s: labels must ascend within 0..%lld",
                              g->golden.path, e->rows, (long long)g->golden.n - 1);
        if (st == DSF_OK && n > 0 && n != g->golden.n) st = pass_over(g, label, n);
        dsf_mem_free(label);
        DSF_TRY(st);
    }
    return DSF_OK;
}

/* The block after the prompt, where the file has its inputs and the rings. */
static dsf_status draft_rows(graft *g, const int32_t *label, int b)
{
    int64_t anchor;
    const dsf_tap in = {DSF_TAP_IN, g->load.config.n_layers};
    g->label = label;
    g->n = b;
    DSF_TRY(dsf_dump_anchor(g->golden.file, g->golden.path, g->golden.n, g->load.config.vocab_size,
                            &anchor));
    bool can = anchor >= 0 && dsf_golden_gives(&g->golden, in, label, b);
    for (int s = 0; s < g->load.config.n_mtp_layers && can; s++)
        can = dsf_golden_has_ring(&g->golden, s);
    if (g->golden.status != DSF_OK) return dsf_error_pass(g->golden.status, DSF_HERE);
    if (!can) return DSF_OK;
    g->draft = g->all_rows = true;
    return run_pass(g, anchor);
}

static dsf_status draft_pass(graft *g)
{
    int32_t label[256];
    int b = g->load.config.dspark_block_size;
    if (g->load.config.n_mtp_layers == 0 || b > 256) return DSF_OK;
    for (int i = 0; i < b; i++) label[i] = (int32_t)(g->golden.n + i);
    dsf_status st = draft_rows(g, label, b);
    g->label = NULL;
    g->n = 0;
    return st;
}

static void list_absent(graft *g)
{
    for (int64_t i = 0; i < dsf_dump_count(g->golden.file); i++) {
        const dsf_dump_entry *e = dsf_dump_at(g->golden.file, i);
        dsf_tap t;
        if (e->stats || !dsf_tap_parse(&t, e->path, g->load.config.n_layers) ||
            g->done[tap_index(t)] || !asked(g, t))
            continue;
        bool input = t.id == DSF_TAP_IN || t.id == DSF_TAP_PREMIX || t.id == DSF_TAP_EMBED;
        if (input) continue; /* given, not computed */
        /* Every layer had its inputs: a backbone tap that no step shows has been lost. */
        bool lost = !g->r->by_op && t.layer < g->load.config.n_layers &&
                    dsf_taps[t.id].rows != DSF_ROWS_DRAFT;
        dsf_buf_fmt(&g->r->absent, "%s: %s\n", e->path,
                    lost ? "LOST: its inputs are given, and no step shows it"
                         : "not injectable: inputs absent");
        g->r->n_absent++;
        g->r->n_lost += lost;
    }
}

static dsf_status open_dump(graft *g)
{
    if (dsf_file_same(g->o->golden, g->o->out))
        return DSF_FAIL(DSF_EINVAL, "%s: golden and output are one file", g->o->out);
    DSF_TRY(dsf_file_may_replace(g->o->out));
    char path[4096], digest[33];
    DSF_TRY(dsf_file_join(path, g->o->model, "config.json"));
    DSF_TRY(dsf_file_open(&g->config_file, path));
    DSF_TRY(dsf_mem_new(&g->config_text, g->config_file.size + 1, 1));
    memcpy(g->config_text, g->config_file.data, g->config_file.size);
    DSF_TRY(dsf_ckpt_digest(g->load.ckpt, digest));
    uint8_t *mask = NULL;
    if (g->golden.mask) {
        DSF_TRY(dsf_mem_new(&mask, (size_t)g->golden.n, 1));
        for (int64_t i = 0; i < g->golden.n; i++) mask[i] = g->golden.mask[i] != 0;
    }
    const dsf_dump_meta meta = {.producer = "dsf",
                                .model = dsf_dump_info_of(g->golden.file)->model,
                                .config_json = g->config_text,
                                .mode = "injected",
                                .backend = g->o->backend,
                                .variants = g->o->variants ? g->o->variants : "",
                                .checkpoint_digest = digest,
                                .token_ids = g->golden.ids,
                                .n_tokens = g->golden.n,
                                .image_mask = mask};
    dsf_status st = dsf_dump_create(&g->dump, g->o->out, &meta);
    dsf_mem_free(mask);
    DSF_TRY(st);
    dsf_dump_logits_oneshot(g->dump, true);
    g->out = dsf_dump_sink(g->dump);
    return DSF_OK;
}

static dsf_status open_model(graft *g)
{
    DSF_TRY(dsf_load_open(&g->load, g->o->model, NULL));
    g->load.model.unfused = true;
    /* Before there are threads: a dump is looked at in a child process first. */
    DSF_TRY(dsf_golden_open(&g->golden, &g->load.config, g->o->golden));
    DSF_TRY(dsf_pool_open(&g->pool, g->o->threads ? g->o->threads : dsf_pool_processors()));
    if (dsf_plan_on_device(g->o->variants)) DSF_TRY(dsf_device_open(&g->device, 0));
    return dsf_mem_new(&g->done, MOST_TAPS, 1);
}

/* Draft stage S counts as layer n_layers + S. */
static dsf_status check_layers(const graft *g)
{
    const dsf_graft_options *o = g->o;
    int last = g->load.config.n_layers - 1, stages = g->load.config.n_mtp_layers;
    if (!o->by_layer_range || o->layer_to <= last + stages) return DSF_OK;
    char words[64] = "";
    if (stages)
        (void)snprintf(words, sizeof words, " (draft stages %d-%d)", last + 1, last + stages);
    return DSF_FAIL(DSF_EINVAL, "--layers %d-%d: the model has layers 0-%d%s", o->layer_from,
                    o->layer_to, last, words);
}

static dsf_status run_all(graft *g)
{
    int32_t *positions = NULL;
    DSF_TRY(open_model(g));
    DSF_TRY(check_layers(g));
    DSF_TRY(open_dump(g));
    DSF_TRY(dsf_mem_new(&positions, (size_t)g->golden.n, sizeof *positions));
    for (int64_t i = 0; i < g->golden.n; i++) positions[i] = (int32_t)i;
    g->label = positions;
    g->n = g->golden.n;
    g->r->by_op = g->o->by_op || (!g->o->by_layer_only && !layers_have_inputs(g));
    dsf_status st = pass_over(g, positions, g->golden.n);
    if (st == DSF_OK && g->r->by_op) st = subset_passes(g);
    dsf_mem_free(positions);
    g->label = NULL;
    g->n = 0;
    DSF_TRY(st);
    DSF_TRY(draft_pass(g));
    list_absent(g);
    dsf_dump *dump = g->dump;
    g->dump = NULL;
    DSF_TRY(dsf_buf_status(&g->r->absent));
    return dsf_dump_finish(dump);
}

dsf_status dsf_graft_run(const dsf_graft_options *o, dsf_graft_report *r)
{
    *r = (dsf_graft_report){.taps = 0};
    graft g = {.o = o, .r = r};
    dsf_status st = run_all(&g);
    dsf_dump_abandon(g.dump);
    dsf_golden_close(&g.golden);
    dsf_file_close(&g.config_file);
    dsf_mem_free(g.config_text);
    dsf_mem_free(g.done);
    dsf_device_close(g.device);
    dsf_pool_close(g.pool);
    dsf_load_close(&g.load);
    return st;
}

void dsf_graft_report_free(dsf_graft_report *r)
{
    dsf_buf_free(&r->given);
    dsf_buf_free(&r->absent);
}
