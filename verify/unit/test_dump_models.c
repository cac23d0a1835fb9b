/* Models that lack something: no candidate pool, draft, Engram or sparse attention. Each has its
 * dump, with every tap that is left and none of the others. */
#include "engine_fixture.h"

#include "verify/dump/reader.h"
#include "verify/dump/run.h"

TestSuite(dump_models, .fini = mini_clean, .timeout = 240);

typedef struct {
    const char *name;
    int layers, mtp; /* -1: as mini has them */
    bool no_engram, no_pool;
    int n_engram, pool; /* wanted: layers with Engram, the pool's */
} cut;

static const cut models[] = {
    {"five layers", 5, 0, .n_engram = 2, .pool = -1},
    {"window layers alone", 1, 0, .n_engram = 0, .pool = -1},
    {"no draft", -1, 0, .n_engram = 2, .pool = 5},
    {"no Engram", -1, -1, .no_engram = true, .n_engram = 0, .pool = 5},
    {"no pool", -1, 1, .no_pool = true, .n_engram = 2, .pool = -1},
};
enum { N_MODELS = sizeof models / sizeof *models, PROMPT = 12 };

static void write_cut(const cut *m, const char *folder)
{
    dsf_config c;
    GOOD(dsf_synth_preset(&c, "mini"));
    GOOD(dsf_synth_trim(&c, m->layers, m->mtp));
    if (m->no_engram) c.n_engram = 0;
    if (m->no_pool) c.candidate_source_layer = -1;
    write_config(folder, "mini", &c);
}

/* Taps of the geometry that the file does not hold, or holds beyond it. */
static int64_t misfits(const cut *m, const dsf_dump_file *f, bool stats)
{
    const dsf_dump_geometry *g = &dsf_dump_info_of(f)->geometry;
    int64_t here = 0, wrong = 0;
    for (int id = 0; id < DSF_N_TAPS; id++)
        for (int l = -1; l < g->n_layers + g->n_stages; l++) {
            char name[64], path[80];
            dsf_tap t = {(dsf_tap_id)id, l};
            bool fits = dsf_taps[id].scope == DSF_SCOPE_GLOBAL  ? l < 0
                        : dsf_taps[id].scope == DSF_SCOPE_LAYER ? l >= 0
                                                                : l >= g->n_layers;
            if (!fits || !dsf_dump_geometry_has(g, t)) continue;
            dsf_tap_path(name, t, g->n_layers);
            (void)snprintf(path, sizeof path, "%s%s", stats ? "stats/" : "", name);
            bool found = dsf_dump_find(f, path) != NULL;
            here += found;
            wrong += !found;
            if (!found) cr_log_warn("%s: %s is missing", m->name, path);
        }
    /* one prefill shows logits of all rows and of the last */
    here += dsf_dump_find(f, stats ? "stats/logits_oneshot" : "logits_oneshot") != NULL;
    return wrong + (dsf_dump_count(f) - here);
}

static void expect_dump(const cut *m, const char *folder, bool stats)
{
    char out[4200];
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = token(i, 1);
    (void)snprintf(out, sizeof out, "%s/out.h5", folder);
    const dsf_dump_run d = {.engine = {.model = folder, .threads = 1, .prefill = DSF_PREFILL_EXACT},
                            .out = out,
                            .backend = "cpu",
                            .ids = ids,
                            .n = PROMPT,
                            .decode = 2,
                            .draft = true,
                            .stats = stats};
    dsf_dump_run_report r;
    dsf_dump_file *f;
    GOOD(dsf_dump_run_model(&d, &r));
    cr_expect_eq(r.decoded, 2, "%s", m->name);
    GOOD(dsf_dump_open(&f, out));
    const dsf_dump_geometry *g = &dsf_dump_info_of(f)->geometry;
    int engrams = 0;
    for (int i = 0; i < g->n_layers; i++) engrams += g->engram[i];
    cr_expect_eq(engrams, m->n_engram, "%s: %d", m->name, engrams);
    cr_expect_eq(g->pool_layer, m->pool, "%s: %d", m->name, g->pool_layer);
    cr_expect_eq(misfits(m, f, stats), 0, "%s", m->name);
    dsf_dump_close(f);
}

Test(dump_models, each_has_the_taps_that_are_left)
{
    for (int i = 0; i < N_MODELS; i++) {
        char folder[4096];
        make_temp(folder);
        write_cut(&models[i], folder);
        expect_dump(&models[i], folder, false);
        expect_dump(&models[i], folder, true);
        remove_temp(folder);
    }
}

static dsf_status parse(const char *text, dsf_dump_geometry *g)
{
    return dsf_dump_geometry_parse(g, "config.json", text, strlen(text));
}

Test(dump_models, no_pool_is_minus_one_null_or_no_key_and_nothing_below)
{
    dsf_dump_geometry g;
    GOOD(parse("{\"candidate_source_layer_id\": -1}", &g));
    cr_expect_eq(g.pool_layer, -1);
    GOOD(parse("{\"candidate_source_layer_id\": null}", &g));
    cr_expect_eq(g.pool_layer, -1);
    GOOD(parse("{}", &g));
    cr_expect_eq(g.pool_layer, -1);
    GOOD(parse("{\"candidate_source_layer_id\": 0}", &g));
    cr_expect_eq(g.pool_layer, 0);
    REFUSED(DSF_ECORRUPT, parse("{\"candidate_source_layer_id\": -2}", &g));
    SAYS("candidate_source_layer_id is -2, allowed -1 (none) to 127");
    REFUSED(DSF_ECORRUPT, parse("{\"candidate_source_layer_id\": 128}", &g));
    REFUSED(DSF_ECORRUPT, parse("{\"num_nextn_predict_layers\": -1}", &g));
}
