/* Faults: the nth allocation fails, files are short or missing, a sink gives up. Every run ends in
 * a clean status, without a leak, and the process goes on as if nothing had happened. */
#include <hdf5.h>
#include <sys/stat.h>

#include "engine_fixture.h"
#include "verify/diff/diff.h"
#include "verify/dump/reader.h"
#include "verify/dump/run.h"
#include "verify/graft/graft.h"

TestSuite(fault, .fini = mini_clean);

enum { MOST_ALLOCATIONS = 20000 };

/* Runs `what` with the first allocation failing, then the second, until it passes untouched.
 * Returns how often it failed. */
typedef dsf_status trial(void *arg);
static int fail_each_allocation(trial *what, void *arg, int stride)
{
    int failed = 0;
    for (uint64_t nth = 1; nth < MOST_ALLOCATIONS; nth += (uint64_t)stride) {
        uint64_t before = dsf_mem_count();
        dsf_mem_fail_at(nth);
        dsf_status st = what(arg);
        dsf_mem_fail_at(0);
        if (st != DSF_OK) {
            failed++; /* EIO: HDF5's file driver is ours, and HDF5 tells no more than yes or no */
            cr_assert(st == DSF_ENOMEM || st == DSF_EIO, "allocation %llu: %s",
                      (unsigned long long)nth, dsf_error_text());
            cr_assert_gt(strlen(dsf_error_message()), 0);
        }
        if (dsf_mem_count() - before < nth) { /* it needed fewer */
            cr_assert_eq(st, DSF_OK, "%s", dsf_error_text());
            return failed;
        }
    }
    cr_assert_fail("still failing after %d allocations", MOST_ALLOCATIONS);
    return 0;
}

/* ---- the engine ---- */

static dsf_status try_open(void *arg)
{
    const dsf_options o = {.model = arg, .context = 32, .chunk = 4, .threads = 2, .timed = true};
    dsf_engine *e = NULL;
    dsf_status st = dsf_engine_open(&e, &o);
    cr_assert_eq(e != NULL, st == DSF_OK);
    dsf_engine_close(e);
    return st;
}

Test(fault, opening_an_engine_survives_every_failing_allocation)
{
    char *model = mini_folder;
    (void)mini();
    cr_expect_gt(fail_each_allocation(try_open, model, 1), 50);
    GOOD(try_open(model));
}

static dsf_status try_session(void *arg)
{
    dsf_session *s = NULL;
    dsf_status st = dsf_session_open(&s, arg);
    cr_assert_eq(s != NULL, st == DSF_OK);
    dsf_session_close(s);
    return st;
}

static dsf_status try_fork(void *arg)
{
    dsf_session *s = NULL;
    dsf_status st = dsf_session_fork(&s, arg);
    cr_assert_eq(s != NULL, st == DSF_OK);
    dsf_session_close(s);
    return st;
}

static dsf_status try_describe(void *arg)
{
    for (int k = 0; k < 4; k++) {
        char *text = NULL;
        DSF_TRY(dsf_engine_describe(arg, k & 1, k & 2, &text));
        dsf_text_free(text);
    }
    return DSF_OK;
}

static dsf_status try_tokens(void *arg)
{
    dsf_session *s = arg;
    const int32_t id = 7;
    int32_t ids[8];
    float confidence[8];
    int n;
    DSF_TRY(dsf_session_rewind(s, 10));
    DSF_TRY(dsf_session_feed(s, &id, 1));
    DSF_TRY(dsf_engine_step(s->engine, &s, 1, NULL));
    return dsf_session_draft(s, id, ids, confidence, &n, NULL);
}

Test(fault, sessions_survive_every_failing_allocation_and_go_on_unchanged)
{
    float want[MINI_VOCAB], have[MINI_VOCAB];
    dsf_engine *e = open_engine((dsf_options){.context = 32, .slots = 2, .chunk = 8});
    dsf_session *s = open_session(e);
    feed_run(s, 1, 0, 10);
    take_logits(s, want);
    cr_expect_gt(fail_each_allocation(try_session, e, 1), 0);
    cr_expect_gt(fail_each_allocation(try_fork, s, 1), 0);
    cr_expect_gt(fail_each_allocation(try_describe, e, 1), 0);
    take_logits(s, have);
    SAME_LOGITS(want, have, "after failing opens and forks");
    cr_expect_eq(fail_each_allocation(try_tokens, s, 1), 0, "tokens allocate nothing");
    GOOD(dsf_session_rewind(s, 10));
    feed_run(s, 1, 10, 20);
    take_logits(s, have);
    want_logits(1, 20, want);
    SAME_LOGITS(want, have, "and then more tokens");
    dsf_session *t = open_session(e); /* no slot was lost */
    dsf_session_close(t);
    dsf_session_close(s);
    dsf_engine_close(e);
}

/* ---- dump and graft ---- */

static char out_path[8192], golden_path[8192];

static void set_paths(void)
{
    (void)snprintf(out_path, sizeof out_path, "%s/out.h5", mini());
    (void)snprintf(golden_path, sizeof golden_path, "%s/golden.h5", mini());
}

static dsf_status make_dump(const char *out, int64_t decode)
{
    int32_t ids[11];
    for (int i = 0; i < 11; i++) ids[i] = token(i, 1);
    const dsf_dump_run d = {
        .engine = {.model = mini_folder, .chunk = 5, .threads = 1, .prefill = DSF_PREFILL_EXACT},
        .out = out,
        .backend = "cpu",
        .ids = ids,
        .n = 11,
        .decode = decode,
        .draft = true};
    dsf_dump_run_report r;
    return dsf_dump_run_model(&d, &r);
}

static bool there(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

static dsf_status try_dump(void *arg)
{
    (void)arg;
    (void)unlink(out_path);
    dsf_status st = make_dump(out_path, 1);
    cr_assert_eq(there(out_path), st == DSF_OK, "a whole file or none");
    return st;
}

Test(fault, a_dump_survives_every_failing_allocation, .timeout = 900)
{
    set_paths();
    cr_expect_gt(fail_each_allocation(try_dump, NULL, 5), 50);
    GOOD(try_dump(NULL));
    dsf_dump_file *f;
    GOOD(dsf_dump_open(&f, out_path));
    cr_expect_gt(dsf_dump_count(f), 300);
    dsf_dump_close(f);
}

static dsf_status try_reading(void *arg)
{
    dsf_dump_file *f = NULL;
    dsf_dump_array a = {.n = 0};
    dsf_status st = dsf_dump_open(&f, arg);
    if (st == DSF_OK) st = dsf_dump_read(f, "layers/03/attn/kv_window", &a);
    dsf_dump_array_free(&a);
    dsf_dump_close(f);
    return st;
}

static dsf_status try_graft(void *arg)
{
    const dsf_graft_options o = {.model = mini_folder,
                                 .golden = golden_path,
                                 .out = out_path,
                                 .backend = "cpu",
                                 .threads = 1,
                                 .by_op = arg != NULL};
    dsf_graft_report r;
    (void)unlink(out_path);
    dsf_status st = dsf_graft_run(&o, &r);
    dsf_graft_report_free(&r);
    cr_assert_eq(there(out_path), st == DSF_OK, "a whole file or none");
    return st;
}

/* Thousands of allocations, most of them alike: every so-manieth. */
/* A dump of our own holds no rings of the draft stages: they come from the context rows. */
Test(fault, a_graft_of_our_own_dump_gives_every_tap_the_same_bits)
{
    set_paths();
    GOOD(make_dump(golden_path, 0));
    const dsf_graft_options o = {.model = mini_folder,
                                 .golden = golden_path,
                                 .out = out_path,
                                 .backend = "cpu",
                                 .threads = 1};
    dsf_graft_report r;
    GOOD(dsf_graft_run(&o, &r));
    cr_expect_eq(r.n_absent, 0, "%s", r.absent.data ? r.absent.data : "");
    cr_expect_eq(r.passes, 2);
    dsf_graft_report_free(&r);
    const dsf_diff_options d = {.reference = golden_path, .ours = out_path, .no_gate = "own"};
    dsf_diff_report q;
    GOOD(dsf_diff_run(&d, &q));
    cr_expect_gt(q.n_taps, 200);
    for (int64_t i = 0; i < q.n_taps; i++)
        cr_expect_eq(q.tap[i].unequal, 0, "%s: %lld rows", q.tap[i].path,
                     (long long)q.tap[i].unequal);
    dsf_diff_report_free(&q);
}

/* Ids of a golden file lead to memory: what lies outside is refused. */
static void poke(const char *name, int64_t at, int32_t value)
{
    hid_t file = H5Fopen(golden_path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t space = H5Dget_space(set);
    hssize_t n = H5Sget_simple_extent_npoints(space);
    int32_t *x = malloc((size_t)n * sizeof *x);
    cr_assert(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0, "%s", name);
    x[at < 0 ? n + at : at] = value;
    cr_assert(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0, "%s", name);
    free(x);
    (void)H5Sclose(space);
    (void)H5Dclose(set);
    (void)H5Fclose(file);
}

Test(fault, hostile_ids_in_a_golden_file_are_refused)
{
    static const struct {
        const char *name;
        int64_t at;
        int32_t value;
        const char *says;
    } bad[] = {
        {"layers/05/attn/topk", -1, 1 << 30, "there are"},
        {"layers/05/attn/topk", -1, 11, "id 11, there are 11"},
        {"layers/05/attn/topk", 0, 5, "position 0: id 5, there are 1"},
        {"layers/02/attn/topk", -1, -2, "id -2"},
        {"layers/00/ffn/expert_ids", 0, 8, "id 8, there are 8"},
        {"layers/00/ffn/expert_ids", 3, -1, "id -1"},
        {"layers/07/ffn/expert_ids", -1, INT32_MIN, "there are 8"},
        {"dspark/stages/1/ffn/expert_ids", 0, 4, "id 4, there are 4"},
        {"layers/05/attn/pool", 10, 1, "position 0: id 10"},
        {"token_ids", 3, 512, "vocabulary of 512"},
        {"token_ids", 0, -1, "vocabulary of 512"},
    };
    set_paths();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)unlink(golden_path);
        GOOD(make_dump(golden_path, 0));
        poke(bad[i].name, bad[i].at, bad[i].value);
        dsf_status st = try_graft(golden_path);
        cr_expect(st == DSF_ECORRUPT || st == DSF_EINVAL, "%s", bad[i].name);
        cr_expect_not_null(strstr(dsf_error_message(), bad[i].says), "%s: \"%s\" in \"%s\"",
                           bad[i].name, bad[i].says, dsf_error_message());
    }
}

Test(fault, a_graft_survives_failing_allocations, .timeout = 900)
{
    set_paths();
    GOOD(make_dump(golden_path, 0));
    cr_expect_gt(fail_each_allocation(try_reading, golden_path, 1), 10);
    cr_expect_gt(fail_each_allocation(try_graft, NULL, 401), 2);
    cr_expect_gt(fail_each_allocation(try_graft, golden_path, 701), 2);
    GOOD(try_graft(NULL));
}

/* ---- files ---- */

/* Every file of a model: absent, empty, cut anywhere. */
Test(fault, a_model_with_a_missing_or_short_file_is_refused)
{
    static const char *const names[] = {"config.json", "tokenizer.json",
                                        "model.safetensors.index.json"};
    struct stat st;
    char path[8192], shard[8192] = "", away[8300];
    DIR *d = opendir(mini());
    for (struct dirent *f = readdir(d); f; f = readdir(d))
        if (strstr(f->d_name, ".safetensors") && !strstr(f->d_name, "index"))
            (void)snprintf(shard, sizeof shard, "%s/%s", mini(), f->d_name);
    (void)closedir(d);
    for (int k = 0; k < 4; k++) {
        if (k < 3)
            (void)snprintf(path, sizeof path, "%s/%s", mini(), names[k]);
        else
            (void)snprintf(path, sizeof path, "%s", shard);
        (void)snprintf(away, sizeof away, "%s.away", path);
        cr_assert_eq(stat(path, &st), 0);
        cr_assert_eq(rename(path, away), 0);
        cr_expect_neq(try_open(mini_folder), DSF_OK, "%s is absent", path);
        SAYS(k == 3 ? "safetensors" : names[k]);
        char *data = malloc((size_t)st.st_size);
        FILE *in = fopen(away, "rb");
        cr_assert_eq(fread(data, 1, (size_t)st.st_size, in), (size_t)st.st_size);
        (void)fclose(in);
        for (int cut = 0; cut < 24; cut++) {
            size_t n = cut == 0 ? 0 : (size_t)(st.st_size - 2) * (size_t)cut / 23;
            FILE *out = fopen(path, "wb");
            cr_assert_eq(fwrite(data, 1, n, out), n);
            cr_assert_eq(fclose(out), 0);
            dsf_status got = try_open(mini_folder);
            cr_expect(got == DSF_ECORRUPT || got == DSF_EIO, "%s cut to %zu of %lld: %s", path, n,
                      (long long)st.st_size, dsf_error_message());
        }
        free(data);
        cr_assert_eq(rename(away, path), 0);
    }
    GOOD(try_open(mini_folder));
}

/* A dump cut anywhere: refused, or read as far as it is whole; never a crash. */
Test(fault, a_short_dump_is_refused_by_every_reader)
{
    struct stat st;
    set_paths();
    GOOD(make_dump(golden_path, 0));
    cr_assert_eq(stat(golden_path, &st), 0);
    for (int cut = 19; cut >= 0; cut--) {
        cr_assert_eq(truncate(golden_path, st.st_size * cut / 20), 0);
        cr_expect_neq(try_reading(golden_path), DSF_OK, "cut to %d / 20", cut);
        cr_expect_neq(try_graft(NULL), DSF_OK, "cut to %d / 20", cut);
    }
    cr_assert_eq(unlink(golden_path), 0);
    REFUSED(DSF_EIO, try_graft(NULL));
}
