/* A dump changes no bit of the run it looks at, and its statistics are those of its rows. */
#include "engine_fixture.h"

#include "verify/dump/blocks.h"
#include "verify/dump/writer.h"

TestSuite(dump_bits, .fini = mini_clean, .timeout = 240);

enum { PROMPT = 40, DECODE = 3, ALL = PROMPT + DECODE, CHUNK = 16 };

typedef enum { BLIND, FULL, STATS, PACKED, N_LOOKS } look;

/* What a run gives: ids, the logits of its prompt and of every decoded token, the draft. */
typedef struct {
    float logits[DECODE + 1][MINI_VOCAB], confidence[8];
    int32_t id[DECODE], draft[8];
    int n_draft;
} output;

static char *read_config(void)
{
    char path[4200];
    dsf_file f;
    char *text = NULL;
    GOOD(dsf_file_join(path, mini(), "config.json"));
    GOOD(dsf_file_open(&f, path));
    GOOD(dsf_mem_new(&text, f.size + 1, 1));
    memcpy(text, f.data, f.size);
    dsf_file_close(&f);
    return text;
}

static const char *dump_path(look how)
{
    static char path[N_LOOKS][4200];
    (void)snprintf(path[how], sizeof path[how], "%s/%d.h5", mini(), (int)how);
    return path[how];
}

static dsf_dump *start_dump(look how, const int32_t *ids)
{
    char *config = read_config();
    const dsf_dump_meta m = {.producer = "test",
                             .model = "mini",
                             .config_json = config,
                             .mode = "exact",
                             .token_ids = ids,
                             .n_tokens = PROMPT,
                             .n_decode = DECODE,
                             .stats = how == STATS,
                             .compress = how == PACKED};
    dsf_dump *d = NULL;
    GOOD(dsf_dump_create(&d, dump_path(how), &m));
    dsf_mem_free(config);
    return d;
}

static void keep_row(const dsf_session *s, float out[MINI_VOCAB])
{
    const float *row;
    GOOD(dsf_session_logits(s, &row));
    memcpy(out, row, MINI_VOCAB * sizeof *row);
}

static int32_t best(const float *row)
{
    int32_t id = 0;
    for (int32_t i = 1; i < MINI_VOCAB; i++)
        if (row[i] > row[id]) id = i;
    return id;
}

static void generate(dsf_engine *e, dsf_dump *d, const dsf_tap_sink *sink, output *out)
{
    dsf_session *s = open_session(e);
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = token(i, 3);
    if (d) dsf_dump_logits_oneshot(d, e->opt.all_logits);
    GOOD(dsf_session_feed(s, ids, PROMPT));
    while (dsf_session_queued(s) > 0) GOOD(dsf_engine_step(e, &s, 1, sink));
    keep_row(s, out->logits[0]);
    if (d) dsf_dump_logits_oneshot(d, false);
    GOOD(dsf_session_draft(s, best(out->logits[0]), out->draft, out->confidence, &out->n_draft,
                           sink));
    for (int t = 0; t < DECODE; t++) {
        out->id[t] = best(out->logits[t]);
        if (d) GOOD(dsf_dump_add_tokens(d, &out->id[t], 1));
        GOOD(dsf_session_feed(s, &out->id[t], 1));
        GOOD(dsf_engine_step(e, &s, 1, sink));
        keep_row(s, out->logits[t + 1]);
    }
    dsf_session_close(s);
}

static void run(look how, const char *variants, dsf_prefill prefill, output *out)
{
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = token(i, 3);
    memset(out, 0, sizeof *out);
    dsf_dump *d = how == BLIND ? NULL : start_dump(how, ids);
    dsf_tap_sink sink = {.on_value = NULL};
    dsf_options o = {.context = ALL,
                     .chunk = CHUNK,
                     .threads = 2,
                     .variants = variants,
                     .prefill = prefill,
                     .all_logits = prefill == DSF_PREFILL_EXACT && d,
                     .unfused = d != NULL};
    if (d) sink = dsf_dump_sink(d);
    if (d) o.sink = &sink;
    dsf_engine *e = open_engine(o);
    generate(e, d, d ? &sink : NULL, out);
    dsf_engine_close(e);
    if (d) GOOD(dsf_dump_finish(d));
}

/* Which taps the file has: everything that this model's plan shows. */
static void expect_all_taps(look how)
{
    dsf_dump_file *f;
    int missing = 0;
    GOOD(dsf_dump_open(&f, dump_path(how)));
    const dsf_dump_geometry *g = &dsf_dump_info_of(f)->geometry;
    for (int id = 0; id < DSF_N_TAPS; id++)
        for (int l = -1; l < g->n_layers + g->n_stages; l++) {
            char path[80], name[64];
            dsf_tap t = {(dsf_tap_id)id, l};
            bool here = dsf_taps[id].scope == DSF_SCOPE_GLOBAL  ? l < 0
                        : dsf_taps[id].scope == DSF_SCOPE_LAYER ? l >= 0
                                                                : l >= g->n_layers;
            if (!here || !dsf_dump_geometry_has(g, t)) continue;
            dsf_tap_path(name, t, g->n_layers);
            (void)snprintf(path, sizeof path, "%s%s", how == STATS ? "stats/" : "", name);
            if (dsf_dump_find(f, path)) continue;
            missing++;
            cr_log_warn("%s: not in the dump", path);
        }
    cr_expect_eq(missing, 0);
    dsf_dump_close(f);
}

static void expect_same_bits(const char *variants)
{
    static output blind, seen;
    for (int mode = DSF_PREFILL_CONE; mode <= DSF_PREFILL_REPLAY; mode++) {
        run(BLIND, variants, (dsf_prefill)mode, &blind);
        for (look how = FULL; how <= STATS; how++) {
            run(how, variants, (dsf_prefill)mode, &seen);
            cr_expect_eq(memcmp(&blind, &seen, sizeof seen), 0, "%s, prefill %d, dump %d",
                         variants ? variants : "best", mode, (int)how);
            if (mode == DSF_PREFILL_EXACT) expect_all_taps(how);
        }
    }
}

Test(dump_bits, the_reference_gives_the_same_bits_with_every_tap_on) { expect_same_bits("ref"); }
Test(dump_bits, the_best_variants_give_the_same_bits_with_every_tap_on) { expect_same_bits(NULL); }

/* The first record that differs in its hash or count, -1 for none; both stand for the same rows. */
static int64_t first_other(const dsf_dump_blocks *a, const dsf_dump_blocks *b)
{
    cr_assert(a->width == b->width && a->block == b->block && a->rows == b->rows && a->n == b->n);
    cr_assert_arr_eq(a->label, b->label, (size_t)a->rows * sizeof *a->label);
    for (int64_t i = 0; i < a->n; i++)
        if (a->stat[i].hash != b->stat[i].hash || a->stat[i].count != b->stat[i].count) return i;
    return -1;
}

Test(dump_bits, statistics_are_those_of_the_rows)
{
    static output out;
    dsf_dump_file *full, *stats, *packed;
    int64_t taps = 0, records = 0, first;
    for (look how = FULL; how < N_LOOKS; how++) run(how, NULL, DSF_PREFILL_EXACT, &out);
    GOOD(dsf_dump_open(&full, dump_path(FULL)));
    GOOD(dsf_dump_open(&stats, dump_path(STATS)));
    GOOD(dsf_dump_open(&packed, dump_path(PACKED)));
    cr_expect_eq(dsf_dump_count(full), dsf_dump_count(stats), "every tap has its statistics");
    for (int64_t i = 0; i < dsf_dump_count(full); i++) {
        const char *path = dsf_dump_at(full, i)->path;
        dsf_dump_blocks a, b, c;
        bool found;
        GOOD(dsf_dump_blocks_read(full, path, &a, &found));
        cr_assert(found && a.computed);
        GOOD(dsf_dump_blocks_read(stats, path, &b, &found));
        cr_assert(found && !b.computed, "%s", path);
        GOOD(dsf_dump_blocks_read(packed, path, &c, &found));
        first = first_other(&a, &b);
        cr_expect_eq(first, -1, "%s: record %lld", path, (long long)first);
        cr_expect_arr_eq(a.stat, b.stat, (size_t)a.n * sizeof *a.stat, "%s", path);
        first = first_other(&a, &c);
        cr_expect_eq(first, -1, "%s, compressed", path);
        taps++;
        records += a.n;
        dsf_dump_blocks_free(&a);
        dsf_dump_blocks_free(&b);
        dsf_dump_blocks_free(&c);
    }
    cr_expect_gt(taps, 250);
    cr_expect_geq(records, taps);
    dsf_dump_close(full);
    dsf_dump_close(stats);
    dsf_dump_close(packed);
}
