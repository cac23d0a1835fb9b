/* Cases: one operation with its inputs, weights and limits in one file, run without the checkpoint;
 * and what damaged, foreign and hostile files are answered. */
#include <hdf5.h>

#include "config.h"
#include "engine_fixture.h"
#include "serve/load.h"
#include "verify/reduce/case.h"
#include "verify/reduce/cut.h"
#include "verify/reduce/pack.h"
#include "verify/reduce/seal.h"

#define SOURCE(name) DSF_SOURCE_ROOT "/golden/mini/" name

static char folder[4096];
static void open_folder(void) { make_temp(folder); }
static void close_folder(void)
{
    remove_temp(folder);
    mini_clean();
}
TestSuite(reduce_case, .init = open_folder, .fini = close_folder);

static const char *in_folder(const char *name)
{
    static char path[4][8192];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static dsf_case_options options(int layer, const char *op)
{
    return (dsf_case_options){.model = mini(),
                              .golden = SOURCE("dump-p0.h5"),
                              .floor = SOURCE("noise_floor.json"),
                              .threads = 1,
                              .max_bytes = DSF_CASE_BYTES,
                              .choice = {.layer = layer, .op = op}};
}

/* A copy of the golden file with one row of one tap made half as large again. */
static const char *plant(const char *tap, int row)
{
    const char *path = in_folder("dump-p0.h5");
    hsize_t from[2] = {(hsize_t)row, 0}, count[2] = {1, 0}, dim[2];
    static float x[4096];
    GOOD(dsf_cut_copy(SOURCE("dump-p0.h5"), path, false));
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set = H5Dopen2(file, tap, H5P_DEFAULT);
    hid_t space = H5Dget_space(set);
    cr_assert_eq(H5Sget_simple_extent_dims(space, dim, NULL), 2);
    count[1] = dim[1];
    hid_t memory = H5Screate_simple(2, count, NULL);
    (void)H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, count, NULL);
    cr_assert_geq(H5Dread(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, x), 0);
    for (hsize_t i = 0; i < dim[1]; i++) x[i] *= 1.5f;
    cr_assert_geq(H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, x), 0);
    (void)H5Sclose(memory);
    (void)H5Sclose(space);
    (void)H5Dclose(set);
    (void)H5Fclose(file);
    return path;
}

/* The bytes of a small case, as built: without a verdict. */
static void build_bytes(void **data, size_t *n)
{
    dsf_case_options o = options(4, "attn/q");
    dsf_case_report r = {.layer = -1};
    GOOD(dsf_case_build(&o, data, n, &r));
}

static dsf_status unpack(const void *data, size_t n)
{
    dsf_case_files f;
    dsf_case_report r = {.layer = -1};
    dsf_status st = dsf_case_unpack("case.h5", data, n, &f, &r);
    dsf_case_clean(&f);
    return st;
}

/* ---- the right engine ---- */

Test(reduce_case, what_this_engine_computes_right_replays_good_without_the_checkpoint)
{
    static const struct {
        int layer;
        const char *op;
    } row[] = {
        {1, NULL},  {2, NULL},         {5, NULL},      {7, "attn/topk"}, {4, "ffn/y"},
        {4, "out"}, {1, "engram/out"}, {-1, "logits"}, {-1, "embed"},    {-1, "layers/03/attn/o"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const dsf_case_options o = options(row[i].layer, row[i].op);
        const char *path = in_folder("case.h5");
        dsf_case_report r;
        GOOD(dsf_case_write(&o, path, &r));
        cr_expect(!r.fails, "%s: %s", row[i].op ? row[i].op : "layer", r.sentence);
        cr_expect_lt(r.bytes, 2000000);
        const dsf_case_options none = {.threads = 1};
        GOOD(dsf_case_replay(&none, path, &r));
        cr_expect(!r.fails, "%s", r.sentence);
        cr_expect_str_eq(r.recorded, "good");
        cr_expect_gt(r.taps, 0);
    }
}

Test(reduce_case, rows_cut_the_case_and_the_experts)
{
    dsf_case_options o = options(3, NULL);
    dsf_case_report whole, one;
    GOOD(dsf_case_write(&o, in_folder("whole.h5"), &whole));
    o.choice.by_row = true;
    o.choice.row_from = o.choice.row_to = 9;
    GOOD(dsf_case_write(&o, in_folder("one.h5"), &one));
    cr_expect(!one.fails, "%s", one.sentence);
    cr_expect_eq(one.taps, whole.taps);
    cr_expect_str_eq(one.rows, "9-9");
    /* three of the experts that all rows use: weight and scale of three matrices each */
    cr_expect_gt(whole.tensors, one.tensors);
    cr_expect_eq((whole.tensors - one.tensors) % 6, 0);
    cr_expect_lt(one.bytes, whole.bytes);
}

/* Official files hold some positions only of most taps: the case has those. */
Test(reduce_case, a_trimmed_file_gives_the_rows_that_it_has)
{
    char set[4096], golden[4096], floor[4096];
    dsf_case_report r;
    if (!find_shared(golden, "golden-official/long-c/dump-p0.h5"))
        cr_skip_test("golden-official/long-c: not here");
    cr_assert(find_shared(set, "golden-official/long-c"));
    cr_assert(find_shared(floor, "golden-official/noise_floor.json"));
    dsf_case_options o = options(5, "ffn/y");
    o.model = set;
    o.golden = golden;
    o.floor = floor;
    GOOD(dsf_case_write(&o, in_folder("case.h5"), &r));
    cr_expect(!r.fails, "%s", r.sentence);
    cr_expect_str_eq(r.rows, "0-2999, 47 of them");
}

/* ---- the wrong one ---- */

Test(reduce_case, the_planted_row_of_the_planted_operation_is_found)
{
    dsf_case_options o = options(-1, NULL);
    const dsf_case_options none = {.threads = 1};
    dsf_case_report r;
    bool found = false;
    o.golden = plant("layers/03/attn/y", 9);
    GOOD(dsf_case_write_first(&o, in_folder("case.h5"), &r, &found));
    cr_assert(found && r.fails);
    cr_expect_eq(r.layer, 3);
    cr_expect_str_eq(r.op, "layers/03/attn/y");
    cr_expect_str_eq(r.rows, "9-9");
    GOOD(dsf_case_replay(&none, in_folder("case.h5"), &r));
    cr_expect(r.fails);
    cr_expect_str_eq(r.recorded, "fails");
    cr_expect_not_null(strstr(r.recorded_sentence, "layers/03/attn/y"));
}

Test(reduce_case, nothing_is_found_in_an_untouched_file)
{
    const dsf_case_options o = options(-1, NULL);
    dsf_case_report r;
    bool found = true;
    GOOD(dsf_case_write_first(&o, in_folder("case.h5"), &r, &found));
    cr_expect(!found);
    cr_expect(!dsf_file_exists(in_folder("case.h5")));
}

/* The weights that are run are those of the file: other weights are another verdict. */
Test(reduce_case, a_case_of_other_weights_fails)
{
    dsf_case_options o = options(4, "attn/q");
    dsf_config c;
    dsf_case_report r;
    GOOD(put_preset(folder, "mini", 2, &c));
    char from[8192];
    (void)snprintf(from, sizeof from, "%s/tokenizer.json", mini());
    GOOD(dsf_cut_copy(from, in_folder("tokenizer.json"), false));
    o.model = folder;
    GOOD(dsf_case_write(&o, in_folder("case.h5"), &r));
    cr_expect(r.fails, "%s", r.sentence);
}

/* ---- what is refused ---- */

Test(reduce_case, a_case_over_the_limit_is_refused_with_the_numbers)
{
    dsf_case_options o = options(4, NULL);
    dsf_case_report r;
    o.max_bytes = 200000;
    cr_expect_eq(dsf_case_write(&o, in_folder("case.h5"), &r), DSF_ENOMEM);
    SAYS("at most 200000");
    SAYS("layers.4.");
    cr_expect(!dsf_file_exists(in_folder("case.h5")));
}

Test(reduce_case, what_is_not_there_is_named)
{
    dsf_case_report r;
    dsf_case_options o = options(99, NULL);
    cr_expect_eq(dsf_case_write(&o, in_folder("case.h5"), &r), DSF_EINVAL);
    SAYS("layers 0-9");
    o = options(3, "attn/nothing");
    cr_expect_eq(dsf_case_write(&o, in_folder("case.h5"), &r), DSF_EINVAL);
    SAYS("attn/nothing");
    o = options(3, NULL);
    o.choice.by_row = true;
    o.choice.row_from = 60;
    o.choice.row_to = 64;
    cr_expect_eq(dsf_case_write(&o, in_folder("case.h5"), &r), DSF_EINVAL);
    SAYS("rows 0-63");
}

Test(reduce_case, a_file_that_is_no_case_is_refused)
{
    const dsf_case_options none = {.threads = 1};
    dsf_case_report r;
    cr_expect_eq(dsf_case_replay(&none, SOURCE("dump-p0.h5"), &r), DSF_ECORRUPT);
    SAYS("no case");
    cr_expect_eq(dsf_case_replay(&none, SOURCE("noise_floor.json"), &r), DSF_ECORRUPT);
    cr_expect_eq(dsf_case_replay(&none, in_folder("absent.h5"), &r), DSF_EIO);
}

Test(reduce_case, a_damaged_file_is_refused_or_whole)
{
    void *data;
    size_t n;
    dsf_pack p;
    build_bytes(&data, &n);
    GOOD(dsf_pack_open(&p, "case", data, n, true));
    GOOD(dsf_pack_put_str(&p, "/case", "verdict", "good"));
    GOOD(dsf_pack_put_str(&p, "/case", "sentence", ""));
    dsf_mem_free(data);
    GOOD(dsf_pack_image(&p, &data, &n));
    dsf_pack_close(&p);
    GOOD(unpack(data, n));
    for (int i = 0; i < 16; i++) cr_expect_neq(unpack(data, n * (size_t)i / 16), DSF_OK);
    cr_expect_neq(unpack(data, n - 1), DSF_OK);
    uint8_t *byte = data;
    uint64_t at = 88172645463325252u;
    for (int i = 0; i < 40; i++) {
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        byte[at % n] ^= 0x55;
        (void)unpack(data, n); /* any answer will do, but an answer */
        byte[at % n] ^= 0x55;
    }
    GOOD(unpack(data, n));
    dsf_mem_free(data);
}

/* One attribute of a sound case changed: text, or a number. */
static dsf_status unpack_changed(const char *path, const char *name, const char *text, int64_t v)
{
    void *data;
    size_t n;
    dsf_pack p;
    build_bytes(&data, &n);
    GOOD(dsf_pack_open(&p, "case", data, n, true));
    GOOD(dsf_pack_put_str(&p, "/case", "verdict", "good"));
    GOOD(dsf_pack_put_str(&p, "/case", "sentence", ""));
    if (text)
        GOOD(dsf_pack_put_str(&p, path, name, text));
    else
        GOOD(dsf_pack_put_int(&p, path, name, v));
    dsf_mem_free(data);
    GOOD(dsf_pack_image(&p, &data, &n));
    dsf_pack_close(&p);
    dsf_status st = unpack(data, n);
    dsf_mem_free(data);
    return st;
}

static dsf_status unpack_with(const char *path, const char *name, const char *text)
{
    return unpack_changed(path, name, text, 0);
}

static dsf_status unpack_with_int(const char *name, int64_t v)
{
    return unpack_changed("/case", name, NULL, v);
}

/* The first path of the attribute `inputs` of that case. */
static const char *given_path(void)
{
    static char path[128];
    void *data;
    size_t n;
    dsf_pack p;
    dsf_buf lines = {.max = 1 << 16};
    build_bytes(&data, &n);
    GOOD(dsf_pack_open(&p, "case", data, n, false));
    GOOD(dsf_pack_get_str(&p, "/case", "inputs", &lines));
    (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(lines.data, "\n"), lines.data);
    dsf_buf_free(&lines);
    dsf_pack_close(&p);
    dsf_mem_free(data);
    return path;
}

Test(reduce_case, a_case_that_lacks_what_it_names_is_broken)
{
    cr_expect_eq(unpack_with("/case", "outputs", "layers/03/zzz\n"), DSF_ECORRUPT);
    SAYS("names layers/03/zzz and does not hold it");
    cr_expect_eq(unpack_with("/case", "inputs", "layers/03/attn/zzz\n"), DSF_ECORRUPT);
    SAYS("does not hold it");
    cr_expect_eq(unpack_with("/case", "outputs", given_path()), DSF_ECORRUPT);
    SAYS("is given to it, not computed");
    int64_t more[] = {99, -2, 10 + 3};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        cr_expect_eq(unpack_with_int("layer", more[i]), DSF_ECORRUPT);
        SAYS("its model has 0-12");
    }
    cr_expect_eq(unpack_with_int("tensors", 999), DSF_ECORRUPT);
    SAYS("and no /case/weights/");
    cr_expect_eq(unpack_with_int("tensors", -1), DSF_ECORRUPT);
    SAYS("-1 tensors");
}

Test(reduce_case, a_case_that_was_edited_says_so)
{
    dsf_case_options o = options(3, "layers/03/attn/y"), none = {.threads = 1};
    dsf_case_report r;
    dsf_file f;
    uint8_t *data = NULL;
    o.floor = NULL;
    GOOD(dsf_case_write(&o, in_folder("case.h5"), &r));
    GOOD(dsf_file_open(&f, in_folder("case.h5")));
    GOOD(dsf_mem_new(&data, f.size, 1));
    memcpy(data, f.data, f.size);
    GOOD(dsf_seal_check("case", data, f.size));
    for (size_t i = 0; i < 64; i++) {
        data[f.size * i / 64] ^= 1;
        cr_expect_eq(dsf_seal_check("case", data, f.size), DSF_ECORRUPT);
        data[f.size * i / 64] ^= 1;
    }
    cr_expect_eq(dsf_seal_check("case", data, f.size - 1), DSF_ECORRUPT);
    cr_expect_eq(dsf_seal_check("case", "nothing", 7), DSF_ECORRUPT);
    SAYS("no digest");
    char words[256]; /* what stands around the digits does not matter, and the last mark counts */
    for (const char *const *tail = (const char *const[]){"", "0", "abcdef0", " x", NULL}; *tail;
         tail++) {
        int n = snprintf(words, sizeof words, "%s of %s%s", dsf_seal_blank, dsf_seal_blank, *tail);
        uint8_t *bytes = NULL; /* of its very size: what is read behind it is seen */
        GOOD(dsf_mem_new(&bytes, (size_t)n, 1));
        memcpy(bytes, words, (size_t)n);
        GOOD(dsf_seal_put(bytes, (size_t)n));
        GOOD(dsf_seal_check("case", bytes, (size_t)n));
        bytes[0] ^= 1;
        cr_expect_eq(dsf_seal_check("case", bytes, (size_t)n), DSF_ECORRUPT);
        dsf_mem_free(bytes);
    }
    GOOD(dsf_cut_file(in_folder("sealed.h5"), data, f.size));
    GOOD(dsf_case_replay(&none, in_folder("sealed.h5"), &r));
    none.choice = (dsf_scope_choice){.layer = -1, .by_row = true, .row_from = 70, .row_to = 70};
    cr_expect_eq(dsf_case_replay(&none, in_folder("sealed.h5"), &r), DSF_EINVAL);
    SAYS("has rows 0-63");
    none.choice = (dsf_scope_choice){.layer = -1, .by_row = true, .row_from = 0, .row_to = 63};
    GOOD(dsf_case_replay(&none, in_folder("sealed.h5"), &r));
    dsf_mem_free(data);
    dsf_file_close(&f);
}

Test(reduce_case, hostile_words_do_not_leave_the_folder)
{
    GOOD(unpack_with("/case", "command", "anything"));
    cr_expect_eq(unpack_with("/case", "golden", "../../escape.h5"), DSF_ECORRUPT);
    SAYS("not the name of a file");
    cr_expect_eq(unpack_with("/", "model", ".."), DSF_ECORRUPT);
    cr_expect_eq(unpack_with("/", "model", ""), DSF_ECORRUPT);
    cr_expect_eq(unpack_with("/", "config_json", "{}"), DSF_ECORRUPT);
    cr_expect_eq(unpack_with("/case", "schema", "dsf-case-9"), DSF_ENOTSUP);
    SAYS("dsf-case-9");
    cr_expect_eq(unpack_with("/case/weights/0000", "name", "layers.99.attn.wq_b.weight"),
                 DSF_EINVAL);
    SAYS("no tensor");
    cr_expect_eq(unpack_with("/case/weights/0000", "name", "norm.weight"), DSF_EINVAL);
    SAYS("it has 256");
    cr_expect_eq(unpack_with("/case/weights/0000", "digest", "00000000000000000000000000000000"),
                 DSF_ECORRUPT);
    SAYS("digest");
}

/* ---- cut models ---- */

Test(reduce_case, a_cut_model_is_a_checkpoint_with_the_same_bytes)
{
    for (int layers = 1; layers < 10; layers += 3) {
        dsf_loaded l = {.ckpt = NULL}, whole = {.ckpt = NULL};
        const char *to = in_folder("cut");
        GOOD(dsf_cut_model(mini(), layers, to));
        GOOD(dsf_load_open(&l, to, NULL));
        GOOD(dsf_load_open(&whole, mini(), NULL));
        cr_expect_eq(l.config.n_layers, layers);
        for (int64_t i = 0; i < dsf_ckpt_count(l.ckpt); i++) {
            const dsf_ckpt_entry *a = dsf_ckpt_at(l.ckpt, i);
            const dsf_ckpt_entry *b = dsf_ckpt_find(whole.ckpt, a->name);
            cr_assert(b && a->bytes == b->bytes, "%s", a->name);
            cr_expect_eq(memcmp(a->view.data, b->view.data, a->bytes), 0, "%s", a->name);
        }
        dsf_load_close(&l);
        dsf_load_close(&whole);
        dsf_cut_remove(to);
        cr_expect(!dsf_file_exists(to));
    }
}
